//! Past versions of a robots.txt on the dashboard: compared on the host page, and
//! used to test a URL.

use crate::audit_replay::recorded;
use crate::dashboard::Browser;
use crate::kit::client::get;
use crate::kit::origin::Origin;
use crate::kit::proxy::{Config, Place};
use crate::kit::{assert_contains, assert_contains_each};

/// Opens the record of a host whose robots.txt changed: only the second version
/// disallows `/late`.
async fn browse() -> (Origin, Browser) {
    let (origin, place) = recorded().await;
    (origin, Browser::idle(place).await)
}

// Ours: the differences are listed line by line.
#[tokio::test]
async fn the_host_page_compares_two_versions_of_a_robots_txt() {
    let (_origin, browser) = browse().await;
    let host = browser.json("/api/v1/hosts?host=o.test").await;
    let sha256 = |at: usize| host["versions"][at]["sha256"].as_str().unwrap();
    let (newer, older) = (sha256(0), sha256(1));
    assert_ne!(newer, older);
    let page = browser.get("/hosts?host=o.test").await.text();
    let compare = format!("sha256={newer}&amp;previous={older}");
    assert_contains(&page, &compare);
    let compared = format!("/hosts?host=o.test&sha256={newer}&previous={older}");
    let page = browser.get(&compared).await.text();
    let wanted = [
        "2 lines added, 2 removed",
        "+Disallow: /late",
        "-Disallow: /shop/*.pdf",
    ];
    assert_contains_each(&page, &wanted);
    let older = format!("/hosts?host=o.test&sha256={older}");
    let page = browser.get(&older).await.text();
    assert!(!page.contains("Disallow: /late"), "{page}");
}

// Ours: the robots.txt in force at that time decides, as in `audit why --at`.
#[tokio::test]
async fn a_url_can_be_tested_against_the_robots_txt_of_a_past_time() {
    let (_origin, browser) = browse().await;
    let rows = browser.proxy.place().completed(7).await;
    let first = rows.iter().find(|row| row["url"] == "http://o.test/a");
    let then = first.unwrap()["time"].as_str().unwrap();
    let ask = async |at: &str| {
        let at = at.replace(':', "%3A");
        let target = format!("/test?agent=FooBot/1&url=http://o.test/late&at={at}");
        browser.get(&target).await.text()
    };
    let past = ask(then).await;
    assert_contains_each(&past, &["answer allow", "was in force at"]);
    let now = ask("0s").await;
    assert_contains_each(&now, &["answer disallow", "Disallow: /late"]);
    let before = ask("2020-01-01").await;
    assert_contains(&before, "No robots.txt of http://o.test is on record");
    let wrong = ask("yesterday").await;
    assert_contains(&wrong, "Time: a time is wanted");
}

// Ours: a pasted text is evaluated as the proxy would evaluate it.
#[tokio::test]
async fn a_pasted_robots_txt_is_judged_in_every_reading_and_with_overrides() {
    let own = "robots.override = [{ origin = \"http://q.test\", path = \"/\", action = \"allow\", reason = \"ours\", until = 2999-01-01T00:00:00Z }]";
    let browser = Browser::idle(Place::with(&Config::default().set(own))).await;
    let ask = async |url: &str| {
        let robots = "User-agent:%20*%0ADisallow:%20/private";
        let target = format!("/test?agent=FooBot&url={url}&robots={robots}");
        browser.get(&target).await.text()
    };
    let refused = ask("http://p.test/private").await;
    assert_contains(&refused, "answer disallow");
    // Many servers treat `//private` as `/private`.
    let reading = ask("http://p.test//private").await;
    let named = "/private: the path as a server may read it";
    assert_contains_each(&reading, &["answer disallow", named]);
    let overridden = ask("http://q.test/private").await;
    assert_contains(&overridden, "answer allow");
}

// Ours: in report mode the page says that the request would be forwarded.
#[tokio::test]
async fn the_url_test_reports_what_the_proxy_would_do_in_report_mode() {
    let config = Config::default().set("enforcement.mode = \"report\"");
    let browser = Browser::new(config).await;
    let ask = async |query: &str| {
        let target = format!("/test?agent=ExampleBot/1.0&url=http://o.test/private&{query}");
        browser.get(&target).await.text()
    };
    let page = ask("").await;
    assert_contains_each(&page, &["answer disallow", "request is still forwarded"]);
    let to_come = ask("at=2999-01-01").await;
    assert_contains(&to_come, "a time in the past is wanted");
    // A URL that ends in `*` gets no link: as a filter the star would be a pattern and
    // match other URLs.
    get(&browser.proxy, "http://o.test/open*").await;
    let rows = browser.proxy.place().completed(5).await;
    for row in &rows {
        let story = format!("/decisions/{}", row["seq"]);
        let page = browser.get(&story).await.text();
        let is_linked = row["url"] != "http://o.test/open*";
        assert_eq!(page.contains(">this URL<"), is_linked, "{row}: {page}");
    }
}
