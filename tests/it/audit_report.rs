//! `audit report`: the page for an auditor, and the page for the owner of a site.

use crate::kit::client::get_as;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::page::Page;
use crate::kit::proxy::Place;

const ROBOTS: &str = "# \u{1b}[2J<script>\nUser-agent: <b>bot\u{202e}\nUser-agent: *\n\
                      Disallow: /<script>alert(1)</script>\nDisallow: /private\n";

/// Returns a record with decisions at two hosts, one of which answered 429. `lines` are
/// lines of the configuration.
async fn recorded(lines: &[&str]) -> (Origin, Place) {
    let script = Script::robots(ROBOTS).page("/busy", Page::status(429));
    let (origin, proxy) = site(script.names(["o.test", "other.test"]), lines).await;
    for (agent, url) in [
        ("FooBot/1 (=1+1; <i>)", "o.test/a"),
        ("FooBot/1", "o.test/private/x"),
        ("BarBot/1", "o.test/private/y?%3Cscript"),
        ("FooBot/1", "o.test/%3Cscript%3Ealert(1)%3C/script%3E"),
        ("FooBot/1", "o.test/busy"),
        ("QuuxBot/1", "other.test/private/z"),
    ] {
        get_as(&proxy, agent, &format!("http://{url}")).await;
    }
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
    let elements = [
        "<script", "<i>", "<b>bot", "<link", "<base", "<form", "<iframe",
    ];
    let attributes = [" href", " src", "url(", "@import", "javascript:"];
    for markup in elements.into_iter().chain(attributes) {
        assert!(!lower.contains(markup), "{markup}: {page}");
    }
    // Words in sentences may begin with "on", but no attribute may.
    for word in lower.split(" on").skip(1) {
        let value = word.split_once(['=', ' ', '<']);
        let is_attribute = value.is_some_and(|(_, value)| value.starts_with('"'));
        assert!(!is_attribute, "{word:.80}");
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

/// Asserts that the text of the page, which must be inert, contains each of `wanted`
/// apart from spaces. Returns the text.
fn assert_page(page: &str, wanted: &[&str]) -> String {
    assert_inert(page);
    let text = text(page);
    let loose = |text: &str| text.replace(' ', "");
    for wanted in wanted {
        assert!(loose(&text).contains(&loose(wanted)), "{wanted}: {text}");
    }
    text
}

// Ours; docs/reports.md.
#[tokio::test]
async fn a_report_shows_requests_refusals_and_the_rules_applied() {
    let (_origin, place) = recorded(&[]).await;
    let page = place.audit("report --from 1h").await.stdout;
    let wanted = [
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
    ];
    let text = assert_page(&page, &wanted);
    assert_eq!(page.matches("<figure>").count(), 2);
    let digest = text.split_once("SHA-256 ").unwrap().1;
    let (digest, rest) = digest.split_at(64);
    // The command is broken over two lines.
    let command = rest.split("and verifies").next().unwrap().replace('\\', "");
    let words = command.trim().strip_prefix("politesse audit ").unwrap();
    assert!(words.starts_with("report "), "{words}");
    let again = place.audit(words).await.stdout;
    assert_eq!(again, format!("{digest}\n"), "{words}");
    // A report on fewer decisions has another digest.
    let fewer = place.audit("report --host o.test --digest").await.stdout;
    assert_ne!(fewer, again);
    assert!(!page.contains("127.0.0.1"));
}

// Ours: the page that the owner of a site gets.
#[tokio::test]
async fn the_report_for_a_site_reveals_no_other_site() {
    let contact = "proxy.contact = \"mailto:crawl@us.example\"";
    let (_origin, place) = recorded(&[contact]).await;
    let page = place.audit("report --for-site o.test").await.stdout;
    let wanted = [
        "Who came to o.test",
        "5requests by our crawlers",
        "FooBot/1 (=1+1; &lt;i&gt;)",
        "BarBot",
        "2 requests were sent to you",
        "5: Disallow: /private",
        "200: the file was read",
        "You answered with 429 or 503, and were left alone for a time.",
        "Questions reach us here: mailto:crawl@us.example",
    ];
    assert_page(&page, &wanted);
    for other in ["other.test", "QuuxBot", "127.0.0.1"] {
        assert!(!page.contains(other), "{other}");
    }
    // No crawler visited this site.
    let none = place.audit("report --for-site none.test").await.stdout;
    assert_page(&none, &["No request is on record as sent to you."]);
    let written = place.audit("report --for-site o.test -o site.html").await;
    assert_eq!(written.stdout, "");
    let file = place.path("site.html");
    assert!(std::fs::read_to_string(&file).unwrap().ends_with("</html>"));
    place.audit_code(2, "report -o site.html").await;
}

// Ours.
#[tokio::test]
async fn a_report_on_report_mode_shows_what_enforcing_would_refuse() {
    let (_origin, place) = recorded(&["enforcement.mode = \"report\""]).await;
    let page = place.audit("report").await.stdout;
    let wanted = [
        "What enforcing would have cost",
        "Nothing was enforced: politesse was in report mode for all of these requests.",
        "Enforcing would have refused 4 requests (66.7 % of all that was let through)",
    ];
    assert_page(&page, &wanted);
    let page = place.audit("report --for-site o.test").await.stdout;
    let wanted = [
        "What was let through although it would be refused",
        "and 3 requests while the program noted",
    ];
    assert_page(&page, &wanted);
}

// Ours: the page states which of its figures the record does not support.
#[tokio::test]
async fn a_report_on_a_tampered_record_says_so() {
    let (_origin, place) = recorded(&[]).await;
    let before = place.audit("report --digest").await.stdout;
    // Text that the program never writes, with invalid UTF-8.
    let columns = "'allow', 'no_rule', effect, line, CAST(x'ff9b3c2f6464e280ae1b' AS TEXT), \
                       groups, '<img/src=x>' || char(8238) || char(27), denials";
    place.refer_to_copy(2, "ruling", columns);
    let page = place.audit_code(1, "report").await.stdout;
    assert_page(&page, &["The record does not bear all of this out: "]);
    // A changed leaf changes the digest.
    let fourth = place.number(4);
    let sql = format!("UPDATE decision SET leaf = zeroblob(32) WHERE seq = {fourth}");
    place.database().execute_batch(&sql).unwrap();
    let after = place.audit("report --digest").await.stdout;
    assert_ne!(after, before);
}
