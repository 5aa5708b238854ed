//! Tasks of the writer, and how each is answered.
//!
//! Does not know how tasks are queued, nor how they are written.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::error::WriteError;
use super::events::ProcessEvent;
use super::redaction::RedactionOrder;
use super::removal_order::RetentionOrder;
use crate::decision::record::{ExchangeEnd, Record};
use crate::decision::snapshot::{CacheKey, StoredSnapshot};
use crate::metrics::{Metrics, ResultLabel};
use crate::pace::back_off::BackOffEvent;

/// Error of an exchange that was dropped before its end.
pub(super) const CLIENT_GONE: &str = "client_gone";

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
    /// Write an event of a host.
    Event(PendingEvent),
    /// Write an event of the proxy itself. It is tried until it is written: the
    /// counts in them are compared with each other.
    Process(PendingProcessEvent),
    /// Remove entries that are from before a moment.
    Prune(PruneOrder),
    /// Redact decisions, with the event that says so.
    Redact {
        order: RedactionOrder,
        ack: oneshot::Sender<CommitResult>,
    },
    /// Find out whether a decision could be written.
    Probe { ack: oneshot::Sender<CommitResult> },
}

/// Order to remove entries.
#[derive(Debug)]
pub(super) struct PruneOrder {
    pub(super) order: RetentionOrder,
    /// Answer: which numbers go.
    pub(super) ack: oneshot::Sender<Result<PrunedNumbers, Arc<WriteError>>>,
}

/// Numbers whose entries are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrunedNumbers {
    /// First of them.
    pub first: u64,
    /// Last of them; `first - 1` if there are none.
    pub last: u64,
}

impl WriterTask {
    /// Reports whether there is something to write: a decision that was refused
    /// has no row that could be completed.
    pub(super) fn has_row(&self) -> bool {
        match self {
            Self::Complete { seq, .. } => !seq.is_refused(),
            Self::Record { .. }
            | Self::SaveSnapshot(_)
            | Self::Event(_)
            | Self::Process(_)
            | Self::Prune(_)
            | Self::Redact { .. }
            | Self::Probe { .. } => true,
        }
    }

    /// Notes that a decision is not on record, and will not be.
    pub(super) fn refuse(&self) {
        if let Self::Record { seq, .. } = self {
            seq.refuse();
        }
    }

    /// Reports whether the task writes an entry, which has a number of its own.
    pub(super) fn has_number(&self) -> bool {
        match self {
            Self::Record { .. } | Self::Event(_) | Self::Process(_) | Self::Redact { .. } => true,
            Self::Complete { .. } => self.has_row(),
            Self::SaveSnapshot(_) | Self::Prune(_) | Self::Probe { .. } => false,
        }
    }

    /// Reports whether the task completes an exchange that its client left.
    pub(super) fn is_by_client(&self) -> bool {
        matches!(self, Self::Complete { outcome, .. } if outcome.error == Some(CLIENT_GONE))
    }

    /// Reports whether somebody waits for the commit.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(
            self,
            Self::Record { ack: Some(_), .. }
                | Self::Prune(_)
                | Self::Redact { .. }
                | Self::Probe { .. }
        )
    }

    /// Reports whether the end of the task is counted. It is before any answer: a snapshot
    /// that was saved is pending no longer, and whoever is answered may look at counts.
    pub(super) fn is_counted(&self) -> bool {
        matches!(
            self,
            Self::SaveSnapshot(_) | Self::Event(_) | Self::Process(_)
        )
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
            Self::Record { ack: None, .. } | Self::Complete { .. } | Self::Process(_)
        )
    }

    /// Ends the task: answers whoever waits for it, and counts what nobody waits
    /// for.
    pub(super) fn end(self, result: CommitResult) {
        match self {
            Self::Record { ack: Some(ack), .. }
            | Self::Redact { ack, .. }
            | Self::Probe { ack } => {
                // The receiver may be gone: the client hung up, and the ending
                // of its exchange is on the way.
                ack.send(result).unwrap_or_default();
            }
            Self::SaveSnapshot(mut save) if result.is_ok() => save.count.result = "saved",
            Self::Event(mut pending) if result.is_ok() => pending.count.result = "written",
            Self::Process(mut pending) if result.is_ok() => pending.count.result = "written",
            Self::Record { ack: None, .. }
            | Self::Complete { .. }
            | Self::SaveSnapshot(_)
            | Self::Event(_)
            | Self::Prune(_)
            | Self::Process(_) => {}
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

/// An event of the proxy itself on its way to the record.
#[derive(Debug)]
pub(super) struct PendingProcessEvent {
    pub(super) event: ProcessEvent,
    /// Counter of the requests that were sent.
    pub(super) counter: Counter,
    /// Its value when the event was queued, if the event states it.
    pub(super) sent: Option<u64>,
    pub(super) count: ResultCount,
}

impl PendingProcessEvent {
    /// Makes an event that is queued next, counted in `metrics`.
    pub(super) fn new(event: ProcessEvent, metrics: &Metrics) -> Self {
        Self {
            event,
            counter: metrics.upstream_sent.clone(),
            sent: None,
            count: ResultCount::new(&metrics.audit_events),
        }
    }

    /// Reads the counter, if the event states it.
    pub(super) fn read_count(&mut self) {
        self.sent = self.event.kind.has_count().then(|| self.counter.get());
    }
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

/// Number of a decision, shared by the writer and the exchange: 0 until there is
/// one.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedSeq(Arc<AtomicU64>);

impl SharedSeq {
    /// Stands for the number of a decision that was refused.
    const REFUSED: u64 = u64::MAX;

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, seq: u64) {
        self.0.store(seq, Ordering::Release);
    }

    fn refuse(&self) {
        self.set(Self::REFUSED);
    }

    fn is_refused(&self) -> bool {
        self.get() == Self::REFUSED
    }
}
