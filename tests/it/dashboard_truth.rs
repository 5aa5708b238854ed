//! Each number on a page equals the count of rows that its link lists. Every test here
//! is ours.

use serde_json::json;

use crate::dashboard::Browser;
use crate::kit::client::{get, get_as};
use crate::kit::origin::{Origin, Script};
use crate::kit::page::Page;
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
async fn browser_after_requests(config: Config) -> (Browser, Vec<Origin>) {
    let mut origins = Vec::new();
    let mut config = config;
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

/// Returns the number of decisions that the API lists at `target`.
async fn rows_of(browser: &Browser, target: &str) -> usize {
    let rows = browser.json(target).await;
    rows["decisions"].as_array().unwrap().len()
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
        let count = rows_of(browser, &target).await;
        assert_eq!(number, count, "{text:?} at {path} leads to {target}");
        followed += 1;
    }
    followed
}

#[tokio::test]
async fn every_linked_number_equals_the_rows_of_its_link() {
    for mode in ["enforce", "report"] {
        let (browser, _origins) = browser_after_requests(in_mode(mode)).await;
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

/// Starts `a.test`, `b.test` and a proxy, and signs in. Then requests each URL the given
/// number of times as FooBot, and waits until all are on record.
async fn browser_at_two_sites(
    scripts: [Script; 2],
    config: Config,
    asked: &[(usize, &str)],
) -> (Browser, [Origin; 2]) {
    let [first, second] = scripts;
    let origins = [first.start().await, second.start().await];
    let config = config
        .resolve("a.test", origins[0].address())
        .resolve("b.test", origins[1].address());
    let browser = Browser::idle(Place::with(&config)).await;
    for &(count, url) in asked {
        for _ in 0..count {
            get_as(&browser.proxy, "FooBot/1", url).await;
        }
    }
    let total = asked.iter().map(|(count, _)| count).sum();
    browser.proxy.place().completed(total).await;
    (browser, origins)
}

fn in_mode(mode: &str) -> Config {
    Config::default().set(&format!("enforcement.mode = \"{mode}\""))
}

#[tokio::test]
async fn percentages_and_order_agree_with_the_numbers_shown() {
    // Rules refuse 26 of 72; 3 others fail because their host does not exist, which is no
    // refusal. Ascending, so that no list is in descending order by chance.
    let asked = [
        (3, "http://never.test/"),
        (6, "http://b.test/p"),
        (17, "http://b.test/open"),
        (20, "http://a.test/p"),
        (26, "http://a.test/open"),
    ];
    for mode in ["enforce", "report"] {
        let scripts = [SPELLINGS[0], SPELLINGS[1]].map(Script::robots);
        let (browser, _origins) = browser_at_two_sites(scripts, in_mode(mode), &asked).await;
        for path in ["/?hours=1", "/?hours=24", "/crawlers?hours=24"] {
            let page = browser.get(path).await.text();
            assert_contains_each(&page, &[">26</a> <span", "(36.1 %)"]);
        }
        let json = browser.json("/api/v1/overview").await;
        let hosts = json["hosts"].as_array().unwrap().iter();
        let refused = hosts.map(|host| json!([host["name"], host["refused"]]));
        let refused = refused.collect::<Vec<_>>();
        assert_eq!(
            json!(refused),
            json!([["a.test", 20], ["b.test", 6]]),
            "{mode}"
        );
    }
}

/// Each class, its name on the page, and its count in the requests of
/// [`browser_with_all_classes`].
const CLASSES: [(&str, &str, u64); 9] = [
    ("sent", "sent", 4),
    ("rule", "refused by a rule", 3),
    ("operator", "refused by the operator", 2),
    ("preference", "refused by a preference", 0),
    ("withheld", "withheld", 0),
    ("unreachable", "robots.txt unreachable", 5),
    ("put_off", "put off", 2),
    ("refused_by_site", "refused by the site", 1),
    ("error", "errors", 6),
];

/// Starts a proxy, makes requests of most classes, and signs in.
async fn browser_with_all_classes(mode: &str) -> (Browser, [Origin; 2]) {
    let first = Script::robots(SPELLINGS[0])
        .page("/closed", Page::status(403))
        .page("/busy", Page::status(503));
    let down = Script::robots_page(Page::status(500));
    let config = in_mode(mode).set(
        "robots.override = [{ origin = \"http://a.test\", path = \"/denied\", \
         action = \"deny\", reason = \"test\" }]",
    );
    let asked = [
        (4, "http://a.test/open"),
        (3, "http://a.test/p"),
        (2, "http://a.test/denied"),
        (5, "http://b.test/"),
        (1, "http://a.test/closed"),
        (6, "http://never.test/"),
        (2, "http://a.test/busy"),
    ];
    browser_at_two_sites([first, down], config, &asked).await
}

#[tokio::test]
async fn each_decision_is_counted_in_exactly_one_class() {
    for mode in ["enforce", "report"] {
        let (browser, _origins) = browser_with_all_classes(mode).await;
        let json = browser.json("/api/v1/overview").await;
        let page = browser.get("/").await.text();
        for (word, name, count) in CLASSES {
            for sums in [&json["sums"], &json["crawlers"][0]] {
                assert_eq!(sums["classes"][word], count, "{mode} {word}: {sums}");
            }
            let hours = json["over_time"].as_array().unwrap().iter();
            let by_hour = hours.map(|hour| hour["classes"][word].as_u64().unwrap());
            assert_eq!(by_hour.sum::<u64>(), count, "{mode} {word}: {json}");
            assert!(page.contains(&format!("<span>{name}</span>")), "{name}");
            // The legend and the heads of two tables list only classes that occur.
            let head = format!("<th scope=\"col\" class=\"n\">{name}</th>");
            let is_there = 0 < count;
            let heads = page.matches(&head).count();
            assert_eq!(2 <= heads, is_there, "{name}: {page}");
            let is_in_legend = page.contains(&format!("{name}: {count}<"));
            assert_eq!(is_in_legend, is_there, "{name}: {page}");
            let target = format!("/api/v1/decisions?class={word}");
            let found = rows_of(&browser, &target).await;
            assert_eq!(found as u64, count, "{mode} {word}");
        }
        assert_eq!(json["sums"]["requests"], 23, "{json}");
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
