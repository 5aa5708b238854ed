//! Where the cache of snapshots and the audit log meet, which know nothing of
//! each other.

use std::sync::Arc;

use crate::audit::AuditLog;
use crate::decision::stored_snapshot::{CacheKey, StoredSnapshot};
use crate::robots_cache::store::{SnapshotStore, StoreFuture};
use crate::upstream::egress::Egress;
use politesse_robots::Dialect;

/// Snapshots kept beside the decisions that rest on them.
#[derive(Debug)]
pub(super) struct KeptInAudit {
    pub(super) audit: Arc<AuditLog>,
    pub(super) egress: Arc<Egress>,
}

impl SnapshotStore for KeptInAudit {
    fn load<'a>(
        &'a self,
        key: &'a CacheKey,
        dialect: Dialect,
    ) -> StoreFuture<'a, Option<StoredSnapshot>> {
        Box::pin(async move {
            let kept = self.audit.saved_snapshot(key, dialect).await?;
            let led_to = self.egress.led_to(&key.origin);
            (kept.led_to == led_to).then_some(kept)
        })
    }

    fn save(&self, kept: StoredSnapshot) -> StoreFuture<'_, ()> {
        let led_to = self.egress.led_to(&kept.snapshot.origin);
        Box::pin(self.audit.save_snapshot(StoredSnapshot { led_to, ..kept }))
    }
}
