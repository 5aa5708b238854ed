//! Stream under a TLS session that reads a whole record at a time.
//!
//! rustls reads at most 4 KiB at once, so a record of 10 KiB takes three system calls and
//! one of 16 KiB takes five. This stream reads everything that has arrived, and rustls
//! then reads from memory. If records follow each other closely, rustls itself asks for a
//! whole record, and nothing is read ahead. Knows nothing of TLS except the size of its
//! records.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Buffer size from which a read goes directly into the reader's buffer: more than rustls
/// asks for at the start of a record.
const ENOUGH_BYTES: usize = 8 * 1024;

/// Size of one read: a record of maximum length, which is 2^14 bytes plus 256 for
/// encryption and a header of 5 (RFC 8446, section 5.2).
const AHEAD_BYTES: usize = (1 << 14) + 256 + 5;

thread_local! {
    /// Spare buffer of this thread, not in use by any stream.
    ///
    /// Most streams return their buffer before they wait for more bytes, so one buffer
    /// serves all of them, and idle connections have none.
    static SPARE: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// Stream that reads ahead and writes directly.
#[derive(Debug)]
pub(super) struct ReadAhead<S> {
    stream: S,
    /// Bytes read ahead, if any.
    ahead: Option<AheadBuffer>,
}

/// Bytes read but not consumed yet: those from `start` to `end`.
#[derive(Debug)]
struct AheadBuffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<S> ReadAhead<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            ahead: None,
        }
    }
}

impl<S: AsyncRead + Unpin> ReadAhead<S> {
    /// Reads the bytes that have arrived. `None` at the end of the stream.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<AheadBuffer>>> {
        let spare = SPARE.take();
        let mut bytes = spare.unwrap_or_else(|| vec![0; AHEAD_BYTES].into_boxed_slice());
        let mut buffer = ReadBuf::new(&mut bytes);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        let (start, end) = (0, buffer.filled().len());
        if end == 0 {
            SPARE.set(Some(bytes));
            return polled.map_ok(|()| None);
        }
        Poll::Ready(Ok(Some(AheadBuffer { bytes, start, end })))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut ahead = match this.ahead.take() {
            Some(ahead) => ahead,
            None if ENOUGH_BYTES <= buffer.remaining() => {
                return Pin::new(&mut this.stream).poll_read(cx, buffer);
            }
            None => match ready!(this.poll_ahead(cx))? {
                Some(ahead) => ahead,
                None => return Poll::Ready(Ok(())),
            },
        };
        let taken = buffer.remaining().min(ahead.end - ahead.start);
        buffer.put_slice(&ahead.bytes[ahead.start..ahead.start + taken]);
        ahead.start += taken;
        if ahead.start == ahead.end {
            SPARE.set(Some(ahead.bytes));
        } else {
            this.ahead = Some(ahead);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Stream that counts the reads from `bytes`.
    struct CountedReads<'a> {
        bytes: &'a [u8],
        reads: usize,
    }

    impl AsyncRead for CountedReads<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.reads += 1;
            let taken = buffer.remaining().min(self.bytes.len());
            let (now, later) = self.bytes.split_at(taken);
            buffer.put_slice(now);
            self.bytes = later;
            Poll::Ready(Ok(()))
        }
    }

    // Ours: without reading ahead, a record of 10 KiB takes three system calls.
    #[tokio::test]
    async fn a_record_is_read_at_once_even_into_small_buffers() {
        let sent: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        for (part, reads) in [(1, 1), (4096, 1), (10_000, 1)] {
            let counted = CountedReads {
                bytes: &sent,
                reads: 0,
            };
            let mut stream = ReadAhead::new(counted);
            let mut received: Vec<u8> = Vec::new();
            while received.len() < sent.len() {
                let mut buffer = vec![0; part];
                let length = stream.read(&mut buffer).await.unwrap();
                received.extend(&buffer[..length]);
            }
            assert_eq!(stream.stream.reads, reads, "{part}");
            assert_eq!(received, sent, "{part}");
            assert_eq!(stream.read(&mut [0; 9]).await.unwrap(), 0);
        }
    }

    // Ours: bytes that are read ahead are copied one extra time.
    #[tokio::test]
    async fn a_large_buffer_is_read_into_directly() {
        for (room, is_ahead) in [(ENOUGH_BYTES, false), (ENOUGH_BYTES - 1, true)] {
            let counted = CountedReads {
                bytes: &[7; 20_000],
                reads: 0,
            };
            let mut stream = ReadAhead::new(counted);
            stream.read_exact(&mut vec![0; room]).await.unwrap();
            assert_eq!(stream.ahead.is_some(), is_ahead, "{room}");
        }
    }

    // Ours: an idle connection must not hold a buffer.
    #[tokio::test]
    async fn no_buffer_is_kept_after_everything_is_consumed() {
        let counted = CountedReads {
            bytes: b"record",
            reads: 0,
        };
        let mut stream = ReadAhead::new(counted);
        stream.read_exact(&mut [0; 5]).await.unwrap();
        assert!(stream.ahead.is_some() && SPARE.take().is_none());
        stream.read_exact(&mut [0; 1]).await.unwrap();
        assert!(stream.ahead.is_none() && SPARE.take().is_some());
    }
}
