//! Requests that would wait too long: they get 429 with the time to retry.

use std::sync::Arc;

use serde_json::json;

use crate::kit::client::{Crawler, ask, get};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::Origin;
use crate::kit::paced::{
    ONE_FILE, asking, assert_later, column, delaying, held, metric, ms, standard, statuses,
    verified,
};
use crate::kit::proxy::Proxy;
use crate::kit::{assert_members, clock};

/// Starts an origin with a long `Crawl-delay`, and a proxy that has just fetched a page of
/// it.
async fn after_one() -> (Origin, Arc<Proxy>) {
    let origin = delaying("60").start().await;
    let config = standard(&origin)
        .set("pace.max_wait = \"1s\"")
        .set(ONE_FILE);
    let proxy = Arc::new(config.start().await);
    assert_eq!(get(&proxy, "http://o.test/first").await.status(), 200);
    (origin, proxy)
}

// RFC 9457, RFC 9209, RFC 9110, section 10.2.3.
#[tokio::test]
async fn a_request_that_would_wait_too_long_gets_429_at_once_in_the_accepted_format() {
    let (origin, proxy) = after_one().await;
    let begun = clock::instant();
    let url = "http://o.test/1";
    let kinds = [
        ("application/problem+json", "urn:politesse:later"),
        ("text/html", "<dt>reason</dt><dd><bdi>crawl_delay: "),
        ("text/plain", "reason       crawl_delay: "),
    ];
    for (kind, part) in kinds {
        let accept = format!("Accept: {kind}");
        let reply = ask(&proxy, "GET", url, &[&accept, "User-Agent: A/1"]).await;
        reply.assert_error(429, "http_request_denied");
        let told = reply.head.value("content-type");
        assert!(told.starts_with(kind), "{told}");
        assert!(reply.text().contains(part), "{}", reply.text());
        let seconds: u64 = reply.head.value("retry-after").parse().unwrap();
        assert!((50..=60).contains(&seconds), "{seconds}");
    }
    let head = ask(&proxy, "HEAD", url, &["User-Agent: A/1"]).await;
    assert_eq!((head.status(), head.body.len()), (429, 0));
    let reply = get(&proxy, url).await;
    assert_later(&reply, "crawl_delay");
    let told = reply.json();
    assert_members(&told, &json!({"url": url, "crawler": "ExampleBot"}));
    assert_eq!(told["robots"]["url"], "http://o.test/robots.txt");
    // No request waits, not even for the second of `pace.max_wait`.
    assert!(clock::since(begun) < ms(5000));
    assert_eq!(origin.targets(), ["/first"]);
    let later = "politesse_pace_later_total{reason=\"crawl_delay\"}";
    assert_eq!(metric(&proxy, later).await, 5.0);

    let (place, rows) = verified(proxy, 6).await;
    assert_eq!(column(&rows, "verdict")[..2], ["allow", "later"]);
    assert_eq!(column(&rows, "wait_ms"), [0; 6]);
    let listed = ["audit", "list", "--verdict", "later", "--json"];
    let mut listed = place.run(&listed).await.json_lines();
    listed.reverse();
    assert_eq!(listed, rows[1..]);
    assert_members(&rows[1], &json!({"reason": "crawl_delay", "status": 429}));
    let text = place.run(&["audit", "list", "--verdict", "later"]).await;
    assert!(text.stdout.contains("later"), "{text:?}");
    // Invariant 2 (ARCHITECTURE.md): the evidence explains the verdict, so a changed one
    // is found.
    let sql = "UPDATE ruling SET verdict = 'allow' WHERE verdict = 'later'";
    assert_ne!(place.database().execute(sql, []).unwrap(), 0);
    place.run_code(1, &["audit", "verify"]).await;
}

// Ours: the connection stays open after the 429.
#[tokio::test]
async fn an_intercepted_connection_carries_429s_and_stays_open() {
    let origin = delaying("60").tls().start().await;
    let config = standard(&origin).set("pace.max_wait = \"1s\"");
    let proxy = Arc::new(config.start().await);
    let mut crawler = Crawler::inside(&proxy, "o.test:443").await;
    assert_eq!(crawler.get("/1", "o.test").await.status(), 200);
    for target in ["/2", "/3"] {
        let seconds = assert_later(&crawler.get(target, "o.test").await, "crawl_delay");
        assert!((50..=60).contains(&seconds), "{seconds}");
    }
    let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    for target in ["/4", "/5"] {
        let reply = crawler.get(&format!("https://o.test{target}")).await;
        assert_eq!(reply.status(), 429);
        let said = reply.headers()["proxy-status"].to_str().unwrap();
        assert!(said.contains("error=http_request_denied"), "{said}");
        assert!(reply.headers().contains_key("retry-after"));
        let told: serde_json::Value = serde_json::from_slice(reply.body()).unwrap();
        assert_eq!(told["reason"], "crawl_delay");
    }
    assert_eq!(origin.targets(), ["/1"]);
    drop(crawler);
    verified(proxy, 5).await;
}

// RFC 7240, section 4.3. Ours: a crawler's own `max_wait` replaces that of `pace`.
#[tokio::test]
async fn the_shorter_of_prefer_and_max_wait_bounds_a_wait() {
    let (gate, origin) = held("/first").await;
    let config = standard(&origin)
        .set("pace.origin = { in_flight = 1 }")
        .set("pace.max_wait = \"2s\"")
        .set(ONE_FILE)
        .set("crawler = [{ token = \"SlowBot\", user_agent = \"slow\", max_wait = \"3s\" }, { token = \"HastyBot\", user_agent = \"hasty\", max_wait = \"500ms\" }]");
    let proxy = Arc::new(config.start().await);
    let first = asking(&proxy, "ExampleBot", &["/first"]);
    origin.arrival("/first").await;
    let table = [
        ("A/1", None, 2000),
        ("A/1", Some("wait=0"), 0),
        ("A/1", Some("respond-async, wait=1"), 1000),
        ("A/1", Some("wait=60"), 2000),
        ("slow/1", None, 3000),
        ("slow/1", Some("wait=1"), 1000),
        ("hasty/1", None, 500),
        ("hasty/1", Some("wait=60"), 500),
    ];
    for (agent, prefer, wanted) in table {
        let agent = format!("User-Agent: {agent}");
        let prefer = prefer.map(|prefer| format!("Prefer: {prefer}"));
        let mut fields = vec![&*agent];
        fields.extend(prefer.as_deref());
        let begun = clock::instant();
        let reply = ask(&proxy, "GET", "http://o.test/1", &fields).await;
        let took = clock::since(begun);
        assert_later(&reply, "ceiling");
        let limits = ms(wanted)..ms(wanted + 500);
        assert!(limits.contains(&took), "{fields:?}: {took:?}");
    }
    assert_eq!(origin.targets(), ["/first"]);
    gate.open(1);
    assert_eq!(statuses(&first.await.unwrap()), [200]);
    let (_place, rows) = verified(proxy, 9).await;
    for (row, (agent, prefer, wanted)) in rows[1..].iter().zip(table) {
        let waited = row["wait_ms"].as_u64().unwrap();
        let row = format!("{agent} {prefer:?}: {waited}");
        assert!((wanted..wanted + 500).contains(&waited), "{row}");
    }
}

// Ours: the head alone decides about an upload, and the connection closes.
#[tokio::test]
async fn the_body_of_an_upload_that_is_put_off_is_not_read() {
    let (origin, proxy) = after_one().await;
    let mut crawler = Crawler::plain(&proxy).await;
    let lines = [
        "POST http://o.test/1 HTTP/1.1",
        "Host: o.test",
        "User-Agent: A/1",
        "Content-Length: 1000000",
    ];
    assert_later(&crawler.ask(&lines).await, "crawl_delay");
    assert!(crawler.closes().await);
    assert_eq!(origin.targets(), ["/first"]);
    verified(proxy, 2).await;
}
