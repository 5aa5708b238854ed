//! Decisions of several months: late entries, and removal from the archive by month. All
//! ours; docs/archive.md.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_decision::decide::{Inquiry, Policy, Unauthorized, decide};
use politesse_decision::record::{ExchangeEnd, Record};
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse_record::{AuditLog, Options, RecordEnding, SealOptions};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use tokio_util::task::TaskTracker;

use crate::kit::archived::{ArchivedNode, shipping};
use crate::kit::assert_contains;
use crate::kit::postgres::Postgres;
use crate::kit::program::Outcome;
use crate::kit::proxy::{Config, Place};

/// Number of old decisions; with their endings they fill more than one part of 8,192
/// numbers.
const OLD: usize = 4500;

/// Index of an old decision in the first part whose exchange ends after all others.
const LONG: usize = 7;

/// Number of current decisions.
const NEW: usize = 5;

const DECISIONS: &str = "SELECT count(*) FROM decision";

/// Host of the old decisions.
const OLD_HOST: &str = "http://old.test/";

pub(crate) const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77));

/// Returns a time in an earlier month.
pub(crate) fn old() -> Timestamp {
    clock::now() - SignedDuration::from_hours(24 * 70)
}

pub(crate) fn snapshot(url: &str) -> Arc<Snapshot> {
    let target: Target = format!("{url}robots.txt").parse().unwrap();
    let text = format!("User-agent: *\nDisallow: /no\n# {url}\n");
    let file = RobotsFile::new(Bytes::from(text));
    Arc::new(Snapshot {
        url: target.to_string(),
        key: CacheKey::new(target.origin, None),
        hops: Vec::new(),
        status: Some(200),
        fetched_at: old(),
        expires_at: clock::now() + SignedDuration::from_hours(24),
        result: AccessResult::Successful(Arc::new(file)),
        stale: None,
        tdm: None,
    })
}

/// A record written by the test itself, so that decisions can have any time.
pub(crate) struct PastRecord {
    log: AuditLog,
    tracker: TaskTracker,
}

impl PastRecord {
    pub(crate) fn open(place: &Place) -> Self {
        let tracker = TaskTracker::new();
        let options = Options {
            queue: NonZeroUsize::new(4096).unwrap(),
            wal_max: 1 << 30,
            waits_for_archive: true,
            seal: SealOptions {
                entries: NonZeroUsize::new(1000).unwrap(),
                ..SealOptions::default()
            },
            ..Options::new(place.path("audit.db"))
        };
        let log = AuditLog::open(&options, Arc::new(Metrics::default()), &tracker).unwrap();
        Self { log, tracker }
    }

    pub(crate) async fn decision(
        &self,
        host: &Arc<Snapshot>,
        number: usize,
        at: Timestamp,
    ) -> RecordEnding {
        let path = ["no", "yes"][number % 2];
        let inquiry = Arc::new(Inquiry {
            crawler: Crawler::parse("FooBot/2.1"),
            target: Target::new(host.key.origin.clone(), &format!("/{path}/{number}")).unwrap(),
            method: "GET".to_owned(),
        });
        let policy = Arc::new(Policy::new(Unauthorized::Allow));
        let decision = decide(&inquiry, host, &policy, at);
        self.write(Record::of(&decision, CLIENT, Duration::ZERO))
            .await
    }

    pub(crate) async fn write(&self, record: Record) -> RecordEnding {
        self.log.record(record).await.unwrap().1
    }

    pub(crate) async fn close(self) {
        self.log.close();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

pub(crate) fn end(ending: RecordEnding, sent: u32) {
    ending.complete(ExchangeEnd {
        status: Some(200),
        sent,
        seen: None,
        bytes: 10,
        error: None,
    });
}

/// Creates a node's record with decisions of an earlier month and of now.
pub(crate) async fn record(place: &Place) {
    let record = PastRecord::open(place);
    let (before, now) = (snapshot(OLD_HOST), snapshot("http://new.test/"));
    let once = snapshot("http://once.test/");
    let mut long = None;
    for number in 0..OLD {
        let at = old() + SignedDuration::from_millis(number as i64);
        let host = if number == 0 { &once } else { &before };
        let ending = record.decision(host, number, at).await;
        match number {
            LONG => long = Some(ending),
            number => end(ending, (number % 2) as u32),
        }
    }
    end(long.unwrap(), 1);
    for number in 0..NEW {
        end(
            record.decision(&now, number, clock::now()).await,
            (number % 2) as u32,
        );
    }
    record.close().await;
}

/// An archive with two nodes: `north` has an earlier month, `south` only current
/// decisions.
pub(crate) struct Archive {
    pub(crate) postgres: Postgres,
    pub(crate) north: Place,
    pub(crate) south: Place,
}

impl Archive {
    /// Creates two nodes that have shipped nothing yet.
    pub(crate) async fn empty() -> Self {
        let postgres = Postgres::start().await;
        let [north, south] = ["north", "south"].map(|name| {
            let config = Config::default().set(&format!("fleet.node = \"{name}\""));
            Place::with(&shipping(config, &postgres.url()))
        });
        Self {
            postgres,
            north,
            south,
        }
    }

    pub(crate) async fn shipped() -> Self {
        let archive = Self::empty().await;
        record(&archive.north).await;
        write(&archive.south, "http://new.test/", &[clock::now(); NEW]).await;
        for place in [&archive.north, &archive.south] {
            ship(place).await;
        }
        archive
    }

    /// Runs `audit --archive` with `words` and the configuration of `south`.
    pub(crate) async fn ask(&self, words: &str) -> Outcome {
        self.south.audit(&format!("--archive {words}")).await
    }

    /// Prunes all months before the month of 30 days ago.
    async fn prune(&self) -> String {
        let prune = "prune --before 30d --why old --yes";
        self.ask(prune).await.stdout
    }

    /// Counts the decisions in the partition of the month of [`old`].
    async fn old_decisions(&self) -> i64 {
        let month = old().to_zoned(TimeZone::UTC).strftime("%Y_%m");
        let sql = format!("SELECT count(*) FROM decision_{month}");
        self.postgres.number(&sql).await
    }

    async fn assert_whole(&self, place: &Place) {
        ship(place).await;
        let node = ArchivedNode::of(&self.postgres, place).await;
        node.assert_whole().await;
    }
}

pub(crate) async fn ship(place: &Place) {
    place.audit("ship --once").await;
}

/// Adds decisions at `times` to a node's record.
pub(crate) async fn write(place: &Place, host: &str, times: &[Timestamp]) {
    let record = PastRecord::open(place);
    let snapshot = snapshot(host);
    for (number, at) in times.iter().enumerate() {
        let ending = record.decision(&snapshot, number, *at).await;
        end(ending, (number % 2) as u32);
    }
    record.close().await;
}

#[tokio::test]
async fn prune_drops_months_with_the_texts_only_they_refer_to() {
    let archive = Archive::shipped().await;
    let old_month = old().to_zoned(TimeZone::UTC).strftime("%Y-%m").to_string();
    let told = archive.ask("prune --before 30d --why old").await.stdout;
    let wanted = format!(
        "month {old_month}, {OLD} decisions: would be removed\n--yes removes them, with the entries of all nodes\n"
    );
    assert_eq!(told, wanted);
    assert_eq!(archive.old_decisions().await, OLD as i64);
    let files = "SELECT count(*) FROM robots";
    assert_eq!(archive.postgres.number(files).await, 3);
    let removed = format!("month {old_month}, {OLD} decisions: removed\n");
    assert_eq!(archive.prune().await, removed);
    assert_eq!(archive.postgres.number(files).await, 1);
    let kept = "SELECT count(*) FROM removal WHERE why = 'old' AND 0 <= uid";
    assert_eq!(archive.postgres.number(kept).await, 1);
    let listed = archive.ask("list --json --limit 0").await.json_lines();
    assert_eq!(listed.len(), 2 * NEW);
    for row in listed {
        assert_contains(row["url"].as_str().unwrap(), "new.test");
    }
    // A second run finds nothing.
    let again = archive.prune().await;
    assert!(again.contains("nothing to remove"), "{again}");
    let alone = "--archive --node north prune --before 30d --why x";
    archive.south.audit_code(2, alone).await;
    // Nodes keep shipping, even a decision of a removed month with its robots.txt.
    for place in [&archive.north, &archive.south] {
        write(place, OLD_HOST, &[old(), clock::now()]).await;
        ship(place).await;
    }
    assert_eq!(archive.old_decisions().await, 2);
    assert_eq!(archive.postgres.number(files).await, 2);
    // The proof is in the node's record, which is unchanged.
    archive.north.assert_verified().await;
}

#[tokio::test]
async fn a_long_running_reader_makes_prune_fail() {
    let archive = Archive::shipped().await;
    let reader = archive.postgres.session("SELECT count(*) FROM decision");
    reader.begun().await;
    let prune = "--archive prune --before 30d --why old --yes --set audit.archive_timeout=\"1s\"";
    let refused = archive.south.audit_code(1, prune).await;
    assert_contains(&refused.stderr, "read or written all the time");
    assert_eq!(archive.old_decisions().await, OLD as i64);
    drop(reader);
}

#[tokio::test]
async fn a_late_ending_is_added_to_its_shipped_decision() {
    let archive = Archive::empty().await;
    let record = PastRecord::open(&archive.north);
    let host = snapshot("http://new.test/");
    let mut open = Vec::new();
    for number in 0..3 {
        open.push(record.decision(&host, number, old()).await);
    }
    let without = "SELECT count(*) FROM decision WHERE sent IS NULL";
    ship(&archive.north).await;
    assert_eq!(archive.postgres.number(without).await, 3);
    // The first ending comes soon, the second after many decisions, the third never.
    for left in [2, 1] {
        end(open.remove(0), 1);
        for number in 0..OLD {
            end(record.decision(&host, number, clock::now()).await, 0);
        }
        ship(&archive.north).await;
        assert_eq!(archive.postgres.number(without).await, left);
    }
    drop(open);
    record.close().await;
    archive.assert_whole(&archive.north).await;
    let decisions = archive.postgres.number(DECISIONS).await;
    assert_eq!(decisions, 3 + 2 * OLD as i64);
}

#[tokio::test]
async fn a_redaction_reaches_decisions_of_every_month() {
    let archive = Archive::shipped().await;
    // Two old decisions, and a current one.
    let last = archive.north.number(OLD + 1);
    let redact = format!("redact --why 'asked for' --yes --seq 15 16 {last}");
    archive.north.audit(&redact).await;
    archive.assert_whole(&archive.north).await;
    let redacted = "SELECT count(*) FROM decision WHERE client IS NULL AND credential IS NULL
                        AND url IS NULL AND host IS NOT NULL AND reading IS NULL";
    assert_eq!(archive.postgres.number(redacted).await, 3);
    // Verdict, rule and robots.txt of a redacted decision stay.
    let rows = "SELECT count(*) FROM decision WHERE url IS NULL AND verdict = 'disallow'
                    AND rule IS NOT NULL AND robots_sha256 IS NOT NULL";
    assert_ne!(archive.postgres.number(rows).await, 0);
}

#[tokio::test]
async fn a_pruned_record_ships_its_remaining_entries() {
    let archive = Archive::empty().await;
    record(&archive.north).await;
    let prune = "prune --before 30d --why test --yes --set audit.archive=\"none\"";
    archive.north.audit(prune).await;
    archive.assert_whole(&archive.north).await;
    let remains = "SELECT count(*) FROM decision WHERE seq = 15";
    assert_eq!(archive.postgres.number(remains).await, 1);
}

// A node ships the entries before it removes them.
#[tokio::test]
async fn entries_removed_from_a_node_stay_in_the_archive_until_pruned() {
    let archive = Archive::empty().await;
    record(&archive.north).await;
    let prune = "prune --before 30d --why test --yes";
    let removed = archive.north.audit(prune).await.stdout;
    assert_contains(&removed, "entries 1 to 8192 are removed");
    assert_eq!(archive.old_decisions().await, OLD as i64);
    archive.prune().await;
    assert_eq!(archive.postgres.number(DECISIONS).await, NEW as i64);
}
