//! Digests of values that entries share, cached by the row ids of those values.
//!
//! A leaf includes such a digest instead of the values, so that an entry costs
//! fewer blocks of SHA-256. Only values common to all hosts are included: with a
//! digest for each host, finding it in memory would take as long as computing it.
//! Row ids are used only as keys of the cache, and are not part of any digest.

use super::dictionary::{BoundedMap, DictionaryRef};
use super::leaf::{CONTEXT, OUTCOME, RecordId, begin_entry};
use politesse_decision::digest::{CanonicalBytes, Digest};

/// Approximate memory of a cached digest in bytes.
const ENTRY_BYTES: usize = 128;

/// Rows that make up the context of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContextRefs {
    pub(super) crawler: DictionaryRef,
    pub(super) method: DictionaryRef,
    pub(super) ruling: DictionaryRef,
    pub(super) policy: DictionaryRef,
}

impl ContextRefs {
    /// Computes the digest. `record` is the record of the decision.
    pub(super) fn digest(&self, record: RecordId, bytes: &mut CanonicalBytes) -> Digest {
        begin_entry(bytes, CONTEXT, record);
        for row in [self.crawler, self.method, self.ruling, self.policy] {
            bytes.digest(row.sha256);
        }
        Digest::of(bytes.as_bytes())
    }
}

/// Numbers of an ending, and the rows that it refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutcomeRefs {
    pub(super) status: Option<i64>,
    pub(super) sent: i64,
    pub(super) directives: Option<DictionaryRef>,
    pub(super) error: Option<DictionaryRef>,
}

impl OutcomeRefs {
    /// Computes the digest. `record` is the record of the ending.
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

/// Cache key: row ids and numbers of the values.
#[derive(Debug, PartialEq, Eq, Hash)]
enum JointKey {
    Context([i64; 4]),
    Outcome([Option<i64>; 4]),
}

/// Cache of digests for one record.
#[derive(Debug, Default)]
pub(super) struct JointDigests {
    record: RecordId,
    known: BoundedMap<JointKey, Digest>,
    /// Buffer for the encoding of values.
    bytes: CanonicalBytes,
}

impl JointDigests {
    /// Creates an empty cache for `record`.
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
