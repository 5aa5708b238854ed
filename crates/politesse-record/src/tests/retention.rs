//! Removal of old entries: what is removed, what stays, and what is still known.

use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::SignedDuration;
use rusqlite::OptionalExtension;
use tokio::time::advance;

use super::super::parts::part_of;
use super::super::removal_order::RetentionOrder;
use super::super::retention::Retention;
use super::super::schema::open_in_memory;
use super::super::seal_check::{OutsideHead, SealEvidence};
use super::super::used_values::UsedBodies;
use super::super::verify::{verify, verify_with};
use super::*;
use politesse_base::testing::{follow_tokio, set_wall_by};

/// Number of decisions in the record, which with their endings take up more than
/// two parts.
pub(super) const DECISIONS: i64 = 9000;

/// URL of the first decision only.
pub(super) const FIRST_URL: &str = "http://once.test/private/first-of-all";

fn at(number: i64) -> Timestamp {
    now() + SignedDuration::from_secs(number)
}

pub(super) fn record_of_url(url: &str, number: i64) -> Record {
    record_by(&robots(), url, number)
}

fn record_by(robots: &Arc<Snapshot>, url: &str, number: i64) -> Record {
    let inquiry = Arc::new(Inquiry {
        crawler: Crawler::parse("FooBot/2.1"),
        target: url.parse().unwrap(),
        method: "GET".to_owned(),
    });
    record_of(&decide(&inquiry, robots, &policy(), at(number)))
}

/// Writes decisions with these numbers, a second apart. All except the first are
/// about one host.
pub(super) async fn write(kit: &Kit, numbers: std::ops::Range<i64>) {
    let robots = robots();
    let records = numbers.map(|number| {
        let url = match number {
            0 => FIRST_URL,
            _ => "http://o.test/a",
        };
        record_by(&robots, url, number)
    });
    kit.record_all(records).await;
}

pub(super) async fn long_record() -> Kit {
    let kit = Kit::new(4096);
    write(&kit, 0..DECISIONS).await;
    kit
}

/// Writes decisions up to the entry `last`. If that is a decision, returns its
/// ending, which has no number yet.
pub(super) async fn fill_up_to(kit: &Kit, last: u64) -> Option<RecordEnding> {
    let record = record_of_url("http://o.test/a", 5000);
    let held = loop {
        let (receipt, ending) = kit.log.record(record.clone()).await.unwrap();
        if receipt.seq() == last {
            break Some(ending);
        }
        drop(ending);
        let left = usize::try_from(last - receipt.seq() - 1).unwrap();
        if left == 0 {
            break None;
        }
        // Each of these takes two numbers. At least one is left.
        let records = iter::repeat_n(record.clone(), (left - 1) / 2);
        kit.record_all(records).await;
    };
    kit.log.probe().await.unwrap();
    held
}

/// Returns a request to remove the entries from before `before`.
fn older_than(before: Timestamp) -> PruneRequest {
    PruneRequest {
        before,
        ..PruneRequest::default()
    }
}

/// Removes the entries from before decision `number`, and waits until they are
/// gone.
pub(super) async fn prune(kit: &Kit, number: i64) -> PrunedNumbers {
    let pruned = kit
        .log
        .prune(older_than(at(number)), "test".to_owned())
        .await
        .unwrap();
    timeout(Duration::from_secs(60), kit.log.settled())
        .await
        .unwrap()
        .unwrap();
    // The event arrives through the queue.
    kit.log.probe().await.unwrap();
    pruned
}

pub(super) fn count(kit: &Kit, sql: &str) -> i64 {
    let connection = Connection::open(kit.path()).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

pub(super) fn verified(kit: &Kit) -> Verification {
    let mut found = Vec::new();
    let sums = verify(&kit.reader(), &DecisionFilter::default(), |finding| {
        found.push(finding);
    });
    // The trigger is part of these tests: it simulates a failing disk.
    found.retain(|finding| !finding.starts_with("trigger held"));
    assert_eq!(found, Vec::<String>::new());
    sums.unwrap()
}

/// Counts the entries with numbers up to `last`.
fn entries_until(kit: &Kit, last: u64) -> i64 {
    ["decision", "ending", "event"]
        .map(|table| {
            count(
                kit,
                &format!("SELECT count(*) FROM {table} WHERE seq <= {last}"),
            )
        })
        .iter()
        .sum()
}

// Ours.
#[tokio::test]
async fn old_parts_are_removed_with_their_values_and_the_rest_verifies() {
    let kit = long_record().await;
    let before = verified(&kit);
    let origins = "SELECT count(*) FROM origin WHERE host = 'once.test'";
    let snapshots = "SELECT count(*) FROM rollup WHERE part = 0";
    assert_eq!((count(&kit, origins), count(&kit, snapshots)), (1, 1));
    // The first part has some 4,096 decisions, and all others are younger.
    let pruned = prune(&kit, 5000).await;
    let expected = PrunedNumbers {
        first: 1,
        last: PART_NUMBERS as u64,
    };
    assert_eq!(pruned, expected);
    assert_eq!(entries_until(&kit, pruned.last), 0);
    assert_eq!((count(&kit, origins), count(&kit, snapshots)), (0, 0));
    let after = verified(&kit);
    assert_eq!(after.pruned, pruned.last);
    assert!(after.decided < before.decided);
    assert_eq!(after.missing, 0);
    let events = kit.reader().events(&EventFilter::default(), 0).unwrap();
    let event = events.iter().find(|event| event.kind == "pruned").unwrap();
    let detail = event.detail.as_deref().unwrap();
    assert!(detail.contains("\"entries_until\":8192"), "{detail}");
    assert!(detail.contains("\"by\":\"test\""), "{detail}");
    // No further entries are old enough, and nothing is removed twice.
    let again = prune(&kit, 5000).await;
    assert_eq!((again.first, again.last), (pruned.last + 1, pruned.last));
    // Entries written later are complete, including values that were removed.
    write(&kit, 0..3).await;
    assert_eq!(count(&kit, origins), 1);
    verified(&kit);
    // A start finds everything that must exist.
    let kit = Kit::reopened(kit.closed().await, 64);
    write(&kit, 3..5).await;
    verified(&kit);
}

// Ours: removed personal data must not be found in the file.
#[tokio::test]
async fn removed_data_are_overwritten() {
    let kit = long_record().await;
    let is_there = |kit: &Kit| {
        let bytes = std::fs::read(kit.path()).unwrap();
        let text = b"first-of-all";
        bytes.windows(text.len()).any(|window| window == text)
    };
    let kit = Kit::reopened(kit.closed().await, 4096);
    assert!(is_there(&kit));
    prune(&kit, 5000).await;
    let kit = Kit::reopened(kit.closed().await, 4096);
    assert!(!is_there(&kit));
}

// Ours: a download that takes days keeps its decision until it has ended.
#[tokio::test]
async fn a_decision_stays_until_its_ending_is_old_enough() {
    let kit = Kit::new(4096);
    let (_, ending) = kit.log.record(record_of_url(FIRST_URL, 0)).await.unwrap();
    write(&kit, 1..DECISIONS).await;
    drop(ending);
    write(&kit, DECISIONS..DECISIONS + 1).await;
    let pruned = prune(&kit, 5000).await;
    // Together with the last decision of the part, whose ending has the next
    // number.
    assert_eq!(entries_until(&kit, pruned.last), 2);
    let found = kit.reader().record(1).unwrap().unwrap();
    assert_eq!(found.record.url, FIRST_URL);
    assert!(found.is_as_written);
    verified(&kit);
    write(&kit, DECISIONS..2 * DECISIONS).await;
    let pruned = prune(&kit, 2 * DECISIONS).await;
    assert!(2 < part_of(pruned.last as i64));
    // Only the last decision of the last part remains.
    assert_eq!(entries_until(&kit, pruned.last), 1);
    verified(&kit);
}

// Ours: a part without a roll-up may have young decisions.
#[tokio::test]
async fn a_part_stays_until_the_age_of_its_decisions_is_known() {
    let kit = Kit::new(4096);
    assert!(fill_up_to(&kit, PART_NUMBERS as u64).await.is_none());
    let kit = Kit::reopened(kit.closed().await, 4096);
    assert_eq!(count(&kit, "SELECT count(*) FROM subtree"), 1);
    prune(&kit, 10).await;
    assert_eq!(entries_until(&kit, PART_NUMBERS as u64), PART_NUMBERS);
    verified(&kit);
}

// Ours.
#[tokio::test]
async fn a_removal_that_was_interrupted_by_a_crash_is_continued() {
    let kit = long_record().await;
    prune(&kit, 5000).await;
    let folder = kit.closed().await;
    let connection = Connection::open(file(folder.path())).unwrap();
    // As a crash after the first step leaves it: a row to be removed still exists.
    connection
        .execute_batch(
            "UPDATE pruned SET is_removed = 0;
             INSERT INTO decision SELECT 7, time_us, client, crawler, method, origin, path,
               ruling, reading, wait_ms, policy, snapshot, salt, leaf
             FROM decision LIMIT 1;",
        )
        .unwrap();
    drop(connection);
    let kit = Kit::reopened(folder, 64);
    kit.log.settled().await.unwrap();
    let row = "SELECT count(*) FROM decision WHERE seq = 7";
    assert_eq!(count(&kit, row), 0);
    verified(&kit);
}

// Ours: a caller that waits learns why a removal does not continue, and nothing is
// lost.
#[tokio::test]
async fn a_failed_removal_is_reported_and_continued_later() {
    let kit = long_record().await;
    kit.sql(
        "CREATE TRIGGER held BEFORE DELETE ON decision WHEN 2000 < old.seq
         BEGIN SELECT RAISE(ABORT, 'disk'); END",
    );
    kit.log
        .prune(older_than(at(5000)), "test".to_owned())
        .await
        .unwrap();
    let failed = timeout(Duration::from_secs(60), kit.log.settled()).await;
    let error = failed.unwrap().unwrap_err();
    assert!(matches!(error, AuditError::Write(_)), "{error:?}");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("disk"), "{cause}");
    let sums = verified(&kit);
    assert!(0 < sums.removing, "{sums:?}");
    // New entries are still recorded.
    write(&kit, DECISIONS..DECISIONS + 3).await;
    let folder = kit.closed().await;
    let connection = Connection::open(file(folder.path())).unwrap();
    connection.execute_batch("DROP TRIGGER held").unwrap();
    drop(connection);
    let kit = Kit::reopened(folder, 64);
    kit.log.settled().await.unwrap();
    assert_eq!(verified(&kit).removing, 0);
}

// Ours: a head that was exported long ago still proves the same.
#[tokio::test]
async fn heads_of_removed_entries_stay_valid() {
    let kit = Kit::new(4096);
    write(&kit, 0..2000).await;
    // A clean stop makes a head.
    let kit = Kit::reopened(kit.closed().await, 4096);
    let exported = kit.reader().tree().newest_seal().unwrap().unwrap();
    assert!(exported.size < PART_NUMBERS);
    write(&kit, 2000..DECISIONS).await;
    let pruned = prune(&kit, 5000).await;
    assert!((exported.size as u64) < pruned.last);
    let evidence = SealEvidence {
        keys: Vec::new(),
        heads: vec![OutsideHead {
            name: "head".to_owned(),
            note: exported.note.parse().unwrap(),
        }],
    };
    let checked = |kit: &Kit| {
        let mut found = Vec::new();
        let sums = verify_with(
            &kit.reader(),
            &DecisionFilter::default(),
            &evidence,
            |finding| {
                found.push(finding);
            },
        );
        (sums.unwrap(), found)
    };
    let (sums, found) = checked(&kit);
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(sums.seals.outside, 1);
    for change in [
        "UPDATE seal SET path = NULL",
        "UPDATE seal SET path = x'00' WHERE size = (SELECT max(size) FROM seal)",
        "UPDATE seal SET path = zeroblob(length(path))",
        "UPDATE subtree SET hash = zeroblob(32) WHERE part = 0",
        "DELETE FROM subtree WHERE part = 0",
        "UPDATE pruned SET note = replace(note, 'time 2', 'time 3')",
    ] {
        let path = kit.path().with_file_name("copy.db");
        let _ = std::fs::remove_file(&path);
        kit.sql(&format!("VACUUM INTO '{}'", path.display()));
        Connection::open(&path)
            .unwrap()
            .execute_batch(change)
            .unwrap();
        let reader = AuditReader::open(&path).unwrap();
        // With the exported head and without it, because a damaged path must be
        // found in both cases.
        for evidence in [&evidence, &SealEvidence::default()] {
            let mut found = Vec::new();
            verify_with(&reader, &DecisionFilter::default(), evidence, |finding| {
                found.push(finding);
            })
            .unwrap();
            assert!(!found.is_empty(), "{change}");
        }
    }
}

// Ours: rows that someone deleted are missing, even if `pruned` was altered to
// include them.
#[tokio::test]
async fn an_altered_end_of_a_removal_is_found() {
    let kit = long_record().await;
    let pruned = prune(&kit, 5000).await;
    let later = pruned.last + 100;
    kit.sql(&format!(
        "DELETE FROM decision WHERE seq <= {later}; DELETE FROM ending WHERE seq <= {later};
         UPDATE pruned SET last = {later};"
    ));
    let mut found = Vec::new();
    verify(&kit.reader(), &DecisionFilter::default(), |finding| {
        found.push(finding);
    })
    .unwrap();
    let text = format!(
        "{later}: these entries were removed, and no note of the key of the record, or of one of --key, says so"
    );
    assert!(found.contains(&text), "{found:?}");
}

// Ours: new entries are recorded during a removal, and none is lost.
#[tokio::test]
async fn entries_are_written_while_others_are_removed() {
    let kit = long_record().await;
    let pruned = kit
        .log
        .prune(older_than(at(5000)), "test".to_owned())
        .await
        .unwrap();
    assert!(pruned.first < pruned.last);
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let log = Arc::clone(&kit.log);
        writers.spawn(async move {
            for number in 0..200 {
                let url = format!("http://w{writer}.test/{number}");
                let record = record_of_url(&url, DECISIONS + number);
                drop(log.record(record).await.unwrap());
            }
        });
    }
    writers.join_all().await;
    kit.log.settled().await.unwrap();
    kit.log.probe().await.unwrap();
    let written = "SELECT count(*) FROM audit_log WHERE host LIKE 'w_.test'";
    assert_eq!(count(&kit, written), 800);
    verified(&kit);
    let connection = Connection::open(kit.path()).unwrap();
    let last: Option<i64> = connection
        .query_row("SELECT max(seq) FROM ending", [], |row| row.get(0))
        .optional()
        .unwrap();
    assert!(last <= Some(last_of(&kit)));
}

// Ours: entries removed while a verification runs are not findings of the next one.
#[tokio::test]
async fn a_verification_reports_a_removal_that_began_meanwhile() {
    let kit = long_record().await;
    let connection = Connection::open(kit.path()).unwrap();
    connection
        .execute_batch("UPDATE decision SET wait_ms = 9 WHERE seq = 3")
        .unwrap();
    let verified = |removal: &str| {
        let sums = verify(&kit.reader(), &DecisionFilter::default(), |_| {
            connection.execute_batch(removal).unwrap();
        });
        sums.unwrap()
    };
    let sums = verified("");
    assert!(0 < sums.mismatches && !sums.is_outrun, "{sums:?}");
    let sums = verified("REPLACE INTO pruned VALUES (1, 8192, 0, 1, '', '')");
    assert!(0 < sums.mismatches && sums.is_outrun, "{sums:?}");
}

// Ours: a step whose transaction was rolled back is repeated.
#[test]
fn a_step_that_was_rolled_back_is_repeated() {
    for failing in 0..14 {
        let connection = open_in_memory().unwrap();
        let setup = "INSERT INTO client (address, sha256) VALUES ('192.0.2.1', x'00');
                     INSERT INTO pruned VALUES (1, 0, 0, 0, '', '');
                     INSERT INTO unused_value VALUES (1);";
        connection.execute_batch(setup).unwrap();
        let mut retention = Retention::new(None, clock::now());
        retention.look_for_unused();
        for step in 0.. {
            connection.execute_batch("BEGIN").unwrap();
            retention.step(&connection).unwrap();
            if step == failing {
                connection.execute_batch("ROLLBACK").unwrap();
                retention.rewind();
            } else {
                connection.execute_batch("COMMIT").unwrap();
            }
            if !retention.is_active() {
                break;
            }
        }
        let left = "SELECT (SELECT count(*) FROM client) + (SELECT count(*) FROM unused_value)
                      + (SELECT count(*) FROM pruned WHERE is_removed = 0)";
        let left: i64 = connection.query_row(left, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0, "{failing}");
    }
}

/// Writes robots.txt files 0 to 9 to `connection`, with a saved snapshot that uses
/// file 9, and `snapshots` recorded snapshots that use file 0.
fn write_bodies(connection: &Connection, snapshots: i64) {
    connection
        .execute_batch(&format!(
            "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 9)
             INSERT INTO body SELECT CAST(printf('%-32d', n) AS BLOB), x'' FROM n;
             INSERT INTO kept (origin, token, url, fetched_us, expires_us, result, body,
               failures, digest) VALUES ('', '', '', 0, 0, '', CAST(printf('%-32d', 9) AS BLOB), 0, x'');
             WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {snapshots})
             INSERT INTO snapshot (origin, url, fetched_us, expires_us, result, body, sha256)
               SELECT '', '', 0, 0, '', CAST(printf('%-32d', 0) AS BLOB), CAST(n AS BLOB) FROM n;"
        ))
        .unwrap();
}

// Ours.
#[test]
fn a_robots_txt_without_a_recorded_or_saved_snapshot_is_removed() {
    let connection = open_in_memory().unwrap();
    write_bodies(&connection, 3);
    let mut used = UsedBodies::default();
    assert!(!used.read(&connection, 2).unwrap());
    assert!(used.read(&connection, 2).unwrap());
    // File 5 is used again before it is examined.
    let again = "INSERT INTO snapshot (origin, url, fetched_us, expires_us, result, body, sha256)
                   VALUES ('', '', 0, 0, '', CAST(printf('%-32d', 5) AS BLOB), x'00')";
    let mut removed = used.remove_unused(&connection, 4).unwrap().unwrap();
    connection.execute(again, []).unwrap();
    while let Some(more) = used.remove_unused(&connection, 4).unwrap() {
        removed += more;
    }
    let left = "SELECT group_concat(CAST(sha256 AS INTEGER)) FROM body";
    let left: String = connection.query_row(left, [], |row| row.get(0)).unwrap();
    assert_eq!((removed, left.as_str()), (7, "0,5,9"));
}

// Ours: each step must be short, because decisions wait for it.
#[test]
fn a_search_for_unused_robots_txt_reads_no_snapshot_twice() {
    let instructions = |snapshots| {
        let mut connection = open_in_memory().unwrap();
        write_bodies(&connection, snapshots);
        let mut used = UsedBodies::default();
        assert!(used.read(&connection, 100_000).unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let count_one = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            false
        };
        connection.progress_handler(1, Some(count_one)).unwrap();
        used.remove_unused(&connection, 64).unwrap();
        count.load(Ordering::Relaxed)
    };
    assert_eq!(instructions(10), instructions(10_000));
}

// Ours: an order that removes less must not end an earlier one.
#[test]
fn of_two_orders_the_one_that_removes_more_is_kept() {
    let order = |second| RetentionOrder {
        before: Timestamp::from_second(second).unwrap(),
        by: second.to_string(),
        reason: None,
        retention: None,
    };
    let mut retention = Retention::new(None, clock::now());
    for second in [30, 40, 20] {
        retention.keep_order(order(second));
    }
    retention.look_for_unused();
    assert_eq!(retention.take_rest(), Some(order(40)));
    assert_eq!(retention.take_rest(), None);
}

// Ours: a removal cannot be undone.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_ahead_for_a_moment_does_not_remove_young_entries() {
    const HOUR: Duration = Duration::from_secs(3600);
    follow_tokio();
    let hours = SignedDuration::from_hours;
    let (age, year) = (hours(24), hours(24 * 365));
    let mut retention = Retention::new(Some(age), clock::now());
    let mut before = |ahead| {
        set_wall_by(ahead);
        retention.search_now();
        let order = retention.search().unwrap();
        set_wall_by(-ahead);
        order.before
    };
    let right = |ahead| clock::now() + ahead - age;
    assert_eq!(before(hours(1)), right(hours(1)));
    for _ in 0..3 {
        // An immediate second search gives the same result.
        assert_eq!(before(year), right(hours(1)));
        advance(Duration::from_secs(5)).await;
        assert_eq!(before(year), right(hours(1)));
        advance(HOUR).await;
        assert_eq!(before(hours(0)), right(hours(0)));
    }
    // A clock that stays ahead is trusted. If it jumps again, it is trusted as far
    // as it was ahead before.
    for (first, second, counted) in [(3, 3, 3), (50, 8760, 51)] {
        before(hours(first));
        advance(HOUR).await;
        assert_eq!(before(hours(second)), right(hours(counted)));
    }
    let mut of_old = Retention::new(Some(age), Timestamp::MIN);
    assert_eq!(of_old.search().unwrap().before, Timestamp::MIN);
}
