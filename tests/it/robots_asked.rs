//! Requests of crawlers for /robots.txt itself: which of them the rules judge, and
//! that those which are forwarded keep the pace of the site.

use std::sync::Arc;

use serde_json::json;

use crate::kit::client::{Reply, ask, get};
use crate::kit::clock;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::paced::{assert_apart, assert_later, ms, statuses, verified};
use crate::kit::page::Page;
use crate::kit::proxy::{Config, resolve};

const URL: &str = "http://o.test/robots.txt";

/// Returns a proxy of which no request waits for longer than a second.
fn impatient(origin: &Origin) -> Config {
    resolve("o.test", origin.address()).set("pace.max_wait = \"1s\"")
}

/// Returns the methods of the requests for /robots.txt, that of the proxy left out.
fn forwarded(origin: &Origin) -> Vec<String> {
    let log = origin.log();
    let robots = log.iter().filter(|seen| seen.target == "/robots.txt");
    robots.skip(1).map(|seen| seen.method.clone()).collect()
}

// Ours: RFC 9309, section 2.2.2, knows no methods.
#[tokio::test]
async fn only_get_and_head_of_robots_txt_are_always_allowed() {
    let text = "User-agent: *\nDisallow: /robots.txt\n";
    let origin = Script::robots(text).start().await;
    let proxy = Arc::new(resolve("o.test", origin.address()).start().await);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "get"] {
        let reply = ask(&proxy, method, URL, &[]).await;
        reply.assert_error(403, "http_request_denied");
        assert_eq!(reply.json()["rule"]["line"], 2, "{method}");
    }
    for method in ["GET", "HEAD"] {
        assert_eq!(ask(&proxy, method, URL, &[]).await.status(), 200);
    }
    assert!(forwarded(&origin).is_empty(), "{:?}", origin.log());
    let (place, rows) = verified(proxy, 7).await;
    assert_eq!(rows[0]["reason"], "rule");
    assert_eq!(rows[5]["reason"], "robots_txt");
    let replayed = place.run(&["audit", "replay"]).await;
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    let seq = place.number(1).to_string();
    let explained = place.run(&["audit", "show", &seq, "--json"]).await;
    let explained = explained.json_lines().remove(0);
    assert_eq!(explained["decided_again"], "same");
    assert_eq!(explained["competing"], json!([]));
}

// Ours: any other request is one for a page.
#[tokio::test]
async fn a_post_to_robots_txt_that_no_rule_disallows_waits_for_the_crawl_delay() {
    let (origin, proxy) = site(Script::robots("User-agent: *\nCrawl-delay: 1\n"), &[]).await;
    let post = || ask(&proxy, "POST", URL, &[]);
    let replies = tokio::join!(post(), post(), post());
    assert_eq!(statuses(&<[Reply; 3]>::from(replies)), [200; 3]);
    assert_apart(&origin.log()[1..], 3, ms(1000));
}

/// Holds that of five requests to an origin that asks for a pause the first is sent,
/// and none after it.
async fn assert_one_of_five(origin: &Origin, method: &str) {
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
async fn five_posts_to_robots_txt_are_one_within_the_crawl_delay() {
    let text = "User-agent: *\nCrawl-delay: 30\n";
    assert_one_of_five(&Script::robots(text).start().await, "POST").await;
}

// Ours: a file that came by a redirect is no whole answer of this URL, so the request
// is forwarded.
#[tokio::test]
async fn a_get_of_a_redirected_robots_txt_waits_for_the_crawl_delay() {
    for method in ["GET", "HEAD"] {
        let origin = Script::robots_page(Page::redirect("/rules"))
            .page("/rules", Page::text("User-agent: *\nCrawl-delay: 30\n"))
            .start()
            .await;
        assert_one_of_five(&origin, method).await;
    }
}

// Ours: without rules there is the operator's pace, and the back-off of the host.
#[tokio::test]
async fn a_get_of_a_robots_txt_that_is_missing_or_partial_waits_as_a_page_does() {
    for status in [404, 206] {
        let page = Page::text("").with_status(status);
        let origin = Script::robots_page(page).start().await;
        let config = impatient(&origin).set("pace.origin = { rate = \"1/m\" }");
        let proxy = config.start().await;
        // The first page of a host follows its robots.txt at once.
        assert_eq!(get(&proxy, URL).await.status(), status);
        assert_later(&get(&proxy, URL).await, "ceiling");
        assert_eq!(forwarded(&origin), ["GET"], "{:?}", origin.log());
    }
}

// Ours: the hours of a site are for all that is forwarded.
#[tokio::test]
async fn outside_the_visit_time_robots_txt_is_forwarded_for_nobody() {
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

// Ours: what sends nothing needs no turn.
#[tokio::test]
async fn a_robots_txt_in_the_cache_is_answered_whatever_the_pace() {
    let text = "User-agent: *\nCrawl-delay: 30\n";
    let origin = Script::robots(text).start().await;
    let proxy = impatient(&origin).start().await;
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    for _ in 0..5 {
        assert_eq!(get(&proxy, URL).await.status(), 200);
    }
    assert!(forwarded(&origin).is_empty(), "{:?}", origin.log());
}
