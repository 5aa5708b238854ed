//! Check of the numbers of a record: each must have an entry, or be noted as lost.
//! Also checks the summary used by searches and the roll-ups used by counts, and
//! passes each number with its leaf to the check of the tree (`seal_check`).
//!
//! Decisions come in the order of their numbers, each with the number of its
//! ending, which is higher. All numbers up to a decision are therefore known when
//! it is reached, and only the endings of exchanges in progress have to be kept in
//! memory.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rusqlite::{Connection, Row};

use super::columns::{column, count, signed};
use super::decision_row::{CheckedRecord, IS_ORPHAN, ORPHANS};
use super::events::EVENTS;
use super::leaf::LeafRun;
use super::order::all_below;
use super::pages::{NumberedTable, SqlConditions, TableScan};
use super::parts::{PartKey, PartSums, last_part, part_before_newest, part_of};
use super::pruned::PrunedEnd;
use super::reader::AuditReader;
use super::rollup::RollupCheck;
use super::seal_check::{SealCheck, SealFinding, SealSums};
use super::sequence::{LOST_RANGES, LostRange, last_number};

/// Numbers of the events, with their leaves.
const EVENT_NUMBERS: NumberedTable = NumberedTable {
    select: "SELECT seq, leaf FROM event",
    ..EVENTS
};

/// Finding about numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NumberFinding {
    /// Numbers without an entry.
    Missing { first: i64, last: i64 },
    /// Decision that is missing from a removed range although its ending remains.
    Orphan { decision: i64, ending: i64 },
    /// Number of two entries.
    Twice(i64),
    /// Numbers noted as lost, and whether the note is unaltered.
    Lost { range: LostRange, is_own: bool },
    /// Part whose summary lacks decisions.
    Unsummed(i64),
    /// A part whose roll-up is not the sums of its entries.
    WrongRollup(i64),
    /// Roll-ups of parts without entries.
    EmptyRollups,
    /// Number of endings that are missing from `late_ending`, or listed there by
    /// mistake.
    LateEndings(u64),
    /// Finding about the Merkle tree.
    Seal(SealFinding),
}

/// Ending whose decision is missing.
#[derive(Debug, Clone, Copy)]
struct Orphan {
    decision: i64,
    leaf: LeafRun,
}

/// Rows of a scan, taken one by one.
struct RowFeed<'a, T> {
    scan: TableScan<'a>,
    rows: VecDeque<T>,
}

impl<'a, T: Copy> RowFeed<'a, T> {
    fn new(
        connection: &'a Connection,
        table: NumberedTable,
        conditions: SqlConditions,
    ) -> rusqlite::Result<Self> {
        let ranges = all_below(table.end(connection)?);
        Ok(Self {
            scan: TableScan::new(connection, table, conditions, ranges),
            rows: VecDeque::new(),
        })
    }

    /// Takes the next row if `is_wanted` accepts it.
    fn next_if(
        &mut self,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
        is_wanted: impl FnOnce(&T) -> bool,
    ) -> rusqlite::Result<Option<T>> {
        if self.rows.is_empty()
            && let Some(page) = self.scan.next_page(read)?
        {
            self.rows = page.into();
        }
        Ok(match self.rows.front() {
            Some(row) if is_wanted(row) => self.rows.pop_front(),
            _ => None,
        })
    }
}

/// State of a check.
pub(super) struct NumberCheck<'a> {
    reader: &'a AuditReader,
    events: RowFeed<'a, LeafRun>,
    lost: RowFeed<'a, (LostRange, bool)>,
    orphans: RowFeed<'a, Orphan>,
    /// Numbers after the last decision, the lowest on top.
    ahead: BinaryHeap<Reverse<LeafRun>>,
    /// Lowest number not accounted for yet.
    expected: i64,
    /// End of the removed entries. Decisions below it may remain, with later
    /// endings.
    pruned: PrunedEnd,
    /// Highest number when the check began. A proxy may be writing, so above this
    /// number some entries are seen and others are not.
    last: i64,
    sums: PartSums,
    /// Last complete part.
    last_part: i64,
    rollups: RollupCheck<'a>,
    seals: SealCheck<'a>,
}

impl<'a> NumberCheck<'a> {
    /// Starts before the first number. `seals` must have read the heads already.
    pub(super) fn new(reader: &'a AuditReader, seals: SealCheck<'a>) -> rusqlite::Result<Self> {
        let connection = &reader.connection;
        // Read before everything except the heads, whose entries exist already.
        // Data read later then have all entries up to this number.
        let last = last_number(connection)?.unwrap_or_default();
        let marker = reader.marker.as_ref();
        let in_marker = marker.map_or(0, |marker| marker.last.max(marker.committed));
        let mut is_orphan = SqlConditions::default();
        is_orphan.add_plain(IS_ORPHAN);
        let last_part = last_part(connection)?.unwrap_or(-1);
        let pruned = PrunedEnd::read(connection)?;
        Ok(Self {
            reader,
            events: RowFeed::new(connection, EVENT_NUMBERS, SqlConditions::default())?,
            lost: RowFeed::new(connection, LOST_RANGES, SqlConditions::default())?,
            orphans: RowFeed::new(connection, ORPHANS, is_orphan)?,
            ahead: BinaryHeap::new(),
            expected: pruned.next(),
            pruned,
            // The marker and the heads still know of rows that were deleted at the
            // end together with the row of `sequence`.
            last: last.max(signed(in_marker.max(seals.last()))),
            seals,
            sums: PartSums::new(0),
            last_part: last_part.max(part_before_newest(connection)?),
            rollups: RollupCheck::new(connection, pruned)?,
        })
    }

    /// Adds the next decision, with its ending.
    pub(super) fn add(
        &mut self,
        row: &CheckedRecord,
        mut report: impl FnMut(NumberFinding),
    ) -> rusqlite::Result<()> {
        let seq = signed(row.record.seq);
        self.gather_below(seq, &mut report)?;
        self.add_ahead(row.leaf);
        if let Some(ending) = row.ending {
            self.add_ahead(ending);
        }
        self.settle(seq, &mut report)?;
        let wrong = |part| report(NumberFinding::WrongRollup(part));
        self.rollups.add(row, wrong)?;
        self.sum_up(seq, row, &mut report)
    }

    /// Adds numbers to `ahead`, except those of entries that are being removed.
    fn add_ahead(&mut self, run: LeafRun) {
        if self.pruned.last < run.last {
            let first = run.first.max(self.pruned.next());
            self.ahead.push(Reverse(LeafRun { first, ..run }));
        }
    }

    /// Ends the check after the last number. Returns the result for the heads.
    pub(super) fn end(
        mut self,
        mut report: impl FnMut(NumberFinding),
    ) -> rusqlite::Result<SealSums> {
        self.gather_below(i64::MAX, &mut report)?;
        self.settle(i64::MAX, &mut report)?;
        let highest = count(self.expected - 1);
        self.expect(i64::MAX, &mut report);
        self.check_sums(&mut report)?;
        if let Some(wrong) = self.rollups.find_wrong_late_endings()? {
            report(NumberFinding::LateEndings(wrong));
        }
        let wrong = |part| report(NumberFinding::WrongRollup(part));
        if self.rollups.end(wrong)? {
            report(NumberFinding::EmptyRollups);
        }
        let of_seals = |finding| report(NumberFinding::Seal(finding));
        self.seals.end(highest, of_seals)
    }

    /// Adds the known numbers below the decision `seq` to `ahead`.
    fn gather_below(
        &mut self,
        seq: i64,
        report: &mut impl FnMut(NumberFinding),
    ) -> rusqlite::Result<()> {
        let read = |row: &Row<'_>| Ok(LeafRun::of_entry(row.get(0)?, column(row, 1)?));
        while let Some(event) = self.events.next_if(read, |event| event.first < seq)? {
            self.add_ahead(event);
        }
        let record = self.reader.record_id;
        let read = |row: &Row<'_>| LostRange::read_checked(row, record);
        let is_below = |(range, _): &(LostRange, bool)| range.first < seq;
        while let Some((range, is_own)) = self.lost.next_if(read, is_below)? {
            report(NumberFinding::Lost { range, is_own });
            self.add_ahead(LeafRun {
                first: range.first,
                last: range.last,
                leaf: range.digest,
            });
        }
        let read = |row: &Row<'_>| {
            Ok(Orphan {
                decision: row.get(0)?,
                leaf: LeafRun::of_entry(row.get(1)?, column(row, 2)?),
            })
        };
        while let Some(orphan) = self.orphans.next_if(read, |orphan| orphan.decision < seq)? {
            self.add_ahead(orphan.leaf);
            // An orphan after the end of the removal is reported as a missing
            // number.
            let (decision, ending) = (orphan.decision, orphan.leaf.first);
            if decision <= self.pruned.last && self.pruned.last < ending {
                report(NumberFinding::Orphan { decision, ending });
            }
        }
        Ok(())
    }

    /// Compares all numbers up to `last` with the expected ones.
    fn settle(
        &mut self,
        last: i64,
        report: &mut impl FnMut(NumberFinding),
    ) -> rusqlite::Result<()> {
        while let Some(Reverse(next)) = self.ahead.peek().copied()
            && next.first <= last
        {
            self.ahead.pop();
            // Numbers come in ascending order, so a lower one has occurred before.
            if next.first < self.expected {
                report(NumberFinding::Twice(next.first));
            }
            self.expect(next.first, report);
            self.expected = self.expected.max(next.last.saturating_add(1));
            let of_seals = |finding| report(NumberFinding::Seal(finding));
            self.seals.add(&next, of_seals)?;
        }
        Ok(())
    }

    /// Reports the numbers that are missing below `seq`.
    fn expect(&mut self, seq: i64, report: &mut impl FnMut(NumberFinding)) {
        let end = seq.min(self.last.saturating_add(1));
        if self.expected < end {
            report(NumberFinding::Missing {
                first: self.expected,
                last: end - 1,
            });
        }
        self.expected = self.expected.max(seq);
    }

    fn sum_up(
        &mut self,
        seq: i64,
        row: &CheckedRecord,
        report: &mut impl FnMut(NumberFinding),
    ) -> rusqlite::Result<()> {
        // Decisions come in order, so the previous part is complete.
        if self.sums.part != part_of(seq) {
            self.check_sums(report)?;
            self.sums = PartSums::new(part_of(seq));
        }
        self.sums.add(seq, PartKey::of_origin(row.origin));
        // An unknown verdict is a finding about its row.
        if let Some(key) = PartKey::of_verdict(&row.record.ruling.verdict) {
            self.sums.add(seq, key);
        }
        Ok(())
    }

    fn check_sums(&mut self, report: &mut impl FnMut(NumberFinding)) -> rusqlite::Result<()> {
        let part = self.sums.part;
        // The summary of a removed part is removed too.
        if self.pruned.part() < part
            && part <= self.last_part
            && !self.sums.are_in(&self.reader.connection)?
        {
            report(NumberFinding::Unsummed(part));
        }
        Ok(())
    }
}
