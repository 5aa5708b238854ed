//! Requests that the proxy sends again after a 429 or 503 (`pace.retry`). RFC 9110,
//! section 10.2.3; RFC 6585, section 4.

use std::sync::Arc;

use serde_json::Value;

use crate::kit::client::{Crawler, ask, get, reload};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::{
    all, asking_for, asking_for_less, assert_apart, assert_later, column, metric, ms, pages, queue,
    standard, statuses, urls, verified,
};
use crate::kit::proxy::Config;

/// Starts an origin that answers the first `count` requests for `/1` with 429.
async fn refusing(count: usize, retry_after: &str) -> Origin {
    let page = asking_for_less(429, Some(retry_after));
    Script::robots("").at_first("/1", count, page).start().await
}

fn retrying(origin: &Origin) -> Config {
    standard(origin).set("pace.retry = 2")
}

// Ours: each attempt is a decision with its own row and its own wait, and none comes
// before the site's Retry-After.
#[tokio::test]
async fn a_429_within_max_wait_is_retried_after_retry_after() {
    let origin = refusing(2, "1").await;
    let proxy = Arc::new(retrying(&origin).start().await);
    let reply = get(&proxy, "http://o.test/1").await;
    assert_eq!((reply.status(), &*reply.text()), (200, "this is /1\n"));
    assert_apart(&pages(&[&origin]), 3, ms(1000));
    assert_eq!(metric(&proxy, "politesse_pace_retries_total").await, 2.0);
    let (_place, rows) = verified(proxy, 3).await;
    assert_eq!(column(&rows, "verdict"), ["allow"; 3]);
    assert_eq!(column(&rows, "status"), [429, 429, 200]);
    assert_eq!(column(&rows, "sent"), [1, 1, 1]);
    let errors = ["retried".into(), "retried".into(), Value::Null];
    assert_eq!(column(&rows, "error"), errors);
    let waits = rows.iter().map(|row| row["wait_ms"].as_u64().unwrap());
    assert!(waits.sum::<u64>() < 2900, "{rows:?}");
}

// Ours: a retry would double the back-off of the host, which puts its other pages off.
#[tokio::test]
async fn a_503_without_retry_after_is_not_retried() {
    let page = asking_for_less(503, None);
    let origin = Script::robots("").page("/1", page).start().await;
    let backoff = "pace.backoff = { first = \"700ms\", longest = \"1h\", forgive = \"1h\" }";
    let proxy = Arc::new(retrying(&origin).set(backoff).start().await);
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 503);
    assert_eq!(get(&proxy, "http://o.test/2").await.status(), 200);
    assert_eq!(origin.targets(), ["/1", "/2"]);
    verified(proxy, 2).await;
}

// Ours: the client gets the site's own answer rather than our 429.
#[tokio::test]
async fn a_503_is_passed_on_if_its_retry_gets_no_turn() {
    let page = asking_for_less(503, Some("1"));
    let origin = Script::robots("User-agent: *\nCrawl-delay: 3\n")
        .at_first("/1", 1, page)
        .start()
        .await;
    let config = retrying(&origin).set("pace.max_wait = \"2s\"");
    let proxy = Arc::new(config.start().await);
    let reply = get(&proxy, "http://o.test/1").await;
    assert_eq!((reply.status(), &*reply.text()), (503, "too much\n"));
    verified(proxy, 1).await;
}

// Ours: `pace.retry`, and `pace.max_wait` for the sum of the waits of all attempts.
#[tokio::test]
async fn a_429_is_passed_on_after_the_last_retry_or_if_the_next_comes_too_late() {
    for (retry_after, retry, max_wait, sendings) in [
        ("1", 1, "60s", 2),
        ("1", 0, "60s", 1),
        ("1", 10, "1500ms", 2),
        ("3", 2, "2s", 1),
    ] {
        let origin = refusing(5, retry_after).await;
        let config = standard(&origin)
            .set(&format!("pace.retry = {retry}"))
            .set(&format!("pace.max_wait = \"{max_wait}\""));
        let proxy = Arc::new(config.start().await);
        let reply = get(&proxy, "http://o.test/1").await;
        let row = format!("{retry_after} {retry} {max_wait}");
        assert_eq!(
            (reply.status(), &*reply.text()),
            (429, "too much\n"),
            "{row}"
        );
        assert_eq!(origin.targets().len(), sendings, "{row}");
        let is_put_off = retry_after == "3";
        if is_put_off {
            assert_later(&get(&proxy, "http://o.test/2").await, "backoff");
        }
        verified(proxy, sendings + usize::from(is_put_off)).await;
    }
}

// RFC 9110, section 9.2.1: unsafe methods may change state.
#[tokio::test]
async fn a_post_is_not_retried() {
    let origin = refusing(1, "1").await;
    let proxy = Arc::new(retrying(&origin).start().await);
    let reply = ask(&proxy, "POST", "http://o.test/1", &["Content-Length: 0"]).await;
    assert_eq!(reply.status(), 429);
    assert_eq!(origin.targets(), ["/1"]);
    verified(proxy, 1).await;
}

// Ours: a retry is a new decision, so an override added meanwhile refuses it.
#[tokio::test]
async fn a_retry_is_decided_by_the_policy_then_in_force() {
    let origin = refusing(1, "2").await;
    let proxy = Arc::new(retrying(&origin).start().await);
    let asked = asking_for(&proxy, "http://o.test/1");
    origin.arrival("/1").await;
    let deny =
        "robots.override = [{ origin = \"http://o.test\", action = \"deny\", reason = \"asked\" }]";
    proxy.place().configure(&retrying(&origin).set(deny));
    reload(&proxy).await;
    let reply = asked.await.unwrap();
    assert_eq!(reply.status(), 403, "{}", reply.text());
    assert_eq!(origin.targets(), ["/1"]);
    let (_place, rows) = verified(proxy, 2).await;
    assert_eq!(column(&rows, "verdict"), ["allow", "disallow"]);
}

// Ours: a client that hangs up leaves the queue.
#[tokio::test]
async fn a_client_that_hangs_up_gets_no_retry() {
    let origin = refusing(1, "2").await;
    let proxy = Arc::new(retrying(&origin).start().await);
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/1", "o.test").await;
    queue(&proxy, 1).await;
    drop(crawler);
    queue(&proxy, 0).await;
    // The host's back-off ends, and only the new request is sent.
    assert_eq!(get(&proxy, "http://o.test/2").await.status(), 200);
    assert_eq!(origin.targets(), ["/1", "/2"]);
    verified(proxy, 3).await;
}

#[tokio::test]
async fn requests_that_wait_for_a_retried_429_all_get_their_page() {
    let origin = refusing(1, "1").await;
    let config = retrying(&origin).set("pace.profile = \"owned\"");
    let proxy = Arc::new(config.start().await);
    assert_eq!(statuses(&all(&proxy, &urls(12)).await), [200; 12]);
    verified(proxy, 13).await;
}
