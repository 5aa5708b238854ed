//! CONNECT: the proxy terminates TLS on both sides, inspects each request, and uses the
//! HTTP version of each side.

use std::os::unix::fs::PermissionsExt;

use http::Version;
use rustls::CipherSuite;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use crate::kit::client::{Crawler, curl, get, metrics};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::{assert_contains, certificates, soon};
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
        assert_eq!(
            (old.status(), old.text().as_str()),
            (200, "the page"),
            "{alpn:?}"
        );
        let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
        let new = crawler.get("https://o.test/a").await;
        assert_eq!(
            (new.status().as_u16(), &new.body()[..]),
            (200, &b"the page"[..])
        );
        assert!(
            origin.log().iter().all(|seen| seen.version == version),
            "{alpn:?}"
        );
        assert_eq!(crawler.get("https://o.test/private").await.status(), 403);
        assert_eq!(origin.targets(), ["/a", "/a"]);
    }
}

// RFC 9110, section 8.6: `Content-Length: 0` is sent for methods that define a meaning
// for content. Some origins answer 411 without it.
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
        let request = http::Request::builder().method(method);
        let request = request.uri("https://o.test/a");
        assert_eq!(new.ask(request).await.unwrap().status(), 200);
        let seen = origin.log().split_off(origin.log().len() - 3);
        assert!(
            seen.iter()
                .all(|seen| seen.values("content-length") == length),
            "{seen:?}"
        );
    }
}

// RFC 9113, sections 8.2.2 and 8.3.1: connection-specific fields are not allowed in
// HTTP/2.
#[tokio::test]
async fn an_http_2_origin_gets_no_http_1_connection_fields() {
    let (origin, proxy) = site(Script::robots("").alpn(&["h2"]).tls(), &[]).await;
    let mut crawler = Crawler::inside(&proxy, "o.test:443").await;
    let reply = crawler
        .ask(&[
            "GET /a?b HTTP/1.1",
            "Host: o.test",
            "Connection: keep-alive, X-Hop",
            "X-Hop: 1",
            "Cookie: a=1",
            "X-Kept: 1",
        ])
        .await;
    assert_eq!(reply.status(), 200, "{}", reply.text());
    let seen = origin.arrival("/a?b").await;
    assert_eq!(seen.authority, "o.test");
    assert_eq!(
        (seen.values("x-kept"), seen.values("cookie")),
        (vec!["1"], vec!["a=1"])
    );
    for gone in ["connection", "x-hop", "host", "keep-alive"] {
        assert_eq!(seen.values(gone), [""; 0], "{gone}");
    }
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

// Ours: length and digest of an upload over HTTP/2 are unchanged.
#[tokio::test]
async fn an_upload_over_http_2_arrives_whole() {
    let (origin, proxy) = site(Script::robots("").tls(), &[]).await;
    let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    let body = crate::kit::stream_part(0, 300_000);
    let request = http::Request::post("https://o.test/up");
    assert_eq!(
        crawler
            .send(request, body.clone().into())
            .await
            .unwrap()
            .status(),
        200
    );
    let seen = origin.whole("/up").await;
    assert_eq!(seen.body, Some((300_000, crate::kit::sha256(&body))));
}

/// Returns the certificates that the proxy presents for `authority`, leaf first.
async fn chain(proxy: &Proxy, authority: &str, name: &str) -> Vec<Vec<u8>> {
    let raw = Crawler::connect(proxy, authority).await.into_stream();
    let connector = TlsConnector::from(certificates::client(&proxy.ca(), &["http/1.1"]));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = connector.connect(name, raw).await.unwrap();
    let shown = stream.get_ref().1.peer_certificates().unwrap();
    shown
        .iter()
        .map(|certificate| certificate.to_vec())
        .collect()
}

// Ours: the leaf is cached, and the CA certificate is sent after it.
#[tokio::test]
async fn a_leaf_certificate_is_made_per_name_and_reused() {
    let proxy = Config::default().start().await;
    let first = chain(&proxy, "a.example.invalid:443", "a.example.invalid").await;
    assert_eq!(first.len(), 2, "the leaf and the CA");
    assert_eq!(
        first,
        chain(&proxy, "A.example.invalid:443", "a.example.invalid").await
    );
    assert_ne!(
        first[0],
        chain(&proxy, "b.example.invalid:443", "b.example.invalid").await[0]
    );
    let address = chain(&proxy, "127.0.0.1:443", "127.0.0.1").await;
    assert_ne!(first[0], address[0], "an address has a leaf of its own");
}

// Ours: SNI must match the CONNECT authority (alert `unrecognized_name`).
#[tokio::test]
async fn a_client_hello_with_another_name_is_rejected() {
    let (origin, proxy) = site(Script::robots("").tls(), &[]).await;
    let refused = Crawler::tls(&proxy, "o.test:443", "p.test").await;
    assert!(refused.is_err());
    assert_eq!(origin.connections(), 0);
}

// RFC 9110, section 15.5.20: 421.
#[tokio::test]
async fn a_request_for_another_authority_inside_connect_gets_421() {
    let origin = Script::robots("").tls().start().await;
    let other = Script::robots("").name("p.test").tls().start().await;
    let config = resolve("o.test", origin.address()).resolve("p.test", other.address());
    let proxy = config.start().await;
    for lines in [
        ["GET /a HTTP/1.1", "Host: p.test"],
        ["GET https://p.test/a HTTP/1.1", "Host: o.test"],
        ["GET /a HTTP/1.1", "Host: o.test:8443"],
        ["GET http://o.test/a HTTP/1.1", "Host: o.test"],
    ] {
        let reply = Crawler::inside(&proxy, "o.test:443")
            .await
            .ask(&lines)
            .await;
        reply.assert_error(421, "http_request_error");
    }
    assert_eq!(origin.connections() + other.connections(), 0);
}

// Ours: plain text inside CONNECT is intercepted too, never tunnelled (ARCHITECTURE.md,
// invariant 6).
#[tokio::test]
async fn plain_http_inside_connect_is_intercepted() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    let mut crawler = Crawler::connect(&proxy, "o.test:80").await;
    assert_eq!(crawler.get("/a", "o.test").await.status(), 200);
    crawler
        .get("/private", "o.test")
        .await
        .assert_error(403, "http_request_denied");
    assert_eq!(origin.targets(), ["/a"]);
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

// Ours; ARCHITECTURE.md, invariant 6: other protocols are never forwarded. Both timeouts
// are longer than the test can take, so they do not close any connection.
#[tokio::test]
async fn other_protocols_inside_connect_are_closed_at_once() {
    let (origin, proxy) = site(
        Script::robots(""),
        &[
            "proxy.header_timeout = \"1h\"",
            "https.handshake_timeout = \"1h\"",
        ],
    )
    .await;
    for (name, bytes) in OTHER_PROTOCOLS {
        let mut crawler = Crawler::connect(&proxy, "o.test:22").await;
        crawler.send(bytes).await;
        assert!(crawler.closes().await, "{name}");
        let mut inside = Crawler::inside(&proxy, "o.test:443").await;
        inside.send(bytes).await;
        assert!(inside.closes().await, "{name} inside TLS");
        let stream = Crawler::connect(&proxy, "o.test:443").await.into_stream();
        let http2 = TlsConnector::from(certificates::client(&proxy.ca(), &["h2"]));
        let name = ServerName::try_from("o.test").unwrap();
        let mut http2 = http2.connect(name, stream).await.unwrap();
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
    let metrics = metrics(&proxy).await;
    let counted = "politesse_connections_refused_total{result=\"protocol\"} 24";
    assert!(metrics.contains(counted), "{metrics}");
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
    let wrong = Script::robots("")
        .name("elsewhere.test")
        .tls()
        .start()
        .await;
    let config = resolve("o.test", expired.address()).resolve("p.test", wrong.address());
    let proxy = config.start().await;
    for (url, reason) in [
        ("https://o.test/a", "its certificate has expired"),
        ("https://p.test/a", "its certificate is for another name"),
    ] {
        let reply = get(&proxy, url).await;
        reply.assert_error(502, "tls_certificate_error");
        assert!(reply.text().contains(reason), "{}", reply.text());
    }
    proxy.place().completed(2).await;
    let causes = "SELECT group_concat(cause ORDER BY cause) FROM snapshot";
    let causes = proxy
        .place()
        .database()
        .query_row(causes, [], |row| row.get(0));
    let causes: String = causes.unwrap();
    assert_eq!(causes, "certificate_expired,certificate_name");
    assert_eq!(
        expired.log().len() + wrong.log().len(),
        0,
        "no request is sent"
    );
}

// Ours: only the configured roots are trusted.
#[tokio::test]
async fn an_origin_certificate_from_an_unknown_root_is_refused() {
    let script = Script::robots("").tls();
    let (origin, proxy) = site(script, &["https.upstream_roots = \"webpki\""]).await;
    let reply = get(&proxy, "https://o.test/a").await;
    reply.assert_error(502, "tls_certificate_error");
    assert_contains(&reply.text(), "https.upstream_roots");
    assert_eq!(origin.log().len(), 0);
}

// Ours: a company can add its own root to the public ones.
#[tokio::test]
async fn roots_of_all_configured_entries_are_trusted() {
    let roots = "https.upstream_roots = [\"webpki\", \"roots.pem\"]";
    let (_origin, proxy) = site(Script::robots("").tls(), &[roots]).await;
    let reply = get(&proxy, "https://o.test/a").await;
    assert_eq!(reply.status(), 200);
}

// Ours: without interception the proxy could not see the requests in a tunnel.
#[tokio::test]
async fn connect_is_refused_if_interception_is_off() {
    let (origin, proxy) = site(Script::robots("").tls(), &["https.mode = \"refuse\""]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    let reply = crawler
        .ask(&["CONNECT o.test:443 HTTP/1.1", "Host: o.test:443"])
        .await;
    reply.assert_error(403, "http_request_denied");
    assert_eq!(origin.connections(), 0);
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

// Ours: the CA is created at the first start, its key has mode 0600, and later starts
// keep it.
#[tokio::test]
async fn the_ca_is_created_once_with_a_private_key_file() {
    let proxy = Config::default().start().await;
    let (made, place) = (proxy.ca(), proxy.stop().await);
    let mode = |name: &str| {
        std::fs::metadata(place.path(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode("certs/ca.key"), 0o600);
    let proxy = place.start().await;
    assert_eq!(made, proxy.ca());
}

// Ours: a real client, which checks names and dates of certificates strictly.
#[tokio::test]
async fn curl_gets_pages_and_refusals_over_both_versions() {
    let (origin, proxy) = site(
        Script::robots(ROBOTS)
            .page("/a", Page::text("the page"))
            .tls(),
        &[],
    )
    .await;
    for version in ["--http1.1", "--http2"] {
        let page = curl(&proxy, &[version, "https://o.test/a"]).await;
        page.assert_output(0, "the page");
        let refused = curl(
            &proxy,
            &[version, "-w", "%{http_code}", "https://o.test/private"],
        )
        .await;
        assert!(refused.stdout.ends_with("403"), "{refused:?}");
        assert!(refused.stdout.contains("Disallow: /private"));
        // RFC 9110, section 9.3.2: content in this answer would be a stream error.
        let head = curl(&proxy, &[version, "-I", "https://o.test/private"]).await;
        assert_eq!(head.code, Some(0), "{head:?}");
        assert!(head.stdout.contains("http_request_denied"), "{head:?}");
    }
    assert_eq!(origin.targets(), ["/a", "/a"]);
}

// Ours: rustls and OpenSSL clients prefer AES-256, whose handshake costs a third more.
#[tokio::test]
async fn aes_128_is_chosen_even_if_the_client_prefers_aes_256() {
    let proxy = Config::default().start().await;
    let raw = Crawler::connect(&proxy, "o.test:443").await.into_stream();
    let client = certificates::client(&proxy.ca(), &["http/1.1"]);
    let name = ServerName::try_from("o.test").unwrap();
    let stream = TlsConnector::from(client).connect(name, raw).await.unwrap();
    let taken = stream.get_ref().1.negotiated_cipher_suite().unwrap();
    assert_eq!(taken.suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
}
