//! Runs `cases/robots.jsonl` and `cases/user-agent.jsonl`.
//!
//! Each case names its source: a section of RFC 9309, an older specification, or the
//! practice of other engines. All cases must hold, regardless of their strength. An
//! exception would be listed here with its reason.

use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::origin::{Origin, Scheme};
use politesse_robots::{Dialect, FileSource, RobotsTxt};
use serde_json::Value;

use crate::cases::{body, cases, text};

/// Returns the path and query of a URL, without its fragment.
fn path_and_query(url: &str) -> &str {
    let rest = url.strip_prefix("https://h.example").unwrap();
    rest.split('#').next().unwrap()
}

fn is_allowed(case: &Value, dialect: Dialect) -> bool {
    let path = path_and_query(text(case, "url"));
    let site = Origin::new(Scheme::Https, "h.example").unwrap();
    let robots = RobotsTxt::from_source(body(case), dialect, FileSource::new(&site, None));
    let binding = robots.binding(&Crawler::parse(text(case, "agent")));
    let judgement = binding.judge(path);
    if path != "/robots.txt" {
        let competing = binding.competing(path);
        assert_eq!(judgement.rule(), competing.first(), "{}", text(case, "id"));
    }
    judgement.allows()
}

#[test]
fn every_robots_case_holds() {
    let cases = cases(include_str!("../../cases/robots.jsonl"));
    assert_eq!(cases.len(), 192);
    let broken = cases
        .iter()
        .filter(|case| case["expect"] != is_allowed(case, Dialect::Rfc9309));
    let ids: Vec<_> = broken.map(|case| text(case, "id")).collect();
    assert!(ids.is_empty(), "{ids:?}");
}

// The answers of google/robotstxt, including its differences from the RFC.
#[test]
fn every_robots_case_is_answered_as_google_does() {
    let cases = cases(include_str!("../../cases/robots.jsonl"));
    let broken = cases
        .iter()
        .filter(|case| case["google"] != is_allowed(case, Dialect::Google));
    let ids: Vec<_> = broken.map(|case| text(case, "id")).collect();
    assert!(ids.is_empty(), "{ids:?}");
}

#[test]
fn every_user_agent_case_holds() {
    let cases = cases(include_str!("../../cases/user-agent.jsonl"));
    assert_eq!(cases.len(), 40);
    for case in &cases {
        let crawler = Crawler::from_user_agent([text(case, "header").as_bytes()]);
        let found: Vec<_> = crawler
            .candidates()
            .iter()
            .map(ProductToken::as_str)
            .collect();
        let others = case["other_candidates"].as_array().unwrap();
        let expected: Vec<_> = case["primary"]
            .as_str()
            .into_iter()
            .chain(others.iter().filter_map(Value::as_str))
            .collect();
        assert_eq!(found, expected, "{}", text(case, "id"));
        assert_eq!(crawler, Crawler::parse(text(case, "header")));
    }
}

/// Splits the URL of a case into site and path.
fn site_and_path(case: &Value) -> (Origin, &str) {
    let rest = text(case, "url").strip_prefix("https://").unwrap();
    let (host, _) = rest.split_once('/').unwrap();
    let site = Origin::new(Scheme::Https, host).unwrap();
    (site, &rest[host.len()..])
}

#[test]
fn every_damaged_case_holds() {
    let cases = cases(include_str!("../../cases/damaged.jsonl"));
    let mut broken = Vec::new();
    for case in &cases {
        let (site, path) = site_and_path(case);
        let source = FileSource::new(&site, case["content_type"].as_str());
        let robots = RobotsTxt::from_source(body(case), Dialect::Rfc9309, source);
        let agent = text(case, "agent");
        let binding = robots.binding(&Crawler::parse(agent)).as_served();
        let judgement = binding.judge(path);
        let competing = binding.competing(path);
        assert_eq!(judgement.rule(), competing.first(), "{case}");
        let delay = case["crawl_delay"].as_f64();
        if case["expect"] != judgement.allows() || binding.crawl_delay() != delay {
            broken.push(text(case, "id"));
        }
    }
    assert!(broken.is_empty(), "{broken:?}");
}
