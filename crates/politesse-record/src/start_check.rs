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

use std::collections::BTreeSet;
use std::ops::Range;

use rusqlite::{Connection, OptionalExtension, params_from_iter};

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
    let mut missing: BTreeSet<i64> = numbers.clone().collect();
    let range = [numbers.start, numbers.end];
    for sql in [DECISION_NUMBERS, EVENT_NUMBERS, ENDING_NUMBERS] {
        remove_found(&mut missing, connection, sql, &range)?;
    }
    let mut statement = connection.prepare_cached(LOST_NUMBERS)?;
    let mut lost = statement.query(range)?;
    while let Some(row) = lost.next()? {
        let (first, last): (i64, i64) = (row.get("first")?, row.get("last")?);
        missing.retain(|seq| *seq < first || last < *seq);
    }
    if missing.is_empty() {
        return Ok(None);
    }
    let earlier = [numbers.start];
    let seen = remove_found(&mut missing, connection, EARLIER_ENDING_NUMBERS, &earlier)?;
    let gap = missing.first().map(|first| {
        let beside = missing.iter().zip(*first..);
        let next_to_it = beside.take_while(|(found, seq)| *found == seq);
        *first..first.saturating_add_unsigned(next_to_it.count() as u64)
    });
    // Beyond the bound a number may be that of an earlier decision's ending: a
    // record that may be whole is not refused.
    Ok(gap.filter(|_| seen < EARLIER_ENDINGS_MAX))
}

/// Takes the numbers that `sql` finds out of `missing`, until none is left or
/// [`EARLIER_ENDINGS_MAX`] rows were seen. Returns how many rows were seen.
fn remove_found(
    missing: &mut BTreeSet<i64>,
    connection: &Connection,
    sql: &str,
    values: &[i64],
) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut seen = 0;
    while let Some(row) = rows.next()?
        && seen < EARLIER_ENDINGS_MAX
        && !missing.is_empty()
    {
        seen += 1;
        missing.remove(&row.get(0)?);
    }
    Ok(seen)
}
