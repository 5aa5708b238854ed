//! Reading of decisions with their endings and all values that they refer to.
//!
//! Does not know which rows are read, or where they are shown.

use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::{Connection, Row};

use super::columns::{Altered, TableRow as _, count};
use super::dictionary::{DictionaryRef, ORIGINS};
use super::dictionary_cache::{DictionaryValue, DictionaryValues};
use super::entry_rows::{DecisionDigests, DecisionEntry, DecisionRow, EndingRow, EntryLeaves};
use super::joint_digests::{ContextRefs, JointDigests, OutcomeRefs};
use super::leaf::{LeafRun, PersonalValues, RecordId};
use super::pages::NumberedTable;
use politesse_decision::digest::{CanonicalBytes, Digest};
use politesse_decision::record::{
    RecordedSnapshot, Seen, StoredClient, StoredCrawler, StoredPolicy, StoredRecord, StoredRuling,
};
use politesse_robots::origin::Target;

/// Endings whose decision is missing: number of the decision, and number and leaf
/// of the ending.
pub(super) const ORPHANS: NumberedTable = NumberedTable {
    name: "ending",
    select: "SELECT e.decision, e.seq, e.leaf FROM ending AS e",
    key: "decision",
    number: "e.decision",
};

/// Condition that selects [`ORPHANS`].
pub(super) const IS_ORPHAN: &str =
    "NOT EXISTS (SELECT 1 FROM decision AS d WHERE d.seq = e.decision)";

/// Decision record, and whether its row is unaltered.
#[derive(Debug, Clone)]
pub struct CheckedRecord {
    /// The record.
    pub record: StoredRecord,
    /// Whether the row, its ending and all values that they refer to are unaltered.
    pub is_as_written: bool,
    /// Whether client and URL were redacted.
    pub is_redacted: bool,
    /// Row id of the origin.
    pub(super) origin: i64,
    /// Row id of the ruling.
    pub(super) ruling: i64,
    /// Number and leaf of the row.
    pub(super) leaf: LeafRun,
    /// Number and leaf of the ending, if there is one.
    pub(super) ending: Option<LeafRun>,
}

/// Reader of rows of [`DECISIONS`](super::entry_rows::DECISIONS) and the values
/// that they refer to.
#[derive(Debug)]
pub(super) struct DecisionReader<'a> {
    connection: &'a Connection,
    values: DictionaryValues,
    joint: JointDigests,
    bytes: CanonicalBytes,
}

/// Decision with the values that it refers to; `None` for values whose rows are
/// missing.
struct DecisionParts {
    row: DecisionRow,
    client: Option<DictionaryValue<StoredClient>>,
    crawler: Option<DictionaryValue<StoredCrawler>>,
    method: Option<DictionaryValue<str>>,
    origin: Option<DictionaryValue<str>>,
    ruling: Option<DictionaryValue<StoredRuling>>,
    policy: Option<DictionaryValue<StoredPolicy>>,
    snapshot: Reference<RecordedSnapshot>,
    ending: Option<EndingParts>,
}

/// Ending with the values that it refers to.
struct EndingParts {
    row: EndingRow,
    directives: Reference<Seen>,
    error: Reference<str>,
}

/// Value of a nullable column.
struct Reference<T: ?Sized> {
    /// Row id in the column; `None` for null.
    id: Option<i64>,
    value: Option<DictionaryValue<T>>,
}

impl<T: ?Sized> Reference<T> {
    fn find(
        id: Option<i64>,
        find: impl FnOnce(i64) -> rusqlite::Result<Option<DictionaryValue<T>>>,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            id,
            value: id.map(find).transpose()?.flatten(),
        })
    }

    /// Returns the row of the value for a leaf, if there is a value; `Err` if the
    /// value is missing or altered.
    fn row(&self) -> Result<Option<DictionaryRef>, Altered> {
        let row = |id| whole_row(id, self.value.as_ref());
        self.id.map(row).transpose()
    }

    fn value(&self) -> Option<Arc<T>> {
        let value = self.value.as_ref()?;
        Some(Arc::clone(&value.value))
    }
}

/// Returns the row `id` of a dictionary with the digest of its value; `Err` if the
/// value is missing or altered.
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
    /// Creates a reader of the record `record`.
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
        Ok(self.parts(DecisionEntry::read(row)?)?.record())
    }

    /// Reads the record in a row, and compares row and ending with their leaves.
    pub(super) fn checked(&mut self, row: &Row<'_>) -> rusqlite::Result<CheckedRecord> {
        let entry = DecisionEntry::read(row)?;
        let (is_exact, stored) = (entry.is_exact(row), entry.leaves());
        let parts = self.parts(entry)?;
        // Returns an error if a stored value does not match its digest.
        let leaves = parts.leaves(&mut self.joint, &mut self.bytes);
        Ok(CheckedRecord {
            is_as_written: is_exact && leaves.is_ok_and(|leaves| leaves == stored),
            is_redacted: parts.row.redacted().is_some(),
            origin: parts.row.origin,
            ruling: parts.row.ruling,
            record: parts.record(),
            // The stored leaves are returned. A leaf that does not match its row is
            // one finding; a leaf that differs from the sealed one is another.
            leaf: stored.decision,
            ending: stored.ending,
        })
    }

    /// Returns the record of a decision, and computes the leaves that the decision
    /// and its ending must have; `None` if one of them refers to a missing or
    /// altered value.
    pub(super) fn with_leaves(
        &mut self,
        entry: DecisionEntry,
    ) -> rusqlite::Result<(StoredRecord, Option<EntryLeaves>)> {
        let parts = self.parts(entry)?;
        let leaves = parts.leaves(&mut self.joint, &mut self.bytes).ok();
        Ok((parts.record(), leaves))
    }

    /// Computes the commitment that remains after a redaction; `None` if the row is
    /// altered or already redacted.
    pub(super) fn commitment_to_keep(&mut self, row: &Row<'_>) -> rusqlite::Result<Option<Digest>> {
        let entry = DecisionEntry::read(row)?;
        let is_exact = entry.decision.is_exact(row, 0);
        let parts = self.parts(entry)?;
        let leaf = parts.leaf(&mut self.joint, &mut self.bytes);
        // Altered rows are not redacted, so that the change can still be found.
        let is_own = is_exact && leaf.is_ok_and(|leaf| leaf == parts.row.leaf);
        if !is_own || parts.row.redacted().is_some() {
            return Ok(None);
        }
        Ok(parts.commitment(&mut self.bytes).ok())
    }

    fn parts(&mut self, entry: DecisionEntry) -> rusqlite::Result<DecisionParts> {
        let (values, connection) = (&mut self.values, self.connection);
        let DecisionEntry { decision, ending } = entry;
        let ending_parts = |row: EndingRow| -> rusqlite::Result<_> {
            let directives = |id| values.directives.get(connection, id);
            Ok(EndingParts {
                directives: Reference::find(row.directives, directives)?,
                error: Reference::find(row.error, |id| values.terms.get(connection, id))?,
                row,
            })
        };
        let ending = ending.map(ending_parts).transpose()?;
        let snapshot = |id| values.snapshots.get(connection, id);
        Ok(DecisionParts {
            snapshot: Reference::find(decision.snapshot, snapshot)?,
            client: values.clients.get(connection, decision.client)?,
            crawler: values.crawlers.get(connection, decision.crawler)?,
            method: values.terms.get(connection, decision.method)?,
            origin: values.origins.get(connection, decision.origin)?,
            ruling: values.rulings.get(connection, decision.ruling)?,
            policy: values.policies.get(connection, decision.policy)?,
            row: decision,
            ending,
        })
    }
}

impl DecisionParts {
    /// Computes the leaves that the rows of the decision and its ending must have.
    fn leaves(
        &self,
        joint: &mut JointDigests,
        bytes: &mut CanonicalBytes,
    ) -> Result<EntryLeaves, Altered> {
        let decision = self.leaf(joint, bytes)?;
        let ending = self.ending.as_ref();
        let of_ending = |ending: &EndingParts| {
            let leaf = ending.leaf(joint, bytes)?;
            Ok(LeafRun::of_entry(ending.row.seq, leaf))
        };
        Ok(EntryLeaves {
            decision: LeafRun::of_entry(self.row.seq, decision),
            ending: ending.map(of_ending).transpose()?,
        })
    }

    /// Computes the leaf that the row must have.
    fn leaf(
        &self,
        joint: &mut JointDigests,
        bytes: &mut CanonicalBytes,
    ) -> Result<Digest, Altered> {
        let digests = DecisionDigests {
            commitment: self.commitment(bytes)?,
            context: joint.context(&self.context()?),
            snapshot: self.snapshot.row()?.map(|row| row.sha256),
        };
        Ok(self.row.leaf_over(&digests, bytes))
    }

    /// Computes the commitment to client and URL, or reads it from a redacted row.
    fn commitment(&self, bytes: &mut CanonicalBytes) -> Result<Digest, Altered> {
        let row = &self.row;
        if let Some(commitment) = row.redacted() {
            // The other personal columns must be empty, because the commitment does
            // not cover what is in them.
            let is_empty = row.path.is_empty() && row.reading.is_none() && row.client == 0;
            let is_allowed = is_empty && self.has_origin_of_snapshot(bytes);
            return is_allowed.then_some(commitment).ok_or(Altered);
        }
        let values = PersonalValues {
            salt: &row.salt,
            client: whole_row(row.client, self.client.as_ref())?.sha256,
            origin: whole_row(row.origin, self.origin.as_ref())?.sha256,
            path: row.path.as_bytes(),
            reading: row.reading.as_deref().map(str::as_bytes),
        };
        Ok(values.commitment(bytes))
    }

    /// Reports whether a redacted row has no origin, or the one named by its
    /// snapshot, with the host of that origin. The commitment covers neither, and
    /// decisions are searched and counted by host.
    fn has_origin_of_snapshot(&self, bytes: &mut CanonicalBytes) -> bool {
        if self.row.origin == 0 {
            return true;
        }
        let Some(snapshot) = &self.snapshot.value else {
            return false;
        };
        let named = &*snapshot.value.origin;
        let wanted = named.parse::<Target>().map(|target| {
            let host = target.origin.host().to_string();
            ORIGINS.digest_of([named, host.as_str()], bytes)
        });
        let own = whole_row(self.row.origin, self.origin.as_ref());
        matches!((own, wanted), (Ok(own), Ok(wanted)) if own.sha256 == wanted)
    }

    fn context(&self) -> Result<ContextRefs, Altered> {
        Ok(ContextRefs {
            crawler: whole_row(self.row.crawler, self.crawler.as_ref())?,
            method: whole_row(self.row.method, self.method.as_ref())?,
            ruling: whole_row(self.row.ruling, self.ruling.as_ref())?,
            policy: whole_row(self.row.policy, self.policy.as_ref())?,
        })
    }

    fn record(self) -> StoredRecord {
        let row = self.row;
        let (url, client) = match row.redacted() {
            Some(_) => (
                StoredRecord::REDACTED.to_owned(),
                StoredRecord::redacted_client(),
            ),
            None => (
                [&*text(self.origin.as_ref()), &row.path].concat(),
                shared(self.client.as_ref()),
            ),
        };
        let ending = self.ending.as_ref();
        let status = ending.and_then(|ending| ending.row.status);
        let bytes = ending.map(|ending| ending.row.bytes);
        StoredRecord {
            node: None,
            seq: count(row.seq),
            at: Timestamp::from_microsecond(row.time_us).unwrap_or_default(),
            client,
            crawler: shared(self.crawler.as_ref()),
            method: text(self.method.as_ref()),
            url,
            ruling: shared(self.ruling.as_ref()),
            reading: row.reading,
            snapshot: self.snapshot.value(),
            policy: match &self.policy {
                Some(policy) => Arc::clone(&policy.value),
                None => Arc::new(StoredPolicy::new("")),
            },
            wait_ms: count(row.wait_ms),
            status: status.and_then(|status| u16::try_from(status).ok()),
            sent: ending.map(|ending| count(ending.row.sent)),
            directives: ending.and_then(|ending| ending.directives.value()),
            bytes: bytes.and_then(|bytes| u64::try_from(bytes).ok()),
            error: ending.and_then(|ending| ending.error.value()),
        }
    }
}

impl EndingParts {
    /// Computes the leaf that the ending must have.
    fn leaf(
        &self,
        joint: &mut JointDigests,
        bytes: &mut CanonicalBytes,
    ) -> Result<Digest, Altered> {
        let outcome = OutcomeRefs {
            status: self.row.status,
            sent: self.row.sent,
            directives: self.directives.row()?,
            error: self.error.row()?,
        };
        Ok(self.row.leaf_over(joint.outcome(&outcome), bytes))
    }
}
