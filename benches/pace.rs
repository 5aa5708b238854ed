//! Time that pacing adds to a request, and memory that an idle host takes. Guards
//! `Scheduler::turn`, which is called once for each request, and the queues of idle
//! hosts.
//!
//! `cargo bench --bench pace`. The bench sends no requests.

#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use politesse_base::clients::directory::ClientDirectory;
use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_base::tasks::Tasks;
use politesse_pace::options::Options;
use politesse_pace::policy::{PaceLimits, PacePolicy, Profile};
use politesse_pace::{RobotsFetch, Scheduler, TurnOwner, TurnRequest};
use politesse_robots::PaceRecords;
use politesse_robots::origin::Host;

/// Client and crawler of all requests.
static OWNER: LazyLock<TurnOwner> = LazyLock::new(|| TurnOwner {
    client: ClientDirectory::default().at([192, 0, 2, 7].into()),
    crawler: Some("foobot".into()),
});

const ROUNDS: usize = 21;
const CALLS: u32 = 10_000;
const HOSTS: usize = 100_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    println!("| a request | to take and end its turn |");
    println!("|---|---|");
    let none = None;
    let hosts = hosts();
    let each = memory(&hosts).await;
    row("unpaced", &scheduler(), &none).await;
    let zero = PaceRecords::default();
    row(
        "of a site that asks for hours only",
        &scheduler(),
        &Some(Arc::new(zero)),
    )
    .await;
    let full = scheduler();
    for host in &hosts {
        drop(full.turn(request(host, &none)).await);
    }
    row("unpaced, beside 100,000 hosts", &full, &none).await;
    drop(full);
    println!();
    println!("a host at rest, with a delay: {each} bytes of resident memory");
    sweeps(&hosts).await;
}

fn scheduler() -> Scheduler {
    // No rate limit: a request may start right after another.
    let policy = PacePolicy::new(Profile::Owned, &PaceLimits::default(), Vec::new());
    let options = Options {
        policy: Arc::new(policy),
        ..Options::default()
    };
    Scheduler::new(options, Arc::new(Metrics::default()), Tasks::default())
}

fn hosts() -> Vec<Host> {
    let names = (0..HOSTS).map(|number| format!("www.site-{number}.example"));
    names.map(|name| name.parse().expect("a host")).collect()
}

fn request<'a>(host: &'a Host, asked: &Option<Arc<PaceRecords>>) -> TurnRequest<'a> {
    TurnRequest {
        host,
        owner: &OWNER,
        address: None,
        pace_records: asked.clone(),
        max_wait: Duration::from_secs(120),
        robots_fetched_at: None,
        robots_fetch: RobotsFetch::NotNeeded,
        arrival: None,
        embedding: None,
    }
}

async fn row(name: &str, scheduler: &Scheduler, asked: &Option<Arc<PaceRecords>>) {
    let host: Host = "www.site-77.example".parse().expect("a host");
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begun = clock::instant();
        for _ in 0..CALLS {
            let turn = scheduler.turn(request(black_box(&host), asked)).await;
            let turn = turn.expect("a turn");
            turn.record_status(200, None);
            drop(turn);
        }
        times.push(clock::instant().duration_since(begun) / CALLS);
    }
    times.sort_unstable();
    println!("| {name} | {} ns |", times[ROUNDS / 2].as_nanos());
}

/// Returns the resident memory of the process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Rss:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}

async fn memory(hosts: &[Host]) -> usize {
    let asked = Some(Arc::new(PaceRecords {
        crawl_delay: Some(Duration::from_secs(1)),
        ..PaceRecords::default()
    }));
    let scheduler = scheduler();
    let before = resident();
    for host in hosts {
        let turn = scheduler.turn(request(host, &asked)).await.expect("a turn");
        turn.record_status(200, None);
    }
    resident().saturating_sub(before) / hosts.len()
}

/// Measures single requests, with and without sweeps at the same time, and prints their
/// times.
async fn sweeps(hosts: &[Host]) {
    let scheduler = Arc::new(scheduler());
    // Their back-off keeps these hosts in memory.
    for host in hosts {
        let turn = scheduler.turn(request(host, &None)).await.expect("a turn");
        turn.record_status(503, Some(Duration::from_secs(3600)));
    }
    let ten = hosts
        .iter()
        .step_by(10_000)
        .map(|host| format!("other-{host}"));
    let ten: Vec<Host> = ten.map(|name| name.parse().expect("a host")).collect();
    println!();
    println!("| 100,000 hosts held | median | p99 | p99.9 |");
    println!("|---|---|---|---|");
    for name in [
        "no sweep",
        "sweeps without a pause",
        "no sweep",
        "sweeps without a pause",
    ] {
        let over = Arc::new(AtomicBool::new(name == "no sweep"));
        let (swept, until) = (Arc::clone(&scheduler), Arc::clone(&over));
        let sweeping = tokio::task::spawn_blocking(move || {
            let mut sweeps = 0;
            while !until.load(Ordering::Relaxed) {
                swept.sweep();
                sweeps += 1;
            }
            sweeps
        });
        let mut times = Vec::with_capacity(1_000_000);
        for number in 0..1_000_000 {
            let begun = clock::instant();
            drop(
                scheduler
                    .turn(request(&ten[number % ten.len()], &None))
                    .await,
            );
            times.push(clock::instant().duration_since(begun));
        }
        over.store(true, Ordering::Relaxed);
        let sweeps: u32 = sweeping.await.expect("the sweeps end");
        times.sort_unstable();
        let [median, p99, worst] = [500_000, 990_000, 999_000].map(|at| times[at].as_nanos());
        println!("| {name} ({sweeps}) | {median} ns | {p99} ns | {worst} ns |");
    }
}
