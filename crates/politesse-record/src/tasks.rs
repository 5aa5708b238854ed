//! Contents of the writer's tasks, and how their results are counted.
//!
//! Does not know how tasks are queued, nor how they are written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::error::WriteError;
use super::events::ProcessEvent;
use super::removal_order::RetentionOrder;
use politesse_base::metrics::{Metrics, ResultLabel};
use politesse_decision::back_off::BackOffEvent;
use politesse_decision::snapshot::{CacheKey, StoredSnapshot};

/// Error of an exchange that was dropped before its end.
pub(super) const CLIENT_GONE: &str = "client_gone";

/// Result of a task: it is on disk, or why it is not.
pub(super) type CommitResult = Result<(), Arc<WriteError>>;

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

/// Counts the result of something once, when it is dropped: `lost` unless
/// something better is known until then.
#[derive(Debug)]
pub(super) struct ResultCount {
    counter: Family<ResultLabel, Counter>,
    pub(super) result: &'static str,
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
    pub(super) count: ResultCount,
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
