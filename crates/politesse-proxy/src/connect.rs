//! CONNECT interception: turns the stream inside a CONNECT into one whose requests can be
//! read.
//!
//! Intercept, never tunnel (ARCHITECTURE.md, invariant 6): a stream that begins with
//! neither TLS nor HTTP/1 is closed. A CONNECT is never refused because of its
//! destination: clients would report that as a transport error and not show the
//! explanation. Does not know how the requests inside are answered.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_rustls::LazyConfigAcceptor;

use super::ca::Ca;
use super::ca_files::CaError;
use super::first_bytes::{FirstBytes, ForeignProtocol, ProtocolRefusal, TLS_HANDSHAKE};
use politesse_base::clients::client::Client;
use politesse_base::clients::shares::{ShareRefusal, Shares};
use politesse_base::clock;
use politesse_base::tls::crypto_provider;
use politesse_robots::origin::{Host, InvalidTarget, Origin, Scheme};

/// Settings of CONNECT interception (`https.*`).
#[derive(Debug, Clone)]
pub struct Options {
    /// `https.mode`.
    pub mode: HttpsMode,
    /// Time limit for each step: the upgrade, the first byte, the TLS handshake
    /// (`https.handshake_timeout`).
    pub handshake_timeout: Duration,
}

/// Treatment of CONNECT requests (`https.mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpsMode {
    /// TLS is intercepted with certificates of the local CA.
    Intercept,
    /// CONNECT is refused. There is no fallback to blind tunnels.
    Refuse,
}

/// Maximum number of bytes read to distinguish TLS from HTTP. A ClientHello with a
/// post-quantum key share has about 1,700.
const PEEKED_BYTES_MAX: usize = 2048;

/// Fatal alert `unrecognized_name` (RFC 6066, section 3) as a TLS record (RFC 8446,
/// section 5.1).
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x70];

/// Reason why no request can be read inside a CONNECT to `host`.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "every `host` is that of the CONNECT")]
pub enum ConnectError {
    /// The client closed the connection before sending anything.
    #[error("the connection ended before the tunnel began")]
    Upgrade(#[source] hyper::Error),
    /// The first byte or the complete handshake did not arrive within
    /// `https.handshake_timeout`.
    #[error("no handshake within https.handshake_timeout")]
    Timeout,
    /// The connection broke.
    #[error("the connection broke off")]
    Broken(#[source] io::Error),
    /// The TLS handshake failed, usually because the client does not trust the CA.
    #[error("TLS handshake for {host} failed; does the crawler trust the CA certificate?")]
    Handshake { host: String, source: io::Error },
    /// The first bytes belong to an unsupported protocol.
    #[error("another protocol inside CONNECT for {host}")]
    Foreign {
        host: String,
        source: ForeignProtocol,
    },
    /// The server name in the ClientHello is not the host of the CONNECT.
    #[error("CONNECT for {host}, but the handshake asks for {server_name}")]
    ServerName { host: String, server_name: String },
    /// No certificate could be signed in time: too many are being signed, or this client
    /// has used up its share.
    #[error("no certificate for {host} in time: {refusal}")]
    Overload { host: String, refusal: ShareRefusal },
    /// Signing the certificate failed.
    #[error("no certificate for {host}")]
    Leaf { host: String, source: Arc<CaError> },
}

/// HTTP version used on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2, negotiated by ALPN.
    Http2,
}

/// A bidirectional byte stream, with or without TLS.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Connection inside a CONNECT, which carries requests for one origin.
pub struct InnerConnection {
    /// Byte stream of the requests, with TLS removed.
    pub stream: Box<dyn ByteStream>,
    /// Origin that each request must name.
    pub origin: Origin,
    /// HTTP version of the connection.
    pub protocol: Protocol,
    /// Set while `stream` is read, if its first bytes turn out not to be a request. Check
    /// it after the connection has ended, because hyper treats the error from `stream` as
    /// an ordinary end.
    pub refusal: ProtocolRefusal,
}

/// Parses the authority of a CONNECT: a host and a port, nothing else (RFC 9110, section
/// 9.3.6).
///
/// # Errors
///
/// [`InvalidTarget`] if the host or the port is missing or malformed.
pub fn authority(authority: &str) -> Result<Origin, InvalidTarget> {
    let port = authority.rsplit(':').next().unwrap_or_default();
    if port.is_empty() || port.len() == authority.len() || port.contains(']') {
        return Err(InvalidTarget::Port);
    }
    Origin::new(Scheme::Https, authority)
}

/// Shares in leaf signing, and the client that takes one.
#[derive(Debug, Clone, Copy)]
pub struct LeafShares<'a> {
    /// Shares of all clients.
    pub shares: &'a Arc<Shares>,
    /// Client to which the share is charged.
    pub client: &'a Arc<Client>,
}

/// TLS server for intercepted connections, with certificates of the local CA.
#[derive(Debug)]
pub struct Interceptor {
    /// Authority that signs the certificates.
    ca: Arc<Ca>,
    /// Configuration from which that of each connection is cloned.
    base: ServerConfig,
    /// `https.handshake_timeout`.
    timeout: Duration,
}

impl Interceptor {
    /// Creates an interceptor. All its connections share one ticket key and one ALPN
    /// list. `timeout` is `https.handshake_timeout`.
    ///
    /// # Errors
    ///
    /// [`rustls::Error`] if the system provides no randomness for the ticket keys.
    pub fn new(ca: Arc<Ca>, timeout: Duration) -> Result<Self, rustls::Error> {
        let mut base = ServerConfig::builder_with_provider(crypto_provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(FixedCertificate(None)));
        // The first of our cipher suites that the client offers is used.
        base.ignore_client_order = true;
        // h2 comes first: rustls picks the first protocol of this list that the client
        // offers.
        base.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        base.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
        // One ticket per handshake is enough to resume the next session; rustls sends two
        // by default.
        base.send_tls13_tickets = 1;
        Ok(Self { ca, base, timeout })
    }

    /// Returns the certificate authority.
    pub fn ca(&self) -> Arc<Ca> {
        Arc::clone(&self.ca)
    }

    /// Opens the connection inside a CONNECT to `origin`: waits for the first byte, and
    /// completes the TLS handshake if that byte begins one. Signing a certificate
    /// requires one of the `leaves` shares.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]. The connection to the client is closed in that case.
    pub async fn open(
        &self,
        upgrade: OnUpgrade,
        origin: Origin,
        leaves: LeafShares<'_>,
    ) -> Result<InnerConnection, ConnectError> {
        let mut step = StepTimer::new(self.timeout);
        let upgraded = step.run(upgrade).await?.map_err(ConnectError::Upgrade)?;
        let mut stream = TokioIo::new(upgraded);
        // The capacity fits a ClientHello, so that one system call reads all of it.
        let mut peeked = BytesMut::with_capacity(PEEKED_BYTES_MAX);
        let read = step.run(stream.read_buf(&mut peeked)).await?;
        read.map_err(ConnectError::Broken)?;
        let Some(first) = peeked.first() else {
            let end = io::ErrorKind::UnexpectedEof.into();
            return Err(ConnectError::Broken(end));
        };
        let is_tls = *first == TLS_HANDSHAKE;
        let check = if is_tls {
            FirstBytes::client_hello()
        } else {
            FirstBytes::http1()
        };
        let refusal = check.refusal();
        let stream = CheckedStream {
            peeked,
            stream,
            check,
        };
        if is_tls {
            return step.run(self.handshake(stream, origin, leaves)).await?;
        }
        // The port must be explicit: the scheme is http from here on, so that a missing
        // port would mean 80 rather than the port of the CONNECT.
        let authority = format!("{}:{}", origin.host(), origin.port());
        Ok(InnerConnection {
            origin: Origin::new(Scheme::Http, &authority).unwrap_or(origin),
            refusal,
            stream: Box::new(stream),
            protocol: Protocol::Http1,
        })
    }

    /// Completes the TLS handshake that `stream` begins with.
    async fn handshake(
        &self,
        stream: CheckedStream<TokioIo<Upgraded>>,
        origin: Origin,
        leaves: LeafShares<'_>,
    ) -> Result<InnerConnection, ConnectError> {
        let host = origin.host().to_string();
        let refusal = stream.check.refusal();
        let failed = |source| {
            let host = host.clone();
            match refusal.get().copied() {
                Some(source) => ConnectError::Foreign { host, source },
                None => ConnectError::Handshake { host, source },
            }
        };
        let acceptor = LazyConfigAcceptor::new(Acceptor::default(), stream);
        let mut start = acceptor.await.map_err(failed)?;
        if let Some(server_name) = foreign_name(&start.client_hello(), &origin) {
            // The client may be gone. If it is not, the close alone is clear enough.
            let _ = start.io.write_all(&UNRECOGNIZED_NAME).await;
            let _ = start.io.shutdown().await;
            return Err(ConnectError::ServerName { host, server_name });
        }
        let config = self.config(origin.host(), leaves).await?;
        let stream = start.into_stream(Arc::new(config)).await.map_err(failed)?;
        let (protocol, check) = match stream.get_ref().1.alpn_protocol() {
            // hyper itself checks the HTTP/2 preface byte by byte.
            Some(b"h2") => (Protocol::Http2, FirstBytes::unchecked()),
            _ => (Protocol::Http1, FirstBytes::http1()),
        };
        Ok(InnerConnection {
            refusal: check.refusal(),
            stream: Box::new(CheckedStream {
                peeked: BytesMut::new(),
                stream,
                check,
            }),
            origin,
            protocol,
        })
    }

    /// Returns the TLS configuration for a connection to `host`.
    async fn config(
        &self,
        host: &Host,
        leaves: LeafShares<'_>,
    ) -> Result<ServerConfig, ConnectError> {
        let leaf = match self.ca.cached_leaf(host) {
            Some(leaf) => leaf,
            None => self.new_leaf(host, leaves).await?,
        };
        // A clone shares the ticketer and ALPN list, and costs less than a microsecond. A
        // configuration built for each name would have its own session cache.
        let mut config = self.base.clone();
        config.cert_resolver = Arc::new(FixedCertificate(Some(leaf)));
        Ok(config)
    }

    async fn new_leaf(
        &self,
        host: &Host,
        leaves: LeafShares<'_>,
    ) -> Result<Arc<CertifiedKey>, ConnectError> {
        let taken = leaves.shares.take(leaves.client).await;
        let _share = taken.map_err(|refusal| ConnectError::Overload {
            host: host.to_string(),
            refusal,
        })?;
        self.ca.leaf(host).map_err(|source| ConnectError::Leaf {
            host: host.to_string(),
            source,
        })
    }
}

/// Time limit for each of several consecutive steps.
///
/// One timer serves all steps: resetting a timer takes no lock, but creating one does.
struct StepTimer {
    /// Longest time for each step.
    limit: Duration,
    /// Expires at the limit of the current step.
    timer: Pin<Box<Sleep>>,
}

impl StepTimer {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            timer: Box::pin(sleep(limit)),
        }
    }

    /// Runs one step with the full time limit.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Timeout`] if the step does not finish within the limit.
    async fn run<T>(&mut self, step: impl Future<Output = T>) -> Result<T, ConnectError> {
        self.timer.as_mut().reset(clock::instant() + self.limit);
        tokio::select! {
            biased;
            output = step => Ok(output),
            () = self.timer.as_mut() => Err(ConnectError::Timeout),
        }
    }
}

/// Returns the handshake's server name if it differs from the host of the CONNECT.
fn foreign_name(hello: &ClientHello<'_>, origin: &Origin) -> Option<String> {
    let name = hello.server_name()?;
    let host = name.parse::<Host>();
    let is_same = host.is_ok_and(|host| host == *origin.host());
    (!is_same).then(|| name.to_owned())
}

/// Certificate of one connection. `None` in the base configuration, which is cloned for
/// each connection.
#[derive(Debug)]
struct FixedCertificate(Option<Arc<CertifiedKey>>);

impl ResolvesServerCert for FixedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }
}

/// Stream whose first bytes are checked as they are read. Does not implement `Debug`,
/// which would show those bytes.
struct CheckedStream<S> {
    /// Bytes already read to distinguish TLS from HTTP, not yet returned to the reader.
    peeked: BytesMut,
    /// Stream that the bytes come from.
    stream: S,
    /// Check of the first bytes.
    check: FirstBytes,
}

impl<S: AsyncRead + Unpin> AsyncRead for CheckedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if this.peeked.is_empty() {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        } else {
            // The peeked bytes are returned alone. A further read in the same call could
            // wait for bytes that the client sends only after an answer.
            let taken = buffer.remaining().min(this.peeked.len());
            buffer.put_slice(&this.peeked.split_to(taken));
            if this.peeked.is_empty() {
                this.peeked = BytesMut::new();
            }
        }
        let checked = this.check.check(&buffer.filled()[before..]);
        Poll::Ready(checked.map_err(io::Error::from))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CheckedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::num::NonZeroUsize;

    use super::*;
    use politesse_base::clients::client::Resource;
    use politesse_base::clients::directory::ClientDirectory;
    use politesse_base::clients::shares::DisplacementOrder;

    // Ours: the check sees every byte, however the reads split them.
    #[tokio::test]
    async fn peeked_bytes_are_passed_on_first_and_once() {
        for part in [1, 5, 100] {
            let mut stream = CheckedStream {
                peeked: BytesMut::from("GET / HT"),
                stream: &b"TP/1.1\r\n"[..],
                check: FirstBytes::http1(),
            };
            let mut received: Vec<u8> = Vec::new();
            loop {
                let mut buffer = vec![0; part];
                match stream.read(&mut buffer).await.unwrap() {
                    0 => break,
                    length => received.extend(&buffer[..length]),
                }
            }
            assert_eq!(received, b"GET / HTTP/1.1\r\n", "{part}");
        }
    }

    // Ours: clients take turns at signing, however many certificates one of them needs. A
    // cached certificate needs no share.
    #[tokio::test]
    async fn signing_a_certificate_waits_for_a_share_of_its_client() {
        let folder = tempfile::tempdir().unwrap();
        let options = super::super::ca::Options {
            cert: folder.path().join("ca.pem"),
            key: folder.path().join("ca.key"),
            leaf_cache: NonZeroUsize::MIN,
        };
        let ca = Arc::new(Ca::open(&options).unwrap());
        let interceptor = Interceptor::new(ca, Duration::from_secs(10)).unwrap();
        let (resource, newest) = (Resource::Leaves, DisplacementOrder::NewestFirst);
        let shares = Shares::new(resource, 1, newest, Arc::default());
        let directory = ClientDirectory::default();
        let [client, other] = [1, 2].map(|last| directory.at([127, 0, 0, last].into()));
        let leaves = LeafShares {
            shares: &shares,
            client: &client,
        };
        let host = Origin::new(Scheme::Https, "o.test").unwrap().host().clone();
        let held = shares.take_now(&other).unwrap();
        let mut made = Box::pin(interceptor.config(&host, leaves));
        let moment = Duration::from_millis(10);
        assert!(tokio::time::timeout(moment, made.as_mut()).await.is_err());
        assert_eq!((client.held(resource), other.held(resource)), (0, 1));
        drop(held);
        assert!(made.await.is_ok());
        let _held = shares.take_now(&other).unwrap();
        assert!(interceptor.config(&host, leaves).await.is_ok());
    }

    // Ours: `https.handshake_timeout` limits each step separately.
    #[tokio::test(start_paused = true)]
    async fn each_step_gets_the_full_time_limit() {
        let began = clock::instant();
        let seconds = Duration::from_secs;
        let mut step = StepTimer::new(seconds(10));
        for _ in 0..2 {
            assert!(step.run(sleep(seconds(9))).await.is_ok());
        }
        let late = step.run(pending::<()>()).await;
        assert!(matches!(late, Err(ConnectError::Timeout)));
        assert_eq!(clock::instant() - began, seconds(28));
    }
}
