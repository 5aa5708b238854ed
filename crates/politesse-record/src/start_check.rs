//! Check at startup that the newest entries are complete.
//!
//! An old copy of the database beside a newer WAL looks sound to SQLite: it reads
//! the pages changed since the last checkpoint from the WAL, and all others from
//! the copy. The entries in between are missing, although the highest number, which
//! every commit changes, is right. Entries are appended to their tables, so the
//! missing range ends either at the last checkpoint, whose number is in the marker,
//! or at the last number.
//!
//! Examines a bounded number of entries; `verify` examines all. Does not know what
//! they say.

use std::collections::BTreeSet;
use std::ops::Range;

use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::pruned::PrunedEnd;

/// Numbers examined below a checkpoint. The last leaf pages written by the
/// checkpoint have some 80 entries each, and numbers alternate between two tables.
const BELOW_CHECKPOINT: i64 = 512;

/// Numbers examined after the checkpoint in the marker: those of a full WAL. They
/// include a later checkpoint that the marker misses because of a crash.
const BEHIND_CHECKPOINT: i64 = 65_536;

/// Maximum number of endings of earlier decisions searched for a number. They are
/// not indexed by it, and a download may end a hundred thousand decisions after it
/// began.
const EARLIER_ENDINGS_MAX: usize = 262_144;

const DECISION_NUMBERS: &str = "SELECT seq FROM decision WHERE ? <= seq AND seq < ?";
const EVENT_NUMBERS: &str = "SELECT seq FROM event WHERE ? <= seq AND seq < ?";

/// Numbers of the endings of a range of decisions, and of the endings of earlier
/// decisions.
const ENDING_NUMBERS: &str = "SELECT seq FROM ending WHERE ? <= decision AND decision < ?";
const EARLIER_ENDING_NUMBERS: &str =
    "SELECT seq FROM ending WHERE decision < ? ORDER BY decision DESC";

const LOST_NUMBERS: &str = "SELECT first, last FROM lost_range WHERE ? <= last AND first < ?";

/// Finds a decision that refers to a missing row, itself or through its ending.
/// Null columns need their own conditions. A redacted decision has no client, and
/// may have no origin.
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

/// Finds entries or evidence missing near the number `checkpoint` from the marker,
/// or near `last`, the highest number of the record. Returns a description of the
/// first gap.
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

/// Returns the first range of `numbers` that have no entry and are not noted as
/// lost.
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
    // After this many endings, a number may still belong to the ending of an
    // earlier decision. A record that may be complete is not refused.
    Ok(gap.filter(|_| seen < EARLIER_ENDINGS_MAX))
}

/// Removes the numbers that `sql` finds from `missing`, until it is empty or
/// [`EARLIER_ENDINGS_MAX`] rows were read. Returns the number of rows read.
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
