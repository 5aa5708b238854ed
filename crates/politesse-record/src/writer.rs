//! Writer: the thread that owns the store. Makes batches, commits them, and keeps
//! entries that must not be lost for another try.
//!
//! One transaction holds all entries that arrived while the previous one was being
//! synced, so that a slow disk makes batches larger instead of reducing rows per
//! second. An entry keeps its place in the queue until it is written or refused, so
//! the size of the queue also bounds the entries that cannot be written yet.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::columns::signed;
use super::error::{WriteError, is_full_disk};
use super::events::{ProcessEvent, ProcessEventKind};
use super::gathering::CommitAnswers;
use super::pruned::{PrunedEnd, youngest};
use super::queue::{EntryReceiver, WriterEntry, WriterTask, count_awaited};
use super::recent_counts::RecentCounts;
use super::removal_order::RetentionOrder;
use super::retention::{RemovalState, Retention};
use super::store::{AuditStore, PRUNE_BACK_OFFS, PRUNE_SNAPSHOTS};
use super::tasks::{PendingProcessEvent, PruneOrder, PrunedNumbers};
use super::transaction::{AuditTransaction, EndingNumbers};
use politesse_base::clock;
use politesse_base::metrics::{Metrics, ResultLabel};
use politesse_base::throttle::REPEATING;

/// Time after which the batch is retried although no entry has arrived. Entries
/// that could not be written may hold all places, and then none can arrive.
const RETRY_TIME: Duration = Duration::from_secs(1);

/// Time for which a saved snapshot is kept after its expiry. No file is used for
/// longer while its site is unreachable (`robots.stale`).
const SNAPSHOT_KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Time for which a saved back-off is kept after its end. It is forgiven long
/// before.
const BACK_OFF_KEPT: SignedDuration = SignedDuration::from_hours(24);

/// Maximum number of rows removed in one transaction, because decisions wait
/// meanwhile.
const PRUNED_MAX: usize = 1000;

/// Time between two searches for rows to remove.
const PRUNE_EVERY: Duration = Duration::from_secs(60 * 60);

/// Time to the next search if there were more than [`PRUNED_MAX`] rows.
const PRUNE_AGAIN: Duration = Duration::from_secs(10);

/// Number of entries answered before other tasks may run, which takes some tens of
/// microseconds.
const ENDED_AT_ONCE: usize = 256;

/// Owner of the store; there is only one.
#[derive(Debug)]
pub(super) struct AuditWriter {
    /// The store.
    pub(super) store: AuditStore,
    /// Receiver of entries.
    pub(super) entries: EntryReceiver,
    /// Whether the last attempt to write failed.
    pub(super) is_failing: bool,
    /// Number of the next entry.
    pub(super) next: u64,
    /// Metrics of commits.
    pub(super) metrics: Arc<Metrics>,
    /// Counts of the committed decisions.
    pub(super) recent: Arc<RecentCounts>,
    /// Entries to be written next, in the order of arrival.
    pub(super) batch: Vec<WriterEntry>,
    /// Time of the next search for rows to remove.
    pub(super) prune_at: Instant,
    /// Removed rows that no event states yet.
    pub(super) pruned: PrunedRows,
    /// Removal of entries by age.
    pub(super) retention: Retention,
    /// State of the removal, for the tasks that wait for its end.
    pub(super) removal: watch::Sender<RemovalState>,
    /// Places in the queue for events.
    pub(super) event_slots: Arc<Semaphore>,
    /// Newest head, for the exporters.
    pub(super) heads: watch::Sender<Option<Arc<str>>>,
}

/// Number of removed rows of saved state.
#[derive(Debug, Default)]
pub(super) struct PrunedRows {
    snapshots: usize,
    back_offs: usize,
}

impl AuditWriter {
    /// Writes entries until the queue is closed, then all that are left.
    pub(super) fn run(mut self) {
        while self.receive() {
            self.take_turn();
        }
        if !self.batch.is_empty() {
            self.take_turn();
        }
        let lost = self.batch.len();
        if 0 < lost {
            tracing::error!(
                lost,
                "entries of the audit log could not be written before the end"
            );
        }
        if self.batch.is_empty() {
            self.seal();
        }
        self.store.close();
    }

    fn receive(&mut self) -> bool {
        let retry = match self.batch.is_empty() {
            true => self.store.sealer.due_in(),
            false => Some(RETRY_TIME),
        };
        let upkeep = [self.retention.due_in(), self.store.erase_due_in()];
        let patience = upkeep.into_iter().chain([retry]).flatten().min();
        self.entries.receive(&mut self.batch, patience)
    }

    /// Tries to write the batch. Entries that must be retried stay in it.
    fn take_turn(&mut self) {
        let taken = self.batch.len();
        let orders = self.take_orders();
        if !self.batch.is_empty() {
            match self.commit_what_can_be() {
                Ok(()) => {
                    self.accept();
                    // Runs after the answers, because no request waits for it.
                    self.prune();
                    self.store.checkpoint_if_due();
                }
                Err(error @ WriteError::FilesAfterCommit(_)) => self.disown(error),
                Err(error) => self.refuse(error),
            }
        }
        let settled = i64::try_from(taken - self.batch.len()).unwrap_or(i64::MAX);
        self.metrics.audit_queue.dec_by(settled);
        // Growing the tree also comes after the answers.
        self.store.sealer.grow();
        let is_due = self
            .store
            .sealer
            .due_in()
            .is_some_and(|left| left.is_zero());
        if is_due && self.batch.is_empty() {
            self.seal();
        }
        let unsealed = i64::try_from(self.store.unsealed()).unwrap_or(i64::MAX);
        self.metrics.audit_unsealed.set(unsealed);
        for order in orders {
            self.seal_before_removal();
            let pruned = self.remove_entries(order.order).map_err(Arc::new);
            // Before the answer, because the receiver may then wait for the end of
            // the removal.
            self.tell_removal();
            // The receiver may be gone, but the order is carried out all the same.
            order.ack.send(pruned).unwrap_or_default();
        }
        self.apply_retention();
        if self.store.erase_due_in().is_some_and(|left| left.is_zero()) {
            self.store.erase_from_wal();
        }
        self.tell_removal();
    }

    /// Publishes whether a removal is in progress.
    fn tell_removal(&self) {
        if self.retention.is_paused() {
            return;
        }
        if let Some(fault) = self.store.erase_fault() {
            let error = Arc::new(WriteError::Files(fault));
            self.removal.send_replace(RemovalState::Failed(error));
            return;
        }
        // Data that are still in the WAL are not gone yet.
        let is_active = self.retention.is_active() || self.store.erase_due_in().is_some();
        self.removal.send_if_modified(|state| {
            let was_active = matches!(state, RemovalState::UnderWay);
            if is_active != was_active {
                *state = match is_active {
                    true => RemovalState::UnderWay,
                    false => RemovalState::Settled,
                };
            }
            is_active != was_active
        });
    }

    /// Makes a head of all committed entries. A failure is logged and retried
    /// later; no request is refused because of it.
    fn seal(&mut self) {
        if let Err(error) = self.make_head() {
            tracing::warn!(target: REPEATING, %error, "a head of the record could not be written");
        }
    }

    fn make_head(&mut self) -> Result<(), WriteError> {
        let made = self.store.seal();
        let result = match &made {
            Ok(None) => return Ok(()),
            Ok(Some(note)) => {
                self.heads.send_replace(Some(note.as_str().into()));
                let now = clock::now().as_second();
                self.metrics.audit_last_seal_timestamp_seconds.set(now);
                "made"
            }
            Err(_) => "failed",
        };
        let seals = &self.metrics.audit_seals;
        seals.get_or_create(&ResultLabel { result }).inc();
        made.map(drop)
    }

    /// Makes a head that covers the entries to be removed, because only sealed
    /// entries can be removed. On a full disk the ballast makes room for it.
    fn seal_before_removal(&mut self) {
        if let Err(error) = self.make_head()
            && self.makes_room_for(&error)
        {
            self.seal();
        }
    }

    /// Takes removal orders out of the batch, because they are not entries.
    fn take_orders(&mut self) -> Vec<PruneOrder> {
        let is_order = |entry: &mut WriterEntry| matches!(entry.task, WriterTask::Prune(_));
        let mut orders = Vec::new();
        for entry in self.batch.extract_if(.., is_order) {
            if let WriterTask::Prune(order) = entry.task {
                orders.push(order);
            }
        }
        orders
    }

    /// Starts the removal that `order` asks for, and records it as an event.
    fn remove_entries(&mut self, order: RetentionOrder) -> Result<PrunedNumbers, WriteError> {
        let before = order.before;
        let pruned = match self.store.begin_to_prune(before) {
            Err(error) if self.makes_room_for(&error) => self.store.begin_to_prune(before)?,
            begun => begun?,
        };
        if self.store.is_held_back {
            self.retention.wait_for_arrival();
        }
        let connection = &self.store.connection;
        let end = PrunedEnd::read(connection)?;
        if pruned.first <= pruned.last {
            let (first, last) = (pruned.first, end.last);
            let youngest = youngest(connection, signed(first)..=last)?;
            self.record_pruned(order.event_detail(last, youngest));
            tracing::info!(first, last, %before, "old entries of the record are removed");
            self.retention.begin(end);
            self.retention.keep_order(order);
        }
        Ok(pruned)
    }

    /// Drops the ballast if `error` says that the disk is full. Returns whether
    /// that made room.
    fn makes_room_for(&mut self, error: &WriteError) -> bool {
        let is_full = matches!(error, WriteError::Sqlite(error) if is_full_disk(error));
        is_full && self.store.ballast.drop_it()
    }

    /// Runs one step of the removal of old entries, if one is due.
    fn apply_retention(&mut self) {
        if self.retention.is_paused() {
            return;
        }
        // The rest of an order comes before the search for unused values, which is
        // run once all entries are gone.
        let rest = self.retention.take_rest();
        let is_step = self.retention.is_active();
        let done = match rest.clone().or_else(|| self.retention.search()) {
            Some(order) => self.remove_entries(order).map(drop),
            None if self.retention.is_active() => self.store.retain(&mut self.retention),
            None => return,
        };
        let Err(error) = done else {
            return;
        };
        if is_step {
            self.retention.rewind();
        }
        if let Some(order) = rest {
            self.retention.keep_order(order);
        }
        if self.makes_room_for(&error) {
            return;
        }
        self.retention.fail();
        tracing::warn!(target: REPEATING, %error, "old entries of the record cannot be removed");
        self.removal
            .send_replace(RemovalState::Failed(Arc::new(error)));
    }

    /// Commits the batch. If that fails, tries again without snapshots and events:
    /// entries that no decision rests on must not prevent one from being written.
    fn commit_what_can_be(&mut self) -> Result<(), WriteError> {
        let error = match self.commit() {
            Err(WriteError::Sqlite(error)) => error,
            done => return done,
        };
        let all = self.batch.len();
        self.batch.retain(|entry| !entry.task.is_dispensable());
        let given_up = all - self.batch.len();
        if given_up == 0 || self.batch.is_empty() {
            return Err(error.into());
        }
        self.commit()?;
        tracing::warn!(target: REPEATING, %error, lost = given_up, "robots.txt snapshots or events could not be saved");
        Ok(())
    }

    /// Commits the batch. Only a commit uses up numbers: those of a failed batch
    /// are issued again.
    fn commit(&mut self) -> Result<(), WriteError> {
        let batch = &mut self.batch;
        let mut next = self.next;
        let start = clock::instant();
        let done = self.store.write(|transaction| {
            batch
                .iter_mut()
                .try_for_each(|entry| write(&mut entry.task, transaction, &mut next))
        });
        let taken = clock::instant().duration_since(start);
        self.metrics
            .audit_commit_seconds
            .observe(taken.as_secs_f64());
        if matches!(done, Ok(()) | Err(WriteError::FilesAfterCommit(_))) {
            self.next = next;
            let answers = CommitAnswers {
                awaited: count_awaited(&self.batch),
                duration: taken,
            };
            self.entries.note_commit(answers);
        }
        done
    }

    fn accept(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("the audit log can be written again");
        }
        // Before the answers, because a client that has its answer may look at the
        // counts.
        self.recent.note(&mut self.batch);
        let is_redacted = self.has_redaction();
        if is_redacted {
            self.retention.look_for_unused();
            // Before the answers, because a receiver may then wait for the end of
            // the removal.
            self.tell_removal();
        }
        let mut ended = Vec::with_capacity(self.batch.len());
        for entry in self.batch.drain(..) {
            if entry.task.is_by_client() {
                self.metrics.clients_gone.inc();
            }
            match entry.task.is_counted() {
                true => entry.task.end(Ok(())),
                false => ended.push(entry),
            }
        }
        if !ended.is_empty() {
            // Answered by one task of the runtime: from this thread, each answer
            // would cost a system call to wake the runtime. An allocator also frees
            // memory more cheaply on the thread that allocated it, and on a single
            // processor the runtime has only one thread.
            Handle::current().spawn(end_written(ended));
        }
        if is_redacted {
            self.store.erase_from_wal();
        }
    }

    fn has_redaction(&self) -> bool {
        let is_redaction = |entry: &WriterEntry| matches!(entry.task, WriterTask::Redact { .. });
        self.batch.iter().any(is_redaction)
    }

    /// Acknowledges nothing in a batch that was committed to files which may not be
    /// found again. Its numbers are used up and it is not written again: if the
    /// files come back, they contain it.
    fn disown(&mut self, error: WriteError) {
        let error = self.note_failure(error);
        if self.has_redaction() {
            self.retention.look_for_unused();
            self.store.erase_from_wal();
            self.tell_removal();
        }
        for entry in self.batch.drain(..) {
            entry.task.end(Err(Arc::clone(&error)));
        }
    }

    /// Refuses the entries that were not accepted, and keeps the rest for another
    /// try.
    fn refuse(&mut self, error: WriteError) {
        let error = self.note_failure(error);
        let refused = self.batch.extract_if(.., |entry| !entry.task.is_accepted());
        for entry in refused {
            entry.task.end(Err(Arc::clone(&error)));
        }
        for entry in &mut self.batch {
            entry.task.answer_failure(&error);
        }
    }

    fn note_failure(&mut self, error: WriteError) -> Arc<WriteError> {
        self.metrics.audit_failures.inc();
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(%error, "the audit log cannot be written: every request is refused");
            // On a full disk, removing old entries may make room.
            self.retention.search_now();
        }
        Arc::new(error)
    }

    /// Removes expired snapshots and back-offs, at intervals and a limited number
    /// at a time.
    fn prune(&mut self) {
        let now = clock::instant();
        if now < self.prune_at {
            return;
        }
        self.store.ballast.take_up();
        let wall_now = clock::now();
        let store = &self.store;
        let snapshots = store.prune(PRUNE_SNAPSHOTS, wall_now - SNAPSHOT_KEPT, PRUNED_MAX);
        let back_offs = store.prune(PRUNE_BACK_OFFS, wall_now - BACK_OFF_KEPT, PRUNED_MAX);
        let mut is_done = true;
        let mut add = |pruned: rusqlite::Result<usize>, sum: &mut usize| match pruned {
            Ok(pruned) => {
                *sum += pruned;
                is_done &= pruned < PRUNED_MAX;
            }
            Err(error) => {
                tracing::warn!(%error, "expired snapshots or back-offs could not be removed");
            }
        };
        add(snapshots, &mut self.pruned.snapshots);
        add(back_offs, &mut self.pruned.back_offs);
        if is_done {
            self.record_saved_state_pruned();
        }
        self.prune_at = now + if is_done { PRUNE_EVERY } else { PRUNE_AGAIN };
    }

    /// Records an event that states how many rows were removed, if any. A search
    /// gives one event, even if it took several steps.
    fn record_saved_state_pruned(&mut self) {
        let PrunedRows {
            snapshots,
            back_offs,
        } = std::mem::take(&mut self.pruned);
        if snapshots + back_offs == 0 {
            return;
        }
        self.record_pruned(json!({ "robots": snapshots, "back_offs": back_offs }));
    }

    fn record_pruned(&self, detail: Value) {
        let event = ProcessEvent::now(ProcessEventKind::Pruned, detail);
        let pending = PendingProcessEvent::new(event, &self.metrics);
        // If there is no free place or the queue is closed, the event is counted as
        // lost.
        if let Ok(slot) = Arc::clone(&self.event_slots).try_acquire_owned() {
            let task = WriterTask::Process(pending);
            self.entries.send(task, slot).unwrap_or_default();
        }
    }
}

/// Answers entries that were written, and yields to other tasks in between: after a
/// failure there may be as many entries as places in the queue.
async fn end_written(entries: Vec<WriterEntry>) {
    for (count, entry) in (1..).zip(entries) {
        entry.task.end(Ok(()));
        if count % ENDED_AT_ONCE == 0 {
            yield_now().await;
        }
    }
}

/// Writes the entry of `task`. An entry gets the number `next`.
fn write(
    task: &mut WriterTask,
    transaction: &mut AuditTransaction<'_>,
    next: &mut u64,
) -> rusqlite::Result<()> {
    let mut number = || {
        *next += 1;
        *next - 1
    };
    match task {
        WriterTask::Record(pending) => {
            pending.seq = number();
            transaction.write_decision(pending.seq, &pending.record)
        }
        WriterTask::Complete { seq, outcome, .. } => {
            let numbers = EndingNumbers {
                decision: *seq,
                seq: number(),
            };
            transaction.write_ending(numbers, outcome)
        }
        // Checked before a number is taken, because an event that is not written
        // needs none.
        WriterTask::Event(pending) if transaction.is_repeated(&pending.event)? => Ok(()),
        WriterTask::Event(pending) => transaction.write_event(number(), &pending.event),
        WriterTask::Process(pending) => transaction.write_process_event(number(), pending),
        WriterTask::Redact { order, .. } => transaction.redact(number(), order),
        WriterTask::SaveSnapshot(save) => transaction.save_snapshot(&save.snapshot),
        // Orders were taken out of the batch before.
        WriterTask::Prune(_) => Ok(()),
        WriterTask::Probe { .. } => transaction.probe(),
    }
}
