//! Changes of robots.txt and other news on the dashboard. Every test here is ours.

use serde_json::{Value, json};

use crate::dashboard::Browser;
use crate::kit::client::{get_as, metrics};
use crate::kit::origin::{Origin, Script};
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Place};
use crate::kit::{assert_contains, assert_contains_each, until};

const BEFORE: &str = "User-agent: *\nDisallow: /old\nDisallow: /both\n";
const AFTER: &str = "User-agent: *\nDisallow: /a\nDisallow: /b*\nDisallow: /both\n";

/// Returns a robots.txt with `max-age=0`, so that the proxy soon fetches it again.
fn uncached(robots: &str) -> Page {
    Page::text(robots).field("Cache-Control", "max-age=0")
}

/// Lets robots.txt expire at once, also one that is unavailable.
const SHORT_LIVED: [&str; 2] = [
    "robots.ttl_min = \"1ms\"",
    "robots.unavailable_ttl = \"1ms\"",
];

/// Starts a site whose robots.txt is `after` from the second fetch on, and signs in.
async fn browse_change(before: Page, after: Page) -> (Origin, Browser) {
    let script = Script::robots_page(after).at_first("/robots.txt", 1, before);
    Browser::at_site(script, &SHORT_LIVED).await
}

/// Requests `paths` of `o.test` in sequence.
async fn ask_as(browser: &Browser, agent: &str, paths: &[&str]) {
    for path in paths {
        get_as(&browser.proxy, agent, &format!("http://o.test/{path}")).await;
    }
}

async fn changes(browser: &Browser) -> Vec<Value> {
    let list = browser.json("/api/v1/hosts/changes").await;
    list["changes"].as_array().unwrap().clone()
}

/// Requests `/a` until a change of robots.txt is listed, and returns that change.
async fn change(browser: &Browser, agent: &str) -> Value {
    let list = until("a change", async || {
        ask_as(browser, agent, &["a"]).await;
        let list = changes(browser).await;
        (!list.is_empty()).then_some(list)
    });
    let list = list.await;
    assert_eq!(list.len(), 1, "{list:?}");
    list[0].clone()
}

/// Waits until `count` changes of robots.txt are counted as `result`.
async fn await_change_count(browser: &Browser, result: &str, count: u64) {
    let line = format!("politesse_robots_changes_total{{result=\"{result}\"}} {count}\n");
    let count = async || metrics(&browser.proxy).await.contains(&line).then_some(());
    until(&line, count).await;
}

#[tokio::test]
async fn a_changed_robots_txt_is_listed_with_its_lines_and_effect_on_its_crawler() {
    let (_origin, browser) = browse_change(uncached(BEFORE), uncached(AFTER)).await;
    await_change_count(&browser, "newly_disallows", 0).await;
    ask_as(&browser, "FooBot/1", &["a", "old", "b?c", "both", "free"]).await;
    let change = change(&browser, "FooBot/1").await;
    await_change_count(&browser, "newly_disallows", 1).await;
    assert_eq!(change["host"], "o.test");
    assert_eq!(change["token"], "FooBot");
    assert_eq!(change["lines"], json!({ "added": 2, "removed": 1 }));
    let effect = json!({
        "urls": 5, "newly_disallowed": 2, "newly_allowed": 1, "still_disallowed": 1,
        "left_out": 0, "is_cut": false,
    });
    assert_eq!(change["effect"], effect);
    let page = browser.get("/hosts/changes").await.text();
    let wanted = ["+2 −1", "2 of 5", "1 of 5", "/hosts?host=o.test"];
    assert_contains_each(&page, &wanted);
    let path = format!("/hosts/changes/{}", change["number"]);
    let story = browser.json(&format!("/api/v1{path}")).await;
    let url = |url: &str| json!({ "crawler": "FooBot", "url": url });
    let disallowed = json!([url("http://o.test/b?c"), url("http://o.test/a")]);
    let mut named = story["newly_disallowed_urls"].as_array().unwrap().clone();
    named.sort_by_key(|entry| entry["url"] == "http://o.test/a");
    assert_eq!(json!(named), disallowed, "{story}");
    let allowed = json!([url("http://o.test/old")]);
    assert_eq!(story["newly_allowed_urls"], allowed);
    assert_eq!(story["crawlers"][0]["name"], "FooBot");
    let page = browser.get(&path).await.text();
    let wanted = [
        "+Disallow: /a",
        "-Disallow: /old",
        "2 more",
        "http://o.test/b?c",
    ];
    assert_contains_each(&page, &wanted);
    let host = browser.get("/hosts?host=o.test").await.text();
    assert_contains(&host, &path);
    assert_eq!(browser.get("/hosts/changes/99999").await.status(), 404);
    // BarBot has seen only the new robots.txt, so nothing changed for BarBot.
    ask_as(&browser, "BarBot/1", &["b", "free"]).await;
    let list = changes(&browser).await;
    assert_eq!(list.len(), 1, "{list:?}");
    assert_eq!(list[0]["effect"], effect);
}

#[tokio::test]
async fn a_robots_txt_that_appears_or_disappears_has_changed_but_an_outage_is_no_change() {
    let gone = Page::status(404).field("Cache-Control", "max-age=0");
    let (file, allowed) = (uncached(AFTER), ["newly_allowed", "file → none (404)"]);
    let disallowed = ["newly_disallowed", "none (404) → file"];
    for (before, after, [count, answers]) in [
        (file.clone(), gone.clone(), allowed),
        (gone, file, disallowed),
    ] {
        let (_origin, browser) = browse_change(before, after).await;
        let change = change(&browser, "FooBot/1").await;
        assert_eq!(change["effect"][count], 1, "{change}");
        let page = browser.get("/hosts/changes").await.text();
        assert!(page.contains(answers), "{page}");
    }
    let (origin, browser) = browse_change(uncached(BEFORE), Page::status(500)).await;
    until("an outage", async || {
        ask_as(&browser, "FooBot/1", &["a"]).await;
        (1 < origin.robots_fetches()).then_some(())
    })
    .await;
    ask_as(&browser, "FooBot/1", &["a"]).await;
    assert_eq!(changes(&browser).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_change_that_disallows_no_crawled_url_is_counted_separately() {
    let (_origin, browser) = browse_change(uncached(BEFORE), uncached(AFTER)).await;
    until("a change", async || {
        ask_as(&browser, "FooBot/1", &["free", "old", "both"]).await;
        (!changes(&browser).await.is_empty()).then_some(())
    })
    .await;
    await_change_count(&browser, "disallows_no_more", 1).await;
    await_change_count(&browser, "newly_disallows", 0).await;
}

#[tokio::test]
async fn the_overview_announces_only_new_hosts_and_crawlers() {
    let script = Script::robots_page(uncached(AFTER));
    let script = script.at_first("/robots.txt", 1, uncached(BEFORE));
    let origin = script.start().await;
    let hosts = ["o.test", "new.test", "other.test"].into_iter();
    let named = hosts.fold(Config::default(), |config, host| {
        config.resolve(host, origin.address())
    });
    let config = named.set(SHORT_LIVED[0]);
    let browser = Browser::idle(Place::with(&config)).await;
    change(&browser, "OldBot/1").await;
    get_as(&browser.proxy, "OldBot/1", "http://other.test/").await;
    let news = browser.json("/api/v1/news").await;
    let hosts = json!(["other.test", "o.test"]);
    assert_eq!(news["hosts"]["names"], hosts, "{news}");
    assert_eq!(news["crawlers"]["names"], json!(["OldBot"]), "{news}");
    let disallowed = json!(["/a", "/b*"]);
    assert_eq!(news["changes"][0]["disallowed"], disallowed, "{news}");
    let page = browser.get("/").await.text();
    let wanted = [
        "New since yesterday",
        "2 new hosts",
        "1 new crawler",
        "Disallow: /b*",
    ];
    assert_contains_each(&page, &wanted);
    let place = browser.proxy.stop().await;
    make_older(&place);
    let browser = Browser::idle(place).await;
    ask_as(&browser, "OldBot/1", &["free"]).await;
    get_as(&browser.proxy, "OldBot/1", "http://new.test/").await;
    get_as(&browser.proxy, "newbot/1", "http://o.test/").await;
    get_as(&browser.proxy, "oldbot/1", "http://o.test/").await;
    let news = browser.json("/api/v1/news").await;
    assert_eq!(news["hosts"]["names"], json!(["new.test"]), "{news}");
    assert_eq!(news["crawlers"]["names"], json!(["newbot"]), "{news}");
    assert_eq!(news["changes"], json!([]), "{news}");
}

/// Moves everything on record two days into the past.
fn make_older(place: &Place) {
    let days = "- 172800000000";
    let sql = format!(
        "UPDATE decision SET time_us = time_us {days};
         UPDATE snapshot SET fetched_us = fetched_us {days}, expires_us = expires_us {days};
         DELETE FROM kept;"
    );
    place.database().execute_batch(&sql).unwrap();
}
