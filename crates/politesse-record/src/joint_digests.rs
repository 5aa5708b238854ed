//! Digests over values that entries share, remembered by the rows of those values.
//!
//! A leaf is over such a digest, so that an entry costs fewer blocks of SHA-256.
//! The values are those that all hosts share: with one digest for each host, to
//! find it in memory would take as long as to compute it. Local numbers are keys
//! of a map here, and part of no digest.

use super::dictionary::{BoundedMap, DictionaryRef};
use super::leaf::{CONTEXT, OUTCOME, RecordId, begin_entry};
use politesse_decision::digest::{CanonicalBytes, Digest};

/// Bytes that a digest takes in a map, roughly.
const ENTRY_BYTES: usize = 128;

/// Rows under the context of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContextRefs {
    pub(super) crawler: DictionaryRef,
    pub(super) method: DictionaryRef,
    pub(super) ruling: DictionaryRef,
    pub(super) policy: DictionaryRef,
}

impl ContextRefs {
    /// Computes the digest, in which the record's id is that of the decision.
    pub(super) fn digest(&self, record: RecordId, bytes: &mut CanonicalBytes) -> Digest {
        begin_entry(bytes, CONTEXT, record);
        for row in [self.crawler, self.method, self.ruling, self.policy] {
            bytes.digest(row.sha256);
        }
        Digest::of(bytes.as_bytes())
    }
}

/// Numbers of an ending, and the rows under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutcomeRefs {
    pub(super) status: Option<i64>,
    pub(super) sent: i64,
    pub(super) directives: Option<DictionaryRef>,
    pub(super) error: Option<DictionaryRef>,
}

impl OutcomeRefs {
    /// Computes the digest, in which the record's id is that of the ending.
    pub(super) fn digest(&self, record: RecordId, bytes: &mut CanonicalBytes) -> Digest {
        begin_entry(bytes, OUTCOME, record);
        bytes.optional(self.status, CanonicalBytes::integer);
        bytes.integer(self.sent);
        for row in [self.directives, self.error] {
            bytes.optional(row.map(|row| row.sha256), CanonicalBytes::digest);
        }
        Digest::of(bytes.as_bytes())
    }
}

/// Values under a digest, by the numbers of their rows.
#[derive(Debug, PartialEq, Eq, Hash)]
enum JointKey {
    Context([i64; 4]),
    Outcome([Option<i64>; 4]),
}

/// Digests of one record that were computed.
#[derive(Debug, Default)]
pub(super) struct JointDigests {
    record: RecordId,
    known: BoundedMap<JointKey, Digest>,
    /// Room for the encoding of values.
    bytes: CanonicalBytes,
}

impl JointDigests {
    /// Begins without digests of `record`.
    pub(super) fn new(record: RecordId) -> Self {
        Self {
            record,
            ..Self::default()
        }
    }

    /// Returns the digest of the context of a decision.
    pub(super) fn context(&mut self, refs: &ContextRefs) -> Digest {
        let ids = [refs.crawler, refs.method, refs.ruling, refs.policy].map(|row| row.id);
        let key = JointKey::Context(ids);
        let record = self.record;
        self.find_or(key, |bytes| refs.digest(record, bytes))
    }

    /// Returns the digest of the outcome of an exchange.
    pub(super) fn outcome(&mut self, refs: &OutcomeRefs) -> Digest {
        let id = |row: DictionaryRef| row.id;
        let key = JointKey::Outcome([
            refs.status,
            Some(refs.sent),
            refs.directives.map(id),
            refs.error.map(id),
        ]);
        let record = self.record;
        self.find_or(key, |bytes| refs.digest(record, bytes))
    }

    fn find_or(
        &mut self,
        key: JointKey,
        compute: impl FnOnce(&mut CanonicalBytes) -> Digest,
    ) -> Digest {
        if let Some(found) = self.known.get(&key) {
            return found;
        }
        let digest = compute(&mut self.bytes);
        self.known.insert(key, digest, ENTRY_BYTES);
        digest
    }
}
