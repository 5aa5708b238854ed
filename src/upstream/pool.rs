//! Pool of idle connections to origins.
//!
//! Our own, since the one of the HTTP client has no bound in all: this one is
//! bounded per origin, in all and in time, and an HTTP/2 connection is shared
//! from the first exchange on. Does not know whether a connection still works;
//! using it shows that.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::connect::Connection;
use crate::clock::Stamp;
use politesse_robots::origin::Origin;

/// Limits of the pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolLimits {
    /// Time for which an idle connection is kept.
    pub(super) idle_timeout: Duration,
    /// Connections to one origin.
    pub(super) per_origin: NonZeroUsize,
    /// Connections in all.
    pub(super) total: NonZeroUsize,
}

/// Idle connections. Each is closed when it was idle for too long, whether the
/// pool is used or not.
#[derive(Debug)]
pub(super) struct Pool {
    limits: PoolLimits,
    free: Mutex<IdleConnections>,
}

/// Idle connections by number. Numbers grow with time, so the first one is the
/// next to close.
#[derive(Debug, Default)]
struct IdleConnections {
    next: u64,
    connections: BTreeMap<u64, IdleConnection>,
    by_origin: HashMap<Origin, VecDeque<u64>>,
    /// Whether a task waits for the first connection to expire.
    has_closer: bool,
}

#[derive(Debug)]
struct IdleConnection {
    origin: Origin,
    connection: Connection,
    since: Stamp,
}

impl Pool {
    pub(super) fn new(limits: PoolLimits) -> Self {
        Self {
            limits,
            free: Mutex::default(),
        }
    }

    /// Takes the connection to `origin` that was used last. An HTTP/2 connection
    /// stays for other exchanges as well.
    pub(super) fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut free = self.free();
        free.close_expired(self.limits.idle_timeout);
        let connection = free.newest_open(origin)?;
        if let Some(shared) = connection.shared() {
            free.add(origin.clone(), shared);
        }
        Some(connection)
    }

    /// Puts a connection in; the oldest are closed where there are too many.
    pub(super) fn put(self: &Arc<Self>, origin: Origin, connection: Connection) {
        let mut free = self.free();
        let own = free.by_origin.get(&origin);
        let full = own.filter(|own| self.limits.per_origin.get() <= own.len());
        if let Some(oldest) = full.and_then(VecDeque::front).copied() {
            free.remove(oldest);
        }
        if self.limits.total.get() <= free.connections.len()
            && let Some((&oldest, _)) = free.connections.first_key_value()
        {
            free.remove(oldest);
        }
        free.add(origin, connection);
        // A body may be dropped where no runtime is, at the end of a process.
        if !free.has_closer
            && let Ok(runtime) = Handle::try_current()
        {
            free.has_closer = true;
            // No task that a stop waits for: it may sleep for a minute.
            runtime.spawn(close_in_time(Arc::downgrade(self)));
        }
    }

    /// Closes the connections that have expired. Returns how long the next one has
    /// left; `None` if there is none.
    fn close_expired(&self) -> Option<Duration> {
        let idle_timeout = self.limits.idle_timeout;
        let mut free = self.free();
        free.close_expired(idle_timeout);
        let next = free.connections.first_key_value();
        let left = next.map(|(_, idle)| idle_timeout.saturating_sub(idle.since.age()));
        free.has_closer = left.is_some();
        left
    }

    /// Closes the idle connections to `origin`. HTTP/2 exchanges go on.
    pub(super) fn close(&self, origin: &Origin) {
        let mut free = self.free();
        while let Some(newest) = free.newest(origin) {
            free.remove(newest);
        }
    }

    fn free(&self) -> MutexGuard<'_, IdleConnections> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes connections as they expire, until there is none.
async fn close_in_time(pool: Weak<Pool>) {
    // The pool is not kept alive by this.
    while let Some(left) = pool.upgrade().and_then(|pool| pool.close_expired()) {
        sleep(left).await;
    }
}

impl IdleConnections {
    fn add(&mut self, origin: Origin, connection: Connection) {
        let number = self.next;
        self.next += 1;
        self.by_origin
            .entry(origin.clone())
            .or_default()
            .push_back(number);
        let idle = IdleConnection {
            origin,
            connection,
            since: Stamp::now(),
        };
        self.connections.insert(number, idle);
    }

    fn newest(&self, origin: &Origin) -> Option<u64> {
        self.by_origin.get(origin)?.back().copied()
    }

    fn newest_open(&mut self, origin: &Origin) -> Option<Connection> {
        loop {
            // The newest first: an origin closes those that were idle for
            // longest.
            let newest = self.newest(origin)?;
            let connection = self.remove(newest)?;
            if !connection.is_closed() {
                return Some(connection);
            }
        }
    }

    fn close_expired(&mut self, idle_timeout: Duration) {
        while let Some((&oldest, idle)) = self.connections.first_key_value()
            && idle_timeout <= idle.since.age()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Connection> {
        let idle = self.connections.remove(&number)?;
        if let Some(own) = self.by_origin.get_mut(&idle.origin) {
            own.retain(|&other| other != number);
            if own.is_empty() {
                self.by_origin.remove(&idle.origin);
            }
        }
        Some(idle.connection)
    }
}
