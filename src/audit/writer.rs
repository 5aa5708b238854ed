//! Writer: the thread that owns the store. Makes batches, commits them, and
//! keeps what must not be lost for another try.
//!
//! One transaction holds whatever has come in while the last one was on its way
//! to the disk, so that a slow disk makes batches larger, not fewer rows a
//! second. An entry keeps its place in the queue until it is written or
//! refused, so what cannot be written yet is bounded by the same number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::error::WriteError;
use super::queue::{WriterEntry, WriterTask};
use super::store::AuditStore;
use super::transaction::AuditTransaction;
use crate::clock;
use crate::metrics::Metrics;
use crate::throttle::REPEATING;

/// Entries taken from the queue at a time, beside those left from before.
const BATCH_MAX: usize = 512;

/// Time for which a saved snapshot outlasts its expiry: no file is used for
/// longer while its site is unreachable (`robots.stale`).
const SNAPSHOT_KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Time for which a saved back-off outlasts its end. It is forgiven long before.
const BACK_OFF_KEPT: SignedDuration = SignedDuration::from_hours(24);

/// Rows removed in one transaction: decisions wait meanwhile.
const PRUNED_MAX: usize = 1000;

/// Time between two searches for rows to remove.
const PRUNE_EVERY: Duration = Duration::from_secs(60 * 60);

/// Time to the next search if there were more than [`PRUNED_MAX`].
const PRUNE_AGAIN: Duration = Duration::from_secs(10);

/// The only owner of the store.
#[derive(Debug)]
pub(super) struct AuditWriter {
    /// The store.
    pub(super) store: AuditStore,
    /// Receiver of entries.
    pub(super) entries: UnboundedReceiver<WriterEntry>,
    /// Whether the last attempt to write failed.
    pub(super) failing: Arc<AtomicBool>,
    /// Number of the next decision that has none.
    pub(super) next: u64,
    /// Metrics of commits.
    pub(super) metrics: Arc<Metrics>,
    /// Entries to be written next, in the order of arrival.
    pub(super) batch: Vec<WriterEntry>,
    /// Time of the next search for rows to remove.
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

    /// Tries to write the batch. Entries that must be kept for another try are
    /// left in it.
    fn take_turn(&mut self) {
        let taken = self.batch.len();
        let is_close = |entry: &WriterEntry| matches!(entry.task, WriterTask::Close);
        if self.batch.iter().any(is_close) {
            self.entries.close();
        }
        let first = self.next;
        self.number();
        self.batch.retain(|entry| entry.task.has_row());
        if !self.batch.is_empty() {
            match self.commit_what_can_be() {
                Ok(()) => {
                    self.accept();
                    // After the answers: no request waits for it.
                    self.prune();
                    self.store.checkpoint_if_due();
                }
                Err(error @ WriteError::FilesAfterCommit(_)) => self.disown(error),
                Err(error) => {
                    // The numbers are given out again, so that none is missing.
                    self.next = first;
                    self.refuse(error);
                }
            }
        }
        let settled = i64::try_from(taken - self.batch.len()).unwrap_or(i64::MAX);
        self.metrics.audit_queue.dec_by(settled);
    }

    /// Numbers the decisions that have no number, in the order in which they are
    /// written: numbers are given by commits, and leave no gap.
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

    /// Commits the batch; if that fails, without snapshots and events: what no
    /// decision rests on must not keep one out.
    fn commit_what_can_be(&mut self) -> Result<(), WriteError> {
        let error = match self.commit() {
            Err(WriteError::Sqlite(error)) => error,
            done => return done,
        };
        let all = self.batch.len();
        self.batch.retain(|entry| !entry.task.is_dispensable());
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
            entry.task.end(Ok(()));
        }
    }

    /// Acknowledges nothing of a batch that was committed to files which may not
    /// be found again. Its numbers are used up and none of it is written again:
    /// if the files come back, it is there.
    fn disown(&mut self, error: WriteError) {
        let error = self.note_failure(error);
        for entry in self.batch.drain(..) {
            entry.task.end(Err(Arc::clone(&error)));
        }
    }

    /// Refuses whatever has not been accepted, and keeps the rest.
    fn refuse(&mut self, error: WriteError) {
        let error = self.note_failure(error);
        let refused = self.batch.extract_if(.., |entry| !entry.task.is_accepted());
        for entry in refused {
            if let WriterTask::Record { seq, .. } = &entry.task {
                seq.set(0);
            }
            entry.task.end(Err(Arc::clone(&error)));
        }
    }

    fn note_failure(&self, error: WriteError) -> Arc<WriteError> {
        self.metrics.audit_failures.inc();
        if !self.failing.swap(true, Ordering::AcqRel) {
            tracing::error!(%error, "the audit log cannot be written: every request is refused");
        }
        Arc::new(error)
    }

    /// Removes snapshots and back-offs that are of no use any more, now and then
    /// and a few at a time.
    fn prune(&mut self) {
        let now = clock::instant();
        if now < self.prune_at {
            return;
        }
        let wall_now = clock::now();
        let pruned = [
            self.store
                .prune_snapshots(wall_now - SNAPSHOT_KEPT, PRUNED_MAX),
            self.store
                .prune_back_offs(wall_now - BACK_OFF_KEPT, PRUNED_MAX),
        ];
        let is_done = pruned.into_iter().all(|pruned| match pruned {
            Ok(pruned) => pruned < PRUNED_MAX,
            Err(error) => {
                tracing::warn!(%error, "what is kept in vain could not be taken away");
                true
            }
        });
        self.prune_at = now + if is_done { PRUNE_EVERY } else { PRUNE_AGAIN };
    }
}

fn write(task: &WriterTask, transaction: &mut AuditTransaction<'_>) -> rusqlite::Result<()> {
    match task {
        WriterTask::Record { record, seq, .. } => transaction.write_decision(seq.get(), record),
        WriterTask::Complete { seq, outcome } => transaction.write_ending(seq.get(), outcome),
        WriterTask::SaveSnapshot(save) => transaction.save_snapshot(&save.snapshot),
        WriterTask::Event(pending) => transaction.write_event(&pending.event),
        WriterTask::Probe { .. } => transaction.probe(),
        WriterTask::Close => Ok(()),
    }
}
