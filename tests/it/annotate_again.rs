//! Annotations of responses without a whole page: not modified, partial, empty or cut
//! short.

use serde_json::Value;

use crate::kit::client::{Crawler, End, Reply, ask, get};
use crate::kit::codings::coded;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::raw_origin::{Bytes, RawOrigin};
use crate::kit::sha256;
use crate::kit::told::{Told, told};

const AGENT: &str = "User-Agent: ExampleBot/1.0";
const NOINDEX: &str = "<html><head><meta name=robots content=noindex></head><body>";
const CUT: &str = "<head><meta name=robots content=noindex>";
const DATE: &str = "Sat, 21 Nov 2026 00:00:00 GMT";

/// Returns the single member of the annotation.
#[track_caller]
fn single_member(reply: &Reply) -> Told {
    let told = told(reply.head.value("robots-directives"));
    let [told] = &told[..] else {
        panic!("{told:?}");
    };
    told.clone()
}

/// Returns the directives of the annotation, then its state and reason.
#[track_caller]
fn summary(reply: &Reply) -> String {
    let told = single_member(reply);
    let state = [told.state, told.why].join(" ");
    format!("{} / {}", told.directives.join(" "), state.trim())
}

/// Requests `page` for a 200, then again with `fields` for a 304, and summarises the
/// annotation of the 304.
async fn summary_of_304(page: Page, unchanged: Page, fields: &[&str]) -> String {
    let script = Script::robots("").page("/a", page);
    let script = script.if_conditional("/a", unchanged.with_status(304));
    let (_origin, proxy) = site(script, &[]).await;
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
    let fields = [&[AGENT], fields].concat();
    let reply = ask(&proxy, "GET", "http://o.test/a", &fields).await;
    assert_eq!(reply.status(), 304);
    summary(&reply)
}

fn page_with_tag() -> Page {
    Page::html(NOINDEX).field("ETag", "\"a\"")
}

fn page_with_date() -> Page {
    Page::html(NOINDEX).field("Last-Modified", DATE)
}

/// Returns a 304 with the ETag `tag`.
fn not_modified_with_tag(tag: &str) -> Page {
    Page::status(304).field("ETag", tag)
}

const IF_A: &str = "If-None-Match: \"a\"";
const IF_WEAK: &str = "If-None-Match: W/\"a\"";
const IF_B: &str = "If-None-Match: \"b\"";
const IF_A_OR_B: &str = "If-None-Match: \"a\", \"b\"";

macro_rules! not_modified {
    ($($name:ident: $page:expr, $unchanged:expr, $fields:expr => $summary:literal;)*) => {$(
        #[tokio::test]
        async fn $name() {
            assert_eq!(summary_of_304($page, $unchanged, &$fields).await, $summary);
        }
    )*};
}

// draft-illyes-repext-03, section 4. Matching of validators: RFC 9110, sections 8.8.3.2,
// 13.1.2 and 15.4.5.
not_modified! {
    a_304_repeats_the_directives_of_the_page_with_its_tag:
        page_with_tag(), not_modified_with_tag("\"a\""), [IF_A] => "noindex / complete";
    a_304_repeats_the_directives_of_a_page_with_a_weak_tag:
        Page::html(NOINDEX).field("ETag", "W/\"a\""), not_modified_with_tag("W/\"a\""), [IF_WEAK]
        => "noindex / complete";
    a_304_repeats_the_directives_of_the_page_with_its_date:
        page_with_date(), Page::status(304).field("Last-Modified", DATE),
        [&format!("If-Modified-Since: {DATE}")] => "noindex / complete";
    a_304_without_a_date_stands_for_the_requested_date:
        page_with_date(), Page::status(304), [&format!("If-Modified-Since: {DATE}")]
        => "noindex / complete";
    a_cookie_that_the_proxy_drops_does_not_select_the_page:
        page_with_date(), Page::status(304),
        [&format!("If-Modified-Since: {DATE}"), "Cookie: a=1", "Connection: cookie"]
        => "noindex / complete";
    a_304_with_another_tag_repeats_nothing:
        page_with_tag(), not_modified_with_tag("\"b\""), [IF_B] => " / partial not-modified";
    a_304_to_several_tags_repeats_the_directives_of_the_tag_it_names:
        page_with_tag(), not_modified_with_tag("\"a\""), [IF_A_OR_B] => "noindex / complete";
    a_304_repeats_the_directives_in_the_fields_of_an_image:
        Page::typed("image/png", b"x").field("X-Robots-Tag", "noindex").field("ETag", "\"a\""),
        not_modified_with_tag("\"a\""), [IF_A] => "noindex / complete";
}

/// Starts a proxy whose origin has a page with a tag at `/a`, and answers 304 to
/// conditional requests there.
async fn tagged_site(lines: &[&str]) -> (Origin, Proxy) {
    let script = Script::robots("").page("/a", page_with_tag());
    let unchanged = not_modified_with_tag("\"a\"");
    site(script.if_conditional("/a", unchanged), lines).await
}

/// Requests `/a`, conditional on the tag `"a"`.
async fn ask_again(proxy: &Proxy) -> Reply {
    ask(proxy, "GET", "http://o.test/a", &[AGENT, IF_A]).await
}

// Ours: `from=@date` holds the time at which the proxy read the page.
#[tokio::test]
async fn repeated_directives_carry_the_time_the_page_was_read() {
    let (_origin, proxy) = tagged_site(&[]).await;
    let first = get(&proxy, "http://o.test/a").await;
    assert_eq!(single_member(&first).from, None);
    let mut told = Vec::new();
    for _ in 0..2 {
        let reply = ask_again(&proxy).await;
        let from = single_member(&reply).from.unwrap();
        let value = reply.head.value("robots-directives");
        let end = format!(";state=complete;from=@{from}");
        assert!(value.ends_with(&end), "{value}");
        told.push(from);
    }
    // The page was read between the first response and the second.
    let rows = proxy.place().completed(3).await;
    let time = |row: &Value| {
        let time: jiff::Timestamp = row["time"].as_str().unwrap().parse().unwrap();
        time.as_second()
    };
    let read = time(&rows[0])..=time(&rows[1]);
    let is_read = told.iter().all(|from| read.contains(from));
    assert!(is_read, "{told:?} {read:?}");
    let recorded = rows[2]["directives"]["value"].as_str().unwrap();
    let end = format!(";from=@{}", told[1]);
    assert!(recorded.ends_with(&end), "{recorded}");
}

// Ours: equal tags do not make a page known to another crawler or at another URL. There the
// annotation has only the directives of the 304 itself.
#[tokio::test]
async fn directives_are_repeated_only_for_the_same_crawler_and_url() {
    let mut script = Script::robots("").page("/a", page_with_tag());
    for path in ["/a", "/a?b", "/b"] {
        let unchanged = not_modified_with_tag("\"a\"").field("X-Robots-Tag", "nofollow");
        script = script.if_conditional(path, unchanged);
    }
    let (_origin, proxy) = site(script, &[]).await;
    get(&proxy, "http://o.test/a").await;
    let other = "User-Agent: OtherBot/1.0";
    for (url, agent) in [("/a", other), ("/a?b", AGENT), ("/b", AGENT)] {
        let url = format!("http://o.test{url}");
        let reply = ask(&proxy, "GET", &url, &[agent, IF_A]).await;
        let told = summary(&reply);
        assert_eq!(told, "nofollow / partial not-modified", "{url} {agent}");
    }
    let told = summary(&ask_again(&proxy).await);
    assert_eq!(told, "nofollow noindex / complete");
}

// Key directives.known: with 0B nothing is stored.
#[tokio::test]
async fn nothing_is_repeated_with_directives_known_at_zero() {
    let (_origin, proxy) = tagged_site(&["directives.known = \"0B\""]).await;
    get(&proxy, "http://o.test/a").await;
    let told = summary(&ask_again(&proxy).await);
    assert_eq!(told, " / partial not-modified");
}

/// Requests each page with `method`, and asserts that its annotation has the summary.
async fn assert_summaries(method: &str, rows: Vec<(Page, &str)>) {
    let mut script = Script::robots("");
    for (place, (page, _)) in rows.iter().enumerate() {
        script = script.page(&format!("/{place}"), page.clone());
    }
    let (_origin, proxy) = site(script, &[]).await;
    for (place, (_, wanted)) in rows.iter().enumerate() {
        let url = format!("http://o.test/{place}");
        let reply = ask(&proxy, method, &url, &[AGENT]).await;
        assert_eq!(summary(&reply), *wanted, "{method}, row {place}");
        assert_eq!(reply.end, End::Whole, "{method}, row {place}");
    }
}

fn partial_content(range: &str, body: &str) -> Page {
    let page = Page::html(body).with_status(206);
    page.field("Content-Range", &format!("bytes {range}"))
}

// RFC 9110, section 9.3.2.
#[tokio::test]
async fn the_response_to_head_is_complete_only_if_it_is_no_page() {
    let gif = Page::typed("image/gif", b"GIF89a").field("X-Robots-Tag", "noindex");
    // Without Content-Type the response might be a page.
    let untyped = Page::status(200).field("X-Robots-Tag", "noai");
    let rows = vec![
        (Page::html(NOINDEX), " / partial method"),
        (gif, "noindex / complete"),
        (untyped, "noai / partial method"),
    ];
    assert_summaries("HEAD", rows).await;
}

// RFC 9110, section 15.3.7.
#[tokio::test]
async fn a_response_without_the_whole_head_is_partial() {
    let gzip = coded("gzip", format!("{NOINDEX}{}", "x".repeat(99)).into());
    // Cut within the head. In a partial response the cut is no coding error.
    let cut_gzip = Page::typed("text/html", &gzip[..gzip.len() - 40])
        .with_status(206)
        .field("Content-Range", "bytes 0-99/1000")
        .field("Content-Encoding", "gzip");
    let later = partial_content("9-14/100", "x").field("X-Robots-Tag", "noai");
    let rows = vec![
        (partial_content("0-58/100", NOINDEX), "noindex / complete"),
        (partial_content("0-40/*", CUT), "noindex / partial range"),
        (cut_gzip, " / partial range"),
        (later, "noai / partial range"),
    ];
    assert_summaries("GET", rows).await;
}

// Ours: only a 2xx response is a page; of others the fields are the whole annotation.
#[tokio::test]
async fn a_response_that_is_not_2xx_is_complete_with_its_fields() {
    let with = |status: u16| {
        let page = Page::html(NOINDEX).with_status(status);
        page.field("X-Robots-Tag", "nofollow")
    };
    let empty = Page::status(204).field("X-Robots-Tag", "nofollow");
    let pages = [empty, with(404), with(410), with(503), with(301)];
    let rows = pages.map(|page| (page, "nofollow / complete"));
    assert_summaries("GET", rows.into()).await;
}

// Ours: event streams and JSON are neither held back nor read.
#[tokio::test]
async fn responses_other_than_html_are_passed_on_at_once() {
    for kind in ["text/event-stream", "application/json"] {
        let gate = Gate::shut();
        let chunks = ["data: <meta name=robots content=noindex>\n", "end"];
        let page = Page::stepped(&chunks, &gate).field("Content-Type", kind);
        // Longer than any test may take, so a response that is held back fails the test.
        let lines = ["directives.hold_time = \"60s\""];
        let (_origin, proxy) = site(Script::robots("").page("/a", page), &lines).await;
        let mut crawler = Crawler::plain(&proxy).await;
        crawler.start_get("http://o.test/a", "o.test").await;
        let head = crawler.head().await.unwrap();
        let value = head.value("robots-directives");
        assert_eq!(value, "examplebot=();state=complete");
        let first = crawler.peek(10).await;
        assert!(String::from_utf8_lossy(first).contains("data: "));
        gate.open(1);
        assert_eq!(crawler.body(&head, |_| ()).await, End::Whole);
    }
}

// Ours: the crawler's response is cut short too.
#[tokio::test]
async fn a_page_cut_short_in_its_head_is_corrupt_and_arrives_cut_short() {
    for (framing, first) in [
        ("Transfer-Encoding: chunked", format!("28\r\n{CUT}\r\n")),
        ("Content-Length: 100", CUT.to_owned()),
    ] {
        let page =
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{framing}\r\n\r\n{first}");
        let origin = RawOrigin::with("", Bytes::closing(page.as_bytes())).await;
        let proxy = resolve("o.test", origin.address()).start().await;
        let reply = get(&proxy, "http://o.test/a").await;
        assert_eq!(summary(&reply), "noindex / partial corrupt", "{framing}");
        assert_eq!(reply.end, End::Broken, "{framing}");
        assert_eq!(reply.text(), CUT, "{framing}");
    }
}

/// Returns [`NOINDEX`] as a zstd frame (RFC 8878, section 3.1.1) with one raw block, whose
/// header asks for a window of 2 to the power of `10 + exponent` bytes.
fn zstd_page(exponent: u8) -> Vec<u8> {
    let block = (NOINDEX.len() << 3 | 1).to_le_bytes();
    let head = [0x28, 0xB5, 0x2F, 0xFD, 0, exponent << 3];
    [&head, &block[..3], NOINDEX.as_bytes()].concat()
}

// Ours; RFC 9659: a zstd window is at most 8 MiB.
#[tokio::test]
async fn a_page_that_cannot_be_decoded_arrives_with_the_reason() {
    let gzip = coded("gzip", NOINDEX.into());
    let blanks = " ".repeat(600 * 1024);
    let page = format!("<head>{blanks}<meta name=robots content=noindex>");
    let bomb = coded("gzip", page.into());
    assert!(bomb.len() < 1024);
    let stacked = coded("gzip, gzip", NOINDEX.into());
    let rows = [
        ("gzip", &gzip[..20], " / partial corrupt"),
        ("gzip", &bomb, " / partial head-limit"),
        ("compress", b"\x1f\x9d\x90", " / partial coding"),
        ("gzip, gzip", &stacked, "noindex / complete"),
        ("zstd", &zstd_page(13), "noindex / complete"),
        ("zstd", &zstd_page(14), " / partial window"),
    ];
    let mut script = Script::robots("");
    for (place, (coding, bytes, _)) in rows.iter().enumerate() {
        let page = Page::typed("text/html", bytes).field("Content-Encoding", coding);
        script = script.page(&format!("/{place}"), page);
    }
    let (_origin, proxy) = site(script, &[]).await;
    for (place, (coding, bytes, wanted)) in rows.iter().enumerate() {
        let reply = get(&proxy, &format!("http://o.test/{place}")).await;
        assert_eq!(summary(&reply), *wanted, "row {place}");
        assert_eq!(sha256(&reply.body), sha256(bytes), "row {place}");
        assert_eq!(reply.head.value("content-encoding"), *coding);
        assert_eq!(reply.head.value("content-length"), bytes.len().to_string());
    }
}
