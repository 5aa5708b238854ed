//! Rows of `event` and of `back_off`: that an origin asked for less, and the
//! state that outlives the process.
//!
//! An event is evidence, and read as near as may be. A state is gone by, so one
//! that is not as it was written is as if it were not there.

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::Value;

use super::pages::KeyedTable;
use super::row::{blob, count, integer, is_as_written, row_digest};
use crate::pace::back_off_event::{BackOffEvent, SavedBackOff};

/// The columns of an event under its digest.
pub(super) const EVENT_COLUMNS: usize = 7;

/// Writes an event.
pub(super) const INSERT_EVENT: &str = "
INSERT INTO event (seq, time_us, host, kind, status, until_us, incidents, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

/// Finds what was last written of a host.
pub(super) const LAST_KIND: &str = "
SELECT kind FROM event WHERE host = ? ORDER BY seq DESC LIMIT 1";

/// What a query must select for [`event`]; the conditions are the caller's.
pub(super) const EVENTS: &str = "
SELECT seq, time_us, host, kind, status, until_us, incidents, digest FROM event";

/// The columns of a state under its digest.
pub(super) const BACK_OFF_COLUMNS: usize = 4;

/// Puts a state in place of the one of the same host.
pub(super) const SAVE_BACK_OFF: &str = "
REPLACE INTO back_off (host, until_us, incidents, since_us, digest)
VALUES (?, ?, ?, ?, ?)";

/// All states.
pub(super) const BACK_OFFS: KeyedTable = KeyedTable {
    select: "SELECT host, until_us, incidents, since_us, digest FROM back_off",
    key: &["host"],
};

/// An event as the log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Its number among the events, from 1.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// The host, without a port.
    pub host: String,
    /// What happened: `backoff_entered` or `backoff_left`.
    pub kind: String,
    /// The status that asked for less.
    pub status: Option<u16>,
    /// Until when the host is left alone.
    pub until: Timestamp,
    /// How many times in a row it asked for less.
    pub incidents: u64,
}

/// The values of event `seq`, in the order of [`INSERT_EVENT`], its digest last.
pub(super) fn event_values(seq: u64, event: &BackOffEvent) -> Vec<Value> {
    under_digest(vec![
        integer(seq),
        event.at.as_microsecond().into(),
        event.host.to_string().into(),
        event.change.as_str().to_owned().into(),
        event.status.into(),
        event.until.as_microsecond().into(),
        event.incidents.into(),
    ])
}

/// The kind of the event that a record begins anew after one that was lost.
pub(super) const RECORD_BEGUN: &str = "record_begun";

/// The values of event `seq`, that a record begins `now` after one of which at
/// least the decisions to `last` were made. It concerns no host; the number is
/// kept among the incidents.
pub(super) fn record_begun_values(seq: u64, last: u64, now: Timestamp) -> Vec<Value> {
    under_digest(vec![
        integer(seq),
        now.as_microsecond().into(),
        String::new().into(),
        RECORD_BEGUN.to_owned().into(),
        Value::Null,
        now.as_microsecond().into(),
        integer(last),
    ])
}

/// The event in a row of [`EVENTS`].
pub(super) fn event(row: &Row<'_>) -> rusqlite::Result<EventRow> {
    let time = |at| -> rusqlite::Result<Timestamp> {
        Ok(Timestamp::from_microsecond(row.get(at)?).unwrap_or_default())
    };
    let status: Option<i64> = row.get(4)?;
    Ok(EventRow {
        seq: count(row.get(0)?),
        at: time(1)?,
        host: text(row, 2)?,
        kind: text(row, 3)?,
        status: status.and_then(|status| status.try_into().ok()),
        until: time(5)?,
        incidents: count(row.get(6)?),
    })
}

/// The values of a state, in the order of [`SAVE_BACK_OFF`], its digest last.
pub(super) fn back_off_values(kept: &SavedBackOff) -> Vec<Value> {
    under_digest(vec![
        kept.host.to_string().into(),
        kept.until.as_microsecond().into(),
        kept.incidents.into(),
        kept.quiet_since.as_microsecond().into(),
    ])
}

/// The state in a row of [`BACK_OFFS`]; nothing if it is not what was written.
pub(super) fn back_off(row: &Row<'_>) -> rusqlite::Result<Option<SavedBackOff>> {
    if !is_as_written(row, BACK_OFF_COLUMNS)? {
        return Ok(None);
    }
    let time = |at| Timestamp::from_microsecond(row.get(at).ok()?).ok();
    let read = || {
        Some(SavedBackOff {
            host: row.get::<_, String>(0).ok()?.parse().ok()?,
            until: time(1)?,
            incidents: row.get(2).ok()?,
            quiet_since: time(3)?,
        })
    };
    Ok(read())
}

/// What a column of text holds, whether it is UTF-8 or not.
pub(super) fn text(row: &Row<'_>, at: usize) -> rusqlite::Result<String> {
    let bytes = row.get_ref(at)?.as_bytes().unwrap_or_default();
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// The values, and behind them their digest.
pub(super) fn under_digest(mut values: Vec<Value>) -> Vec<Value> {
    let digest = row_digest(values.iter().map(Into::into));
    values.push(blob(digest));
    values
}
