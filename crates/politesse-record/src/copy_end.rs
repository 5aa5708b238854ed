//! End of a copy of the record elsewhere, compared with the record to tell whether
//! it is a copy of this record in its current state.
//!
//! A folder that was copied to another machine, or restored from an older copy, has
//! the same id and numbers as the original record, but then gets different entries.
//! Does not know where the copy is.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use super::error::AuditError;
use super::pruned::PrunedEnd;
use super::reader::AuditReader;

/// Finds the time of a decision or an event by its number. Endings are left out,
/// because they are not indexed by number.
const TIME: &str = "
SELECT time_us FROM decision WHERE seq = ?1 UNION ALL
SELECT time_us FROM event WHERE seq = ?1";

const IS_LOST: &str = "SELECT EXISTS (SELECT 1 FROM lost_range WHERE first <= ?1 AND ?1 <= last)";

/// Finds the earliest time of a decision or an event after a number.
const NEXT_TIME: &str = "
SELECT min(time_us) FROM (
  SELECT * FROM (SELECT time_us FROM decision WHERE ?1 < seq ORDER BY seq LIMIT 1)
  UNION ALL
  SELECT * FROM (SELECT time_us FROM event WHERE ?1 < seq ORDER BY seq LIMIT 1))";

/// End of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyEnd {
    /// Number up to which the copy is complete.
    pub last: i64,
    /// Newest decision or event in the copy, if there is one.
    pub newest: Option<CopiedEntry>,
}

/// Decision or event of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedEntry {
    /// Number.
    pub seq: i64,
    /// Time of the entry, which distinguishes it from another entry with the same
    /// number.
    pub at: Timestamp,
}

/// Entries missing from a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MissingEntries {
    /// Count of numbers after the end of the copy.
    pub count: i64,
    /// Time of the oldest of these entries.
    pub oldest_us: Option<i64>,
}

impl AuditReader {
    /// Compares the end of a copy with the record. Returns the number of an entry
    /// that the copy has and the record does not; `None` if the copy can be
    /// continued.
    ///
    /// The copy may have entries that the record has removed by age or noted as
    /// lost.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn strange_entry(&self, end: &CopyEnd) -> Result<Option<i64>, AuditError> {
        if self.last_number()? < end.last {
            return Ok(Some(end.last));
        }
        let Some(CopiedEntry { seq, at }) = &end.newest else {
            return Ok(None);
        };
        let own: Option<i64> = self
            .connection
            .query_row(TIME, [seq], |row| row.get(0))
            .optional()?;
        let is_same = match own {
            Some(own) => own == at.as_microsecond(),
            None => {
                let is_removed = *seq <= PrunedEnd::read(&self.connection)?.last;
                let is_lost = || self.connection.query_row(IS_LOST, [seq], |row| row.get(0));
                is_removed || is_lost()?
            }
        };
        Ok((!is_same).then_some(*seq))
    }

    /// Returns how much is missing from a copy that has all entries up to `last`.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn missing_entries(&self, last: i64) -> Result<MissingEntries, AuditError> {
        let oldest = self
            .connection
            .query_row(NEXT_TIME, params![last], |row| row.get(0));
        Ok(MissingEntries {
            count: (self.last_number()? - last).max(0),
            oldest_us: oldest?,
        })
    }
}
