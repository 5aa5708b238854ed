//! Redaction: what remains of a decision, what can still be proved, and what is
//! reported.

use std::fs;

use rusqlite::types::Value;

use super::super::dictionary::ORIGINS;
use super::super::redaction::RedactionRequest;
use super::super::removal_order::OrderReason;
use super::bundles::{bundle_of, verified_bundle};
use super::retention::{count, fill_up_to, long_record, prune, verified};
use super::seals::{heads_of, outside, sealed_every};
use super::*;
use crate::seal_check::SealEvidence;
use crate::stats::{StatGroup, StatKey, StatOrder, stats};
use crate::verify::verify_with;
use politesse_decision::digest::CanonicalBytes;

/// Part of a URL that occurs nowhere else.
const SECRET: &str = "secret-of-somebody";

/// Number of decisions with [`SECRET`] in their URL.
const SECRETS: u64 = 4;

fn why(why: &str) -> OrderReason {
    OrderReason {
        why: why.to_owned(),
        user: None,
    }
}

fn request(url: &str) -> RedactionRequest {
    RedactionRequest {
        url: Some(url.to_owned()),
        reason: why("a test"),
        ..RedactionRequest::default()
    }
}

/// Returns a request for the decisions with [`SECRET`].
fn secrets() -> RedactionRequest {
    request(&format!("http://o.test/private/{SECRET}*"))
}

/// Returns a log of ten decisions, and its newest head.
async fn sealed() -> (Kit, SealEvidence) {
    let folder = tempfile::tempdir().unwrap();
    let options = sealed_every(folder.path(), 4);
    let kit = Kit::with(folder, &options);
    for number in 0..10 {
        let path = match number % 3 {
            0 => format!("/private/{SECRET}/{number}"),
            _ => format!("/open/{number}"),
        };
        let (_, ending) = kit.log.record(record(&path)).await.unwrap();
        ending.complete(done(200));
    }
    kit.log.probe().await.unwrap();
    let folder = kit.closed().await;
    let heads = heads_of(&Connection::open(file(folder.path())).unwrap());
    let evidence = outside(heads.last().unwrap());
    (Kit::reopened(folder, 64), evidence)
}

/// Reports whether [`SECRET`] is in the database file or its WAL.
fn has_secret(kit: &Kit) -> bool {
    let path = kit.path();
    let wal = path.with_extension("db-wal");
    [path, wal].into_iter().any(|path| {
        let bytes = fs::read(path).unwrap_or_default();
        let mut windows = bytes.windows(SECRET.len());
        windows.any(|window| window == SECRET.as_bytes())
    })
}

async fn redact(kit: &Kit, mut request: RedactionRequest) -> u64 {
    let mut count = 0;
    loop {
        let step = kit.log.redact(request.clone(), "test".to_owned()).await;
        let step = step.unwrap();
        count += step.count;
        match step.after {
            Some(after) => request.after = after,
            None => break,
        }
    }
    kit.log.settled().await.unwrap();
    count
}

fn found(kit: &Kit, evidence: &SealEvidence) -> (Verification, Vec<String>) {
    let mut found = Vec::new();
    let all = DecisionFilter::default();
    let add = |finding| found.push(finding);
    let sums = verify_with(&kit.reader(), &all, evidence, add).unwrap();
    (sums, found)
}

// Ours: URLs and addresses can be redacted, and the proofs stay valid.
#[tokio::test]
async fn proofs_are_valid_after_a_redaction() {
    let (kit, evidence) = sealed().await;
    let trial = RedactionRequest {
        is_trial: true,
        ..secrets()
    };
    assert_eq!(redact(&kit, trial).await, SECRETS);
    assert_eq!(found(&kit, &evidence).0.redacted, 0);
    assert_eq!(redact(&kit, secrets()).await, SECRETS);
    let (sums, findings) = found(&kit, &evidence);
    assert_eq!(findings, Vec::<String>::new());
    assert_eq!(
        (sums.redacted, sums.decided, sums.seals.outside),
        (SECRETS, 6, 1)
    );
    let redacted: Vec<_> = kit
        .rows()
        .into_iter()
        .filter(StoredRecord::is_redacted)
        .collect();
    assert_eq!(redacted.len() as u64, SECRETS);
    for row in &redacted {
        assert_eq!(row.client.address, StoredRecord::REDACTED);
        assert_eq!(row.ruling.verdict, "disallow");
    }
    // Redacted decisions are not redacted again.
    assert_eq!(redact(&kit, secrets()).await, 0);
}

// Ours: the URL is neither in the file nor in its WAL.
#[tokio::test]
async fn no_byte_of_a_redacted_url_is_left() {
    let (kit, _) = sealed().await;
    assert!(has_secret(&kit));
    redact(&kit, secrets()).await;
    assert!(!has_secret(&kit));
}

// Ours: an address that no decision refers to any more is removed too.
#[tokio::test]
async fn a_client_without_decisions_is_removed() {
    let (kit, evidence) = sealed().await;
    let client = RedactionRequest {
        client: Some("127.0.0.1".to_owned()),
        reason: why("a test"),
        ..RedactionRequest::default()
    };
    assert_eq!(redact(&kit, client).await, 10);
    let connection = Connection::open(kit.path()).unwrap();
    let sql = "SELECT count(*) FROM client";
    let left: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
    assert_eq!(found(&kit, &evidence).1, Vec::<String>::new());
    // The next decision adds the address again.
    let (_, ending) = kit.log.record(record("/again")).await.unwrap();
    ending.complete(done(200));
    kit.log.probe().await.unwrap();
    assert_eq!(found(&kit, &evidence).1, Vec::<String>::new());
}

// Ours: a crash may come before the search for unused values, which is then made up
// for once.
#[tokio::test]
async fn unused_values_are_searched_for_after_a_crash() {
    let (kit, evidence) = sealed().await;
    redact(&kit, secrets()).await;
    let count = |kit: &Kit, table: &str| -> i64 {
        let connection = Connection::open(kit.path()).unwrap();
        let sql = format!("SELECT count(*) FROM {table}");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count(&kit, "unused_value"), 0);
    let folder = kit.closed().await;
    let add = "INSERT INTO client (address, sha256) VALUES ('192.0.2.1', zeroblob(32))";
    let reopened = |folder: TempDir, sql: &str| {
        let connection = Connection::open(file(folder.path())).unwrap();
        connection.execute_batch(sql).unwrap();
        drop(connection);
        Kit::reopened(folder, 64)
    };
    // Without the mark, no search takes place.
    let kit = reopened(folder, add);
    kit.log.settled().await.unwrap();
    assert_eq!(count(&kit, "client"), 2);
    // As a crash leaves the record.
    let kit = reopened(kit.closed().await, "INSERT INTO unused_value VALUES (1)");
    kit.log.settled().await.unwrap();
    assert_eq!(count(&kit, "client"), 1);
    assert_eq!(count(&kit, "unused_value"), 0);
    assert_eq!(found(&kit, &evidence).1, Vec::<String>::new());
}

// Ours: a row that someone else redacted, or changed afterwards, is found.
#[tokio::test]
async fn a_redaction_without_an_order_is_found() {
    let (kit, evidence) = sealed().await;
    redact(&kit, secrets()).await;
    let folder = kit.closed().await;
    let path = file(folder.path());
    let bytes = fs::read(&path).unwrap();
    let columns = ["http://o.test", "evil.test"].map(|text| Value::from(text.to_owned()));
    let sha256 = ORIGINS.digest_of(&columns, &mut CanonicalBytes::default());
    let moved = format!(
        "INSERT INTO origin (origin, host, sha256) VALUES ('http://o.test', 'evil.test', x'{sha256}');
         UPDATE decision SET origin = last_insert_rowid() WHERE client = 0"
    );
    for (change, wanted) in [
        (
            // The host is used to search and count decisions.
            &*moved,
            "the row is not as it was written",
        ),
        (
            // The rows are right, but their order is missing.
            "DELETE FROM event WHERE kind = 'redacted'",
            "no event says by whose order",
        ),
        (
            "UPDATE event SET detail = replace(detail, 'a test', 'b test') WHERE kind = 'redacted'",
            "not as it was written",
        ),
        (
            "UPDATE decision SET salt = zeroblob(32) WHERE client = 0",
            "the row is not as it was written",
        ),
        (
            "UPDATE decision SET path = '/other' WHERE client = 0",
            "the row is not as it was written",
        ),
        (
            "INSERT INTO origin (origin, host, sha256) VALUES ('http://a.test', 'a.test', x'00');
             UPDATE decision SET origin = last_insert_rowid() WHERE client = 0",
            "the row is not as it was written",
        ),
        (
            "UPDATE decision SET salt = randomblob(32), client = 0, origin = 0, path = '',
               reading = NULL WHERE client != 0",
            "the row is not as it was written",
        ),
    ] {
        fs::write(&path, &bytes).unwrap();
        Connection::open(&path)
            .unwrap()
            .execute_batch(change)
            .unwrap();
        let reader = AuditReader::open(&path).unwrap();
        let mut found = Vec::new();
        let all = DecisionFilter::default();
        verify_with(&reader, &all, &evidence, |finding| found.push(finding)).unwrap();
        assert!(
            found.iter().any(|finding| finding.contains(wanted)),
            "{change}: {found:?}"
        );
    }
}

// Ours: sums and searches match the remaining data.
#[tokio::test]
async fn completed_parts_are_summed_up_again_after_a_redaction() {
    let kit = long_record().await;
    let before = kit.reader().count(&DecisionFilter::default()).unwrap();
    let hosts = by_host(&kit);
    // After the first decision, which is about another host than its snapshot.
    let chosen: Vec<_> = (10..3000).collect();
    assert!(1000 < redact(&kit, numbers(&chosen)).await);
    let (sums, findings) = found(&kit, &SealEvidence::default());
    assert_eq!(findings, Vec::<String>::new());
    assert!(1000 < sums.redacted);
    assert_eq!(
        kit.reader().count(&DecisionFilter::default()).unwrap(),
        before
    );
    assert_eq!(by_host(&kit), hosts);
}

/// Counts the decisions of [`long_record`] by host.
fn by_host(kit: &Kit) -> Vec<StatGroup> {
    let all = DecisionFilter::default();
    stats(&kit.reader(), &all, &[StatKey::Host], StatOrder::Requests).unwrap()
}

fn numbers(numbers: &[u64]) -> RedactionRequest {
    RedactionRequest {
        numbers: numbers.to_vec(),
        reason: why("a test"),
        ..RedactionRequest::default()
    }
}

// Ours: a late ending is listed only until its part is complete. Afterwards only
// the row of the part includes it.
#[tokio::test]
async fn a_redaction_just_after_a_part_keeps_its_late_endings() {
    let kit = Kit::new(4096);
    let (receipt, late) = kit.log.record(record("/a")).await.unwrap();
    let part = PART_NUMBERS as u64;
    let held = fill_up_to(&kit, part).await;
    late.complete(done(200));
    drop(held);
    let held = fill_up_to(&kit, 2 * part).await;
    // The first event closes the part, and only events come after it.
    assert_eq!(redact(&kit, numbers(&[receipt.seq() + 1])).await, 1);
    assert_eq!(redact(&kit, numbers(&[receipt.seq() + 3])).await, 1);
    drop(held);
    fill_up_to(&kit, 3 * part).await;
    verified(&kit);
}

// Ours: removed entries are no longer counted, even if a part is summed up again.
#[tokio::test]
async fn a_removed_part_is_not_rolled_up_again() {
    let kit = Kit::new(4096);
    let (receipt, open) = kit.log.record(record("/a")).await.unwrap();
    let part = PART_NUMBERS as u64;
    let held = fill_up_to(&kit, part).await;
    assert_eq!(redact(&kit, numbers(&[receipt.seq() + 1])).await, 1);
    assert_eq!(prune(&kit, 9000).await.last, part);
    // The failed write makes the writer forget its sums.
    kit.sql(BREAK);
    kit.log.record(record("/a")).await.unwrap_err();
    kit.sql("DROP TRIGGER broken");
    fill_up_to(&kit, part + 9).await;
    verified(&kit);
    assert_eq!(count(&kit, "SELECT count(*) FROM part WHERE part = 0"), 0);
    drop((open, held));
}

// Ours: docs/handing-over.md.
#[tokio::test]
async fn a_bundle_proves_redacted_rows() {
    let (kit, _) = sealed().await;
    redact(&kit, secrets()).await;
    let bytes = bundle_of(&kit, &DecisionFilter::default()).unwrap();
    let (verification, found) = verified_bundle(&bytes, &[]).unwrap();
    assert_eq!(found, "");
    let sums = verification.sums;
    assert_eq!((sums.redacted, sums.decided), (SECRETS, 6));
}

/// Returns a connection in the middle of a read, which keeps the contents of the
/// WAL there.
fn reading(kit: &Kit) -> Connection {
    let reader = Connection::open(kit.path()).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let decisions = "SELECT count(*) FROM decision";
    let read = reader.query_row(decisions, [], |row| row.get::<_, i64>(0));
    read.unwrap();
    reader
}

/// Waits until the values that only redacted decisions referred to are removed.
async fn values_are_gone(kit: &Kit) {
    while 0 < count(kit, "SELECT count(*) FROM unused_value") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn assert_unsettled(kit: &Kit) {
    let is_settled = timeout(Duration::from_millis(300), kit.log.settled()).await;
    assert!(has_secret(kit) && is_settled.is_err());
}

// Ours: a backup in progress keeps the WAL, and the redaction is complete only when
// the WAL is empty.
#[tokio::test]
async fn a_redaction_is_complete_when_no_reader_keeps_the_wal() {
    let (kit, _) = sealed().await;
    let reader = reading(&kit);
    let step = kit.log.redact(secrets(), "test".to_owned()).await.unwrap();
    assert_eq!((step.count, step.after), (SECRETS, None));
    assert_unsettled(&kit).await;
    drop(reader);
    kit.log.settled().await.unwrap();
    assert!(!has_secret(&kit));
}

// Ours: the next process also waits for the WAL to be emptied.
#[tokio::test]
async fn a_start_continues_to_wait_for_a_reader_that_keeps_the_wal() {
    let (kit, _) = sealed().await;
    let reader = reading(&kit);
    let step = kit.log.redact(secrets(), "test".to_owned()).await.unwrap();
    assert_eq!(step.count, SECRETS);
    values_are_gone(&kit).await;
    let again = Kit::reopened(kit.closed().await, 64);
    assert_unsettled(&again).await;
    drop(reader);
    again.log.settled().await.unwrap();
    assert!(!has_secret(&again));
}

// Ours: data that still exist are never reported as removed.
#[tokio::test]
async fn a_redaction_fails_if_the_file_is_truncated_meanwhile() {
    let (kit, _) = sealed().await;
    let _reader = reading(&kit);
    let step = kit.log.redact(secrets(), "test".to_owned()).await.unwrap();
    assert_eq!(step.count, SECRETS);
    values_are_gone(&kit).await;
    let file = fs::File::options().write(true).open(kit.path()).unwrap();
    file.set_len(4096).unwrap();
    let settled = timeout(Duration::from_secs(20), kit.log.settled()).await;
    assert!(settled.unwrap().is_err());
}

// Ours: the redaction may have been written to files that came back, so its values
// are searched for there, if necessary a minute later.
#[tokio::test(flavor = "multi_thread")]
async fn a_redaction_in_files_that_came_back_is_complete_only_when_the_wal_is_empty() {
    let (kit, _) = sealed().await;
    let lock = Connection::open(kit.path()).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let log = Arc::clone(&kit.log);
    let redacting = tokio::spawn(async move { log.redact(secrets(), "test".to_owned()).await });
    // By then the writer has checked the files, and waits for the lock.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let away = kit.folder.path().join("away");
    fs::rename(kit.path(), &away).unwrap();
    drop(lock);
    redacting.await.unwrap().unwrap_err();
    fs::rename(&away, kit.path()).unwrap();
    assert_eq!(
        count(
            &kit,
            "SELECT count(*) FROM decision WHERE length(salt) = 32"
        ),
        4
    );
    assert!(kit.log.settled().await.is_err() || !has_secret(&kit));
}

// Ours: data that still exist are never reported as redacted.
#[tokio::test]
async fn an_altered_decision_stays_and_is_counted_separately() {
    let (kit, _) = sealed().await;
    kit.sql("UPDATE decision SET path = path || 'x' WHERE seq = 1");
    let step = kit.log.redact(secrets(), "test".to_owned()).await.unwrap();
    assert_eq!((step.count, step.damaged), (SECRETS - 1, 1));
}

// Ours: an invalid salt must not hide a decision that stays.
#[tokio::test]
async fn a_decision_with_an_altered_salt_stays_and_is_counted_separately() {
    let (kit, _) = sealed().await;
    kit.sql("UPDATE decision SET salt = x'00' WHERE seq = 1");
    let step = kit.log.redact(secrets(), "test".to_owned()).await.unwrap();
    assert_eq!((step.count, step.damaged), (SECRETS - 1, 1));
}

// Ours: a decision that retention removed in the meantime is not altered.
#[tokio::test]
async fn a_decision_removed_meanwhile_is_not_counted_as_damaged() {
    let (kit, _) = sealed().await;
    kit.sql(
        "CREATE TRIGGER gone AFTER UPDATE ON decision WHEN NEW.seq = 1
         BEGIN DELETE FROM decision WHERE seq = 1; END",
    );
    let step = kit.log.redact(secrets(), "test".to_owned()).await.unwrap();
    assert_eq!((step.count, step.damaged), (SECRETS, 0));
}
