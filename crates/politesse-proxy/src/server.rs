//! State that the connections of clients share: the configuration in force,
//! their number, and the signals to stop.
//!
//! Does not know how connections are accepted or served.

use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use ipnet::IpNet;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::connect::Interceptor;
use super::exchange::Proxy;
use super::listener_tls::{self, ListenerTls};
use super::places::{ConnectionPlace, EntryLimits, EntryShares};
use super::progress::MinimumProgress;
use super::proxy_protocol::AwaitedHeaders;
pub use super::socket::ListenAddress;
use super::socket::{ClientEnd, Socket};
use super::tally::Tally;
use politesse_base::clients::directory::{self, ClientDirectory};
use politesse_base::clients::shares::Share;
use politesse_base::metrics::{Metrics, ResultLabel};
use politesse_base::tasks::Tasks;
use politesse_decision::label::CrawlOptions;

/// Settings of listeners and connections (`proxy.*`).
#[derive(Debug, Clone)]
pub struct Options {
    /// Addresses to listen on; port 0 takes any.
    pub listen: Vec<ListenAddress>,
    /// Certificate of the addresses that speak TLS.
    pub tls: listener_tls::Options,
    /// Connections that wait to be accepted, at each address and at the admin
    /// listener.
    pub backlog: NonZeroU32,
    /// Networks of the clients that may connect. Connections of others are
    /// closed at once and counted.
    pub clients: Vec<IpNet>,
    /// Networks of load balancers, whose connections begin with a PROXY header.
    pub proxy_protocol_from: Vec<IpNet>,
    /// Limits of clients (`proxy.per_client`, `proxy.clients`).
    pub client_limits: directory::Options,
    /// Connections, handshakes and requests at one time.
    pub limits: EntryLimits,
    /// Commands of `politesse run` that are served at one time.
    pub max_commands: NonZeroUsize,
    /// The longest that a head may take: the first from the beginning of its
    /// connection, another from its first byte.
    pub header_timeout: Duration,
    /// The longest that a connection may be idle.
    pub idle_timeout: Duration,
    /// The least that a client takes of a response.
    pub least_progress: MinimumProgress,
    /// Time from an order to stop in which load balancers notice it, and requests are
    /// served.
    pub drain_time: Duration,
    /// The longest that exchanges may go on after that.
    pub shutdown_timeout: Duration,
}

/// One configuration in force. A request takes it once and keeps it to its end,
/// even if another is loaded meanwhile; a connection keeps its time limits.
#[derive(Debug)]
pub struct ActiveConfig {
    /// Conducts the exchanges.
    pub proxy: Proxy,
    /// Opens CONNECTs; absent if `https.mode` is `refuse`.
    pub interceptor: Option<Arc<Interceptor>>,
    /// Certificate of the listeners; absent if none of them speaks TLS. New
    /// connections take it.
    pub tls: Option<Arc<ListenerTls>>,
    /// Limits.
    pub options: Options,
}

/// State that all connections of clients share.
#[derive(Debug)]
pub struct ProxyServer {
    /// Configuration that new requests take.
    pub in_force: ArcSwap<ActiveConfig>,
    /// Clients, by whom shares are counted.
    pub clients: Arc<ClientDirectory>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Places of connections, handshakes and requests.
    pub entry: Arc<EntryShares>,
    /// Places of connections that are answered with 503 and closed.
    pub turned_away: Arc<Semaphore>,
    /// Connections of load balancers that have not named their client yet.
    pub awaited_headers: Arc<AwaitedHeaders>,
    /// Tasks of connections, and hyper's own for them.
    pub tasks: Tasks,
    /// Whether a stop is near, and connections end with their next request.
    // A flag beside the tokens: each request looks at it, and a token has a lock.
    pub is_draining: Arc<AtomicBool>,
    /// Cancelled when no more connections may be accepted.
    pub stop: CancellationToken,
    /// Cancelled when connections must end although they are in use.
    pub abort: CancellationToken,
}

impl ProxyServer {
    /// Reports whether a stop is near.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Counts a connection that is closed, by the reason `result`.
    pub(super) fn count_refused(&self, result: &'static str) {
        let refused = &self.metrics.connections_refused;
        refused.get_or_create(&ResultLabel { result }).inc();
    }
}

/// Listeners whose connections are admitted, counted and ended together.
#[derive(Debug)]
pub struct ListenerGroup {
    /// Whether only this machine may connect, whatever `proxy.clients` says:
    /// the listener was opened for a command that runs here.
    pub is_loopback_only: bool,
    /// Counts of the requests, if somebody wants them.
    pub tally: Option<Arc<Tally>>,
    /// Crawl that the requests belong to.
    pub crawl: CrawlOptions,
    /// Cancelled when no more connections may be accepted, and open ones end
    /// with their requests.
    pub stop: CancellationToken,
    /// Cancelled when connections must end although they are in use.
    pub abort: CancellationToken,
    /// Has a token of each connection, so that their end can be waited for.
    pub connections: TaskTracker,
}

impl ListenerGroup {
    /// Creates the group of the listeners in the configuration.
    #[must_use]
    pub fn configured(server: &ProxyServer) -> Self {
        Self {
            is_loopback_only: false,
            tally: None,
            crawl: CrawlOptions::default(),
            stop: server.stop.clone(),
            abort: server.abort.clone(),
            connections: TaskTracker::new(),
        }
    }

    /// Creates the group of one command's listener, whose requests `tally`
    /// counts and the record has as those of `crawl`. It ends with the server, or before.
    #[must_use]
    pub fn of_command(tally: Arc<Tally>, crawl: CrawlOptions, server: &ProxyServer) -> Self {
        Self {
            is_loopback_only: true,
            tally: Some(tally),
            crawl,
            stop: server.stop.child_token(),
            abort: server.abort.child_token(),
            connections: TaskTracker::new(),
        }
    }

    /// Reports whether a connection from `peer` begins with a PROXY header while
    /// `options` are in force.
    pub(super) fn wants_header(&self, peer: IpAddr, options: &Options) -> bool {
        let mut networks = options.proxy_protocol_from.iter();
        !self.is_loopback_only && networks.any(|net| net.contains(&peer))
    }

    /// Reports whether `client` may connect while `options` are in force.
    pub(super) fn admits(&self, client: IpAddr, options: &Options) -> bool {
        if self.is_loopback_only {
            client.is_loopback()
        } else {
            options.clients.iter().any(|net| net.contains(&client))
        }
    }
}

/// One of the connections that may be open at a time. The drop gives its place
/// back, when the last stream over the connection has ended.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    pub(super) server: Arc<ProxyServer>,
    pub(super) client_end: ClientEnd,
    pub(super) place: Arc<ConnectionPlace>,
    pub(super) group: Arc<ListenerGroup>,
    _open: TaskTrackerToken,
}

impl ConnectionSlot {
    /// Makes the slot of the connection of `socket`, whose share of the
    /// connections is `share`.
    pub(super) fn new(
        server: &Arc<ProxyServer>,
        socket: &Socket,
        group: &Arc<ListenerGroup>,
        share: Share,
    ) -> Arc<Self> {
        server.metrics.connections.inc();
        Arc::new(Self {
            server: Arc::clone(server),
            client_end: socket.client_end(),
            place: ConnectionPlace::new(share),
            group: Arc::clone(group),
            _open: group.connections.token(),
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.server.metrics.connections.dec();
    }
}
