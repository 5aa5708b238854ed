//! Storage of cache entries: the table in memory, which also holds the running fetches,
//! and the interface of the store on disk.
//!
//! RFC 9309, section 2.4. The table is limited in size; the least recently used entry is
//! evicted first. Running fetches are held separately, so that none is evicted while a
//! request waits for it. Does not know how a fetch is made.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use super::entry::CacheEntry;
use super::fetch::Asker;
use super::options::Options;
use super::outcome::FetchOutcome;
use politesse_base::byte_cache::ByteCache;
use politesse_base::clients::bound::SharedBound;
use politesse_base::clients::client::{Client, ClientId, Resource};
use politesse_base::clock::Stamp;
use politesse_base::metrics::{Metrics, ResultLabel};
use politesse_base::throttle::REPEATING;
use politesse_decision::access::Cause;
use politesse_decision::digest::Digest;
use politesse_decision::snapshot::{CacheKey, Snapshot, StoredSnapshot};
use politesse_robots::Dialect;
use politesse_robots::origin::Host;

/// Largest number of clients whose slots a fetch may use; further clients wait for it as
/// well.
const CLIENTS_MAX: usize = 16;

/// Senders of one client for which a key is fetched within [`SENDER_WINDOW`]. Counted per
/// client, so that no client uses up the senders of another.
pub(super) const SENDERS_MAX: usize = 8;

/// Time for which a sender is counted.
const SENDER_WINDOW: Duration = Duration::from_secs(60 * 60);

/// Future of an operation on a [`SnapshotStore`].
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The store could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the stored robots.txt could not be read")]
pub struct StoreUnread;

/// Store that keeps snapshots after they leave memory, and after the process ends.
///
/// This is a trait so that the cache does not know the audit log and can be tested
/// without one. A snapshot that cannot be loaded is fetched again.
pub trait SnapshotStore: Debug + Send + Sync + 'static {
    /// Loads the last snapshot that was saved under `key`, with its file read in
    /// `dialect`.
    ///
    /// # Errors
    ///
    /// [`StoreUnread`] if it is unknown whether a snapshot exists.
    fn load<'a>(
        &'a self,
        key: &'a CacheKey,
        dialect: Dialect,
    ) -> StoreFuture<'a, Result<Option<StoredSnapshot>, StoreUnread>>;

    /// Returns the keys of the stored snapshots of origins at `host`.
    ///
    /// # Errors
    ///
    /// [`StoreUnread`] if it is unknown which snapshots exist.
    fn keys<'a>(&'a self, host: &'a Host) -> StoreFuture<'a, Result<Vec<CacheKey>, StoreUnread>>;

    /// Saves a snapshot, replacing the one under the same key.
    ///
    /// The save begins with the call, not when the future is first polled; from then on
    /// `load` finds the snapshot. If this is called before the snapshot is handed out, it
    /// is on disk before any decision based on it, unless the queue of the store is full
    /// or the disk fails.
    fn save(&self, snapshot: StoredSnapshot) -> StoreFuture<'_, ()>;
}

/// Progress of a running fetch, as seen by the requests that wait for it.
#[derive(Debug, Clone)]
pub(super) enum FetchState {
    /// The fetch is making a request.
    Requesting,
    /// The fetch waits for a turn at `host`, which will come at about `until`.
    Queued { host: Host, until: Instant },
    /// The fetch waits for the robots.txt of another origin that it was redirected to.
    CheckingRedirect,
    /// The fetch has ended with this entry.
    Done(Arc<CacheEntry>),
    /// The fetch has ended without an entry, because no request waited for it.
    Abandoned,
}

/// Result of a lookup.
pub(super) enum Lookup {
    /// An entry that is in force.
    Fresh(Arc<CacheEntry>),
    /// A running fetch, which produces the entry later.
    Running(watch::Receiver<FetchState>),
}

/// Keys under which there may be an entry for a request.
pub(super) struct LookupKeys<'a> {
    /// Key of the entry that all senders share. At most one fetch runs for it at a time.
    pub(super) shared: CacheKey,
    /// Sender of the request; `None` if all crawlers use the same `User-Agent`.
    pub(super) asker: Option<&'a Asker>,
}

impl LookupKeys<'_> {
    /// Returns the key of the entry that applies to this sender alone.
    fn own(&self) -> CacheKey {
        CacheKey {
            sender: self.asker.map(Asker::sender),
            ..self.shared.clone()
        }
    }

    /// Returns whether a snapshot applies to this sender.
    pub(super) fn include(&self, snapshot: &Snapshot) -> bool {
        snapshot.key.sender.is_none() || snapshot.key.sender == self.own().sender
    }
}

/// Known entries for a request, in force or not.
#[derive(Clone, Default)]
pub(super) struct KnownEntries {
    /// Entry that all senders share.
    pub(super) shared: Option<Arc<CacheEntry>>,
    /// Entry for the sender of the request alone.
    pub(super) own: Option<Arc<CacheEntry>>,
}

impl KnownEntries {
    /// Returns the entry in force: the latest answer, otherwise the sender's own entry,
    /// otherwise the shared one.
    pub(super) fn in_force(&self) -> Option<Arc<CacheEntry>> {
        let known = [&self.shared, &self.own].into_iter().flatten();
        let fresh = known.filter(|entry| entry.is_fresh());
        // `max_by_key` returns the last of equal entries, which is the sender's own.
        let counts = fresh.max_by_key(|entry| {
            let answer = entry.snapshot.is_answer();
            (answer, answer.then_some(entry.snapshot.fetched_at))
        });
        counts.cloned()
    }

    /// Returns the entry in force, unless it is due for a refresh that its sender has not
    /// tried yet.
    fn settled(&self) -> Option<Arc<CacheEntry>> {
        let is_tried = || self.own.as_ref().is_some_and(|own| own.is_settled());
        let entry = self.in_force()?;
        (entry.is_settled() || is_tried()).then_some(entry)
    }

    /// Returns the entry with the latest answer, on which a failure of this sender alone
    /// is based.
    pub(super) fn latest(&self) -> Option<&CacheEntry> {
        let known = [&self.shared, &self.own].into_iter().flatten();
        let latest = known.max_by_key(|entry| {
            let snapshot = &entry.snapshot;
            let has_answer = snapshot.is_answer() || snapshot.file().is_some();
            (has_answer, snapshot.fetched_at)
        });
        latest.map(Arc::as_ref)
    }
}

/// Sender that got any other answer than a file.
struct SenderMark {
    sender: Option<Digest>,
    at: Stamp,
}

/// Senders of each client that got any other answer than a file.
type SenderTable = ByteCache<(ClientId, CacheKey), Vec<SenderMark>>;

/// Entries and running fetches of all origins.
pub(super) struct EntryTable {
    entries: Mutex<ByteCache<CacheKey, Arc<CacheEntry>>>,
    /// At most as many lists as entries.
    senders: Mutex<SenderTable>,
    /// Minimum size that an entry counts for: its share of the total.
    entry_bytes_min: usize,
    running: Mutex<RunningFetches>,
    pub(super) options: Options,
    pub(super) metrics: Arc<Metrics>,
}

/// Running fetch, as requests find it.
struct FetchEntry {
    state: watch::Sender<FetchState>,
    /// Clients that wait for the fetch, each listed once; the first one started it.
    clients: watch::Sender<Vec<Arc<Client>>>,
}

impl FetchEntry {
    /// Joins the fetch on behalf of `client`.
    fn join(&self, client: &Arc<Client>) -> watch::Receiver<FetchState> {
        self.clients.send_if_modified(|clients| {
            let is_known = clients.iter().any(|other| other.id == client.id);
            let is_new = !is_known && clients.len() < CLIENTS_MAX;
            if is_new {
                clients.push(Arc::clone(client));
            }
            is_new
        });
        self.state.subscribe()
    }
}

/// Fetches that run or wait.
struct RunningFetches {
    fetches: HashMap<CacheKey, FetchEntry>,
    /// Limit of their number (`robots.max_waiting`).
    bound: SharedBound,
}

impl EntryTable {
    pub(super) fn new(options: Options, metrics: Arc<Metrics>) -> Self {
        let bytes_max = options.max_snapshot_bytes.max(options.max_snapshots.get());
        let running = RunningFetches {
            fetches: HashMap::new(),
            bound: SharedBound::new(options.max_waiting.get()),
        };
        Self {
            entries: Mutex::new(ByteCache::new(bytes_max)),
            senders: Mutex::new(ByteCache::new(options.max_snapshots.get())),
            // So one capacity limits both the bytes and the number of entries.
            entry_bytes_min: bytes_max / options.max_snapshots.get(),
            running: Mutex::new(running),
            options,
            metrics,
        }
    }

    /// Returns the entry under `key`, in force or not.
    pub(super) fn latest(&self, key: &CacheKey) -> Option<Arc<CacheEntry>> {
        let entry = Arc::clone(self.entries().get(key)?);
        Some(entry.latest())
    }

    /// Returns the entries for a request.
    pub(super) fn known(&self, keys: &LookupKeys<'_>) -> KnownEntries {
        KnownEntries {
            shared: self.latest(&keys.shared),
            own: self.latest(&keys.own()),
        }
    }

    /// Returns the entry in force, or the fetch that produces it later: the running one,
    /// or a new one for `client`, which is passed to `start`. At most one fetch runs per
    /// key, and at most `robots.max_waiting` in total, shared fairly between clients.
    ///
    /// The running fetch may be for another sender, and may end with an entry that does
    /// not apply to this one. `start` is also called if the entry in force is due for a
    /// refresh.
    pub(super) fn look_up(
        self: &Arc<Self>,
        keys: &LookupKeys<'_>,
        client: &Arc<Client>,
        start: impl FnOnce(RunningFetch),
    ) -> Lookup {
        // Decides nearly all requests, without building the sender's own key.
        let shared = self.latest(&keys.shared);
        let is_enough = |entry: &Arc<CacheEntry>| entry.snapshot.is_answer() && entry.is_settled();
        if let Some(entry) = shared.filter(is_enough) {
            return Lookup::Fresh(entry);
        }
        if let Some(entry) = self.known(keys).settled() {
            return Lookup::Fresh(entry);
        }
        let mut running = self.running();
        // Checked again: a fetch may have ended before the lock was held.
        let mut known = self.known(keys);
        let fresh = known.in_force();
        if let Some(fetch) = running.fetches.get(&keys.shared) {
            return fresh.map_or_else(|| Lookup::Running(fetch.join(client)), Lookup::Fresh);
        }
        if let Some(entry) = known.settled() {
            return Lookup::Fresh(entry);
        }
        if let Some(strictest) = self.strictest(keys, client) {
            if let Some(entry) = fresh {
                return Lookup::Fresh(entry);
            }
            if strictest.is_fresh() {
                self.metrics.robots_max_senders.inc();
                return Lookup::Fresh(strictest);
            }
            // All of them have expired. They count as one sender, whose pauses grow.
            known.own = Some(strictest);
        }
        if !running.bound.add(&client.id) {
            drop(running);
            client.count_refused(Resource::RobotsFetches);
            // Not stored, so that the next request tries again.
            let outcome = FetchOutcome::failed(&keys.shared, Cause::Busy);
            let busy = || Arc::new(self.entry(&outcome, known.shared.as_deref()));
            return Lookup::Fresh(fresh.unwrap_or_else(busy));
        }
        let state = watch::Sender::new(FetchState::Requesting);
        let clients = watch::Sender::new(vec![Arc::clone(client)]);
        let fetch = FetchEntry {
            state: state.clone(),
            clients: clients.clone(),
        };
        running.fetches.insert(keys.shared.clone(), fetch);
        drop(running);
        self.metrics.robots_waiting.inc();
        let is_refresh = fresh.is_some();
        let lookup = fresh.map_or_else(|| Lookup::Running(state.subscribe()), Lookup::Fresh);
        let is_unread = |entry: &Arc<CacheEntry>| entry.is_store_unread;
        start(RunningFetch {
            own_key: keys.own(),
            key: keys.shared.clone(),
            is_store_unread: known.shared.as_ref().is_none_or(is_unread),
            known,
            client: Arc::clone(client),
            asker: keys.asker.map(remembered),
            clients,
            table: Arc::clone(self),
            state,
            is_refresh,
        });
        lookup
    }

    /// Returns the strictest answer that other senders of `client` got, if they have used
    /// up the limit on senders. Prefers an answer in force to an expired one.
    fn strictest(&self, keys: &LookupKeys<'_>, client: &Client) -> Option<Arc<CacheEntry>> {
        let list = (client.id.clone(), keys.shared.clone());
        let sender = keys.own().sender;
        let senders: Vec<_> = {
            let mut senders = self.senders();
            let marks = senders.get(&list)?.iter();
            let recent = marks.filter(|mark| mark.at.age() < SENDER_WINDOW);
            recent.map(|mark| mark.sender).collect()
        };
        if senders.len() < SENDERS_MAX || senders.contains(&sender) {
            return None;
        }
        let key = |sender| CacheKey {
            sender,
            ..keys.shared.clone()
        };
        let entries = senders
            .into_iter()
            .filter_map(|sender| self.latest(&key(sender)));
        entries.max_by_key(|entry| {
            let snapshot = &entry.snapshot;
            (entry.is_fresh(), snapshot.strictness(), snapshot.fetched_at)
        })
    }

    /// Counts a sender of `client` that got any other answer than a file.
    fn count_sender(&self, client: &Client, key: &CacheKey) {
        let list = (client.id.clone(), key.shared());
        let mut senders = self.senders();
        let mut marks = senders.remove(&list).unwrap_or_default();
        marks.retain(|mark| mark.at.age() < SENDER_WINDOW && mark.sender != key.sender);
        if SENDERS_MAX <= marks.len() {
            marks.remove(0);
        }
        marks.push(SenderMark {
            sender: key.sender,
            at: Stamp::now(),
        });
        senders.insert(list, marks, 1);
    }

    /// Returns the entry that follows from `outcome`, and counts the outcome.
    fn entry(&self, outcome: &FetchOutcome, earlier: Option<&CacheEntry>) -> CacheEntry {
        let entry = CacheEntry::new(outcome, &self.options, earlier);
        let result = outcome.label(&entry.snapshot);
        let fetches = &self.metrics.robots_fetches;
        fetches.get_or_create(&ResultLabel { result }).inc();
        if outcome.is_challenge {
            let Snapshot { key, status, .. } = &outcome.snapshot;
            tracing::info!(
                target: REPEATING, origin = %key.origin, ?status,
                "a bot challenge came in place of a robots.txt"
            );
        }
        entry
    }

    /// Stores an entry in memory.
    pub(super) fn insert(&self, key: &CacheKey, entry: &Arc<CacheEntry>) {
        // The size is fixed at insertion, although its rules are compiled for further
        // crawlers later.
        let bytes = entry.weight().max(self.entry_bytes_min);
        let mut entries = self.entries();
        let removed = entries.insert(key.clone(), Arc::clone(entry), bytes);
        // After the lock is released, because freeing the rules of a large file takes a
        // while.
        drop(entries);
        drop(removed);
    }

    /// Makes the refresh of all entries at `host` due now. Returns the entries.
    pub(super) fn make_due(&self, host: &Host) -> Vec<Arc<CacheEntry>> {
        let mut removed = Vec::new();
        // All under one lock: otherwise the entry of a fetch that ends in the meantime
        // could be overwritten with the older one.
        let mut entries = self.entries();
        let of_host = entries.iter().filter(|(key, _)| key.origin.host() == host);
        let all_due: Vec<_> = of_host
            .map(|(key, entry)| (key.clone(), entry.due()))
            .collect();
        for (key, due) in &all_due {
            let bytes = due.weight().max(self.entry_bytes_min);
            removed.extend(entries.insert(key.clone(), Arc::clone(due), bytes));
        }
        drop(entries);
        drop(removed);
        all_due.into_iter().map(|(_, due)| due).collect()
    }

    /// Returns a receiver for the progress of the fetch that runs for `key`, if any.
    pub(super) fn watch(&self, key: &CacheKey) -> Option<watch::Receiver<FetchState>> {
        let running = self.running();
        let fetch = running.fetches.get(key)?;
        Some(fetch.state.subscribe())
    }

    fn entries(&self) -> MutexGuard<'_, ByteCache<CacheKey, Arc<CacheEntry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn senders(&self) -> MutexGuard<'_, SenderTable> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, RunningFetches> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove_running(&self, running: &mut RunningFetches, fetch: &RunningFetch) {
        if running.fetches.remove(&fetch.key).is_some() {
            running.bound.remove(&fetch.client.id);
        }
        self.metrics.robots_waiting.dec();
    }

    fn update_gauges(&self) {
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        let (entries, metrics) = (self.entries(), &self.metrics);
        metrics.robots_snapshots.set(gauge(entries.len()));
        metrics.robots_snapshot_bytes.set(gauge(entries.bytes()));
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries().len()
    }
}

/// Returns a sender in the form in which an entry stores it.
fn remembered(asker: &Asker) -> Asker {
    // Copied: the values of a request are slices of its whole head, which they would keep
    // in memory.
    let copy = |field: &Option<HeaderValue>| {
        let bytes = field.as_ref().map(HeaderValue::as_bytes)?;
        HeaderValue::from_bytes(bytes).ok()
    };
    Asker {
        client: None,
        entry: asker.entry,
        user_agent: copy(&asker.user_agent),
        from: copy(&asker.from),
    }
}

/// Running fetch that requests may wait for.
///
/// If it is dropped before its end, by a panic or at the end of the runtime, it ends as a
/// failure, so that no request waits for ever.
pub(super) struct RunningFetch {
    pub(super) key: CacheKey,
    /// Key of an answer that applies only to the sender of its requests.
    pub(super) own_key: CacheKey,
    /// Entries that the fetch replaces, from memory or from the store on disk.
    pub(super) known: KnownEntries,
    /// Whether the store may have an entry that has not been read yet. A failure must not
    /// replace it.
    pub(super) is_store_unread: bool,
    /// Client that started the fetch.
    pub(super) client: Arc<Client>,
    /// Sender for which the fetch is made, in the form in which its entry stores it.
    asker: Option<Asker>,
    /// Clients that wait for the fetch, including the one that started it.
    pub(super) clients: watch::Sender<Vec<Arc<Client>>>,
    table: Arc<EntryTable>,
    state: watch::Sender<FetchState>,
    is_refresh: bool,
}

impl RunningFetch {
    /// Returns a receiver for the progress of the fetch.
    pub(super) fn watch(&self) -> watch::Receiver<FetchState> {
        self.state.subscribe()
    }

    /// Reports progress to the waiting requests.
    pub(super) fn report(&self, state: FetchState) {
        self.state.send_replace(state);
    }

    /// Ends the fetch without an entry as soon as no request waits for it. Never returns
    /// for a refresh, for which no request waits.
    pub(super) async fn abandoned(&self) {
        if self.is_refresh {
            return std::future::pending().await;
        }
        loop {
            self.state.closed().await;
            // Requests join under this lock, so none can come in between.
            let mut running = self.table.running();
            if self.state.receiver_count() == 0 {
                self.table.remove_running(&mut running, self);
                return self.report(FetchState::Abandoned);
            }
        }
    }

    /// Returns the entry that follows from `outcome`.
    pub(super) fn entry(&self, mut outcome: FetchOutcome) -> Arc<CacheEntry> {
        // A failure is based on the entry in force. Stored under another key, it would
        // not postpone the refresh.
        let has_own = || {
            let in_force = self.known.in_force();
            in_force.is_some_and(|entry| entry.snapshot.key.sender.is_some())
        };
        let is_own =
            outcome.snapshot.is_for_one_sender() || !outcome.snapshot.is_answer() && has_own();
        let earlier = if is_own {
            outcome.snapshot.key = self.own_key.clone();
            self.known.latest()
        } else {
            self.known.shared.as_deref()
        };
        let mut entry = self.table.entry(&outcome, earlier);
        entry.is_store_unread = self.is_store_unread && !entry.snapshot.is_answer();
        entry.asker.clone_from(&self.asker);
        Arc::new(entry)
    }

    /// Stores the sender's own loaded entry in memory, so that a file in force needs no
    /// refresh yet.
    pub(super) fn hold_own(&self) {
        if let Some(own) = &self.known.own {
            self.table.insert(&own.snapshot.key, own);
        }
    }

    /// Stores the entry, then removes the fetch, then reports the end. In this order a
    /// concurrent request always finds the entry or the fetch, and a request to which the
    /// entry does not apply never finds a fetch that has ended.
    pub(super) fn finish(&self, entry: &Arc<CacheEntry>) {
        let (table, key) = (&self.table, &entry.snapshot.key);
        if key.sender.is_some() {
            table.count_sender(&self.client, key);
        }
        table.insert(key, entry);
        table.remove_running(&mut table.running(), self);
        self.report(FetchState::Done(Arc::clone(entry)));
        table.update_gauges();
    }
}

impl Drop for RunningFetch {
    fn drop(&mut self) {
        let has_ended = matches!(
            *self.state.borrow(),
            FetchState::Done(_) | FetchState::Abandoned
        );
        if !has_ended {
            let outcome = FetchOutcome::failed(&self.key, Cause::Internal);
            self.finish(&self.entry(outcome));
        }
    }
}
