//! The pace that a site's robots.txt asks for: `Crawl-delay`, `Request-rate` and
//! `Visit-time`. Without these records the standard profile applies.

use std::ops::Range;
use std::sync::Arc;

use jiff::{Timestamp, ToSpan as _};

use crate::kit::client::get;
use crate::kit::clock;
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::{
    all, assert_apart, assert_later, column, delaying, metric, ms, pages, standard, standard_site,
    statuses, urls, verified,
};
use crate::kit::proxy::resolve;

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

// Ours: `Visit-time` of a site and `hours` of the operator's rule are in UTC.
#[tokio::test]
async fn requests_outside_the_visit_time_or_the_hours_of_a_rule_are_put_off() {
    let now = clock::now();
    let shut = open_for(now, 2..3).await;
    let open = open_for(now, -1..1).await;
    let ruled = Script::robots("").start().await;
    let rule = |host: &str, hours: Range<i32>| {
        let time = |hours: i32| (now + hours.hours()).strftime("%H:%M").to_string();
        let hours = format!("{}-{}", time(hours.start), time(hours.end));
        format!("{{ origin = \"{host}\", hours = \"{hours}\", reason = \"by night\" }}")
    };
    let rules = [rule("night.test", 2..3), rule("day.test", -1..1)].join(", ");
    let config = standard(&shut)
        .resolve("open.test", open.address())
        .resolve("night.test", ruled.address())
        .resolve("day.test", ruled.address())
        .set(&format!("pace.rule = [{rules}]"));
    let proxy = Arc::new(config.start().await);
    let opening = now.as_second() / 60 * 60 + 2 * 60 * 60;
    for host in ["o.test", "night.test"] {
        let reply = get(&proxy, &format!("http://{host}/1")).await;
        let seconds = i64::try_from(assert_later(&reply, "visit_time")).unwrap();
        let late = clock::now().as_second() + seconds - opening;
        assert!((0..5).contains(&late), "{host}: {late}");
    }
    for host in ["open.test", "day.test"] {
        let reply = get(&proxy, &format!("http://{host}/1")).await;
        assert_eq!(reply.status(), 200, "{host}");
    }
    shut.assert_only_robots_fetched();
    let seen = pages(&[&ruled]);
    assert_eq!((seen.len(), &*seen[0].authority), (1, "day.test"));
    let (_place, rows) = verified(proxy, 4).await;
    assert_eq!(rows[0]["reason"], "visit_time");
    let verdicts = ["later", "later", "allow", "allow"];
    assert_eq!(column(&rows, "verdict"), verdicts);
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
