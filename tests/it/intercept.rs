//! CONNECT: the proxy terminates TLS on both sides, inspects each request, and uses the
//! HTTP version of each side.

use std::os::unix::fs::PermissionsExt;

use http::Version;
use rustls::CipherSuite;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::kit::client::{Crawler, Duplex, assert_metric, curl, get};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::{assert_contains, certificates, sha256, soon, stream_part};
use crate::unreachable::assert_recorded_as_unreachable;

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

// Ours: any combination of HTTP/1.1 and HTTP/2 works.
#[tokio::test]
async fn crawlers_and_origins_may_use_different_http_versions() {
    for (alpn, version) in [
        (&["http/1.1"][..], Version::HTTP_11),
        (&["h2"], Version::HTTP_2),
        (&["h2", "http/1.1"], Version::HTTP_2),
    ] {
        let script = Script::robots(ROBOTS)
            .alpn(alpn)
            .page("/a", Page::text("the page"));
        let (origin, proxy) = site(script.tls(), &[]).await;
        let old = get(&proxy, "https://o.test/a").await;
        assert_eq!((old.status(), &*old.text()), (200, "the page"), "{alpn:?}");
        let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
        let new = crawler.get("https://o.test/a").await;
        assert_eq!(new.body(), "the page", "{alpn:?}");
        assert_eq!(crawler.get("https://o.test/private").await.status(), 403);
        assert_eq!(origin.targets(), ["/a", "/a"]);
        for seen in origin.log() {
            assert_eq!(seen.version, version, "{alpn:?}");
        }
    }
}

// RFC 9110, section 8.6. Some origins answer 411 without the field.
#[tokio::test]
async fn an_empty_upload_is_sent_with_content_length_0() {
    let (origin, proxy) = site(Script::robots("").alpn(&["http/1.1"]).tls(), &[]).await;
    let mut old = Crawler::inside(&proxy, "o.test:443").await;
    let mut new = H2Crawler::inside(&proxy, "o.test:443").await;
    for (method, length) in [
        ("POST", &["0"][..]),
        ("PUT", &["0"]),
        ("PATCH", &["0"]),
        ("GET", &[]),
        ("DELETE", &[]),
    ] {
        for fields in ["", "Content-Length: 0\r\n"] {
            let head = format!("{method} /a HTTP/1.1\r\nHost: o.test\r\n{fields}\r\n");
            old.send(head.as_bytes()).await;
            assert_eq!(old.reply_to(method).await.status(), 200);
        }
        let request = http::Request::get("https://o.test/a").method(method);
        assert_eq!(new.ask(request).await.unwrap().status(), 200);
        for seen in origin.log().iter().rev().take(3) {
            assert_eq!(seen.values("content-length"), length, "{seen:?}");
        }
    }
    assert_eq!(origin.targets(), ["/a"; 15]);
}

// Ours: length and digest of an upload over HTTP/2 are unchanged.
#[tokio::test]
async fn an_upload_over_http_2_arrives_whole() {
    let (origin, proxy) = site(Script::robots("").tls(), &[]).await;
    let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    let body = stream_part(0, 300_000);
    let request = http::Request::post("https://o.test/up");
    let reply = crawler.send(request, body.clone().into()).await.unwrap();
    assert_eq!(reply.status(), 200);
    let seen = origin.whole("/up").await;
    assert_eq!(seen.body, Some((300_000, sha256(&body))));
}

/// Opens TLS with this protocol inside a CONNECT tunnel to `authority`.
async fn secured(proxy: &Proxy, authority: &str, alpn: &str) -> TlsStream<impl Duplex> {
    let raw = Crawler::connect(proxy, authority).await.into_stream();
    let connector = TlsConnector::from(certificates::client(&proxy.ca(), &[alpn]));
    let (host, _) = authority.rsplit_once(':').unwrap();
    let name = ServerName::try_from(host.to_ascii_lowercase()).unwrap();
    connector.connect(name, raw).await.unwrap()
}

/// Returns the certificates that the proxy presents for `authority`, leaf first.
async fn chain(proxy: &Proxy, authority: &str) -> Vec<CertificateDer<'static>> {
    let stream = secured(proxy, authority, "http/1.1").await;
    stream.get_ref().1.peer_certificates().unwrap().to_vec()
}

// Ours: the leaf is cached, and the CA certificate is sent after it.
#[tokio::test]
async fn a_leaf_certificate_is_made_per_name_and_reused() {
    let proxy = Config::default().start().await;
    let first = chain(&proxy, "a.example.invalid:443").await;
    assert_eq!(first.len(), 2, "the leaf and the CA");
    assert_eq!(first, chain(&proxy, "A.example.invalid:443").await);
    for other in ["b.example.invalid:443", "127.0.0.1:443"] {
        assert_ne!(first[0], chain(&proxy, other).await[0], "{other}");
    }
}

// Ours for the handshake (alert `unrecognized_name`); RFC 9110, section 15.5.20: 421.
#[tokio::test]
async fn a_handshake_or_request_for_another_authority_inside_connect_is_refused() {
    let origin = Script::robots("").tls().start().await;
    let other = Script::robots("").name("p.test").tls().start().await;
    let config = resolve("o.test", origin.address()).resolve("p.test", other.address());
    let proxy = config.start().await;
    let refused = Crawler::tls(&proxy, "o.test:443", "p.test").await;
    assert!(refused.is_err());
    for lines in [
        ["GET /a HTTP/1.1", "Host: p.test"],
        ["GET https://p.test/a HTTP/1.1", "Host: o.test"],
        ["GET /a HTTP/1.1", "Host: o.test:8443"],
        ["GET http://o.test/a HTTP/1.1", "Host: o.test"],
    ] {
        let mut crawler = Crawler::inside(&proxy, "o.test:443").await;
        let reply = crawler.ask(&lines).await;
        reply.assert_error(421, "http_request_error");
    }
    assert_eq!(origin.connections() + other.connections(), 0);
}

/// First bytes of clients that speak neither TLS nor HTTP/1.
const OTHER_PROTOCOLS: [(&str, &[u8]); 12] = [
    ("SSH", b"SSH-2.0-OpenSSH_9.2\r\n"),
    ("SMTP", b"EHLO a.test\r\n"),
    ("IMAP", b"a1 LOGIN a b\r\n"),
    ("Redis", b"*1\r\n$4\r\nPING\r\n"),
    ("SOCKS", b"\x05\x01\x00"),
    ("RTSP", b"OPTIONS rtsp://o.test RTSP/1.0\r\n"),
    ("HTTP/2 in the clear", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ("no blank", &[b'A'; 100]),
    ("empty lines", b"\r\n\r\n"),
    ("no TLS version", b"\x16\x03\x09"),
    ("an empty record", b"\x16\x03\x01\x00\x00\x16"),
    ("a ServerHello", b"\x16\x03\x01\x02\x00\x02"),
];

// Ours; ARCHITECTURE.md, invariant 6. No timeout closes these connections.
#[tokio::test]
async fn other_protocols_inside_connect_are_closed_at_once() {
    let timeouts = [
        "proxy.header_timeout = \"1h\"",
        "https.handshake_timeout = \"1h\"",
    ];
    let (origin, proxy) = site(Script::robots(""), &timeouts).await;
    for (name, bytes) in OTHER_PROTOCOLS {
        let mut crawler = Crawler::connect(&proxy, "o.test:22").await;
        crawler.send(bytes).await;
        assert!(crawler.closes().await, "{name}");
        let mut inside = Crawler::inside(&proxy, "o.test:443").await;
        inside.send(bytes).await;
        assert!(inside.closes().await, "{name} inside TLS");
        let mut http2 = secured(&proxy, "o.test:443", "h2").await;
        let is_preface = bytes.starts_with(b"PRI");
        let bytes: &[u8] = if is_preface { b"PRI * HTTP/1.1" } else { bytes };
        http2.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        // The proxy may still send SETTINGS; only the end of the connection matters.
        let _ = soon("end", http2.read_to_end(&mut rest)).await;
    }
    // One empty line before a request is ignored (RFC 9112, section 2.2).
    let mut crawler = Crawler::connect(&proxy, "o.test:80").await;
    crawler.send(b"\r\n").await;
    assert_eq!(crawler.get("/a", "o.test").await.status(), 200);
    assert_eq!(origin.targets(), ["/a"]);
    let counted = "politesse_connections_refused_total{result=\"protocol\"} 24";
    assert_metric(&proxy, counted).await;
}

// Ours: CONNECT itself succeeds; the requests inside get 502. RFC 6761, section 6.4.
#[tokio::test]
async fn an_unresolvable_name_is_reported_inside_connect() {
    let proxy = Config::default().start().await;
    for url in ["https://nowhere.invalid/", "http://nowhere.invalid/"] {
        get(&proxy, url).await.assert_error(502, "dns_error");
    }
    assert_recorded_as_unreachable(&proxy, 2).await;
}

// Ours: expired certificates and certificates for other names.
#[tokio::test]
async fn a_bad_upstream_certificate_is_refused_with_its_reason() {
    let expired = Script::robots("").expired().tls().start().await;
    let wrong = Script::robots("").name("elsewhere.test").tls();
    let wrong = wrong.start().await;
    let config = resolve("o.test", expired.address()).resolve("p.test", wrong.address());
    let proxy = config.start().await;
    for (url, reason) in [
        ("https://o.test/a", "its certificate has expired"),
        ("https://p.test/a", "its certificate is for another name"),
    ] {
        let reply = get(&proxy, url).await;
        reply.assert_error(502, "tls_certificate_error");
        assert_contains(&reply.text(), reason);
    }
    proxy.place().completed(2).await;
    let causes = "SELECT group_concat(cause ORDER BY cause) FROM snapshot";
    let record = proxy.place().database();
    let causes: String = record.query_row(causes, [], |row| row.get(0)).unwrap();
    assert_eq!(causes, "certificate_expired,certificate_name");
    // No request is sent.
    assert_eq!(expired.log().len() + wrong.log().len(), 0);
}

// Ours: a company can add its own root to the public ones.
#[tokio::test]
async fn an_origin_certificate_needs_a_root_from_any_configured_entry() {
    let script = Script::robots("").tls();
    let (origin, proxy) = site(script.clone(), &["https.upstream_roots = \"webpki\""]).await;
    let reply = get(&proxy, "https://o.test/a").await;
    reply.assert_error(502, "tls_certificate_error");
    assert_contains(&reply.text(), "https.upstream_roots");
    assert_eq!(origin.log().len(), 0);
    let roots = "https.upstream_roots = [\"webpki\", \"roots.pem\"]";
    let (_origin, proxy) = site(script, &[roots]).await;
    assert_eq!(get(&proxy, "https://o.test/a").await.status(), 200);
}

// Ours: without interception the proxy could not see the requests in a tunnel.
#[tokio::test]
async fn connect_is_refused_if_interception_is_off() {
    let (origin, proxy) = site(Script::robots("").tls(), &["https.mode = \"refuse\""]).await;
    let lines = ["CONNECT o.test:443 HTTP/1.1", "Host: o.test:443"];
    let reply = Crawler::plain(&proxy).await.ask(&lines).await;
    reply.assert_error(403, "http_request_denied");
    assert_eq!(origin.connections(), 0);
}

// Ours: a real client, which checks names and dates of certificates strictly.
#[tokio::test]
async fn curl_gets_pages_and_refusals_over_both_versions() {
    let script = Script::robots(ROBOTS).page("/a", Page::text("the page"));
    let (origin, proxy) = site(script.tls(), &[]).await;
    for version in ["--http1.1", "--http2"] {
        let page = curl(&proxy, &[version, "https://o.test/a"]).await;
        page.assert_output(0, "the page");
        let private = "https://o.test/private";
        let refused = curl(&proxy, &[version, "-w", "%{http_code}", private]).await;
        assert!(refused.stdout.ends_with("403"), "{refused:?}");
        assert_contains(&refused.stdout, "Disallow: /private");
        // RFC 9110, section 9.3.2: content in this answer would be a stream error.
        let head = curl(&proxy, &[version, "-I", private]).await.assert_code(0);
        assert_contains(&head.stdout, "http_request_denied");
    }
    assert_eq!(origin.targets(), ["/a", "/a"]);
}

// Ours: rustls and OpenSSL clients prefer AES-256, whose handshake costs a third more.
#[tokio::test]
async fn aes_128_is_chosen_even_if_the_client_prefers_aes_256() {
    let proxy = Config::default().start().await;
    let stream = secured(&proxy, "o.test:443", "http/1.1").await;
    let taken = stream.get_ref().1.negotiated_cipher_suite().unwrap();
    assert_eq!(taken.suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
}

// RFC 9113, section 8.2.3: several cookie fields are joined into one for HTTP/1.1.
#[tokio::test]
async fn an_http_1_origin_gets_one_cookie_field_from_an_http_2_crawler() {
    let (origin, proxy) = site(Script::robots("").alpn(&["http/1.1"]).tls(), &[]).await;
    let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    let request = http::Request::get("https://o.test/a")
        .header("cookie", "a=1")
        .header("cookie", "b=2");
    assert_eq!(crawler.ask(request).await.unwrap().status(), 200);
    let seen = origin.arrival("/a").await;
    assert_eq!(seen.values("cookie"), ["a=1; b=2"]);
    assert_eq!(seen.values("host"), ["o.test"]);
}

// RFC 9110, section 9.3.6: authority-form with a port, no content.
#[tokio::test]
async fn a_malformed_connect_gets_400() {
    let proxy = Config::default().start().await;
    for (target, more) in [
        ("o.test", "X: y"),
        ("http://o.test/", "X: y"),
        ("o.test:0", "X: y"),
        ("o.test:443", "Content-Length: 4"),
    ] {
        let mut crawler = Crawler::plain(&proxy).await;
        let line = format!("CONNECT {target} HTTP/1.1");
        let reply = crawler.ask(&[&line, "Host: o.test", more]).await;
        assert_eq!(reply.status(), 400, "{target} {more}");
    }
}

// Ours: later starts keep the CA of the first one.
#[tokio::test]
async fn the_ca_is_created_once_with_a_private_key_file() {
    let proxy = Config::default().start().await;
    let (made, place) = (proxy.ca(), proxy.stop().await);
    let key = std::fs::metadata(place.path("certs/ca.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    let proxy = place.start().await;
    assert_eq!(made, proxy.ca());
}
