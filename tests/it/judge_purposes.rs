//! `judge --purpose`: finds pages of past crawls whose sites deny a purpose.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::judge::{folder, gzip, report, run_judge};
use crate::kit::program::run_in;
use crate::kit::warc::{Warc, ok};
use crate::kit::{assert_contains, assert_contains_each, assert_members, run};

const ROBOTS: &str = "User-agent: *\nDisallow: /no\nContent-Usage: /data train-ai=n\n";
const AT: &str = "2026-01-02T00:01:00Z";

fn html(fields: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{fields}\r\n");
    [head.as_bytes(), body.as_ref()].concat()
}

fn meta(name: &str, content: &str) -> String {
    format!("<html><head><meta name={name} content=\"{content}\"></head><body>text</body></html>")
}

fn chunked(text: &str) -> String {
    let (one, two) = text.split_at(20);
    format!("14\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", two.len())
}

/// Generates a test per row: the denials of a page for training and searching, given its
/// path and response.
macro_rules! pages {
    ($($name:ident: $path:literal, $response:expr => $denials:literal;)*) => {$(
        #[test]
        fn $name() {
            run(async {
                let mut warc = Warc::gzip(6);
                let url = concat!("https://h.test", $path);
                warc.robots("2026-01-02T00:00:00Z", ROBOTS).exchange(AT, url, $response);
                let arguments = ["--purpose", "train-ai,search", "--requests", "--json"];
                let rows = run_judge(&warc, &arguments).await.json_lines();
                assert_eq!(rows[1]["denials"], $denials, "{}", rows[1]);
                assert_eq!(rows[0]["denials"], "", "{}", rows[0]);
            });
        }
    )*};
}

// Sources: those that `denials` cites for statements; RFC 9112, sections 6 and 7, for
// framing; ISO 28500 for the form of archived responses.
pages! {
    robots_txt_denies_a_path: "/data/1", ok("page") => "train-ai (train-ai=n, line 3)";
    robots_txt_denies_no_other_path: "/a", ok("page") => "";
    a_disallowed_path_has_no_preferences: "/no", ok("page") => "";
    a_field_denies: "/a", html("Content-Usage: search=n\r\n", "") => "search (search=n)";
    a_directive_for_the_crawler_denies: "/a", html("X-Robots-Tag: foobot: noai\r\n", "") => "train-ai (noai)";
    a_directive_for_another_crawler_denies_nothing: "/a", html("X-Robots-Tag: barbot: noai\r\n", "") => "";
    a_meta_denies: "/a", html("", meta("robots", "noindex")) => "search (noindex)";
    a_meta_for_the_crawler_denies: "/a", html("", meta("FooBot", "noai")) => "train-ai (noai)";
    a_reservation_in_the_page_denies: "/a", html("", meta("tdm-reservation", "1")) => "train-ai (tdm-reservation=1)";
    a_reservation_in_the_page_supersedes_the_field: "/a", html("TDM-Reservation: 1\r\n", meta("tdm-reservation", "0")) => "";
    statements_from_all_sources_are_combined: "/data", html("Content-Usage: search=n\r\n", meta("robots", "noai")) => "search (search=n), train-ai (train-ai=n, line 3), train-ai (noai)";
    a_content_coding_is_decoded: "/a", html("Content-Encoding: gzip\r\n", gzip(&meta("robots", "noai"))) => "train-ai (noai)";
    an_already_decoded_page_is_read: "/a", html("Content-Encoding: gzip\r\n", meta("robots", "noai")) => "train-ai (noai)";
    chunks_of_a_page_are_joined: "/a", html("Transfer-Encoding: chunked\r\n", chunked(&meta("robots", "noai"))) => "train-ai (noai)";
    a_meta_in_the_body_denies_nothing: "/a", html("", "<body><p>a</p><meta name=robots content=noai>") => "";
    a_page_of_another_type_has_no_metas: "/a", "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n<meta name=robots content=noai>" => "";
    an_error_response_counts_as_no_page: "/data", "HTTP/1.1 404 Not Found\r\nContent-Usage: search=n\r\n\r\n" => "";
    a_redirect_counts_as_no_page: "/data", "HTTP/1.1 301 Moved\r\nLocation: /b\r\n\r\n" => "";
}

/// Returns an archive with three pages: one denied for training by robots.txt, one denied
/// for searching by a field, and one not denied.
fn three_pages() -> Warc {
    let mut warc = Warc::plain();
    let noindex = html("X-Robots-Tag: noindex\r\n", "");
    warc.robots("2026-01-02T00:00:00Z", ROBOTS)
        .exchange(AT, "https://h.test/data", ok("page"))
        .exchange(AT, "https://h.test/a", noindex)
        .exchange(AT, "https://h.test/b", html("", ""));
    warc
}

// Ours: the report answers which pages a crawl fetched despite `train-ai=n`.
#[tokio::test]
async fn denied_pages_are_counted_by_host_statement_and_purpose() {
    let warc = three_pages();
    let train_ai = ["--purpose", "train-ai"];
    let report = report(&warc, &train_ai).await;
    assert_members(&report, &json!({"disallowed": 0, "allowed": 4}));
    let purposes = &report["purposes"];
    let counts = ["pages", "denied", "unseen", "partial"].map(|name| &purposes[name]);
    assert_eq!(counts, [3, 1, 0, 0], "{purposes}");
    let stated = json!([{
        "host": "h.test", "purpose": "train-ai", "statement": "train-ai=n",
        "places": "robots.txt line 3", "pages": 1,
    }]);
    assert_eq!(purposes["stated"], stated);
    assert_eq!(purposes["samples"][0]["url"], "https://h.test/data");

    let text = run_judge(&warc, &train_ai).await.assert_code(1).stdout;
    let lines = [
        "\n1 of 3 pages denied for train-ai\n",
        "\nh.test  1      train-ai  train-ai=n (robots.txt line 3)\n",
        "\n  2026-01-02T00:01:00Z https://h.test/data train-ai (train-ai=n, line 3)\n",
    ];
    assert_contains_each(&text, &lines);
    let arguments = ["--purpose", "train-ai", "--requests", "--denied", "--csv"];
    let rows = run_judge(&warc, &arguments).await.stdout;
    assert_eq!(rows.lines().count(), 2, "{rows}");
    assert_contains(&rows, "https://h.test/data,allow,no_rule");
}

// Ours: a crawl with several purposes may keep a page that it may use for one of them.
#[tokio::test]
async fn a_page_is_denied_only_if_every_purpose_is() {
    let mut warc = three_pages();
    let both = html("X-Robots-Tag: noindex, noai\r\n", "");
    warc.exchange(AT, "https://h.test/c", both);
    for (purposes, denied) in [("train-ai", 2), ("search", 2), ("search,train-ai", 1)] {
        let report = report(&warc, &["--purpose", purposes]).await;
        assert_eq!(report["purposes"]["denied"], denied, "{report}");
    }
    assert_eq!(report(&warc, &[]).await["purposes"], Value::Null);
    run_judge(&warc, &[]).await.assert_code(0);
    for wrong in [&["--purpose", "training"][..], &["--requests", "--denied"]] {
        assert_eq!(run_judge(&warc, wrong).await.code, Some(2), "{wrong:?}");
    }
}

// Ours: an unread page is not taken for a page without statements.
#[tokio::test]
async fn pages_that_were_not_read_whole_are_counted() {
    let none = ("X", "x");
    let text = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<head><title>a";
    for (kind, more, unseen, partial) in [
        ("request", none, 1, 0),
        ("response", none, 0, 0),
        ("response", ("WARC-Truncated", "length"), 0, 1),
        ("response", ("WARC-Truncated", "disconnect"), 0, 1),
        ("revisit", none, 0, 1),
        ("resource", none, 0, 0),
    ] {
        let fields = [
            ("WARC-Type", kind),
            ("WARC-Date", AT),
            ("WARC-Target-URI", "https://h.test/data"),
            more,
        ];
        let mut warc = Warc::plain();
        warc.robots("2026-01-02T00:00:00Z", ROBOTS)
            .record(&fields, text);
        let arguments = ["--purpose", "train-ai", "--agent", "FooBot"];
        let report = report(&warc, &arguments).await;
        let purposes = &report["purposes"];
        let counts = ["pages", "denied", "unseen", "partial"].map(|name| &purposes[name]);
        assert_eq!(counts, [1, 1, unseen, partial], "{kind} {more:?}");
    }
}

// Ours: a directive may name one of several crawlers.
#[tokio::test]
async fn with_several_crawlers_a_page_is_denied_if_any_is() {
    let mut warc = Warc::plain();
    let page = html("X-Robots-Tag: barbot: noai\r\n", "");
    warc.robots("2026-01-02T00:00:00Z", ROBOTS)
        .exchange(AT, "https://h.test/a", page);
    for (agents, denied) in [("FooBot,BarBot", 1), ("FooBot,BazBot", 0)] {
        let report = report(&warc, &["--agents", agents, "--purpose", "train-ai"]).await;
        assert_eq!(report["purposes"]["denied"], denied, "{agents}");
    }
}

// Ours: a log has no responses, hence no fields and pages to read.
#[tokio::test]
async fn purposes_of_a_log_are_judged_by_robots_txt_only() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("h.test"), ROBOTS).unwrap();
    let line = |path: &str| {
        format!(
            "1.2.3.4 - - [02/Jan/2026:00:01:00 +0000] \"GET {path} HTTP/1.1\" 200 1 \"-\" \"Foo/1\"\n"
        )
    };
    let log = line("/data/1") + &line("/b");
    std::fs::write(folder.path().join("a.log"), log).unwrap();
    let arguments = "judge --log a.log --robots . --origin https://h.test --purpose train-ai";
    let arguments: Vec<_> = arguments.split(' ').collect();
    let outcome = run_in(folder.path(), &arguments).await.assert_code(1);
    let lines = [
        "1 of 2 pages denied for train-ai",
        "2 pages judged for purposes by robots.txt alone, since the files have no response.",
    ];
    assert_contains_each(&outcome.stdout, &lines);
}

// Ours: statements of a page are printed as inert text.
#[tokio::test]
async fn reports_escape_hostile_statements() {
    let mut warc = Warc::plain();
    let hostile = meta("robots", "noai,<script>\u{1b}[2J\u{202e}");
    let url = "https://h.test/<script>\u{1b}[2J\u{202e}";
    warc.robots("2026-01-02T00:00:00Z", ROBOTS)
        .exchange(AT, url, html("", hostile));
    let folder = folder(&warc);
    let arguments = "judge --warc a.warc --purpose train-ai --html page.html";
    let arguments: Vec<_> = arguments.split(' ').collect();
    let outcome = run_in(folder.path(), &arguments).await;
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    for text in [&outcome.stdout, &page] {
        assert!(text.contains("noai"), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    }
    assert!(!page.contains("<script"), "{page}");
    assert_contains(&page, "1 of 1 page was denied for train-ai.");
}
