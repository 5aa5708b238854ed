//! `audit report`: the page for an auditor, and the page for the owner of a site.

use crate::kit::assert_contains;
use crate::kit::client::get_as;
use crate::kit::origin::{Origin, Script};
use crate::kit::page::Page;
use crate::kit::program::Outcome;
use crate::kit::proxy::{Config, Place, resolve};

const ROBOTS: &str = "# \u{1b}[2J<script>\nUser-agent: <b>bot\u{202e}\nUser-agent: *\n\
                      Disallow: /<script>alert(1)</script>\nDisallow: /private\n";

fn config(origin: &Origin) -> Config {
    resolve("o.test", origin.address()).resolve("other.test", origin.address())
}

/// Returns a record with decisions at two hosts, one of which answered 429.
async fn recorded(change: impl FnOnce(Config) -> Config) -> (Origin, Place) {
    let origin = Script::robots(ROBOTS)
        .page("/busy", Page::status(429))
        .start()
        .await;
    let proxy = change(config(&origin)).start().await;
    get_as(&proxy, "FooBot/1 (=1+1; <i>)", "http://o.test/a").await;
    get_as(&proxy, "FooBot/1", "http://o.test/private/x").await;
    get_as(&proxy, "BarBot/1", "http://o.test/private/y?%3Cscript").await;
    get_as(
        &proxy,
        "FooBot/1",
        "http://o.test/%3Cscript%3Ealert(1)%3C/script%3E",
    )
    .await;
    get_as(&proxy, "FooBot/1", "http://o.test/busy").await;
    get_as(&proxy, "QuuxBot/1", "http://other.test/private/z").await;
    proxy.place().completed(6).await;
    (origin, proxy.stop().await)
}

/// Asserts that the page loads, links and runs nothing, and contains no control
/// characters.
fn assert_inert(page: &str) {
    let is_control = |letter: char| letter.is_control() && letter != '\n';
    let is_bidi =
        |letter: char| matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert!(!page.contains(is_control) && !page.contains(is_bidi));
    let lower = page.to_ascii_lowercase();
    for markup in [
        "<script",
        "<i>",
        "<b>bot",
        " href",
        " src",
        "<link",
        "<base",
        "<form",
        "<iframe",
        "url(",
        "@import",
        "javascript:",
        " on",
    ] {
        let found = lower.match_indices(markup).map(|(at, _)| &lower[at..]);
        // Words in sentences may begin with "on", but no attribute may.
        let is_attribute = |text: &str| {
            markup != " on"
                || text
                    .split_once(['=', ' ', '<'])
                    .is_some_and(|(_, rest)| rest.starts_with('"'))
        };
        let found: Vec<_> = found.filter(|text| is_attribute(text)).collect();
        assert!(found.is_empty(), "{markup}: {:.80}", found[0]);
    }
    assert!(lower.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
}

/// Returns the text of the page, with runs of whitespace as one space.
fn text(page: &str) -> String {
    let mut text = String::new();
    let mut is_tag = false;
    let body = page.split_once("</style>").unwrap().1;
    for letter in body.chars() {
        match letter {
            '<' => is_tag = true,
            '>' => is_tag = false,
            letter if !is_tag => text.push(letter),
            _ => {}
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn page_of(outcome: &Outcome) -> String {
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_inert(&outcome.stdout);
    text(&outcome.stdout)
}

// Ours; docs/reports.md.
#[tokio::test]
async fn a_report_shows_requests_refusals_and_the_rules_applied() {
    let (_origin, place) = recorded(|config| config).await;
    let outcome = place.run(&["audit", "report", "--from", "1h"]).await;
    let text = page_of(&outcome);
    for wanted in [
        "3 crawlers made 6 requests to 2 websites through the program politesse.",
        "politesse decided these requests by the robots.txt of their websites and by the settings of its operator, and enforced each decision.",
        "6requests by crawlers 2let through 4refused, and not sent 0put off",
        "Requests each hour",
        "4 requests (66.7 % of all) were not sent because the owner of the website disallows it.",
        "o.test5: Disallow: /privateall crawlers2",
        "other.test5: Disallow: /privateall crawlers1",
        "o.test4: Disallow: /&lt;script&gt;alert(1)&lt;/script&gt;",
        // Only the number of requests is certain: they may fall into two different
        // minutes.
        "o.test2",
        "o.test429",
        "No decision rests on a robots.txt that could not be read.",
        "The first entry on record is from 2",
        "6 decisions were made once more from what is on record: all came out the same.",
    ] {
        let text = text.replace("> ", ">");
        let loose = |text: &str| text.replace(' ', "");
        assert!(loose(&text).contains(&loose(wanted)), "{wanted}: {text}");
    }
    assert_eq!(outcome.stdout.matches("<figure>").count(), 2);
    let digest = text.split_once("SHA-256 ").unwrap().1;
    let (digest, rest) = digest.split_at(64);
    let arguments: Vec<_> = rest
        .split("and verifies")
        .next()
        .unwrap()
        .split_whitespace()
        // The command is broken over two lines.
        .filter(|word| *word != "\\")
        .collect();
    assert_eq!(arguments[..3], ["politesse", "audit", "report"]);
    let again = place.run(&arguments[1..]).await;
    assert_eq!(again.stdout, format!("{digest}\n"), "{arguments:?}");
    // A report on fewer decisions has another digest.
    let fewer = place
        .run(&["audit", "report", "--host", "o.test", "--digest"])
        .await;
    assert_ne!(fewer.stdout, again.stdout);
    assert!(!outcome.stdout.contains("127.0.0.1"));
}

// Ours: the page that the owner of a site gets.
#[tokio::test]
async fn the_report_for_a_site_reveals_no_other_site() {
    let (_origin, place) =
        recorded(|config| config.set("proxy.contact = \"mailto:crawl@us.example\"")).await;
    let outcome = place
        .run(&["audit", "report", "--for-site", "o.test"])
        .await;
    let text = page_of(&outcome);
    for wanted in [
        "Who came to o.test",
        "5requests by our crawlers",
        "FooBot/1 (=1+1; &lt;i&gt;)",
        "BarBot",
        "2 requests were sent to you",
        "5: Disallow: /private",
        "200: the file was read",
        "You answered with 429 or 503, and were left alone for a time.",
        "Questions reach us here: mailto:crawl@us.example",
    ] {
        let loose = |text: &str| text.replace(' ', "");
        assert!(loose(&text).contains(&loose(wanted)), "{wanted}: {text}");
    }
    for other in ["other.test", "QuuxBot", "127.0.0.1"] {
        assert!(!outcome.stdout.contains(other), "{other}");
    }
    // No crawler visited this site.
    let none = place
        .run(&["audit", "report", "--for-site", "none.test"])
        .await;
    assert!(page_of(&none).contains("No request is on record as sent to you."));
    let file = place.path("site.html");
    let name = file.to_str().unwrap();
    let written = place
        .run(&["audit", "report", "--for-site", "o.test", "-o", name])
        .await;
    written.assert_output(0, "");
    assert!(std::fs::read_to_string(&file).unwrap().ends_with("</html>"));
    place.run_code(2, &["audit", "report", "-o", name]).await;
}

// Ours.
#[tokio::test]
async fn a_report_on_report_mode_shows_what_enforcing_would_refuse() {
    let (_origin, place) = recorded(|config| config.set("enforcement.mode = \"report\"")).await;
    let outcome = place.run(&["audit", "report"]).await;
    let text = page_of(&outcome);
    for wanted in [
        "What enforcing would have cost",
        "Nothing was enforced: politesse was in report mode for all of these requests.",
        "Enforcing would have refused 4 requests (66.7 % of all that was let through)",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let site = place
        .run(&["audit", "report", "--for-site", "o.test"])
        .await;
    let text = page_of(&site);
    assert_contains(&text, "What was let through although it would be refused");
    assert_contains(&text, "and 3 requests while the program noted");
}

// Ours: the page states which of its figures the record does not support.
#[tokio::test]
async fn a_report_on_a_tampered_record_says_so() {
    let (_origin, place) = recorded(|config| config).await;
    let before = place.run(&["audit", "report", "--digest"]).await.stdout;
    // Text that the program never writes, with invalid UTF-8.
    let columns = "'allow', 'no_rule', effect, line, CAST(x'ff9b3c2f6464e280ae1b' AS TEXT), \
                       groups, '<img/src=x>' || char(8238) || char(27), denials";
    place.refer_to_copy(2, "ruling", columns);
    let outcome = place.run_code(1, &["audit", "report"]).await;
    assert_inert(&outcome.stdout);
    let text = text(&outcome.stdout);
    assert_contains(&text, "The record does not bear all of this out: ");
    // A changed leaf changes the digest.
    let sql = format!(
        "UPDATE decision SET leaf = zeroblob(32) WHERE seq = {}",
        place.number(4)
    );
    place.database().execute_batch(&sql).unwrap();
    assert_ne!(
        place.run(&["audit", "report", "--digest"]).await.stdout,
        before
    );
}
