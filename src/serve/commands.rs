//! Listeners for commands: `politesse run` binds one for its command, this proxy serves
//! it, and counts its requests separately.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::net::{SocketType, getsockname};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use politesse_decision::label::CrawlOptions;
use politesse_net::egress::OwnAddresses;
use politesse_proxy::listener::{ProxyListener, listen};
use politesse_proxy::server::{ListenerGroup, ProxyServer};
use politesse_proxy::tally::{Tally, Totals};
use politesse_robots::origin::Scheme;

/// Listeners of commands, up to `proxy.max_commands` of them.
#[derive(Debug)]
pub struct Commands {
    crawlers: Arc<ProxyServer>,
    own: OwnAddresses,
    open: AtomicUsize,
    /// One token for each command, used to wait for the last one to end.
    tokens: TaskTracker,
}

/// Value of `Commands::open` once no more commands are accepted.
const CLOSED: usize = usize::MAX;

/// Reason why a listener is not served.
#[derive(Debug, Error)]
pub enum CommandError {
    /// The proxy ran only for its commands, and the last one has ended.
    #[error("the proxy is stopping")]
    Stopping,
    /// The limit of `proxy.max_commands` is reached.
    #[error("the proxy serves {0} commands already (proxy.max_commands)")]
    TooMany(NonZeroUsize),
    /// The descriptor is not a TCP listener on loopback.
    #[error("the descriptor is no TCP listener on a loopback address")]
    NotALoopbackListener,
    /// The listener cannot be used.
    #[error("the listener cannot be used")]
    Listener(#[from] std::io::Error),
}

/// The listener of one command. Dropping it closes its connections at once.
#[derive(Debug)]
pub struct CommandListener {
    address: SocketAddr,
    group: Arc<ListenerGroup>,
    tally: Arc<Tally>,
    commands: Arc<Commands>,
    _token: TaskTrackerToken,
}

/// Converts the descriptor of a listener that another process has bound.
///
/// # Errors
///
/// [`CommandError::NotALoopbackListener`] unless it is a TCP socket that listens on
/// loopback: with a wildcard listener a command could open the proxy to the network.
pub fn loopback_listener(descriptor: OwnedFd) -> Result<TcpListener, CommandError> {
    let is_listener = socket_type(&descriptor).is_ok_and(|kind| kind == SocketType::STREAM)
        && socket_acceptconn(&descriptor).unwrap_or(false);
    let address = getsockname(&descriptor)
        .ok()
        .and_then(|address| SocketAddr::try_from(address).ok());
    if !is_listener || !address.is_some_and(|address| address.ip().is_loopback()) {
        return Err(CommandError::NotALoopbackListener);
    }
    let listener = std::net::TcpListener::from(descriptor);
    listener.set_nonblocking(true)?;
    Ok(TcpListener::from_std(listener)?)
}

impl Commands {
    pub(super) fn new(crawlers: &Arc<ProxyServer>, own: OwnAddresses) -> Self {
        Self {
            crawlers: Arc::clone(crawlers),
            own,
            open: AtomicUsize::new(0),
            tokens: TaskTracker::new(),
        }
    }

    /// Serves `listener` until the returned value is closed or dropped, and records its
    /// requests under `crawl`. Only this machine can connect to it; the limits and the
    /// pace are shared with all other crawlers.
    ///
    /// # Errors
    ///
    /// Any [`CommandError`] except [`CommandError::NotALoopbackListener`].
    pub fn open(
        self: &Arc<Self>,
        listener: TcpListener,
        crawl: CrawlOptions,
    ) -> Result<CommandListener, CommandError> {
        let address = listener.local_addr()?;
        self.take_place()?;
        self.crawlers.metrics.commands.inc();
        // Added before the first connection, so that a command cannot reach its own
        // proxy through itself.
        self.own.add(address);
        let tally = Arc::new(Tally::default());
        let of_command = ListenerGroup::of_command(Arc::clone(&tally), crawl, &self.crawlers);
        let group = Arc::new(of_command);
        let listener = ProxyListener::new(listener, Scheme::Http);
        listen(&self.crawlers, listener, Arc::clone(&group));
        Ok(CommandListener {
            address,
            group,
            tally,
            _token: self.tokens.token(),
            commands: Arc::clone(self),
        })
    }

    fn take_place(&self) -> Result<(), CommandError> {
        let most = self.most();
        let one_more = |open: usize| (open < most.get()).then_some(open + 1);
        let taken = self
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        match taken {
            Ok(_) => Ok(()),
            Err(CLOSED) => Err(CommandError::Stopping),
            Err(_) => Err(CommandError::TooMany(most)),
        }
    }

    /// Refuses further commands if none is being served. Returns whether they are
    /// refused: a command that arrived meanwhile must not lose its proxy.
    #[must_use]
    pub fn close_if_idle(&self) -> bool {
        let taken = self
            .open
            // One atomic step, so that no command can arrive between the check and the
            // change.
            .compare_exchange(0, CLOSED, Ordering::Relaxed, Ordering::Relaxed);
        matches!(taken, Ok(_) | Err(CLOSED))
    }

    /// Waits until every command has ended.
    pub async fn ended(&self) {
        self.tokens.close();
        self.tokens.wait().await;
    }

    /// Returns the maximum number of commands. Each uses one control connection.
    pub(super) fn most(&self) -> NonZeroUsize {
        self.crawlers.in_force.load().options.max_commands
    }

    /// Returns the token that is cancelled when the proxy stops.
    pub(super) fn stopping(&self) -> &CancellationToken {
        &self.crawlers.stop
    }
}

impl CommandListener {
    /// Stops accepting, waits for requests in flight until `proxy.shutdown_timeout` or
    /// until `hurry` completes, cuts off the rest, and returns the counts.
    pub async fn close(self, hurry: impl Future<Output = ()>) -> Totals {
        self.group.stop.cancel();
        let connections = &self.group.connections;
        connections.close();
        let crawlers = &self.commands.crawlers;
        let longest = crawlers.in_force.load().options.shutdown_timeout;
        let finished = tokio::select! {
            finished = timeout(longest, connections.wait()) => finished.is_ok(),
            () = hurry => false,
        };
        // Connections that are cut off still write their rows, and the totals count
        // them: so wait for those too.
        if !finished {
            self.group.abort.cancel();
            connections.wait().await;
        }
        self.tally.totals()
    }
}

impl Drop for CommandListener {
    fn drop(&mut self) {
        self.group.stop.cancel();
        self.group.abort.cancel();
        self.commands.own.remove(self.address);
        self.commands.crawlers.metrics.commands.dec();
        self.commands.open.fetch_sub(1, Ordering::Relaxed);
    }
}
