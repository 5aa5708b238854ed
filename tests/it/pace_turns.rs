//! The order of turns, and the limits on requests that wait for one.

use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::kit::client::{Crawler, Reply, get, get_as};
use crate::kit::origin::Origin;
use crate::kit::paced::{
    ONE_FILE, all, asking, assert_apart, assert_later, delaying, held, metric, ms, pages, queue,
    standard, statuses, urls, verified,
};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::{Config, Proxy};
use crate::kit::until;

const FIRST: &str = "http://o.test/first";

/// Starts a proxy and an origin that serves one request at a time. A first request holds
/// that turn until the gate opens.
async fn with_the_turn_taken(lines: &[&str]) -> (Origin, Arc<Proxy>, Gate, JoinHandle<Vec<Reply>>) {
    let (gate, origin) = held("/first").await;
    let config: Config = standard(&origin)
        .resolve("other.test", origin.address())
        .set("pace.profile = \"owned\"")
        .set("pace.origin = { in_flight = 1 }")
        .set(ONE_FILE);
    let config = lines.iter().fold(config, |config, line| config.set(line));
    let proxy = Arc::new(config.start().await);
    let first = asking(&proxy, "FirstBot", &["/first"]);
    origin.arrival("/first").await;
    (origin, proxy, gate, first)
}

// Ours: `pace.queue.origin`; the next request gets 429.
#[tokio::test]
async fn the_queue_of_a_host_is_limited() {
    let limit = "pace.queue = { origin = 2, crawler = 512, total = 10000 }";
    let (origin, proxy, gate, first) = with_the_turn_taken(&[limit]).await;
    let waiting = asking(&proxy, "ExampleBot", &["/1"]);
    queue(&proxy, 1).await;
    let second = asking(&proxy, "SecondBot", &["/2"]);
    queue(&proxy, 2).await;
    assert_later(
        &get_as(&proxy, "OtherBot", "http://o.test/3").await,
        "queue_full",
    );
    assert_eq!(get(&proxy, "http://other.test/1").await.status(), 200);
    gate.open(1);
    assert_eq!(statuses(&waiting.await.unwrap()), [200]);
    assert_eq!(statuses(&second.await.unwrap()), [200]);
    first.await.unwrap();
    // The queue has room again.
    assert_eq!(get(&proxy, "http://o.test/4").await.status(), 200);
    assert!(!origin.targets().contains(&"/3".to_owned()));
    let later = "politesse_pace_later_total{reason=\"queue_full\"}";
    assert_eq!(metric(&proxy, later).await, 1.0);
    verified(proxy, 6).await;
}

// Ours: a crawler that fills the queue gives a place up to another.
#[tokio::test]
async fn a_crawler_that_fills_the_queue_gives_way_to_another() {
    let limit = "pace.queue = { origin = 3, crawler = 512, total = 10000 }";
    let (_origin, proxy, gate, first) = with_the_turn_taken(&[limit]).await;
    let flood = asking(&proxy, "FloodBot", &["/1", "/2", "/3"]);
    queue(&proxy, 3).await;
    let other = asking(&proxy, "OtherBot", &["/4"]);
    until("one to give way", async || {
        let name = "politesse_pace_later_total{reason=\"queue_full\"}";
        (metric(&proxy, name).await == 1.0).then_some(())
    })
    .await;
    gate.open(1);
    let mut flood = statuses(&flood.await.unwrap());
    flood.sort_unstable();
    assert_eq!(flood, [200, 200, 429]);
    assert_eq!(statuses(&other.await.unwrap()), [200]);
    first.await.unwrap();
    verified(proxy, 5).await;
}

// Ours: `pace.queue.crawler`.
#[tokio::test]
async fn the_queued_requests_of_a_crawler_are_limited() {
    let limit = "pace.queue = { origin = 256, crawler = 2, total = 10000 }";
    let (_origin, proxy, gate, first) = with_the_turn_taken(&[limit]).await;
    let waiting = asking(&proxy, "ExampleBot", &["/1", "/2"]);
    queue(&proxy, 2).await;
    assert_later(&get(&proxy, "http://o.test/3").await, "queue_full");
    let other = asking(&proxy, "OtherBot", &["/4"]);
    queue(&proxy, 3).await;
    gate.open(1);
    assert_eq!(statuses(&waiting.await.unwrap()), [200; 2]);
    assert_eq!(statuses(&other.await.unwrap()), [200]);
    first.await.unwrap();
    verified(proxy, 5).await;
}

// Ours: `pace.queue.total`.
#[tokio::test]
async fn the_queued_requests_of_all_hosts_are_limited() {
    let limit = "pace.queue = { origin = 256, crawler = 512, total = 2 }";
    let (_origin, proxy, gate, first) = with_the_turn_taken(&[limit]).await;
    let waiting = asking(&proxy, "ExampleBot", &["/1"]);
    let other = asking(&proxy, "OtherBot", &["/2"]);
    queue(&proxy, 2).await;
    assert_later(
        &get_as(&proxy, "ThirdBot", "http://o.test/3").await,
        "queue_full",
    );
    gate.open(1);
    assert_eq!(statuses(&waiting.await.unwrap()), [200]);
    assert_eq!(statuses(&other.await.unwrap()), [200]);
    first.await.unwrap();
    verified(proxy, 4).await;
}

// Ours: a cancelled request leaves the queue.
#[tokio::test]
async fn a_crawler_that_hangs_up_while_queued_takes_no_turn() {
    let origin = delaying("0.8").start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    assert_eq!(get(&proxy, FIRST).await.status(), 200);
    let mut gone = Vec::new();
    for number in 1..=5 {
        let mut crawler = Crawler::abrupt(&proxy).await;
        let line = format!("GET http://o.test/gone/{number} HTTP/1.1\r\n");
        crawler
            .send((line + "Host: o.test\r\nUser-Agent: GoneBot/1.0\r\n\r\n").as_bytes())
            .await;
        gone.push(crawler);
    }
    queue(&proxy, 5).await;
    drop(gone);
    queue(&proxy, 0).await;
    let replies = all(&proxy, &urls(2)).await;
    assert_eq!(statuses(&replies), [200; 2]);
    let seen = pages(&[&origin]);
    assert_apart(&seen, 3, ms(800));
    // The five requests of the crawlers that left would have taken 4 s.
    let span = seen[2].at.duration_since(seen[0].at);
    assert!(span < ms(3500), "{span:?}");
    verified(proxy, 3).await;
}

// Ours: a flooder delays another crawler by one turn at most.
#[tokio::test]
async fn a_flood_delays_another_crawler_by_one_turn() {
    let origin = delaying("0.3").start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    // Caches the robots.txt of both crawlers.
    assert_eq!(get_as(&proxy, "QuietBot/1.0", FIRST).await.status(), 200);
    assert_eq!(get_as(&proxy, "FloodBot/1.0", FIRST).await.status(), 200);
    let paths: Vec<_> = (1..=20).map(|number| format!("/flood/{number}")).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let flood = asking(&proxy, "FloodBot", &paths);
    until("a flood", async || {
        (15.0 <= metric(&proxy, "politesse_pace_queued").await).then_some(())
    })
    .await;
    let before = origin.targets().len();
    let quiet = asking(&proxy, "QuietBot", &["/quiet"]);
    assert_eq!(statuses(&quiet.await.unwrap()), [200]);
    let targets = origin.targets();
    let place = targets
        .iter()
        .position(|target| target == "/quiet")
        .unwrap();
    // One turn is granted while the request arrives, and one is ahead of it in the round.
    assert!(place <= before + 2, "{before}: {targets:?}");
    assert_eq!(statuses(&flood.await.unwrap()), [200; 20]);
    assert_apart(&pages(&[&origin]), 23, ms(300));
    verified(proxy, 23).await;
}

// Ours: first in, first out for one crawler.
#[tokio::test]
async fn requests_of_one_crawler_keep_their_order() {
    let gate = Gate::shut();
    let script = delaying("0.2").page("/first", Page::text("x").after(&gate));
    let origin = script.start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    let mut waiting = vec![asking(&proxy, "ExampleBot", &["/first"])];
    origin.arrival("/first").await;
    let paths = ["/1", "/2", "/3", "/4", "/5"];
    for (length, path) in (1..).zip(paths) {
        waiting.push(asking(&proxy, "ExampleBot", &[path]));
        queue(&proxy, length).await;
    }
    gate.open(1);
    for reply in waiting {
        assert_eq!(statuses(&reply.await.unwrap()), [200]);
    }
    assert_eq!(origin.targets()[1..], paths);
    verified(proxy, 6).await;
}
