//! Counting of decisions: whole parts by their roll-ups, other parts row by row.
//!
//! A part is counted by its roll-up if all its decisions were made within the
//! wanted times. Only the parts at both ends of the times, and the part being
//! written, are read row by row.
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

/// Maximum number of sums kept at a time, of some hundred bytes each. A query that
/// needs more must be narrowed.
pub const SUMS_MAX: usize = 1 << 20;

/// Roll-ups of 64 parts in one transaction: some milliseconds, too short to hold up
/// the WAL.
const ROLLUPS: &str = "
SELECT part, first_us, last_us, sums FROM rollup
WHERE ? < part AND part <= ? ORDER BY part LIMIT 64";

/// Finds for each ruling the first one with the same verdict and effect, and if it
/// refuses the same reason, on which the class of a refusal depends.
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

/// Hasher for hours and row ids. Attackers do not choose these numbers, so it need
/// not resist collisions.
///
/// A roll-up of many hosts has an entry for nearly every request, and the hasher of
/// the standard library would take longer than everything else.
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
        // Multiplier of Firefox's hash: odd, with its bits spread.
        let mixed = self.0.rotate_left(5) ^ number.cast_unsigned();
        self.0 = mixed.wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// Map whose keys are row ids.
type ReferenceMap<K, V> = HashMap<K, V, BuildHasherDefault<ReferenceHasher>>;

/// Sums by ruling, and by hour and origin if wanted.
#[derive(Debug, Default)]
pub(super) struct SumsByReference {
    apart: SumsApart,
    /// First ruling with the same outcome, for each ruling that is merged with
    /// others.
    rulings: ReferenceMap<i64, i64>,
    sums: ReferenceMap<SumReferences, EntrySums>,
}

/// Properties that sums are kept apart by, besides rulings.
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

/// Adds the decisions that match `filter` to each of `tables` in one pass.
/// Conditions on the ruling are not applied here; the caller compares them once for
/// each sum.
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

/// Adds decisions to `tables` like [`count_decisions`], until `deadline`. Returns
/// whether the deadline passed before all were added.
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
        // Roll-ups are not interrupted, because reading all of them takes
        // milliseconds.
        if scan.is_late() {
            return Ok(scan.ahead().is_some());
        }
    }
    Ok(false)
}

impl SumsByReference {
    /// Creates an empty table.
    pub(super) fn new(apart: SumsApart) -> Self {
        Self {
            apart,
            ..Self::default()
        }
    }

    /// Creates an empty table that merges rulings with the same verdict and effect,
    /// and if they refuse the same reason. All of them have the id of the first.
    ///
    /// Sites have many rules, and each would otherwise have sums for nearly every
    /// host.
    pub(super) fn by_outcome(apart: SumsApart, connection: &Connection) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare_cached(OUTCOMES)?;
        let firsts = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Self {
            rulings: firsts.collect::<rusqlite::Result<_>>()?,
            ..Self::new(apart)
        })
    }

    /// Adds a decision with its ending.
    ///
    /// # Errors
    ///
    /// [`AuditError::TooManySums`].
    pub(super) fn add_decision(&mut self, counted: &CountedDecision) -> Result<(), AuditError> {
        let mut sums = counted.decision_sums();
        sums.add(&counted.ending_sums());
        self.add(self.key(counted.key()), &sums)
    }

    /// Returns the references of a key, with 0 for properties that are not kept
    /// apart.
    fn key(&self, of: RollupKey) -> SumReferences {
        SumReferences {
            hour: if self.apart.by_hour { of.hour } else { 0 },
            origin: if self.apart.by_origin { of.origin } else { 0 },
            // A ruling written since then is not merged.
            ruling: self.rulings.get(&of.ruling).copied().unwrap_or(of.ruling),
        }
    }

    /// Returns the sums in arbitrary order.
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

    /// Adds the entries of a section, which have the same hour and ruling.
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

/// Way in which the decisions of a part are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartUse {
    /// By the roll-up: all decisions were made within the times.
    Whole,
    /// Row by row.
    Rows,
    /// Not at all: no decision was made within the times.
    Outside,
}

impl PartUse {
    fn of(span: Option<TimeSpan>, times: TimeRange) -> Self {
        let Some(span) = span else {
            return Self::Outside;
        };
        let from = times.from.map_or(i64::MIN, |from| from.as_microsecond());
        // Without an end, a value later than the time of any decision.
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

/// Adds the roll-ups to each of `tables`. Returns the numbers of decisions that
/// must still be counted row by row; `None` if there are no roll-ups.
fn add_rolled_up(
    reader: &AuditReader,
    filter: &DecisionFilter,
    tables: &mut [SumsByReference],
) -> Result<Option<Vec<Range<i64>>>, AuditError> {
    let connection = &reader.connection;
    // Read in one transaction, so that each ending is either late or rolled up.
    // Parts that are closed later are read row by row.
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
    /// Row ids of the wanted origins, in ascending order; `None` for all.
    origins: Option<Vec<i64>>,
    uses: HashMap<i64, PartUse>,
    has_whole: bool,
    rest: Vec<Range<i64>>,
    /// Number after the last part read.
    next: i64,
    entries: RollupEntries,
}

impl RollupScan {
    /// Reads the next page of roll-ups after `parts.start`, up to `parts.end`.
    /// Returns the last part read; `None` if there are no more.
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

    /// Adds entries of parts that are counted by roll-up. The late endings of other
    /// parts are counted with their rows.
    fn add(
        &mut self,
        read: &RollupEntries,
        tables: &mut [SumsByReference],
    ) -> Result<(), AuditError> {
        for (key, entries) in read.iter() {
            // Checked once per section, because there are nearly as many entries as
            // requests.
            if self.uses.get(&key.part) != Some(&PartUse::Whole) {
                continue;
            }
            // A section without wanted entries must not create an empty sum, which
            // would be shown as a row.
            if entries.is_empty() {
                continue;
            }
            for table in &mut *tables {
                table.add_entries(key, entries)?;
            }
        }
        Ok(())
    }

    /// Reads the row of `part` into `self.entries`.
    fn take(&mut self, part: i64, row: &Row<'_>) -> rusqlite::Result<()> {
        let mut used = PartUse::of(read_span(row, 1)?, self.times);
        self.entries.clear();
        // Late endings belong to earlier parts. If none of these is counted whole,
        // the sums are not needed, and SQLite does not read them.
        if used == PartUse::Whole || self.has_whole {
            let bytes = row.get_ref(3)?.as_blob().unwrap_or_default();
            let is_late_only = used != PartUse::Whole;
            let reader = RollupReader {
                bytes,
                part,
                origins: self.origins.as_deref(),
            };
            if reader.read(is_late_only, &mut self.entries).is_none() {
                // The row was altered, which `verify` reports.
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
