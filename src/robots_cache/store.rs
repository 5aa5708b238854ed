//! Storage of cache entries: the table in memory, which also holds the fetches
//! that are running, and the interface of the store on disk.
//!
//! RFC 9309, section 2.4. The table is bounded, and the least recently used
//! entry goes first. Running fetches are held apart from it, so that none is
//! evicted while a request waits for it. Does not know how a fetch is made.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::watch;
use tokio::time::Instant;

use super::entry::CacheEntry;
use super::options::Options;
use super::outcome::FetchOutcome;
use crate::decision::access::Cause;
use crate::decision::snapshot::{CacheKey, StoredSnapshot};
use crate::metrics::{Metrics, ResultLabel};
use politesse_robots::Dialect;
use politesse_robots::origin::Host;

/// Future of an operation on a [`SnapshotStore`].
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Store in which snapshots outlive the memory of the cache, and the process.
///
/// A trait so that the cache does not know the audit log, and can be tested
/// without one. A snapshot that cannot be loaded is fetched again.
pub trait SnapshotStore: Debug + Send + Sync + 'static {
    /// Loads the last snapshot that was saved under `key`, its file read by
    /// `dialect`.
    fn load<'a>(
        &'a self,
        key: &'a CacheKey,
        dialect: Dialect,
    ) -> StoreFuture<'a, Option<StoredSnapshot>>;

    /// Saves a snapshot in place of the one under the same key.
    ///
    /// The save begins with the call, not when the future is first polled: from
    /// then on `load` finds it. Called before the snapshot is handed out, it is
    /// on disk before any decision that rests on it, unless the queue of the
    /// store is full or the disk fails.
    fn save(&self, snapshot: StoredSnapshot) -> StoreFuture<'_, ()>;
}

/// A store that keeps nothing, for commands that ask once.
#[derive(Debug, Clone, Copy)]
pub struct NoStore;

impl SnapshotStore for NoStore {
    fn load<'a>(&'a self, _: &'a CacheKey, _: Dialect) -> StoreFuture<'a, Option<StoredSnapshot>> {
        Box::pin(std::future::ready(None))
    }

    fn save(&self, _: StoredSnapshot) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Progress of a running fetch, as seen by the requests that wait for it.
#[derive(Debug, Clone)]
pub(super) enum FetchState {
    /// It makes a request.
    Requesting,
    /// It waits for a turn at `host`, which comes at about `until`.
    Queued { host: Host, until: Instant },
    /// It waits for the robots.txt of another origin, to which it was
    /// redirected.
    CheckingRedirect,
    /// It has ended with this entry.
    Done(Arc<CacheEntry>),
}

/// Receiver of the progress of a running fetch.
pub(super) type FetchWatch = watch::Receiver<FetchState>;

/// Result of looking a key up.
pub(super) enum Lookup {
    /// An entry that is in force.
    Fresh(Arc<CacheEntry>),
    /// A running fetch that the entry will come from.
    Running(FetchWatch),
}

/// Entries and running fetches of all origins.
pub(super) struct EntryTable {
    entries: Cache<CacheKey, Arc<CacheEntry>>,
    running: Mutex<RunningFetches>,
    options: Options,
    metrics: Arc<Metrics>,
}

type RunningFetches = HashMap<CacheKey, watch::Sender<FetchState>>;

impl EntryTable {
    pub(super) fn new(options: Options, metrics: Arc<Metrics>) -> Self {
        let bytes_max = options.max_snapshot_bytes.max(options.max_snapshots.get());
        // An entry counts at least its share of the bytes. So one capacity
        // bounds both the bytes and the number of entries.
        let weight_min = u32::try_from(bytes_max / options.max_snapshots.get()).unwrap_or(u32::MAX);
        let entries = Cache::builder()
            .max_capacity(u64::try_from(bytes_max).unwrap_or(u64::MAX))
            .weigher(move |_, entry: &Arc<CacheEntry>| {
                let bytes = u32::try_from(entry.weight()).unwrap_or(u32::MAX);
                bytes.max(weight_min)
            })
            // The other policy may turn new entries away, and their fetch was
            // in vain.
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Self {
            entries,
            running: Mutex::default(),
            options,
            metrics,
        }
    }

    /// Returns the entry under `key`, in force or not.
    pub(super) fn latest(&self, key: &CacheKey) -> Option<Arc<CacheEntry>> {
        self.entries.get(key).map(CacheEntry::latest)
    }

    /// Returns the entry in force, or the fetch that it will come from: the one
    /// that is running, or a new one, which `start` is called with. No two
    /// fetches run for one key.
    ///
    /// `start` is also called where the entry in force is due for a refresh.
    pub(super) fn look_up(
        self: &Arc<Self>,
        key: &CacheKey,
        start: impl FnOnce(RunningFetch),
    ) -> Lookup {
        if let Some(entry) = self.latest(key).filter(|entry| entry.is_fresh()) {
            if let Some(fetch) = self.begin_refresh(key, &entry) {
                start(fetch);
            }
            return Lookup::Fresh(entry);
        }
        let mut running = self.running();
        if let Some(state) = running.get(key) {
            return Lookup::Running(state.subscribe());
        }
        // A fetch may have ended between the first look and the lock.
        let earlier = self.latest(key);
        if let Some(entry) = earlier.clone().filter(|entry| entry.is_fresh()) {
            return Lookup::Fresh(entry);
        }
        if self.is_full(&running) {
            drop(running);
            // Not held, so that the next request tries again.
            let outcome = FetchOutcome::failed(&key.origin, Cause::Busy);
            return Lookup::Fresh(self.entry(&outcome, key, earlier.as_deref()));
        }
        let fetch = self.begin(&mut running, key, earlier);
        drop(running);
        let watch = fetch.state.subscribe();
        start(fetch);
        Lookup::Running(watch)
    }

    /// Returns the entry that follows from `outcome`, and counts the outcome.
    pub(super) fn entry(
        &self,
        outcome: &FetchOutcome,
        key: &CacheKey,
        earlier: Option<&CacheEntry>,
    ) -> Arc<CacheEntry> {
        let entry = CacheEntry::new(outcome, key, &self.options, earlier);
        let result = outcome.label(&entry.snapshot);
        let fetches = &self.metrics.robots_fetches;
        fetches.get_or_create(&ResultLabel { result }).inc();
        Arc::new(entry)
    }

    /// Returns the fetch that refreshes `entry`, if it is due, there is room, and
    /// it was not begun before.
    fn begin_refresh(
        self: &Arc<Self>,
        key: &CacheKey,
        entry: &Arc<CacheEntry>,
    ) -> Option<RunningFetch> {
        if !entry.is_refresh_due() {
            return None;
        }
        let mut running = self.running();
        let current = self.entries.get(key);
        // The entry may have been refreshed since it was looked at.
        let was_replaced = current.is_none_or(|current| !Arc::ptr_eq(&current, entry));
        if was_replaced || self.is_full(&running) || running.contains_key(key) {
            return None;
        }
        let mut fetch = self.begin(&mut running, key, Some(Arc::clone(entry)));
        fetch.is_refresh = true;
        Some(fetch)
    }

    fn begin(
        self: &Arc<Self>,
        running: &mut RunningFetches,
        key: &CacheKey,
        earlier: Option<Arc<CacheEntry>>,
    ) -> RunningFetch {
        let state = watch::Sender::new(FetchState::Requesting);
        running.insert(key.clone(), state.clone());
        self.metrics.robots_waiting.inc();
        RunningFetch {
            key: key.clone(),
            earlier,
            table: Arc::clone(self),
            state,
            is_refresh: false,
            has_ended: false,
        }
    }

    fn is_full(&self, running: &RunningFetches) -> bool {
        self.options.max_waiting.get() <= running.len()
    }

    fn running(&self) -> MutexGuard<'_, RunningFetches> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove_running(&self, running: &mut RunningFetches, key: &CacheKey) {
        running.remove(key);
        self.metrics.robots_waiting.dec();
    }

    fn update_gauges(&self) {
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let (entries, metrics) = (&self.entries, &self.metrics);
        metrics.robots_snapshots.set(gauge(entries.entry_count()));
        metrics
            .robots_snapshot_bytes
            .set(gauge(entries.weighted_size()));
    }

    /// Returns the number of entries after all evictions.
    #[cfg(test)]
    pub(super) fn len(&self) -> u64 {
        self.entries.run_pending_tasks();
        self.entries.entry_count()
    }
}

/// A fetch that runs, and that requests may wait for.
///
/// Dropped before its end, by a panic or at the end of the runtime, it ends as a
/// failure, so that no request waits for ever.
pub(super) struct RunningFetch {
    pub(super) key: CacheKey,
    /// Entry from before.
    pub(super) earlier: Option<Arc<CacheEntry>>,
    table: Arc<EntryTable>,
    state: watch::Sender<FetchState>,
    is_refresh: bool,
    has_ended: bool,
}

impl RunningFetch {
    /// Returns the sender of its progress.
    pub(super) fn state(&self) -> watch::Sender<FetchState> {
        self.state.clone()
    }

    /// Waits until no request waits for the fetch any more. Never returns for a
    /// refresh, for which no request waits.
    pub(super) async fn abandoned(&self) {
        if self.is_refresh {
            return std::future::pending().await;
        }
        self.state.closed().await;
    }

    /// Ends the fetch without an entry, unless a request has come meanwhile.
    pub(super) fn abandon(mut self) -> Result<(), Self> {
        let table = Arc::clone(&self.table);
        // Requests join under this lock, so none can come in between.
        let mut running = table.running();
        if 0 < self.state.receiver_count() {
            return Err(self);
        }
        table.remove_running(&mut running, &self.key);
        self.has_ended = true;
        Ok(())
    }

    /// Returns the entry that follows from `outcome`.
    pub(super) fn entry(&self, outcome: &FetchOutcome) -> Arc<CacheEntry> {
        self.table
            .entry(outcome, &self.key, self.earlier.as_deref())
    }

    /// Ends the fetch with `entry`.
    pub(super) fn finish(mut self, entry: &Arc<CacheEntry>) {
        self.end_with(entry);
    }

    /// Holds the entry, then reports it, then removes the fetch. In this order a
    /// request that looks at any moment finds one of the three.
    fn end_with(&mut self, entry: &Arc<CacheEntry>) {
        self.has_ended = true;
        let table = &self.table;
        table.entries.insert(self.key.clone(), Arc::clone(entry));
        self.state.send_replace(FetchState::Done(Arc::clone(entry)));
        table.remove_running(&mut table.running(), &self.key);
        table.update_gauges();
    }
}

impl Drop for RunningFetch {
    fn drop(&mut self) {
        if !self.has_ended {
            let outcome = FetchOutcome::failed(&self.key.origin, Cause::Internal);
            let entry = self.entry(&outcome);
            self.end_with(&entry);
        }
    }
}
