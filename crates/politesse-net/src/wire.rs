//! Byte stream of a connection to an origin, unencrypted or over TLS.
//!
//! Counts the received bytes: only a request for which no byte was received may be sent
//! again. If too many interim responses arrive, all later reads fail. On HTTP/2 it counts
//! those responses itself. On HTTP/1.1, response heads pass through [`HeadRepair`], and a
//! TLS session that ends without close_notify ends the stream. Otherwise does not know
//! HTTP.

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
    /// Unencrypted TCP stream, or TLS stream.
    stream: Either<TcpStream, Box<TlsStream<ReadAhead<TcpStream>>>>,
    received: ReceivedBytes,
    budget: ReadBudget,
    heads: Heads,
    /// Whether the origin has stopped reading. It may have answered before, so later
    /// writes are discarded and reading continues: a write error would hide the answer
    /// (RFC 9112, section 9.6).
    is_write_closed: bool,
    /// Permission to use a reserve descriptor, if it uses one.
    _place: Option<ReservePlace>,
}

/// Reader of the response heads, for the negotiated protocol.
#[derive(Debug)]
enum Heads {
    Http1(HeadRepair),
    Http2(ResponseHeads),
}

/// Bytes received on a wire, after decryption.
#[derive(Debug, Clone, Default)]
pub(super) struct ReceivedBytes(Arc<Inflow>);

/// Counters of a wire, shared with its exchanges.
#[derive(Debug, Default)]
struct Inflow {
    bytes: AtomicU64,
    /// Interim responses to the current HTTP/1.1 request.
    interim_responses: AtomicUsize,
    /// Whether an HTTP/1.1 exchange has begun since the last read.
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

    /// Starts an HTTP/1.1 exchange: the next bytes are a head, and the count of interim
    /// responses starts at zero.
    pub(super) fn begin_exchange(&self) {
        self.0.interim_responses.store(0, Ordering::Relaxed);
        self.0.has_begun.store(true, Ordering::Relaxed);
    }

    /// Counts an interim response on HTTP/1.1. Beyond the limit, every later read fails.
    ///
    /// Dropping the request would not stop hyper in the middle of a read, which lasts as
    /// long as heads of interim responses arrive.
    pub(super) fn add_interim_response(&self) {
        let before = self.0.interim_responses.fetch_add(1, Ordering::Relaxed);
        if INTERIM_RESPONSES_MAX <= before {
            self.0.end_flood();
        }
    }

    /// Reports whether the connection was ended because of too many interim responses.
    pub(super) fn is_flooded(&self) -> bool {
        self.0.is_flooded.load(Ordering::Relaxed)
    }

    /// Reports whether the origin ended the TLS session with an alert. hyper may read the
    /// alert before it has a request to fail.
    pub(super) fn is_ended_by_alert(&self) -> bool {
        self.0.is_ended_by_alert.load(Ordering::Relaxed)
    }

    /// Reports whether the TLS session ended without close_notify, so that its last bytes
    /// may be missing (RFC 8446, section 6.1).
    pub(super) fn is_unclosed(&self) -> bool {
        self.0.is_unclosed.load(Ordering::Relaxed)
    }
}

impl Inflow {
    fn end_flood(&self) {
        self.is_flooded.store(true, Ordering::Relaxed);
        self.is_enough.store(true, Ordering::Relaxed);
    }

    /// Turns the end of a TLS session without close_notify into the end of the stream,
    /// and notes it. A reset remains an error.
    ///
    /// Many servers end sessions this way. A body with a length or in chunks is then
    /// still known to be incomplete, and the length of any other body cannot be checked
    /// anyway.
    fn note_end(&self, polled: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        // rustls uses this error kind for this case only.
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
    /// Keeps `place` as long as the stream exists.
    pub(super) fn keeping(self, place: Option<ReservePlace>) -> Self {
        Self {
            _place: place,
            ..self
        }
    }

    pub(super) fn received(&self) -> ReceivedBytes {
        self.received.clone()
    }

    /// Reports whether HTTP/2 was negotiated (RFC 7301; RFC 9113, section 3.2).
    pub(super) fn speaks_http2(&self) -> bool {
        matches!(self.heads, Heads::Http2(_))
    }

    /// Reads from the stream and counts the bytes.
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
                    // Returning an empty buffer would signal the end of the stream, so
                    // the loop reads again.
                    buffer.set_filled(before);
                }
                Heads::Http2(heads) => {
                    if heads.read(bytes).is_ok() {
                        return polled;
                    }
                    // The bytes are withheld, because hyper would act on them before it
                    // sees the error.
                    buffer.set_filled(before);
                    this.received.0.end_flood();
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
            }
        }
    }
}

impl Wire {
    /// Returns the outcome of writing `bytes` bytes. A write that fails because the
    /// origin has stopped reading counts as done.
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

/// Reports whether a write failed because the origin closed or reset the connection.
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

    // Ours: an origin that sends a chunk size of endless zeros must not occupy a thread
    // for seconds.
    #[tokio::test]
    async fn a_flood_from_an_origin_lets_others_run() {
        let most = most_in_one_turn(|stream: TcpStream| Wire::from(stream)).await;
        assert!(most <= TURN_BYTES_MAX, "{most}");
    }
}
