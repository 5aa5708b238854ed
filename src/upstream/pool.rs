//! Connections to origins that are open and free.
//!
//! Ours, not the HTTP client's: it is bounded per origin, in all and in time,
//! and an HTTP/2 connection is shared from the first exchange on.
//!
//! Whether a connection still works is found out by using it, in `upstream`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connect::Connection;
use crate::clock::Stamp;
use politesse_robots::origin::Origin;

/// How much is kept for later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// For how long.
    pub(super) idle_timeout: Duration,
    /// How many for one origin.
    pub(super) per_origin: NonZeroUsize,
    /// How many in all.
    pub(super) total: NonZeroUsize,
}

/// The free connections. Those that were free for too long are closed whenever
/// the pool is used.
#[derive(Debug)]
pub(super) struct Pool {
    limits: Limits,
    free: Mutex<Free>,
}

/// Numbers grow with time, so the first connection is the one to close next.
#[derive(Debug, Default)]
struct Free {
    next: u64,
    connections: BTreeMap<u64, Kept>,
    by_origin: HashMap<Origin, VecDeque<u64>>,
}

#[derive(Debug)]
struct Kept {
    origin: Origin,
    connection: Connection,
    since: Stamp,
}

impl Pool {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            free: Mutex::default(),
        }
    }

    /// The connection to `origin` that was used last, if one is free. An
    /// HTTP/2 one stays for others as well.
    pub(super) fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut free = self.free();
        free.close_expired(self.limits.idle_timeout);
        let connection = free.newest_open(origin)?;
        if let Some(shared) = connection.shared() {
            free.add(origin.clone(), shared);
        }
        Some(connection)
    }

    /// Keeps a connection for later; the oldest go where there are too many.
    pub(super) fn put(&self, origin: Origin, connection: Connection) {
        let mut free = self.free();
        free.close_expired(self.limits.idle_timeout);
        let own = free.by_origin.get(&origin);
        let full = own.filter(|own| self.limits.per_origin.get() <= own.len());
        if let Some(oldest) = full.and_then(VecDeque::front).copied() {
            free.remove(oldest);
        }
        if self.limits.total.get() <= free.connections.len()
            && let Some(oldest) = free.oldest()
        {
            free.remove(oldest);
        }
        free.add(origin, connection);
    }

    /// Closes what is free to `origin`. HTTP/2 exchanges under way go on.
    pub(super) fn close(&self, origin: &Origin) {
        let mut free = self.free();
        while let Some(newest) = free.newest(origin) {
            free.remove(newest);
        }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Free {
    fn add(&mut self, origin: Origin, connection: Connection) {
        let number = self.next;
        self.next += 1;
        self.by_origin
            .entry(origin.clone())
            .or_default()
            .push_back(number);
        let kept = Kept {
            origin,
            connection,
            since: Stamp::now(),
        };
        self.connections.insert(number, kept);
    }

    fn newest(&self, origin: &Origin) -> Option<u64> {
        self.by_origin.get(origin)?.back().copied()
    }

    fn newest_open(&mut self, origin: &Origin) -> Option<Connection> {
        loop {
            let newest = self.newest(origin)?;
            let connection = self.remove(newest)?;
            if !connection.is_closed() {
                return Some(connection);
            }
        }
    }

    fn oldest(&self) -> Option<u64> {
        self.connections.keys().next().copied()
    }

    fn close_expired(&mut self, idle_timeout: Duration) {
        while let Some((&oldest, kept)) = self.connections.first_key_value()
            && idle_timeout <= kept.since.age()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Connection> {
        let kept = self.connections.remove(&number)?;
        if let Some(own) = self.by_origin.get_mut(&kept.origin) {
            own.retain(|&other| other != number);
            if own.is_empty() {
                self.by_origin.remove(&kept.origin);
            }
        }
        Some(kept.connection)
    }
}
