//! Egress: the proxy never dials its own listeners or a denied port, under any name.
//! `egress_namespace` tests denied addresses.

use std::net::SocketAddr;

use serde_json::json;

use crate::kit::assert_members;
use crate::kit::client::{Crawler, Reply, get, get_admin};
use crate::kit::origin::{Origin, Script};
use crate::kit::proxy::{Config, Proxy};

pub(crate) fn assert_prohibited(reply: &Reply) {
    reply.assert_error(502, "destination_ip_prohibited");
    let text = reply.text();
    let keys = [
        "egress.allow does not have it",
        "is not in egress.ports",
        "this proxy",
    ];
    assert!(keys.iter().any(|key| text.contains(key)), "{text}");
}

/// Asserts that the record has `count` rows, all refused by egress before any fetch of
/// robots.txt.
pub(crate) async fn assert_recorded(proxy: &Proxy, count: usize) {
    let expected =
        json!({"verdict": "disallow", "reason": "egress", "status": 502, "robots": null});
    for row in proxy.place().completed(count).await {
        assert_members(&row, &expected);
    }
}

// Ours: neither spellings of local addresses (some of which only a resolver reads as
// addresses) nor names that resolve to them reach the proxy or admin listener, even if
// egress allows everything and the listeners are bound to all addresses.
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
        let proxy = config.start().await;
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
        // The control: the admin listener does answer a direct request.
        let admin = SocketAddr::from(([127, 0, 0, 1], admin));
        assert_eq!(get_admin(admin, "/metrics", &[]).await.status(), 200);
    }
}

// Ours: only ports in `egress.ports` are dialled. CONNECT with a well-formed authority
// always gets 200; a denied target is reported inside the tunnel, where the client can
// read the response.
#[tokio::test]
async fn a_port_outside_egress_ports_is_not_dialled_even_inside_connect() {
    let open = Script::robots("").start().await;
    let other = Script::robots("").start().await;
    let proxy = Config::default()
        .set("egress.allow = [\"127.0.0.0/8\"]")
        .set(&format!("egress.ports = [\"{}\"]", open.address().port()))
        .start()
        .await;
    let url = |origin: &Origin| format!("http://{}/a", origin.address());
    assert_prohibited(&get(&proxy, &url(&other)).await);
    for port in [22, 80, 6379, other.address().port()] {
        let authority = format!("127.0.0.1:{port}");
        let mut inside = Crawler::inside(&proxy, &authority).await;
        assert_prohibited(&inside.get("/a", &authority).await);
        let mut plain = Crawler::connect(&proxy, &authority).await;
        assert_prohibited(&plain.get("/a", &authority).await);
    }
    assert_recorded(&proxy, 9).await;
    assert_eq!(get(&proxy, &url(&open)).await.status(), 200);
    assert_eq!((open.targets().len(), other.connections()), (1, 0));
}
