//! What is held back of a body while its head is looked at.
//!
//! Invariant 8: what one response may hold is bounded by its reader, what all
//! of them hold together by a `HoldBudget`. A page that finds no room in it goes on
//! unread; none is turned away.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf as _, Bytes, BytesMut};
use http_body::Frame;
use prometheus_client::metrics::gauge::Gauge;

use crate::upstream::body::BodyError;

/// The bytes that all responses together may hold back.
#[derive(Debug)]
pub struct HoldBudget {
    bytes_max: usize,
    bytes: AtomicUsize,
    gauge: Gauge,
}

/// A part of the budget, given back on drop.
#[derive(Debug)]
pub struct HoldShare {
    budget: Arc<HoldBudget>,
    bytes: usize,
}

/// The beginning of a body, to be passed on first.
#[derive(Debug)]
pub struct HeldBody {
    data: VecDeque<Bytes>,
    /// Small pieces, put together: each would cost more than it holds.
    small: BytesMut,
    bytes: usize,
    /// Trailers, or how the body broke off: nothing comes behind it.
    last: Option<Result<Frame<Bytes>, BodyError>>,
    share: Option<HoldShare>,
}

/// Pieces below this many bytes are put together.
const SMALL_BYTES: usize = 1024;

impl HoldBudget {
    /// A budget of `bytes_max`, with `gauge` showing what is spent of it.
    pub fn new(bytes_max: usize, gauge: Gauge) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            bytes: AtomicUsize::new(0),
            gauge,
        })
    }

    /// An empty share.
    pub fn share(self: &Arc<Self>) -> HoldShare {
        HoldShare {
            budget: Arc::clone(self),
            bytes: 0,
        }
    }

    fn take(&self, bytes: usize) -> Option<()> {
        let update = |spent: usize| {
            let sum = spent.checked_add(bytes)?;
            (sum <= self.bytes_max).then_some(sum)
        };
        let taken = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        taken.ok()?;
        self.gauge.inc_by(i64::try_from(bytes).unwrap_or(i64::MAX));
        Some(())
    }

    fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.gauge.dec_by(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

impl HoldShare {
    /// Makes the share as large as that, unless it is; nothing if there is no
    /// room for it.
    pub fn grow_to(&mut self, bytes: usize) -> Option<()> {
        let more = bytes.saturating_sub(self.bytes);
        self.budget.take(more)?;
        self.bytes += more;
        Some(())
    }
}

impl Drop for HoldShare {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

impl HeldBody {
    /// Nothing held back.
    pub fn new() -> Self {
        Self {
            data: VecDeque::new(),
            small: BytesMut::new(),
            bytes: 0,
            last: None,
            share: None,
        }
    }

    /// Holds back what has been read of a body.
    pub fn push(&mut self, next: Result<Frame<Bytes>, BodyError>) {
        match next.map(Frame::into_data) {
            Ok(Ok(data)) => self.push_data(data),
            Ok(Err(frame)) => self.last = Some(Ok(frame)),
            Err(error) => self.last = Some(Err(error)),
        }
    }

    fn push_data(&mut self, data: Bytes) {
        self.bytes += data.remaining();
        if data.remaining() < SMALL_BYTES {
            self.small.extend_from_slice(&data);
        } else {
            self.close_small();
            self.data.push_back(data);
        }
    }

    fn close_small(&mut self) {
        if !self.small.is_empty() {
            self.data.push_back(self.small.split().freeze());
        }
    }

    /// Keeps `share` as long as there is something to pass on.
    #[must_use]
    pub fn within(mut self, share: HoldShare) -> Self {
        self.share = Some(share);
        self
    }

    /// Bytes of data held back.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the body ends with what is held back; if it does not break off.
    pub fn breaks_off(&self) -> bool {
        matches!(self.last, Some(Err(_)))
    }

    /// Whether nothing is left to pass on.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.small.is_empty() && self.last.is_none()
    }

    /// The next part to pass on.
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

impl Default for HeldBody {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(bytes: &[u8]) -> Result<Frame<Bytes>, BodyError> {
        Ok(Frame::data(Bytes::copy_from_slice(bytes)))
    }

    // Invariant 7: not a byte is changed, and none changes its place.
    #[test]
    fn what_is_held_back_comes_out_as_it_went_in() {
        let large = vec![b'x'; SMALL_BYTES];
        let parts = [b"ab".as_slice(), b"", b"c", &large, b"d", &large, b"e"];
        let mut held = HeldBody::new();
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

    // Invariant 8.
    #[test]
    fn a_share_is_refused_beyond_the_budget_and_given_back() {
        let budget = HoldBudget::new(10, Gauge::default());
        let mut first = budget.share();
        assert!(first.grow_to(10).is_some());
        assert!(budget.share().grow_to(1).is_none());
        drop(first);
        assert_eq!(budget.gauge.get(), 0);
        assert!(budget.share().grow_to(10).is_some());
    }

    #[test]
    fn a_share_is_kept_until_all_is_passed_on() {
        let budget = HoldBudget::new(10, Gauge::default());
        let mut share = budget.share();
        share.grow_to(2).unwrap();
        let mut held = HeldBody::new();
        held.push(data(b"ab"));
        let mut held = held.within(share);
        assert!(held.pop().is_some());
        assert_eq!(budget.gauge.get(), 2);
        assert!(held.pop().is_none());
        assert_eq!(budget.gauge.get(), 0);
    }
}
