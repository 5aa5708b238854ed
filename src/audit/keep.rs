//! The last that is known of each robots.txt, which outlives the process.
//!
//! It is no evidence and decides nothing: it spares origins a question. So
//! what cannot be kept is given up, and what cannot be read is asked again;
//! both are counted. A save goes the way of the records, in the order in which
//! it was begun: no decision is on disk before the snapshot it rests on is, if
//! that was given to be kept first.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::pending::PendingSave;
use super::shelf::SnapshotLookup;
use super::writer::{WriterEntry, WriterTask};
use super::{AuditError, AuditLog};
use crate::decision::stored_snapshot::{CacheKey, StoredSnapshot};
use crate::metrics::ResultLabel;
use crate::throttle::REPEATING;
use politesse_robots::Dialect;

impl AuditLog {
    /// Keeps the last that is known of a robots.txt, in place of what was known
    /// for the same origin and token.
    ///
    /// From the call on, [`AuditLog::saved_snapshot`] finds it. The future waits for a
    /// place in the queue if there is none, and for nothing else; after a second
    /// it gives up.
    pub fn save_snapshot(&self, kept: StoredSnapshot) -> impl Future<Output = ()> + Send + '_ {
        let waiting = if kept.is_of_the_origin() {
            self.keep_now(self.pending.begin(kept))
        } else {
            None
        };
        async move {
            if let Some(saving) = waiting
                && let Ok(slot) = self.slots(1).await
            {
                self.send(WriterTask::SaveSnapshot(saving), slot);
            }
        }
    }

    /// What was kept last for `whose`, read by `dialect`.
    pub async fn saved_snapshot(&self, key: &CacheKey, dialect: Dialect) -> Option<StoredSnapshot> {
        if let Some(kept) = self.pending.find(key) {
            self.count_load("pending");
            return Some(kept.read_by(dialect));
        }
        let (result, kept) = match self.shelf.load(key, dialect).await {
            Ok(SnapshotLookup::Saved(kept)) => ("kept", Some(kept)),
            Ok(SnapshotLookup::Absent) => ("nothing", None),
            Ok(SnapshotLookup::Altered) => {
                tracing::warn!(target: REPEATING, origin = %key.origin, "a kept robots.txt is not as it was written");
                ("changed", None)
            }
            Err(AuditError::Closed) => ("closed", None),
            Err(error) => {
                tracing::warn!(target: REPEATING, %error, origin = %key.origin, "a kept robots.txt cannot be read");
                ("failed", None)
            }
        };
        self.count_load(result);
        kept
    }

    /// Queues a save if there is a place, else gives it back.
    fn keep_now(&self, saving: PendingSave) -> Option<PendingSave> {
        match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(slot) => {
                self.send(WriterTask::SaveSnapshot(saving), slot);
                None
            }
            Err(_) => Some(saving),
        }
    }

    /// A save that comes after the end of the writer is lost, and counted as
    /// that when it is dropped.
    fn send(&self, task: WriterTask, slot: OwnedSemaphorePermit) {
        self.line
            .send(WriterEntry::new(task, slot))
            .unwrap_or_default();
    }

    fn count_load(&self, result: &'static str) {
        self.metrics
            .robots_loaded
            .get_or_create(&ResultLabel { result })
            .inc();
    }
}
