//! Request body on its way to an origin, and its progress.
//!
//! Does not know the contents of the body.

use std::error;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, SizeHint};
use thiserror::Error;

/// Error of a body.
pub(super) type BoxError = Box<dyn error::Error + Send + Sync>;

/// Request body of any kind. An empty one costs nothing.
#[derive(Debug, Default)]
pub(super) struct Upload(Option<Arc<StreamingUpload>>);

/// Progress of an upload, readable while hyper owns it.
#[derive(Debug, Clone, Default)]
pub(super) struct UploadProgress(Option<Arc<StreamingUpload>>);

#[derive(Debug)]
struct StreamingUpload {
    /// `None` once the body was taken back.
    body: Mutex<Option<UnsyncBoxBody<Bytes, BoxError>>>,
    frames: AtomicU64,
    ended: AtomicBool,
    broke: AtomicBool,
}

/// Error of a body that was taken back, so that hyper drops it.
#[derive(Debug, Error)]
#[error("the body was taken back")]
struct TakenBack;

impl Upload {
    pub(super) fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            return Self::default();
        }
        Self::streaming(body.map_err(Into::into).boxed_unsync())
    }

    fn streaming(body: UnsyncBoxBody<Bytes, BoxError>) -> Self {
        Self(Some(Arc::new(StreamingUpload {
            body: Mutex::new(Some(body)),
            frames: AtomicU64::default(),
            ended: AtomicBool::default(),
            broke: AtomicBool::default(),
        })))
    }

    pub(super) fn progress(&self) -> UploadProgress {
        UploadProgress(self.0.clone())
    }
}

impl StreamingUpload {
    fn body(&self) -> MutexGuard<'_, Option<UnsyncBoxBody<Bytes, BoxError>>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UploadProgress {
    /// Takes the body back to send it again; `None` if a part of it was already taken.
    pub(super) fn take_back(&self) -> Option<Upload> {
        let Some(streaming) = &self.0 else {
            return Some(Upload::default());
        };
        let mut body = streaming.body();
        if self.frames() != 0 || self.broke() || self.has_ended() {
            return None;
        }
        body.take().map(Upload::streaming)
    }

    /// Returns the number of parts that the client has sent so far.
    pub(super) fn frames(&self) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |counts| counts.frames.load(Ordering::Relaxed))
    }

    /// Reports whether the whole body was taken.
    pub(super) fn has_ended(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|counts| counts.ended.load(Ordering::Relaxed))
    }

    /// Reports whether the client's connection broke.
    pub(super) fn broke(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|counts| counts.broke.load(Ordering::Relaxed))
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(streaming) = &self.0 else {
            return Poll::Ready(None);
        };
        let mut slot = streaming.body();
        let Some(body) = slot.as_mut() else {
            return Poll::Ready(Some(Err(TakenBack.into())));
        };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        // Relaxed, because no other memory depends on these counters, and a reader that
        // comes too early only waits once more.
        match &frame {
            Some(Ok(_)) => {
                streaming.frames.fetch_add(1, Ordering::Relaxed);
                streaming
                    .ended
                    .store(body.is_end_stream(), Ordering::Relaxed);
            }
            Some(Err(_)) => streaming.broke.store(true, Ordering::Relaxed),
            None => streaming.ended.store(true, Ordering::Relaxed),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let is_end = |streaming: &Arc<StreamingUpload>| {
            let body = streaming.body();
            body.as_ref().is_none_or(Body::is_end_stream)
        };
        self.0.as_ref().is_none_or(is_end)
    }

    fn size_hint(&self) -> SizeHint {
        let empty = || SizeHint::with_exact(0);
        self.0.as_ref().map_or_else(empty, |streaming| {
            let body = streaming.body();
            body.as_ref().map_or_else(empty, Body::size_hint)
        })
    }
}
