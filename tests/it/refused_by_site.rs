//! Requests that a site refuses although its robots.txt allows them, by status or by a bot
//! challenge. Every report counts them separately from the proxy's refusals.

use serde_json::{Value, json};

use crate::dashboard::Browser;
use crate::kit::assert_contains;
use crate::kit::client::{get, metrics};
use crate::kit::origin::{Origin, Script};
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Place, Proxy, resolve};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

/// Starts a site that answers each page as its name suggests.
async fn refusing_origin() -> Origin {
    let html = || Page::html("<p>No.</p>");
    Script::robots(ROBOTS)
        .page("/login", Page::status(401))
        .page(
            "/price",
            Page::status(402).field("crawler-price", "USD 0.02"),
        )
        .page("/forbidden", Page::status(403))
        .page("/legal", Page::status(451))
        .page(
            "/cloudflare",
            html().with_status(403).field("cf-mitigated", "challenge"),
        )
        .page(
            "/waf",
            html()
                .with_status(202)
                .field("x-amzn-waf-action", "captcha"),
        )
        .page("/other", html().field("x-amzn-waf-action", "allow"))
        .page("/gone", Page::status(404))
        .start()
        .await
}

fn to(origin: &Origin) -> Config {
    resolve("o.test", origin.address()).resolve("p.test", origin.address())
}

async fn crawled() -> (Origin, Proxy) {
    let origin = refusing_origin().await;
    let proxy = to(&origin).start().await;
    crawl(&proxy).await;
    (origin, proxy)
}

/// Requests every page of the site, a page that its robots.txt disallows, and a page of
/// another host.
async fn crawl(proxy: &Proxy) {
    for path in [
        "login",
        "price",
        "forbidden",
        "legal",
        "cloudflare",
        "waf",
        "other",
        "gone",
        "private",
    ] {
        get(proxy, &format!("http://o.test/{path}")).await;
    }
    get(proxy, "http://p.test/a").await;
    proxy.place().completed(10).await;
}

async fn json_of(place: &Place, arguments: &[&str]) -> Vec<Value> {
    let outcome = place.run_ok(arguments).await;
    outcome.json_lines()
}

#[tokio::test]
async fn metrics_and_commands_count_a_sites_refusals_separately() {
    let (_origin, proxy) = crawled().await;
    let counted = "politesse_refused_by_site_total 6\n";
    assert!(metrics(&proxy).await.contains(counted));
    let place = proxy.stop().await;
    let stats = ["audit", "stats", "--by", "host", "--json"];
    let sums = json_of(&place, &stats).await;
    let counts = |row: &Value| {
        json!([
            row["host"],
            row["requests"],
            row["refusals"],
            row["errors"],
            row["withheld"],
            row["refused_by_site"]
        ])
    };
    let seen: Vec<_> = sums.iter().map(counts).collect();
    assert_eq!(
        json!(seen),
        json!([["o.test", 9, 1, 0, 0, 6], ["p.test", 1, 0, 0, 0, 0]])
    );
    let missed = json_of(&place, &["audit", "missed", "--json"]).await;
    let refused = missed.iter().filter(|row| row["why"] == "refused_by_site");
    assert_eq!(refused.count(), 6, "{missed:?}");
    assert_eq!(missed.len(), 7, "{missed:?}");
}

#[tokio::test]
async fn a_report_counts_a_sites_refusals_separately() {
    let (_origin, proxy) = crawled().await;
    let place = proxy.stop().await;
    let page = place.run(&["audit", "report"]).await.stdout;
    for wanted in [
        "<b>6</b><span>refused by the website</span>",
        "<b>0</b><span>fetched, and withheld</span>",
        "What websites refused themselves",
        "1 × 401, 1 × 402, 1 × 403, 1 × 451, 2 × challenge",
        "USD 0.02",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    let site = ["audit", "report", "--for-site", "p.test"];
    let page = place.run(&site).await.stdout;
    assert!(
        !page.contains("These requests you refused yourself"),
        "{page}"
    );
}

#[tokio::test]
async fn the_dashboard_and_the_api_count_a_sites_refusals() {
    let origin = refusing_origin().await;
    let browser = Browser::idle(Place::with(&to(&origin))).await;
    crawl(&browser.proxy).await;
    let overview = browser.json("/api/v1/overview").await;
    assert_eq!(overview["sums"]["refused_by_site"], 6, "{overview}");
    assert_eq!(overview["sums"]["withheld"], 0);
    let hosts = overview["refusing_hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 1, "{overview}");
    assert_eq!(hosts[0]["name"], "o.test");
    let host = browser.json("/api/v1/hosts?host=o.test").await;
    assert_eq!(host["refused_by_site"], 6, "{host}");
    let report = browser.json("/api/v1/report").await;
    let wanted = json!([{
        "host": "o.test", "requests": 6, "price": "USD 0.02",
        "answers": { "401": 1, "402": 1, "403": 1, "451": 1, "challenge": 2 },
    }]);
    assert_eq!(report["site_refusals"], wanted);
    for (path, text) in [
        ("/", "Sites that refused requests"),
        ("/hosts?host=o.test", "6 refused by the site"),
    ] {
        let page = browser.get(path).await.text();
        assert!(page.contains(text), "{path}: {page}");
    }
}

#[tokio::test]
async fn a_bot_challenge_and_a_crawler_price_are_recorded() {
    let (_origin, proxy) = crawled().await;
    let rows = proxy.place().completed(10).await;
    let errors: Vec<_> = rows.iter().map(|row| row["error"].as_str()).collect();
    let challenge = Some("bot_challenge");
    let wanted = [
        None, None, None, None, challenge, challenge, None, None, None, None,
    ];
    assert_eq!(errors, wanted);
    let price = rows[1]["seq"].to_string();
    let shown = proxy.place().run(&["audit", "show", &price]).await;
    assert_contains(&shown.stdout, "crawler-price: USD 0.02");
    proxy.place().assert_verified().await;
}

#[tokio::test]
async fn run_counts_a_sites_refusals_in_its_summary() {
    let origin = refusing_origin().await;
    let place = Place::with(&to(&origin));
    let urls = [
        "http://o.test/price",
        "http://o.test/waf",
        "http://o.test/gone",
    ];
    let command = [["run", "--", "curl", "-sS"].as_slice(), &urls].concat();
    let outcome = place.run(&command).await;
    let told = "3 asked, 3 allowed, 0 refused, 2 refused by the site;";
    assert!(outcome.stderr.contains(told), "{outcome:?}");
}
