//! End of a response that its origin broke off: the client gets the status and the
//! preceding data first.
//!
//! When a body fails, hyper drops everything that it has not written yet. Over HTTP/2 its
//! reset also overtakes data that waits for the client's window (RFC 9113, section
//! 5.4.2), and hyper does not report when that data has been written. So the error is
//! held back until no more bytes are written to the connection. Does not know why a
//! response broke off.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::socket::ConnectionActivity;
use politesse_base::clock;
use politesse_net::body::BodyError;

/// Time without a write after which everything before the failure counts as written. A
/// distant client needs one round trip to enlarge its window.
const QUIET_TIME: Duration = Duration::from_millis(250);

/// Longest wait for that. Other streams may keep the connection busy all the time.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(3);

/// Failure of a response, held back until the bytes before it have been written.
#[derive(Debug)]
pub(super) struct BrokenEnd {
    /// The failure, until it is passed on.
    error: Option<BodyError>,
    /// Absent over HTTP/1, where returning `Pending` once is enough for hyper to write
    /// what it has.
    drain: Option<Drain>,
}

/// Wait until no more bytes are written to a connection.
#[derive(Debug)]
struct Drain {
    /// Activity of the connection, which counts the bytes written.
    activity: Arc<ConnectionActivity>,
    /// Number of bytes written when the timer was set.
    written: u64,
    /// Time of the next check.
    timer: Pin<Box<Sleep>>,
    /// Time at which the wait ends in any case.
    deadline: Instant,
}

impl BrokenEnd {
    /// Holds `error` back: over HTTP/2 until no more bytes are written to the connection
    /// of `activity`, otherwise for one poll. Wakes the task of `cx` for the next poll.
    pub(super) fn new(
        error: BodyError,
        http2: Option<&Arc<ConnectionActivity>>,
        cx: &Context<'_>,
    ) -> Self {
        cx.waker().wake_by_ref();
        Self {
            error: Some(error),
            drain: http2.map(|activity| Drain {
                activity: Arc::clone(activity),
                written: activity.written(),
                timer: Box::pin(sleep(QUIET_TIME)),
                deadline: clock::instant() + DRAIN_TIME_MAX,
            }),
        }
    }

    /// Returns the error when its time has come, and `None` after that.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyError>> {
        if let Some(drain) = &mut self.drain {
            ready!(drain.poll(cx));
        }
        Poll::Ready(self.error.take())
    }
}

impl Drain {
    /// Completes when nothing was written for [`QUIET_TIME`], or at the deadline.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let before = std::mem::replace(&mut self.written, self.activity.written());
            let now = clock::instant();
            if before == self.written || self.deadline <= now {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(now + QUIET_TIME);
        }
    }
}
