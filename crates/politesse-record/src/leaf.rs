//! Canonical encoding of what the record holds, and the hash of each entry: its
//! leaf.
//!
//! docs/decisions/020-thin-record.md has the encoding byte by byte. It covers
//! values, and SHA-256 values of what is kept once, never numbers that mean
//! something in one file alone. What may have to be redacted (the client, the URL
//! and its reading) enters a leaf through one salted commitment, so that the rest
//! of an entry can be verified without it.
//!
//! Pure functions. Does not know tables.

use politesse_decision::digest::{CanonicalBytes, Digest};

/// Bytes of the salt of a decision.
pub(super) const SALT_BYTES: usize = 16;

/// First byte of the encoding of an entry. Dictionary values have others.
pub(super) const DECISION: u8 = b'D';
pub(super) const ENDING: u8 = b'E';
pub(super) const EVENT: u8 = b'V';
const NUMBERS: u8 = b'N';
pub(super) const LOST: u8 = b'L';

/// First byte of the encoding of values that entries share.
pub(super) const CONTEXT: u8 = b'C';
pub(super) const OUTCOME: u8 = b'O';

/// Id of a record, as it is part of every leaf: an entry of one record is none of
/// another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RecordId([u8; 16]);

impl RecordId {
    /// Reads an id of 32 hexadecimal digits. Another text stands for zeros: its
    /// entries are found not to be as they were written.
    pub(super) fn parse(text: &str) -> Self {
        let number = u128::from_str_radix(text, 16).unwrap_or_default();
        Self(number.to_be_bytes())
    }
}

/// Begins the encoding of an entry of `record`, or of values that its entries share.
pub(super) fn begin_entry(bytes: &mut CanonicalBytes, kind: u8, record: RecordId) {
    bytes.begin(&[kind]);
    bytes.raw(&record.0);
}

/// Values of a decision that may have to be redacted. Digests are those of
/// dictionary values.
#[derive(Debug)]
pub(super) struct PersonalValues<'a> {
    /// Salt of the decision.
    pub(super) salt: &'a [u8],
    /// Client.
    pub(super) client: Digest,
    /// Origin.
    pub(super) origin: Digest,
    /// Path with its query string.
    pub(super) path: &'a [u8],
    /// Reading of the path that was refused, where it is another.
    pub(super) reading: Option<&'a [u8]>,
}

impl PersonalValues<'_> {
    /// Computes the commitment to them, which is what is left of them when they are
    /// redacted. `bytes` is room for the encoding.
    pub(super) fn commitment(&self, bytes: &mut CanonicalBytes) -> Digest {
        // The salt first: without it nobody can try out addresses and URLs.
        bytes.begin(self.salt);
        bytes.digest(self.client);
        bytes.digest(self.origin);
        bytes.bytes(self.path);
        bytes.optional(self.reading, CanonicalBytes::bytes);
        Digest::of(bytes.as_bytes())
    }
}

/// Begins the encoding of an entry of `record`, which the columns of its row follow.
pub(super) fn encoding_of(kind: u8, record: RecordId) -> CanonicalBytes {
    let mut bytes = CanonicalBytes::default();
    begin_entry(&mut bytes, kind, record);
    bytes
}

/// Computes the digest of the highest number.
pub(super) fn numbers_digest(record: RecordId, last: i64) -> Digest {
    let mut bytes = encoding_of(NUMBERS, record);
    bytes.integer(last);
    Digest::of(bytes.as_bytes())
}

/// Numbers with the same leaf: those that were lost together, or one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeafRun {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) leaf: Digest,
}

impl LeafRun {
    /// Makes the run of the entry `seq`.
    pub(super) fn of_entry(seq: i64, leaf: Digest) -> Self {
        Self {
            first: seq,
            last: seq,
            leaf,
        }
    }
}
