//! What holding back a page's head may cost: time, bytes, memory. A bound that
//! is met is told in the annotation, and the page arrives whole
//! (ARCHITECTURE.md, invariant 8).

use std::time::Duration;

use tokio::time::timeout;

use crate::kit::client::{Crawler, End, Head, get, metrics};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::raw_origin::{Bytes, RawOrigin};
use crate::kit::told::told;
use crate::kit::{run, sha256, soon, until};

const REQUEST: &[u8] =
    b"GET http://o.test/a HTTP/1.1\r\nHost: o.test\r\nUser-Agent: ExampleBot/1.0\r\n\r\n";

/// The `directives.hold_time` of a test.
const HOLD_TIME: Duration = Duration::from_millis(600);

/// Default of `directives.hold_time`.
const HOLD_TIME_USUAL: Duration = Duration::from_secs(5);

/// Never met by a test that passes.
const HOLD_LONG: &str = "directives.hold_time = \"60s\"";

async fn asked(proxy: &Proxy) -> Crawler {
    let mut crawler = Crawler::plain(proxy).await;
    crawler.send(REQUEST).await;
    crawler
}

/// Why the annotation is not complete; empty if it is.
fn why(head: &Head) -> String {
    let told = told(head.value("robots-directives"));
    told[0].why.clone()
}

/// Bytes that pages hold back now.
async fn held(proxy: &Proxy) -> u64 {
    let text = metrics(proxy).await;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix("politesse_directives_hold_total "));
    value.unwrap().parse().unwrap()
}

async fn nothing_is_held(proxy: &Proxy) {
    until("budget given back", async || {
        (held(proxy).await == 0).then_some(())
    })
    .await;
}

async fn something_is_held(proxy: &Proxy) {
    until("page held back", async || {
        (held(proxy).await > 0).then_some(())
    })
    .await;
}

/// Returns an HTML page of chunks that wait for `gate`.
fn stepped(chunks: &[&str], gate: &Gate) -> Page {
    Page::stepped(chunks, gate).field("Content-Type", "text/html")
}

// Ours: the flush is immediate, and what comes later is not held back again.
#[tokio::test]
async fn a_stall_in_the_head_costs_the_hold_time_and_no_more() {
    let gate = Gate::shut();
    let chunks = [
        "<head><meta name=robots content=noai>",
        "<title>",
        "</title>",
    ];
    let (_origin, proxy) = site(
        Script::robots("").page("/a", stepped(&chunks, &gate)),
        &["directives.hold_time = \"600ms\""],
    )
    .await;
    let mut crawler = asked(&proxy).await;
    assert!(timeout(HOLD_TIME / 4, crawler.head()).await.is_err());
    let head = timeout(HOLD_TIME_USUAL, crawler.head()).await;
    let head = head.unwrap().unwrap();
    assert_eq!(
        head.value("robots-directives"),
        "examplebot=(noai;src=m);state=partial;why=time"
    );
    // Each step is let go when the one before has arrived.
    let mut seen = 0;
    for chunk in chunks {
        seen += chunk.len() + format!("{:x}\r\n\r\n", chunk.len()).len();
        crawler.peek(seen).await;
        gate.open(1);
    }
    let mut body = Vec::new();
    let take = |bytes: &[u8]| body.extend_from_slice(bytes);
    assert_eq!(crawler.body(&head, take).await, End::Whole);
    assert_eq!(body, chunks.concat().as_bytes());
}

// Ours: hold_time is for pages alone, from the first byte of the response on:
// an origin slow to answer is not cut short.
#[tokio::test]
async fn the_wait_for_an_answer_is_not_taken_off_the_hold_time() {
    let gate = Gate::shut();
    let page = Page::html("<head><meta name=robots content=noai></head><body>").after(&gate);
    let (origin, proxy) = site(
        Script::robots("").page("/a", page),
        &["directives.hold_time = \"500ms\""],
    )
    .await;
    let mut crawler = asked(&proxy).await;
    origin.arrival("/a").await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    gate.open(1);
    let head = crawler.head().await.unwrap();
    assert_eq!(why(&head), "");
}

// Ours: directives.hold_bytes.
#[tokio::test]
async fn no_more_of_a_page_is_held_back_than_configured() {
    let gate = Gate::shut();
    let first = format!("<head><title>{}", "x".repeat(5000));
    let page = stepped(&[&first, "</title></head>"], &gate);
    let (_origin, proxy) = site(
        Script::robots("").page("/a", page),
        &[HOLD_LONG, "directives.hold_bytes = \"4KiB\""],
    )
    .await;
    let mut crawler = asked(&proxy).await;
    let head = crawler.head().await.unwrap();
    assert_eq!(why(&head), "head-limit");
    crawler.peek(first.len()).await;
    gate.open(1);
    assert_eq!(crawler.body(&head, |_| ()).await, End::Whole);
    nothing_is_held(&proxy).await;
}

// Ours: directives.scan_limit, decoded bytes.
#[tokio::test]
async fn no_more_of_a_page_is_read_than_configured() {
    let gate = Gate::shut();
    let first = format!("<head><title>{}", "x".repeat(5000));
    let page = stepped(&[&first, "</title></head>"], &gate);
    let (_origin, proxy) = site(
        Script::robots("").page("/a", page),
        &[HOLD_LONG, "directives.scan_limit = \"1KiB\""],
    )
    .await;
    let mut crawler = asked(&proxy).await;
    let head = crawler.head().await.unwrap();
    assert_eq!(why(&head), "head-limit");
    gate.open(1);
    assert_eq!(crawler.body(&head, |_| ()).await, End::Whole);
}

// Config: 0B leaves pages unread, so their first byte is not waited for.
#[tokio::test]
async fn a_bound_of_nothing_holds_nothing_back() {
    for key in ["hold_bytes", "scan_limit"] {
        let gate = Gate::shut();
        // The origin sends its head, and then waits.
        let page = stepped(&["", "<head></head>"], &gate);
        let (_origin, proxy) = site(
            Script::robots("").page("/a", page),
            &[HOLD_LONG, &format!("directives.{key} = \"0B\"")],
        )
        .await;
        let mut crawler = asked(&proxy).await;
        let head = crawler.head().await.unwrap();
        assert_eq!(why(&head), "head-limit", "{key}");
        gate.open(1);
        assert_eq!(crawler.body(&head, |_| ()).await, End::Whole);
    }
}

// Ours: a global budget that degrades to `partial`.
#[tokio::test]
async fn a_page_without_room_in_the_budget_goes_on_unread() {
    for total in ["0B", "1KiB"] {
        let gate = Gate::shut();
        let page = stepped(&["<head>", "</head>"], &gate);
        let (_origin, proxy) = site(
            Script::robots("").page("/a", page),
            &[HOLD_LONG, &format!("directives.hold_total = \"{total}\"")],
        )
        .await;
        let mut crawler = asked(&proxy).await;
        // The second chunk is not needed for this.
        let head = crawler.head().await.unwrap();
        assert_eq!(
            head.value("robots-directives"),
            "examplebot=();state=partial;why=memory"
        );
        gate.open(1);
        let mut body = Vec::new();
        let take = |bytes: &[u8]| body.extend_from_slice(bytes);
        assert_eq!(crawler.body(&head, take).await, End::Whole);
        assert_eq!(body, b"<head></head>");
        assert_eq!(held(&proxy).await, 0);
    }
}

// Ours: the gauge of the bound's name (ARCHITECTURE.md, invariant 8).
#[tokio::test]
async fn the_budget_is_given_back_when_a_page_has_passed() {
    let gate = Gate::shut();
    let page = stepped(&["<head><title>", "</title></head><body>", "end"], &gate);
    let (_origin, proxy) = site(Script::robots("").page("/a", page), &[HOLD_LONG]).await;
    let mut crawler = asked(&proxy).await;
    something_is_held(&proxy).await;
    gate.open(1);
    let head = crawler.head().await.unwrap();
    assert_eq!(why(&head), "");
    // All that was held back is on its way, and the page has not ended.
    nothing_is_held(&proxy).await;
    gate.open(1);
    assert_eq!(crawler.body(&head, |_| ()).await, End::Whole);
}

/// Returns a page that is held back until the gate opens, and what comes after
/// it.
fn half_a_page(gate: &Gate) -> Page {
    stepped(&["<head><title>", "</title></head><body>"], gate)
}

// Ours: the same where nobody waits for the page any more.
#[tokio::test]
async fn the_budget_is_given_back_when_the_crawler_is_gone() {
    let gate = Gate::shut();
    let (_origin, proxy) = site(
        Script::robots("").page("/a", half_a_page(&gate)),
        &[HOLD_LONG],
    )
    .await;
    let mut crawler = Crawler::abrupt(&proxy).await;
    crawler.send(REQUEST).await;
    something_is_held(&proxy).await;
    drop(crawler);
    nothing_is_held(&proxy).await;
}

// Ours: over HTTP/2 a stream is reset, and the connection stays.
#[tokio::test]
async fn the_budget_is_given_back_when_a_stream_is_reset() {
    let gate = Gate::shut();
    let script = Script::robots("").page("/a", half_a_page(&gate));
    let (_origin, proxy) = site(script.tls(), &[HOLD_LONG]).await;
    let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    tokio::select! {
        reply = crawler.get("https://o.test/a") => panic!("{reply:?}"),
        () = something_is_held(&proxy) => {}
    }
    nothing_is_held(&proxy).await;
    assert_eq!(crawler.get("https://o.test/b").await.status(), 200);
}

// A crawler that closes its side may still read (RFC 9112, section 9.6), so
// hold_time is what bounds this.
#[tokio::test]
async fn the_budget_is_given_back_after_the_hold_time_when_the_crawler_hangs_up() {
    let gate = Gate::shut();
    let (origin, proxy) = site(
        Script::robots("").page("/a", half_a_page(&gate)),
        &["directives.hold_time = \"200ms\""],
    )
    .await;
    let crawler = asked(&proxy).await;
    origin.arrival("/a").await;
    drop(crawler);
    let counted = "politesse_annotations_total{state=\"partial\",why=\"time\"} 1";
    until("page let go", async || {
        metrics(&proxy).await.contains(counted).then_some(())
    })
    .await;
    nothing_is_held(&proxy).await;
}

// Ours: the same where it reads no further than the head.
#[tokio::test]
async fn the_budget_is_given_back_when_the_crawler_stops_reading() {
    // More than the sockets between them take in.
    let page = Page::html(&format!("<head><style>{}", "x".repeat(15_000_000)));
    let (_origin, proxy) = site(
        Script::robots("").page("/a", page),
        &[
            HOLD_LONG,
            "directives.scan_limit = \"16MiB\"",
            "directives.hold_bytes = \"16MiB\"",
        ],
    )
    .await;
    let mut crawler = asked(&proxy).await;
    let head = crawler.head().await.unwrap();
    assert_eq!(head.value("content-length"), "15000013");
    assert!(held(&proxy).await > 0);
    drop(crawler);
    nothing_is_held(&proxy).await;
}

/// Returns the most memory the proxy ever had, in KiB.
fn peak_kib(proxy: &Proxy) -> u64 {
    proxy.memory_kib("VmHWM")
}

/// Returns a chunked page whose head comes byte by byte.
fn dripping(bytes: usize) -> Vec<u8> {
    let mut page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n<title>\r\n".to_vec();
    for _ in 0..bytes {
        page.extend_from_slice(b"1\r\nx\r\n");
    }
    page.extend_from_slice(b"0\r\n\r\n");
    page
}

const DRIPS: usize = 20_000;
const DRIPPING: usize = 4;

/// Growth that these pages may cost together, buffers of sockets included, in
/// KiB. That small pieces are put together, `hold.rs` tests itself.
const GROWTH_MAX_KIB: u64 = 12 * 1024;

// Ours: held memory is bounded by bytes, however they come.
#[tokio::test]
async fn a_page_that_drips_is_held_back_in_little_more_than_its_bytes() {
    let origin = RawOrigin::with("", Bytes::of(&dripping(DRIPS))).await;
    let config = resolve("o.test", origin.address()).set(HOLD_LONG);
    let proxy = config.start().await;
    get(&proxy, "http://o.test/a").await;
    let before = peak_kib(&proxy);
    let mut crawlers = Vec::new();
    for _ in 0..DRIPPING {
        crawlers.push(asked(&proxy).await);
    }
    for mut crawler in crawlers {
        let reply = crawler.reply_to("GET").await;
        assert_eq!(why(&reply.head), "");
        assert_eq!(reply.body.len(), DRIPS + "<title>".len());
    }
    let after = peak_kib(&proxy);
    assert!(
        after < before + GROWTH_MAX_KIB,
        "{before} KiB to {after} KiB"
    );
}

// Ours: never an error, however many pages there are.
#[test]
fn many_pages_at_once_arrive_whole_within_the_budget() {
    const PAGES: usize = 200;
    const TOTAL: u64 = 1024 * 1024;
    run(async {
        let gate = Gate::shut();
        let first = format!("<head><title>{}", "x".repeat(20_000));
        let page = stepped(&[&first, "</title></head>", "<body>"], &gate);
        let (origin, proxy) = site(
            Script::robots("").page("/a", page),
            &[HOLD_LONG, "directives.hold_total = \"1MiB\""],
        )
        .await;
        let mut crawlers = Vec::new();
        for _ in 0..PAGES {
            crawlers.push(asked(&proxy).await);
        }
        until("all pages", async || {
            (origin.targets().len() == PAGES).then_some(())
        })
        .await;
        assert!(held(&proxy).await <= TOTAL);
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
        nothing_is_held(&proxy).await;
    });
}

// Ours: a meta that is made so is read once, not once for each name in it. It would hold
// up whoever shares the processor for longer than any answer is waited for.
#[tokio::test]
async fn a_meta_of_names_without_values_holds_nobody_up() {
    for name in [":", "=", "a:"] {
        let content = name.repeat(220_000 / name.len()) + &" ".repeat(220_000);
        let page = format!("<meta name=robots content=\"{content}\"><body>");
        let (_origin, proxy) = site(Script::robots("").page("/a", Page::html(&page)), &[]).await;
        let reply = soon("an answer", get(&proxy, "http://o.test/a")).await;
        assert_eq!(reply.body.len(), page.len());
    }
}
