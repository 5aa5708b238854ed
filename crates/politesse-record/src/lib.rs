//! The audit record of [politesse](https://crates.io/crates/politesse): the
//! database of all decisions, each written before it is acted on.
//!
//! Invariant 3 (ARCHITECTURE.md): a receipt is issued once the decision is on disk,
//! and without a receipt there is no permit. While the record cannot be written,
//! every request is refused. No decision is dropped or sampled.
//!
//! The path of a decision: [`AuditLog::record`] queues it (`queue`), the writer
//! thread takes the entries that have arrived (`writer`) and commits them in one
//! transaction (`store`, `transaction`). The record also holds events and saved
//! state, which take the same path but never prevent a decision from being written.
//! `opening` opens the files; `reader` and `verify` read them.
//!
//! Does not know what a decision means, nor what the client was sent.
//!
//! A module uses only modules of the groups below its own:

pub mod bundle;

pub mod host_list;
pub mod overview;

pub mod backup;
pub mod change_effect;
pub mod copy_end;
pub mod entry_window;
pub mod first_seen;
pub mod override_uses;
mod reader_pool;
pub mod replay;
pub mod report;
pub mod report_history;
pub mod robots_changes;
pub mod robots_history;
pub mod robots_versions;
pub mod verify;
mod writer;

pub mod recent_counts;

pub mod speed;

pub mod class_counts;
pub mod stats;

pub mod crawler_sums;

mod counting;
mod number_check;
mod queue;
pub mod reader;
pub mod seal_check;
mod sent_check;
mod store;

pub mod filter;
mod opening;
mod transaction;

pub mod seal_key;
mod sealing;

mod folder;
mod gathering;
mod remaining;
mod removal_order;
pub mod removals;
mod schema;
mod tasks;
pub mod tree_rows;

mod record_id;
mod redaction;
mod retention;
mod rollup;
mod rollup_row;
mod start_check;

mod decision_row;
mod error;
pub mod events;
mod interning;
mod saved_state;
mod sequence;
mod used_values;

mod entry_rows;

mod dictionary_cache;
mod files;
mod joint_digests;
mod pages;
mod wal;

mod ballast;
mod dictionary;
pub mod head;
mod latest;
mod leaf_path;
mod part_tree;
mod parts;
mod pruned;
mod snapshot_row;

pub mod privacy;

mod columns;
mod leaf;
pub mod merkle;
pub mod note;
mod order;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

pub use self::ballast::free_bytes;
use self::columns::count;
pub use self::decision_row::CheckedRecord;
pub use self::error::{AuditError, SealKeyError, WriteError};
use self::error::{PROBE_WAIT, SLOT_WAIT};
use self::events::{ProcessEvent, ProcessEventKind};
pub use self::files::{FileChange, FileFault};
use self::opening::LostEntries;
pub use self::opening::{Options, check_files, check_in_use};
pub use self::order::Direction;
use self::pages::KeyScan;
use self::pruned::PrunedEnd;
pub use self::queue::RecordEnding;
use self::queue::{EntryQueue, PendingDecision, ReservedPlace, WriterTask};
use self::reader::AuditReader;
use self::reader_pool::ReaderPool;
use self::recent_counts::RecentCounts;
use self::record_id::LostHeads;
use self::redaction::{RedactionOrder, count_unredacted};
pub use self::redaction::{RedactionRequest, RedactionStep};
use self::removal_order::RetentionOrder;
pub use self::removal_order::{OrderReason, PruneRequest, SystemUser};
use self::retention::{ArrivedNumber, RemovalState};
use self::saved_state::{BACK_OFFS, SnapshotLookup, load_snapshot, read_back_off, saved_keys};
use self::sealing::SealFault;
pub use self::sealing::{SealOptions, SealTarget};
use self::store::AuditStore;
pub use self::tasks::PrunedNumbers;
use self::tasks::{
    PendingEvent, PendingProcessEvent, PendingSave, PendingSaves, PruneOrder, ResultCount,
};
use self::tree_rows::TreeReader;
pub use self::wal::WalFull;
use self::writer::{AuditWriter, PrunedRows};
use politesse_base::clock;
use politesse_base::metrics::{Metrics, ResultLabel};
use politesse_base::throttle::REPEATING;
use politesse_decision::back_off::{BackOffEvent, SavedBackOff};
use politesse_decision::decide::Receipt;
use politesse_decision::record::Record;
use politesse_decision::snapshot::{CacheKey, StoredSnapshot};
use politesse_robots::Dialect;
use politesse_robots::origin::Host;

/// Maximum number of events waiting for the writer. Events have a queue of their
/// own: a burst of decisions that fills the main queue may also be what makes a
/// site ask for less.
const EVENTS_WAITING_MAX: usize = 4096;

/// Entry point to the record; shared by all exchanges.
#[derive(Debug)]
pub struct AuditLog {
    queue: EntryQueue,
    /// Places in the queue for decisions and snapshots.
    slots: Arc<Semaphore>,
    /// Places in the queue for events.
    event_slots: Arc<Semaphore>,
    /// Age at which entries may be removed, if one is set.
    retention: Option<Duration>,
    /// State of the removal of old entries and of unreferenced values.
    removal: watch::Receiver<RemovalState>,
    pending: Arc<PendingSaves>,
    readers: Arc<ReaderPool>,
    queries: Arc<ReaderPool>,
    /// Newest head.
    heads: watch::Receiver<Option<Arc<str>>>,
    /// Why sealing has stopped, if it has.
    seal_fault: Arc<OnceLock<SealFault>>,
    folder: PathBuf,
    arrived: ArrivedNumber,
    recent: Arc<RecentCounts>,
    metrics: Arc<Metrics>,
}

impl AuditLog {
    /// Opens the record, creating it and its folder if needed, and starts its
    /// writer as a task of `tracker`. The folder stays locked until the writer
    /// ends. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`AuditError::Locked`] if another process has the record open,
    /// [`AuditError::Incomplete`] if entries are missing from it,
    /// [`AuditError::Writable`] if other users may write to it,
    /// [`AuditError::Schema`] if another version wrote it, and errors from creating
    /// and opening its files.
    pub fn open(
        options: &Options,
        metrics: Arc<Metrics>,
        tracker: &TaskTracker,
    ) -> Result<Self, AuditError> {
        let store = AuditStore::open(options, &metrics)?;
        let next = 1 + count(store.last);
        let folder = store.folder.path().to_owned();
        let arrived = store.arrived.clone();
        let recent = Arc::new(RecentCounts::new(store.last));
        let (seal_fault, accepted_loss) = (store.sealer.fault(), store.accepted_loss());
        let loss = store.loss;
        // An exchange needs two places, one for its decision and one for its
        // ending, or it could never finish.
        let places = options.queue.get().clamp(2, Semaphore::MAX_PERMITS);
        let (queue, entries) = EntryQueue::new(places, metrics.audit_queue.clone());
        // An age too long for `SignedDuration` means that entries are never
        // removed.
        let age = options.retention.and_then(|age| age.try_into().ok());
        let event_slots = Arc::new(Semaphore::new(EVENTS_WAITING_MAX));
        // The previous process may have stopped before it delivered its last head.
        let newest = TreeReader::new(&store.connection).newest_seal()?;
        let (newest, heads) = watch::channel(newest.map(|seal| seal.note.into()));
        let retention = store.retention(age)?;
        let is_removing = retention.is_active() || store.erase_due_in().is_some();
        let (state, removal) = watch::channel(match is_removing {
            true => RemovalState::UnderWay,
            false => RemovalState::Settled,
        });
        let writer = AuditWriter {
            store,
            entries,
            is_failing: false,
            next,
            metrics: Arc::clone(&metrics),
            recent: Arc::clone(&recent),
            batch: Vec::new(),
            prune_at: clock::instant(),
            pruned: PrunedRows::default(),
            retention,
            removal: state,
            event_slots: Arc::clone(&event_slots),
            heads: newest,
        };
        tracker.spawn_blocking(move || writer.run());
        let log = Self {
            queue,
            slots: Arc::new(Semaphore::new(places)),
            event_slots,
            retention: options.retention,
            removal,
            pending: Arc::default(),
            readers: Arc::new(ReaderPool::new(options.path.clone())),
            queries: Arc::new(ReaderPool::new(options.path.clone())),
            heads,
            seal_fault,
            folder,
            arrived,
            recent,
            metrics,
        };
        if let Some(LostHeads { known, found }) = accepted_loss {
            let detail = json!({ "known": known, "found": found });
            log.record_process_event(ProcessEvent::now(ProcessEventKind::HeadsLost, detail));
        }
        if let Some(loss) = loss {
            log.record_loss(loss);
        }
        Ok(log)
    }

    /// Logs, and records as an event, that entries of the previous process are
    /// missing.
    fn record_loss(&self, loss: LostEntries) {
        let LostEntries {
            found,
            committed,
            commits,
        } = loss;
        tracing::error!(
            found,
            committed,
            commits,
            "entries of the record are missing: at least {} that the process before had committed, \
             with {commits} commits after a damaged frame of its log; `politesse audit events` has \
             the numbers that were skipped",
            loss.entries()
        );
        let detail = json!({
            "found": found,
            "committed": committed,
            "commits": commits,
            "lost": loss.entries(),
            "lost_until": loss.last_given(),
        });
        self.record_process_event(ProcessEvent::now(ProcessEventKind::EntriesLost, detail));
    }

    /// Opens a record for `prune` or `redact`, with retention disabled. Does not
    /// create a record.
    ///
    /// # Errors
    ///
    /// [`AuditError::Missing`] if there is no record, and those of
    /// [`AuditLog::open`].
    pub fn open_for_command(options: &Options, tracker: &TaskTracker) -> Result<Self, AuditError> {
        if !options.path.exists() {
            return Err(AuditError::Missing(options.path.clone()));
        }
        let unlimited = Options {
            retention: None,
            ..options.clone()
        };
        let log = Self::open(&unlimited, Arc::default(), tracker)?;
        Ok(Self {
            retention: options.retention,
            ..log
        })
    }

    /// Returns the folder of the record, which holds its lock. Symbolic links are
    /// resolved, so that two paths to one database give the same folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Notes that the archive has all entries up to `number`: `audit.retention`
    /// removes no later entry (`Options::waits_for_archive`).
    pub fn set_arrived(&self, number: i64) {
        self.arrived.set(number);
    }

    /// Returns the counts of recently committed decisions.
    pub fn recent(&self) -> &Arc<RecentCounts> {
        &self.recent
    }

    /// Returns how many bytes of the record's disk are free for users other than
    /// root. Blocks for as long as the disk does.
    ///
    /// # Errors
    ///
    /// An I/O error if the folder does not exist.
    pub fn free_bytes(&self) -> std::io::Result<u64> {
        free_bytes(&self.folder)
    }

    /// Returns a receiver of the newest head on disk. It is closed when the record
    /// is, after the last head.
    pub fn heads(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.heads.clone()
    }

    /// Returns why sealing has stopped; `None` while the record is sealed.
    pub fn seal_fault(&self) -> Option<String> {
        self.seal_fault.get().map(ToString::to_string)
    }

    /// Records a decision. It is on disk when this returns.
    ///
    /// If the future is dropped before then and the row is still written, the row
    /// is completed as `client_gone`.
    ///
    /// # Errors
    ///
    /// [`AuditError::Full`] if no place becomes free within a second,
    /// [`AuditError::Write`], [`AuditError::Closed`]: the decision is not in the
    /// record and must not be acted on.
    pub async fn record(&self, record: Record) -> Result<(Receipt, RecordEnding), AuditError> {
        // Both places are acquired at once, because exchanges that each held one
        // and waited for another would deadlock.
        let mut slot = self.slots(2).await?;
        let reserved = ReservedPlace {
            queue: self.queue.clone(),
            slot: slot.split(1).ok_or(AuditError::Closed)?,
        };
        let evidence = Arc::clone(&record.evidence);
        let (pending, committed) = PendingDecision::new(record, reserved);
        self.queue.send(WriterTask::Record(pending), slot)?;
        let ending = wait_for(committed).await?;
        Ok((Receipt::issue(ending.seq(), &evidence), ending))
    }

    /// Checks whether a decision could be written now: the writer writes a probe.
    ///
    /// # Errors
    ///
    /// Those of [`AuditLog::record`], and [`AuditError::Stalled`] after five
    /// seconds.
    pub async fn probe(&self) -> Result<(), AuditError> {
        let probe = async {
            let slot = self.slots(1).await?;
            let (ack, committed) = oneshot::channel();
            self.queue.send(WriterTask::Probe { ack }, slot)?;
            wait_for(committed).await
        };
        timeout(PROBE_WAIT, probe)
            .await
            .map_err(|_| AuditError::Stalled)?
    }

    /// Starts removing the entries of all parts that are older than the time in
    /// `request`, on behalf of `by`, and returns their numbers.
    ///
    /// # Errors
    ///
    /// Those of [`AuditLog::record`]; [`AuditError::TooYoung`] if entries are
    /// younger than `audit.retention` and the request does not allow that;
    /// [`AuditError::Stalled`] after five seconds.
    pub async fn prune(
        &self,
        request: PruneRequest,
        by: String,
    ) -> Result<PrunedNumbers, AuditError> {
        let before = request.before;
        let youngest = self
            .readers
            .read(move |connection| PrunedEnd::read(connection)?.youngest_due(connection, before))
            .await?;
        request.check_age(youngest, self.retention)?;
        let prune = async {
            let slot = self.slots(1).await?;
            let (ack, pruned) = oneshot::channel();
            let order = PruneOrder {
                order: RetentionOrder {
                    before,
                    by,
                    reason: Some(request.reason),
                    retention: self.retention,
                },
                ack,
            };
            self.queue.send(WriterTask::Prune(order), slot)?;
            wait_for(pruned).await
        };
        timeout(PROBE_WAIT, prune)
            .await
            .map_err(|_| AuditError::Stalled)?
    }

    /// Waits until the removals started by [`AuditLog::prune`] and
    /// [`AuditLog::redact`] are complete.
    ///
    /// # Errors
    ///
    /// [`AuditError::Write`] if a step failed (the writer retries it later), and
    /// [`AuditError::Closed`].
    pub async fn settled(&self) -> Result<(), AuditError> {
        let mut removal = self.removal.clone();
        let is_over = |state: &RemovalState| !matches!(state, RemovalState::UnderWay);
        let state = removal.wait_for(is_over).await;
        match &*state.map_err(|_| AuditError::Closed)? {
            RemovalState::Failed(error) => Err(AuditError::Write(Arc::clone(error))),
            RemovalState::Settled | RemovalState::UnderWay => Ok(()),
        }
    }

    /// Runs the next step of a redaction on behalf of `by`. A step searches a range
    /// of numbers and redacts the decisions that `request` selects there, which may
    /// be none.
    ///
    /// # Errors
    ///
    /// Those of [`AuditLog::record`], and [`AuditError::Read`].
    pub async fn redact(
        &self,
        request: RedactionRequest,
        by: String,
    ) -> Result<RedactionStep, AuditError> {
        let asked = request.clone();
        let chosen = self
            .readers
            .read(move |connection| asked.find(connection))
            .await?;
        let step = RedactionStep {
            count: chosen.numbers.len() as u64,
            damaged: 0,
            after: chosen.after,
        };
        if request.is_trial || chosen.numbers.is_empty() {
            return Ok(step);
        }
        let numbers = chosen.numbers.clone();
        let order = RedactionOrder {
            numbers,
            by,
            request,
        };
        let slot = self.slots(1).await?;
        let (ack, committed) = oneshot::channel();
        self.queue.send(WriterTask::Redact { order, ack }, slot)?;
        wait_for(committed).await?;
        // Altered rows are left as they are, because redaction would hide the
        // change. Other rows may have been removed by retention in the meantime.
        let damaged = self
            .readers
            .read(move |connection| count_unredacted(connection, &chosen.numbers))
            .await?;
        Ok(RedactionStep {
            count: step.count.saturating_sub(damaged),
            damaged,
            ..step
        })
    }

    /// Runs `query` on a reader of this record, on its own thread. The query is
    /// interrupted after `longest`.
    ///
    /// # Errors
    ///
    /// Those of `query`; [`AuditError::QueryBusy`], [`AuditError::QueryTimeout`],
    /// [`AuditError::Closed`], and errors from opening the database.
    pub async fn query<T: Send + 'static>(
        &self,
        longest: Duration,
        query: impl FnOnce(&AuditReader) -> Result<T, AuditError> + Send + 'static,
    ) -> Result<T, AuditError> {
        self.queries.ask(longest, query).await
    }

    /// Stops accepting entries. The writer writes the queued entries, moves the WAL
    /// into the database and ends. Must be called after the last exchange, because
    /// later endings are not written.
    pub fn close(&self) {
        self.slots.close();
        self.readers.close();
        self.queries.close();
        self.queue.close();
    }

    /// Records a back-off event, and saves or deletes the state that the next
    /// process needs for the host. Does not wait: an event that finds no free place
    /// is lost, and counted as such.
    pub fn record_event(&self, event: BackOffEvent) {
        let count = ResultCount::new(&self.metrics.audit_events);
        let pending = PendingEvent { event, count };
        if let Ok(slot) = Arc::clone(&self.event_slots).try_acquire_owned() {
            // If the writer has ended, the event is dropped, which counts it as
            // lost.
            self.queue
                .send(WriterTask::Event(pending), slot)
                .unwrap_or_default();
        }
    }

    /// Records an event of the proxy itself; some kinds also state how many
    /// requests have been sent so far. Does not wait. A queued event is retried
    /// until it is written; an event that finds no free place is lost, and counted
    /// as such.
    pub fn record_process_event(&self, event: ProcessEvent) {
        let pending = PendingProcessEvent::new(event, &self.metrics);
        if let Ok(slot) = Arc::clone(&self.event_slots).try_acquire_owned() {
            self.queue
                .send(WriterTask::Process(pending), slot)
                .unwrap_or_default();
        }
    }

    /// Reads the long back-offs of the previous process. Called once, at startup.
    /// Unreadable back-offs are logged and count as absent.
    pub fn saved_back_offs(&self) -> Vec<SavedBackOff> {
        let read = self.readers.read_now(|connection| {
            let mut scan = KeyScan::new(connection, BACK_OFFS);
            let mut rows = Vec::new();
            while let Some(page) = scan.next_page(read_back_off)? {
                rows.extend(page);
            }
            Ok(rows)
        });
        let rows = read.unwrap_or_else(|error| {
            tracing::warn!(%error, "saved back-offs cannot be read");
            Vec::new()
        });
        // A host whose row was altered is asked a little sooner than it wanted.
        // That is better than refusing to start.
        let changed = rows.iter().filter(|row| row.is_none()).count();
        if 0 < changed {
            tracing::warn!(changed, "saved back-offs were altered");
        }
        rows.into_iter().flatten().collect()
    }

    /// Saves the newest snapshot of a robots.txt, replacing the one saved for the
    /// same origin and token.
    ///
    /// [`AuditLog::saved_snapshot`] finds it as soon as this is called. Snapshots
    /// share the queue of decisions and keep their order: if a snapshot is saved
    /// before a decision that relies on it, it also reaches the disk first. The
    /// future waits only for a free place in the queue, for at most a second.
    pub fn save_snapshot(&self, snapshot: StoredSnapshot) -> impl Future<Output = ()> + Send + '_ {
        let waiting = if snapshot.is_of_the_origin() {
            let count = ResultCount::new(&self.metrics.robots_saved);
            let save = self.pending.begin(snapshot, count);
            match Arc::clone(&self.slots).try_acquire_owned() {
                Ok(slot) => {
                    self.queue_save(save, slot);
                    None
                }
                Err(_) => Some(save),
            }
        } else {
            None
        };
        async move {
            if let Some(save) = waiting
                && let Ok(slot) = self.slots(1).await
            {
                self.queue_save(save, slot);
            }
        }
    }

    /// Returns the newest snapshot saved for `key`, its file parsed with `dialect`.
    /// An altered snapshot counts as absent, so that robots.txt is fetched again.
    ///
    /// # Errors
    ///
    /// [`AuditError`] if the record cannot be read; the error is also logged.
    pub async fn saved_snapshot(
        &self,
        key: &CacheKey,
        dialect: Dialect,
    ) -> Result<Option<StoredSnapshot>, AuditError> {
        if let Some(snapshot) = self.pending.find(key) {
            self.count_load("pending");
            return Ok(Some(snapshot.read_by(dialect)));
        }
        let wanted = key.clone();
        let load = move |connection: &Connection| load_snapshot(connection, &wanted, dialect);
        let origin = &key.origin;
        let (result, snapshot) = match self.readers.read(load).await {
            Ok(SnapshotLookup::Saved(snapshot)) => ("kept", Ok(Some(snapshot))),
            Ok(SnapshotLookup::Absent) => ("nothing", Ok(None)),
            Ok(SnapshotLookup::Altered) => {
                tracing::warn!(target: REPEATING, %origin, "a saved robots.txt was altered");
                ("changed", Ok(None))
            }
            Err(AuditError::Closed) => ("closed", Err(AuditError::Closed)),
            Err(error) => {
                tracing::warn!(target: REPEATING, %error, %origin, "a saved robots.txt cannot be read");
                ("failed", Err(error))
            }
        };
        self.count_load(result);
        snapshot
    }

    /// Returns the keys of all snapshots on disk for origins at `host`.
    ///
    /// # Errors
    ///
    /// [`AuditError`] if the record cannot be read.
    pub async fn saved_snapshot_keys(&self, host: &Host) -> Result<Vec<CacheKey>, AuditError> {
        let host = host.clone();
        let read = move |connection: &Connection| saved_keys(connection, &host);
        self.readers.read(read).await
    }

    fn queue_save(&self, save: PendingSave, slot: OwnedSemaphorePermit) {
        // After the end of the writer the save is dropped, which counts it as lost.
        self.queue
            .send(WriterTask::SaveSnapshot(save), slot)
            .unwrap_or_default();
    }

    fn count_load(&self, result: &'static str) {
        let counter = &self.metrics.robots_loaded;
        counter.get_or_create(&ResultLabel { result }).inc();
    }

    /// Waits for `count` places in the queue.
    async fn slots(&self, count: u32) -> Result<OwnedSemaphorePermit, AuditError> {
        let slots = Arc::clone(&self.slots).acquire_many_owned(count);
        timeout(SLOT_WAIT, slots)
            .await
            .map_err(|_| AuditError::Full)?
            .map_err(|_| AuditError::Closed)
    }
}

async fn wait_for<T>(
    committed: oneshot::Receiver<Result<T, Arc<WriteError>>>,
) -> Result<T, AuditError> {
    let result = committed.await.map_err(|_| AuditError::Closed)?;
    result.map_err(AuditError::Write)
}

#[cfg(test)]
mod tests;
