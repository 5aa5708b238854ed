//! The pace that a site's robots.txt asks for: `Crawl-delay`, `Request-rate` and
//! `Visit-time`. Without these records the standard profile applies.

use std::ops::Range;
use std::sync::Arc;

use jiff::{Timestamp, ToSpan as _};
use serde_json::json;

use crate::kit::client::{get, get_as};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::{
    all, asking_for, assert_apart, assert_later, at_once, delaying, metric, ms, pages, queue, span,
    standard, standard_site, statuses, urls, verified, when,
};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::resolve;
use crate::kit::{assert_members, clock};

// Ours: no gap between two requests is shorter than the delay.
#[tokio::test]
async fn a_crawl_delay_separates_simultaneous_requests() {
    let (origin, proxy) = standard_site(delaying("0.4")).await;
    let begun = clock::instant();
    assert_eq!(statuses(&all(&proxy, &urls(8)).await), [200; 8]);
    assert!(clock::since(begun) < ms(400 * 7 + 3000));
    assert_apart(&pages(&[&origin]), 8, ms(400));
    let queued = metric(&proxy, "politesse_pace_queued").await;
    let waits = metric(&proxy, "politesse_pace_wait_seconds_count").await;
    assert_eq!((queued, waits), (0.0, 7.0));
    // Ours: each record entry holds its wait.
    let (_place, rows) = verified(proxy, 8).await;
    let waits = rows.iter().map(|row| row["wait_ms"].as_u64().unwrap());
    let mut waits: Vec<_> = waits.collect();
    waits.sort_unstable();
    assert_eq!(waits[0], 0);
    // The requests begin to wait a little after the first turn began, hence the 300 ms.
    for (turn, wait) in (0..).zip(&waits) {
        assert!(turn * 400 <= wait + 300, "{waits:?}");
    }
    for pair in waits.windows(2) {
        assert!(pair[0] + 300 <= pair[1], "{waits:?}");
    }
}

// Ours: the delay runs from the end of the response, with one request in flight.
#[tokio::test]
async fn a_crawl_delay_counts_from_the_end_of_the_response() {
    let gate = Gate::shut();
    let script = delaying("0.5").page("/1", Page::stepped(&["a", "b"], &gate));
    let (origin, proxy) = standard_site(script).await;
    let first = asking_for(&proxy, "http://o.test/1");
    origin.arrival("/1").await;
    let second = asking_for(&proxy, "http://o.test/2");
    queue(&proxy, 1).await;
    // Proof of absence: longer than the crawl delay, which must not run yet.
    tokio::time::sleep(ms(600)).await;
    assert_eq!(origin.targets(), ["/1"]);
    let opened = clock::instant();
    gate.open(1);
    assert_eq!(first.await.unwrap().text(), "ab");
    assert_eq!(second.await.unwrap().status(), 200);
    let pause = when(&origin, "/2").duration_since(opened);
    assert!((ms(500)..ms(3000)).contains(&pause), "{pause:?}");
    verified(proxy, 2).await;
}

// Ours: all ports and schemes of a host share one pace, robots.txt fetches included.
#[tokio::test]
async fn all_schemes_and_ports_of_a_host_share_one_pace() {
    let plain = delaying("0.4").start().await;
    let other = delaying("0.4").start().await;
    let tls = delaying("0.4").tls().start().await;
    let config = standard(&plain)
        .resolve("o.test:8081", other.address())
        .resolve("o.test:443", tls.address());
    let proxy = Arc::new(config.start().await);
    let mut asked = Vec::new();
    for number in 1..=2 {
        for origin in ["http://o.test", "http://O.test:8081", "https://o.test"] {
            asked.push(format!("{origin}/{number}"));
        }
    }
    assert_eq!(statuses(&all(&proxy, &asked).await), [200; 6]);
    let origins = [&plain, &other, &tls];
    assert_apart(&pages(&origins), 6, ms(400));
    for origin in origins {
        assert_eq!((origin.targets().len(), origin.robots_fetches()), (2, 1));
    }
    verified(proxy, 6).await;
}

// Ours: 5 requests per second per host.
#[tokio::test]
async fn without_a_crawl_delay_the_standard_rate_applies() {
    let (origin, proxy) = standard_site(Script::robots("")).await;
    assert_eq!(statuses(&all(&proxy, &urls(8)).await), [200; 8]);
    let span = span(&pages(&[&origin]));
    // Seven pauses; the time from a request's start to its arrival varies.
    assert!((ms(1250)..ms(4400)).contains(&span), "{span:?}");
    verified(proxy, 8).await;
}

// Ours: a delay belongs to its robots.txt group and binds only the crawlers of that
// group, but it runs from the last request of any crawler.
#[tokio::test]
async fn a_crawler_keeps_its_groups_delay_after_requests_of_any_crawler() {
    let robots = "User-agent: FooBot\nDisallow: /x\nCrawl-delay: 0.9\n\n\
                      User-agent: *\nDisallow: /x\nCrawl-delay: 0.1\n";
    let (origin, proxy) = standard_site(Script::robots(robots)).await;
    // Fetches the robots.txt of both crawlers before the measured requests.
    for crawler in ["BarBot/1.0", "FooBot/1.0"] {
        let reply = get_as(&proxy, crawler, "http://o.test/0").await;
        assert_eq!(reply.status(), 200, "{crawler}");
    }
    let requests = [
        ("FooBot", "http://o.test/foo"),
        ("BarBot", "http://o.test/a"),
        ("BarBot", "http://o.test/b"),
        ("BarBot", "http://o.test/c"),
    ];
    assert_eq!(statuses(&at_once(&proxy, &requests).await), [200; 4]);
    let seen = pages(&[&origin]);
    assert_eq!(seen[5].target, "/foo", "{seen:?}");
    assert_apart(&seen[1..5], 4, ms(100));
    assert_apart(&seen[4..], 2, ms(900));
    verified(proxy, 6).await;
}

// Ours: 2 requests per second are half a second apart.
#[tokio::test]
async fn a_request_rate_separates_requests() {
    let script = Script::robots("User-agent: *\nRequest-rate: 2/1\n");
    let (origin, proxy) = standard_site(script).await;
    assert_eq!(statuses(&all(&proxy, &urls(4)).await), [200; 4]);
    assert_apart(&pages(&[&origin]), 4, ms(500));
    verified(proxy, 4).await;
}

/// Starts an origin that may be visited from `hours.start` to `hours.end` after `now`.
async fn open_for(now: Timestamp, hours: Range<i32>) -> Origin {
    let time_of_day = |hours: i32| (now + hours.hours()).strftime("%H%M").to_string();
    let [from, to] = [hours.start, hours.end].map(time_of_day);
    let robots = format!("User-agent: *\nVisit-time: {from}-{to}\n");
    Script::robots(&robots).start().await
}

// Ours: `Visit-time` is in UTC.
#[tokio::test]
async fn requests_outside_the_visit_time_are_put_off() {
    let now = clock::now();
    let shut = open_for(now, 2..3).await;
    let open = open_for(now, -1..1).await;
    let config = standard(&shut).resolve("open.test", open.address());
    let proxy = Arc::new(config.start().await);
    let reply = get(&proxy, "http://o.test/1").await;
    let seconds = i64::try_from(assert_later(&reply, "visit_time")).unwrap();
    let opening = now.as_second() / 60 * 60 + 2 * 60 * 60;
    let late = clock::now().as_second() + seconds - opening;
    assert!((0..5).contains(&late), "{late}");
    assert_eq!(get(&proxy, "http://open.test/1").await.status(), 200);
    shut.assert_only_robots_fetched();
    let (_place, rows) = verified(proxy, 2).await;
    let expected = json!({"verdict": "later", "reason": "visit_time"});
    assert_members(&rows[0], &expected);
    assert_eq!(rows[1]["verdict"], "allow");
}

// Ours: requests that never reach the origin do not wait for it.
#[tokio::test]
async fn refusals_and_cached_robots_txt_take_no_turn() {
    let robots = "User-agent: *\nDisallow: /private\nCrawl-delay: 60\n";
    let origin = Script::robots(robots).start().await;
    let proxy = Arc::new(resolve("o.test", origin.address()).start().await);
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    let begun = clock::instant();
    let refused = get(&proxy, "http://o.test/private").await;
    refused.assert_error(403, "http_request_denied");
    assert_eq!(get(&proxy, "http://o.test/robots.txt").await.text(), robots);
    assert!(clock::since(begun) < ms(5000));
    verified(proxy, 3).await;
}
