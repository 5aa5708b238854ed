//! Queue places shared between clients: the client with the most waiting requests gives
//! one up to a client with fewer.

use crate::kit::client::{Crawler, get};
use crate::kit::origin::Script;
use crate::kit::paced::{assert_later, delaying, metric, queue, standard};
use crate::kit::proxy::Proxy;

/// Fetches a page, whose delay then applies, and requests `count` more from 127.0.0.2.
/// Returns their connections once all of them wait.
async fn fill_queue(proxy: &Proxy, count: u32) -> Vec<Crawler> {
    assert_eq!(get(proxy, "http://o.test/0").await.status(), 200);
    let mut waiting = Vec::new();
    for number in 1..=count {
        let mut crawler = Crawler::from(proxy, 2).await;
        let url = format!("http://o.test/{number}");
        crawler.start_get(&url, "o.test").await;
        queue(proxy, number).await;
        waiting.push(crawler);
    }
    waiting
}

// Ours: `pace.queue.total`. The newest request gives way at once, with a Retry-After.
#[tokio::test]
async fn a_full_queue_drops_a_request_of_the_client_with_the_most() {
    let origin = delaying("20").start().await;
    let config = standard(&origin).set("pace.queue = { total = 3 }");
    let proxy = config.start().await;
    let mut bad = fill_queue(&proxy, 3).await;
    let mut good = Crawler::from(&proxy, 3).await;
    good.start_get("http://o.test/4", "o.test").await;
    let lost = bad.pop().unwrap().reply_to("GET").await;
    assert!(1 <= assert_later(&lost, "queue_full"));
    queue(&proxy, 3).await;
    let displaced = "politesse_client_shares_total{resource=\"waiting\",result=\"displaced\"}";
    assert_eq!(metric(&proxy, displaced).await, 1.0);
}

// Ours: waiting requests also count towards `proxy.max_requests`.
#[tokio::test]
async fn at_max_requests_a_waiting_request_gives_way_to_another_client() {
    let slow = delaying("60").start().await;
    let idle = Script::robots("").start().await;
    let config = standard(&slow)
        .resolve("idle.test", idle.address())
        .set("proxy.max_requests = 2");
    let proxy = config.start().await;
    let mut bad = fill_queue(&proxy, 2).await;
    let mut good = Crawler::from(&proxy, 3).await;
    let good = good.get("http://idle.test/1", "idle.test").await;
    assert_eq!(good.status(), 200, "{}", good.text());
    let lost = bad.pop().unwrap().reply_to("GET").await;
    assert_eq!(lost.json()["reason"], "overload", "{}", lost.text());
    assert!(!lost.head.value("retry-after").is_empty());
}
