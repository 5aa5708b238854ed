//! Client TCP connections, and what can be observed on them while requests are served: a
//! reset, the end of the sending side, and activity.
//!
//! hyper does not read while it waits for an answer, so that a half-closed client is
//! still answered. A reset must be noticed nevertheless, because the client is gone, and
//! so must a close, because most clients that give up waiting close the connection
//! ([`ClientEnd`]). Does not know how these events are handled.

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

/// Address to listen on, and the scheme that clients use there (`proxy.listen`).
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

/// Connection of a client.
///
/// Split into halves, because only reads of an [`OwnedReadHalf`] know when the system has
/// no more data: after a read that does not fill the buffer, it skips the read that would
/// find nothing. No other kind of shared stream has such a read.
#[derive(Debug)]
pub struct Socket {
    read: OwnedReadHalf,
    /// Shared with the handles that watch the client's end ([`ClientEnd`]).
    write: Arc<SharedWriteHalf>,
    /// Bytes that the task may read before others run.
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

/// Sending side of a connection, shared by all its watchers. `Some` until dropped.
#[derive(Debug)]
struct SharedWriteHalf(Option<OwnedWriteHalf>);

impl Drop for SharedWriteHalf {
    fn drop(&mut self) {
        // Dropping the half would shut the connection down with an extra system call. The
        // close that follows ends the connection anyway.
        if let Some(write) = self.0.take() {
            write.forget();
        }
    }
}

/// Handle to watch the client's end of a connection while other code reads and writes it.
/// The default has no connection and never ends.
#[derive(Debug, Clone, Default)]
pub struct ClientEnd(Option<Arc<SharedWriteHalf>>);

/// Events that report that the peer has stopped sending. Linux reports it ahead of unread
/// data (`EPOLLRDHUP`); other systems do not report it.
#[cfg(any(target_os = "linux", target_os = "android"))]
const END: Interest = Interest::PRIORITY.add(Interest::ERROR);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const END: Interest = Interest::ERROR;

impl ClientEnd {
    /// Completes when the client has stopped sending: it has closed the connection or
    /// only its sending side, which look the same (RFC 9293, section 3.6).
    ///
    /// Reads nothing, so it costs no memory and works under TLS. It cannot detect an end
    /// that follows more bytes than the receive buffer holds (an upload, pipelined
    /// requests), or the end of a TLS session without that of the connection. It does not
    /// complete after a reset: [`ClientEnd::reset`] does, and ends the exchange.
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

    /// Completes when the client has reset the connection.
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

    /// Returns the local address of the connection, using a system call.
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

    /// Writes as soon as the socket accepts bytes.
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

/// Activity on a client's connection. Distinguishes a client that reads nothing from an
/// origin that sends nothing.
#[derive(Debug, Default)]
pub struct ConnectionActivity {
    /// Number of requests received.
    requests: AtomicUsize,
    /// Whether an incomplete head has arrived.
    has_half_head: AtomicBool,
    /// Whether a connection inside a CONNECT has begun.
    has_no_heads: AtomicBool,
    /// Number of unfinished uploads.
    uploads: AtomicUsize,
    /// Progress of the HTTP/1 responses, one after the other.
    pub(super) progress: ResponseProgress,
    /// Whether anything has happened since the last call of
    /// [`ConnectionActivity::is_idle`].
    is_active: AtomicBool,
    /// Number of unanswered requests, and of bodies that wait for an origin.
    waiting: AtomicUsize,
    /// Number of bytes written to the client over HTTP/2.
    written: AtomicU64,
    /// Tells the connection to end after the requests received so far.
    pub(super) finish: Notify,
    /// Reason why the proxy cut the connection.
    cut: OnceLock<CutReason>,
}

/// Reason why the proxy cuts a client's connection and its exchanges.
#[derive(Debug, Clone, Copy)]
pub enum CutReason {
    /// The proxy stops, and `proxy.shutdown_timeout` has passed.
    Stop,
    /// Another client has taken its place (`proxy.max_connections`).
    Displaced,
    /// The client has read nothing for `proxy.idle_timeout`.
    Idle,
}

impl ConnectionActivity {
    /// Records that a request has arrived. The connection is not idle until the guard is
    /// dropped.
    pub fn begin_request(self: &Arc<Self>) -> WaitGuard {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.set_half_head(false);
        self.record();
        self.wait()
    }

    /// Records that bytes have moved between client and proxy.
    pub fn record(&self) {
        self.is_active.store(true, Ordering::Relaxed);
    }

    /// Counts bytes written to the client over HTTP/2.
    pub(super) fn add_written(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the number of bytes written to the client over HTTP/2.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Starts a wait for an origin. The connection is not idle until the guard is
    /// dropped.
    pub fn wait(self: &Arc<Self>) -> WaitGuard {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitGuard(Arc::clone(self))
    }

    /// Starts an upload, which lasts until the guard is dropped.
    pub fn begin_upload(self: &Arc<Self>) -> UploadGuard {
        self.uploads.fetch_add(1, Ordering::Relaxed);
        UploadGuard(Arc::clone(self))
    }

    /// Reports whether any request has arrived.
    pub fn has_begun(&self) -> bool {
        self.requests() != 0
    }

    /// Returns the number of requests that have arrived.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Records that later bytes are not heads but belong to the connection inside a
    /// CONNECT.
    pub fn end_heads(&self) {
        self.has_no_heads.store(true, Ordering::Relaxed);
    }

    /// Reports whether a connection inside a CONNECT has begun.
    pub fn has_no_heads(&self) -> bool {
        self.has_no_heads.load(Ordering::Relaxed)
    }

    /// Reports whether the next bytes are the head of an HTTP/1 request: no request is
    /// being answered, and no upload is still arriving after its answer.
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
        // Only the first reason counts: it is the one that cut the connection.
        let _ = self.cut.set(reason);
    }

    /// Returns the error term of an exchange that is dropped before its end, as used in
    /// the record (`docs/reference/reasons.md`).
    pub fn drop_reason(&self) -> &'static str {
        match self.cut.get() {
            None => "client_gone",
            Some(CutReason::Stop) => "proxy_stopped",
            Some(CutReason::Displaced) => "client_displaced",
            Some(CutReason::Idle) => "client_idle",
        }
    }

    /// Records whether an incomplete head has arrived.
    pub fn set_half_head(&self, is_half: bool) {
        self.has_half_head.store(is_half, Ordering::Relaxed);
    }

    /// Reports whether an incomplete head has arrived.
    pub fn has_half_head(&self) -> bool {
        self.has_half_head.load(Ordering::Relaxed)
    }

    /// Reports whether nothing has happened since the last call and no request or body
    /// waits for an origin.
    pub fn is_idle(&self) -> bool {
        let was_active = self.is_active.swap(false, Ordering::Relaxed);
        !was_active && self.waiting.load(Ordering::Relaxed) == 0
    }
}

/// A client's wait for an origin or an answer. Ends when dropped.
#[derive(Debug)]
pub struct WaitGuard(Arc<ConnectionActivity>);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.0.record();
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An upload of the client. Ends when dropped.
#[derive(Debug)]
pub struct UploadGuard(Arc<ConnectionActivity>);

impl UploadGuard {
    /// Records that the client has sent some bytes.
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

    // Ours: reading a fast upload must yield to other tasks.
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
    async fn a_reset_is_noticed_and_a_half_close_is_not_a_reset() {
        let (mut socket, mut peer) = pair().await;
        peer.shutdown().await.unwrap();
        assert_eq!(socket.read(&mut [0; 1]).await.unwrap(), 0);
        let watched = socket.client_end();
        assert!(futures_now(watched.reset()).await.is_none());
        socket.write_all(b"an answer").await.unwrap();
        // Closing a socket with unread bytes resets the connection.
        drop(peer);
        watched.reset().await;
    }

    // RFC 9293, section 3.6. More bytes may follow a request: a body or pipelined
    // requests.
    #[tokio::test]
    async fn an_end_is_noticed_despite_unread_bytes() {
        let (socket, mut peer) = pair().await;
        let end = socket.client_end();
        peer.write_all(&[7; 20_000]).await.unwrap();
        assert!(soon(end.ended()).await.is_none());
        peer.shutdown().await.unwrap();
        end.ended().await;
        end.ended().await;
        assert!(soon(ClientEnd::default().ended()).await.is_none());
    }

    // Ours: dropping the socket does no shutdown of its own. The close must end the
    // connection, but only after the last watcher is gone.
    #[tokio::test]
    async fn the_last_drop_ends_the_connection() {
        let (socket, mut peer) = pair().await;
        let end = socket.client_end();
        drop(socket);
        assert!(soon(peer.read(&mut [0; 1])).await.is_none());
        drop(end);
        assert_eq!(peer.read(&mut [0; 1]).await.unwrap(), 0);
    }

    // Ours: a reset ends the exchange, because the client is gone.
    #[tokio::test]
    async fn a_reset_is_not_reported_as_an_end() {
        let (socket, peer) = pair().await;
        peer.set_zero_linger().unwrap();
        drop(peer);
        let end = socket.client_end();
        end.reset().await;
        assert!(soon(end.ended()).await.is_none());
    }

    /// Returns the result of `future` if it completes within a short time.
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

    /// Returns the result of `future` if it completes at once.
    async fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = future => Some(done),
            () = std::future::ready(()) => None,
        }
    }
}
