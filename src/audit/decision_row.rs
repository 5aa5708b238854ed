//! Rows of `decision`, with the snapshot and the policy that each rests on: as
//! the writer makes them, as they are read, and as JSON.
//!
//! Does not know which rows are read, nor where they are shown.

use rusqlite::Row;
use rusqlite::types::{Value, ValueRef};
use serde_json::{Value as Json, json};

use super::columns::{ColumnReader, blob, digest_of, integer, is_digest, json_list, text_bytes};
use super::pages::NumberedTable;
use crate::decision::digest::Digest;
use crate::decision::record::{
    Effect, ExchangeEnd, Record, RecordedSnapshot, StoredPolicy, StoredRecord, StoredRuling,
    result_word,
};
use crate::decision::snapshot::{AccessResult, Snapshot};

/// Columns of a decision that are fixed when it is written.
pub(super) const DECISION_COLUMNS: usize = 18;

/// Columns of a snapshot.
pub(super) const SNAPSHOT_COLUMNS: usize = 10;

/// Columns that are set when the exchange has ended.
pub(super) const ENDING_COLUMNS: usize = 5;

/// All decisions with what they rest on, for [`DecisionReader`]. A row is found
/// even if what it refers to was taken away, so that verification can say so.
pub(super) const DECISIONS: NumberedTable = NumberedTable {
    name: "decision",
    select: "
SELECT d.seq, d.time_us, d.client, d.candidates, d.crawler, d.user_agent,
       d.method, d.url, d.host, d.verdict, d.reason, d.effect, d.line, d.rule,
       d.groups, d.reading, d.wait_ms, d.policy,
       s.origin, s.token, s.url, s.status, s.fetched_us, s.expires_us,
       s.result, s.cause, s.body, s.hops,
       p.json, d.status, d.directives, d.said, d.bytes, d.error, d.digest,
       d.ended
FROM decision AS d
LEFT JOIN snapshot AS s ON s.id = d.snapshot
LEFT JOIN policy AS p ON p.sha256 = d.policy",
    number: "d.seq",
};

/// Position of the policy's digest.
const POLICY_KEY_AT: usize = DECISION_COLUMNS - 1;

/// Position of the policy's JSON, after all that the row's digest is over.
const POLICY_AT: usize = DECISION_COLUMNS + SNAPSHOT_COLUMNS;

/// Position of the hops.
const HOPS_AT: usize = POLICY_AT - 1;

/// Position of the row's digest; that of its ending stands after it.
const DIGEST_AT: usize = POLICY_AT + 1 + ENDING_COLUMNS;

/// Makes the values of a decision, in the order of [`DECISIONS`].
pub(super) fn decision_values(seq: u64, record: &Record) -> [Value; DECISION_COLUMNS] {
    let inquiry = &record.evidence.inquiry;
    let crawler = &inquiry.crawler;
    let ruling = StoredRuling::of(&record.evidence);
    let candidates = crawler.candidates().iter().map(ToString::to_string);
    let wait_ms = u64::try_from(record.waited.as_millis()).unwrap_or(u64::MAX);
    [
        integer(seq),
        record.evidence.at.as_microsecond().into(),
        record.client.to_string().into(),
        json_list(&candidates.collect::<Vec<_>>()).into(),
        ruling.crawler.into(),
        crawler.user_agent().map(str::to_owned).into(),
        inquiry.method.clone().into(),
        inquiry.target.to_string().into(),
        inquiry.target.origin.host().to_string().into(),
        ruling.verdict.into(),
        ruling.reason.into(),
        record.effect.as_str().to_owned().into(),
        ruling.line.into(),
        ruling.rule.into(),
        json_list(&ruling.group).into(),
        ruling.reading.into(),
        integer(wait_ms),
        blob(record.evidence.policy.digest()),
    ]
}

/// Makes the values of a snapshot, in the order of [`DECISIONS`].
pub(super) fn snapshot_values(snapshot: &Snapshot) -> [Value; SNAPSHOT_COLUMNS] {
    let cause = match &snapshot.result {
        AccessResult::Unreachable(cause) => Some(*cause),
        AccessResult::Successful(_) | AccessResult::Unavailable => snapshot.stale,
    };
    let hops = (!snapshot.hops.is_empty()).then(|| json_list(&snapshot.hops));
    [
        snapshot.key.origin.to_string().into(),
        snapshot.key.token.as_ref().map(ToString::to_string).into(),
        snapshot.url.clone().into(),
        snapshot.status.into(),
        snapshot.fetched_at.as_microsecond().into(),
        snapshot.expires_at.as_microsecond().into(),
        result_word(&snapshot.result).to_owned().into(),
        cause.map(|cause| cause.as_str().to_owned()).into(),
        snapshot
            .file()
            .map_or(Value::Null, |copy| blob(copy.digest)),
        hops.into(),
    ]
}

/// Makes the values of an ending, in the order of [`DECISIONS`].
pub(super) fn ending_values(outcome: &ExchangeEnd) -> [Value; ENDING_COLUMNS] {
    let seen = outcome.seen.as_ref();
    [
        outcome.status.into(),
        seen.map(|seen| seen.directives.clone()).into(),
        seen.and_then(|seen| seen.said.clone()).into(),
        integer(outcome.bytes),
        outcome.error.map(str::to_owned).into(),
    ]
}

/// Computes the digest of the ending of row `seq`.
pub(super) fn ending_digest<'a>(
    seq: ValueRef<'a>,
    values: impl IntoIterator<Item = ValueRef<'a>>,
) -> Digest {
    // With the number, the ending of one row cannot be given to another.
    digest_of([seq].into_iter().chain(values))
}

/// Computes the digest of a decision: over its own values and those of its
/// snapshot, in the order of [`DECISIONS`].
pub(super) fn decision_digest<'a>(values: impl IntoIterator<Item = ValueRef<'a>>) -> Digest {
    // The column of hops is younger than the first rows, so it counts only where
    // there are some. It stands last, and each value is encoded with its type
    // and length, so that no row with hops has the encoding of one without.
    let counts = |(at, value): &(usize, ValueRef<'_>)| *at != HOPS_AT || *value != ValueRef::Null;
    let counted = values.into_iter().enumerate().filter(counts);
    digest_of(counted.map(|(_, value)| value))
}

/// A decision record, and whether its row is the one that was written.
#[derive(Debug, Clone)]
pub struct CheckedRecord {
    /// The record.
    pub record: StoredRecord,
    /// Whether the row holds the values it was written with, and names the
    /// policy it is joined with.
    pub is_as_written: bool,
}

/// Reads rows of [`DECISIONS`]. Rows that follow one another mostly rest
/// on one policy, whose text is long: it is read once and shared by them.
#[derive(Debug, Default)]
pub(super) struct DecisionReader {
    /// The policy of the row before, and the key it was found under.
    last_policy: Option<(Vec<u8>, StoredPolicy)>,
}

impl DecisionReader {
    /// Reads the record in a row.
    pub(super) fn record(&mut self, row: &Row<'_>) -> rusqlite::Result<StoredRecord> {
        let policy = self.policy(row)?;
        read_record(row, policy)
    }

    /// Reads the record in a row, and compares the row with its digests.
    pub(super) fn checked(&mut self, row: &Row<'_>) -> rusqlite::Result<CheckedRecord> {
        Ok(CheckedRecord {
            record: self.record(row)?,
            is_as_written: is_decision_as_written(row)? && is_ending_as_written(row)?,
        })
    }

    fn policy(&mut self, row: &Row<'_>) -> rusqlite::Result<StoredPolicy> {
        let key = text_bytes(row.get_ref(POLICY_KEY_AT)?).unwrap_or_default();
        if let Some((last, policy)) = &self.last_policy
            && last == key
        {
            return Ok(policy.clone());
        }
        let json = text_bytes(row.get_ref(POLICY_AT)?).unwrap_or_default();
        let policy = StoredPolicy::new(&String::from_utf8_lossy(json));
        self.last_policy = Some((key.to_vec(), policy.clone()));
        Ok(policy)
    }
}

fn is_decision_as_written(row: &Row<'_>) -> rusqlite::Result<bool> {
    let values = (0..POLICY_AT).map(|column| row.get_ref(column));
    let digest = decision_digest(values.collect::<rusqlite::Result<Vec<_>>>()?);
    let key = row.get_ref(POLICY_KEY_AT)?;
    let policy = text_bytes(row.get_ref(POLICY_AT)?);
    let is_own_policy = policy.is_some_and(|json| is_digest(key, Digest::of(json)));
    Ok(is_digest(row.get_ref(DIGEST_AT)?, digest) && is_own_policy)
}

/// Reports whether the ending of a row is the one it was completed with. A row
/// that is not completed has no digest of it.
fn is_ending_as_written(row: &Row<'_>) -> rusqlite::Result<bool> {
    let values = (POLICY_AT + 1..DIGEST_AT)
        .map(|column| row.get_ref(column))
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let written = row.get_ref(DIGEST_AT + 1)?;
    let digest = ending_digest(row.get_ref(0)?, values);
    Ok(written == ValueRef::Null || is_digest(written, digest))
}

fn read_record(row: &Row<'_>, policy: StoredPolicy) -> rusqlite::Result<StoredRecord> {
    let mut columns = ColumnReader::new(row);
    let seq = columns.count()?;
    let at = columns.time()?;
    let client = columns.word()?;
    let candidates = columns.list()?;
    let crawler = columns.text()?;
    let user_agent = columns.text()?;
    let method = columns.word()?;
    let url = columns.word()?;
    // The host is part of the URL, and a column of its own for its index.
    columns.skip();
    let (verdict, reason) = (columns.word()?, columns.word()?);
    let effect = columns.word()?;
    let ruling = StoredRuling {
        verdict,
        reason,
        line: columns.number()?,
        rule: columns.text()?,
        group: columns.list()?,
        crawler,
        reading: columns.text()?,
        exception: Effect::exception(&effect),
    };
    let wait_ms = columns.count()?;
    columns.skip();
    // Without a row to join with, every column of the snapshot is null.
    let is_asked = !columns.is_null()?;
    let snapshot = read_snapshot(&mut columns)?;
    columns.skip();
    Ok(StoredRecord {
        seq,
        at,
        client,
        candidates,
        user_agent,
        method,
        url,
        ruling,
        effect,
        snapshot: is_asked.then_some(snapshot),
        policy,
        wait_ms,
        status: columns.number()?,
        directives: columns.text()?,
        said: columns.text()?,
        bytes: columns.number()?,
        error: columns.text()?,
    })
}

/// Reads the columns of a snapshot, of which the first is its origin.
pub(super) fn read_snapshot(columns: &mut ColumnReader<'_>) -> rusqlite::Result<RecordedSnapshot> {
    columns.skip();
    Ok(RecordedSnapshot {
        token: columns.text()?,
        url: columns.word()?,
        status: columns.number()?,
        fetched_at: columns.time()?,
        expires_at: columns.time()?,
        result: columns.word()?,
        cause: columns.text()?,
        sha256: columns.digest()?,
        hops: columns.list()?,
    })
}

/// Makes the JSON of a decision record, as `audit list` and others print it.
pub fn row_json(record: &StoredRecord) -> Json {
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
        "robots": record.snapshot.as_ref().map(robots_json),
        "policy": record.policy.sha256.to_string(),
        "wait_ms": record.wait_ms,
        "status": record.status,
        "directives": record.directives.as_ref().map(|value| json!({
            "value": value,
            "said": record.said.as_deref().map_or_else(|| json!([]), said_json),
        })),
        "bytes": record.bytes,
        "error": record.error,
    })
}

fn robots_json(snapshot: &RecordedSnapshot) -> Json {
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

fn said_json(text: &str) -> Json {
    // Somebody who changed the row may have left no JSON.
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}
