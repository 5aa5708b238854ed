//! Bodies of responses to clients: those of the proxy itself, and those of an origin,
//! beginning with the part that was held back.
//!
//! Invariant 7 (ARCHITECTURE.md): not a byte is changed. The end of a body completes the
//! row of its exchange in the audit record. So does dropping the body when the client has
//! gone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderName;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::broken_end::BrokenEnd;
use super::completion::RecordCompletion;
use super::fields;
use super::hold::HeldBody;
use super::places::RequestPlace;
use super::progress::{ResponseProgress, STREAM};
use super::socket::{ConnectionActivity, WaitGuard};
use politesse_net::body::{BodyError, ResponseBody};
use politesse_pace::Turn;

/// Error term of the record for a response that may be truncated but was passed on as
/// complete (`docs/reference/reasons.md`).
const UNCLOSED: &str = "no_close_notify";

/// Body of any response to a client.
#[derive(Debug)]
pub enum ProxyBody {
    /// Body of the proxy itself, possibly empty, and the row to complete.
    Whole(Bytes, Option<Box<RecordCompletion>>),
    /// Body from an origin.
    Origin(Box<OriginBody>),
}

impl ProxyBody {
    /// Creates a body of the proxy itself that completes no row.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(bytes.into(), None)
    }

    /// Creates the body of a response from an origin.
    pub fn origin(body: Box<OriginBody>) -> Self {
        Self::Origin(body)
    }

    /// Reports to `activity` whenever the client takes part of an origin's body. The
    /// proxy's own bodies are small and need no watching.
    #[must_use]
    pub fn watched_by(mut self, activity: Arc<ConnectionActivity>) -> Self {
        if let Self::Origin(body) = &mut self {
            body.stream = STREAM.try_with(Arc::clone).ok();
            body.activity = Some(activity);
        }
        self
    }

    /// Completes the row of the exchange when this body ends.
    #[must_use]
    pub fn completing(mut self, mut completion: RecordCompletion) -> Self {
        match &mut self {
            Self::Whole(_, own_completion) if completion.row.is_some() => {
                *own_completion = Some(Box::new(completion));
            }
            Self::Whole(..) => {}
            Self::Origin(body) => {
                let announced = || body.size_hint().exact();
                completion.expected_bytes = completion.expected_bytes.or_else(announced);
                body.completion = Some(completion);
            }
        }
        self
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
            Self::Whole(bytes, completion) => {
                let bytes = std::mem::take(bytes);
                if let Some(mut completion) = completion.take() {
                    completion.bytes += bytes.len() as u64;
                    completion.end(None);
                }
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Origin(body) => body.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes, _) => bytes.is_empty(),
            Self::Origin(body) => body.is_end(),
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
    fn drop(&mut self) {
        // A body with nothing left to pass on has ended well, even if its end was never
        // polled: hyper never polls an empty body or the body of a HEAD.
        match self {
            Self::Whole(_, Some(completion)) => completion.end(None),
            Self::Whole(_, None) => {}
            Self::Origin(body) => {
                let completion = body.completion.as_ref();
                if completion.is_some_and(RecordCompletion::is_complete) || body.is_end() {
                    body.end(None);
                }
                if body.progress().is_some_and(ResponseProgress::is_cut) {
                    body.end(Some("client_too_slow"));
                }
                if let Some(progress) = body.progress() {
                    progress.end();
                }
            }
        }
    }
}

/// Body from an origin, and everything that must be settled at its end.
#[derive(Debug)]
pub struct OriginBody {
    /// Part that was already read, passed on first.
    held: HeldBody,
    /// Part that is still to be read.
    rest: ResponseBody,
    /// Name of the annotation field. A trailer of this name is dropped.
    reserved: HeaderName,
    /// Name of the proxy in `Proxy-Status`, which origins may not use.
    name: Arc<str>,
    /// Row of the exchange, completed when the body ends.
    completion: Option<RecordCompletion>,
    /// Activity of the client's connection.
    activity: Option<Arc<ConnectionActivity>>,
    /// Progress of its stream over HTTP/2.
    stream: Option<Arc<ResponseProgress>>,
    /// Held while the client has room and the origin sends nothing. The origin's own
    /// limit, `upstream.idle_timeout`, bounds that time.
    waiting: Option<WaitGuard>,
    /// Turn at the host, which ends when the origin has sent everything.
    turn: Option<Turn>,
    /// Place of the request, kept until the response ends.
    place: Option<Arc<RequestPlace>>,
    /// Failure of the origin, kept until the bytes before it have been written.
    broken: Option<BrokenEnd>,
}

impl OriginBody {
    /// Creates a body of `held` followed by `rest`. Drops trailers named `reserved`, and
    /// those that use the proxy's own name. Boxed from the start, because it has a
    /// kilobyte and is moved five times before it is sent.
    pub fn new(
        held: HeldBody,
        rest: ResponseBody,
        reserved: &HeaderName,
        own: &fields::Options,
    ) -> Box<Self> {
        Box::new(Self {
            held,
            rest,
            reserved: reserved.clone(),
            name: Arc::clone(&own.name),
            completion: None,
            activity: None,
            stream: None,
            waiting: None,
            turn: None,
            place: None,
            broken: None,
        })
    }

    /// Ends `turn` when the origin has sent everything.
    #[must_use]
    pub fn within(mut self: Box<Self>, turn: Option<Turn>) -> Box<Self> {
        self.turn = turn;
        self
    }

    /// Keeps `place` until this body is dropped.
    #[must_use]
    pub fn keeping(mut self: Box<Self>, place: Arc<RequestPlace>) -> Box<Self> {
        self.place = Some(place);
        self
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(broken) = &mut self.broken {
            return broken.poll(cx).map(|error| error.map(Err));
        }
        let next = match self.held.pop() {
            Some(frame) => Some(frame),
            None => {
                let next = Pin::new(&mut self.rest).poll_frame(cx);
                if next.is_ready() {
                    self.waiting = None;
                } else if self.waiting.is_none() {
                    self.waiting = self.activity.as_ref().map(ConnectionActivity::wait);
                    if let Some(turn) = &self.turn {
                        turn.wait_for_origin();
                    }
                    if let Some(progress) = self.progress() {
                        progress.wait_for_origin();
                    }
                }
                ready!(next)
            }
        };
        match next {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(self.pass(frame)))),
            Some(Err(error)) => {
                self.turn = None;
                self.end(Some(error.as_str()));
                let http2 = self.activity.as_ref().filter(|_| self.stream.is_some());
                self.broken = Some(BrokenEnd::new(error, http2, cx));
                Poll::Pending
            }
            None => {
                self.turn = None;
                self.end(self.rest.is_unclosed().then_some(UNCLOSED));
                Poll::Ready(None)
            }
        }
    }

    /// Counts a frame that is passed on, and removes from trailers the fields that only
    /// the proxy may send.
    fn pass(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        if let Some(activity) = &self.activity {
            activity.record();
        }
        if let Some(data) = frame.data_ref() {
            if let Some(completion) = &mut self.completion {
                completion.bytes += data.len() as u64;
            }
            self.wait_for_client(data.len());
            if let Some(progress) = self.progress() {
                progress.add(data.len());
            }
        }
        match frame.into_trailers() {
            Ok(trailers) => {
                if let Some(completion) = &mut self.completion {
                    completion.quote_forged(&trailers, &self.reserved);
                }
                // Trailers are the last frame: hyper does not poll again.
                self.end(None);
                Frame::trailers(fields::of_trailers(&trailers, &self.reserved, &self.name))
            }
            Err(frame) => frame,
        }
    }

    /// Records that the client has taken `bytes`, and that it is waited for until it
    /// wants more. Does nothing if the response is complete, because the turn then ends.
    fn wait_for_client(&self, bytes: usize) {
        if let Some(turn) = &self.turn
            && !self.is_end()
        {
            turn.activity().add_client_bytes(bytes);
            turn.activity().wait_for_client();
        }
    }

    /// Returns the progress of this response: that of its stream, or over HTTP/1 that of
    /// its connection.
    fn progress(&self) -> Option<&ResponseProgress> {
        let of_connection = self.activity.as_ref().map(|activity| &activity.progress);
        self.stream.as_deref().or(of_connection)
    }

    /// Completes the row, unless that was done before.
    fn end(&mut self, error: Option<&'static str>) {
        if let Some(completion) = &mut self.completion {
            completion.end(error);
        }
    }

    /// Reports whether nothing is left to pass on.
    fn is_end(&self) -> bool {
        self.held.is_empty() && self.rest.is_end_stream()
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
