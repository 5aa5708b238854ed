//! `tests/cases/framing.jsonl`: heads and bodies that readers frame in two ways,
//! judged by the raw octets at the other side (RFC 9112; security, section 3).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::kit::cases::{cases, each, right, strings};
use crate::kit::client::{Crawler, End, Reply};
use crate::kit::proxy::resolve;
use crate::kit::raw_origin::{After, Octets, RawOrigin, is_whole};
use crate::kit::{run, soon};

const CASES: &str = include_str!("../cases/framing.jsonl");

/// Cases not run here, and why.
const SKIPPED: [(&str, &str); 0] = [];

fn octets(case: &Value) -> Vec<u8> {
    STANDARD.decode(case["raw_b64"].as_str().unwrap()).unwrap()
}

fn of_direction(direction: &str) -> Vec<Value> {
    let all = cases(CASES, &SKIPPED);
    all.into_iter()
        .filter(|case| case["direction"] == direction)
        .collect()
}

/// An origin with the case's robots.txt (404 if it has none) that answers
/// `page` to `/a` and a text to the rest.
async fn origin(case: &Value, page: Octets) -> RawOrigin {
    let absent = Octets::of(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let robots = case["robots"].as_str().map_or(absent, Octets::text);
    RawOrigin::start(move |target| match target {
        "/robots.txt" => robots.clone(),
        "/a" => page.clone(),
        _ => Octets::text("another page"),
    })
    .await
}

/// How a crawler's connection went on after the case's octets.
async fn answers(crawler: &mut Crawler, count: usize) -> Vec<Reply> {
    let mut replies = Vec::new();
    while replies.len() < count
        && let Some(reply) = crawler.try_reply_to("GET").await
    {
        replies.push(reply);
    }
    replies
}

fn assert_forwarded(case: &Value, origin: &RawOrigin) {
    let id = &case["id"];
    assert_eq!(origin.lines(), strings(&case["sees"]), "{id}");
    let request = origin.requests().remove(0);
    let text = String::from_utf8_lossy(&request).into_owned();
    if let Some(host) = case["sees_host"].as_str() {
        assert!(
            text.contains(&format!("\r\nHost: {host}\r\n"))
                || text.contains(&format!("\r\nhost: {host}\r\n")),
            "{id}: {text}"
        );
    }
    if let Some(body) = case["sees_body"].as_str() {
        assert!(
            text.contains(&format!("\r\n{body}\r\n0\r\n"))
                || text.ends_with(&format!("\r\n\r\n{body}")),
            "{id}: {text}"
        );
    }
    for gone in strings(&case["sees_not"]) {
        assert!(
            !text
                .to_ascii_lowercase()
                .contains(&gone.to_ascii_lowercase()),
            "{id}: {gone} in {text}"
        );
    }
}

async fn request(case: &Value) {
    let id = &case["id"];
    let origin = origin(case, Octets::text("the page")).await;
    let proxy = resolve("o.test", origin.address())
        .resolve("p.test", origin.address())
        .start()
        .await;
    let mut crawler = Crawler::plain(&proxy).await;
    // An early answer may close the connection before all is sent.
    let _ = crawler.try_send(&octets(case)).await;
    if case["eof"] == true {
        let _ = crawler.try_finish_sending().await;
    }
    let wanted = strings(&case["sees"]).len().max(1);
    let replies = soon("the answers", answers(&mut crawler, wanted)).await;
    let outcome = replies
        .first()
        .map_or("close".to_owned(), |reply| reply.status().to_string());
    let right = right(case);
    if outcome == "200" && right.contains(&"forward") {
        if case["expect"] == "forward" {
            assert_forwarded(case, &origin);
        }
        return;
    }
    assert!(
        right.contains(&outcome.as_str()),
        "{id}: {outcome}, right is {right:?} ({})",
        case["note"]
    );
    let finished: Vec<_> = origin
        .requests()
        .into_iter()
        .filter(|request| is_whole(request))
        .collect();
    assert_eq!(
        finished.len(),
        0,
        "{id}: {:?}",
        String::from_utf8_lossy(&finished.concat())
    );
    assert!(
        outcome == "200" || crawler.closes().await,
        "{id}: the connection goes on"
    );
}

#[test]
fn no_request_that_can_be_read_in_two_ways_goes_out_as_it_came() {
    run(async {
        each(of_direction("request"), |case| async move {
            request(&case).await;
        })
        .await;
    });
}

fn assert_passed_on(case: &Value, reply: &Reply) {
    let id = &case["id"];
    assert_eq!(reply.end, End::Whole, "{id}");
    if let Some(body) = case["body"].as_str() {
        assert_eq!(reply.text(), body, "{id}");
    }
    assert!(
        reply.head.values("content-length").len() <= 1,
        "{id}: {:?}",
        reply.head
    );
    assert_eq!(reply.head.values("robots-directives").len(), 1, "{id}");
    for gone in strings(&case["sees_not"]) {
        let lines: Vec<_> = reply
            .head
            .fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        let found = lines.iter().find(|line| {
            line.to_ascii_lowercase()
                .starts_with(&gone.to_ascii_lowercase())
        });
        assert_eq!(found, None, "{id}");
    }
}

fn outcome(reply: Option<&Reply>) -> &'static str {
    match reply {
        Some(reply) if reply.end == End::Broken => "close",
        Some(reply) if reply.status() == 502 => "502",
        Some(_) => "forward",
        None => "close",
    }
}

async fn response(case: &Value) {
    let id = &case["id"];
    let after = if case["eof"] == true {
        After::Close
    } else {
        After::KeepOpen
    };
    let origin = origin(
        case,
        Octets {
            octets: octets(case),
            after,
        },
    )
    .await;
    let proxy = resolve("o.test", origin.address()).start().await;
    let mut crawler = Crawler::plain(&proxy).await;
    let method = case["method"].as_str().unwrap_or("GET");
    crawler
        .send(format!("{method} http://o.test/a HTTP/1.1\r\nHost: o.test\r\n\r\n").as_bytes())
        .await;
    let reply = crawler.try_reply_to(method).await;
    let (outcome, right) = (outcome(reply.as_ref()), right(case));
    assert!(
        right.contains(&outcome),
        "{id}: {outcome}, right is {right:?} ({}): {reply:?}",
        case["note"]
    );
    let Some(reply) = reply.filter(|_| outcome != "close") else {
        return;
    };
    match outcome {
        "502" => assert!(
            reply.head.value("proxy-status").starts_with("politesse;"),
            "{id}"
        ),
        _ => assert_passed_on(case, &reply),
    }
    let before = origin.connections();
    let next = crawler.get("http://o.test/b", "o.test").await;
    assert_eq!(
        next.text(),
        "another page",
        "{id}: the next answer is its own"
    );
    if case["no_reuse"] == true || outcome == "502" {
        assert!(
            before < origin.connections(),
            "{id}: the connection was used again"
        );
    }
}

#[test]
fn no_response_that_can_be_read_in_two_ways_is_passed_on_as_it_came() {
    run(async {
        each(of_direction("response"), |case| async move {
            response(&case).await;
        })
        .await;
    });
}
