//! Answers to clients while the robots.txt that would decide waits for its own turn.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::kit::client::{Reply, get};
use crate::kit::origin::{Script, site};
use crate::kit::paced::{all, assert_later, delaying, queue, verified};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::resolve;
use crate::kit::until;

/// The program's default back-off, which the test kit replaces.
const BACK_OFF: &str = "pace.backoff = { first = \"60s\", longest = \"24h\", forgive = \"30m\" }";

/// Asserts that `reply` puts the client off for five minutes, for the host's back-off.
fn assert_put_off(reply: &Reply) {
    assert_eq!(reply.status(), 429, "{}", reply.text());
    assert_eq!(reply.json()["reason"], "backoff");
    let seconds: u64 = reply.head.value("retry-after").parse().unwrap();
    assert!((290..=300).contains(&seconds), "{seconds}");
}

// Ours: 429 with the time to retry; a 403 would lose the page.
#[tokio::test]
async fn during_a_back_off_an_unknown_robots_txt_puts_requests_off() {
    let busy = Page::status(503).field("Retry-After", "300");
    let origin = Script::robots("").page("/1", busy).start().await;
    let other = Script::robots("").start().await;
    let config = resolve("o.test", origin.address()).resolve("o.test:81", other.address());
    let proxy = config
        .set(BACK_OFF)
        .set("egress.ports = [\"default\", \"81\"]")
        .start()
        .await;
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 503);
    // The robots.txt of this port was not fetched before the back-off of the host.
    assert_put_off(&get(&proxy, "http://o.test:81/1").await);
    other.assert_only_robots_fetched();
    assert_eq!(other.robots_fetches(), 0);
    let place = proxy.stop().await;
    let verified = place.run(&["audit", "verify"]).await;
    assert!(verified.stdout.contains(" 0 mismatches"), "{verified:?}");
}

// Ours: repeated waits for a robots.txt, which expires before each turn, count towards
// `pace.max_wait`.
#[tokio::test]
async fn waits_for_robots_txt_count_towards_max_wait() {
    let hop = Page::redirect("/robots-2.txt");
    let rules = Page::text("User-agent: *\nCrawl-delay: 2\n").field("Cache-Control", "max-age=1");
    let (_origin, proxy) = site(
        Script::robots_page(hop).page("/robots-2.txt", rules),
        &[
            "robots.ttl_min = \"1s\"",
            "robots.timeout = \"900ms\"",
            "pace.max_wait = \"6s\"",
        ],
    )
    .await;
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    let held = timeout(Duration::from_secs(7), get(&proxy, "http://o.test/2"));
    assert!(held.await.is_ok());
}

// Ours: `overload`. A 403 would lose the page although its robots.txt was never asked
// for.
#[tokio::test]
async fn without_room_for_a_robots_txt_fetch_requests_get_503() {
    let gate = Gate::shut();
    let slow = Page::text("").after(&gate);
    let slow = Script::robots_page(slow).start().await;
    let other = Script::robots("").start().await;
    let proxy = resolve("slow.test", slow.address())
        .resolve("o.test", other.address())
        .set("robots.max_waiting = 1")
        .start()
        .await;
    let proxy = Arc::new(proxy);
    let first = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { get(&proxy, "http://slow.test/1").await.status() }
    });
    until("a fetch", async || {
        (slow.robots_fetches() == 1).then_some(())
    })
    .await;
    let reply = get(&proxy, "http://o.test/1").await;
    assert_eq!(reply.status(), 503, "{}", reply.text());
    assert_eq!(reply.json()["reason"], "overload");
    assert_eq!(reply.head.value("retry-after"), "1");
    gate.open(1);
    assert_eq!(first.await.unwrap(), 200);
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    verified(proxy, 3).await;
}

// Ours: a request that waits for a queued robots.txt fetch counts in the queue limit, and
// a stop ends its wait.
#[tokio::test]
async fn requests_that_wait_for_a_queued_robots_txt_fill_the_queue() {
    let first = delaying("30").start().await;
    let other = delaying("30").start().await;
    let config = resolve("o.test", first.address()).resolve("o.test:81", other.address());
    let proxy = config
        .set("egress.ports = [\"default\", \"81\"]")
        .set("pace.queue = { crawler = 2 }")
        .start()
        .await;
    let proxy = Arc::new(proxy);
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    let urls: Vec<_> = (0..2)
        .map(|page| format!("http://o.test:81/{page}"))
        .collect();
    let held = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { all(&proxy, &urls).await }
    });
    queue(&proxy, 2).await;
    let full = get(&proxy, "http://o.test:81/3").await;
    assert_later(&full, "queue_full");
    proxy.signal("TERM").await;
    for reply in held.await.unwrap() {
        assert_eq!(reply.status(), 503, "{}", reply.text());
        assert_eq!(reply.json()["reason"], "overload");
    }
}
