//! Time that each page takes, and its JSON equivalent.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use politesse_base::clock;

use crate::proxy::Proxy;
use crate::record::{BUSY_HOST, LONE_HOST};

/// Requests for a page after the first.
const TRIES: usize = 20;
/// Limits for the median time of a page, and for its slowest request.
const MEDIAN_MAX: Duration = Duration::from_millis(50);
const WORST_MAX: Duration = Duration::from_millis(200);

/// Queries for `/decisions` and `/api/v1/decisions`.
const FILTERS: [&str; 12] = [
    "",
    "?host=host-0.example.test",
    "?host=host-17.example.test",
    "?host=lone.example.test",
    "?host=none.example.test",
    "?verdict=disallow",
    "?verdict=later",
    "?crawler=bot3",
    "?crawler=never",
    "?url=https://host-17.example.test/catalog*",
    "?url=https://host-0.example.test/never*",
    "?rule=Disallow:+/private-199/",
];

/// Requests every page, and prints its times.
///
/// # Errors
///
/// If a request fails, or a page exceeds its time limit.
pub(crate) fn measure(folder: &Path) -> anyhow::Result<()> {
    let mut targets = Vec::new();
    for hours in [1, 24, 168, 720] {
        targets.push(format!("/?hours={hours}"));
        targets.push(format!("/api/v1/overview?hours={hours}"));
        targets.push(format!("/crawlers?hours={hours}"));
        targets.push(format!("/api/v1/crawlers?hours={hours}"));
    }
    for filter in FILTERS {
        targets.push(format!("/decisions{filter}"));
        targets.push(format!("/api/v1/decisions{filter}"));
    }
    for host in [BUSY_HOST, "host-17.example.test", LONE_HOST] {
        targets.push(format!("/hosts?host={host}"));
        targets.push(format!("/api/v1/hosts?host={host}"));
    }
    let others = [
        "/queues",
        "/api/v1/pace",
        "/reports",
        "/test",
        "/api/v1/clients",
        "/hosts",
        "/configuration",
        "/api/v1/configuration",
    ];
    targets.extend(others.map(str::to_owned));
    targets.extend(stories(folder)?);
    println!("| page | first | median | worst | bytes |\n|---|---|---|---|---|");
    let mut slow = Vec::new();
    for target in targets {
        // A new process for each page, so that `first` is the first answer it gives.
        let proxy = Proxy::start(folder, &[])?;
        let times = match PageTimes::of(&proxy, &target) {
            Ok(times) => times,
            Err(error) => {
                println!("| `{target}` | {error} | | | |");
                slow.push(target);
                continue;
            }
        };
        println!(
            "| `{target}` | {:.1?} | {:.1?} | {:.1?} | {} |",
            times.first, times.median, times.worst, times.bytes
        );
        if MEDIAN_MAX < times.median || WORST_MAX < times.worst.max(times.first) {
            slow.push(target);
        }
    }
    if !slow.is_empty() {
        bail!("over {MEDIAN_MAX:?} in the median, or over {WORST_MAX:?}: {slow:?}");
    }
    Ok(())
}

/// Returns the pages of single decisions: of a large and a small host, refused and
/// allowed.
fn stories(folder: &Path) -> anyhow::Result<Vec<String>> {
    let proxy = Proxy::start(folder, &[])?;
    let mut stories = Vec::new();
    for filter in [
        "host=host-0.example.test&verdict=disallow",
        "host=host-0.example.test&verdict=allow",
        "host=lone.example.test",
    ] {
        let answer = proxy.get(&format!("/api/v1/decisions?limit=1&{filter}"))?;
        let text = String::from_utf8_lossy(&answer);
        let (_, rest) = text.split_once("\"seq\":").context("a decision")?;
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        stories.push(format!("/decisions/{number}"));
        stories.push(format!("/api/v1/decisions/{number}"));
    }
    Ok(stories)
}

/// Times of one page.
struct PageTimes {
    first: Duration,
    median: Duration,
    worst: Duration,
    bytes: usize,
}

impl PageTimes {
    fn of(proxy: &Proxy, target: &str) -> anyhow::Result<Self> {
        let mut bytes = 0;
        let mut ask = || -> anyhow::Result<Duration> {
            let start = clock::instant();
            let answer = proxy.get(target)?;
            let time = clock::instant().duration_since(start);
            if !answer.starts_with(b"HTTP/1.1 200 ") {
                let text = String::from_utf8_lossy(&answer);
                bail!("{}", text.lines().next().unwrap_or_default());
            }
            bytes = answer.len();
            Ok(time)
        };
        let first = ask()?;
        let times: anyhow::Result<Vec<Duration>> = (0..TRIES).map(|_| ask()).collect();
        let mut times = times?;
        times.sort_unstable();
        Ok(Self {
            first,
            median: times[TRIES / 2],
            worst: times[TRIES - 1],
            bytes,
        })
    }
}
