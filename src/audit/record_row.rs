//! The row of `record`: the id of this record, and what it begins anew after.
//!
//! The id is random. It says whether a database is the one that a marker was
//! written for; it is no secret.

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params_from_iter};

use super::event_row::{INSERT_EVENT, record_begun_values, under_digest};
use super::marker::RecordMarker;
use super::row::integer;
use super::schema::last_event;

/// The columns of the row under its digest.
pub(super) const RECORD_COLUMNS: usize = 4;

/// The row, with its digest last.
pub(super) const RECORDS: &str = "SELECT id, begun_us, before, before_last, digest FROM record";

const INSERT: &str = "
INSERT INTO record (id, begun_us, before, before_last, digest) VALUES (?, ?, ?, ?, ?)";

/// The id of the record in `connection`, if it has one: those of version 5 and
/// before have none.
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn id(connection: &Connection) -> rusqlite::Result<Option<String>> {
    connection
        .query_row(RECORDS, [], |row| row.get(0))
        .optional()
}

/// The id of the record in `connection`, which is given one if it has none.
/// Where it begins anew after the record that `before` was written for, that is
/// an event in it.
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn id_or_new(
    connection: &mut Connection,
    before: Option<&RecordMarker>,
    now: Timestamp,
) -> rusqlite::Result<String> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if let Some(id) = id(&transaction)? {
        return Ok(id);
    }
    let id: String =
        transaction.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get(0))?;
    let values = under_digest(vec![
        id.clone().into(),
        now.as_microsecond().into(),
        before.map(|marker| marker.record.clone()).into(),
        before.map_or(Value::Null, |marker| integer(marker.last)),
    ]);
    transaction
        .prepare(INSERT)?
        .insert(params_from_iter(values))?;
    if let Some(marker) = before {
        let seq = 1 + last_event(&transaction)?;
        let values = record_begun_values(seq, marker.last, now);
        transaction
            .prepare(INSERT_EVENT)?
            .insert(params_from_iter(values))?;
    }
    transaction.commit()?;
    Ok(id)
}
