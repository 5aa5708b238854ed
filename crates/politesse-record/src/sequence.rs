//! Numbers of the record: one sequence without gaps for decisions, endings and
//! events.
//!
//! An entry gets its number with its commit, so a crash uses up none. The table
//! `sequence` has the highest number. If a start finds that more numbers were
//! issued, because a backup was restored or the log was damaged, it notes those as
//! lost (`lost_range`) and continues after them, so that no number is issued twice.
//!
//! Does not know which entries have numbers.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::columns::{TableRow as _, blob, count, is_digest, signed, table};
use super::error::AuditError;
use super::leaf::{LOST, RecordId, encoding_of, numbers_digest};
use super::pages::NumberedTable;
use politesse_decision::digest::Digest;

/// Upper bound for the count of issued numbers if it is unknown: since the marker
/// was written, or since a backup of another machine was made. The marker is
/// written at each checkpoint, usually after 2,000 frames of the WAL, which have
/// less than a hundred thousand entries.
pub(super) const UNKNOWN_NUMBERS: i64 = 1 << 20;

const SELECT_SEQUENCE: &str = "SELECT last, digest FROM sequence";

/// All lost ranges, read by [`LostRange::read_checked`].
pub(super) const LOST_RANGES: NumberedTable = NumberedTable {
    name: "lost_range",
    select: "SELECT * FROM lost_range",
    key: "first",
    number: "first",
};

table! {
    /// Range of numbers without an entry.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub(super) struct LostRange in "lost_range" {
        pub(super) first: i64 = "first INTEGER PRIMARY KEY",
        pub(super) last: i64 = "last INTEGER NOT NULL",
        /// Time at which the loss was detected.
        pub(super) time_us: i64 = "time_us INTEGER NOT NULL",
        /// Digest, which is also the leaf of each number.
        pub(super) digest: Digest = "digest BLOB NOT NULL",
    }
}

impl LostRange {
    /// Computes the digest for `record`.
    pub(super) fn digest_in(&self, record: RecordId) -> Digest {
        let mut bytes = encoding_of(LOST, record);
        bytes.integer(self.first);
        bytes.integer(self.last);
        bytes.integer(self.time_us);
        Digest::of(bytes.as_bytes())
    }

    /// Writes the row with its digest for `record`.
    pub(super) fn write(
        mut self,
        connection: &Connection,
        record: RecordId,
    ) -> rusqlite::Result<()> {
        self.digest = self.digest_in(record);
        self.insert(connection)
    }

    /// Reads a row of [`LOST_RANGES`], and whether it is unaltered for `record`.
    pub(super) fn read_checked(row: &Row<'_>, record: RecordId) -> rusqlite::Result<(Self, bool)> {
        let lost = Self::read(row)?;
        let is_own = lost.is_exact(row, 0) && lost.digest == lost.digest_in(record);
        Ok((lost, is_own))
    }
}

/// Returns the highest number that has an entry or is noted as lost; `None` if the
/// row is missing.
pub(super) fn last_number(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached(SELECT_SEQUENCE)?;
    statement.query_row([], |row| row.get(0)).optional()
}

/// Returns the highest number of `record`; `None` if the row is missing or altered.
pub(super) fn last_as_written(
    connection: &Connection,
    record: RecordId,
) -> rusqlite::Result<Option<i64>> {
    let read = |row: &Row<'_>| {
        let last = row.get(0)?;
        let digest = numbers_digest(record, last);
        Ok(is_digest(row.get_ref(1)?, digest).then_some(last))
    };
    let mut statement = connection.prepare_cached(SELECT_SEQUENCE)?;
    Ok(statement.query_row([], read).optional()?.flatten())
}

/// Writes the highest number of `record`.
pub(super) fn write_last(
    connection: &Connection,
    record: RecordId,
    last: i64,
) -> rusqlite::Result<()> {
    let sql = "REPLACE INTO sequence (id, last, digest) VALUES (1, ?, ?)";
    let values = params![last, blob(numbers_digest(record, last))];
    connection.prepare_cached(sql)?.insert(values).map(drop)
}

/// Returns the highest number of an entry, for a record whose row of `sequence` is
/// missing or altered.
pub(super) fn last_of_entries(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT coalesce(max(seq), 0) FROM ending";
    let ending: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(highest(connection)?.max(ending))
}

/// Continues the numbers where the previous process ended, and returns the highest
/// number. Numbers up to `given` without an entry are noted as lost. `connection`
/// is in a transaction.
pub(super) fn resume(
    connection: &Connection,
    record: RecordId,
    given: i64,
    now: Timestamp,
) -> rusqlite::Result<i64> {
    let highest = highest(connection)?;
    let (last, told) = match last_as_written(connection, record)? {
        Some(found) => (highest.max(found), found),
        // A new record has one event and no such row.
        None if highest <= 1 && last_number(connection)?.is_none() => (highest, 0),
        // The number in an altered row is ignored, because it could be arbitrarily
        // high.
        None => {
            let found = last_of_entries(connection)?;
            (found, found.saturating_add(UNKNOWN_NUMBERS))
        }
    };
    let given = given.max(told);
    if given <= last {
        return Ok(last);
    }
    let lost = LostRange {
        first: last + 1,
        last: given,
        time_us: now.as_microsecond(),
        ..LostRange::default()
    };
    lost.write(connection, record)?;
    tracing::warn!(
        first = lost.first,
        last = lost.last,
        "numbers of the record that may have been given are noted as lost"
    );
    Ok(given)
}

/// Checks that every issued number has a readable entry, or is noted as lost or
/// removed. SQLite reads some damaged pages as if they had fewer rows, and stops at
/// the first bad frame of a damaged log, so the entries that were read may be
/// incomplete. `committed` is a number known to be committed, from before the read,
/// or 0. `database` is the file named in an error.
///
/// # Errors
///
/// [`AuditError::Partial`], and [`AuditError::Read`].
pub(super) fn check_complete(
    connection: &Connection,
    committed: u64,
    database: &Path,
) -> Result<(), AuditError> {
    // One statement, because a proxy may be writing.
    let sql = "WITH gone (last) AS (SELECT coalesce((SELECT last FROM pruned), 0))
        SELECT max((SELECT last FROM sequence), ?) - gone.last,
               (SELECT count(*) FROM decision WHERE gone.last < seq)
             + (SELECT count(*) FROM ending WHERE gone.last < seq)
             + (SELECT count(*) FROM event WHERE gone.last < seq)
             + (SELECT coalesce(sum(lost_range.last - max(first, gone.last + 1) + 1), 0)
                FROM lost_range WHERE gone.last < lost_range.last)
        FROM gone";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (wanted, found): (Option<i64>, i64) =
        connection.query_row(sql, [signed(committed)], read)?;
    // A missing row is a different fault, which the next start and `verify` report.
    match wanted.is_none_or(|wanted| wanted == found) {
        true => Ok(()),
        false => Err(AuditError::Partial {
            database: database.to_owned(),
            wanted: count(wanted.unwrap_or_default()),
            found: count(found),
        }),
    }
}

/// Returns the highest number of a row. New rows must not collide with old ones
/// even if someone altered `sequence`. Endings are not indexed by number, but the
/// highest usually belongs to one of the latest decisions.
fn highest(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT max(coalesce((SELECT max(seq) FROM decision), 0),
                          coalesce((SELECT max(seq) FROM event), 0),
                          coalesce((SELECT max(seq) FROM (
                            SELECT seq FROM ending ORDER BY decision DESC LIMIT 4096)), 0),
                          coalesce((SELECT last FROM lost_range
                            ORDER BY first DESC LIMIT 1), 0))";
    connection.query_row(sql, [], |row| row.get(0))
}
