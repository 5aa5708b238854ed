//! Answers to clients while the robots.txt that would decide waits for its own turn.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::kit::client::get;
use crate::kit::origin::{Script, site};
use crate::kit::paced::{asking_for, assert_later, delaying, queue, verified};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::resolve;

// Ours: this robots.txt expires before each turn.
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

// Ours: a 403 would lose a page whose robots.txt was never asked for.
#[tokio::test]
async fn without_room_for_a_robots_txt_fetch_requests_get_503() {
    let gate = Gate::shut();
    let slow = Script::robots_page(Page::text("").after(&gate));
    let slow = slow.start().await;
    let other = Script::robots("").start().await;
    let proxy = resolve("slow.test", slow.address())
        .resolve("o.test", other.address())
        .set("robots.max_waiting = 1")
        .start()
        .await;
    let proxy = Arc::new(proxy);
    let first = asking_for(&proxy, "http://slow.test/1");
    slow.arrival("/robots.txt").await;
    let reply = get(&proxy, "http://o.test/1").await;
    assert_eq!(reply.status(), 503, "{}", reply.text());
    assert_eq!(reply.json()["reason"], "overload");
    assert_eq!(reply.head.value("retry-after"), "1");
    gate.open(1);
    assert_eq!(first.await.unwrap().status(), 200);
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    verified(proxy, 3).await;
}

// Ours: and a stop ends their wait.
#[tokio::test]
async fn requests_that_wait_for_a_queued_robots_txt_fill_the_queue() {
    let first = delaying("30").start().await;
    let other = delaying("30").start().await;
    let config = resolve("o.test", first.address()).resolve("o.test:8081", other.address());
    let proxy = Arc::new(config.set("pace.queue = { crawler = 2 }").start().await);
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    let held = [1, 2].map(|page| asking_for(&proxy, &format!("http://o.test:8081/{page}")));
    queue(&proxy, 2).await;
    let full = get(&proxy, "http://o.test:8081/3").await;
    assert_later(&full, "queue_full");
    proxy.signal("TERM").await;
    for reply in held {
        let reply = reply.await.unwrap();
        assert_eq!(reply.status(), 503, "{}", reply.text());
        assert_eq!(reply.json()["reason"], "overload");
    }
}
