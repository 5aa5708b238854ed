//! Reader of the audit record: decisions, events and bodies, whether or not a proxy
//! is running.
//!
//! The database is opened read-only, and a reader never waits for the writer. It
//! reads a page at a time and holds no more than that in memory.

use std::iter;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};
use tokio::time::Instant;

use super::columns::{TableRow as _, blob, count, signed};
use super::decision_row::{CheckedRecord, DecisionReader};
use super::entry_rows::DECISIONS;
use super::error::AuditError;
use super::events::{EVENTS, EventRow, ProcessEventKind, RecordedConfiguration};
use super::filter::{DecisionFilter, EventFilter};
use super::head::key_name;
use super::leaf::RecordId;
use super::order::{self, Direction, TimeRange};
use super::pages::{NumberedTable, TableScan};
use super::pruned::PrunedEnd;
use super::record_id::{RecordMarker, read_id};
use super::removal_order::PruneRequest;
use super::schema;
use super::sequence::check_complete;
use super::tasks::PrunedNumbers;
use super::tree_rows::TreeReader;
use politesse_base::clock;
use politesse_decision::again::EvidenceCache;
use politesse_decision::digest::Digest;
use politesse_decision::record::StoredRecord;

/// Numbers of decisions only, for counting.
pub(super) const DECISION_NUMBERS: NumberedTable = NumberedTable {
    select: "SELECT d.seq FROM decision AS d",
    ..DECISIONS
};

/// Maximum range of numbers searched for newer decisions: some seconds at full
/// load, which takes some milliseconds to search.
const NEWER_NUMBERS_MAX: i64 = 1 << 16;

/// Total length of the URLs after which no further page of newer decisions is read.
const NEWER_BYTES_MAX: usize = 1 << 20;

/// Reader of one audit record.
#[derive(Debug)]
pub struct AuditReader {
    pub(super) connection: Connection,
    /// Id of the record, which is part of each leaf.
    pub(super) record_id: RecordId,
    /// Marker beside the database, if it belongs to this record.
    pub(super) marker: Option<Box<RecordMarker>>,
}

/// Range of the numbers of decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeqRange {
    /// Lowest number.
    pub first: u64,
    /// Highest number.
    pub last: u64,
}

/// Decision with further data that explain it.
#[derive(Debug)]
pub struct DecisionWithBody {
    /// The decision.
    pub record: StoredRecord,
    /// Whether the row is unaltered.
    pub is_as_written: bool,
    /// Body of the robots.txt that it rests on, if there was one and the record has
    /// it.
    pub body: Option<Vec<u8>>,
    /// Number of other decisions about the URL; `None` if the count was not
    /// finished in time.
    pub others: Option<u64>,
}

/// Limits of a page of decisions.
#[derive(Debug, Clone, Copy)]
pub struct PageBounds {
    /// Number below which decisions are wanted; `None` for all.
    pub before: Option<u64>,
    /// Maximum number of rows.
    pub rows: usize,
    /// Time at which the search stops and returns its results so far.
    pub deadline: Instant,
}

/// Decisions of one page, the newest first.
#[derive(Debug, Default)]
pub struct DecisionPage {
    /// The decisions.
    pub records: Vec<StoredRecord>,
    /// Number below which the next page starts; `None` after the last page.
    pub next: Option<u64>,
    /// Whether the deadline ended the search, so that there may be more rows.
    pub is_cut: bool,
}

/// Decisions made after a given one, up to a limit.
#[derive(Debug, Default)]
pub struct NewerDecisions {
    /// Newest decisions, in ascending order.
    pub records: Vec<StoredRecord>,
    /// Number of earlier ones that were left out, at least.
    pub left_out: u64,
    /// Highest number searched; the next search starts after it.
    pub last: u64,
}

impl AuditReader {
    /// Opens the database at `path` for reading; a proxy may be writing to it.
    ///
    /// # Errors
    ///
    /// [`AuditError::Missing`], [`AuditError::Open`], [`AuditError::Schema`].
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let connection = schema::open_to_read(path)?;
        let id = read_id(&connection)?;
        let marker = RecordMarker::of_database(path, id.as_deref()).map(Box::new);
        Ok(Self {
            connection,
            record_id: id.as_deref().map(RecordId::parse).unwrap_or_default(),
            marker,
        })
    }

    /// Checks that all entries can be read. Must be called after a pass over all of
    /// them.
    ///
    /// # Errors
    ///
    /// [`AuditError::Partial`], and [`AuditError::Read`].
    pub fn check_complete(&self) -> Result<(), AuditError> {
        let database = self.connection.path().unwrap_or_default();
        check_complete(&self.connection, self.committed(), Path::new(database))
    }

    /// Returns the highest committed number according to the marker, as of the
    /// opening of the record; 0 without a marker.
    pub(super) fn committed(&self) -> u64 {
        let marker = self.marker.as_ref();
        marker.map_or(0, |marker| marker.committed)
    }

    /// Creates a reader of a database in memory that stands for the record
    /// `record`.
    pub(super) fn in_memory(connection: Connection, record: &str) -> Self {
        Self {
            connection,
            record_id: RecordId::parse(record),
            marker: None,
        }
    }

    /// Returns the id of the record; empty if it has none yet.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn record_id(&self) -> Result<String, AuditError> {
        Ok(read_id(&self.connection)?.unwrap_or_default())
    }

    /// Passes the decisions that match `filter` to `visit` until it breaks.
    /// Decisions written after the call are not included.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn visit_decisions(
        &self,
        filter: &DecisionFilter,
        direction: Direction,
        mut visit: impl FnMut(StoredRecord) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        let mut rows = self.decision_reader();
        let mut scan = self.narrow_scan(DECISIONS, filter)?.in_direction(direction);
        while let Some(page) = scan.next_page(|row| rows.record(row))? {
            let mut admitted = page.into_iter().filter(|record| filter.admits(record));
            if admitted.try_for_each(&mut visit).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Passes the decisions after number `seq` that match `filter` to `visit`, the
    /// oldest first, until it breaks. Returns the highest number searched; the next
    /// search starts after it.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn visit_decisions_after(
        &self,
        seq: u64,
        filter: &DecisionFilter,
        mut visit: impl FnMut(StoredRecord) -> ControlFlow<()>,
    ) -> Result<u64, AuditError> {
        let start = signed(seq).saturating_add(1);
        let end = DECISIONS.end(&self.connection)?.max(start);
        let mut rows = self.decision_reader();
        let ranges = iter::once(start..end).collect();
        let conditions = filter.conditions();
        let mut scan = TableScan::new(&self.connection, DECISIONS, conditions, ranges);
        while let Some(page) = scan.next_page(|row| rows.record(row))? {
            let mut admitted = page.into_iter().filter(|record| filter.admits(record));
            if admitted.try_for_each(&mut visit).is_break() {
                break;
            }
        }
        Ok(count(end.saturating_sub(1)))
    }

    /// Reads the newest decisions after number `seq` that match `filter`: at most
    /// `rows`, and fewer if URLs are long. If the range of numbers is very large,
    /// only its end is searched.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn decisions_after(
        &self,
        seq: u64,
        filter: &DecisionFilter,
        rows: usize,
    ) -> Result<NewerDecisions, AuditError> {
        let mut start = signed(seq).saturating_add(1);
        let end = DECISIONS.end(&self.connection)?.max(start);
        let mut newer = NewerDecisions {
            last: count(end.saturating_sub(1)),
            ..NewerDecisions::default()
        };
        let last_looked_at = end.saturating_sub(NEWER_NUMBERS_MAX);
        if start < last_looked_at {
            start = last_looked_at;
            // At least one, because earlier decisions are not counted.
            newer.left_out = 1;
        }
        let mut reader = self.decision_reader();
        let ranges = iter::once(start..end).collect();
        let conditions = filter.conditions();
        let mut scan = TableScan::new(&self.connection, DECISIONS, conditions, ranges)
            .in_direction(Direction::NewestFirst);
        while let Some(page) = scan.next_page(|row| reader.record(row))? {
            let admitted = page.into_iter().filter(|record| filter.admits(record));
            newer.records.extend(admitted);
            let bytes = newer.records.iter().map(|record| record.url.len()).sum();
            if rows <= newer.records.len() || NEWER_BYTES_MAX <= bytes {
                break;
            }
        }
        newer.left_out += newer.records.len().saturating_sub(rows) as u64;
        newer.records.truncate(rows);
        let rest = scan.ahead().cloned().into_iter().collect();
        let conditions = filter.conditions();
        let mut scan = TableScan::new(&self.connection, DECISION_NUMBERS, conditions, rest);
        while let Some(page) = scan.next_page(|_| Ok(()))? {
            newer.left_out += page.len() as u64;
        }
        newer.records.reverse();
        Ok(newer)
    }

    /// Reads decisions that match `filter`, the newest first, within `bounds`.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn decision_page(
        &self,
        filter: &DecisionFilter,
        bounds: &PageBounds,
    ) -> Result<DecisionPage, AuditError> {
        let mut rows = self.decision_reader();
        let last = DECISIONS.end(&self.connection)?;
        let end = bounds
            .before
            .map_or(last, |before| last.min(signed(before)));
        let ranges = order::ranges(&self.connection, filter.times(), end)?;
        let conditions = filter.conditions();
        let mut scan = TableScan::new(&self.connection, DECISIONS, conditions, ranges)
            .within(filter.parts(&self.connection)?)
            .until(Some(bounds.deadline))
            .in_direction(Direction::NewestFirst);
        let mut page = DecisionPage::default();
        while let Some(records) = scan.next_page(|row| rows.record(row))? {
            let admitted = records.into_iter().filter(|record| filter.admits(record));
            page.records.extend(admitted);
            if bounds.rows < page.records.len() {
                // One row more than wanted, so there is a further page.
                page.records.truncate(bounds.rows);
                page.next = page.records.last().map(|record| record.seq);
                return Ok(page);
            }
            if bounds.deadline <= clock::instant() {
                page.next = scan.ahead().map(|ahead| count(ahead.end));
                page.is_cut = page.next.is_some();
                return Ok(page);
            }
        }
        Ok(page)
    }

    /// Passes the events that match `filter` to `visit`, the newest first, until it
    /// breaks.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn visit_events(
        &self,
        filter: &EventFilter,
        mut visit: impl FnMut(EventRow) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        let mut scan = self
            .event_scan(filter)?
            .in_direction(Direction::NewestFirst);
        while let Some(page) = scan.next_page(EventRow::read)? {
            if page.into_iter().try_for_each(&mut visit).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Counts the decisions that match `filter`. Only the path of its `rule` is
    /// compared.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn count(&self, filter: &DecisionFilter) -> Result<u64, AuditError> {
        Ok(self.count_until(filter, None)?.unwrap_or_default())
    }

    /// Counts decisions like [`AuditReader::count`]; `None` if the count is not
    /// finished by `deadline`.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn count_until(
        &self,
        filter: &DecisionFilter,
        deadline: Option<Instant>,
    ) -> Result<Option<u64>, AuditError> {
        let mut count = 0;
        let mut scan = self.narrow_scan(DECISION_NUMBERS, filter)?.until(deadline);
        while let Some(page) = scan.next_page(|_| Ok(()))? {
            count += page.len() as u64;
            if scan.is_late() && scan.ahead().is_some() {
                return Ok(None);
            }
        }
        Ok(Some(count))
    }

    /// Reads the decision with the number `seq`, if there is one.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn record(&self, seq: u64) -> Result<Option<CheckedRecord>, AuditError> {
        let Ok(seq) = i64::try_from(seq) else {
            return Ok(None);
        };
        let sql = format!("{}\nWHERE d.seq = ?", DECISIONS.select);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let record = statement.query_row([seq], |row| self.decision_reader().checked(row));
        Ok(record.optional()?)
    }

    /// Reads the decision with the number `seq` and the data that explain it, if
    /// there is one. The count of other decisions about the URL stops at
    /// `deadline`.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn decision(
        &self,
        seq: u64,
        deadline: Option<Instant>,
    ) -> Result<Option<DecisionWithBody>, AuditError> {
        let Some(CheckedRecord {
            record,
            is_as_written,
            ..
        }) = self.record(seq)?
        else {
            return Ok(None);
        };
        let snapshot = record.snapshot.as_ref();
        let all = match record.url.parse() {
            Ok(target) => self.count_until(&DecisionFilter::of_url(&target), deadline)?,
            // The row was altered, and its text is no longer a URL to search for.
            Err(_) => Some(1),
        };
        Ok(Some(DecisionWithBody {
            is_as_written,
            body: match snapshot.and_then(|snapshot| snapshot.sha256) {
                Some(sha256) => self.body(sha256)?,
                None => None,
            },
            others: all.map(|all| all.saturating_sub(1)),
            record,
        }))
    }

    /// Reads the body of a robots.txt, if the record has it.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn body(&self, sha256: Digest) -> Result<Option<Vec<u8>>, AuditError> {
        let sql = "SELECT body FROM body WHERE sha256 = ?";
        let mut statement = self.connection.prepare_cached(sql)?;
        let body = statement.query_row([blob(sha256)], |row| row.get(0));
        Ok(body.optional()?)
    }

    /// Reads the robots.txt that `record` rests on, unless `evidence` has it
    /// already parsed.
    pub(super) fn body_for(
        &self,
        record: &StoredRecord,
        evidence: &EvidenceCache,
    ) -> Result<Option<Bytes>, AuditError> {
        let body = evidence.wanted_body(record).map(|wanted| self.body(wanted));
        Ok(body.transpose()?.flatten().map(Bytes::from))
    }

    /// Returns the highest number removed by age; 0 if none was.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn pruned_until(&self) -> Result<u64, AuditError> {
        Ok(count(PrunedEnd::read(&self.connection)?.last))
    }

    /// Returns the entries that [`AuditLog::prune`](super::AuditLog::prune) would
    /// remove for `request`, given the configured `retention`: all parts whose
    /// entries are older than the time of the request.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`], [`AuditError::TooYoung`].
    pub fn prunable(
        &self,
        request: &PruneRequest,
        retention: Option<Duration>,
    ) -> Result<PrunedNumbers, AuditError> {
        let (pruned, before) = (PrunedEnd::read(&self.connection)?, request.before);
        let youngest = pruned.youngest_due(&self.connection, before)?;
        request.check_age(youngest, retention)?;
        Ok(PrunedNumbers {
            first: count(pruned.next()),
            last: count(pruned.due(&self.connection, before)?),
        })
    }

    /// Reads the event with the number `seq`, if there is one.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn event(&self, seq: u64) -> Result<Option<EventRow>, AuditError> {
        let sql = format!("{} WHERE seq = ?", EVENTS.select);
        let mut statement = self.connection.prepare_cached(&sql)?;
        Ok(statement
            .query_row([signed(seq)], EventRow::read)
            .optional()?)
    }

    /// Returns the configuration that took effect last, if one is on record.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn configuration(&self) -> Result<Option<RecordedConfiguration>, AuditError> {
        let filter = EventFilter {
            kind: Some(ProcessEventKind::Configuration.as_str().to_owned()),
            ..EventFilter::default()
        };
        let mut newest = None;
        self.visit_events(&filter, |event| {
            newest = event.configuration();
            ControlFlow::Break(())
        })?;
        Ok(newest)
    }

    /// Returns the lowest and the highest number of a decision, if there are any.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn seq_range(&self) -> Result<Option<SeqRange>, AuditError> {
        // Two queries, because SQLite finds one end through the key, but reads
        // every row if asked for both at once.
        let find = |sql| {
            let mut statement = self.connection.prepare_cached(sql)?;
            statement.query_row([], |row| row.get::<_, Option<i64>>(0))
        };
        let first = find("SELECT min(seq) FROM decision")?;
        let last = find("SELECT max(seq) FROM decision")?;
        Ok(first.zip(last).map(|(first, last)| SeqRange {
            first: count(first),
            last: count(last),
        }))
    }

    /// Returns the name under which heads of the record are signed.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn record_name(&self) -> Result<String, AuditError> {
        // Every record has an id. Without one, no head belongs to this record.
        Ok(key_name(&read_id(&self.connection)?.unwrap_or_default()))
    }

    /// Returns a reader of the Merkle tree and its heads.
    pub fn tree(&self) -> TreeReader<'_> {
        TreeReader::new(&self.connection)
    }

    /// Returns a reader of decisions.
    pub(super) fn decision_reader(&self) -> DecisionReader<'_> {
        DecisionReader::new(&self.connection, self.record_id)
    }

    /// Returns a scan of all decisions for `filter`, the oldest first. Reads every
    /// row, so that `verify` also finds altered ones.
    pub(super) fn whole_scan(&self, filter: &DecisionFilter) -> rusqlite::Result<TableScan<'_>> {
        self.scan(DECISIONS, filter, TimeRange::default())
    }

    /// Returns a scan of `table`, a selection of decisions, for `filter`, the
    /// oldest first. Reads only numbers that may match the times, the host and the
    /// verdict of `filter`.
    pub(super) fn narrow_scan(
        &self,
        table: NumberedTable,
        filter: &DecisionFilter,
    ) -> rusqlite::Result<TableScan<'_>> {
        let parts = filter.parts(&self.connection)?;
        Ok(self.scan(table, filter, filter.times())?.within(parts))
    }

    fn scan(
        &self,
        table: NumberedTable,
        filter: &DecisionFilter,
        times: TimeRange,
    ) -> rusqlite::Result<TableScan<'_>> {
        let end = table.end(&self.connection)?;
        let ranges = order::ranges(&self.connection, times, end)?;
        let conditions = filter.conditions();
        Ok(TableScan::new(&self.connection, table, conditions, ranges))
    }

    /// Returns a scan of all events for `filter`, the oldest first. Events are few
    /// enough to check the time of each.
    pub(super) fn event_scan(&self, filter: &EventFilter) -> rusqlite::Result<TableScan<'_>> {
        let ranges = order::all_below(EVENTS.end(&self.connection)?);
        let conditions = filter.conditions();
        Ok(TableScan::new(&self.connection, EVENTS, conditions, ranges))
    }
}
