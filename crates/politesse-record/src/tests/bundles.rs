//! Bundles: what a bundle proves, and the findings about altered ones.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::*;
use crate::bundle::{BundleError, BundleSums, BundleVerification, verify_bundle, write_bundle};
use crate::note::{NoteKey, NoteSigner, SignedNote};

/// Returns a sealed record with decisions of each kind.
async fn sealed() -> Kit {
    let kit = one_of_each().await;
    for path in ["/private/\u{2e}/x?y=1", "/a", "/private"] {
        let (_, ending) = kit.log.record(record(path)).await.unwrap();
        ending.complete(done(200));
    }
    kit.log.probe().await.unwrap();
    let folder = kit.closed().await;
    Kit::reopened(folder, 16)
}

pub(super) fn bundle_of(kit: &Kit, filter: &DecisionFilter) -> Result<Vec<u8>, BundleError> {
    let mut bytes = Vec::new();
    write_bundle(&kit.reader(), filter, &mut bytes)?;
    Ok(bytes)
}

pub(super) fn verified_bundle(
    bytes: &[u8],
    keys: &[NoteKey],
) -> Result<(BundleVerification, String), BundleError> {
    let mut found = String::new();
    let sums = verify_bundle(bytes, keys, |finding| {
        found.push_str(&finding);
        found.push('\n');
    })?;
    Ok((sums, found))
}

fn unpack(bytes: &[u8]) -> String {
    let mut text = String::new();
    MultiGzDecoder::new(bytes)
        .read_to_string(&mut text)
        .unwrap();
    text
}

fn pack(text: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(text).unwrap();
    packer.finish().unwrap()
}

/// Returns the lines of a bundle of all decisions, except the last line.
fn lines_of(kit: &Kit) -> Vec<String> {
    let text = unpack(&bundle_of(kit, &DecisionFilter::default()).unwrap());
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    assert!(lines.pop().unwrap().starts_with("{\"sha256\":"));
    lines
}

/// Packs lines, and adds a matching last line.
fn pack_lines(lines: &[String]) -> Vec<u8> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let sha256 = Digest::of(text.as_bytes());
    pack(format!("{text}{{\"sha256\":\"{sha256}\"}}\n").as_bytes())
}

/// Returns the findings about a packed bundle, or the error if it cannot be read.
fn found_in(bytes: &[u8]) -> String {
    match verified_bundle(bytes, &[]) {
        Ok((sums, found)) => {
            assert_eq!(found.lines().count() as u64, sums.mismatches);
            found
        }
        Err(error) => error.to_string(),
    }
}

fn place_of(lines: &[String], kind: &str) -> usize {
    let begin = format!("{{\"{kind}\":");
    let is_own = |line: &String| line.starts_with(&begin);
    lines.iter().position(is_own).unwrap()
}

// Ours; docs/handing-over.md.
#[tokio::test]
async fn a_bundle_is_consistent_without_a_key_and_proved_by_the_right_one() {
    let kit = sealed().await;
    let all = kit.rows();
    let bytes = bundle_of(&kit, &DecisionFilter::default()).unwrap();
    let (sums, found) = verified_bundle(&bytes, &[]).unwrap();
    assert_eq!(found, "");
    assert_eq!(sums.sums.decisions, all.len() as u64);
    let BundleSums {
        decided,
        form_only,
        decisions,
        ..
    } = sums.sums;
    assert_eq!(decided + form_only, decisions);
    assert!(0 < form_only && 0 < sums.robots && !sums.is_signer_known);
    let key: NoteKey = sums.signer.parse().unwrap();
    let (sums, found) = verified_bundle(&bytes, &[key]).unwrap();
    assert_eq!((found.as_str(), sums.is_signer_known), ("", true));
    let pkcs8 = NoteSigner::generate().unwrap();
    let other = NoteSigner::from_pkcs8(&sums.head.origin, &pkcs8).unwrap();
    let (sums, found) = verified_bundle(&bytes, &[other.key().clone()]).unwrap();
    assert!(found.contains("not signed by a key of --key"), "{found}");
    assert!(!sums.is_signer_known);
}

// Ours: a proof of some rows is as good as one of all rows.
#[tokio::test]
async fn a_bundle_of_some_decisions_can_be_verified() {
    let kit = sealed().await;
    let all = kit.rows();
    for row in &all {
        let filter = DecisionFilter {
            verdict: Some(row.ruling.verdict.clone()),
            reason: Some(row.ruling.reason.clone()),
            ..DecisionFilter::default()
        };
        let bytes = bundle_of(&kit, &filter).unwrap();
        let (sums, found) = verified_bundle(&bytes, &[]).unwrap();
        assert_eq!(found, "");
        assert!(sums.sums.decisions < all.len() as u64);
    }
    let none = DecisionFilter {
        host: Some("q.test".to_owned()),
        ..DecisionFilter::default()
    };
    assert!(matches!(bundle_of(&kit, &none), Err(BundleError::Empty(_))));
}

// Ours: decisions that no head covers are not handed over as proved.
#[tokio::test]
async fn decisions_after_the_newest_head_are_left_out() {
    let kit = Kit::new(16);
    let (_, ending) = kit.log.record(record("/a")).await.unwrap();
    let open = DecisionFilter::default();
    assert!(matches!(bundle_of(&kit, &open), Err(BundleError::Unsealed)));
    drop(ending);
    let kit = Kit::reopened(kit.closed().await, 16);
    kit.log
        .record(record("/b"))
        .await
        .unwrap()
        .1
        .complete(done(200));
    kit.log.probe().await.unwrap();
    let mut bytes = Vec::new();
    let made = write_bundle(&kit.reader(), &open, &mut bytes).unwrap();
    assert_eq!((made.decisions, made.unsealed), (1, 1));
    assert_eq!(verified_bundle(&bytes, &[]).unwrap().1, "");
}

// Ours: every bundle that is handed over can be verified.
#[tokio::test]
async fn no_bundle_is_made_of_an_altered_record() {
    let open = DecisionFilter::default();
    for change in [
        "UPDATE decision SET path = '/c' WHERE path = '/a'",
        "UPDATE ending SET status = 201 WHERE status = 200",
        "DELETE FROM body",
        "DELETE FROM ruling WHERE verdict = 'disallow'",
        "UPDATE decision SET leaf = randomblob(32) WHERE path = '/a'",
        "DELETE FROM decision WHERE path = '/a'",
        "DELETE FROM seal; DELETE FROM ending",
    ] {
        let kit = sealed().await;
        kit.sql(&format!("PRAGMA foreign_keys = OFF; {change}"));
        assert!(bundle_of(&kit, &open).is_err(), "{change}");
    }
}

// Ours: samples bytes of every line.
#[tokio::test]
async fn a_changed_byte_is_found() {
    let kit = sealed().await;
    let bytes = bundle_of(&kit, &DecisionFilter::default()).unwrap();
    assert_eq!(found_in(&bytes), "");
    let whole = unpack(&bytes);
    for at in (0..whole.len()).step_by(17) {
        let mut text = whole.clone().into_bytes();
        text[at] ^= 1 << (at % 7);
        assert_ne!(found_in(&pack(&text)), "", "byte {at}");
    }
}

// Ours: the last line is not a proof, because anyone can compute it.
#[tokio::test]
async fn a_changed_byte_is_found_even_if_the_last_line_matches() {
    let kit = sealed().await;
    let whole = lines_of(&kit);
    assert_eq!(found_in(&pack_lines(&whole)), "");
    // The header is not proved: neither the time of the bundle nor its filter.
    for (place, line) in whole.iter().enumerate().skip(1) {
        for at in (0..line.len()).step_by(29) {
            let mut bytes = line.clone().into_bytes();
            bytes[at] ^= 1 << (at % 7);
            let Ok(text) = String::from_utf8(bytes) else {
                continue;
            };
            let mut lines = whole.clone();
            lines[place] = text;
            assert_ne!(found_in(&pack_lines(&lines)), "", "{line}, byte {at}");
        }
    }
}

// Ours.
#[tokio::test]
async fn a_missing_repeated_or_foreign_line_is_found() {
    let (kit, other) = (sealed().await, sealed().await);
    let (whole, strange) = (lines_of(&kit), lines_of(&other));
    for place in 0..whole.len() {
        let line = &whole[place];
        let mut lines = whole.clone();
        lines.remove(place);
        assert_ne!(found_in(&pack_lines(&lines)), "", "{line} is gone");
        lines = whole.clone();
        lines.insert(place, line.clone());
        assert_ne!(found_in(&pack_lines(&lines)), "", "{line} is there twice");
        let is_strange = |other: &&String| !whole.contains(other);
        let Some(other) = strange.get(place).filter(is_strange) else {
            continue;
        };
        lines = whole.clone();
        lines[place].clone_from(other);
        assert_ne!(found_in(&pack_lines(&lines)), "", "{other} is there");
    }
}

// Ours: only a key from another source distinguishes the record from a forgery.
#[tokio::test]
async fn a_bundle_signed_by_another_key_is_found_with_the_right_key() {
    let kit = sealed().await;
    let whole = lines_of(&kit);
    let (head, key) = (place_of(&whole, "head"), place_of(&whole, "key"));
    let own: serde_json::Value = serde_json::from_str(&whole[head]).unwrap();
    let note: SignedNote = own["head"].as_str().unwrap().parse().unwrap();
    let name = note.text().lines().next().unwrap();
    let forger = NoteSigner::from_pkcs8(name, &NoteSigner::generate().unwrap()).unwrap();
    let forged = forger.sign(note.text()).to_string();
    let mut lines = whole.clone();
    lines[head] = serde_json::json!({ "head": forged }).to_string();
    lines[head] = lines[head].replace('\u{2014}', "\\u2014");
    assert!(found_in(&pack_lines(&lines)).contains("not signed by the key in the bundle"));
    lines[key] = serde_json::json!({ "key": forger.key().to_string() }).to_string();
    let bytes = pack_lines(&lines);
    assert_eq!(found_in(&bytes), "");
    let real: serde_json::Value = serde_json::from_str(&whole[key]).unwrap();
    let real: NoteKey = real["key"].as_str().unwrap().parse().unwrap();
    let (sums, found) = verified_bundle(&bytes, &[real]).unwrap();
    assert!(found.contains("not signed by a key of --key"), "{found}");
    assert!(!sums.is_signer_known);
}

// Ours: a file from an untrusted source costs little before it is refused.
#[tokio::test]
async fn a_decompression_bomb_is_refused() {
    let kit = sealed().await;
    let mut text = lines_of(&kit)[0].clone().into_bytes();
    text.push(b'\n');
    text.resize(40 << 20, b' ');
    let packed = pack(&text);
    assert!(packed.len() < 1 << 20);
    assert!(found_in(&packed).contains("at most 32 MiB in a line"));
}

// RFC 1952, section 2.2: a file may have several members.
#[tokio::test]
async fn a_bundle_in_several_gzip_members_is_read_whole() {
    let kit = sealed().await;
    let text = unpack(&bundle_of(&kit, &DecisionFilter::default()).unwrap());
    let (first, second) = text.split_at(text.len() / 2);
    let members = [pack(first.as_bytes()), pack(second.as_bytes())].concat();
    assert_eq!(found_in(&members), "");
    let more = [pack(text.as_bytes()), pack(b"more\n")].concat();
    assert!(found_in(&more).contains("it is malformed"));
    let garbage = [&pack(text.as_bytes())[..], b"PK"].concat();
    assert_ne!(found_in(&garbage), "");
    let cut = pack(text.as_bytes());
    assert_ne!(found_in(&cut[..cut.len() - 9]), "");
    assert_ne!(found_in(b""), "");
}

/// Defines tests: a change to the lines of a bundle, and part of the finding.
macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident: $change:expr => $told:literal;)+) => {$(
        $(#[$doc])*
        #[tokio::test]
        async fn $name() {
            let kit = sealed().await;
            let mut lines = lines_of(&kit);
            let change: fn(&mut Vec<String>) = $change;
            change(&mut lines);
            let found = found_in(&pack_lines(&lines));
            assert!(found.contains($told), "{found}");
        }
    )+};
}

fn replace(lines: &mut [String], old: &str, new: &str) {
    let line = lines.iter_mut().find(|line| line.contains(old)).unwrap();
    *line = line.replace(old, new);
}

/// Returns the index of the last decision.
fn last_decision(lines: &[String]) -> usize {
    let is_decision = |line: &String| line.starts_with("{\"decision\":");
    lines.iter().rposition(is_decision).unwrap()
}

changes! {
    // The hashes do not match either, but the finding names the row.
    a_verdict_that_does_not_follow_is_found: |lines| {
        replace(lines, "\"ruling\",\"columns\":[\"disallow\",\"rule\"", "\"ruling\",\"columns\":[\"allow\",\"rule\"");
    } => "the row says allow rule";
    another_path_is_found: |lines| replace(lines, "\"path\":\"/a\"", "\"path\":\"/b\"") => "do not lead to the root";
    another_client_is_found: |lines| replace(lines, "127.0.0.1", "127.0.0.2") => "do not lead to the root";
    another_status_is_found: |lines| replace(lines, "\"status\":200", "\"status\":201") => "do not lead to the root";
    a_missing_row_is_found: |lines| drop(lines.remove(last_decision(lines))) => "do not lead to the root";
    a_row_that_occurs_twice_is_found: |lines| {
        let place = last_decision(lines);
        lines.insert(place, lines[place].clone());
    } => "not after the decision before it";
    swapped_rows_are_found: |lines| {
        let place = last_decision(lines);
        lines.swap(place, place - 1);
    } => "line";
    a_missing_ending_is_found: |lines| {
        let place = last_decision(lines);
        let end = lines[place].find("\"ending\":").unwrap();
        lines[place].replace_range(end.., "\"ending\":null}}");
    } => "do not lead to the root";
    an_unused_value_is_found: |lines| {
        let values = lines.iter().filter(|line| line.starts_with("{\"value\"")).count();
        let line = format!("{{\"value\":{{\"number\":{},\"kind\":\"term\",\"columns\":[\"x\"]}}}}", values + 1);
        lines.insert(last_decision(lines), line);
    } => "no decision refers to 1 of the values";
    a_value_of_another_type_is_refused: |lines| replace(lines, "\"kind\":\"term\",\"columns\":[\"GET\"]", "\"kind\":\"term\",\"columns\":[7]") => "the record writes no such value";
    a_robots_txt_of_other_bytes_is_found: |lines| {
        let place = place_of(lines, "robots");
        replace(&mut lines[place..], "\"body\":\"VXNl", "\"body\":\"dXNl");
    } => "the body has another SHA-256";
    a_missing_robots_txt_is_found: |lines| {
        lines.remove(place_of(lines, "robots"));
    } => "cannot be decided again";
    an_extra_robots_txt_is_found: |lines| {
        let line = format!("{{\"robots\":{{\"sha256\":\"{}\",\"body\":\"\"}}}}", Digest::of(b""));
        lines.insert(last_decision(lines), line);
    } => "no decision rests on it";
    an_extra_hash_is_found: |lines| {
        let line = format!("{{\"hash\":\"{}\"}}", Digest::of(b""));
        lines.insert(place_of(lines, "head"), line);
    } => "do not lead to the root";
    a_missing_head_is_reported: |lines| drop(lines.remove(place_of(lines, "head"))) => "it is out of place";
    lines_that_end_early_are_refused: |lines| lines.truncate(3) => "it is out of place";
    a_reference_to_nothing_is_found: |lines| {
        replace(lines, "\"client\":1,", "\"client\":-9223372036854775808,");
    } => "the row refers to what is not there";
    a_number_without_an_entry_is_found: |lines| {
        replace(lines, "\"ending\":{\"seq\":", "\"ending\":{\"seq\":-");
    } => "do not lead to the root";
    another_record_is_found: |lines| {
        let (line, _) = lines.split_first_mut().unwrap();
        let at = line.find("\"record\":\"").unwrap() + 10;
        line.replace_range(at..at + 32, &"0".repeat(32));
    } => "the head is that of another record";
    a_host_that_was_not_asked_for_is_found: |lines| {
        replace(lines, "\"host\":null", "\"host\":\"q.test\"");
    } => "does not meet the conditions of the first line";
    a_time_that_was_not_asked_for_is_found: |lines| {
        replace(lines, "\"until\":null", "\"until\":\"2001-01-01T00:00:00Z\"");
    } => "does not meet the conditions of the first line";
    a_later_version_is_refused: |lines| replace(lines, "{\"version\":1", "{\"version\":2") => "newer";
}
