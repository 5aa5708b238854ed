//! Real clients at paced origins: thirteen set-ups, none of which knows
//! that it has to wait.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use crate::clients::{point_at, python_command};
use crate::kit::program::{Outcome, ended};
use crate::kit::proxy::{Config, Proxy, resolve};
use crate::kit::timed_origin::TimedOrigin;
use crate::kit::{run, run_within};

/// The clients of docs/clients.md, and what starts them.
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
/// Clients of npm, which `tests/clients/table/install` installs.
const NODE_CLIENTS: [&str; 4] = ["crawlee", "got", "playwright", "puppeteer"];
const PAGES: usize = 3;

/// Returns the configuration with the pace that it has by default, which the
/// kit's has not.
fn by_default(config: Config) -> Config {
    config
        .set("pace.profile = \"standard\"")
        .set("pace.origin = {}")
        .set("pace.backoff = { first = \"60s\", longest = \"24h\", forgive = \"30m\" }")
}

/// Returns a site of `count` pages, each of which links to all, that asks for
/// `delay` seconds; each answer takes `takes`.
async fn paced(delay: u32, count: usize, takes: Duration) -> TimedOrigin {
    let robots = format!("User-agent: *\nCrawl-delay: {delay}\n");
    TimedOrigin::start(&robots, &links(count), takes).await
}

/// Returns a page that links to all of a site.
fn links(count: usize) -> String {
    (0..count)
        .map(|page| format!("<a href=/page/{page}>{page}</a>\n"))
        .collect()
}

/// Returns how the client asks for `urls` by default.
fn command(proxy: &Proxy, client: &str, urls: &[String]) -> Command {
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let of_its_own = match client {
        "curl" => vec!["curl", "-sS"],
        "curl-retry" => vec!["curl", "-sS", "--retry", "3"],
        "wget" => vec!["wget", "-nv", "-O", "/dev/null"],
        // It finds the other pages by itself.
        "scrapy" => return python_command(proxy, "spider.py", &urls[..1]),
        _ if NODE_CLIENTS.contains(&client) => return node_command(proxy, client, &urls),
        _ => return python_command(proxy, "pages.py", &[&[client], urls.as_slice()].concat()),
    };
    let mut command = Command::new(of_its_own[0]);
    command.args(&of_its_own[1..]).args(urls);
    point_at(proxy, &mut command);
    command
}

/// Returns the command of a client of npm. Node 24 can take a proxy from its settings.
fn node_command(proxy: &Proxy, client: &str, urls: &[&str]) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/node-clients");
    let node = folder.join("node_modules/node24/bin/node");
    assert!(
        node.exists(),
        "tests/clients/table/install makes {}",
        node.display()
    );
    let mut command = Command::new(node);
    command.arg(folder.join("pages.mjs")).arg(client).args(urls);
    // Browsers ask for an icon beside each page, and give up after 30 s. As in
    // docs/clients.md.
    command.env("NAVIGATION_TIMEOUT", "150000");
    point_at(proxy, &mut command);
    command
}

/// Site of one client.
struct ClientSite {
    client: &'static str,
    origin: TimedOrigin,
}

impl ClientSite {
    fn name(&self) -> String {
        format!("{}.test", self.client)
    }
}

/// Has each client fetch `count` pages of its site, all clients at once, and returns
/// which lost pages, and how many.
async fn lost_pages(
    sites: &[ClientSite],
    count: usize,
    config: Config,
) -> Vec<(&'static str, usize)> {
    let resolved = sites.iter().fold(by_default(config), |config, site| {
        config.resolve(&site.name(), site.origin.address())
    });
    let proxy = resolved.start().await;
    let running: Vec<_> = sites
        .iter()
        .map(|site| {
            let urls: Vec<_> = (0..count)
                .map(|page| format!("http://{}/page/{page}", site.name()))
                .collect();
            tokio::spawn(ended(command(&proxy, site.client, &urls), b""))
        })
        .collect();
    let mut lost = Vec::new();
    for (site, running) in sites.iter().zip(running) {
        let outcome = running.await.unwrap();
        let got = pages_told(site.client, &outcome);
        if got < count {
            lost.push((site.client, count - got));
            continue;
        }
        let came = site.origin.pages();
        let all = (0..count).all(|page| {
            came.iter()
                .any(|seen| seen.target == format!("/page/{page}"))
        });
        assert!(all, "{}: {came:?}", site.name());
    }
    verified(&proxy).await;
    lost
}

/// Has each of `clients` fetch three pages of a site that asks for `delay` seconds;
/// holds that none came too soon.
async fn lost_at_delay(clients: &[&'static str], delay: u32) -> Vec<(&'static str, usize)> {
    let mut sites = Vec::new();
    for client in clients {
        let origin = paced(delay, PAGES, Duration::ZERO).await;
        sites.push(ClientSite { client, origin });
    }
    let lost = lost_pages(&sites, PAGES, Config::default()).await;
    for site in &sites {
        assert_apart(&site.origin, delay);
    }
    lost
}

/// Has each of `clients` fetch 310 pages of a site that answers each 300th request with
/// 429.
async fn lost_at_busy(clients: &[&'static str], config: Config) -> Vec<(&'static str, usize)> {
    const COUNT: usize = 310;
    let mut sites = Vec::new();
    for client in clients {
        let origin = TimedOrigin::busy(&links(COUNT), 300).await;
        sites.push(ClientSite { client, origin });
    }
    lost_pages(&sites, COUNT, config).await
}

/// Returns how many pages the client says it got.
fn pages_told(client: &str, outcome: &Outcome) -> usize {
    match client {
        // Each page has a link to each.
        "curl" | "curl-retry" => outcome.stdout.matches("<a href=/page/0>").count(),
        "wget" => outcome.stderr.matches("URL:http://wget.test/page/").count(),
        "scrapy" => {
            let counts = outcome.stdout.lines().last().unwrap_or_default();
            let counts: serde_json::Value = serde_json::from_str(counts).unwrap();
            // It asks for its start URL once more.
            let pages = usize::try_from(counts["pages"].as_u64().unwrap()).unwrap();
            pages.saturating_sub(1)
        }
        // Crawlee writes its log among the lines.
        _ if NODE_CLIENTS.contains(&client) => outcome.stdout.matches("\"status\":200").count(),
        _ => {
            let told = outcome.json_lines();
            told.iter().filter(|told| told["status"] == 200).count()
        }
    }
}

/// Crawl-delay counts from the end of an answer.
fn assert_apart(origin: &TimedOrigin, delay: u32) {
    let least = Duration::from_secs(delay.into());
    for (place, pause) in origin.pauses().into_iter().enumerate() {
        assert!(
            least <= pause,
            "{pause:?} between the ends of {place} and the start of the next: {:?}",
            origin.pages()
        );
    }
}

async fn verified(proxy: &Proxy) {
    let verified = proxy.place().run(&["audit", "verify"]).await;
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

/// Scrapy, 16 requests at once, at a site that asks for 2 seconds.
async fn crawl_at_full_speed(pages: usize) {
    let origin = paced(2, pages, Duration::from_millis(200)).await;
    let proxy = by_default(resolve("shop.test", origin.address()))
        .start()
        .await;
    let start = "http://shop.test/page/0";
    let outcome = ended(python_command(&proxy, "spider.py", &[start]), b"").await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_apart(&origin, 2);
    let mut came: Vec<_> = origin.pages().into_iter().map(|seen| seen.target).collect();
    // Scrapy asks for its start URL once more when it finds the link to it.
    assert_eq!(came.len(), pages + 1, "{came:?}");
    came.sort();
    came.dedup();
    assert_eq!(came.len(), pages, "{came:?}");
    let counts: serde_json::Value =
        serde_json::from_str(outcome.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(counts["pages"], pages + 1, "{outcome:?}");
    // After the first page, the most that asked for turns at the same time.
    let together = pages.min(16) as u64;
    let rows = proxy.place().completed(pages + 1).await;
    let longest = rows.iter().filter_map(|row| row["wait_ms"].as_u64()).max();
    assert!(Some(2_000 * (together - 1)) <= longest, "{rows:?}");
    verified(&proxy).await;
}

// Ours: Crawl-delay 2 with Scrapy at full speed, no gap under 2 s.
#[test]
fn scrapy_at_full_speed_leaves_a_site_the_two_seconds_it_asks_for() {
    run(crawl_at_full_speed(5));
}

// Ours: the same over minutes.
#[test]
#[ignore = "two minutes long: tests/full.sh runs it"]
fn scrapy_at_full_speed_for_minutes_leaves_a_site_its_two_seconds() {
    run_within(Duration::from_secs(300), crawl_at_full_speed(50));
}

// Ours: the nine set-ups lose no page.
#[test]
fn nine_clients_lose_no_page_of_a_site_that_asks_for_a_second() {
    run(async { assert_eq!(lost_at_delay(&CLIENTS, 1).await, []) });
}

// The same where the wait is longer than httpx has patience by default: 5 s
// without a byte. Of its pages only the first comes.
#[test]
#[ignore = "a minute long: tests/full.sh runs it"]
fn clients_but_httpx_lose_no_page_of_a_site_that_asks_for_fifteen_seconds() {
    run_within(Duration::from_secs(240), async {
        let clients = [&CLIENTS[..], &NODE_CLIENTS].concat();
        assert_eq!(lost_at_delay(&clients, 15).await, [("httpx", PAGES - 1)]);
    });
}

// Ours (`pace.retry`): what clients lose to a 429 each 300 requests without it, and
// nothing with it.
#[test]
#[ignore = "four minutes long: tests/full.sh runs it"]
fn no_client_loses_a_page_of_a_site_that_answers_429_now_and_then() {
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
