//! Response body with a timeout between its parts. Its connection returns to the pool at
//! the end.
//!
//! Does not know how the body is used.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::body::{Body, Frame, SizeHint};
use thiserror::Error;

use super::connect::{Connection, WaitTimer};
use super::pool::Pool;
use super::private::PrivateScope;
use super::upload::UploadProgress;
use politesse_decision::access::Cause;
use politesse_robots::origin::Origin;

/// Error that ended a response body early. The message to the crawler must end with an
/// error too, so that it does not look complete.
#[derive(Debug, Error)]
pub enum BodyError {
    /// No part arrived within `upstream.idle_timeout`.
    #[error("the body stalled")]
    Stalled,
    /// The body is shorter than announced, or its framing is malformed.
    #[error("the body broke off")]
    Incomplete(#[source] hyper::Error),
    /// An HTTP/2 stream was reset with NO_ERROR before its end. RFC 9113, section 8.1,
    /// allows that only after a complete response.
    #[error("the stream was reset before its end")]
    Reset,
}

impl From<BodyError> for Cause {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Stalled => Self::Timeout,
            BodyError::Incomplete(_) | BodyError::Reset => Self::Broken,
        }
    }
}

impl BodyError {
    /// Returns the error type of RFC 9209, section 2.3.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Stalled => "connection_read_timeout",
            Self::Incomplete(_) | Self::Reset => "http_response_incomplete",
        }
    }
}

/// Response body as it streams in. After a clean end its connection returns to the pool.
/// If the body is dropped earlier, the connection is closed.
pub struct ResponseBody {
    incoming: Incoming,
    idle_timeout: Duration,
    /// Timer for waits on a shared connection. Other waits use the timer of the
    /// connection.
    timer: WaitTimer,
    waiting: bool,
    /// Whether the response came over a shared HTTP/2 connection.
    shared: bool,
    upload: UploadProgress,
    lease: Option<Lease>,
    /// Whether the body ended with a TLS session that was not closed properly.
    is_unclosed: bool,
}

/// Connection in use, and the pool to return it to.
pub(super) struct Lease {
    pub(super) pool: Arc<Pool>,
    pub(super) origin: Origin,
    pub(super) connection: Connection,
    /// Whether the connection can be reused.
    pub(super) may_be_kept: bool,
    /// Owner of the connection, if it is private.
    pub(super) owner: Option<PrivateScope>,
    /// Whether the body is delimited only by the end of the connection (RFC 9112, section
    /// 6.3).
    pub(super) ends_body: bool,
}

impl ResponseBody {
    /// Creates the body of a response. `upload` is the progress of the request body.
    /// `lease` is absent on a shared connection.
    pub(super) fn new(
        incoming: Incoming,
        idle_timeout: Duration,
        upload: UploadProgress,
        lease: Option<Lease>,
    ) -> Self {
        let mut body = Self {
            incoming,
            idle_timeout,
            timer: WaitTimer::default(),
            waiting: false,
            shared: lease.is_none(),
            upload,
            lease,
            is_unclosed: false,
        };
        // hyper does not poll a body that is known to be empty.
        if body.incoming.is_end_stream() {
            body.give_back();
        }
        body
    }

    /// Reports whether the body was ended only by a TLS session that the site closed
    /// without close_notify. It may be truncated: RFC 9112, section 9.8, calls it
    /// incomplete.
    pub fn is_unclosed(&self) -> bool {
        self.is_unclosed
    }

    fn give_back(&mut self) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        self.is_unclosed = lease.ends_body && lease.connection.received.is_unclosed();
        // If the upload is still in progress, the next response could be for this
        // request.
        if !lease.may_be_kept || !self.upload.has_ended() {
            return;
        }
        match lease.owner {
            Some(owner) => owner.put(lease.origin, lease.connection, &lease.pool),
            None => lease.pool.put(lease.origin, lease.connection),
        }
    }

    /// Waits for the next part, for at most `idle_timeout`.
    fn poll_stalled(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let timer = match &mut self.lease {
            Some(lease) => &mut lease.connection.timer,
            None => &mut self.timer,
        };
        // The timer starts only when a wait begins. Restarting it at every poll would let
        // fruitless polls postpone the timeout forever.
        if !self.waiting {
            self.waiting = true;
            timer.start(self.idle_timeout);
        }
        timer.poll_over(cx).map(|()| {
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
        // hyper treats a stream reset with NO_ERROR as one that has ended. That is
        // correct if the origin only stops the upload (RFC 9113, section 8.1). On
        // HTTP/1.1, hyper itself reports a truncated body.
        let may_be_reset = this.shared && this.upload.has_ended();
        if frame.is_none() && may_be_reset && !this.incoming.is_end_stream() {
            return Poll::Ready(Some(Err(BodyError::Reset)));
        }
        // Done together with the last part, because hyper does not poll a body again that
        // reports its end. After an error the connection is closed: the rest of this
        // response would be read as the next one.
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
