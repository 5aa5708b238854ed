//! Saved snapshots: the newest snapshot of each robots.txt survives a restart.

use http::HeaderValue;
use jiff::SignedDuration;

use super::*;
use politesse_base::metrics::ResultLabel;
use politesse_decision::digest::Digest;
use politesse_decision::snapshot::{CacheKey, StoredSnapshot, Validators};
use politesse_robots::Dialect;
use politesse_robots::crawler::ProductToken;
use politesse_robots::origin::Origin;

const RFC: Dialect = Dialect::Rfc9309;

fn origin(name: &str) -> Origin {
    let target: Target = format!("https://{name}").parse().unwrap();
    target.origin
}

fn token(token: &str) -> Option<ProductToken> {
    Some(ProductToken::new(token).unwrap())
}

fn key(name: &str, token: Option<ProductToken>) -> CacheKey {
    let origin = origin(name);
    CacheKey::new(origin, token)
}

/// Returns a saved snapshot for `key` with `result`, fetched at a fixed time.
fn kept(key: &CacheKey, result: AccessResult) -> StoredSnapshot {
    let at: Timestamp = "2126-11-21T04:00:00.123456Z".parse().unwrap();
    let snapshot = Snapshot {
        key: key.clone(),
        url: key.origin.robots_txt().to_string(),
        hops: Vec::new(),
        status: Some(200),
        fetched_at: at,
        expires_at: Timestamp::from_second(4_000_000_000).unwrap(),
        result,
        stale: None,
        tdm: None,
    };
    StoredSnapshot {
        snapshot: Arc::new(snapshot),
        failures: 0,
        led_to: None,
    }
}

fn file(body: &'static str) -> AccessResult {
    AccessResult::Successful(Arc::new(RobotsFile::new(Bytes::from_static(
        body.as_bytes(),
    ))))
}

/// Returns a copy of a snapshot with a change.
fn but(kept: &StoredSnapshot, change: impl FnOnce(&mut Snapshot, &mut u32)) -> StoredSnapshot {
    let old = &*kept.snapshot;
    let result = match &old.result {
        AccessResult::Successful(copy) => AccessResult::Successful(Arc::clone(copy)),
        AccessResult::Unavailable => AccessResult::Unavailable,
        AccessResult::Unreachable(cause) => AccessResult::Unreachable(*cause),
    };
    let mut snapshot = Snapshot {
        key: old.key.clone(),
        url: old.url.clone(),
        hops: old.hops.clone(),
        result,
        tdm: None,
        ..*old
    };
    let mut failures = kept.failures;
    change(&mut snapshot, &mut failures);
    StoredSnapshot {
        snapshot: Arc::new(snapshot),
        failures,
        led_to: None,
    }
}

impl Kit {
    /// Saves a snapshot; it is on disk when this returns.
    async fn keep(&self, kept: &StoredSnapshot) {
        self.log.save_snapshot(kept.clone()).await;
        self.log.probe().await.unwrap();
    }

    async fn kept(&self, key: &CacheKey) -> Option<StoredSnapshot> {
        self.log.saved_snapshot(key, RFC).await.unwrap()
    }

    fn lost(&self) -> u64 {
        let result = ResultLabel { result: "lost" };
        self.metrics.robots_saved.get_or_create(&result).get()
    }

    fn count(&self, table: &str) -> i64 {
        let connection = Connection::open(self.path()).unwrap();
        let sql = format!("SELECT count(*) FROM {table}");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    }

    /// Keeps the writer from committing until the returned connection commits.
    fn held(&self) -> Connection {
        let other = Connection::open(self.path()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        other
    }
}

/// Formats everything known about a snapshot in one line.
fn told(kept: &StoredSnapshot) -> String {
    let text = kept.snapshot.file().map(|copy| copy.robots.text());
    let notes: Option<Vec<_>> = kept
        .snapshot
        .file()
        .map(|copy| copy.robots.notes().collect());
    format!("{kept:?} {text:?} {notes:?}")
}

/// Defines one test per row: a snapshot that is read back unchanged from disk, also
/// by the next process.
macro_rules! round_trips {
    ($($name:ident: $kept:expr;)*) => {$(
        #[tokio::test]
        async fn $name() {
            let saved = $kept;
            let kit = Kit::new(16);
            kit.keep(&saved).await;
            let loaded = kit.kept(&saved.snapshot.key).await.unwrap();
            assert!(!Arc::ptr_eq(&loaded.snapshot, &saved.snapshot));
            assert_eq!(told(&loaded), told(&saved));
            let kit = Kit::reopened(kit.closed().await, 16);
            let loaded = kit.kept(&saved.snapshot.key).await.unwrap();
            assert_eq!(told(&loaded), told(&saved));
        }
    )*};
}

fn mine() -> CacheKey {
    key("o.test:8443", token("FooBot"))
}

round_trips! {
    a_file_is_kept: kept(&mine(), file(ROBOTS));
    an_empty_file_is_kept: kept(&mine(), file(""));
    a_file_for_everyone_is_kept: kept(&key("o.test", None), file(ROBOTS));
    all_that_is_known_of_a_file_is_kept: but(&kept(&mine(), file(ROBOTS)), |snapshot, _| {
        "https://p.test/r?x=\u{e9}".clone_into(&mut snapshot.url);
        snapshot.hops = vec!["https://o.test:8443/robots.txt".into(), "http://p.test/".into()];
        snapshot.status = Some(203);
        let mut copy = RobotsFile {
            whole: false,
            content_type: Some("text/html; charset=\u{fffd}".to_owned()),
            validators: Validators {
                etag: Some(HeaderValue::from_bytes(b"\"\xff\x80 \t\"").unwrap()),
                last_modified: Some(HeaderValue::from_static("yesterday")),
            },
            ..RobotsFile::new(Bytes::from_static(b"\xef\xbb\xbfUser-agent: \xff\0\r\nDisallow: /"))
        };
        copy.robots.cut_here();
        snapshot.result = AccessResult::Successful(Arc::new(copy));
    });
    an_earlier_copy_is_kept_with_the_reason_it_is_in_force: but(&kept(&mine(), file(ROBOTS)), |snapshot, failures| {
        snapshot.stale = Some(Cause::NoConnection(NoConnection::Dns));
        *failures = 7;
    });
    a_missing_robots_txt_is_kept: but(&kept(&mine(), AccessResult::Unavailable), |snapshot, _| {
        snapshot.status = Some(404);
    });
    an_answer_for_one_sender_is_kept: but(&kept(&mine(), AccessResult::Unavailable), |snapshot, _| {
        snapshot.status = Some(403);
        snapshot.key.entry = Some(Digest::of(b"entry"));
        snapshot.key.sender = Some(Digest::of(b"sender"));
    });
    a_back_off_is_kept: but(&kept(&mine(), AccessResult::Unreachable(Cause::Timeout)), |snapshot, failures| {
        snapshot.status = None;
        *failures = u32::MAX;
    });
    the_address_from_an_operator_s_override_is_kept: StoredSnapshot {
        led_to: Some("127.0.0.1:8080".to_owned()),
        ..kept(&mine(), file(ROBOTS))
    };
    an_expired_copy_is_kept: but(&kept(&mine(), file(ROBOTS)), |snapshot, _| {
        snapshot.expires_at = snapshot.fetched_at;
    });
}

#[tokio::test]
async fn a_key_that_was_not_saved_is_not_found() {
    let kit = Kit::new(16);
    kit.keep(&kept(&mine(), file(ROBOTS))).await;
    for other in [
        key("o.test", token("FooBot")),
        key("o.test:8443", token("FooBot2")),
        key("o.test:8443", None),
    ] {
        assert!(kit.kept(&other).await.is_none(), "{other:?}");
    }
}

// Ours: a snapshot belongs to an origin and a token.
#[tokio::test]
async fn each_token_of_an_origin_has_one_saved_snapshot() {
    let kit = Kit::new(16);
    let of = |token| key("o.test", token);
    for (token, body) in [
        (token("FooBot"), "# 1"),
        (None, "# 2"),
        (token("BarBot"), "# 3"),
        (None, "# 4"),
        (token("foobot"), "# 5"),
    ] {
        kit.keep(&kept(&of(token), file(body))).await;
    }
    assert_eq!((kit.count("kept"), kit.count("body")), (3, 5));
    for (token, body) in [
        (token("FOOBOT"), "# 5"),
        (None, "# 4"),
        (token("BarBot"), "# 3"),
    ] {
        let kept = kit.kept(&of(token)).await.unwrap();
        assert_eq!(kept.snapshot.file().unwrap().body, body);
    }
}

// Invariant 2 (ARCHITECTURE.md): a restart does not create a second piece of
// evidence for the same answer.
#[tokio::test]
async fn a_snapshot_that_was_read_again_is_the_same_evidence() {
    let kit = Kit::new(16);
    let first = but(&kept(&mine(), file(ROBOTS)), |snapshot, _| {
        snapshot.fetched_at = "2126-11-21T04:00:00.123456789Z".parse().unwrap();
    });
    kit.keep(&first).await;
    let again = kit.kept(&mine()).await.unwrap();
    for kept in [first, again] {
        let decision = decide(&inquiry("/a"), &kept.snapshot, &policy(), now());
        let (_, ending) = kit.log.record(record_of(&decision)).await.unwrap();
        ending.complete(done(200));
    }
    assert_eq!((kit.rows().len(), kit.count("snapshot")), (2, 1));
}

// Ours: an earlier snapshot must not decide anything any more.
#[tokio::test]
async fn the_last_saved_snapshot_is_in_force() {
    let kit = Kit::new(16);
    kit.keep(&kept(&mine(), file(ROBOTS))).await;
    kit.keep(&kept(&mine(), AccessResult::Unavailable)).await;
    let last = kit.kept(&mine()).await.unwrap();
    assert!(matches!(last.snapshot.result, AccessResult::Unavailable));
}

#[tokio::test]
async fn a_file_is_read_by_the_dialect_in_force() {
    let kit = Kit::new(16);
    let rules = "User-agent: *\nDisallow: /\nAllow: /a\n";
    let lock = kit.held();
    let hops = || vec!["https://p.test/robots.txt".to_owned()];
    let saving = kit
        .log
        .save_snapshot(but(&kept(&mine(), file(rules)), |snapshot, _| {
            snapshot.hops = hops();
        }));
    // First the pending save is read, then the one on disk.
    for _ in 0..2 {
        let kept = kit
            .log
            .saved_snapshot(&mine(), Dialect::Consensus1994)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(kept.snapshot.hops, hops());
        let robots = &kept.snapshot.file().unwrap().robots;
        assert_eq!(robots.dialect(), Dialect::Consensus1994);
        let binding = robots.binding(&Crawler::parse("FooBot"));
        assert!(!binding.judge("/a").allows());
        lock.execute_batch("COMMIT").unwrap_or_default();
        kit.log.probe().await.unwrap();
    }
    saving.await;
}

// Ours: a failure on our side, which a restart may have fixed, is not remembered.
#[tokio::test]
async fn failures_of_our_own_are_not_kept() {
    let kit = Kit::new(16);
    let before = kept(&mine(), file(ROBOTS));
    kit.keep(&before).await;
    for cause in [
        Cause::Internal,
        Cause::Busy,
        Cause::NoConnection(NoConnection::NoSocket),
        Cause::NoConnection(NoConnection::Parent),
        Cause::NoConnection(NoConnection::ParentCredentials),
        Cause::NoConnection(NoConnection::Prohibited),
    ] {
        kit.keep(&kept(&mine(), AccessResult::Unreachable(cause)))
            .await;
        let kept = kit.kept(&mine()).await.unwrap();
        assert_eq!(told(&kept), told(&before));
    }
    assert_eq!(kit.lost(), 0);
}

/// Asserts that a row changed by `sql` is reported and not used.
async fn assert_not_trusted(sql: &str) {
    let kit = Kit::new(16);
    let kept = but(&kept(&mine(), file(ROBOTS)), |snapshot, _| {
        snapshot.stale = Some(Cause::Timeout);
    });
    kit.keep(&kept).await;
    assert!(kit.kept(&mine()).await.is_some());
    kit.sql(&format!("PRAGMA foreign_keys = OFF; {sql}"));
    let other = key("p.test", token("FooBot"));
    assert!(kit.kept(&mine()).await.is_none(), "{sql}");
    assert!(kit.kept(&other).await.is_none(), "{sql}");
    if !sql.contains("DELETE") {
        let (verification, found) = verify(&kit);
        assert_eq!((verification.kept, verification.mismatches), (1, 1));
        assert!(found[0].contains("as it was written") || found[0].contains("digest"));
    }
    // A new save replaces the altered one.
    kit.sql("PRAGMA foreign_keys = OFF; DELETE FROM body WHERE hex(body) = '00'");
    kit.keep(&kept).await;
    assert!(kit.kept(&mine()).await.is_some());
}

#[tokio::test]
async fn an_altered_row_is_not_trusted() {
    for change in [
        "url = 'https://p.test/robots.txt'",
        "status = 404",
        "fetched_us = fetched_us + 1",
        "expires_us = expires_us + 1",
        "result = 'unavailable'",
        "cause = NULL",
        "body = NULL",
        "body = x'00'",
        "whole = 0",
        "whole = NULL",
        "content_type = 'text/html'",
        "hops = '[\"https://o.test/robots.txt\"]'",
        "etag = x'22'",
        "last_modified = x'22'",
        "failures = 1",
        "digest = x''",
        "origin = 'https://p.test'",
        "url = CAST(x'ff' AS TEXT)",
    ] {
        assert_not_trusted(&format!("UPDATE kept SET {change}")).await;
    }
}

#[tokio::test]
async fn an_altered_or_deleted_body_is_not_trusted() {
    assert_not_trusted("UPDATE body SET body = x'00'").await;
    assert_not_trusted("DELETE FROM body").await;
    assert_not_trusted("DELETE FROM kept").await;
}

#[tokio::test]
async fn verification_counts_saved_snapshots_and_names_altered_ones() {
    let kit = one_of_each().await;
    for name in ["o.test", "p.test", "q.test"] {
        kit.keep(&kept(&key(name, token("FooBot")), file(ROBOTS)))
            .await;
    }
    assert_eq!(verify(&kit).0.kept, 3);
    kit.sql("UPDATE kept SET origin = CAST(x'ff' AS TEXT) WHERE origin LIKE '%p.test'");
    let (verification, found) = verify(&kit);
    assert_eq!((verification.kept, verification.mismatches), (3, 1));
    assert_eq!(
        found,
        ["\u{fffd} FooBot: what is kept is not as it was written"]
    );
}

// Ours: robots.txt must not be fetched again because a snapshot was forgotten too
// early.
#[tokio::test]
async fn a_snapshot_waiting_to_be_written_is_found() {
    let kit = Kit::new(16);
    let lock = kit.held();
    let (first, second) = (kept(&mine(), file("# 1")), kept(&mine(), file("# 2")));
    // Saving starts with the call, before the future is polled.
    let saving = [
        kit.log.save_snapshot(first.clone()),
        kit.log.save_snapshot(second.clone()),
    ];
    let found = kit.kept(&mine()).await.unwrap();
    assert!(Arc::ptr_eq(&found.snapshot, &second.snapshot));
    lock.execute_batch("COMMIT").unwrap();
    for saving in saving {
        saving.await;
    }
    kit.log.probe().await.unwrap();
    let found = kit.kept(&mine()).await.unwrap();
    assert!(!Arc::ptr_eq(&found.snapshot, &second.snapshot));
    assert_eq!(told(&found), told(&second));
    assert_eq!(kit.log.pending.find(&mine()).map(|kept| told(&kept)), None);
}

// A save that ends must not remove a later one from the pending saves.
#[tokio::test]
async fn the_end_of_a_save_does_not_hide_the_next_one() {
    let kit = Kit::new(2);
    let lock = kit.held();
    kit.log
        .save_snapshot(kept(&key("p.test", None), file("")))
        .await;
    kit.log.save_snapshot(kept(&mine(), file("# 1"))).await;
    // It has no place in the queue until its future is polled.
    let second = kept(&mine(), file("# 2"));
    let saving = kit.log.save_snapshot(second.clone());
    lock.execute_batch("COMMIT").unwrap();
    kit.log.probe().await.unwrap();
    let found = kit.kept(&mine()).await.unwrap();
    assert!(Arc::ptr_eq(&found.snapshot, &second.snapshot));
    saving.await;
    kit.log.probe().await.unwrap();
    assert_eq!(told(&kit.kept(&mine()).await.unwrap()), told(&second));
}

// Invariant 8 (ARCHITECTURE.md).
#[tokio::test]
async fn a_full_queue_gives_a_save_up_after_a_second_and_counts_it() {
    let kit = Kit::new(2);
    let lock = kit.held();
    for name in ["a.test", "b.test"] {
        kit.log
            .save_snapshot(kept(&key(name, None), file("")))
            .await;
    }
    let waiting = kit.log.save_snapshot(kept(&mine(), file("")));
    assert!(kit.kept(&mine()).await.is_some());
    waiting.await;
    assert!(kit.kept(&mine()).await.is_none());
    assert_eq!(kit.lost(), 1);
    lock.execute_batch("COMMIT").unwrap();
    kit.log.probe().await.unwrap();
    assert_eq!(kit.count("kept"), 2);
}

/// Makes every insert into `kept` fail.
const BREAK_KEPT: &str = "CREATE TRIGGER broken_kept BEFORE INSERT ON kept
    BEGIN SELECT RAISE(ABORT, 'disk full'); END;";

// Ours: saved state only spares sites requests, so it must not prevent a decision
// from being written.
#[tokio::test]
async fn a_save_that_fails_is_counted_and_does_not_stop_decisions() {
    let kit = Kit::new(16);
    kit.sql(BREAK_KEPT);
    let lock = kit.held();
    kit.log.save_snapshot(kept(&mine(), file(ROBOTS))).await;
    let recording = kit.log.record(record("/a"));
    let release = async {
        tokio::task::yield_now().await;
        lock.execute_batch("COMMIT").unwrap();
    };
    let (recorded, ()) = tokio::join!(recording, release);
    assert_eq!(recorded.unwrap().0.seq(), 1);
    assert_eq!((kit.lost(), kit.count("kept")), (1, 0));
    kit.log.save_snapshot(kept(&mine(), file(ROBOTS))).await;
    let (receipt, _ending) = kit.log.record(record("/b")).await.unwrap();
    assert_eq!((receipt.seq(), kit.lost()), (3, 2));
    kit.sql("DROP TRIGGER broken_kept");
    kit.keep(&kept(&mine(), file(ROBOTS))).await;
    assert!(kit.kept(&mine()).await.is_some());
}

// Invariant 3 (ARCHITECTURE.md): if the disk refuses everything, decisions are
// refused too.
#[tokio::test]
async fn a_decision_queued_with_a_save_is_refused_if_the_disk_refuses_both() {
    let kit = Kit::new(16);
    kit.sql(BREAK);
    kit.sql(BREAK_KEPT);
    kit.log.save_snapshot(kept(&mine(), file(ROBOTS))).await;
    let recorded = kit.log.record(record("/a")).await;
    assert!(matches!(recorded, Err(AuditError::Write(_))));
    assert_eq!(kit.lost(), 1);
}

#[tokio::test]
async fn a_closed_log_has_saved_everything_and_finds_nothing() {
    let kit = Kit::new(16);
    assert!(kit.kept(&mine()).await.is_none());
    kit.log.save_snapshot(kept(&mine(), file(ROBOTS))).await;
    let log = Arc::clone(&kit.log);
    let path = kit.path();
    let folder = kit.closed().await;
    assert!(!path.with_extension("db-wal").exists());
    log.save_snapshot(kept(&key("p.test", None), file(ROBOTS)))
        .await;
    assert!(log.saved_snapshot(&mine(), RFC).await.is_err());
    let kit = Kit::reopened(folder, 16);
    assert!(kit.kept(&mine()).await.is_some());
    assert_eq!(kit.count("kept"), 1);
}

// Invariant 8 (ARCHITECTURE.md): the table holds only snapshots used within the
// last thirty days.
#[tokio::test]
async fn a_snapshot_that_expired_thirty_days_ago_is_removed() {
    let kit = Kit::new(16);
    let days = |days: i64| {
        let now = clock::now() + SignedDuration::from_hours(24 * days);
        let key = key(&format!("d{}.test", days.abs()), None);
        but(&kept(&key, file(ROBOTS)), |snapshot, _| {
            snapshot.expires_at = now;
        })
    };
    for old in [1, -29, -31] {
        kit.keep(&days(old)).await;
    }
    let kit = Kit::reopened(kit.closed().await, 16);
    assert_eq!(kit.count("kept"), 3);
    kit.log.probe().await.unwrap();
    kit.log.probe().await.unwrap();
    assert_eq!((kit.count("kept"), kit.count("body")), (2, 1));
    assert!(kit.kept(&days(-31).snapshot.key).await.is_none());
    assert!(kit.kept(&days(-29).snapshot.key).await.is_some());
}

#[test]
fn snapshots_are_removed_in_steps_the_oldest_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = AuditStore::open(&options(folder.path(), 16), &Metrics::default()).unwrap();
    store
        .write(|batch| {
            (0..5).try_for_each(|n| {
                let kept = kept(&key(&format!("d{n}.test"), None), file(ROBOTS));
                batch.save_snapshot(&but(&kept, |snapshot, _| {
                    snapshot.expires_at = Timestamp::from_second(n).unwrap();
                }))
            })
        })
        .unwrap();
    let before = Timestamp::from_second(4).unwrap();
    let pruned = || store.prune(store::PRUNE_SNAPSHOTS, before, 3).unwrap();
    assert_eq!([pruned(), pruned(), pruned()], [3, 1, 0]);
}

/// Measures and prints the time of a load from a hundred thousand rows. Must be run
/// with optimisation. A load for each origin must not slow down a crawl.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, and writes 250 MB"]
async fn a_load_from_a_hundred_thousand_rows_takes_little() {
    const ROWS: u32 = 100_000;
    let of = |n: u32| key(&format!("host-{n}.example.test"), token("FooBot"));
    let folder = tempfile::tempdir().unwrap();
    let start = clock::instant();
    let mut store = AuditStore::open(&options(folder.path(), 16), &Metrics::default()).unwrap();
    for first in (0..ROWS).step_by(512) {
        store
            .write(|batch| {
                (first..ROWS.min(first + 512)).try_for_each(|n| {
                    let body = format!("# {n}\n{}", "Disallow: /some/folder/\n".repeat(82));
                    let copy = RobotsFile::new(Bytes::from(body));
                    batch.save_snapshot(&kept(&of(n), AccessResult::Successful(Arc::new(copy))))
                })
            })
            .unwrap();
    }
    eprintln!("{ROWS} rows written in {:?}", clock::instant() - start);
    drop(store);
    let kit = Kit::reopened(folder, 16);
    // The stride is coprime to the number of rows, so that consecutive loads are
    // not neighbours.
    let places = (0..20_000u32).map(|n| n * 7919 % ROWS);
    for (what, shift) in [("present", 0), ("absent", ROWS)] {
        let start = clock::instant();
        for place in places.clone() {
            let found = kit.kept(&of(place + shift)).await.is_some();
            assert_eq!(found, shift == 0);
        }
        eprintln!("{what}: {:?} a load", (clock::instant() - start) / 20_000);
    }
}
