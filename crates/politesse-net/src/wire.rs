//! Stream under a connection to an origin, in the clear or over TLS.
//!
//! Counts the bytes that were received: a request to which not one byte came
//! back may be sent again, any other may not. Every later read fails when too many
//! interim responses have come in, which it counts itself on HTTP/2. On HTTP/1.1
//! the heads of responses pass through [`HeadRepair`], and a TLS session that ends
//! without close_notify ends the stream. Does not know HTTP otherwise.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::head_repair::HeadRepair;
use super::read_ahead::ReadAhead;
use super::response_heads::{INTERIM_RESPONSES_MAX, ResponseHeads};
use super::tls::handshake_failure;
use politesse_base::descriptors::ReservePlace;
use politesse_base::tasks::ReadBudget;
use politesse_decision::access::NoConnection;

/// Stream to an origin.
#[derive(Debug)]
pub(super) struct Wire {
    /// In the clear, or over TLS.
    stream: Either<TcpStream, Box<TlsStream<ReadAhead<TcpStream>>>>,
    received: ReceivedBytes,
    budget: ReadBudget,
    heads: Heads,
    /// Whether the origin takes no more. It may have answered before, so that what is
    /// written from then on is dropped, and reading goes on: the error would hide the
    /// answer (RFC 9112, section 9.6).
    is_write_closed: bool,
    /// Leave to use a descriptor of the reserve, if it is one of those.
    _place: Option<ReservePlace>,
}

/// Reader of the response heads, by the protocol that was agreed on.
#[derive(Debug)]
enum Heads {
    Http1(HeadRepair),
    Http2(ResponseHeads),
}

/// Bytes that a wire has received, after decryption.
#[derive(Debug, Clone, Default)]
pub(super) struct ReceivedBytes(Arc<Inflow>);

/// Counters of a wire, shared with the exchanges over it.
#[derive(Debug, Default)]
struct Inflow {
    bytes: AtomicU64,
    /// Interim responses to the request under way, on HTTP/1.1.
    interim_responses: AtomicUsize,
    /// Whether an exchange on HTTP/1.1 has begun since the last read.
    has_begun: AtomicBool,
    is_enough: AtomicBool,
    is_flooded: AtomicBool,
    is_unclosed: AtomicBool,
    is_ended_by_alert: AtomicBool,
}

impl ReceivedBytes {
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Begins an exchange on HTTP/1.1: the next bytes are a head, and its interim
    /// responses are counted from here.
    pub(super) fn begin_exchange(&self) {
        self.0.interim_responses.store(0, Ordering::Relaxed);
        self.0.has_begun.store(true, Ordering::Relaxed);
    }

    /// Counts an interim response on HTTP/1.1. Too many make every later read an
    /// error.
    ///
    /// Dropping a request does not stop hyper in the middle of a read, which
    /// goes on for as long as heads of interim responses come in.
    pub(super) fn add_interim_response(&self) {
        let before = self.0.interim_responses.fetch_add(1, Ordering::Relaxed);
        if INTERIM_RESPONSES_MAX <= before {
            self.0.end_flood();
        }
    }

    /// Reports whether the connection was ended because of too many interim
    /// responses.
    pub(super) fn is_flooded(&self) -> bool {
        self.0.is_flooded.load(Ordering::Relaxed)
    }

    /// Reports whether the origin ended the TLS session by an alert. hyper may read that
    /// before it has a request to fail.
    pub(super) fn is_ended_by_alert(&self) -> bool {
        self.0.is_ended_by_alert.load(Ordering::Relaxed)
    }

    /// Reports whether the TLS session ended without close_notify, so that its last
    /// bytes may be missing (RFC 8446, section 6.1).
    pub(super) fn is_unclosed(&self) -> bool {
        self.0.is_unclosed.load(Ordering::Relaxed)
    }
}

impl Inflow {
    fn end_flood(&self) {
        self.is_flooded.store(true, Ordering::Relaxed);
        self.is_enough.store(true, Ordering::Relaxed);
    }

    /// Takes the end of a TLS session without close_notify for the end of the
    /// stream, and notes it. A reset stays an error.
    ///
    /// Many servers end so. A body with a length or in chunks is known to be short
    /// then, and one without is as long as any reader can tell.
    fn note_end(&self, polled: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        // rustls has this kind for that case alone.
        let is_unclosed = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
        if matches!(&polled, Poll::Ready(Err(error)) if is_unclosed(error)) {
            self.is_unclosed.store(true, Ordering::Relaxed);
            return Poll::Ready(Ok(()));
        }
        polled
    }
}

impl From<TcpStream> for Wire {
    fn from(stream: TcpStream) -> Self {
        Self {
            stream: Either::Left(stream),
            received: ReceivedBytes::default(),
            budget: ReadBudget::default(),
            heads: Heads::Http1(HeadRepair::default()),
            is_write_closed: false,
            _place: None,
        }
    }
}

impl From<TlsStream<ReadAhead<TcpStream>>> for Wire {
    fn from(stream: TlsStream<ReadAhead<TcpStream>>) -> Self {
        let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Self {
            stream: Either::Right(Box::new(stream)),
            received: ReceivedBytes::default(),
            budget: ReadBudget::default(),
            heads: if speaks_http2 {
                Heads::Http2(ResponseHeads::default())
            } else {
                Heads::Http1(HeadRepair::default())
            },
            is_write_closed: false,
            _place: None,
        }
    }
}

impl Wire {
    /// Keeps `place` as long as the stream.
    pub(super) fn keeping(self, place: Option<ReservePlace>) -> Self {
        Self {
            _place: place,
            ..self
        }
    }

    pub(super) fn received(&self) -> ReceivedBytes {
        self.received.clone()
    }

    /// Reports whether HTTP/2 was agreed on (RFC 7301, RFC 9113, section 3.2).
    pub(super) fn speaks_http2(&self) -> bool {
        matches!(self.heads, Heads::Http2(_))
    }

    /// Reads from the stream, and counts what comes.
    fn poll_stream(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = self.budget.poll_read(cx, &mut self.stream, buffer);
        let bytes = u64::try_from(buffer.filled().len() - before).unwrap_or(u64::MAX);
        let received = &self.received.0;
        received.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Poll::Ready(Err(error)) = &polled
            && handshake_failure(error) == NoConnection::Alert
        {
            received.is_ended_by_alert.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.received.0.is_enough.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if this.received.0.has_begun.load(Ordering::Relaxed)
            && let Heads::Http1(heads) = &mut this.heads
        {
            this.received.0.has_begun.store(false, Ordering::Relaxed);
            heads.begin_exchange();
        }
        loop {
            if let Heads::Http1(heads) = &mut this.heads
                && heads.hand_on(buffer.remaining(), |ready| buffer.put_slice(ready))
            {
                return Poll::Ready(Ok(()));
            }
            let before = buffer.filled().len();
            let polled = this.poll_stream(cx, buffer);
            let bytes = &buffer.filled()[before..];
            match &mut this.heads {
                Heads::Http1(_) if bytes.is_empty() => return this.received.0.note_end(polled),
                Heads::Http1(heads) => {
                    if heads.read(bytes) {
                        return polled;
                    }
                    // An empty buffer would be the end of the stream, so this reads on.
                    buffer.set_filled(before);
                }
                Heads::Http2(heads) => {
                    if heads.read(bytes).is_ok() {
                        return polled;
                    }
                    // hyper would act on these bytes before it sees the error.
                    buffer.set_filled(before);
                    this.received.0.end_flood();
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
            }
        }
    }
}

impl Wire {
    /// Returns the outcome of a write of `bytes`, or of none. One that fails because the
    /// origin takes no more counts as done.
    fn written(
        &mut self,
        polled: Poll<io::Result<usize>>,
        bytes: usize,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Err(error)) = &polled
            && takes_no_more(error)
        {
            self.is_write_closed = true;
            return Poll::Ready(Ok(bytes));
        }
        polled
    }
}

/// Reports whether a write failed because the origin has closed or reset the connection.
fn takes_no_more(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_write_closed {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.written(polled, bytes.len())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        if this.is_write_closed {
            return Poll::Ready(Ok(bytes));
        }
        let polled = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.written(polled, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_write_closed {
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut this.stream).poll_flush(cx);
        this.written(polled.map_ok(|()| 0), 0).map_ok(|_| ())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use politesse_base::testing::{TURN_BYTES_MAX, most_in_one_turn};

    // Ours: an origin that sent a chunk size of endless zeros kept a thread for
    // seconds.
    #[tokio::test]
    async fn a_flood_from_an_origin_lets_others_run() {
        let most = most_in_one_turn(|stream: TcpStream| Wire::from(stream)).await;
        assert!(most <= TURN_BYTES_MAX, "{most}");
    }
}
