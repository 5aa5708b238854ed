//! Queue to the writer: what can be asked of it, and how each request is
//! answered.
//!
//! The queue has no bound of its own: whoever sends holds a place, which goes
//! with the entry until it is written or refused. `Drop` cannot wait for one,
//! so the place of an exchange's ending is reserved before its decision is
//! written: an exchange that is dropped half-way still completes its row.
//!
//! Does not know how entries are written.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::error::{AuditError, WriteError};
use crate::decision::record::{ExchangeEnd, Record};
use crate::decision::snapshot::{CacheKey, StoredSnapshot};
use crate::metrics::ResultLabel;
use crate::pace::back_off::BackOffEvent;

/// Error of an exchange that was dropped before its end.
const CLIENT_GONE: &str = "client_gone";

/// Sender to the writer.
#[derive(Debug, Clone)]
pub(super) struct EntryQueue {
    /// The queue.
    pub(super) entries: UnboundedSender<WriterEntry>,
    /// Entries that wait there.
    pub(super) waiting: Gauge,
}

impl EntryQueue {
    /// Sends `task`, which holds `slot` until it is done or refused. Does not
    /// wait.
    ///
    /// # Errors
    ///
    /// [`AuditError::Closed`] if the writer takes no more.
    pub(super) fn send(
        &self,
        task: WriterTask,
        slot: impl Into<Option<OwnedSemaphorePermit>>,
    ) -> Result<(), AuditError> {
        self.waiting.inc();
        let entry = WriterEntry {
            task,
            _slot: slot.into(),
        };
        self.entries.send(entry).map_err(|_| {
            self.waiting.dec();
            AuditError::Closed
        })
    }
}

/// A task, with the place it holds in the queue.
#[derive(Debug)]
pub(super) struct WriterEntry {
    pub(super) task: WriterTask,
    _slot: Option<OwnedSemaphorePermit>,
}

/// Result of a task: it is on disk, or why it is not.
pub(super) type CommitResult = Result<(), Arc<WriteError>>;

/// Task of the writer.
#[derive(Debug)]
pub(super) enum WriterTask {
    /// Write a decision. Without `ack` it was accepted when it was queued, and
    /// may not be refused any more.
    Record {
        record: Record,
        seq: SharedSeq,
        ack: Option<oneshot::Sender<CommitResult>>,
    },
    /// Complete a decision.
    Complete {
        seq: SharedSeq,
        outcome: ExchangeEnd,
    },
    /// Save the last that is known of a robots.txt.
    SaveSnapshot(PendingSave),
    /// Write an event.
    Event(PendingEvent),
    /// Find out whether a decision could be written.
    Probe { ack: oneshot::Sender<CommitResult> },
    /// Take no more.
    Close,
}

impl WriterTask {
    /// Reports whether there is something to write: a decision that was refused
    /// has no row that could be completed.
    pub(super) fn has_row(&self) -> bool {
        match self {
            Self::Complete { seq, .. } => seq.get() != 0,
            Self::Close => false,
            Self::Record { .. } | Self::SaveSnapshot(_) | Self::Event(_) | Self::Probe { .. } => {
                true
            }
        }
    }

    /// Reports whether the task may be given up so that decisions are written.
    pub(super) fn is_dispensable(&self) -> bool {
        matches!(self, Self::SaveSnapshot(_) | Self::Event(_))
    }

    /// Reports whether the task was accepted when it was queued: it is tried
    /// until it is written.
    pub(super) fn is_accepted(&self) -> bool {
        matches!(
            self,
            Self::Record { ack: None, .. } | Self::Complete { .. } | Self::Close
        )
    }

    /// Ends the task: answers whoever waits for it, and counts what nobody waits
    /// for.
    pub(super) fn end(self, result: CommitResult) {
        match self {
            Self::Record { ack: Some(ack), .. } | Self::Probe { ack } => {
                // The receiver may be gone: the client hung up, and the ending
                // of its exchange is on the way.
                ack.send(result).unwrap_or_default();
            }
            Self::SaveSnapshot(mut save) if result.is_ok() => save.count.result = "saved",
            Self::Event(mut pending) if result.is_ok() => pending.count.result = "written",
            Self::Record { ack: None, .. }
            | Self::Complete { .. }
            | Self::SaveSnapshot(_)
            | Self::Event(_)
            | Self::Close => {}
        }
    }
}

/// Counts the result of something once, when it is dropped: `lost` unless
/// something better is known until then.
#[derive(Debug)]
pub(super) struct ResultCount {
    counter: Family<ResultLabel, Counter>,
    result: &'static str,
}

impl ResultCount {
    /// Begins to count in `counter`.
    pub(super) fn new(counter: &Family<ResultLabel, Counter>) -> Self {
        Self {
            counter: counter.clone(),
            result: "lost",
        }
    }
}

impl Drop for ResultCount {
    fn drop(&mut self) {
        let result = self.result;
        self.counter.get_or_create(&ResultLabel { result }).inc();
    }
}

/// An event on its way to the record.
#[derive(Debug)]
pub(super) struct PendingEvent {
    pub(super) event: BackOffEvent,
    pub(super) count: ResultCount,
}

/// Snapshots on their way to the disk. Until they are there they are found
/// here, so that a site is not asked again because its answer was forgotten
/// before it was written.
///
/// Each save holds a place in the queue, or waits a second for one; that bounds
/// them.
#[derive(Debug, Default)]
pub(super) struct PendingSaves(Mutex<HashMap<CacheKey, StoredSnapshot>>);

impl PendingSaves {
    /// Finds the snapshot that is being saved for `key`.
    pub(super) fn find(&self, key: &CacheKey) -> Option<StoredSnapshot> {
        let saves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        saves.get(key).cloned()
    }

    /// Begins to save `snapshot`, in place of the one that is being saved for
    /// the same key.
    pub(super) fn begin(
        self: &Arc<Self>,
        snapshot: StoredSnapshot,
        count: ResultCount,
    ) -> PendingSave {
        let mut saves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        saves.insert(snapshot.snapshot.key.clone(), snapshot.clone());
        PendingSave {
            snapshot,
            pending: Arc::clone(self),
            count,
        }
    }
}

/// A save under way. When it is dropped it is no longer pending.
#[derive(Debug)]
pub(super) struct PendingSave {
    pub(super) snapshot: StoredSnapshot,
    pending: Arc<PendingSaves>,
    count: ResultCount,
}

impl Drop for PendingSave {
    fn drop(&mut self) {
        let key = &self.snapshot.snapshot.key;
        let mut saves = self
            .pending
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // A later save for the same key may be under way: that one stays.
        let is_own = |other: &StoredSnapshot| Arc::ptr_eq(&other.snapshot, &self.snapshot.snapshot);
        if saves.get(key).is_some_and(is_own) {
            saves.remove(key);
        }
    }
}

/// Sequence number of a decision, shared by the writer and the exchange: 0 until
/// there is one.
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

/// Ending of an exchange, which completes the row of its decision: by
/// [`RecordEnding::complete`], or, if the exchange is dropped, with the error
/// `client_gone`.
#[derive(Debug)]
#[must_use = "dropping it says that the client has gone"]
pub struct RecordEnding {
    /// Number of the row, set when the decision is numbered.
    pub(super) seq: SharedSeq,
    /// The queue and a place in it, so that the ending can always be written.
    reserved: Option<(EntryQueue, OwnedSemaphorePermit)>,
    outcome: ExchangeEnd,
}

impl RecordEnding {
    /// Makes the ending of an exchange whose decision record is about to be
    /// sent to `queue`, with a place of its own there.
    pub(super) fn new(queue: EntryQueue, slot: OwnedSemaphorePermit) -> Self {
        Self {
            seq: SharedSeq::default(),
            reserved: Some((queue, slot)),
            outcome: ExchangeEnd {
                status: None,
                seen: None,
                bytes: 0,
                error: Some(CLIENT_GONE),
            },
        }
    }

    /// Returns the sequence number of the row.
    pub fn seq(&self) -> u64 {
        self.seq.get()
    }

    /// Completes the row.
    pub fn complete(mut self, outcome: ExchangeEnd) {
        self.outcome = outcome;
    }
}

impl Drop for RecordEnding {
    fn drop(&mut self) {
        let Some((queue, slot)) = self.reserved.take() else {
            return;
        };
        let task = WriterTask::Complete {
            seq: self.seq.clone(),
            outcome: self.outcome.clone(),
        };
        // A writer that has ended writes no more: the row stays as it is.
        queue.send(task, slot).unwrap_or_default();
    }
}
