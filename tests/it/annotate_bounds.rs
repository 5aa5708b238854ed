//! Limits on holding back a page's head: time, bytes and memory. If a limit is reached,
//! the annotation names it and the page still arrives whole (ARCHITECTURE.md, invariant
//! 8).

use tokio::time::timeout;

use crate::kit::client::{Crawler, Head, get};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::paced::{metric, ms, until_metric};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::Proxy;
use crate::kit::told::told;
use crate::kit::{sha256, soon, until};

/// A hold time that no passing test reaches.
const HOLD_LONG: &str = "directives.hold_time = \"60s\"";

async fn send_request(proxy: &Proxy) -> Crawler {
    let mut crawler = Crawler::plain(proxy).await;
    crawler.start_get("http://o.test/a", "o.test").await;
    crawler
}

/// Returns why the annotation is incomplete, or an empty text.
fn why(head: &Head) -> String {
    let told = told(head.value("robots-directives"));
    told[0].why.clone()
}

/// Metric of the bytes that are held back at present.
const HELD: &str = "politesse_directives_hold_total";

async fn wait_until_freed(proxy: &Proxy) {
    until_metric(proxy, HELD, |bytes| bytes == 0.0).await;
}

async fn wait_until_held(proxy: &Proxy) {
    until_metric(proxy, HELD, |bytes| 0.0 < bytes).await;
}

/// Returns an HTML page whose chunks after the first wait for `gate`.
fn stepped_page(chunks: &[&str], gate: &Gate) -> Page {
    Page::stepped(chunks, gate).field("Content-Type", "text/html")
}

// Ours: after the hold time everything is sent on, and later bytes are not held back.
#[tokio::test]
async fn a_stalled_page_head_is_sent_on_after_hold_time() {
    let gate = Gate::shut();
    let meta = "<head><meta name=robots content=noai>";
    let chunks = [meta, "<title>", "</title>"];
    let script = Script::robots("").page("/a", stepped_page(&chunks, &gate));
    let (_origin, proxy) = site(script, &["directives.hold_time = \"600ms\""]).await;
    let mut crawler = send_request(&proxy).await;
    assert!(timeout(ms(150), crawler.head()).await.is_err());
    // By default the page would be held for 5 s.
    let head = timeout(ms(5000), crawler.head()).await;
    let head = head.unwrap().unwrap();
    let value = head.value("robots-directives");
    assert_eq!(value, "examplebot=(noai;src=m);state=partial;why=time");
    // Open each step only after the chunk before it has arrived.
    let mut seen = 0;
    for chunk in chunks {
        seen += chunk.len() + format!("{:x}\r\n\r\n", chunk.len()).len();
        crawler.peek(seen).await;
        gate.open(1);
    }
    let body = crawler.whole_body(&head).await;
    assert_eq!(body, chunks.concat().as_bytes());
}

// Ours: a page of a slow origin is read, too.
#[tokio::test]
async fn hold_time_begins_with_the_first_byte_of_the_response() {
    let gate = Gate::shut();
    let page = Page::html("<head><meta name=robots content=noai></head><body>").after(&gate);
    let script = Script::robots("").page("/a", page);
    let (origin, proxy) = site(script, &["directives.hold_time = \"500ms\""]).await;
    let mut crawler = send_request(&proxy).await;
    origin.arrival("/a").await;
    // Proof of absence: longer than `hold_time`, which must not run yet.
    tokio::time::sleep(ms(600)).await;
    gate.open(1);
    let head = crawler.head().await.unwrap();
    assert_eq!(why(&head), "");
}

// Ours: hold_bytes, scan_limit, which counts decoded bytes, and hold_total, the budget for
// all pages. With a limit of 0B, the head of a response does not wait for its body.
#[tokio::test]
async fn a_page_over_a_byte_limit_is_sent_on_as_partial() {
    let title = format!("<head><title>{}", "x".repeat(5000));
    for (limit, first, why) in [
        ("hold_bytes = \"4KiB\"", &*title, "head-limit"),
        ("scan_limit = \"1KiB\"", &title, "head-limit"),
        ("hold_bytes = \"0B\"", "", "head-limit"),
        ("scan_limit = \"0B\"", "", "head-limit"),
        ("hold_total = \"1KiB\"", "<head><title>", "memory"),
        ("hold_total = \"0B\"", "<head><title>", "memory"),
    ] {
        let gate = Gate::shut();
        let page = stepped_page(&[first, "</title></head>"], &gate);
        let script = Script::robots("").page("/a", page);
        let (_origin, proxy) = site(script, &[HOLD_LONG, &format!("directives.{limit}")]).await;
        let mut crawler = send_request(&proxy).await;
        // The head arrives although the gate still holds back the second chunk.
        let head = crawler.head().await.unwrap();
        let annotation = format!("examplebot=();state=partial;why={why}");
        assert_eq!(head.value("robots-directives"), annotation, "{limit}");
        crawler.peek(first.len()).await;
        gate.open(1);
        let body = crawler.whole_body(&head).await;
        assert_eq!(
            body,
            format!("{first}</title></head>").as_bytes(),
            "{limit}"
        );
        wait_until_freed(&proxy).await;
    }
}

// Ours: a gauge shows the use of the budget (ARCHITECTURE.md, invariant 8).
#[tokio::test]
async fn a_page_is_held_back_until_its_head_ends_and_then_streamed() {
    let gate = Gate::shut();
    // After </head>, HTML may still have a <meta> that belongs to the head; <body> ends it.
    let head_end = "<meta name=robots content=noindex></head><body>";
    let chunks = ["<head><title>x</title>", head_end, "end"];
    let script = Script::robots("").page("/a", stepped_page(&chunks, &gate));
    let (_origin, proxy) = site(script, &[HOLD_LONG]).await;
    let mut crawler = send_request(&proxy).await;
    wait_until_held(&proxy).await;
    gate.open(1);
    let head = crawler.head().await.unwrap();
    let value = head.value("robots-directives");
    assert_eq!(value, "examplebot=(noindex;src=m);state=complete");
    // The held bytes have been sent on, but the page has not ended yet.
    wait_until_freed(&proxy).await;
    gate.open(1);
    let body = crawler.whole_body(&head).await;
    assert_eq!(body, chunks.concat().as_bytes());
}

/// Returns a page of which only the beginning of its head arrives.
fn half_a_page() -> Page {
    stepped_page(&["<head><title>", "</title></head><body>"], &Gate::shut())
}

// Ours: a reset connection frees the budget at once.
#[tokio::test]
async fn the_budget_is_freed_when_the_connection_is_reset() {
    let script = Script::robots("").page("/a", half_a_page());
    let (_origin, proxy) = site(script, &[HOLD_LONG]).await;
    let mut crawler = Crawler::abrupt(&proxy).await;
    crawler.start_get("http://o.test/a", "o.test").await;
    wait_until_held(&proxy).await;
    drop(crawler);
    wait_until_freed(&proxy).await;
}

// Ours: a reset stream frees the budget, and its HTTP/2 connection stays usable.
#[tokio::test]
async fn the_budget_is_freed_when_a_stream_is_reset() {
    let script = Script::robots("").page("/a", half_a_page());
    let (_origin, proxy) = site(script.tls(), &[HOLD_LONG]).await;
    let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    tokio::select! {
        reply = crawler.get("https://o.test/a") => panic!("{reply:?}"),
        () = wait_until_held(&proxy) => {}
    }
    wait_until_freed(&proxy).await;
    assert_eq!(crawler.get("https://o.test/b").await.status(), 200);
}

// A crawler that closes its side may still read (RFC 9112, section 9.6), so only
// hold_time limits this.
#[tokio::test]
async fn the_budget_is_freed_by_hold_time_after_the_crawler_hangs_up() {
    let script = Script::robots("").page("/a", half_a_page());
    let (origin, proxy) = site(script, &["directives.hold_time = \"200ms\""]).await;
    let crawler = send_request(&proxy).await;
    origin.arrival("/a").await;
    drop(crawler);
    let sent_on = "politesse_annotations_total{state=\"partial\",why=\"time\"}";
    until_metric(&proxy, sent_on, |pages| pages == 1.0).await;
    wait_until_freed(&proxy).await;
}

// Ours: the crawler reads only the head, then disconnects.
#[tokio::test]
async fn the_budget_is_freed_when_the_crawler_leaves_after_the_head() {
    // More than the socket buffers hold.
    let page = Page::html(&format!("<head><style>{}", "x".repeat(15_000_000)));
    let limits = ["scan_limit", "hold_bytes"].map(|key| format!("directives.{key} = \"16MiB\""));
    let script = Script::robots("").page("/a", page);
    let (_origin, proxy) = site(script, &[HOLD_LONG, &limits[0], &limits[1]]).await;
    let mut crawler = send_request(&proxy).await;
    let head = crawler.head().await.unwrap();
    assert_eq!(head.value("content-length"), "15000013");
    assert!(metric(&proxy, HELD).await > 0.0);
    drop(crawler);
    wait_until_freed(&proxy).await;
}

// Ours: a full budget causes no error, however many pages there are.
#[tokio::test]
async fn many_concurrent_pages_arrive_whole_within_the_budget() {
    const PAGES: usize = 200;
    let gate = Gate::shut();
    let first = format!("<head><title>{}", "x".repeat(20_000));
    let page = stepped_page(&[&first, "</title></head>", "<body>"], &gate);
    let script = Script::robots("").page("/a", page);
    let (origin, proxy) = site(script, &[HOLD_LONG, "directives.hold_total = \"1MiB\""]).await;
    let mut crawlers = Vec::new();
    for _ in 0..PAGES {
        crawlers.push(send_request(&proxy).await);
    }
    until("request for each page", async || {
        (origin.targets().len() == PAGES).then_some(())
    })
    .await;
    assert!(metric(&proxy, HELD).await <= 1024.0 * 1024.0);
    gate.open(2 * PAGES);
    let whole = sha256(format!("{first}</title></head><body>").as_bytes());
    let mut unread = 0;
    for mut crawler in crawlers {
        let reply = crawler.reply_to("GET").await;
        assert_eq!(sha256(&reply.body), whole);
        let why = why(&reply.head);
        assert!(["", "memory"].contains(&why.as_str()), "{why}");
        unread += usize::from(why == "memory");
    }
    assert!(0 < unread && unread < PAGES, "{unread}");
    wait_until_freed(&proxy).await;
}

// Ours: a scan for each name would block other requests on the same processor.
#[tokio::test]
async fn a_meta_of_names_without_values_is_read_in_linear_time() {
    for name in [":", "=", "a:"] {
        let content = name.repeat(220_000 / name.len()) + &" ".repeat(220_000);
        let page = format!("<meta name=robots content=\"{content}\"><body>");
        let (_origin, proxy) = site(Script::robots("").page("/a", Page::html(&page)), &[]).await;
        let reply = soon("an answer", get(&proxy, "http://o.test/a")).await;
        assert_eq!(reply.body.len(), page.len(), "{name}");
    }
}
