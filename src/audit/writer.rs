//! The thread that owns the store: batches, commits, and what becomes of
//! entries that cannot be written.
//!
//! One transaction holds whatever has come in while the last one was on its
//! way to the disk, so that a slow disk makes batches larger, not fewer records
//! a second. An entry keeps its slot in the queue until it is written or
//! refused: what cannot be written yet is bounded by the same number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::noted::PendingEvent;
use super::pending::PendingSave;
use super::store::{AuditStore, AuditTransaction, WriteError};
use crate::clock;
use crate::decision::record::{Outcome, Record};
use crate::metrics::Metrics;
use crate::throttle::REPEATING;

/// Entries taken from the queue at a time, beside those left from before.
const BATCH_MAX: usize = 512;

/// How long a snapshot is kept beyond its time: no copy is used for longer
/// while its origin is unreachable (`robots.stale`).
const KEPT_HOURS: i64 = 30 * 24;
/// How long a back-off is kept beyond its time: it was forgiven long before.
const BACK_OFF_KEPT_HOURS: i64 = 24;
/// Rows taken away in one transaction.
const PRUNED_MAX: usize = 1000;
/// When to look again, and when if there were more.
const PRUNE_EVERY: Duration = Duration::from_secs(60 * 60);
const PRUNE_ON: Duration = Duration::from_secs(10);

/// One thing to be written, with the place it holds in the queue.
#[derive(Debug)]
pub(super) struct WriterEntry {
    task: WriterTask,
    _slot: Option<OwnedSemaphorePermit>,
}

impl WriterEntry {
    /// Asks for `task`, which holds `slot` until it is done or refused.
    pub(super) fn new(task: WriterTask, slot: impl Into<Option<OwnedSemaphorePermit>>) -> Self {
        Self {
            task,
            _slot: slot.into(),
        }
    }
}

/// What the writer can be asked for.
#[derive(Debug)]
pub(super) enum WriterTask {
    /// Write a decision. Without `ack` it was accepted when it was queued, and
    /// may not be refused any more.
    Record {
        record: Record,
        seq: SharedSeq,
        ack: Option<CommitAck>,
    },
    /// Complete a decision.
    Complete { seq: SharedSeq, outcome: Outcome },
    /// Keep the last that is known of a robots.txt.
    SaveSnapshot(PendingSave),
    /// Write an event.
    Event(PendingEvent),
    /// Find out whether a record could be written.
    Probe { ack: CommitAck },
    /// Take no more.
    Close,
}

/// The writer's answer: it is on disk, or why it is not.
pub(super) type CommitAck = oneshot::Sender<Result<(), Arc<WriteError>>>;

/// The sequence number of a decision, as the writer and the exchange both see
/// it: 0 until there is one.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedSeq(Arc<AtomicU64>);

impl SharedSeq {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, seq: u64) {
        self.0.store(seq, Ordering::Release);
    }
}

/// The only owner of the store.
#[derive(Debug)]
pub(super) struct AuditWriter {
    /// What it writes to.
    pub(super) store: AuditStore,
    /// Where entries come from.
    pub(super) entries: UnboundedReceiver<WriterEntry>,
    /// Whether the last attempt to write failed.
    pub(super) failing: Arc<AtomicBool>,
    /// The number of the next decision that has none.
    pub(super) next: u64,
    /// Where commits are timed and counted.
    pub(super) metrics: Arc<Metrics>,
    /// What is to be written next, in the order of arrival.
    pub(super) batch: Vec<WriterEntry>,
    /// When to look for what is kept in vain.
    pub(super) prune_at: Instant,
}

impl AuditWriter {
    /// Writes what comes until the queue is closed, then all that is left.
    pub(super) fn run(mut self) {
        while 0 < self.entries.blocking_recv_many(&mut self.batch, BATCH_MAX) {
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
        self.store.close();
    }

    /// Tries to write the batch; what must be kept for another try is left.
    fn take_turn(&mut self) {
        let taken = self.batch.len();
        if self
            .batch
            .iter()
            .any(|entry| matches!(entry.task, WriterTask::Close))
        {
            self.entries.close();
        }
        let first = self.next;
        self.number();
        self.batch.retain(|entry| has_row(&entry.task));
        if !self.batch.is_empty() {
            match self.commit_what_can_be() {
                Ok(()) => {
                    self.accept();
                    self.prune();
                    self.store.checkpoint_if_due();
                }
                Err(error @ WriteError::FilesAfterCommit(_)) => self.disown(&Arc::new(error)),
                Err(error) => {
                    self.next = first;
                    self.refuse(&Arc::new(error));
                }
            }
        }
        let settled = taken - self.batch.len();
        self.metrics
            .audit_queue
            .dec_by(i64::try_from(settled).unwrap_or(i64::MAX));
    }

    /// Numbers the decisions that have no number, in the order in which they
    /// are written: numbers are given by commits, and leave no gap.
    fn number(&mut self) {
        for entry in &self.batch {
            if let WriterTask::Record { seq, .. } = &entry.task
                && seq.get() == 0
            {
                seq.set(self.next);
                self.next += 1;
            }
        }
    }

    /// Commits the batch; if that fails, without the snapshots to be kept and the
    /// events: what no decision rests on must not keep one out.
    fn commit_what_can_be(&mut self) -> Result<(), WriteError> {
        let error = match self.commit() {
            Err(WriteError::Sqlite(error)) => error,
            done => return done,
        };
        let all = self.batch.len();
        self.batch.retain(|entry| {
            !matches!(
                entry.task,
                WriterTask::SaveSnapshot(_) | WriterTask::Event(_)
            )
        });
        let lost = all - self.batch.len();
        if lost == 0 || self.batch.is_empty() {
            return Err(error.into());
        }
        self.commit()?;
        tracing::warn!(target: REPEATING, %error, lost, "copies of robots.txt or events could not be kept");
        Ok(())
    }

    fn commit(&mut self) -> Result<(), WriteError> {
        let batch = &self.batch;
        let start = clock::instant();
        let done = self.store.write(|transaction| {
            batch
                .iter()
                .try_for_each(|entry| write(&entry.task, transaction))
        });
        let taken = clock::instant().duration_since(start);
        self.metrics
            .audit_commit_seconds
            .observe(taken.as_secs_f64());
        done
    }

    fn accept(&mut self) {
        if self.failing.swap(false, Ordering::AcqRel) {
            tracing::info!("the audit log can be written again");
        }
        for entry in self.batch.drain(..) {
            match entry.task {
                // Who asked may have gone; its ending is on the way.
                WriterTask::Record { ack: Some(ack), .. } | WriterTask::Probe { ack } => {
                    ack.send(Ok(())).unwrap_or_default();
                }
                WriterTask::SaveSnapshot(saving) => saving.saved(),
                WriterTask::Event(noted) => noted.written(),
                WriterTask::Record { ack: None, .. }
                | WriterTask::Complete { .. }
                | WriterTask::Close => {}
            }
        }
    }

    /// Takes away snapshots and back-offs that are of no use any more, now and
    /// then and a few at a time: decisions wait meanwhile.
    fn prune(&mut self) {
        let now = clock::instant();
        if now < self.prune_at {
            return;
        }
        let before = |hours| clock::now() - SignedDuration::from_hours(hours);
        let snapshots = self.store.prune_snapshots(before(KEPT_HOURS), PRUNED_MAX);
        let back_offs = before(BACK_OFF_KEPT_HOURS);
        let back_offs = self.store.prune_back_offs(back_offs, PRUNED_MAX);
        let is_done = [snapshots, back_offs]
            .into_iter()
            .all(|pruned| match pruned {
                Ok(pruned) => pruned < PRUNED_MAX,
                Err(error) => {
                    tracing::warn!(%error, "what is kept in vain could not be taken away");
                    true
                }
            });
        self.prune_at = now + if is_done { PRUNE_EVERY } else { PRUNE_ON };
    }

    /// Acknowledges nothing of a batch that was committed to files which may
    /// not be found again. Its numbers are used up and none of it is written
    /// again: if the files come back, it is there.
    fn disown(&mut self, error: &Arc<WriteError>) {
        self.note_failure(error);
        for entry in self.batch.drain(..) {
            match entry.task {
                WriterTask::Record { ack: Some(ack), .. } | WriterTask::Probe { ack } => {
                    ack.send(Err(Arc::clone(error))).unwrap_or_default();
                }
                WriterTask::Record { ack: None, .. }
                | WriterTask::Complete { .. }
                | WriterTask::SaveSnapshot(_)
                | WriterTask::Event(_)
                | WriterTask::Close => {}
            }
        }
    }

    fn note_failure(&self, error: &Arc<WriteError>) {
        self.metrics.audit_failures.inc();
        if !self.failing.swap(true, Ordering::AcqRel) {
            tracing::error!(%error, "the audit log cannot be written: every request is refused");
        }
    }

    /// Refuses whatever has not been accepted, and keeps the rest.
    fn refuse(&mut self, error: &Arc<WriteError>) {
        self.note_failure(error);
        for entry in std::mem::take(&mut self.batch) {
            let (ack, seq) = match entry.task {
                WriterTask::Record {
                    ack: Some(ack),
                    seq,
                    ..
                } => (ack, Some(seq)),
                WriterTask::Probe { ack } => (ack, None),
                WriterTask::SaveSnapshot(_) | WriterTask::Event(_) => continue,
                WriterTask::Record { ack: None, .. }
                | WriterTask::Complete { .. }
                | WriterTask::Close => {
                    self.batch.push(entry);
                    continue;
                }
            };
            if let Some(seq) = seq {
                seq.set(0);
            }
            ack.send(Err(Arc::clone(error))).unwrap_or_default();
        }
    }
}

fn write(task: &WriterTask, transaction: &mut AuditTransaction<'_>) -> rusqlite::Result<()> {
    match task {
        WriterTask::Record { record, seq, .. } => transaction.write_decision(seq.get(), record),
        WriterTask::Complete { seq, outcome } => transaction.write_ending(seq.get(), outcome),
        WriterTask::SaveSnapshot(saving) => transaction.save_snapshot(saving.kept()),
        WriterTask::Event(noted) => transaction.write_event(noted.event()),
        WriterTask::Probe { .. } => transaction.probe(),
        WriterTask::Close => Ok(()),
    }
}

/// Whether there is something to write: a decision that was refused has no row
/// that could be completed.
fn has_row(task: &WriterTask) -> bool {
    match task {
        WriterTask::Record { .. }
        | WriterTask::SaveSnapshot(_)
        | WriterTask::Event(_)
        | WriterTask::Probe { .. } => true,
        WriterTask::Complete { seq, .. } => seq.get() != 0,
        WriterTask::Close => false,
    }
}
