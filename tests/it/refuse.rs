//! Refusals: a request that robots.txt disallows never reaches the origin, and the
//! crawler gets the reason. A leak is the worst bug that the proxy can have, so each test
//! ends with a look into the origin's own log.

use serde_json::{Value, json};

use crate::kit::client::{Crawler, ask, get};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::{assert_contains, assert_members, sha256};

const ROBOTS: &str = "# keep out\nUser-agent: *\nAllow: /\nDisallow: /private\n";

async fn plain() -> (Origin, Proxy) {
    site(Script::robots(ROBOTS), &[]).await
}

/// Asserts that a refusal in JSON has the members of docs/reference/reasons.md.
fn assert_explained(told: &Value, url: &str) {
    let expected = json!({
        "type": "urn:politesse:refused", "title": "Refused by robots.txt", "status": 403,
        "url": url, "crawler": "ExampleBot", "reason": "rule", "effect": "enforced",
    });
    assert_members(told, &expected);
    assert_contains(told["detail"].as_str().unwrap(), "Disallow: /private");
    let rule = json!({"line": 4, "text": "Disallow: /private", "group": ["*"]});
    assert_members(&told["rule"], &rule);
    assert_eq!(told["robots"]["status"], 200);
    assert_eq!(told["robots"]["sha256"], sha256(ROBOTS.as_bytes()));
    assert!(told["robots"]["fetched_at"].is_string());
}

// RFC 9309, section 2.2.2; RFC 9457.
#[tokio::test]
async fn a_disallowed_url_is_refused_with_its_rule_and_line() {
    let (origin, proxy) = plain().await;
    let reply = get(&proxy, "http://o.test/private/x").await;
    reply.assert_error(403, "http_request_denied");
    assert_eq!(reply.head.value("cache-control"), "no-store");
    assert_eq!(reply.head.value("content-type"), "application/problem+json");
    let told = reply.json();
    assert_explained(&told, "http://o.test/private/x");
    assert_eq!(told["robots"]["url"], "http://o.test/robots.txt");
    let rows = proxy.place().completed(1).await;
    assert_eq!(told["decision"], rows[0]["seq"].to_string());
    origin.assert_only_robots_fetched();
}

// Ours: the intercepted connection stays open.
#[tokio::test]
async fn over_https_the_refusal_is_sent_inside_the_intercepted_connection() {
    let (origin, proxy) = site(Script::robots(ROBOTS).tls(), &[]).await;
    let mut crawler = Crawler::inside(&proxy, "o.test:443").await;
    let reply = crawler.get("/private/x", "o.test").await;
    reply.assert_error(403, "http_request_denied");
    assert_explained(&reply.json(), "https://o.test/private/x");
    let again = crawler.get("/private/y", "o.test").await;
    assert_eq!(again.status(), 403, "the connection stays open");

    let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    let reply = crawler.get("https://o.test/private/x").await;
    assert_eq!(reply.status(), 403);
    let said = reply.headers()["proxy-status"].to_str().unwrap();
    assert_contains(said, "http_request_denied");
    let told = serde_json::from_slice(reply.body()).unwrap();
    assert_explained(&told, "https://o.test/private/x");
    origin.assert_only_robots_fetched();
}

// Ours: JSON, HTML or text, as Accept prefers (RFC 9110, section 12.5.1). HTML escapes all
// bytes that come from outside, and a reader of the page should write to the operator, not
// to the site.
#[tokio::test]
async fn the_refusal_has_the_media_type_that_accept_prefers() {
    let contact = "proxy.contact = \"crawl@site.example\"";
    let (origin, proxy) = site(Script::robots(ROBOTS), &[contact]).await;
    let url = "http://o.test/private/'onload='alert(1)&amp;x";
    let link = "<a href=\"mailto:crawl@site.example\">crawl@site.example</a>";
    for (accept, media_type, contact) in [
        (
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "text/html; charset=utf-8",
            link,
        ),
        (
            "text/plain",
            "text/plain; charset=utf-8",
            "crawl@site.example",
        ),
    ] {
        let reply = ask(&proxy, "GET", url, &[&format!("Accept: {accept}")]).await;
        assert_eq!(reply.status(), 403, "for {accept}");
        assert_eq!(reply.head.value("content-type"), media_type, "for {accept}");
        let page = reply.text();
        let number = proxy.place().rows().await.last().unwrap()["seq"].to_string();
        for wanted in [
            "Disallow: /private",
            "Refused by politesse, the crawl proxy of this machine, not by the site.",
            &format!("Ask {contact}."),
            &format!(" audit show {number}"),
        ] {
            assert_contains(&page, wanted);
        }
        if contact == link {
            let is_escaped = !page.contains("/'onload='") || page.contains("&amp;amp;");
            assert!(is_escaped, "{page}");
            let policy = reply.head.value("content-security-policy");
            assert_contains(policy, "default-src 'none'");
        }
    }
    for accept in ["application/problem+json", "*/*", "image/png"] {
        let reply = ask(&proxy, "GET", url, &[&format!("Accept: {accept}")]).await;
        let media_type = reply.head.value("content-type");
        assert_eq!(media_type, "application/problem+json", "for {accept}");
        let json = reply.text();
        assert_contains(&json, "Disallow: /private");
        assert!(!json.contains("crawl@site.example"), "{json}");
    }
    origin.assert_only_robots_fetched();
}

// Ours: the head alone decides about an upload, then the connection closes. RFC 9110,
// section 10.1.1: the final status comes instead of 100.
#[tokio::test]
async fn an_upload_is_refused_before_its_body_is_read() {
    let (origin, proxy) = plain().await;
    for expect in ["", "Expect: 100-continue\r\n"] {
        let mut crawler = Crawler::plain(&proxy).await;
        let lines = "POST http://o.test/private HTTP/1.1\r\nHost: o.test\r\n";
        let request = format!("{lines}{expect}Content-Length: 1000000\r\n\r\n");
        crawler.send(request.as_bytes()).await;
        let head = crawler.head().await.unwrap();
        assert_eq!(head.status, 403, "{expect}");
        assert_contains(head.value("proxy-status"), "error=http_request_denied");
        crawler.whole_body(&head).await;
        assert!(crawler.closes().await, "{expect}");
    }
    origin.assert_only_robots_fetched();
}

// Ours: robots.txt applies to every method. RFC 9110, section 9.3.2: a response to HEAD has
// no content; the client would read any as the head of the next answer.
#[tokio::test]
async fn a_disallowed_url_is_refused_for_every_method() {
    let (origin, proxy) = plain().await;
    for method in [
        "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND",
    ] {
        let mut crawler = Crawler::plain(&proxy).await;
        let line = format!("{method} http://o.test/private HTTP/1.1");
        let lines = [&*line, "Host: o.test", "Content-Length: 0"];
        assert_eq!(crawler.ask(&lines).await.status(), 403, "{method}");
        if method == "HEAD" {
            let next = crawler.get("http://o.test/private", "o.test").await;
            next.assert_error(403, "http_request_denied");
        }
    }
    origin.assert_only_robots_fetched();
}

// RFC 9309, section 2.2.2: the file itself is always allowed.
#[tokio::test]
async fn only_the_exact_path_of_robots_txt_is_exempt() {
    let (origin, proxy) = site(Script::robots("User-agent: *\nDisallow: /\n"), &[]).await;
    assert_eq!(get(&proxy, "http://o.test/robots.txt").await.status(), 200);
    for path in [
        "/robots.txt?x",
        "//robots.txt",
        "/ROBOTS.TXT",
        "/robots.txt/../x",
    ] {
        let reply = get(&proxy, &format!("http://o.test{path}")).await;
        reply.assert_error(403, "http_request_denied");
    }
    origin.assert_only_robots_fetched();
}

// Invariant 6 (ARCHITECTURE.md), RFC 9309, section 2.3: each scheme and port has its own
// file.
#[tokio::test]
async fn two_origins_of_one_host_have_their_own_robots_txt() {
    let open = Script::robots("").start().await;
    let shut = Script::robots("User-agent: *\nDisallow: /\n").tls();
    let shut = shut.start().await;
    let config = resolve("o.test:80", open.address()).resolve("o.test:443", shut.address());
    let proxy = config.start().await;
    assert_eq!(get(&proxy, "http://o.test/x").await.status(), 200);
    let refused = get(&proxy, "https://o.test/x").await;
    refused.assert_error(403, "http_request_denied");
    shut.assert_only_robots_fetched();
    assert_eq!(open.targets(), ["/x"]);
    assert_eq!((open.robots_fetches(), shut.robots_fetches()), (1, 1));
}

// RFC 9112, section 9.3.2 (pipelining): each request is decided by itself.
#[tokio::test]
async fn a_pipelined_refusal_does_not_affect_its_neighbours() {
    let (origin, proxy) = plain().await;
    let mut crawler = Crawler::plain(&proxy).await;
    let one = |path: &str| format!("GET http://o.test{path} HTTP/1.1\r\nHost: o.test\r\n\r\n");
    let all = one("/a") + &one("/private") + &one("/b");
    crawler.send(all.as_bytes()).await;
    for status in [200, 403, 200] {
        assert_eq!(crawler.reply_to("GET").await.status(), status);
    }
    assert_eq!(origin.targets(), ["/a", "/b"]);
}

// Ours: a match that exceeds its work limit is refused with its own reason.
#[tokio::test]
async fn a_url_that_takes_too_long_to_match_is_refused_as_undecided() {
    let letter = |digit: usize| char::from(b"abcdefgh"[digit % 8]);
    let rules = (0..15_000).map(|n| {
        let letters = (0..6).map(|place| format!("*{}", letter(n >> (3 * place))));
        format!("Disallow: /{}*0\n", letters.collect::<String>())
    });
    let robots = format!("User-agent: *\n{}", rules.collect::<String>());
    let (origin, proxy) = site(Script::robots(&robots), &[]).await;
    let url = format!("http://o.test/{}", "abcdefgh".repeat(250));
    let reply = get(&proxy, &url).await;
    let told = reply.json();
    assert_members(&told, &json!({"status": 403, "reason": "undecided"}));
    assert_contains(told["detail"].as_str().unwrap(), "too long");
    origin.assert_only_robots_fetched();
}
