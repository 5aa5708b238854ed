//! Pool of idle connections to origins.
//!
//! Our own, since the one of the HTTP client has no bound in all: this one is
//! bounded per origin, in all and in time, and an HTTP/2 connection is shared
//! from the first exchange on. Does not know whether a connection still works;
//! using it shows that.

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
    /// Places of idle connections that belong to one client: half of all.
    private_places: Arc<Semaphore>,
}

/// Idle connections by number, in the order in which they were put in: the first one is
/// the next to close. The map keeps the room of as many as there were at most.
#[derive(Debug, Default)]
struct IdleConnections {
    next: u64,
    connections: LinkedHashMap<u64, IdleConnection>,
    /// Numbers of the idle connections to each origin, the oldest first. An
    /// origin whose connections are in use keeps its empty list, which they come
    /// back to.
    by_origin: HashMap<Origin, VecDeque<u64>>,
    /// Whether a task waits for the first connection to expire.
    has_closer: bool,
    /// Whether none is put in any more.
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

    /// Takes the connection to `origin` that was used last. An HTTP/2 connection
    /// stays for other exchanges as well.
    pub(super) fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut free = self.free();
        free.close_expired(self.limits.idle_timeout);
        let connection = free.take_newest(origin)?;
        if let Some(shared) = connection.shared() {
            free.add(origin.clone(), shared, self.limits);
        }
        Some(connection)
    }

    /// Puts a connection in; the oldest are closed where there are too many.
    ///
    /// One over a descriptor of the reserve is closed: another robots.txt may wait
    /// for that descriptor, and the requests of crawlers must not have it.
    pub(super) fn put(self: &Arc<Self>, origin: Origin, connection: Connection) {
        if connection.is_of_reserve {
            return;
        }
        let mut free = self.free();
        free.add(origin, connection, self.limits);
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
        let next = free.connections.front();
        let left = next.map(|(_, idle)| idle_timeout.saturating_sub(idle.since.age()));
        free.has_closer = left.is_some();
        left
    }

    /// Closes the idle connections to `origin`. HTTP/2 exchanges go on.
    pub(super) fn close(&self, origin: &Origin) {
        let mut free = self.free();
        for number in free.by_origin.remove(origin).unwrap_or_default() {
            free.connections.remove(&number);
        }
    }

    /// Closes all idle connections, and those that are put in from now on. HTTP/2
    /// exchanges go on.
    pub(super) fn retire(&self) {
        let mut free = self.free();
        free.is_retired = true;
        free.connections.clear();
        free.by_origin.clear();
    }

    /// Takes a place for an idle connection that belongs to one client, beside the pool;
    /// `None` if there is none.
    pub(super) fn private_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.private_places).try_acquire_owned().ok()
    }

    /// Reports whether another configuration is in force.
    pub(super) fn is_retired(&self) -> bool {
        self.free().is_retired
    }

    /// Returns the time for which an idle connection is kept.
    pub(super) fn idle_timeout(&self) -> Duration {
        self.limits.idle_timeout
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
    /// Adds a connection; the oldest are closed where there are too many.
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

    /// Lists `number` as the newest connection to `origin`. Returns the oldest,
    /// which is not listed any more, if there would be too many.
    fn list(&mut self, origin: &Origin, number: u64, limits: PoolLimits) -> Option<u64> {
        if let Some(own) = self.by_origin.get_mut(origin) {
            let is_full = limits.per_origin.get() <= own.len();
            own.push_back(number);
            return if is_full { own.pop_front() } else { None };
        }
        // No more lists than idle connections have a connection, so this finds
        // that many empty ones and is rare.
        if limits.total.get().saturating_mul(2) <= self.by_origin.len() {
            self.by_origin.retain(|_, own| !own.is_empty());
        }
        self.by_origin
            .insert(origin.clone(), VecDeque::from([number]));
        None
    }

    /// Takes the newest connection to `origin` that is open: an origin closes
    /// those that were idle for longest.
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

    // Ours: a crawl goes on to other origins, whose lists must not pile up.
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
            // As if it were taken at once, but for one.
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
