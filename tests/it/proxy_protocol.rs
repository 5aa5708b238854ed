//! PROXY protocol on the listener for crawlers: which senders may use it, what the header
//! decides, and how connections without one end. proxy-protocol.txt; limits are ours.

use std::net::IpAddr;

use crate::kit::certificates::TestCa;
use crate::kit::client::{Crawler, reload};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::{column, until_metric};
use crate::kit::proxy::{Config, Place, Proxy, address_in, resolve};

/// Last byte of the balancer's address, 127.0.0.5.
const BALANCER: u8 = 5;

fn config(origin: &Origin) -> Config {
    resolve("o.test", origin.address())
        .set("proxy.proxy_protocol_from = [\"127.0.0.5\"]")
        .set("proxy.clients = [\"loopback\", \"192.0.2.0/24\", \"2001:db8::/32\"]")
}

async fn origin() -> Origin {
    Script::robots("").start().await
}

/// Returns a version 2 header that names `client`.
fn v2(client: &str) -> Vec<u8> {
    // Port 0: the proxy ignores the client's port.
    let end = [0, 0, 0x0c, 0x38];
    match client.parse().unwrap() {
        IpAddr::V4(client) => raw_header(
            0x11,
            &[&client.octets()[..], &[127, 0, 0, 1], &end].concat(),
        ),
        IpAddr::V6(client) => raw_header(0x21, &[&client.octets()[..], &[0; 16], &end].concat()),
    }
}

/// Returns a version 2 header with this family and protocol, and these addresses.
fn raw_header(family: u8, addresses: &[u8]) -> Vec<u8> {
    let length = u16::try_from(addresses.len()).unwrap().to_be_bytes();
    [START, &[0x21, family], &length, addresses].concat()
}

const START: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const HEALTH_CHECK: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// Returns a connection from the balancer's address that has sent `header`.
async fn from_balancer(proxy: &Proxy, header: &[u8]) -> Crawler {
    let mut crawler = Crawler::from(proxy, BALANCER).await;
    crawler.send(header).await;
    crawler
}

async fn request_status(crawler: &mut Crawler, path: &str) -> u16 {
    let url = format!("http://o.test{path}");
    crawler.get(&url, "o.test").await.status()
}

const REQUEST: &[u8] = b"GET http://o.test/ HTTP/1.1\r\nHost: o.test\r\n\r\n";

/// Waits until `count` connections were refused for this reason.
async fn wait_for_refusals(proxy: &Proxy, result: &str, count: u16) {
    let counter = format!("politesse_connections_refused_total{{result=\"{result}\"}}");
    until_metric(proxy, &counter, |value| value == f64::from(count)).await;
}

// RFC 4291, section 2.5.5.2: a dual-stack listener sees the balancer's IPv4 address mapped
// to IPv6. A header without a client leaves the balancer itself as the client.
#[tokio::test]
async fn the_client_named_by_a_header_is_on_record() {
    let origin = origin().await;
    let config = config(&origin).set("proxy.listen = [\"[::]:0\"]");
    let proxy = config.start().await;
    for (number, (header, client)) in [
        (&v2("192.0.2.7")[..], "192.0.2.7"),
        (&v2("2001:db8::7"), "2001:db8::7"),
        (&v2("::ffff:192.0.2.8"), "192.0.2.8"),
        (b"PROXY TCP4 192.0.2.9 127.0.0.1 0 3128\r\n", "192.0.2.9"),
        (HEALTH_CHECK, "127.0.0.5"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut crawler = from_balancer(&proxy, header).await;
        // The header applies to every request of its connection.
        assert_eq!(request_status(&mut crawler, "/a").await, 200);
        assert_eq!(request_status(&mut crawler, "/b").await, 200);
        let rows = proxy.place().completed(2 * (number + 1)).await;
        assert_eq!(column(&rows[2 * number..], "client"), [client; 2]);
    }
}

#[tokio::test]
async fn limits_and_admission_apply_to_the_client_named_by_the_header() {
    let origin = origin().await;
    let config = config(&origin)
        .set("proxy.clients = [\"192.0.2.0/24\"]")
        .set("proxy.per_client = { connections = 1 }");
    let proxy = config.start().await;
    let first = v2("192.0.2.7");
    let mut one = from_balancer(&proxy, &first).await;
    assert_eq!(request_status(&mut one, "/a").await, 200);
    let mut another = from_balancer(&proxy, &first).await;
    assert_eq!(request_status(&mut another, "/a").await, 503);
    let mut other = from_balancer(&proxy, &v2("192.0.2.8")).await;
    assert_eq!(request_status(&mut other, "/a").await, 200);
    // `proxy.clients` admits neither another client nor the balancer itself.
    for header in [v2("198.51.100.7"), HEALTH_CHECK.to_vec()] {
        assert!(from_balancer(&proxy, &header).await.closes().await);
    }
    wait_for_refusals(&proxy, "client", 2).await;
}

// proxy-protocol.txt, sections 2.1, 2.2; the limits are ours. The request that follows a
// malformed header must not be read.
#[tokio::test]
async fn each_malformed_header_is_refused_counted_and_logged() {
    let origin = origin().await;
    let proxy = config(&origin).start().await;
    let ended = "the connection ended before its PROXY header";
    for (header, line) in [
        (&b"PROXY TCP4 192.0.2.7"[..], ended),
        (b"", "does not begin with a PROXY header, closed"),
        // Too short for the addresses.
        (
            &raw_header(0x11, &[0; 11]),
            "the PROXY header is malformed, closed",
        ),
        (
            &[&b"PROXY UNKNOWN "[..], &[b'a'; 200], b"\r\n"].concat(),
            "the PROXY header is longer than",
        ),
        // A datagram.
        (
            &raw_header(0x12, &[0; 12]),
            "the PROXY header is not about a TCP connection",
        ),
    ] {
        let mut crawler = from_balancer(&proxy, header).await;
        if line != ended {
            // The proxy may already have closed the connection.
            let _ = crawler.try_send(REQUEST).await;
        }
        let _ = crawler.try_finish_sending().await;
        assert!(crawler.closes().await, "{}", header.escape_ascii());
        let log = proxy.logged(line).await;
        let mut logged = log.lines().filter(|logged| logged.contains(line));
        assert!(logged.next().unwrap().contains("127.0.0.5"), "{log}");
        assert_eq!(logged.next(), None);
    }
    wait_for_refusals(&proxy, "proxy_header", 5).await;
    assert!(proxy.place().rows().await.is_empty());
    assert!(origin.targets().is_empty());
}

// Ours: only the balancer's first header counts. The claims of a client itself are not
// trusted.
#[tokio::test]
async fn a_second_header_or_one_from_another_address_is_a_malformed_request() {
    let origin = origin().await;
    let proxy = config(&origin).start().await;
    let [first, second] = ["192.0.2.7", "192.0.2.8"].map(v2);
    let line = b"PROXY TCP4 192.0.2.8 127.0.0.1 1 3128\r\n";
    for (last, header) in [
        (BALANCER, [&first[..], &second].concat()),
        (BALANCER, [&first[..], line].concat()),
        (BALANCER, [&line[..], &first].concat()),
        (BALANCER, [HEALTH_CHECK, &second].concat()),
        (1, first),
        (1, line.to_vec()),
        (1, HEALTH_CHECK.to_vec()),
    ] {
        let mut crawler = Crawler::from(&proxy, last).await;
        crawler.send(&[&header[..], REQUEST].concat()).await;
        let head = crawler.head().await.expect("an answer");
        assert_eq!(head.status, 400, "{last} {}", header.escape_ascii());
        assert!(crawler.closes().await);
    }
    assert!(proxy.place().rows().await.is_empty());
    assert!(origin.targets().is_empty());
}

#[tokio::test]
async fn a_header_comes_before_tls() {
    let origin = Script::robots("").tls().start().await;
    let config = config(&origin)
        .set("proxy.listen = [\"https://127.0.0.1:0\"]")
        .set("proxy.tls_cert = \"proxy.pem\"")
        .set("proxy.tls_key = \"proxy.key\"")
        .set("proxy.proxy_protocol_from = [\"127.0.0.0/8\"]");
    let place = Place::with(&config);
    let [cert, key] = TestCa::get().pair(&["127.0.0.1"]);
    place.write("proxy.pem", &cert, 0o644);
    place.write("proxy.key", &key, 0o600);
    let proxy = place.start().await;
    let address = address_in(&proxy.banner()[0]);
    let mut raw = Crawler::to(address).await;
    raw.send(&v2("192.0.2.7")).await;
    let mut crawler = raw.tls_to(address).await.unwrap();
    let opened = crawler.ask_to_connect("o.test:443", &[]).await;
    assert_eq!(opened.status, 200);
    let inside = crawler.secured(&proxy, "o.test:443", Some("o.test")).await;
    assert_eq!(inside.unwrap().get("/a", "o.test").await.status(), 200);
    let rows = proxy.place().completed(1).await;
    assert_eq!(rows[0]["client"], "192.0.2.7");
    assert!(Crawler::over_tls(address).await.is_err());
}

// Ours: silent and slow connections are closed after `proxy.header_timeout`.
#[tokio::test]
async fn a_late_header_closes_the_connection() {
    let origin = origin().await;
    let config = config(&origin).set("proxy.header_timeout = \"1s\"");
    let proxy = config.start().await;
    let mut silent = Crawler::from(&proxy, BALANCER).await;
    let mut slow = from_balancer(&proxy, b"PROXY TCP4 192.0.2.7 127").await;
    assert!(silent.closes().await);
    assert!(slow.closes().await);
    wait_for_refusals(&proxy, "proxy_header", 2).await;
    let line = "no PROXY header within proxy.header_timeout";
    proxy.logged(line).await;
    // After the header the timeout starts again for the first request.
    let mut only_header = from_balancer(&proxy, &v2("192.0.2.7")).await;
    assert!(only_header.closes().await);
}

#[tokio::test]
async fn silent_connections_do_not_shut_out_those_with_a_header() {
    let origin = origin().await;
    let config = config(&origin)
        .set("proxy.max_handshakes = 20")
        .set("proxy.max_connections = 20");
    let proxy = config.start().await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(Crawler::from(&proxy, BALANCER).await);
    }
    wait_for_refusals(&proxy, "max_handshakes", 180).await;
    until_metric(&proxy, "politesse_connections", |open| open == 0.0).await;
    let header = v2("192.0.2.7");
    let mut crawler = from_balancer(&proxy, &header).await;
    assert_eq!(request_status(&mut crawler, "/a").await, 200);
    assert!(silent[0].closes().await);
    // The newest silent connection is still open.
    let mut last = silent.pop().unwrap();
    last.send(&header).await;
    assert_eq!(request_status(&mut last, "/a").await, 200);
}

#[tokio::test]
async fn a_reload_replaces_the_balancers_and_keeps_open_connections() {
    let origin = origin().await;
    let proxy = config(&origin).start().await;
    let header = v2("192.0.2.7");
    let mut before = from_balancer(&proxy, &header).await;
    assert_eq!(request_status(&mut before, "/a").await, 200);
    let other = config(&origin).set("proxy.proxy_protocol_from = [\"127.0.0.6\"]");
    proxy.place().configure(&other);
    reload(&proxy).await;
    assert_eq!(request_status(&mut before, "/b").await, 200);
    let mut removed = from_balancer(&proxy, &header).await;
    assert_eq!(request_status(&mut removed, "/c").await, 400);
    let mut added = Crawler::from(&proxy, 6).await;
    added.send(&header).await;
    assert_eq!(request_status(&mut added, "/d").await, 200);
    let rows = proxy.place().completed(3).await;
    assert!(rows.iter().all(|row| row["client"] == "192.0.2.7"));
}
