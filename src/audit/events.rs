//! Questions people ask of the events: when did an origin ask for less?

use std::ops::ControlFlow;

use serde_json::json;

use super::AuditError;
use super::event_row::EVENTS;
pub use super::event_row::EventRow;
use super::event_row::{RECORD_BEGUN, event};
pub use super::filter::EventFilter;
use super::order::all_below;
use super::pages::{Direction, NumberedTable, TableScan};
use super::query::AuditReader;

/// Events.
const EVENT_TABLE: NumberedTable = NumberedTable {
    name: "event",
    select: EVENTS,
    number: "seq",
};

impl AuditReader {
    /// Hands the events that meet `filter` to `visit`, the newest first, until
    /// it breaks.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn newest_events(
        &self,
        filter: &EventFilter,
        mut visit: impl FnMut(EventRow) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        let mut read = || {
            let scan = self.event_scan(filter, Direction::NewestFirst)?;
            scan.run(event, |page| page.into_iter().try_for_each(&mut visit))
        };
        read().map_err(AuditError::Read)
    }

    /// The scan of all events for `filter`. Sites ask for less now and then, so
    /// there are few enough to look at each one's time.
    pub(super) fn event_scan(
        &self,
        filter: &EventFilter,
        direction: Direction,
    ) -> rusqlite::Result<TableScan<'_>> {
        Ok(TableScan {
            connection: &self.connection,
            table: EVENT_TABLE,
            conditions: filter.conditions(),
            ranges: all_below(self.end_of(EVENT_TABLE)?),
            direction,
        })
    }
}

/// The number of decisions that the record had at least, after which this one
/// begins, if that is what `event` tells.
pub fn decisions_before(event: &EventRow) -> Option<u64> {
    (event.kind == RECORD_BEGUN).then_some(event.incidents)
}

/// An event as `audit events` prints it, one object a row.
pub fn event_json(event: &EventRow) -> serde_json::Value {
    if let Some(before) = decisions_before(event) {
        return json!({
            "seq": event.seq,
            "time": event.at.to_string(),
            "kind": event.kind,
            "decisions_before": before,
        });
    }
    json!({
        "seq": event.seq,
        "time": event.at.to_string(),
        "host": event.host,
        "kind": event.kind,
        "status": event.status,
        "until": event.until.to_string(),
        "incidents": event.incidents,
    })
}
