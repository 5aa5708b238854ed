//! Forwarding: requests reach the origin and responses reach the crawler unchanged,
//! apart from hop-by-hop fields.

use serde_json::json;

use crate::kit::client::{Crawler, End, ask, get};
use crate::kit::origin::{Script, site};
use crate::kit::page::{Gate, Length, Page};
use crate::kit::proxy::resolve;
use crate::kit::raw_origin::{Bytes, RawOrigin, raw_site};
use crate::kit::{assert_contains, assert_members, sha256, stream_digest, stream_part};

const MIB_100: u64 = 100 * 1024 * 1024;
/// Limit for the growth of resident memory during transfers of 100 MiB, in KiB: room for
/// buffers, but not for a body.
const RSS_GROWTH_MAX_KIB: u64 = 40 * 1024;

/// Returns the lines of the head of a request, with its request line.
fn lines(request: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(request);
    let head = text.split("\r\n\r\n").next().unwrap();
    head.split("\r\n").map(str::to_owned).collect()
}

/// Posts the first `length` bytes of the test stream, and returns the status.
async fn post(crawler: &mut Crawler, target: &str, length: u64, announced: Length) -> u16 {
    let frame = match announced {
        Length::Announced => format!("Content-Length: {length}"),
        Length::Chunked => "Transfer-Encoding: chunked".to_owned(),
    };
    let head = format!("POST {target} HTTP/1.1\r\nHost: o.test\r\n{frame}\r\n\r\n");
    crawler.send(head.as_bytes()).await;
    for offset in (0..length).step_by(65_536) {
        let part = stream_part(offset, (length - offset).min(65_536) as usize);
        if announced == Length::Chunked {
            let size = format!("{:x}\r\n", part.len());
            crawler.send(size.as_bytes()).await;
        }
        crawler.send(&part).await;
        if announced == Length::Chunked {
            crawler.send(b"\r\n").await;
        }
    }
    if announced == Length::Chunked {
        crawler.send(b"0\r\n\r\n").await;
    }
    crawler.reply_to("POST").await.status()
}

// Ours: equal digests with `Content-Length` and chunked, in both directions.
#[tokio::test]
async fn bodies_of_all_sizes_arrive_unchanged() {
    let framings = [Length::Announced, Length::Chunked];
    let bodies = [0, 1, 65_536].map(|length| framings.map(|framing| (length, framing)));
    let mut script = Script::robots("");
    for (length, framing) in bodies.concat() {
        let page = Page::stream(length, framing);
        script = script.page(&format!("/{length}/{framing:?}"), page);
    }
    let (origin, proxy) = site(script, &[]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    for (length, framing) in bodies.concat() {
        let path = format!("/{length}/{framing:?}");
        let reply = get(&proxy, &format!("http://o.test{path}")).await;
        assert_eq!(reply.end, End::Whole, "{path}");
        assert_eq!(sha256(&reply.body), stream_digest(length), "{path}");
        let announced = reply.head.values("content-length").len();
        let is_announced = framing == Length::Announced;
        assert_eq!(announced, usize::from(is_announced), "{:?}", reply.head);

        let url = format!("http://o.test/up{path}");
        assert_eq!(post(&mut crawler, &url, length, framing).await, 200);
        let seen = origin.whole(&format!("/up{path}")).await;
        assert_eq!(seen.body, Some((length, stream_digest(length))), "{path}");
    }
}

// Ours: bodies are streamed, in both directions and with both framings.
#[tokio::test]
async fn bodies_of_100_mib_pass_in_constant_memory() {
    let script = Script::robots("")
        .page("/counted", Page::stream(MIB_100, Length::Announced))
        .page("/chunked", Page::stream(MIB_100, Length::Chunked));
    let (origin, proxy) = site(script.tls(), &[]).await;
    assert_eq!(get(&proxy, "https://o.test/small").await.status(), 200);
    let before = proxy.rss_kib();
    let mut crawler = Crawler::inside(&proxy, "o.test:443").await;
    for target in ["/counted", "/chunked"] {
        crawler.start_get(target, "o.test").await;
        let head = crawler.head().await.unwrap();
        let expected = (MIB_100, stream_digest(MIB_100), End::Whole);
        assert_eq!(crawler.digest(&head).await, expected, "{target}");
    }
    for announced in [Length::Announced, Length::Chunked] {
        let path = format!("/up/{announced:?}");
        assert_eq!(post(&mut crawler, &path, MIB_100, announced).await, 200);
        let seen = origin.whole(&path).await;
        assert_eq!(seen.body, Some((MIB_100, stream_digest(MIB_100))));
    }
    let after = proxy.rss_kib();
    println!("resident memory: {before} KiB before 4 times 100 MiB, {after} KiB after");
    assert!(after < before + RSS_GROWTH_MAX_KIB, "{before} to {after}");
}

// Ours: bodies are streamed, not buffered.
#[tokio::test]
async fn the_first_byte_of_a_slow_body_arrives_before_its_last_is_sent() {
    let gate = Gate::shut();
    let script = Script::robots("").page("/slow", Page::stepped(&["first", "last"], &gate));
    let (origin, proxy) = site(script, &[]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/slow", "o.test").await;
    let head = crawler.head().await.unwrap();
    let start = crawler.peek(10).await;
    assert!(String::from_utf8_lossy(start).contains("first"));
    gate.open(1);
    assert_eq!(crawler.whole_body(&head).await, b"firstlast");

    crawler
        .send(b"POST http://o.test/up HTTP/1.1\r\nHost: o.test\r\nContent-Length: 4\r\n\r\nab")
        .await;
    assert_eq!(origin.arrival("/up").await.body, None);
    crawler.send(b"cd").await;
    assert_eq!(crawler.reply_to("POST").await.status(), 200);
}

// RFC 9110, section 7.6.1; RFC 9112, section 3.2.2, for `Host`. Ours: field names keep
// their case, and fields their order; hyper groups fields of equal names.
#[tokio::test]
async fn a_request_keeps_the_order_and_case_of_its_end_to_end_fields() {
    let (origin, proxy) = raw_site("", Bytes::text("ok")).await;
    let sent = [
        "GET http://O.TEST:8080/a?b=%7e&&c HTTP/1.1",
        "Host: p.test",
        "uSER-aGENT: ExampleBot/1.0",
        "Connection: keep-alive, X-Mine",
        "Keep-Alive: timeout=5",
        "X-Mine: 1",
        "X-One: 1",
        "TE: gzip",
        "Upgrade: foo",
        "Proxy-Authorization: Basic c2VjcmV0",
        "Proxy-Connection: keep-alive",
        "ACCEPT: */*",
        "x-two: 2",
        "X-One: 3",
        "Cookie: a=b",
        "Authorization: Basic dG9vcmlnaW4=",
    ];
    Crawler::plain(&proxy).await.ask(&sent).await;
    let wanted = [
        "GET /a?b=%7e&&c HTTP/1.1",
        "Host: o.test:8080",
        "uSER-aGENT: ExampleBot/1.0",
        "X-One: 1",
        "X-One: 3",
        "ACCEPT: */*",
        "x-two: 2",
        "Cookie: a=b",
        "Authorization: Basic dG9vcmlnaW4=",
        "Via: 1.1 politesse",
    ];
    assert_eq!(lines(&origin.requests()[0]), wanted);
    let robots = String::from_utf8_lossy(&origin.robots_requests()[0]).to_ascii_lowercase();
    assert!(!robots.contains("authorization"), "{robots}");
}

// RFC 9110, section 7.6.3; RFC 9209: proxy_loop_detected.
#[tokio::test]
async fn via_is_added_to_both_messages_and_our_own_is_rejected_as_a_loop() {
    let page = "HTTP/1.1 200 OK\r\nVia: 1.0 cache\r\nContent-Length: 2\r\n\r\nok";
    let (origin, proxy) = raw_site("", Bytes::of(page.as_bytes())).await;
    let ours = ["Via: 1.1 corp, 1.1 politesse"];
    let looped = ask(&proxy, "GET", "http://o.test/a", &ours).await;
    looped.assert_error(502, "proxy_loop_detected");
    assert_eq!(origin.connections(), 0);
    let reply = ask(&proxy, "GET", "http://o.test/a", &["Via: 1.1 corp"]).await;
    let via = reply.head.values("via").join(", ");
    assert_eq!(via, "1.0 cache, 1.1 politesse");
    let got = lines(&origin.requests()[0]);
    let via = got.iter().filter_map(|line| line.strip_prefix("Via: "));
    assert_eq!(via.collect::<Vec<_>>(), ["1.1 corp", "1.1 politesse"]);
}

// Ours: with `proxy.via = false` the origin gets only the fields of the crawler.
#[tokio::test]
async fn without_via_the_proxy_adds_nothing_to_a_request() {
    let origin = RawOrigin::with("", Bytes::text("ok")).await;
    let config = resolve("o.test", origin.address()).set("proxy.via = false");
    let proxy = config.start().await;
    // The default port is not sent.
    ask(&proxy, "GET", "http://o.test:80/a", &["X-A: 1"]).await;
    let wanted = ["GET /a HTTP/1.1", "Host: o.test", "X-A: 1"];
    assert_eq!(lines(&origin.requests()[0]), wanted);
}

// RFC 9110, section 7.6.1. Ours: nor with `Alt-Svc` and forged fields of politesse.
#[tokio::test]
async fn a_response_is_forwarded_without_hop_by_hop_fields() {
    let page = "HTTP/1.1 203 Fine\r\nServer: x/1\r\nX-Robots-Tag: noindex\r\nset-cookie: a=1\r\n\
            ETAG: \"e\"\r\nConnection: X-Hop\r\nX-Hop: 1\r\nAlt-Svc: h3=\":443\"\r\n\
            Keep-Alive: timeout=9\r\nProxy-Authenticate: Basic\r\nset-cookie: b=2\r\n\
            Proxy-Status: politesse; error=http_request_denied, ExampleCDN; hit\r\n\
            Robots-Directives: *=();state=complete\r\nContent-Length: 2\r\n\r\nok";
    let (_origin, proxy) = raw_site("", Bytes::of(page.as_bytes())).await;
    let reply = get(&proxy, "http://o.test/a").await;
    assert_eq!((reply.status(), reply.text().as_str()), (203, "ok"));
    assert_eq!(reply.head.values("set-cookie"), ["a=1", "b=2"]);
    let status = reply.head.value("proxy-status");
    assert!(
        status.contains("ExampleCDN") && !status.contains("politesse"),
        "{status}"
    );
    assert_contains(reply.head.value("robots-directives"), "noindex");
    let names = reply.head.fields.iter().map(|(name, _)| name.as_str());
    let wanted = [
        "Server",
        "X-Robots-Tag",
        "set-cookie",
        "set-cookie",
        "ETAG",
        "Proxy-Status",
        "Content-Length",
        "Via",
        "Robots-Directives",
    ];
    assert_eq!(names.collect::<Vec<_>>(), wanted);
}

// Ours: redirects are forwarded, never followed (ARCHITECTURE.md, invariant 7).
#[tokio::test]
async fn redirects_and_errors_of_the_origin_are_forwarded() {
    let script = Script::robots("")
        .page("/moved", Page::redirect("http://o.test/private"))
        .page("/gone", Page::status(410))
        .page("/failed", Page::status(503).field("Retry-After", "9"));
    let (origin, proxy) = site(script, &[]).await;
    let moved = get(&proxy, "http://o.test/moved").await;
    let location = moved.head.value("location");
    assert_eq!((moved.status(), location), (302, "http://o.test/private"));
    assert_eq!(get(&proxy, "http://o.test/gone").await.status(), 410);
    let failed = get(&proxy, "http://o.test/failed").await;
    let retry_after = failed.head.value("retry-after");
    assert_eq!((failed.status(), retry_after), (503, "9"));
    // An error of the origin is not marked as ours.
    assert_eq!(failed.head.values("proxy-status"), [""; 0]);
    assert_eq!(origin.targets(), ["/moved", "/gone", "/failed"]);
}

// Ours: with pieces of 128 KiB, a client that reads 20 KiB/s would look stalled for 5 s.
#[tokio::test]
async fn a_long_body_is_forwarded_in_small_pieces() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n400000\r\n";
    let body = stream_part(0, 4 << 20);
    let page = [head.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    let (_origin, proxy) = raw_site("", Bytes::of(&page)).await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/a", "o.test").await;
    crawler.head().await.unwrap();
    let (mut longest, mut received) = (0, Vec::new());
    let mut take = |bytes: &[u8]| received.extend_from_slice(bytes);
    while let Some(length @ 1..) = crawler.chunk(&mut take).await {
        longest = longest.max(length);
    }
    assert!(longest < 64 * 1024, "{longest}");
    assert!(received == body);
}

// Ours: an HTTP/1.0 client gets a body without chunks.
#[tokio::test]
async fn an_http_1_0_client_is_served() {
    let script = Script::robots("").page("/a", Page::stream(70_000, Length::Chunked));
    let (origin, proxy) = site(script, &[]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    let reply = crawler.ask(&["GET http://o.test/a HTTP/1.0"]).await;
    assert_eq!(reply.head.values("transfer-encoding"), [""; 0]);
    assert_eq!(sha256(&reply.body), stream_digest(70_000));
    let seen = origin.whole("/a").await;
    let found = (seen.version, seen.authority.as_str());
    assert_eq!(found, (http::Version::HTTP_11, "o.test"));
}

// Ours: if the origin closes early, the crawler can tell that the body is incomplete.
#[tokio::test]
async fn a_truncated_body_arrives_truncated() {
    for framing in [
        "Content-Length: 100\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let page = format!("HTTP/1.1 200 OK\r\n{framing}");
        let (_origin, proxy) = raw_site("", Bytes::closing(page.as_bytes())).await;
        let reply = get(&proxy, "http://o.test/cut").await;
        let found = (reply.end, reply.text());
        assert_eq!(found, (End::Broken, "abc".to_owned()), "{framing}");
        let rows = proxy.place().completed(1).await;
        assert_eq!(rows[0]["error"], "http_response_incomplete", "{framing}");
        // The proxy still works.
        let again = get(&proxy, "http://o.test/cut").await;
        assert_eq!(again.end, End::Broken, "{framing}");
    }
}

// Ours: the pool copes with idle connections that the origin has closed.
#[tokio::test]
async fn a_connection_closed_by_the_origin_causes_no_error() {
    let page = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (_origin, proxy) = raw_site("", Bytes::closing(page.as_bytes())).await;
    let mut crawler = Crawler::plain(&proxy).await;
    for n in 0..50 {
        let reply = crawler.get(&format!("http://o.test/{n}"), "o.test").await;
        assert_eq!(reply.status(), 200, "request {n}: {}", reply.text());
    }
}

// Ours: closing the sending side does not cancel a request.
#[tokio::test]
async fn a_half_closed_client_still_gets_its_response() {
    let (_origin, proxy) = site(Script::robots(""), &[]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/a", "o.test").await;
    crawler.finish_sending().await;
    assert_eq!(crawler.reply_to("GET").await.status(), 200);
}

// Ours: if the crawler hangs up during an upload, the origin sees an incomplete body.
#[tokio::test]
async fn a_truncated_upload_never_looks_complete_to_the_origin() {
    let (origin, proxy) = site(Script::robots(""), &[]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.send(b"POST http://o.test/up HTTP/1.1\r\nHost: o.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n").await;
    origin.arrival("/up").await;
    drop(crawler);
    let rows = proxy.place().completed(1).await;
    assert_eq!(rows[0]["verdict"], "allow");
    assert_eq!(origin.arrival("/up").await.body, None);
}

// Ours: a body with trailers is complete once the trailers are forwarded.
#[tokio::test]
async fn a_response_with_trailers_is_completed_in_the_record() {
    let answer = "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n";
    let (_origin, proxy) = raw_site("", Bytes::of(answer.as_bytes())).await;
    let reply = get(&proxy, "http://o.test/a").await;
    assert_eq!((reply.end, reply.text().as_str()), (End::Whole, "hello"));
    let rows = proxy.place().completed(1).await;
    assert_members(&rows[0], &json!({"bytes": 5, "error": null}));
}

// RFC 9112, section 3.2.1. Before a fragment the `http` crate keeps the path empty.
#[tokio::test]
async fn an_empty_path_is_sent_as_the_root() {
    let (origin, proxy) = raw_site("", Bytes::text("x")).await;
    for target in [
        "http://o.test",
        "http://o.test#x",
        "http://o.test/#x",
        "http://o.test?q#x",
    ] {
        let mut crawler = Crawler::plain(&proxy).await;
        crawler.get(target, "o.test").await;
    }
    assert_eq!(origin.lines(), ["GET /", "GET /", "GET /", "GET /?q"]);
}
