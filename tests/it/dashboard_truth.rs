//! Each number on a page equals the count of rows that its link lists. Every test here
//! is ours.

use crate::dashboard::Browser;
use crate::kit::client::{get, get_as};
use crate::kit::origin::{Origin, Script};
use crate::kit::proxy::{Config, Place};
use crate::kit::{assert_contains, assert_contains_each};

/// One rule in different spellings; some files have further rules or groups.
const SPELLINGS: [&str; 3] = [
    "User-agent: *\nDisallow: /p\nDisallow: /q\n",
    "user-agent: *\ndisallow:/p\n",
    "User-agent: LoneBot\nDisallow: /\n\nUser-agent: *\nDISALLOW :   /p\n",
];

/// Pages whose numbers link to rows.
const PAGES: [&str; 3] = ["/?hours=1", "/?hours=720", "/crawlers?hours=24"];

/// Starts a proxy, makes requests under names of different spellings, and signs in.
async fn browser_after_requests(mode: &str) -> (Browser, Vec<Origin>) {
    let mut origins = Vec::new();
    let mut config = Config::default().set(&format!("enforcement.mode = \"{mode}\""));
    for (number, robots) in SPELLINGS.into_iter().enumerate() {
        let origin = Script::robots(robots).start().await;
        config = config.resolve(&format!("o{number}.test"), origin.address());
        origins.push(origin);
    }
    let browser = Browser::idle(Place::with(&config)).await;
    let proxy = &browser.proxy;
    let mut count = 0;
    for number in 0..SPELLINGS.len() {
        for agent in ["FooBot/1", "FOOBOT/2", "foobot", "LoneBot", "(none)"] {
            for path in ["p", "q", "open"] {
                get_as(proxy, agent, &format!("http://o{number}.test/{path}")).await;
                count += 1;
            }
        }
    }
    get(proxy, "http://never.test/").await;
    proxy.place().completed(count + 1).await;
    (browser, origins)
}

/// Asserts that every linked number on a page equals the row count of its link. Returns
/// how many links were followed.
async fn follow(browser: &Browser, path: &str) -> usize {
    let page = browser.get(path).await.text();
    let mut followed = 0;
    for link in page.split("href=\"/decisions?").skip(1) {
        let (query, rest) = link.split_once('"').unwrap();
        let (_, text) = rest.split_once('>').unwrap();
        let text = text.split("</a>").next().unwrap();
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        let Ok(number) = digits.parse::<usize>() else {
            continue;
        };
        let query = query.replace("&amp;", "&");
        let target = format!("/api/v1/decisions?{query}&limit=1000");
        let rows = browser.json(&target).await;
        let count = rows["decisions"].as_array().unwrap().len();
        assert_eq!(number, count, "{text:?} at {path} leads to {target}");
        followed += 1;
    }
    followed
}

#[tokio::test]
async fn every_linked_number_equals_the_rows_of_its_link() {
    for mode in ["enforce", "report"] {
        let (browser, _origins) = browser_after_requests(mode).await;
        for page in PAGES {
            let followed = follow(&browser, page).await;
            assert!(10 < followed, "{page}: {followed}");
        }
        let json = browser.json("/api/v1/overview?hours=1").await;
        let names = |list: &str| {
            let entries = json[list].as_array().unwrap().iter();
            let names = entries.map(|entry| entry["name"].as_str().unwrap_or("*"));
            names.map(str::to_ascii_lowercase).collect::<Vec<_>>()
        };
        let crawlers = ["foobot", "*", "lonebot", "examplebot"];
        assert_eq!(names("crawlers"), crawlers, "{json}");
        assert_eq!(names("rules")[0].replace(' ', ""), "disallow:/p", "{json}");
        assert_eq!(json["rules"].as_array().unwrap().len(), 3, "{json}");
    }
}

#[tokio::test]
async fn nameless_crawlers_are_listed_in_addition_to_the_top_hundred() {
    let (_origin, browser) = Browser::at_site(Script::robots(SPELLINGS[0]), &[]).await;
    get_as(&browser.proxy, "(none)", "http://o.test/p").await;
    let mut count = 1;
    for number in 0..101 {
        for path in ["p", "open"] {
            let url = format!("http://o.test/{path}");
            get_as(&browser.proxy, &format!("Bot-{number}"), &url).await;
            count += 1;
        }
    }
    browser.proxy.place().completed(count).await;
    let page = browser.get("/crawlers").await.text();
    let wanted = [
        "Identity missing.",
        ">1 request</a>",
        "The 100 with most requests",
    ];
    assert_contains_each(&page, &wanted);
}

#[tokio::test]
async fn an_unwritable_record_is_reported_with_its_cause() {
    let config = Config::default().set("audit.store = \"sqlite:data/audit.db\"");
    let browser = Browser::new(config).await;
    let place = browser.proxy.place();
    std::fs::rename(place.path("data/audit.db"), place.path("data/moved")).unwrap();
    let json = browser.json("/api/v1/configuration").await;
    let problem = json["record"]["problem"].as_str().unwrap_or_default();
    assert_contains(problem, "deleted or moved");
    let export = browser.get("/decisions/export?form=xml").await;
    assert_eq!(export.status(), 400);
}
