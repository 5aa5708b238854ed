//! The decision page of the dashboard: its filters, and the details of each decision.
//! Every test here is ours.

use std::fs::OpenOptions;
use std::io::Write as _;

use crate::dashboard::Browser;
use crate::kit::client::{ask, get, reload};
use crate::kit::proxy::Config;
use crate::kit::{assert_contains, assert_contains_each};

/// Returns the number of decisions that the API finds for a query.
async fn count(browser: &Browser, query: &str) -> usize {
    let found = browser.json(&format!("/api/v1/decisions?{query}")).await;
    found["decisions"].as_array().map_or(0, Vec::len)
}

#[tokio::test]
async fn the_decision_list_shows_total_page_and_filters() {
    let browser = Browser::new(Config::default()).await;
    let page = browser.get("/decisions").await.text();
    assert_contains(&page, "<b>4 decisions</b> · page 1 of 1");
    assert!(!page.contains("class=\"chips\"") && page.contains("<details class=\"more\">"));
    let narrow = "/decisions?search=private&status=403";
    let page = browser.get(narrow).await.text();
    assert_contains(&page, "<b>2 decisions</b> · page 1 of 1");
    for rest in ["/decisions?status=403", "/decisions?search=private"] {
        let chip = format!("<li><a href=\"{rest}\" title=\"Remove this filter\">");
        assert_contains(&page, &chip);
    }
    // `before` selects the rows of a page; its number is only displayed.
    let page = browser.get("/decisions?before=1&page=7").await.text();
    assert_contains(&page, "page 7 of 7");
    let one = browser.get("/decisions?page=7").await.text();
    assert_contains(&one, "page 1 of 1");
}

// A search matches part of host or path, ignoring case; other filters match exactly.
#[tokio::test]
async fn decisions_can_be_filtered_by_search_status_client_and_method() {
    let browser = Browser::new(Config::default()).await;
    ask(&browser.proxy, "HEAD", "http://o.test/open", &[]).await;
    browser.proxy.place().completed(5).await;
    for (query, wanted) in [
        ("search=O.TEST", 5),
        ("search=o.t", 5),
        ("search=RIVATE/", 1),
        ("search=o.test/private&status=403", 2),
        ("search=http%25", 0),
        ("host=o.test", 5),
        ("host=o.t", 0),
        ("status=403", 3),
        ("status=4xx", 3),
        ("status=200", 2),
        ("status=5xx", 0),
        ("method=HEAD", 1),
        ("method=GET&status=2xx", 1),
        ("client=127.0.0.1", 5),
        ("client=127.0.0.2", 0),
    ] {
        assert_eq!(count(&browser, query).await, wanted, "{query}");
    }
    let long = format!("search={}", "a".repeat(257));
    for query in [&*long, "status=4x", "method=G%20T"] {
        let reply = browser.get(&format!("/api/v1/decisions?{query}")).await;
        assert_eq!(reply.status(), 400, "{query}");
    }
    // Decisions are streamed as they are made, before they have a status.
    let stream = browser.get("/api/v1/decisions/stream?status=403").await;
    assert_eq!(stream.status(), 400);
    let page = browser.get("/decisions?status=403").await.text();
    assert!(!page.contains("data-live"), "{page}");
    let args = ["audit", "list", "--status", "4xx", "--json"];
    let rows = browser.proxy.place().run(&args).await.json_lines();
    assert!(rows.len() == 3 && rows.iter().all(|row| row["status"] == 403));
}

/// Returns the number of the newest decision about a URL.
async fn number_of(browser: &Browser, url: &str) -> u64 {
    let rows = browser.proxy.place().rows().await;
    let found = rows.iter().rfind(|row| row["url"] == url);
    found.unwrap()["seq"].as_u64().unwrap()
}

/// Strips tags from `markup` and unescapes its text.
fn text_of(markup: &str) -> String {
    let parts = markup.split('<').filter_map(|part| part.split_once('>'));
    let text: String = parts.map(|(_, text)| text).collect();
    let plain = text.replace("&quot;", "\"").replace("&lt;", "<");
    plain.replace("&gt;", ">").replace("&amp;", "&")
}

/// Returns the generated configuration entry on a page.
fn entry_of(page: &str) -> String {
    let (_, rest) = page.split_once("<pre id=\"entry\"").expect(page);
    let (entry, _) = rest.split_once("</pre>").unwrap();
    text_of(&format!("<{entry}"))
}

#[tokio::test]
async fn times_are_relative_with_the_exact_time_as_title() {
    let browser = Browser::new(Config::default()).await;
    let number = number_of(&browser, "http://o.test/private").await;
    let row = browser.json(&format!("/api/v1/decisions/{number}")).await;
    let time = row["time"].as_str().unwrap();
    let exact = format!("{} {} UTC", &time[..10], &time[11..19]);
    let page = browser.get("/decisions").await.text();
    let titled = format!("<time datetime=\"{time}\" title=\"{exact}\">");
    let (_, rest) = page.split_once(&titled).expect(&titled);
    let shown = rest.split('<').next().unwrap();
    assert!(shown.ends_with(" s ago") || shown.ends_with(" min ago"));
    // The page of a single decision shows the exact time first.
    let page = browser.get(&format!("/decisions/{number}")).await.text();
    let first = format!("<time class=\"text\" datetime=\"{time}\">{exact} (");
    assert_contains(&page, &first);
}

#[tokio::test]
async fn a_row_expands_in_place_to_facts_rule_line_and_links() {
    let browser = Browser::new(Config::default()).await;
    let number = number_of(&browser, "http://o.test/private/2").await;
    let story = format!("/decisions/{number}");
    let page = browser.get("/decisions?search=private/2").await.text();
    let wanted = [
        &*format!("data-part=\"{story}/part\" data-scripted hidden aria-expanded=\"false\""),
        &format!("<a href=\"{story}\"><time"),
        "<table class=\"rows cards\">",
        "<td data-label=\"crawler\"><a href=\"/crawlers?crawler=",
        "<a href=\"/decisions?rule=Disallow%3A+%2Fprivate\">",
    ];
    assert_contains_each(&page, &wanted);
    let part = browser.get(&format!("{story}/part")).await.text();
    let wanted = [
        "<dt>user_agent</dt>",
        "User-agent: *",
        &format!("<tr class=\"decided\"><th scope=\"row\" class=\"n\"><a href=\"{story}#L2\">"),
        "this rule at this host",
    ];
    assert_contains_each(&part, &wanted);
    assert!(!part.contains("<html") && !part.contains("id=\"L"));
    assert_eq!(browser.get("/decisions/99999/part").await.status(), 404);
}

#[tokio::test]
async fn a_refusal_page_generates_the_override_that_lifts_it() {
    let browser = Browser::new(Config::default()).await;
    let proxy = &browser.proxy;
    let url = r#"http://o.test/private/a*$"""'?q=\'''\n[x]"#;
    let beside = r#"http://o.test/private/axx$"""'?q=\'''\n[x]"#;
    for url in [url, beside] {
        assert_eq!(get(proxy, url).await.status(), 403);
    }
    proxy.place().completed(6).await;
    let story = format!("/decisions/{}", number_of(&browser, url).await);
    let page = browser.get(&story).await.text();
    assert_contains(&page, "<details id=\"override\">");
    assert!(!page.contains("<pre id=\"entry\""), "{page}");
    let form = "action=allow&reach=url&agent=this&until=2090-01-01\
                    &reason=%22%5C%E2%80%AEc%C3%A9%22";
    let page = browser.get(&format!("{story}?{form}")).await.text();
    let text = text_of(&page);
    let file = proxy.place().path("politesse.toml");
    let wanted = [
        "the verdict on the request is allow.",
        "config check validates it.",
        &format!("kill -HUP {}.", proxy.pid()),
        &file.display().to_string(),
    ];
    assert_contains_each(&text, &wanted);
    let entry = entry_of(&page);
    assert_contains(&entry, r#"reason = "\"\\\U0000202Ecé\"""#);
    let mut config = OpenOptions::new().append(true).open(&file).unwrap();
    config.write_all(entry.as_bytes()).unwrap();
    proxy.place().run_ok(&["config", "check"]).await;
    reload(proxy).await;
    assert_eq!(get(proxy, url).await.status(), 200);
    assert_eq!(get(proxy, beside).await.status(), 403);
}

#[tokio::test]
async fn an_override_is_generated_only_from_valid_input_where_it_would_apply() {
    let browser = Browser::new(Config::default()).await;
    get(&browser.proxy, "http://127.0.0.2/").await;
    browser.proxy.place().completed(5).await;
    for url in ["http://o.test/open", "http://127.0.0.2/"] {
        let story = format!("/decisions/{}", number_of(&browser, url).await);
        let page = browser.get(&story).await.text();
        assert!(!page.contains("id=\"override\""), "{url}: {page}");
    }
    let number = number_of(&browser, "http://o.test/private").await;
    for (form, wrong) in [
        ("reason=x&until=", "An allow needs an end"),
        ("reason=x&until=2020-01-01", "The end has passed"),
        ("reason=x&until=soon", "The end is a date"),
        ("reason=+", "The reason is one line"),
        ("reason=a%0A%5B%5Bb%5D%5D", "The reason is one line"),
    ] {
        let path = format!("/decisions/{number}?action=allow&{form}");
        let page = browser.get(&path).await.text();
        assert!(page.contains(wrong), "{form}: {page}");
        assert!(!page.contains("<pre id=\"entry\""), "{form}: {page}");
    }
    let form = "action=deny&reach=origin&agent=all&reason=asked+by+mail&until=";
    let page = browser.get(&format!("/decisions/{number}?{form}")).await;
    let entry = "[[robots.override]]\norigin = \"http://o.test\"\naction = \"deny\"\n\
                     reason = \"asked by mail\"\n";
    assert_eq!(entry_of(&page.text()), entry);
}
