//! The order of turns, and the limits on requests that wait for one.

use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::kit::client::{Reply, get};
use crate::kit::origin::Origin;
use crate::kit::paced::{
    ONE_FILE, asking, assert_later, held, metric, queue, standard, statuses, until_metric, verified,
};
use crate::kit::page::Gate;
use crate::kit::proxy::Proxy;

const QUEUE_FULL: &str = "politesse_pace_later_total{reason=\"queue_full\"}";

/// Starts a proxy and an origin that serves one request at a time. A first request holds
/// that turn until the gate opens. `limits` are those of `pace.queue`.
async fn with_the_turn_taken(limits: &str) -> (Origin, Arc<Proxy>, Gate, JoinHandle<Vec<Reply>>) {
    let (gate, origin) = held("/first").await;
    let config = standard(&origin)
        .resolve("other.test", origin.address())
        .set("pace.profile = \"owned\"")
        .set("pace.origin = { in_flight = 1 }")
        .set(&format!("pace.queue = {{ {limits} }}"))
        .set(ONE_FILE);
    let proxy = Arc::new(config.start().await);
    let first = asking(&proxy, "FirstBot", &["/first"]);
    origin.arrival("/first").await;
    (origin, proxy, gate, first)
}

// Ours: a crawler that fills the queue gives a place up to another.
#[tokio::test]
async fn a_crawler_that_fills_the_queue_gives_way_to_another() {
    let limits = "origin = 3, crawler = 512, total = 10000";
    let (_origin, proxy, gate, first) = with_the_turn_taken(limits).await;
    let flood = asking(&proxy, "FloodBot", &["/1", "/2", "/3"]);
    queue(&proxy, 3).await;
    let other = asking(&proxy, "OtherBot", &["/4"]);
    // One of the flood has given way.
    until_metric(&proxy, QUEUE_FULL, |count| count == 1.0).await;
    gate.open(1);
    let mut flood = statuses(&flood.await.unwrap());
    flood.sort_unstable();
    assert_eq!(flood, [200, 200, 429]);
    assert_eq!(statuses(&other.await.unwrap()), [200]);
    first.await.unwrap();
    verified(proxy, 5).await;
}

// Ours: the keys of `pace.queue`; the next request gets 429.
#[tokio::test]
async fn queued_requests_are_limited_per_host_per_crawler_and_in_total() {
    for limits in [
        "origin = 3, crawler = 512, total = 10000",
        "origin = 256, crawler = 2, total = 10000",
        "origin = 256, crawler = 512, total = 3",
    ] {
        let (origin, proxy, gate, first) = with_the_turn_taken(limits).await;
        let waiting = asking(&proxy, "ExampleBot", &["/1", "/2"]);
        queue(&proxy, 2).await;
        let other = asking(&proxy, "OtherBot", &["/3"]);
        queue(&proxy, 3).await;
        assert_later(&get(&proxy, "http://o.test/4").await, "queue_full");
        assert_eq!(metric(&proxy, QUEUE_FULL).await, 1.0, "{limits}");
        let idle = get(&proxy, "http://other.test/1").await;
        assert_eq!(idle.status(), 200, "{limits}: {}", idle.text());
        gate.open(1);
        assert_eq!(statuses(&waiting.await.unwrap()), [200; 2], "{limits}");
        assert_eq!(statuses(&other.await.unwrap()), [200], "{limits}");
        first.await.unwrap();
        // The queue has room again.
        let next = get(&proxy, "http://o.test/5").await;
        assert_eq!(next.status(), 200, "{limits}");
        assert!(!origin.targets().contains(&"/4".to_owned()));
        verified(proxy, 7).await;
    }
}
