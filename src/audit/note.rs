//! Events beside the decisions: an origin asked for less, and we went away.
//!
//! No request waits for an event, and none is kept back for one. So events have
//! a queue of their own, since what fills that of the decisions may well be what
//! makes an origin ask for less; what finds no place there is lost, and counted.

use std::sync::Arc;

use super::AuditLog;
use super::noted::PendingEvent;
use super::writer::{WriterEntry, WriterTask};
use crate::pace::back_off_event::{BackOffEvent, SavedBackOff};

/// Events that may wait for the writer.
pub(super) const EVENTS_WAITING_MAX: usize = 4096;

impl AuditLog {
    /// Puts an event on record, and keeps or forgets what the next process must
    /// know of the host. Does not wait.
    pub fn record_event(&self, event: BackOffEvent) {
        let noted = PendingEvent::new(event, &self.metrics);
        if let Ok(place) = Arc::clone(&self.event_places).try_acquire_owned() {
            let entry = WriterEntry::new(WriterTask::Event(noted), place);
            self.line.send(entry).unwrap_or_default();
        }
    }

    /// The long back-offs of the process before, to be read once at the start.
    /// What cannot be read is as if it were not there, and told in the log.
    pub fn saved_back_offs(&self) -> Vec<SavedBackOff> {
        let (kept, changed) = self.shelf.back_offs().unwrap_or_else(|error| {
            tracing::warn!(%error, "kept back-offs cannot be read");
            (Vec::new(), 0)
        });
        if 0 < changed {
            tracing::warn!(changed, "kept back-offs are not as they were written");
        }
        kept
    }
}
