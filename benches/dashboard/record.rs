//! Record for the measurements: a month of a crawl of 10,000 hosts, with a tenth of the
//! decisions at a single host.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_decision::decide::{Decision, Inquiry, Policy, Unauthorized, decide};
use politesse_decision::record::{ExchangeEnd, Record};
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse_record::{AuditLog, Options};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

/// Hosts of the record, one of which is [`BUSY_HOST`].
const HOSTS: usize = 10_000;
/// Host with a tenth of all decisions and a robots.txt of 500 KiB.
pub(crate) const BUSY_HOST: &str = "host-0.example.test";
/// Host with a single decision.
pub(crate) const LONE_HOST: &str = "lone.example.test";
/// Size of the busy host's robots.txt in bytes: the 500 KiB that a crawler must be able
/// to read (RFC 9309, section 2.5).
const LARGE_ROBOTS: usize = 500 << 10;
/// Decisions from one refusal to the next.
const REFUSED_EVERY: usize = 50;
/// Rules that refuse requests at the busy host.
const RULES: usize = 200;
/// Time from the first decision to the last.
const SPAN: SignedDuration = SignedDuration::from_hours(29 * 24);

/// Crawl to record.
struct Crawl {
    snapshots: Vec<Arc<Snapshot>>,
    lone: Arc<Snapshot>,
    crawlers: Vec<Crawler>,
    policy: Arc<Policy>,
    began: Timestamp,
    rows: usize,
}

/// Decisions that wait for a commit at the same time.
const WAITING_MAX: usize = 2_048;

/// Makes a record of `rows` decisions in `folder`, unless the folder has one.
///
/// # Errors
///
/// If it cannot be written.
pub(crate) async fn make(folder: &Path, rows: usize) -> anyhow::Result<()> {
    let path = folder.join("audit.db");
    if path.exists() {
        return Ok(());
    }
    let options = Options {
        queue: NonZeroUsize::new(16_384).context("it is not 0")?,
        wal_max: 1 << 30,
        ..Options::new(path)
    };
    let tracker = TaskTracker::new();
    let log = AuditLog::open(&options, Arc::new(Metrics::default()), &tracker)?;
    let log = Arc::new(log);
    let mut waiting = JoinSet::new();
    let crawl = Crawl::new(rows);
    for number in 0..rows {
        let decision = crawl.decision(number);
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let wait = Duration::from_millis(number as u64 % 700);
        let end = match decision.ruling().verdict.as_str() {
            "disallow" => end(403, 0),
            _ => end(200, 1),
        };
        let (record, log) = (Record::of(&decision, client, wait), Arc::clone(&log));
        waiting.spawn_local(async move {
            log.record(record)
                .await
                .map(|(_, ending)| ending.complete(end))
        });
        if WAITING_MAX < waiting.len() {
            waiting.join_next().await.transpose()?.transpose()?;
        }
    }
    waiting
        .join_all()
        .await
        .into_iter()
        .collect::<Result<(), _>>()?;
    log.close();
    tracker.close();
    tracker.wait().await;
    Ok(())
}

fn end(status: u16, sent: u32) -> ExchangeEnd {
    ExchangeEnd {
        status: Some(status),
        sent,
        seen: None,
        bytes: 10_240,
        error: None,
    }
}

impl Crawl {
    fn new(rows: usize) -> Self {
        let now = clock::now();
        let agent = |number| format!("Bot{number}/1.0 (+https://example.test/bot)");
        let hosts = (0..HOSTS).map(|host| match host {
            0 => snapshot(BUSY_HOST, large_robots()),
            _ => snapshot(&format!("host-{host}.example.test"), small_robots()),
        });
        Self {
            snapshots: hosts.collect(),
            lone: snapshot(LONE_HOST, small_robots()),
            crawlers: (0..5)
                .map(|number| Crawler::parse(&agent(number)))
                .collect(),
            policy: Arc::new(Policy::new(Unauthorized::Allow)),
            began: now - SPAN,
            rows,
        }
    }

    fn decision(&self, number: usize) -> Decision {
        let snapshot = match number {
            number if number == self.rows / 2 => &self.lone,
            number if number % 10 == 0 => &self.snapshots[0],
            // The stride is coprime to the number of hosts, so consecutive decisions
            // are about different hosts.
            _ => &self.snapshots[number * 7919 % HOSTS],
        };
        let folder = match number % REFUSED_EVERY {
            0 => format!("private-{}", number / REFUSED_EVERY % RULES),
            1..=3 => "private".to_owned(),
            _ => "catalog".to_owned(),
        };
        let path = format!(
            "/{folder}/category-{}/page?id={number}&sort=asc",
            number % 977
        );
        let inquiry = Arc::new(Inquiry {
            crawler: self.crawlers[number % self.crawlers.len()].clone(),
            target: Target::new(snapshot.key.origin.clone(), &path).expect("a URL"),
            method: "GET".to_owned(),
        });
        let part = number as f64 / self.rows as f64;
        let at = self.began + SPAN.mul_f64(part);
        decide(&inquiry, snapshot, &self.policy, at)
    }
}

fn small_robots() -> String {
    "User-agent: *\nDisallow: /private/\nCrawl-delay: 1\n".to_owned()
}

fn large_robots() -> String {
    let mut text = "User-agent: *\n".to_owned();
    for rule in 0.. {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "Disallow: /private-{rule}/");
        if LARGE_ROBOTS - 64 < text.len() {
            break;
        }
    }
    text
}

fn snapshot(host: &str, robots: String) -> Arc<Snapshot> {
    let url = format!("https://{host}/robots.txt");
    let target: Target = url.parse().expect("a URL");
    let now = clock::now();
    Arc::new(Snapshot {
        url: target.to_string(),
        key: CacheKey::new(target.origin, None),
        hops: Vec::new(),
        status: Some(200),
        fetched_at: now - SPAN,
        expires_at: now + SignedDuration::from_hours(24),
        result: AccessResult::Successful(Arc::new(RobotsFile::new(Bytes::from(robots)))),
        stale: None,
        tdm: None,
    })
}
