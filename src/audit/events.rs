//! Questions people ask of the events: when did an origin ask for less?

use jiff::Timestamp;
use rusqlite::params_from_iter;
use rusqlite::types::Value;
use serde_json::json;

use super::AuditError;
pub use super::event_row::StoredEvent;
use super::event_row::{EVENTS, event};
use super::query::{AuditReader, conditions, limit_value, normal_host};

/// Which events are asked for: those that meet every condition given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Then or later.
    pub from: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
    /// The host, without a port.
    pub host: Option<String>,
}

impl EventFilter {
    /// The conditions in SQL, each with its value.
    fn conditions(&self) -> Vec<(&'static str, Value)> {
        let time = |time: Option<Timestamp>| time.map(|time| time.as_microsecond().into());
        let host = self.host.as_deref().map(|host| normal_host(host).into());
        [
            ("time_us >= ?", time(self.from)),
            ("time_us < ?", time(self.until)),
            ("host = ?", host),
        ]
        .into_iter()
        .filter_map(|(condition, value)| Some((condition, value?)))
        .collect()
    }
}

impl AuditReader {
    /// The newest `limit` events that meet `filter`, the newest first; 0 means
    /// all.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn events(
        &self,
        filter: &EventFilter,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, AuditError> {
        let (sql, mut values) = conditions(EVENTS, filter.conditions());
        values.push(limit_value(limit));
        let read = || {
            let sql = format!("{sql} ORDER BY seq DESC LIMIT ?");
            let mut statement = self.connection.prepare_cached(&sql)?;
            let events = statement.query_map(params_from_iter(values), event)?;
            events.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(AuditError::Read)
    }
}

/// An event as `audit events` prints it, one object a row.
pub fn event_json(event: &StoredEvent) -> serde_json::Value {
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
