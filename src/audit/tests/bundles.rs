//! Bundles: what is proved by one, and what is found in one that was changed.

use std::fs::File;
use std::io::{Cursor, Write as _};

use super::*;
use crate::audit::bundle::zip::{ZipReader, ZipWriter};
use crate::audit::bundle::{
    BundleError, BundleReport, BundleVerification, verify_bundle, write_bundle,
};
use crate::audit::note::{NoteKey, NoteSigner};

/// Bytes that a file of a bundle may have here.
const LONG: u64 = 1 << 20;

/// Returns a sealed record of decisions of each kind, one of them without an end.
async fn sealed() -> Kit {
    let kit = one_of_each().await;
    for path in ["/private/\u{2e}/x?y=1", "/a", "/private"] {
        let (_, ending) = kit.log.record(record(path)).await.unwrap();
        ending.complete(done(200));
    }
    kit.log.probe().await.unwrap();
    let folder = kit.closed().await;
    Kit::reopened(folder, Durability::Commit, 16)
}

/// Makes a report of all facts.
fn report(facts: &BundleReport) -> String {
    format!("{facts:?}\n")
}

fn bundle_of(kit: &Kit, filter: &DecisionFilter) -> Result<Vec<u8>, BundleError> {
    let mut bytes = Vec::new();
    write_bundle(&kit.reader(), filter, &report, Cursor::new(&mut bytes))?;
    Ok(bytes)
}

/// Files of a bundle, in their order.
type Files = Vec<(String, Vec<u8>)>;

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn unpack(bytes: &[u8]) -> Files {
    let zip = ZipReader::open(file_of(bytes)).unwrap();
    let read = |name: &str| (name.to_owned(), zip.read(name, LONG).unwrap());
    zip.names().map(read).collect()
}

fn pack(files: &Files) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut zip = ZipWriter::new(Cursor::new(&mut bytes));
    for (name, content) in files {
        zip.add(name, content).unwrap();
    }
    zip.end().unwrap();
    bytes
}

fn verified(bytes: &[u8], keys: &[NoteKey]) -> Result<(BundleVerification, String), BundleError> {
    let mut found = String::new();
    let sums = verify_bundle(file_of(bytes), keys, &report, |finding| {
        found.push_str(&finding);
        found.push('\n');
    })?;
    Ok((sums, found))
}

/// Returns what is found in a bundle of these files; the error, if it cannot be read.
fn found_in(files: &Files) -> String {
    match verified(&pack(files), &[]) {
        Ok((sums, found)) => {
            assert_eq!(found.lines().count() as u64, sums.mismatches);
            found
        }
        Err(error) => error.to_string(),
    }
}

fn place_of(files: &Files, name: &str) -> usize {
    let is_own = |file: &(String, Vec<u8>)| file.0.starts_with(name);
    files.iter().position(is_own).unwrap()
}

// Ours; docs/handing-over.md.
#[tokio::test]
async fn a_bundle_is_proved_by_the_key_and_consistent_without() {
    let kit = sealed().await;
    let all = kit.rows();
    let bytes = bundle_of(&kit, &DecisionFilter::default()).unwrap();
    let (sums, found) = verified(&bytes, &[]).unwrap();
    assert_eq!(found, "");
    assert_eq!(sums.decisions, all.len() as u64);
    assert_eq!(sums.decided + sums.form_only, sums.decisions);
    assert!(0 < sums.form_only && 0 < sums.robots && !sums.is_signer_known);
    let key: NoteKey = sums.signer.parse().unwrap();
    let (sums, found) = verified(&bytes, &[key]).unwrap();
    assert_eq!((found.as_str(), sums.is_signer_known), ("", true));
    let pkcs8 = NoteSigner::generate().unwrap();
    let other = NoteSigner::from_pkcs8(&sums.head.origin, &pkcs8).unwrap();
    let (sums, found) = verified(&bytes, &[other.key().clone()]).unwrap();
    assert!(found.contains("not signed by a key of --key"), "{found}");
    assert!(!sums.is_signer_known);
}

// Ours: a proof over chosen rows is as good as one over all.
#[tokio::test]
async fn a_bundle_of_some_decisions_is_proved_as_well() {
    let kit = sealed().await;
    let all = kit.rows();
    for row in &all {
        let filter = DecisionFilter {
            verdict: Some(row.ruling.verdict.clone()),
            reason: Some(row.ruling.reason.clone()),
            ..DecisionFilter::default()
        };
        let bytes = bundle_of(&kit, &filter).unwrap();
        let (sums, found) = verified(&bytes, &[]).unwrap();
        assert_eq!(found, "");
        assert!(sums.decisions < all.len() as u64);
    }
    let none = DecisionFilter {
        host: Some("q.test".to_owned()),
        ..DecisionFilter::default()
    };
    assert!(matches!(bundle_of(&kit, &none), Err(BundleError::Empty(_))));
}

// Ours: what no head covers is not handed over as proved.
#[tokio::test]
async fn decisions_behind_the_newest_head_are_left_out() {
    let kit = Kit::new(Durability::Commit, 16);
    let (_, ending) = kit.log.record(record("/a")).await.unwrap();
    let open = DecisionFilter::default();
    assert!(matches!(bundle_of(&kit, &open), Err(BundleError::Unsealed)));
    drop(ending);
    let kit = Kit::reopened(kit.closed().await, Durability::Commit, 16);
    kit.log
        .record(record("/b"))
        .await
        .unwrap()
        .1
        .complete(done(200));
    kit.log.probe().await.unwrap();
    let mut bytes = Vec::new();
    let made = write_bundle(&kit.reader(), &open, &report, Cursor::new(&mut bytes)).unwrap();
    assert_eq!((made.decisions, made.unsealed), (1, 1));
    assert_eq!(verified(&bytes, &[]).unwrap().1, "");
}

// Ours: a bundle that is handed over holds.
#[tokio::test]
async fn no_bundle_is_made_of_a_record_that_was_changed() {
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

// Ours: each byte of each file, with the checksums of the archive made right.
#[tokio::test]
async fn no_changed_byte_of_any_file_stays_unfound() {
    let kit = sealed().await;
    let whole = unpack(&bundle_of(&kit, &DecisionFilter::default()).unwrap());
    assert_eq!(found_in(&whole), "");
    for (place, (name, content)) in whole.iter().enumerate() {
        // Each verification takes some milliseconds.
        let step = if content.len() < 500 { 3 } else { 29 };
        for at in (0..content.len()).step_by(step) {
            let mut files = whole.clone();
            files[place].1[at] ^= 1 << (at % 7);
            assert_ne!(found_in(&files), "", "{name}, byte {at}");
        }
    }
}

/// Defines a test: a change to the files of a bundle is found.
macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident: $change:expr => $told:literal;)+) => {$(
        $(#[$doc])*
        #[tokio::test]
        async fn $name() {
            let kit = sealed().await;
            let mut files = unpack(&bundle_of(&kit, &DecisionFilter::default()).unwrap());
            let change: fn(&mut Files) = $change;
            change(&mut files);
            let found = found_in(&files);
            assert!(found.contains($told), "{found}");
        }
    )+};
}

/// Changes the lines of the rows.
fn with_rows(files: &mut Files, change: impl FnOnce(&mut Vec<String>)) {
    let place = place_of(files, "rows.jsonl");
    let text = String::from_utf8(files[place].1.clone()).unwrap();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    files[place].1 = format!("{}\n", lines.join("\n")).into_bytes();
}

fn replace_in_rows(files: &mut Files, old: &str, new: &str) {
    with_rows(files, |lines| {
        let line = lines.iter_mut().find(|line| line.contains(old)).unwrap();
        *line = line.replace(old, new);
    });
}

changes! {
    // The hashes do not fit either; the finding names the row.
    a_verdict_that_does_not_follow_is_found: |files| {
        replace_in_rows(files, "\"ruling\",\"columns\":[\"disallow\",\"rule\"", "\"ruling\",\"columns\":[\"allow\",\"rule\"");
    } => "the row says allow rule";
    another_path_is_found: |files| replace_in_rows(files, "\"path\":\"/a\"", "\"path\":\"/b\"") => "do not lead to the root";
    another_client_is_found: |files| replace_in_rows(files, "127.0.0.1", "127.0.0.2") => "do not lead to the root";
    another_status_is_found: |files| replace_in_rows(files, "\"status\":200", "\"status\":201") => "do not lead to the root";
    a_row_that_is_gone_is_found: |files| with_rows(files, |lines| drop(lines.pop())) => "do not lead to the root";
    a_row_that_occurs_twice_is_found: |files| with_rows(files, |lines| {
        lines.push(lines.last().unwrap().clone());
    }) => "not behind the row before it";
    rows_that_were_swapped_are_found: |files| with_rows(files, |lines| {
        let last = lines.len() - 1;
        lines.swap(last, last - 1);
    }) => "line";
    an_ending_that_is_gone_is_found: |files| with_rows(files, |lines| {
        let line = lines.last_mut().unwrap();
        let end = line.find("\"ending\":").unwrap();
        line.replace_range(end.., "\"ending\":null}");
    }) => "do not lead to the root";
    a_value_that_nothing_refers_to_is_found: |files| with_rows(files, |lines| {
        let values = lines.iter().filter(|line| line.starts_with("{\"value\"")).count();
        let line = format!("{{\"value\":{},\"kind\":\"term\",\"columns\":[\"x\"]}}", values + 1);
        lines.push(line);
    }) => "no decision refers to 1 of the values";
    a_value_of_another_type_is_refused: |files| replace_in_rows(files, "\"kind\":\"term\",\"columns\":[\"GET\"]", "\"kind\":\"term\",\"columns\":[7]") => "the value is none that is written";
    a_robots_txt_of_other_bytes_is_found: |files| {
        let place = place_of(files, "robots/");
        files[place].1.push(b'#');
    } => "the file has another SHA-256";
    a_robots_txt_that_is_gone_is_found: |files| {
        let place = place_of(files, "robots/");
        files.remove(place);
    } => "cannot be decided again";
    a_file_more_is_found: |files| files.push(("more.txt".to_owned(), Vec::new())) => "more.txt: no decision rests on this file";
    a_report_of_other_numbers_is_found: |files| {
        let place = place_of(files, "report.html");
        files[place].1.push(b'\n');
    } => "report.html: the text is another";
    a_hash_more_is_found: |files| {
        let place = place_of(files, "proof.txt");
        let line = format!("{}\n", Digest::of(b""));
        files[place].1.extend(line.as_bytes());
    } => "do not lead to the root";
    a_head_that_is_gone_is_told: |files| {
        let place = place_of(files, "head.txt");
        files.remove(place);
    } => "head.txt is not in it";
    rows_without_an_end_are_refused: |files| {
        let place = place_of(files, "rows.jsonl");
        files[place].1.pop();
    } => "it is too long, or has no end";
    a_reference_to_nothing_is_found: |files| {
        replace_in_rows(files, "\"client\":1,", "\"client\":-9223372036854775808,");
    } => "the row refers to what is not there";
    a_number_of_no_entry_is_found: |files| {
        replace_in_rows(files, "\"ending\":{\"seq\":", "\"ending\":{\"seq\":-");
    } => "do not lead to the root";
    a_later_form_is_refused: |files| replace_in_rows(files, "{\"bundle\":1", "{\"bundle\":2") => "newer";
}
