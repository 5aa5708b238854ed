//! State shared by all client connections: the configuration in force, the connection
//! limits, and the stop signals.
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
    /// Addresses to listen on; port 0 means any free port.
    pub listen: Vec<ListenAddress>,
    /// Certificate files of the `https://` addresses.
    pub tls: listener_tls::Options,
    /// Length of the queue of connections that wait to be accepted, for each address and
    /// for the admin listener.
    pub backlog: NonZeroU32,
    /// Networks of the clients that may connect. Other connections are closed at once and
    /// counted.
    pub clients: Vec<IpNet>,
    /// Networks of load balancers. Their connections begin with a PROXY header.
    pub proxy_protocol_from: Vec<IpNet>,
    /// Per-client limits (`proxy.per_client`, `proxy.clients`).
    pub client_limits: directory::Options,
    /// Maximum numbers of concurrent connections, handshakes and requests.
    pub limits: EntryLimits,
    /// Maximum number of `politesse run` commands served at one time.
    pub max_commands: NonZeroUsize,
    /// Time limit for a request head. It runs from the start of the connection for the
    /// first head, and from the first byte for later ones.
    pub header_timeout: Duration,
    /// Longest time that a connection may be idle.
    pub idle_timeout: Duration,
    /// Minimum progress that a client must make in reading a response.
    pub least_progress: MinimumProgress,
    /// Time between the stop order and the stop of the listeners. Requests are still
    /// served meanwhile, and load balancers can notice the stop.
    pub drain_time: Duration,
    /// Longest time that exchanges may continue after the drain time.
    pub shutdown_timeout: Duration,
}

/// One version of the configuration. A request keeps the version that it started with,
/// even if another is loaded meanwhile. A connection keeps only its time limits.
#[derive(Debug)]
pub struct ActiveConfig {
    /// Handles the exchanges.
    pub proxy: Proxy,
    /// Handles CONNECT; absent if `https.mode` is `refuse`.
    pub interceptor: Option<Arc<Interceptor>>,
    /// Certificate of the listeners, used by new connections; absent if no listener uses
    /// TLS.
    pub tls: Option<Arc<ListenerTls>>,
    /// Settings of listeners and connections.
    pub options: Options,
}

/// State shared by all client connections.
#[derive(Debug)]
pub struct ProxyServer {
    /// Configuration that new requests use.
    pub in_force: ArcSwap<ActiveConfig>,
    /// Clients to which shares are charged.
    pub clients: Arc<ClientDirectory>,
    /// Metrics of the proxy.
    pub metrics: Arc<Metrics>,
    /// Shares of connections, handshakes and requests.
    pub entry: Arc<EntryShares>,
    /// Permits for connections that are answered with 503 and closed.
    pub turned_away: Arc<Semaphore>,
    /// Load balancer connections whose PROXY header has not arrived yet.
    pub awaited_headers: Arc<AwaitedHeaders>,
    /// Connection tasks, including those that hyper spawns.
    pub tasks: Tasks,
    /// Whether the proxy is draining: each connection ends after its next request.
    // A flag in addition to the tokens: every request checks it, and checking a token
    // takes a lock.
    pub is_draining: Arc<AtomicBool>,
    /// Cancelled to stop accepting connections.
    pub stop: CancellationToken,
    /// Cancelled to end connections even while they are in use.
    pub abort: CancellationToken,
}

impl ProxyServer {
    /// Reports whether the proxy is draining before a stop.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Counts a connection that was refused for the reason `result`.
    pub(super) fn count_refused(&self, result: &'static str) {
        let refused = &self.metrics.connections_refused;
        refused.get_or_create(&ResultLabel { result }).inc();
    }
}

/// Listeners whose connections are admitted, counted and ended together.
#[derive(Debug)]
pub struct ListenerGroup {
    /// Whether only this machine may connect, regardless of `proxy.clients`. Set for a
    /// listener opened for a command that runs on this machine.
    pub is_loopback_only: bool,
    /// Request counts, if requested.
    pub tally: Option<Arc<Tally>>,
    /// Crawl under which the requests are recorded.
    pub crawl: CrawlOptions,
    /// Cancelled to stop accepting connections and to end open ones after their current
    /// requests.
    pub stop: CancellationToken,
    /// Cancelled to end connections even while they are in use.
    pub abort: CancellationToken,
    /// Holds a token for each connection, so that shutdown can wait for all of them.
    pub connections: TaskTracker,
}

impl ListenerGroup {
    /// Creates the group of the configured listeners.
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

    /// Creates the group of one command's listener. Its requests are counted in `tally`
    /// and recorded under `crawl`. The group stops with the server at the latest.
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

    /// Reports whether, under `options`, a connection from `peer` must begin with a PROXY
    /// header.
    pub(super) fn wants_header(&self, peer: IpAddr, options: &Options) -> bool {
        let mut networks = options.proxy_protocol_from.iter();
        !self.is_loopback_only && networks.any(|net| net.contains(&peer))
    }

    /// Reports whether `client` may connect under `options`.
    pub(super) fn admits(&self, client: IpAddr, options: &Options) -> bool {
        if self.is_loopback_only {
            client.is_loopback()
        } else {
            options.clients.iter().any(|net| net.contains(&client))
        }
    }
}

/// One of the limited number of connections. The slot is freed on drop, when the last
/// stream over the connection has ended.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    /// State shared with the other connections.
    pub(super) server: Arc<ProxyServer>,
    /// Watches for a reset of the connection by the client.
    pub(super) client_end: ClientEnd,
    /// Place within the limit on connections, which another client may take.
    pub(super) place: Arc<ConnectionPlace>,
    /// Listeners that accepted the connection.
    pub(super) group: Arc<ListenerGroup>,
    /// Counts the connection among those of its group.
    _open: TaskTrackerToken,
}

impl ConnectionSlot {
    /// Creates the slot of the connection on `socket`, which holds `share`.
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
