//! Verification: makes every decision of the audit record again, and finds rows
//! that someone has altered or removed.
//!
//! Invariant 2 (ARCHITECTURE.md): every decision follows from the evidence stored
//! with it. A finding is one line of text, reported as soon as it is found, so that
//! a record of any length is verified in the memory of one page and one robots.txt.
//!
//! A finding is a mismatch if it contradicts the record. Two kinds do not and are
//! counted separately: missing rows, since the remaining ones may be right, and
//! decisions that another revision of the engine made differently. Numbers that the
//! proxy itself has noted as lost are counted, but are not findings.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use rusqlite::{OptionalExtension, Row};

use super::columns::{TableRow, count, is_digest, read_digest, signed};
use super::decision_row::CheckedRecord;
use super::dictionary::{DICTIONARIES, DictionaryTable, POLICIES};
use super::error::AuditError;
use super::events::{EventRow, ProcessEventKind};
use super::filter::{DecisionFilter, EventFilter};
use super::leaf::LeafRun;
use super::number_check::{NumberCheck, NumberFinding};
use super::order::OrderCheck;
use super::pages::{KeyScan, KeyedTable};
use super::parts::part_text;
use super::pruned::PrunedEnd;
use super::reader::AuditReader;
use super::record_id::{LostHeads, RecordRow, SELECT_RECORD};
use super::redaction::RedactedNumbers;
use super::remaining::{RemainingCheck, RemainingState, StrayPath};
use super::saved_state::{BACK_OFFS, BackOffRow, KeptRow, SAVED_SNAPSHOTS};
use super::schema::{self, schema_objects};
use super::seal_check::{SealCheck, SealEvidence, SealSums};
use super::sent_check::{SentCheck, SentFinding};
use super::sequence::last_as_written;
use politesse_decision::again::{Again, EvidenceCache, decide_again};
use politesse_decision::decide::Revision;
use politesse_decision::digest::{CanonicalBytes, Digest};
use politesse_decision::record::StoredRuling;

/// Dictionary values read in one transaction.
const VALUES: usize = 512;

/// Sums of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// Rows that were decided again, whether or not the result is the same.
    pub decided: u64,
    /// Rows among them that another revision of the engine decided, and that this
    /// revision decides differently. Not mismatches.
    pub other_revision: u64,
    /// Rows that rest on no snapshot (`egress`, `identity`); only their form was
    /// checked.
    pub form_only: u64,
    /// Rows whose verdict may rest on a query string that is not on record.
    /// Everything else is checked; not mismatches.
    pub query_withheld: u64,
    /// Findings that are mismatches.
    pub mismatches: u64,
    /// Rows whose client and URL were redacted by order. They are not decided
    /// again; not mismatches.
    pub redacted: u64,
    /// Missing rows.
    pub missing: u64,
    /// Numbers without an entry that the proxy itself has noted as lost, after
    /// damage or the restoration of a backup. Not mismatches.
    pub skipped: u64,
    /// Minimum number of entries that had some of these numbers.
    pub lost: u64,
    /// Highest number removed by age; 0 if none was. Not findings.
    pub pruned: u64,
    /// Entries up to that number that still exist because their removal is in
    /// progress. They are not checked.
    pub removing: u64,
    /// Whether another removal began during the verification, which may explain
    /// missing or mismatched entries. A second verification tells.
    pub is_outrun: bool,
    /// Requests that were counted as sent but are not on record. These are
    /// findings.
    pub unrecorded: u64,
    /// Processes that ended without a stop event: it is unknown whether all
    /// requests sent after their last count are on record.
    pub unknown_ends: u64,
    /// Saved snapshots that were checked.
    pub kept: u64,
    /// Events that were checked.
    pub events: u64,
    /// Saved back-offs that were checked.
    pub back_offs: u64,
    /// Losses of heads that were accepted (`--accept-lost-heads`).
    pub lost_heads: u64,
    /// Heads of the record, and the extent to which they seal it.
    pub seals: SealSums,
}

impl Verification {
    /// Returns the number of findings which say that something was altered, removed
    /// or omitted.
    pub fn failures(&self) -> u64 {
        // A missing row counts, because the proxy notes its own removals.
        self.mismatches + self.missing
    }

    /// Returns the number of entries that no valid head covers.
    pub fn unsealed(&self) -> u64 {
        self.seals.entries.saturating_sub(self.seals.sealed)
    }
}

/// Makes every decision that matches `filter` again from the stored evidence, and
/// passes each finding to `report`.
///
/// If `filter` is open, also checks bodies, dictionaries, events, saved state, gaps
/// and heads, which concern the record as a whole.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn verify(
    reader: &AuditReader,
    filter: &DecisionFilter,
    report: impl FnMut(String),
) -> Result<Verification, AuditError> {
    verify_with(reader, filter, &SealEvidence::default(), report)
}

/// Verifies like [`verify`], and compares the heads with `evidence` from outside
/// the record.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn verify_with(
    reader: &AuditReader,
    filter: &DecisionFilter,
    evidence: &SealEvidence,
    report: impl FnMut(String),
) -> Result<Verification, AuditError> {
    let pruned = PrunedEnd::read(&reader.connection)?;
    let mut run = VerificationRun {
        reader,
        evidence,
        report,
        sums: Verification::default(),
        decided_on: EvidenceCache::default(),
        order: OrderCheck::new(&reader.connection)?,
        redacted: RedactedNumbers::default(),
        remaining: RemainingCheck::new(&reader.connection, pruned),
    };
    // Read before the heads, so that a proxy which stops meanwhile is not accused.
    let stopped = run.stopped_at()?;
    if filter.is_open() {
        run.sums.pruned = run.remaining.pruned_until();
        run.check_whole()?;
    } else {
        // Checked with any filter, because every decision rests on a policy.
        run.check_dictionary(&POLICIES)?;
    }
    run.check_decisions(filter)?;
    if let Some(stopped) = stopped.filter(|_| filter.is_open()) {
        run.check_tail(stopped)?;
    }
    run.sums.is_outrun = pruned.last < PrunedEnd::read(&reader.connection)?.last;
    Ok(run.sums)
}

/// State of a verification.
struct VerificationRun<'a, F> {
    reader: &'a AuditReader,
    report: F,
    sums: Verification,
    /// Keys and heads from outside the record.
    evidence: &'a SealEvidence,
    /// Evidence shared by many rows.
    decided_on: EvidenceCache,
    order: OrderCheck,
    /// Numbers of the decisions that were redacted by order.
    redacted: RedactedNumbers,
    /// Check of the entries that remain where others were removed.
    remaining: RemainingCheck<'a>,
}

impl<'a, F: FnMut(String)> VerificationRun<'a, F> {
    fn add_mismatch(&mut self, finding: String) {
        self.sums.mismatches += 1;
        (self.report)(finding);
    }

    /// Reports a finding about numbers.
    fn add_number(&mut self, finding: NumberFinding) {
        match finding {
            NumberFinding::Missing { first, last } => {
                self.sums.missing += count(last - first + 1);
                (self.report)(if first == last {
                    format!("{first}: no such row")
                } else {
                    format!("{first} to {last}: no such rows")
                });
            }
            NumberFinding::Orphan { decision, ending } => {
                self.sums.missing += 1;
                (self.report)(format!(
                    "{decision}: no such row, though its ending {ending} is there"
                ));
            }
            NumberFinding::Twice(seq) => {
                self.add_mismatch(format!("{seq}: two entries have this number"));
            }
            NumberFinding::Lost { range, is_own } => {
                self.sums.skipped +=
                    count(range.last.saturating_sub(range.first).saturating_add(1));
                if !is_own {
                    let first = range.first;
                    self.add_mismatch(format!("{first}: the lost range is not as it was written"));
                }
            }
            NumberFinding::WrongRollup(part) => {
                let numbers = part_text(part);
                self.add_mismatch(format!(
                    "{numbers}: the table rollup does not have the sums of these entries: \
                     statistics are wrong"
                ));
            }
            NumberFinding::Seal(finding) => self.add_mismatch(finding.to_string()),
            NumberFinding::EmptyRollups => {
                self.add_mismatch(
                    "the table rollup has sums of entries that are not there: statistics may be \
                     wrong"
                        .to_owned(),
                );
            }
            NumberFinding::LateEndings(wrong) => {
                self.add_mismatch(format!(
                    "the table late_ending lacks endings, or names some without reason: {wrong}; \
                     statistics are wrong"
                ));
            }
            NumberFinding::Unsummed(part) => {
                let numbers = part_text(part);
                self.add_mismatch(format!(
                    "{numbers}: the table part does not have all of these decisions: a \
                     search by host or verdict may miss some"
                ));
            }
        }
    }

    /// Reports a finding about the count of requests.
    fn add_sent(&mut self, finding: SentFinding) {
        match finding {
            SentFinding::Unrecorded { count, counts } => {
                self.sums.unrecorded += count;
                let (after, until) = (counts.after, counts.until);
                self.add_mismatch(format!(
                    "{after} to {until}: requests sent and not on record: {count}"
                ));
            }
            SentFinding::Uncounted { count, counts } => {
                let (after, until) = (counts.after, counts.until);
                self.add_mismatch(format!(
                    "{after} to {until}: requests on record as sent and not counted: {count}"
                ));
            }
            SentFinding::WithoutPermit(seq) => {
                self.add_mismatch(format!("{seq}: refused, and on record as sent"));
            }
            SentFinding::Unknown { after } => {
                self.sums.unknown_ends += 1;
                (self.report)(format!(
                    "after {after}: the process ended without a word: whether all that it sent \
                     from there on is on record is not known"
                ));
            }
        }
    }

    /// Runs the checks that concern the record as a whole.
    fn check_whole(&mut self) -> Result<(), AuditError> {
        self.check_schema()?;
        self.check_indexes()?;
        for table in DICTIONARIES {
            self.check_dictionary(table)?;
        }
        self.check_bodies()?;
        self.sums.kept = self.check_saved(SAVED_SNAPSHOTS, |kept: &KeptRow| {
            let KeptRow { origin, token, .. } = kept;
            format!("{origin} {token}: what is kept is not as it was written")
        })?;
        self.check_record_id()?;
        self.check_marked_head()?;
        self.check_paths()?;
        self.check_events()?;
        self.sums.back_offs = self.check_saved(BACK_OFFS, |kept: &BackOffRow| {
            let host = &kept.host;
            format!("{host}: the back-off kept is not as it was written")
        })?;
        Ok(())
    }

    fn check_decisions(&mut self, filter: &DecisionFilter) -> Result<(), AuditError> {
        let reader = self.reader;
        let mut rows = reader.decision_reader();
        let mut whole = match filter.is_open() {
            // The counts are read before the decisions: a proxy may be writing, and
            // every counted request then has its decision on record.
            true => {
                let seals = self.read_heads()?;
                Some((SentCheck::new(reader)?, NumberCheck::new(reader, seals)?))
            }
            false => None,
        };
        // Every row is read, even if its number suggests another time, because
        // someone may have changed the time.
        let mut scan = reader.whole_scan(filter)?;
        while let Some(page) = scan.next_page(|row| rows.checked(row))? {
            for row in page {
                if !self.is_evidence(&row.leaf, row.ending.as_ref())? {
                    continue;
                }
                if let Some((sent, numbers)) = &mut whole {
                    sent.add(&row, |finding| self.add_sent(finding));
                    numbers.add(&row, |finding| self.add_number(finding))?;
                }
                self.check_decision(row)?;
            }
        }
        if let Some((sent, numbers)) = whole {
            sent.end(|finding| self.add_sent(finding));
            self.sums.seals = numbers.end(|finding| self.add_number(finding))?;
        }
        Ok(())
    }

    /// Returns the number of the event with which the last process stopped cleanly;
    /// `None` if the process still runs or ended otherwise.
    fn stopped_at(&self) -> rusqlite::Result<Option<i64>> {
        let sql = "SELECT max(seq) FROM event WHERE kind = ?1
                   AND NOT EXISTS (SELECT 1 FROM event AS later
                                   WHERE later.kind = ?2 AND event.seq < later.seq)";
        let kinds =
            [ProcessEventKind::Stopped, ProcessEventKind::Started].map(|kind| kind.as_str());
        let connection = &self.reader.connection;
        connection.query_row(sql, kinds, |row| row.get(0))
    }

    /// Checks that a head covers all entries up to `stopped`. Must be called last,
    /// because a stopping proxy writes the event before the head.
    fn check_tail(&mut self, stopped: i64) -> rusqlite::Result<()> {
        let sql = "SELECT coalesce(max(size), 0) FROM seal";
        let connection = &self.reader.connection;
        let sealed: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        if sealed < stopped {
            let first = sealed + 1;
            self.add_mismatch(format!(
                "{first} to {stopped}: no head covers these entries, although the proxy seals all \
                 entries when it stops"
            ));
        }
        Ok(())
    }

    /// Reads the heads. Must be called before the numbers that they cover are read.
    fn read_heads(&mut self) -> Result<SealCheck<'a>, AuditError> {
        let reader: &'a AuditReader = self.reader;
        let name = reader.record_name()?;
        let check = SealCheck::new(&reader.connection, name, self.evidence, |finding| {
            self.sums.mismatches += 1;
            (self.report)(finding.to_string());
        });
        Ok(check?)
    }

    fn check_decision(&mut self, row: CheckedRecord) -> Result<(), AuditError> {
        let is_in_order = self.order.holds(row.record.seq, row.record.at);
        if row.is_redacted {
            return self.check_redacted(&row, is_in_order);
        }
        let record = row.record;
        let seq = record.seq;
        let body = self.reader.body_for(&record, &self.decided_on)?;
        match decide_again(&record, body, &mut self.decided_on) {
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
            Ok(Again::OtherEnding(finding)) => {
                self.sums.decided += 1;
                self.add_mismatch(format!("{seq}: {finding}"));
                return Ok(());
            }
            Ok(Again::Same) => self.sums.decided += 1,
            Ok(Again::QueryWithheld) => self.sums.query_withheld += 1,
            Ok(Again::FormOnly) => self.sums.form_only += 1,
        }
        // The decision is right, but the row may be that of another request.
        if !row.is_as_written {
            self.add_mismatch(format!("{seq}: the row is not as it was written"));
        } else {
            self.check_order(seq, is_in_order);
        }
        Ok(())
    }

    /// Checks a row that cannot be decided again: its leaf, and that an event names
    /// it.
    fn check_redacted(&mut self, row: &CheckedRecord, is_in_order: bool) -> Result<(), AuditError> {
        let seq = row.record.seq;
        self.sums.redacted += 1;
        let number = signed(seq);
        let is_ordered = self.redacted.has(&self.reader.connection, number)?;
        if !row.is_as_written {
            self.add_mismatch(format!("{seq}: the row is not as it was written"));
        } else if !is_ordered {
            self.add_mismatch(format!(
                "{seq}: client and URL were taken away, and no event says by whose order"
            ));
        } else {
            self.check_order(seq, is_in_order);
        }
        Ok(())
    }

    fn check_order(&mut self, seq: u64, is_in_order: bool) {
        if !is_in_order {
            self.add_mismatch(format!(
                "{seq}: the row is earlier than one before it, and clock_step does not say so: a \
                 search by time may miss it"
            ));
        }
    }

    /// Reports whether an entry is evidence, which it is not while it is being
    /// removed. An entry that should have been removed, or differs from the one
    /// that remained, is a finding.
    fn is_evidence(&mut self, entry: &LeafRun, ending: Option<&LeafRun>) -> rusqlite::Result<bool> {
        match self.remaining.state(entry, ending)? {
            RemainingState::Sound => {}
            RemainingState::Unproved => {
                let seq = entry.first;
                self.add_mismatch(format!(
                    "{seq}: entries up to {} were removed, and this one, or its path in the table \
                     leaf_path, is not as it was sealed",
                    self.remaining.pruned_until()
                ));
            }
            RemainingState::BeingRemoved => {
                self.sums.removing += 1;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reports paths whose entries are missing.
    fn check_paths(&mut self) -> rusqlite::Result<()> {
        for path in self.remaining.stray_paths()? {
            match path {
                StrayPath::Missing(seq) => {
                    self.sums.missing += 1;
                    (self.report)(format!("{seq}: no such row, though leaf_path has its path"));
                }
                StrayPath::Behind(seq) => self.add_mismatch(format!(
                    "{seq}: the table leaf_path has a path of an entry that was not removed"
                )),
            }
        }
        Ok(())
    }

    /// Checks the rows that hold the record's id and its highest number.
    fn check_record_id(&mut self) -> rusqlite::Result<()> {
        let connection = &self.reader.connection;
        let is_own = connection
            .query_row(SELECT_RECORD, [], |row| {
                Ok(RecordRow::read(row)?.is_as_written(row))
            })
            .optional()?;
        let numbers = last_as_written(connection, self.reader.record_id)?;
        if is_own != Some(true) {
            self.add_mismatch("the record's id is not as it was written".to_owned());
        }
        if numbers.is_none() {
            self.add_mismatch("the record's highest number is not as it was written".to_owned());
        }
        Ok(())
    }

    /// Reports tables, indexes, views and triggers that do not belong to a record.
    /// A view could show people something else, and a trigger could change what is
    /// written.
    fn check_schema(&mut self) -> rusqlite::Result<()> {
        let (found, wanted) = (
            schema_objects(&self.reader.connection)?,
            schema_objects(&schema::open_in_memory()?)?,
        );
        let others = found.symmetric_difference(&wanted);
        for name in others.map(|(name, _)| name).collect::<BTreeSet<_>>() {
            self.add_mismatch(format!(
                "{name}: the schema of the database is another here"
            ));
        }
        Ok(())
    }

    /// Checks that the head named by the marker exists, and reports earlier losses
    /// of heads.
    fn check_marked_head(&mut self) -> Result<(), AuditError> {
        let reader = self.reader;
        if let Some(marker) = &reader.marker
            && let Some(lost) = marker.find_lost_heads(&reader.connection)?
        {
            let LostHeads { known, found } = lost;
            self.add_mismatch(format!(
                "the head of {known} entries that the file `record` names is gone or another one; \
                 the newest that is left is of {found}"
            ));
        }
        let filter = EventFilter {
            kind: Some(ProcessEventKind::HeadsLost.as_str().to_owned()),
            ..EventFilter::default()
        };
        reader.visit_events(&filter, |event| {
            self.sums.lost_heads += 1;
            (self.report)(format!(
                "event {}: heads were lost before, and the record was sealed without them: {}",
                event.seq,
                event.detail.unwrap_or_default()
            ));
            ControlFlow::Continue(())
        })
    }

    /// Checks the indexes of the tables. Rows that are missing from an index would
    /// not be found by host, time or digest. Decisions and endings have no index.
    fn check_indexes(&mut self) -> rusqlite::Result<()> {
        let connection = &self.reader.connection;
        let dictionaries = DICTIONARIES.iter().map(|table| table.name);
        let mut damaged = Vec::new();
        for table in dictionaries.chain(["body", "event", "kept", "back_off"]) {
            let sql = format!("PRAGMA integrity_check({table})");
            let result: String = connection.query_row(&sql, [], |row| row.get(0))?;
            if result != "ok" {
                let line = result.lines().next_back().unwrap_or_default();
                damaged.push(format!("the table {table} is damaged: {line}"));
            }
        }
        damaged
            .into_iter()
            .for_each(|finding| self.add_mismatch(finding));
        Ok(())
    }

    fn check_events(&mut self) -> rusqlite::Result<()> {
        let reader = self.reader;
        let mut scan = reader.event_scan(&EventFilter::default())?;
        let read = |row: &Row<'_>| EventRow::read_checked(row, reader.record_id);
        while let Some(page) = scan.next_page(read)? {
            for (event, is_own) in page {
                if !self.is_evidence(&event.run(), None)? {
                    continue;
                }
                self.sums.events += 1;
                self.sums.lost += event.entries_lost().unwrap_or_default();
                if !is_own {
                    let finding = "the row is not as it was written";
                    self.add_mismatch(format!("event {}: {finding}", event.seq));
                }
            }
        }
        Ok(())
    }

    /// Compares every row of `table` with its digest. Returns the number of rows.
    fn check_saved<T: TableRow>(
        &mut self,
        table: KeyedTable,
        finding: impl Fn(&T) -> String,
    ) -> rusqlite::Result<u64> {
        let mut scan = KeyScan::new(&self.reader.connection, table);
        let mut count = 0;
        let read = |row: &Row<'_>| {
            let found = T::read(row)?;
            Ok((!found.is_as_written(row)).then(|| finding(&found)))
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

    /// Compares every body with its digest.
    fn check_bodies(&mut self) -> rusqlite::Result<()> {
        let sql = "SELECT rowid, sha256, body FROM body WHERE rowid > ? ORDER BY rowid LIMIT 1";
        let mut statement = self.reader.connection.prepare_cached(sql)?;
        let mut after = i64::MIN;
        // Read one at a time, because a body may be large.
        while let Some(body) = statement.query_row([after], CheckedBody::read).optional()? {
            after = body.row;
            if !body.is_own {
                let key = body.key;
                self.add_mismatch(format!("robots.txt {key}: the body has another digest"));
            }
        }
        Ok(())
    }

    /// Compares every value of a dictionary with its digest.
    fn check_dictionary(&mut self, table: &DictionaryTable) -> rusqlite::Result<()> {
        let sql = format!("{} WHERE id > ? ORDER BY id LIMIT {VALUES}", table.select);
        let mut statement = self.reader.connection.prepare_cached(&sql)?;
        let mut bytes = CanonicalBytes::default();
        let mut after = i64::MIN;
        loop {
            let mut rows = statement.query([after])?;
            let mut altered = Vec::new();
            let mut found = 0;
            while let Some(row) = rows.next()? {
                found += 1;
                after = row.get(table.width() + 1)?;
                let digest = table.digest(row, &mut bytes)?;
                if !is_digest(row.get_ref(table.width())?, digest) {
                    altered.push(after);
                }
            }
            drop(rows);
            for id in altered {
                let name = table.name;
                self.add_mismatch(format!("{name} {id}: the value has another digest"));
            }
            if found < VALUES {
                return Ok(());
            }
        }
    }
}

/// Body, and whether it has its digest.
struct CheckedBody {
    row: i64,
    /// Stored digest, in hexadecimal.
    key: String,
    is_own: bool,
}

impl CheckedBody {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let key: Vec<u8> = row.get(1)?;
        let content = row.get_ref(2)?.as_bytes().unwrap_or_default();
        Ok(Self {
            row: row.get(0)?,
            is_own: read_digest(&key) == Some(Digest::of(content)),
            key: key.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }
}

/// Formats a ruling as one line.
pub(super) fn ruling_line(ruling: &StoredRuling) -> String {
    let crawler = ruling.crawler.as_deref().unwrap_or("*");
    let mut line = format!("{} {} for {crawler}", ruling.verdict, ruling.reason);
    match (ruling.line, &ruling.rule) {
        (Some(number), Some(rule)) => line.push_str(&format!(" (line {number}, {rule:?})")),
        (None, Some(rule)) => line.push_str(&format!(" ({rule:?})")),
        (_, None) => {}
    }
    if let Some(effect) = ruling.exception() {
        line.push_str(&format!(", {}", effect.as_str()));
    }
    line
}
