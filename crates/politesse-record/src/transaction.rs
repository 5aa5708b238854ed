//! Transaction of the writer: writes the entries of a batch to the tables.
//!
//! Evidence is stored once: bodies by digest, other values in dictionaries. Does
//! not know when a transaction begins, or what a failure means.

use std::borrow::Cow;
use std::ops::Deref;

use aws_lc_rs::rand;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, params};
use serde::Serialize;

use super::columns::{TableRow as _, blob, count, json_list, signed};
use super::dictionary::{
    CLIENTS, CRAWLERS, DIRECTIVES, DictionaryRef, DictionaryTable, ORIGINS, RULINGS, TERMS,
};
use super::entry_rows::{DecisionDigests, DecisionRow, EndingRow};
use super::events::{EventRow, LAST_KIND};
use super::interning::InternedValues;
use super::joint_digests::{ContextRefs, JointDigests, OutcomeRefs};
use super::latest::{DecisionRows, LatestDecision, LatestEnding};
use super::leaf::{LeafRun, PersonalValues, RecordId, SALT_BYTES};
use super::order::{BEGIN_RUN, ClockOrder};
use super::parts::{OpenPart, PartKey};
use super::privacy::PrivacyForms;
use super::redaction::{RedactionOrder, redact_rows};
use super::rollup::{CountedDecision, CountedEnding, OpenRollup};
use super::saved_state::{BackOffRow, KeptRow};
use super::sequence::write_last;
use super::tasks::PendingProcessEvent;
use politesse_decision::back_off::{BackOffChange, BackOffEvent};
use politesse_decision::decide::{Evidence, Policy};
use politesse_decision::digest::{CanonicalBytes, Digest};
use politesse_decision::label::CrawlLabel;
use politesse_decision::outcome::EndingClass;
use politesse_decision::record::{
    ExchangeEnd, Record, Seen, StoredCrawler, StoredDenial, bound_token,
};
use politesse_decision::snapshot::{Snapshot, StoredSnapshot};
use politesse_robots::crawler::ProductToken;
use politesse_robots::origin::Origin;

/// Number of salts drawn at a time, because a call costs as much as a hundred
/// bytes.
const SALTS: usize = 64;

/// Initial capacity for leaves, enough for some dozens of exchanges.
const LEAVES: usize = 64;

/// Number of the rows that a probe writes and removes; no entry uses it.
const PROBE_SEQ: i64 = 0;

/// Identity of the record, and the form in which personal data are written.
#[derive(Debug)]
pub(super) struct RecordPlan {
    pub(super) record: RecordId,
    pub(super) forms: PrivacyForms,
}

/// Transaction in progress. Dropping it rolls it back.
pub(super) struct AuditTransaction<'a> {
    // Fields are dropped in order: the statements must be reset before the
    // transaction ends.
    insert_decision: CachedStatement<'a>,
    insert_ending: CachedStatement<'a>,
    transaction: OpenTransaction<'a>,
    memory: &'a mut WriterMemory,
    plan: &'a RecordPlan,
    /// Highest number in the database after this transaction.
    last: i64,
    leaves: Vec<LeafRun>,
}

/// Transaction on a connection that compiles its statements once; rusqlite's own
/// compiles them each time. Dropping it rolls it back.
struct OpenTransaction<'a>(&'a Connection);

impl<'a> OpenTransaction<'a> {
    fn begin(connection: &'a Connection) -> rusqlite::Result<Self> {
        // Immediate, because with the lock held from the start no statement of the
        // batch can fail for lack of it.
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Self(connection))
    }

    fn commit(self) -> rusqlite::Result<()> {
        self.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Deref for OpenTransaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        // After some failures SQLite has already rolled back by itself.
        if !self.is_autocommit()
            && let Err(error) = self.execute_batch("ROLLBACK")
        {
            tracing::warn!("cannot roll back a transaction of the record: {error}");
        }
    }
}

/// Result of a committed transaction.
#[derive(Debug)]
pub(super) struct Committed {
    /// Highest number in the database.
    pub(super) last: i64,
    /// Leaves of the written entries, in the order of writing.
    pub(super) leaves: Vec<LeafRun>,
}

/// Number of an ending, and of its decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndingNumbers {
    pub(super) decision: u64,
    pub(super) seq: u64,
}

impl<'a> AuditTransaction<'a> {
    /// Begins a transaction on a database whose highest number is `last`.
    pub(super) fn begin(
        connection: &'a Connection,
        memory: &'a mut WriterMemory,
        plan: &'a RecordPlan,
        last: i64,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            transaction: OpenTransaction::begin(connection)?,
            insert_decision: connection.prepare_cached(DecisionRow::INSERT)?,
            insert_ending: connection.prepare_cached(EndingRow::INSERT)?,
            memory,
            plan,
            last,
            leaves: Vec::with_capacity(LEAVES),
        })
    }

    /// Writes the highest number and commits.
    pub(super) fn commit(self) -> rusqlite::Result<Committed> {
        // Written even if no number was used: a commit that changes no page syncs
        // nothing.
        write_last(&self.transaction, self.plan.record, self.last)?;
        drop((self.insert_decision, self.insert_ending));
        self.transaction.commit()?;
        Ok(Committed {
            last: self.last,
            leaves: self.leaves,
        })
    }

    /// Writes a decision and the evidence that it rests on.
    pub(super) fn write_decision(&mut self, seq: u64, record: &Record) -> rusqlite::Result<()> {
        let seq = self.take(seq);
        let evidence = &record.evidence;
        let inquiry = &evidence.inquiry;
        let rows = self.decision_rows(record)?;
        self.memory.rollup.enter(&self.transaction, seq)?;
        self.note_for_searches(seq, record, rows.origin)?;
        let forms = &self.plan.forms;
        let sent_path = inquiry.target.path_and_query();
        let path = forms.path(sent_path);
        let refused = evidence.ruling.reading.as_deref();
        let reading = refused.map(|reading| forms.reading(reading, sent_path));
        let wait_ms = i64::try_from(record.waited.as_millis()).unwrap_or(i64::MAX);
        let time_us = evidence.at.as_microsecond();
        let salt = self.memory.salts.next()?;
        let commitment = PersonalValues {
            salt: &salt,
            client: rows.client.sha256,
            origin: rows.origin.sha256,
            path: path.as_bytes(),
            reading: reading.as_deref().map(str::as_bytes),
        }
        .commitment(&mut self.memory.bytes);
        let context = self.context_digest(&rows.context);
        let mut row = DecisionRow {
            seq,
            time_us,
            client: rows.client.id,
            crawler: rows.context.crawler.id,
            method: rows.context.method.id,
            origin: rows.origin.id,
            path: path.into_owned(),
            ruling: rows.context.ruling.id,
            reading: reading.map(Cow::into_owned),
            wait_ms,
            policy: rows.context.policy.id,
            snapshot: rows.snapshot.map(|snapshot| snapshot.id),
            salt: salt.to_vec(),
            leaf: Digest::default(),
        };
        let digests = DecisionDigests {
            commitment,
            context,
            snapshot: rows.snapshot.map(|snapshot| snapshot.sha256),
        };
        row.leaf = row.leaf_over(&digests, &mut self.memory.bytes);
        row.insert_by(&mut self.insert_decision)?;
        self.leaves.push(LeafRun::of_entry(seq, row.leaf));
        self.memory.rollup.note_decision(&CountedDecision {
            seq,
            time_us,
            origin: rows.origin.id,
            ruling: rows.context.ruling.id,
            wait_ms: count(wait_ms),
            ending: None,
        });
        self.memory.latest_decision = Some(LatestDecision {
            record: record.clone(),
            rows,
            context,
        });
        Ok(())
    }

    /// Finds or writes the rows that a decision refers to.
    fn decision_rows(&mut self, record: &Record) -> rusqlite::Result<DecisionRows> {
        let latest = self.memory.latest_decision.as_ref();
        let shared = latest.map(|latest| latest.shared_with(record));
        let known = shared.unwrap_or_default();
        let inquiry = &record.evidence.inquiry;
        let policy = &record.evidence.policy;
        let (origin, snapshot) = self.intern_origin_and_snapshot(&record.evidence)?;
        Ok(DecisionRows {
            client: known
                .client
                .map_or_else(|| self.intern_client(record), Ok)?,
            origin,
            snapshot,
            context: ContextRefs {
                crawler: known
                    .crawler
                    .map_or_else(|| self.intern_crawler(record), Ok)?,
                method: known
                    .method
                    .map_or_else(|| self.intern_term(&inquiry.method), Ok)?,
                ruling: known
                    .ruling
                    .map_or_else(|| self.intern_ruling(record), Ok)?,
                policy: known
                    .policy
                    .map_or_else(|| self.intern_policy(policy), Ok)?,
            },
        })
    }

    /// Returns the digest of the context of a decision, reusing that of the latest
    /// decision if it is equal.
    fn context_digest(&mut self, context: &ContextRefs) -> Digest {
        let latest = self.memory.latest_decision.as_ref();
        match latest.filter(|latest| latest.rows.context == *context) {
            Some(latest) => latest.context,
            None => {
                let joint = self.memory.joint_digests(self.plan.record);
                joint.context(context)
            }
        }
    }

    /// Writes the ending of a decision.
    pub(super) fn write_ending(
        &mut self,
        numbers: EndingNumbers,
        outcome: &ExchangeEnd,
    ) -> rusqlite::Result<()> {
        let (decision, seq) = (signed(numbers.decision), self.take(numbers.seq));
        // Called before the ending is written, because an ending is not an entry of
        // the previous part.
        self.memory.rollup.enter(&self.transaction, seq)?;
        let refs = self.outcome_refs(outcome)?;
        let digest = self.outcome_digest(outcome, &refs);
        let bytes = signed(outcome.bytes);
        let mut row = EndingRow {
            decision,
            seq,
            status: refs.status,
            sent: refs.sent,
            directives: refs.directives.map(|directives| directives.id),
            bytes,
            error: refs.error.map(|error| error.id),
            leaf: Digest::default(),
        };
        row.leaf = row.leaf_over(digest, &mut self.memory.bytes);
        row.insert_by(&mut self.insert_ending)?;
        self.leaves.push(LeafRun::of_entry(seq, row.leaf));
        let ending = CountedEnding {
            seq,
            bytes: count(bytes),
            class: EndingClass::of(outcome.status, outcome.error, outcome.sent.into()),
        };
        let rollup = &mut self.memory.rollup;
        rollup.note_ending(&self.transaction, decision, &ending)
    }

    /// Finds or writes the rows that an ending refers to.
    fn outcome_refs(&mut self, outcome: &ExchangeEnd) -> rusqlite::Result<OutcomeRefs> {
        let latest = self.memory.latest_ending.as_ref();
        let same = latest.filter(|latest| latest.seen == outcome.seen);
        let known = same.and_then(|latest| latest.refs.directives);
        let directives = match (known, &outcome.seen) {
            (Some(known), _) => Some(known),
            (None, Some(seen)) => Some(self.intern_directives(seen)?),
            (None, None) => None,
        };
        let error = outcome.error.map(|error| self.intern_term(error));
        Ok(OutcomeRefs {
            status: outcome.status.map(i64::from),
            sent: i64::from(outcome.sent),
            directives,
            error: error.transpose()?,
        })
    }

    /// Returns the digest of an outcome whose values are `refs`.
    fn outcome_digest(&mut self, outcome: &ExchangeEnd, refs: &OutcomeRefs) -> Digest {
        let latest = self.memory.latest_ending.as_ref();
        if let Some(latest) = latest.filter(|latest| latest.refs == *refs) {
            return latest.outcome;
        }
        let digest = self.memory.joint_digests(self.plan.record).outcome(refs);
        self.memory.latest_ending = Some(LatestEnding {
            seen: outcome.seen.clone(),
            refs: *refs,
            outcome: digest,
        });
        digest
    }

    /// Returns the connection, which is inside this transaction.
    pub(super) fn connection(&self) -> &Connection {
        &self.transaction
    }

    /// Saves the newest snapshot of a robots.txt, replacing the previous one.
    pub(super) fn save_snapshot(&self, saved: &StoredSnapshot) -> rusqlite::Result<()> {
        self.write_body(&saved.snapshot)?;
        KeptRow::from(saved).insert(&self.transaction)
    }

    /// Reports whether `event` repeats that a back-off is over. A process that
    /// starts while a back-off is saved reports its end again, and the record needs
    /// it only once.
    pub(super) fn is_repeated(&self, event: &BackOffEvent) -> rusqlite::Result<bool> {
        if event.change != BackOffChange::Left {
            return Ok(false);
        }
        let last: Option<String> = self
            .transaction
            .prepare_cached(LAST_KIND)?
            .query_row([event.host.to_string()], |row| row.get(0))
            .optional()?;
        Ok(last.is_some_and(|kind| kind == BackOffChange::Left.as_str()))
    }

    /// Writes an event of the proxy itself.
    pub(super) fn write_process_event(
        &mut self,
        seq: u64,
        pending: &PendingProcessEvent,
    ) -> rusqlite::Result<()> {
        let row = EventRow::of_process(seq, &pending.event, pending.sent);
        self.insert_event(row)
    }

    /// Redacts decisions, and writes the event `seq` that records it.
    pub(super) fn redact(&mut self, seq: u64, order: &RedactionOrder) -> rusqlite::Result<()> {
        let redacted = redact_rows(&self.transaction, self.plan.record, &order.numbers)?;
        // The sums of the open part may refer to origins that the redacted rows no
        // longer have.
        *self.memory = WriterMemory::default();
        let event = order.event(&self.transaction, &redacted)?;
        self.insert_event(EventRow::of_process(seq, &event, None))
    }

    fn insert_event(&mut self, row: EventRow) -> rusqlite::Result<()> {
        let seq = self.take(row.seq);
        self.memory.rollup.enter(&self.transaction, seq)?;
        let leaf = row.write(&self.transaction, self.plan.record)?;
        self.leaves.push(leaf);
        Ok(())
    }

    /// Writes a back-off event, and updates the saved back-off of its host.
    pub(super) fn write_event(&mut self, seq: u64, event: &BackOffEvent) -> rusqlite::Result<()> {
        self.insert_event(EventRow::of_back_off(seq, event))?;
        match event.saved() {
            Some(back_off) => BackOffRow::from(&back_off).insert(&self.transaction),
            // The end of a back-off was saved with its beginning.
            None if event.change == BackOffChange::Left => Ok(()),
            None => {
                let host = event.host.to_string();
                self.execute("DELETE FROM back_off WHERE host = ?", [host])
            }
        }
    }

    /// Writes and removes a decision with its ending, so that a probe fails
    /// whenever a record would.
    pub(super) fn probe(&self) -> rusqlite::Result<()> {
        let nothing = [0_u8; 32];
        self.execute("INSERT INTO term (text, sha256) VALUES ('', ?)", [nothing])?;
        DecisionRow::default().insert(&self.transaction)?;
        EndingRow::default().insert(&self.transaction)?;
        self.execute("DELETE FROM ending WHERE decision = ?", [PROBE_SEQ])?;
        self.execute("DELETE FROM decision WHERE seq = ?", [PROBE_SEQ])?;
        self.execute("DELETE FROM term WHERE sha256 = ?", [nothing])
    }

    /// Updates `last` for an entry that is being written.
    fn take(&mut self, seq: u64) -> i64 {
        let seq = signed(seq);
        self.last = self.last.max(seq);
        seq
    }

    /// Updates the indexes for searches by time, host and verdict.
    fn note_for_searches(
        &mut self,
        seq: i64,
        record: &Record,
        origin: DictionaryRef,
    ) -> rusqlite::Result<()> {
        let connection = &self.transaction;
        let evidence = &record.evidence;
        if self.memory.order.begins_run(connection, evidence.at)? {
            self.execute(BEGIN_RUN, [seq])?;
        }
        let verdict = PartKey::of_verdict(evidence.ruling.verdict.as_str());
        let keys = [Some(PartKey::of_origin(origin.id)), verdict];
        self.memory.part.add(connection, seq, keys)
    }

    fn intern(
        &mut self,
        table: &DictionaryTable,
        values: &[ValueRef<'_>],
    ) -> rusqlite::Result<DictionaryRef> {
        let connection = &self.transaction;
        self.memory.interned.intern(connection, table, values)
    }

    fn intern_client(&mut self, record: &Record) -> rusqlite::Result<DictionaryRef> {
        let address = self.plan.forms.address(record.client);
        let credential = optional(record.credential.as_deref());
        self.intern(&CLIENTS, &[address.as_str().into(), credential])
    }

    fn intern_crawler(&mut self, record: &Record) -> rusqlite::Result<DictionaryRef> {
        let crawler = &record.evidence.inquiry.crawler;
        let names = json_list(StoredCrawler::names_of(crawler));
        let user_agent = optional(crawler.user_agent());
        let label = optional(record.label.as_ref().map(CrawlLabel::as_str));
        self.intern(&CRAWLERS, &[names.as_str().into(), user_agent, label])
    }

    /// Interns the origin of the URL and the snapshot, if there is one.
    fn intern_origin_and_snapshot(
        &mut self,
        evidence: &Evidence,
    ) -> rusqlite::Result<(DictionaryRef, Option<DictionaryRef>)> {
        let wanted = &evidence.inquiry.target.origin;
        let Some(snapshot) = &evidence.snapshot else {
            return Ok((self.intern_origin(wanted)?, None));
        };
        let rows = match self.memory.interned.known_snapshot(snapshot) {
            Some(rows) => rows,
            None => {
                self.write_body(snapshot)?;
                let origin = self.intern_origin(&snapshot.key.origin)?;
                let connection = &self.transaction;
                self.memory
                    .interned
                    .snapshot(connection, snapshot, origin)?
            }
        };
        // Usually the robots.txt belongs to the URL's own origin. Its row is then
        // known, and formatting the origin again would take as long as a statement.
        let origin = if snapshot.key.origin == *wanted {
            rows.origin
        } else {
            self.intern_origin(wanted)?
        };
        Ok((origin, Some(rows.snapshot)))
    }

    fn intern_origin(&mut self, origin: &Origin) -> rusqlite::Result<DictionaryRef> {
        let (text, host) = (origin.to_string(), origin.host().to_string());
        self.intern(&ORIGINS, &[text.as_str().into(), host.as_str().into()])
    }

    fn intern_ruling(&mut self, record: &Record) -> rusqlite::Result<DictionaryRef> {
        let ruling = &record.evidence.ruling;
        let rule = ruling.rule.as_ref();
        let line = rule.and_then(|rule| rule.line).map(i64::from);
        let groups = json_list(&ruling.group);
        let token = bound_token(&record.evidence);
        let denials = denials_json(ruling.denials.iter().map(StoredDenial::from));
        let values = [
            ruling.verdict.as_str().into(),
            ruling.reason.as_str().into(),
            record.effect.as_str().into(),
            line.map_or(ValueRef::Null, ValueRef::Integer),
            optional(rule.map(|rule| &*rule.text)),
            groups.as_str().into(),
            optional(token.map(ProductToken::as_str)),
            optional(denials.as_deref()),
        ];
        self.intern(&RULINGS, &values)
    }

    fn intern_directives(&mut self, seen: &Seen) -> rusqlite::Result<DictionaryRef> {
        let said = optional(seen.said.as_deref());
        let denials = denials_json(seen.denials.iter());
        let denied = optional(denials.as_deref());
        self.intern(
            &DIRECTIVES,
            &[seen.directives.as_str().into(), said, denied],
        )
    }

    fn intern_policy(&mut self, policy: &Policy) -> rusqlite::Result<DictionaryRef> {
        self.memory.interned.policy(&self.transaction, policy)
    }

    fn intern_term(&mut self, text: &str) -> rusqlite::Result<DictionaryRef> {
        self.intern(&TERMS, &[text.into()])
    }

    fn write_body(&self, snapshot: &Snapshot) -> rusqlite::Result<()> {
        let Some(copy) = snapshot.file() else {
            return Ok(());
        };
        self.execute(
            "INSERT INTO body (sha256, body) VALUES (?, ?) ON CONFLICT DO NOTHING",
            params![blob(copy.digest), copy.body.as_ref()],
        )
    }

    fn execute(&self, sql: &str, params: impl Params) -> rusqlite::Result<()> {
        self.transaction.prepare_cached(sql)?.execute(params)?;
        Ok(())
    }
}

/// Encodes denials as JSON; `None` if there are none.
fn denials_json<T: Serialize>(denials: impl ExactSizeIterator<Item = T>) -> Option<String> {
    (0 < denials.len()).then(|| json_list(denials))
}

/// Returns the column value of an optional text.
fn optional(text: Option<&str>) -> ValueRef<'_> {
    text.map_or(ValueRef::Null, ValueRef::from)
}

/// Memory of the writer. Changes made by a transaction are valid only if it is
/// committed.
#[derive(Debug, Default)]
pub(super) struct WriterMemory {
    interned: InternedValues,
    joint: Option<JointDigests>,
    latest_decision: Option<LatestDecision>,
    latest_ending: Option<LatestEnding>,
    order: ClockOrder,
    part: OpenPart,
    rollup: OpenRollup,
    salts: Salts,
    /// Buffer for the encoding of an entry.
    bytes: CanonicalBytes,
}

impl WriterMemory {
    /// Forgets the ids of dictionary rows, after some rows were removed.
    pub(super) fn forget_values(&mut self) {
        self.interned = InternedValues::default();
        self.joint = None;
        self.latest_decision = None;
        self.latest_ending = None;
    }

    fn joint_digests(&mut self, record: RecordId) -> &mut JointDigests {
        self.joint.get_or_insert_with(|| JointDigests::new(record))
    }
}

/// Random salts, drawn in batches.
#[derive(Debug)]
struct Salts {
    drawn: [u8; SALTS * SALT_BYTES],
    used: usize,
}

impl Default for Salts {
    fn default() -> Self {
        Self {
            drawn: [0; SALTS * SALT_BYTES],
            used: SALTS,
        }
    }
}

impl Salts {
    fn next(&mut self) -> rusqlite::Result<[u8; SALT_BYTES]> {
        if self.used == SALTS {
            // Without random numbers nothing is recorded, and therefore nothing is
            // sent.
            rand::fill(&mut self.drawn)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
            self.used = 0;
        }
        let (salts, _) = self.drawn.as_chunks::<SALT_BYTES>();
        let salt = salts.get(self.used).copied().unwrap_or_default();
        self.used += 1;
        Ok(salt)
    }
}
