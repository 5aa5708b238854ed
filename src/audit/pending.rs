//! What is on its way to the table of kept snapshots.
//!
//! Until it is on disk it is found here, so that an origin is not asked again
//! because its answer was forgotten before it was written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::decision::kept::{Kept, Whose};
use crate::metrics::{Metrics, ResultLabel};

/// The saves under way. Each holds a place in the queue, or waits a second for
/// one, which bounds them.
#[derive(Debug)]
pub(super) struct PendingSaves {
    saves: Mutex<HashMap<Whose, Kept>>,
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
    pub(super) fn find(&self, whose: &Whose) -> Option<Kept> {
        self.lock().get(whose).cloned()
    }

    /// Begins to save `kept`, in place of what is being saved for the same
    /// origin and token.
    pub(super) fn begin(self: &Arc<Self>, kept: Kept) -> PendingSave {
        self.lock().insert(kept.whose(), kept.clone());
        PendingSave {
            kept,
            pending: Arc::clone(self),
            result: "lost",
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Whose, Kept>> {
        self.saves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A save under way. However it ends, it is counted, and no longer pending.
#[derive(Debug)]
pub(super) struct PendingSave {
    kept: Kept,
    pending: Arc<PendingSaves>,
    result: &'static str,
}

impl PendingSave {
    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Ends it: what it holds is on disk.
    pub(super) fn saved(mut self) {
        self.result = "saved";
    }
}

impl Drop for PendingSave {
    fn drop(&mut self) {
        let whose = self.kept.whose();
        let mut saves = self.pending.lock();
        // A later save of the same may be under way.
        let own = |other: &Kept| Arc::ptr_eq(&other.snapshot, &self.kept.snapshot);
        if saves.get(&whose).is_some_and(own) {
            saves.remove(&whose);
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
