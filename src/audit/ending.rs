//! How the row of an exchange is completed, whatever becomes of the exchange.
//!
//! `Drop` cannot wait, so the place of an ending in the queue is reserved
//! before its record is written. What is done with it there is the writer's.

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

use super::AuditError;
use super::writer::{SharedSeq, WriterEntry, WriterTask};
use crate::decision::record::Outcome;

/// The word for an exchange that was dropped before its end.
const CLIENT_GONE: &str = "client_gone";

/// The queue to the writer. It has no bound of its own: whoever sends holds a
/// slot.
#[derive(Debug, Clone)]
pub(super) struct EntryQueue {
    /// Where entries go.
    pub(super) entries: UnboundedSender<WriterEntry>,
    /// How many wait there.
    pub(super) waiting: Gauge,
}

impl EntryQueue {
    /// Sends `entry` on its way, without waiting.
    ///
    /// # Errors
    ///
    /// [`AuditError::Closed`] if the writer takes no more.
    pub(super) fn send(&self, entry: WriterEntry) -> Result<(), AuditError> {
        self.waiting.inc();
        self.entries.send(entry).map_err(|_| {
            self.waiting.dec();
            AuditError::Closed
        })
    }
}

/// How the row of one exchange will be completed.
///
/// It holds a place in the queue, so that it can always be written: by
/// [`RecordEnding::complete`], or, if the exchange is dropped, with what is known
/// until then and the error `client_gone`.
#[derive(Debug)]
#[must_use = "dropping it says that the crawler has gone"]
pub struct RecordEnding {
    seq: SharedSeq,
    reserved: Option<(EntryQueue, OwnedSemaphorePermit)>,
    outcome: Outcome,
}

impl RecordEnding {
    /// The ending of an exchange whose record is about to be sent along `line`,
    /// in the place `slot`.
    pub(super) fn new(line: EntryQueue, slot: OwnedSemaphorePermit) -> Self {
        Self {
            seq: SharedSeq::default(),
            reserved: Some((line, slot)),
            outcome: Outcome {
                status: None,
                seen: None,
                bytes: 0,
                error: Some(CLIENT_GONE),
            },
        }
    }

    /// Where the number of the row will stand.
    pub(super) fn seq_cell(&self) -> &SharedSeq {
        &self.seq
    }

    /// The sequence number of the row.
    pub fn seq(&self) -> u64 {
        self.seq.get()
    }

    /// Notes the status that the crawler is answered with.
    pub fn note(&mut self, status: u16) {
        self.outcome.status = Some(status);
    }

    /// Notes that `bytes` more of the body were passed on.
    pub fn passed(&mut self, bytes: u64) {
        self.outcome.bytes = self.outcome.bytes.saturating_add(bytes);
    }

    /// Completes the row.
    pub fn complete(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for RecordEnding {
    fn drop(&mut self) {
        let Some((line, slot)) = self.reserved.take() else {
            return;
        };
        let task = WriterTask::Complete {
            seq: self.seq.clone(),
            outcome: self.outcome.clone(),
        };
        // After the end of the writer there is nobody to write it.
        line.send(WriterEntry::new(task, slot)).unwrap_or_default();
    }
}
