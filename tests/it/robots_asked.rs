//! Crawlers' own requests for /robots.txt: the rules apply to all methods but GET and HEAD,
//! and forwarded requests keep the site's pace.

use std::sync::Arc;

use serde_json::json;

use crate::kit::client::{ask, get};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::paced::{assert_later, verified};
use crate::kit::page::Page;
use crate::kit::proxy::{Config, resolve};
use crate::kit::{assert_members, clock};

const URL: &str = "http://o.test/robots.txt";

/// Returns a configuration in which no request waits longer than a second.
fn impatient(origin: &Origin) -> Config {
    resolve("o.test", origin.address()).set("pace.max_wait = \"1s\"")
}

/// Returns the methods of the forwarded requests for /robots.txt: all but the proxy's own,
/// which is the first.
fn forwarded(origin: &Origin) -> Vec<String> {
    let log = origin.log();
    let robots = log.iter().filter(|seen| seen.target == "/robots.txt");
    robots.skip(1).map(|seen| seen.method.clone()).collect()
}

// Ours: RFC 9309, section 2.2.2, does not mention methods.
#[tokio::test]
async fn only_get_and_head_of_robots_txt_are_always_allowed() {
    let text = "User-agent: *\nDisallow: /robots.txt\n";
    let (origin, proxy) = site(Script::robots(text), &[]).await;
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "get"] {
        let reply = ask(&proxy, method, URL, &[]).await;
        reply.assert_error(403, "http_request_denied");
        assert_eq!(reply.json()["rule"]["line"], 2, "{method}");
    }
    for method in ["GET", "HEAD"] {
        assert_eq!(ask(&proxy, method, URL, &[]).await.status(), 200);
    }
    assert!(forwarded(&origin).is_empty(), "{:?}", origin.log());
    let (place, rows) = verified(Arc::new(proxy), 7).await;
    assert_eq!(rows[0]["reason"], "rule");
    assert_eq!(rows[5]["reason"], "robots_txt");
    place.audit("replay").await;
    let show = format!("show {} --json", place.number(1));
    let explained = place.audit(&show).await;
    let expected = json!({"decided_again": "same", "competing": []});
    assert_members(&explained.json_lines()[0], &expected);
}

// Ours: a request with a method other than GET and HEAD counts as one for a page. A copy
// found through a redirect is not the answer of this URL, so the request is forwarded.
#[tokio::test]
async fn only_one_forwarded_request_for_robots_txt_starts_within_the_crawl_delay() {
    let text = "User-agent: *\nCrawl-delay: 30\n";
    let moved = Script::robots_page(Page::redirect("/rules")).page("/rules", Page::text(text));
    for (script, method) in [
        (Script::robots(text), "POST"),
        (moved.clone(), "GET"),
        (moved, "HEAD"),
    ] {
        let origin = script.start().await;
        let proxy = Arc::new(impatient(&origin).start().await);
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(ask(&proxy, method, URL, &[]).await.status());
        }
        assert!(statuses[0] < 400, "{method}: {statuses:?}");
        assert_eq!(statuses[1..], [429, 429], "{method}");
        assert_eq!(forwarded(&origin), [method], "{:?}", origin.log());
        let (_, rows) = verified(proxy, 3).await;
        assert!(rows[1..].iter().all(|row| row["reason"] == "crawl_delay"));
    }
}

// Ours: without rules the operator's pace applies.
#[tokio::test]
async fn a_get_of_a_missing_or_partial_robots_txt_keeps_the_operators_pace() {
    for status in [404, 206] {
        let page = Page::text("").with_status(status);
        let origin = Script::robots_page(page).start().await;
        let config = impatient(&origin).set("pace.origin = { rate = \"1/m\" }");
        let proxy = config.start().await;
        // The first request to a host follows the proxy's fetch at once.
        assert_eq!(get(&proxy, URL).await.status(), status);
        assert_later(&get(&proxy, URL).await, "ceiling");
        assert_eq!(forwarded(&origin), ["GET"], "{:?}", origin.log());
    }
}

// Ours: a site's hours apply to every forwarded request.
#[tokio::test]
async fn outside_the_visit_time_no_request_for_robots_txt_is_forwarded() {
    let hour = |hours: i64| {
        let at = clock::now() + jiff::SignedDuration::from_hours(hours);
        at.strftime("%H00").to_string()
    };
    let text = format!("User-agent: *\nVisit-time: {}-{}\n", hour(2), hour(4));
    let script = Script::robots_page(Page::redirect("/rules"));
    let (origin, proxy) = site(script.page("/rules", Page::text(&text)), &[]).await;
    for method in ["GET", "HEAD", "POST"] {
        let reply = ask(&proxy, method, URL, &[]).await;
        if method == "HEAD" {
            assert_eq!(reply.status(), 429);
        } else {
            assert_later(&reply, "visit_time");
        }
    }
    assert!(forwarded(&origin).is_empty(), "{:?}", origin.log());
}

// Ours: a request answered from the cache needs no turn. Age marks the cached copy
// (RFC 9111, section 5.1).
#[tokio::test]
async fn a_cached_robots_txt_is_answered_without_a_turn() {
    let text = "User-agent: *\nCrawl-delay: 30\n";
    let origin = Script::robots(text).start().await;
    let proxy = impatient(&origin).start().await;
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    for _ in 0..2 {
        let reply = get(&proxy, URL).await;
        assert_eq!((reply.status(), reply.text().as_str()), (200, text));
        assert!(reply.head.value("age").parse::<u32>().is_ok());
    }
    assert!(forwarded(&origin).is_empty(), "{:?}", origin.log());
    for row in &proxy.place().completed(3).await[1..] {
        assert_members(row, &json!({"effect": "cached", "reason": "robots_txt"}));
    }
}
