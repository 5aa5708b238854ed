//! Check at a start that the newest entries are all there.
//!
//! An old copy of the database beside a newer WAL is a sound database to SQLite:
//! it reads the pages that were changed since the last checkpoint from the WAL,
//! and all others from the copy. The entries between the two are missing, and the
//! highest number, which every commit changes, is right. Entries are appended to
//! their tables, so what is missing ends at the last checkpoint, whose number the
//! marker has, or goes on to the last number.
//!
//! Looks at a bounded count of entries; `verify` looks at all. Does not know what
//! they say.

use std::ops::Range;

use rusqlite::{Connection, OptionalExtension, Params};

use super::pruned::PrunedEnd;

/// Numbers that are looked at below a checkpoint. The leaves of a table that the
/// checkpoint has written last hold some 80 entries each, and numbers go to two
/// tables in turn.
const BELOW_CHECKPOINT: i64 = 512;

/// Numbers that are looked at behind the checkpoint that the marker knows: those
/// of a full WAL. A checkpoint that a crash kept from the marker is among them.
const BEHIND_CHECKPOINT: i64 = 65_536;

/// Endings of earlier decisions that are searched for a number. They are not
/// indexed by it; a download may have begun a hundred thousand decisions before
/// its end.
const EARLIER_ENDINGS_MAX: usize = 262_144;

const DECISION_NUMBERS: &str = "SELECT seq FROM decision WHERE ? <= seq AND seq < ?";
const EVENT_NUMBERS: &str = "SELECT seq FROM event WHERE ? <= seq AND seq < ?";

/// Numbers of the endings of some decisions; those of earlier ones come next.
const ENDING_NUMBERS: &str = "SELECT seq FROM ending WHERE ? <= decision AND decision < ?";
const EARLIER_ENDING_NUMBERS: &str =
    "SELECT seq FROM ending WHERE decision < ? ORDER BY decision DESC";

const LOST_NUMBERS: &str = "SELECT first, last FROM lost_range WHERE ? <= last AND first < ?";

/// Finds a decision that refers to a row which is not there, itself or by its
/// ending. Null is not in an empty table, so that it has to be told apart. A decision that
/// is redacted has no client, and may have no origin.
const UNSUPPORTED_DECISION: &str = "
SELECT d.seq FROM decision AS d LEFT JOIN ending AS e ON e.decision = d.seq
LEFT JOIN snapshot AS s ON s.id = d.snapshot
WHERE ? <= d.seq AND d.seq < ?
  AND (d.client != 0 AND d.client NOT IN (SELECT id FROM client)
    OR d.crawler NOT IN (SELECT id FROM crawler)
    OR d.method NOT IN (SELECT id FROM term)
    OR d.origin != 0 AND d.origin NOT IN (SELECT id FROM origin)
    OR d.ruling NOT IN (SELECT id FROM ruling)
    OR d.policy NOT IN (SELECT id FROM policy)
    OR d.snapshot IS NOT NULL AND d.snapshot NOT IN (SELECT id FROM snapshot)
    OR s.body IS NOT NULL AND s.body NOT IN (SELECT sha256 FROM body)
    OR e.directives IS NOT NULL AND e.directives NOT IN (SELECT id FROM directives)
    OR e.error IS NOT NULL AND e.error NOT IN (SELECT id FROM term))
LIMIT 1";

/// Finds what is missing near the number `checkpoint`, which the marker has, or
/// near `last`, the highest number of the record.
pub(super) fn find_missing(
    connection: &Connection,
    checkpoint: i64,
    last: i64,
) -> rusqlite::Result<Option<String>> {
    let first = PrunedEnd::read(connection)?.next();
    let below = |number: i64| number.saturating_sub(BELOW_CHECKPOINT - 1).max(first);
    let behind = checkpoint.saturating_add(BEHIND_CHECKPOINT).min(last);
    for numbers in [
        below(checkpoint)..behind.saturating_add(1),
        below(last).max(behind)..last.saturating_add(1),
    ] {
        if let Some(missing) = first_gap(connection, &numbers)? {
            let (first, last) = (missing.start, missing.end - 1);
            return Ok(Some(format!("entries {first} to {last} are gone")));
        }
        let range = [numbers.start, numbers.end];
        let mut statement = connection.prepare_cached(UNSUPPORTED_DECISION)?;
        let found: Option<i64> = statement.query_row(range, |row| row.get(0)).optional()?;
        if let Some(seq) = found {
            return Ok(Some(format!("evidence of entry {seq} is gone")));
        }
    }
    Ok(None)
}

/// Finds the first of `numbers` that have no entry and are not noted as lost.
fn first_gap(
    connection: &Connection,
    numbers: &Range<i64>,
) -> rusqlite::Result<Option<Range<i64>>> {
    let mut marks = NumberMarks::new(numbers);
    let range = [numbers.start, numbers.end];
    for sql in [DECISION_NUMBERS, EVENT_NUMBERS, ENDING_NUMBERS] {
        marks.add_rows(connection, sql, range)?;
    }
    let mut statement = connection.prepare_cached(LOST_NUMBERS)?;
    let mut lost = statement.query(range)?;
    while let Some(row) = lost.next()? {
        let (first, last): (i64, i64) = (row.get("first")?, row.get("last")?);
        (first.max(numbers.start)..=last.min(numbers.end - 1)).for_each(|seq| marks.add(seq));
    }
    if marks.is_complete() {
        return Ok(None);
    }
    let seen = marks.add_rows(connection, EARLIER_ENDING_NUMBERS, [numbers.start])?;
    // Beyond the bound a number may be that of an earlier decision's ending: a
    // record that may be whole is not refused.
    Ok(marks.gap().filter(|_| seen < EARLIER_ENDINGS_MAX))
}

/// Numbers of a range, and for each whether it is accounted for.
struct NumberMarks {
    start: i64,
    is_marked: Vec<bool>,
    unmarked: usize,
}

impl NumberMarks {
    fn new(numbers: &Range<i64>) -> Self {
        let count = usize::try_from(numbers.end - numbers.start).unwrap_or_default();
        Self {
            start: numbers.start,
            is_marked: vec![false; count],
            unmarked: count,
        }
    }

    fn is_complete(&self) -> bool {
        self.unmarked == 0
    }

    /// Marks the number `seq`, if it is in the range.
    fn add(&mut self, seq: i64) {
        let at = usize::try_from(seq.saturating_sub(self.start)).ok();
        if let Some(mark) = at.and_then(|at| self.is_marked.get_mut(at))
            && !std::mem::replace(mark, true)
        {
            self.unmarked -= 1;
        }
    }

    /// Marks the numbers that `sql` finds, until all are marked or
    /// [`EARLIER_ENDINGS_MAX`] rows were seen. Returns how many rows were seen.
    fn add_rows(
        &mut self,
        connection: &Connection,
        sql: &str,
        values: impl Params,
    ) -> rusqlite::Result<usize> {
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(values)?;
        let mut seen = 0;
        while let Some(row) = rows.next()?
            && seen < EARLIER_ENDINGS_MAX
            && !self.is_complete()
        {
            seen += 1;
            self.add(row.get(0)?);
        }
        Ok(seen)
    }

    /// Returns the first numbers that are not marked.
    fn gap(&self) -> Option<Range<i64>> {
        let first = self.is_marked.iter().position(|mark| !mark)?;
        let rest = self.is_marked.get(first..)?;
        let length = rest.iter().take_while(|mark| !**mark).count();
        let start = self.start.saturating_add_unsigned(first as u64);
        Some(start..start.saturating_add_unsigned(length as u64))
    }
}
