//! Real clients at paced origins: nine set-ups as they are, none of which knows
//! that it has to wait.

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
    let links: String = (0..count)
        .map(|page| format!("<a href=/page/{page}>{page}</a>\n"))
        .collect();
    TimedOrigin::start(&robots, &links, takes).await
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
        _ => return python_command(proxy, "pages.py", &[&[client], urls.as_slice()].concat()),
    };
    let mut command = Command::new(of_its_own[0]);
    command.args(&of_its_own[1..]).args(urls);
    point_at(proxy, &mut command);
    command
}

/// Has each of `clients` fetch three pages of a site of its own that asks for
/// `delay` seconds, all at once; holds that none came too soon, and tells who
/// lost pages, and how many.
async fn lost_pages(clients: &[&'static str], delay: u32) -> Vec<(&'static str, usize)> {
    let site = async |client: &str| {
        let origin = paced(delay, PAGES, Duration::ZERO).await;
        (format!("{client}.test"), origin)
    };
    let mut sites = Vec::new();
    let mut config = by_default(Config::default());
    for client in clients {
        let (name, origin) = site(client).await;
        config = config.resolve(&name, origin.address());
        sites.push((name, origin));
    }
    let proxy = config.start().await;
    let running = clients.iter().zip(&sites).map(|(client, (name, _))| {
        let urls: Vec<_> = (0..PAGES)
            .map(|page| format!("http://{name}/page/{page}"))
            .collect();
        tokio::spawn(ended(command(&proxy, client, &urls), b""))
    });
    let running: Vec<_> = running.collect();
    let mut lost = Vec::new();
    for ((client, running), (name, origin)) in clients.iter().zip(running).zip(&sites) {
        let outcome = running.await.unwrap();
        assert_apart(origin, delay);
        let got = pages_told(client, &outcome);
        if got < PAGES {
            lost.push((*client, PAGES - got));
            continue;
        }
        let came = origin.pages();
        let all = (0..PAGES).all(|page| {
            came.iter()
                .any(|seen| seen.target == format!("/page/{page}"))
        });
        assert!(all, "{name}: {came:?}");
    }
    verified(&proxy).await;
    lost
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
    run(async { assert_eq!(lost_pages(&CLIENTS, 1).await, []) });
}

// The same where the wait is longer than httpx has patience by default: 5 s
// without a byte. Of its pages only the first comes.
#[test]
#[ignore = "half a minute long: tests/full.sh runs it"]
fn nine_clients_but_httpx_lose_no_page_of_a_site_that_asks_for_twelve_seconds() {
    run(async { assert_eq!(lost_pages(&CLIENTS, 12).await, [("httpx", PAGES - 1)]) });
}
