//! Audit record of [politesse](https://crates.io/crates/politesse): the database of all
//! decisions, each written before it is acted on.
//!
//! Invariant 3 (ARCHITECTURE.md): a receipt is given when the decision is on
//! disk, and without a receipt there is no permit.
//! While the record cannot be written every request is refused; nothing is
//! dropped and nothing is sampled.
//!
//! The way of a decision: [`AuditLog::record`] queues it (`queue`), the thread
//! of the writer takes what has come in (`writer`) and commits it in one
//! transaction (`store`, `transaction`). Beside decisions the record holds
//! events and saved state, which go the same way and keep no decision out. The
//! files are opened in `opening`; `reader` and `verify` read them.
//!
//! Does not know what a decision means, nor what was answered.
//!
//! A module uses only those of the groups below its own:

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

/// Events that may wait for the writer. They have a queue of their own: what
/// fills that of the decisions may well be what makes a site ask for less.
const EVENTS_WAITING_MAX: usize = 4096;

/// Way into the record, for any number of exchanges at once.
#[derive(Debug)]
pub struct AuditLog {
    queue: EntryQueue,
    /// Places in the queue for decisions and snapshots.
    slots: Arc<Semaphore>,
    /// Places in the queue for events.
    event_slots: Arc<Semaphore>,
    /// Age from which on entries may be removed, if it is set.
    retention: Option<Duration>,
    /// State of the removal of old entries, and of values that nothing refers to.
    removal: watch::Receiver<RemovalState>,
    pending: Arc<PendingSaves>,
    readers: Arc<ReaderPool>,
    queries: Arc<ReaderPool>,
    /// The newest head.
    heads: watch::Receiver<Option<Arc<str>>>,
    /// Reason why the record is not sealed any further.
    seal_fault: Arc<OnceLock<SealFault>>,
    folder: PathBuf,
    arrived: ArrivedNumber,
    recent: Arc<RecentCounts>,
    metrics: Arc<Metrics>,
}

impl AuditLog {
    /// Opens the record, made with its folder if it is not there, and starts its
    /// writer as a task of `tracker`. The folder is locked until the writer
    /// ends. To be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`AuditError::Locked`] if another process has it,
    /// [`AuditError::Incomplete`] if it holds less than it did,
    /// [`AuditError::Writable`] if others may write to it,
    /// [`AuditError::Schema`] if another version wrote it, and those of making and
    /// opening its files.
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
        // An exchange needs two places, one for its record and one for its
        // ending.
        let places = options.queue.get().clamp(2, Semaphore::MAX_PERMITS);
        let (queue, entries) = EntryQueue::new(places, metrics.audit_queue.clone());
        // Longer ages than there are mean that entries stay.
        let age = options.retention.and_then(|age| age.try_into().ok());
        let event_slots = Arc::new(Semaphore::new(EVENTS_WAITING_MAX));
        // One of the previous process may not have been delivered.
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

    /// Writes an event, and logs, that entries of the process before are gone.
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

    /// Opens a record for a command that takes something away: nothing else goes by age,
    /// and no record is made where there is none.
    ///
    /// # Errors
    ///
    /// [`AuditError::Missing`], and those of [`AuditLog::open`].
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

    /// Returns the folder of the record, where its lock is, without symbolic
    /// links: two names of one database are one record.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes in that all entries up to `number` have arrived in the archive: by
    /// `audit.retention` no later one is removed (`Options::waits_for_archive`).
    pub fn set_arrived(&self, number: i64) {
        self.arrived.set(number);
    }

    /// Returns the counts of the decisions that were committed recently.
    pub fn recent(&self) -> &Arc<RecentCounts> {
        &self.recent
    }

    /// Returns the bytes that are free on the disk of the record, for others than
    /// root. It blocks for as long as the disk does.
    ///
    /// # Errors
    ///
    /// An I/O error if the folder is not there.
    pub fn free_bytes(&self) -> std::io::Result<u64> {
        free_bytes(&self.folder)
    }

    /// Returns a receiver of the newest head, which is on disk. It is closed when the
    /// record is, after the last head.
    pub fn heads(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.heads.clone()
    }

    /// Returns the reason why the record is not sealed any further, if it is not.
    pub fn seal_fault(&self) -> Option<String> {
        self.seal_fault.get().map(ToString::to_string)
    }

    /// Writes a decision down. When this returns it is on disk; [`AuditError::Full`]
    /// comes after a second.
    ///
    /// If the future is dropped meanwhile, the row, if there will be one, is
    /// completed as `client_gone`.
    ///
    /// # Errors
    ///
    /// [`AuditError::Full`], [`AuditError::Write`], [`AuditError::Closed`]: the
    /// decision is not in the record and must not be acted on.
    pub async fn record(&self, record: Record) -> Result<(Receipt, RecordEnding), AuditError> {
        // Both places at once: exchanges that each held one and waited for
        // another would wait for ever.
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

    /// Finds out whether a decision could be written now: the writer tries.
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

    /// Begins to remove the entries of all parts that are older than the moment of
    /// `request`, by order of `by`, and returns their numbers.
    ///
    /// # Errors
    ///
    /// Those of [`AuditLog::record`], [`AuditError::TooYoung`], and
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

    /// Waits until nothing is being removed any more of what [`AuditLog::prune`] and
    /// [`AuditLog::redact`] have begun with.
    ///
    /// # Errors
    ///
    /// [`AuditError::Write`] if a step failed, which is tried again later, and
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

    /// Takes the next step of a redaction, by order of `by`: some decisions that
    /// `request` chooses, or none among the next numbers.
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
        // Those that are not as they were written stay as they are. Others may have been
        // removed by their age since.
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

    /// Asks `query` of a reader of this record, on a thread of its own. It is
    /// interrupted after `longest`.
    ///
    /// # Errors
    ///
    /// Those of `query`; [`AuditError::QueryBusy`], [`AuditError::QueryTimeout`],
    /// [`AuditError::Closed`], and those of opening the database.
    pub async fn query<T: Send + 'static>(
        &self,
        longest: Duration,
        query: impl FnOnce(&AuditReader) -> Result<T, AuditError> + Send + 'static,
    ) -> Result<T, AuditError> {
        self.queries.ask(longest, query).await
    }

    /// Takes no more entries; the writer writes those it has, moves the WAL
    /// into the file and ends. To be called after the last exchange: an ending
    /// that comes later is not written.
    pub fn close(&self) {
        self.slots.close();
        self.readers.close();
        self.queries.close();
        self.queue.close();
    }

    /// Writes an event, and saves or forgets what the next process must know of
    /// the host. Does not wait: an event that finds no place is lost, and
    /// counted.
    pub fn record_event(&self, event: BackOffEvent) {
        let count = ResultCount::new(&self.metrics.audit_events);
        let pending = PendingEvent { event, count };
        if let Ok(slot) = Arc::clone(&self.event_slots).try_acquire_owned() {
            // A writer that has ended drops the event, which counts it as lost.
            self.queue
                .send(WriterTask::Event(pending), slot)
                .unwrap_or_default();
        }
    }

    /// Writes an event of the proxy itself, with the count of requests that were
    /// sent until now where it states one. Does not wait. Once queued it is tried
    /// until it is written; one that finds no place is lost, and counted.
    pub fn record_process_event(&self, event: ProcessEvent) {
        let pending = PendingProcessEvent::new(event, &self.metrics);
        if let Ok(slot) = Arc::clone(&self.event_slots).try_acquire_owned() {
            self.queue
                .send(WriterTask::Process(pending), slot)
                .unwrap_or_default();
        }
    }

    /// Reads the long back-offs of the previous process; to be called once, at the
    /// start. Those that cannot be read count as absent, and are logged.
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
            tracing::warn!(%error, "kept back-offs cannot be read");
            Vec::new()
        });
        // A host whose row was altered is asked a little sooner than it wanted,
        // so that nothing has to stop.
        let changed = rows.iter().filter(|row| row.is_none()).count();
        if 0 < changed {
            tracing::warn!(changed, "kept back-offs are not as they were written");
        }
        rows.into_iter().flatten().collect()
    }

    /// Saves the last that is known of a robots.txt, in place of what was known
    /// for the same origin and token.
    ///
    /// From the call on, [`AuditLog::saved_snapshot`] finds it. Saves go the
    /// way of decisions, in the order of the calls: no decision is on disk
    /// before the snapshot it rests on is, if that was saved first. The future
    /// waits for a place in the queue if there is none, and for nothing else;
    /// after a second it gives up.
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

    /// Finds the snapshot that was saved last for `key`, its file parsed by
    /// `dialect`. One that was altered counts as absent: the site is asked.
    ///
    /// # Errors
    ///
    /// [`AuditError`] if the record cannot be read, which the log tells.
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
                tracing::warn!(target: REPEATING, %origin, "a kept robots.txt is not as it was written");
                ("changed", Ok(None))
            }
            Err(AuditError::Closed) => ("closed", Err(AuditError::Closed)),
            Err(error) => {
                tracing::warn!(target: REPEATING, %error, %origin, "a kept robots.txt cannot be read");
                ("failed", Err(error))
            }
        };
        self.count_load(result);
        snapshot
    }

    /// Finds the keys under which snapshots of origins at `host` are saved on disk.
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
        // A save that comes after the end of the writer is dropped, which counts
        // it as lost.
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
