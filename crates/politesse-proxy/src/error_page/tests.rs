//! What people read of an answer.

use http::StatusCode;
use serde_json::{Map, json};

use super::*;
use politesse_decision::decide::Reason;

fn answer(kind: &'static str, members: Value) -> ProblemDetails {
    let Value::Object(members) = members else {
        panic!("members are an object");
    };
    ProblemDetails {
        status: StatusCode::FORBIDDEN,
        error: "http_request_denied",
        kind,
        title: "Refused by robots.txt",
        detail: "Line 2 disallows it.".into(),
        retry_after: None,
        close: false,
        members,
    }
}

fn refusal() -> ProblemDetails {
    answer(
        "refused",
        json!({
            "url": "http://h.test/a",
            "crawler": null,
            "reason": "rule",
            "effect": "enforced",
            "rule": {"line": 2, "text": "Disallow: /a", "group": ["*"]},
            "robots": {
                "url": "http://h.test/robots.txt",
                "status": 200,
                "fetched_at": "2026-11-22T10:25:41.032383939Z",
                "sha256": "0a33",
                "hops": ["http://h.test/1", "http://h.test/2"],
            },
            "decision": "17",
        }),
    )
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
fn the_page_says_who_refused_why_and_what_to_do() {
    let refusal = refusal();
    let page = page(&refusal, None);
    let text = "\
Refused by robots.txt
Refused by politesse, the crawl proxy of this machine, not by the site.

Line 2 disallows it.

Decision 17: `politesse audit show 17` tells all of it.

What can be done:
- The rule is the site's: its owner can change robots.txt.
- For an agreed exception the operator of this proxy has robots.override.
- Ask the operator of this proxy.

Address: http://h.test/a
Reason: a rule of robots.txt matched (rule)
Rule: Disallow: /a
Line: 2
Written for: everyone (*)
robots.txt: http://h.test/robots.txt
Its status: 200
Fetched: 2026-11-22 10:25:41 UTC
Its SHA-256: 0a33
Redirects to it: http://h.test/1, http://h.test/2
";
    assert_eq!(page.text(), text);
    let html = page.html();
    for part in [
        "<p class=\"who\">Refused by politesse, the crawl proxy of this machine, not by the site.</p>",
        "Decision <strong>17</strong>. <code>politesse audit show 17</code>",
        "<li>Ask the operator of this proxy.</li>",
        "<dt>Fetched</dt><dd>2026-11-22 10:25:41 UTC</dd>",
        "prefers-color-scheme:dark",
    ] {
        assert!(html.contains(part), "{part}\n{html}");
    }
}

#[test]
fn every_member_is_told_under_a_label() {
    let refusal = refusal();
    // Always the same, and told above the facts.
    let elsewhere = ["effect", "decision"];
    for (name, value) in &refusal.members {
        let paths = value.as_object().map_or_else(
            || vec![name.clone()],
            |inner| inner.keys().map(|key| format!("{name}/{key}")).collect(),
        );
        for path in paths {
            let is_told = FACTS.iter().any(|(_, known)| *known == path);
            assert!(is_told || elsewhere.contains(&&*path), "{path}");
        }
    }
}

#[test]
fn every_reason_that_keeps_a_request_has_its_words() {
    let refusing = [
        Reason::Rule,
        Reason::Restricted,
        Reason::Unreachable,
        Reason::Undecided,
        Reason::Override,
        Reason::Egress,
        Reason::Identity,
    ];
    for reason in refusing.into_iter().chain(Reason::OF_PACE) {
        let words = super::reason(reason.as_str());
        assert!(words.ends_with(&format!(" ({reason})")), "{words}");
    }
}

// Text from outside: what an origin, a crawler and an operator wrote.
#[test]
fn nothing_from_outside_is_markup_or_steers_a_terminal() {
    let hostile = "<script>alert('x')</script>\"&\u{1b}[2J";
    let mut refusal = refusal();
    refusal.detail = hostile.to_owned();
    for member in ["url", "crawler", "reason", "decision"] {
        refusal.members.insert(member.to_owned(), hostile.into());
    }
    let inner = json!({"text": hostile, "line": 1, "group": [hostile]});
    refusal.members.insert("rule".to_owned(), inner);
    let inner = json!({"url": hostile, "fetched_at": hostile, "hops": [hostile]});
    refusal.members.insert("robots".to_owned(), inner);
    let page = page(&refusal, Some("https://a.test/\"><script>"));
    let html = page.html();
    assert!(!html.contains("<script"), "{html}");
    assert!(!html.contains('\u{1b}'), "{html}");
    assert!(!page.text().contains('\u{1b}'));
}

#[test]
fn a_contact_is_a_link_where_it_is_an_address() {
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
fn the_time_to_come_again_is_told_to_the_second() {
    let mut later = answer("later", json!({"reason": "backoff", "retry_after": 60}));
    later.retry_after = Some(60);
    let text = page(&later, None).text();
    assert!(text.contains("\nPut off by politesse"), "{text}");
    assert!(
        text.contains("Come again: in 60 seconds, at 2026-11-22 10:31:00 UTC\n"),
        "{text}"
    );
    later.retry_after = Some(u64::MAX);
    let text = page(&later, None).text();
    assert!(
        text.contains(&format!("Come again: in {} seconds\n", u64::MAX)),
        "{text}"
    );
}

#[test]
fn every_kind_of_answer_says_what_can_be_done() {
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
        let answer = answer(kind, Value::Object(Map::new()));
        let page = page(&answer, None);
        assert!(page.speaker().ends_with("not by the site."));
        let is_fault = page.advice() == ["This is a fault of the proxy."];
        assert_eq!(is_fault, kind == "internal", "{kind}");
    }
}
