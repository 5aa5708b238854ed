//! The annotation: one field lists the directives that bind the crawler, and the page
//! passes unchanged.

use crate::kit::client::{Crawler, ask, get, get_as};
use crate::kit::origin::{Script, site};
use crate::kit::page::{Gate, Length, Page};
use crate::kit::{assert_contains, stream_digest};

/// Returns the annotation that ExampleBot gets with `page`.
async fn annotation(page: Page) -> String {
    let (_origin, proxy) = site(Script::robots("").page("/a", page), &[]).await;
    let reply = get(&proxy, "http://o.test/a").await;
    reply.head.value("robots-directives").to_owned()
}

const HEAD: &str =
    "<!doctype html><html><head><meta name=robots content=\"noindex, max-snippet:20\"></head>";

// Ours: the grammar. An empty, complete annotation says that the page has no directives.
#[tokio::test]
async fn a_page_without_directives_gets_an_empty_complete_annotation() {
    assert_eq!(
        annotation(Page::text("x")).await,
        "examplebot=();state=complete"
    );
    assert_eq!(
        annotation(Page::html("<p>x</p>")).await,
        "examplebot=();state=complete"
    );
}

// Ours: the fields `Robots-Tag` and `X-Robots-Tag`.
#[tokio::test]
async fn directives_in_response_fields_are_annotated() {
    for name in ["X-Robots-Tag", "Robots-Tag"] {
        let value = annotation(Page::text("x").field(name, "noindex, nofollow")).await;
        assert!(
            value.starts_with("examplebot=(") && value.ends_with("state=complete"),
            "{value}"
        );
        assert_contains(&value, "nofollow;src=");
        assert_contains(&value, "noindex;src=");
    }
}

// Ours: meta elements in the head of HTML.
#[tokio::test]
async fn meta_elements_are_annotated_and_the_body_is_unchanged() {
    let body = format!("{HEAD}<body>\u{e9}\r\n<META></body>");
    let (_origin, proxy) = site(Script::robots("").page("/a", Page::html(&body)), &[]).await;
    let reply = get(&proxy, "http://o.test/a").await;
    assert_eq!(reply.body, body.as_bytes());
    assert_eq!(reply.head.value("content-length"), body.len().to_string());
    let value = reply.head.value("robots-directives");
    assert_eq!(
        value,
        "examplebot=(max-snippet;value=20;src=m noindex;src=m);state=complete"
    );
}

// Ours: the member under the crawler's own key lists the directives that bind that
// crawler.
#[tokio::test]
async fn a_directive_for_one_crawler_binds_only_that_crawler() {
    let page = Page::text("x")
        .field("X-Robots-Tag", "foobot: noindex")
        .field("X-Robots-Tag", "nofollow");
    let (_origin, proxy) = site(Script::robots("").page("/a", page), &[]).await;
    let foo = get_as(&proxy, "FooBot/1", "http://o.test/a").await;
    assert!(
        foo.head.value("robots-directives").starts_with("foobot=(")
            && foo.head.value("robots-directives").contains("noindex")
    );
    let bar = get_as(&proxy, "BarBot/1", "http://o.test/a").await;
    assert!(
        !bar.head.value("robots-directives").contains("noindex"),
        "{:?}",
        bar.head
    );
    assert!(bar.head.value("robots-directives").contains("nofollow"));
}

// Ours: the proxy removes a field of that name that the origin sent.
#[tokio::test]
async fn an_annotation_sent_by_the_origin_is_replaced() {
    let page = Page::text("x")
        .field("Robots-Directives", "examplebot=();state=complete")
        .field("X-Robots-Tag", "noindex");
    assert_eq!(
        annotation(page).await,
        "examplebot=(noindex;src=x);state=complete"
    );
}

// Ours: a body that cannot be decoded is passed on unread.
#[tokio::test]
async fn a_page_in_an_unknown_coding_is_annotated_as_partial() {
    let page = Page::typed("text/html", b"\x1f\x8b not really").field("Content-Encoding", "dcz");
    let (_origin, proxy) = site(Script::robots("").page("/a", page), &[]).await;
    let reply = get(&proxy, "http://o.test/a").await;
    assert_eq!(reply.body, b"\x1f\x8b not really");
    assert_eq!(
        reply.head.value("robots-directives"),
        "examplebot=();state=partial;why=coding"
    );
}

// Ours: the response to HEAD has no body to read.
#[tokio::test]
async fn the_response_to_head_is_annotated_as_partial() {
    let (_origin, proxy) = site(Script::robots("").page("/a", Page::html(HEAD)), &[]).await;
    let reply = ask(
        &proxy,
        "HEAD",
        "http://o.test/a",
        &["User-Agent: ExampleBot/1.0"],
    )
    .await;
    assert_eq!(
        reply.head.value("robots-directives"),
        "examplebot=();state=partial;why=method"
    );
}

// Ours: the response is held back until the page's head ends; then it is streamed.
#[tokio::test]
async fn a_page_is_held_back_until_its_head_ends_and_then_streamed() {
    let gate = Gate::shut();
    let chunks = [
        "<html><head><title>x</title>",
        "<meta name=robots content=noindex></head>",
        "<body>",
        "end",
    ];
    let page = Page::stepped(&chunks, &gate).field("Content-Type", "text/html");
    let (_origin, proxy) = site(Script::robots("").page("/a", page), &[]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/a", "o.test").await;
    // After </head>, HTML may still have a <meta> that belongs to the head; <body> ends
    // it.
    gate.open(2);
    let head = crawler.head().await.unwrap();
    assert_eq!(
        head.value("robots-directives"),
        "examplebot=(noindex;src=m);state=complete"
    );
    gate.open(1);
    let body = crawler.whole_body(&head).await;
    assert_eq!(body, chunks.concat().as_bytes());
}

// Ours: directives.hold_time, reported as why=time.
#[tokio::test]
async fn a_page_head_is_held_back_no_longer_than_hold_time() {
    let gate = Gate::shut();
    let page =
        Page::stepped(&["<html><head>", "</head>"], &gate).field("Content-Type", "text/html");
    let script = Script::robots("").page("/a", page);
    let (_origin, proxy) = site(script, &["directives.hold_time = \"100ms\""]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/a", "o.test").await;
    let head = crawler.head().await.unwrap();
    assert_eq!(
        head.value("robots-directives"),
        "examplebot=();state=partial;why=time"
    );
    gate.open(1);
    let body = crawler.whole_body(&head).await;
    assert_eq!(body, b"<html><head></head>");
}

// Ours: directives.hold_bytes. The page arrives nevertheless.
#[tokio::test]
async fn a_page_head_over_hold_bytes_arrives_whole() {
    let page = Page::stream(2_000_000, Length::Announced);
    let (_origin, proxy) = site(Script::robots("").page("/a", html(page)), &[]).await;
    let reply = get(&proxy, "http://o.test/a").await;
    assert_eq!(crate::kit::sha256(&reply.body), stream_digest(2_000_000));
    assert_eq!(reply.head.value("content-length"), "2000000");
    let value = reply.head.value("robots-directives");
    assert!(value.contains("state="), "{value}");
}

fn html(mut page: Page) -> Page {
    page.fields.clear();
    page.field("Content-Type", "text/html")
}

// Ours: directives.header.
#[tokio::test]
async fn the_name_of_the_annotation_field_is_configurable() {
    let (_origin, proxy) = site(Script::robots(""), &["directives.header = \"X-Rules\""]).await;
    let reply = get(&proxy, "http://o.test/a").await;
    assert_eq!(reply.head.value("x-rules"), "examplebot=();state=complete");
}
