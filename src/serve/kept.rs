//! Where the cache of snapshots and the audit log meet, which know nothing of
//! each other.

use std::sync::Arc;

use crate::audit::AuditLog;
use crate::origins::robots_store::{Doing, KeepRobots};
use crate::rules::robots::Dialect;
use crate::rules::robots::kept::{Kept, Whose};

/// Snapshots kept beside the decisions that rest on them.
#[derive(Debug)]
pub(super) struct KeptInAudit(pub(super) Arc<AuditLog>);

impl KeepRobots for KeptInAudit {
    fn load<'a>(&'a self, whose: &'a Whose, dialect: Dialect) -> Doing<'a, Option<Kept>> {
        Box::pin(self.0.kept(whose, dialect))
    }

    fn save(&self, kept: Kept) -> Doing<'_, ()> {
        Box::pin(self.0.keep(kept))
    }
}
