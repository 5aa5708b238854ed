//! Properties that hold for every input, tried on random ones.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use politesse_decision::again::{Again, EvidenceCache, decide_again};
use politesse_decision::decide::{
    Candidates, Inquiry, Policy, Readings, Unauthorized, Verdict, decide,
};
use politesse_decision::record::{
    RecordedSnapshot, StoredCrawler, StoredPolicy, StoredRecord, StoredRuling,
};
use politesse_decision::snapshot::{AccessResult, RobotsFile, Snapshot};
use politesse_robots::Dialect;
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::readings_reference;

fn verdict(robots: &str, path: &str) -> Verdict {
    let (inquiry, snapshot) = readings_reference::asked(robots, path);
    let (inquiry, snapshot) = (Arc::new(inquiry), Arc::new(snapshot));
    let policy = Arc::new(Policy::new(Unauthorized::Allow));
    let once = decide(&inquiry, &snapshot, &policy, Timestamp::UNIX_EPOCH);
    let twice = decide(&inquiry, &snapshot, &policy, Timestamp::UNIX_EPOCH);
    assert_eq!(once.ruling(), twice.ruling());
    assert_eq!(once.digest(), twice.digest());
    once.ruling().verdict
}

/// Decides on `path`, builds the record of that decision, and returns the outcome of
/// deciding it again from the record alone.
fn decided_again(robots: &str, path: &str, policy: &Policy) -> Again {
    let (inquiry, snapshot) = readings_reference::asked(robots, path);
    let crawler = Crawler::parse("FooBot-News/1.0 (FooBot; +http://h.test)");
    let inquiry = Arc::new(Inquiry { crawler, ..inquiry });
    let copy = RobotsFile::read(Bytes::from(robots.to_owned()), policy.terms().dialect);
    let at = "2026-11-21T06:47:09.123456789Z".parse().unwrap();
    let stored = RecordedSnapshot {
        origin: "http://o.test".to_owned(),
        token: None,
        url: snapshot.url.clone(),
        hops: Vec::new(),
        status: snapshot.status,
        fetched_at: at,
        expires_at: at,
        result: "successful".into(),
        cause: None,
        sha256: Some(copy.digest),
        charset: None,
        tdm: None,
    };
    let snapshot = Snapshot {
        fetched_at: at,
        expires_at: at,
        result: AccessResult::Successful(Arc::new(copy)),
        ..snapshot
    };
    let decision = decide(&inquiry, &Arc::new(snapshot), &Arc::new(policy.clone()), at);
    let candidates = inquiry.crawler.candidates().iter();
    let record = StoredRecord {
        node: None,
        directives: None,
        seq: 1,
        at: decision.evidence().at,
        client: Arc::default(),
        crawler: Arc::new(StoredCrawler {
            unlisted: Vec::new(),
            candidates: candidates.map(ToString::to_string).collect(),
            user_agent: inquiry.crawler.user_agent().map(str::to_owned),
            label: None,
        }),
        method: inquiry.method.as_str().into(),
        url: inquiry.target.to_string(),
        ruling: Arc::new(StoredRuling::of(decision.evidence())),
        reading: decision.ruling().reading.clone(),
        snapshot: Some(Arc::new(stored)),
        policy: Arc::new(StoredPolicy::new(policy.json())),
        wait_ms: 0,
        status: None,
        sent: None,
        bytes: None,
        error: None,
    };
    let body = Some(Bytes::from(robots.to_owned()));
    decide_again(&record, body, &mut EvidenceCache::default()).unwrap()
}

fn rules() -> impl Strategy<Value = String> {
    let rule = ("(Allow|Disallow)", "[/a-c.%2eE*$]{0,8}")
        .prop_map(|(kind, path)| format!("{kind}: /{path}\n"));
    vec(rule, 0..8).prop_map(|rules| format!("User-agent: *\n{}", rules.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    // Ours: one more `Disallow` in the matching group never allows more.
    #[test]
    fn adding_disallow_all_never_allows_more(robots in rules(), path in "/[a-c./%2eE?]{0,10}") {
        let before = verdict(&robots, &path);
        let after = verdict(&format!("{robots}Disallow: /\n"), &path);
        prop_assert!(before == Verdict::Disallow || after == before || after == Verdict::Disallow);
    }

    // Invariant 2 (ARCHITECTURE.md): the record holds everything that a decision depends
    // on.
    #[test]
    fn a_decision_repeated_from_its_record_is_the_same(
        robots in rules(),
        agent in prop::sample::select(vec!["*", "foobot", "FooBot-News", "other"]),
        path in "/[a-c./%2eEF?;]{0,10}",
        dialect in prop::sample::select(Dialect::ALL.to_vec()),
        candidates in prop::sample::select(vec![Candidates::First, Candidates::All]),
        readings in prop::sample::select(vec![Readings::Sent, Readings::Dots, Readings::Server]),
    ) {
        let robots = robots.replacen('*', agent, 1);
        let policy = Policy::new(Unauthorized::Allow).with(|terms| terms.dialect = dialect).with(|terms| terms.candidates = candidates);
        let policy = policy.with(|terms| terms.readings = readings);
        prop_assert_eq!(decided_again(&robots, &path, &policy), Again::Same);
    }

    // Ours: parsing never panics, and a URL that parses survives a round trip.
    #[test]
    fn a_target_survives_a_round_trip_through_text(text in "https?://[a-z0-9.:@\\[\\]%-]{1,20}[/?#]?[ -~]{0,20}") {
        if let Ok(target) = text.parse::<Target>() {
            prop_assert_eq!(target.to_string().parse::<Target>().unwrap(), target);
        }
    }

    // Ours: no User-Agent panics, and the candidate names survive a round trip.
    #[test]
    fn any_user_agent_can_be_parsed_and_restored(value in vec(any::<u8>(), 0..300)) {
        let crawler = Crawler::from_user_agent([&value[..]]);
        let again = Crawler::restore(crawler.candidates().to_vec(), crawler.user_agent().map(str::to_owned));
        // The record does not hold a crawler whose names were truncated.
        if !crawler.is_cut() {
            prop_assert_eq!(&again, &crawler);
        }
        prop_assert_eq!(again.candidates(), crawler.candidates());
    }

    // RFC 9110, section 10.1.5: browsers, versions and operating systems name no crawler.
    #[test]
    fn no_browser_or_version_becomes_a_crawler_name(parts in vec(prop::sample::select(AGENT_PARTS.to_vec()), 0..8)) {
        let crawler = Crawler::parse(&parts.concat());
        let candidates = crawler.candidates();
        prop_assert!(candidates.len() <= 4 * 8, "{:?}", candidates);
        for (at, token) in candidates.iter().enumerate() {
            let text = token.as_str();
            prop_assert!(!NOT_CRAWLERS.iter().any(|name| name.eq_ignore_ascii_case(text)), "{}", text);
            let is_version = text.contains('.') && text.bytes().all(|byte| b"0123456789.".contains(&byte));
            prop_assert!(!is_version, "{}", text);
            prop_assert!(!candidates[..at].contains(token), "{} twice", text);
            prop_assert!(token.is_named_by(text), "{}", text);
        }
    }
}

/// Parts from which nearly any User-Agent can be built.
const AGENT_PARTS: [&str; 34] = [
    "Mozilla",
    "Mozilla/5.0 ",
    "Chrome/1",
    "Safari",
    "(",
    ")",
    "compatible;",
    "; ",
    ", ",
    " ",
    "/",
    "-",
    "_",
    "v",
    "1",
    "008",
    "1.4.3",
    "537.36",
    "/0.83",
    "Foo",
    "Bot",
    "FooBot-1.0",
    "curl",
    "libwww-perl-5.8",
    "[",
    "\u{201c}",
    "\u{e4}",
    "\u{308}",
    ":",
    "+http://a.example",
    "@",
    "*",
    "Windows",
    "Linux",
];

/// Names that never name a crawler.
const NOT_CRAWLERS: [&str; 8] = [
    "*",
    "Mozilla",
    "Chrome",
    "Safari",
    "compatible",
    "Windows",
    "Linux",
    "",
];
