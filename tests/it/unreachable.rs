//! Unreachable robots.txt files: an origin whose rules are unknown is refused, whatever
//! the cause (RFC 9309, section 2.3.1.4; ARCHITECTURE.md, invariant 4).

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use crate::kit::addresses::free_address;
use crate::kit::certificates::TestCa;
use crate::kit::client::{Reply, assert_metric, get};
use crate::kit::codings::coded;
use crate::kit::origin::{Script, site};
use crate::kit::paced::ms;
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::raw_origin::{Bytes, RawOrigin};
use crate::kit::server::Server;
use crate::kit::{assert_contains, assert_members};

/// Asserts that `reply` is a refusal as `unreachable` with a Retry-After.
fn assert_unreachable(reply: &Reply) {
    reply.assert_error(403, "http_request_denied");
    let told = reply.json();
    assert_members(&told, &json!({"reason": "unreachable", "rule": null}));
    let seconds: u32 = reply.head.value("retry-after").parse().unwrap();
    // `robots.retry` starts at 30 s; jitter adds 10 % at most.
    assert!((1..=34).contains(&seconds), "{seconds}");
}

/// Requests a page from an origin that answers `robots` for robots.txt, and asserts that it
/// is refused as unreachable and never fetched. Returns the answer and the row.
async fn refused(robots: Page, lines: &[&str]) -> (Reply, Value) {
    let (origin, proxy) = site(Script::robots_page(robots), lines).await;
    let reply = get(&proxy, "http://o.test/a").await;
    assert_unreachable(&reply);
    origin.assert_only_robots_fetched();
    let row = proxy.place().completed(1).await.remove(0);
    let expected = json!({"verdict": "disallow", "reason": "unreachable"});
    assert_members(&row, &expected);
    (reply, row)
}

/// Asserts that an origin that answers every request with `bytes` is unreachable.
async fn assert_bytes_refused(bytes: Bytes) {
    let origin = RawOrigin::start(move |_| bytes.clone()).await;
    let proxy = resolve("o.test", origin.address())
        .set("robots.timeout = \"5s\"")
        .start()
        .await;
    assert_unreachable(&get(&proxy, "http://o.test/a").await);
    assert_eq!(origin.lines(), [""; 0]);
}

// RFC 9309, section 2.3.1.4.
#[tokio::test]
async fn an_error_or_unexpected_status_for_robots_txt_refuses_everything() {
    for status in [429, 500, 502, 503, 599, 201, 202, 205, 206, 304] {
        let (_, row) = refused(Page::status(status), &[]).await;
        assert_eq!(row["robots"]["status"], status);
    }
}

// RFC 9309, section 2.3.1.4: redirects without a usable target, or in a loop. Ours: the
// target of a redirect is checked like any address.
#[tokio::test]
async fn redirects_without_an_end_or_permitted_target_refuse_everything() {
    refused(Page::status(302), &[]).await;
    let silent = Script::robots("").start().await;
    let port = silent.address().port();
    for target in [
        "/robots.txt",
        "ftp://o.test/robots.txt",
        "http://[bad/",
        "http://nowhere.invalid/robots.txt",
        &format!("http://127.0.0.1:{port}/robots.txt"),
        &format!("http://[::ffff:127.0.0.1]:{port}/robots.txt"),
        "http://169.254.169.254/robots.txt",
        "http://localhost/robots.txt",
    ] {
        refused(Page::redirect(target), &[]).await;
    }
    assert_eq!(silent.connections(), 0);
}

// Ours: `robots.timeout`.
#[tokio::test]
async fn a_robots_txt_that_never_ends_is_unreachable_after_its_timeout() {
    let never = Gate::shut();
    for page in [
        Page::text("").after(&never),
        Page::stepped(&["User-agent: *\n", "Allow: /\n"], &never),
    ] {
        refused(page, &["robots.timeout = \"1s\""]).await;
    }
}

// Ours: however little is missing.
#[tokio::test]
async fn a_robots_txt_that_cannot_be_decoded_refuses_everything() {
    let gzip = coded("gzip", b"User-agent: *\nAllow: /\n".to_vec());
    // Many empty blocks: a large input without any output.
    let drip = [&gzip[..10], &[0, 0, 0, 0xff, 0xff].repeat(200_000)].concat();
    for (coding, bytes) in [
        ("x-unknown", gzip.as_slice()),
        ("gzip", b"\x1fUser-agent: *\nAllow: /\n"),
        ("gzip", &gzip[..gzip.len() - 9]),
        ("gzip", &drip),
        ("br", &gzip),
    ] {
        let page = Page::untyped(bytes).field("Content-Encoding", coding);
        refused(page, &[]).await;
    }
}

// Ours: archives, images and undeclared codings other than gzip are not text.
#[tokio::test]
async fn a_body_that_is_not_text_refuses_everything() {
    let rules = b"User-agent: *\nAllow: /\n".to_vec();
    let zip = [b"PK\x03\x04\x14\0\0\0\0\0".as_slice(), &rules].concat();
    let utf_32: Vec<u8> = rules.iter().flat_map(|&byte| [0, 0, 0, byte]).collect();
    for body in [
        zip.as_slice(),
        &utf_32,
        b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR",
        &[0; 40],
        &coded("br", rules.clone()),
        &coded("zstd", rules.clone()),
        &coded("deflate", rules.clone()),
        &coded("gzip, gzip", rules.clone()),
    ] {
        let (reply, _) = refused(Page::untyped(body), &[]).await;
        assert!(reply.text().contains("its body is no text"), "{body:?}");
    }
}

// Ours: a challenge is not a robots.txt. RFC 9309, section 2.3.1.3, makes no exception for
// a challenge with status 403, so that one allows everything.
#[tokio::test]
async fn a_bot_challenge_is_counted_and_refuses_unless_it_is_403() {
    for (field, status) in [("cf-mitigated", 200), ("x-amzn-waf-action", 403)] {
        let page = Page::html("<p>Are you human?").field(field, "challenge");
        let (_origin, proxy) = site(Script::robots_page(page.with_status(status)), &[]).await;
        let reply = get(&proxy, "http://o.test/a").await;
        if status == 200 {
            assert_unreachable(&reply);
            assert!(reply.text().contains("a bot challenge in place of it"));
        } else {
            assert_eq!(reply.status(), 200);
        }
        let counted = "politesse_robots_fetches_total{result=\"challenge\"} 1\n";
        assert_metric(&proxy, counted).await;
    }
}

// Ours: an endless head, endless interim responses, and a body that drips.
#[tokio::test]
async fn an_endless_response_for_robots_txt_refuses_everything() {
    let fields = b"X: y\r\n".repeat(100_000);
    let fields = [&b"HTTP/1.1 200 OK\r\n"[..], &fields].concat();
    let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000);
    for bytes in [fields, interim] {
        assert_bytes_refused(Bytes::of(&bytes)).await;
    }
    let gate = Gate::shut();
    let page = Page::stepped(&["#"; 1000], &gate);
    tokio::spawn(async move {
        loop {
            gate.open(1);
            // Scripted load: the body drips until `robots.timeout`.
            tokio::time::sleep(ms(50)).await;
        }
    });
    refused(page, &["robots.timeout = \"1s\""]).await;
}

// RFC 9110, section 10.2.3: the refusal has the Retry-After of the origin.
#[tokio::test]
async fn a_retry_after_for_robots_txt_is_passed_on() {
    let page = Page::status(503).field("Retry-After", "7200");
    let (_origin, proxy) = site(Script::robots_page(page), &[]).await;
    let reply = get(&proxy, "http://o.test/a").await;
    let seconds: u32 = reply.head.value("retry-after").parse().unwrap();
    assert!((7190..=7200).contains(&seconds), "{seconds}");
}

// Ours: the connection ends before the response is complete.
#[tokio::test]
async fn a_truncated_response_for_robots_txt_refuses_everything() {
    for bytes in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nUser-agent: *\nAllow: /\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"no HTTP at all\r\n\r\n",
    ] {
        assert_bytes_refused(Bytes::closing(bytes)).await;
    }
}

/// Waits for exactly `count` rows, and asserts that each has a 502 because robots.txt was
/// unreachable.
pub(crate) async fn assert_recorded_as_unreachable(proxy: &Proxy, count: usize) {
    let expected = json!({"verdict": "disallow", "reason": "unreachable", "status": 502});
    for row in proxy.place().completed(count).await {
        assert_members(&row, &expected);
    }
}

// Ours: a failed connection is 502 with its RFC 9209 error type, and so is an unknown name.
#[tokio::test]
async fn an_origin_without_a_connection_is_a_bad_gateway() {
    let proxy = resolve("o.test", free_address()).start().await;
    for url in ["http://o.test/a", "https://o.test/a"] {
        let reply = get(&proxy, url).await;
        reply.assert_error(502, "connection_refused");
    }
    assert_recorded_as_unreachable(&proxy, 2).await;
    let reply = get(&proxy, "http://a.b.invalid/robots.txt").await;
    reply.assert_error(502, "dns_error");
}

// Ours: a failed handshake is 502 as well.
#[tokio::test]
async fn an_origin_without_tls_is_a_bad_gateway() {
    let (origin, proxy) = site(Script::robots(""), &[]).await;
    let reply = get(&proxy, "https://o.test/a").await;
    reply.assert_error(502, "tls_protocol_error");
    origin.assert_only_robots_fetched();
}

// RFC 9209, section 2.3.13; RFC 8446, section 4.4.2.4: TLS 1.3 alerts after the handshake.
#[tokio::test]
async fn an_origin_that_requires_a_client_certificate_is_named_in_the_502() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let tls = TlsAcceptor::from(TestCa::get().server_for_clients("o.test", version));
        let server = Server::start(move |stream| {
            let handshake = tls.accept(stream).into_fallible();
            async move {
                // The handshake never succeeds, because no client has a certificate. Closing
                // with the request unread would reset the connection and lose the alert.
                if let Err((_, mut stream)) = handshake.await {
                    stream.shutdown().await.unwrap();
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
            }
        })
        .await;
        let proxy = resolve("o.test", server.address()).start().await;
        let reply = get(&proxy, "https://o.test/a").await;
        reply.assert_error(502, "tls_alert_received");
        assert_contains(&reply.text(), "client certificate");
        let rows = proxy.place().completed(1).await;
        assert_eq!(rows[0]["error"], "tls_alert_received");
    }
}
