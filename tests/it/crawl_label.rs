//! Labels of crawls (`run --label`, `Politesse-Crawl`, `crawler.label`), and the URLs
//! that a crawl missed (`audit missed`). All ours; docs/asking.md.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kit::client::{Crawler, ask, get};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::paced::{asking_for_less, column};
use crate::kit::page::Page;
use crate::kit::proxy::{Place, Proxy, resolve};

const ROBOTS: &str = "User-agent: *\nContent-Usage: /kept train-ai=n\nDisallow: /private\n";
const FIELD: &str = "Politesse-Crawl: shop-2026-11";

/// Returns the label of each decision, oldest first.
fn labels(rows: &[Value]) -> Vec<Option<&str>> {
    rows.iter().map(|row| row["label"].as_str()).collect()
}

/// Returns the rows that `audit list` prints with `arguments`.
async fn list(place: &Place, arguments: &[&str]) -> Vec<Value> {
    let command = [&["audit", "list", "--json"], arguments].concat();
    place.run(&command).await.json_lines()
}

/// Returns the reason for each missed URL, by path.
async fn missed(place: &Place, label: &str) -> BTreeMap<String, String> {
    let command = ["audit", "missed", "--label", label, "--json"];
    let rows = place.run(&command).await.json_lines();
    let path = |row: &Value| row["url"].as_str().unwrap().replace("http://o.test", "");
    let why = |row: &Value| row["why"].as_str().unwrap().to_owned();
    let found: BTreeMap<_, _> = rows.iter().map(|row| (path(row), why(row))).collect();
    assert_eq!(found.len(), rows.len(), "{rows:?}");
    found
}

#[tokio::test]
async fn a_request_is_labelled_by_its_field_or_else_its_crawler() {
    let entry = "crawler = [{ token = \"FooBot\", user_agent = \"foobot\", label = \"nightly\" }]";
    let (origin, proxy) = site(Script::robots(ROBOTS), &[entry]).await;
    ask(&proxy, "GET", "http://o.test/a", &[FIELD]).await;
    get(&proxy, "http://o.test/b").await;
    let seen = origin.arrival("/a").await;
    assert!(seen.values("politesse-crawl").is_empty(), "{seen:?}");
    for (path, label) in [("c", &[][..]), ("d", &["Politesse-Crawl: other"])] {
        let fields = [&["User-Agent: FooBot/1"], label].concat();
        ask(&proxy, "GET", &format!("http://o.test/{path}"), &fields).await;
    }
    proxy.place().completed(4).await;
    let place = proxy.stop().await;
    let found = [Some("shop-2026-11"), None, Some("nightly"), Some("other")];
    assert_eq!(labels(&place.rows().await), found);
    let chosen = list(&place, &["--label", "shop-2026-11"]).await;
    assert_eq!(column(&chosen, "url"), ["http://o.test/a"]);
    let stats = ["audit", "stats", "--by", "label,host", "--json"];
    let sums = place.run(&stats).await.json_lines();
    assert_eq!(sums.len(), 4, "{sums:?}");
    place.assert_verified().await;
}

#[tokio::test]
async fn the_label_field_of_a_connect_labels_the_requests_inside() {
    let (_origin, proxy) = site(Script::robots(ROBOTS).tls(), &[]).await;
    let mut crawler = Crawler::plain(&proxy).await;
    let head = crawler.ask_to_connect("o.test:443", &[FIELD]).await;
    assert_eq!(head.status, 200);
    let inside = crawler.secured(&proxy, "o.test:443", Some("o.test")).await;
    let mut inside = inside.unwrap();
    inside.get("/a", "o.test").await;
    let own = ["GET /b HTTP/1.1", "Host: o.test", "Politesse-Crawl: other"];
    inside.ask(&own).await;
    let rows = proxy.place().completed(2).await;
    assert_eq!(labels(&rows), [Some("shop-2026-11"), Some("other")]);
}

#[tokio::test]
async fn an_invalid_label_is_refused() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    for fields in [
        &["Politesse-Crawl: a b"][..],
        &["Politesse-Crawl:"],
        &[FIELD, FIELD],
    ] {
        let reply = ask(&proxy, "GET", "http://o.test/a", fields).await;
        reply.assert_error(400, "http_request_error");
        assert!(reply.text().contains("shop-2026-11"), "{}", reply.text());
    }
    assert_eq!(origin.log().len(), 0);
}

#[tokio::test]
async fn run_labels_requests_at_a_new_and_at_a_running_proxy() {
    let origin = Script::robots(ROBOTS).start().await;
    let place = Place::with(&resolve("o.test", origin.address()));
    let curl = "curl -sS http://o.test/a";
    let fetch = |label| ["run", "--label", label, "--", "sh", "-c", curl];
    place.run_ok(&fetch("alone")).await;
    let proxy = place.start().await;
    proxy.place().run_ok(&fetch("joined")).await;
    let rows = proxy.place().completed(2).await;
    assert_eq!(labels(&rows), [Some("alone"), Some("joined")]);
    proxy.place().run_code(2, &fetch("a b")).await;
}

/// Starts a site on which the KIND in each URL `/KIND/N` determines the response.
async fn site_with_losses(count: usize) -> (Origin, Proxy) {
    let mut script = Script::robots(ROBOTS);
    for at in 0..count {
        script = script
            .page(&format!("/wall/{at}"), Page::status(403))
            .page(&format!("/broken/{at}"), Page::status(500))
            .page(&format!("/gone/{at}"), Page::status(404))
            .page(&format!("/moved/{at}"), Page::status(301))
            .at_first(&format!("/later/{at}"), 1, Page::status(500));
    }
    let script = script.page("/busy", asking_for_less(429, Some("3600")));
    let backoff = "pace.backoff = { first = \"60s\", longest = \"24h\", forgive = \"30m\" }";
    let trains = "crawler = [{ token = \"TrainBot\", user_agent = \"trainbot\", \
                  purpose = \"train-ai\", preferences = \"refuse\" }]";
    site(script, &[backoff, trains]).await
}

// Each missed URL is listed once, with its reason; URLs that were fetched are not listed.
#[tokio::test]
async fn missed_lists_each_url_without_a_page_and_the_reason() {
    const OF_A_KIND: usize = 166;
    let (_origin, proxy) = site_with_losses(OF_A_KIND).await;
    let kinds = ["private", "wall", "broken", "gone", "moved", "later"];
    let mut crawler = Crawler::plain(&proxy).await;
    for at in 0..OF_A_KIND {
        for kind in kinds {
            let line = format!("GET http://o.test/{kind}/{at} HTTP/1.1");
            crawler.ask(&[&line, "Host: o.test", FIELD]).await;
        }
        let again = format!("GET http://o.test/later/{at} HTTP/1.1");
        crawler.ask(&[&again, "Host: o.test", FIELD]).await;
    }
    let training = [FIELD, "User-Agent: TrainBot/1"];
    ask(&proxy, "GET", "http://o.test/kept", &training).await;
    // Last, because from here on the host is in back-off.
    for path in ["/busy", "/held"] {
        ask(&proxy, "GET", &format!("http://o.test{path}"), &[FIELD]).await;
    }
    // Not part of the crawl, so not listed.
    get(&proxy, "http://o.test/private/other").await;
    proxy.place().completed(7 * OF_A_KIND + 4).await;
    let place = proxy.stop().await;
    let found = missed(&place, "shop-2026-11").await;
    let mut wanted = BTreeMap::new();
    for at in 0..OF_A_KIND {
        wanted.insert(format!("/private/{at}"), "refused".to_owned());
        wanted.insert(format!("/wall/{at}"), "refused_by_site".to_owned());
        wanted.insert(format!("/broken/{at}"), "error".to_owned());
    }
    wanted.insert("/kept".to_owned(), "preference".to_owned());
    wanted.insert("/busy".to_owned(), "put_off".to_owned());
    wanted.insert("/held".to_owned(), "put_off".to_owned());
    assert_eq!(found, wanted);
    assert!(missed(&place, "unknown").await.is_empty());
    let shown = place.run(&["audit", "missed", "--csv"]).await;
    let first = shown.stdout.lines().next().unwrap_or_default();
    let columns = "url,why,reason,line,rule,status";
    assert!(first.starts_with(columns), "{first}");
    let summary = format!("missed {} of 1,000 URLs", 3 * OF_A_KIND + 4);
    assert!(shown.stderr.contains(&summary), "{}", shown.stderr);
}
