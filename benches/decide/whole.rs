//! Cost of the decision that the proxy makes: evaluating the rules, and the evidence
//! that the record keeps.

use std::hint::black_box;
use std::sync::Arc;

use jiff::Timestamp;
use politesse_decision::decide::{Inquiry, Policy, Unauthorized, decide};
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;

use crate::files::{self, Case};

pub(crate) fn decisions() {
    println!("\ndecision with its evidence and digest, as the proxy makes it");
    let policy = Arc::new(Policy::new(Unauthorized::Allow));
    for case in files::cases() {
        let snapshot = snapshot(&case);
        let inquiry = inquiry(&case.urls[case.urls.len() / 2]);
        let time = crate::time(crate::ROUNDS, || {
            let at = Timestamp::UNIX_EPOCH;
            black_box(decide(black_box(&inquiry), &snapshot, &policy, at));
        });
        println!("  {}: {}", case.name, crate::in_units(time));
    }
}

pub(crate) fn snapshot(case: &Case) -> Arc<Snapshot> {
    let target: Target = case.urls[0].parse().expect("a URL");
    Arc::new(Snapshot {
        url: target.origin.robots_txt().to_string(),
        hops: Vec::new(),
        key: CacheKey::new(target.origin, None),
        status: Some(200),
        fetched_at: Timestamp::UNIX_EPOCH,
        expires_at: Timestamp::UNIX_EPOCH,
        result: AccessResult::Successful(Arc::new(RobotsFile::new(case.body.clone().into()))),
        stale: None,
        tdm: None,
    })
}

pub(crate) fn inquiry(url: &str) -> Arc<Inquiry> {
    Arc::new(Inquiry {
        crawler: Crawler::parse("Mozilla/5.0 (compatible; ExampleBot/2.1; +https://example.com/)"),
        target: url.parse().expect("a URL"),
        method: "GET".to_owned(),
    })
}
