//! Crawlers' own requests for /robots.txt: the rules apply to all methods but GET and HEAD,
//! and forwarded requests keep the site's pace.

use std::sync::Arc;

use serde_json::json;

use crate::kit::client::{Reply, ask, get};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::paced::{assert_apart, assert_later, ms, statuses, verified};
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
    place.run_ok(&["audit", "replay"]).await;
    let seq = place.number(1).to_string();
    let explained = place.run(&["audit", "show", &seq, "--json"]).await;
    let explained = explained.json_lines().remove(0);
    let expected = json!({"decided_again": "same", "competing": []});
    assert_members(&explained, &expected);
}

// Ours: a request with any other method counts as one for a page.
#[tokio::test]
async fn an_allowed_post_to_robots_txt_keeps_the_crawl_delay() {
    let (origin, proxy) = site(Script::robots("User-agent: *\nCrawl-delay: 1\n"), &[]).await;
    let post = || ask(&proxy, "POST", URL, &[]);
    let replies = tokio::join!(post(), post(), post());
    assert_eq!(statuses(&<[Reply; 3]>::from(replies)), [200; 3]);
    assert_apart(&origin.log()[1..], 3, ms(1000));
}

/// Sends five requests for /robots.txt to an origin with a long `Crawl-delay`, and asserts
/// that only the first is forwarded.
async fn assert_one_of_five_forwarded(origin: &Origin, method: &str) {
    let proxy = Arc::new(impatient(origin).start().await);
    for number in 0..5 {
        let reply = ask(&proxy, method, URL, &[]).await;
        if number == 0 {
            assert!(reply.status() < 400, "{}", reply.text());
        } else {
            assert_eq!(reply.status(), 429, "{method}");
        }
    }
    assert_eq!(forwarded(origin), [method], "{:?}", origin.log());
    let (_, rows) = verified(proxy, 5).await;
    assert!(rows[1..].iter().all(|row| row["reason"] == "crawl_delay"));
}

// Ours.
#[tokio::test]
async fn only_one_post_to_robots_txt_is_forwarded_within_the_crawl_delay() {
    let text = "User-agent: *\nCrawl-delay: 30\n";
    assert_one_of_five_forwarded(&Script::robots(text).start().await, "POST").await;
}

// Ours: a copy found through a redirect is not the answer of this URL, so the request is
// forwarded.
#[tokio::test]
async fn a_get_of_a_redirected_robots_txt_keeps_the_crawl_delay() {
    for method in ["GET", "HEAD"] {
        let origin = Script::robots_page(Page::redirect("/rules"))
            .page("/rules", Page::text("User-agent: *\nCrawl-delay: 30\n"))
            .start()
            .await;
        assert_one_of_five_forwarded(&origin, method).await;
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
    let (origin, proxy) = site(
        Script::robots_page(Page::redirect("/rules")).page("/rules", Page::text(&text)),
        &[],
    )
    .await;
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

// Ours: a request answered from the cache needs no turn.
#[tokio::test]
async fn a_cached_robots_txt_is_answered_without_a_turn() {
    let text = "User-agent: *\nCrawl-delay: 30\n";
    let origin = Script::robots(text).start().await;
    let proxy = impatient(&origin).start().await;
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    for _ in 0..5 {
        assert_eq!(get(&proxy, URL).await.status(), 200);
    }
    assert!(forwarded(&origin).is_empty(), "{:?}", origin.log());
}
