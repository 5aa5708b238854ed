//! Starts of origin bodies, held back while the head of a page is scanned.
//!
//! Invariant 8 (ARCHITECTURE.md): the scan limits the bytes held back per response, and a
//! [`HoldBudget`] the total. A page for which the budget has no room is passed on
//! unscanned. Does not know what the scan looks for.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use hyper::body::Frame;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use politesse_net::body::BodyError;

/// Limit on the bytes held back for all responses together.
#[derive(Debug)]
pub struct HoldBudget {
    /// One permit for each free byte.
    free: Arc<Semaphore>,
    /// Number of bytes held.
    gauge: Gauge,
}

/// Part of a budget, returned on drop.
#[derive(Debug)]
pub struct HoldShare {
    /// Budget that the share was taken from.
    budget: Arc<HoldBudget>,
    /// Size of the share.
    bytes: usize,
    /// Permits for these bytes; `None` if there are none.
    permits: Option<OwnedSemaphorePermit>,
}

/// Start of a body, to be passed on before the rest.
#[derive(Debug, Default)]
pub struct HeldBody {
    /// Pieces in order; those in `small` follow them.
    data: VecDeque<Bytes>,
    /// Joined small pieces, which would otherwise cost more memory than they hold.
    small: BytesMut,
    /// Length of `data` and `small` together.
    bytes: usize,
    /// Trailers, or the error that ended the body. Nothing follows it.
    last: Option<Result<Frame<Bytes>, BodyError>>,
    /// Share that pays for the bytes until they have been passed on.
    share: Option<HoldShare>,
}

/// Pieces shorter than this are joined.
const SMALL_BYTES: usize = 1024;

impl HoldBudget {
    /// Creates a budget of `bytes_max`; `gauge` shows the used part.
    pub fn new(bytes_max: usize, gauge: Gauge) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(bytes_max.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self { free, gauge })
    }

    /// Returns an empty share.
    pub fn share(self: &Arc<Self>) -> HoldShare {
        HoldShare {
            budget: Arc::clone(self),
            bytes: 0,
            permits: None,
        }
    }
}

impl HoldShare {
    /// Enlarges the share to at least `bytes`. Returns `None` if the budget has no room
    /// for that.
    pub fn grow_to(&mut self, bytes: usize) -> Option<()> {
        let more = u32::try_from(bytes.saturating_sub(self.bytes)).ok()?;
        let free = Arc::clone(&self.budget.free);
        let taken = free.try_acquire_many_owned(more).ok()?;
        match &mut self.permits {
            Some(permits) => permits.merge(taken),
            None => self.permits = Some(taken),
        }
        self.budget.gauge.inc_by(i64::from(more));
        self.bytes = self.bytes.max(bytes);
        Some(())
    }
}

impl Drop for HoldShare {
    fn drop(&mut self) {
        let bytes = i64::try_from(self.bytes).unwrap_or(i64::MAX);
        self.budget.gauge.dec_by(bytes);
    }
}

impl HeldBody {
    /// Holds back one piece read from a body.
    pub fn push(&mut self, next: Result<Frame<Bytes>, BodyError>) {
        match next.map(Frame::into_data) {
            Ok(Ok(data)) => self.push_data(data),
            Ok(Err(frame)) => self.last = Some(Ok(frame)),
            Err(error) => self.last = Some(Err(error)),
        }
    }

    /// Holds back data, joined with what came before if it is small.
    fn push_data(&mut self, data: Bytes) {
        self.bytes += data.remaining();
        if data.remaining() < SMALL_BYTES {
            self.small.extend_from_slice(&data);
        } else {
            self.close_small();
            self.data.push_back(data);
        }
    }

    /// Makes the joined small pieces one piece of `data`.
    fn close_small(&mut self) {
        if !self.small.is_empty() {
            self.data.push_back(self.small.split().freeze());
        }
    }

    /// Keeps `share` until everything has been passed on.
    #[must_use]
    pub fn within(mut self, share: HoldShare) -> Self {
        self.share = Some(share);
        self
    }

    /// Returns the number of data bytes held back.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reports whether the body ends with an error.
    pub fn breaks_off(&self) -> bool {
        matches!(self.last, Some(Err(_)))
    }

    /// Reports whether everything has been passed on.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.small.is_empty() && self.last.is_none()
    }

    /// Removes and returns the next piece to pass on.
    pub fn pop(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        if self.data.is_empty() {
            self.close_small();
        }
        let Some(data) = self.data.pop_front() else {
            self.share = None;
            return self.last.take();
        };
        self.bytes -= data.len();
        Some(Ok(Frame::data(data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(bytes: &[u8]) -> Result<Frame<Bytes>, BodyError> {
        Ok(Frame::data(Bytes::copy_from_slice(bytes)))
    }

    // Invariant 7 (ARCHITECTURE.md): bytes are neither changed nor reordered.
    #[test]
    fn held_bytes_come_out_unchanged_and_in_order() {
        let large = vec![b'x'; SMALL_BYTES];
        let parts = [b"ab".as_slice(), b"", b"c", &large, b"d", &large, b"e"];
        let mut held = HeldBody::default();
        for part in parts {
            held.push(data(part));
        }
        held.push(Ok(Frame::trailers(http::HeaderMap::new())));
        assert_eq!(held.bytes(), parts.concat().len());
        let mut passed = Vec::new();
        let mut frames = 0;
        while let Some(next) = held.pop() {
            frames += 1;
            if let Ok(data) = next.unwrap().into_data() {
                passed.extend_from_slice(&data);
            }
        }
        assert_eq!(passed, parts.concat());
        assert_eq!((frames, held.bytes()), (6, 0));
        assert!(held.is_empty());
    }

    // Invariant 8 (ARCHITECTURE.md).
    #[test]
    fn a_share_beyond_the_budget_is_refused_and_a_dropped_one_is_returned() {
        let budget = HoldBudget::new(10, Gauge::default());
        let mut first = budget.share();
        assert!(first.grow_to(10).is_some());
        assert!(budget.share().grow_to(1).is_none());
        drop(first);
        assert_eq!(budget.gauge.get(), 0);
        assert!(budget.share().grow_to(10).is_some());
    }

    #[test]
    fn a_share_is_kept_until_everything_is_passed_on() {
        let budget = HoldBudget::new(10, Gauge::default());
        let mut share = budget.share();
        share.grow_to(2).unwrap();
        let mut held = HeldBody::default();
        held.push(data(b"ab"));
        let mut held = held.within(share);
        assert!(held.pop().is_some());
        assert_eq!(budget.gauge.get(), 2);
        assert!(held.pop().is_none());
        assert_eq!(budget.gauge.get(), 0);
    }
}
