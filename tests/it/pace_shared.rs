//! Queue places shared between clients: the client with the most waiting requests gives
//! one up to a client with fewer.

use std::sync::Arc;

use crate::kit::client::{Crawler, Reply, get_as};
use crate::kit::origin::Script;
use crate::kit::paced::{assert_later, delaying, metric, queue, standard};
use crate::kit::proxy::Proxy;

/// Sends a request from 127.0.0.`last` and returns the connection.
async fn asking(proxy: &Proxy, last: u8, url: &str) -> Crawler {
    let mut crawler = Crawler::from(proxy, last).await;
    let (_, rest) = url.split_once("//").unwrap();
    let (host, _) = rest.split_once('/').unwrap();
    let request = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: FooBot\r\n\r\n");
    crawler.send(request.as_bytes()).await;
    crawler
}

async fn reply(mut crawler: Crawler) -> Reply {
    crawler.reply_to("GET").await
}

// Ours: clients share `pace.queue.total`. The newest request of the client that holds
// most places gives way at once, with a Retry-After.
#[tokio::test]
async fn a_full_queue_drops_a_request_of_the_client_with_the_most() {
    let origin = delaying("20").start().await;
    let config = standard(&origin).set("pace.queue = { total = 3 }");
    let proxy = Arc::new(config.start().await);
    let first = get_as(&proxy, "FooBot", "http://o.test/0").await;
    assert_eq!(first.status(), 200);
    let mut bad = Vec::new();
    for number in 1..=3 {
        bad.push(asking(&proxy, 2, &format!("http://o.test/{number}")).await);
        queue(&proxy, number).await;
    }
    let good = asking(&proxy, 3, "http://o.test/4").await;
    let lost = reply(bad.pop().unwrap()).await;
    assert!(1 <= assert_later(&lost, "queue_full"));
    queue(&proxy, 3).await;
    let displaced = "politesse_client_shares_total{resource=\"waiting\",result=\"displaced\"}";
    assert_eq!(metric(&proxy, displaced).await, 1.0);
    drop((bad, good));
}

// Ours: a waiting request also counts towards `proxy.max_requests` and can lose that
// place.
#[tokio::test]
async fn at_max_requests_a_waiting_request_gives_way_to_another_client() {
    let slow = delaying("60").start().await;
    let idle = Script::robots("").start().await;
    let config = standard(&slow)
        .resolve("idle.test", idle.address())
        .set("proxy.max_requests = 2");
    let proxy = Arc::new(config.start().await);
    let first = get_as(&proxy, "FooBot", "http://o.test/0").await;
    assert_eq!(first.status(), 200);
    let mut bad = Vec::new();
    for number in 1..=2 {
        bad.push(asking(&proxy, 2, &format!("http://o.test/{number}")).await);
        queue(&proxy, number).await;
    }
    let good = reply(asking(&proxy, 3, "http://idle.test/1").await).await;
    assert_eq!(good.status(), 200, "{}", good.text());
    let lost = reply(bad.pop().unwrap()).await;
    assert_eq!(lost.json()["reason"], "overload", "{}", lost.text());
    assert!(!lost.head.value("retry-after").is_empty());
    drop(bad);
}
