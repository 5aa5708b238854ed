//! Time limit for HTTP/1 request heads: an incomplete head is answered with 408 before
//! the connection is closed.
//!
//! RFC 9110, section 15.5.9. hyper closes such a connection without an answer, and
//! measures from the end of the previous exchange. Here the time is measured from the
//! first byte of a head, or for the first head from the start of the connection. Does not
//! parse heads: any bytes between two exchanges count as one.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::problem::{MalformedRequest, Problem};
use super::progress::count_slow;
use super::server::ProxyServer;
use super::socket::ConnectionActivity;
use politesse_base::clock;

/// HTTP/1 stream with a time limit for request heads.
#[derive(Debug)]
pub struct HeadTimer<S> {
    stream: S,
    /// Builds the answer, and counts slow clients.
    server: Arc<ProxyServer>,
    /// Activity of the connection, which knows whether a head is awaited.
    activity: Arc<ConnectionActivity>,
    /// Maximum time for each head.
    limit: Duration,
    /// Start of the time limit for the awaited head: for the first head, the start of the
    /// connection. `None` until a partial head has been waited for.
    begun_at: Option<Instant>,
    /// Number of requests that preceded the head that is arriving; `None` before the
    /// first head.
    head_after: Option<usize>,
    /// Expires at the limit of the head that is arriving; `None` until it is waited for.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the stream has flushed everything written to it.
    is_flushed: bool,
}

impl<S> HeadTimer<S> {
    /// Wraps `stream` so that each request head must arrive within `limit`.
    pub fn new(
        stream: S,
        server: Arc<ProxyServer>,
        activity: Arc<ConnectionActivity>,
        limit: Duration,
    ) -> Self {
        Self {
            stream,
            server,
            activity,
            limit,
            begun_at: Some(clock::instant()),
            head_after: None,
            timer: None,
            is_flushed: true,
        }
    }

    /// Records that bytes have arrived.
    fn add_bytes(&mut self) {
        let requests = self.activity.requests();
        if self.head_after != Some(requests) && self.activity.awaits_head() {
            self.head_after = Some(requests);
            self.timer = None;
            // The limit of the first head runs from the start of the connection, so a
            // client that was silent until now has already used up part of it.
            if requests != 0 {
                self.begun_at = None;
            }
            self.activity.set_half_head(true);
        }
    }

    /// Completes when the limit of a started but incomplete head has passed.
    fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.head_after != Some(self.activity.requests()) {
            return Poll::Pending;
        }
        // Most heads arrive in one piece and never need the clock.
        let begun_at = *self.begun_at.get_or_insert_with(clock::instant);
        let ends_at = begun_at + self.limit;
        let start = || Box::pin(tokio::time::sleep_until(ends_at));
        self.timer.get_or_insert_with(start).as_mut().poll(cx)
    }
}

impl<S: AsyncWrite + Unpin> HeadTimer<S> {
    /// Answers the incomplete head if the stream accepts the answer at once. It does,
    /// unless the client has not read the previous response.
    fn answer(&mut self, cx: &mut Context<'_>) {
        count_slow(&self.server.metrics, "head");
        if !self.is_flushed {
            return;
        }
        let problem = Problem::Malformed(MalformedRequest::HeadTimeout);
        let answer = self.server.in_force.load().proxy.turn_away_unread(&problem);
        let mut stream = Pin::new(&mut self.stream);
        if stream.as_mut().poll_write(cx, answer.as_bytes()).is_ready() {
            let _ = stream.as_mut().poll_flush(cx);
            let _ = stream.poll_shutdown(cx);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for HeadTimer<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if read.is_ready() {
            if before < buffer.filled().len() {
                this.add_bytes();
            }
            return read;
        }
        ready!(this.poll_limit(cx));
        this.answer(cx);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadTimer<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_flushed = false;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.is_flushed = false;
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        self.is_flushed = flushed.is_ok();
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
