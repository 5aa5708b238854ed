//! Entries that remain where the entries around them were removed: their proofs,
//! and the findings if someone alters them.

use super::super::columns::TableRow as _;
use super::super::entry_rows::{DECISIONS as DECISION_ROWS, DecisionEntry};
use super::super::events::EventRow;
use super::super::leaf::RecordId;
use super::super::redaction::{RedactionRequest, redact_rows};
use super::super::seal_check::SealEvidence;
use super::super::verify::verify_with;
use super::bundles::{bundle_of, verified_bundle};
use super::retention::{DECISIONS, FIRST_URL, count, prune, record_of_url, verified, write};
use super::seals::{heads_of, outside};
use super::*;
use crate::bundle::BundleSums;

/// Decision that was redacted by order before its part was removed.
const REDACTED: i64 = 1;

/// Decision whose exchange is still in progress.
const OPEN: i64 = 2;

/// Event that names [`REDACTED`].
const ORDER: i64 = 3;

/// Highest number removed.
const LAST: i64 = 8192;

/// URL of [`OPEN`].
const OPEN_URL: &str = "http://once.test/private/download";

/// Record with a removed part of which some entries remain, and the ending of the
/// exchange that is still in progress.
struct Remaining {
    kit: Kit,
    ending: RecordEnding,
}

async fn redact(kit: &Kit, number: i64) {
    let request = RedactionRequest {
        numbers: vec![number as u64],
        reason: OrderReason {
            why: "a test".to_owned(),
            user: None,
        },
        ..RedactionRequest::default()
    };
    let step = kit.log.redact(request, "test".to_owned()).await.unwrap();
    assert_eq!(step.count, 1);
    kit.log.settled().await.unwrap();
}

async fn remaining() -> Remaining {
    let kit = Kit::new(4096);
    let (_, redacted) = kit.log.record(record_of_url(FIRST_URL, 0)).await.unwrap();
    let (_, ending) = kit.log.record(record_of_url(OPEN_URL, 0)).await.unwrap();
    kit.log.probe().await.unwrap();
    redact(&kit, REDACTED).await;
    write(&kit, 1..DECISIONS).await;
    drop(redacted);
    write(&kit, DECISIONS..DECISIONS + 1).await;
    assert_eq!(prune(&kit, 5000).await.last, LAST as u64);
    Remaining { kit, ending }
}

fn paths(kit: &Kit) -> Vec<i64> {
    let connection = Connection::open(kit.path()).unwrap();
    let mut statement = connection
        .prepare("SELECT seq FROM leaf_path ORDER BY seq")
        .unwrap();
    let numbers = statement.query_map([], |row| row.get(0)).unwrap();
    numbers.map(Result::unwrap).collect()
}

// Ours: docs/keeping.md.
#[tokio::test]
async fn entries_remain_and_verify_until_their_exchange_is_old_enough() {
    let Remaining { kit, ending } = remaining().await;
    // The last decision of the part has its ending in the next part.
    assert_eq!(paths(&kit), [REDACTED, OPEN, ORDER, LAST]);
    let below = format!(
        "SELECT (SELECT count(*) FROM decision WHERE seq <= {LAST})
           + (SELECT count(*) FROM event WHERE seq <= {LAST})
           + (SELECT count(*) FROM ending WHERE decision <= {LAST} AND seq <= {LAST})"
    );
    assert_eq!(count(&kit, &below), 4);
    let sums = verified(&kit);
    assert_eq!((sums.redacted, sums.removing), (1, 0));
    // The remaining entries may be redacted too.
    redact(&kit, OPEN).await;
    assert_eq!(verified(&kit).redacted, 2);
    drop(ending);
    write(&kit, DECISIONS + 1..2 * DECISIONS).await;
    assert_eq!(verified(&kit).redacted, 2);
    let pruned = prune(&kit, 2 * DECISIONS).await;
    assert!(
        paths(&kit)
            .iter()
            .all(|number| *number == pruned.last as i64)
    );
    assert_eq!(count(&kit, &below), 0);
    verified(&kit);
}

// Ours: an exchange that a crash ended has no ending, and is removed with its part.
#[tokio::test]
async fn an_exchange_of_an_earlier_process_does_not_remain() {
    let Remaining { kit, ending } = remaining().await;
    let folder = kit.closed().await;
    drop(ending);
    let kit = Kit::reopened(folder, 4096);
    assert_eq!(verified(&kit).redacted, 1);
    write(&kit, DECISIONS + 1..2 * DECISIONS).await;
    prune(&kit, 2 * DECISIONS).await;
    assert_eq!(
        count(&kit, "SELECT count(*) FROM decision WHERE seq <= 8192"),
        0
    );
    verified(&kit);
}

/// Changes the decision `seq` with `sql`, and computes its leaf again.
fn forge(path: &Path, seq: i64, sql: &str) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(sql).unwrap();
    let reader = AuditReader::open(path).unwrap();
    let select = format!("{} WHERE d.seq = ?", DECISION_ROWS.select);
    let leaf = reader
        .connection
        .query_row(&select, [seq], |row| {
            let entry = DecisionEntry::read(row)?;
            let leaves = reader.decision_reader().with_leaves(entry)?.1.unwrap();
            Ok(leaves.decision.leaf)
        })
        .unwrap();
    let sql = "UPDATE decision SET leaf = ? WHERE seq = ?";
    let changed = connection.execute(sql, (leaf.as_bytes().as_slice(), seq));
    assert_eq!(changed.unwrap(), 1);
}

/// Redacts `seq` like an order would, but without the event.
fn redact_by_hand(path: &Path, seq: i64) {
    let connection = Connection::open(path).unwrap();
    let redacted = redact_rows(&connection, record_id(path), &[seq]).unwrap();
    assert_eq!(redacted, [seq]);
}

fn record_id(path: &Path) -> RecordId {
    AuditReader::open(path).unwrap().record_id
}

/// Copies the event that ordered a redaction to the number 4, names `seq` in it,
/// and computes its leaf again.
fn forge_order(path: &Path, seq: i64) {
    let connection = Connection::open(path).unwrap();
    let select = format!(
        "{} WHERE seq = {ORDER}",
        super::super::events::EVENTS.select
    );
    let event = connection.query_row(&select, [], EventRow::read).unwrap();
    let forged = EventRow {
        seq: 4,
        detail: event
            .detail
            .map(|detail| detail.replace("[[1,1]]", &format!("[[{seq},{seq}]]"))),
        ..event
    };
    forged.write(&connection, record_id(path)).unwrap();
}

/// Name of a change, the change to a record, and the expected finding.
type Change = (&'static str, Box<dyn FnOnce(&Path)>, String);

/// Returns a change made by SQL.
fn sql(sql: &'static str) -> impl FnOnce(&Path) {
    move |path| {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch(sql).unwrap();
    }
}

/// Copies the record, changes the copy, and returns the findings about it.
fn found_after(
    kit: &Kit,
    evidence: &SealEvidence,
    change: impl FnOnce(&Path),
) -> (Verification, Vec<String>) {
    let path = kit.path().with_file_name("copy.db");
    let _ = std::fs::remove_file(&path);
    kit.sql(&format!("VACUUM INTO '{}'", path.display()));
    change(&path);
    let reader = AuditReader::open(&path).unwrap();
    let mut found = Vec::new();
    let all = DecisionFilter::default();
    let sums = verify_with(&reader, &all, evidence, |finding| found.push(finding)).unwrap();
    (sums, found)
}

// Ours: each change is found, with its place.
#[tokio::test]
async fn a_change_of_a_remaining_entry_is_found() {
    let Remaining {
        kit,
        ending: _ending,
    } = remaining().await;
    let evidence = outside(
        heads_of(&Connection::open(kit.path()).unwrap())
            .last()
            .unwrap(),
    );
    assert_eq!(found_after(&kit, &evidence, |_| {}).1, Vec::<String>::new());
    let unsealed = "this one, or its path in the table leaf_path, is not as it was sealed";
    let changes: [Change; 17] = [
        (
            "a decision deleted",
            Box::new(sql("DELETE FROM decision WHERE seq = 1")),
            "1: no such row, though leaf_path".to_owned(),
        ),
        (
            "with its path",
            Box::new(sql(
                "DELETE FROM decision WHERE seq = 1; DELETE FROM leaf_path WHERE seq = 1",
            )),
            "1: no such row, though its ending".to_owned(),
        ),
        (
            "without an ending, with its path",
            Box::new(sql(
                "DELETE FROM decision WHERE seq = 2; DELETE FROM leaf_path WHERE seq = 2",
            )),
            "8192: the entries up to here that remain".to_owned(),
        ),
        (
            "a decision rewritten",
            Box::new(|path| {
                forge(
                    path,
                    OPEN,
                    "UPDATE decision SET path = '/a', time_us = time_us + 1 WHERE seq = 2",
                );
            }),
            format!("2: entries up to 8192 were removed, and {unsealed}"),
        ),
        (
            "a decision added",
            Box::new(|path| {
                let sql = "INSERT INTO decision SELECT 5, time_us, client, crawler, method, origin,
                             path, ruling, reading, wait_ms, policy, snapshot, salt, leaf
                           FROM decision WHERE seq = 2";
                forge(path, 5, sql);
            }),
            format!("5: entries up to 8192 were removed, and {unsealed}"),
        ),
        (
            "redacted without an event",
            Box::new(|path| redact_by_hand(path, OPEN)),
            "2: client and URL were taken away, and no event".to_owned(),
        ),
        (
            "redacted with an event that was added",
            Box::new(|path| {
                redact_by_hand(path, OPEN);
                forge_order(path, OPEN);
            }),
            format!("4: entries up to 8192 were removed, and {unsealed}"),
        ),
        (
            "an event that was added, as if it were to be removed",
            Box::new(|path| {
                redact_by_hand(path, OPEN);
                forge_order(path, OPEN);
                sql("UPDATE pruned SET is_removed = 0")(path);
            }),
            "2: client and URL were taken away, and no event".to_owned(),
        ),
        (
            "the event changed",
            Box::new(sql(
                "UPDATE event SET detail = replace(detail, 'a test', 'b') WHERE seq = 3",
            )),
            "event 3: the row is not as it was written".to_owned(),
        ),
        (
            "the event deleted",
            Box::new(sql("DELETE FROM event WHERE seq = 3")),
            "1: client and URL were taken away, and no event".to_owned(),
        ),
        (
            "a path deleted, as if the rest were to be removed",
            Box::new(sql(
                "UPDATE pruned SET is_removed = 0; DELETE FROM leaf_path WHERE seq = 1",
            )),
            format!("1: entries up to 8192 were removed, and {unsealed}"),
        ),
        (
            "a path damaged",
            Box::new(sql(
                "UPDATE leaf_path SET path = zeroblob(416) WHERE seq = 2",
            )),
            format!("2: entries up to 8192 were removed, and {unsealed}"),
        ),
        (
            "a path cut",
            Box::new(sql(
                "UPDATE leaf_path SET path = substr(path, 1, 415) WHERE seq = 2",
            )),
            format!("2: entries up to 8192 were removed, and {unsealed}"),
        ),
        (
            "a path of an entry that was not removed",
            Box::new(sql(
                "INSERT INTO leaf_path SELECT 9000, path FROM leaf_path WHERE seq = 2",
            )),
            "9000: the table leaf_path has a path of an entry that was not removed".to_owned(),
        ),
        (
            "the root of the part",
            Box::new(sql("UPDATE subtree SET hash = zeroblob(32) WHERE part = 0")),
            "8192: these entries were removed, and no note".to_owned(),
        ),
        (
            "the note",
            Box::new(sql(
                "UPDATE pruned SET note = replace(note, 'remaining ', 'remaining 0')",
            )),
            "8192: these entries were removed, and no note".to_owned(),
        ),
        (
            "the row",
            Box::new(sql("DELETE FROM pruned")),
            "4 to 8191: no such rows".to_owned(),
        ),
    ];
    for (name, change, wanted) in changes {
        let (_, found) = found_after(&kit, &evidence, change);
        let is_wanted = |finding: &String| finding.contains(&wanted);
        assert!(found.iter().any(is_wanted), "{name}: {wanted}: {found:#?}");
    }
}

// Ours: the state after a crash. Entries to be removed prove nothing, and are not
// findings.
#[tokio::test]
async fn entries_being_removed_are_not_checked() {
    let Remaining {
        kit,
        ending: _ending,
    } = remaining().await;
    let change = |path: &Path| {
        let sql = "UPDATE pruned SET is_removed = 0;
                   INSERT INTO decision SELECT 5, time_us, client, crawler, method, origin, '/x',
                     ruling, reading, wait_ms, policy, snapshot, salt, leaf
                   FROM decision WHERE seq = 2;
                   INSERT INTO event SELECT 6, time_us, host, kind, status, until_us, incidents,
                     actor, reason, sent, detail, leaf FROM event WHERE seq = 3";
        Connection::open(path).unwrap().execute_batch(sql).unwrap();
    };
    let before = verified(&kit);
    let (sums, found) = found_after(&kit, &SealEvidence::default(), change);
    assert_eq!(found, Vec::<String>::new());
    assert_eq!((sums.removing, sums.decided), (2, before.decided));
}

// Ours: a note signed by another record says nothing about this one.
#[tokio::test]
async fn a_note_of_another_record_is_not_accepted() {
    let Remaining {
        kit,
        ending: _ending,
    } = remaining().await;
    let Remaining {
        kit: other,
        ending: _other_ending,
    } = remaining().await;
    let change = |path: &Path| {
        let sql = format!(
            "ATTACH '{}' AS other;
             REPLACE INTO main.pruned SELECT * FROM other.pruned;",
            other.path().display()
        );
        Connection::open(path).unwrap().execute_batch(&sql).unwrap();
    };
    let (_, found) = found_after(&kit, &SealEvidence::default(), change);
    assert_eq!(
        found,
        [
            "8192: these entries were removed, and no note of the key of the record, or of one of --key, says so"
        ]
    );
}

fn bundled(kit: &Kit, filter: &DecisionFilter) -> BundleSums {
    let (verification, found) = verified_bundle(&bundle_of(kit, filter).unwrap(), &[]).unwrap();
    assert_eq!(found, "");
    verification.sums
}

// Ours: docs/handing-over.md.
#[tokio::test]
async fn a_bundle_proves_remaining_entries() {
    let Remaining {
        kit,
        ending: _ending,
    } = remaining().await;
    let sums = bundled(&kit, &DecisionFilter::default());
    assert_eq!(sums.redacted, 1);
    // Selects one of them; the others are covered by hashes of its path.
    let alone = DecisionFilter {
        host: Some("once.test".to_owned()),
        ..DecisionFilter::default()
    };
    assert_eq!(bundled(&kit, &alone).decisions, 1);
    let listed = |direction| {
        let mut numbers = Vec::new();
        let add = |record: StoredRecord| {
            numbers.push(record.seq);
            ControlFlow::Continue(())
        };
        kit.reader()
            .visit_decisions(&alone, direction, add)
            .unwrap();
        numbers
    };
    for direction in [Direction::OldestFirst, Direction::NewestFirst] {
        assert_eq!(listed(direction), [OPEN as u64], "{direction:?}");
    }
    // Entries that are being removed are left out.
    let decisions = bundled(&kit, &DecisionFilter::default()).decisions;
    kit.sql(
        "UPDATE pruned SET is_removed = 0;
         INSERT INTO decision SELECT 5, time_us, client, crawler, method, origin, path, ruling,
           reading, wait_ms, policy, snapshot, salt, leaf FROM decision WHERE seq = 2",
    );
    // The copy is altered, and would make a bundle with it fail.
    let left = bundled(&kit, &DecisionFilter::default());
    assert_eq!(left.decisions, decisions);
}
