//! Crawlers that give up while they wait for a turn: they leave the queue.
//!
//! Most crawlers close their connection when their timeout ends, which sends a FIN (RFC
//! 9293, section 3.6). Over HTTP/1.1 the proxy cannot distinguish that from a client that
//! closed its sending side alone, so it still answers.

use std::sync::Arc;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::frames;
use crate::kit::client::{Crawler, get, get_as};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::{
    ONE_FILE, assert_later, delaying, metric, metric_is, ms, pages, queue, standard, standard_site,
    verified,
};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::Proxy;
use crate::kit::{assert_members, certificates, clock, until};

const BOTH: [&str; 2] = ["http", "https"];

/// Has `script` served over TLS if the scheme is `https`.
fn served(scheme: &str, script: Script) -> Script {
    match scheme {
        "https" => script.tls(),
        _ => script,
    }
}

/// Returns a connection on which `url` was requested and no response read yet.
async fn asking(proxy: &Proxy, url: &str) -> Crawler {
    let (mut crawler, target) = match url.strip_prefix("https://o.test") {
        Some(path) => (Crawler::inside(proxy, "o.test:443").await, path),
        None => (Crawler::plain(proxy).await, url),
    };
    crawler.send(&request(target, "")).await;
    crawler
}

fn request(target: &str, fields: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: o.test\r\nUser-Agent: GoneBot/1.0\r\n{fields}\r\n")
        .into_bytes()
}

/// Starts `script`, which has a `Crawl-delay`, and a proxy that has just fetched one page
/// of it, so that further requests wait.
async fn after_one(scheme: &str, script: Script) -> (Origin, Arc<Proxy>) {
    let origin = served(scheme, script).start().await;
    let proxy = Arc::new(standard(&origin).set(ONE_FILE).start().await);
    let first = get(&proxy, &format!("{scheme}://o.test/first")).await;
    assert_eq!(first.status(), 200, "{}", first.text());
    (origin, proxy)
}

// Ours.
#[tokio::test]
async fn a_client_that_closes_while_waiting_leaves_the_queue() {
    for scheme in BOTH {
        let (origin, proxy) = after_one(scheme, delaying("1")).await;
        let mut gone = Vec::new();
        for number in 1..=5 {
            let url = format!("{scheme}://o.test/gone/{number}");
            gone.push(asking(&proxy, &url).await);
        }
        queue(&proxy, 5).await;
        for crawler in &mut gone {
            crawler.finish_sending().await;
        }
        queue(&proxy, 0).await;
        let next = format!("{scheme}://o.test/next");
        let next = get_as(&proxy, "NextBot/1.0", &next).await;
        assert_eq!(next.status(), 200, "{scheme}");
        let seen = pages(&[&origin]);
        assert_eq!(origin.targets(), ["/first", "/next"]);
        // It gets the next turn, not the sixth.
        let pause = seen[1].at.duration_since(seen[0].at);
        assert!((ms(1000)..ms(3500)).contains(&pause), "{pause:?}");
        let later = "politesse_pace_later_total{reason=\"crawl_delay\"}";
        assert_eq!(metric(&proxy, later).await, 5.0);
        let (_, rows) = verified(proxy, 7).await;
        let put_off = rows.iter().filter(|row| row["verdict"] == "later");
        assert_eq!(put_off.clone().count(), 5, "{rows:?}");
        for row in put_off {
            assert_members(row, &json!({"reason": "crawl_delay", "status": 429}));
        }
    }
}

// RFC 9110, section 10.2.3; RFC 9209: a client that closed its sending side alone still
// reads the reason and the time to retry.
#[tokio::test]
async fn a_half_closed_client_that_waits_gets_429_with_retry_after() {
    for scheme in BOTH {
        let (origin, proxy) = after_one(scheme, delaying("60")).await;
        let mut crawler = asking(&proxy, &format!("{scheme}://o.test/1")).await;
        queue(&proxy, 1).await;
        crawler.finish_sending().await;
        let seconds = assert_later(&crawler.reply_to("GET").await, "crawl_delay");
        assert!((50..=60).contains(&seconds), "{seconds}");
        assert!(crawler.closes().await);
        assert_eq!(origin.targets(), ["/first"]);
        verified(proxy, 2).await;
    }
}

// Ours: a half-close ends the wait for a turn, not that for a slow robots.txt or page.
#[tokio::test]
async fn a_half_closed_client_with_a_turn_gets_its_response() {
    for scheme in BOTH {
        let (robots, page) = (Gate::shut(), Gate::shut());
        let rules = Page::text("User-agent: *\nCrawl-delay: 1\n").after(&robots);
        let script = Script::robots_page(rules).page("/1", Page::text("x").after(&page));
        let (origin, proxy) = standard_site(served(scheme, script)).await;
        let mut crawler = asking(&proxy, &format!("{scheme}://o.test/1")).await;
        crawler.finish_sending().await;
        origin.arrival("/robots.txt").await;
        // Proof of absence, here and below: the proxy notices the half-close at once,
        // and must not end the exchange.
        tokio::time::sleep(ms(200)).await;
        robots.open(1);
        origin.arrival("/1").await;
        tokio::time::sleep(ms(200)).await;
        page.open(1);
        assert_eq!(crawler.reply_to("GET").await.status(), 200);
        verified(proxy, 1).await;
    }
}

// RFC 9112, section 9.3.2: responses come in the order of the requests.
#[tokio::test]
async fn pipelined_requests_are_answered_in_order_after_a_wait() {
    let (origin, proxy) = after_one("http", delaying("0.5")).await;
    let mut crawler = Crawler::plain(&proxy).await;
    // The padding makes the second request longer than one read.
    let padding = format!("X-Padding: {}\r\n", "x".repeat(20_000));
    let mut both = request("http://o.test/1", "");
    both.extend(request("http://o.test/2", &padding));
    crawler.send(&both).await;
    for _ in 0..2 {
        assert_eq!(crawler.reply_to("GET").await.status(), 200);
    }
    assert_eq!(origin.targets(), ["/first", "/1", "/2"]);
    // The order also holds for the refusals after a half-close.
    crawler.send(&both).await;
    queue(&proxy, 1).await;
    crawler.finish_sending().await;
    for _ in 0..2 {
        assert_later(&crawler.reply_to("GET").await, "crawl_delay");
    }
    assert_eq!(pages(&[&origin]).len(), 3);
    verified(proxy, 5).await;
}

// Ours: robots.txt fetches take turns, too.
#[tokio::test]
async fn a_client_that_closes_cancels_its_queued_robots_txt_fetch() {
    for scheme in BOTH {
        let (origin, proxy) = standard_site(served(scheme, delaying("60"))).await;
        let first = get(&proxy, &format!("{scheme}://o.test/first")).await;
        assert_eq!(first.status(), 200, "{scheme}");
        // The robots.txt for GoneBot is not cached yet.
        let mut crawler = asking(&proxy, &format!("{scheme}://o.test/1")).await;
        robots_waiting(&proxy, 1).await;
        let begun = clock::instant();
        crawler.finish_sending().await;
        let seconds = assert_later(&crawler.reply_to("GET").await, "crawl_delay");
        // Retry-After is the time to the fetch of its robots.txt, which would start ten
        // seconds after the page.
        assert!((1..=10).contains(&seconds), "{seconds}");
        assert!(clock::since(begun) < ms(5000));
        robots_waiting(&proxy, 0).await;
        assert_eq!(origin.robots_fetches(), 1);
        assert_eq!(origin.targets(), ["/first"]);
        let (_, rows) = verified(proxy, 2).await;
        assert_eq!(rows[1]["verdict"], "later", "{rows:?}");
    }
}

// Ours: the fetch has to wait only for the target of its redirect.
#[tokio::test]
async fn a_client_that_closed_cancels_its_robots_txt_fetch_once_that_waits() {
    let gate = Gate::shut();
    let hop = Page::redirect("/rules").after(&gate);
    let rules = Page::text("User-agent: *\nCrawl-delay: 4\n");
    let script = Script::robots_page(hop).page("/rules", rules);
    let (origin, proxy) = standard_site(script).await;
    gate.open(1);
    assert_eq!(get(&proxy, "http://o.test/first").await.status(), 200);
    let mut crawler = asking(&proxy, "http://o.test/1").await;
    until("its robots.txt under way", async || {
        (origin.robots_fetches() == 2).then_some(())
    })
    .await;
    crawler.finish_sending().await;
    let begun = clock::instant();
    gate.open(1);
    assert_later(&crawler.reply_to("GET").await, "crawl_delay");
    assert!(clock::since(begun) < ms(3500));
    verified(proxy, 2).await;
}

// Ours: a crawler that hangs up cancels its own exchange and nothing else.
#[tokio::test]
async fn a_shared_robots_txt_fetch_continues_when_one_client_closes() {
    let (origin, proxy) = standard_site(delaying("2")).await;
    assert_eq!(get(&proxy, "http://o.test/first").await.status(), 200);
    let mut gone = asking(&proxy, "http://o.test/1").await;
    robots_waiting(&proxy, 1).await;
    let mut stays = asking(&proxy, "http://o.test/2").await;
    gone.finish_sending().await;
    assert_later(&gone.reply_to("GET").await, "crawl_delay");
    assert_eq!(stays.reply_to("GET").await.status(), 200);
    assert_eq!(origin.targets(), ["/first", "/2"]);
    verified(proxy, 3).await;
}

/// Waits until `count` robots.txt fetches are in flight or queued.
async fn robots_waiting(proxy: &Proxy, count: u32) {
    metric_is(proxy, "politesse_robots_waiting", count.into()).await;
}

// RFC 9113, section 5.4.1: the end of a connection ends its streams.
#[tokio::test]
async fn closing_an_http2_connection_removes_its_streams_from_the_queue() {
    let (origin, proxy) = after_one("https", delaying("60")).await;
    let raw = Crawler::connect(&proxy, "o.test:443").await.into_stream();
    let config = certificates::client(&proxy.ca(), &["h2"]);
    let name = "o.test".try_into().unwrap();
    let connecting = tokio_rustls::TlsConnector::from(config).connect(name, raw);
    let mut stream = connecting.await.unwrap();
    let fields = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "o.test"),
        (":path", "/gone"),
        ("user-agent", "GoneBot/1.0"),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
    frames::send(&mut stream, &fields).await;
    queue(&proxy, 1).await;
    stream.shutdown().await.unwrap();
    queue(&proxy, 0).await;
    assert_eq!(origin.targets(), ["/first"]);
    drop(stream);
    verified(proxy, 1).await;
}
