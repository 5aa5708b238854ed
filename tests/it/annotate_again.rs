//! Annotations of responses without a whole page: not modified, partial, empty or cut
//! short.

use serde_json::Value;

use crate::kit::client::{End, Reply, ask, get};
use crate::kit::codings::coded;
use crate::kit::origin::{Script, site};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::resolve;
use crate::kit::raw_origin::{Bytes, RawOrigin};
use crate::kit::told::{Told, told};
use crate::kit::{client::Crawler, run, sha256};

const AGENT: &str = "User-Agent: ExampleBot/1.0";
const NOINDEX: &str = "<html><head><meta name=robots content=noindex></head><body>";
const DATE: &str = "Sat, 21 Nov 2026 00:00:00 GMT";
const OTHER_DATE: &str = "Sun, 22 Nov 2026 00:00:00 GMT";

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
        #[test]
        fn $name() {
            run(async {
                assert_eq!(summary_of_304($page, $unchanged, &$fields).await, $summary);
            });
        }
    )*};
}

// draft-illyes-repext-03, section 4. Matching of validators: RFC 9110, sections 8.8.3.2,
// 13.1.2 and 15.4.5.
not_modified! {
    a_304_repeats_the_directives_of_the_page_with_its_tag:
        page_with_tag(), not_modified_with_tag("\"a\""), [IF_A] => "noindex / complete";
    a_304_with_the_weak_form_of_the_tag_repeats_the_directives:
        page_with_tag(), not_modified_with_tag("W/\"a\""), [IF_WEAK] => "noindex / complete";
    a_304_repeats_the_directives_of_a_page_with_a_weak_tag:
        Page::html(NOINDEX).field("ETag", "W/\"a\""), not_modified_with_tag("W/\"a\""), [IF_WEAK]
        => "noindex / complete";
    a_304_without_a_tag_stands_for_the_requested_tag:
        page_with_tag(), Page::status(304), [IF_A] => "noindex / complete";
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
    a_304_with_another_date_repeats_nothing:
        page_with_date(), Page::status(304).field("Last-Modified", OTHER_DATE),
        [&format!("If-Modified-Since: {OTHER_DATE}")] => " / partial not-modified";
    a_304_with_another_tag_repeats_nothing:
        page_with_tag(), not_modified_with_tag("\"b\""), [IF_B] => " / partial not-modified";
    a_304_to_several_tags_that_names_none_repeats_nothing:
        page_with_tag(), Page::status(304), [IF_A_OR_B] => " / partial not-modified";
    a_304_to_several_tags_repeats_the_directives_of_the_tag_it_names:
        page_with_tag(), not_modified_with_tag("\"a\""), [IF_A_OR_B] => "noindex / complete";
    directives_of_a_page_without_a_validator_are_not_repeated:
        Page::html(NOINDEX), not_modified_with_tag("\"a\""), [IF_A] => " / partial not-modified";
    a_304_adds_the_directives_of_its_own_fields:
        page_with_tag(), not_modified_with_tag("\"a\"").field("X-Robots-Tag", "noai"), [IF_A]
        => "noai noindex / complete";
    a_304_repeats_why_the_page_was_partial:
        Page::typed("text/html", b"x").field("Content-Encoding", "dcb").field("ETag", "\"a\""),
        not_modified_with_tag("\"a\""), [IF_A] => " / partial coding";
    a_304_repeats_the_directives_in_the_fields_of_an_image:
        Page::typed("image/png", b"x").field("X-Robots-Tag", "noindex").field("ETag", "\"a\""),
        not_modified_with_tag("\"a\""), [IF_A] => "noindex / complete";
}

// Ours: `from=@date` holds the time at which the proxy read the page.
#[tokio::test]
async fn repeated_directives_carry_the_time_the_page_was_read() {
    let script = Script::robots("")
        .page("/a", page_with_tag())
        .if_conditional("/a", not_modified_with_tag("\"a\""));
    let (_origin, proxy) = site(script, &[]).await;
    assert_eq!(
        single_member(&get(&proxy, "http://o.test/a").await).from,
        None
    );
    let mut told = Vec::new();
    for _ in 0..2 {
        let reply = ask(&proxy, "GET", "http://o.test/a", &[AGENT, IF_A]).await;
        let from = single_member(&reply).from.unwrap();
        let value = reply.head.value("robots-directives");
        assert!(
            value.ends_with(&format!(";state=complete;from=@{from}")),
            "{value}"
        );
        told.push(from);
    }
    // The page was read between the first response and the second.
    let rows = proxy.place().completed(3).await;
    let time = |row: &Value| {
        let time: jiff::Timestamp = row["time"].as_str().unwrap().parse().unwrap();
        time.as_second()
    };
    let read = time(&rows[0])..=time(&rows[1]);
    assert!(
        told.iter().all(|from| read.contains(from)),
        "{told:?} {read:?}"
    );
    let recorded = rows[2]["directives"]["value"].as_str().unwrap();
    assert!(
        recorded.ends_with(&format!(";from=@{}", told[1])),
        "{recorded}"
    );
}

// Ours: the annotation has only the directives of the 304 itself.
#[tokio::test]
async fn a_304_for_a_page_not_seen_before_is_partial() {
    let script = Script::robots("").if_conditional(
        "/a",
        not_modified_with_tag("\"a\"").field("X-Robots-Tag", "nofollow"),
    );
    let (_origin, proxy) = site(script, &[]).await;
    let reply = ask(&proxy, "GET", "http://o.test/a", &[AGENT, IF_A]).await;
    assert_eq!(summary(&reply), "nofollow / partial not-modified");
}

// Ours: equal tags do not make a page known to another crawler or at another URL.
#[tokio::test]
async fn directives_are_repeated_only_for_the_same_crawler_and_url() {
    let mut script = Script::robots("").page("/a", page_with_tag());
    for path in ["/a", "/a?b", "/b"] {
        script = script.if_conditional(path, not_modified_with_tag("\"a\""));
    }
    let (_origin, proxy) = site(script, &[]).await;
    get(&proxy, "http://o.test/a").await;
    let other = "User-Agent: OtherBot/1.0";
    for (url, agent) in [("/a", other), ("/a?b", AGENT), ("/b", AGENT)] {
        let url = format!("http://o.test{url}");
        let reply = ask(&proxy, "GET", &url, &[agent, IF_A]).await;
        assert_eq!(summary(&reply), " / partial not-modified", "{url} {agent}");
    }
    let reply = ask(&proxy, "GET", "http://o.test/a", &[AGENT, IF_A]).await;
    assert_eq!(summary(&reply), "noindex / complete");
}

// Key directives.known: with 0B nothing is stored.
#[tokio::test]
async fn nothing_is_repeated_with_directives_known_at_zero() {
    let script = Script::robots("")
        .page("/a", page_with_tag())
        .if_conditional("/a", not_modified_with_tag("\"a\""));
    let (_origin, proxy) = site(script, &["directives.known = \"0B\""]).await;
    get(&proxy, "http://o.test/a").await;
    let reply = ask(&proxy, "GET", "http://o.test/a", &[AGENT, IF_A]).await;
    assert_eq!(summary(&reply), " / partial not-modified");
}

/// A request method, the page it is answered with, and the expected summary.
struct Row(&'static str, Page, &'static str);

async fn assert_summaries(rows: Vec<Row>) {
    let mut script = Script::robots("");
    for (place, row) in rows.iter().enumerate() {
        script = script.page(&format!("/{place}"), row.1.clone());
    }
    let (_origin, proxy) = site(script, &[]).await;
    for (place, Row(method, _, wanted)) in rows.iter().enumerate() {
        let url = format!("http://o.test/{place}");
        let reply = ask(&proxy, method, &url, &[AGENT]).await;
        assert_eq!(summary(&reply), *wanted, "row {place}");
        assert_eq!(reply.end, End::Whole, "row {place}");
    }
}

fn partial_content(range: &str, body: &str) -> Page {
    let page = Page::html(body).with_status(206);
    page.field("Content-Range", &format!("bytes {range}"))
}

// RFC 9110, sections 9.3.2 and 15.3.7.
#[tokio::test]
async fn a_response_without_the_whole_head_is_partial() {
    let gif = || Page::typed("image/gif", b"GIF89a").field("X-Robots-Tag", "noindex");
    let gzip = coded("gzip", format!("{NOINDEX}{}", "x".repeat(99)).into());
    let beginning = |bytes: &[u8]| {
        let page = Page::typed("text/html", bytes).with_status(206);
        let page = page.field("Content-Range", "bytes 0-99/1000");
        page.field("Content-Encoding", "gzip")
    };
    let multipart = Page::typed("multipart/byteranges; boundary=x", NOINDEX.as_bytes());
    let empty_head = || Page::status(200).field("X-Robots-Tag", "noai");
    assert_summaries(vec![
        Row("HEAD", Page::html(NOINDEX), " / partial method"),
        Row("HEAD", gif(), "noindex / complete"),
        Row(
            "HEAD",
            empty_head().field("Content-Type", "text/html"),
            "noai / partial method",
        ),
        // Without Content-Type the response might be a page.
        Row("HEAD", empty_head(), "noai / partial method"),
        Row(
            "GET",
            partial_content("0-58/100", NOINDEX),
            "noindex / complete",
        ),
        Row(
            "GET",
            partial_content("0-99/100", "<head>"),
            " / partial range",
        ),
        Row(
            "GET",
            partial_content("0-40/*", "<head><meta name=robots content=noindex>"),
            "noindex / partial range",
        ),
        Row("GET", beginning(&gzip), "noindex / complete"),
        // Cut within the head. In a partial response the cut is no coding error.
        Row(
            "GET",
            beginning(&gzip[..gzip.len() - 40]),
            " / partial range",
        ),
        Row(
            "GET",
            partial_content("1-58/100", NOINDEX),
            " / partial range",
        ),
        Row(
            "GET",
            partial_content("40-98/100", "<body>"),
            " / partial range",
        ),
        Row("GET", multipart.with_status(206), " / partial range"),
        Row(
            "GET",
            partial_content("9-14/100", "x").field("X-Robots-Tag", "noai"),
            "noai / partial range",
        ),
    ])
    .await;
}

// Ours: only a 2xx response is a page; of others the fields are the whole annotation.
#[tokio::test]
async fn a_response_that_is_not_2xx_is_complete_with_its_fields() {
    let with = |status: u16| {
        let page = Page::html(NOINDEX).with_status(status);
        page.field("X-Robots-Tag", "nofollow")
    };
    let empty = Page::status(204).field("X-Robots-Tag", "nofollow");
    assert_summaries(vec![
        Row("GET", empty, "nofollow / complete"),
        Row("GET", with(404), "nofollow / complete"),
        Row("GET", with(410), "nofollow / complete"),
        Row("GET", with(503), "nofollow / complete"),
        Row(
            "GET",
            with(301).field("Location", "/x"),
            "nofollow / complete",
        ),
        Row(
            "GET",
            Page::redirect("/x").field("X-Robots-Tag", "noai"),
            "noai / complete",
        ),
    ])
    .await;
}

// Ours: event streams and JSON are neither held back nor read.
#[tokio::test]
async fn responses_other_than_html_are_passed_on_at_once() {
    let gate = Gate::shut();
    let mut script = Script::robots("");
    for (path, kind) in [("/s", "text/event-stream"), ("/j", "application/json")] {
        let page = Page::stepped(
            &["data: <meta name=robots content=noindex>\n", "end"],
            &gate,
        );
        script = script.page(path, page.field("Content-Type", kind));
    }
    // Longer than any test may take, so a response that is held back fails the test.
    let (_origin, proxy) = site(script, &["directives.hold_time = \"60s\""]).await;
    for path in ["/s", "/j"] {
        let mut crawler = Crawler::plain(&proxy).await;
        let request =
            format!("GET http://o.test{path} HTTP/1.1\r\nHost: o.test\r\n{AGENT}\r\n\r\n");
        crawler.send(request.as_bytes()).await;
        let head = crawler.head().await.unwrap();
        assert_eq!(
            head.value("robots-directives"),
            "examplebot=();state=complete"
        );
        let first = crawler.peek(10).await;
        assert!(String::from_utf8_lossy(first).contains("data: "));
        gate.open(1);
        assert_eq!(crawler.body(&head, |_| ()).await, End::Whole);
    }
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n28\r\n<head><meta name=robots content=noindex>\r\n";

// Ours: the crawler's response is cut short too.
#[tokio::test]
async fn a_page_cut_short_in_its_head_is_corrupt_and_arrives_cut_short() {
    let announced = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\n<head><meta name=robots content=noindex>";
    for page in [CHUNKED, announced] {
        let origin = RawOrigin::with("", Bytes::closing(page.as_bytes())).await;
        let proxy = resolve("o.test", origin.address()).start().await;
        let reply = get(&proxy, "http://o.test/a").await;
        assert_eq!(summary(&reply), "noindex / partial corrupt");
        assert_eq!(reply.end, End::Broken);
        assert_eq!(reply.text(), "<head><meta name=robots content=noindex>");
    }
}

/// Returns a zstd frame (RFC 8878, section 3.1.1) with one raw block, whose header asks
/// for a window of 2 to the power of `10 + exponent` bytes.
fn zstd_frame(exponent: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap();
    let block = (length << 3 | 1).to_le_bytes();
    let head = [0x28, 0xB5, 0x2F, 0xFD, 0, exponent << 3];
    [&head, &block[..3], content].concat()
}

// Ours: a page that cannot be fully read still arrives whole. RFC 9659: a zstd window is
// at most 8 MiB.
#[tokio::test]
async fn a_page_that_cannot_be_decoded_arrives_with_the_reason() {
    let gzip = coded("gzip", NOINDEX.into());
    let blanks = format!("<head>{}", " ".repeat(600 * 1024));
    let bomb = coded(
        "gzip",
        (blanks + "<meta name=robots content=noindex>").into(),
    );
    assert!(bomb.len() < 1024);
    let stacked = coded("gzip, gzip", NOINDEX.into());
    let rows = [
        ("gzip", &gzip[..20], " / partial corrupt"),
        ("gzip", b"not gzip", " / partial corrupt"),
        ("br", b"\xff\xff\xff", " / partial corrupt"),
        ("gzip", &bomb, " / partial head-limit"),
        ("compress", b"\x1f\x9d\x90", " / partial coding"),
        ("gzip, compress", b"\x1f\x9d\x90", " / partial coding"),
        ("gzip, gzip", &stacked, "noindex / complete"),
        (
            "zstd",
            &zstd_frame(13, NOINDEX.as_bytes()),
            "noindex / complete",
        ),
        (
            "zstd",
            &zstd_frame(14, NOINDEX.as_bytes()),
            " / partial window",
        ),
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
