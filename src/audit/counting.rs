//! Counting of decisions: whole parts by their roll-ups, the others row by row.
//!
//! A part is counted by its roll-up if all of its decisions were made within the
//! times that are asked for. That leaves the parts in which the times begin and
//! end, and the one that is being written.
//!
//! Does not know the texts that the sums are shown with.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use rusqlite::{Connection, Row};

use super::decision_row::DECISIONS;
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::order::TimeRange;
use super::pages::TableScan;
use super::parts::numbers_of;
use super::reader::AuditReader;
use super::rollup::{
    COUNTED, CountedDecision, EntrySums, RollupEntry, RollupKey, RollupReader, TimeSpan,
    last_rolled_up, late_endings, read_span,
};

/// Sums that are kept apart at a time, of some hundred bytes each. A question
/// that asks for more is to be narrowed.
const SUMS_MAX: usize = 1 << 20;

/// Parts of one transaction: some milliseconds, which the WAL does not notice.
const ROLLUPS: &str = "
SELECT part, first_us, last_us, sums FROM rollup
WHERE ? < part AND part <= ? ORDER BY part LIMIT 64";

/// Hour of a decision, and the dictionary rows that it refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SumReferences {
    /// Hours since 1970.
    pub(super) hour: i64,
    pub(super) origin: i64,
    pub(super) ruling: i64,
}

/// Hasher of numbers that nobody chooses: those of hours and of rows.
///
/// A roll-up of many hosts has an entry for nearly each request, and the hasher of
/// the standard library would take longer than all else.
#[derive(Debug, Default)]
pub(super) struct ReferenceHasher(u64);

impl Hasher for ReferenceHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_i64((*byte).into()));
    }

    fn write_i64(&mut self, number: i64) {
        // The multiplier of Firefox's hash: odd, with its bits spread.
        let mixed = self.0.rotate_left(5) ^ number.cast_unsigned();
        self.0 = mixed.wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// Sums by hour, origin and ruling, as far as they are to be told apart.
#[derive(Debug, Default)]
pub(super) struct SumsByReference {
    pub(super) is_by_hour: bool,
    pub(super) is_by_origin: bool,
    pub(super) sums: HashMap<SumReferences, EntrySums, BuildHasherDefault<ReferenceHasher>>,
}

impl SumsByReference {
    /// Adds the decisions that meet `filter`, as far as it does not depend on the
    /// ruling: that is compared once for each sum.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`], [`AuditError::TooManySums`].
    pub(super) fn add_decisions(
        &mut self,
        reader: &AuditReader,
        filter: &DecisionFilter,
    ) -> Result<(), AuditError> {
        let rolled_up = match &filter.url {
            None => RolledUp::read(reader, filter, self)?,
            // A roll-up knows no paths.
            Some(_) => None,
        };
        let scan = match rolled_up {
            Some(rolled_up) => {
                let conditions = filter.conditions();
                TableScan::new(&reader.connection, COUNTED, conditions, rolled_up.rest)
            }
            None => reader.narrow_scan(COUNTED, filter)?,
        };
        self.add_rows(scan)
    }

    fn add_rows(&mut self, mut scan: TableScan<'_>) -> Result<(), AuditError> {
        while let Some(page) = scan.next_page(CountedDecision::read)? {
            for counted in page {
                let mut sums = counted.decision_sums();
                sums.add(&counted.ending_sums());
                self.add(self.key(counted.key()), &sums)?;
            }
        }
        Ok(())
    }

    /// Returns the references of a key, without what is not to be told apart.
    fn key(&self, of: RollupKey) -> SumReferences {
        SumReferences {
            hour: if self.is_by_hour { of.hour } else { 0 },
            origin: if self.is_by_origin { of.origin } else { 0 },
            ruling: of.ruling,
        }
    }

    fn add(&mut self, key: SumReferences, sums: &EntrySums) -> Result<(), AuditError> {
        self.sums.entry(key).or_default().add(sums);
        if SUMS_MAX < self.sums.len() {
            return Err(AuditError::TooManySums(SUMS_MAX));
        }
        Ok(())
    }

    /// Adds entries, of which neighbours mostly have the same key.
    fn add_entries<'e>(
        &mut self,
        entries: impl IntoIterator<Item = &'e RollupEntry>,
    ) -> Result<(), AuditError> {
        let mut run: Option<SumReferences> = None;
        let mut run_sums = EntrySums::default();
        for RollupEntry { key, sums } in entries {
            let key = self.key(*key);
            if let Some(last) = run
                && last != key
            {
                self.add(last, &std::mem::take(&mut run_sums))?;
            }
            run = Some(key);
            run_sums.add(sums);
        }
        run.map_or(Ok(()), |last| self.add(last, &run_sums))
    }
}

/// How the decisions of a part are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartUse {
    /// By its roll-up: all of them were made within the times.
    Whole,
    /// Row by row.
    Rows,
    /// None was made within the times.
    Outside,
}

impl PartUse {
    fn of(span: Option<TimeSpan>, times: TimeRange) -> Self {
        let Some(span) = span else {
            return Self::Outside;
        };
        let from = times.from.map_or(i64::MIN, |from| from.as_microsecond());
        // A time that is later than all: no decision has it.
        let until = times.until.map_or(i64::MAX, |until| until.as_microsecond());
        if span.last_us < from || until <= span.first_us {
            Self::Outside
        } else if from <= span.first_us && span.last_us < until {
            Self::Whole
        } else {
            Self::Rows
        }
    }
}

/// Outcome of counting by roll-ups.
struct RolledUp {
    /// Numbers of decisions that are still to be counted, row by row.
    rest: Vec<Range<i64>>,
}

impl RolledUp {
    /// Adds to `sums` what roll-ups tell; `None` if there are none.
    fn read(
        reader: &AuditReader,
        filter: &DecisionFilter,
        sums: &mut SumsByReference,
    ) -> Result<Option<Self>, AuditError> {
        let connection = &reader.connection;
        // In one transaction: an ending is late, or it is rolled up. What is closed
        // later is read row by row.
        let transaction = connection.unchecked_transaction()?;
        let last = last_rolled_up(&transaction)?;
        let late = late_endings(&transaction)?;
        drop(transaction);
        let Some(last) = last else {
            return Ok(None);
        };
        let mut scan = RollupScan {
            times: filter.times(),
            origins: filter.origins(connection)?,
            uses: HashMap::new(),
            has_whole: false,
            rest: Vec::new(),
            next: i64::MIN,
            entries: Vec::new(),
        };
        let mut after = i64::MIN;
        while let Some(page_end) = scan.next_page(connection, after..last, sums)? {
            after = page_end;
        }
        sums.add_entries(late.iter().filter(|entry| scan.is_counted(entry)))?;
        let end = DECISIONS.end(connection)?;
        scan.rest.push(scan.next..end.max(scan.next));
        Ok(Some(Self { rest: scan.rest }))
    }
}

/// Reading of roll-ups, in the order of their parts.
struct RollupScan {
    times: TimeRange,
    /// Rows of the origins that are wanted, in order; `None` if all are.
    origins: Option<Vec<i64>>,
    uses: HashMap<i64, PartUse>,
    has_whole: bool,
    rest: Vec<Range<i64>>,
    /// Number behind the last part that was read.
    next: i64,
    entries: Vec<RollupEntry>,
}

impl RollupScan {
    /// Reads the roll-ups that follow `parts.start`, up to `parts.end`. Returns the
    /// last part that was read; `None` if there are no more.
    fn next_page(
        &mut self,
        connection: &Connection,
        parts: Range<i64>,
        sums: &mut SumsByReference,
    ) -> Result<Option<i64>, AuditError> {
        let mut statement = connection.prepare_cached(ROLLUPS)?;
        let mut rows = statement.query([parts.start, parts.end])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let part = row.get(0)?;
            last = Some(part);
            self.take(part, row)?;
            let counted = self.entries.iter().filter(|entry| self.is_counted(entry));
            sums.add_entries(counted)?;
        }
        Ok(last)
    }

    /// Takes in the row of `part`: its entries are those of `self` afterwards.
    fn take(&mut self, part: i64, row: &Row<'_>) -> rusqlite::Result<()> {
        let mut used = PartUse::of(read_span(row, 1)?, self.times);
        self.entries.clear();
        // Late endings are those of earlier decisions. Of parts that are not looked
        // at, SQLite does not even read the sums.
        if used == PartUse::Whole || self.has_whole {
            let bytes = row.get_ref(3)?.as_blob().unwrap_or_default();
            let is_late_only = used != PartUse::Whole;
            let reader = RollupReader::new(bytes, part);
            if reader.read(is_late_only, &mut self.entries).is_none() {
                // Somebody changed it, which `verify` finds.
                self.entries.clear();
                used = PartUse::Rows;
            }
        }
        self.has_whole |= used == PartUse::Whole;
        self.uses.insert(part, used);
        let numbers = numbers_of(part);
        if self.next < numbers.start {
            self.rest.push(self.next..numbers.start);
        }
        if used == PartUse::Rows {
            self.rest.push(numbers.clone());
        }
        self.next = self.next.max(numbers.end);
        Ok(())
    }

    /// Reports whether an entry is of a wanted origin, and of a part that is
    /// counted by roll-ups: the rows of others have their late endings.
    fn is_counted(&self, entry: &RollupEntry) -> bool {
        let key = entry.key;
        let is_wanted = |origins: &Vec<i64>| origins.binary_search(&key.origin).is_ok();
        self.uses.get(&key.part) == Some(&PartUse::Whole)
            && self.origins.as_ref().is_none_or(is_wanted)
    }
}
