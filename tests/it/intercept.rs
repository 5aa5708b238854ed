//! CONNECT: the proxy ends TLS on both sides, sees each request, and speaks the
//! protocol that each side speaks.

use std::os::unix::fs::PermissionsExt;

use http::Version;
use rustls::CipherSuite;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use crate::kit::certificates;
use crate::kit::client::{Crawler, curl, get, metrics};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::soon;

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

// Ours: any mix of HTTP/1.1 and HTTP/2.
#[tokio::test]
async fn crawlers_and_origins_need_not_speak_the_same_version() {
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

// RFC 9110, section 8.6: methods that give a meaning to a body say that it is empty. Some
// origins answer with 411 otherwise.
#[tokio::test]
async fn an_empty_upload_tells_its_length() {
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

// RFC 9113, section 8.2.2 and 8.3.1: what HTTP/2 may not carry is not carried.
#[tokio::test]
async fn an_http_2_origin_gets_a_clean_request_from_an_http_1_crawler() {
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

// RFC 9113, section 8.2.3: cookies split over fields become one again.
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

// Ours: an upload over HTTP/2 arrives whole.
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

/// Returns the certificates that the proxy shows for `authority`, leaf first.
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

// Ours: made for the requested name, kept and used again; the CA certificate is
// sent after it.
#[tokio::test]
async fn the_leaf_is_made_for_the_name_and_used_again() {
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

// Ours: alert unrecognized_name.
#[tokio::test]
async fn another_name_in_the_client_hello_is_turned_away() {
    let (origin, proxy) = site(Script::robots("").tls(), &[]).await;
    let refused = Crawler::tls(&proxy, "o.test:443", "p.test").await;
    assert!(refused.is_err());
    assert_eq!(origin.connections(), 0);
}

// RFC 9110, section 15.5.20: 421.
#[tokio::test]
async fn a_request_for_another_authority_inside_connect_is_misdirected() {
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

// Ours: intercepting a plain-text CONNECT too, never a tunnel (ARCHITECTURE.md,
// invariant 6).
#[tokio::test]
async fn plain_http_inside_connect_is_seen_and_judged() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    let mut crawler = Crawler::connect(&proxy, "o.test:80").await;
    assert_eq!(crawler.get("/a", "o.test").await.status(), 200);
    crawler
        .get("/private", "o.test")
        .await
        .assert_error(403, "http_request_denied");
    assert_eq!(origin.targets(), ["/a"]);
}

/// First bytes of clients that speak neither TLS nor HTTP/1, or speaks TLS and
/// then something else.
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

// Ours; ARCHITECTURE.md, invariant 6: what is neither TLS nor HTTP goes
// nowhere. Both time limits are far longer than the test may take, so none of
// them closes a connection.
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
        // SETTINGS may be on their way; the end is what counts.
        let _ = soon("end", http2.read_to_end(&mut rest)).await;
    }
    // A request after one empty line is one (RFC 9112, section 2.2).
    let mut crawler = Crawler::connect(&proxy, "o.test:80").await;
    crawler.send(b"\r\n").await;
    assert_eq!(crawler.get("/a", "o.test").await.status(), 200);
    assert_eq!(origin.targets(), ["/a"]);
    let metrics = metrics(&proxy).await;
    let counted = "politesse_connections_refused_total{result=\"protocol\"} 24";
    assert!(metrics.contains(counted), "{metrics}");
}

// Ours: a CONNECT to a name that does not resolve; RFC 6761, section 6.4.
#[tokio::test]
async fn a_name_that_does_not_resolve_is_told_inside() {
    let proxy = Config::default().start().await;
    get(&proxy, "https://nowhere.invalid/")
        .await
        .assert_error(502, "dns_error");
    get(&proxy, "http://nowhere.invalid/")
        .await
        .assert_error(502, "dns_error");
    let rows = proxy.place().completed(2).await;
    for row in rows {
        assert_eq!(
            (&row["verdict"], &row["reason"], &row["status"]),
            (&"disallow".into(), &"unreachable".into(), &502.into())
        );
    }
}

// Ours: an expired certificate.
#[tokio::test]
async fn a_bad_certificate_is_never_hidden() {
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
        "nothing is asked for"
    );
}

// Ours: verified against the configured roots alone.
#[tokio::test]
async fn an_origin_that_no_root_vouches_for_is_refused() {
    let (origin, proxy) = site(
        Script::robots("").tls(),
        &["https.upstream_roots = \"webpki\""],
    )
    .await;
    let reply = get(&proxy, "https://o.test/a").await;
    reply.assert_error(502, "tls_certificate_error");
    assert!(
        reply.text().contains("https.upstream_roots"),
        "{}",
        reply.text()
    );
    assert_eq!(origin.log().len(), 0);
}

// Ours: a company's root beside those of the system.
#[tokio::test]
async fn the_roots_of_all_entries_are_trusted() {
    let origin = Script::robots("").tls().start().await;
    let roots = "https.upstream_roots = [\"webpki\", \"roots.pem\"]";
    let config = resolve("o.test", origin.address()).set(roots);
    let proxy = config.start().await;
    let reply = get(&proxy, "https://o.test/a").await;
    assert_eq!(reply.status(), 200);
}

// Ours: where interception is off CONNECT is refused.
#[tokio::test]
async fn without_interception_connect_is_refused() {
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
async fn a_malformed_connect_is_answered_with_400() {
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

// Ours: made at the first start, key 0600, never overwritten.
#[tokio::test]
async fn the_authority_is_made_once_and_its_key_is_private() {
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

// Ours: clients as they are (curl checks names and dates strictly).
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
        assert_eq!(
            (page.code, page.stdout.as_str()),
            (Some(0), "the page"),
            "{page:?}"
        );
        let refused = curl(
            &proxy,
            &[version, "-w", "%{http_code}", "https://o.test/private"],
        )
        .await;
        assert!(refused.stdout.ends_with("403"), "{refused:?}");
        assert!(refused.stdout.contains("Disallow: /private"));
        // RFC 9110, section 9.3.2: content would be an error of the stream.
        let head = curl(&proxy, &[version, "-I", "https://o.test/private"]).await;
        assert_eq!(head.code, Some(0), "{head:?}");
        assert!(head.stdout.contains("http_request_denied"), "{head:?}");
    }
    assert_eq!(origin.targets(), ["/a", "/a"]);
}

// Ours: the client puts AES-256 first, as rustls and OpenSSL do, whose handshake
// costs a third more.
#[tokio::test]
async fn of_the_suites_that_a_client_offers_aes_128_is_taken() {
    let proxy = Config::default().start().await;
    let raw = Crawler::connect(&proxy, "o.test:443").await.into_stream();
    let client = certificates::client(&proxy.ca(), &["http/1.1"]);
    let name = ServerName::try_from("o.test").unwrap();
    let stream = TlsConnector::from(client).connect(name, raw).await.unwrap();
    let taken = stream.get_ref().1.negotiated_cipher_suite().unwrap();
    assert_eq!(taken.suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
}
