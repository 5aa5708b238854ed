//! End of a response that its origin broke off: the status and the data that came
//! before reach the client first.
//!
//! A failed body makes hyper drop what it has not written. Over HTTP/2 its reset also
//! overtakes what waits for the client's window (RFC 9113, section 5.4.2), and hyper
//! does not say when that is written. So the failure waits until nothing more is written
//! to the connection. Does not know why a response broke off.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::socket::ConnectionActivity;
use politesse_base::clock;
use politesse_net::body::BodyError;

/// Time without a write after which all that came before a failure counts as written. A
/// client that is far away gives more window after one round trip.
const QUIET_TIME: Duration = Duration::from_millis(250);

/// Longest wait for that. Other streams of the connection may be written all the time.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(3);

/// Failure of a response, kept until the bytes before it were written.
#[derive(Debug)]
pub(super) struct BrokenEnd {
    error: Option<BodyError>,
    /// Absent over HTTP/1, where hyper writes what it has while it waits for one turn.
    drain: Option<Drain>,
}

/// Wait until nothing more is written to a connection.
#[derive(Debug)]
struct Drain {
    activity: Arc<ConnectionActivity>,
    /// Bytes that were written when the timer was set.
    written: u64,
    timer: Pin<Box<Sleep>>,
    deadline: Instant,
}

impl BrokenEnd {
    /// Keeps `error`: for one turn, or on a connection of HTTP/2 until nothing more is
    /// written to that of `activity`. The task of `cx` is woken for it.
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

    /// Waits for the time of the error. `None` once it was returned.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyError>> {
        if let Some(drain) = &mut self.drain {
            ready!(drain.poll(cx));
        }
        Poll::Ready(self.error.take())
    }
}

impl Drain {
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
