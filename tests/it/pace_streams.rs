//! Pace over HTTP/2, where all requests share a connection, and the waits on record.

use std::sync::Arc;

use serde_json::Value;

use crate::kit::client::get;
use crate::kit::clock;
use crate::kit::h2::H2Crawler;
use crate::kit::paced::{
    all, asking, assert_apart, assert_later, delaying, held, ms, none_in_flight, pages, queue,
    standard, statuses, urls, verified, when,
};
use crate::kit::proxy::Proxy;

/// Returns a crawler that has fetched its first page, so that its robots.txt is cached.
async fn after_first_page(proxy: &Proxy) -> H2Crawler {
    let mut crawler = H2Crawler::inside(proxy, "o.test:443").await;
    assert_eq!(crawler.get("https://o.test/0").await.status(), 200);
    crawler
}

// Ours: requests of one crawler keep their order.
#[tokio::test]
async fn streams_are_forwarded_in_order_of_arrival() {
    let origin = delaying("0.2").tls().start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    let mut crawler = after_first_page(&proxy).await;
    let paths: Vec<_> = (1..=10).map(|number| format!("/{number}")).collect();
    let mut streams = Vec::new();
    for path in &paths {
        streams.push(crawler.open(&format!("https://o.test{path}")));
    }
    for stream in streams {
        assert_eq!(stream.await.unwrap(), 200);
    }
    assert_eq!(origin.targets()[1..], paths);
    assert_apart(&pages(&[&origin]), 11, ms(200));
    drop(crawler);
    verified(proxy, 11).await;
}

// Ours: a cancelled request leaves the queue. RFC 9113, section 8.1.
#[tokio::test]
async fn reset_streams_leave_their_places_to_the_next() {
    let origin = delaying("1").tls().start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    let mut crawler = after_first_page(&proxy).await;
    let mut gone = Vec::new();
    for number in 1..=5 {
        gone.push(crawler.open(&format!("https://o.test/gone/{number}")));
    }
    queue(&proxy, 5).await;
    let last = crawler.open("https://o.test/last");
    queue(&proxy, 6).await;
    drop(gone);
    queue(&proxy, 1).await;
    assert_eq!(last.await.unwrap(), 200);
    assert_eq!(origin.targets(), ["/0", "/last"]);
    let pause = when(&origin, "/last").duration_since(when(&origin, "/0"));
    assert!((ms(1000)..ms(4500)).contains(&pause), "{pause:?}");
    none_in_flight(&proxy).await;
    drop(crawler);
    verified(proxy, 2).await;
}

// Ours: each host has its own queue.
#[tokio::test]
async fn streams_that_wait_for_one_host_do_not_delay_another() {
    let slow = delaying("60").tls().start().await;
    let other = delaying("60").name("other.test").tls().start().await;
    let config = standard(&slow)
        .resolve("other.test", other.address())
        .set("pace.max_wait = \"1h\"");
    let proxy = Arc::new(config.start().await);
    let mut crawler = after_first_page(&proxy).await;
    let mut waiting = Vec::new();
    for number in 1..=10 {
        waiting.push(crawler.open(&format!("https://o.test/{number}")));
    }
    queue(&proxy, 10).await;
    let begun = clock::instant();
    let mut free = H2Crawler::inside(&proxy, "other.test:443").await;
    let reply = free.get("https://other.test/1").await;
    assert_eq!(reply.status(), 200);
    assert!(clock::since(begun) < ms(10_000));
    assert_eq!(slow.targets(), ["/0"]);
    drop((waiting, crawler, free));
    queue(&proxy, 0).await;
    verified(proxy, 2).await;
}

// Ours: each entry records the wait as the crawler saw it.
#[tokio::test]
async fn the_recorded_wait_is_the_crawlers_wait() {
    let origin = delaying("0.5").start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    assert_eq!(get(&proxy, "http://o.test/0").await.status(), 200);
    let begun = clock::instant();
    assert_eq!(statuses(&all(&proxy, &urls(3)).await), [200; 3]);
    let took = clock::since(begun);
    let (_place, rows) = verified(proxy, 4).await;
    let wait = |row: &Value| ms(row["wait_ms"].as_u64().unwrap());
    let longest = rows.iter().map(wait).max().unwrap();
    // The wait accounts for nearly all of the time that the crawler measured.
    assert!(
        longest <= took && took < longest + ms(1500),
        "{longest:?} of {took:?}"
    );
}

// Ours: a wait that ended in a 429 is recorded as well.
#[tokio::test]
async fn the_wait_before_a_429_is_recorded() {
    let (gate, origin) = held("/first").await;
    let config = standard(&origin)
        .set("pace.origin = { in_flight = 1 }")
        .set("pace.max_wait = \"700ms\"");
    let proxy = Arc::new(config.start().await);
    let first = asking(&proxy, "ExampleBot", &["/first"]);
    origin.arrival("/first").await;
    assert_later(&get(&proxy, "http://o.test/1").await, "ceiling");
    gate.open(1);
    first.await.unwrap();
    let (_place, rows) = verified(proxy, 2).await;
    let put_off = rows.iter().find(|row| row["verdict"] == "later");
    let waited = put_off.unwrap()["wait_ms"].as_u64().unwrap();
    assert!((700..2200).contains(&waited), "{waited}");
}
