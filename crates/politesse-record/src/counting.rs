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
use tokio::time::Instant;

use super::entry_rows::DECISIONS;
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::order::TimeRange;
use super::pages::TableScan;
use super::parts::numbers_of;
use super::reader::AuditReader;
use super::rollup::{COUNTED, CountedDecision, last_rolled_up, late_endings};
use super::rollup_row::{
    EntrySums, OriginEntry, RollupEntries, RollupKey, RollupReader, TimeSpan, read_span,
};

/// Sums that are kept apart at a time, of some hundred bytes each. A question
/// that asks for more is to be narrowed.
pub const SUMS_MAX: usize = 1 << 20;

/// Parts of one transaction: some milliseconds, which the WAL does not notice.
const ROLLUPS: &str = "
SELECT part, first_us, last_us, sums FROM rollup
WHERE ? < part AND part <= ? ORDER BY part LIMIT 64";

/// Finds for each ruling the first one with the same verdict and effect, and the same
/// reason if it refuses: the class of a refusal depends on it.
const OUTCOMES: &str = "
SELECT id, min(id) OVER (
  PARTITION BY verdict, effect, CASE verdict WHEN 'disallow' THEN reason END
) FROM ruling";

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
struct ReferenceHasher(u64);

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

/// Map whose keys are numbers of rows.
type ReferenceMap<K, V> = HashMap<K, V, BuildHasherDefault<ReferenceHasher>>;

/// Sums by hour, origin and ruling, as far as they are to be told apart.
#[derive(Debug, Default)]
pub(super) struct SumsByReference {
    apart: SumsApart,
    /// For each ruling the one that it is not told apart from, if there is one.
    rulings: ReferenceMap<i64, i64>,
    sums: ReferenceMap<SumReferences, EntrySums>,
}

/// References that are told apart beside rulings.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SumsApart {
    pub(super) by_hour: bool,
    pub(super) by_origin: bool,
}

impl SumsApart {
    pub(super) const NONE: Self = Self {
        by_hour: false,
        by_origin: false,
    };
    pub(super) const HOURS: Self = Self {
        by_hour: true,
        ..Self::NONE
    };
    pub(super) const ORIGINS: Self = Self {
        by_origin: true,
        ..Self::NONE
    };
}

/// Adds the decisions that meet `filter` to each of `tables` in one pass, as far as it
/// does not depend on the ruling: that is compared once for each sum.
///
/// Two tables, one by hour and one by origin, have far fewer sums than one by both.
///
/// # Errors
///
/// [`AuditError::Read`], [`AuditError::TooManySums`].
pub(super) fn count_decisions(
    reader: &AuditReader,
    filter: &DecisionFilter,
    tables: &mut [SumsByReference],
) -> Result<(), AuditError> {
    count_until(reader, filter, tables, None).map(drop)
}

/// Adds decisions to `tables` as [`count_decisions`] does, until `deadline`. Returns
/// whether the time was over before all were added.
///
/// # Errors
///
/// [`AuditError::Read`], [`AuditError::TooManySums`].
pub(super) fn count_until(
    reader: &AuditReader,
    filter: &DecisionFilter,
    tables: &mut [SumsByReference],
    deadline: Option<Instant>,
) -> Result<bool, AuditError> {
    let rest = match filter.is_by_row() {
        true => None,
        false => add_rolled_up(reader, filter, tables)?,
    };
    let scan = match rest {
        Some(rest) => {
            let conditions = filter.conditions();
            TableScan::new(&reader.connection, COUNTED, conditions, rest)
        }
        None => reader.narrow_scan(COUNTED, filter)?,
    };
    let mut scan = scan.until(deadline);
    while let Some(page) = scan.next_page(CountedDecision::read)? {
        for counted in page {
            for table in &mut *tables {
                table.add_decision(&counted)?;
            }
        }
        // Roll-ups are read whole: a record has few enough that this takes milliseconds.
        if scan.is_late() {
            return Ok(scan.ahead().is_some());
        }
    }
    Ok(false)
}

impl SumsByReference {
    /// Begins without a decision.
    pub(super) fn new(apart: SumsApart) -> Self {
        Self {
            apart,
            ..Self::default()
        }
    }

    /// Begins without a decision. Rulings with the same verdict and effect, and if they
    /// refuse the same reason, are not told apart: all have the number of the first of
    /// them.
    ///
    /// Sites have many rules, and there would be sums of each for nearly every host.
    pub(super) fn by_outcome(apart: SumsApart, connection: &Connection) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare_cached(OUTCOMES)?;
        let firsts = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Self {
            rulings: firsts.collect::<rusqlite::Result<_>>()?,
            ..Self::new(apart)
        })
    }

    /// Adds one decision with its ending.
    ///
    /// # Errors
    ///
    /// [`AuditError::TooManySums`].
    pub(super) fn add_decision(&mut self, counted: &CountedDecision) -> Result<(), AuditError> {
        let mut sums = counted.decision_sums();
        sums.add(&counted.ending_sums());
        self.add(self.key(counted.key()), &sums)
    }

    /// Returns the references of a key, without what is not to be told apart.
    fn key(&self, of: RollupKey) -> SumReferences {
        SumReferences {
            hour: if self.apart.by_hour { of.hour } else { 0 },
            origin: if self.apart.by_origin { of.origin } else { 0 },
            // One that came since stands for itself.
            ruling: self.rulings.get(&of.ruling).copied().unwrap_or(of.ruling),
        }
    }

    /// Returns the sums, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SumReferences, &EntrySums)> {
        self.sums.iter().map(|(key, sums)| (*key, sums))
    }

    fn add(&mut self, key: SumReferences, sums: &EntrySums) -> Result<(), AuditError> {
        self.sums.entry(key).or_default().add(sums);
        match self.sums.len() {
            ..=SUMS_MAX => Ok(()),
            _ => Err(AuditError::TooManySums(SUMS_MAX)),
        }
    }

    /// Adds the entries of a section, which have one hour and ruling.
    fn add_entries(&mut self, key: RollupKey, entries: &[OriginEntry]) -> Result<(), AuditError> {
        if self.apart.by_origin {
            let key = self.key(key);
            return entries.iter().try_for_each(|entry| {
                let origin = entry.origin;
                self.add(SumReferences { origin, ..key }, &entry.sums)
            });
        }
        let mut all = EntrySums::default();
        entries.iter().for_each(|entry| all.add(&entry.sums));
        self.add(self.key(key), &all)
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

/// Adds to each of `tables` what roll-ups tell. Returns the numbers of decisions that are
/// still to be counted, row by row; `None` if there are no roll-ups.
fn add_rolled_up(
    reader: &AuditReader,
    filter: &DecisionFilter,
    tables: &mut [SumsByReference],
) -> Result<Option<Vec<Range<i64>>>, AuditError> {
    let connection = &reader.connection;
    // In one transaction: an ending is late, or it is rolled up. What is closed
    // later is read row by row.
    let transaction = connection.unchecked_transaction()?;
    let last = last_rolled_up(&transaction)?;
    let origins = filter.origins(&transaction)?;
    let late = late_endings(&transaction, origins.as_deref())?;
    drop(transaction);
    let Some(last) = last else {
        return Ok(None);
    };
    let mut scan = RollupScan {
        times: filter.times(),
        origins,
        uses: HashMap::new(),
        has_whole: false,
        rest: Vec::new(),
        next: i64::MIN,
        entries: RollupEntries::default(),
    };
    let mut after = i64::MIN;
    while let Some(page_end) = scan.next_page(connection, after..last, tables)? {
        after = page_end;
    }
    scan.add(&late, tables)?;
    let end = DECISIONS.end(connection)?;
    scan.rest.push(scan.next..end.max(scan.next));
    Ok(Some(scan.rest))
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
    entries: RollupEntries,
}

impl RollupScan {
    /// Reads the roll-ups that follow `parts.start`, up to `parts.end`. Returns the
    /// last part that was read; `None` if there are no more.
    fn next_page(
        &mut self,
        connection: &Connection,
        parts: Range<i64>,
        tables: &mut [SumsByReference],
    ) -> Result<Option<i64>, AuditError> {
        let mut statement = connection.prepare_cached(ROLLUPS)?;
        let mut rows = statement.query([parts.start, parts.end])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let part = row.get(0)?;
            last = Some(part);
            self.take(part, row)?;
            let entries = std::mem::take(&mut self.entries);
            self.add(&entries, tables)?;
            self.entries = entries;
        }
        Ok(last)
    }

    /// Adds the entries of parts that are counted by roll-ups: the rows of others have
    /// their late endings.
    fn add(
        &mut self,
        read: &RollupEntries,
        tables: &mut [SumsByReference],
    ) -> Result<(), AuditError> {
        for (key, entries) in read.iter() {
            // Once for each section: there are nearly as many entries as requests.
            if self.uses.get(&key.part) != Some(&PartUse::Whole) {
                continue;
            }
            // No sums are not sums of none: they would be a row of a table.
            if entries.is_empty() {
                continue;
            }
            for table in &mut *tables {
                table.add_entries(key, entries)?;
            }
        }
        Ok(())
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
            let reader = RollupReader {
                bytes,
                part,
                origins: self.origins.as_deref(),
            };
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
}
