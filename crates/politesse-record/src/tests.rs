mod bundles;

mod counts;

mod damage;

mod events;

mod faults;

mod hops;

mod host_list;

mod kept;

mod later;
mod leaves;

mod latest;

mod numbers;

mod order;

mod pages;

mod parts;

mod redaction;

mod remaining;

mod retention;

mod revision;

mod seals;

mod stats;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::task::{JoinSet, LocalSet};

use super::events::EventRow;
use super::filter::{DecisionFilter, EventFilter};
use super::parts::PART_NUMBERS;
use super::reader::AuditReader;
use super::seal_check::SealSums;
use super::sequence::last_number;
use super::verify::Verification;
use super::*;
use politesse_decision::access::{Cause, NoConnection};
use politesse_decision::decide::{Decision, Inquiry, NoPermit, Policy, Unauthorized, decide};
use politesse_decision::digest::Digest;
use politesse_decision::record::{ExchangeEnd, Seen, StoredRecord};
use politesse_decision::row_json::row_json;
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;

const ROBOTS: &str = "User-agent: FooBot\nDisallow: /private\n";

impl AuditReader {
    /// Returns the newest `limit` records that match `filter`; 0 means all.
    fn list(&self, filter: &DecisionFilter, limit: usize) -> Result<Vec<StoredRecord>, AuditError> {
        let mut records = Vec::new();
        self.visit_decisions(filter, Direction::NewestFirst, |record| {
            records.push(record);
            enough(records.len(), limit)
        })?;
        Ok(records)
    }

    /// Returns the newest `limit` events that match `filter`; 0 means all.
    fn events(&self, filter: &EventFilter, limit: usize) -> Result<Vec<EventRow>, AuditError> {
        let mut events = Vec::new();
        self.visit_events(filter, |event| {
            events.push(event);
            enough(events.len(), limit)
        })?;
        Ok(events)
    }
}

fn enough(count: usize, limit: usize) -> ControlFlow<()> {
    if count == limit {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// Log in its own folder.
struct Kit {
    folder: TempDir,
    log: Arc<AuditLog>,
    metrics: Arc<Metrics>,
    tracker: TaskTracker,
}

impl Kit {
    fn new(queue: usize) -> Self {
        Self::reopened(tempfile::tempdir().unwrap(), queue)
    }

    fn reopened(folder: TempDir, queue: usize) -> Self {
        let options = options(folder.path(), queue);
        Self::with(folder, &options)
    }

    /// Opens a log with `options`, in `folder`.
    fn with(folder: TempDir, options: &Options) -> Self {
        let metrics = Arc::new(Metrics::default());
        let tracker = TaskTracker::new();
        let log = AuditLog::open(options, Arc::clone(&metrics), &tracker).unwrap();
        Self {
            folder,
            log: Arc::new(log),
            metrics,
            tracker,
        }
    }

    fn path(&self) -> PathBuf {
        file(self.folder.path())
    }

    fn sql(&self, sql: &str) {
        Connection::open(self.path())
            .unwrap()
            .execute_batch(sql)
            .unwrap();
    }

    fn reader(&self) -> AuditReader {
        AuditReader::open(&self.path()).unwrap()
    }

    fn rows(&self) -> Vec<StoredRecord> {
        self.reader().list(&DecisionFilter::default(), 0).unwrap()
    }

    /// Records decisions at once, which takes few commits, and returns their endings in
    /// the same order.
    async fn record_at_once(&self, records: impl Iterator<Item = Record>) -> Vec<RecordEnding> {
        let exchanges = LocalSet::new();
        let recording = records.map(|record| {
            let log = Arc::clone(&self.log);
            exchanges.spawn_local(async move { log.record(record).await.unwrap().1 })
        });
        let recording: Vec<_> = recording.collect();
        exchanges.await;
        let mut endings = Vec::new();
        for ending in recording {
            endings.push(ending.await.unwrap());
        }
        endings
    }

    /// Records decisions whose exchanges are dropped. No ending is in a later part than
    /// its decision, unless that is the last entry of its part.
    async fn record_all(&self, mut records: impl Iterator<Item = Record>) {
        while let Some(record) = records.next() {
            let (receipt, ending) = self.log.record(record).await.unwrap();
            drop(ending);
            let part = PART_NUMBERS.unsigned_abs();
            let left_in_part = part - (receipt.seq() + 1) % part;
            let at_once = records.by_ref().take(256.min(left_in_part as usize / 2));
            drop(self.record_at_once(at_once).await);
        }
        self.log.probe().await.unwrap();
    }

    async fn closed(self) -> TempDir {
        self.log.close();
        self.tracker.close();
        self.tracker.wait().await;
        self.folder
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("data/audit.db")
}

fn options(folder: &Path, queue: usize) -> Options {
    let queue = NonZeroUsize::new(queue).unwrap();
    Options {
        queue,
        ..Options::new(file(folder))
    }
}

fn snapshot(result: AccessResult, status: Option<u16>) -> Arc<Snapshot> {
    let at: Timestamp = "2126-11-21T04:00:00.123456Z".parse().unwrap();
    Arc::new(Snapshot {
        key: CacheKey::new("http://o.test".parse::<Target>().unwrap().origin, None),
        url: "http://o.test/robots.txt".to_owned(),
        hops: Vec::new(),
        status,
        fetched_at: at,
        expires_at: at + jiff::SignedDuration::from_hours(1),
        result,
        stale: None,
        tdm: None,
    })
}

fn robots() -> Arc<Snapshot> {
    let copy = RobotsFile::new(Bytes::from_static(ROBOTS.as_bytes()));
    snapshot(AccessResult::Successful(Arc::new(copy)), Some(200))
}

fn inquiry(path: &str) -> Arc<Inquiry> {
    Arc::new(Inquiry {
        crawler: Crawler::parse("FooBot/2.1"),
        target: format!("http://O.test{path}").parse().unwrap(),
        method: "GET".to_owned(),
    })
}

fn now() -> Timestamp {
    "2126-11-21T04:30:00Z".parse().unwrap()
}

fn policy() -> Arc<Policy> {
    Arc::new(Policy::new(Unauthorized::Allow))
}

fn decision(path: &str) -> Decision {
    decide(&inquiry(path), &robots(), &policy(), now())
}

fn record_of(decision: &Decision) -> Record {
    let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Record::of(decision, client, Duration::from_millis(7))
}

fn record(path: &str) -> Record {
    record_of(&decision(path))
}

fn done(status: u16) -> ExchangeEnd {
    ExchangeEnd {
        seen: Some(Seen {
            directives: "foobot=(noindex;src=x);state=complete".to_owned(),
            said: Some(r#"[{"by":"x-robots-tag","said":"NoIndex, spam"}]"#.to_owned()),
            denials: Vec::new(),
        }),
        status: Some(status),
        sent: 0,
        bytes: 42,
        error: None,
    }
}

/// Makes every insert of a decision fail, as a full disk would.
const BREAK: &str = "CREATE TRIGGER broken BEFORE INSERT ON decision
    BEGIN SELECT RAISE(ABORT, 'disk full'); END;";

/// Makes every insert of an ending fail.
const BREAK_ENDINGS: &str = "CREATE TRIGGER broken_ending BEFORE INSERT ON ending
    BEGIN SELECT RAISE(ABORT, 'disk full'); END;";

// Invariant 3 (ARCHITECTURE.md).
#[tokio::test]
async fn a_receipt_is_given_when_the_row_is_on_disk() {
    let kit = Kit::new(16);
    let other = Connection::open(kit.path()).unwrap();
    let decision = decision("/private/x");
    let (receipt, ending) = kit.log.record(record_of(&decision)).await.unwrap();
    let url = "SELECT url FROM audit_log WHERE seq = 1";
    let url: String = other.query_row(url, [], |row| row.get(0)).unwrap();
    assert_eq!(url, "http://o.test/private/x");
    assert_eq!((receipt.seq(), ending.seq()), (1, 1));
    assert!(matches!(
        decision.into_permit(&receipt),
        Err(NoPermit::Refused(_))
    ));
}

// Invariant 3 (ARCHITECTURE.md): the row of a dropped exchange also states how it
// ended.
#[tokio::test]
async fn an_exchange_that_is_dropped_completes_its_row() {
    let kit = Kit::new(16);
    let (_, ending) = kit.log.record(record("/a")).await.unwrap();
    drop(ending);
    kit.log.probe().await.unwrap();
    let row = &kit.rows()[0];
    assert_eq!((row.status, row.bytes), (None, Some(0)));
    assert_eq!(row.error.as_deref(), Some("client_gone"));
}

// A crawler hangs up while its decision is being written.
#[tokio::test]
async fn a_record_whose_client_has_gone_is_completed() {
    let kit = Kit::new(16);
    // The lock makes the writer wait, so that the future is dropped before the
    // commit.
    let other = Connection::open(kit.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let recording = timeout(Duration::from_millis(20), kit.log.record(record("/a")));
    assert!(recording.await.is_err());
    other.execute_batch("COMMIT").unwrap();
    kit.log.probe().await.unwrap();
    let row = &kit.rows()[0];
    assert_eq!((row.seq, row.status), (1, None));
    assert_eq!(row.error.as_deref(), Some("client_gone"));
}

// Invariant 8 (ARCHITECTURE.md). A full queue must not cause a gap in the numbers.
#[tokio::test]
async fn a_full_queue_refuses_after_a_second_and_uses_up_no_number() {
    let kit = Kit::new(2);
    let (_, ending) = kit.log.record(record("/a")).await.unwrap();
    assert!(matches!(
        kit.log.record(record("/b")).await,
        Err(AuditError::Full)
    ));
    drop(ending);
    // The first ending has number 2.
    let (receipt, _ending) = kit.log.record(record("/c")).await.unwrap();
    assert_eq!(receipt.seq(), 3);
}

#[tokio::test]
async fn a_second_log_in_the_same_folder_is_refused_until_the_first_has_ended() {
    let kit = Kit::new(16);
    let real = kit.path().parent().unwrap().canonicalize().unwrap();
    // Removing the files must not make room for a second writer.
    for name in ["audit.db", "other.db"] {
        let mut options = options(kit.folder.path(), 16);
        options.path.set_file_name(name);
        let second = AuditLog::open(&options, Arc::clone(&kit.metrics), &kit.tracker);
        assert!(matches!(second, Err(AuditError::Locked(folder)) if folder == real));
    }
    let folder = kit.closed().await;
    Kit::reopened(folder, 16).closed().await;
}

#[tokio::test]
async fn a_write_error_refuses_decisions_until_the_disk_accepts_them_again() {
    let kit = Kit::new(16);
    let (_, ending) = kit.log.record(record("/a")).await.unwrap();
    kit.sql(BREAK);
    let Err(AuditError::Write(cause)) = kit.log.record(record("/b")).await else {
        panic!("recorded");
    };
    assert!(cause.to_string().contains("disk full"));
    assert!(matches!(kit.log.probe().await, Err(AuditError::Write(_))));
    kit.sql(BREAK_ENDINGS);
    ending.complete(done(200));
    assert!(kit.log.probe().await.is_err());
    assert!(3 <= kit.metrics.audit_failures.get());
    assert_eq!(kit.rows()[0].status, None);
    kit.sql("DROP TRIGGER broken; DROP TRIGGER broken_ending;");
    // The refused decision has used up no number, and the ending, which was
    // retried, has number 2.
    let (receipt, _ending) = kit.log.record(record("/c")).await.unwrap();
    assert_eq!(receipt.seq(), 3);
    assert_eq!(kit.rows()[1].status, Some(200));
}

// Ours: a client whose request is refused is answered only once the refusal is on
// disk.
#[tokio::test]
async fn an_awaited_ending_fails_with_its_commit_and_is_written_later() {
    let kit = Kit::new(16);
    let (_, ending) = kit.log.record(record("/a")).await.unwrap();
    ending.complete_on_disk(done(403)).await.unwrap();
    assert_eq!(kit.rows()[0].status, Some(403));
    let (_, ending) = kit.log.record(record("/b")).await.unwrap();
    kit.sql(BREAK_ENDINGS);
    let failed = ending.complete_on_disk(done(403)).await;
    assert!(matches!(failed, Err(AuditError::Write(_))), "{failed:?}");
    assert_eq!(kit.rows()[0].status, None);
    kit.sql("DROP TRIGGER broken_ending");
    kit.log.probe().await.unwrap();
    assert_eq!(kit.rows()[0].status, Some(403));
}

#[tokio::test]
async fn a_probe_leaves_no_rows() {
    let kit = Kit::new(16);
    kit.log.probe().await.unwrap();
    assert!(kit.rows().is_empty());
    let (receipt, _ending) = kit.log.record(record("/a")).await.unwrap();
    assert_eq!(receipt.seq(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_exchanges_at_once_are_numbered_without_a_gap() {
    let kit = Kit::new(300);
    let decision = Arc::new(decision("/a"));
    let mut exchanges = JoinSet::new();
    for _ in 0..2000 {
        let (log, decision) = (Arc::clone(&kit.log), Arc::clone(&decision));
        exchanges.spawn(async move {
            let (receipt, ending) = log.record(record_of(&decision)).await.unwrap();
            ending.complete(done(200));
            receipt.seq()
        });
    }
    let given: BTreeSet<u64> = exchanges.join_all().await.into_iter().collect();
    assert_eq!(given.len(), 2000);
    let metrics = Arc::clone(&kit.metrics);
    let folder = kit.closed().await;
    assert_eq!(metrics.audit_queue.get(), 0);
    let kit = Kit::reopened(folder, 16);
    let rows = kit.rows();
    assert!(rows.iter().rev().map(|row| row.seq).eq(given));
    let (sums, found) = verify(&kit);
    assert_eq!((sums.decided, sums.lost, found), (2000, 0, Vec::new()));
    assert_eq!(last_of(&kit), 4000);
    assert!(rows.iter().all(|row| row.status == Some(200)));
    let snapshots = "SELECT count(*) FROM snapshot";
    let connection = Connection::open(kit.path()).unwrap();
    let snapshots: i64 = connection
        .query_row(snapshots, [], |row| row.get(0))
        .unwrap();
    assert_eq!(snapshots, 1);
}

#[tokio::test]
async fn a_closed_log_has_written_everything_and_takes_no_more() {
    let kit = Kit::new(16);
    let (_, ending) = kit.log.record(record("/a")).await.unwrap();
    ending.complete(done(200));
    let log = Arc::clone(&kit.log);
    let folder = kit.closed().await;
    assert!(matches!(
        log.record(record("/b")).await,
        Err(AuditError::Closed)
    ));
    assert!(matches!(log.probe().await, Err(AuditError::Closed)));
    log.close();
    let file = file(folder.path());
    assert!(!file.with_extension("db-wal").exists());
    assert_eq!(
        AuditReader::open(&file)
            .unwrap()
            .list(&DecisionFilter::default(), 0)
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn numbers_continue_where_they_ended_even_if_rows_were_deleted() {
    let kit = Kit::new(16);
    for _ in 0..3 {
        kit.log
            .record(record("/a"))
            .await
            .unwrap()
            .1
            .complete(done(200));
    }
    kit.log.probe().await.unwrap();
    kit.sql("DELETE FROM decision WHERE seq = 5");
    let folder = kit.closed().await;
    // Without its marker, which would make the start notice the missing rows.
    std::fs::remove_file(file(folder.path()).with_file_name("record")).unwrap();
    let kit = Kit::reopened(folder, 16);
    let (receipt, _ending) = kit.log.record(record("/a")).await.unwrap();
    assert_eq!(receipt.seq(), 7);
}

// Ours: other versions are not read, and not modified either.
#[tokio::test]
async fn a_file_of_another_version_is_refused_and_stays_as_it_is() {
    for version in [9, 22] {
        let kit = one_of_each().await;
        kit.sql(&format!("PRAGMA user_version = {version}"));
        // As a crash leaves them: with decisions only in the WAL.
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path());
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let files = ["audit.db", "audit.db-wal"];
        for name in files {
            std::fs::copy(kit.path().with_file_name(name), path.with_file_name(name)).unwrap();
        }
        let contents = || files.map(|name| std::fs::read(path.with_file_name(name)).unwrap());
        let before = contents();
        let options = options(folder.path(), 16);
        let metrics = Arc::new(Metrics::default());
        let is_refused = |error: &AuditError| {
            let versions = (version, 21);
            matches!(error, AuditError::Schema { found, known, .. }
                if (*found, *known) == versions)
        };
        let opened = AuditLog::open(&options, metrics, &TaskTracker::new());
        assert!(is_refused(&opened.unwrap_err()));
        assert!(is_refused(&AuditReader::open(&path).unwrap_err()));
        assert_eq!(contents(), before);
    }
}

#[tokio::test]
async fn a_file_of_another_kind_is_left_alone() {
    let tracker = TaskTracker::new();
    let open = |folder: &Path| {
        let options = options(folder, 16);
        AuditLog::open(&options, Arc::new(Metrics::default()), &tracker)
    };
    let foreign = tempfile::tempdir().unwrap();
    std::fs::create_dir(foreign.path().join("data")).unwrap();
    Connection::open(file(foreign.path()))
        .unwrap()
        .execute_batch("CREATE TABLE t (x)")
        .unwrap();
    assert!(matches!(
        open(foreign.path()),
        Err(AuditError::Schema { found: 0, .. })
    ));
    std::fs::write(file(foreign.path()), "no database, whatever its name says").unwrap();
    assert!(matches!(open(foreign.path()), Err(AuditError::Open(..))));
    let nowhere = foreign.path().join("nowhere.db");
    assert!(matches!(
        AuditReader::open(&nowhere),
        Err(AuditError::Missing(_))
    ));
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), "a file").unwrap();
    let options = options(folder.path(), 16);
    let log = AuditLog::open(&options, Arc::new(Metrics::default()), &TaskTracker::new());
    let Err(AuditError::Create(path, _)) = log else {
        panic!("opened");
    };
    assert_eq!(path, folder.path().join("data"));
}

#[tokio::test]
async fn only_the_owner_has_access_to_the_log() {
    use std::os::unix::fs::PermissionsExt;
    let kit = Kit::new(16);
    kit.log.probe().await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(kit.path().parent().unwrap()), 0o700);
    for extension in ["db", "db-wal", "db-shm"] {
        assert_eq!(
            mode(&kit.path().with_extension(extension)),
            0o600,
            "{extension}"
        );
    }
}

/// Returns a log with one row of every kind: no rule, rule, another reading,
/// unavailable, unreachable, egress.
async fn one_of_each() -> Kit {
    let kit = Kit::new(16);
    let missing = snapshot(AccessResult::Unavailable, Some(404));
    let cause = Cause::NoConnection(NoConnection::Refused);
    let unreachable = snapshot(AccessResult::Unreachable(cause), None);
    for decision in [
        decision("/a"),
        decision("/private/x"),
        decision("/a/../private"),
        decide(&inquiry("/b"), &missing, &policy(), now()),
        decide(
            &inquiry("/c"),
            &unreachable,
            &Arc::new(Policy::new(Unauthorized::Refuse)),
            now(),
        ),
        Decision::denied(inquiry("/d"), &policy(), now(), "denied".to_owned()),
    ] {
        let (_, ending) = kit.log.record(record_of(&decision)).await.unwrap();
        ending.complete(done(200));
    }
    kit.log.probe().await.unwrap();
    kit
}

fn last_of(kit: &Kit) -> i64 {
    let connection = Connection::open(kit.path()).unwrap();
    last_number(&connection).unwrap().unwrap()
}

fn verify(kit: &Kit) -> (Verification, Vec<String>) {
    let mut found = Vec::new();
    let report = |finding| found.push(finding);
    let verification = verify::verify(&kit.reader(), &DecisionFilter::default(), report).unwrap();
    (verification, found)
}

// Invariant 2 (ARCHITECTURE.md).
#[tokio::test]
async fn an_untouched_log_is_decided_again_without_a_finding() {
    let kit = one_of_each().await;
    let (verification, found) = verify(&kit);
    assert_eq!(found, Vec::<String>::new());
    let expected = Verification {
        decided: 5,
        form_only: 1,
        seals: SealSums {
            entries: 12,
            ..SealSums::default()
        },
        ..Verification::default()
    };
    assert_eq!(verification, expected);
}

/// Defines one test per row: a change to [`one_of_each`], and the findings.
macro_rules! tampering {
    ($($name:ident: $sql:expr => [$($found:expr),*];)*) => {$(
        #[tokio::test]
        async fn $name() {
            let kit = one_of_each().await;
            kit.sql(concat!("PRAGMA foreign_keys = OFF;", $sql));
            let (verification, found) = verify(&kit);
            let expected: &[&str] = &[$($found),*];
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.starts_with(expected), "{found}");
            }
            let gaps = found.iter().filter(|found| found.contains("no such row")).count();
            assert_eq!(verification.mismatches, (found.len() - gaps) as u64);
        }
    )*};
}

// Ours: findings of `audit verify` for each change. Entries 1, 3, 5, … are
// decisions, the others their endings.
tampering! {
    a_changed_verdict_is_found: "UPDATE ruling SET verdict = 'allow' WHERE id = 2" => [
        "ruling 2: the value has another digest",
        "3: the row says allow rule for FooBot (line 2, \"Disallow: /private\"), its evidence disallow rule",
        "5: the row says allow rule"
    ];
    the_ruling_of_another_row_is_found: "UPDATE decision SET ruling = 1 WHERE seq = 3"
        => ["3: the row says allow no_rule for FooBot, its evidence disallow rule"];
    a_changed_verdict_without_evidence_is_found: "UPDATE ruling SET verdict = 'allow' WHERE reason = 'egress'"
        => ["ruling 5: ", "11: cannot be decided again: its verdict is \"allow\""];
    a_changed_reason_is_found: "UPDATE ruling SET reason = 'no_group' WHERE id = 1"
        => ["ruling 1: ", "1: the row says allow no_group"];
    a_changed_line_is_found: "UPDATE ruling SET line = 3 WHERE id = 2"
        => ["ruling 2: ", "3: the row says", "5: the row says"];
    a_changed_rule_is_found: "UPDATE ruling SET rule = 'Disallow: /' WHERE id = 2"
        => ["ruling 2: ", "3: the row says", "5: the row says"];
    a_changed_reading_is_found: "UPDATE decision SET reading = NULL WHERE seq = 5" => ["5: the row says"];
    a_changed_group_is_found: "UPDATE ruling SET groups = '[' WHERE id = 2"
        => ["ruling 2: ", "3: the row says", "5: the row says"];
    a_changed_url_is_found: "UPDATE decision SET path = '/e' WHERE seq = 1"
        => ["1: the row is not as it was written"];
    an_unreadable_url_is_found: "UPDATE decision SET path = ' ' WHERE seq = 1"
        => ["1: cannot be decided again: its url cannot be read"];
    a_changed_host_is_found: "UPDATE origin SET host = 'p.test'; DELETE FROM decision WHERE 3 < seq;
            DELETE FROM ending WHERE 3 < decision; UPDATE sequence SET last = 4"
        => [
        "origin 1: the value has another digest",
        "the record's highest number",
        "1: the row is not as it was written",
        "3: the row is not as it was written",
        "5 to 12: no such rows"
    ];
    changed_candidates_are_found: r#"INSERT INTO crawler SELECT 9, '["FooBot","B"]', user_agent, label, x'00' FROM crawler;
            UPDATE decision SET crawler = 9 WHERE seq = 7"#
        => ["crawler 9: ", "7: the row is not as it was written"];
    candidates_that_bind_another_group_are_found: r#"INSERT INTO crawler SELECT 9, '["B"]', user_agent, label, x'00' FROM crawler;
            UPDATE decision SET crawler = 9 WHERE seq = 3"#
        => ["crawler 9: ", "3: the row says"];
    a_changed_client_is_found: "INSERT INTO client SELECT 9, '127.0.0.2', credential, x'00' FROM client;
            UPDATE decision SET client = 9 WHERE seq = 11"
        => ["client 9: ", "11: the row is not as it was written"];
    a_deleted_client_is_found: "DELETE FROM client; DELETE FROM decision WHERE seq = 1"
        => ["1: no such row", "3: the row is not", "5: ", "7: ", "9: ", "11: the row is not"];
    a_changed_wait_is_found: "UPDATE decision SET wait_ms = 8 WHERE seq = 1"
        => ["1: the row is not as it was written"];
    a_changed_time_is_found: "UPDATE decision SET time_us = time_us + 1 WHERE seq = 1"
        => ["1: the row is not as it was written"];
    a_changed_method_is_found: "INSERT INTO term VALUES (9, 'PUT', x'00'); UPDATE decision SET method = 9 WHERE seq = 1"
        => ["term 9: ", "1: the row is not as it was written"];
    a_changed_salt_is_found: "UPDATE decision SET salt = zeroblob(16) WHERE seq = 1"
        => ["1: the row is not as it was written"];
    a_changed_snapshot_is_found: "UPDATE snapshot SET cause = 'timeout' WHERE cause IS NOT NULL"
        => ["snapshot 3: ", "9: the row is not as it was written"];
    a_deleted_snapshot_is_found: "DELETE FROM snapshot WHERE status = 404"
        => ["7: cannot be decided again: its reason"];
    a_changed_body_is_found: "UPDATE body SET body = x'00'"
        => ["robots.txt ", "1: cannot be decided again: the body kept as", "3: ", "5: "];
    a_deleted_body_is_found: "DELETE FROM body" => ["1: cannot", "3: cannot", "5: cannot"];
    a_changed_policy_is_found: "UPDATE policy SET json = replace(json, 'refuse', 'allow')"
        => ["policy 2: the value has another digest", "9: the row is not as it was written"];
    a_changed_status_is_found: "UPDATE ending SET status = 403 WHERE decision = 3"
        => ["3: the row is not as it was written"];
    a_changed_count_of_bytes_is_found: "UPDATE ending SET bytes = 43 WHERE decision = 3"
        => ["3: the row is not as it was written"];
    changed_directives_are_found: "INSERT INTO directives SELECT 9, 'foobot=();state=complete', said, denials, x'00' FROM directives;
            UPDATE ending SET directives = 9 WHERE decision = 3"
        => ["directives 9: ", "3: the row is not as it was written"];
    changed_statements_are_found: "INSERT INTO directives SELECT 9, value, '[]', denials, x'00' FROM directives;
            UPDATE ending SET directives = 9 WHERE decision = 3"
        => ["directives 9: ", "3: the row is not as it was written"];
    deleted_directives_are_found: "UPDATE ending SET directives = 9 WHERE decision = 3"
        => ["3: the row is not as it was written"];
    an_ending_of_another_row_is_found: "UPDATE ending SET leaf = (SELECT leaf FROM ending WHERE decision = 1) WHERE decision = 3"
        => ["3: the row is not as it was written"];
    a_deleted_ending_is_reported: "DELETE FROM ending WHERE decision = 3" => ["4: no such row"];
    an_ending_with_another_number_is_found: "UPDATE ending SET seq = 40 WHERE decision = 3"
        => ["3: the row is not as it was written", "4: no such row"];
    an_ending_with_the_number_of_another_is_found: "UPDATE ending SET seq = 2 WHERE decision = 3"
        => ["2: two entries have this number", "3: the row is not as it was written", "4: no such row"];
    deleted_rows_are_reported: "DELETE FROM decision WHERE seq IN (1, 5, 11); DELETE FROM ending WHERE decision = 5"
        => ["1: no such row", "5 to 6: no such rows", "11: no such row"];
    an_inserted_row_is_found: "UPDATE decision SET seq = 99 WHERE seq = 11"
        => ["11: no such row", "99: the row is not as it was written"];
    a_changed_highest_number_is_found: "UPDATE sequence SET last = 9"
        => ["the record's highest number is not as it was written"];
    a_deleted_sequence_is_found: "DELETE FROM sequence"
        => ["the record's highest number is not as it was written"];
    a_forged_lost_range_is_found: "DELETE FROM ending WHERE decision = 3;
            INSERT INTO lost_range VALUES (4, 4, 0, x'00')"
        => ["4: the lost range is not as it was written"];
}

#[tokio::test]
async fn a_filter_narrows_what_is_listed_and_verified() {
    let kit = one_of_each().await;
    let filter = |set: fn(&mut DecisionFilter)| {
        let mut filter = DecisionFilter::default();
        set(&mut filter);
        let rows = kit.reader().list(&filter, 0).unwrap();
        rows.iter().map(|row| row.seq).collect::<Vec<_>>()
    };
    assert_eq!(
        filter(|f| f.verdict = Some("disallow".into())),
        [11, 9, 5, 3]
    );
    assert_eq!(filter(|f| f.reason = Some("unreachable".into())), [9]);
    assert_eq!(filter(|f| f.host = Some("O.Test.".into())).len(), 6);
    assert_eq!(filter(|f| f.host = Some("p.test".into())).len(), 0);
    assert_eq!(filter(|f| f.crawler = Some("FOOBOT".into())).len(), 6);
    assert_eq!(
        filter(|f| f.from = "2126-11-21T04:30:00Z".parse().ok()).len(),
        6
    );
    assert_eq!(
        filter(|f| f.until = "2126-11-21T04:30:00Z".parse().ok()).len(),
        0
    );

    let newest = kit.reader().list(&DecisionFilter::default(), 2).unwrap();
    let newest = newest.iter().map(|row| row.seq);
    assert_eq!(newest.collect::<Vec<_>>(), [11, 9]);
    let narrow = DecisionFilter {
        reason: Some("rule".into()),
        ..DecisionFilter::default()
    };
    let verification =
        verify::verify(&kit.reader(), &narrow, |finding| panic!("{finding}")).unwrap();
    assert_eq!(verification.decided, 2);
}

// Ours: the members of a row, as listed in docs/asking.md.
#[tokio::test]
async fn a_row_is_printed_with_the_names_of_the_contract() {
    let kit = one_of_each().await;
    let rows = kit.rows();
    let row = row_json(&rows[4]);
    let said = serde_json::json!([{ "by": "x-robots-tag", "said": "NoIndex, spam" }]);
    let expected = serde_json::json!({
        "seq": 3, "time": "2126-11-21T04:30:00Z", "client": "127.0.0.1",
        "crawler": "FooBot", "user_agent": "FooBot/2.1", "label": null, "method": "GET",
        "url": "http://o.test/private/x", "verdict": "disallow", "reason": "rule",
        "effect": "enforced", "line": 2, "rule": "Disallow: /private",
        "group": ["foobot"], "reading": null,
        "robots": {
            "url": "http://o.test/robots.txt", "status": 200,
            "sha256": Digest::of(ROBOTS.as_bytes()).to_string(),
        },
        "policy": policy().digest().to_string(), "wait_ms": 7,
        "status": 200, "sent": 0,
        "directives": { "value": "foobot=(noindex;src=x);state=complete", "said": said },
        "purposes": null, "denials": [], "bytes": 42, "error": null,
    });
    assert_eq!(row, expected);
    let egress = row_json(&rows[0]);
    assert_eq!(
        (&egress["robots"], &egress["group"]),
        (&().into(), &().into())
    );
}
