//! One exchange over one connection: a request, its interim responses, and the
//! head of its response; and whether the request may be sent again if that
//! fails.
//!
//! Does not know where connections come from, nor when a host may be asked
//! again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::connect::{Connection, Sender};
use super::egress::NextHop;
use super::head::{OutgoingHead, check_response, http1_request, http2_request, to_parent};
use super::parent::{Credentials, asks_for_credentials};
use super::response_heads::INTERIM_RESPONSES_MAX;
use super::upload::{Upload, UploadProgress};
use crate::decision::access::NoConnection;
use crate::upstream::error::UpstreamError;
use politesse_robots::origin::Target;

/// Head of a request, and the URL that it goes to.
pub(super) struct RequestMessage<'a> {
    pub(super) target: &'a Target,
    pub(super) head: &'a OutgoingHead,
}

/// Exchange that brought no response.
pub(super) struct FailedExchange {
    pub(super) error: UpstreamError,
    pub(super) retry: Retry,
}

/// Whether a failed request may be sent again (RFC 9110, section 9.2.2).
pub(super) enum Retry {
    /// Nothing of it was written, and this is its body.
    Unsent(Upload),
    /// The request is idempotent, has no body, and not a byte came back.
    Harmless,
    Never,
}

impl FailedExchange {
    fn of(mut error: TrySendError<Request<Upload>>, upload: &UploadProgress) -> Self {
        let unsent = error.take_message().map(Request::into_body);
        let error = if upload.broke() {
            UpstreamError::RequestBody
        } else {
            error.into_error().into()
        };
        let retry = unsent.map_or(Retry::Never, Retry::Unsent);
        Self { error, retry }
    }
}

impl From<UpstreamError> for FailedExchange {
    fn from(error: UpstreamError) -> Self {
        Self {
            error,
            retry: Retry::Never,
        }
    }
}

/// Connection and settings of an exchange.
pub(super) struct Exchange<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) credentials: Option<&'a Credentials>,
    /// Longest wait for the head of the response, from the last part of the
    /// upload.
    pub(super) first_byte_timeout: Duration,
}

impl Exchange<'_> {
    /// Sends a request and returns the head of its response. The progress of
    /// `body` must be read before, since hyper owns it then.
    pub(super) async fn run(
        self,
        message: &RequestMessage<'_>,
        body: Upload,
    ) -> Result<Response<Incoming>, FailedExchange> {
        let reader = self.connection.reader;
        let is_harmless = body.is_end_stream() && message.head.method.is_idempotent();
        let received = self.connection.received.clone();
        let (before, is_shared) = (received.bytes(), self.connection.is_shared());
        let answer = self.send(message, body).await;
        // On a shared connection the bytes may belong to any exchange; that this
        // response has not begun is all there is to know.
        let is_silent = is_shared || received.bytes() == before;
        let mut response = answer.map_err(|mut failed| {
            let broke = matches!(failed.error, UpstreamError::Incomplete(_));
            if is_harmless && is_silent && broke && matches!(failed.retry, Retry::Never) {
                failed.retry = Retry::Harmless;
            }
            failed
        })?;
        check_response(&response)?;
        if reader == NextHop::Parent {
            if asks_for_credentials(response.status()) {
                return Err(UpstreamError::NoConnection(NoConnection::ParentCredentials).into());
            }
            // A robots.txt that seems to be missing may be an error page of the
            // parent, so the caller must know who could have answered.
            response.extensions_mut().insert(NextHop::Parent);
        }
        Ok(response)
    }

    async fn send(
        self,
        message: &RequestMessage<'_>,
        body: Upload,
    ) -> Result<Response<Incoming>, FailedExchange> {
        let (upload, wait) = (body.progress(), self.first_byte_timeout);
        let received = &self.connection.received;
        match &mut self.connection.sender {
            Sender::Http1(sender) => {
                let mut request = http1_request(message.target, message.head, body)?;
                if self.connection.reader == NextHop::Parent {
                    request = to_parent(request, message.target, self.credentials)?;
                }
                let received = received.clone();
                let flood = interim_flood(&mut request, move || received.stop_reading());
                let answer = sender.try_send_request(request);
                // The flood first: when reading stops, hyper fails as well,
                // with an error that hides the reason.
                tokio::select! {
                    biased;
                    () = flood.notified() => Err(UpstreamError::InterimResponses.into()),
                    answered = response_head(answer, &upload, wait) => answered,
                }
            }
            Sender::Http2(sender) => {
                let request = http2_request(message.target, message.head, body)?;
                let answer = sender.try_send_request(request);
                let answered = response_head(answer, &upload, wait).await;
                answered.map_err(|mut failed| {
                    // A request of which nothing was written is not to blame: it
                    // goes out on another connection.
                    if received.is_flooded() && matches!(failed.retry, Retry::Never) {
                        failed.error = UpstreamError::InterimResponses;
                    }
                    failed
                })
            }
        }
    }
}

/// Waits for the head of a response. What the client uploads meanwhile starts
/// the time anew.
async fn response_head(
    answer: impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Upload>>>>,
    upload: &UploadProgress,
    first_byte_timeout: Duration,
) -> Result<Response<Incoming>, FailedExchange> {
    let mut answer = std::pin::pin!(answer);
    loop {
        let frames = upload.frames();
        match timeout(first_byte_timeout, &mut answer).await {
            Ok(answered) => return answered.map_err(|error| FailedExchange::of(error, upload)),
            Err(_) if frames < upload.frames() => {}
            Err(_) => return Err(UpstreamError::FirstByteTimeout.into()),
        }
    }
}

/// Returns what is notified once an HTTP/1.1 request has more interim responses
/// (RFC 9110, section 15.2) than a server has reason to send; `stop` is called
/// then.
///
/// hyper reads interim responses and passes none on, so that an endless row of
/// them would hold a client for ever. `response_heads` counts them on HTTP/2.
fn interim_flood(
    request: &mut Request<Upload>,
    stop: impl Fn() + Send + Sync + 'static,
) -> Arc<Notify> {
    let (flood, count) = (Arc::new(Notify::new()), AtomicUsize::new(0));
    let notify = Arc::clone(&flood);
    hyper::ext::on_informational(request, move |_| {
        if INTERIM_RESPONSES_MAX <= count.fetch_add(1, Ordering::Relaxed) {
            stop();
            notify.notify_one();
        }
    });
    flood
}
