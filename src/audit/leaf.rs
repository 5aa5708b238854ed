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
const DECISION: u8 = b'D';
const ENDING: u8 = b'E';
const EVENT: u8 = b'V';
const NUMBERS: u8 = b'N';
const LOST: u8 = b'L';

/// First byte of the encoding of values that entries share.
const CONTEXT: u8 = b'C';
const OUTCOME: u8 = b'O';

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

/// Begins the encoding of an entry of `record`.
fn begin_entry(bytes: &mut CanonicalBytes, kind: u8, record: RecordId) {
    bytes.begin(&[kind]);
    bytes.raw(&record.0);
}

/// Values under a decision that many decisions share. Digests are those of
/// dictionary values.
#[derive(Debug)]
pub(super) struct ContextValues {
    pub(super) crawler: Digest,
    pub(super) method: Digest,
    pub(super) ruling: Digest,
    pub(super) policy: Digest,
}

impl ContextValues {
    /// Computes the digest, in which the record's id is that of the decision.
    pub(super) fn digest(&self, record: RecordId, bytes: &mut CanonicalBytes) -> Digest {
        begin_entry(bytes, CONTEXT, record);
        bytes.digest(self.crawler);
        bytes.digest(self.method);
        bytes.digest(self.ruling);
        bytes.digest(self.policy);
        Digest::of(bytes.as_bytes())
    }
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

/// Values of a decision. Digests are those of dictionary values, but for two.
#[derive(Debug)]
pub(super) struct DecisionValues {
    pub(super) seq: i64,
    pub(super) time_us: i64,
    pub(super) wait_ms: i64,
    /// Commitment to its [`PersonalValues`].
    pub(super) commitment: Digest,
    /// Digest of its [`ContextValues`].
    pub(super) context: Digest,
    pub(super) snapshot: Option<Digest>,
}

impl DecisionValues {
    /// Computes the leaf. `bytes` is room for the encoding.
    pub(super) fn leaf(&self, bytes: &mut CanonicalBytes) -> Digest {
        bytes.begin(&[DECISION]);
        // Short, so that all of it is two blocks of SHA-256, of at most 119 bytes.
        bytes.short_integer(self.seq);
        bytes.short_integer(self.time_us);
        bytes.short_integer(self.wait_ms);
        bytes.digest(self.commitment);
        bytes.digest(self.context);
        bytes.optional(self.snapshot, CanonicalBytes::digest);
        Digest::of(bytes.as_bytes())
    }
}

/// Values under an ending that many endings share. Digests are those of
/// dictionary values.
#[derive(Debug)]
pub(super) struct OutcomeValues {
    pub(super) status: Option<i64>,
    pub(super) sent: i64,
    pub(super) directives: Option<Digest>,
    pub(super) error: Option<Digest>,
}

impl OutcomeValues {
    /// Computes the digest, in which the record's id is that of the ending.
    pub(super) fn digest(&self, record: RecordId, bytes: &mut CanonicalBytes) -> Digest {
        begin_entry(bytes, OUTCOME, record);
        bytes.optional(self.status, CanonicalBytes::integer);
        bytes.integer(self.sent);
        bytes.optional(self.directives, CanonicalBytes::digest);
        bytes.optional(self.error, CanonicalBytes::digest);
        Digest::of(bytes.as_bytes())
    }
}

/// Values of an ending.
#[derive(Debug)]
pub(super) struct EndingValues {
    pub(super) decision: i64,
    pub(super) seq: i64,
    pub(super) bytes: i64,
    /// Digest of its [`OutcomeValues`].
    pub(super) outcome: Digest,
}

impl EndingValues {
    /// Computes the leaf. With the number of the decision in it, the ending of
    /// one cannot be given to another.
    pub(super) fn leaf(&self, bytes: &mut CanonicalBytes) -> Digest {
        bytes.begin(&[ENDING]);
        // Short, so that all of it is one block of SHA-256, of at most 55 bytes.
        bytes.short_integer(self.decision);
        bytes.short_integer(self.seq);
        bytes.short_integer(self.bytes);
        bytes.digest(self.outcome);
        Digest::of(bytes.as_bytes())
    }
}

/// Values of an event.
#[derive(Debug)]
pub(super) struct EventValues<'a> {
    pub(super) seq: i64,
    pub(super) time_us: i64,
    pub(super) host: &'a [u8],
    pub(super) kind: &'a [u8],
    pub(super) status: Option<i64>,
    pub(super) until_us: i64,
    pub(super) incidents: i64,
    pub(super) actor: Option<&'a [u8]>,
    pub(super) reason: Option<&'a [u8]>,
    pub(super) sent: Option<i64>,
    pub(super) detail: Option<&'a [u8]>,
}

impl EventValues<'_> {
    /// Computes the leaf.
    pub(super) fn leaf(&self, record: RecordId, bytes: &mut CanonicalBytes) -> Digest {
        begin_entry(bytes, EVENT, record);
        bytes.integer(self.seq);
        bytes.integer(self.time_us);
        bytes.bytes(self.host);
        bytes.bytes(self.kind);
        bytes.optional(self.status, CanonicalBytes::integer);
        bytes.integer(self.until_us);
        bytes.integer(self.incidents);
        bytes.optional(self.actor, CanonicalBytes::bytes);
        bytes.optional(self.reason, CanonicalBytes::bytes);
        bytes.optional(self.sent, CanonicalBytes::integer);
        bytes.optional(self.detail, CanonicalBytes::bytes);
        Digest::of(bytes.as_bytes())
    }
}

/// Computes the digest of the highest number.
pub(super) fn numbers_digest(record: RecordId, last: i64) -> Digest {
    let mut bytes = CanonicalBytes::default();
    begin_entry(&mut bytes, NUMBERS, record);
    bytes.integer(last);
    Digest::of(bytes.as_bytes())
}

/// Values of a range of numbers that have no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LostRange {
    pub(super) first: i64,
    pub(super) last: i64,
    /// Time at which the loss was noticed.
    pub(super) time_us: i64,
}

impl LostRange {
    /// Computes the digest.
    pub(super) fn digest(self, record: RecordId) -> Digest {
        let mut bytes = CanonicalBytes::default();
        begin_entry(&mut bytes, LOST, record);
        bytes.integer(self.first);
        bytes.integer(self.last);
        bytes.integer(self.time_us);
        Digest::of(bytes.as_bytes())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the documented encoding a second time, from a list of parts.
    fn sha256(parts: &[&[u8]]) -> Digest {
        Digest::of(&parts.concat())
    }

    fn be(value: i64) -> [u8; 8] {
        value.to_be_bytes()
    }

    const ID: &str = "000102030405060708090a0b0c0d0e0f";
    const ID_BYTES: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    // Ours: docs/decisions/020-thin-record.md, "Leaves".
    #[test]
    fn a_leaf_of_a_decision_is_what_the_document_says() {
        let digest = |name: &str| Digest::of(name.as_bytes());
        let of = |name: &str| *digest(name).as_bytes();
        let mut room = CanonicalBytes::default();
        for (reading, snapshot) in [(None, None), (Some(&b"/x"[..]), Some(digest("snapshot")))] {
            let context = ContextValues {
                crawler: digest("crawler"),
                method: digest("method"),
                ruling: digest("ruling"),
                policy: digest("policy"),
            };
            let personal = PersonalValues {
                salt: &[9; SALT_BYTES],
                client: digest("client"),
                origin: digest("origin"),
                path: b"/a?b",
                reading,
            };
            let values = DecisionValues {
                seq: 7,
                time_us: -1,
                wait_ms: 12,
                commitment: personal.commitment(&mut room),
                context: context.digest(RecordId::parse(ID), &mut room),
                snapshot,
            };
            let reading: &[u8] = reading.map_or(&[0], |_| b"\x01\0\0\0\x02/x");
            let path = b"\0\0\0\x04/a?b";
            let parts: [&[u8]; 5] = [&[9; 16], &of("client"), &of("origin"), path, reading];
            let commitment = sha256(&parts);
            let snapshot =
                snapshot.map_or(vec![0], |digest| [&[1], &digest.as_bytes()[..]].concat());
            let context = sha256(&[
                b"C",
                &ID_BYTES,
                &of("crawler"),
                &of("method"),
                &of("ruling"),
                &of("policy"),
            ]);
            let expected = sha256(&[
                b"D",
                &[1, 7],
                &[1, 255],
                &[1, 12],
                commitment.as_bytes(),
                context.as_bytes(),
                &snapshot,
            ]);
            assert_eq!(values.leaf(&mut room), expected);
        }
    }

    // Ours: the same document.
    #[test]
    fn leaves_of_endings_and_events_are_what_the_document_says() {
        let mut room = CanonicalBytes::default();
        let id = RecordId::parse(ID);
        let error = Digest::of(b"error");
        let outcome = OutcomeValues {
            status: Some(200),
            sent: 1,
            directives: None,
            error: Some(error),
        };
        let ending = EndingValues {
            decision: 7,
            seq: 8,
            bytes: 300,
            outcome: outcome.digest(id, &mut room),
        };
        let parts: [&[u8]; 8] = [
            b"O",
            &ID_BYTES,
            &[1],
            &be(200),
            &be(1),
            &[0],
            &[1],
            error.as_bytes(),
        ];
        let outcome = sha256(&parts);
        let parts: [&[u8]; 5] = [b"E", &[1, 7], &[1, 8], &[2, 1, 44], outcome.as_bytes()];
        assert_eq!(ending.leaf(&mut room), sha256(&parts));
        let event = EventValues {
            seq: 9,
            time_us: 1,
            host: b"o.test",
            kind: b"k",
            status: None,
            until_us: 2,
            incidents: 3,
            actor: None,
            reason: Some(b"r"),
            sent: Some(4),
            detail: Some(b"{}"),
        };
        let parts: [&[u8]; 15] = [
            b"V",
            &ID_BYTES,
            &be(9),
            &be(1),
            b"\0\0\0\x06",
            b"o.test",
            b"\0\0\0\x01k",
            &[0],
            &be(2),
            &be(3),
            &[0],
            b"\x01\0\0\0\x01r",
            &[1],
            &be(4),
            b"\x01\0\0\0\x02{}",
        ];
        assert_eq!(event.leaf(id, &mut room), sha256(&parts));
        let lost = LostRange {
            first: 3,
            last: 5,
            time_us: 4,
        };
        let parts: [&[u8]; 5] = [b"L", &ID_BYTES, &be(3), &be(5), &be(4)];
        assert_eq!(lost.digest(id), sha256(&parts));
        let parts: [&[u8]; 3] = [b"N", &ID_BYTES, &be(5)];
        assert_eq!(numbers_digest(id, 5), sha256(&parts));
    }
}
