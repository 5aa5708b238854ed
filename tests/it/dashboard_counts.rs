//! All pages show equal counts for a generated record of twelve known groups of
//! decisions, in both enforcement modes. Every test here is ours.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use politesse_base::clock;
use politesse_decision::access::Cause;
use politesse_decision::class::DecisionClass::{self, *};
use politesse_decision::decide::{
    Decision, EnforcementMode, Inquiry, Policy, Unauthorized, decide,
};
use politesse_decision::delay::{Delay, DelayEnd};
use politesse_decision::preferences::{PreferenceMode, PreferenceTerms};
use politesse_decision::reason::Reason;
use politesse_decision::record::{ExchangeEnd, Record};
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use serde_json::Value;

use crate::archive_months::{CLIENT, PastRecord};
use crate::dashboard::Browser;
use crate::kit::proxy::{Config, Place};

/// A number of equal decisions.
struct Made {
    count: u64,
    class: DecisionClass,
    minutes_ago: i64,
    host: &'static str,
    crawler: &'static str,
}

macro_rules! made {
    ($($count:literal $class:ident $minutes:literal $host:literal $crawler:literal;)+) => {
        [$(Made {
            count: $count,
            class: $class,
            minutes_ago: $minutes,
            host: $host,
            crawler: $crawler,
        }),+]
    };
}

/// The record, oldest first. No time is near the end of a span, because the clock
/// advances while the pages are read.
const MADE: [Made; 12] = made! {
    23 Rule 14_400 "c.test" "BarBot";
    19 Sent 14_400 "b.test" "BarBot";
    6 Error 4_320 "c.test" "FooBot";
    4 Withheld 4_320 "b.test" "BazBot";
    2 Preference 1_560 "a.test" "BazBot";
    11 Operator 1_560 "c.test" "BarBot";
    17 Unreachable 300 "down.test" "FooBot";
    3 PutOff 180 "a.test" "FooBot";
    5 PutOff 150 "b.test" "BarBot";
    7 RefusedBySite 20 "b.test" "BarBot";
    13 Rule 20 "a.test" "FooBot";
    41 Sent 20 "a.test" "FooBot";
};

/// Each class and its name on the pages.
const CLASS_NAMES: [(DecisionClass, &str); 9] = [
    (Sent, "sent"),
    (Rule, "refused by a rule"),
    (Operator, "refused by the operator"),
    (Preference, "refused by a preference"),
    (Withheld, "withheld"),
    (Unreachable, "robots.txt unreachable"),
    (PutOff, "put off"),
    (RefusedBySite, "refused by the site"),
    (Error, "errors"),
];

/// Time spans that the pages offer, in hours.
const SPANS: [i64; 4] = [1, 24, 168, 720];

const ROBOTS: &[u8] = b"User-agent: *\nDisallow: /no\nContent-Signal: ai-train=no\n";

fn snapshot(made: &Made) -> Arc<Snapshot> {
    let target: Target = format!("http://{}/robots.txt", made.host).parse().unwrap();
    let file = RobotsFile::new(Bytes::from_static(ROBOTS));
    let is_reached = made.class != Unreachable;
    let result = match is_reached {
        true => AccessResult::Successful(Arc::new(file)),
        false => AccessResult::Unreachable(Cause::Timeout),
    };
    Arc::new(Snapshot {
        url: target.to_string(),
        key: CacheKey::new(target.origin, None),
        hops: Vec::new(),
        status: is_reached.then_some(200),
        fetched_at: clock::now() - SignedDuration::from_hours(24 * 20),
        expires_at: clock::now() + SignedDuration::from_hours(24),
        result,
        stale: None,
        tdm: None,
    })
}

/// Makes the decision for one of the requests `made` at `at`.
fn decision(made: &Made, mode: EnforcementMode, at: Timestamp) -> Decision {
    let path = if made.class == Rule { "no" } else { "open" };
    let inquiry = Arc::new(Inquiry {
        crawler: Crawler::parse(made.crawler),
        target: format!("http://{}/{path}", made.host).parse().unwrap(),
        method: "GET".to_owned(),
    });
    let mut policy = Policy::new(Unauthorized::Allow).with(|terms| terms.mode = mode);
    if made.class == Preference {
        policy = policy.for_purposes(PreferenceTerms {
            purposes: "train-ai".parse().into_iter().collect(),
            enforce: PreferenceMode::Refuse,
            ..PreferenceTerms::default()
        });
    }
    let policy = Arc::new(policy);
    if made.class == Operator {
        return Decision::denied(inquiry, &policy, at, "of a test".to_owned());
    }
    let decision = decide(&inquiry, &snapshot(made), &policy, at);
    // The first group that is put off is delayed by the proxy; the second (`end`)
    // gets a 503 from the site.
    match (made.class, made.count) {
        (PutOff, 3) => {
            let end = DelayEnd::After(Duration::from_secs(9));
            decision.later(Delay::of_host(Reason::BackOff, end).explained("of a test"))
        }
        _ => decision,
    }
}

/// Returns how an exchange in the class of `made` ended.
fn end(made: &Made, is_sent: bool) -> ExchangeEnd {
    let (status, error) = match made.class {
        Sent | Rule | Operator | Preference | Unreachable => (200, None),
        PutOff => (503, None),
        RefusedBySite => (402, None),
        Withheld => (403, Some("withheld")),
        Error => (502, Some("connection_refused")),
    };
    ExchangeEnd {
        status: Some(status),
        sent: is_sent.into(),
        seen: None,
        bytes: 10,
        error,
    }
}

/// Writes the record, then starts a proxy on it and signs in.
async fn browse(mode: EnforcementMode) -> Browser {
    let place = Place::with(&Config::default());
    let record = PastRecord::open(&place);
    for made in &MADE {
        let at = clock::now() - SignedDuration::from_mins(made.minutes_ago);
        for _ in 0..made.count {
            let decision = decision(made, mode, at);
            let is_sent = decision.evidence().lets_through();
            let record_of_it = Record::of(&decision, CLIENT, Duration::ZERO);
            record
                .write(record_of_it)
                .await
                .complete(end(made, is_sent));
        }
    }
    record.close().await;
    Browser::idle(place).await
}

/// Returns the expected counts of the last `hours`, grouped by `value`.
fn counts<T: Ord>(hours: i64, value: impl Fn(&Made) -> T) -> BTreeMap<T, u64> {
    let mut counts = BTreeMap::new();
    for made in MADE.iter().filter(|made| made.minutes_ago < hours * 60) {
        *counts.entry(value(made)).or_default() += made.count;
    }
    counts
}

/// Reports whether the decisions `made` are refusals.
fn is_refused(made: &Made) -> bool {
    matches!(made.class, Rule | Operator | Preference | Unreachable)
}

/// Sorts names by count, largest first, then by name.
fn ranked(counts: BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let mut ranked: Vec<_> = counts.into_iter().filter(|(_, count)| 0 < *count).collect();
    ranked.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
    ranked
}

/// Reads names and counts from a list of the API.
fn listed(list: &Value, count: impl Fn(&Value) -> u64) -> Vec<(String, u64)> {
    let entries = list.as_array().unwrap().iter();
    let entries = entries.map(|entry| (entry["name"].as_str().unwrap().to_owned(), count(entry)));
    entries.collect()
}

/// Asserts that the overview of a span matches [`MADE`].
async fn assert_overview(browser: &Browser, hours: i64) {
    let path = format!("/api/v1/overview?hours={hours}");
    let json = browser.json(&path).await;
    let classes = counts(hours, |made| made.class.as_str());
    let all: u64 = classes.values().sum();
    assert_eq!(json["sums"]["requests"], all, "{path}: {json}");
    for class in DecisionClass::ALL {
        let wanted = classes.get(class.as_str()).copied().unwrap_or_default();
        let sum = &json["sums"]["classes"][class.as_str()];
        assert_eq!(*sum, wanted, "{path} {class}");
        for list in ["over_time", "crawlers"] {
            let entries = json[list].as_array().unwrap().iter();
            let in_list = entries.map(|entry| entry["classes"][class.as_str()].as_u64().unwrap());
            assert_eq!(in_list.sum::<u64>(), wanted, "{path} {list} {class}");
        }
        let hours = format!("/api/v1/decisions?from={hours}h&class={class}&limit=1000");
        let rows = browser.json(&hours).await;
        let rows = rows["decisions"].as_array().unwrap().len();
        assert_eq!(rows as u64, wanted, "{hours}");
    }
    let of_refused = |made: &Made| if is_refused(made) { made.count } else { 0 };
    let mut by_host: BTreeMap<String, u64> = BTreeMap::new();
    for made in MADE.iter().filter(|made| made.minutes_ago < hours * 60) {
        *by_host.entry(made.host.to_owned()).or_default() += of_refused(made);
    }
    let refused = |sums: &Value| sums["refused"].as_u64().unwrap();
    assert_eq!(listed(&json["hosts"], refused), ranked(by_host), "{path}");
    let crawlers = ranked(counts(hours, |made| made.crawler.to_owned()));
    let requests = |sums: &Value| sums["requests"].as_u64().unwrap();
    assert_eq!(listed(&json["crawlers"], requests), crawlers, "{path}");
}

/// Asserts that figures and percentages on the pages match [`MADE`].
async fn assert_pages(browser: &Browser) {
    // Of all 151 requests 66 are refused: 23 + 2 + 11 + 17 + 13.
    let page = browser.get("/?hours=720").await.text();
    assert!(page.contains(">66</a> refused (43.7 %)"), "{page}");
    // FooBot made 80: 17 + 13 were refused. BarBot 65: 23 + 11. BazBot 6: 2.
    let crawlers = browser.get("/crawlers?hours=720").await.text();
    for share in ["(37.5 %)", "(52.3 %)", "(33.3 %)"] {
        for (path, page) in [("/", &page), ("/crawlers", &crawlers)] {
            assert!(page.contains(share), "{share} at {path}: {page}");
        }
    }
}

/// Asserts that the overview names every class, and that its legend and the heads of two
/// tables list only classes that occur.
async fn assert_class_names(browser: &Browser) {
    let page = browser.get("/?hours=24").await.text();
    let classes = counts(24, |made| made.class.as_str());
    for (class, name) in CLASS_NAMES {
        let count = classes.get(class.as_str()).copied().unwrap_or_default();
        let occurs = 0 < count;
        assert!(page.contains(&format!("<span>{name}</span>")), "{name}");
        let head = format!("<th scope=\"col\" class=\"n\">{name}</th>");
        assert_eq!(2 <= page.matches(&head).count(), occurs, "{name}: {page}");
        let is_in_legend = page.contains(&format!("{name}: {count}<"));
        assert_eq!(is_in_legend, occurs, "{name}: {page}");
    }
}

#[tokio::test]
async fn every_page_shows_the_counts_of_a_known_record() {
    for mode in [EnforcementMode::Enforce, EnforcementMode::Report] {
        let browser = browse(mode).await;
        for hours in SPANS {
            assert_overview(&browser, hours).await;
        }
        assert_pages(&browser).await;
        assert_class_names(&browser).await;
    }
}
