//! Limits on connections, handshakes and requests: no client can keep another out,
//! and a refused client learns which limit it met.

use std::time::Duration;

use crate::kit::client::{Crawler, Reply, get, metrics};
use crate::kit::origin::{Script, site};
use crate::kit::paced::{delaying, metric_is, queue, standard};
use crate::kit::page::{Gate, Length, Page};
use crate::kit::{assert_contains, until};

/// Returns a script whose `/slow` waits for `gate`.
fn gated(gate: &Gate) -> Script {
    let slow = Page::text("slow").after(gate);
    Script::robots("").page("/slow", slow)
}

/// Asserts that `reply` reports an overload and names the limit `key`.
fn assert_overload(reply: &Reply, key: &str) {
    reply.assert_error(503, "http_request_denied");
    assert_eq!(reply.head.value("retry-after"), "5");
    assert_contains(reply.head.value("proxy-status"), key);
    let problem = reply.json();
    assert_eq!(problem["type"], "urn:politesse:overload");
    assert_contains(problem["detail"].as_str().unwrap(), key);
}

/// Requests a page over `crawler`, and returns the response.
async fn ask(crawler: &mut Crawler) -> Reply {
    crawler.get("http://o.test/", "o.test").await
}

// Ours: a client that holds every connection loses its oldest idle one.
#[tokio::test]
async fn a_new_client_displaces_an_idle_connection_but_no_request() {
    let gate = Gate::shut();
    let (origin, proxy) = site(gated(&gate), &["proxy.max_connections = 4"]).await;
    let mut busy = Crawler::from(&proxy, 2).await;
    busy.start_get("http://o.test/slow", "o.test").await;
    origin.arrival("/slow").await;
    let mut oldest = Crawler::from(&proxy, 2).await;
    assert_eq!(ask(&mut oldest).await.status(), 200);
    let mut second = Crawler::from(&proxy, 2).await;
    let mut third = Crawler::from(&proxy, 2).await;
    metric_is(&proxy, "politesse_connections", 4.0).await;
    assert_eq!(get(&proxy, "http://o.test/").await.status(), 200);
    assert!(oldest.closes().await);
    assert_eq!(ask(&mut second).await.status(), 200);
    gate.open(1);
    assert_eq!(busy.reply_to("GET").await.status(), 200);
    assert_eq!(ask(&mut third).await.status(), 200);
    let displaced = "client_shares_total{resource=\"connections\",result=\"displaced\"} 1";
    assert_contains(&metrics(&proxy).await, displaced);
}

// Ours: the record does not confuse a displaced client with one that hung up.
#[tokio::test]
async fn a_displaced_response_is_recorded_as_displaced() {
    let long = Page::stream(1 << 40, Length::Announced);
    let script = Script::robots("").page("/1", long.clone()).page("/2", long);
    let (origin, proxy) = site(script, &["proxy.max_connections = 2"]).await;
    let mut crawlers = Vec::new();
    for path in ["/1", "/2"] {
        let mut crawler = Crawler::from(&proxy, 2).await;
        let url = format!("http://o.test{path}");
        crawler.start_get(&url, "o.test").await;
        origin.arrival(path).await;
        crawlers.push(crawler);
    }
    // Time under test: a share in use can be displaced after two seconds.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    assert_eq!(get(&proxy, "http://o.test/").await.status(), 200);
    let row = until("the end of a response", async || {
        let rows = proxy.place().rows().await;
        rows.into_iter().find(|row| row["error"].is_string())
    })
    .await;
    assert_eq!(row["error"], "client_displaced", "{row}");
}

// Ours: a connection whose request is only queued can be displaced; the request is
// then answered with 503.
#[tokio::test]
async fn a_client_with_only_queued_requests_is_displaced_by_another() {
    let origin = delaying("20").start().await;
    let config = standard(&origin).set("proxy.max_connections = 3");
    let proxy = config.start().await;
    let mut connections = Vec::new();
    for _ in 0..3 {
        connections.push(Crawler::from(&proxy, 2).await);
    }
    metric_is(&proxy, "politesse_connections", 3.0).await;
    assert_eq!(ask(&mut connections[0]).await.status(), 200);
    for (number, connection) in (1..).zip(&mut connections) {
        let head = format!("GET http://o.test/{number} HTTP/1.1\r\nHost: o.test\r\n\r\n");
        connection.send(head.as_bytes()).await;
        queue(&proxy, number).await;
    }
    assert_eq!(get(&proxy, "http://o.test/robots.txt").await.status(), 200);
    let displaced = connections[0].reply_to("GET").await;
    displaced.assert_error(503, "http_request_denied");
    assert_eq!(displaced.json()["reason"], "overload");
    assert!(connections[0].closes().await);
}

// RFC 9110, section 15.6.4.
#[tokio::test]
async fn a_connection_beyond_the_limit_gets_503() {
    let (_origin, proxy) = site(Script::robots(""), &["proxy.max_connections = 2"]).await;
    let mut first = Crawler::plain(&proxy).await;
    let mut second = Crawler::plain(&proxy).await;
    assert_eq!(ask(&mut first).await.status(), 200);
    assert_eq!(ask(&mut second).await.status(), 200);
    let mut third = Crawler::plain(&proxy).await;
    let reply = ask(&mut third).await;
    assert_overload(&reply, "proxy.max_connections");
    assert!(third.closes().await);
    // The 503 arrives even if the client sends more than the proxy reads.
    let mut upload = Crawler::plain(&proxy).await;
    let head = "PUT http://o.test/3 HTTP/1.1\r\nHost: o.test\r\nContent-Length: 60000\r\n\r\n";
    upload.send(head.as_bytes()).await;
    let _ = upload.try_send(&[b'x'; 60_000]).await;
    assert_overload(&upload.reply_to("PUT").await, "proxy.max_connections");
    // A client that does not speak HTTP/1 gets no answer, because it could not read
    // one.
    let mut foreign = Crawler::plain(&proxy).await;
    foreign.send(b"\x16\x03\x01\x02\x00\x01").await;
    assert!(foreign.closes().await);
    assert_eq!(ask(&mut first).await.status(), 200);
}

// Ours: a request beyond `proxy.max_requests` waits for at most `proxy.place_wait`. With a
// limit per client, other clients are served.
#[tokio::test]
async fn a_request_beyond_the_limit_gets_503_after_place_wait() {
    for (limit, wait, others) in [
        ("proxy.max_requests = 1", "100ms", 503),
        ("proxy.per_client = { requests = 1 }", "0s", 200),
    ] {
        let gate = Gate::shut();
        let wait = format!("proxy.place_wait = \"{wait}\"");
        let (origin, proxy) = site(gated(&gate), &[limit, &*wait]).await;
        let mut busy = Crawler::from(&proxy, 2).await;
        busy.start_get("http://o.test/slow", "o.test").await;
        origin.arrival("/slow").await;
        let mut more = Crawler::from(&proxy, 2).await;
        assert_overload(&ask(&mut more).await, "proxy.max_requests");
        let other = get(&proxy, "http://o.test/").await;
        assert_eq!(other.status(), others, "{limit}");
        gate.open(1);
        assert_eq!(busy.reply_to("GET").await.status(), 200, "{limit}");
        assert_eq!(ask(&mut more).await.status(), 200, "{limit}");
    }
}

// Ours; RFC 6585, section 4.
#[tokio::test]
async fn a_client_beyond_its_quota_gets_429() {
    let script = Script::robots("User-agent: *\nDisallow: /no\n");
    let (origin, proxy) = site(script, &["proxy.per_client = { rate = \"3/h\" }"]).await;
    for (path, status) in [("", 200), ("no", 403), ("a", 200), ("no", 403)] {
        let reply = get(&proxy, &format!("http://o.test/{path}")).await;
        assert_eq!(reply.status(), status, "{path}");
    }
    let later = get(&proxy, "http://o.test/b").await;
    later.assert_error(429, "http_request_denied");
    let seconds: u32 = later.head.value("retry-after").parse().unwrap();
    assert!((1100..=1200).contains(&seconds), "{seconds}");
    let problem = later.json();
    assert_eq!(problem["reason"], "quota");
    assert_contains(problem["detail"].as_str().unwrap(), "proxy.per_client.rate");
    // A client is an address: another one has its own quota.
    let mut other = Crawler::from(&proxy, 3).await;
    assert_eq!(ask(&mut other).await.status(), 200);
    assert_eq!(origin.log().len(), 4, "robots.txt and three pages");
    let counted = "politesse_decisions_total{verdict=\"later\",reason=\"quota\"} 1";
    assert!(metrics(&proxy).await.contains(counted));
    let place = proxy.stop().await;
    let list = ["audit", "list", "--reason", "quota", "--json"];
    let listed = place.run(&list).await.json_lines();
    assert_eq!(listed[0]["url"], "http://o.test/b");
    place.assert_verified().await;
}

// Ours: unfinished handshakes of one client do not delay those of others.
#[tokio::test]
async fn a_new_handshake_displaces_one_of_the_client_with_the_most() {
    let lines = [
        "https.handshake_timeout = \"1h\"",
        "proxy.max_handshakes = 3",
    ];
    let (_origin, proxy) = site(Script::robots(""), &lines).await;
    let mut held = Vec::new();
    for begun in [&b""[..], b"\x16\x03\x01", b""] {
        let source = [127, 0, 0, 2].into();
        let crawler = Crawler::connect_at(source, &proxy, "o.test:443").await;
        let mut crawler = crawler.unwrap();
        crawler.send(begun).await;
        held.push(crawler);
    }
    Crawler::inside(&proxy, "o.test:443").await;
    assert!(held[0].closes().await);
    let displaced = "client_shares_total{resource=\"handshakes\",result=\"displaced\"} 1";
    assert!(metrics(&proxy).await.contains(displaced));
}
