//! Bodies of requests on their way to the origin.
//!
//! Does not know how an upload is sent, nor what becomes of one that fails.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use thiserror::Error;
use tokio::time::Sleep;

use super::fields;
use crate::pace::TurnActivity;

/// Reason why an upload did not reach its end. The origin never sees it
/// finished.
#[derive(Debug, Error)]
pub enum UploadError {
    /// The client closed the connection, or framed the body wrongly.
    #[error("the upload broke off")]
    Broken(#[source] hyper::Error),
    /// Nothing came for `proxy.idle_timeout`.
    #[error("the upload stalled")]
    Stalled,
}

/// Body of a client's request, which fails when nothing comes for a time.
#[derive(Debug)]
pub struct ClientUpload {
    body: Incoming,
    idle_timeout: Duration,
    /// Runs while the client sends nothing.
    idle: Option<Pin<Box<Sleep>>>,
    /// Activity of the turn in which the body is sent.
    turn: Option<Arc<TurnActivity>>,
}

impl ClientUpload {
    /// Creates an upload of `body` that may be idle for `idle_timeout`.
    pub fn new(body: Incoming, idle_timeout: Duration) -> Self {
        Self {
            body,
            idle_timeout,
            idle: None,
            turn: None,
        }
    }

    /// States in `turn` when the client is waited for.
    #[must_use]
    pub fn within(mut self, turn: Arc<TurnActivity>) -> Self {
        self.turn = Some(turn);
        self
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
            self.idle = None;
            if let Some(turn) = &self.turn {
                turn.wait_for_origin();
                if let Some(Ok(frame)) = &frame {
                    turn.add_client_bytes(frame.data_ref().map_or(0, Bytes::len));
                }
            }
            let passed = frame.map(|frame| frame.map(without_framing_trailers));
            return Poll::Ready(passed.map(|frame| frame.map_err(UploadError::Broken)));
        }
        if let Some(turn) = &self.turn {
            turn.wait_for_client();
        }
        // Started anew after every frame: a slow upload that moves is not idle.
        let timeout = self.idle_timeout;
        let start = || Box::pin(tokio::time::sleep(timeout));
        ready!(self.idle.get_or_insert_with(start).as_mut().poll(cx));
        Poll::Ready(Some(Err(UploadError::Stalled)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn without_framing_trailers(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => Frame::trailers(fields::of_upload_trailers(&trailers)),
        Err(frame) => frame,
    }
}
