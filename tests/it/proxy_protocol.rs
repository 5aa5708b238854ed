//! PROXY protocol on the listener for crawlers: which senders may use it, what the header
//! decides, and how connections without one end. proxy-protocol.txt; limits are ours.

use std::net::{IpAddr, Ipv4Addr};

use crate::kit::certificates::TestCa;
use crate::kit::client::{Crawler, metrics, reload};
use crate::kit::origin::{Origin, Script};
use crate::kit::proxy::{Config, Place, Proxy, address_in, resolve};
use crate::kit::until;

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
pub(crate) fn v2(client: IpAddr) -> Vec<u8> {
    let (family, addresses) = match client {
        IpAddr::V4(client) => (0x11, [&client.octets()[..], &[127, 0, 0, 1]].concat()),
        IpAddr::V6(client) => (0x21, [&client.octets()[..], &[0; 16]].concat()),
    };
    // Port 0: the proxy ignores the client's port.
    let rest = [&addresses[..], &[0, 0, 0x0c, 0x38]].concat();
    let length = u8::try_from(rest.len()).unwrap();
    [START, &[0x21, family, 0, length], &rest].concat()
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

/// Asserts that the connection gets 400 and is closed.
async fn assert_malformed(mut crawler: Crawler) {
    let head = crawler.head().await.expect("an answer");
    assert_eq!(head.status, 400);
    assert!(crawler.closes().await);
}

/// Waits until a counter is `value`.
async fn wait_for_counter(proxy: &Proxy, counter: &str, value: usize) {
    let line = format!("{counter} {value}\n");
    until(&line, async || {
        metrics(proxy).await.contains(&line).then_some(())
    })
    .await;
}

async fn wait_for_refusals(proxy: &Proxy, result: &str, value: usize) {
    let counter = format!("politesse_connections_refused_total{{result=\"{result}\"}}");
    wait_for_counter(proxy, &counter, value).await;
}

#[tokio::test]
async fn the_client_named_by_a_header_is_on_record() {
    let origin = origin().await;
    let proxy = config(&origin).start().await;
    let v4: IpAddr = "192.0.2.7".parse().unwrap();
    let v6: IpAddr = "2001:db8::7".parse().unwrap();
    let mapped: IpAddr = "::ffff:192.0.2.8".parse().unwrap();
    let line = b"PROXY TCP4 192.0.2.9 127.0.0.1 0 3128\r\n".to_vec();
    for header in [v2(v4), v2(v6), v2(mapped), line, HEALTH_CHECK.to_vec()] {
        let mut crawler = from_balancer(&proxy, &header).await;
        // The header applies to every request of its connection.
        assert_eq!(request_status(&mut crawler, "/a").await, 200);
        assert_eq!(request_status(&mut crawler, "/b").await, 200);
    }
    let rows = proxy.place().completed(10).await;
    let clients: Vec<_> = rows
        .iter()
        .map(|row| row["client"].as_str().unwrap())
        .collect();
    let wanted = [
        "192.0.2.7",
        "2001:db8::7",
        "192.0.2.8",
        "192.0.2.9",
        "127.0.0.5",
    ];
    assert_eq!(clients, wanted.map(|client| [client; 2]).concat());
}

#[tokio::test]
async fn limits_and_admission_apply_to_the_client_named_by_the_header() {
    let origin = origin().await;
    let config = config(&origin)
        .set("proxy.clients = [\"192.0.2.0/24\"]")
        .set("proxy.per_client = { connections = 1 }");
    let proxy = config.start().await;
    let first = v2("192.0.2.7".parse().unwrap());
    let mut one = from_balancer(&proxy, &first).await;
    assert_eq!(request_status(&mut one, "/a").await, 200);
    let mut another = from_balancer(&proxy, &first).await;
    assert_eq!(request_status(&mut another, "/a").await, 503);
    let mut other = from_balancer(&proxy, &v2("192.0.2.8".parse().unwrap())).await;
    assert_eq!(request_status(&mut other, "/a").await, 200);
    // `proxy.clients` admits neither another client nor the balancer itself.
    for header in [v2("198.51.100.7".parse().unwrap()), HEALTH_CHECK.to_vec()] {
        assert!(from_balancer(&proxy, &header).await.closes().await);
    }
    wait_for_refusals(&proxy, "client", 2).await;
}

#[tokio::test]
async fn a_balancers_connection_without_a_header_is_closed() {
    let origin = origin().await;
    let proxy = config(&origin).start().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let hello = b"\x16\x03\x01\x02\0\x01";
    let tls_first: [&[u8]; 3] = [preface, hello, REQUEST];
    for bytes in tls_first {
        let mut crawler = from_balancer(&proxy, bytes).await;
        assert!(crawler.closes().await);
    }
    wait_for_refusals(&proxy, "proxy_header", 3).await;
    let log = proxy
        .logged("does not begin with a PROXY header, closed")
        .await;
    assert!(log.contains("127.0.0.5"), "{log}");
    assert!(proxy.place().rows().await.is_empty());
}

/// Returns a version 2 header with these bytes for command and family, and this stated
/// length.
fn raw_header(command_and_family: [u8; 2], length: u16, rest: &[u8]) -> Vec<u8> {
    [START, &command_and_family, &length.to_be_bytes(), rest].concat()
}

// proxy-protocol.txt, sections 2.1, 2.2; the limits are ours. The request that follows a
// malformed header must not be read.
#[tokio::test]
async fn each_malformed_header_is_refused_counted_and_logged() {
    let origin = origin().await;
    // The limit on log lines must not hide any of them.
    let proxy = config(&origin).set("log.burst = 100").start().await;
    let (malformed, ended) = (
        "the PROXY header is malformed, closed",
        "the connection ended before its PROXY header",
    );
    let (long, other) = (
        "the PROXY header is longer than",
        "the PROXY header is not about a TCP connection",
    );
    let whole = v2("192.0.2.7".parse().unwrap());
    let line_end = [&b"PROXY UNKNOWN "[..], &[b'a'; 200], b"\r\n"].concat();
    let table: [(Vec<u8>, &str); 14] = [
        // Cut off in the signature, the length, the addresses, and a line of version 1.
        (START[..7].to_vec(), ended),
        (whole[..15].to_vec(), ended),
        (whole[..whole.len() - 1].to_vec(), ended),
        (b"PROXY TCP4 192.0.2.7".to_vec(), ended),
        // A length too short for the addresses, one that includes the request, and
        // extensions beyond the limit.
        (raw_header([0x21, 0x11], 11, &[0; 11]), malformed),
        (raw_header([0x21, 0x21], 12, &[0; 12]), malformed),
        (raw_header([0x21, 0x11], 500, &whole[16..]), ended),
        (raw_header([0x21, 0x11], u16::MAX, &whole[16..]), long),
        // Unknown version, command and family, and a datagram.
        (raw_header([0x11, 0x11], 12, &[0; 12]), malformed),
        (raw_header([0x22, 0x11], 12, &[0; 12]), malformed),
        (raw_header([0x21, 0x41], 12, &[0; 12]), malformed),
        (raw_header([0x21, 0x12], 12, &[0; 12]), other),
        // Malformed lines of version 1.
        (
            b"PROXY TCP4 192.0.2.256 127.0.0.1 1 2\r\n".to_vec(),
            malformed,
        ),
        (line_end, long),
    ];
    for (number, (header, line)) in table.into_iter().enumerate() {
        let before = proxy.log().matches(line).count();
        let mut crawler = from_balancer(&proxy, &header).await;
        if line != ended || header.len() == whole.len() {
            // The proxy may already have closed the connection.
            let _ = crawler.try_send(REQUEST).await;
        }
        let _ = crawler.try_finish_sending().await;
        assert!(crawler.closes().await, "{}", header.escape_ascii());
        wait_for_refusals(&proxy, "proxy_header", number + 1).await;
        until(line, async || {
            let told = proxy.log().matches(line).count();
            (told == before + 1).then_some(())
        })
        .await;
    }
    assert!(proxy.place().rows().await.is_empty());
    assert!(origin.targets().is_empty());
}

// Ours: only the first header counts. After it the client itself sends, and its claims
// are not trusted.
#[tokio::test]
async fn a_second_header_is_a_malformed_request() {
    let origin = origin().await;
    let proxy = config(&origin).start().await;
    let [first, second] = ["192.0.2.7", "192.0.2.8"].map(|client| v2(client.parse().unwrap()));
    let line = b"PROXY TCP4 192.0.2.8 127.0.0.1 1 3128\r\n";
    for (one, two) in [
        (&first[..], &second[..]),
        (&first, line),
        (line, &first),
        (HEALTH_CHECK, &second),
    ] {
        assert_malformed(from_balancer(&proxy, &[one, two, REQUEST].concat()).await).await;
    }
    assert!(proxy.place().rows().await.is_empty());
    assert!(origin.targets().is_empty());
}

// RFC 4291, section 2.5.5.2: a dual-stack listener sees the balancer's IPv4 address mapped
// to IPv6. LOCAL and Unix sockets name no client, so the balancer itself is the client.
#[tokio::test]
async fn a_balancer_is_recognized_by_its_mapped_address_and_may_name_no_client() {
    let origin = origin().await;
    let config = config(&origin).set("proxy.listen = [\"[::]:0\"]");
    let proxy = config.start().await;
    let local = raw_header([0x20, 0x11], 12, &v2("192.0.2.7".parse().unwrap())[16..]);
    let unix = raw_header([0x21, 0x31], 216, &[b'/'; 216]);
    let extended = [&header_announcing(500)[..], &[0; 500]].concat();
    for (number, (header, client)) in [
        (v2("192.0.2.7".parse().unwrap()), "192.0.2.7"),
        (extended, "192.0.2.9"),
        (local, "127.0.0.5"),
        (unix, "127.0.0.5"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut crawler = from_balancer(&proxy, &header).await;
        assert_eq!(
            request_status(&mut crawler, &format!("/{number}")).await,
            200
        );
        let rows = proxy.place().completed(number + 1).await;
        assert_eq!(rows[number]["client"], client);
    }
}

/// Returns a header for 192.0.2.9 that announces `extensions` more bytes.
fn header_announcing(extensions: u16) -> Vec<u8> {
    let addresses = &v2("192.0.2.9".parse().unwrap())[16..];
    raw_header([0x21, 0x11], 12 + extensions, addresses)
}

#[tokio::test]
async fn a_header_from_another_address_is_a_malformed_request() {
    let origin = origin().await;
    let proxy = config(&origin).start().await;
    let client: IpAddr = "192.0.2.7".parse().unwrap();
    let line = b"PROXY TCP4 192.0.2.7 127.0.0.1 1 3128\r\n".to_vec();
    for header in [v2(client), line, HEALTH_CHECK.to_vec()] {
        let mut crawler = Crawler::plain(&proxy).await;
        crawler.send(&[&header[..], REQUEST].concat()).await;
        assert_malformed(crawler).await;
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
    std::fs::write(place.path("proxy.pem"), cert).unwrap();
    std::fs::write(place.path("proxy.key"), key).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(place.path("proxy.key"), private).unwrap();
    let proxy = place.start().await;
    let address = address_in(&proxy.banner()[0]);
    let mut raw = Crawler::to(address).await;
    raw.send(&v2("192.0.2.7".parse().unwrap())).await;
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
    proxy
        .logged("no PROXY header within proxy.header_timeout")
        .await;
    // After the header the timeout starts again for the first request.
    let mut only_header = from_balancer(&proxy, &v2("192.0.2.7".parse().unwrap())).await;
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
    wait_for_counter(&proxy, "politesse_connections", 0).await;
    let header = v2("192.0.2.7".parse().unwrap());
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
    let header = v2("192.0.2.7".parse().unwrap());
    let mut before = from_balancer(&proxy, &header).await;
    assert_eq!(request_status(&mut before, "/a").await, 200);
    let other = config(&origin).set("proxy.proxy_protocol_from = [\"127.0.0.6\"]");
    proxy.place().configure(&other);
    reload(&proxy).await;
    assert_eq!(request_status(&mut before, "/b").await, 200);
    let mut removed = from_balancer(&proxy, &header).await;
    assert_eq!(request_status(&mut removed, "/c").await, 400);
    let source = Ipv4Addr::new(127, 0, 0, 6);
    let mut added = Crawler::at(source, &proxy).await.unwrap();
    added.send(&header).await;
    assert_eq!(request_status(&mut added, "/d").await, 200);
    let rows = proxy.place().completed(3).await;
    assert!(rows.iter().all(|row| row["client"] == "192.0.2.7"));
}
