//! Responses that do not send a whole page: not modified, a part, none, or
//! broken off.

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

/// Returns the annotation's one member.
#[track_caller]
fn only(reply: &Reply) -> Told {
    let told = told(reply.head.value("robots-directives"));
    let [told] = &told[..] else {
        panic!("{told:?}");
    };
    told.clone()
}

/// Returns what is in force, and how far that is known, in a word or two.
#[track_caller]
fn summary(reply: &Reply) -> String {
    let told = only(reply);
    let state = [told.state, told.why].join(" ");
    format!("{} / {}", told.directives.join(" "), state.trim())
}

/// Returns the annotation of a 304 to `fields`, asked for after a 200.
async fn repeated(page: Page, unchanged: Page, fields: &[&str]) -> String {
    let script = Script::robots("").page("/a", page);
    let script = script.if_conditional("/a", unchanged.with_status(304));
    let (_origin, proxy) = site(script, &[]).await;
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
    let fields = [&[AGENT], fields].concat();
    let reply = ask(&proxy, "GET", "http://o.test/a", &fields).await;
    assert_eq!(reply.status(), 304);
    summary(&reply)
}

fn tagged() -> Page {
    Page::html(NOINDEX).field("ETag", "\"a\"")
}

fn dated() -> Page {
    Page::html(NOINDEX).field("Last-Modified", DATE)
}

/// Returns a 304 that names `tag`.
fn unchanged(tag: &str) -> Page {
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
                assert_eq!(repeated($page, $unchanged, &$fields).await, $summary);
            });
        }
    )*};
}

// draft-illyes-repext-03, section 4; which representation is meant: RFC 9110,
// sections 8.8.3.2, 13.1.2 and 15.4.5.
not_modified! {
    a_304_repeats_what_is_known_of_its_tag:
        tagged(), unchanged("\"a\""), [IF_A] => "noindex / complete";
    a_304_may_name_its_tag_weakly:
        tagged(), unchanged("W/\"a\""), [IF_WEAK] => "noindex / complete";
    a_304_repeats_what_is_known_of_a_weak_tag:
        Page::html(NOINDEX).field("ETag", "W/\"a\""), unchanged("W/\"a\""), [IF_WEAK]
        => "noindex / complete";
    a_304_without_a_tag_is_about_the_one_asked_for:
        tagged(), Page::status(304), [IF_A] => "noindex / complete";
    a_304_repeats_what_is_known_of_its_date:
        dated(), Page::status(304).field("Last-Modified", DATE),
        [&format!("If-Modified-Since: {DATE}")] => "noindex / complete";
    a_304_without_a_date_is_about_the_one_asked_for:
        dated(), Page::status(304), [&format!("If-Modified-Since: {DATE}")]
        => "noindex / complete";
    a_cookie_that_ends_at_the_proxy_has_selected_nothing:
        dated(), Page::status(304),
        [&format!("If-Modified-Since: {DATE}"), "Cookie: a=1", "Connection: cookie"]
        => "noindex / complete";
    a_304_of_another_date_repeats_nothing:
        dated(), Page::status(304).field("Last-Modified", OTHER_DATE),
        [&format!("If-Modified-Since: {OTHER_DATE}")] => " / partial not-modified";
    a_304_of_another_tag_repeats_nothing:
        tagged(), unchanged("\"b\""), [IF_B] => " / partial not-modified";
    a_304_to_one_of_several_tags_must_name_it:
        tagged(), Page::status(304), [IF_A_OR_B] => " / partial not-modified";
    a_304_to_several_tags_repeats_what_is_known_of_the_one_it_names:
        tagged(), unchanged("\"a\""), [IF_A_OR_B] => "noindex / complete";
    a_page_without_a_validator_is_not_repeated:
        Page::html(NOINDEX), unchanged("\"a\""), [IF_A] => " / partial not-modified";
    a_304_adds_what_it_says_itself:
        tagged(), unchanged("\"a\"").field("X-Robots-Tag", "noai"), [IF_A]
        => "noai noindex / complete";
    a_304_says_what_the_page_lacked:
        Page::typed("text/html", b"x").field("Content-Encoding", "dcb").field("ETag", "\"a\""),
        unchanged("\"a\""), [IF_A] => " / partial coding";
    a_304_repeats_the_fields_of_an_image:
        Page::typed("image/png", b"x").field("X-Robots-Tag", "noindex").field("ETag", "\"a\""),
        unchanged("\"a\""), [IF_A] => "noindex / complete";
}

// Ours: `from=@date`, the day it was first told.
#[tokio::test]
async fn what_is_repeated_says_since_when_it_is_known() {
    let script = Script::robots("")
        .page("/a", tagged())
        .if_conditional("/a", unchanged("\"a\""));
    let (_origin, proxy) = site(script, &[]).await;
    assert_eq!(only(&get(&proxy, "http://o.test/a").await).from, None);
    let mut told = Vec::new();
    for _ in 0..2 {
        let reply = ask(&proxy, "GET", "http://o.test/a", &[AGENT, IF_A]).await;
        let from = only(&reply).from.unwrap();
        let value = reply.head.value("robots-directives");
        assert!(
            value.ends_with(&format!(";state=complete;from=@{from}")),
            "{value}"
        );
        told.push(from);
    }
    // The page was read between the first two decisions.
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

// Ours: a 304 of a page that was not seen.
#[tokio::test]
async fn a_304_of_a_page_that_was_not_seen_is_partial() {
    let script = Script::robots("")
        .if_conditional("/a", unchanged("\"a\"").field("X-Robots-Tag", "nofollow"));
    let (_origin, proxy) = site(script, &[]).await;
    let reply = ask(&proxy, "GET", "http://o.test/a", &[AGENT, IF_A]).await;
    assert_eq!(summary(&reply), "nofollow / partial not-modified");
}

// Ours: what one crawler was told is not repeated to another, nor for another
// URL, however alike their tags.
#[tokio::test]
async fn what_is_known_is_of_one_crawler_and_one_url() {
    let mut script = Script::robots("").page("/a", tagged());
    for path in ["/a", "/a?b", "/b"] {
        script = script.if_conditional(path, unchanged("\"a\""));
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

// Config, directives.known: 0B keeps nothing.
#[tokio::test]
async fn nothing_is_repeated_where_nothing_is_kept() {
    let script = Script::robots("")
        .page("/a", tagged())
        .if_conditional("/a", unchanged("\"a\""));
    let (_origin, proxy) = site(script, &["directives.known = \"0B\""]).await;
    get(&proxy, "http://o.test/a").await;
    let reply = ask(&proxy, "GET", "http://o.test/a", &[AGENT, IF_A]).await;
    assert_eq!(summary(&reply), " / partial not-modified");
}

/// A page of the table, how it is asked for, and what is told of it.
struct Row(&'static str, Page, &'static str);

async fn all_told(rows: Vec<Row>) {
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

fn part(range: &str, body: &str) -> Page {
    let page = Page::html(body).with_status(206);
    page.field("Content-Range", &format!("bytes {range}"))
}

// RFC 9110, sections 9.3.2 and 15.3.7.
#[tokio::test]
async fn what_is_not_sent_is_not_known() {
    let gif = || Page::typed("image/gif", b"GIF89a").field("X-Robots-Tag", "noindex");
    let gzip = coded("gzip", format!("{NOINDEX}{}", "x".repeat(99)).into());
    let beginning = |bytes: &[u8]| {
        let page = Page::typed("text/html", bytes).with_status(206);
        let page = page.field("Content-Range", "bytes 0-99/1000");
        page.field("Content-Encoding", "gzip")
    };
    let multipart = Page::typed("multipart/byteranges; boundary=x", NOINDEX.as_bytes());
    let empty_head = || Page::status(200).field("X-Robots-Tag", "noai");
    all_told(vec![
        Row("HEAD", Page::html(NOINDEX), " / partial method"),
        Row("HEAD", gif(), "noindex / complete"),
        Row(
            "HEAD",
            empty_head().field("Content-Type", "text/html"),
            "noai / partial method",
        ),
        // Without a type it might be a page.
        Row("HEAD", empty_head(), "noai / partial method"),
        Row("GET", part("0-58/100", NOINDEX), "noindex / complete"),
        Row("GET", part("0-99/100", "<head>"), " / partial range"),
        Row(
            "GET",
            part("0-40/*", "<head><meta name=robots content=noindex>"),
            "noindex / partial range",
        ),
        Row("GET", beginning(&gzip), "noindex / complete"),
        // Cut in the head: of a part that is no fault of the coding.
        Row(
            "GET",
            beginning(&gzip[..gzip.len() - 40]),
            " / partial range",
        ),
        Row("GET", part("1-58/100", NOINDEX), " / partial range"),
        Row("GET", part("40-98/100", "<body>"), " / partial range"),
        Row("GET", multipart.with_status(206), " / partial range"),
        Row(
            "GET",
            part("9-14/100", "x").field("X-Robots-Tag", "noai"),
            "noai / partial range",
        ),
    ])
    .await;
}

// Ours: of others than 2xx the fields only, complete.
#[tokio::test]
async fn of_what_is_no_page_the_fields_are_all_there_is() {
    let with = |status: u16| {
        let page = Page::html(NOINDEX).with_status(status);
        page.field("X-Robots-Tag", "nofollow")
    };
    let empty = Page::status(204).field("X-Robots-Tag", "nofollow");
    all_told(vec![
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

// Ours: streams and data are not held back, nor read.
#[tokio::test]
async fn what_is_no_html_is_passed_on_at_once() {
    let gate = Gate::shut();
    let mut script = Script::robots("");
    for (path, kind) in [("/s", "text/event-stream"), ("/j", "application/json")] {
        let page = Page::stepped(
            &["data: <meta name=robots content=noindex>\n", "end"],
            &gate,
        );
        script = script.page(path, page.field("Content-Type", kind));
    }
    // Longer than any test may take: who holds it back is found.
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

// Ours: it ends broken for the crawler, too.
#[tokio::test]
async fn a_page_that_breaks_off_in_its_head_is_corrupt_and_breaks_off() {
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

/// Returns a zstd frame (RFC 8878, section 3.1.1) of one raw block, whose
/// header asks for a window of 2 to the power of `10 + exponent`.
fn zstd_frame(exponent: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap();
    let block = (length << 3 | 1).to_le_bytes();
    let head = [0x28, 0xB5, 0x2F, 0xFD, 0, exponent << 3];
    [&head, &block[..3], content].concat()
}

// Ours: what cannot be read to its end arrives whole all the same. RFC 9659:
// the window of zstd is 8 MiB at most.
#[tokio::test]
async fn a_page_that_cannot_be_decoded_says_why_and_arrives() {
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
