//! Questions people ask of the log, while the proxy runs or after.
//!
//! A reader opens the file read-only and waits for nobody. It reads a page at
//! a time: a transaction that stays open would keep the WAL from being reused.

use std::ops::ControlFlow;
use std::path::Path;

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};
use serde_json::json;

use super::row::{SELECT, stored};
use super::{AuditError, schema};
use crate::rules::digest::Digest;
use crate::rules::origin::Host;
use crate::rules::record::{StoredRecord, StoredSnapshot};

/// Rows read in one transaction.
const PAGE: i64 = 512;

/// Which decisions are asked for: those that meet every condition given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Made then or later.
    pub from: Option<Timestamp>,
    /// Made before.
    pub until: Option<Timestamp>,
    /// The host of the URL, without a port.
    pub host: Option<String>,
    /// The token that was bound, in any case.
    pub crawler: Option<String>,
    /// The verdict's word.
    pub verdict: Option<String>,
    /// The reason's word.
    pub reason: Option<String>,
    /// The word for what was done about it.
    pub effect: Option<String>,
}

impl Filter {
    /// Whether it asks for every decision there is.
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// The conditions in SQL, each with its value.
    fn conditions(&self) -> Vec<(&'static str, Value)> {
        let time = |time: Option<Timestamp>| time.map(|time| time.as_microsecond().into());
        let word = |word: &Option<String>| word.clone().map(Value::from);
        [
            ("d.time_us >= ?", time(self.from)),
            ("d.time_us < ?", time(self.until)),
            (
                "d.host = ?",
                self.host.as_deref().map(|host| normal_host(host).into()),
            ),
            ("d.crawler = ? COLLATE NOCASE", word(&self.crawler)),
            ("d.verdict = ?", word(&self.verdict)),
            ("d.reason = ?", word(&self.reason)),
            ("d.effect = ?", word(&self.effect)),
        ]
        .into_iter()
        .filter_map(|(condition, value)| Some((condition, value?)))
        .collect()
    }
}

/// The host as the log has it: lower case, no final dot, an IPv6 address in
/// brackets.
pub(super) fn normal_host(text: &str) -> String {
    let host = text
        .parse::<Host>()
        .or_else(|_| format!("[{text}]").parse());
    host.map_or_else(|_| text.to_ascii_lowercase(), |host| host.to_string())
}

/// The log as others read it.
#[derive(Debug)]
pub struct AuditReader {
    pub(super) connection: Connection,
}

impl AuditReader {
    /// Opens the log at `path` for reading; a proxy may be writing to it.
    ///
    /// # Errors
    ///
    /// [`AuditError::Missing`], [`AuditError::Open`], [`AuditError::Schema`].
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let connection = schema::open_to_read(path)?;
        Ok(Self { connection })
    }

    /// The newest `limit` records that meet `filter`, the newest first; 0 means
    /// all.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn list(&self, filter: &Filter, limit: usize) -> Result<Vec<StoredRecord>, AuditError> {
        let (sql, mut values) = conditions(SELECT, filter.conditions());
        values.push(limit_value(limit));
        let mut records = Vec::new();
        self.rows(
            &format!("{sql} ORDER BY d.seq DESC LIMIT ?"),
            values,
            |row| {
                records.push(stored(row)?);
                Ok(())
            },
        )?;
        Ok(records)
    }

    /// Hands the records that meet `filter` to `visit`, the oldest first, until
    /// it breaks.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn each(
        &self,
        filter: &Filter,
        mut visit: impl FnMut(StoredRecord) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        self.pages(filter, stored, |page| {
            page.into_iter().try_for_each(&mut visit)
        })
    }

    /// Hands what `read` makes of the rows to `visit`, a page at a time, the
    /// oldest first, until it breaks. No transaction is open meanwhile.
    pub(super) fn pages<T>(
        &self,
        filter: &Filter,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
        mut visit: impl FnMut(Vec<T>) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        let mut after = i64::MIN;
        loop {
            let mut wanted = filter.conditions();
            wanted.push(("d.seq > ?", after.into()));
            let (sql, mut values) = conditions(SELECT, wanted);
            values.push(PAGE.into());
            let mut page = Vec::new();
            self.rows(&format!("{sql} ORDER BY d.seq LIMIT ?"), values, |row| {
                after = row.get(0)?;
                page.push(read(row)?);
                Ok(())
            })?;
            if page.is_empty() || visit(page).is_break() {
                return Ok(());
            }
        }
    }

    fn rows(
        &self,
        sql: &str,
        values: Vec<Value>,
        mut visit: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), AuditError> {
        let read = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query(params_from_iter(values))?;
            while let Some(row) = rows.next()? {
                visit(row)?;
            }
            Ok(())
        };
        read().map_err(AuditError::Read)
    }
}

/// A limit as SQL has it; 0 means all.
pub(super) fn limit_value(limit: usize) -> Value {
    let limit = match limit {
        0 => -1,
        limit => i64::try_from(limit).unwrap_or(i64::MAX),
    };
    limit.into()
}

/// The query `select` for the rows that meet all of `wanted`, and its values in
/// order.
pub(super) fn conditions(select: &str, wanted: Vec<(&'static str, Value)>) -> (String, Vec<Value>) {
    let mut sql = select.to_owned();
    let mut values = Vec::new();
    for (condition, value) in wanted {
        sql.push_str(if values.is_empty() {
            "\nWHERE "
        } else {
            " AND "
        });
        sql.push_str(condition);
        values.push(value);
    }
    (sql, values)
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
        "robots": record.snapshot.as_ref().map(robots),
        "policy": Digest::of(record.policy.as_bytes()).to_string(),
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
fn robots(snapshot: &StoredSnapshot) -> serde_json::Value {
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
