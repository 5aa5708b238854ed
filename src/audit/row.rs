//! One row of the log: a decision as columns, the digest that holds them
//! together, and the way back to a record.
//!
//! Deciding again shows that an answer does not follow from what is kept. It
//! cannot show that a URL was changed into another with the same answer: for
//! that, each row carries a digest of all that was fixed when it was written.
//! Whoever changes a row and its digest too is beyond it.

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::{FromSql, Value, ValueRef};

use crate::decision::access::{AccessResult, Snapshot};
use crate::decision::digest::Digest;
use crate::decision::record::{
    Effect, Outcome, Record, RecordedSnapshot, StoredPolicy, StoredRecord, StoredRuling,
    result_word,
};

/// The columns of a decision that are fixed when it is written.
pub(super) const DECISION_COLUMNS: usize = 18;

/// The columns of a snapshot.
pub(super) const SNAPSHOT_COLUMNS: usize = 10;

/// What a query must select for [`DecisionReader`] and [`is_untouched`], and from
/// where; the conditions are the caller's. A row is found even if what it
/// refers to was taken away, so that verification can say so.
pub(super) const SELECT: &str = "
SELECT d.seq, d.time_us, d.client, d.candidates, d.crawler, d.user_agent,
       d.method, d.url, d.host, d.verdict, d.reason, d.effect, d.line, d.rule,
       d.groups, d.reading, d.wait_ms, d.policy,
       s.origin, s.token, s.url, s.status, s.fetched_us, s.expires_us,
       s.result, s.cause, s.body, s.hops,
       p.json, d.status, d.directives, d.said, d.bytes, d.error, d.digest,
       d.ended
FROM decision AS d
LEFT JOIN snapshot AS s ON s.id = d.snapshot
LEFT JOIN policy AS p ON p.sha256 = d.policy";

/// Where [`SELECT`] has the digest of the policy.
const POLICY_KEY_AT: usize = DECISION_COLUMNS - 1;

/// Where [`SELECT`] has the policy's JSON.
const POLICY_AT: usize = DECISION_COLUMNS + SNAPSHOT_COLUMNS;

/// Where [`SELECT`] has the hops, behind all else that is under the digest.
const HOPS_AT: usize = POLICY_AT - 1;

/// The columns of an ending.
pub(super) const ENDING_COLUMNS: usize = 5;

/// Where [`SELECT`] has the row's digest, and behind it that of its ending.
const DIGEST_AT: usize = POLICY_AT + 1 + ENDING_COLUMNS;

/// The values of a decision, in the order of [`SELECT`].
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
        json(&candidates.collect::<Vec<_>>()).into(),
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
        json(&ruling.group).into(),
        ruling.reading.into(),
        integer(wait_ms),
        blob(record.evidence.policy.digest()),
    ]
}

/// The values of a snapshot, in the order of [`SELECT`].
pub(super) fn snapshot_values(snapshot: &Snapshot) -> [Value; SNAPSHOT_COLUMNS] {
    let cause = match &snapshot.result {
        AccessResult::Unreachable(cause) => Some(*cause),
        AccessResult::Successful(_) | AccessResult::Unavailable => snapshot.stale,
    };
    let cause = cause.map(|cause| cause.as_str().to_owned());
    [
        snapshot.origin.to_string().into(),
        snapshot.token.as_ref().map(ToString::to_string).into(),
        snapshot.url.clone().into(),
        snapshot.status.into(),
        snapshot.fetched_at.as_microsecond().into(),
        snapshot.expires_at.as_microsecond().into(),
        result_word(&snapshot.result).to_owned().into(),
        cause.into(),
        snapshot
            .file()
            .map_or(Value::Null, |copy| blob(copy.digest)),
        hops(&snapshot.hops),
    ]
}

/// The hops as a column holds them.
fn hops(urls: &[String]) -> Value {
    match urls {
        [] => Value::Null,
        urls => json(urls).into(),
    }
}

/// The values of an ending, in the order of [`SELECT`].
pub(super) fn ending_values(outcome: &Outcome) -> [Value; ENDING_COLUMNS] {
    let seen = outcome.seen.as_ref();
    [
        outcome.status.into(),
        seen.map(|seen| seen.directives.clone()).into(),
        seen.and_then(|seen| seen.said.clone()).into(),
        integer(outcome.bytes),
        outcome.error.map(str::to_owned).into(),
    ]
}

/// The digest of the ending of row `seq`.
pub(super) fn ending_digest<'a>(
    seq: ValueRef<'a>,
    values: impl IntoIterator<Item = ValueRef<'a>>,
) -> Digest {
    row_digest([seq].into_iter().chain(values))
}

/// The digest of a decision: over its own values and those of its snapshot, in
/// the order of [`SELECT`].
pub(super) fn decision_digest<'a>(values: impl IntoIterator<Item = ValueRef<'a>>) -> Digest {
    // Rows of versions 1 and 2 were written when there was no column of hops,
    // and must verify as they are: so it counts only where there are some. It
    // stands last, and each value tells its type and length, so that no row with
    // hops has the bytes of one without.
    let is_said = |(at, value): &(usize, ValueRef<'_>)| *at != HOPS_AT || *value != ValueRef::Null;
    let values = values.into_iter().enumerate().filter(is_said);
    row_digest(values.map(|(_, value)| value))
}

/// The digest of a row of values.
pub(super) fn row_digest<'a>(values: impl IntoIterator<Item = ValueRef<'a>>) -> Digest {
    let mut bytes = Vec::with_capacity(1024);
    for value in values {
        encode(value, &mut bytes);
    }
    Digest::of(&bytes)
}

/// Whether a row holds the values it was written with: `columns` of them, and
/// behind them their digest.
pub(super) fn is_as_written(row: &Row<'_>, columns: usize) -> rusqlite::Result<bool> {
    let values = (0..columns).map(|column| row.get_ref(column));
    let own = row_digest(values.collect::<rusqlite::Result<Vec<ValueRef<'_>>>>()?);
    Ok(row.get_ref(columns)?.as_blob().ok() == Some(own.as_bytes().as_slice()))
}

/// Writes a value so that no two lists of values look alike: its type, its
/// length, its bytes.
fn encode(value: ValueRef<'_>, bytes: &mut Vec<u8>) {
    let number;
    let (kind, content): (u8, &[u8]) = match value {
        ValueRef::Null => (b'0', &[]),
        ValueRef::Integer(value) => {
            number = value.to_be_bytes();
            (b'i', &number)
        }
        ValueRef::Real(value) => {
            number = value.to_be_bytes();
            (b'r', &number)
        }
        ValueRef::Text(text) => (b't', text),
        ValueRef::Blob(blob) => (b'b', blob),
    };
    bytes.push(kind);
    bytes.extend_from_slice(&content.len().to_be_bytes());
    bytes.extend_from_slice(content);
}

/// Whether a row of [`SELECT`] holds the values it was written with, and names
/// the policy it is joined with.
pub(super) fn is_untouched(row: &Row<'_>) -> rusqlite::Result<bool> {
    let values = (0..POLICY_AT).map(|column| row.get_ref(column));
    let digest = decision_digest(values.collect::<rusqlite::Result<Vec<_>>>()?);
    let policy = bytes(row.get_ref(POLICY_AT)?).map(Digest::of);
    let kept = |column| row.get_ref(column).map(|value| value.as_blob().ok());
    Ok(kept(DIGEST_AT)? == Some(digest.as_bytes().as_slice())
        && is_ending_untouched(row)?
        && kept(POLICY_KEY_AT)? == policy.as_ref().map(|policy| policy.as_bytes().as_slice()))
}

/// Whether the ending of a row is the one it was completed with. Rows that are
/// not completed have no digest of it, nor have those of schema 1.
fn is_ending_untouched(row: &Row<'_>) -> rusqlite::Result<bool> {
    let ending = POLICY_AT + 1..DIGEST_AT;
    let values = ending.map(|column| row.get_ref(column));
    let values = values.collect::<rusqlite::Result<Vec<_>>>()?;
    let kept = row.get_ref(DIGEST_AT + 1)?;
    let digest = ending_digest(row.get_ref(0)?, values);
    Ok(kept == ValueRef::Null || kept.as_blob().ok() == Some(digest.as_bytes().as_slice()))
}

/// Reads rows of [`SELECT`]. Rows that follow one another mostly rest on one
/// policy, whose text is long: it is read once and shared by them.
#[derive(Debug, Default)]
pub(super) struct DecisionReader {
    /// The policy of the row before, and the key it was found under.
    last_policy: Option<(Vec<u8>, StoredPolicy)>,
}

impl DecisionReader {
    /// The record in a row of [`SELECT`].
    ///
    /// A value that no version writes (a list that is no JSON, a negative count)
    /// is read as near as may be: the log must be readable after somebody's hand
    /// was in it, and [`is_untouched`] tells that it was.
    pub(super) fn record(&mut self, row: &Row<'_>) -> rusqlite::Result<StoredRecord> {
        let policy = self.policy(row)?;
        stored(row, policy)
    }

    fn policy(&mut self, row: &Row<'_>) -> rusqlite::Result<StoredPolicy> {
        let key = bytes(row.get_ref(POLICY_KEY_AT)?).unwrap_or_default();
        if let Some((last, policy)) = &self.last_policy
            && last == key
        {
            return Ok(policy.clone());
        }
        let json = bytes(row.get_ref(POLICY_AT)?).unwrap_or_default();
        let policy = StoredPolicy::new(&String::from_utf8_lossy(json));
        self.last_policy = Some((key.to_vec(), policy.clone()));
        Ok(policy)
    }
}

fn stored(row: &Row<'_>, policy: StoredPolicy) -> rusqlite::Result<StoredRecord> {
    let mut cells = ColumnReader { row, next: 0 };
    let seq = cells.unsigned()?;
    let at = cells.time()?;
    let client = cells.word()?;
    let candidates = cells.list()?;
    let crawler = cells.text()?;
    let user_agent = cells.text()?;
    let method = cells.word()?;
    let url = cells.word()?;
    let _host = cells.text()?;
    let (verdict, reason) = (cells.word()?, cells.word()?);
    let effect = cells.word()?;
    let ruling = StoredRuling {
        verdict,
        reason,
        line: cells.small()?,
        rule: cells.text()?,
        group: cells.list()?,
        crawler,
        reading: cells.text()?,
        exception: Effect::exception(&effect),
    };
    let wait_ms = cells.unsigned()?;
    cells.skip();
    let snapshot = cells.snapshot()?;
    cells.skip();
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
        snapshot,
        policy,
        wait_ms,
        status: cells.small()?,
        directives: cells.text()?,
        said: cells.text()?,
        bytes: cells.take::<Option<i64>>()?.map(count),
        error: cells.text()?,
    })
}

/// The snapshot in a row whose first columns are those of a snapshot.
pub(super) fn snapshot_of(row: &Row<'_>) -> rusqlite::Result<RecordedSnapshot> {
    ColumnReader { row, next: 0 }.snapshot_columns()
}

/// The list in a column, or what stands there in place of one.
fn list(text: String) -> Vec<String> {
    serde_json::from_str(&text).unwrap_or_else(|_| vec![text])
}

/// What a column of text holds, whether it is UTF-8 or not.
fn bytes(value: ValueRef<'_>) -> Option<&[u8]> {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => None,
    }
}

/// Reads the columns of a row from left to right.
struct ColumnReader<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl ColumnReader<'_> {
    fn text(&mut self) -> rusqlite::Result<Option<String>> {
        self.next += 1;
        let bytes = bytes(self.row.get_ref(self.next - 1)?);
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    }

    /// Passes over a column that is read elsewhere.
    fn skip(&mut self) {
        self.next += 1;
    }

    /// Text where there always is some.
    fn word(&mut self) -> rusqlite::Result<String> {
        Ok(self.text()?.unwrap_or_default())
    }

    fn take<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }

    fn unsigned(&mut self) -> rusqlite::Result<u64> {
        self.take().map(count)
    }

    /// A number that has a narrower type in the record.
    fn small<T: TryFrom<i64>>(&mut self) -> rusqlite::Result<Option<T>> {
        let number: Option<i64> = self.take()?;
        Ok(number.and_then(|number| T::try_from(number).ok()))
    }

    fn time(&mut self) -> rusqlite::Result<Timestamp> {
        let time_us: Option<i64> = self.take()?;
        let time = time_us.map(Timestamp::from_microsecond);
        Ok(time.and_then(Result::ok).unwrap_or_default())
    }

    fn list(&mut self) -> rusqlite::Result<Vec<String>> {
        self.word().map(list)
    }

    /// A list where null means that nothing is in it.
    fn some(&mut self) -> rusqlite::Result<Vec<String>> {
        Ok(self.text()?.map(list).unwrap_or_default())
    }

    fn snapshot(&mut self) -> rusqlite::Result<Option<RecordedSnapshot>> {
        let origin = self.row.get_ref(self.next)?;
        // Without a row to join with, every column is null.
        let is_there = origin != ValueRef::Null;
        let snapshot = self.snapshot_columns()?;
        Ok(is_there.then_some(snapshot))
    }

    fn snapshot_columns(&mut self) -> rusqlite::Result<RecordedSnapshot> {
        self.skip();
        Ok(RecordedSnapshot {
            token: self.text()?,
            url: self.word()?,
            status: self.small()?,
            fetched_at: self.time()?,
            expires_at: self.time()?,
            result: self.word()?,
            cause: self.text()?,
            sha256: self.take::<Option<Vec<u8>>>()?.as_deref().and_then(digest),
            hops: self.some()?,
        })
    }
}

/// The digest that a column holds, if it holds 32 bytes.
pub(super) fn digest(bytes: &[u8]) -> Option<Digest> {
    <[u8; 32]>::try_from(bytes).ok().map(Digest::from)
}

/// A digest as a column holds it.
pub(super) fn blob(digest: Digest) -> Value {
    Value::Blob(digest.as_bytes().to_vec())
}

/// A count as a column holds it: SQLite's integers are signed.
pub(super) fn integer(count: u64) -> Value {
    Value::Integer(i64::try_from(count).unwrap_or(i64::MAX))
}

/// A count as read: no count is negative.
pub(super) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn json(list: &[String]) -> String {
    // There is no text that JSON cannot hold.
    serde_json::to_string(list).unwrap_or_default()
}
