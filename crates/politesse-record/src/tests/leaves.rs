//! Leaves of entries, compared with the documented encoding.

use jiff::Timestamp;

use crate::dictionary::DictionaryRef;
use crate::entry_rows::{DecisionDigests, DecisionRow, EndingRow};
use crate::events::EventRow;
use crate::joint_digests::{ContextRefs, OutcomeRefs};
use crate::leaf::{PersonalValues, RecordId, SALT_BYTES, numbers_digest};
use crate::sequence::LostRange;
use politesse_decision::digest::{CanonicalBytes, Digest};

/// Hashes parts that are encoded here a second time, from the document.
fn sha256(parts: &[&[u8]]) -> Digest {
    Digest::of(&parts.concat())
}

/// Returns the reference to a value with the digest of `name`.
fn value(name: &str) -> DictionaryRef {
    let sha256 = Digest::of(name.as_bytes());
    DictionaryRef { id: 0, sha256 }
}

fn be(value: i64) -> [u8; 8] {
    value.to_be_bytes()
}

const ID: &str = "000102030405060708090a0b0c0d0e0f";
const ID_BYTES: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

// Ours: docs/decisions/020-thin-record.md, "Leaves".
#[test]
fn the_leaf_of_a_decision_is_as_documented() {
    let digest = |name: &str| Digest::of(name.as_bytes());
    let of = |name: &str| *digest(name).as_bytes();
    let mut room = CanonicalBytes::default();
    for (reading, snapshot) in [(None, None), (Some(&b"/x"[..]), Some(digest("snapshot")))] {
        let context = ContextRefs {
            crawler: value("crawler"),
            method: value("method"),
            ruling: value("ruling"),
            policy: value("policy"),
        };
        let personal = PersonalValues {
            salt: &[9; SALT_BYTES],
            client: digest("client"),
            origin: digest("origin"),
            path: b"/a?b",
            reading,
        };
        let row = DecisionRow {
            seq: 7,
            time_us: -1,
            wait_ms: 12,
            ..DecisionRow::default()
        };
        let digests = DecisionDigests {
            commitment: personal.commitment(&mut room),
            context: context.digest(RecordId::parse(ID), &mut room),
            snapshot,
        };
        let reading: &[u8] = reading.map_or(&[0], |_| b"\x01\0\0\0\x02/x");
        let path = b"\0\0\0\x04/a?b";
        let parts: [&[u8]; 5] = [&[9; 16], &of("client"), &of("origin"), path, reading];
        let commitment = sha256(&parts);
        let snapshot = snapshot.map_or(vec![0], |digest| [&[1], &digest.as_bytes()[..]].concat());
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
        assert_eq!(row.leaf_over(&digests, &mut room), expected);
    }
}

// Ours: docs/decisions/020-thin-record.md, "Leaves".
#[test]
fn the_leaves_of_other_entries_are_as_documented() {
    let mut room = CanonicalBytes::default();
    let id = RecordId::parse(ID);
    let error = value("error");
    let outcome = OutcomeRefs {
        status: Some(200),
        sent: 1,
        directives: None,
        error: Some(error),
    };
    let ending = EndingRow {
        decision: 7,
        seq: 8,
        bytes: 300,
        ..EndingRow::default()
    };
    let leaf = ending.leaf_over(outcome.digest(id, &mut room), &mut room);
    let parts: [&[u8]; 8] = [
        b"O",
        &ID_BYTES,
        &[1],
        &be(200),
        &be(1),
        &[0],
        &[1],
        error.sha256.as_bytes(),
    ];
    let outcome = sha256(&parts);
    let parts: [&[u8]; 5] = [b"E", &[1, 7], &[1, 8], &[2, 1, 44], outcome.as_bytes()];
    assert_eq!(leaf, sha256(&parts));
    let event = EventRow {
        seq: 9,
        at: Timestamp::from_microsecond(1).unwrap(),
        host: "o.test".to_owned(),
        kind: "k".to_owned(),
        status: None,
        until: Timestamp::from_microsecond(2).unwrap(),
        incidents: 3,
        actor: None,
        reason: Some("r".to_owned()),
        sent: Some(4),
        detail: Some("{}".to_owned()),
        leaf: Digest::default(),
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
    assert_eq!(event.leaf_in(id), sha256(&parts));
    let lost = LostRange {
        first: 3,
        last: 5,
        time_us: 4,
        ..LostRange::default()
    };
    let parts: [&[u8]; 5] = [b"L", &ID_BYTES, &be(3), &be(5), &be(4)];
    assert_eq!(lost.digest_in(id), sha256(&parts));
    let parts: [&[u8]; 3] = [b"N", &ID_BYTES, &be(5)];
    assert_eq!(numbers_digest(id, 5), sha256(&parts));
}
