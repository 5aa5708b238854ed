//! The dashboard and its API for all nodes, answered from the archive. All ours;
//! docs/archive.md.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::dashboard::Browser;
use crate::kit::archive_fleet::{Fleet, NODES, sorted};
use crate::kit::client::Reply;
use crate::kit::proxy::{Config, Place};
use crate::kit::{assert_contains, assert_members};

/// Longest time until a page reports that the archive does not answer: the proxy's limit,
/// plus a margin for a busy machine.
const ANSWER: Duration = Duration::from_secs(9);

/// Opens a browser session at the first node.
async fn browser(fleet: &mut Fleet) -> Browser {
    Browser::idle(fleet.places.remove(0)).await
}

/// Requests a page, which must arrive within [`ANSWER`].
async fn get_in_time(browser: &Browser, path: &str) -> Reply {
    let page = timeout(ANSWER, browser.get(path)).await;
    page.unwrap_or_else(|_| panic!("{path}: no answer within {ANSWER:?}"))
}

/// Reads all pages of decisions that match `query`.
async fn all_pages(browser: &Browser, query: &str) -> Vec<Value> {
    let mut rows = Vec::new();
    let mut before = String::new();
    loop {
        let path = format!("/api/v1/decisions?of=archive&limit=7{query}{before}");
        let page = browser.json(&path).await;
        rows.extend(page["decisions"].as_array().unwrap().clone());
        assert_eq!(page["cut"], false);
        let Some(next) = page["next"].as_str() else {
            return rows;
        };
        before = format!("&before={next}");
    }
}

#[tokio::test]
async fn decision_pages_for_all_nodes_show_the_archive() {
    let mut fleet = Fleet::shipped().await;
    let list = "list --json --limit 0";
    let all = fleet.archive_lines(list).await;
    let south = fleet.archive_lines(&format!("{list} --node south")).await;
    let seq = south[0]["seq"].to_string();
    let browser = browser(&mut fleet).await;
    // The pages together have each decision once, in the order of `audit list`.
    assert_eq!(all_pages(&browser, "").await, all);
    let of_south = all_pages(&browser, "&node=south").await;
    assert_eq!(sorted(of_south), sorted(south.clone()));
    // HTML pages have the switch, and name the node in each row and link.
    let refused = "/decisions?of=archive&verdict=disallow";
    let page = browser.get(refused).await.text();
    for wanted in [
        "all nodes (archive)",
        "/decisions?of=archive&amp;verdict=disallow\" aria-current=\"true\"",
        "?of=archive&amp;node=south",
        "name=\"of\" value=\"archive\"",
        "/decisions/export?of=archive&amp;verdict=disallow&amp;form=csv",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    assert!(!page.contains("data-live"), "{page}");
    assert!(page.contains("can be watched live"), "{page}");
    // The filter's total, as on pages about this node.
    let is_refused = |row: &&Value| row["verdict"] == "disallow";
    let refused = all.iter().filter(is_refused).count();
    let total = format!("<b>{refused} decisions</b> · page 1 of 1<");
    assert!(page.contains(&total), "{total}: {page}");
    let own = browser.get("/decisions").await.text();
    assert_contains(&own, "all nodes (archive)");
    assert!(!own.contains("node=south"), "{own}");
    // The page of a decision, with links that stay in the archive.
    let path = format!("/decisions/{seq}?of=archive&node=south");
    let story = browser.json(&format!("/api/v1{path}")).await;
    assert_members(&story, &json!({"node": "south", "decided_again": "same"}));
    assert_eq!(story["url"], south[0]["url"]);
    let page = browser.get(&path).await.text();
    assert!(page.contains("of node south"), "{page}");
    assert!(page.contains("/decisions?of=archive&amp;url="), "{page}");
    // The part shown below a row, with a link to the deciding line.
    let by_line = south.iter().find(|row| !row["line"].is_null()).unwrap();
    let path = format!("/decisions/{}?of=archive&node=south", by_line["seq"]);
    let part = browser.get(&path.replace('?', "/part?")).await.text();
    let line = format!("{}#L{}", path.replace('&', "&amp;"), by_line["line"]);
    assert!(part.contains(&line), "{line}: {part}");
    // Without a node, a number does not identify a decision.
    let alone = browser.get(&format!("/decisions/{seq}?of=archive")).await;
    assert_eq!(alone.status(), 404);
    let nobody = browser.get("/api/v1/decisions?of=archive&node=east").await;
    assert_eq!(nobody.status(), 404, "{}", nobody.text());
    for (path, status) in [
        ("/api/v1/decisions?of=everything", 400),
        ("/api/v1/decisions?node=south", 400),
        ("/api/v1/decisions?of=archive&before=17", 400),
    ] {
        assert_eq!(browser.get(path).await.status(), status, "{path}");
    }
    // An exported file with all decisions, oldest first.
    let export = async |query: &str| {
        let path = format!("/decisions/export?of=archive&{query}");
        browser.get(&path).await.text()
    };
    let csv = export("form=csv&node=west").await;
    let west = all.iter().filter(|row| row["node"] == "west").count();
    assert!(csv.starts_with("node,seq,time,"), "{csv}");
    assert_eq!(csv.lines().count(), 1 + west);
    let jsonl = export("form=jsonl").await;
    assert_eq!(jsonl.lines().count(), all.len());
}

#[tokio::test]
async fn a_list_from_the_archive_counts_at_most_ten_thousand_decisions() {
    let mut fleet = Fleet::shipped().await;
    let more = "INSERT INTO decision SELECT r.* FROM (SELECT d FROM decision AS d LIMIT 1) AS one, \
                    generate_series(1, 10001) AS n, LATERAL jsonb_populate_record(one.d, \
                    jsonb_build_object('seq', 1000000 + n, 'method', 'HEAD')) AS r";
    fleet.postgres.sql(more).await;
    let browser = browser(&mut fleet).await;
    let heads = "/decisions?of=archive&method=HEAD";
    let page = browser.get(heads).await.text();
    let total = "more than <b>10,000 decisions</b> · page 1<";
    assert!(page.contains(total), "{page}");
}

#[tokio::test]
async fn pages_limited_to_this_node_say_so() {
    let mut fleet = Fleet::shipped().await;
    let browser = browser(&mut fleet).await;
    for (path, filter) in [
        ("/hosts", ""),
        ("/hosts?host=o.test", "&amp;host=o.test"),
        ("/hosts?host=o.test&of=archive", "&amp;host=o.test"),
        ("/crawlers", ""),
        ("/crawlers?of=archive", ""),
    ] {
        let page = browser.get(path).await.text();
        assert!(page.contains("covers this node only"), "{path}: {page}");
        let rows = format!("/decisions?of=archive{filter}");
        assert!(page.contains(&rows), "{path}: {page}");
    }
    for path in [
        "/api/v1/hosts?host=o.test&of=archive",
        "/api/v1/crawlers?of=archive",
        "/decisions/stream?of=archive",
    ] {
        let refused = browser.get(path).await;
        assert_eq!(refused.status(), 400, "{path}");
        assert!(refused.text().contains("of=archive"), "{path}");
    }
}

#[tokio::test]
async fn the_overview_of_all_nodes_adds_up_their_decisions() {
    let mut fleet = Fleet::shipped().await;
    let stats = fleet.archive_lines("stats --json").await.remove(0);
    let hosts = fleet.archive_lines("stats --by host --json").await;
    let browser = browser(&mut fleet).await;
    let overview = browser.json("/api/v1/overview?of=archive").await;
    let names = "requests refusals reported later bytes errors refused_by_site put_off_by_site";
    for name in names.split(' ') {
        assert_eq!(overview["sums"][name], stats[name], "{name}");
    }
    assert_ne!(stats["refused_by_site"], 0);
    let classes = &overview["sums"]["classes"];
    let counts = classes.as_object().unwrap().values();
    let all: u64 = counts.map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(stats["requests"], all, "{classes}");
    for host in overview["hosts"].as_array().unwrap() {
        let own = hosts.iter().find(|row| row["host"] == host["name"]);
        assert_eq!(host["refusals"], own.unwrap()["refusals"]);
    }
    let own = browser.json("/api/v1/overview").await;
    assert!(own["sums"]["requests"].as_u64() < stats["requests"].as_u64());
    let names = |page: &Value, list: &str| page[list].as_array().unwrap().len();
    assert!(names(&own, "rules") <= names(&overview, "rules"));
    assert!(0 < names(&overview, "crawlers"));
    assert!(0 < names(&overview, "refusing_hosts"), "{overview}");
    let page = browser.get("/?of=archive&hours=1").await.text();
    assert!(page.contains("/?of=archive&amp;hours=24"), "{page}");
    assert!(page.contains("/decisions?of=archive&amp;from="), "{page}");
    assert_eq!(NODES.len(), 1 + fleet.places.len());
}

#[tokio::test]
async fn pages_report_an_unresponsive_archive_in_time() {
    let mut fleet = Fleet::shipped().await;
    let browser = browser(&mut fleet).await;
    browser.json("/api/v1/decisions?of=archive").await;
    for state in ["stands still", "is gone"] {
        match state {
            "stands still" => fleet.postgres.signal("STOP"),
            _ => fleet.postgres.kill(),
        }
        for path in [
            "/decisions?of=archive",
            "/?of=archive",
            "/decisions/3?of=archive&node=west",
        ] {
            let page = get_in_time(&browser, path).await;
            assert_eq!(page.status(), 503, "{state} {path}: {}", page.text());
            assert!(page.text().contains("of this node"), "{}", page.text());
            let path = format!("/api/v1{}", path.replace("/?", "/overview?"));
            let api = browser.get(&path).await;
            assert_eq!(api.status(), 503, "{state} {path}: {}", api.text());
        }
        // Pages about this node do not depend on the archive.
        assert_eq!(get_in_time(&browser, "/decisions").await.status(), 200);
        assert_eq!(get_in_time(&browser, "/").await.status(), 200);
        if state == "stands still" {
            fleet.postgres.signal("CONT");
        }
    }
    fleet.postgres.restart().await;
    let rows = browser.json("/api/v1/decisions?of=archive").await;
    assert!(!rows["decisions"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn without_an_archive_pages_for_all_nodes_are_not_found() {
    let browser = Browser::idle(Place::with(&Config::default())).await;
    for path in [
        "/decisions?of=archive",
        "/?of=archive",
        "/api/v1/overview?of=archive",
    ] {
        let page = browser.get(path).await;
        assert_eq!(page.status(), 404, "{path}: {}", page.text());
        assert!(page.text().contains("audit.archive"), "{}", page.text());
    }
    // There is no other scope to mention.
    let page = browser.get("/decisions").await.text();
    assert!(!page.contains("all nodes"), "{page}");
    let page = browser.get("/crawlers").await.text();
    assert!(!page.contains("covers this node only"), "{page}");
}
