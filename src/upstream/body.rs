//! The body of an origin's response, on its way to whoever asked.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;
use tokio::time::{Sleep, sleep};

use super::connect::Connection;
use super::pool::Pool;
use super::upload::Progress;
use crate::clock;
use politesse_robots::origin::Origin;

/// Why the body of a response ended early. The crawler's message must end
/// broken too, so that it is not taken for the whole.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BodyError {
    /// Nothing came within `upstream.idle_timeout`.
    #[error("the body stalled")]
    Stalled,
    /// It is shorter than announced, or its framing is malformed.
    #[error("the body broke off")]
    Incomplete(#[source] hyper::Error),
    /// An HTTP/2 stream was reset without an error before its end (RFC 9113,
    /// section 8.1, allows that only behind a complete response).
    #[error("the stream was reset before its end")]
    Reset,
}

impl BodyError {
    /// The error type of RFC 9209, section 2.3.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Stalled => "connection_read_timeout",
            Self::Incomplete(_) | Self::Reset => "http_response_incomplete",
        }
    }
}

/// A response body as it streams in. At its clean end its connection can be
/// used again; dropped before, it is closed.
pub struct ResponseBody {
    incoming: Incoming,
    idle_timeout: Duration,
    /// Made at the first wait: most bodies are here at once.
    stall: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    /// Whether it came over an HTTP/2 connection.
    shared: bool,
    lease: Option<Lease>,
}

/// A connection in use, which goes back to the pool if all ends well.
pub(super) struct Lease {
    pub(super) pool: Arc<Pool>,
    pub(super) origin: Origin,
    pub(super) connection: Connection,
    pub(super) upload: Progress,
}

impl ResponseBody {
    /// `lease` is absent where the connection is shared anyway.
    pub(super) fn new(incoming: Incoming, idle_timeout: Duration, lease: Option<Lease>) -> Self {
        let mut body = Self {
            incoming,
            idle_timeout,
            stall: None,
            waiting: false,
            shared: lease.is_none(),
            lease,
        };
        // A body known to be empty is not polled by everyone.
        if body.incoming.is_end_stream() {
            body.give_back();
        }
        body
    }

    fn give_back(&mut self) {
        // With an upload still under way the next response could be to this one.
        if let Some(lease) = self.lease.take()
            && lease.upload.has_ended()
        {
            lease.pool.put(lease.origin, lease.connection);
        }
    }

    /// Waits for the next part, as long as `idle_timeout` at most.
    fn poll_stalled(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let idle_timeout = self.idle_timeout;
        let stall = self
            .stall
            .get_or_insert_with(|| Box::pin(sleep(idle_timeout)));
        if !self.waiting {
            self.waiting = true;
            stall.as_mut().reset(clock::instant() + idle_timeout);
        }
        stall.as_mut().poll(cx).map(|()| {
            self.lease = None;
            Some(Err(BodyError::Stalled))
        })
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.incoming).poll_frame(cx) else {
            return this.poll_stalled(cx);
        };
        this.waiting = false;
        if frame.is_none() && this.shared && !this.incoming.is_end_stream() {
            return Poll::Ready(Some(Err(BodyError::Reset)));
        }
        match &frame {
            Some(Ok(_)) if !this.incoming.is_end_stream() => {}
            Some(Ok(_)) | None => this.give_back(),
            Some(Err(_)) => this.lease = None,
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Incomplete)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("incoming", &self.incoming)
            .finish_non_exhaustive()
    }
}
