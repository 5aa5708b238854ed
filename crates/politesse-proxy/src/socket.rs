//! A client's TCP connection, and what can be observed of it while its requests
//! are served: a reset, the end of its sending side, and whether anything moves.
//!
//! hyper does not read while it waits for an answer, so that a client may close
//! its sending side and still be answered. A reset must be noticed all the same,
//! because nobody is there any more; and most clients that give up waiting close
//! the connection ([`ClientEnd`]). Does not know what follows from any of it.

use std::fmt;
use std::future::pending;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

use super::progress::ResponseProgress;
use politesse_base::tasks::ReadBudget;
use politesse_robots::origin::Scheme;

/// Address to listen on, and how clients speak to it (`proxy.listen`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddress {
    /// `http`, or `https` for TLS to the proxy.
    pub scheme: Scheme,
    /// Address.
    pub address: SocketAddr,
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.address)
    }
}

/// Client's connection.
///
/// In halves for [`OwnedReadHalf`], whose reads know when the system has no more:
/// a read that does not fill the buffer is not followed by one that finds nothing.
/// A stream that is shared in another way has no such read.
#[derive(Debug)]
pub struct Socket {
    read: OwnedReadHalf,
    write: Arc<SharedWriteHalf>,
    budget: ReadBudget,
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        let (read, write) = stream.into_split();
        Self {
            read,
            write: Arc::new(SharedWriteHalf(Some(write))),
            budget: ReadBudget::default(),
        }
    }
}

/// Sending side of a connection, held by all who watch it. Present until the
/// drop.
#[derive(Debug)]
struct SharedWriteHalf(Option<OwnedWriteHalf>);

impl Drop for SharedWriteHalf {
    fn drop(&mut self) {
        // Otherwise the drop would shut the connection down by a system call of
        // its own, and the close that follows does so anyway.
        if let Some(write) = self.0.take() {
            write.forget();
        }
    }
}

/// Client's end of a connection, which can be watched while others read and
/// write. The default has no connection, and never ends.
#[derive(Debug, Clone, Default)]
pub struct ClientEnd(Option<Arc<SharedWriteHalf>>);

/// Events that say that the peer sends no more. Linux reports it ahead of unread
/// data (`EPOLLRDHUP`); other systems do not report it.
#[cfg(any(target_os = "linux", target_os = "android"))]
const END: Interest = Interest::PRIORITY.add(Interest::ERROR);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const END: Interest = Interest::ERROR;

impl ClientEnd {
    /// Waits until the client sends no more: it has closed the connection, or
    /// its sending side, which looks the same (RFC 9293, section 3.6).
    ///
    /// Reads nothing, so it costs no memory and works inside TLS. It does not
    /// see an end after more bytes than the system's receive buffer takes (an
    /// upload, requests in a pipeline), nor a TLS session that is closed alone.
    /// It does not return after a reset: [`ClientEnd::reset`] does, and ends the
    /// exchange.
    pub async fn ended(&self) {
        if let Some(socket) = self.stream()
            && let Ok(ready) = socket.ready(END).await
            && ready.is_read_closed()
            && !ready.is_error()
        {
            return;
        }
        pending::<()>().await;
    }

    /// Waits until the client has reset the connection.
    pub async fn reset(&self) {
        let Some(socket) = self.stream() else {
            return pending().await;
        };
        loop {
            match socket.ready(Interest::ERROR).await {
                Ok(ready) if !ready.is_error() => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Returns our own address of the connection, by a system call.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.stream()?.local_addr().ok()
    }

    fn stream(&self) -> Option<&TcpStream> {
        let half = self.0.as_ref()?.0.as_ref()?;
        Some(half.as_ref())
    }
}

impl Socket {
    /// Returns the client's end of the connection.
    pub fn client_end(&self) -> ClientEnd {
        ClientEnd(Some(Arc::clone(&self.write)))
    }

    /// Writes once the socket takes something.
    fn poll_written(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let stream: &TcpStream = self.read.as_ref();
        loop {
            ready!(stream.poll_write_ready(cx))?;
            match write(stream) {
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
        let Self { read, budget, .. } = self.get_mut();
        budget.poll_read(cx, read, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream| stream.try_write(bytes))
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
        Poll::Ready(
            shutdown::<&TcpStream>(self.read.as_ref(), Shutdown::Write).map_err(io::Error::from),
        )
    }
}

/// Activity on a client's connection, so that a client that takes nothing is
/// told from an origin that sends nothing.
#[derive(Debug, Default)]
pub struct ConnectionActivity {
    /// Requests that have come.
    requests: AtomicUsize,
    /// Whether a part of a head has come, and not yet the rest.
    has_half_head: AtomicBool,
    /// Whether a connection inside a CONNECT has begun.
    has_no_heads: AtomicBool,
    /// Uploads that have not ended.
    uploads: AtomicUsize,
    /// Progress of the responses over HTTP/1, one after the other.
    pub(super) progress: ResponseProgress,
    /// Whether anything happened since [`ConnectionActivity::is_idle`] was asked.
    is_active: AtomicBool,
    /// Requests that are not answered yet, and bodies that wait for an origin.
    waiting: AtomicUsize,
    /// Bytes written to the client over HTTP/2.
    written: AtomicU64,
    /// Wakes the connection to end with the requests that have come.
    pub(super) finish: Notify,
    /// Why the proxy has cut the connection.
    cut: OnceLock<CutReason>,
}

/// Reason why the proxy cuts a client's connection, and what is under way on it.
#[derive(Debug, Clone, Copy)]
pub enum CutReason {
    /// The proxy stops, and `proxy.shutdown_timeout` is over.
    Stop,
    /// Another client has got its place (`proxy.max_connections`).
    Displaced,
    /// The client has taken nothing for `proxy.idle_timeout`.
    Idle,
}

impl ConnectionActivity {
    /// Records that a request has come. The connection is not idle until the
    /// guard is dropped.
    pub fn begin_request(self: &Arc<Self>) -> WaitGuard {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.set_half_head(false);
        self.record();
        self.wait()
    }

    /// Records that the client has taken a part of a response.
    pub fn record(&self) {
        self.is_active.store(true, Ordering::Relaxed);
    }

    /// Counts bytes that were written to the client over HTTP/2.
    pub(super) fn add_written(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the number of bytes that were written to the client over HTTP/2.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Begins a wait for an origin. The connection is not idle until the guard
    /// is dropped.
    pub fn wait(self: &Arc<Self>) -> WaitGuard {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitGuard(Arc::clone(self))
    }

    /// Begins an upload. It ends with the drop of the guard.
    pub fn begin_upload(self: &Arc<Self>) -> UploadGuard {
        self.uploads.fetch_add(1, Ordering::Relaxed);
        UploadGuard(Arc::clone(self))
    }

    /// Reports whether a request has come at all.
    pub fn has_begun(&self) -> bool {
        self.requests() != 0
    }

    /// Returns how many requests have come.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Records that what comes from now on are no heads: the connection inside a
    /// CONNECT.
    pub fn end_heads(&self) {
        self.has_no_heads.store(true, Ordering::Relaxed);
    }

    /// Reports whether a connection inside a CONNECT has begun.
    pub fn has_no_heads(&self) -> bool {
        self.has_no_heads.load(Ordering::Relaxed)
    }

    /// Reports whether what comes now is the head of a request over HTTP/1: none
    /// is being answered, nor still being sent behind its answer.
    pub fn awaits_head(&self) -> bool {
        !self.has_no_heads() && !self.is_in_exchange()
    }

    fn is_in_exchange(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
            || self.uploads.load(Ordering::Relaxed) != 0
            || self.progress.is_under_way()
    }

    /// Records that the proxy cuts the connection.
    pub fn note_cut(&self, reason: CutReason) {
        // The first reason is the one that cut it.
        let _ = self.cut.set(reason);
    }

    /// Returns why an exchange ends that is dropped before its end, as it is in the
    /// record (`docs/reference/reasons.md`).
    pub fn drop_reason(&self) -> &'static str {
        match self.cut.get() {
            None => "client_gone",
            Some(CutReason::Stop) => "proxy_stopped",
            Some(CutReason::Displaced) => "client_displaced",
            Some(CutReason::Idle) => "client_idle",
        }
    }

    /// Records whether a part of a head has come, and not yet the rest.
    pub fn set_half_head(&self, is_half: bool) {
        self.has_half_head.store(is_half, Ordering::Relaxed);
    }

    /// Reports whether a part of a head has come, and not yet the rest.
    pub fn has_half_head(&self) -> bool {
        self.has_half_head.load(Ordering::Relaxed)
    }

    /// Reports whether nothing has happened since the last call, and nothing
    /// waits for an origin.
    pub fn is_idle(&self) -> bool {
        let was_active = self.is_active.swap(false, Ordering::Relaxed);
        !was_active && self.waiting.load(Ordering::Relaxed) == 0
    }
}

/// A wait of the client for an origin, or for an answer. Ends with the drop.
#[derive(Debug)]
pub struct WaitGuard(Arc<ConnectionActivity>);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.0.record();
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An upload of the client. Ends with the drop.
#[derive(Debug)]
pub struct UploadGuard(Arc<ConnectionActivity>);

impl UploadGuard {
    /// Records that the client has sent a part.
    pub fn record(&self) {
        self.0.record();
    }
}

impl Drop for UploadGuard {
    fn drop(&mut self) {
        self.0.uploads.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use politesse_base::testing::{TURN_BYTES_MAX, most_in_one_turn};

    // Ours: so did a crawler with its upload.
    #[tokio::test]
    async fn a_flood_from_a_crawler_lets_others_run() {
        let most = most_in_one_turn(|stream: TcpStream| Socket::from(stream)).await;
        assert!(most <= TURN_BYTES_MAX, "{most}");
    }

    async fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        (listener.accept().await.unwrap().0.into(), peer)
    }

    // Ours.
    #[tokio::test]
    async fn a_reset_is_noticed_and_a_half_close_is_none() {
        let (mut socket, mut peer) = pair().await;
        peer.shutdown().await.unwrap();
        assert_eq!(socket.read(&mut [0; 1]).await.unwrap(), 0);
        let watched = socket.client_end();
        assert!(futures_now(watched.reset()).await.is_none());
        socket.write_all(b"an answer").await.unwrap();
        // Closing with something unread resets the connection.
        drop(peer);
        watched.reset().await;
    }

    // RFC 9293, section 3.6. A crawler may have more after its request: a body,
    // or requests in a pipeline.
    #[tokio::test]
    async fn an_end_is_noticed_behind_what_is_unread() {
        let (socket, mut peer) = pair().await;
        let end = socket.client_end();
        peer.write_all(&[7; 20_000]).await.unwrap();
        assert!(soon(end.ended()).await.is_none());
        peer.shutdown().await.unwrap();
        end.ended().await;
        end.ended().await;
        assert!(soon(ClientEnd::default().ended()).await.is_none());
    }

    // Ours: the drop closes without a shutdown of its own, so that the close has
    // to end the connection, and may not while it is watched.
    #[tokio::test]
    async fn the_last_drop_ends_the_connection() {
        let (socket, mut peer) = pair().await;
        let end = socket.client_end();
        drop(socket);
        assert!(soon(peer.read(&mut [0; 1])).await.is_none());
        drop(end);
        assert_eq!(peer.read(&mut [0; 1]).await.unwrap(), 0);
    }

    // A reset ends the exchange, and nobody reads an answer.
    #[tokio::test]
    async fn a_reset_is_no_end() {
        let (socket, peer) = pair().await;
        peer.set_zero_linger().unwrap();
        drop(peer);
        let end = socket.client_end();
        end.reset().await;
        assert!(soon(end.ended()).await.is_none());
    }

    /// Returns what `future` comes to, if it does.
    async fn soon<T>(future: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::from_millis(50), future)
            .await
            .ok()
    }

    #[tokio::test]
    async fn bytes_go_both_ways() {
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

    /// Returns what `future` has come to, if it is done at once.
    async fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = future => Some(done),
            () = std::future::ready(()) => None,
        }
    }
}
