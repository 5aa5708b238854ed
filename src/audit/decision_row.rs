//! Rows of `decision` with their endings: as they are read, with what they refer
//! to, and as JSON.
//!
//! Does not know which rows are read, nor where they are shown.

use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use serde_json::{Value as Json, json};

use super::columns::{
    Altered, ColumnReader, count, is_digest, read_digest, read_leaf, text_bytes, written_text,
};
use super::dictionary::DictionaryRef;
use super::dictionary_cache::{DictionaryValue, DictionaryValues};
use super::joint_digests::{ContextRefs, JointDigests, OutcomeRefs};
use super::leaf::{DecisionValues, EndingValues, LeafRun, PersonalValues, RecordId};
use super::pages::NumberedTable;
use politesse_decision::digest::{CanonicalBytes, Digest};
use politesse_decision::record::{
    RecordedSnapshot, Seen, StoredClient, StoredCrawler, StoredPolicy, StoredRecord, StoredRuling,
};

/// All decisions with their endings, for [`DecisionReader`].
pub(super) const DECISIONS: NumberedTable = NumberedTable {
    name: "decision",
    select: "
SELECT d.seq, d.time_us, d.client, d.crawler, d.method, d.origin, d.path, d.ruling,
       d.reading, d.wait_ms, d.policy, d.snapshot, d.salt, d.leaf,
       e.seq, e.status, e.directives, e.bytes, e.error, e.sent, e.leaf
FROM decision AS d LEFT JOIN ending AS e ON e.decision = d.seq",
    key: "seq",
    number: "d.seq",
};

/// Position of the number of the ending in [`DECISIONS`]; null without one.
const ENDING_AT: usize = 14;

/// Endings whose decision is gone: the decision's number, and their own.
pub(super) const ORPHANS: NumberedTable = NumberedTable {
    name: "ending",
    select: "SELECT e.decision, e.seq, e.leaf FROM ending AS e",
    key: "decision",
    number: "e.decision",
};

/// Condition that chooses [`ORPHANS`].
pub(super) const IS_ORPHAN: &str =
    "NOT EXISTS (SELECT 1 FROM decision AS d WHERE d.seq = e.decision)";

/// A decision record, and whether its row is the one that was written.
#[derive(Debug, Clone)]
pub struct CheckedRecord {
    /// The record.
    pub record: StoredRecord,
    /// Whether the row and its ending hold the values they were written with, and
    /// so does all that they refer to.
    pub is_as_written: bool,
    /// Whether its client and its URL were redacted.
    pub is_redacted: bool,
    /// Row of the origin.
    pub(super) origin: i64,
    /// Row of the ruling.
    pub(super) ruling: i64,
    /// Number and leaf of the row.
    pub(super) leaf: LeafRun,
    /// Number and leaf of the ending, if there is one.
    pub(super) ending: Option<LeafRun>,
}

/// Reads rows of [`DECISIONS`], and what they refer to.
#[derive(Debug)]
pub(super) struct DecisionReader<'a> {
    connection: &'a Connection,
    values: DictionaryValues,
    joint: JointDigests,
    bytes: CanonicalBytes,
}

/// Row of a decision with all that it refers to; `None` for rows that are gone.
struct DecisionParts<'a> {
    row: &'a Row<'a>,
    client: Option<DictionaryValue<StoredClient>>,
    crawler: Option<DictionaryValue<StoredCrawler>>,
    method: Option<DictionaryValue<str>>,
    origin: Option<DictionaryValue<str>>,
    ruling: Option<DictionaryValue<StoredRuling>>,
    policy: Option<DictionaryValue<StoredPolicy>>,
    snapshot: Reference<RecordedSnapshot>,
    ending: Option<EndingParts>,
}

/// Ending with all that it refers to.
struct EndingParts {
    seq: i64,
    status: Option<i64>,
    sent: i64,
    directives: Reference<Seen>,
    bytes: i64,
    error: Reference<str>,
}

/// Value of a column that may be null.
struct Reference<T: ?Sized> {
    /// Row that the column names; `None` for null.
    id: Option<i64>,
    value: Option<DictionaryValue<T>>,
}

impl<T: ?Sized> Reference<T> {
    fn read(
        row: &Row<'_>,
        column: usize,
        find: impl FnOnce(i64) -> rusqlite::Result<Option<DictionaryValue<T>>>,
    ) -> rusqlite::Result<Self> {
        let id: Option<i64> = row.get(column)?;
        Ok(Self {
            id,
            value: id.map(find).transpose()?.flatten(),
        })
    }

    /// Returns the row under a leaf, if there is a value; `Err` if the value is
    /// gone or was changed.
    fn row(&self) -> Result<Option<DictionaryRef>, Altered> {
        let row = |id| whole_row(id, self.value.as_ref());
        self.id.map(row).transpose()
    }

    fn value(&self) -> Option<Arc<T>> {
        let value = self.value.as_ref()?;
        Some(Arc::clone(&value.value))
    }
}

/// Returns the row `id` of a dictionary with the digest of its value.
fn whole_row<T: ?Sized>(
    id: i64,
    value: Option<&DictionaryValue<T>>,
) -> Result<DictionaryRef, Altered> {
    match value {
        Some(value) if value.is_whole => Ok(DictionaryRef {
            id,
            sha256: value.sha256,
        }),
        _ => Err(Altered),
    }
}

fn text(value: Option<&DictionaryValue<str>>) -> Arc<str> {
    value.map_or_else(|| Arc::from(""), |value| Arc::clone(&value.value))
}

fn shared<T: Default>(value: Option<&DictionaryValue<T>>) -> Arc<T> {
    value
        .map(|value| Arc::clone(&value.value))
        .unwrap_or_default()
}

impl<'a> DecisionReader<'a> {
    /// Makes a reader of the record `record`.
    pub(super) fn new(connection: &'a Connection, record: RecordId) -> Self {
        Self {
            connection,
            values: DictionaryValues::default(),
            joint: JointDigests::new(record),
            bytes: CanonicalBytes::default(),
        }
    }

    /// Reads the record in a row.
    pub(super) fn record(&mut self, row: &Row<'_>) -> rusqlite::Result<StoredRecord> {
        self.parts(row)?.record()
    }

    /// Reads the record in a row, and compares row and ending with their leaves.
    pub(super) fn checked(&mut self, row: &Row<'_>) -> rusqlite::Result<CheckedRecord> {
        // Values that were changed make no leaf, whatever digest they are kept under.
        let parts = self.parts(row)?;
        let leaf = parts.leaf(&mut self.joint, &mut self.bytes)?;
        let is_own = leaf.is_ok_and(|leaf| row.get_ref(13).is_ok_and(|own| is_digest(own, leaf)));
        // As stored: whether that is the leaf of what the row says is one finding,
        // and whether it is the one that was sealed is another.
        let leaf_of = |seq, column| {
            let leaf = read_leaf(row, column);
            leaf.map(|leaf| LeafRun::of_entry(seq, leaf))
        };
        let ending = parts.ending.as_ref().map(|ending| ending.seq);
        let has_own_ending = match &parts.ending {
            None => true,
            Some(ending) => {
                let leaf = ending.leaf(row.get(0)?, &mut self.joint, &mut self.bytes);
                let own = row.get_ref(ENDING_AT + 6)?;
                leaf.is_ok_and(|leaf| is_digest(own, leaf))
            }
        };
        Ok(CheckedRecord {
            record: parts.record()?,
            is_as_written: is_own && has_own_ending,
            is_redacted: parts.redacted()?.is_some(),
            origin: row.get(5)?,
            ruling: row.get(7)?,
            leaf: leaf_of(row.get(0)?, 13)?,
            ending: ending.map(|seq| leaf_of(seq, ENDING_AT + 6)).transpose()?,
        })
    }

    /// Computes the leaves that a row and its ending must have; `None` if one of them
    /// refers to what is not there, or was changed.
    pub(super) fn leaves(&mut self, row: &Row<'_>) -> rusqlite::Result<Option<Vec<LeafRun>>> {
        let parts = self.parts(row)?;
        let seq = row.get(0)?;
        let mut leaves = Vec::new();
        match parts.leaf(&mut self.joint, &mut self.bytes)? {
            Ok(leaf) => leaves.push(LeafRun::of_entry(seq, leaf)),
            Err(Altered) => return Ok(None),
        }
        if let Some(ending) = &parts.ending {
            match ending.leaf(seq, &mut self.joint, &mut self.bytes) {
                Ok(leaf) => leaves.push(LeafRun::of_entry(ending.seq, leaf)),
                Err(Altered) => return Ok(None),
            }
        }
        Ok(Some(leaves))
    }

    /// Computes what is left of a row that is redacted; `None` if it is not as it was
    /// written, or is redacted already.
    pub(super) fn commitment_to_keep(&mut self, row: &Row<'_>) -> rusqlite::Result<Option<Digest>> {
        let parts = self.parts(row)?;
        let leaf = parts.leaf(&mut self.joint, &mut self.bytes)?;
        // What somebody has changed stays, so that it is found.
        let is_own = leaf.is_ok_and(|leaf| row.get_ref(13).is_ok_and(|own| is_digest(own, leaf)));
        if !is_own || parts.redacted()?.is_some() {
            return Ok(None);
        }
        Ok(parts.commitment(&mut self.bytes)?.ok())
    }

    fn parts<'r>(&mut self, row: &'r Row<'r>) -> rusqlite::Result<DecisionParts<'r>> {
        let (values, connection) = (&mut self.values, self.connection);
        let ending = if row.get_ref(ENDING_AT)? == ValueRef::Null {
            None
        } else {
            Some(EndingParts {
                seq: row.get(ENDING_AT)?,
                status: row.get(ENDING_AT + 1)?,
                directives: Reference::read(row, ENDING_AT + 2, |id| {
                    values.directives(connection, id)
                })?,
                bytes: row.get(ENDING_AT + 3)?,
                error: Reference::read(row, ENDING_AT + 4, |id| values.term(connection, id))?,
                sent: row.get(ENDING_AT + 5)?,
            })
        };
        Ok(DecisionParts {
            row,
            client: values.client(connection, row.get(2)?)?,
            crawler: values.crawler(connection, row.get(3)?)?,
            method: values.term(connection, row.get(4)?)?,
            origin: values.origin(connection, row.get(5)?)?,
            ruling: values.ruling(connection, row.get(7)?)?,
            policy: values.policy(connection, row.get(10)?)?,
            snapshot: Reference::read(row, 11, |id| values.snapshot(connection, id))?,
            ending,
        })
    }
}

impl DecisionParts<'_> {
    /// Computes the leaf that the row must have.
    fn leaf(
        &self,
        joint: &mut JointDigests,
        bytes: &mut CanonicalBytes,
    ) -> rusqlite::Result<Result<Digest, Altered>> {
        let row = self.row;
        let (seq, time_us, wait_ms) = (row.get(0)?, row.get(1)?, row.get(9)?);
        let commitment = self.commitment(bytes)?;
        let context = self.context()?;
        let values = || {
            Ok(DecisionValues {
                seq,
                time_us,
                wait_ms,
                commitment: commitment?,
                context: joint.context(&context?),
                snapshot: self.snapshot.row()?.map(|row| row.sha256),
            })
        };
        Ok(values().map(|values| values.leaf(bytes)))
    }

    /// Returns the commitment that is left of a redacted row; `None` if the row is
    /// not redacted.
    fn redacted(&self) -> rusqlite::Result<Option<Digest>> {
        Ok(self.row.get_ref(12)?.as_blob().ok().and_then(read_digest))
    }

    /// Computes the commitment to client and URL, or reads it where they are redacted.
    fn commitment(&self, bytes: &mut CanonicalBytes) -> rusqlite::Result<Result<Digest, Altered>> {
        let row = self.row;
        let texts = [row.get_ref(6)?, row.get_ref(8)?].map(written_text);
        let [Ok(written_path), Ok(reading)] = texts else {
            return Ok(Err(Altered));
        };
        let path = written_path.unwrap_or_default();
        let (client, origin): (i64, i64) = (row.get(2)?, row.get(5)?);
        if let Some(commitment) = self.redacted()? {
            // Else anything could stand there: the commitment says nothing of it.
            let is_empty = path.is_empty() && reading.is_none() && client == 0;
            let kept = self
                .snapshot
                .value
                .as_ref()
                .map(|snapshot| &*snapshot.value.origin);
            let is_kept = kept == self.origin.as_ref().map(|origin| &*origin.value);
            return Ok(if is_empty && (origin == 0 || is_kept) {
                Ok(commitment)
            } else {
                Err(Altered)
            });
        }
        // A text of the same bytes is not what was written.
        let salt = row.get_ref(12)?.as_blob().unwrap_or_default();
        let values = || {
            Ok(PersonalValues {
                salt,
                client: whole_row(client, self.client.as_ref())?.sha256,
                origin: whole_row(origin, self.origin.as_ref())?.sha256,
                path,
                reading,
            })
        };
        Ok(values().map(|values| values.commitment(bytes)))
    }

    fn context(&self) -> rusqlite::Result<Result<ContextRefs, Altered>> {
        let (crawler, method) = (self.row.get(3)?, self.row.get(4)?);
        let (ruling, policy) = (self.row.get(7)?, self.row.get(10)?);
        let refs = || {
            Ok(ContextRefs {
                crawler: whole_row(crawler, self.crawler.as_ref())?,
                method: whole_row(method, self.method.as_ref())?,
                ruling: whole_row(ruling, self.ruling.as_ref())?,
                policy: whole_row(policy, self.policy.as_ref())?,
            })
        };
        Ok(refs())
    }

    fn record(&self) -> rusqlite::Result<StoredRecord> {
        let mut columns = ColumnReader::new(self.row);
        let (seq, at) = (columns.count()?, columns.time()?);
        let path = text_bytes(self.row.get_ref(6)?).unwrap_or_default();
        let is_redacted = self.redacted()?.is_some();
        let url = match is_redacted {
            true => StoredRecord::REDACTED.to_owned(),
            false => [&*text(self.origin.as_ref()), &String::from_utf8_lossy(path)].concat(),
        };
        let client = match is_redacted {
            true => StoredRecord::redacted_client(),
            false => shared(self.client.as_ref()),
        };
        let reading = text_bytes(self.row.get_ref(8)?);
        let ending = self.ending.as_ref();
        let status = ending.and_then(|ending| ending.status);
        let bytes = ending.map(|ending| ending.bytes);
        Ok(StoredRecord {
            node: None,
            seq,
            at,
            client,
            crawler: shared(self.crawler.as_ref()),
            method: text(self.method.as_ref()),
            url,
            ruling: shared(self.ruling.as_ref()),
            reading: reading.map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
            snapshot: self.snapshot.value(),
            policy: match &self.policy {
                Some(policy) => Arc::clone(&policy.value),
                None => Arc::new(StoredPolicy::new("")),
            },
            wait_ms: self.row.get(9).map(count)?,
            status: status.and_then(|status| u16::try_from(status).ok()),
            sent: ending.map(|ending| count(ending.sent)),
            directives: ending.and_then(|ending| ending.directives.value()),
            bytes: bytes.and_then(|bytes| u64::try_from(bytes).ok()),
            error: ending.and_then(|ending| ending.error.value()),
        })
    }
}

impl EndingParts {
    /// Computes the leaf that the ending of `decision` must have.
    fn leaf(
        &self,
        decision: i64,
        joint: &mut JointDigests,
        bytes: &mut CanonicalBytes,
    ) -> Result<Digest, Altered> {
        let outcome = OutcomeRefs {
            status: self.status,
            sent: self.sent,
            directives: self.directives.row()?,
            error: self.error.row()?,
        };
        let values = EndingValues {
            decision,
            seq: self.seq,
            bytes: self.bytes,
            outcome: joint.outcome(&outcome),
        };
        Ok(values.leaf(bytes))
    }
}

/// Columns of CSV, as members of the JSON; `robots.url` is a member of a member.
pub const ROW_COLUMNS: [&str; 21] = [
    "seq",
    "time",
    "client",
    "crawler",
    "user_agent",
    "method",
    "url",
    "verdict",
    "reason",
    "effect",
    "line",
    "rule",
    "reading",
    "wait_ms",
    "status",
    "bytes",
    "error",
    "directives.value",
    "robots.url",
    "robots.sha256",
    "policy",
];

/// Makes the JSON of a decision record, as `audit list` and others print it.
pub fn row_json(record: &StoredRecord) -> Json {
    let ruling = &record.ruling;
    let mut row = json!({
        "seq": record.seq,
        "time": record.at.to_string(),
        "client": record.client.address,
        "crawler": ruling.crawler,
        "user_agent": record.crawler.user_agent,
        "method": &*record.method,
        "url": record.url,
        "verdict": ruling.verdict,
        "reason": ruling.reason,
        "effect": ruling.effect,
        "line": ruling.line,
        "rule": ruling.rule,
        "group": (!ruling.group.is_empty()).then_some(&ruling.group),
        "reading": record.reading,
        "robots": record.snapshot.as_deref().map(robots_json),
        "policy": record.policy.sha256.to_string(),
        "wait_ms": record.wait_ms,
        "status": record.status,
        "sent": record.sent,
        "directives": record.directives.as_deref().map(directives_json),
        "bytes": record.bytes,
        "error": record.error.as_deref(),
    });
    // Where one record is read, every row would have the same.
    if let Some(node) = &record.node {
        row["node"] = json!(&**node);
    }
    row
}

fn directives_json(seen: &Seen) -> Json {
    json!({
        "value": seen.directives,
        "said": seen.said.as_deref().map_or_else(|| json!([]), said_json),
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
    if let Some(charset) = &snapshot.charset {
        members["charset"] = json!(charset);
    }
    members
}

fn said_json(text: &str) -> Json {
    // Somebody who changed the row may have left no JSON.
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}
