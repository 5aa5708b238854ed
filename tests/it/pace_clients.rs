//! Thirteen set-ups of real clients at paced origins. None is configured for long waits;
//! only httpx may lose pages, and only at long delays.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::process::Command;

use crate::clients::{point_at, python_command};
use crate::kit::checkout::root;
use crate::kit::paced::with_default_pace;
use crate::kit::program::{Outcome, ended};
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::timed_origin::TimedOrigin;
use crate::kit::{run, run_within};

/// Clients of docs/clients.md that need no npm.
const CLIENTS: [&str; 9] = [
    "curl",
    "curl-retry",
    "wget",
    "requests",
    "httpx",
    "aiohttp",
    "urllib",
    "urllib3",
    "scrapy",
];
/// Clients from npm; `tests/clients/table/install` installs them.
const NODE_CLIENTS: [&str; 4] = ["crawlee", "got", "playwright", "puppeteer"];
const PAGES: usize = 3;

/// Starts a site of `count` pages with a `Crawl-delay` of `delay` seconds. Each page
/// links to all pages, and each answer takes `takes`.
async fn paced(delay: u32, count: usize, takes: Duration) -> TimedOrigin {
    let robots = format!("User-agent: *\nCrawl-delay: {delay}\n");
    TimedOrigin::start(&robots, &links(count), takes).await
}

/// Returns the HTML of a page that links to all `count` pages of its site.
fn links(count: usize) -> String {
    (0..count)
        .map(|page| format!("<a href=/page/{page}>{page}</a>\n"))
        .collect()
}

/// Returns the command with which `client` fetches `urls`, with its default options.
fn command(proxy: &Proxy, client: &str, urls: &[String]) -> Command {
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let of_its_own = match client {
        "curl" => vec!["curl", "-sS"],
        "curl-retry" => vec!["curl", "-sS", "--retry", "3"],
        "wget" => vec!["wget", "-nv", "-O", "/dev/null"],
        // Scrapy follows the links to the other pages.
        "scrapy" => return python_command(proxy, "spider.py", &urls[..1]),
        _ if NODE_CLIENTS.contains(&client) => return node_command(proxy, client, &urls),
        _ => return python_command(proxy, "pages.py", &[&[client], urls.as_slice()].concat()),
    };
    let mut command = Command::new(of_its_own[0]);
    command.args(&of_its_own[1..]).args(urls);
    point_at(proxy, &mut command);
    command
}

/// Returns the command of an npm client, run by Node 24, which can read the proxy from
/// the environment.
fn node_command(proxy: &Proxy, client: &str, urls: &[&str]) -> Command {
    let folder = root().join("target/node-clients");
    let node = folder.join("node_modules/node24/bin/node");
    assert!(node.exists(), "run tests/clients/table/install first");
    let mut command = Command::new(node);
    command.arg(folder.join("pages.mjs")).arg(client).args(urls);
    // Browsers also fetch an icon for each page, and give up after 30 s. docs/clients.md
    // recommends the longer timeout.
    command.env("NAVIGATION_TIMEOUT", "150000");
    point_at(proxy, &mut command);
    command
}

/// Sites by the client that crawls them.
type Sites = BTreeMap<&'static str, TimedOrigin>;

/// Clients that lost pages, with the number lost.
type LostPages = Vec<(&'static str, usize)>;

/// Has all clients fetch `count` pages of their sites at the same time.
async fn lost_pages(sites: &Sites, count: usize, config: Config) -> LostPages {
    let mut config = with_default_pace(config);
    for (client, origin) in sites {
        config = config.resolve(&format!("{client}.test"), origin.address());
    }
    let proxy = config.start().await;
    let mut running = Vec::new();
    for client in sites.keys() {
        let url = |page| format!("http://{client}.test/page/{page}");
        let urls: Vec<_> = (0..count).map(url).collect();
        running.push(tokio::spawn(ended(command(&proxy, client, &urls), b"")));
    }
    let mut lost = Vec::new();
    for ((client, origin), running) in sites.iter().zip(running) {
        let got = pages_reported(client, &running.await.unwrap());
        if got < count {
            lost.push((*client, count - got));
            continue;
        }
        let came: BTreeSet<_> = origin.pages().into_iter().map(|seen| seen.target).collect();
        let pages = (0..count).map(|page| format!("/page/{page}")).collect();
        assert!(came.is_superset(&pages), "{client}: {came:?}");
    }
    proxy.place().assert_verified().await;
    lost
}

/// Has each of `clients` fetch three pages of a site with a `Crawl-delay` of `delay`
/// seconds, and asserts that no request came too soon. Returns the lost pages.
async fn lost_at_delay(clients: &[&'static str], delay: u32) -> LostPages {
    let mut sites = Sites::new();
    for client in clients {
        sites.insert(client, paced(delay, PAGES, Duration::ZERO).await);
    }
    let lost = lost_pages(&sites, PAGES, Config::default()).await;
    for origin in sites.values() {
        assert_apart(origin, delay);
    }
    lost
}

/// Has each of `clients` fetch 310 pages of a site that answers every 300th request with
/// 429. Returns the lost pages.
async fn lost_at_busy(clients: &[&'static str], config: Config) -> LostPages {
    const COUNT: usize = 310;
    let mut sites = Sites::new();
    for client in clients {
        sites.insert(client, TimedOrigin::busy(&links(COUNT), 300).await);
    }
    lost_pages(&sites, COUNT, config).await
}

/// Returns the number of pages that the client's output reports.
fn pages_reported(client: &str, outcome: &Outcome) -> usize {
    match client {
        // Every page links to page 0 once.
        "curl" | "curl-retry" => outcome.stdout.matches("<a href=/page/0>").count(),
        "wget" => outcome.stderr.matches("URL:http://wget.test/page/").count(),
        // Scrapy fetches its start URL again when it finds the link to it.
        "scrapy" => pages_of_scrapy(outcome).saturating_sub(1),
        // Crawlee mixes log lines into its output.
        _ if NODE_CLIENTS.contains(&client) => outcome.stdout.matches("\"status\":200").count(),
        _ => {
            let told = outcome.json_lines().into_iter();
            told.filter(|told| told["status"] == 200).count()
        }
    }
}

fn pages_of_scrapy(outcome: &Outcome) -> usize {
    let counts = outcome.stdout.lines().last().unwrap_or_default();
    let counts: serde_json::Value = serde_json::from_str(counts).unwrap();
    usize::try_from(counts["pages"].as_u64().unwrap()).unwrap()
}

/// Asserts that each request came at least `delay` seconds after the end of the answer
/// before it.
fn assert_apart(origin: &TimedOrigin, delay: u32) {
    let least = Duration::from_secs(delay.into());
    for (place, pause) in origin.pauses().into_iter().enumerate() {
        assert!(
            least <= pause,
            "{pause:?} after {place}: {:?}",
            origin.pages()
        );
    }
}

/// Runs Scrapy with 16 concurrent requests against a site with a `Crawl-delay` of 2 s.
async fn crawl_at_full_speed(pages: usize) {
    let origin = paced(2, pages, Duration::from_millis(200)).await;
    let config = with_default_pace(resolve("shop.test", origin.address()));
    let proxy = config.start().await;
    let start = "http://shop.test/page/0";
    let outcome = ended(python_command(&proxy, "spider.py", &[start]), b"").await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_apart(&origin, 2);
    let came = origin.pages();
    let targets: BTreeSet<_> = came.iter().map(|seen| &seen.target).collect();
    // Scrapy fetches its start URL again when it finds the link to it.
    assert_eq!(came.len(), pages + 1, "{came:?}");
    assert_eq!(targets.len(), pages, "{came:?}");
    assert_eq!(pages_of_scrapy(&outcome), pages + 1, "{outcome:?}");
    // Number of requests that waited at the same time once the first page was parsed.
    let together = pages.min(16) as u64;
    let rows = proxy.place().completed(pages + 1).await;
    let longest = rows.iter().filter_map(|row| row["wait_ms"].as_u64()).max();
    assert!(Some(2_000 * (together - 1)) <= longest, "{rows:?}");
    proxy.place().assert_verified().await;
}

// Ours: with a `Crawl-delay` of 2, no gap is shorter than 2 s.
#[test]
fn scrapy_at_full_speed_keeps_a_crawl_delay_of_two_seconds() {
    run(crawl_at_full_speed(5));
}

// Ours: the delay also holds over minutes.
#[test]
#[ignore = "two minutes long: tests/full.sh runs it"]
fn scrapy_at_full_speed_for_minutes_keeps_the_crawl_delay() {
    run_within(Duration::from_secs(300), crawl_at_full_speed(50));
}

// Ours: a `Crawl-delay` of one second costs the nine set-ups no page.
#[test]
fn nine_clients_lose_no_page_at_a_crawl_delay_of_one_second() {
    run(async { assert_eq!(lost_at_delay(&CLIENTS, 1).await, []) });
}

// httpx gives up after 5 s without a byte by default, so it gets only its first page.
#[test]
#[ignore = "a minute long: tests/full.sh runs it"]
fn only_httpx_loses_pages_at_a_crawl_delay_of_fifteen_seconds() {
    run_within(Duration::from_secs(240), async {
        let clients = [&CLIENTS[..], &NODE_CLIENTS].concat();
        assert_eq!(lost_at_delay(&clients, 15).await, [("httpx", PAGES - 1)]);
    });
}

// Ours: without `pace.retry` some clients lose pages to a 429 every 300 requests.
#[test]
#[ignore = "four minutes long: tests/full.sh runs it"]
fn with_pace_retry_no_client_loses_a_page_to_an_occasional_429() {
    run_within(Duration::from_secs(600), async {
        let clients = [&CLIENTS[..], &NODE_CLIENTS].concat();
        let config = Config::default().set("pace.retry = 0");
        let before = lost_at_busy(&clients, config).await;
        println!("pages of 310 that are lost without pace.retry: {before:?}");
        assert!(!before.is_empty());
        let config = Config::default().set("pace.retry = 3");
        assert_eq!(lost_at_busy(&clients, config).await, []);
    });
}
