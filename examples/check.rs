//! Judges URLs by a saved robots.txt, using only the library.
//!
//! `cargo run --example check -- FooBot robots.txt https://site.example/a`

#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::sync::Arc;

use jiff::Timestamp;
use politesse_decision::decide::{Inquiry, Policy, Unauthorized, decide};
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(agent), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err("usage: check AGENT FILE URL…".into());
    };
    let body = std::fs::read(file)?;
    let policy = Arc::new(Policy::new(Unauthorized::Allow));
    for url in arguments {
        let target: Target = url.parse()?;
        let snapshot = Arc::new(Snapshot {
            key: CacheKey::new(target.origin.clone(), None),
            url: target.origin.robots_txt().to_string(),
            hops: Vec::new(),
            status: Some(200),
            fetched_at: Timestamp::UNIX_EPOCH,
            expires_at: Timestamp::UNIX_EPOCH,
            result: AccessResult::Successful(Arc::new(RobotsFile::new(body.clone().into()))),
            stale: None,
            tdm: None,
        });
        let inquiry = Arc::new(Inquiry {
            crawler: Crawler::parse(&agent),
            target,
            method: "GET".to_owned(),
        });
        let decision = decide(&inquiry, &snapshot, &policy, Timestamp::UNIX_EPOCH);
        let ruling = decision.ruling();
        let rule = ruling.rule.as_ref();
        let cited = rule.and_then(|rule| Some(format!(" (line {}: {})", rule.line?, rule.text)));
        let rule_text = cited.unwrap_or_default();
        println!("{url}: {} {}{rule_text}", ruling.verdict, ruling.reason);
    }
    Ok(())
}
