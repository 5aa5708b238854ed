//! Listeners of commands: `politesse run` binds one for its command, this proxy
//! serves it, and its requests are counted apart.

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

/// Serves the listeners of commands, as many as `proxy.max_commands` allows.
#[derive(Debug)]
pub struct Commands {
    crawlers: Arc<ProxyServer>,
    own: OwnAddresses,
    open: AtomicUsize,
    /// Holds a token of each command, so that the end of the last can be waited
    /// for.
    tokens: TaskTracker,
}

/// In place of the number of commands, once none may come any more.
const CLOSED: usize = usize::MAX;

/// Why a listener is not served.
#[derive(Debug, Error)]
pub enum CommandError {
    /// The proxy was there for commands, and the last has ended.
    #[error("the proxy is stopping")]
    Stopping,
    /// As many commands are served as may be.
    #[error("the proxy serves {0} commands already (proxy.max_commands)")]
    TooMany(NonZeroUsize),
    /// The descriptor is no listener that only this machine reaches.
    #[error("the descriptor is no TCP listener on a loopback address")]
    NotALoopbackListener,
    /// The listener cannot be used.
    #[error("the listener cannot be used")]
    Listener(#[from] std::io::Error),
}

/// The listener of one command. Dropping it cuts its connections off.
#[derive(Debug)]
pub struct CommandListener {
    address: SocketAddr,
    group: Arc<ListenerGroup>,
    tally: Arc<Tally>,
    commands: Arc<Commands>,
    _token: TaskTrackerToken,
}

/// Reads the descriptor of a listener that another process has bound.
///
/// # Errors
///
/// [`CommandError::NotALoopbackListener`] if it is anything else than a TCP
/// socket that listens on loopback: whoever could pass a wildcard listener would
/// open the proxy to the network.
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

    /// Serves `listener` until the result is closed or dropped, and records its
    /// requests as those of `crawl`. Only this machine may connect to it; limits and pace
    /// are those of all crawlers.
    ///
    /// # Errors
    ///
    /// [`CommandError`], but for the descriptor's.
    pub fn open(
        self: &Arc<Self>,
        listener: TcpListener,
        crawl: CrawlOptions,
    ) -> Result<CommandListener, CommandError> {
        let address = listener.local_addr()?;
        self.take_place()?;
        self.crawlers.metrics.commands.inc();
        // Before the first connection: a command must not reach its own proxy
        // through it.
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

    /// Lets no more commands come, if none is served. Returns whether none is:
    /// one that has come meanwhile must not lose its proxy.
    #[must_use]
    pub fn close_if_idle(&self) -> bool {
        let taken = self
            .open
            // One step, so that no command can come between the look and the
            // closing.
            .compare_exchange(0, CLOSED, Ordering::Relaxed, Ordering::Relaxed);
        matches!(taken, Ok(_) | Err(CLOSED))
    }

    /// Waits until no command is served.
    pub async fn ended(&self) {
        self.tokens.close();
        self.tokens.wait().await;
    }

    /// Returns how many control connections are of use: one for each command.
    pub(super) fn most(&self) -> NonZeroUsize {
        self.crawlers.in_force.load().options.max_commands
    }

    /// Cancelled when the proxy stops.
    pub(super) fn stopping(&self) -> &CancellationToken {
        &self.crawlers.stop
    }
}

impl CommandListener {
    /// Accepts no more, lets requests under way finish until
    /// `proxy.shutdown_timeout` or until `hurry` is done, and counts.
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
        // Connections that are cut off still end their rows, so they are waited
        // for: the totals count them.
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
