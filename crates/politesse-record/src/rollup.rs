//! Roll-ups: decisions and their endings summed by hour, ruling and origin, so that
//! counts over a month need not read its rows.
//!
//! Numbers are divided into parts (`parts`). The first entry of a later part closes
//! the part before it: the sums of its entries become one row of `rollup`, in the
//! same transaction. Sums are updated as entries are written, and read from the
//! database after a start, a redaction or a failed transaction. An ending in a
//! later part than its decision is summed with the part of its own number; until
//! that part is closed, `late_ending` lists it. A row therefore never changes, and
//! `verify` can compute it again from the entries.
//!
//! Does not know what the counts are for.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::columns::{column, signed};
use super::decision_row::CheckedRecord;
use super::entry_rows::DECISIONS;
use super::pages::NumberedTable;
use super::parts::{is_removed, numbers_of, part_before_newest, part_of};
use super::pruned::PrunedEnd;
use super::rollup_row::{
    EntrySums, OriginEntry, RollupEntries, RollupKey, TimeSpan, encode, is_wanted, late_parts,
    read_span,
};
use politesse_decision::outcome::EndingClass;

/// Microseconds of an hour.
pub(super) const HOUR_US: i64 = 3_600_000_000;

/// Decisions and their endings, with the columns that are counted.
pub(super) const COUNTED: NumberedTable = NumberedTable {
    select: "
SELECT d.seq, d.time_us, d.origin, d.ruling, d.wait_ms,
       e.seq, e.bytes, e.status, e.sent, e.error, t.text
FROM decision AS d LEFT JOIN ending AS e ON e.decision = d.seq
LEFT JOIN term AS t ON t.id = e.error",
    ..DECISIONS
};

/// Endings in the open part whose decisions are in earlier parts.
const LATE_ENDINGS: &str = "
SELECT d.seq, d.time_us, d.origin, d.ruling, d.wait_ms,
       e.seq, e.bytes, e.status, e.sent, e.error, t.text
FROM late_ending AS l JOIN ending AS e ON e.decision = l.decision
JOIN decision AS d ON d.seq = l.decision LEFT JOIN term AS t ON t.id = e.error";

/// Finds the last number of an entry, for the choice of the open part. An ending is
/// either in the part of a decision, or is a late one.
const LAST_ENTRY: &str = "
SELECT max(coalesce((SELECT max(seq) FROM decision), 0), coalesce((SELECT max(e.seq)
FROM late_ending AS l JOIN ending AS e ON e.decision = l.decision), 0))";

/// Counted columns of a decision, with its ending.
#[derive(Debug)]
pub(super) struct CountedDecision {
    pub(super) seq: i64,
    pub(super) time_us: i64,
    pub(super) origin: i64,
    pub(super) ruling: i64,
    pub(super) wait_ms: u64,
    pub(super) ending: Option<CountedEnding>,
}

/// Counted columns of an ending.
#[derive(Debug)]
pub(super) struct CountedEnding {
    pub(super) seq: i64,
    pub(super) bytes: u64,
    pub(super) class: EndingClass,
}

impl CountedEnding {
    /// Reads the columns of [`COUNTED`] that follow the number of the ending.
    fn read(seq: i64, row: &Row<'_>) -> rusqlite::Result<Self> {
        let has_error = row.get_ref(9)? != ValueRef::Null;
        // A term that was removed or altered still indicates an error.
        let term = row.get_ref(10)?.as_str().unwrap_or_default();
        let status = column::<Option<u16>>(row, 7).unwrap_or_default();
        Ok(Self {
            seq,
            bytes: column(row, 6)?,
            class: EndingClass::of(status, has_error.then_some(term), column(row, 8)?),
        })
    }

    fn sums(&self) -> EntrySums {
        EntrySums::of_ending(self.class, self.bytes)
    }
}

impl CountedDecision {
    /// Reads a row of [`COUNTED`].
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        // The number is null if there is no ending, and so are its values.
        let ending = |seq| CountedEnding::read(seq, row);
        Ok(Self {
            seq: row.get(0)?,
            time_us: row.get(1)?,
            origin: row.get(2)?,
            ruling: row.get(3)?,
            wait_ms: column(row, 4)?,
            ending: row.get::<_, Option<i64>>(5)?.map(ending).transpose()?,
        })
    }

    /// Returns the key under which the decision and its ending are summed.
    pub(super) fn key(&self) -> RollupKey {
        RollupKey {
            part: part_of(self.seq),
            hour: self.time_us.div_euclid(HOUR_US),
            ruling: self.ruling,
            origin: self.origin,
        }
    }

    /// Returns the sums of the decision without its ending.
    pub(super) fn decision_sums(&self) -> EntrySums {
        EntrySums {
            requests: 1,
            wait_ms: self.wait_ms,
            ..EntrySums::default()
        }
    }

    /// Returns the sums of the ending; zero without an ending.
    pub(super) fn ending_sums(&self) -> EntrySums {
        let ending = self.ending.as_ref();
        ending.map(CountedEnding::sums).unwrap_or_default()
    }
}

/// Row of `rollup`: sums of the entries with numbers in one part.
#[derive(Debug, Default)]
struct PartRollup {
    /// Time span of the decisions; `None` if there are only late endings.
    span: Option<TimeSpan>,
    sums: BTreeMap<RollupKey, EntrySums>,
}

impl PartRollup {
    /// Adds the endings in `part` whose decisions are in earlier parts.
    fn add_late_endings(&mut self, connection: &Connection, part: i64) -> rusqlite::Result<()> {
        visit(connection, LATE_ENDINGS, &[], |counted| {
            self.add_ending_in(part, counted);
        })
    }

    /// Computes the sums of a closed part again.
    fn again(connection: &Connection, part: i64) -> rusqlite::Result<Self> {
        let mut rollup = Self::default();
        rollup.add_decisions_of(connection, part, part)?;
        // Only the row itself says which earlier parts have endings in this one.
        for earlier in late_parts(connection, part)? {
            rollup.add_decisions_of(connection, earlier, part)?;
        }
        Ok(rollup)
    }

    /// Adds the decisions of part `of` that are in `part`, and those of its endings
    /// that are.
    fn add_decisions_of(
        &mut self,
        connection: &Connection,
        of: i64,
        part: i64,
    ) -> rusqlite::Result<()> {
        visit_decisions(connection, of, |counted| {
            if of == part {
                self.add_decision(counted);
            }
            self.add_ending_in(part, counted);
        })
    }

    fn add_decision(&mut self, counted: &CountedDecision) {
        let at = counted.time_us;
        let span = self.span.get_or_insert(TimeSpan {
            first_us: at,
            last_us: at,
        });
        span.first_us = span.first_us.min(at);
        span.last_us = span.last_us.max(at);
        let sums = self.sums.entry(counted.key()).or_default();
        sums.add(&counted.decision_sums());
    }

    /// Adds the ending, if its number is in `part`.
    fn add_ending_in(&mut self, part: i64, counted: &CountedDecision) {
        if let Some(ending) = &counted.ending
            && part_of(ending.seq) == part
        {
            let sums = self.sums.entry(counted.key()).or_default();
            sums.add(&ending.sums());
        }
    }

    fn write(&self, connection: &Connection, part: i64) -> rusqlite::Result<()> {
        let sql = "REPLACE INTO rollup (part, first_us, last_us, sums) VALUES (?, ?, ?, ?)";
        let span = self.span;
        connection.prepare_cached(sql)?.insert(params![
            part,
            span.map(|span| span.first_us),
            span.map(|span| span.last_us),
            encode(&self.sums, part),
        ])?;
        Ok(())
    }

    /// Reports whether the table has these sums for `part`.
    fn matches_row(&self, connection: &Connection, part: i64) -> rusqlite::Result<bool> {
        let encoded = encode(&self.sums, part);
        let sql = "SELECT first_us, last_us, sums FROM rollup WHERE part = ?";
        let mut statement = connection.prepare_cached(sql)?;
        let is_same = statement.query_row([part], |row| {
            let is_same_span = read_span(row, 0)? == self.span;
            Ok(is_same_span && row.get_ref(2)?.as_blob().ok() == Some(&encoded))
        });
        Ok(is_same.optional()? == Some(true))
    }
}

/// Passes each decision of `part`, with its ending, to `each`.
fn visit_decisions(
    connection: &Connection,
    part: i64,
    each: impl FnMut(&CountedDecision),
) -> rusqlite::Result<()> {
    let numbers = numbers_of(part);
    let sql = format!("{} WHERE ? <= d.seq AND d.seq < ?", COUNTED.select);
    visit(connection, &sql, &[numbers.start, numbers.end], each)
}

/// Passes each decision that `sql` finds, with its ending, to `each`.
fn visit(
    connection: &Connection,
    sql: &str,
    values: &[i64],
    mut each: impl FnMut(&CountedDecision),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        each(&CountedDecision::read(row)?);
    }
    Ok(())
}

/// Reports whether `part` has a row.
fn is_rolled_up(connection: &Connection, part: i64) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM rollup WHERE part = ?";
    connection.prepare_cached(sql)?.exists([part])
}

/// Computes the row of a part again, if there is one, after its entries were
/// changed. `connection` is in a transaction.
pub(super) fn remake_rollup(connection: &Connection, part: i64) -> rusqlite::Result<()> {
    if is_rolled_up(connection, part)? {
        PartRollup::again(connection, part)?.write(connection, part)?;
    }
    Ok(())
}

/// Returns the last part that is rolled up.
pub(super) fn last_rolled_up(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT max(part) FROM rollup";
    connection.query_row(sql, [], |row| row.get(0))
}

/// Reads the endings that no row of `rollup` includes yet although their decisions
/// are included, for the given origins.
pub(super) fn late_endings(
    connection: &Connection,
    origins: Option<&[i64]>,
) -> rusqlite::Result<RollupEntries> {
    let mut late = RollupEntries::default();
    visit(connection, LATE_ENDINGS, &[], |counted| {
        let (key, sums) = (counted.key(), counted.ending_sums());
        let origin = key.origin;
        if is_wanted(origins, origin) {
            late.push(key, OriginEntry { origin, sums });
        }
    })?;
    Ok(late)
}

/// Roll-up of the part that is being written.
#[derive(Debug, Default)]
pub(super) struct OpenRollup {
    /// Sums so far; `None` until they are read from the database.
    sums: Option<OpenSums>,
}

/// Sums of the entries written so far in the open part.
#[derive(Debug, Default)]
struct OpenSums {
    part: i64,
    /// Sums, without the endings listed in `late_ending`.
    rollup: PartRollup,
    /// Keys of the decisions that have no ending yet.
    begun: BTreeMap<i64, RollupKey>,
}

impl OpenSums {
    /// Creates empty sums for `part`.
    fn new(part: i64) -> Self {
        Self {
            part,
            ..Self::default()
        }
    }

    /// Computes the sums of the entries written so far in `part`.
    fn of(connection: &Connection, part: i64) -> rusqlite::Result<Self> {
        let mut sums = Self::new(part);
        visit_decisions(connection, part, |counted| sums.add(counted))?;
        Ok(sums)
    }

    fn add(&mut self, counted: &CountedDecision) {
        self.rollup.add_decision(counted);
        self.rollup.add_ending_in(self.part, counted);
        if counted.ending.is_none() {
            self.begun.insert(counted.seq, counted.key());
        }
    }

    /// Computes the sums of the open part from the database.
    fn resumed(connection: &Connection) -> rusqlite::Result<Self> {
        let last: i64 = connection.query_row(LAST_ENTRY, [], |row| row.get(0))?;
        let part = part_of(last);
        // An event may have closed the part. Its late endings are then listed
        // nowhere else.
        if is_rolled_up(connection, part)? {
            return Ok(Self::new(part + 1));
        }
        Self::of(connection, part)
    }

    /// Writes the row of the part, which is complete.
    fn close(mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.rollup.add_late_endings(connection, self.part)?;
        // There are no sums if numbers were lost from the first one on, and removed
        // parts are no longer counted.
        if !self.rollup.sums.is_empty() && !is_removed(connection, self.part)? {
            self.rollup.write(connection, self.part)?;
        }
        let mut forget = connection.prepare_cached("DELETE FROM late_ending")?;
        forget.execute([]).map(drop)
    }
}

impl OpenRollup {
    /// Prepares for entry `seq`, the next to be written. Rolls up the previous part
    /// if `seq` begins a new one.
    pub(super) fn enter(&mut self, connection: &Connection, seq: i64) -> rusqlite::Result<()> {
        let next = part_of(seq);
        if self.sums_of(next).is_some() {
            return Ok(());
        }
        // Taken out, so that a failure below leaves `None`: the transaction then
        // fails, and the sums are read from the database again.
        let mut sums = match self.sums.take() {
            Some(sums) => sums,
            None => OpenSums::resumed(connection)?,
        };
        if sums.part < next {
            sums.close(connection)?;
            sums = OpenSums::new(next);
        }
        self.sums = Some(sums);
        Ok(())
    }

    /// Adds a decision that was written.
    pub(super) fn note_decision(&mut self, counted: &CountedDecision) {
        if let Some(sums) = self.sums_of(part_of(counted.seq)) {
            sums.add(counted);
        }
    }

    /// Adds an ending of `decision` that was written.
    pub(super) fn note_ending(
        &mut self,
        connection: &Connection,
        decision: i64,
        ending: &CountedEnding,
    ) -> rusqlite::Result<()> {
        let part = part_of(ending.seq);
        if part_of(decision) != part {
            let sql = "INSERT INTO late_ending (decision) VALUES (?)";
            connection.prepare_cached(sql)?.insert([decision])?;
        } else if let Some(sums) = self.sums_of(part)
            && let Some(key) = sums.begun.remove(&decision)
        {
            let sums = sums.rollup.sums.entry(key).or_default();
            sums.add(&ending.sums());
        }
        Ok(())
    }

    /// Returns the sums of `part` if it is the open one. Entries come in ascending
    /// order.
    fn sums_of(&mut self, part: i64) -> Option<&mut OpenSums> {
        self.sums.as_mut().filter(|sums| sums.part == part)
    }
}

/// Returns the last closed part.
fn last_closed(connection: &Connection) -> rusqlite::Result<i64> {
    let rolled_up = last_rolled_up(connection)?.unwrap_or(-1);
    Ok(rolled_up.max(part_before_newest(connection)?))
}

/// Comparison of the roll-ups with the entries that they sum up.
#[derive(Debug)]
pub(super) struct RollupCheck<'a> {
    connection: &'a Connection,
    /// Last part that was removed, along with its row.
    pruned: i64,
    /// Last part that was closed when the check began.
    last: i64,
    /// Decisions of closed parts whose endings are in the open part.
    late: Vec<i64>,
    /// Number of rows up to that part, and number of rows compared.
    rows: i64,
    compared: i64,
    /// Sums of parts that are not complete yet. Endings may be ahead of the
    /// decisions being read by the exchanges that were in progress.
    open: BTreeMap<i64, PartRollup>,
}

impl<'a> RollupCheck<'a> {
    /// Starts before the first decision. Entries up to `pruned` were removed, or
    /// are being removed.
    pub(super) fn new(connection: &'a Connection, pruned: PrunedEnd) -> rusqlite::Result<Self> {
        let last = last_closed(connection)?;
        let sql = "SELECT count(*) FROM rollup WHERE ? < part AND part <= ?";
        let is_removing = 0 < pruned.last && !pruned.is_removed;
        let below = if is_removing { pruned.part() } else { i64::MIN };
        Ok(Self {
            rows: connection.query_row(sql, [below, last], |row| row.get(0))?,
            pruned: pruned.part(),
            compared: 0,
            open: BTreeMap::new(),
            connection,
            last,
            late: Vec::new(),
        })
    }

    /// Adds the next decision with its ending, and reports parts whose sums differ
    /// from their entries.
    pub(super) fn add(
        &mut self,
        row: &CheckedRecord,
        report: impl FnMut(i64),
    ) -> rusqlite::Result<()> {
        let record = &row.record;
        let counted = CountedDecision {
            seq: signed(record.seq),
            time_us: record.at.as_microsecond(),
            origin: row.origin,
            ruling: row.ruling,
            wait_ms: record.wait_ms,
            ending: row.ending.map(|ending| CountedEnding {
                seq: ending.first,
                bytes: record.bytes.unwrap_or_default(),
                class: EndingClass::of_record(record),
            }),
        };
        let part = part_of(counted.seq);
        // Decisions come in order, so the earlier parts are complete.
        self.compare_below(part, report)?;
        self.open.entry(part).or_default().add_decision(&counted);
        if let Some(ending) = &counted.ending {
            let part = part_of(ending.seq);
            let rollup = self.open.entry(part).or_default();
            rollup.add_ending_in(part, &counted);
            if self.last < part && part_of(counted.seq) < part {
                self.late.push(counted.seq);
            }
        }
        Ok(())
    }

    /// Counts the endings that are missing from `late_ending`, and those listed
    /// there by mistake; `None` if there are none. Must be called after the last
    /// decision.
    pub(super) fn find_wrong_late_endings(&self) -> rusqlite::Result<Option<u64>> {
        let mut names = self
            .connection
            .prepare("SELECT decision FROM late_ending")?;
        let rows = names.query_map([], |row| row.get(0))?;
        let named = rows.collect::<rusqlite::Result<BTreeSet<i64>>>()?;
        // If a running proxy has closed the part meanwhile, the table is already
        // empty.
        if self.last < last_closed(self.connection)? {
            return Ok(None);
        }
        let missing = self.late.iter().filter(|seq| !named.contains(seq)).count();
        let mut is_late = self.connection.prepare_cached(
            "SELECT 1 FROM ending WHERE decision = ?1 AND decision < ?2 AND ?2 <= seq",
        )?;
        let open = numbers_of(self.last.saturating_add(1)).start;
        let mut wrong = missing as u64;
        for decision in named {
            wrong += u64::from(!is_late.exists([decision, open])?);
        }
        Ok((0 < wrong).then_some(wrong))
    }

    /// Compares the remaining parts after the last decision. Returns whether there
    /// are rows of parts without entries.
    pub(super) fn end(mut self, report: impl FnMut(i64)) -> rusqlite::Result<bool> {
        self.compare_below(i64::MAX, report)?;
        Ok(self.rows != self.compared)
    }

    fn compare_below(&mut self, end: i64, mut report: impl FnMut(i64)) -> rusqlite::Result<()> {
        while let Some(entry) = self.open.first_entry()
            && *entry.key() < end
        {
            let (part, rollup) = entry.remove_entry();
            if part <= self.pruned || self.last < part {
                continue;
            }
            self.compared += 1;
            if !rollup.matches_row(self.connection, part)? {
                report(part);
            }
        }
        Ok(())
    }
}
