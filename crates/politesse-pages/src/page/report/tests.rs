//! Sentences of reports, each checked against rows made for it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio_util::task::TaskTracker;

use super::{Report, ReportKind, make_report};
use politesse_base::metrics::Metrics;
use politesse_decision::access::Cause;
use politesse_decision::decide::{EnforcementMode, Inquiry, Policy, Unauthorized, decide};
use politesse_decision::overrides::Override;
use politesse_decision::record::{ExchangeEnd, Record};
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse_record::events::{ProcessEvent, ProcessEventKind};
use politesse_record::filter::DecisionFilter;
use politesse_record::reader::AuditReader;
use politesse_record::report::report_facts;
use politesse_record::{AuditLog, Options, OrderReason, RecordEnding, RedactionRequest};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;

const ROBOTS: &[u8] = b"User-agent: *\nDisallow: /open\nDisallow: /private\n";

const OVERRIDES: [&str; 2] = [
    r#"{"origin":"http://o.test","path":"/open","action":"allow","reason":"contract 114","until":"2028-01-01T00:00:00Z"}"#,
    r#"{"origin":"http://o.test","path":"/closed","action":"deny","reason":"asked by mail"}"#,
];

/// Returns the time `minutes` after the beginning of the record.
fn at(minutes: i64) -> Timestamp {
    let begin: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
    begin + SignedDuration::from_mins(minutes)
}

/// Record that is built row by row.
struct MadeRecord {
    folder: TempDir,
    log: AuditLog,
    policy: Arc<Policy>,
    /// Exchanges that have not ended.
    open: Vec<RecordEnding>,
}

impl MadeRecord {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new(folder.path().join("data/audit.db"));
        let metrics = Arc::new(Metrics::default());
        let log = AuditLog::open(&options, metrics, &TaskTracker::new()).unwrap();
        Self {
            folder,
            log,
            policy: Arc::new(Policy::new(Unauthorized::Allow)),
            open: Vec::new(),
        }
    }

    fn set_policy(&mut self, mode: EnforcementMode, overrides: &[&str]) {
        let entries = overrides
            .iter()
            .map(|text| serde_json::from_str(text).unwrap());
        let entries: Vec<Override> = entries.collect();
        self.policy = Arc::new(Policy::new(Unauthorized::Allow).with(|terms| {
            terms.mode = mode;
            terms.overrides = entries;
        }));
    }

    async fn event(&self, minutes: i64, kind: ProcessEventKind, detail: Json) {
        self.log.record_process_event(ProcessEvent {
            at: at(minutes),
            kind,
            detail,
        });
        self.log.probe().await.unwrap();
    }

    /// Records a decision about `url` by the policy in force. Returns its number.
    async fn ask(&self, minutes: i64, url: &str) -> u64 {
        self.ask_of(minutes, url, robots()).await
    }

    async fn ask_of(&self, minutes: i64, url: &str, result: AccessResult) -> u64 {
        let (seq, ending) = self.begin(minutes, url, result).await;
        ending.complete(ExchangeEnd {
            status: Some(200),
            sent: 1,
            seen: None,
            bytes: 1000,
            error: None,
        });
        self.log.probe().await.unwrap();
        seq
    }

    /// Records a decision whose exchange does not end.
    async fn begin(&self, minutes: i64, url: &str, result: AccessResult) -> (u64, RecordEnding) {
        let target: Target = url.parse().unwrap();
        let snapshot = Arc::new(Snapshot {
            key: CacheKey::new(target.origin.clone(), None),
            url: format!("{}/robots.txt", target.origin),
            hops: Vec::new(),
            status: Some(200),
            fetched_at: at(0),
            expires_at: at(10_000),
            result,
            stale: None,
            tdm: None,
        });
        let inquiry = Arc::new(Inquiry {
            crawler: Crawler::parse("FooBot/1"),
            target,
            method: "GET".to_owned(),
        });
        let decision = decide(&inquiry, &snapshot, &self.policy, at(minutes));
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let record = Record::of(&decision, client, Duration::from_millis(500));
        let (_, ending) = self.log.record(record).await.unwrap();
        (ending.seq(), ending)
    }

    async fn redact(&self, seq: u64, why: &str) {
        let request = RedactionRequest {
            numbers: vec![seq],
            reason: OrderReason {
                why: why.to_owned(),
                user: None,
            },
            ..RedactionRequest::default()
        };
        let step = self.log.redact(request, "operator 127.0.0.9".to_owned());
        assert_eq!(step.await.unwrap().count, 1);
        self.log.settled().await.unwrap();
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("data/audit.db")
    }

    fn report(&self, kind: ReportKind, filter: &DecisionFilter) -> Report {
        let reader = AuditReader::open(&self.path()).unwrap();
        make_report(&reader, filter, kind, None).unwrap()
    }

    fn text(&self, filter: &DecisionFilter) -> String {
        text(&self.report(ReportKind::Operator, filter).page)
    }

    fn site(&self, filter: &DecisionFilter) -> String {
        let filter = DecisionFilter {
            host: Some("o.test".to_owned()),
            ..filter.clone()
        };
        text(&self.report(ReportKind::Site, &filter).page)
    }
}

fn robots() -> AccessResult {
    AccessResult::Successful(Arc::new(RobotsFile::new(Bytes::from_static(ROBOTS))))
}

/// Returns the text of a page, with runs of whitespace collapsed.
fn text(page: &str) -> String {
    let body = page.split_once("</style>").unwrap().1;
    let mut text = String::new();
    let mut is_tag = false;
    for letter in body.chars() {
        match letter {
            '<' => is_tag = true,
            // Cells of a table are separate words.
            '>' => {
                is_tag = false;
                text.push(' ');
            }
            letter if !is_tag => text.push(letter),
            _ => {}
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn assert_says(text: &str, sentences: &[&str]) {
    let loose = |text: &str| text.replace(' ', "");
    for sentence in sentences {
        assert!(loose(text).contains(&loose(sentence)), "{sentence}: {text}");
    }
}

#[track_caller]
fn assert_silent(text: &str, words: &[&str]) {
    for word in words {
        assert!(!text.contains(word), "{word}: {text}");
    }
}

/// Returns a record with one of everything: three runs of the program, both modes,
/// exceptions, redactions, removals, a restore, a lost range and an open exchange.
async fn everything() -> MadeRecord {
    use ProcessEventKind::{Pruned, Restored, Started, Stopped};
    let mut made = MadeRecord::new();
    made.event(0, Started, json!({ "version": "0" })).await;
    made.set_policy(EnforcementMode::Enforce, &OVERRIDES);
    for path in ["/a", "/private/1", "/open/1", "/closed"] {
        made.ask(1, &format!("http://o.test{path}")).await;
    }
    let of_other = made.ask(2, "http://other.test/private/z").await;
    made.event(60, Stopped, Json::Null).await;
    made.event(120, Started, json!({ "version": "0" })).await;
    made.set_policy(EnforcementMode::Report, &[]);
    made.ask(130, "http://o.test/private/2").await;
    let redacted = made.ask(131, "http://o.test/private/3").await;
    let unreachable = AccessResult::Unreachable(Cause::Timeout);
    made.ask_of(132, "http://o.test/u", unreachable).await;
    // The program ends without recording a stop.
    made.event(300, Started, json!({ "version": "0" })).await;
    made.set_policy(EnforcementMode::Enforce, &[]);
    let (_, open) = made.begin(310, "http://o.test/private/4", robots()).await;
    made.open.push(open);
    let removed = json!({ "entries_until": 81, "before": at(-60), "by": "audit.retention" });
    made.event(320, Pruned, removed).await;
    let ordered = json!({ "entries_until": 90, "before": at(-30), "by": "admin, 127.0.0.9" });
    made.event(330, Pruned, ordered).await;
    made.event(340, Restored, json!({ "last": 3 })).await;
    made.event(350, Stopped, Json::Null).await;
    made.redact(redacted, "request of 22 November").await;
    made.redact(of_other, "order of a court").await;
    let sql = format!(
        "INSERT INTO lost_range (first, last, time_us, digest) VALUES (900, 902, {}, x'')",
        at(345).as_microsecond()
    );
    Connection::open(made.path())
        .unwrap()
        .execute_batch(&sql)
        .unwrap();
    made
}

// Ours; docs/reports.md.
#[tokio::test]
async fn a_report_says_what_its_rows_say() {
    let made = everything().await;
    let until = DecisionFilter {
        until: Some(at(400)),
        ..DecisionFilter::default()
    };
    let report = made.report(ReportKind::Operator, &until);
    let removals = report.summary.removals.iter().map(|note| &note["kind"]);
    assert!(removals.eq(["pruned", "pruned", "redacted", "redacted"]));
    let text = text(&report.page);
    assert_says(
        &text,
        &[
            "2026-03-01 00:00, the first entry on record, to 2026-03-01 06:40 (UTC)",
            "1 crawler made 9 requests to 2 websites through the program politesse.",
            "nothing of requests that went another way",
            "politesse enforced its decisions about 6 requests. For 3 requests it was in report \
             mode: it noted what it would have refused, and let it through (3 requests). That \
             mode does not change what is refused for an address, a name or a website that does \
             not answer, nor pauses.",
            "2026-03-01 00:01 2026-03-01 00:02 enforced 5",
            "2026-03-01 02:10 2026-03-01 02:12 report mode: noted, not enforced 3",
            "2026-03-01 05:10 2026-03-01 05:10 enforced 1",
            "5 let through 4 refused, and not sent 0 put off",
            "3 requests (33.3 % of all) were not sent because the owner of the website disallows it",
            "Enforcing would have refused 3 requests (60.0 % of all that was let through), to which \
             crawlers received 3.0 kB.",
            "(robots.override) let 1 request through against a robots.txt",
            "http://o.test /open allow until 2028-01-01 00:00 contract 114 2026-03-01 00:01 to \
             2026-03-01 00:01 1",
            "http://o.test /closed deny asked by mail 2026-03-01 00:01 to 2026-03-01 00:01 1",
            "Requests waited for their turn: 4.5 s in all, and 0 were put off.",
            "No pause after such an answer is on record.",
            "o.test The robots.txt could not be read 1 1",
            "1 to 81 2026-02-28 23:00 by their age (audit.retention)",
            "82 to 90 2026-02-28 23:30 by admin, 127.0.0.9",
            "Client and address were taken away from 2 requests.",
            "by operator 127.0.0.9: request of 22 November 1",
            "by operator 127.0.0.9: order of a court 1",
            "2026-03-01 01:00 2026-03-01 02:00 it was stopped",
            "Where it ended unexpectedly, it may have run for some of the time",
            "2026-03-01 02:12 2026-03-01 05:00 unexpectedly; the last decision before is from that \
             time",
            "2026-03-01 05:50 not started since it was stopped",
            "A backup took the place of the record at 2026-03-01 05:40.",
            "3 numbers of entries were noted as lost",
            "The outcome of 1 request is not on record",
            "7 decisions were made once more from what is on record: all came out the same.",
        ],
    );
    assert_silent(&text, &["obeys", "Nothing was enforced", "127.0.0.1"]);
}

// Ours: redacted decisions are counted for the host of their robots.txt.
#[tokio::test]
async fn the_owners_page_counts_redacted_requests_of_the_host() {
    let made = everything().await;
    let until = DecisionFilter {
        until: Some(at(400)),
        ..DecisionFilter::default()
    };
    let site = made.site(&until);
    assert_says(
        &site,
        &[
            "8 requests by our crawlers 5 let through to you 3 refused: you never saw them",
            "politesse enforced its decisions about 5 requests. For 3 requests it was in report mode",
            "7 requests were sent to you",
            "Our crawlers received 7.0 kB",
            "3: Disallow: /private all crawlers 2",
            "1 request by an exception that our operator made, and 3 requests while the program",
            "contract 114",
            "asked by mail",
            "No pause after an answer of yours with 429 or 503 is on record.",
            "Client and address were taken away from 1 request.",
            "request of 22 November 1",
            "In report mode, which the program was in for a time,",
        ],
    );
    assert_silent(
        &site,
        &["obeys", "other.test", "order of a court", "127.0.0"],
    );
    // The digest on the page covers the same decisions.
    let filter = DecisionFilter {
        host: Some("o.test".to_owned()),
        ..until
    };
    let reader = AuditReader::open(&made.path()).unwrap();
    let facts = report_facts(&reader, &filter).unwrap();
    assert_says(&site, &[&facts.digest.to_string()]);
    assert_eq!(facts.redacted.len(), 1);
}

// Ours: a report contains nothing from outside its time span.
#[tokio::test]
async fn a_report_contains_nothing_from_another_time() {
    let made = everything().await;
    let filter = |from, until| DecisionFilter {
        from: Some(at(from)),
        until: Some(at(until)),
        ..DecisionFilter::default()
    };
    let enforced = made.text(&filter(305, 315));
    assert_says(
        &enforced,
        &[
            "politesse decided these requests by the robots.txt of their websites and by the \
             settings of its operator, and enforced each decision.",
            "No decision rests on a robots.txt that could not be read.",
            "No stop and no restart of the program is on record in this time.",
        ],
    );
    assert_silent(
        &enforced,
        &[
            "report mode",
            "Exceptions of",
            "were taken away from",
            "were removed",
            "A backup",
            "noted as lost",
            "first entry",
        ],
    );
    let early = made.text(&filter(-600, 30));
    assert_says(
        &early,
        &[
            "The first entry on record is from 2026-03-01 00:00. Nothing from before that is on \
             record.",
            "enforced each decision. Exceptions of the operator let 1 request through that it \
             refuses otherwise.",
            "1 to 81",
        ],
    );
    assert_silent(&early, &["report mode"]);
    let none = made.text(&filter(600, 700));
    assert_says(
        &none,
        &[
            "No request is on record in this time.",
            "No request is on record as sent.",
        ],
    );
    assert_silent(&none, &["enforced"]);
}

// Ours: rules are not obeyed for requests that report mode lets through.
#[tokio::test]
async fn a_report_of_report_mode_says_that_nothing_was_enforced() {
    let mut made = MadeRecord::new();
    made.set_policy(EnforcementMode::Report, &[]);
    for number in 0..3 {
        made.ask(number, &format!("http://o.test/private/{number}"))
            .await;
    }
    made.ask(3, "http://o.test/a").await;
    let until = DecisionFilter {
        until: Some(at(400)),
        ..DecisionFilter::default()
    };
    for page in [made.text(&until), made.site(&until)] {
        assert_says(
            &page,
            &[
                "Nothing was enforced: politesse was in report mode for all of these requests. It \
                 noted what it would have refused, and let it through: 3 requests.",
                "No request was refused by a rule of",
            ],
        );
        assert_silent(
            &page,
            &["obeys", "enforced each decision", "asked for nothing that"],
        );
    }
}

// Ours: hosts are compared as a whole, on every port.
#[tokio::test]
async fn redacted_requests_belong_to_one_host_on_every_port() {
    let made = MadeRecord::new();
    let urls = [
        "http://o.test:8080/a",
        "https://o.test/b",
        "http://o.test.other.test/c",
        "http://no.test/d",
        "http://[::1]:81/e",
    ];
    for (minute, url) in (1..).zip(urls) {
        let seq = made.ask(minute, url).await;
        made.redact(seq, "asked for").await;
    }
    let reader = AuditReader::open(&made.path()).unwrap();
    for (host, count) in [("o.test", 2), ("no.test", 1), ("[::1]", 1), ("test", 0)] {
        let filter = DecisionFilter {
            host: Some(host.to_owned()),
            ..DecisionFilter::default()
        };
        let facts = report_facts(&reader, &filter).unwrap();
        assert_eq!(facts.redacted.len(), count, "{host}");
    }
}

// Ours: a withheld response was fetched, and is not a refusal by politesse or the site.
#[tokio::test]
async fn withheld_responses_are_counted_separately() {
    let made = MadeRecord::new();
    made.ask(1, "http://o.test/a").await;
    let (_, ending) = made.begin(2, "http://o.test/b", robots()).await;
    ending.complete(ExchangeEnd {
        status: Some(403),
        sent: 1,
        seen: None,
        bytes: 100,
        error: Some("withheld"),
    });
    made.log.probe().await.unwrap();
    let report = made.report(ReportKind::Operator, &DecisionFilter::default());
    let numbers = &report.summary;
    assert_eq!(
        (numbers.withheld, numbers.refused_by_site, numbers.refused),
        (1, 0, 0)
    );
    assert_says(
        &text(&report.page),
        &[
            "2 let through 0 refused, and not sent",
            "1 fetched, and withheld 0 refused by the website",
        ],
    );
}

// Ours: gaps are only found, and only mentioned, in a report about everything.
#[tokio::test]
async fn a_report_about_everything_finds_a_gap() {
    let made = MadeRecord::new();
    made.event(0, ProcessEventKind::Started, json!({})).await;
    for minute in 1..4 {
        made.ask(minute, "http://o.test/private/x").await;
    }
    let all = DecisionFilter::default();
    assert_says(&made.text(&all), &["for this page: no entry is missing."]);
    let gap = "DELETE FROM event WHERE seq = 1";
    Connection::open(made.path())
        .unwrap()
        .execute_batch(gap)
        .unwrap();
    let report = made.report(ReportKind::Operator, &all);
    assert!(!report.is_confirmed);
    let page = text(&report.page);
    assert_says(&page, &["1 entry missing.", "1: no such row"]);
    assert_silent(&page, &["no entry is missing"]);
    let until = DecisionFilter {
        until: Some(at(400)),
        ..all
    };
    let part = made.text(&until);
    assert_says(&part, &["missing, which this page cannot tell."]);
}
