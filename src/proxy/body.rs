//! Bodies towards the crawler: our own answers, and an origin's with the part
//! that was held back put in front.
//!
//! Invariant 7: not a byte is changed. The end of a body completes the record
//! of its exchange; so does its drop, when the crawler has gone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;
use tokio::time::{Instant, Sleep};

use super::activity::ConnectionActivity;
use super::fields;
use super::held::HeldBody;
use crate::audit::RecordEnding;
use crate::clock;
use crate::decision::decide::Evidence;
use crate::decision::record::{Outcome, Seen};
use crate::pace::Turn;
use crate::upstream::body::{BodyError, ResponseBody};
use politesse_directives::Quotations;

/// The body of any answer to a crawler.
#[derive(Debug)]
pub enum ProxyBody {
    /// Ours, or none.
    Whole(Bytes, Option<Box<RecordCompletion>>),
    /// The origin's.
    Origin(Box<OriginBody>),
}

impl ProxyBody {
    /// A body of ours that completes no record.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(bytes.into(), None)
    }

    /// This body, telling `taken` whenever a part of it is taken.
    #[must_use]
    pub fn noting(mut self, taken: Arc<ConnectionActivity>) -> Self {
        if let Self::Origin(body) = &mut self {
            body.taken = Some(taken);
        }
        self
    }

    /// This body, at whose end the host's turn ends.
    #[must_use]
    pub fn within(mut self, turn: Option<Turn>) -> Self {
        if let Self::Origin(body) = &mut self {
            body.turn = turn;
        }
        self
    }

    /// This body, completing the record of `closing` at its end.
    #[must_use]
    pub fn completing(mut self, mut closing: RecordCompletion) -> Self {
        match &mut self {
            Self::Whole(_, place) => *place = Some(Box::new(closing)),
            Self::Origin(body) => {
                closing.announced = body.size_hint().exact();
                body.closing = Some(closing);
            }
        }
        self
    }
}

/// The origin's body, and what its end has to set right.
#[derive(Debug)]
pub struct OriginBody {
    /// What was read of it already, to be passed on first.
    held: HeldBody,
    /// What is still to come.
    rest: ResponseBody,
    /// A trailer of this name is ours to set, so an origin's is dropped.
    reserved: HeaderName,
    /// Our own name, in which no origin may speak.
    name: Arc<str>,
    /// The record to complete.
    closing: Option<RecordCompletion>,
    /// Told whenever a part is taken, so that a crawler that reads nothing is
    /// noticed.
    taken: Option<Arc<ConnectionActivity>>,
    /// Whether `taken` counts this body among those that wait for an origin.
    waits: bool,
    /// The turn at the host, which ends when nothing more comes from there.
    turn: Option<Turn>,
    /// How it broke off, to be told once what came before is on its way.
    broken: Option<BodyError>,
}

/// What the head of a response says about its own use. Its trailers may add to
/// the quotations.
#[derive(Debug)]
pub struct AnnotationSummary {
    /// The annotation's value, with all preferences.
    pub directives: String,
    /// What it follows from.
    pub quotations: Quotations,
}

impl AnnotationSummary {
    fn seen(self) -> Seen {
        let Self {
            directives,
            quotations,
        } = self;
        let said = (!quotations.is_empty()).then(|| quotations.json());
        Seen { directives, said }
    }
}

/// What completes the record of an exchange, once: with its outcome, or on
/// drop with `client_gone`.
#[derive(Debug)]
pub struct RecordCompletion {
    ending: Option<RecordEnding>,
    evidence: Arc<Evidence>,
    started: Instant,
    status: Option<u16>,
    told: Option<AnnotationSummary>,
    bytes: u64,
    /// Bytes that the body will have, where that is known before.
    announced: Option<u64>,
}

impl RecordCompletion {
    /// For the exchange begun at `started` and decided by `evidence`.
    pub fn new(ending: RecordEnding, evidence: Arc<Evidence>, started: Instant) -> Self {
        Self {
            ending: Some(ending),
            evidence,
            started,
            status: None,
            told: None,
            bytes: 0,
            announced: None,
        }
    }

    /// Whether all that was announced has been passed on: hyper asks no body
    /// for more than that.
    fn is_complete(&self) -> bool {
        self.announced == Some(self.bytes)
    }

    /// Notes the status that the crawler is answered with.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Notes what the response says about its own use.
    #[must_use]
    pub fn with_told(mut self, told: AnnotationSummary) -> Self {
        self.told = Some(told);
        self
    }

    /// Notes the trailers in our name, which no origin may use.
    fn forged(&mut self, trailers: &HeaderMap, name: &HeaderName) {
        if let Some(told) = &mut self.told {
            for value in trailers.get_all(name) {
                told.quotations.forged(name, value);
            }
        }
    }

    /// Completes the record; `error` as in [`Outcome`].
    pub fn end(mut self, error: Option<&'static str>) {
        self.close(error);
    }

    fn close(&mut self, error: Option<&'static str>) {
        let Some(ending) = self.ending.take() else {
            return;
        };
        let (inquiry, ruling) = (&self.evidence.inquiry, &self.evidence.ruling);
        tracing::info!(
            seq = ending.seq(),
            method = inquiry.method,
            url = %inquiry.target,
            crawler = inquiry.crawler.token().map(tracing::field::display),
            verdict = ruling.verdict.as_str(),
            reason = ruling.reason.as_str(),
            overridden = ruling.is_overridden().then_some(true),
            reported = self.evidence.is_reported().then_some(true),
            status = self.status,
            bytes = self.bytes,
            ms = u64::try_from(clock::instant().duration_since(self.started).as_millis()).unwrap_or(u64::MAX),
            error,
            "exchange"
        );
        ending.complete(Outcome {
            status: self.status,
            seen: self.told.take().map(AnnotationSummary::seen),
            bytes: self.bytes,
            error,
        });
    }
}

impl Drop for RecordCompletion {
    fn drop(&mut self) {
        self.close(Some("client_gone"));
    }
}

impl HttpBody for ProxyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Whole(bytes, closing) => {
                let bytes = std::mem::take(bytes);
                if let Some(mut closing) = closing.take() {
                    closing.bytes = bytes.len() as u64;
                    closing.end(None);
                }
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Origin(body) => body.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes, _) => bytes.is_empty(),
            Self::Origin(body) => body.held.is_empty() && body.rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            Self::Origin(body) => body.size_hint(),
        }
    }
}

impl Drop for ProxyBody {
    /// What has nothing left to pass on has ended well: hyper never asks an
    /// empty body, nor one of a HEAD, for its end.
    fn drop(&mut self) {
        match self {
            Self::Whole(_, closing) => {
                if let Some(closing) = closing.take() {
                    closing.end(None);
                }
            }
            Self::Origin(body) => {
                body.waits_for_origin(false);
                let complete = body
                    .closing
                    .as_ref()
                    .is_some_and(RecordCompletion::is_complete);
                if complete || body.held.is_empty() && body.rest.is_end_stream() {
                    end(&mut body.closing, None);
                }
            }
        }
    }
}

fn end(closing: &mut Option<RecordCompletion>, error: Option<&'static str>) {
    if let Some(closing) = closing.take() {
        closing.end(error);
    }
}

impl OriginBody {
    /// What was held back and what is still to come, with no trailer of the
    /// name `reserved` and none that speaks as `own`.
    pub fn new(
        (held, rest): (HeldBody, ResponseBody),
        reserved: &HeaderName,
        own: &fields::Options,
    ) -> Self {
        Self {
            held,
            rest,
            reserved: reserved.clone(),
            name: Arc::clone(&own.name),
            closing: None,
            taken: None,
            waits: false,
            turn: None,
            broken: None,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // hyper drops what it has not written yet when a body fails; while it
        // waits, it writes. (Over HTTP/2 a reset may still overtake the last
        // bytes.)
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let next = match self.held.pop() {
            Some(frame) => Some(frame),
            None => {
                let next = Pin::new(&mut self.rest).poll_frame(cx);
                self.waits_for_origin(next.is_pending());
                ready!(next)
            }
        };
        match next {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(self.passed(frame)))),
            Some(Err(error)) => {
                self.turn = None;
                end(&mut self.closing, Some(error.as_str()));
                self.broken = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => {
                self.turn = None;
                end(&mut self.closing, None);
                Poll::Ready(None)
            }
        }
    }

    /// Tells whether the crawler has room and the origin sends nothing. The
    /// wait ends with the origin's own limit, `upstream.idle_timeout`.
    fn waits_for_origin(&mut self, waits: bool) {
        if let Some(taken) = &self.taken {
            taken.waiting(waits, &mut self.waits);
        }
    }

    /// Counts what goes through, and keeps an origin from speaking in our name
    /// in a trailer.
    fn passed(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        if let Some(taken) = &self.taken {
            taken.happened();
        }
        if let (Some(data), Some(closing)) = (frame.data_ref(), self.closing.as_mut()) {
            closing.bytes += data.len() as u64;
        }
        match frame.into_trailers() {
            Ok(trailers) => {
                if let Some(closing) = &mut self.closing {
                    closing.forged(&trailers, &self.reserved);
                }
                // The last frame there is: hyper asks for no other.
                end(&mut self.closing, None);
                Frame::trailers(fields::of_trailers(&trailers, &self.reserved, &self.name))
            }
            Err(frame) => frame,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.bytes() as u64;
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(held + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(held + upper);
        }
        hint
    }
}

/// Why an upload did not reach its end. The origin never sees it finished.
#[derive(Debug, Error)]
pub enum UploadError {
    /// The crawler broke off, or framed it wrongly.
    #[error("the upload broke off")]
    Broken(#[source] hyper::Error),
    /// Nothing came for `proxy.idle_timeout`.
    #[error("the upload stalled")]
    Stalled,
}

/// A crawler's body on its way to the origin.
#[derive(Debug)]
pub struct ClientUpload {
    body: Incoming,
    idle: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl ClientUpload {
    /// `body`, given up when nothing comes for `idle`.
    pub fn new(body: Incoming, idle: Duration) -> Self {
        Self {
            body,
            idle,
            stalled: None,
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
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.stalled = None;
            return Poll::Ready(frame.map(|frame| frame.map(framed).map_err(UploadError::Broken)));
        }
        let idle = self.idle;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Some(Err(UploadError::Stalled)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn framed(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => Frame::trailers(fields::of_upload_trailers(&trailers)),
        Err(frame) => frame,
    }
}

/// Whether a response to `method` with `status` has no body, whatever its
/// fields say (RFC 9112, section 6.3).
pub fn has_no_body(method: &Method, status: u16) -> bool {
    *method == Method::HEAD || matches!(status, 100..=199 | 204 | 304)
}
