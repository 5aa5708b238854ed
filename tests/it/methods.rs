//! Methods with special rules for proxies: `OPTIONS *`, and `Max-Forwards` with TRACE and
//! OPTIONS (RFC 9110, sections 7.6.2, 9.3.7 and 9.3.8).

use serde_json::json;

use crate::kit::client::{Crawler, ask, get};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::paced::pages;
use crate::kit::page::Page;
use crate::kit::proxy::resolve;
use crate::kit::raw_origin::{Bytes, RawOrigin, raw_site};
use crate::kit::{assert_contains, assert_members};
use crate::operator::assert_verified;

const ROBOTS: &str = "User-agent: BadBot\nDisallow: /$\n\nUser-agent: *\nDisallow: /private\n";

// Ours: robots.txt is applied to `/`; RFC 9112, section 3.2.4: the target stays `*`.
#[tokio::test]
async fn options_asterisk_is_judged_as_the_root_and_sent_as_asterisk() {
    let (origin, proxy) = site(Script::robots(ROBOTS).tls(), &[]).await;
    for (agent, status) in [("GoodBot/1", 200), ("BadBot/1", 403)] {
        let mut one = Crawler::inside(&proxy, "o.test:443").await;
        let field = format!("User-Agent: {agent}");
        let lines = ["OPTIONS * HTTP/1.1", "Host: o.test", &field];
        let reply = one.ask(&lines).await;
        assert_eq!(reply.status(), status, "{}", reply.text());
        let mut two = H2Crawler::inside(&proxy, "o.test:443").await;
        let uri = http::Uri::builder().scheme("https").authority("o.test");
        let uri = uri.path_and_query("*").build().unwrap();
        let request = http::Request::options(uri).header("user-agent", agent);
        assert_eq!(two.ask(request).await.unwrap().status(), status);
    }
    assert_eq!(origin.targets(), ["*"; 2]);
    for seen in pages(&[&origin]) {
        assert_eq!((&*seen.method, &*seen.authority), ("OPTIONS", "o.test"));
    }
    for row in proxy.place().completed(4).await {
        assert_eq!(row["url"], "https://o.test/");
    }
    assert_verified(proxy).await;
}

// RFC 9112, section 3.2.4. Other methods may not use it (cases u73, h06).
#[tokio::test]
async fn the_asterisk_is_forwarded_only_for_options() {
    let (origin, proxy) = raw_site(ROBOTS, Bytes::text("ok")).await;
    let mut crawler = Crawler::connect(&proxy, "o.test:80").await;
    let asked = crawler.ask(&["OPTIONS * HTTP/1.1", "Host: o.test"]).await;
    assert_eq!(asked.status(), 200, "{}", asked.text());
    let root = crawler.ask(&["OPTIONS / HTTP/1.1", "Host: o.test"]).await;
    assert_eq!(root.status(), 200);
    let other = crawler.ask(&["GET * HTTP/1.1", "Host: o.test"]).await;
    other.assert_error(400, "http_request_error");
    let mut outside = Crawler::plain(&proxy).await;
    let ours = outside.ask(&["OPTIONS * HTTP/1.1", "Host: o.test"]).await;
    ours.assert_error(400, "http_request_error");
    assert_eq!(origin.lines(), ["OPTIONS *", "OPTIONS /"]);
}

// RFC 9110, sections 7.6.2 and 9.3.8.
#[tokio::test]
async fn with_max_forwards_0_the_proxy_answers_without_secrets() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    let fields = [
        "User-Agent: A/1",
        "X-Kept: yes",
        "Max-Forwards: 0",
        "Authorization: Basic canary",
        "Cookie: a=canary",
        "Proxy-Authorization: Basic canary",
        "X-Api-Key: canary",
    ];
    let url = "http://o.test/private/a?b";
    let traced = ask(&proxy, "TRACE", url, &fields).await;
    assert_eq!(traced.status(), 200, "{}", traced.text());
    assert_eq!(traced.head.value("content-type"), "message/http");
    let status = "politesse;details=\"answered here: Max-Forwards is 0\"";
    assert_eq!(traced.head.value("proxy-status"), status);
    let text = traced.text();
    let line = format!("TRACE {url} HTTP/1.1\r\n");
    assert!(text.starts_with(&line), "{text}");
    assert!(text.ends_with("\r\n\r\n"), "{text}");
    assert_contains(&text, "x-kept: yes\r\n");
    assert!(!text.contains("canary"), "{text}");
    let options = ask(&proxy, "OPTIONS", url, &fields).await;
    assert_eq!((options.status(), &*options.text()), (200, ""));
    assert_eq!(origin.log().len(), 0, "not even robots.txt is fetched");
    assert_eq!(proxy.place().rows().await.len(), 0);
    // A malformed request is refused before `Max-Forwards` is considered.
    let malformed = ask(&proxy, "TRACE", "http://u@o.test/", &["Max-Forwards: 0"]).await;
    malformed.assert_error(400, "http_request_error");
}

// RFC 9110, section 7.6.2.
#[tokio::test]
async fn max_forwards_is_decremented_only_for_trace_and_options() {
    let (origin, proxy) = raw_site(ROBOTS, Bytes::text("ok")).await;
    for (method, field, status) in [
        ("TRACE", "Max-Forwards: 1", 200),
        ("OPTIONS", "Max-Forwards: 10", 200),
        ("GET", "Max-Forwards: 0", 200),
        ("OPTIONS", "Max-Forwards: 99999999999999999999", 200),
        ("OPTIONS", "Max-Forwards: x", 400),
        ("TRACE", "Max-Forwards: 0\r\nMax-Forwards: 1", 400),
    ] {
        let reply = ask(&proxy, method, "http://o.test/a", &[field]).await;
        assert_eq!(reply.status(), status, "{method} {field}");
    }
    let sent = ["0", "9", "0", "18446744073709551614"];
    let requests = origin.requests();
    assert_eq!(requests.len(), sent.len());
    for (request, hops) in requests.iter().zip(sent) {
        let text = String::from_utf8_lossy(request);
        assert_contains(&text, &format!("\r\nMax-Forwards: {hops}\r\n"));
    }
}

// RFC 9110, section 9.3.8: with any `Max-Forwards`, and for a chunked body without data.
#[tokio::test]
async fn trace_with_content_is_malformed_on_every_path() {
    let origin = Script::robots(ROBOTS).tls().start().await;
    let plain = RawOrigin::with(ROBOTS, Bytes::text("ok")).await;
    let config = resolve("o.test", origin.address()).resolve("p.test", plain.address());
    let proxy = config.start().await;
    let chunked = "Transfer-Encoding: chunked";
    for (framing, hops, body, status) in [
        ("Content-Length: 0", "X: y", "", 200),
        ("Content-Length: 4", "X: y", "body", 400),
        ("Content-Length: 4", "Max-Forwards: 0", "body", 400),
        (chunked, "X: y", "4\r\nbody\r\n0\r\n\r\n", 400),
        (chunked, "X: y", "0\r\n\r\n", 400),
    ] {
        let message = |target: &str, host: &str| {
            format!("TRACE {target} HTTP/1.1\r\nHost: {host}\r\n{hops}\r\n{framing}\r\n\r\n{body}")
        };
        let mut outside = Crawler::plain(&proxy).await;
        let mut cleartext = Crawler::connect(&proxy, "p.test:80").await;
        let mut secured = Crawler::inside(&proxy, "o.test:443").await;
        for (crawler, message) in [
            (&mut outside, message("http://p.test/a", "p.test")),
            (&mut cleartext, message("/a", "p.test")),
            (&mut secured, message("/a", "o.test")),
        ] {
            crawler.send(message.as_bytes()).await;
            let reply = crawler.reply_to("TRACE").await;
            assert_eq!(reply.status(), status, "{message:?}: {}", reply.text());
            assert!(status == 200 || crawler.closes().await, "{message:?}");
        }
    }
    for (body, status) in [("", 200), ("body", 400)] {
        let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
        let request = http::Request::trace("https://o.test/a");
        let reply = crawler.send(request, body.into()).await.unwrap();
        assert_eq!(reply.status(), status, "{body:?}");
    }
    assert_eq!(plain.lines(), ["TRACE /a"; 2]);
    assert_eq!(origin.targets(), ["/a"; 2]);
}

// Ours: `robots.unreachable_answer` changes only this status.
#[tokio::test]
async fn unreachable_robots_txt_can_be_answered_with_503() {
    let origin = Script::robots_page(Page::status(500)).start().await;
    let ruled = Script::robots(ROBOTS).start().await;
    let config = resolve("o.test", origin.address())
        .resolve("p.test", ruled.address())
        .set("robots.unreachable_answer = 503");
    let proxy = config.start().await;
    let reply = get(&proxy, "http://o.test/a").await;
    reply.assert_error(503, "http_request_denied");
    assert!(!reply.head.value("retry-after").is_empty());
    assert_eq!(reply.json()["status"], 503);
    assert_eq!(reply.json()["reason"], "unreachable");
    assert_eq!(get(&proxy, "http://p.test/private").await.status(), 403);
    let denied = get(&proxy, "http://10.0.0.1/a").await;
    denied.assert_error(502, "destination_ip_prohibited");
    let rows = proxy.place().completed(3).await;
    assert_members(&rows[0], &json!({"status": 503, "error": null}));
    origin.assert_only_robots_fetched();
}
