//! Summary of the decisions by host and by verdict, instead of indexes.
//!
//! An index by host would be written at a random place for each decision, which
//! costs more than the decision itself. Numbers are therefore divided into parts of
//! 8,192. For each host and each verdict, the table `part` has the first and the
//! last decision in a part, written in order when the part is complete. A search
//! reads only those ranges, and all of the last part. A search for rulings skips
//! the parts whose roll-up has none of them.
//!
//! Does not know how rows are read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use tokio::time::Instant;

use super::order::Direction;
use super::rollup_row::has_ruling;
use politesse_base::clock;
use politesse_decision::decide::Verdict;

/// Binary logarithm of the size of a part. A power of two, so that a part is a
/// subtree of the Merkle tree.
pub(super) const PART_LEVEL: u32 = 13;

/// Size of a part. Its numbers are shared by decisions, endings and events.
pub(super) const PART_NUMBERS: i64 = 1 << PART_LEVEL;

/// Maximum number of parts examined in one transaction, which takes some
/// milliseconds.
const PARTS_SEEN_MAX: usize = 1024;

/// Values of `field` in the table. Hosts are many and come last, so that their rows
/// are appended to the table; verdicts are few and stored together.
const VERDICT: i64 = 1;
const HOST: i64 = 2;

/// Rows written by one statement. Written one by one, half of the time would be
/// spent on starting and ending statements.
const ROWS_AT_ONCE: usize = 32;

/// Finds the last part in the summary; every decision has a verdict.
const LAST_PART: &str = "SELECT max(part) FROM part WHERE field = 1";

/// Finds the highest number removed.
const PRUNED: &str = "SELECT coalesce((SELECT last FROM pruned), 0)";

/// Finds the part of the first row at or after a key.
const NEXT_PART: &str = "
SELECT part FROM part WHERE field = ? AND (part, value) >= (?, ?)
ORDER BY part, value LIMIT 1";

/// Finds the part of the last row at or before a key.
const PREVIOUS_PART: &str = "
SELECT part FROM part WHERE field = ? AND (part, value) <= (?, ?)
ORDER BY part DESC, value DESC LIMIT 1";

/// Finds the next part with a verdict, and the previous one. Rows are scanned one
/// by one, since verdicts are stored together.
const NEXT_WITH_VERDICT: &str = "
SELECT part FROM part WHERE field = ? AND part >= ? AND value = ? ORDER BY part LIMIT 1";
const PREVIOUS_WITH_VERDICT: &str = "
SELECT part FROM part WHERE field = ? AND part <= ? AND value = ? ORDER BY part DESC LIMIT 1";

/// Finds the decision nearest to a number, inclusive.
const NEXT_DECISION: &str = "SELECT seq FROM decision WHERE seq >= ? ORDER BY seq LIMIT 1";
const PREVIOUS_DECISION: &str = "SELECT seq FROM decision WHERE seq <= ? ORDER BY seq DESC LIMIT 1";

/// Returns the part of a number. Numbers start at 1, and parts at 0.
pub(super) fn part_of(seq: i64) -> i64 {
    seq.saturating_sub(1).div_euclid(PART_NUMBERS)
}

/// Returns the last part in the summary.
pub(super) fn last_part(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.query_row(LAST_PART, [], |row| row.get(0))
}

/// Returns the part before that of the newest decision. It is complete, even if
/// someone has emptied the summary tables.
pub(super) fn part_before_newest(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT coalesce(max(seq), 0) FROM decision";
    let newest = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(part_of(newest) - 1)
}

/// Returns the highest number removed; 0 if none was.
fn last_removed(connection: &Connection) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached(PRUNED)?;
    statement.query_row([], |row| row.get(0))
}

/// Reports whether the entries of `part` were removed, or are being removed.
pub(super) fn is_removed(connection: &Connection, part: i64) -> rusqlite::Result<bool> {
    Ok(numbers_of(part).start <= last_removed(connection)?)
}

/// Returns the numbers in a part.
pub(super) fn numbers_of(part: i64) -> Range<i64> {
    let start = part.saturating_mul(PART_NUMBERS).saturating_add(1);
    start..start.saturating_add(PART_NUMBERS)
}

/// Formats the numbers of a part for messages.
pub(super) fn part_text(part: i64) -> String {
    let numbers = numbers_of(part);
    format!("{} to {}", numbers.start, numbers.end.saturating_sub(1))
}

/// Field of a decision with its value: the row id of its origin, or the index of
/// its verdict in the list of verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PartKey {
    field: i64,
    value: i64,
}

impl PartKey {
    /// Returns the key of decisions about the origin with row `id`.
    pub(super) fn of_origin(id: i64) -> Self {
        Self {
            field: HOST,
            value: id,
        }
    }

    /// Returns the key of decisions with a verdict; `None` for a word that no
    /// version writes.
    pub(super) fn of_verdict(word: &str) -> Option<Self> {
        let mut verdicts = Verdict::ALL.into_iter();
        let place = verdicts.position(|verdict| verdict.as_str() == word)?;
        Some(Self {
            field: VERDICT,
            value: i64::try_from(place).ok()?,
        })
    }
}

/// First and last decision with a key, as offsets from the start of their part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PartSpan {
    first: i64,
    last: i64,
}

impl PartSpan {
    /// Returns the smallest span that contains both.
    fn with(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// Summary of one part.
#[derive(Debug, Default)]
pub(super) struct PartSums {
    pub(super) part: i64,
    spans: BTreeMap<PartKey, PartSpan>,
}

impl PartSums {
    /// Creates an empty summary of `part`.
    pub(super) fn new(part: i64) -> Self {
        Self {
            part,
            ..Self::default()
        }
    }

    /// Adds the decision `seq`, which is in the part.
    pub(super) fn add(&mut self, seq: i64, key: PartKey) {
        let at = seq - numbers_of(self.part).start;
        let only = PartSpan {
            first: at,
            last: at,
        };
        let span = self.spans.entry(key).or_insert(only);
        *span = span.with(only);
    }

    /// Writes the summary, in the order of the table.
    pub(super) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let spans: Vec<_> = self.spans.iter().collect();
        for rows in spans.chunks(ROWS_AT_ONCE) {
            let places = vec!["(?, ?, ?, ?, ?)"; rows.len()].join(", ");
            let sql =
                format!("REPLACE INTO part (field, part, value, first, last) VALUES {places}");
            let values = rows
                .iter()
                .flat_map(|(key, span)| [key.field, self.part, key.value, span.first, span.last]);
            let mut statement = connection.prepare_cached(&sql)?;
            statement.execute(params_from_iter(values))?;
        }
        Ok(())
    }

    /// Reports whether the ranges in the table include all of these decisions.
    pub(super) fn are_in(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let sql = "SELECT field, value, first, last FROM part
                   WHERE field IN (1, 2) AND part = ?";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([self.part])?;
        let mut found = 0;
        while let Some(row) = rows.next()? {
            let key = PartKey {
                field: row.get(0)?,
                value: row.get(1)?,
            };
            let (first, last): (i64, i64) = (row.get(2)?, row.get(3)?);
            let own = self.spans.get(&key);
            let is_within = own.is_some_and(|own| first <= own.first && own.last <= last);
            found += usize::from(is_within);
        }
        Ok(found == self.spans.len())
    }
}

/// Summary of the part that is being written.
#[derive(Debug, Default)]
pub(super) struct OpenPart {
    /// Summary so far; `None` until it is read from the database.
    sums: Option<PartSums>,
}

impl OpenPart {
    /// Adds the decision `seq`, the next to be written, under its origin and
    /// verdict. Writes the summary of the previous part if `seq` begins a new one.
    pub(super) fn add(
        &mut self,
        connection: &Connection,
        seq: i64,
        keys: [Option<PartKey>; 2],
    ) -> rusqlite::Result<()> {
        // Taken out, so that a failure below leaves `None`: the transaction then
        // fails, and the summary is read from the database again.
        let mut sums = match self.sums.take() {
            Some(sums) => sums,
            None => last_in(connection)?,
        };
        // Written in the transaction of the first decision of the next part, so
        // that the summary of a part is complete or absent.
        if sums.part < part_of(seq) {
            // Removed parts have no summary.
            if !is_removed(connection, sums.part)? {
                sums.write(connection)?;
            }
            sums = PartSums::new(part_of(seq));
        }
        for key in keys.into_iter().flatten() {
            sums.add(seq, key);
        }
        self.sums = Some(sums);
        Ok(())
    }
}

/// Reads the summary of the newest decision's part, which is not written yet.
fn last_in(connection: &Connection) -> rusqlite::Result<PartSums> {
    let last: Option<i64> =
        connection.query_row("SELECT max(seq) FROM decision", [], |row| row.get(0))?;
    sums_of(connection, part_of(last.unwrap_or_default()))
}

/// Writes the rows of a part again, if there are any, after its decisions were
/// changed. `connection` is in a transaction.
pub(super) fn remake_part(connection: &Connection, part: i64) -> rusqlite::Result<()> {
    // One statement per field, because the key begins with the field.
    let sql = "DELETE FROM part WHERE field = ? AND part = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let removed = statement.execute([VERDICT, part])? + statement.execute([HOST, part])?;
    if 0 < removed {
        sums_of(connection, part)?.write(connection)?;
    }
    Ok(())
}

/// Reads the decisions of a part into a summary.
fn sums_of(connection: &Connection, part: i64) -> rusqlite::Result<PartSums> {
    let mut sums = PartSums::new(part);
    let mut statement = connection.prepare_cached(
        "SELECT d.seq, d.origin, r.verdict FROM decision AS d
         LEFT JOIN ruling AS r ON r.id = d.ruling
         WHERE ? <= d.seq AND d.seq < ? ORDER BY d.seq",
    )?;
    let numbers = numbers_of(part);
    let mut rows = statement.query([numbers.start, numbers.end])?;
    while let Some(row) = rows.next()? {
        let seq = row.get(0)?;
        sums.add(seq, PartKey::of_origin(row.get(1)?));
        // A verdict that no version writes cannot be searched for, so it is left
        // out.
        if let Ok(word) = row.get_ref(2)?.as_str()
            && let Some(key) = PartKey::of_verdict(word)
        {
            sums.add(seq, key);
        }
    }
    Ok(sums)
}

/// Ranges of numbers that may have decisions with the wanted values.
#[derive(Debug, Default)]
pub(super) struct PartFilter {
    /// Keys of each condition, of which one must match.
    conditions: Vec<Vec<PartKey>>,
    /// Row ids of the wanted rulings; `None` for all.
    rulings: Option<BTreeSet<i64>>,
    /// Number before which there is no summary. The only entries there are those
    /// that remained because their exchange ended later.
    summed_from: i64,
    /// First number after the summary.
    open_from: i64,
}

impl PartFilter {
    /// Creates a filter for decisions with one of `rulings`; `None` for all
    /// rulings.
    pub(super) fn new(
        connection: &Connection,
        rulings: Option<BTreeSet<i64>>,
    ) -> rusqlite::Result<Self> {
        let last = last_part(connection)?;
        let pruned = last_removed(connection)?;
        Ok(Self {
            conditions: Vec::new(),
            rulings,
            summed_from: pruned.saturating_add(1),
            open_from: last.map_or(i64::MIN, |last| numbers_of(last).end),
        })
    }

    /// Adds a condition: one of `keys` must match.
    pub(super) fn add(&mut self, keys: Vec<PartKey>) {
        self.conditions.push(keys);
    }

    /// Returns the next range within `rest` to be read; `None` if there are no
    /// more. After `deadline` the range is empty, and marks where the search
    /// stopped.
    pub(super) fn next(
        &self,
        connection: &Connection,
        rest: &Range<i64>,
        direction: Direction,
        deadline: Option<Instant>,
    ) -> rusqlite::Result<Option<Range<i64>>> {
        if self.conditions.is_empty() && self.rulings.is_none() {
            return Ok(Some(rest.clone()).filter(|rest| !rest.is_empty()));
        }
        let mut left = rest.clone();
        loop {
            // One transaction for many parts, because starting and ending one takes
            // longer than examining a part.
            let transaction = connection.unchecked_transaction()?;
            for _ in 0..PARTS_SEEN_MAX {
                if let ControlFlow::Break(found) = self.look(&transaction, &mut left, direction)? {
                    return Ok(found);
                }
                if deadline.is_some_and(|deadline| deadline <= clock::instant()) {
                    return Ok(Some(match direction {
                        Direction::OldestFirst => left.start..left.start,
                        Direction::NewestFirst => left.end..left.end,
                    }));
                }
            }
        }
    }

    /// Examines the next part in `left`. Breaks with the range to be read row by
    /// row, or with `None` if no part is left; otherwise removes the part from
    /// `left`.
    fn look(
        &self,
        connection: &Connection,
        left: &mut Range<i64>,
        direction: Direction,
    ) -> rusqlite::Result<ControlFlow<Option<Range<i64>>>> {
        if left.is_empty() {
            return Ok(ControlFlow::Break(None));
        }
        let near = match direction {
            Direction::OldestFirst => left.start,
            Direction::NewestFirst => left.end - 1,
        };
        // After the last part there is no summary, so all of it is read.
        let open = self.open_from.max(left.start)..left.end;
        if open.contains(&near) {
            return Ok(ControlFlow::Break(Some(open)));
        }
        let remaining = left.start..self.summed_from.min(left.end);
        if remaining.contains(&near) {
            return Ok(ControlFlow::Break(Some(remaining)));
        }
        let part = part_of(near);
        let nearest = self.nearest(connection, part, direction)?;
        if nearest == Some(part) {
            // The table may have been altered to any values, so the range is
            // limited to `left`.
            let found = self.stretch(connection, part)?;
            let found = found.start.max(left.start)..found.end.min(left.end);
            let may_have_ruling = match &self.rulings {
                Some(rulings) if !found.is_empty() => has_ruling(connection, part, rulings)?,
                _ => true,
            };
            if !found.is_empty() && may_have_ruling {
                return Ok(ControlFlow::Break(Some(found)));
            }
        }
        match (direction, nearest) {
            (Direction::OldestFirst, nearest) => {
                let next = match nearest {
                    // The open part is still to come.
                    None => self.open_from,
                    Some(nearest) if nearest == part => numbers_of(part).end,
                    Some(nearest) => numbers_of(nearest).start,
                };
                left.start = next.max(near + 1);
            }
            (Direction::NewestFirst, nearest) => {
                let end = match nearest {
                    // The remaining entries of removed parts are still to come.
                    None => self.summed_from,
                    Some(nearest) if nearest == part => numbers_of(part).start,
                    Some(nearest) => numbers_of(nearest).end,
                };
                left.end = end.max(self.summed_from).min(near);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the part nearest to `part`, inclusive, that may have decisions
    /// matching the first condition; `None` if no part has any.
    fn nearest(
        &self,
        connection: &Connection,
        part: i64,
        direction: Direction,
    ) -> rusqlite::Result<Option<i64>> {
        if self.conditions.is_empty() {
            // Someone may have put a decision after a gap of any size, so the next
            // decision is looked up.
            let (sql, number) = match direction {
                Direction::OldestFirst => (NEXT_DECISION, numbers_of(part).start),
                Direction::NewestFirst => (PREVIOUS_DECISION, numbers_of(part).end - 1),
            };
            let mut statement = connection.prepare_cached(sql)?;
            let seq = statement.query_row([number], |row| row.get(0)).optional()?;
            return Ok(seq.map(part_of));
        }
        // Only the last key in search order is compared: a part without a row up to
        // that key has none of the keys. Each part therefore costs one page access.
        let keys = self.conditions.first().map_or(&[][..], Vec::as_slice);
        let key = match direction {
            Direction::OldestFirst => keys.iter().min(),
            Direction::NewestFirst => keys.iter().max(),
        };
        let Some(key) = key else {
            return Ok(None);
        };
        let sql = match (direction, key.field) {
            (Direction::OldestFirst, VERDICT) => NEXT_WITH_VERDICT,
            (Direction::NewestFirst, VERDICT) => PREVIOUS_WITH_VERDICT,
            (Direction::OldestFirst, _) => NEXT_PART,
            (Direction::NewestFirst, _) => PREVIOUS_PART,
        };
        let mut statement = connection.prepare_cached(sql)?;
        let place = [key.field, part, key.value];
        statement.query_row(place, |row| row.get(0)).optional()
    }

    /// Returns the range of `part` that may match every condition.
    fn stretch(&self, connection: &Connection, part: i64) -> rusqlite::Result<Range<i64>> {
        let sql = "SELECT first, last FROM part WHERE field = ? AND part = ? AND value = ?";
        let mut statement = connection.prepare_cached(sql)?;
        let read = |row: &Row<'_>| {
            Ok(PartSpan {
                first: row.get(0)?,
                last: row.get(1)?,
            })
        };
        let start = numbers_of(part).start;
        let mut whole = numbers_of(part);
        for keys in &self.conditions {
            let mut met: Option<PartSpan> = None;
            for key in keys {
                let place = [key.field, part, key.value];
                let span = statement.query_row(place, read).optional()?;
                met = match (met, span) {
                    (Some(one), Some(other)) => Some(one.with(other)),
                    (one, other) => one.or(other),
                };
            }
            let Some(met) = met else {
                return Ok(start..start);
            };
            whole.start = whole.start.max(start.saturating_add(met.first));
            whole.end = whole
                .end
                .min(start.saturating_add(met.last).saturating_add(1));
        }
        Ok(whole)
    }
}
