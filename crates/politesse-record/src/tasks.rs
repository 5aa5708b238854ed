//! Contents of the writer's tasks, and how their results are counted.
//!
//! Does not know how tasks are queued or written.

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

/// Error of an exchange that was dropped before it was completed.
pub(super) const CLIENT_GONE: &str = "client_gone";

/// Result of a task: `Ok` once it is on disk, or the reason why it is not.
pub(super) type CommitResult = Result<(), Arc<WriteError>>;

/// Order to remove entries, and the channel for its answer.
#[derive(Debug)]
pub(super) struct PruneOrder {
    pub(super) order: RetentionOrder,
    /// Receives the numbers that are removed.
    pub(super) ack: oneshot::Sender<Result<PrunedNumbers, Arc<WriteError>>>,
}

/// Range of the numbers whose entries are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrunedNumbers {
    /// First number.
    pub first: u64,
    /// Last number; `first - 1` if the range is empty.
    pub last: u64,
}

/// Counts one result when it is dropped. The result is `lost` unless it is set
/// before then.
#[derive(Debug)]
pub(super) struct ResultCount {
    counter: Family<ResultLabel, Counter>,
    pub(super) result: &'static str,
}

impl ResultCount {
    /// Creates a result to be counted in `counter`.
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

/// Back-off event waiting to be written.
#[derive(Debug)]
pub(super) struct PendingEvent {
    pub(super) event: BackOffEvent,
    pub(super) count: ResultCount,
}

/// Event of the proxy itself, waiting to be written.
#[derive(Debug)]
pub(super) struct PendingProcessEvent {
    pub(super) event: ProcessEvent,
    /// Counter of the requests sent upstream.
    pub(super) counter: Counter,
    /// Value of the counter when the event was queued, if the event states it.
    pub(super) sent: Option<u64>,
    pub(super) count: ResultCount,
}

impl PendingProcessEvent {
    /// Creates an event that is about to be queued. Its result is counted in
    /// `metrics`.
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

/// Snapshots waiting to be written. Lookups find them here until they are on disk,
/// so that robots.txt is not fetched again just because its answer is not written
/// yet.
///
/// Their number is bounded, because each save holds a place in the queue or waits
/// at most a second for one.
#[derive(Debug, Default)]
pub(super) struct PendingSaves(Mutex<HashMap<CacheKey, StoredSnapshot>>);

impl PendingSaves {
    /// Returns the snapshot that is being saved for `key`.
    pub(super) fn find(&self, key: &CacheKey) -> Option<StoredSnapshot> {
        let saves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        saves.get(key).cloned()
    }

    /// Starts saving `snapshot`. Replaces the one that is being saved for the same
    /// key.
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

/// Save in progress. Dropping it ends its pending state.
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
        // A later save for the same key may be pending. It must stay.
        let is_own = |other: &StoredSnapshot| Arc::ptr_eq(&other.snapshot, &self.snapshot.snapshot);
        if saves.get(key).is_some_and(is_own) {
            saves.remove(key);
        }
    }
}
