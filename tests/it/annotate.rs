//! The annotation: one field states what binds the crawler, and not a byte of
//! the page is changed.

use crate::kit::client::{Crawler, End, ask, get, get_as};
use crate::kit::origin::{Script, site};
use crate::kit::page::{Gate, Length, Page};
use crate::kit::proxy::resolve;
use crate::kit::stream_digest;

/// Returns the annotation's value of `/a` for ExampleBot.
async fn annotation(page: Page) -> String {
    let (_origin, proxy) = site(Script::robots("").page("/a", page), &[]).await;
    let reply = get(&proxy, "http://o.test/a").await;
    reply.head.value("robots-directives").to_owned()
}

const HEAD: &str =
    "<!doctype html><html><head><meta name=robots content=\"noindex, max-snippet:20\"></head>";

// Ours: the grammar, and proof of absence.
#[tokio::test]
async fn a_page_that_says_nothing_is_annotated_as_complete_and_empty() {
    assert_eq!(
        annotation(Page::text("x")).await,
        "examplebot=();state=complete"
    );
    assert_eq!(
        annotation(Page::html("<p>x</p>")).await,
        "examplebot=();state=complete"
    );
}

// Ours: Robots-Tag and X-Robots-Tag.
#[tokio::test]
async fn fields_are_read() {
    for name in ["X-Robots-Tag", "Robots-Tag"] {
        let value = annotation(Page::text("x").field(name, "noindex, nofollow")).await;
        assert!(
            value.starts_with("examplebot=(") && value.ends_with("state=complete"),
            "{value}"
        );
        assert!(
            value.contains("nofollow;src=") && value.contains("noindex;src="),
            "{value}"
        );
    }
}

// Ours: meta in the head of HTML; the body untouched.
#[tokio::test]
async fn meta_elements_are_read_and_the_body_is_not_touched() {
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

// Ours: the crawler's own key holds what binds it.
#[tokio::test]
async fn what_is_said_to_one_crawler_binds_that_one() {
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

// Ours: a field of that name sent by the origin is removed first.
#[tokio::test]
async fn an_annotation_by_the_origin_does_not_stand() {
    let page = Page::text("x")
        .field("Robots-Directives", "examplebot=();state=complete")
        .field("X-Robots-Tag", "noindex");
    assert_eq!(
        annotation(page).await,
        "examplebot=(noindex;src=x);state=complete"
    );
}

// Ours: what cannot be decoded is passed on unread.
#[tokio::test]
async fn a_page_in_a_coding_that_nobody_knows_is_said_to_be_unread() {
    let page = Page::typed("text/html", b"\x1f\x8b not really").field("Content-Encoding", "dcz");
    let (_origin, proxy) = site(Script::robots("").page("/a", page), &[]).await;
    let reply = get(&proxy, "http://o.test/a").await;
    assert_eq!(reply.body, b"\x1f\x8b not really");
    assert_eq!(
        reply.head.value("robots-directives"),
        "examplebot=();state=partial;why=coding"
    );
}

// Ours: HEAD has no body to look into.
#[tokio::test]
async fn a_head_request_is_partial() {
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

// Ours: held back until the head ends, then streamed.
#[tokio::test]
async fn the_head_is_held_back_and_the_rest_is_streamed() {
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
    crawler
        .send(b"GET http://o.test/a HTTP/1.1\r\nHost: o.test\r\nUser-Agent: ExampleBot/1\r\n\r\n")
        .await;
    // What follows </head> may still be a <meta> of it; <body> ends it.
    gate.open(2);
    let head = crawler.head().await.unwrap();
    assert_eq!(
        head.value("robots-directives"),
        "examplebot=(noindex;src=m);state=complete"
    );
    gate.open(1);
    let mut body = Vec::new();
    assert_eq!(
        crawler
            .body(&head, |bytes| body.extend_from_slice(bytes))
            .await,
        End::Whole
    );
    assert_eq!(body, chunks.concat().as_bytes());
}

// Ours: directives.hold_time: why=time.
#[tokio::test]
async fn a_head_that_does_not_end_is_held_back_no_longer_than_configured() {
    let gate = Gate::shut();
    let page =
        Page::stepped(&["<html><head>", "</head>"], &gate).field("Content-Type", "text/html");
    let (_origin, proxy) = site(
        Script::robots("").page("/a", page),
        &["directives.hold_time = \"100ms\""],
    )
    .await;
    let mut crawler = Crawler::plain(&proxy).await;
    crawler
        .send(b"GET http://o.test/a HTTP/1.1\r\nHost: o.test\r\nUser-Agent: ExampleBot/1\r\n\r\n")
        .await;
    let head = crawler.head().await.unwrap();
    assert_eq!(
        head.value("robots-directives"),
        "examplebot=();state=partial;why=time"
    );
    gate.open(1);
    let mut body = Vec::new();
    assert_eq!(
        crawler
            .body(&head, |bytes| body.extend_from_slice(bytes))
            .await,
        End::Whole
    );
    assert_eq!(body, b"<html><head></head>");
}

// Ours: directives.hold_bytes; the page passes all the same.
#[tokio::test]
async fn a_head_beyond_the_limit_is_partial_and_passes_whole() {
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
async fn the_fields_name_is_configured() {
    let origin = Script::robots("").start().await;
    let config = resolve("o.test", origin.address()).set("directives.header = \"X-Rules\"");
    let reply = get(&config.start().await, "http://o.test/a").await;
    assert_eq!(reply.head.value("x-rules"), "examplebot=();state=complete");
}
