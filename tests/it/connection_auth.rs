//! Connections that an origin authenticates (NTLM; Negotiate, RFC 4559, section 6): each
//! is used for one client connection only.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::kit::client::{Crawler, Reply, curl};
use crate::kit::ntlm_origin::{NtlmOrigin, first_message, last_message};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::sha256;

/// A URL scheme: the authority for CONNECT, empty if there is none, and the start of each
/// request target.
#[derive(Clone, Copy)]
struct Leg {
    authority: &'static str,
    prefix: &'static str,
}

const HTTP: Leg = Leg {
    authority: "",
    prefix: "http://o.test",
};
const HTTPS: Leg = Leg {
    authority: "s.test:443",
    prefix: "",
};

impl Leg {
    async fn crawler(self, proxy: &Proxy, source: u8) -> Crawler {
        let source = [127, 0, 0, source].into();
        if self.authority.is_empty() {
            return Crawler::at(source, proxy).await.unwrap();
        }
        let connected = Crawler::connect_at(source, proxy, self.authority).await;
        let secured = connected.unwrap().secured(proxy, self.authority, None);
        secured.await.unwrap()
    }

    async fn get(self, crawler: &mut Crawler, path: &str, fields: &[&str]) -> Reply {
        let line = format!("GET {}{path} HTTP/1.1", self.prefix);
        let host = self.authority.strip_suffix(":443").unwrap_or("o.test");
        let host = format!("Host: {host}");
        crawler
            .ask(&[&[line.as_str(), &host], fields].concat())
            .await
    }

    /// Proves `user` on the connection of `crawler`, and returns the text of the last
    /// response.
    async fn prove(self, crawler: &mut Crawler, scheme: &str, user: &str) -> String {
        let agent = format!("User-Agent: {user}/1.0");
        let asked = self.get(crawler, "/page", &[&agent]).await;
        assert_eq!(asked.status(), 401, "{user}: {}", asked.text());
        let first = first_message(scheme);
        let challenged = self.get(crawler, "/page", &[&agent, &first]).await;
        assert_eq!(challenged.status(), 401);
        let last = last_message(scheme, user);
        self.get(crawler, "/page", &[&agent, &last]).await.text()
    }
}

/// Starts origins for both schemes, and a proxy that all loopback addresses may use.
async fn start(lines: &[&str]) -> ([NtlmOrigin; 2], Proxy) {
    let origins = [NtlmOrigin::start().await, NtlmOrigin::start_tls().await];
    let named = resolve("o.test", origins[0].address()).resolve("s.test", origins[1].address());
    let config = lines.iter().fold(named, |config, line| config.set(line));
    (origins, config.start().await)
}

#[tokio::test]
async fn concurrent_clients_each_get_their_own_authenticated_page() {
    let (origins, proxy) = start(&[]).await;
    let proxy = Arc::new(proxy);
    let mut clients = JoinSet::new();
    for (source, leg) in (2..8).flat_map(|source| [(source, HTTP), (source, HTTPS)]) {
        let proxy = Arc::clone(&proxy);
        clients.spawn(async move {
            let scheme = ["NTLM", "Negotiate"][usize::from(source % 2)];
            let user = format!("user{source}{}", leg.authority.len());
            let mut crawler = leg.crawler(&proxy, source).await;
            let proved = leg.prove(&mut crawler, scheme, &user).await;
            assert_eq!(proved, format!("the page of {user}"));
            // The connection is authenticated now, so no more credentials are needed.
            for _ in 0..3 {
                let again = leg.get(&mut crawler, "/page", &[]).await;
                assert_eq!(again.text(), proved);
            }
            // While it is open, no other connection can use it.
            for other in [source, 9] {
                let mut stranger = leg.crawler(&proxy, other).await;
                let agent = format!("User-Agent: stranger{user}/1.0");
                let asked = leg.get(&mut stranger, "/page", &[&agent]).await;
                assert_eq!(asked.status(), 401, "{}", asked.text());
                let open = leg.get(&mut stranger, "/open", &[&agent]).await;
                assert_eq!(open.text(), "open to ");
            }
        });
    }
    clients.join_all().await;
    for origin in &origins {
        let asked_as = origin.robots_as();
        assert!(12 <= asked_as.len(), "{asked_as:?}");
        assert!(asked_as.iter().all(String::is_empty), "{asked_as:?}");
    }
}

#[tokio::test]
async fn an_authenticated_connection_closes_with_its_client_connection() {
    let (origins, proxy) = start(&["upstream.pool_idle_timeout = \"5m\""]).await;
    let mut crawler = HTTP.crawler(&proxy, 2).await;
    HTTP.prove(&mut crawler, "NTLM", "alice").await;
    origins[0].has_open(1).await;
    drop(crawler);
    origins[0].has_open(0).await;
}

// Ours: idle connections are closed, as in the pool.
#[tokio::test]
async fn an_idle_authenticated_connection_is_closed() {
    let (origins, proxy) = start(&["upstream.pool_idle_timeout = \"500ms\""]).await;
    let mut crawler = HTTP.crawler(&proxy, 2).await;
    HTTP.prove(&mut crawler, "NTLM", "alice").await;
    origins[0].has_open(0).await;
    let again = HTTP.get(&mut crawler, "/page", &[]).await;
    assert_eq!(again.status(), 401, "{}", again.text());
}

// Ours: a balancer may send requests of several clients over one connection.
#[tokio::test]
async fn an_authenticated_connection_is_not_used_for_another_credential() {
    let entry = |name: &str| {
        let digest = sha256(name.as_bytes());
        format!("{{ token = \"{name}\", credential = \"sha256:{digest}\" }}")
    };
    let table = format!("crawler = [{}, {}]", entry("FooBot"), entry("BarBot"));
    let (_origins, proxy) = start(&[&table, "proxy.auth = \"required\""]).await;
    let mut crawler = HTTP.crawler(&proxy, 2).await;
    let [foo, bar] = ["FooBot", "BarBot"].map(|name| format!("Proxy-Authorization: Bearer {name}"));
    let messages = [first_message("NTLM"), last_message("NTLM", "foo")];
    for message in &messages {
        HTTP.get(&mut crawler, "/page", &[&foo, message]).await;
    }
    let proved = HTTP.get(&mut crawler, "/page", &[&foo]).await;
    assert_eq!(proved.text(), "the page of foo");
    let other = HTTP.get(&mut crawler, "/page", &[&bar]).await;
    assert_eq!(other.status(), 401, "{}", other.text());
    let proved = HTTP.get(&mut crawler, "/page", &[&foo]).await;
    assert_eq!(proved.text(), "the page of foo");
}

#[tokio::test]
async fn curl_authenticates_with_ntlm_and_the_next_curl_starts_unauthenticated() {
    let (_origins, proxy) = start(&[]).await;
    for url in ["http://o.test/page", "https://s.test/page"] {
        let outcome = curl(&proxy, &["--ntlm", "-u", "alice:secret", url, url]).await;
        let twice = "the page of alicethe page of alice";
        assert_eq!(outcome.stdout, twice, "{outcome:?}");
        let outcome = curl(&proxy, &["-w", "%{http_code}", url]).await;
        assert!(outcome.stdout.ends_with("401"), "{outcome:?}");
    }
}
