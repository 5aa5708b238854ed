//! Responses of a scripted origin: head, body, and when each part is sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Frame;
use tokio::sync::{Semaphore, mpsc};

use super::stream_part;

/// A response body on its way to the proxy; an error aborts the message.
pub(crate) type OutBody = BoxBody<Bytes, io::Error>;

/// A gate that a test opens, at once or step by step, and for which a scripted origin
/// waits.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn shut() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets `steps` waiters pass, now or later.
    pub(crate) fn open(&self, steps: usize) {
        self.0.add_permits(steps);
    }

    /// Waits until the gate lets one more waiter pass.
    pub(crate) async fn pass(&self) {
        self.0.acquire().await.unwrap().forget();
    }
}

/// A response of a scripted origin.
#[derive(Clone)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    body: Content,
    trailers: Vec<(String, String)>,
    head_gate: Option<Gate>,
}

/// Content of the body of a [`Page`].
#[derive(Clone)]
enum Content {
    /// Sent at once, with Content-Length.
    Whole(Bytes),
    /// Sent chunk by chunk; every chunk but the first waits for the gate, if there is one.
    Chunks(Vec<Bytes>, Option<Gate>),
    /// A prefix of the endless stream, generated while it is sent, with Content-Length if
    /// `Length` is `Announced`.
    Stream(u64, Length),
}

/// Whether a streamed body announces its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    Announced,
    Chunked,
}

impl Page {
    /// Returns plain text with status 200.
    pub(crate) fn text(body: &str) -> Self {
        Self::typed("text/plain", body.as_bytes())
    }

    pub(crate) fn html(body: &str) -> Self {
        Self::typed("text/html; charset=utf-8", body.as_bytes())
    }

    pub(crate) fn typed(media_type: &str, body: &[u8]) -> Self {
        Self::untyped(body).field("Content-Type", media_type)
    }

    /// Returns a body without Content-Type.
    pub(crate) fn untyped(body: &[u8]) -> Self {
        Self::of(Content::Whole(Bytes::copy_from_slice(body)))
    }

    /// Returns an empty response with `status`.
    pub(crate) fn status(status: u16) -> Self {
        let mut page = Self::of(Content::Whole(Bytes::new()));
        page.status = status;
        page
    }

    pub(crate) fn redirect(location: &str) -> Self {
        Self::status(302).field("Location", location)
    }

    /// Returns the first `length` bytes of the endless stream.
    pub(crate) fn stream(length: u64, announced: Length) -> Self {
        Self::of(Content::Stream(length, announced))
            .field("Content-Type", "application/octet-stream")
    }

    /// Returns a body of `chunks`; every chunk but the first waits for `gate`.
    pub(crate) fn stepped<T: AsRef<[u8]>>(chunks: &[T], gate: &Gate) -> Self {
        Self::of(Content::Chunks(owned(chunks), Some(gate.clone())))
    }

    /// Replaces the body by `chunks`, without Content-Length.
    pub(crate) fn in_chunks<T: AsRef<[u8]>>(mut self, chunks: &[T]) -> Self {
        self.body = Content::Chunks(owned(chunks), None);
        self
    }

    fn of(body: Content) -> Self {
        Self {
            status: 200,
            fields: Vec::new(),
            body,
            trailers: Vec::new(),
            head_gate: None,
        }
    }

    pub(crate) fn field(self, name: &str, value: &str) -> Self {
        self.byte_field(name, value.as_bytes())
    }

    /// Adds a field whose value may be other than UTF-8.
    pub(crate) fn byte_field(mut self, name: &str, value: &[u8]) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a trailer field, sent after the body.
    pub(crate) fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Delays the whole response, head included, until `gate` opens.
    pub(crate) fn after(mut self, gate: &Gate) -> Self {
        self.head_gate = Some(gate.clone());
        self
    }

    /// Builds the response for hyper, once the gate is open.
    pub(super) async fn respond(&self) -> http::Response<OutBody> {
        if let Some(gate) = &self.head_gate {
            gate.pass().await;
        }
        let mut response = http::Response::builder().status(self.status);
        for (name, value) in &self.fields {
            response = response.header(name, value.as_slice());
        }
        for (name, _) in &self.trailers {
            response = response.header("Trailer", name);
        }
        if let Some(length) = self.body.announced() {
            response = response.header("Content-Length", length);
        }
        response.body(self.open()).unwrap()
    }

    fn open(&self) -> OutBody {
        let body = self.body.open();
        if self.trailers.is_empty() {
            return body;
        }
        let mut trailers = HeaderMap::new();
        for (name, value) in &self.trailers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            trailers.append(name, HeaderValue::from_str(value).unwrap());
        }
        body.with_trailers(async move { Some(Ok(trailers)) })
            .boxed()
    }
}

impl Content {
    fn announced(&self) -> Option<u64> {
        match self {
            Self::Stream(length, Length::Announced) => Some(*length),
            Self::Whole(_) | Self::Chunks(..) | Self::Stream(_, Length::Chunked) => None,
        }
    }

    fn open(&self) -> OutBody {
        match self {
            Self::Whole(bytes) => Full::new(bytes.clone())
                .map_err(|never| match never {})
                .boxed(),
            Self::Chunks(chunks, gate) => fed(chunks.clone().into_iter(), gate.clone()),
            Self::Stream(length, _) => fed(stream(*length), None),
        }
    }
}

/// A body that another task feeds through a short queue, so that parts are generated only
/// when there is room for them.
struct Fed(mpsc::Receiver<io::Result<Bytes>>);

impl hyper::body::Body for Fed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = self.0.poll_recv(task);
        next.map(|part| part.map(|bytes| bytes.map(Frame::data)))
    }
}

fn owned<T: AsRef<[u8]>>(chunks: &[T]) -> Vec<Bytes> {
    let chunks = chunks.iter();
    chunks
        .map(|chunk| Bytes::copy_from_slice(chunk.as_ref()))
        .collect()
}

/// Returns the parts of the first `length` bytes of the endless stream.
fn stream(length: u64) -> impl Iterator<Item = Bytes> {
    (0..length).step_by(65_536).map(move |offset| {
        let part = (length - offset).min(65_536) as usize;
        Bytes::from(stream_part(offset, part))
    })
}

/// Returns a body of `chunks`; every chunk but the first waits for `gate`, if there is one.
fn fed(chunks: impl Iterator<Item = Bytes> + Send + 'static, gate: Option<Gate>) -> OutBody {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        for (place, chunk) in chunks.enumerate() {
            if place > 0
                && let Some(gate) = &gate
            {
                gate.pass().await;
            }
            // The receiver is gone if the proxy has hung up.
            if sender.send(Ok(chunk)).await.is_err() {
                return;
            }
        }
    });
    Fed(receiver).boxed()
}
