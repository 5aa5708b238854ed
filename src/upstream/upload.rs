//! Body of a request on its way to an origin, with its progress.
//!
//! Does not know what the body holds.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, SizeHint};

/// Error of a body.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// A request body of any kind; an empty one costs nothing.
#[derive(Debug, Default)]
pub(super) struct Upload(Option<StreamingUpload>);

#[derive(Debug)]
struct StreamingUpload {
    body: UnsyncBoxBody<Bytes, BoxError>,
    progress: Arc<UploadCounts>,
}

/// Progress of an upload, readable while hyper owns it.
#[derive(Debug, Clone, Default)]
pub(super) struct UploadProgress(Option<Arc<UploadCounts>>);

#[derive(Debug, Default)]
struct UploadCounts {
    frames: AtomicU64,
    ended: AtomicBool,
    broke: AtomicBool,
}

impl Upload {
    pub(super) fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            return Self::default();
        }
        Self(Some(StreamingUpload {
            body: body.map_err(Into::into).boxed_unsync(),
            progress: Arc::default(),
        }))
    }

    pub(super) fn progress(&self) -> UploadProgress {
        UploadProgress(
            self.0
                .as_ref()
                .map(|streaming| Arc::clone(&streaming.progress)),
        )
    }
}

impl UploadProgress {
    /// Returns the number of parts that the client has sent so far.
    pub(super) fn frames(&self) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |counts| counts.frames.load(Ordering::Relaxed))
    }

    /// Reports whether all of the body was taken.
    pub(super) fn has_ended(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|counts| counts.ended.load(Ordering::Relaxed))
    }

    /// Reports whether the client's connection broke off.
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
        let Some(streaming) = &mut self.get_mut().0 else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(&mut streaming.body).poll_frame(cx));
        // Relaxed: no other memory depends on these counts, and a reader that
        // comes too early waits once more.
        let counts = &streaming.progress;
        match &frame {
            Some(Ok(_)) => {
                counts.frames.fetch_add(1, Ordering::Relaxed);
                counts
                    .ended
                    .store(streaming.body.is_end_stream(), Ordering::Relaxed);
            }
            Some(Err(_)) => counts.broke.store(true, Ordering::Relaxed),
            None => counts.ended.store(true, Ordering::Relaxed),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|streaming| streaming.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let empty = || SizeHint::with_exact(0);
        self.0
            .as_ref()
            .map_or_else(empty, |streaming| streaming.body.size_hint())
    }
}
