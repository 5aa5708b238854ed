//! Requests that a site refuses although its robots.txt allows them, by status or by a bot
//! challenge. Every report counts them separately from the proxy's refusals.

use serde_json::json;

use crate::dashboard::Browser;
use crate::kit::client::{assert_metric, get};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::column;
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::{assert_contains, assert_contains_each};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

/// Starts a site that answers each page as its name suggests.
async fn refusing_origin() -> Origin {
    let html = |status| Page::html("<p>No.</p>").with_status(status);
    let price = Page::status(402).field("crawler-price", "USD 0.02");
    let cloudflare = html(403).field("cf-mitigated", "challenge");
    let waf = html(202).field("x-amzn-waf-action", "captcha");
    let other = html(200).field("x-amzn-waf-action", "allow");
    Script::robots(ROBOTS)
        .page("/login", Page::status(401))
        .page("/price", price)
        .page("/forbidden", Page::status(403))
        .page("/legal", Page::status(451))
        .page("/cloudflare", cloudflare)
        .page("/waf", waf)
        .page("/other", other)
        .page("/gone", Page::status(404))
        .start()
        .await
}

fn to(origin: &Origin) -> Config {
    resolve("o.test", origin.address()).resolve("p.test", origin.address())
}

/// Requests every page of the site, a page that its robots.txt disallows, and a page of
/// another host.
async fn crawl(proxy: &Proxy) {
    for page in [
        "o.test/login",
        "o.test/price",
        "o.test/forbidden",
        "o.test/legal",
        "o.test/cloudflare",
        "o.test/waf",
        "o.test/other",
        "o.test/gone",
        "o.test/private",
        "p.test/a",
    ] {
        get(proxy, &format!("http://{page}")).await;
    }
    proxy.place().completed(10).await;
}

#[tokio::test]
async fn metrics_record_commands_and_dashboard_count_a_sites_refusals_separately() {
    let origin = refusing_origin().await;
    let browser = Browser::idle(Place::with(&to(&origin))).await;
    crawl(&browser.proxy).await;
    assert_metric(&browser.proxy, "politesse_refused_by_site_total 6\n").await;
    assert_dashboard_counts(&browser).await;
    let place = browser.proxy.stop().await;

    let rows = place.rows().await;
    let error = "bot_challenge";
    let wanted = json!([null, null, null, null, error, error, null, null, null, null]);
    assert_eq!(json!(column(&rows, "error")), wanted);
    let shown = place.audit(&format!("show {}", rows[1]["seq"])).await;
    assert_contains(&shown.stdout, "crawler-price: USD 0.02");
    place.assert_verified().await;

    let sums = place.audit("stats --by host --json").await.json_lines();
    let names = [
        "host",
        "requests",
        "refusals",
        "errors",
        "withheld",
        "refused_by_site",
    ];
    let counts = sums.iter().map(|row| names.map(|name| &row[name]));
    let wanted = json!([["o.test", 9, 1, 0, 0, 6], ["p.test", 1, 0, 0, 0, 0]]);
    assert_eq!(json!(counts.collect::<Vec<_>>()), wanted);
    let missed = place.audit("missed --json").await.json_lines();
    let refused = missed.iter().filter(|row| row["why"] == "refused_by_site");
    assert_eq!(refused.count(), 6, "{missed:?}");
    assert_eq!(missed.len(), 7, "{missed:?}");

    let page = place.audit("report").await.stdout;
    let wanted = [
        "<b>6</b><span>refused by the website</span>",
        "<b>0</b><span>fetched, and withheld</span>",
        "What websites refused themselves",
        "1 × 401, 1 × 402, 1 × 403, 1 × 451, 2 × challenge",
        "USD 0.02",
    ];
    assert_contains_each(&page, &wanted);
    let page = place.audit("report --for-site p.test").await.stdout;
    let own = "These requests you refused yourself";
    assert!(!page.contains(own), "{page}");
}

/// Asserts that the pages and the API of the dashboard count the refusals of [`crawl`].
async fn assert_dashboard_counts(browser: &Browser) {
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
        assert_contains(&browser.get(path).await.text(), text);
    }
}

#[tokio::test]
async fn run_counts_a_sites_refusals_in_its_summary() {
    let origin = refusing_origin().await;
    let place = Place::with(&to(&origin));
    let command = ["run", "--", "curl", "-sS", "http://o.test/{price,waf,gone}"];
    let told = "3 asked, 3 allowed, 0 refused, 2 refused by the site;";
    place.run(&command).await.assert_stderr(&[told]);
}
