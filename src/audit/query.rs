//! Questions people ask of the log, while the proxy runs or after.
//!
//! A reader opens the file read-only and waits for nobody. It reads a page at a
//! time and holds no more than that in memory.

use std::ops::ControlFlow;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row};
use serde_json::json;

pub use super::filter::{
    DecisionFilter, InvalidRulePattern, InvalidUrlPattern, RulePattern, UrlPattern,
};
use super::marker::RecordMarker;
use super::order::{self, TimeRange};
use super::pages::{Direction, NumberedTable, TableScan};
use super::row::{DecisionReader, SELECT, blob, count, is_untouched};
use super::{AuditError, record_row, schema};
use crate::decision::digest::Digest;
use crate::decision::record::{RecordedSnapshot, StoredRecord};

/// Decisions, with what they rest on.
const DECISIONS: NumberedTable = NumberedTable {
    name: "decision",
    select: SELECT,
    number: "d.seq",
};

/// Decisions, for counting them.
const DECISION_NUMBERS: NumberedTable = NumberedTable {
    name: "decision",
    select: "SELECT d.seq FROM decision AS d",
    number: "d.seq",
};

/// The log as others read it.
#[derive(Debug)]
pub struct AuditReader {
    pub(super) connection: Connection,
    /// The number of decisions that the marker beside the database tells of; 0
    /// if there is none, or if it is that of another record.
    pub(super) told_by_marker: u64,
}

/// What the log holds, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordExtent {
    /// The lowest number of a decision.
    pub first: u64,
    /// The highest number of a decision.
    pub last: u64,
}

impl AuditReader {
    /// Opens the log at `path` for reading; a proxy may be writing to it.
    ///
    /// # Errors
    ///
    /// [`AuditError::Missing`], [`AuditError::Open`], [`AuditError::Schema`].
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let connection = schema::open_to_read(path)?;
        let id = record_row::id(&connection).map_err(AuditError::Read)?;
        // The marker is where the database really is. A copy of the database may
        // be read where there is none.
        let real = path.canonicalize().ok();
        let folder = real.as_deref().and_then(Path::parent);
        let marker = folder.and_then(|folder| RecordMarker::read(folder).ok());
        let marker = marker
            .flatten()
            .filter(|marker| Some(&marker.record) == id.as_ref());
        Ok(Self {
            connection,
            told_by_marker: marker.map_or(0, |marker| marker.last),
        })
    }

    /// Hands the records that meet `filter` to `visit`, the newest first, until
    /// it breaks. Records that are written meanwhile are not among them.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn newest(
        &self,
        filter: &DecisionFilter,
        visit: impl FnMut(StoredRecord) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        self.visit(filter, Direction::NewestFirst, visit)
    }

    /// Hands the records that meet `filter` to `visit`, the oldest first, until
    /// it breaks. Records that are written meanwhile are not among them.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn each(
        &self,
        filter: &DecisionFilter,
        visit: impl FnMut(StoredRecord) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        self.visit(filter, Direction::OldestFirst, visit)
    }

    /// How many records meet `filter`. Its `rule` is compared by its path only.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn count(&self, filter: &DecisionFilter) -> Result<u64, AuditError> {
        let mut count = 0;
        let scan = self.scan(filter, DECISION_NUMBERS, filter.times());
        let scan = scan.map_err(AuditError::Read)?;
        let counted = scan.run(
            |_| Ok(()),
            |page| {
                count += page.len() as u64;
                ControlFlow::Continue(())
            },
        );
        counted.map_err(AuditError::Read)?;
        Ok(count)
    }

    /// The record with the number `seq`, if there is one.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn record(&self, seq: u64) -> Result<Option<StoredRecord>, AuditError> {
        let Ok(seq) = i64::try_from(seq) else {
            return Ok(None);
        };
        let read = || {
            self.connection
                .prepare_cached(&format!("{SELECT}\nWHERE d.seq = ?"))?
                .query_row([seq], |row| DecisionReader::default().record(row))
                .optional()
        };
        read().map_err(AuditError::Read)
    }

    /// Whether the record `seq` holds the values it was written with; `None` if
    /// there is no such record.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn is_as_written(&self, seq: u64) -> Result<Option<bool>, AuditError> {
        let Ok(seq) = i64::try_from(seq) else {
            return Ok(None);
        };
        let read = || {
            self.connection
                .prepare_cached(&format!("{SELECT}\nWHERE d.seq = ?"))?
                .query_row([seq], is_untouched)
                .optional()
        };
        read().map_err(AuditError::Read)
    }

    /// The body of a robots.txt, if the log has it.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn body(&self, sha256: Digest) -> Result<Option<Vec<u8>>, AuditError> {
        let read = || {
            self.connection
                .prepare_cached("SELECT body FROM body WHERE sha256 = ?")?
                .query_row([blob(sha256)], |row| row.get(0))
                .optional()
        };
        read().map_err(AuditError::Read)
    }

    /// The lowest and highest numbers of decisions, if there are any.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn extent(&self) -> Result<Option<RecordExtent>, AuditError> {
        let read = |sql| {
            let mut statement = self.connection.prepare_cached(sql)?;
            statement.query_row([], |row| row.get::<_, Option<i64>>(0))
        };
        let first = read("SELECT min(seq) FROM decision").map_err(AuditError::Read)?;
        let last = read("SELECT max(seq) FROM decision").map_err(AuditError::Read)?;
        let number = |number: Option<i64>| number.map(count);
        Ok(number(first)
            .zip(number(last))
            .map(|(first, last)| RecordExtent { first, last }))
    }

    fn visit(
        &self,
        filter: &DecisionFilter,
        direction: Direction,
        mut visit: impl FnMut(StoredRecord) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        let mut reader = DecisionReader::default();
        let mut read = || {
            let scan = self.scan(filter, DECISIONS, filter.times())?;
            TableScan { direction, ..scan }.run(
                |row| reader.record(row),
                |page| {
                    let mut admitted = page.into_iter().filter(|record| filter.admits(record));
                    admitted.try_for_each(&mut visit)
                },
            )
        };
        read().map_err(AuditError::Read)
    }

    /// Hands what `read` makes of the rows to `visit`, a page at a time, the
    /// oldest first, until it breaks. Looks at every row, whatever its number
    /// says of its time: somebody's hand may have been in it.
    pub(super) fn pages<T>(
        &self,
        filter: &DecisionFilter,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
        visit: impl FnMut(Vec<T>) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        let scan = self.scan(filter, DECISIONS, TimeRange::default());
        scan.and_then(|scan| scan.run(read, visit))
            .map_err(AuditError::Read)
    }

    /// The scan of `table` for `filter`, the oldest first, in the numbers that
    /// `times` may have.
    fn scan(
        &self,
        filter: &DecisionFilter,
        table: NumberedTable,
        times: TimeRange,
    ) -> rusqlite::Result<TableScan<'_>> {
        Ok(TableScan {
            connection: &self.connection,
            table,
            conditions: filter.conditions(),
            ranges: order::ranges(&self.connection, times, self.end_of(table)?)?,
            direction: Direction::OldestFirst,
        })
    }

    /// The number that the next row of `table` may have.
    pub(super) fn end_of(&self, table: NumberedTable) -> rusqlite::Result<i64> {
        let sql = format!("SELECT max(seq) FROM {}", table.name);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let last: Option<i64> = statement.query_row([], |row| row.get(0))?;
        Ok(last.unwrap_or_default().saturating_add(1))
    }
}

/// A record as `audit list` and the others print it, one object a row.
pub fn row_json(record: &StoredRecord) -> serde_json::Value {
    let ruling = &record.ruling;
    json!({
        "seq": record.seq,
        "time": record.at.to_string(),
        "client": record.client,
        "crawler": ruling.crawler,
        "user_agent": record.user_agent,
        "method": record.method,
        "url": record.url,
        "verdict": ruling.verdict,
        "reason": ruling.reason,
        "effect": record.effect,
        "line": ruling.line,
        "rule": ruling.rule,
        "group": (!ruling.group.is_empty()).then_some(&ruling.group),
        "reading": ruling.reading,
        "robots": record.snapshot.as_ref().map(robots),
        "policy": record.policy.sha256.to_string(),
        "wait_ms": record.wait_ms,
        "status": record.status,
        "directives": record.directives.as_ref().map(|value| json!({
            "value": value,
            "said": record.said.as_deref().map_or_else(|| json!([]), said),
        })),
        "bytes": record.bytes,
        "error": record.error,
    })
}

/// The robots.txt that was decided by; with the hops, where there are any.
fn robots(snapshot: &RecordedSnapshot) -> serde_json::Value {
    let mut members = json!({
        "url": snapshot.url,
        "status": snapshot.status,
        "sha256": snapshot.sha256.map(|digest| digest.to_string()),
    });
    if !snapshot.hops.is_empty() {
        members["hops"] = json!(snapshot.hops);
    }
    members
}

/// The statements of a response; a hand from outside may have left no JSON.
fn said(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}
