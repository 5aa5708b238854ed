//! Tests of the text that people read in an answer.

use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use super::*;
use politesse_decision::decide::{Decision, Inquiry, Policy, Reason, Unauthorized, decide};
use politesse_decision::delay::{Delay, DelayEnd};
use politesse_decision::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use politesse_robots::crawler::Crawler;

fn answer(kind: &'static str, decision: Option<&Decision>) -> ProblemDetails {
    ProblemDetails {
        status: StatusCode::FORBIDDEN,
        error: "http_request_denied",
        kind,
        title: "Refused by robots.txt",
        detail: "Line 2 disallows it.".into(),
        retry_after: None,
        close: false,
        members: decision
            .map(|_| ("decision".to_owned(), json!("17")))
            .into_iter()
            .collect(),
        evidence: decision.map(|decision| Arc::clone(decision.evidence())),
    }
}

/// Returns the decision about a request of `user_agent` under a robots.txt.
fn decision(user_agent: &str, robots: &str) -> Decision {
    let inquiry = Arc::new(Inquiry {
        crawler: Crawler::parse(user_agent),
        target: "http://h.test/a".parse().unwrap(),
        method: "GET".to_owned(),
    });
    let file = RobotsFile::new(robots.to_owned().into());
    let at = "2026-11-22T10:25:41.032383Z".parse().unwrap();
    let snapshot = Arc::new(Snapshot {
        key: CacheKey::new(inquiry.target.origin.clone(), None),
        url: "http://h.test/robots.txt".to_owned(),
        hops: vec!["http://h.test/1".to_owned()],
        status: Some(200),
        fetched_at: at,
        expires_at: at,
        result: AccessResult::Successful(Arc::new(file)),
        stale: None,
        tdm: None,
    });
    let policy = Arc::new(Policy::new(Unauthorized::Allow));
    decide(&inquiry, &snapshot, &policy, at)
}

fn refusal() -> ProblemDetails {
    let decision = decision("FooBot/1", "User-agent: *\nDisallow: /a\n");
    answer("refused", Some(&decision))
}

fn page<'a>(details: &'a ProblemDetails, contact: Option<&'a str>) -> ErrorPage<'a> {
    ErrorPage {
        details,
        contact,
        now: "2026-11-22T10:30:00.9Z".parse().unwrap(),
    }
}

// Ours.
#[test]
fn the_page_says_who_refused_and_why_and_gives_advice() {
    let refusal = refusal();
    let page = page(&refusal, None);
    let text = "\
Refused by robots.txt
Refused by politesse, the crawl proxy of this machine, not by the site.

Line 2 disallows it.

Decision 17: `politesse audit show 17` shows the details.

What can be done:
- The rule is the site's: its owner can change robots.txt.
- For an agreed exception the operator of this proxy has robots.override.
- Ask the operator of this proxy.

url          http://h.test/a
crawler      FooBot, as its User-Agent says
verdict      disallow
reason       rule: a rule of robots.txt matched
rule         line 2: Disallow: /a
group        *
robots       http://h.test/robots.txt, status 200, successful
  hop        http://h.test/1 redirected
  fetched    2026-11-22T10:25:41.032383Z, 259 s before
  expires    2026-11-22T10:25:41.032383Z
  sha256     ";
    assert!(page.text().starts_with(text), "{}", page.text());
    let html = page.html();
    for part in [
        "<p class=\"small\">Refused by politesse, the crawl proxy of this machine, not by the site.</p>",
        "Decision <strong>17</strong>. <code>politesse audit show 17</code>",
        "<li>Ask the operator of this proxy.</li>",
        "<dt>rule</dt><dd><bdi>line 2: Disallow: /a</bdi></dd>",
        "color-scheme: light dark",
    ] {
        assert!(html.contains(part), "{part}\n{html}");
    }
}

// Ours: text from outside comes from an origin, a crawler or the operator.
#[test]
fn nothing_from_outside_is_markup_or_steers_a_terminal() {
    let hostile = "<script>alert('x')</script>\"&\u{1b}[2J";
    let robots = format!("User-agent: *\nDisallow: /a # {hostile}\nUser-agent: {hostile}\n");
    let decision = decision(&format!("FooBot/1 {hostile}"), &robots);
    let mut refusal = answer("refused", Some(&decision));
    refusal.detail = hostile.to_owned();
    refusal
        .members
        .insert("decision".to_owned(), hostile.into());
    let page = page(&refusal, Some("https://a.test/\"><script>"));
    let html = page.html();
    assert!(!html.contains("<script"), "{html}");
    assert!(!html.contains('\u{1b}'), "{html}");
    assert!(!page.text().contains('\u{1b}'));
}

#[test]
fn a_contact_that_is_an_address_becomes_a_link() {
    let refusal = refusal();
    for (contact, wanted) in [
        (
            "crawl@site.example",
            "Ask <a href=\"mailto:crawl@site.example\">crawl@site.example</a>.",
        ),
        (
            "https://site.example/crawl",
            "Ask <a href=\"https://site.example/crawl\">https://site.example/crawl</a>.",
        ),
        ("Ada, room 7", "<li>Ask Ada, room 7.</li>"),
        (
            "javascript:alert(1)@x",
            "<li>Ask javascript:alert(1)@x.</li>",
        ),
    ] {
        let html = page(&refusal, Some(contact)).html();
        assert!(html.contains(wanted), "{html}");
    }
    assert!(page(&refusal, Some("Ada")).text().contains("- Ask Ada.\n"));
}

// RFC 9110, section 10.2.3.
#[test]
fn the_retry_time_is_shown_to_the_second() {
    let delay = Delay::of_host(Reason::BackOff, DelayEnd::After(Duration::from_secs(60)));
    let decision = decision("FooBot/1", "").later(delay);
    let mut later = answer("later", Some(&decision));
    later.retry_after = Some(60);
    let text = page(&later, None).text();
    assert!(text.contains("\nPut off by politesse"), "{text}");
    assert!(
        text.contains("come again   in 60 seconds, at 2026-11-22 10:31:00 UTC\n"),
        "{text}"
    );
    later.retry_after = Some(u64::MAX);
    let text = page(&later, None).text();
    assert!(
        text.contains(&format!("come again   in {} seconds\n", u64::MAX)),
        "{text}"
    );
}

#[test]
fn every_kind_of_answer_gives_advice() {
    for kind in [
        "egress",
        "later",
        "upstream",
        "audit",
        "client",
        "credential",
        "overload",
        "connect",
        "loop",
        "malformed",
        "internal",
    ] {
        let answer = answer(kind, None);
        let page = page(&answer, None);
        assert!(page.speaker().ends_with("not by the site."));
        let is_fault = page.advice() == ["This is a fault of the proxy."];
        assert_eq!(is_fault, kind == "internal", "{kind}");
    }
}
