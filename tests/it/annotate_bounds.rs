//! Limits on holding back a page's head: time, bytes and memory. If a limit is reached,
//! the annotation names it and the page still arrives whole (ARCHITECTURE.md, invariant
//! 8).

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

/// Value of `directives.hold_time` in tests that set it to 600ms.
const HOLD_TIME: Duration = Duration::from_millis(600);

/// Default of `directives.hold_time`.
const HOLD_TIME_DEFAULT: Duration = Duration::from_secs(5);

/// A hold time that no passing test reaches.
const HOLD_LONG: &str = "directives.hold_time = \"60s\"";

async fn send_request(proxy: &Proxy) -> Crawler {
    let mut crawler = Crawler::plain(proxy).await;
    crawler.send(REQUEST).await;
    crawler
}

/// Returns why the annotation is incomplete, or an empty text.
fn why(head: &Head) -> String {
    let told = told(head.value("robots-directives"));
    told[0].why.clone()
}

/// Returns the number of bytes that are held back at present.
async fn held_bytes(proxy: &Proxy) -> u64 {
    let text = metrics(proxy).await;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix("politesse_directives_hold_total "));
    value.unwrap().parse().unwrap()
}

async fn wait_until_freed(proxy: &Proxy) {
    until("free budget", async || {
        (held_bytes(proxy).await == 0).then_some(())
    })
    .await;
}

async fn wait_until_held(proxy: &Proxy) {
    until("page held back", async || {
        (held_bytes(proxy).await > 0).then_some(())
    })
    .await;
}

/// Returns an HTML page whose chunks after the first wait for `gate`.
fn stepped_page(chunks: &[&str], gate: &Gate) -> Page {
    Page::stepped(chunks, gate).field("Content-Type", "text/html")
}

// Ours: after the hold time everything is sent on, and later bytes are not held back.
#[tokio::test]
async fn a_stalled_page_head_is_sent_on_after_hold_time() {
    let gate = Gate::shut();
    let chunks = [
        "<head><meta name=robots content=noai>",
        "<title>",
        "</title>",
    ];
    let script = Script::robots("").page("/a", stepped_page(&chunks, &gate));
    let (_origin, proxy) = site(script, &["directives.hold_time = \"600ms\""]).await;
    let mut crawler = send_request(&proxy).await;
    assert!(timeout(HOLD_TIME / 4, crawler.head()).await.is_err());
    let head = timeout(HOLD_TIME_DEFAULT, crawler.head()).await;
    let head = head.unwrap().unwrap();
    assert_eq!(
        head.value("robots-directives"),
        "examplebot=(noai;src=m);state=partial;why=time"
    );
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

// Ours: hold_time begins with the first byte of the response, so a slow origin still gets
// its page read.
#[tokio::test]
async fn hold_time_begins_with_the_first_byte_of_the_response() {
    let gate = Gate::shut();
    let page = Page::html("<head><meta name=robots content=noai></head><body>").after(&gate);
    let script = Script::robots("").page("/a", page);
    let (origin, proxy) = site(script, &["directives.hold_time = \"500ms\""]).await;
    let mut crawler = send_request(&proxy).await;
    origin.arrival("/a").await;
    // Proof of absence: longer than `hold_time`, which must not run yet.
    tokio::time::sleep(Duration::from_millis(600)).await;
    gate.open(1);
    let head = crawler.head().await.unwrap();
    assert_eq!(why(&head), "");
}

// Ours: directives.hold_bytes, and directives.scan_limit, which counts decoded bytes.
#[tokio::test]
async fn a_page_head_over_a_byte_limit_is_sent_on_as_partial() {
    for limit in ["hold_bytes = \"4KiB\"", "scan_limit = \"1KiB\""] {
        let gate = Gate::shut();
        let first = format!("<head><title>{}", "x".repeat(5000));
        let page = stepped_page(&[&first, "</title></head>"], &gate);
        let script = Script::robots("").page("/a", page);
        let (_origin, proxy) = site(script, &[HOLD_LONG, &format!("directives.{limit}")]).await;
        let mut crawler = send_request(&proxy).await;
        let head = crawler.head().await.unwrap();
        assert_eq!(why(&head), "head-limit", "{limit}");
        crawler.peek(first.len()).await;
        gate.open(1);
        assert_eq!(crawler.body(&head, |_| ()).await, End::Whole, "{limit}");
        wait_until_freed(&proxy).await;
    }
}

// A limit of 0B leaves pages unread, so the head is sent without waiting for the body.
#[tokio::test]
async fn a_limit_of_zero_holds_nothing_back() {
    for key in ["hold_bytes", "scan_limit"] {
        let gate = Gate::shut();
        // The origin sends the fields, and then waits.
        let page = stepped_page(&["", "<head></head>"], &gate);
        let script = Script::robots("").page("/a", page);
        let (_origin, proxy) =
            site(script, &[HOLD_LONG, &format!("directives.{key} = \"0B\"")]).await;
        let mut crawler = send_request(&proxy).await;
        let head = crawler.head().await.unwrap();
        assert_eq!(why(&head), "head-limit", "{key}");
        gate.open(1);
        assert_eq!(crawler.body(&head, |_| ()).await, End::Whole);
    }
}

// Ours: pages beyond the budget for all pages are passed on unread.
#[tokio::test]
async fn a_page_over_the_budget_passes_unread() {
    for total in ["0B", "1KiB"] {
        let gate = Gate::shut();
        let page = stepped_page(&["<head>", "</head>"], &gate);
        let (_origin, proxy) = site(
            Script::robots("").page("/a", page),
            &[HOLD_LONG, &format!("directives.hold_total = \"{total}\"")],
        )
        .await;
        let mut crawler = send_request(&proxy).await;
        // The head arrives although the gate still holds back the second chunk.
        let head = crawler.head().await.unwrap();
        assert_eq!(
            head.value("robots-directives"),
            "examplebot=();state=partial;why=memory"
        );
        gate.open(1);
        let body = crawler.whole_body(&head).await;
        assert_eq!(body, b"<head></head>");
        assert_eq!(held_bytes(&proxy).await, 0);
    }
}

// Ours: a gauge shows the use of the budget (ARCHITECTURE.md, invariant 8).
#[tokio::test]
async fn the_budget_is_freed_when_a_page_is_sent_on() {
    let gate = Gate::shut();
    let page = stepped_page(&["<head><title>", "</title></head><body>", "end"], &gate);
    let (_origin, proxy) = site(Script::robots("").page("/a", page), &[HOLD_LONG]).await;
    let mut crawler = send_request(&proxy).await;
    wait_until_held(&proxy).await;
    gate.open(1);
    let head = crawler.head().await.unwrap();
    assert_eq!(why(&head), "");
    // The held bytes have been sent on, but the page has not ended yet.
    wait_until_freed(&proxy).await;
    gate.open(1);
    assert_eq!(crawler.body(&head, |_| ()).await, End::Whole);
}

/// Returns a page that is held back until the gate opens.
fn half_a_page(gate: &Gate) -> Page {
    stepped_page(&["<head><title>", "</title></head><body>"], gate)
}

// Ours: a reset connection frees the budget at once.
#[tokio::test]
async fn the_budget_is_freed_when_the_connection_is_reset() {
    let gate = Gate::shut();
    let script = Script::robots("").page("/a", half_a_page(&gate));
    let (_origin, proxy) = site(script, &[HOLD_LONG]).await;
    let mut crawler = Crawler::abrupt(&proxy).await;
    crawler.send(REQUEST).await;
    wait_until_held(&proxy).await;
    drop(crawler);
    wait_until_freed(&proxy).await;
}

// Ours: a reset stream frees the budget, and its HTTP/2 connection stays usable.
#[tokio::test]
async fn the_budget_is_freed_when_a_stream_is_reset() {
    let gate = Gate::shut();
    let script = Script::robots("").page("/a", half_a_page(&gate));
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
    let gate = Gate::shut();
    let script = Script::robots("").page("/a", half_a_page(&gate));
    let (origin, proxy) = site(script, &["directives.hold_time = \"200ms\""]).await;
    let crawler = send_request(&proxy).await;
    origin.arrival("/a").await;
    drop(crawler);
    let counted = "politesse_annotations_total{state=\"partial\",why=\"time\"} 1";
    until("page sent on by hold_time", async || {
        metrics(&proxy).await.contains(counted).then_some(())
    })
    .await;
    wait_until_freed(&proxy).await;
}

// Ours: the crawler reads only the head, then disconnects.
#[tokio::test]
async fn the_budget_is_freed_when_the_crawler_leaves_after_the_head() {
    // More than the socket buffers hold.
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
    let mut crawler = send_request(&proxy).await;
    let head = crawler.head().await.unwrap();
    assert_eq!(head.value("content-length"), "15000013");
    assert!(held_bytes(&proxy).await > 0);
    drop(crawler);
    wait_until_freed(&proxy).await;
}

/// Returns the highest memory use of the proxy so far, in KiB.
fn peak_kib(proxy: &Proxy) -> u64 {
    proxy.memory_kib("VmHWM")
}

/// Returns a chunked response whose page comes one byte per chunk.
fn one_byte_per_chunk(bytes: usize) -> Vec<u8> {
    let mut page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n<title>\r\n".to_vec();
    for _ in 0..bytes {
        page.extend_from_slice(b"1\r\nx\r\n");
    }
    page.extend_from_slice(b"0\r\n\r\n");
    page
}

const TINY_CHUNKS: usize = 20_000;
const TINY_CHUNK_PAGES: usize = 4;

/// Memory growth allowed for these pages together, in KiB, socket buffers included. Unit
/// tests in `hold.rs` check that small pieces are merged.
const GROWTH_MAX_KIB: u64 = 12 * 1024;

// Ours: the memory for held pages depends on their bytes, not on the number of chunks.
#[tokio::test]
async fn a_page_of_tiny_chunks_is_held_in_little_memory() {
    let origin = RawOrigin::with("", Bytes::of(&one_byte_per_chunk(TINY_CHUNKS))).await;
    let config = resolve("o.test", origin.address()).set(HOLD_LONG);
    let proxy = config.start().await;
    get(&proxy, "http://o.test/a").await;
    let before = peak_kib(&proxy);
    let mut crawlers = Vec::new();
    for _ in 0..TINY_CHUNK_PAGES {
        crawlers.push(send_request(&proxy).await);
    }
    for mut crawler in crawlers {
        let reply = crawler.reply_to("GET").await;
        assert_eq!(why(&reply.head), "");
        assert_eq!(reply.body.len(), TINY_CHUNKS + "<title>".len());
    }
    let after = peak_kib(&proxy);
    assert!(
        after < before + GROWTH_MAX_KIB,
        "{before} KiB to {after} KiB"
    );
}

// Ours: a full budget causes no error, however many pages there are.
#[test]
fn many_concurrent_pages_arrive_whole_within_the_budget() {
    const PAGES: usize = 200;
    const TOTAL: u64 = 1024 * 1024;
    run(async {
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
        assert!(held_bytes(&proxy).await <= TOTAL);
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
    });
}

// Ours: such a meta is scanned once, not once for each name in it. A scan per name would
// block other requests on the same processor for longer than any client waits.
#[tokio::test]
async fn a_meta_of_names_without_values_is_read_in_linear_time() {
    for name in [":", "=", "a:"] {
        let content = name.repeat(220_000 / name.len()) + &" ".repeat(220_000);
        let page = format!("<meta name=robots content=\"{content}\"><body>");
        let (_origin, proxy) = site(Script::robots("").page("/a", Page::html(&page)), &[]).await;
        let reply = soon("an answer", get(&proxy, "http://o.test/a")).await;
        assert_eq!(reply.body.len(), page.len());
    }
}
