//! The crawler page: the crawlers seen, requests without a name, and the robots.txt
//! group that applied to each.

use serde_json::json;

use crate::dashboard::Browser;
use crate::kit::client::{ask, get_as};
use crate::kit::origin::Script;
use crate::kit::proxy::{Config, Place};
use crate::kit::{assert_contains, assert_contains_each, assert_members};

const ROBOTS: &str = "User-agent: FooBot\nDisallow: /private\nCrawl-delay: 60\n\n\
                      User-agent: *\nDisallow: /closed\n";

// Ours: names seen, the groups that applied, and why requests were put off.
#[tokio::test]
async fn crawlers_are_listed_by_their_robots_txt_token() {
    let lines = ["pace.max_wait = \"1ms\""];
    let (_origin, browser) = Browser::at_site(Script::robots(ROBOTS), &lines).await;
    let proxy = &browser.proxy;
    // FooBot is last: its crawl delay would hold up the robots.txt fetches of others.
    ask(proxy, "GET", "http://o.test/closed", &[]).await;
    for (agent, path) in [
        ("OtherBot/1", "closed"),
        ("FooBot/1", "private"),
        ("foobot/2", "private/2"),
        ("FooBot/1", "open"),
        // Within the crawl delay after the previous request.
        ("FooBot/1", "open/2"),
    ] {
        get_as(proxy, agent, &format!("http://o.test/{path}")).await;
    }
    proxy.place().completed(6).await;

    let json = browser.json("/api/v1/crawlers?hours=1").await;
    assert_eq!(json["total"], 3, "{json}");
    let foo = &json["crawlers"][0];
    assert_members(foo, &json!({"requests": 4, "refusals": 2, "later": 1}));
    assert_eq!(foo["put_off"]["crawl_delay"], 1, "{json}");
    assert_eq!(foo["groups"][0]["agents"][0], "foobot", "{json}");
    let agents = foo["user_agents"].as_array().unwrap();
    assert_eq!(agents[..], ["foobot/2", "FooBot/1"], "{json}");
    let others = json["crawlers"].as_array().unwrap();
    let nameless = others.iter().find(|entry| entry["name"].is_null()).unwrap();
    assert_eq!(nameless["groups"][0]["agents"][0], "*", "{json}");

    let page = browser.get("/crawlers?hours=1").await.text();
    let wanted = [
        "Identity missing.",
        "crawler=*",
        "<bdi>OtherBot/1</bdi>",
        "<td data-label=\"group\"><code><bdi>foobot</bdi></code>",
        "<a href=\"/crawlers?crawler=OtherBot\"><bdi>OtherBot</bdi></a>",
    ];
    assert_contains_each(&page, &wanted);
    let page = browser.get("/crawlers?hours=1&crawler=FooBot").await.text();
    let wanted = [
        "Crawler FooBot",
        "/crawlers?crawler=FooBot&amp;hours=24",
        "<li class=\"refused\"><b>2</b>",
        "<li class=\"later\"><b>1</b>",
    ];
    assert_contains_each(&page, &wanted);
    assert!(!page.contains("OtherBot"), "{page}");
    for (crawler, total) in [("foobot", 1), ("*", 1), ("NoBot", 0)] {
        let path = format!("/api/v1/crawlers?crawler={crawler}");
        assert_eq!(browser.json(&path).await["total"], total, "{crawler}");
    }
    // The link on the count leads to as many rows.
    let rows = browser.json("/api/v1/decisions?crawler=FooBot").await;
    assert_eq!(rows["decisions"].as_array().unwrap().len(), 4, "{rows}");
    // Without requests the page says so.
    let idle = Browser::idle(Place::with(&Config::default())).await;
    let page = idle.get("/crawlers").await.text();
    assert_contains(&page, "No request in this time");
}
