//! Canonical encoding of the record's entries, and the hash of each entry: its
//! leaf.
//!
//! docs/decisions/020-thin-record.md gives the encoding byte by byte. It covers
//! values, and the SHA-256 of values that are stored once, but never numbers that
//! are valid in one file only. Data that may have to be redacted (the client, the
//! URL and its reading) enter a leaf through a single salted commitment, so that
//! the rest of an entry can be verified without them.
//!
//! Pure functions. Does not know tables.

use politesse_decision::digest::{CanonicalBytes, Digest};

/// Length of the salt of a decision.
pub(super) const SALT_BYTES: usize = 16;

/// First byte of the encoding of an entry. Dictionary values have different ones.
pub(super) const DECISION: u8 = b'D';
pub(super) const ENDING: u8 = b'E';
pub(super) const EVENT: u8 = b'V';
const NUMBERS: u8 = b'N';
pub(super) const LOST: u8 = b'L';

/// First byte of the encoding of values that entries share.
pub(super) const CONTEXT: u8 = b'C';
pub(super) const OUTCOME: u8 = b'O';

/// Id of a record. It is part of every leaf, so that an entry cannot be moved to
/// another record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RecordId([u8; 16]);

impl RecordId {
    /// Parses an id of 32 hexadecimal digits. Any other text gives zeros, so that
    /// its entries are reported as altered.
    pub(super) fn parse(text: &str) -> Self {
        let number = u128::from_str_radix(text, 16).unwrap_or_default();
        Self(number.to_be_bytes())
    }
}

/// Begins the encoding of an entry of `record`, or of values that its entries
/// share.
pub(super) fn begin_entry(bytes: &mut CanonicalBytes, kind: u8, record: RecordId) {
    bytes.begin(&[kind]);
    bytes.raw(&record.0);
}

/// Values of a decision that may have to be redacted, given as digests of
/// dictionary values where they are in a dictionary.
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
    /// Refused reading of the path, if it differs from the path.
    pub(super) reading: Option<&'a [u8]>,
}

impl PersonalValues<'_> {
    /// Computes the commitment to the values, which remains after a redaction.
    /// `bytes` is a buffer for the encoding.
    pub(super) fn commitment(&self, bytes: &mut CanonicalBytes) -> Digest {
        // The salt comes first: without it, addresses and URLs cannot be guessed
        // and tested.
        bytes.begin(self.salt);
        bytes.digest(self.client);
        bytes.digest(self.origin);
        bytes.bytes(self.path);
        bytes.optional(self.reading, CanonicalBytes::bytes);
        Digest::of(bytes.as_bytes())
    }
}

/// Begins the encoding of an entry of `record`; the columns of its row follow.
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

/// Numbers with the same leaf: a range of lost numbers, or a single number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeafRun {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) leaf: Digest,
}

impl LeafRun {
    /// Returns the run of a single entry, `seq`.
    pub(super) fn of_entry(seq: i64, leaf: Digest) -> Self {
        Self {
            first: seq,
            last: seq,
            leaf,
        }
    }
}
