//! Request bodies on their way to the origin.
//!
//! An upload that is no longer needed is still read for a while: a client that is
//! answered before it has sent everything reads the answer only afterwards (RFC 9112,
//! section 9.6). Does not know how an upload is sent, or how its failure is handled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http::{Request, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, timeout};

use super::fields;
use super::progress::{MinimumProgress, count_slow};
use super::socket::{ConnectionActivity, UploadGuard};
use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_pace::TurnActivity;

/// Reason why an upload was cut short. The origin never sees it complete.
#[derive(Debug, Error)]
pub enum UploadError {
    /// The client closed the connection or framed the body incorrectly.
    #[error("the upload broke off")]
    Broken(#[source] hyper::Error),
    /// The client reset the stream with NO_ERROR before the end of the body.
    #[error("the upload broke off")]
    Reset,
    /// No bytes arrived for `proxy.idle_timeout`, or fewer than `proxy.min_progress`.
    #[error("the upload stalled")]
    Stalled,
}

/// Longest time for which an unneeded upload is read.
const LINGER_TIME: Duration = Duration::from_secs(5);

/// Time after which a client that sent `Expect: 100-continue` sends its body without
/// being asked (RFC 9110, section 10.1.1). This is curl's default.
const EXPECT_WAIT: Duration = Duration::from_secs(1);

/// Limits of uploads.
#[derive(Debug, Clone, Copy)]
pub struct UploadLimits {
    /// Longest time without a byte (`proxy.idle_timeout`).
    pub idle_timeout: Duration,
    /// Minimum that a client must send in the time spent waiting for it.
    pub least: MinimumProgress,
}

/// Body of a client's request. Fails if the client sends nothing, or almost nothing, for
/// too long.
#[derive(Debug)]
pub struct ClientUpload {
    /// `None` once the drop has taken it.
    body: Option<Incoming>,
    /// HTTP version of the request.
    version: Version,
    /// Arrival time of a request whose client waits with its body (`Expect`), until the
    /// body is first polled.
    held_back: Option<Instant>,
    /// Limits that the client must keep.
    limits: UploadLimits,
    /// Bytes received in the current window.
    bytes: usize,
    /// Time spent waiting for the client in the current window, except the wait in
    /// progress.
    waited: Duration,
    /// Wait in progress, if any.
    wait: Option<UploadWait>,
    /// Metrics, if there is a body.
    metrics: Option<Arc<Metrics>>,
    /// Activity of the turn in which the body is sent.
    turn: Option<Arc<TurnActivity>>,
    /// Held until the body is complete: meanwhile, bytes on the connection are not a new
    /// head, even if the response is complete.
    under_way: Option<UploadGuard>,
}

/// A wait for the client.
#[derive(Debug)]
struct UploadWait {
    /// Start of the wait, or of the current window if that is later.
    since: Instant,
    /// Time at which the idle timeout expires.
    idle_at: Instant,
    /// Expires at `idle_at`, or at the end of the current window if that is sooner.
    timer: Pin<Box<Sleep>>,
}

impl ClientUpload {
    /// Splits `request` into its head and an upload of its body. The body is limited by
    /// `limits` and arrives on the connection of `activity`.
    pub fn new(
        request: Request<Incoming>,
        limits: UploadLimits,
        activity: &Arc<ConnectionActivity>,
    ) -> (Parts, Self) {
        let (parts, body) = request.into_parts();
        let upload = Self {
            under_way: (!body.is_end_stream()).then(|| activity.begin_upload()),
            body: Some(body),
            version: parts.version,
            held_back: parts.headers.get(EXPECT).map(|_| clock::instant()),
            limits,
            bytes: 0,
            waited: Duration::ZERO,
            wait: None,
            metrics: None,
            turn: None,
        };
        (parts, upload)
    }

    /// Reports waits for the client to `turn`.
    #[must_use]
    pub fn within(mut self, turn: Arc<TurnActivity>) -> Self {
        self.turn = Some(turn);
        self
    }

    /// Moves the upload out and leaves an empty one.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let empty = self.without_body();
        std::mem::replace(self, empty)
    }

    /// Returns an empty upload with the same limits.
    #[must_use]
    pub fn without_body(&self) -> Self {
        Self {
            body: None,
            version: self.version,
            held_back: None,
            limits: self.limits,
            bytes: 0,
            waited: Duration::ZERO,
            wait: None,
            metrics: None,
            turn: None,
            under_way: None,
        }
    }

    /// Sets the metrics that count the client if it is too slow.
    pub fn count_in(&mut self, metrics: &Arc<Metrics>) {
        if !self.is_end_stream() {
            self.metrics = Some(Arc::clone(metrics));
        }
    }

    /// Counts the client as too slow, and returns the error for that.
    fn stalled(&self) -> UploadError {
        if let Some(metrics) = &self.metrics {
            count_slow(metrics, "upload");
        }
        UploadError::Stalled
    }

    /// Ends the wait after `bytes` have arrived. Returns whether the client is fast
    /// enough.
    fn end_wait(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.wait.take() {
            Some(wait) => self.add_wait(clock::instant().saturating_duration_since(wait.since)),
            None => true,
        }
    }

    /// Adds a wait to the window, and starts a new window if this one is over. Returns
    /// whether the client was fast enough.
    fn add_wait(&mut self, waited: Duration) -> bool {
        // Only time spent waiting for the client is added. Time in which the origin
        // accepts no bytes is not the client's fault.
        self.waited += waited;
        if self.waited < self.limits.least.window {
            return true;
        }
        self.waited = Duration::ZERO;
        self.limits.least.bytes <= std::mem::take(&mut self.bytes)
    }

    /// Completes when the client has sent too little for too long.
    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let limits = self.limits;
            let left = limits.least.window.saturating_sub(self.waited);
            let wait = self.wait.get_or_insert_with(|| {
                let since = clock::instant();
                let idle_at = since + limits.idle_timeout;
                let timer = Box::pin(tokio::time::sleep_until(idle_at.min(since + left)));
                UploadWait {
                    since,
                    idle_at,
                    timer,
                }
            });
            ready!(wait.timer.as_mut().poll(cx));
            let now = clock::instant();
            if wait.idle_at <= now {
                return Poll::Ready(());
            }
            let waited = now.saturating_duration_since(std::mem::replace(&mut wait.since, now));
            let ends_at = wait.idle_at.min(now + limits.least.window);
            // The window ended before the idle timeout.
            wait.timer.as_mut().reset(ends_at);
            if !self.add_wait(waited) {
                return Poll::Ready(());
            }
        }
    }
}

impl HttpBody for ClientUpload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        self.held_back = None;
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            // hyper treats a stream reset with NO_ERROR as one that has ended.
            let is_http2 = self.version == Version::HTTP_2;
            if frame.is_none() && is_http2 && !self.is_end_stream() {
                return Poll::Ready(Some(Err(UploadError::Reset)));
            }
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok());
            let bytes = data.and_then(Frame::data_ref).map_or(0, Bytes::len);
            if let Some(under_way) = &self.under_way {
                under_way.record();
            }
            if let Some(turn) = &self.turn {
                turn.wait_for_origin();
                turn.add_client_bytes(bytes);
                if frame.is_none() || self.is_end_stream() {
                    turn.end_upload();
                }
            }
            if !self.end_wait(bytes) && frame.is_some() {
                return Poll::Ready(Some(Err(self.stalled())));
            }
            let passed = frame.map(|frame| frame.map(without_framing_trailers));
            return Poll::Ready(passed.map(|frame| frame.map_err(UploadError::Broken)));
        }
        if let Some(turn) = &self.turn {
            turn.wait_for_client();
        }
        ready!(self.poll_stall(cx));
        Poll::Ready(Some(Err(self.stalled())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let none = || SizeHint::with_exact(0);
        self.body.as_ref().map_or_else(none, Incoming::size_hint)
    }
}

impl Drop for ClientUpload {
    fn drop(&mut self) {
        let is_held_back = self
            .held_back
            .is_some_and(|since| clock::instant().saturating_duration_since(since) < EXPECT_WAIT);
        let has_no_more = self.is_end_stream() || is_held_back;
        // A body may be dropped outside a runtime, at the end of a process.
        if let Some(body) = self.body.take().filter(|_| !has_no_more)
            && let Ok(runtime) = Handle::try_current()
        {
            // Not a tracked task, so a stop does not wait for it: it ends with its
            // connection.
            runtime.spawn(read_on(body, self.under_way.take()));
        }
    }
}

/// Reads the rest of an unneeded upload, for [`LINGER_TIME`] at most. If the connection
/// were closed, or the stream reset, while the client still sends, many clients would
/// lose the answer.
async fn read_on(mut body: Incoming, _under_way: Option<UploadGuard>) {
    let read = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = timeout(LINGER_TIME, read).await;
}

fn without_framing_trailers(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => Frame::trailers(fields::of_upload_trailers(&trailers)),
        Err(frame) => frame,
    }
}
