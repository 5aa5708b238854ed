//! Cost of the record for a decision and its ending: CPU time of the writer, bytes on
//! disk, and the speed of reading, verifying and bundling the record.
//!
//! `cargo bench --bench record`, or with `ROWS=5000000` for searches in a long record.
//! The writer runs on a thread of its own, whose CPU time the system counts. Waits for
//! the disk are not included.

#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::fs::File;
use std::io::BufWriter;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_decision::decide::{Decision, Inquiry, Policy, Unauthorized, decide};
use politesse_decision::record::{ExchangeEnd, Record, Seen};
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse_record::bundle::{verify_bundle, write_bundle};
use politesse_record::filter::DecisionFilter;
use politesse_record::reader::AuditReader;
use politesse_record::stats::{StatKey, StatOrder, stats};
use politesse_record::verify::verify;
use politesse_record::{AuditLog, Direction, Options};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

/// Allocator of the program.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ROBOTS: &str = "User-agent: *\nDisallow: /private\nCrawl-delay: 1\n";

/// Decisions for each row of the table, unless `ROWS` says otherwise.
const ROWS: usize = 300_000;

/// Decisions in a bundle at most: a day of a crawl at 12 requests a second.
const BUNDLED: u64 = 1_000_000;

/// Distance between two refusals, in decisions.
const REFUSED_EVERY: usize = 5_000;

/// Connections that wait for their commits at the same time.
const CONNECTIONS: usize = 32;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let rows = std::env::var("ROWS")
        .ok()
        .and_then(|rows| rows.parse().ok());
    let rows = rows.unwrap_or(ROWS);
    println!("| hosts | CPU of the writer | wall time | bytes beside the path |");
    println!("|---|---|---|---|");
    for hosts in [1, 10_000] {
        let folder = tempfile::tempdir().expect("a folder");
        let work = Work::new(hosts, rows);
        Arc::new(work).run(folder.path()).await;
        if hosts == 10_000 {
            read(&folder.path().join("audit.db"));
        }
    }
}

/// Decisions to record.
struct Work {
    snapshots: Vec<Arc<Snapshot>>,
    rows: usize,
    policy: Arc<Policy>,
    crawler: Crawler,
    /// Time of the first decision.
    began: jiff::Timestamp,
}

impl Work {
    fn new(hosts: usize, rows: usize) -> Self {
        Self {
            snapshots: (0..hosts).map(snapshot).collect(),
            rows,
            policy: Arc::new(Policy::new(Unauthorized::Allow)),
            crawler: Crawler::parse("ExampleBot/2.1 (+https://example.test/bot)"),
            began: clock::now(),
        }
    }

    /// Records all decisions and prints what they cost.
    async fn run(self: Arc<Self>, folder: &Path) {
        let path = folder.join("audit.db");
        let options = Options {
            queue: NonZeroUsize::new(16_384).expect("it is not 0"),
            wal_max: 1 << 30,
            ..Options::new(path.clone())
        };
        let tracker = TaskTracker::new();
        let log = AuditLog::open(&options, Arc::new(Metrics::default()), &tracker);
        let log = Arc::new(log.expect("a record"));
        // The first decision about a host also writes data that is stored only once.
        // Record one for each host before the measurement.
        let hosts = self.snapshots.len();
        let first_bytes = self.record_each(&log, 0..hosts, 1).await;
        log.probe().await.expect("it can be written");
        let before = cpu_of_writers();
        let start = clock::instant();
        let mut lanes = JoinSet::new();
        for lane in 0..CONNECTIONS {
            let (work, log) = (Arc::clone(&self), Arc::clone(&log));
            let numbers = lane..work.rows;
            lanes.spawn(async move { work.record_each(&log, numbers, CONNECTIONS).await });
        }
        let path_bytes: usize = lanes.join_all().await.into_iter().sum();
        log.close();
        tracker.close();
        tracker.wait().await;
        let cpu = cpu_of_writers().saturating_sub(before);
        let wall = clock::instant().duration_since(start);
        let size = std::fs::metadata(&path).expect("a database").len();
        let count = self.rows as f64;
        println!(
            "| {} | {:.2} µs | {:.2} µs | {:.1} |",
            hosts,
            cpu.as_secs_f64() * 1e6 / count,
            wall.as_secs_f64() * 1e6 / count,
            (size as f64 - (first_bytes + path_bytes) as f64) / (count + hosts as f64),
        );
    }

    /// Records every `step`th decision of these numbers. Returns the total length of
    /// their paths in bytes.
    async fn record_each(&self, log: &AuditLog, numbers: Range<usize>, step: usize) -> usize {
        let mut path_bytes = 0;
        for number in numbers.step_by(step) {
            let decision = self.decision(number);
            path_bytes += decision.evidence().inquiry.target.path_and_query().len();
            let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let record = Record::of(&decision, client, Duration::ZERO);
            let (_, ending) = log.record(record).await.expect("a receipt");
            ending.complete(match number % REFUSED_EVERY {
                0 => ExchangeEnd {
                    status: Some(403),
                    sent: 0,
                    seen: None,
                    bytes: 512,
                    error: None,
                },
                _ => ExchangeEnd {
                    status: Some(200),
                    sent: 1,
                    seen: Some(Seen {
                        directives: "*=();state=complete".to_owned(),
                        said: None,
                        denials: Vec::new(),
                    }),
                    bytes: 10_240,
                    error: None,
                },
            });
        }
        path_bytes
    }

    fn decision(&self, number: usize) -> Decision {
        // The stride is coprime to the number of hosts, so consecutive decisions are
        // about different hosts.
        let snapshot = &self.snapshots[number * 7919 % self.snapshots.len()];
        // One refusal in 5,000 requests: a search for the newest ones passes many other
        // rows.
        let folder = match number % REFUSED_EVERY {
            0 => "private",
            _ => "catalog",
        };
        let path = format!(
            "/{folder}/category-{}/page?id={number}&sort=asc",
            number % 977
        );
        let inquiry = Arc::new(Inquiry {
            crawler: self.crawler.clone(),
            target: Target::new(snapshot.key.origin.clone(), &path).expect("a URL"),
            method: "GET".to_owned(),
        });
        // A hundred decisions a second, so that a search by time skips hours of the
        // record.
        let at = self.began + Duration::from_millis(10 * number as u64);
        decide(&inquiry, snapshot, &self.policy, at)
    }
}

fn snapshot(host: usize) -> Arc<Snapshot> {
    let target: Target = format!("https://host-{host}.example.test/robots.txt")
        .parse()
        .expect("a URL");
    let file = RobotsFile::new(Bytes::from_static(ROBOTS.as_bytes()));
    let now = clock::now();
    Arc::new(Snapshot {
        url: target.to_string(),
        key: CacheKey::new(target.origin, None),
        hops: Vec::new(),
        status: Some(200),
        fetched_at: now,
        expires_at: now + jiff::SignedDuration::from_hours(24),
        result: AccessResult::Successful(Arc::new(file)),
        stale: None,
        tdm: None,
    })
}

/// Returns the CPU time of all threads except the main one, which makes the decisions.
/// A writer's thread lives for some seconds after the writer ends, so it still counts.
fn cpu_of_writers() -> Duration {
    let own = std::process::id().to_string();
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let others = tasks.flatten().filter(|task| *task.file_name() != *own);
    let times = others.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(times.sum::<u64>())
}

/// Lists and verifies the record, and prints how long it takes.
fn read(path: &Path) {
    let reader = AuditReader::open(path).expect("a record");
    let start = clock::instant();
    let sums = verify(&reader, &DecisionFilter::default(), |finding| {
        panic!("{finding}")
    });
    let decided = sums.expect("it can be read").decided as f64;
    let rate = decided / clock::instant().duration_since(start).as_secs_f64();
    println!("\nverify: {rate:.0} decisions a second");
    bundle(&reader, &path.with_file_name("bundle.jsonl.gz"));
    count(&reader);
    let middle = middle(&reader);
    let host = |host: &str| DecisionFilter {
        host: Some(host.to_owned()),
        ..DecisionFilter::default()
    };
    let verdict = |verdict: &str| DecisionFilter {
        verdict: Some(verdict.to_owned()),
        ..DecisionFilter::default()
    };
    for (name, filter) in [
        ("newest", DecisionFilter::default()),
        ("by host", host("host-17.example.test")),
        ("by unknown host", host("none.example.test")),
        (
            "by time",
            DecisionFilter {
                until: Some(middle),
                ..DecisionFilter::default()
            },
        ),
        ("refusals", verdict("disallow")),
        ("by unknown verdict", verdict("later")),
    ] {
        let start = clock::instant();
        let mut found = 0;
        let visit = |_| {
            found += 1;
            match found {
                50 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        };
        let visited = reader.visit_decisions(&filter, Direction::NewestFirst, visit);
        visited.expect("it can be read");
        println!(
            "list {name}: {found} rows in {:.2?}",
            clock::instant().duration_since(start)
        );
    }
}

/// Bundles the newest decisions, verifies the bundle, and prints how long both take.
fn bundle(reader: &AuditReader, path: &Path) {
    let range = reader.seq_range().expect("it can be read");
    let last = range.expect("it has decisions").last;
    let newest = DecisionFilter {
        from: Some(time_of(reader, last.saturating_sub(BUNDLED).max(1))),
        ..DecisionFilter::default()
    };
    let start = clock::instant();
    let file = File::create(path).expect("a file");
    let made = write_bundle(reader, &newest, BufWriter::new(&file));
    println!(
        "bundle: {} decisions in {:.2?}, {} bytes",
        made.expect("a head").decisions,
        clock::instant().duration_since(start),
        file.metadata().expect("a file").len()
    );
    let start_again = clock::instant();
    let file = File::open(path).expect("a file");
    let sums = verify_bundle(file, &[], |finding| panic!("{finding}"));
    println!(
        "bundle verified: {} decisions in {:.2?}",
        sums.expect("a bundle").sums.decided,
        clock::instant().duration_since(start_again)
    );
}

/// Counts decisions grouped by different keys, and prints how long it takes.
fn count(reader: &AuditReader) {
    let all = DecisionFilter::default();
    let half = DecisionFilter {
        from: Some(middle(reader)),
        ..DecisionFilter::default()
    };
    for (name, keys, filter) in [
        ("all", &[][..], &all),
        ("by rule", &[StatKey::Rule], &all),
        ("by hour, crawler", &[StatKey::Hour, StatKey::Crawler], &all),
        ("by host", &[StatKey::Host], &all),
        (
            "by host, rule, reason",
            &[StatKey::Host, StatKey::Rule, StatKey::Reason],
            &all,
        ),
        ("by host of the later half", &[StatKey::Host], &half),
    ] {
        let start = clock::instant();
        let groups = stats(reader, filter, keys, StatOrder::Requests).expect("it can be read");
        let requests: u64 = groups.iter().map(|group| group.sums.requests).sum();
        println!(
            "stats {name}: {requests} decisions, {} groups in {:.2?}",
            groups.len(),
            clock::instant().duration_since(start)
        );
    }
}

/// Returns the time of a decision in the middle of the record.
fn middle(reader: &AuditReader) -> jiff::Timestamp {
    let range = reader.seq_range().expect("it can be read");
    let range = range.expect("it has decisions");
    time_of(reader, range.last.midpoint(range.first))
}

/// Returns the time of the first decision with this number or a higher one.
fn time_of(reader: &AuditReader, mut number: u64) -> jiff::Timestamp {
    loop {
        if let Some(row) = reader.record(number).expect("it can be read") {
            return row.record.at;
        }
        number += 1;
    }
}
