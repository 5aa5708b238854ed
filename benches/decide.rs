//! What a decision costs: guards the hot path between a request and its permit.
//!
//! `cargo bench --bench decide`. No harness: medians over rounds, on one core.

#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use politesse::clock;
use politesse::rules::crawler::Crawler;
use politesse::rules::decision::{Inquiry, Policy, Unauthorized, decide};
use politesse::rules::origin::Target;
use politesse::rules::robots::RobotsTxt;
use politesse::rules::robots::access::{AccessResult, Copy, Snapshot};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(100);

fn main() {
    println!("{:<44} {:>14}", "case", "median");
    for (name, robots, url) in cases() {
        let snapshot = snapshot(&robots);
        let inquiry = inquiry(url);
        let policy = Arc::new(Policy::new(Unauthorized::Allow));
        report(&format!("decide, {name}"), || {
            black_box(decide(
                black_box(&inquiry),
                &snapshot,
                (&policy, Timestamp::UNIX_EPOCH),
            ));
        });
        report(&format!("parse, {name} ({} octets)", robots.len()), || {
            black_box(RobotsTxt::parse(black_box(robots.as_bytes())));
        });
    }
}

fn cases() -> Vec<(&'static str, String, &'static str)> {
    let small =
        "User-agent: *\nDisallow: /private\nAllow: /private/open\nDisallow: /*.pdf$\n".to_owned();
    let mut prefixes = String::from("User-agent: *\n");
    for rule in 0..5000 {
        let _ = writeln!(prefixes, "Disallow: /catalogue/{rule}/");
    }
    let mut largest = String::from("User-agent: *\n");
    let mut rule = 0;
    while largest.len() < RobotsTxt::BYTES_MIN - 40 {
        let _ = writeln!(largest, "Disallow: /*a*b{rule}c");
        rule += 1;
    }
    vec![
        ("small file", small, "https://h.test/private/open/page?x=1"),
        (
            "5,000 prefixes",
            prefixes,
            "https://h.test/catalogue/4999/page",
        ),
        (
            "500 KiB of wildcards",
            largest,
            "https://h.test/catalogue/a/page",
        ),
    ]
}

fn snapshot(robots: &str) -> Arc<Snapshot> {
    let target: Target = "https://h.test/".parse().expect("a URL");
    Arc::new(Snapshot {
        url: target.origin.robots_txt().to_string(),
        origin: target.origin,
        token: None,
        status: Some(200),
        fetched_at: Timestamp::UNIX_EPOCH,
        expires_at: Timestamp::UNIX_EPOCH,
        result: AccessResult::Successful(Box::new(Copy::new(robots.as_bytes().to_vec().into()))),
    })
}

fn inquiry(url: &str) -> Arc<Inquiry> {
    Arc::new(Inquiry {
        crawler: Crawler::parse("Mozilla/5.0 (compatible; FooBot/2.1; +https://foo.test/bot)"),
        target: url.parse().expect("a URL"),
        method: "GET".to_owned(),
    })
}

/// The median time of `step` over the rounds.
fn report(name: &str, mut step: impl FnMut()) {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let began = clock::instant();
        let mut count = 0_u32;
        while clock::instant().duration_since(began) < ROUND {
            step();
            count += 1;
        }
        times.push(clock::instant().duration_since(began) / count);
    }
    times.sort_unstable();
    println!("{name:<44} {:>14?}", times[ROUNDS / 2]);
}
