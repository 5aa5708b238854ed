//! Numbers of the record: one sequence without a gap for decisions, endings and
//! events.
//!
//! The table `sequence` has the highest number that is accounted for, and the
//! highest that is reserved. With `audit.durability = "queue"` a number is told
//! before its entry is on disk, so numbers are reserved on disk in blocks. A
//! start that finds reserved numbers without entries notes them as lost
//! (`lost_range`) and goes on behind them: no number is told twice.
//!
//! Does not know what has a number.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::columns::{blob, count, is_digest};
use super::error::AuditError;
use super::leaf::{LostRange, RecordId, numbers_digest};
use super::pages::NumberedTable;

/// Numbers that are reserved at a time. They are used up within a second at most
/// loads, and cost one row whatever they are.
const BLOCK_MIN: i64 = 65_536;

/// Block for each place in the queue: half a block must outlast all that may wait.
const BLOCK_PER_PLACE: i64 = 4;

/// Numbers that may have been told where nothing says how many: since the marker was
/// written, or since a backup of another machine was made. The marker is written at each
/// checkpoint, after 2,000 frames of the WAL as a rule, which hold less than a hundred
/// thousand entries.
pub(super) const UNKNOWN_NUMBERS: i64 = 1 << 20;

const SELECT_SEQUENCE: &str = "SELECT last, reserved, digest FROM sequence";

/// All lost ranges: first, last, time, digest.
pub(super) const LOST_RANGES: NumberedTable = NumberedTable {
    name: "lost_range",
    select: "SELECT first, last, time_us, digest FROM lost_range",
    key: "first",
    number: "first",
};

/// Highest numbers of a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sequence {
    /// Highest number that has an entry, or is noted as lost.
    pub(super) last: i64,
    /// Highest number that may have been told; at least `last`.
    pub(super) reserved: i64,
}

impl Sequence {
    /// Reads the numbers; `None` if there is no such row.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        let mut statement = connection.prepare_cached(SELECT_SEQUENCE)?;
        statement.query_row([], Self::of).optional()
    }

    /// Reads the numbers of `record`; `None` if there is no such row, or it is not as it
    /// was written.
    pub(super) fn read_as_written(
        connection: &Connection,
        record: RecordId,
    ) -> rusqlite::Result<Option<Self>> {
        let read = |row: &Row<'_>| {
            let found = Self::of(row)?;
            let digest = numbers_digest(record, found.last, found.reserved);
            Ok(is_digest(row.get_ref(2)?, digest).then_some(found))
        };
        let mut statement = connection.prepare_cached(SELECT_SEQUENCE)?;
        Ok(statement.query_row([], read).optional()?.flatten())
    }

    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            last: row.get(0)?,
            reserved: row.get(1)?,
        })
    }

    /// Returns the sequence whose reservation is due to be extended by `block`
    /// numbers, extended.
    pub(super) fn with_reserve(self, block: i64) -> Self {
        // Extended when half is used: the other half outlasts the entries that may
        // wait for their commit.
        let left = self.reserved - self.last;
        let reserved = if block == 0 {
            self.last
        } else if left < block / 2 {
            self.last + block
        } else {
            self.reserved
        };
        Self { reserved, ..self }
    }

    /// Writes the numbers of `record`.
    pub(super) fn write(self, connection: &Connection, record: RecordId) -> rusqlite::Result<()> {
        let digest = numbers_digest(record, self.last, self.reserved);
        let sql = "REPLACE INTO sequence (id, last, reserved, digest) VALUES (1, ?, ?, ?)";
        let mut statement = connection.prepare_cached(sql)?;
        let values = params![self.last, self.reserved, blob(digest)];
        statement.insert(values).map(drop)
    }

    /// Returns the numbers of a record whose row is not there, or not as it was written:
    /// some behind its entries may have been told.
    pub(super) fn behind_entries(connection: &Connection) -> rusqlite::Result<Self> {
        let sql = "SELECT coalesce(max(seq), 0) FROM ending";
        let ending: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        let last = highest(connection)?.max(ending);
        Ok(Self {
            last,
            reserved: last.saturating_add(UNKNOWN_NUMBERS),
        })
    }

    /// Takes up the numbers where the previous process has ended. `connection` is in
    /// a transaction; numbers up to `given`, and those that were reserved, are noted as
    /// lost where they have no entry.
    pub(super) fn resume(
        connection: &Connection,
        record: RecordId,
        given: i64,
        now: Timestamp,
    ) -> rusqlite::Result<Self> {
        let highest = highest(connection)?;
        let found = match Self::read_as_written(connection, record)? {
            Some(found) => found,
            // A record that has just begun has an event and no such row.
            None if highest <= 1 && Self::read(connection)?.is_none() => Self::default(),
            // Noted as lost, what a damaged row says might have no end.
            None => Self::behind_entries(connection)?,
        };
        let mut last = highest.max(found.last);
        let reserved = found.reserved.max(given);
        // Which of the reserved numbers were told is not known: that is why none of
        // them is given again.
        if last < reserved {
            let lost = LostRange {
                first: last + 1,
                last: reserved,
                time_us: now.as_microsecond(),
            };
            write_lost(connection, record, lost)?;
            tracing::warn!(
                first = lost.first,
                last = lost.last,
                "the previous process did not end cleanly: numbers of the record that it may have \
                 given are noted as lost"
            );
            last = reserved;
        }
        Ok(Self {
            last,
            reserved: last,
        })
    }
}

/// Checks that every number that was given has an entry which can be read, or is noted
/// as lost or removed. SQLite reads some damaged pages as if they had fewer rows, so what
/// was read may be a part. `database` is the file that an error names.
///
/// # Errors
///
/// [`AuditError::Partial`], and [`AuditError::Read`].
pub(super) fn check_complete(connection: &Connection, database: &Path) -> Result<(), AuditError> {
    // By one statement: a proxy may be writing.
    let sql = "WITH gone (last) AS (SELECT coalesce((SELECT last FROM pruned), 0))
        SELECT (SELECT last FROM sequence) - gone.last,
               (SELECT count(*) FROM decision WHERE gone.last < seq)
             + (SELECT count(*) FROM ending WHERE gone.last < seq)
             + (SELECT count(*) FROM event WHERE gone.last < seq)
             + (SELECT coalesce(sum(lost_range.last - max(first, gone.last + 1) + 1), 0)
                FROM lost_range WHERE gone.last < lost_range.last)
        FROM gone";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (wanted, found): (Option<i64>, i64) = connection.query_row(sql, [], read)?;
    match wanted.is_none_or(|wanted| wanted == found) {
        true => Ok(()),
        false => Err(AuditError::Partial {
            database: database.to_owned(),
            wanted: count(wanted.unwrap_or_default()),
            found: count(found),
        }),
    }
}

/// Returns how many numbers are reserved at a time where `places` entries may
/// wait.
pub(super) fn block_of(places: usize) -> i64 {
    let places = i64::try_from(places).unwrap_or(i64::MAX);
    places.saturating_mul(BLOCK_PER_PLACE).max(BLOCK_MIN)
}

/// Finds the highest number of a row. Somebody who changed `sequence` must not
/// have new rows collide with old ones. Endings are not indexed by their number:
/// the highest is that of one of the latest decisions as a rule.
fn highest(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT max(coalesce((SELECT max(seq) FROM decision), 0),
                          coalesce((SELECT max(seq) FROM event), 0),
                          coalesce((SELECT max(seq) FROM (
                            SELECT seq FROM ending ORDER BY decision DESC LIMIT 4096)), 0),
                          coalesce((SELECT last FROM lost_range
                            ORDER BY first DESC LIMIT 1), 0))";
    connection.query_row(sql, [], |row| row.get(0))
}

/// Notes numbers that have no entry.
pub(super) fn write_lost(
    connection: &Connection,
    record: RecordId,
    lost: LostRange,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO lost_range (first, last, time_us, digest) VALUES (?, ?, ?, ?)";
    let mut statement = connection.prepare_cached(sql)?;
    let digest = blob(lost.digest(record));
    let values = params![lost.first, lost.last, lost.time_us, digest];
    statement.insert(values).map(drop)
}

/// A lost range as read, and whether its row is the one that was written.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckedRange {
    pub(super) range: LostRange,
    pub(super) is_as_written: bool,
}

impl CheckedRange {
    /// Reads a row of [`LOST_RANGES`] in the record `record`.
    pub(super) fn read(row: &Row<'_>, record: RecordId) -> rusqlite::Result<Self> {
        let range = LostRange {
            first: row.get(0)?,
            last: row.get(1)?,
            time_us: row.get(2)?,
        };
        Ok(Self {
            is_as_written: is_digest(row.get_ref(3)?, range.digest(record)),
            range,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: what may wait is always reserved.
    #[test]
    fn a_reservation_is_extended_before_half_of_it_is_used() {
        let block = block_of(0);
        assert_eq!(block, BLOCK_MIN);
        assert_eq!(block_of(100_000), 400_000);
        let sequence = |last, reserved| Sequence { last, reserved };
        assert_eq!(sequence(0, 0).with_reserve(block), sequence(0, block));
        let half = sequence(block / 2, block);
        assert_eq!(half.with_reserve(block), half);
        let less = sequence(block / 2 + 1, block);
        assert_eq!(less.with_reserve(block).reserved, less.last + block);
        // Without blocks nothing is reserved.
        for reserved in [3, 9] {
            assert_eq!(sequence(7, reserved).with_reserve(0), sequence(7, 7));
        }
    }
}
