//! A crawler's TCP connection, which can be watched while it is served.
//!
//! hyper does not read while it waits for an answer, so that a crawler may
//! close its sending side and still be answered. A reset must be noticed all
//! the same: nobody is there any more.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::tasks::Turn;

/// A handle on the connection; reading and writing go through any of them.
#[derive(Debug, Clone)]
pub struct Socket {
    stream: Arc<TcpStream>,
    turn: Turn,
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self {
            stream: Arc::new(stream),
            turn: Turn::default(),
        }
    }
}

impl Socket {
    /// Waits until the peer has reset the connection.
    pub async fn reset(&self) {
        loop {
            match self.stream.ready(Interest::ERROR).await {
                Ok(ready) if !ready.is_error() => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Reads as soon as there is something.
    fn poll_received(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(octets) => {
                    buffer.advance(octets);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    /// Writes as soon as the socket takes something.
    fn poll_written(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.turn.poll_go_on(cx));
        let before = buffer.filled().len();
        let read = this.poll_received(cx, buffer);
        this.turn.note(&read, buffer.filled().len() - before);
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream| stream.try_write(octets))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(&*self.stream, Shutdown::Write).map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::tasks::tests::{MOST, most_in_one_turn};

    // Issue 5, "healthy ones not slowed": so did a crawler with its upload.
    #[tokio::test]
    async fn a_flood_from_a_crawler_lets_others_run() {
        let most = most_in_one_turn(|stream: TcpStream| Socket::from(stream)).await;
        assert!(most <= MOST, "{most}");
    }

    async fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        (listener.accept().await.unwrap().0.into(), peer)
    }

    // Proxy.md 3, number 13.
    #[tokio::test]
    async fn a_reset_is_noticed_and_a_half_close_is_none() {
        let (mut socket, mut peer) = pair().await;
        peer.shutdown().await.unwrap();
        assert_eq!(socket.read(&mut [0; 1]).await.unwrap(), 0);
        let watched = socket.clone();
        assert!(futures_now(watched.reset()).await.is_none());
        socket.write_all(b"an answer").await.unwrap();
        // Closing with something unread resets the connection.
        drop(peer);
        socket.reset().await;
    }

    #[tokio::test]
    async fn octets_go_both_ways() {
        let (mut socket, mut peer) = pair().await;
        let sent = vec![7; 3_000_000];
        let (written, read) = tokio::join!(
            async {
                socket.write_all(&sent).await.unwrap();
                socket.shutdown().await
            },
            async {
                let mut got = Vec::new();
                peer.read_to_end(&mut got).await.unwrap();
                got.len()
            }
        );
        written.unwrap();
        assert_eq!(read, 3_000_000);
    }

    /// What `future` has come to, if it is done at once.
    async fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = future => Some(done),
            () = std::future::ready(()) => None,
        }
    }
}
