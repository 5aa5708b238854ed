//! Egress: the proxy never dials a denied address or port, under any name.

use std::net::SocketAddr;

use serde_json::json;

use crate::kit::addresses::free_address;
use crate::kit::assert_members;
use crate::kit::client::{Crawler, Reply, get};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::proxy::{Config, Place, Proxy, resolve};

fn assert_prohibited(reply: &Reply) {
    reply.assert_error(502, "destination_ip_prohibited");
    let text = reply.text();
    let keys = [
        "egress.allow does not have it",
        "is not in egress.ports",
        "this proxy",
    ];
    assert!(keys.iter().any(|key| text.contains(key)), "{text}");
}

/// Starts an origin whose robots.txt allows everything.
async fn open_origin() -> Origin {
    Script::robots("").start().await
}

/// Asserts that the record has `count` rows, all refused by egress before any fetch of
/// robots.txt.
async fn assert_recorded(proxy: &Proxy, count: usize) {
    for row in proxy.place().completed(count).await {
        assert_members(
            &row,
            &json!({"verdict": "disallow", "reason": "egress", "status": 502, "robots": null}),
        );
    }
}

// Ours: refused before anything is dialled, in every valid spelling. The rest of the
// table needs a network namespace and is tested in `egress_namespace`.
#[tokio::test]
async fn addresses_of_this_machine_are_not_dialled() {
    let origin = open_origin().await;
    let proxy = Config::default().start().await;
    let port = origin.address().port();
    let urls = [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://sub.localhost:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        format!("https://127.0.0.1:{port}/"),
        format!("http://127.0.0.2:{port}/"),
    ];
    for url in &urls {
        assert_prohibited(&get(&proxy, url).await);
    }
    assert_recorded(&proxy, urls.len()).await;
    assert_eq!(origin.connections(), 0);
}

// Ours: spellings that only a resolver reads as addresses.
#[tokio::test]
async fn odd_spellings_of_addresses_are_not_dialled() {
    let proxy = Config::default().start().await;
    for host in ["0177.1", "2130706433", "0x7f.1", "127.1"] {
        let reply = get(&proxy, &format!("http://{host}/")).await;
        assert!(
            [400, 502].contains(&reply.status()),
            "{host}: {}",
            reply.status()
        );
        assert!(reply.head.value("proxy-status").starts_with("politesse;"));
    }
}

/// Starts a proxy on a port chosen beforehand, so that its configuration can
/// contain its own address.
async fn start_on_known_port(lines: impl Fn(SocketAddr) -> Config) -> (SocketAddr, Proxy) {
    let address = free_address();
    let config = lines(address).set(&format!("proxy.listen = [\"{address}\"]"));
    (address, config.start().await)
}

// Ours: `egress.allow` never opens the proxy's own listeners.
#[tokio::test]
async fn the_proxys_own_listeners_are_denied_even_in_an_allowed_network() {
    let (address, proxy) = start_on_known_port(|address| {
        resolve("me.test", address).set("egress.allow = [\"127.0.0.0/8\"]")
    })
    .await;
    assert_prohibited(&get(&proxy, "http://me.test/").await);
    assert_prohibited(&get(&proxy, &format!("http://{address}/")).await);
    assert_prohibited(&get(&proxy, &format!("http://{}/metrics", proxy.admin())).await);
    assert_recorded(&proxy, 3).await;
}

// Ours: neither spellings of local addresses nor names that resolve to them reach the
// proxy or admin listener, even if egress allows everything and the listeners are
// bound to all addresses.
#[tokio::test]
async fn no_spelling_of_a_local_address_reaches_the_proxys_own_listeners() {
    let allow = "egress.allow = [\"127.0.0.0/8\", \"0.0.0.0/8\", \"::/0\", \"localhost\"]";
    for listen in ["127.0.0.1", "0.0.0.0", "[::]"] {
        let config = Config::default()
            .set(allow)
            .set("egress.deny = []")
            .set(&format!("proxy.listen = [\"{listen}:0\"]"))
            .set(&format!("admin.listen = \"{listen}:0\""))
            .set("upstream.resolve.\"named.test\" = \"127.0.0.1\"");
        let place = Place::with(&config);
        let proxy = place.start().await;
        let admin = proxy.admin().port();
        for port in [admin, proxy.address().port()] {
            for host in [
                "localhost",
                "LOCALHOST.",
                "127.0.0.1",
                "127.1",
                "127.0.1",
                "0x7f000001",
                "0x7f.1",
                "2130706433",
                "0177.0.0.1",
                "0.0.0.0",
                "0",
                "[::]",
                "[::1]",
                "[::ffff:127.0.0.1]",
                "[::ffff:7f00:1]",
                "[::127.0.0.1]",
                "[64:ff9b::127.0.0.1]",
                "named.test",
                "politesse.internal",
            ] {
                // Plain first, then inside CONNECT, which may itself be refused.
                let reply = get(&proxy, &format!("http://{host}:{port}/healthz")).await;
                let is_refused = (400..=599).contains(&reply.status());
                assert!(is_refused, "{listen}: {host}:{port}: {}", reply.text());
                assert_ne!(reply.text(), "ok\n", "{host}:{port}");
                let mut crawler = Crawler::plain(&proxy).await;
                let authority = format!("{host}:{port}");
                if crawler.ask_to_connect(&authority, &[]).await.status == 200 {
                    let host = format!("Host: {authority}");
                    let inside = crawler.ask(&["GET /healthz HTTP/1.1", &host]).await;
                    assert!(400 <= inside.status(), "{listen}: CONNECT {authority}");
                    assert_ne!(inside.text(), "ok\n", "CONNECT {authority}");
                }
            }
        }
        let line = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut direct = Crawler::to(SocketAddr::from(([127, 0, 0, 1], admin))).await;
        direct.send(line.as_bytes()).await;
        // The control: the admin listener does answer a direct request.
        assert_eq!(direct.reply_to("GET").await.status(), 200);
    }
}

/// Returns a configuration that allows loopback, so that only the port can deny.
fn loopback() -> Config {
    Config::default().set("egress.allow = [\"127.0.0.0/8\"]")
}

// Ours: only ports in `egress.ports` are dialled.
#[tokio::test]
async fn a_port_outside_egress_ports_is_not_dialled() {
    let (first, second) = (open_origin().await, open_origin().await);
    let port = first.address().port();
    let proxy = loopback()
        .set(&format!("egress.ports = [\"{port}\"]"))
        .start()
        .await;
    let url = |origin: &Origin| format!("http://{}/a", origin.address());
    assert_eq!(get(&proxy, &url(&first)).await.status(), 200);
    assert_prohibited(&get(&proxy, &url(&second)).await);
    assert_eq!((first.targets().len(), second.connections()), (1, 0));
}

// Ours: well-known ports of databases and other services are denied by default.
#[tokio::test]
async fn database_ports_are_denied_by_default() {
    let proxy = loopback().start().await;
    for port in [22, 25, 2375, 3306, 5432, 6379, 9200, 11_211, 27_017] {
        assert_prohibited(&get(&proxy, &format!("http://127.0.0.1:{port}/")).await);
    }
}

// Ours: CONNECT with a well-formed authority always gets 200; a denied target is
// reported inside the tunnel, where the client can read the response.
#[tokio::test]
async fn a_denied_port_is_reported_inside_connect() {
    let origin = open_origin().await;
    let port = origin.address().port();
    let proxy = loopback().set("egress.ports = [\"443\"]").start().await;
    for port in [22, 80, 6379, port] {
        let authority = format!("127.0.0.1:{port}");
        let mut inside = Crawler::inside(&proxy, &authority).await;
        assert_prohibited(&inside.get("/a", &authority).await);
        let mut plain = Crawler::connect(&proxy, &authority).await;
        assert_prohibited(&plain.get("/a", &authority).await);
    }
    assert_recorded(&proxy, 8).await;
    assert_eq!(origin.connections(), 0);
}

// Ours: `egress.allow` makes exceptions from the denied networks.
#[tokio::test]
async fn an_allowed_network_is_dialled() {
    let origin = open_origin().await;
    let config = Config::default().set("egress.allow = [\"127.0.0.1/32\"]");
    let proxy = config.start().await;
    let reply = get(&proxy, &format!("http://{}/a", origin.address())).await;
    assert_eq!(reply.status(), 200);
    assert_prohibited(&get(&proxy, "http://127.0.0.2:8080/a").await);
    assert_eq!(origin.targets(), ["/a"]);
}

// Ours: egress also applies to redirects of robots.txt.
#[tokio::test]
async fn a_robots_txt_redirect_to_a_denied_address_is_not_followed() {
    let hidden = open_origin().await;
    let location = format!("http://{}/robots.txt", hidden.address());
    let script = Script::robots_page(crate::kit::page::Page::redirect(&location));
    let (origin, proxy) = site(script, &[]).await;
    let reply = get(&proxy, "http://o.test/a").await;
    reply.assert_error(403, "http_request_denied");
    assert_eq!(hidden.connections(), 0);
    origin.assert_only_robots_fetched();
}

// Ours: egress also applies to the robots.txt fetches of `check`.
#[tokio::test]
async fn check_does_not_dial_denied_addresses() {
    let origin = open_origin().await;
    let place = Place::with(&Config::default());
    let url = format!("http://{}/a", origin.address());
    place
        .run_code(3, &["check", "--agent", "FooBot", &url])
        .await;
    assert_eq!(origin.connections(), 0);
}
