//! Deciding the whole log again, and finding where somebody's hand was in it.
//!
//! Invariant 2: every decision follows from what is stored beside it. What is
//! found is handed on as it is found, so that a log of any length is verified
//! in the memory of one page and one robots.txt.

use std::fmt;
use std::ops::ControlFlow;

use bytes::Bytes;
use rusqlite::{OptionalExtension, Row};

use super::AuditError;
use super::event_row::{BACK_OFF_COLUMNS, BACK_OFFS, EVENT_COLUMNS, text};
use super::events::EventFilter;
use super::kept_row::{self, KEPT};
use super::order::OrderCheck;
use super::pages::Direction;
use super::query::{AuditReader, DecisionFilter};
use super::record_row::{RECORD_COLUMNS, RECORDS};
use super::row::{DecisionReader, blob, count, digest, is_as_written, is_untouched};
use super::schema::{RECORD_SINCE, last_event, last_seq, version};
use crate::decision::decide::Revision;
use crate::decision::digest::Digest;
use crate::decision::record::{Again, StoredRecord, StoredRuling, Undecidable, decide_again};

/// What verification came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verification {
    /// Rows that were decided again, whatever came of it.
    pub decided: u64,
    /// Rows among them that another revision of the engine decided, and that
    /// this one decides otherwise. They are no mismatches.
    pub other_revision: u64,
    /// Rows that rest on no snapshot (`egress`) and were checked for form.
    pub form_only: u64,
    /// Findings that are mismatches.
    pub mismatches: u64,
    /// Rows that are not there any more.
    pub missing: u64,
    /// Copies of robots.txt kept for a restart that were looked at.
    pub kept: u64,
    /// Events that were looked at.
    pub events: u64,
    /// Back-offs kept for a restart that were looked at.
    pub back_offs: u64,
}

/// Something that verification found. Its `Display` is one line.
#[derive(Debug)]
pub enum Finding {
    /// Deciding again gives another answer.
    Decision {
        /// The row.
        seq: u64,
        /// What it says.
        found: Box<StoredRuling>,
        /// What follows from its evidence.
        again: Box<StoredRuling>,
    },
    /// Another revision of the engine decided the row, and this one decides
    /// otherwise. The row is as it was written. It is told, and is no mismatch.
    OtherRevision {
        /// The row.
        seq: u64,
        /// The revision that decided it.
        decided_by: Revision,
        /// What it says.
        found: Box<StoredRuling>,
        /// What this revision says.
        now: Box<StoredRuling>,
    },
    /// The row cannot be decided again.
    Undecidable {
        /// The row.
        seq: u64,
        /// Why.
        why: Undecidable,
    },
    /// The answer is right, but the row, its snapshot or its policy is not what
    /// was written.
    Changed {
        /// The row.
        seq: u64,
    },
    /// A robots.txt is kept under a digest that is not its own.
    Body {
        /// The digest it is kept under, in hexadecimal.
        key: String,
    },
    /// A policy is kept under a digest that is not its own.
    Policy {
        /// The digest it is kept under, in hexadecimal.
        key: String,
    },
    /// What is kept of a robots.txt for a restart is not what was written. No
    /// decision rests on it: it counts as absent.
    StoredSnapshot {
        /// The origin it is kept for.
        origin: String,
        /// The token it is kept for, or nothing.
        token: String,
    },
    /// An event is not what was written.
    Event {
        /// Its number.
        seq: u64,
    },
    /// A back-off kept for a restart is not what was written: it counts as
    /// absent.
    BackOff {
        /// Its host.
        host: String,
    },
    /// The row with the record's id is not what was written, or is gone.
    Record,
    /// Events are gone.
    MissingEvents {
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
    },
    /// The row is earlier than one before it, and the table by which rows are
    /// found by time does not say so.
    Order {
        /// The row.
        seq: u64,
    },
    /// Rows are gone. It is told, and is no mismatch: what is left may be right.
    Missing {
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
    },
}

impl Finding {
    /// Whether it contradicts the log.
    pub fn is_mismatch(&self) -> bool {
        !matches!(
            self,
            Self::OtherRevision { .. } | Self::Missing { .. } | Self::MissingEvents { .. }
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decision { seq, found, again } => write!(
                f,
                "{seq}: the row says {}, its evidence {}",
                RulingLine(found),
                RulingLine(again)
            ),
            Self::OtherRevision {
                seq,
                decided_by,
                found,
                now,
            } => write!(
                f,
                "{seq}: decided by revision {decided_by}: {}; revision {} says {}",
                RulingLine(found),
                Revision::CURRENT,
                RulingLine(now)
            ),
            Self::Undecidable { seq, why } => write!(f, "{seq}: cannot be decided again: {why}"),
            Self::Changed { seq } => write!(f, "{seq}: the row is not as it was written"),
            Self::Body { key } => write!(f, "robots.txt {key}: the body has another digest"),
            Self::Policy { key } => write!(f, "policy {key}: the text has another digest"),
            Self::StoredSnapshot { origin, token } => {
                write!(f, "{origin} {token}: what is kept is not as it was written")
            }
            Self::Order { seq } => write!(
                f,
                "{seq}: the row is earlier than one before it, and clock_step does not say so: a \
                 search by time may miss it"
            ),
            Self::Event { seq } => write!(f, "event {seq}: the row is not as it was written"),
            Self::BackOff { host } => {
                write!(f, "{host}: the back-off kept is not as it was written")
            }
            Self::Record => write!(f, "the record's id is not as it was written"),
            Self::MissingEvents { first, last } if first == last => {
                write!(f, "event {first}: no such row")
            }
            Self::MissingEvents { first, last } => {
                write!(f, "events {first} to {last}: no such rows")
            }
            Self::Missing { first, last } if first == last => write!(f, "{first}: no such row"),
            Self::Missing { first, last } => write!(f, "{first} to {last}: no such rows"),
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

impl AuditReader {
    /// Decides every record that meets `filter` again, from what is stored, and
    /// hands what does not fit to `report`.
    ///
    /// Bodies and gaps concern the log as a whole; they are looked at if
    /// `filter` is open.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn verify(
        &self,
        filter: &DecisionFilter,
        report: impl FnMut(Finding),
    ) -> Result<Verification, AuditError> {
        let mut check = VerificationRun {
            reader: self,
            report,
            sums: Verification::default(),
            body: None,
            expected: 1,
            order: OrderCheck::of(&self.connection).map_err(AuditError::Read)?,
            is_whole: filter.is_open(),
        };
        check.kept_by_digest().map_err(AuditError::Read)?;
        let last = last_seq(&self.connection).map_err(AuditError::Read)?;
        let last = last.max(self.told_by_marker);
        let mut outcome = Ok(());
        let mut rows = DecisionReader::default();
        let read = |row: &Row<'_>| CheckedRow::read(&mut rows, row);
        self.pages(filter, read, |page| {
            outcome = page.into_iter().try_for_each(|row| check.row(row));
            if outcome.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        outcome.map_err(AuditError::Read)?;
        check.gap_before(last.saturating_add(1));
        Ok(check.sums)
    }
}

/// A row as read for verification.
struct CheckedRow {
    record: StoredRecord,
    untouched: bool,
}

impl CheckedRow {
    fn read(rows: &mut DecisionReader, row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            record: rows.record(row)?,
            untouched: is_untouched(row)?,
        })
    }
}

/// A verification under way.
struct VerificationRun<'a, F> {
    reader: &'a AuditReader,
    report: F,
    sums: Verification,
    /// The body read last: rows of one origin stand close together.
    body: Option<(Digest, Bytes)>,
    /// The number that the next row has if none is missing.
    expected: u64,
    order: OrderCheck,
    /// Whether every row is looked at, so that a gap means something.
    is_whole: bool,
}

impl<F: FnMut(Finding)> VerificationRun<'_, F> {
    fn row(&mut self, row: CheckedRow) -> rusqlite::Result<()> {
        let CheckedRow { record, untouched } = row;
        let seq = record.seq;
        self.gap_before(seq);
        self.expected = seq.saturating_add(1);
        let is_in_order = self.order.holds(seq, record.at);
        let body = self.body_of(&record)?;
        match decide_again(&record, body) {
            Ok(Again::Differs(again)) => {
                self.sums.decided += 1;
                let found = Box::new(record.ruling);
                self.found(Finding::Decision { seq, found, again });
                return Ok(());
            }
            Err(why) => {
                self.found(Finding::Undecidable { seq, why });
                return Ok(());
            }
            Ok(Again::OfRevision { decided_by, now }) => {
                self.sums.decided += 1;
                if untouched {
                    self.sums.other_revision += 1;
                    let found = Box::new(record.ruling);
                    self.found(Finding::OtherRevision {
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
        if !untouched {
            self.found(Finding::Changed { seq });
        } else if !is_in_order {
            self.found(Finding::Order { seq });
        }
        Ok(())
    }

    fn found(&mut self, finding: Finding) {
        if finding.is_mismatch() {
            self.sums.mismatches += 1;
        }
        (self.report)(finding);
    }

    /// Reports the rows missing between the last one seen and `seq`.
    fn gap_before(&mut self, seq: u64) {
        if self.is_whole && self.expected < seq {
            self.sums.missing += seq - self.expected;
            let (first, last) = (self.expected, seq - 1);
            self.found(Finding::Missing { first, last });
        }
    }

    /// The robots.txt that a record rests on, if it is in the store.
    fn body_of(&mut self, record: &StoredRecord) -> rusqlite::Result<Option<Bytes>> {
        let snapshot = record.snapshot.as_ref();
        let Some(wanted) = snapshot.and_then(|snapshot| snapshot.sha256) else {
            return Ok(None);
        };
        if let Some((_, body)) = self.body.as_ref().filter(|(kept, _)| *kept == wanted) {
            return Ok(Some(body.clone()));
        }
        let body: Option<Vec<u8>> = self
            .reader
            .connection
            .prepare_cached("SELECT body FROM body WHERE sha256 = ?")?
            .query_row([blob(wanted)], |row| row.get(0))
            .optional()?;
        self.body = body.map(|body| (wanted, Bytes::from(body)));
        Ok(self.body.as_ref().map(|(_, body)| body.clone()))
    }

    /// Compares what is kept by digest with its digest.
    fn kept_by_digest(&mut self) -> rusqlite::Result<()> {
        self.each_kept("SELECT rowid, sha256, json FROM policy", |key| {
            Finding::Policy { key }
        })?;
        if self.is_whole {
            self.each_kept("SELECT rowid, sha256, body FROM body", |key| {
                Finding::Body { key }
            })?;
            self.kept_for_a_restart()?;
            self.record()?;
            self.events()?;
            self.back_offs()?;
        }
        Ok(())
    }

    /// Looks at the row with the record's id. Records of versions before 6 have
    /// none.
    fn record(&mut self) -> rusqlite::Result<()> {
        let connection = &self.reader.connection;
        let is_as_written = connection
            .query_row(RECORDS, [], |row| is_as_written(row, RECORD_COLUMNS))
            .optional()?;
        if !is_as_written.unwrap_or(version(connection)? < RECORD_SINCE) {
            self.found(Finding::Record);
        }
        Ok(())
    }

    fn events(&mut self) -> rusqlite::Result<()> {
        let reader = self.reader;
        let last = last_event(&reader.connection)?;
        let scan = reader.event_scan(&EventFilter::default(), Direction::OldestFirst)?;
        let mut expected = 1;
        let read = |row: &Row<'_>| Ok((row.get(0).map(count)?, is_as_written(row, EVENT_COLUMNS)?));
        scan.run(read, |page| {
            for (seq, untouched) in page {
                self.sums.events += 1;
                self.events_gone(expected, seq);
                expected = seq.saturating_add(1);
                if !untouched {
                    self.found(Finding::Event { seq });
                }
            }
            ControlFlow::Continue(())
        })?;
        self.events_gone(expected, last.saturating_add(1));
        Ok(())
    }

    /// Reports the events missing from `expected` to below `seq`.
    fn events_gone(&mut self, expected: u64, seq: u64) {
        if expected < seq {
            self.sums.missing += seq - expected;
            let (first, last) = (expected, seq - 1);
            self.found(Finding::MissingEvents { first, last });
        }
    }

    fn back_offs(&mut self) -> rusqlite::Result<()> {
        let read = |row: &Row<'_>| Ok((text(row, 0)?, is_as_written(row, BACK_OFF_COLUMNS)?));
        let connection = &self.reader.connection;
        BACK_OFFS.each_page(connection, read, |page| {
            for (host, untouched) in page {
                self.sums.back_offs += 1;
                if !untouched {
                    self.found(Finding::BackOff { host });
                }
            }
        })
    }

    fn kept_for_a_restart(&mut self) -> rusqlite::Result<()> {
        let read = |row: &Row<'_>| {
            let untouched = kept_row::is_untouched(row)?;
            Ok((text(row, 0)?, text(row, 1)?, untouched))
        };
        let connection = &self.reader.connection;
        KEPT.each_page(connection, read, |page| {
            for (origin, token, untouched) in page {
                self.sums.kept += 1;
                if !untouched {
                    self.found(Finding::StoredSnapshot { origin, token });
                }
            }
        })
    }

    fn each_kept(
        &mut self,
        select: &str,
        finding: impl Fn(String) -> Finding,
    ) -> rusqlite::Result<()> {
        let sql = format!("{select} WHERE rowid > ? ORDER BY rowid LIMIT 1");
        let mut after = i64::MIN;
        loop {
            let next = self
                .reader
                .connection
                .prepare_cached(&sql)?
                .query_row([after], kept)
                .optional()?;
            let Some((id, key, is_its_own)) = next else {
                return Ok(());
            };
            after = id;
            if !is_its_own {
                self.found(finding(key));
            }
        }
    }
}

/// Its row, its key in hexadecimal, and whether the key is its digest.
fn kept(row: &Row<'_>) -> rusqlite::Result<(i64, String, bool)> {
    let key: Vec<u8> = row.get(1)?;
    let content = row.get_ref(2)?.as_bytes().unwrap_or_default();
    let own = Digest::of(content);
    let hexadecimal = key.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((row.get(0)?, hexadecimal, digest(&key) == Some(own)))
}
