//! New connections to origins: dials an admitted address, makes a TLS session,
//! and agrees on HTTP/1.1 or HTTP/2.
//!
//! Does not know which requests go over a connection.

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

/// Most fields in the head of a response.
// hyper takes 100 if it is not told otherwise, and some origins send more.
const FIELDS_MAX: usize = 256;
/// Flow-control window of a stream.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Flow-control window of a connection: none, in effect. With one that some streams can
/// fill, whose clients read slowly, all others of the origin would stall. What a stream
/// holds is bounded by its own, as that of an HTTP/1.1 connection is by the system's.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Interval of pings on an HTTP/2 connection in use, and the longest wait for
/// their answer.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
const SEND_BUFFER: usize = 64 * 1024;
/// Longest wait for the descriptor of the reserve that a robots.txt is fetched over.
/// The redirect of one waits for the connection before it to be closed; a file of
/// kilobytes takes hardly longer.
const RESERVE_WAIT: Duration = Duration::from_secs(2);

/// Number of origins that are known to ask for HTTP/1.1, and the time for which each
/// is. They are few: servers that authenticate connections, and faulty ones.
const HTTP1_ORIGINS_MAX: u64 = 1024;
const HTTP1_TIME: Duration = Duration::from_hours(24);

/// Sending half of a connection.
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
    /// It is that of a crawler, and has a decision of its own.
    Page,
    /// It is ours, for the rules by which decisions are made.
    Rules,
}

/// Connection that a request wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct WantedConnection<'a> {
    pub(super) origin: &'a Origin,
    /// Exception for TLS with the origin.
    pub(super) tls: Option<&'a TlsException>,
    pub(super) purpose: Purpose,
    /// Client that a look-up of the origin's name is counted for.
    pub(super) client: Option<&'a Arc<Client>>,
    /// Whether it is to be private, so that it cannot be shared by HTTP/2.
    pub(super) is_private: bool,
}

/// Open connection, with the bytes that it has received.
#[derive(Debug)]
pub(super) struct Connection {
    /// Reader of the requests: the parent only where it passes on whole ones.
    pub(super) reader: NextHop,
    pub(super) sender: Sender,
    pub(super) received: ReceivedBytes,
    pub(super) timer: WaitTimer,
    /// Whether its descriptor is of the reserve.
    pub(super) is_of_reserve: bool,
    /// Whether its origin authenticates it, so that it belongs to one client.
    pub(super) is_private: bool,
}

/// Timer for the waits of one exchange after the other. It stays with its
/// connection, because to put off a timer that runs costs a fraction of what it
/// costs to set one.
#[derive(Debug, Default)]
pub(super) struct WaitTimer(Option<Pin<Box<Sleep>>>);

impl WaitTimer {
    /// Begins a wait of `longest` from now.
    pub(super) fn start(&mut self, longest: Duration) {
        let until = clock::instant() + longest;
        match &mut self.0 {
            Some(sleep) => sleep.as_mut().reset(until),
            None => self.0 = Some(Box::pin(sleep_until(until))),
        }
    }

    /// Waits for the end of the wait. Pending if none has begun.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.as_mut();
        sleep.map_or(Poll::Pending, |sleep| sleep.as_mut().poll(cx))
    }
}

impl Connection {
    /// Reports whether the origin has closed the connection, as far as is known
    /// yet.
    pub(super) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    /// Reports whether several exchanges use the connection at the same time.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    /// Returns another handle of a shared connection; `None` on HTTP/1.1.
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

/// Creates the store of origins that are not offered HTTP/2, bounded in number and
/// time. One that is forgotten has its next request reset, and asked again.
pub(super) fn http1_origins() -> Cache<Origin, ()> {
    Cache::builder()
        .max_capacity(HTTP1_ORIGINS_MAX)
        .time_to_live(HTTP1_TIME)
        .build()
}

/// Makes connections.
pub(super) struct Connector {
    pub(super) egress: Arc<Egress>,
    pub(super) dialler: Dialler,
    pub(super) tls: OriginTls,
    /// Credentials for the parent, if it wants any.
    pub(super) credentials: Option<Credentials>,
    /// Longest wait for a connection, TLS included; resolving the name has
    /// a limit of its own.
    pub(super) connect_timeout: Duration,
    /// Origins that are not offered HTTP/2.
    pub(super) http1_origins: Cache<Origin, ()>,
    pub(super) tasks: Tasks,
}

impl Connector {
    /// Connects to the origin, if it may be dialled.
    ///
    /// Where crawlers hold all descriptors, a robots.txt is fetched over one of
    /// the reserve, one at a time: what is known of a host decides many requests,
    /// and most of them need no connection then.
    pub(super) async fn connect(
        &self,
        wanted: WantedConnection<'_>,
    ) -> Result<Connection, DialError> {
        let admitted = self.egress.admits(wanted.origin, wanted.client).await?;
        let opened = match self.open(wanted, &admitted, None).await {
            Err(NoConnection::NoSocket) if wanted.purpose == Purpose::Rules => {
                // Only now: a descriptor that is free does not keep others waiting.
                match ReservePlace::take_within(RESERVE_WAIT).await {
                    Some(place) => self.open(wanted, &admitted, Some(place)).await,
                    None => Err(NoConnection::NoSocket),
                }
            }
            opened => opened,
        };
        opened.map_err(DialError::NoConnection)
    }

    /// Opens a connection, over a descriptor of the reserve where none other is
    /// left and a `place` is given.
    async fn open(
        &self,
        wanted: WantedConnection<'_>,
        admitted: &DialTarget,
        place: Option<ReservePlace>,
    ) -> Result<Connection, NoConnection> {
        let origin = wanted.origin;
        // One deadline for TCP, tunnel and TLS: with one for each, a slow
        // origin would take the time three times.
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
            // A parent sees nothing of what goes through a tunnel.
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

    /// Offers this origin no HTTP/2 from now on: it has asked for HTTP/1.1 (RFC 9113,
    /// section 7).
    pub(super) fn require_http1(&self, origin: &Origin) {
        self.http1_origins.insert(origin.clone(), ());
    }

    /// Makes a TLS session with the origin.
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

    /// Starts HTTP on a stream; the connection is driven by a tracked task.
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
            // Names that came in keep their case. This is for those that are
            // added, which would be the only ones in lower case.
            .title_case_headers(true)
            .max_headers(FIELDS_MAX)
            .max_buf_size(FIELDS_BYTES_MAX)
            .handshake(TokioIo::new(wire))
            .await?;
        self.tasks.execute(async move {
            // An error reaches the exchange under way, if there is one.
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
            // All requests to an origin share one connection. If it is dead,
            // the pings find that out, and not each request by its timeout.
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
