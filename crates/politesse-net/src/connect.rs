//! New connections to origins: dials an admitted address, performs the TLS handshake, and
//! negotiates HTTP/1.1 or HTTP/2.
//!
//! Does not know which requests use a connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use moka::sync::Cache;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until, timeout_at};

use super::dial::{DialAttempt, Dialler};
use super::egress::{DialError, DialTarget, Egress, NextHop};
use super::head::FIELDS_BYTES_MAX;
use super::parent::{Credentials, tunnel};
use super::read_ahead::ReadAhead;
use super::tls::{OriginTls, handshake_failure};
use super::upload::Upload;
use super::wire::{ReceivedBytes, Wire};
use politesse_base::clients::client::Client;
use politesse_base::clock;
use politesse_base::descriptors::ReservePlace;
use politesse_base::tasks::Tasks;
use politesse_decision::access::NoConnection;
use politesse_decision::tls_exception::TlsException;
use politesse_robots::origin::{Host, Origin, Scheme};

/// Maximum number of fields in a response head.
// hyper's default is 100, and some origins send more.
const FIELDS_MAX: usize = 256;
/// Flow-control window of a stream, in bytes.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Flow-control window of a connection, large enough to have no effect. With a smaller
/// one, a few streams with slow clients could fill it and stall all others to the origin.
/// Each stream is limited by its own window, as an HTTP/1.1 connection is by the kernel's
/// buffer.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Interval of pings on an HTTP/2 connection in use, and the time limit for the answer.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
const SEND_BUFFER: usize = 64 * 1024;
/// Longest wait for the reserve descriptor over which robots.txt is fetched. A redirect
/// waits until the previous connection is closed; fetching a file of some kilobytes takes
/// hardly longer.
const RESERVE_WAIT: Duration = Duration::from_secs(2);

/// Maximum number of origins remembered as requiring HTTP/1.1, and how long each is
/// remembered. They are few: servers that authenticate connections, and faulty ones.
const HTTP1_ORIGINS_MAX: u64 = 1024;
const HTTP1_TIME: Duration = Duration::from_hours(24);

/// Sending handle of a connection.
#[derive(Debug)]
pub(super) enum Sender {
    /// HTTP/1.1: one exchange at a time.
    Http1(http1::SendRequest<Upload>),
    /// HTTP/2: shared by all exchanges with the origin.
    Http2(http2::SendRequest<Upload>),
}

/// Purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A crawler's request, which has its own decision.
    Page,
    /// The proxy's own request, for the rules on which decisions are based.
    Rules,
}

/// Connection requested from the [`Connector`].
#[derive(Debug, Clone, Copy)]
pub(super) struct WantedConnection<'a> {
    pub(super) origin: &'a Origin,
    /// TLS exception for the origin.
    pub(super) tls: Option<&'a TlsException>,
    pub(super) purpose: Purpose,
    /// Client to which a lookup of the origin's name is charged.
    pub(super) client: Option<&'a Arc<Client>>,
    /// Whether the connection will be private, which rules out sharing it over HTTP/2.
    pub(super) is_private: bool,
}

/// Open connection, and its count of received bytes.
#[derive(Debug)]
pub(super) struct Connection {
    /// Server that reads the requests: the parent only if it forwards them unencrypted.
    pub(super) reader: NextHop,
    pub(super) sender: Sender,
    pub(super) received: ReceivedBytes,
    pub(super) timer: WaitTimer,
    /// Whether it uses a reserve descriptor.
    pub(super) is_of_reserve: bool,
    /// Whether its origin authenticates it, so that it belongs to one client.
    pub(super) is_private: bool,
}

/// Timer for the waits of consecutive exchanges. It stays with its connection, because
/// resetting a running timer costs a fraction of creating one.
#[derive(Debug, Default)]
pub(super) struct WaitTimer(Option<Pin<Box<Sleep>>>);

impl WaitTimer {
    /// Starts a wait of `longest` from now.
    pub(super) fn start(&mut self, longest: Duration) {
        let until = clock::instant() + longest;
        match &mut self.0 {
            Some(sleep) => sleep.as_mut().reset(until),
            None => self.0 = Some(Box::pin(sleep_until(until))),
        }
    }

    /// Completes when the wait has ended. Pending if no wait has started.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.as_mut();
        sleep.map_or(Poll::Pending, |sleep| sleep.as_mut().poll(cx))
    }
}

impl Connection {
    /// Reports whether the origin is known to have closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    /// Reports whether concurrent exchanges can share the connection.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    /// Returns another handle to a shared connection; `None` on HTTP/1.1.
    pub(super) fn shared(&self) -> Option<Self> {
        match &self.sender {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => Some(Self {
                reader: self.reader,
                sender: Sender::Http2(sender.clone()),
                received: self.received.clone(),
                timer: WaitTimer::default(),
                is_of_reserve: self.is_of_reserve,
                is_private: false,
            }),
        }
    }
}

/// Creates the cache of origins that are not offered HTTP/2, limited in number and time.
/// If an origin is evicted, its next request is reset and retried.
pub(super) fn http1_origins() -> Cache<Origin, ()> {
    Cache::builder()
        .max_capacity(HTTP1_ORIGINS_MAX)
        .time_to_live(HTTP1_TIME)
        .build()
}

/// Opens connections.
pub(super) struct Connector {
    pub(super) egress: Arc<Egress>,
    pub(super) dialler: Dialler,
    pub(super) tls: OriginTls,
    /// Credentials for the parent, if it requires any.
    pub(super) credentials: Option<Credentials>,
    /// Longest wait for a connection, including TLS. Resolving the name has its own
    /// limit.
    pub(super) connect_timeout: Duration,
    /// Origins that are not offered HTTP/2.
    pub(super) http1_origins: Cache<Origin, ()>,
    pub(super) tasks: Tasks,
}

impl Connector {
    /// Connects to the origin, if that may be dialled.
    ///
    /// If crawlers use up all descriptors, a robots.txt is fetched over a reserve
    /// descriptor, one fetch at a time: the rules of a host decide many requests, most of
    /// which then need no connection.
    pub(super) async fn connect(
        &self,
        wanted: WantedConnection<'_>,
    ) -> Result<Connection, DialError> {
        let admitted = self.egress.admits(wanted.origin, wanted.client).await?;
        let opened = match self.open(wanted, &admitted, None).await {
            Err(NoConnection::NoSocket) if wanted.purpose == Purpose::Rules => {
                // Taken only now, so that a fetch with a free descriptor does not make
                // others wait.
                match ReservePlace::take_within(RESERVE_WAIT).await {
                    Some(place) => self.open(wanted, &admitted, Some(place)).await,
                    None => Err(NoConnection::NoSocket),
                }
            }
            opened => opened,
        };
        opened.map_err(DialError::NoConnection)
    }

    /// Opens a connection. With a `place`, it may use a reserve descriptor if no other is
    /// free.
    async fn open(
        &self,
        wanted: WantedConnection<'_>,
        admitted: &DialTarget,
        place: Option<ReservePlace>,
    ) -> Result<Connection, NoConnection> {
        let origin = wanted.origin;
        // One deadline for TCP, tunnel and TLS. With one for each, a slow origin could
        // take the time three times.
        let deadline = clock::instant() + self.connect_timeout;
        let attempt = DialAttempt {
            host: origin.host(),
            addresses: &admitted.addresses,
            deadline,
            place: place.as_ref(),
        };
        let stream = self.dialler.dial(attempt).await?;
        let is_of_reserve = place.is_some();
        let connecting = async {
            let wire = match (origin.scheme(), admitted.hop) {
                (Scheme::Http, _) => Wire::from(stream),
                (Scheme::Https, NextHop::Origin) => self.secured(wanted, stream).await?,
                (Scheme::Https, NextHop::Parent) => {
                    let credentials = self.credentials.as_ref();
                    let stream = tunnel(stream, origin, credentials, &self.tasks).await?;
                    self.secured(wanted, stream).await?
                }
            };
            // A parent cannot read the contents of a tunnel.
            let reader = match origin.scheme() {
                Scheme::Http => admitted.hop,
                Scheme::Https => NextHop::Origin,
            };
            let connection = self.agree(wire.keeping(place), reader).await?;
            Ok(Connection {
                is_of_reserve,
                is_private: wanted.is_private,
                ..connection
            })
        };
        timeout_at(deadline, connecting)
            .await
            .map_err(|_| NoConnection::Timeout)?
    }

    /// Stops offering HTTP/2 to this origin, because it has asked for HTTP/1.1 (RFC 9113,
    /// section 7).
    pub(super) fn require_http1(&self, origin: &Origin) {
        self.http1_origins.insert(origin.clone(), ());
    }

    /// Performs the TLS handshake with the origin.
    async fn secured(
        &self,
        wanted: WantedConnection<'_>,
        stream: TcpStream,
    ) -> Result<Wire, NoConnection> {
        let name = match wanted.origin.host() {
            Host::Address(address) => ServerName::from(*address),
            Host::Name(name) => {
                ServerName::try_from(name.to_string()).map_err(|_| NoConnection::Tls)?
            }
        };
        let tls = self.tls.connector(wanted.tls).ok_or(NoConnection::Tls)?;
        let stream = ReadAhead::new(stream);
        let secured = if wanted.is_private || self.http1_origins.contains_key(wanted.origin) {
            let http1 = tls.with_alpn(vec![b"http/1.1".to_vec()]);
            http1.connect(name, stream).await
        } else {
            tls.connect(name, stream).await
        };
        let stream = secured.map_err(|error| handshake_failure(&error))?;
        Ok(Wire::from(stream))
    }

    /// Starts HTTP on a stream. A tracked task drives the connection.
    async fn agree(&self, wire: Wire, reader: NextHop) -> Result<Connection, NoConnection> {
        let received = wire.received();
        let started = if wire.speaks_http2() {
            self.start_http2(wire).await
        } else {
            self.start_http1(wire).await
        };
        Ok(Connection {
            reader,
            sender: started.map_err(|_| NoConnection::Unroutable)?,
            received,
            timer: WaitTimer::default(),
            is_of_reserve: false,
            is_private: false,
        })
    }

    async fn start_http1(&self, wire: Wire) -> hyper::Result<Sender> {
        let (sender, connection) = http1::Builder::new()
            .preserve_header_case(true)
            // Received names keep their case. This setting is for the added ones, which
            // would be the only ones in lower case.
            .title_case_headers(true)
            .max_headers(FIELDS_MAX)
            .max_buf_size(FIELDS_BYTES_MAX)
            .handshake(TokioIo::new(wire))
            .await?;
        self.tasks.execute(async move {
            // An error also reaches the exchange in progress, if there is one.
            connection.await.unwrap_or_default();
        });
        Ok(Sender::Http1(sender))
    }

    async fn start_http2(&self, wire: Wire) -> hyper::Result<Sender> {
        let list = u32::try_from(FIELDS_BYTES_MAX).unwrap_or(u32::MAX);
        let (sender, connection) = http2::Builder::new(self.tasks.clone())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(list)
            .max_send_buf_size(SEND_BUFFER)
            // All requests to an origin share one connection. If it is dead, the pings
            // detect that, instead of a timeout of each request.
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(wire))
            .await?;
        self.tasks.execute(async move {
            connection.await.unwrap_or_default();
        });
        Ok(Sender::Http2(sender))
    }
}
