//! The setup pages for clients, served at the admin listener and by the proxy itself under
//! `proxy.internal_name`. Other requests for that name are refused and never forwarded.
//! Every test here is ours; docs/clients.md.

use std::net::SocketAddr;

use crate::kit::assert_contains;
use crate::kit::client::{Crawler, Reply, ask, curl, get, get_admin, metrics, reload};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::page::Page;
use crate::kit::program::finish;
use crate::kit::proxy::{Config, Proxy, address_in, resolve};
use crate::kit::raw_origin::{Bytes, RawOrigin};

const NAME: &str = "politesse.internal";
const ROOT: &str = "http://politesse.internal";
const OWN_HOST: &str = "Host: politesse.internal";

/// Asserts the properties common to all setup pages.
fn assert_page(reply: &Reply, media_type: &str) {
    assert_eq!(reply.status(), 200, "{}", reply.text());
    assert!(reply.head.value("content-type").starts_with(media_type));
    assert_eq!(reply.head.value("x-content-type-options"), "nosniff");
    assert_eq!(reply.head.value("cache-control"), "no-store");
    let policy = reply.head.value("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'self'"));
    assert!(!policy.contains("unsafe"));
    assert!(reply.head.values("set-cookie").is_empty());
}

#[tokio::test]
async fn setup_pages_are_served_under_the_name_and_at_the_admin_listener() {
    let proxy = Config::default().start().await;
    let shown = proxy.place().run(&["ca", "show"]).await.stdout;
    let fingerprint = shown.lines().find_map(|line| line.strip_prefix("sha256 "));
    let pac = format!("\"PROXY {}\"", proxy.address());
    let curl_line = format!("curl --proxy http://{} --cacert", proxy.address());
    let guide = [fingerprint.unwrap(), &*curl_line];
    let pac_type = "application/x-ns-proxy-autoconfig";
    for (path, at, media_type, parts) in [
        ("/", "/client", "text/html", &guide[..]),
        ("/ca.pem", "/ca.pem", "application/x-pem-file", &[]),
        ("/proxy.pac", "/proxy.pac", pac_type, &[&*pac]),
        ("/client.css", "/client.css", "text/css", &[]),
    ] {
        let here = get(&proxy, &format!("{ROOT}{path}")).await;
        let there = get_admin(proxy.admin(), at, &[]).await;
        for reply in [&here, &there] {
            assert_page(reply, media_type);
            for part in parts {
                assert_contains(&reply.text(), part);
            }
        }
        assert_eq!(here.text(), there.text(), "{path}");
        assert_contains(here.head.value("proxy-status"), "answered here");
    }
    let pem = get(&proxy, &format!("{ROOT}/ca.pem")).await.text();
    assert_eq!(pem, proxy.ca());
    // Requests for these pages are not decisions, so they are not recorded.
    assert_eq!(proxy.place().rows().await, Vec::<serde_json::Value>::new());
    let text = metrics(&proxy).await;
    for line in [
        "{result=\"guide\"} 1",
        "{result=\"ca\"} 2",
        "{result=\"pac\"} 1",
    ] {
        assert_contains(&text, &format!("politesse_own_pages_total{line}\n"));
    }
}

// RFC 9110, section 9.3.2; RFC 9112, section 3.2.
#[tokio::test]
async fn the_name_matches_in_any_case_with_port_80_or_none() {
    let proxy = Config::default().start().await;
    let length = proxy.ca().len();
    let head = "HEAD http://politesse.internal/ca.pem HTTP/1.1";
    let other_case = "GET http://POLITESSE.INTERNAL:80/ca.pem HTTP/1.1";
    for (lines, sent) in [
        (&[head, OWN_HOST][..], 0),
        (&[other_case, "Host: Politesse.Internal"], length),
        (&["GET http://politesse.internal/ca.pem HTTP/1.0"], length),
    ] {
        let reply = Crawler::plain(&proxy).await.ask(lines).await;
        assert_page(&reply, "application/x-pem-file");
        assert_eq!(reply.head.value("content-length"), length.to_string());
        assert_eq!(reply.body.len(), sent, "{lines:?}");
    }
    for path in ["/metrics", "/ca.pem?x", "/%63a.pem", "/robots.txt"] {
        let reply = get(&proxy, &format!("{ROOT}{path}")).await;
        assert_eq!(reply.status(), 404, "{path}");
    }
}

#[tokio::test]
async fn curl_works_when_set_up_as_the_page_says() {
    let script = Script::robots("").page("/a", Page::text("over https"));
    let (_origin, proxy) = site(script.tls(), &[]).await;
    let file = proxy.place().path("fetched.pem").display().to_string();
    let url = format!("{ROOT}/ca.pem");
    let fetched = curl(&proxy, &["-o", &file, "-w", "%{content_type}", &url]).await;
    assert_eq!(fetched.stdout, "application/x-pem-file", "{fetched:?}");
    // The command on the page, with the fetched file and a real URL.
    let guide = curl(&proxy, &[&format!("{ROOT}/")]).await.stdout;
    let start = guide.find("curl --proxy").unwrap();
    let line = guide[start..].split("</code>").next().unwrap();
    let line = line
        .replace("ca.pem", &file)
        .replace("https://…", "https://o.test/a");
    let mut words = line.split(' ');
    let mut command = tokio::process::Command::new(words.next().unwrap());
    command.arg("--silent").args(words);
    let page = finish(command, b"").await;
    assert_eq!(page.stdout, "over https", "{line}: {page:?}");
    // The page shows the fingerprint of the fetched file in the form of openssl, too.
    let mut openssl = tokio::process::Command::new("openssl");
    openssl.args(["x509", "-noout", "-fingerprint", "-sha256", "-in", &file]);
    let printed = finish(openssl, b"").await.stdout;
    let (_, with_colons) = printed.trim().split_once('=').unwrap();
    // `<wbr>` marks possible line breaks and is not part of the text.
    let text = guide.replace("<wbr>", "");
    assert!(text.contains(with_colons), "{with_colons}");
}

/// Sends a request with these lines to the proxy, and returns the status.
async fn status_of(proxy: &Proxy, lines: &[&str]) -> u16 {
    let mut crawler = Crawler::plain(proxy).await;
    crawler.ask(lines).await.status()
}

/// Asserts that every other kind of request for the name is refused.
async fn assert_refused(proxy: &Proxy) {
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"] {
        let line = format!("{method} {ROOT}/ HTTP/1.1");
        assert_eq!(status_of(proxy, &[&line, OWN_HOST]).await, 421, "{method}");
    }
    let trace = format!("TRACE {ROOT}/ HTTP/1.1");
    let trace = [&*trace, OWN_HOST, "Max-Forwards: 0"];
    assert_eq!(status_of(proxy, &trace).await, 421);
    for (status, target, host) in [
        (
            421,
            "http://politesse.internal:81/",
            "politesse.internal:81",
        ),
        (421, "https://politesse.internal/", NAME),
        (421, "http://politesse.internal./", "politesse.internal."),
        (421, "http://politesse.internal.:80/", NAME),
        (421, "http://politesse.internal:/", NAME),
        (421, "http://politesse.internal/", "o.test"),
        (421, "http://politesse.internal/", "politesse.internal:81"),
        (421, "http://o.test/", NAME),
        (421, "http://o.test/", "POLITESSE.internal.:8080"),
        (400, "http://user@politesse.internal/", NAME),
        (400, "http://politesse.internal@o.test/", NAME),
        (400, "http://politesse%2einternal/", NAME),
        (400, "http://politesse.internal../", NAME),
        (400, "/", NAME),
        (400, "/ca.pem", NAME),
    ] {
        let lines = [&*format!("GET {target} HTTP/1.1"), &format!("Host: {host}")];
        assert_eq!(status_of(proxy, &lines).await, status, "{target} {host}");
    }
    let line = format!("GET {ROOT}/ HTTP/1.1");
    assert_eq!(status_of(proxy, &[&line, OWN_HOST, OWN_HOST]).await, 400);
    assert_eq!(status_of(proxy, &[&line]).await, 400);
    for authority in [
        "politesse.internal:443",
        "politesse.internal:80",
        "POLITESSE.INTERNAL:3129",
        "politesse.internal.:443",
    ] {
        // Many clients do not read a refusal of CONNECT, so it is sent inside the tunnel.
        let mut crawler = Crawler::inside(proxy, authority).await;
        let host = format!("Host: {authority}");
        let reply = crawler.ask(&["GET / HTTP/1.1", &host]).await;
        assert_eq!(reply.status(), 421, "{authority}");
        let said = reply.head.value("proxy-status");
        assert!(said.starts_with("politesse;"), "{said}");
    }
}

// Neither an origin that `upstream.resolve` maps to the name nor a parent proxy gets a
// connection.
#[tokio::test]
async fn other_requests_for_the_name_are_refused_and_never_forwarded() {
    let origin = RawOrigin::start(|_| Bytes::text("from elsewhere")).await;
    let address = origin.address();
    let parent = format!("upstream.parent = \"http://{address}\"");
    for config in [
        resolve(NAME, address).resolve("o.test", address),
        Config::default().set(&parent),
    ] {
        let proxy = config.start().await;
        assert_refused(&proxy).await;
        let reply = ask(&proxy, "POST", &format!("{ROOT}/"), &[]).await;
        reply.assert_error(421, "http_request_error");
        assert!(reply.text().contains("GET and HEAD"), "{}", reply.text());
        let pem = get(&proxy, &format!("{ROOT}/ca.pem")).await.text();
        assert_eq!(pem, proxy.ca());
        assert_eq!(origin.connections(), 0);
        assert_eq!(proxy.place().rows().await, Vec::<serde_json::Value>::new());
        let text = metrics(&proxy).await;
        assert_contains(&text, "politesse_own_pages_total{result=\"refused\"}");
    }
}

// RFC 9110, section 7.4.
#[tokio::test]
async fn the_name_is_misdirected_inside_a_tunnel() {
    let (origin, proxy) = site(Script::robots("").tls(), &[]).await;
    for lines in [
        ["GET / HTTP/1.1", OWN_HOST],
        ["GET /ca.pem HTTP/1.1", "Host: politesse.internal:80"],
        ["GET http://politesse.internal/ HTTP/1.1", OWN_HOST],
        ["GET https://politesse.internal/ HTTP/1.1", "Host: o.test"],
    ] {
        let mut inside = Crawler::inside(&proxy, "o.test:443").await;
        assert_eq!(inside.ask(&lines).await.status(), 421, "{lines:?}");
    }
    let mut plain = Crawler::connect(&proxy, "o.test:443").await;
    let reply = plain.ask(&["GET / HTTP/1.1", OWN_HOST]).await;
    assert_eq!(reply.status(), 421);
    let mut inside = H2Crawler::inside(&proxy, "o.test:443").await;
    for url in [
        "https://politesse.internal/",
        "http://politesse.internal/ca.pem",
    ] {
        // A request with a scheme other than that of the connection may be reset.
        if let Ok(reply) = inside.ask(http::Request::get(url)).await {
            assert_eq!(reply.status().as_u16(), 421, "{url}");
        }
    }
    assert_eq!(origin.log().len(), 0);
}

// A redirect of robots.txt and `check` could lead to the name, too.
#[tokio::test]
async fn robots_redirects_and_check_never_connect_to_the_name() {
    let own = Script::robots("").start().await;
    let to_us = Page::redirect(&format!("{ROOT}/robots.txt"));
    let origin = Script::robots_page(to_us).start().await;
    let config = resolve("o.test", origin.address()).resolve(NAME, own.address());
    let proxy = config.start().await;
    let reply = get(&proxy, "http://o.test/").await;
    assert_eq!(reply.status(), 403, "{}", reply.text());
    let check = proxy.place().run(&["check", &format!("{ROOT}/")]).await;
    assert!(check.stdout.contains("is this proxy"), "{check:?}");
    assert_eq!((own.connections(), origin.targets().len()), (0, 0));
}

#[tokio::test]
async fn a_client_without_access_gets_no_setup_page() {
    let config = Config::default().set("proxy.clients = [\"10.0.0.0/8\"]");
    let proxy = config.start().await;
    let mut stranger = Crawler::plain(&proxy).await;
    let line = format!("GET {ROOT}/ca.pem HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    let _ = stranger.try_send(line.as_bytes()).await;
    assert!(stranger.try_reply_to("GET").await.is_none());
    let config = Config::default().set("proxy.auth = \"required\"");
    let proxy = config.start().await;
    assert_eq!(get(&proxy, &format!("{ROOT}/")).await.status(), 407);
    assert_eq!(get_admin(proxy.admin(), "/client", &[]).await.status(), 200);
}

#[tokio::test]
async fn the_name_can_be_changed_or_disabled_by_a_reload() {
    let script = Script::robots("").page("/", Page::text("a site"));
    let origin = script.start().await;
    let config = |name: &str| {
        resolve(NAME, origin.address()).set(&format!("proxy.internal_name = \"{name}\""))
    };
    let proxy = config("").start().await;
    assert_eq!(get(&proxy, &format!("{ROOT}/")).await.text(), "a site");
    proxy.place().configure(&config("Proxy.Example"));
    reload(&proxy).await;
    assert_eq!(get(&proxy, &format!("{ROOT}/")).await.text(), "a site");
    let guide = get(&proxy, "http://proxy.example/").await;
    assert_page(&guide, "text/html");
    proxy.place().configure(&config(NAME));
    reload(&proxy).await;
    assert_page(&get(&proxy, &format!("{ROOT}/")).await, "text/html");
}

#[tokio::test]
async fn without_interception_no_certificate_is_served() {
    let config = Config::default().set("https.mode = \"refuse\"");
    let proxy = config.start().await;
    assert_eq!(get(&proxy, &format!("{ROOT}/ca.pem")).await.status(), 404);
    assert_eq!(get_admin(proxy.admin(), "/ca.pem", &[]).await.status(), 404);
    let guide = get(&proxy, &format!("{ROOT}/")).await.text();
    assert_contains(&guide, "refuses HTTPS");
    // The metric shows only a CA that is in use.
    let unused = "politesse_ca_end_timestamp_seconds 0\n";
    assert_contains(&metrics(&proxy).await, unused);
}

// Even if the proxy listens on all addresses.
#[tokio::test]
async fn setup_pages_name_the_address_that_the_client_used() {
    let listen = "proxy.listen = [\"0.0.0.0:0\", \"http://[::1]:0\"]";
    let proxy = Config::default().set(listen).start().await;
    let port = proxy.address().port();
    let line = format!("GET {ROOT}/proxy.pac HTTP/1.1");
    let mut banner = proxy.banner().iter();
    let v6 = address_in(banner.find(|line| line.contains("[::1]")).unwrap());
    let v4 = |last| SocketAddr::from(([127, 0, 0, last], port));
    for address in [v4(1), v4(7), v6] {
        let pac = Crawler::to(address).await.ask(&[&line, OWN_HOST]).await;
        assert_contains(&pac.text(), &format!("\"PROXY {address}\""));
    }
    let guide = get_admin(proxy.admin(), "/client", &[]).await.text();
    assert_contains(&guide, &format!("http://127.0.0.1:{port}"));
    assert_contains(&guide, &format!("http://{v6}"));
}
