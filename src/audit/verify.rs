//! Verification: decides the whole record again, and finds rows that somebody
//! has changed or removed.
//!
//! Invariant 2: every decision follows from what is stored beside it. Findings
//! are handed on as they are found, so that a record of any length is verified
//! in the memory of one page and one robots.txt.

use std::fmt;
use std::ops::{ControlFlow, Range};

use bytes::Bytes;
use rusqlite::{OptionalExtension, Row};
use thiserror::Error;

use super::columns::{ColumnReader, blob, is_as_written, read_digest};
use super::decision_row::{CheckedRecord, DECISIONS, DecisionReader};
use super::error::AuditError;
use super::events::{EVENT_COLUMNS, EVENTS};
use super::filter::{DecisionFilter, EventFilter};
use super::order::{OrderCheck, TimeRange};
use super::pages::{Direction, KeyedTable};
use super::reader::AuditReader;
use super::record_id::{RECORD_COLUMNS, SELECT_RECORD};
use super::saved_state::{BACK_OFF_COLUMNS, BACK_OFFS, SAVED_SNAPSHOT_COLUMNS, SAVED_SNAPSHOTS};
use super::schema::{RECORD_SINCE, schema_version};
use crate::decision::decide::Revision;
use crate::decision::digest::Digest;
use crate::decision::record::{Again, StoredRecord, StoredRuling, Undecidable, decide_again};

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

/// Finding of a verification. Its `Display` is one line.
#[derive(Debug, Error)]
pub enum Finding {
    /// Deciding again gives another answer.
    #[error("{seq}: the row says {}, its evidence {}", RulingLine(.found), RulingLine(.again))]
    Decision {
        /// Number of the row.
        seq: u64,
        /// Ruling in the row.
        found: Box<StoredRuling>,
        /// Ruling that follows from its evidence.
        again: Box<StoredRuling>,
    },
    /// Another revision of the engine decided the row, and this one decides
    /// otherwise. The row is as it was written: it is no mismatch.
    #[error(
        "{seq}: decided by revision {decided_by}: {}; revision {} says {}",
        RulingLine(.found), Revision::CURRENT, RulingLine(.now)
    )]
    OtherRevision {
        /// Number of the row.
        seq: u64,
        /// Revision that decided it.
        decided_by: Revision,
        /// Ruling in the row.
        found: Box<StoredRuling>,
        /// Ruling of this revision.
        now: Box<StoredRuling>,
    },
    /// The row cannot be decided again.
    #[error("{seq}: cannot be decided again: {why}")]
    Undecidable {
        /// Number of the row.
        seq: u64,
        /// Reason.
        why: Undecidable,
    },
    /// The answer is right, but the row with this number, its snapshot or its
    /// policy is not what was written.
    #[error("{0}: the row is not as it was written")]
    Changed(u64),
    /// A robots.txt is kept under this digest, which is not its own.
    #[error("robots.txt {0}: the body has another digest")]
    Body(String),
    /// A policy is kept under this digest, which is not its own.
    #[error("policy {0}: the text has another digest")]
    Policy(String),
    /// A saved snapshot is not what was written. No decision rests on it: it
    /// counts as absent.
    #[error("{origin} {token}: what is kept is not as it was written")]
    SavedSnapshot {
        /// Origin it is saved for.
        origin: String,
        /// Token it is saved for, or nothing.
        token: String,
    },
    /// The event with this number is not what was written.
    #[error("event {0}: the row is not as it was written")]
    Event(u64),
    /// The saved back-off of this host is not what was written: it counts as
    /// absent.
    #[error("{0}: the back-off kept is not as it was written")]
    BackOff(String),
    /// The row with the record's id is not what was written, or is gone.
    #[error("the record's id is not as it was written")]
    Record,
    /// The row with this number is earlier than one before it, and the table by
    /// which rows are found by time does not say so.
    #[error(
        "{0}: the row is earlier than one before it, and clock_step does not say so: a search by \
         time may miss it"
    )]
    Order(u64),
    /// Rows are gone. It is no mismatch: those that are left may be right.
    #[error("{0}")]
    Missing(MissingRows),
}

impl Finding {
    /// Whether the finding contradicts the record.
    pub fn is_mismatch(&self) -> bool {
        !matches!(self, Self::OtherRevision { .. } | Self::Missing(_))
    }
}

/// Numbers that no row has.
#[derive(Debug)]
pub struct MissingRows {
    /// Rows that are numbered.
    pub rows: NumberedRows,
    /// First of the numbers.
    pub first: u64,
    /// Last of the numbers.
    pub last: u64,
}

/// Rows that are numbered without a gap.
#[derive(Debug, Clone, Copy)]
pub enum NumberedRows {
    /// Rows of `decision`.
    Decisions,
    /// Rows of `event`.
    Events,
}

impl fmt::Display for MissingRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, first, last } = self;
        match (rows, first == last) {
            (NumberedRows::Decisions, true) => write!(f, "{first}: no such row"),
            (NumberedRows::Decisions, false) => write!(f, "{first} to {last}: no such rows"),
            (NumberedRows::Events, true) => write!(f, "event {first}: no such row"),
            (NumberedRows::Events, false) => write!(f, "events {first} to {last}: no such rows"),
        }
    }
}

/// A ruling in one line.
struct RulingLine<'a>(&'a StoredRuling);

impl fmt::Display for RulingLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ruling = self.0;
        let crawler = ruling.crawler.as_deref().unwrap_or("*");
        write!(f, "{} {} for {crawler}", ruling.verdict, ruling.reason)?;
        if let (Some(line), Some(rule)) = (ruling.line, &ruling.rule) {
            write!(f, " (line {line}, {rule:?})")?;
        }
        match ruling.exception {
            Some(effect) => write!(f, ", {}", effect.as_str()),
            None => Ok(()),
        }
    }
}

/// Decides every record that meets `filter` again, from what is stored, and
/// hands what does not fit to `report`.
///
/// Bodies, events, saved state and gaps concern the record as a whole; they are
/// looked at if `filter` is open.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn verify(
    reader: &AuditReader,
    filter: &DecisionFilter,
    report: impl FnMut(Finding),
) -> Result<Verification, AuditError> {
    let mut run = VerificationRun {
        reader,
        report,
        sums: Verification::default(),
        body: None,
        order: OrderCheck::new(&reader.connection)?,
    };
    run.check_digests("SELECT rowid, sha256, json FROM policy", Finding::Policy)?;
    if filter.is_open() {
        run.check_digests("SELECT rowid, sha256, body FROM body", Finding::Body)?;
        run.sums.kept = run.check_saved(SAVED_SNAPSHOTS, SAVED_SNAPSHOT_COLUMNS, |columns| {
            let (origin, token) = (columns.word()?, columns.word()?);
            Ok(Finding::SavedSnapshot { origin, token })
        })?;
        run.check_record_id()?;
        run.check_events()?;
        run.sums.back_offs = run.check_saved(BACK_OFFS, BACK_OFF_COLUMNS, |columns| {
            columns.word().map(Finding::BackOff)
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

impl<F: FnMut(Finding)> VerificationRun<'_, F> {
    fn add(&mut self, finding: Finding) {
        if finding.is_mismatch() {
            self.sums.mismatches += 1;
        }
        (self.report)(finding);
    }

    /// Reports the numbers from `gap.start` to below `gap.end`, which no row has.
    fn add_gap(&mut self, rows: NumberedRows, gap: Range<u64>) {
        if !gap.is_empty() {
            self.sums.missing += gap.end - gap.start;
            self.add(Finding::Missing(MissingRows {
                rows,
                first: gap.start,
                last: gap.end - 1,
            }));
        }
    }

    fn check_decisions(&mut self, filter: &DecisionFilter) -> rusqlite::Result<()> {
        let reader = self.reader;
        let last = DECISIONS.last_number(&reader.connection)?;
        let end = last.max(reader.last_in_marker).saturating_add(1);
        let mut rows = DecisionReader::default();
        let mut expected = 1;
        let mut outcome = Ok(());
        // Every row, whatever its number says of its time: somebody may have
        // changed it.
        let scan = reader.scan(DECISIONS, filter, TimeRange::default())?;
        scan.run(
            |row| rows.checked(row),
            |page| {
                outcome = page.into_iter().try_for_each(|row| {
                    let seq = row.record.seq;
                    if filter.is_open() {
                        self.add_gap(NumberedRows::Decisions, expected..seq);
                    }
                    expected = seq.saturating_add(1);
                    self.check_decision(row)
                });
                match outcome {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            },
        )?;
        outcome?;
        if filter.is_open() {
            self.add_gap(NumberedRows::Decisions, expected..end);
        }
        Ok(())
    }

    fn check_decision(&mut self, row: CheckedRecord) -> rusqlite::Result<()> {
        let CheckedRecord {
            record,
            is_as_written,
        } = row;
        let seq = record.seq;
        let is_in_order = self.order.holds(seq, record.at);
        let body = self.body_of(&record)?;
        match decide_again(&record, body) {
            Ok(Again::Differs(again)) => {
                self.sums.decided += 1;
                let found = Box::new(record.ruling);
                self.add(Finding::Decision { seq, found, again });
                return Ok(());
            }
            Err(why) => {
                self.add(Finding::Undecidable { seq, why });
                return Ok(());
            }
            Ok(Again::OfRevision { decided_by, now }) => {
                self.sums.decided += 1;
                if is_as_written {
                    self.sums.other_revision += 1;
                    let found = Box::new(record.ruling);
                    self.add(Finding::OtherRevision {
                        seq,
                        decided_by,
                        found,
                        now,
                    });
                }
            }
            Ok(Again::Same) => self.sums.decided += 1,
            Ok(Again::FormOnly) => self.sums.form_only += 1,
        }
        if !is_as_written {
            self.add(Finding::Changed(seq));
        } else if !is_in_order {
            self.add(Finding::Order(seq));
        }
        Ok(())
    }

    /// Reads the robots.txt that a record rests on, if it is there.
    fn body_of(&mut self, record: &StoredRecord) -> rusqlite::Result<Option<Bytes>> {
        let snapshot = record.snapshot.as_ref();
        let Some(wanted) = snapshot.and_then(|snapshot| snapshot.sha256) else {
            return Ok(None);
        };
        if self.body.as_ref().is_none_or(|(kept, _)| *kept != wanted) {
            let sql = "SELECT body FROM body WHERE sha256 = ?";
            let mut statement = self.reader.connection.prepare_cached(sql)?;
            let body = statement.query_row([blob(wanted)], |row| row.get::<_, Vec<u8>>(0));
            self.body = body.optional()?.map(|body| (wanted, Bytes::from(body)));
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
            self.add(Finding::Record);
        }
        Ok(())
    }

    fn check_events(&mut self) -> rusqlite::Result<()> {
        let reader = self.reader;
        let last = EVENTS.last_number(&reader.connection)?;
        let scan = reader.event_scan(&EventFilter::default(), Direction::OldestFirst)?;
        let mut expected = 1;
        let read = |row: &Row<'_>| {
            let seq = ColumnReader::new(row).count()?;
            Ok((seq, is_as_written(row, EVENT_COLUMNS)?))
        };
        scan.run(read, |page| {
            for (seq, is_own) in page {
                self.sums.events += 1;
                self.add_gap(NumberedRows::Events, expected..seq);
                expected = seq.saturating_add(1);
                if !is_own {
                    self.add(Finding::Event(seq));
                }
            }
            ControlFlow::Continue(())
        })?;
        self.add_gap(NumberedRows::Events, expected..last.saturating_add(1));
        Ok(())
    }

    /// Compares every row of `table` with the digest behind its `columns`.
    fn check_saved(
        &mut self,
        table: KeyedTable,
        columns: usize,
        read: impl Fn(&mut ColumnReader<'_>) -> rusqlite::Result<Finding>,
    ) -> rusqlite::Result<u64> {
        let read = |row: &Row<'_>| {
            let finding = read(&mut ColumnReader::new(row))?;
            Ok((is_as_written(row, columns)?, finding))
        };
        let mut count = 0;
        table.each_page(&self.reader.connection, read, |page| {
            for (is_own, finding) in page {
                count += 1;
                if !is_own {
                    self.add(finding);
                }
            }
        })?;
        Ok(count)
    }

    /// Compares every content that `select` finds with the digest it is kept
    /// under.
    fn check_digests(
        &mut self,
        select: &str,
        finding: impl Fn(String) -> Finding,
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
                self.add(finding(key));
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
