//! The pace that a site's robots.txt asks for: `Crawl-delay`, `Request-rate` and
//! `Visit-time`. Without these records the standard profile applies.

use std::sync::Arc;

use jiff::{Timestamp, ToSpan as _};
use serde_json::json;
use tokio::task::JoinSet;

use crate::kit::client::get;
use crate::kit::h2::H2Crawler;
use crate::kit::origin::Script;
use crate::kit::paced::{
    all, assert_apart, assert_later, at_once, delaying, metric, ms, pages, queue, span, standard,
    statuses, urls, verified, when,
};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::resolve;
use crate::kit::{assert_members, clock, until};

// Ours: no gap between two requests is shorter than the delay.
#[tokio::test]
async fn a_crawl_delay_separates_simultaneous_requests() {
    let origin = delaying("0.4").start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    let begun = clock::instant();
    let replies = all(&proxy, &urls(8)).await;
    assert_eq!(statuses(&replies), [200; 8]);
    assert!(clock::since(begun) < ms(400 * 7 + 3000));
    assert_apart(&pages(&[&origin]), 8, ms(400));
    let queued = metric(&proxy, "politesse_pace_queued").await;
    let waits = metric(&proxy, "politesse_pace_wait_seconds_count").await;
    assert_eq!((queued, waits), (0.0, 7.0));
    // Ours: each record entry holds its wait.
    let (_place, rows) = verified(proxy, 8).await;
    let mut waits: Vec<_> = rows
        .iter()
        .map(|row| row["wait_ms"].as_u64().unwrap())
        .collect();
    waits.sort_unstable();
    assert_eq!(waits[0], 0);
    // The requests begin to wait a little after the first turn began, hence the 300 ms.
    let rising = waits.iter().zip(0_u64..);
    assert!(
        rising.clone().all(|(wait, turn)| turn * 400 <= wait + 300),
        "{waits:?}"
    );
    assert!(
        waits.windows(2).all(|pair| pair[0] + 300 <= pair[1]),
        "{waits:?}"
    );
}

// Ours: the delay runs from the end of the response, with one request in flight.
#[tokio::test]
async fn a_crawl_delay_counts_from_the_end_of_the_response() {
    let gate = Gate::shut();
    let script = delaying("0.5").page("/1", Page::stepped(&["a", "b"], &gate));
    let origin = script.start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    let asking = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { get(&proxy, "http://o.test/1").await }
    });
    origin.arrival("/1").await;
    let second = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { get(&proxy, "http://o.test/2").await }
    });
    queue(&proxy, 1).await;
    // Proof of absence: longer than the crawl delay, which must not run yet.
    tokio::time::sleep(ms(600)).await;
    assert_eq!(origin.targets(), ["/1"]);
    let opened = clock::instant();
    gate.open(1);
    assert_eq!(asking.await.unwrap().text(), "ab");
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
    let replies = all(&proxy, &asked).await;
    assert_eq!(statuses(&replies), [200; 6]);
    let origins = [&plain, &other, &tls];
    assert_apart(&pages(&origins), 6, ms(400));
    for origin in origins {
        assert_eq!((origin.targets().len(), origin.robots_fetches()), (2, 1));
    }
    verified(proxy, 6).await;
}

// Ours: robots.txt fetches take turns and go to the head of the queue.
#[tokio::test]
async fn a_robots_txt_fetch_takes_the_next_turn() {
    let plain = delaying("0.6").start().await;
    let tls = delaying("0.6").tls().start().await;
    let config = standard(&plain).resolve("o.test:443", tls.address());
    let proxy = Arc::new(config.start().await);
    assert_eq!(get(&proxy, "http://o.test/0").await.status(), 200);
    let queued = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { all(&proxy, &urls(3)).await }
    });
    queue(&proxy, 3).await;
    let page = get(&proxy, "https://o.test/x").await;
    assert_eq!(page.status(), 200);
    assert_eq!(statuses(&queued.await.unwrap()), [200; 3]);
    let mut seen = [plain.log(), tls.log()].concat();
    seen.sort_by_key(|seen| seen.at);
    // The first robots.txt is fetched before any page.
    assert_apart(&seen[1..], 6, ms(600));
    let second = seen.iter().rposition(|seen| seen.target == "/robots.txt");
    assert_eq!(second, Some(2), "{seen:?}");
    verified(proxy, 5).await;
}

// Ours: HTTP/2 streams that share a connection also take turns.
#[tokio::test]
async fn http2_streams_of_one_connection_keep_the_crawl_delay() {
    let origin = delaying("0.3").tls().start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    let crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    let mut asking = JoinSet::new();
    for number in 1..=8 {
        let mut stream = crawler.beside();
        let url = format!("https://o.test/{number}");
        asking.spawn(async move { stream.get(&url).await.status().as_u16() });
    }
    assert_eq!(asking.join_all().await, [200; 8]);
    assert_apart(&pages(&[&origin]), 8, ms(300));
    drop(crawler);
    verified(proxy, 8).await;
}

// Ours: 5 requests per second per host.
#[tokio::test]
async fn without_a_crawl_delay_the_standard_rate_applies() {
    let origin = Script::robots("").start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    let replies = all(&proxy, &urls(8)).await;
    assert_eq!(statuses(&replies), [200; 8]);
    let span = span(&pages(&[&origin]));
    // The time from a request's start to its arrival varies.
    assert!(
        (ms(7 * 200 - 150)..ms(7 * 200 + 3000)).contains(&span),
        "{span:?}"
    );
    verified(proxy, 8).await;
}

// Ours: 4 concurrent requests per host.
#[tokio::test]
async fn without_a_crawl_delay_four_requests_run_at_once() {
    let gate = Gate::shut();
    let mut script = Script::robots("");
    for number in 1..=6 {
        script = script.page(&format!("/{number}"), Page::text("x").after(&gate));
    }
    let origin = script.start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    let asking = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { all(&proxy, &urls(6)).await }
    });
    until("four requests", async || {
        (origin.targets().len() == 4).then_some(())
    })
    .await;
    queue(&proxy, 2).await;
    // Proof of absence: the standard rate alone would send a fifth after 200 ms.
    tokio::time::sleep(ms(300)).await;
    assert_eq!(origin.targets().len(), 4);
    assert_eq!(metric(&proxy, "politesse_pace_in_flight").await, 4.0);
    gate.open(6);
    assert_eq!(statuses(&asking.await.unwrap()), [200; 6]);
    verified(proxy, 6).await;
}

// Ours: ten hosts crawled in parallel each keep their own delay.
#[tokio::test]
async fn hosts_do_not_slow_one_another() {
    let origin = delaying("0.6").start().await;
    let mut config = standard(&origin);
    let mut asked = Vec::new();
    for host in 0..10 {
        config = config.resolve(&format!("h{host}.test"), origin.address());
        asked.extend((1..=4).map(|number| format!("http://h{host}.test/{number}")));
    }
    let proxy = Arc::new(config.start().await);
    let replies = all(&proxy, &asked).await;
    assert_eq!(statuses(&replies), [200; 40]);
    let seen = pages(&[&origin]);
    // In sequence they would need 18 s.
    assert!(span(&seen) < ms(5000), "{:?}", span(&seen));
    for host in 0..10 {
        let mut own = seen.clone();
        own.retain(|seen| seen.authority == format!("h{host}.test"));
        assert_apart(&own, 4, ms(600));
    }
    verified(proxy, 40).await;
}

// Ours: a delay belongs to its robots.txt group and binds only the crawlers of that
// group, but it runs from the last request of any crawler.
#[tokio::test]
async fn a_crawler_keeps_its_groups_delay_after_requests_of_any_crawler() {
    let robots = "User-agent: FooBot\nDisallow: /x\nCrawl-delay: 0.9\n\n\
                      User-agent: *\nDisallow: /x\nCrawl-delay: 0.1\n";
    let origin = Script::robots(robots).start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    // Fetches the robots.txt of both crawlers before the measured requests.
    let first = [("BarBot", "http://o.test/0"), ("FooBot", "http://o.test/0")];
    for request in first {
        assert_eq!(statuses(&at_once(&proxy, &[request]).await), [200]);
    }
    let requests = [
        ("FooBot", "http://o.test/foo"),
        ("BarBot", "http://o.test/a"),
        ("BarBot", "http://o.test/b"),
        ("BarBot", "http://o.test/c"),
    ];
    assert_eq!(statuses(&at_once(&proxy, &requests).await), [200; 4]);
    let seen = pages(&[&origin]);
    let targets: Vec<&str> = seen.iter().map(|seen| &*seen.target).collect();
    assert_eq!(targets[5], "/foo", "{targets:?}");
    assert_apart(&seen[1..5], 4, ms(100));
    assert_apart(&seen[4..], 2, ms(900));
    verified(proxy, 6).await;
}

// Ours: 2 requests per second are half a second apart.
#[tokio::test]
async fn a_request_rate_separates_requests() {
    let origin = Script::robots("User-agent: *\nRequest-rate: 2/1\n")
        .start()
        .await;
    let proxy = Arc::new(standard(&origin).start().await);
    let replies = all(&proxy, &urls(4)).await;
    assert_eq!(statuses(&replies), [200; 4]);
    assert_apart(&pages(&[&origin]), 4, ms(500));
    verified(proxy, 4).await;
}

/// Returns the time of day `hours` after `now` in the form of robots.txt (`0930`).
fn time_of_day(now: Timestamp, hours: i32) -> String {
    let then = now.checked_add(hours.hours()).unwrap();
    then.strftime("%H%M").to_string()
}

// Ours: `Visit-time` is in UTC.
#[tokio::test]
async fn requests_outside_the_visit_time_are_put_off() {
    let now = clock::now();
    let shut = format!(
        "User-agent: *\nVisit-time: {}-{}\n",
        time_of_day(now, 2),
        time_of_day(now, 3)
    );
    let open = format!(
        "User-agent: *\nVisit-time: {}-{}\n",
        time_of_day(now, -1),
        time_of_day(now, 1)
    );
    let (shut, open) = (
        Script::robots(&shut).start().await,
        Script::robots(&open).start().await,
    );
    let config = standard(&shut).resolve("open.test", open.address());
    let proxy = Arc::new(config.start().await);
    let reply = get(&proxy, "http://o.test/1").await;
    let seconds = i64::try_from(assert_later(&reply, "visit_time")).unwrap();
    let minute = now.as_second() / 60 * 60;
    let opening = minute + 2 * 60 * 60;
    let told = clock::now().as_second() + seconds;
    assert!(
        (opening..opening + 5).contains(&told),
        "{told} for {opening}"
    );
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
    get(&proxy, "http://o.test/private")
        .await
        .assert_error(403, "http_request_denied");
    assert_eq!(get(&proxy, "http://o.test/robots.txt").await.text(), robots);
    assert!(clock::since(begun) < ms(5000));
    verified(proxy, 3).await;
}
