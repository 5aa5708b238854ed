//! CONNECT: from the request for a tunnel to a stream whose requests we see.
//!
//! Invariant 6: intercept, never tunnel. What is neither TLS nor HTTP is
//! closed. CONNECT itself is never refused for what it leads to: every client
//! turns that into a transport error and loses the explanation.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{error::Elapsed, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::ca::{Ca, CaError};
use super::first_bytes::{FirstBytes, ForeignProtocol, ProtocolRefusal, TLS_HANDSHAKE};
use crate::decision::digest::Digest;
use politesse_robots::origin::{InvalidTarget, Origin, Scheme};

/// What to do with CONNECT.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether to intercept at all.
    pub mode: HttpsMode,
    /// The longest a handshake may take, in each of its parts.
    pub handshake_timeout: Duration,
}

/// `https.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpsMode {
    /// Intercept TLS with the local authority.
    Intercept,
    /// Refuse CONNECT: there are no blind tunnels to fall back to.
    Refuse,
}

/// The fatal alert `unrecognized_name` as a record (RFC 6066, section 3).
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x70];

/// Why no request can be read from inside a CONNECT.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The crawler did not take the tunnel.
    #[error("the connection ended before the tunnel began")]
    Upgrade(#[source] hyper::Error),
    /// Nothing, or half a handshake, within `https.handshake_timeout`.
    #[error("no handshake within https.handshake_timeout")]
    Timeout(#[from] Elapsed),
    /// The connection broke off.
    #[error("the connection broke off")]
    Broken(#[source] io::Error),
    /// The handshake failed; most often the crawler does not trust our CA.
    #[error("TLS handshake for {host} failed; does the crawler trust the CA certificate?")]
    Handshake {
        /// The host of the CONNECT.
        host: String,
        /// What rustls says.
        source: io::Error,
    },
    /// The first byte is that of TLS, and no ClientHello follows.
    #[error("another protocol inside CONNECT for {host}")]
    Foreign {
        /// The host of the CONNECT.
        host: String,
        /// What was expected.
        source: ForeignProtocol,
    },
    /// The server name is not the host of the CONNECT.
    #[error("CONNECT for {host}, but the handshake asks for {server_name}")]
    ServerName {
        /// The host of the CONNECT.
        host: String,
        /// The name in the ClientHello.
        server_name: String,
    },
    /// No certificate could be made.
    #[error("no certificate for {host}")]
    Leaf {
        /// The host of the CONNECT.
        host: String,
        /// Why.
        source: Arc<CaError>,
    },
}

/// The protocol spoken on an opened stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 and 1.1.
    Http1,
    /// HTTP/2, by ALPN.
    Http2,
}

/// The inside of a CONNECT: a stream of requests, all of one origin.
pub struct InnerConnection {
    /// The bytes of the requests.
    pub stream: InnerStream,
    /// The origin that each of them must name.
    pub origin: Origin,
    /// How they are framed.
    pub protocol: Protocol,
    /// Set where the first of those bytes are no request.
    pub refusal: ProtocolRefusal,
}

/// Reads the authority of a CONNECT: a host and a port, nothing else
/// (RFC 9110, section 9.3.6).
///
/// # Errors
///
/// [`InvalidTarget`] if either is missing or bad.
pub fn authority(authority: &str) -> Result<Origin, InvalidTarget> {
    let port = authority.rsplit(':').next().unwrap_or_default();
    if port.is_empty() || port.len() == authority.len() || port.contains(']') {
        return Err(InvalidTarget::Port);
    }
    Origin::new(Scheme::Https, authority)
}

/// Makes the TLS sessions of intercepted connections.
#[derive(Debug)]
pub struct Interceptor {
    ca: Arc<Ca>,
    base: ServerConfig,
    timeout: Duration,
}

impl Interceptor {
    /// One configuration, so one ticket key and one ALPN list, for all names.
    ///
    /// # Errors
    ///
    /// Without randomness from the system there are no ticket keys.
    pub fn new(ca: Arc<Ca>, timeout: Duration) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut base = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(NoLeaf));
        base.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        base.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
        base.send_tls13_tickets = 1;
        Ok(Self { ca, base, timeout })
    }

    /// The fingerprint of its authority.
    pub fn fingerprint(&self) -> Digest {
        self.ca.fingerprint()
    }

    /// The stream inside a CONNECT to `origin`, once the crawler has taken it.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]; the connection is closed by then, or closes with it.
    pub async fn open(
        &self,
        tunnel: OnUpgrade,
        origin: Origin,
    ) -> Result<InnerConnection, ConnectError> {
        let upgraded = timeout(self.timeout, tunnel)
            .await?
            .map_err(ConnectError::Upgrade)?;
        let mut io = TokioIo::new(upgraded);
        let first = timeout(self.timeout, io.read_u8())
            .await?
            .map_err(ConnectError::Broken)?;
        let is_tls = first == TLS_HANDSHAKE;
        let io = Peeked {
            first: Some(first),
            io,
            expected: if is_tls {
                FirstBytes::client_hello()
            } else {
                FirstBytes::http1()
            },
        };
        if is_tls {
            return timeout(self.timeout, self.handshake(io, origin)).await?;
        }
        Ok(InnerConnection {
            origin: plain(&origin).unwrap_or(origin),
            refusal: io.expected.refusal(),
            stream: InnerStream::Plain(io),
            protocol: Protocol::Http1,
        })
    }

    async fn handshake(&self, io: Peeked, origin: Origin) -> Result<InnerConnection, ConnectError> {
        let host = origin.host().to_string();
        let refusal = io.expected.refusal();
        let failed = |source| match refusal.get() {
            Some(source) => ConnectError::Foreign {
                host: host.clone(),
                source: *source,
            },
            None => ConnectError::Handshake {
                host: host.clone(),
                source,
            },
        };
        let mut start = LazyConfigAcceptor::new(Acceptor::default(), io)
            .await
            .map_err(failed)?;
        if let Some(server_name) = foreign_name(&start.client_hello(), &origin) {
            // Best effort: the crawler may be gone, and the close says enough.
            let _ = start.io.write_all(&UNRECOGNIZED_NAME).await;
            let _ = start.io.shutdown().await;
            return Err(ConnectError::ServerName { host, server_name });
        }
        let leaf = self
            .ca
            .leaf(origin.host())
            .map_err(|source| ConnectError::Leaf {
                host: host.clone(),
                source,
            })?;
        let mut config = self.base.clone();
        config.cert_resolver = Arc::new(Leaf(leaf));
        let stream = start.into_stream(Arc::new(config)).await.map_err(failed)?;
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Protocol::Http2,
            _ => Protocol::Http1,
        };
        let expected = match protocol {
            Protocol::Http1 => FirstBytes::http1(),
            // hyper checks the preface of HTTP/2 byte by byte.
            Protocol::Http2 => FirstBytes::unchecked(),
        };
        Ok(InnerConnection {
            refusal: expected.refusal(),
            stream: InnerStream::Tls(Box::new(Secured { stream, expected })),
            origin,
            protocol,
        })
    }
}

/// The server name of the handshake, if it is not the CONNECT's host.
fn foreign_name(hello: &ClientHello<'_>, origin: &Origin) -> Option<String> {
    let name = hello.server_name()?;
    let same = name
        .parse()
        .is_ok_and(|host: politesse_robots::origin::Host| host == *origin.host());
    (!same).then(|| name.to_owned())
}

/// The same authority over plain HTTP; without a port in the CONNECT there is
/// none, so the port is always written.
fn plain(origin: &Origin) -> Result<Origin, InvalidTarget> {
    Origin::new(
        Scheme::Http,
        &format!("{}:{}", origin.host(), origin.port()),
    )
}

/// The base configuration's resolver: each connection has its own in place.
#[derive(Debug)]
struct NoLeaf;

impl ResolvesServerCert for NoLeaf {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// The certificate of one connection.
#[derive(Debug)]
struct Leaf(Arc<CertifiedKey>);

impl ResolvesServerCert for Leaf {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// A stream whose first byte was read to see what it carries.
#[derive(Debug)]
pub struct Peeked {
    first: Option<u8>,
    io: TokioIo<Upgraded>,
    expected: FirstBytes,
}

impl AsyncRead for Peeked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0
            && let Some(first) = self.first.take()
        {
            buffer.put_slice(&[first]);
            return Poll::Ready(self.expected.check(&[first]).map_err(io::Error::from));
        }
        let this = self.get_mut();
        poll_checked(&mut this.io, &mut this.expected, cx, buffer)
    }
}

impl AsyncWrite for Peeked {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Reads from `io`, and checks what was read.
fn poll_checked<S: AsyncRead + Unpin>(
    io: &mut S,
    expected: &mut FirstBytes,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let before = buffer.filled().len();
    ready!(Pin::new(io).poll_read(cx, buffer))?;
    Poll::Ready(
        expected
            .check(&buffer.filled()[before..])
            .map_err(io::Error::from),
    )
}

/// A TLS session, and what its client must begin with.
#[derive(Debug)]
pub struct Secured {
    stream: TlsStream<Peeked>,
    expected: FirstBytes,
}

/// What stands inside a CONNECT.
#[derive(Debug)]
pub enum InnerStream {
    /// HTTP without TLS.
    Plain(Peeked),
    /// A TLS session.
    Tls(Box<Secured>),
}

impl AsyncRead for InnerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(cx, buffer),
            Self::Tls(io) => {
                let Secured { stream, expected } = &mut **io;
                poll_checked(stream, expected, cx, buffer)
            }
        }
    }
}

impl AsyncWrite for InnerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(cx, bytes),
            Self::Tls(io) => Pin::new(&mut io.stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write_vectored(cx, slices),
            Self::Tls(io) => Pin::new(&mut io.stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_write_vectored(),
            Self::Tls(io) => io.stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(io) => Pin::new(&mut io.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(io) => Pin::new(&mut io.stream).poll_shutdown(cx),
        }
    }
}
