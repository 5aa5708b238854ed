//! What is on its way to the table of kept snapshots.
//!
//! Until it is on disk it is found here, so that an origin is not asked again
//! because its answer was forgotten before it was written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::decision::stored_snapshot::{CacheKey, StoredSnapshot};
use crate::metrics::{Metrics, ResultLabel};

/// The saves under way. Each holds a place in the queue, or waits a second for
/// one, which bounds them.
#[derive(Debug)]
pub(super) struct PendingSaves {
    saves: Mutex<HashMap<CacheKey, StoredSnapshot>>,
    metrics: Arc<Metrics>,
}

impl PendingSaves {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            saves: Mutex::default(),
            metrics,
        }
    }

    /// What is being saved for `whose`.
    pub(super) fn find(&self, key: &CacheKey) -> Option<StoredSnapshot> {
        self.lock().get(key).cloned()
    }

    /// Begins to save `kept`, in place of what is being saved for the same
    /// origin and token.
    pub(super) fn begin(self: &Arc<Self>, kept: StoredSnapshot) -> PendingSave {
        self.lock().insert(kept.key(), kept.clone());
        PendingSave {
            kept,
            pending: Arc::clone(self),
            result: "lost",
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CacheKey, StoredSnapshot>> {
        self.saves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A save under way. However it ends, it is counted, and no longer pending.
#[derive(Debug)]
pub(super) struct PendingSave {
    kept: StoredSnapshot,
    pending: Arc<PendingSaves>,
    result: &'static str,
}

impl PendingSave {
    pub(super) fn kept(&self) -> &StoredSnapshot {
        &self.kept
    }

    /// Ends it: what it holds is on disk.
    pub(super) fn saved(mut self) {
        self.result = "saved";
    }
}

impl Drop for PendingSave {
    fn drop(&mut self) {
        let key = self.kept.key();
        let mut saves = self.pending.lock();
        // A later save of the same may be under way.
        let own = |other: &StoredSnapshot| Arc::ptr_eq(&other.snapshot, &self.kept.snapshot);
        if saves.get(&key).is_some_and(own) {
            saves.remove(&key);
        }
        drop(saves);
        let result = self.result;
        self.pending
            .metrics
            .robots_saved
            .get_or_create(&ResultLabel { result })
            .inc();
    }
}
