//! Places of connections, handshakes and requests: no client keeps another out,
//! and who finds no place is told so.

use std::time::Duration;

use crate::kit::client::{Crawler, Reply, get, metrics};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::paced::{delaying, queue, standard};
use crate::kit::page::{Gate, Length, Page};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::until;

/// Returns an origin whose `/slow` waits for `gate`.
async fn origin(gate: &Gate) -> Origin {
    let slow = Page::text("slow").after(gate);
    Script::robots("").page("/slow", slow).start().await
}

const SLOW: &[u8] = b"GET http://o.test/slow HTTP/1.1\r\nHost: o.test\r\n\r\n";

/// Waits until the proxy has sent a request for `/slow` to `origin`.
async fn under_way(origin: &Origin, requests: usize) {
    until("requests under way", async || {
        let asked = origin.log();
        let slow = asked.iter().filter(|asked| asked.target == "/slow");
        (slow.count() == requests).then_some(())
    })
    .await;
}

/// Holds that this is an answer for want of a place, which names `key`.
fn assert_overload(reply: &Reply, key: &str) {
    reply.assert_error(503, "http_request_denied");
    assert_eq!(reply.head.value("retry-after"), "5");
    assert!(reply.head.value("proxy-status").contains(key));
    let problem = reply.json();
    assert_eq!(problem["type"], "urn:politesse:overload");
    assert!(problem["detail"].as_str().unwrap().contains(key));
}

async fn silent(proxy: &Proxy, last: u8) -> Crawler {
    Crawler::from(proxy, last).await
}

/// Waits until `count` connections are open.
async fn open(proxy: &Proxy, count: usize) {
    let line = format!("politesse_connections {count}\n");
    until("connections open", async || {
        metrics(proxy).await.contains(&line).then_some(())
    })
    .await;
}

// Ours: a client that holds every connection loses its oldest idle one.
#[tokio::test]
async fn a_newcomer_takes_the_place_of_an_idle_connection_and_of_no_request() {
    let gate = Gate::shut();
    let origin = origin(&gate).await;
    let proxy = resolve("o.test", origin.address())
        .set("proxy.max_connections = 4")
        .start()
        .await;
    let mut busy = silent(&proxy, 2).await;
    busy.send(SLOW).await;
    under_way(&origin, 1).await;
    let mut oldest = silent(&proxy, 2).await;
    assert_eq!(oldest.get("http://o.test/", "o.test").await.status(), 200);
    let mut others = [silent(&proxy, 2).await, silent(&proxy, 2).await];
    open(&proxy, 4).await;
    assert_eq!(get(&proxy, "http://o.test/").await.status(), 200);
    assert!(oldest.closes().await);
    assert_eq!(
        others[0].get("http://o.test/", "o.test").await.status(),
        200
    );
    gate.open(1);
    assert_eq!(busy.reply_to("GET").await.status(), 200);
    assert_eq!(
        others[1].get("http://o.test/", "o.test").await.status(),
        200
    );
    let displaced = "client_shares_total{resource=\"connections\",result=\"displaced\"} 1";
    assert!(metrics(&proxy).await.contains(displaced));
}

// Ours: who has lost its place has not gone.
#[tokio::test]
async fn a_response_that_lost_its_place_is_recorded_as_displaced() {
    let long = Page::stream(1 << 40, Length::Announced);
    let (origin, proxy) = site(
        Script::robots("").page("/slow", long),
        &["proxy.max_connections = 2"],
    )
    .await;
    let mut holding = [silent(&proxy, 2).await, silent(&proxy, 2).await];
    for crawler in &mut holding {
        crawler.send(SLOW).await;
    }
    under_way(&origin, 2).await;
    // A response may be displaced once it has lasted for so long.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(get(&proxy, "http://o.test/").await.status(), 200);
    let row = until("the end of a response", async || {
        let rows = proxy.place().rows().await;
        rows.into_iter().find(|row| row["error"].is_string())
    })
    .await;
    assert_eq!(row["error"], "client_displaced", "{row}");
}

// Ours: what waits for its turn is answered, and keeps nobody out.
#[tokio::test]
async fn a_client_whose_requests_all_wait_keeps_nobody_out() {
    let origin = delaying("20").start().await;
    let proxy = standard(&origin)
        .set("proxy.max_connections = 3")
        .start()
        .await;
    let mut connections = Vec::new();
    for _ in 0..3 {
        connections.push(silent(&proxy, 2).await);
    }
    open(&proxy, 3).await;
    assert_eq!(
        connections[0]
            .get("http://o.test/0", "o.test")
            .await
            .status(),
        200
    );
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
async fn a_connection_beyond_the_limit_is_answered_with_503() {
    let (_origin, proxy) = site(Script::robots(""), &["proxy.max_connections = 2"]).await;
    let mut first = Crawler::plain(&proxy).await;
    let mut second = Crawler::plain(&proxy).await;
    assert_eq!(first.get("http://o.test/1", "o.test").await.status(), 200);
    assert_eq!(second.get("http://o.test/2", "o.test").await.status(), 200);
    let mut third = Crawler::plain(&proxy).await;
    let reply = third.get("http://o.test/3", "o.test").await;
    assert_overload(&reply, "proxy.max_connections");
    assert!(third.closes().await);
    // Its client sends more than is read before the answer.
    let mut upload = Crawler::plain(&proxy).await;
    let head = "PUT http://o.test/3 HTTP/1.1\r\nHost: o.test\r\nContent-Length: 60000\r\n\r\n";
    upload.send(head.as_bytes()).await;
    let _ = upload.try_send(&[b'x'; 60_000]).await;
    assert_overload(&upload.reply_to("PUT").await, "proxy.max_connections");
    // What is no HTTP/1 gets no answer that it could not read.
    let mut foreign = Crawler::plain(&proxy).await;
    foreign.send(b"\x16\x03\x01\x02\x00\x01").await;
    assert!(foreign.closes().await);
    assert_eq!(first.get("http://o.test/4", "o.test").await.status(), 200);
}

// Ours: `proxy.max_requests`, `proxy.place_wait`.
#[tokio::test]
async fn a_request_beyond_the_limit_waits_and_is_answered_with_503() {
    let gate = Gate::shut();
    let origin = origin(&gate).await;
    let proxy = resolve("o.test", origin.address())
        .set("proxy.max_requests = 1")
        .set("proxy.place_wait = \"100ms\"")
        .start()
        .await;
    let mut busy = Crawler::plain(&proxy).await;
    busy.send(SLOW).await;
    under_way(&origin, 1).await;
    let mut other = silent(&proxy, 2).await;
    let reply = other.get("http://o.test/", "o.test").await;
    assert_overload(&reply, "proxy.max_requests");
    gate.open(1);
    assert_eq!(busy.reply_to("GET").await.status(), 200);
    assert_eq!(other.get("http://o.test/", "o.test").await.status(), 200);
}

#[tokio::test]
async fn a_limit_of_a_client_is_named() {
    let gate = Gate::shut();
    let origin = origin(&gate).await;
    let proxy = resolve("o.test", origin.address())
        .set("proxy.per_client = { requests = 1 }")
        .set("proxy.place_wait = \"0s\"")
        .start()
        .await;
    let mut busy = silent(&proxy, 2).await;
    busy.send(SLOW).await;
    under_way(&origin, 1).await;
    let mut more = silent(&proxy, 2).await;
    let reply = more.get("http://o.test/", "o.test").await;
    assert_overload(&reply, "proxy.max_requests");
    assert_eq!(get(&proxy, "http://o.test/").await.status(), 200);
}

// Ours; RFC 6585, section 4.
#[tokio::test]
async fn a_client_beyond_its_quota_is_answered_with_429() {
    let origin = Script::robots("User-agent: *\nDisallow: /no\n")
        .start()
        .await;
    let config = resolve("o.test", origin.address());
    let limits = "proxy.per_client = { rate = \"3/h\" }";
    let proxy = config.set(limits).start().await;
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
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("proxy.per_client.rate")
    );
    // Another address is another client.
    let mut other = silent(&proxy, 3).await;
    assert_eq!(other.get("http://o.test/c", "o.test").await.status(), 200);
    assert_eq!(origin.log().len(), 4, "robots.txt and three pages");
    let counted = "politesse_decisions_total{verdict=\"later\",reason=\"quota\"} 1";
    assert!(metrics(&proxy).await.contains(counted));
    let place = proxy.stop().await;
    let listed = place
        .run(&["audit", "list", "--reason", "quota", "--json"])
        .await;
    assert_eq!(
        listed.json_lines()[0]["url"],
        "http://o.test/b",
        "{listed:?}"
    );
    let verified = place.run(&["audit", "verify"]).await;
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

// Ours: handshakes that never end hold up no other client's.
#[tokio::test]
async fn a_handshake_takes_the_place_of_one_of_the_client_that_holds_most() {
    let (_origin, proxy) = site(
        Script::robots(""),
        &[
            "https.handshake_timeout = \"1h\"",
            "proxy.max_handshakes = 3",
        ],
    )
    .await;
    let mut held = Vec::new();
    for begun in [&b""[..], b"\x16\x03\x01", b""] {
        let mut crawler = silent(&proxy, 2).await;
        let head = b"CONNECT o.test:443 HTTP/1.1\r\nHost: o.test:443\r\n\r\n";
        crawler.send(head).await;
        assert_eq!(crawler.head().await.unwrap().status, 200);
        crawler.send(begun).await;
        held.push(crawler);
    }
    Crawler::inside(&proxy, "o.test:443").await;
    assert!(held[0].closes().await);
    let displaced = "client_shares_total{resource=\"handshakes\",result=\"displaced\"} 1";
    assert!(metrics(&proxy).await.contains(displaced));
}
