//! An event on its way to the log, and what became of it.

use std::sync::Arc;

use crate::metrics::{Metrics, ResultLabel};
use crate::pace::back_off_event::BackOffEvent;

/// An event to be written. However it ends, it is counted.
#[derive(Debug)]
pub(super) struct PendingEvent {
    event: BackOffEvent,
    metrics: Arc<Metrics>,
    result: &'static str,
}

impl PendingEvent {
    pub(super) fn new(event: BackOffEvent, metrics: &Arc<Metrics>) -> Self {
        Self {
            event,
            metrics: Arc::clone(metrics),
            result: "lost",
        }
    }

    pub(super) fn event(&self) -> &BackOffEvent {
        &self.event
    }

    /// Ends it: it is on disk.
    pub(super) fn written(mut self) {
        self.result = "written";
    }
}

impl Drop for PendingEvent {
    fn drop(&mut self) {
        let result = self.result;
        let events = &self.metrics.audit_events;
        events.get_or_create(&ResultLabel { result }).inc();
    }
}
