//! Window of entries: consecutive numbers of the record, with all values, for a
//! copy of the record elsewhere.
//!
//! A window is read in one transaction and lies within one part (`parts`), so that
//! its endings can be found, which are not indexed by number. Does not know where
//! the copy is.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::columns::{TableRow as _, signed};
use super::copy_end::CopiedEntry;
use super::decision_row::DecisionReader;
use super::entry_rows::DECISIONS;
use super::error::AuditError;
use super::events::{EVENTS, EventRow, ProcessEventKind};
use super::parts::{numbers_of, part_of};
use super::pruned::PrunedEnd;
use super::reader::AuditReader;
use super::record_id::{RecordRow, SELECT_RECORD};
use super::redaction::redacted_numbers;
use super::rollup_row::late_parts;
use super::sequence::last_number;
use politesse_decision::record::StoredRecord;

/// Maximum number of entries in a window.
const NUMBERS_MAX: i64 = 4096;

/// Finds the decisions from ?3 to ?4 whose endings have numbers from ?1 to ?2.
const ENDED: &str = "
SELECT decision FROM ending
WHERE ?3 <= decision AND decision <= ?4 AND ?1 <= seq AND seq <= ?2";

/// Finds the decisions before ?3 whose late endings have numbers from ?1 to ?2.
const ENDED_LATE: &str = "
SELECT e.decision FROM late_ending AS l JOIN ending AS e ON e.decision = l.decision
WHERE e.decision < ?3 AND ?1 <= e.seq AND e.seq <= ?2";

/// Entries with consecutive numbers.
#[derive(Debug, Default)]
pub struct EntryWindow {
    /// Last number of the window. A copy that adds the window is complete up to
    /// there.
    pub last: i64,
    /// Decisions with these numbers, with their endings if they have ended.
    pub decisions: Vec<StoredRecord>,
    /// Earlier decisions whose endings have these numbers.
    pub ended: Vec<StoredRecord>,
    /// Events with these numbers.
    pub events: Vec<EventRow>,
}

impl EntryWindow {
    /// Returns the decision or event with the highest number.
    pub fn newest(&self) -> Option<CopiedEntry> {
        let decision = self.decisions.last().map(|row| (row.seq, row.at));
        let event = self.events.last().map(|row| (row.seq, row.at));
        let newest = decision.into_iter().chain(event).max();
        newest.map(|(seq, at)| CopiedEntry {
            seq: signed(seq),
            at,
        })
    }

    /// Returns the ranges of decisions whose redaction the events state.
    pub fn redacted(&self) -> Vec<[i64; 2]> {
        let events = self.events.iter();
        let of_kind = events.filter(|event| event.is(ProcessEventKind::Redacted));
        let details = of_kind.filter_map(|event| event.detail.as_deref());
        details.flat_map(redacted_numbers).collect()
    }
}

/// Description of a record, as stored in a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordDescription {
    /// Id of the record.
    pub id: String,
    /// Time at which the record was begun.
    pub begun: Timestamp,
}

impl AuditReader {
    /// Returns the description of the record; `None` before its first entry.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn description(&self) -> Result<Option<RecordDescription>, AuditError> {
        let read = |row: &Row<'_>| {
            let RecordRow { id, begun, .. } = RecordRow::read(row)?;
            Ok(RecordDescription { id, begun })
        };
        let found = self.connection.query_row(SELECT_RECORD, [], read);
        Ok(found.optional()?)
    }

    /// Returns the number of the last entry.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn last_number(&self) -> Result<i64, AuditError> {
        Ok(last_number(&self.connection)?.unwrap_or_default())
    }

    /// Reads a window of entries after the number `last`; `None` if there are none.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn window_after(&self, last: i64) -> Result<Option<EntryWindow>, AuditError> {
        let transaction = self.connection.unchecked_transaction()?;
        let window = read_window(&transaction, self.decision_reader(), last)?;
        // Nothing was written, so this only ends the read transaction.
        transaction.finish()?;
        Ok(window)
    }
}

fn read_window(
    connection: &Connection,
    mut reader: DecisionReader<'_>,
    copied: i64,
) -> rusqlite::Result<Option<EntryWindow>> {
    let record_last = last_number(connection)?.unwrap_or_default();
    if record_last <= copied {
        return Ok(None);
    }
    let first = first_after(connection, copied)?;
    if record_last < first {
        // The numbers up to the end were removed or lost.
        return Ok(Some(EntryWindow {
            last: record_last,
            ..EntryWindow::default()
        }));
    }
    let end = numbers_of(part_of(first)).end.min(first + NUMBERS_MAX);
    let last = (end - 1).min(record_last);
    let mut window = EntryWindow {
        last,
        ..EntryWindow::default()
    };
    let by_number = format!(
        "{} WHERE ?1 <= d.seq AND d.seq <= ?2 ORDER BY d.seq",
        DECISIONS.select
    );
    let mut statement = connection.prepare_cached(&by_number)?;
    let decisions = statement.query_map([first, last], |row| reader.record(row))?;
    window.decisions = decisions.collect::<rusqlite::Result<_>>()?;
    // Read completely although the copy has most of their values, so that rows have
    // a single reader.
    for decision in ended_before(connection, [first, last])? {
        let mut found = statement.query_map([decision, decision], |row| reader.record(row))?;
        window.ended.extend(found.next().transpose()?);
    }
    let by_number = format!(
        "{} WHERE ?1 <= seq AND seq <= ?2 ORDER BY seq",
        EVENTS.select
    );
    let mut statement = connection.prepare_cached(&by_number)?;
    let events = statement.query_map([first, last], EventRow::read)?;
    window.events = events.collect::<rusqlite::Result<_>>()?;
    Ok(Some(window))
}

/// Returns the first number after `copied` that may have an entry, skipping those
/// removed by age or lost.
fn first_after(connection: &Connection, copied: i64) -> rusqlite::Result<i64> {
    let next = copied + 1;
    let pruned = PrunedEnd::read(connection)?;
    if next <= pruned.last {
        // Decisions remain whose exchange had not ended when the others were
        // removed.
        let sql = "SELECT min(seq) FROM leaf_path WHERE ? <= seq";
        let remaining: Option<i64> = connection.query_row(sql, [next], |row| row.get(0))?;
        return Ok(remaining.unwrap_or(i64::MAX).min(pruned.next()));
    }
    let sql = "SELECT max(last) FROM lost_range WHERE first <= ?1 AND ?1 <= last";
    let lost: Option<i64> = connection.query_row(sql, [next], |row| row.get(0))?;
    Ok(lost.map_or(next, |last| last + 1))
}

/// Finds the decisions before `first` whose endings have numbers from `first` to
/// `last`: in the same part, in earlier parts if listed as late, and in the parts
/// that the roll-up of this part names.
fn ended_before(
    connection: &Connection,
    [first, last]: [i64; 2],
) -> rusqlite::Result<BTreeSet<i64>> {
    let part = part_of(first);
    let start = numbers_of(part).start;
    let mut ended = BTreeSet::new();
    let mut add = |sql: &str, bounds: &[&dyn rusqlite::ToSql]| -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(sql)?;
        for decision in statement.query_map(bounds, |row| row.get::<_, i64>(0))? {
            ended.insert(decision?);
        }
        Ok(())
    };
    add(ENDED, params![first, last, start, first - 1])?;
    add(ENDED_LATE, params![first, last, start])?;
    for earlier in late_parts(connection, part)? {
        let numbers = numbers_of(earlier);
        add(ENDED, params![first, last, numbers.start, numbers.end - 1])?;
    }
    Ok(ended)
}
