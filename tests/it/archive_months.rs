//! Months that leave the archive, by order: what goes, what stays, and how `verify` tells
//! them from what somebody has removed. All ours; docs/archive.md.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use politesse::audit::{AuditLog, Durability, Options, RecordEnding, SealOptions};
use politesse::clock;
use politesse::decision::decide::{Inquiry, Policy, Unauthorized, decide};
use politesse::decision::record::{ExchangeEnd, Record};
use politesse::decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse::metrics::Metrics;
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use serde_json::Value;
use tokio_util::task::TaskTracker;

use crate::kit::archive_fleet::lines;
use crate::kit::postgres::Postgres;
use crate::kit::program::Outcome;
use crate::kit::proxy::{Config, Place};
use crate::kit::run;

/// Decisions of an earlier month: with their endings more than a part of 8,192 numbers.
const OLD: usize = 4500;

/// Decision of the first part whose exchange ends after all others.
const LONG: usize = 7;

/// Decisions of the present.
const NEW: usize = 5;

/// Host of an earlier month.
const OLD_HOST: &str = "http://old.test/";

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77));

/// Time in an earlier month.
pub(crate) fn old() -> Timestamp {
    clock::now() - SignedDuration::from_hours(24 * 70)
}

/// Returns the month of a time, as partitions are called.
fn month(time: Timestamp) -> String {
    time.to_zoned(TimeZone::UTC).strftime("%Y_%m").to_string()
}

pub(crate) fn snapshot(url: &str) -> Arc<Snapshot> {
    let target: Target = format!("{url}robots.txt").parse().unwrap();
    let file = RobotsFile::new(Bytes::from_static(b"User-agent: *\nDisallow: /no\n"));
    Arc::new(Snapshot {
        url: target.to_string(),
        key: CacheKey::new(target.origin, None),
        hops: Vec::new(),
        status: Some(200),
        fetched_at: old(),
        expires_at: clock::now() + SignedDuration::from_hours(24),
        result: AccessResult::Successful(Arc::new(file)),
        stale: None,
    })
}

/// Record that is written here, by decisions of any time.
pub(crate) struct PastRecord {
    log: AuditLog,
    tracker: TaskTracker,
}

impl PastRecord {
    pub(crate) fn open(place: &Place) -> Self {
        let tracker = TaskTracker::new();
        let options = Options {
            durability: Durability::Queue,
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
        let record = Record::of(&decision, CLIENT, Duration::ZERO);
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

/// Makes the record of a node with a month that is over, and some decisions of now.
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

/// Archive with two nodes: one with a month that is over, and one that is younger.
pub(crate) struct Archive {
    pub(crate) postgres: Postgres,
    pub(crate) north: Place,
    pub(crate) south: Place,
}

impl Archive {
    /// Makes two nodes that have shipped nothing yet.
    pub(crate) async fn empty() -> Self {
        let postgres = Postgres::start().await;
        let place = |name: &str| {
            Place::with(
                &Config::default()
                    .set(&format!("fleet.node = \"{name}\""))
                    .set(&format!("audit.archive = \"{}\"", postgres.url())),
            )
        };
        let (north, south) = (place("north"), place("south"));
        Self {
            postgres,
            north,
            south,
        }
    }

    pub(crate) async fn shipped() -> Self {
        let archive = Self::empty().await;
        record(&archive.north).await;
        let young = PastRecord::open(&archive.south);
        let host = snapshot("http://new.test/");
        for number in 0..NEW {
            end(
                young.decision(&host, number, clock::now()).await,
                (number % 2) as u32,
            );
        }
        young.close().await;
        for place in [&archive.north, &archive.south] {
            done(&place.run(&["audit", "ship", "--once"]).await);
        }
        archive
    }

    /// Runs `audit --archive`, by the configuration of the younger node.
    pub(crate) async fn ask(&self, arguments: &[&str]) -> Outcome {
        let command = ["audit", "--archive"];
        self.south.run(&[&command, arguments].concat()).await
    }

    /// Removes what is in months before the one of 30 days ago, signed by the younger node.
    pub(crate) async fn prune(&self) -> String {
        done(&self.ask(&["prune", "--before", "30d", "--yes"]).await)
    }

    pub(crate) async fn verified(&self) -> Vec<Value> {
        lines(&self.ask(&["verify", "--json"]).await)
    }

    async fn decisions_of(&self, month: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM decision_{month}");
        self.postgres.number(&sql).await
    }
}

/// Makes the record of `north` again, in its folder `again`.
pub(crate) async fn fetch_again(place: &Place) {
    let fetch = [
        "audit",
        "--archive",
        "--node",
        "north",
        "fetch",
        "-o",
        "again",
    ];
    done(&place.run(&fetch).await);
}

pub(crate) fn done(outcome: &Outcome) -> String {
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome.stdout.clone()
}

#[test]
fn months_that_were_removed_by_order_are_told_from_what_is_missing() {
    run(async {
        let archive = Archive::shipped().await;
        let all = archive.verified().await;
        assert_eq!(all[0]["removed"], Value::Array(Vec::new()));
        let told = done(&archive.ask(&["prune", "--before", "30d"]).await);
        assert_eq!(
            told,
            "node north: entries 1 to 8192 would be removed\n--yes removes them\n"
        );
        assert_eq!(archive.decisions_of(&month(old())).await, OLD as i64);
        assert_eq!(
            archive.prune().await,
            "node north: entries 1 to 8192 are removed\n"
        );
        // The part that is not over, and the decision that ended in it.
        let left = archive.decisions_of(&month(old())).await;
        assert_eq!(left, OLD as i64 - 4096 + 1);
        let listed = lines(&archive.ask(&["list", "--json", "--limit", "0"]).await);
        assert_eq!(listed.len() as i64, left + 2 * NEW as i64);
        let verified = archive.verified().await;
        let (before, after) = (&all[0], &verified[0]);
        assert_eq!(after["findings"], Value::Array(Vec::new()));
        assert_eq!(after["pruned"], 8192);
        assert_eq!(after["missing"], 0);
        assert_eq!(after["sealed"], before["sealed"]);
        assert_eq!(after["decided"].as_i64(), Some(left + NEW as i64));
        let removed = &after["removed"][0];
        assert_eq!(
            (&removed["first"], &removed["last"]),
            (&1.into(), &8192.into())
        );
        assert_eq!(removed["signer"], "south");
        assert_eq!(verified[1], all[1]);
        let said = done(&archive.ask(&["verify"]).await);
        assert!(
            said.contains("entries 1 to 8192 were removed at 20"),
            "{said}"
        );
        assert!(said.contains("signed by south"), "{said}");
        // Twice is once.
        let again = archive.prune().await;
        assert!(again.contains("nothing to remove"), "{again}");
        // Both go on shipping.
        for place in [&archive.north, &archive.south] {
            let record = PastRecord::open(place);
            let host = snapshot("http://new.test/");
            end(record.decision(&host, 1, old()).await, 1);
            record.close().await;
            done(&place.run(&["audit", "ship", "--once"]).await);
        }
        assert_eq!(
            archive.verified().await[0]["findings"],
            Value::Array(Vec::new())
        );
    });
}

#[test]
fn a_removal_takes_the_values_that_nothing_else_refers_to() {
    run(async {
        let archive = Archive::shipped().await;
        let host = "SELECT count(*) FROM origin WHERE host = 'once.test'";
        assert_eq!(archive.postgres.number(host).await, 1);
        archive.prune().await;
        assert_eq!(archive.postgres.number(host).await, 0);
        archive.verified().await;
        for (table, condition) in [
            ("snapshot", "id NOT IN (SELECT snapshot FROM decision)"),
            ("ruling", "id NOT IN (SELECT ruling FROM decision)"),
            ("origin", "id NOT IN (SELECT origin FROM decision)"),
            ("client", "id NOT IN (SELECT client FROM decision)"),
            ("body", "sha256 NOT IN (SELECT body FROM snapshot)"),
        ] {
            let sql = format!("SELECT count(*) FROM {table} WHERE {condition}");
            assert_eq!(archive.postgres.number(&sql).await, 0, "{table}");
        }
    });
}

#[test]
fn a_removal_that_no_signed_row_explains_is_found() {
    run(async {
        let archive = Archive::shipped().await;
        archive.prune().await;
        let month = month(old());
        let drop_month = format!("DROP TABLE decision_{month}, ending_{month}");
        let changes = [
            (
                "UPDATE removal SET time_us = time_us + 1",
                "is not as it was signed",
            ),
            ("UPDATE removal SET last = 16384", "is not as it was signed"),
            (
                "UPDATE removal SET note = replace(note, 'remaining ', 'remaining f')",
                "is damaged",
            ),
            (
                "UPDATE removal SET note = replace(note, 'time 2', 'time 1')",
                "is not signed by",
            ),
            (
                "UPDATE removal SET vkey = (SELECT vkey FROM seal ORDER BY log LIMIT 1)",
                "is not signed by",
            ),
            ("DELETE FROM removal", "no such rows"),
            ("DELETE FROM leaf_path", "leaf_path"),
            ("UPDATE seal SET path = NULL", "the table seal"),
            (
                "DELETE FROM decision WHERE log = 1 AND seq < 8192",
                "no such row",
            ),
            (&drop_month, "no such rows"),
        ];
        for (number, (change, word)) in changes.into_iter().enumerate() {
            let name = format!("changed_{number}");
            let changed = archive.postgres.changed(&name, change).await;
            let asked = format!("--archive={changed}");
            let found = archive.south.run(&["audit", &asked, "verify"]).await;
            assert_eq!(found.code, Some(1), "{change}: {found:?}");
            assert!(found.stdout.contains(word), "{change}: {found:?}");
        }
        archive.verified().await;
    });
}

#[test]
fn nothing_is_removed_that_is_not_as_it_was_sealed() {
    run(async {
        let archive = Archive::shipped().await;
        archive
            .postgres
            .sql("DELETE FROM decision WHERE log = 1 AND seq = 100")
            .await;
        let refused = archive.ask(&["prune", "--before", "30d", "--yes"]).await;
        assert_eq!(refused.code, Some(1), "{refused:?}");
        let text = "entries 1 to 8192 of node north are not as they were sealed";
        assert!(refused.stderr.contains(text), "{refused:?}");
        assert_eq!(archive.decisions_of(&month(old())).await, OLD as i64 - 1);
        assert_eq!(
            archive
                .postgres
                .number("SELECT count(*) FROM removal")
                .await,
            0
        );
    });
}

#[test]
fn a_record_that_is_fetched_says_who_has_signed_its_removal() {
    run(async {
        let archive = Archive::shipped().await;
        archive.prune().await;
        let fetch = ["--node", "north", "fetch", "-o", "again"];
        let fetched = archive.ask(&fetch).await;
        assert_eq!(fetched.code, Some(0), "{fetched:?}");
        assert!(
            fetched.stderr.contains("which south has signed"),
            "{fetched:?}"
        );
        let store = "audit.store=\"sqlite:again/audit.db\"";
        let verify = ["--set", store, "audit", "verify"];
        let unknown = archive.south.run(&verify).await;
        assert_eq!(unknown.code, Some(1), "{unknown:?}");
        assert!(unknown.stdout.contains("or of one of --key"), "{unknown:?}");
        let mut keys = String::new();
        for place in [&archive.north, &archive.south] {
            keys.push_str(&done(&place.run(&["audit", "key"]).await));
        }
        std::fs::write(archive.south.path("keys.txt"), &keys).unwrap();
        let known = [&verify[..], &["--key", "keys.txt"]].concat();
        done(&archive.south.run(&known).await);
        // In the archive, too: a key that is not among them signs nothing.
        done(&archive.ask(&["verify", "--key", "keys.txt"]).await);
        let own = keys.lines().next().unwrap();
        let foreign = archive
            .ask(&["--node", "north", "verify", "--key", own])
            .await;
        assert_eq!(foreign.code, Some(1), "{foreign:?}");
        assert!(
            foreign
                .stdout
                .contains("is not signed by the key of a node"),
            "{foreign:?}"
        );
    });
}

#[test]
fn a_prune_of_the_archive_says_what_it_cannot_do() {
    run(async {
        let archive = Archive::shipped().await;
        // The month that is not over.
        let now = clock::now()
            .to_zoned(TimeZone::UTC)
            .strftime("%Y-%m")
            .to_string();
        let said = done(&archive.ask(&["prune", "--before", "3650d", "--yes"]).await);
        assert!(said.contains("there is nothing to remove"), "{said}");
        archive.prune().await;
        let said = done(&archive.ask(&["prune", "--before", "1s", "--yes"]).await);
        assert!(
            said.contains(&format!("{now} is the first that stays")),
            "{said}"
        );
        let later = archive.ask(&["prune", "--before", "2999-01-01"]).await;
        assert_eq!(later.code, Some(2), "{later:?}");
        let one = archive
            .ask(&["--node", "north", "prune", "--before", "30d"])
            .await;
        assert_eq!(one.code, Some(2), "{one:?}");
        assert!(one.stderr.contains("leave --node out"), "{one:?}");
        // A node that has shipped nothing of later months.
        archive
            .postgres
            .sql("UPDATE node SET last_us = 0 WHERE name = 'south'")
            .await;
        let late = archive.ask(&["prune", "--before", "30d"]).await;
        assert!(
            late.stderr.contains("node south: entries up to"),
            "{late:?}"
        );
    });
}

#[test]
fn a_removal_is_signed_by_the_key_of_a_node_that_ships() {
    run(async {
        let archive = Archive::shipped().await;
        let config = Config::default()
            .set("fleet.node = \"desk\"")
            .set(&format!("audit.archive = \"{}\"", archive.postgres.url()));
        let desk = Place::with(&config);
        let prune = ["audit", "--archive", "prune", "--before", "30d", "--yes"];
        let keyless = desk.run(&prune).await;
        assert_eq!(keyless.code, Some(1), "{keyless:?}");
        let text = "a removal is signed by the key of a node";
        assert!(keyless.stderr.contains(text), "{keyless:?}");
        let record = PastRecord::open(&desk);
        end(record.decision(&snapshot(OLD_HOST), 1, old()).await, 1);
        record.close().await;
        let foreign = desk.run(&prune).await;
        assert_eq!(foreign.code, Some(2), "{foreign:?}");
        let text = "the archive has no head that the key of this record has signed";
        assert!(foreign.stderr.contains(text), "{foreign:?}");
        assert_eq!(archive.decisions_of(&month(old())).await, OLD as i64);
    });
}
