//! Pool of idle connections to origins.
//!
//! Written here, because the HTTP client's own pool has no total limit. This one is
//! limited per origin, in total, and in time, and shares an HTTP/2 connection from its
//! first exchange on. Does not know whether a connection still works; that is only seen
//! by using it.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hashlink::LinkedHashMap;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::connect::Connection;
use politesse_base::clock::Stamp;
use politesse_robots::origin::Origin;

/// Limits of the pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolLimits {
    /// Longest time that an idle connection is kept.
    pub(super) idle_timeout: Duration,
    /// Maximum number of idle connections per origin.
    pub(super) per_origin: NonZeroUsize,
    /// Maximum number of idle connections in total.
    pub(super) total: NonZeroUsize,
}

/// Idle connections. Each is closed when it expires, even if the pool is not used.
#[derive(Debug)]
pub(super) struct Pool {
    limits: PoolLimits,
    free: Mutex<IdleConnections>,
    /// Permits for idle private connections: half of the total limit.
    private_places: Arc<Semaphore>,
}

/// Idle connections by number, in order of insertion, so that the first one expires next.
/// The map keeps the capacity of its largest size.
#[derive(Debug, Default)]
struct IdleConnections {
    next: u64,
    connections: LinkedHashMap<u64, IdleConnection>,
    /// Numbers of the idle connections per origin, oldest first. An origin whose
    /// connections are all in use keeps its empty list, so that they can be added back to
    /// it.
    by_origin: HashMap<Origin, VecDeque<u64>>,
    /// Whether a task is waiting for the first connection to expire.
    has_closer: bool,
    /// Whether the pool no longer accepts connections.
    is_retired: bool,
}

#[derive(Debug)]
struct IdleConnection {
    origin: Origin,
    connection: Connection,
    since: Stamp,
}

impl Pool {
    pub(super) fn new(limits: PoolLimits) -> Self {
        let private = (limits.total.get() / 2).min(Semaphore::MAX_PERMITS);
        Self {
            limits,
            free: Mutex::default(),
            private_places: Arc::new(Semaphore::new(private)),
        }
    }

    /// Takes the most recently used connection to `origin`. An HTTP/2 connection also
    /// stays in the pool for other exchanges.
    pub(super) fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut free = self.free();
        free.close_expired(self.limits.idle_timeout);
        let connection = free.take_newest(origin)?;
        if let Some(shared) = connection.shared() {
            free.add(origin.clone(), shared, self.limits);
        }
        Some(connection)
    }

    /// Adds a connection, and closes the oldest ones beyond the limits.
    ///
    /// A connection on a reserve descriptor is closed instead: another robots.txt may be
    /// waiting for the descriptor, and crawler requests must not use it.
    pub(super) fn put(self: &Arc<Self>, origin: Origin, connection: Connection) {
        if connection.is_of_reserve {
            return;
        }
        let mut free = self.free();
        free.add(origin, connection, self.limits);
        // A body may be dropped outside a runtime, at the end of a process.
        if !free.has_closer
            && let Ok(runtime) = Handle::try_current()
        {
            free.has_closer = true;
            // Not a tracked task, because shutdown must not wait for it: it may sleep for
            // a minute.
            runtime.spawn(close_in_time(Arc::downgrade(self)));
        }
    }

    /// Closes the expired connections. Returns the time until the next one expires;
    /// `None` if the pool is empty.
    fn close_expired(&self) -> Option<Duration> {
        let idle_timeout = self.limits.idle_timeout;
        let mut free = self.free();
        free.close_expired(idle_timeout);
        let next = free.connections.front();
        let left = next.map(|(_, idle)| idle_timeout.saturating_sub(idle.since.age()));
        free.has_closer = left.is_some();
        left
    }

    /// Closes the idle connections to `origin`. HTTP/2 exchanges continue.
    pub(super) fn close(&self, origin: &Origin) {
        let mut free = self.free();
        for number in free.by_origin.remove(origin).unwrap_or_default() {
            free.connections.remove(&number);
        }
    }

    /// Closes all idle connections, and any that are added later. HTTP/2 exchanges
    /// continue.
    pub(super) fn retire(&self) {
        let mut free = self.free();
        free.is_retired = true;
        free.connections.clear();
        free.by_origin.clear();
    }

    /// Takes a permit for an idle private connection, which is kept outside the pool;
    /// `None` if none is left.
    pub(super) fn private_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.private_places).try_acquire_owned().ok()
    }

    /// Reports whether the pool was retired because another configuration took effect.
    pub(super) fn is_retired(&self) -> bool {
        self.free().is_retired
    }

    /// Returns the longest time that an idle connection is kept.
    pub(super) fn idle_timeout(&self) -> Duration {
        self.limits.idle_timeout
    }

    fn free(&self) -> MutexGuard<'_, IdleConnections> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes connections as they expire, until the pool is empty.
async fn close_in_time(pool: Weak<Pool>) {
    // The weak reference does not keep the pool alive.
    while let Some(left) = pool.upgrade().and_then(|pool| pool.close_expired()) {
        sleep(left).await;
    }
}

impl IdleConnections {
    /// Adds a connection, and closes the oldest ones beyond the limits.
    fn add(&mut self, origin: Origin, connection: Connection, limits: PoolLimits) {
        if self.is_retired {
            return;
        }
        if limits.total.get() <= self.connections.len()
            && let Some((&oldest, _)) = self.connections.front()
        {
            self.remove(oldest);
        }
        let number = self.next;
        self.next += 1;
        if let Some(oldest) = self.list(&origin, number, limits) {
            self.connections.remove(&oldest);
        }
        let idle = IdleConnection {
            origin,
            connection,
            since: Stamp::now(),
        };
        self.connections.insert(number, idle);
    }

    /// Lists `number` as the newest connection to `origin`. If the origin then has too
    /// many, removes the oldest from the list and returns it.
    fn list(&mut self, origin: &Origin, number: u64, limits: PoolLimits) -> Option<u64> {
        if let Some(own) = self.by_origin.get_mut(origin) {
            let is_full = limits.per_origin.get() <= own.len();
            own.push_back(number);
            return if is_full { own.pop_front() } else { None };
        }
        // At most `total` lists have an idle connection, so this removes at least as many
        // empty lists, and is rare.
        if limits.total.get().saturating_mul(2) <= self.by_origin.len() {
            self.by_origin.retain(|_, own| !own.is_empty());
        }
        self.by_origin
            .insert(origin.clone(), VecDeque::from([number]));
        None
    }

    /// Takes the newest open connection to `origin`, because origins close those first
    /// that were idle for longest.
    fn take_newest(&mut self, origin: &Origin) -> Option<Connection> {
        let own = self.by_origin.get_mut(origin)?;
        while let Some(newest) = own.pop_back() {
            let idle = self.connections.remove(&newest)?;
            if !idle.connection.is_closed() {
                return Some(idle.connection);
            }
        }
        None
    }

    fn close_expired(&mut self, idle_timeout: Duration) {
        while let Some((&oldest, idle)) = self.connections.front()
            && idle_timeout <= idle.since.age()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(idle) = self.connections.remove(&number) else {
            return;
        };
        if let Some(own) = self.by_origin.get_mut(&idle.origin) {
            own.retain(|&other| other != number);
            if own.is_empty() {
                self.by_origin.remove(&idle.origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use politesse_robots::origin::Scheme;

    use super::*;

    // Ours: a crawl moves on to other origins, and the lists of earlier ones must not
    // accumulate.
    #[test]
    fn origins_without_idle_connections_are_forgotten() {
        let two = NonZeroUsize::new(2).unwrap();
        let limits = PoolLimits {
            idle_timeout: Duration::ZERO,
            per_origin: two,
            total: two,
        };
        let origin = |number| Origin::new(Scheme::Http, &format!("{number}.test")).unwrap();
        let mut free = IdleConnections::default();
        for number in 0..100 {
            assert_eq!(free.list(&origin(number), number, limits), None);
            // As if all connections but one were taken at once.
            if number != 1 {
                let own = free.by_origin.get_mut(&origin(number));
                own.unwrap().clear();
            }
            assert!(free.by_origin.len() <= 4);
        }
        assert!(free.by_origin.contains_key(&origin(1)));
        assert_eq!(free.list(&origin(1), 200, limits), None);
        assert_eq!(free.list(&origin(1), 201, limits), Some(1));
    }
}
