//! The host list; the page of a host, which marks only lines that decided requests;
//! and the button that refetches a robots.txt. Every test here is ours.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::dashboard::{Browser, post};
use crate::kit::client::get;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::paced::asking_for_less;
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Place, resolve};
use crate::kit::{assert_contains, assert_contains_each, until};

/// Returns the table row of a line of robots.txt, or "" if the page leaves it out.
fn line(page: &str, number: u32) -> &str {
    let begin = format!("<tr id=\"L{number}\"");
    let rest = page.split_once(&begin).map_or("", |(_, rest)| rest);
    rest.split("</tr>").next().unwrap()
}

#[tokio::test]
async fn a_line_that_never_decided_is_not_marked() {
    let before = "User-agent: *\nDisallow: /p\nDisallow: /same # always\n";
    let (_first, proxy) = site(Script::robots(before), &[]).await;
    for path in ["p", "p/2", "same"] {
        get(&proxy, &format!("http://o.test/{path}")).await;
    }
    proxy.place().completed(3).await;
    let place = proxy.stop().await;
    // Without the saved copies the next process fetches robots.txt again.
    place.database().execute("DELETE FROM kept", []).unwrap();
    let after = "User-agent: *\nDisallow: /private-area\nDisallow: /same\n";
    let second = Script::robots(after).start().await;
    place.configure(&resolve("o.test", second.address()));
    let browser = Browser::idle(place).await;
    get(&browser.proxy, "http://o.test/same").await;
    browser.proxy.place().completed(4).await;
    let page = browser.get("/hosts?host=o.test").await.text();
    assert_contains(line(&page, 2), "/private-area");
    assert!(!line(&page, 2).contains("decided"), "{}", line(&page, 2));
    // The rule decided a request in each version; comments and spaces do not matter.
    assert_contains(line(&page, 3), "decided 2 requests");
    let unknown = browser.get("/hosts?host=o.test&sha256=0").await.text();
    assert_contains(&unknown, "This host has no such version.");
}

#[tokio::test]
async fn decided_requests_are_counted_per_origin_not_per_host() {
    let robots = "User-agent: *\nDisallow: /p\n";
    let first = Script::robots(robots).start().await;
    let another = format!("# another\n{robots}");
    let second = Script::robots(&another).start().await;
    let config = Config::default().set("egress.allow = [\"127.0.0.0/8\"]");
    let browser = Browser::idle(Place::with(&config)).await;
    for (origin, path) in [(&first, "p"), (&first, "p/2"), (&second, "p")] {
        let url = format!("http://{}/{path}", origin.address());
        get(&browser.proxy, &url).await;
    }
    browser.proxy.place().completed(3).await;
    let json = browser.json("/api/v1/hosts?host=127.0.0.1").await;
    let versions = json["versions"].as_array().unwrap();
    for (origin, at, decided) in [
        (&first, 2, "decided 2 requests "),
        (&second, 3, "decided 1 request "),
    ] {
        let name = format!("http://{}", origin.address());
        let version = versions.iter().find(|version| version["origin"] == *name);
        let sha256 = version.unwrap()["sha256"].as_str().unwrap();
        let path = format!("/hosts?host=127.0.0.1&sha256={sha256}");
        let page = browser.get(&path).await.text();
        assert_contains(line(&page, at), decided);
    }
    assert_eq!(json["rules"].as_array().unwrap().len(), 2, "{json}");
}

#[tokio::test]
async fn a_deciding_line_is_shown_even_deep_in_a_long_file() {
    let mut robots = "User-agent: *\n".to_owned();
    for number in 0..6000 {
        writeln!(robots, "Disallow: /never/{number}").unwrap();
    }
    robots.push_str("Disallow: /late\n");
    let (_origin, browser) = Browser::at_site(Script::robots(&robots), &[]).await;
    get(&browser.proxy, "http://o.test/late").await;
    let rows = browser.proxy.place().completed(1).await;
    let story = format!("/decisions/{}", rows[0]["seq"]);
    for path in ["/hosts?host=o.test", &story] {
        let page = browser.get(path).await.text();
        assert!(line(&page, 6002).contains("decided"), "{path}");
        assert!(line(&page, 5999).contains("/never/5997") && line(&page, 5998).is_empty());
        assert!(page.contains("lines left out"));
    }
}

/// Refetches a robots.txt with the form of the dashboard. Returns status and page.
async fn refetch(browser: &Browser, form: &str) -> (u16, String) {
    let admin = browser.proxy.admin();
    let own = format!("Origin: http://{admin}");
    let reply = post(admin, "/hosts", &[&own, &browser.cookie], form).await;
    (reply.status(), reply.text())
}

#[tokio::test]
async fn a_refetch_by_the_operator_applies_the_changed_robots_txt() {
    let old = Page::text("User-agent: *\nDisallow: /old\n");
    let script = Script::robots("User-agent: *\nDisallow: /new\nDisallow: /newer\n");
    let script = script.at_first("/robots.txt", 1, old);
    let (origin, browser) = Browser::at_site(script, &[]).await;
    let proxy = &browser.proxy;
    assert_eq!(get(proxy, "http://o.test/new").await.status(), 200);
    let page = browser.get("/hosts?host=o.test").await.text();
    assert_contains(&page, "Fetch robots.txt again now");
    let token = browser.form_token().await;
    let form = format!("form_token={token}&host=O.test&reason=its+%3Cowner%3E+asked");
    let (status, page) = refetch(&browser, &form).await;
    assert_eq!(status, 200, "{page}");
    assert_contains(&page, "read, 200, 2 lines added, 1 removed");
    assert_eq!(get(proxy, "http://o.test/new").await.status(), 403);
    assert_eq!(get(proxy, "http://o.test/old").await.status(), 200);
    let (_, again) = refetch(&browser, &form).await;
    assert_contains(&again, "not changed: read, 200");
    assert_eq!(origin.robots_fetches(), 3);
    let line = "robots_refetched {\"host\":\"o.test\",\"by\":\"admin token from 127.0.0.1\",\
                    \"why\":\"its <owner> asked\"}\n";
    // The answer is sent before the event is on disk.
    until("both refetches to be on record", async || {
        let events = proxy.place().run(&["audit", "events"]).await;
        (events.stdout.matches(line).count() == 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_refetch_needs_a_form_token_a_reason_and_a_cached_copy() {
    let (origin, browser) = Browser::at_site(Script::robots(""), &[]).await;
    get(&browser.proxy, "http://o.test/").await;
    let token = browser.form_token().await;
    for (token, host, reason, status, text) in [
        ("0", "o.test", "a+reason", 403, ""),
        (&*token, "o.test", "+", 400, "a reason is wanted"),
        (&token, "o.test:80", "a+reason", 400, "without a port"),
        (&token, "p.test", "a+reason", 404, "no copy of a robots.txt"),
    ] {
        let form = format!("form_token={token}&host={host}&reason={reason}");
        let (refused, page) = refetch(&browser, &form).await;
        assert_eq!(refused, status, "{host} {reason}");
        assert_contains(&page, text);
    }
    assert_eq!(origin.robots_fetches(), 1);
    let events = browser.proxy.place().run(&["audit", "events"]).await;
    assert!(!events.stdout.contains("robots_refetched"), "{events:?}");
}

/// Starts a proxy, makes decisions about 56 hosts and signs in.
async fn browser_with_hosts() -> (Browser, [Origin; 4]) {
    let usual = "User-agent: *\nDisallow: /private\n";
    let usual = Script::robots(usual).start().await;
    let slow = Script::robots("User-agent: *\nCrawl-delay: 7\n");
    let none = Script::robots_page(Page::status(404));
    let busy = Script::robots("").page("/", asking_for_less(503, Some("600")));
    let origins = [
        usual,
        slow.start().await,
        none.start().await,
        busy.start().await,
    ];
    let mut config = Config::default()
        .set("pace.backoff = { first = \"60s\", longest = \"24h\", forgive = \"30m\" }")
        .resolve("slow-shop.test", origins[1].address())
        .resolve("shop.test", origins[2].address())
        .resolve("busy.test", origins[3].address());
    let numbered: Vec<_> = (0..52).map(|at| format!("host{at:02}.test")).collect();
    for name in &numbered {
        config = config.resolve(name, origins[0].address());
    }
    let browser = Browser::idle(Place::with(&config)).await;
    let mut urls: Vec<_> = numbered.iter().map(|name| format!("{name}/")).collect();
    urls.extend(["slow-shop.test/", "busy.test/", "nowhere.test/"].map(str::to_owned));
    urls.extend(["1", "2", "3"].map(|path| format!("shop.test/{path}")));
    urls.extend(["1", "2"].map(|path| format!("host07.test/private/{path}")));
    for url in &urls {
        get(&browser.proxy, &format!("http://{url}")).await;
    }
    browser.proxy.place().completed(urls.len()).await;
    (browser, origins)
}

/// Returns the host names in a list of the API.
fn names(list: &Value) -> Vec<&str> {
    let hosts = list["hosts"].as_array().unwrap().iter();
    hosts.map(|host| host["host"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_host_list_can_be_paged_sorted_and_searched() {
    let (browser, _origins) = browser_with_hosts().await;
    let list = async |query: &str| browser.json(&format!("/api/v1/hosts{query}")).await;
    let all = list("").await;
    assert_eq!(names(&all)[..3], ["host07.test", "shop.test", "busy.test"]);
    assert_eq!(names(&all).len(), 50);
    assert_eq!((&all["total"], &all["pages"]), (&json!(56), &json!(2)));
    let last = list("?page=2").await;
    assert_eq!(last["hosts"].as_array().unwrap().len(), 6);
    assert!(names(&last).iter().all(|name| !names(&all).contains(name)));
    assert_eq!(names(&list("?page=99").await), names(&last));
    for (query, first) in [
        ("?sort=refused", "host07.test"),
        ("?sort=back_offs", "busy.test"),
        ("?sort=robots", "host00.test"),
        ("?sort=name&hours=1", "busy.test"),
    ] {
        assert_eq!(names(&list(query).await)[0], first, "{query}");
    }
    let shops = list("?search=SHOP").await;
    assert_eq!(names(&shops), ["shop.test", "slow-shop.test"]);
    let (shop, slow) = (&shops["hosts"][0], &shops["hosts"][1]);
    assert_eq!(shop["robots"]["status"], 404);
    assert!(shop["usual_pause_ms"].is_u64() && slow["usual_pause_ms"].is_null());
    assert_eq!(slow["asked_pause_ms"], 7000);
    assert_eq!(list("?search=%25").await["total"], 0);

    let page = browser.get("/hosts").await.text();
    let wanted = [
        "56 hosts",
        "page 1 of 2",
        "aria-sort=\"descending\"><a href=\"/hosts?sort=requests&amp;hours=24\"",
        "rel=\"next\" href=\"/hosts?sort=requests&amp;page=2&amp;hours=24\"",
        "(66.7 %)",
        "data-label=\"robots.txt\">none (404)",
        "data-label=\"robots.txt\">read, 200",
    ];
    assert_contains_each(&page, &wanted);
    let found = browser.get("/hosts?search=slow&sort=name").await.text();
    let wanted = [
        "1 host<",
        "data-label=\"pace asked\">7.0 s",
        "<a href=\"/hosts?host=slow-shop.test\">",
        "href=\"/hosts?search=slow&amp;sort=refused&amp;hours=24\"",
    ];
    assert_contains_each(&found, &wanted);
}
