//! What a scripted origin answers: a page, and the body it has.

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

/// A body on its way to the proxy; an error breaks the message off.
pub(crate) type OutBody = BoxBody<Bytes, io::Error>;

/// Something a test opens, once or step by step, and a scripted origin awaits.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn shut() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets `steps` waits through, now or later.
    pub(crate) fn open(&self, steps: usize) {
        self.0.add_permits(steps);
    }

    async fn pass(&self) {
        self.0.acquire().await.unwrap().forget();
    }
}

/// An answer of a scripted origin.
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
    /// Sent chunk by chunk; each but the first waits for the gate.
    Stepped(Vec<Bytes>, Gate),
    /// Sent chunk by chunk, each as soon as there is room for it.
    Chunked(Vec<Bytes>),
    /// The endless stream's first bytes, made while they are sent; with
    /// Content-Length if `Length` says so.
    Stream(u64, Length),
}

/// Whether a streamed body announces its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    Announced,
    Chunked,
}

impl Page {
    /// Plain text with status 200.
    pub(crate) fn text(body: &str) -> Self {
        Self::typed("text/plain", body.as_bytes())
    }

    pub(crate) fn html(body: &str) -> Self {
        Self::typed("text/html; charset=utf-8", body.as_bytes())
    }

    pub(crate) fn typed(media_type: &str, body: &[u8]) -> Self {
        Self::untyped(body).field("Content-Type", media_type)
    }

    /// Bytes that the origin does not say the type of.
    pub(crate) fn untyped(body: &[u8]) -> Self {
        Self::of(Content::Whole(Bytes::copy_from_slice(body)))
    }

    /// Returns an empty answer with `status`.
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

    /// Chunks of which each but the first waits until `gate` lets it go.
    pub(crate) fn stepped<T: AsRef<[u8]>>(chunks: &[T], gate: &Gate) -> Self {
        Self::of(Content::Stepped(owned(chunks), gate.clone()))
    }

    /// Returns the page with its body in these chunks, and no length announced.
    pub(crate) fn in_chunks<T: AsRef<[u8]>>(mut self, chunks: &[T]) -> Self {
        self.body = Content::Chunked(owned(chunks));
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

    /// Returns a field whose value need not be UTF-8.
    pub(crate) fn byte_field(mut self, name: &str, value: &[u8]) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Returns a field after the body.
    pub(crate) fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Does not even send its head before `gate` opens.
    pub(crate) fn after(mut self, gate: &Gate) -> Self {
        self.head_gate = Some(gate.clone());
        self
    }

    /// Returns the answer as hyper sends it, once its gate is open.
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
            Self::Whole(_)
            | Self::Stepped(..)
            | Self::Chunked(_)
            | Self::Stream(_, Length::Chunked) => None,
        }
    }

    fn open(&self) -> OutBody {
        match self {
            Self::Whole(bytes) => Full::new(bytes.clone())
                .map_err(|never| match never {})
                .boxed(),
            Self::Stepped(chunks, gate) => stepped(chunks.clone(), Some(gate.clone())),
            Self::Chunked(chunks) => stepped(chunks.clone(), None),
            Self::Stream(length, _) => stream(*length),
        }
    }
}

/// A body fed through a short queue by a task of its own, so that nothing is
/// made before there is room for it.
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

fn stepped(chunks: Vec<Bytes>, gate: Option<Gate>) -> OutBody {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        for (place, chunk) in chunks.into_iter().enumerate() {
            if place > 0
                && let Some(gate) = &gate
            {
                gate.pass().await;
            }
            // The receiver is gone when the proxy hung up.
            if sender.send(Ok(chunk)).await.is_err() {
                return;
            }
        }
    });
    Fed(receiver).boxed()
}

fn stream(length: u64) -> OutBody {
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        let mut offset = 0;
        while offset < length {
            let part = (length - offset).min(65_536) as usize;
            let bytes = Bytes::from(stream_part(offset, part));
            if sender.send(Ok(bytes)).await.is_err() {
                return;
            }
            offset += part as u64;
        }
    });
    Fed(receiver).boxed()
}
