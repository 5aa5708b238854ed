//! Requests that the proxy sends again after a 429 or 503 (`pace.retry`). RFC 9110,
//! section 10.2.3; RFC 6585, section 4.

use std::sync::Arc;

use serde_json::Value;

use crate::kit::client::{Crawler, ask, curl, get, reload};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::{
    all, asking_for_less, assert_apart, assert_later, metric, ms, pages, queue, standard, urls,
    verified,
};
use crate::kit::proxy::Config;

const TWICE: &str = "pace.retry = 2";
const RETRIES: &str = "politesse_pace_retries_total";

/// Starts an origin that answers the first `count` requests for `/1` with 429.
async fn refusing(count: usize, retry_after: &str) -> Origin {
    let page = asking_for_less(429, Some(retry_after));
    Script::robots("").at_first("/1", count, page).start().await
}

fn retrying(origin: &Origin) -> Config {
    standard(origin).set(TWICE)
}

fn column(rows: &[Value], key: &str) -> Vec<Value> {
    rows.iter().map(|row| row[key].clone()).collect()
}

// Ours: each attempt is a decision with its own row, and none comes before the site's
// Retry-After.
#[tokio::test]
async fn a_429_within_max_wait_is_retried_after_retry_after() {
    let origin = refusing(2, "1").await;
    let proxy = Arc::new(retrying(&origin).start().await);
    let reply = get(&proxy, "http://o.test/1").await;
    assert_eq!((reply.status(), &*reply.text()), (200, "this is /1\n"));
    assert_apart(&pages(&[&origin]), 3, ms(1000));
    assert_eq!(metric(&proxy, RETRIES).await, 2.0);
    let (_place, rows) = verified(proxy, 3).await;
    assert_eq!(column(&rows, "verdict"), ["allow"; 3]);
    assert_eq!(column(&rows, "status"), [429, 429, 200]);
    assert_eq!(column(&rows, "sent"), [1, 1, 1]);
    let errors = ["retried".into(), "retried".into(), Value::Null];
    assert_eq!(column(&rows, "error"), errors);
}

// Ours: retrying a page that is always 503 would double its host's back-off and put the
// other pages off.
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

// Ours: a wait counts once, in the row of the attempt that waited.
#[tokio::test]
async fn each_attempt_records_its_own_wait() {
    let origin = refusing(2, "1").await;
    let proxy = Arc::new(retrying(&origin).start().await);
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    let (_place, rows) = verified(proxy, 3).await;
    let waits = rows.iter().map(|row| row["wait_ms"].as_u64().unwrap());
    assert!(waits.sum::<u64>() < 2900, "{rows:?}");
}

// Ours: if the retry gets no turn within `max_wait`, the client gets the site's own
// answer rather than our 429.
#[tokio::test]
async fn a_503_is_passed_on_if_its_retry_gets_no_turn() {
    let page = asking_for_less(503, Some("1"));
    let origin = Script::robots("User-agent: *\nCrawl-delay: 3\n")
        .at_first("/1", 1, page)
        .start()
        .await;
    let proxy = Arc::new(
        retrying(&origin)
            .set("pace.max_wait = \"2s\"")
            .start()
            .await,
    );
    let reply = get(&proxy, "http://o.test/1").await;
    assert_eq!((reply.status(), &*reply.text()), (503, "too much\n"));
    verified(proxy, 1).await;
}

// Ours: `pace.retry` limits the retries, and 0 turns them off.
#[tokio::test]
async fn a_429_after_the_last_retry_is_passed_on() {
    for (line, sendings) in [("pace.retry = 1", 2), ("pace.retry = 0", 1)] {
        let origin = refusing(5, "1").await;
        let proxy = Arc::new(standard(&origin).set(line).start().await);
        let reply = get(&proxy, "http://o.test/1").await;
        assert_eq!((reply.status(), &*reply.text()), (429, "too much\n"));
        assert_eq!(origin.targets().len(), sendings, "{line}");
        verified(proxy, sendings).await;
    }
}

#[tokio::test]
async fn a_429_with_a_retry_after_beyond_max_wait_is_passed_on_at_once() {
    let origin = refusing(1, "3").await;
    let proxy = Arc::new(
        retrying(&origin)
            .set("pace.max_wait = \"2s\"")
            .start()
            .await,
    );
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 429);
    assert_eq!(origin.targets(), ["/1"]);
    assert_later(&get(&proxy, "http://o.test/1").await, "backoff");
    verified(proxy, 2).await;
}

// Ours: `max_wait` bounds the sum of the waits of all attempts.
#[tokio::test]
async fn all_attempts_share_one_max_wait() {
    let origin = refusing(5, "1").await;
    let patience = "pace.max_wait = \"1500ms\"";
    let config = standard(&origin).set("pace.retry = 10").set(patience);
    let proxy = Arc::new(config.start().await);
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 429);
    assert_eq!(origin.targets().len(), 2);
    verified(proxy, 2).await;
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
    let asked = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { get(&proxy, "http://o.test/1").await }
    });
    origin.arrival("/1").await;
    let refusing = standard(&origin).set(TWICE).set(
        "robots.override = [{ origin = \"http://o.test\", action = \"deny\", reason = \"asked\" }]",
    );
    proxy.place().configure(&refusing);
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
    let proxy = Arc::new(
        retrying(&origin)
            .set("pace.profile = \"owned\"")
            .start()
            .await,
    );
    for reply in all(&proxy, &urls(12)).await {
        assert_eq!(reply.status(), 200);
    }
    verified(proxy, 13).await;
}

#[tokio::test]
async fn curl_gets_the_page_after_a_429() {
    let origin = refusing(1, "1").await;
    let proxy = Arc::new(retrying(&origin).start().await);
    let outcome = curl(&proxy, &["-sS", "--fail", "http://o.test/1"]).await;
    assert_eq!(outcome.stdout, "this is /1\n", "{outcome:?}");
    verified(proxy, 2).await;
}
