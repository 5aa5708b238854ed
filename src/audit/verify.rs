//! Verification: decides every row of the audit record again, and finds rows
//! that somebody has changed or removed.
//!
//! Invariant 2 (ARCHITECTURE.md): every decision follows from what is stored
//! beside it. A finding is one line of text, handed on as it is found, so that
//! a record of any length is verified in the memory of one page and one
//! robots.txt.
//!
//! A finding is a mismatch if it contradicts the record. Two kinds do not, and
//! are counted apart: rows that are gone, since those that are left may be
//! right; and decisions that another revision of the engine made otherwise.

use std::ops::Range;

use bytes::Bytes;
use rusqlite::{OptionalExtension, Row};

use super::columns::{ColumnReader, is_as_written, read_digest};
use super::decision_row::{CheckedRecord, DECISIONS, DecisionReader};
use super::error::AuditError;
use super::events::{EVENT_COLUMNS, EVENTS};
use super::filter::{DecisionFilter, EventFilter};
use super::order::{OrderCheck, TimeRange};
use super::pages::{KeyScan, KeyedTable};
use super::reader::AuditReader;
use super::record_id::{RECORD_COLUMNS, SELECT_RECORD};
use super::saved_state::{BACK_OFF_COLUMNS, BACK_OFFS, SAVED_SNAPSHOT_COLUMNS, SAVED_SNAPSHOTS};
use super::schema::{RECORD_SINCE, schema_version};
use crate::decision::decide::Revision;
use crate::decision::digest::Digest;
use crate::decision::record::{Again, StoredRecord, StoredRuling, decide_again};

/// Sums of a verification.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verification {
    /// Rows that were decided again, whatever the result.
    pub decided: u64,
    /// Rows among them that another revision of the engine decided, and that
    /// this one decides otherwise. They are no mismatches.
    pub other_revision: u64,
    /// Rows that rest on no snapshot (`egress`) and were checked for form.
    pub form_only: u64,
    /// Findings that are mismatches.
    pub mismatches: u64,
    /// Rows that are gone.
    pub missing: u64,
    /// Saved snapshots that were looked at.
    pub kept: u64,
    /// Events that were looked at.
    pub events: u64,
    /// Saved back-offs that were looked at.
    pub back_offs: u64,
}

/// Decides every row that meets `filter` again, from what is stored, and hands
/// each finding to `report`.
///
/// Bodies, events, saved state and gaps concern the audit record as a whole;
/// they are looked at if `filter` is open.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn verify(
    reader: &AuditReader,
    filter: &DecisionFilter,
    report: impl FnMut(String),
) -> Result<Verification, AuditError> {
    let mut run = VerificationRun {
        reader,
        report,
        sums: Verification::default(),
        body: None,
        order: OrderCheck::new(&reader.connection)?,
    };
    // Policies with any filter: every decision rests on one.
    run.check_digests("SELECT rowid, sha256, json FROM policy", |key| {
        format!("policy {key}: the text has another digest")
    })?;
    if filter.is_open() {
        run.check_digests("SELECT rowid, sha256, body FROM body", |key| {
            format!("robots.txt {key}: the body has another digest")
        })?;
        run.sums.kept = run.check_saved(SAVED_SNAPSHOTS, SAVED_SNAPSHOT_COLUMNS, |columns| {
            let (origin, token) = (columns.word()?, columns.word()?);
            Ok(format!(
                "{origin} {token}: what is kept is not as it was written"
            ))
        })?;
        run.check_record_id()?;
        run.check_events()?;
        run.sums.back_offs = run.check_saved(BACK_OFFS, BACK_OFF_COLUMNS, |columns| {
            let host = columns.word()?;
            Ok(format!(
                "{host}: the back-off kept is not as it was written"
            ))
        })?;
    }
    run.check_decisions(filter)?;
    Ok(run.sums)
}

/// A verification under way.
struct VerificationRun<'a, F> {
    reader: &'a AuditReader,
    report: F,
    sums: Verification,
    /// The body read last: rows of one origin stand close together.
    body: Option<(Digest, Bytes)>,
    order: OrderCheck,
}

impl<F: FnMut(String)> VerificationRun<'_, F> {
    fn add_mismatch(&mut self, finding: String) {
        self.sums.mismatches += 1;
        (self.report)(finding);
    }

    /// Reports the numbers of `gap`, which no row has. `name` stands before them.
    fn add_gap(&mut self, name: &str, gap: Range<u64>) {
        if gap.is_empty() {
            return;
        }
        self.sums.missing += gap.end - gap.start;
        let (first, last) = (gap.start, gap.end - 1);
        (self.report)(match (name, first == last) {
            ("", true) => format!("{first}: no such row"),
            ("", false) => format!("{first} to {last}: no such rows"),
            (name, true) => format!("{name} {first}: no such row"),
            (name, false) => format!("{name}s {first} to {last}: no such rows"),
        });
    }

    fn check_decisions(&mut self, filter: &DecisionFilter) -> Result<(), AuditError> {
        let reader = self.reader;
        let last = DECISIONS.last_number(&reader.connection)?;
        let end = last.max(reader.last_in_marker).saturating_add(1);
        let mut rows = DecisionReader::default();
        let mut expected = 1;
        // Every row, whatever its number says of its time: somebody may have
        // changed it.
        let mut scan = reader.scan(DECISIONS, filter, TimeRange::default())?;
        while let Some(page) = scan.next_page(|row| rows.checked(row))? {
            for row in page {
                let seq = row.record.seq;
                if filter.is_open() {
                    self.add_gap("", expected..seq);
                }
                expected = seq.saturating_add(1);
                self.check_decision(row)?;
            }
        }
        if filter.is_open() {
            self.add_gap("", expected..end);
        }
        Ok(())
    }

    fn check_decision(&mut self, row: CheckedRecord) -> Result<(), AuditError> {
        let record = row.record;
        let seq = record.seq;
        let is_in_order = self.order.holds(seq, record.at);
        let body = self.body_of(&record)?;
        match decide_again(&record, body) {
            Ok(Again::Differs(again)) => {
                self.sums.decided += 1;
                let (found, again) = (ruling_line(&record.ruling), ruling_line(&again));
                self.add_mismatch(format!("{seq}: the row says {found}, its evidence {again}"));
                return Ok(());
            }
            Err(why) => {
                self.add_mismatch(format!("{seq}: cannot be decided again: {why}"));
                return Ok(());
            }
            Ok(Again::OfRevision { decided_by, now }) => {
                self.sums.decided += 1;
                if row.is_as_written {
                    self.sums.other_revision += 1;
                    let (found, now) = (ruling_line(&record.ruling), ruling_line(&now));
                    let current = Revision::CURRENT;
                    (self.report)(format!(
                        "{seq}: decided by revision {decided_by}: {found}; revision {current} \
                         says {now}"
                    ));
                }
            }
            Ok(Again::Same) => self.sums.decided += 1,
            Ok(Again::FormOnly) => self.sums.form_only += 1,
        }
        // The answer is right, but it may be that of another request.
        if !row.is_as_written {
            self.add_mismatch(format!("{seq}: the row is not as it was written"));
        } else if !is_in_order {
            self.add_mismatch(format!(
                "{seq}: the row is earlier than one before it, and clock_step does not say so: a \
                 search by time may miss it"
            ));
        }
        Ok(())
    }

    /// Reads the robots.txt that a decision rests on, if it is there.
    fn body_of(&mut self, record: &StoredRecord) -> Result<Option<Bytes>, AuditError> {
        let snapshot = record.snapshot.as_ref();
        let Some(wanted) = snapshot.and_then(|snapshot| snapshot.sha256) else {
            return Ok(None);
        };
        if self.body.as_ref().is_none_or(|(key, _)| *key != wanted) {
            let body = self.reader.body(wanted)?;
            self.body = body.map(|body| (wanted, Bytes::from(body)));
        }
        Ok(self.body.as_ref().map(|(_, body)| body.clone()))
    }

    /// Looks at the row with the record's id.
    fn check_record_id(&mut self) -> rusqlite::Result<()> {
        let connection = &self.reader.connection;
        let is_own = connection
            .query_row(SELECT_RECORD, [], |row| is_as_written(row, RECORD_COLUMNS))
            .optional()?;
        // Records of older versions have no such row.
        if !is_own.unwrap_or(schema_version(connection)? < RECORD_SINCE) {
            self.add_mismatch("the record's id is not as it was written".to_owned());
        }
        Ok(())
    }

    fn check_events(&mut self) -> rusqlite::Result<()> {
        let reader = self.reader;
        let last = EVENTS.last_number(&reader.connection)?;
        let mut scan = reader.event_scan(&EventFilter::default())?;
        let read = |row: &Row<'_>| {
            let seq = ColumnReader::new(row).count()?;
            Ok((seq, is_as_written(row, EVENT_COLUMNS)?))
        };
        let mut expected = 1;
        while let Some(page) = scan.next_page(read)? {
            for (seq, is_own) in page {
                self.sums.events += 1;
                self.add_gap("event", expected..seq);
                expected = seq.saturating_add(1);
                if !is_own {
                    self.add_mismatch(format!("event {seq}: the row is not as it was written"));
                }
            }
        }
        self.add_gap("event", expected..last.saturating_add(1));
        Ok(())
    }

    /// Compares every row of `table` with the digest after its `columns`.
    /// Returns how many there are.
    fn check_saved(
        &mut self,
        table: KeyedTable,
        columns: usize,
        finding: impl Fn(&mut ColumnReader<'_>) -> rusqlite::Result<String>,
    ) -> rusqlite::Result<u64> {
        let mut scan = KeyScan::new(&self.reader.connection, table);
        let mut count = 0;
        let read = |row: &Row<'_>| {
            let is_own = is_as_written(row, columns)?;
            let altered = (!is_own).then(|| finding(&mut ColumnReader::new(row)));
            altered.transpose()
        };
        while let Some(page) = scan.next_page(read)? {
            for altered in page {
                count += 1;
                if let Some(finding) = altered {
                    self.add_mismatch(finding);
                }
            }
        }
        Ok(count)
    }

    /// Compares every content that `select` finds with the digest it is kept
    /// under.
    fn check_digests(
        &mut self,
        select: &str,
        finding: impl Fn(String) -> String,
    ) -> rusqlite::Result<()> {
        let sql = format!("{select} WHERE rowid > ? ORDER BY rowid LIMIT 1");
        let mut statement = self.reader.connection.prepare_cached(&sql)?;
        let mut after = i64::MIN;
        // One row at a time: a body may be large.
        while let Some((row, key, is_own)) =
            statement.query_row([after], read_content).optional()?
        {
            after = row;
            if !is_own {
                self.add_mismatch(finding(key));
            }
        }
        Ok(())
    }
}

/// Reads the number of a row, its key in hexadecimal, and whether the key is the
/// digest of its content.
fn read_content(row: &Row<'_>) -> rusqlite::Result<(i64, String, bool)> {
    let key: Vec<u8> = row.get(1)?;
    let content = row.get_ref(2)?.as_bytes().unwrap_or_default();
    let hexadecimal = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let is_own = read_digest(&key) == Some(Digest::of(content));
    Ok((row.get(0)?, hexadecimal, is_own))
}

/// Makes one line of a ruling.
fn ruling_line(ruling: &StoredRuling) -> String {
    let crawler = ruling.crawler.as_deref().unwrap_or("*");
    let mut line = format!("{} {} for {crawler}", ruling.verdict, ruling.reason);
    if let (Some(number), Some(rule)) = (ruling.line, &ruling.rule) {
        line.push_str(&format!(" (line {number}, {rule:?})"));
    }
    if let Some(effect) = ruling.exception {
        line.push_str(&format!(", {}", effect.as_str()));
    }
    line
}
