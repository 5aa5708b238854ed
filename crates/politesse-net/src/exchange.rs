//! One exchange over one connection: a request, its interim responses, and the head of
//! its response. Also decides whether a failed request may be sent again.
//!
//! Does not know where connections come from, or when a host may be contacted again.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use h2::Reason;
use http::{Request, Response};
use hyper::body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;

use super::connect::{Connection, Purpose, Sender, WaitTimer};
use super::egress::NextHop;
use super::head::{OutgoingHead, check_response, http1_request, http2_request, to_parent};
use super::parent::{Credentials, asks_for_credentials};
use super::upload::{Upload, UploadProgress};
use super::wire::ReceivedBytes;
use crate::error::UpstreamError;
use politesse_decision::access::NoConnection;
use politesse_decision::tls_exception::TlsException;
use politesse_robots::origin::Target;

/// Head of a request, and its target URL.
pub(super) struct RequestMessage<'a> {
    pub(super) target: &'a Target,
    pub(super) head: &'a mut OutgoingHead,
    /// TLS exception for the origin.
    pub(super) tls: Option<&'a TlsException>,
    pub(super) purpose: Purpose,
    /// Whether the request authenticates its connection.
    pub(super) is_private: bool,
}

/// An exchange without a response.
pub(super) struct FailedExchange {
    pub(super) error: UpstreamError,
    pub(super) retry: Retry,
}

/// Whether a failed request may be sent again (RFC 9110, section 9.2.2).
pub(super) enum Retry {
    /// No part of the request was written. The body is returned for the next attempt.
    Unsent(Upload),
    /// The request is idempotent and has no body, and no byte was received.
    Harmless,
    /// The origin states that it did not process the request, or that it requires
    /// HTTP/1.1 (RFC 9113, sections 7 and 8.7). No part of the body was taken.
    Unprocessed(Upload),
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
    /// Longest wait for the head of the response, measured from the last part of the
    /// upload.
    pub(super) first_byte_timeout: Duration,
}

impl Exchange<'_> {
    /// Sends a request and returns the head of its response. Obtain the progress of
    /// `body` before the call, because hyper owns the body afterwards.
    pub(super) async fn run(
        self,
        message: &mut RequestMessage<'_>,
        body: Upload,
    ) -> Result<Response<Incoming>, FailedExchange> {
        let reader = self.connection.reader;
        let upload = body.progress();
        let is_harmless = body.is_end_stream() && message.head.method.is_idempotent();
        let received = self.connection.received.clone();
        let (before, is_shared) = (received.bytes(), self.connection.is_shared());
        let answer = self.send(message, body).await;
        // On a shared connection, received bytes may belong to another exchange. The only
        // certain fact is that this response has not begun.
        let is_silent = is_shared || received.bytes() == before;
        let mut response = answer.map_err(|mut failed| {
            let broke = matches!(
                failed.error,
                UpstreamError::Incomplete(_) | UpstreamError::NoConnection(NoConnection::Alert)
            );
            let is_unprocessed = failed.error.reset_reason().is_some_and(is_unprocessed);
            if matches!(failed.retry, Retry::Never) {
                failed.retry = match is_unprocessed.then(|| upload.take_back()).flatten() {
                    Some(body) => Retry::Unprocessed(body),
                    None if is_harmless && is_silent && broke => Retry::Harmless,
                    None => Retry::Never,
                };
            }
            failed
        })?;
        check_response(&response)?;
        if reader == NextHop::Parent {
            if asks_for_credentials(response.status()) {
                return Err(UpstreamError::NoConnection(NoConnection::ParentCredentials).into());
            }
            // A robots.txt that seems to be missing may be an error page of the parent,
            // so the caller must know who sent the response.
            response.extensions_mut().insert(NextHop::Parent);
        }
        Ok(response)
    }

    async fn send(
        self,
        message: &mut RequestMessage<'_>,
        body: Upload,
    ) -> Result<Response<Incoming>, FailedExchange> {
        let upload = body.progress();
        let Connection {
            sender,
            timer,
            received,
            reader,
            is_of_reserve: _,
            is_private: _,
        } = self.connection;
        let wait = HeadWait {
            upload: &upload,
            timer,
            longest: self.first_byte_timeout,
        };
        let is_flooded = |failed: &FailedExchange| {
            // A request of which nothing was written did not cause the flood. It goes out
            // on another connection.
            received.is_flooded() && matches!(failed.retry, Retry::Never)
        };
        let answered = match sender {
            Sender::Http1(sender) => {
                let mut request = http1_request(message.target, message.head, body)?;
                if *reader == NextHop::Parent {
                    request = to_parent(request, message.target, self.credentials)?;
                }
                count_interim_responses(&mut request, received);
                let answer = pin!(sender.try_send_request(request));
                let answered = wait.response_head(answer).await;
                // The response may have been read together with the flood before it.
                if answered.is_ok() && received.is_flooded() {
                    return Err(UpstreamError::InterimResponses.into());
                }
                answered
            }
            Sender::Http2(sender) => {
                let request = http2_request(message.target, message.head, body)?;
                let answer = pin!(sender.try_send_request(request));
                wait.response_head(answer).await
            }
        };
        answered.map_err(|mut failed| {
            // When reading stops, hyper fails with an error that hides the cause.
            if is_flooded(&failed) {
                failed.error = UpstreamError::InterimResponses;
            } else if received.is_ended_by_alert() {
                failed.error = UpstreamError::NoConnection(NoConnection::Alert);
            }
            failed
        })
    }
}

/// Reports whether a stream reset with this reason may be retried, regardless of the
/// method.
fn is_unprocessed(reason: Reason) -> bool {
    matches!(reason, Reason::REFUSED_STREAM | Reason::HTTP_1_1_REQUIRED)
}

/// Outcome of a request handed to hyper.
type SendResult = Result<Response<Incoming>, TrySendError<Request<Upload>>>;

/// Wait for the head of a response.
struct HeadWait<'a> {
    upload: &'a UploadProgress,
    timer: &'a mut WaitTimer,
    longest: Duration,
}

impl HeadWait<'_> {
    /// Waits for the head of a response. The timeout restarts with each part that the
    /// client uploads.
    async fn response_head(
        self,
        mut answer: Pin<&mut impl Future<Output = SendResult>>,
    ) -> Result<Response<Incoming>, FailedExchange> {
        let mut frames = self.upload.frames();
        self.timer.start(self.longest);
        poll_fn(|cx| {
            if let Poll::Ready(answered) = answer.as_mut().poll(cx) {
                let failed = |error| FailedExchange::of(error, self.upload);
                return Poll::Ready(answered.map_err(failed));
            }
            while self.timer.poll_over(cx).is_ready() {
                let before = std::mem::replace(&mut frames, self.upload.frames());
                if before == frames {
                    return Poll::Ready(Err(UpstreamError::FirstByteTimeout.into()));
                }
                self.timer.start(self.longest);
            }
            Poll::Pending
        })
        .await
    }
}

/// Registers a counter for the interim responses to an HTTP/1.1 request (RFC 9110,
/// section 15.2). A server has no reason to send many.
///
/// hyper reads interim responses but does not return them, so an endless sequence would
/// block a client forever. `response_heads` counts them for HTTP/2.
fn count_interim_responses(request: &mut Request<Upload>, received: &ReceivedBytes) {
    received.begin_exchange();
    let counted = received.clone();
    hyper::ext::on_informational(request, move |_| counted.add_interim_response());
}
