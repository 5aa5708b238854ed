//! Changes while requests wait for their turns: each request is decided again, by the
//! robots.txt and configuration in force, before it is sent.

use std::sync::Arc;

use jiff::ToSpan as _;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::kit::addresses::free_address;
use crate::kit::client::{Crawler, Reply, get};
use crate::kit::origin::Script;
use crate::kit::paced::{
    all, assert_apart, assert_later, delaying, held, metric, ms, none_in_flight, pages, queue,
    standard, statuses, urls, verified, when,
};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::{Config, Proxy};
use crate::kit::{assert_members, clock, until};

/// Override that denies every page of the test origin.
const DENY: &str = "robots.override = [{ origin = \"http://o.test\", path = \"/\", action = \"deny\", reason = \"its owner asked\" }]";

/// Returns an origin that serves `first` as its robots.txt and `then` at every
/// revalidation.
fn changing(first: &str, then: &str) -> Script {
    let first = Page::text(first)
        .field("ETag", "\"1\"")
        .field("Cache-Control", "max-age=1");
    let then = Page::text(then).field("ETag", "\"2\"");
    Script::robots_page(first).robots_if_conditional(then)
}

/// Sends `count` requests at once, and waits until all but one of them are queued.
async fn ask_until_queued(proxy: &Arc<Proxy>, count: u32) -> JoinHandle<Vec<Reply>> {
    let asking = tokio::spawn({
        let proxy = Arc::clone(proxy);
        async move { all(&proxy, &urls(count as usize)).await }
    });
    queue(proxy, count - 1).await;
    asking
}

/// Requests `url` in a task of its own.
fn asking(proxy: &Arc<Proxy>, url: &str) -> JoinHandle<Reply> {
    let (proxy, url) = (Arc::clone(proxy), url.to_owned());
    tokio::spawn(async move { get(&proxy, &url).await })
}

/// Returns the statuses of `replies` in ascending order.
fn sorted_statuses(replies: &[Reply]) -> Vec<u16> {
    let mut statuses = statuses(replies);
    statuses.sort_unstable();
    statuses
}

async fn reload(proxy: &Proxy, config: &Config) {
    let name = "politesse_config_reloads_total{result=\"successful\"}";
    let before = metric(proxy, name).await;
    proxy.place().configure(config);
    proxy.signal("HUP").await;
    until("reload", async || {
        (before < metric(proxy, name).await).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_waiting_request_is_decided_by_a_robots_txt_fetched_meanwhile() {
    let delay = "User-agent: *\nCrawl-delay: 0.7\n";
    let origin = changing(delay, &format!("{delay}Disallow: /\n"))
        .start()
        .await;
    let config = standard(&origin).set("robots.ttl_min = \"1ms\"");
    let proxy = Arc::new(config.start().await);
    let replies = ask_until_queued(&proxy, 6).await.await.unwrap();
    let log = origin.log();
    let second = log
        .iter()
        .rposition(|seen| seen.target == "/robots.txt")
        .unwrap();
    // No page is requested after the robots.txt that disallows it.
    assert_eq!(second, log.len() - 1, "{log:?}");
    let served = log.len() - 2;
    assert!((1..=3).contains(&served), "{log:?}");
    assert_eq!(
        sorted_statuses(&replies),
        [vec![200; served], vec![403; 6 - served]].concat()
    );
    for reply in replies.iter().filter(|reply| reply.status() == 403) {
        assert_eq!(reply.json()["reason"], "rule");
    }
    assert_apart(&pages(&[&origin]), served, ms(700));
    let (_place, rows) = verified(proxy, 6).await;
    let refused = rows.iter().filter(|row| row["verdict"] == "disallow");
    assert!(
        refused
            .clone()
            .all(|row| 700 < row["wait_ms"].as_u64().unwrap()),
        "{rows:?}"
    );
    assert_eq!(refused.count(), 6 - served);
}

// A new `Crawl-delay` applies to requests that already wait.
#[tokio::test]
async fn waiting_requests_keep_a_crawl_delay_raised_meanwhile() {
    let then = "User-agent: *\nCrawl-delay: 1.5\n";
    let origin = changing("User-agent: *\nCrawl-delay: 0.6\n", then)
        .start()
        .await;
    let config = standard(&origin).set("robots.ttl_min = \"1ms\"");
    let proxy = Arc::new(config.start().await);
    let replies = ask_until_queued(&proxy, 5).await.await.unwrap();
    assert_eq!(statuses(&replies), [200; 5]);
    let log = origin.log();
    let second = log
        .iter()
        .rposition(|seen| seen.target == "/robots.txt")
        .unwrap();
    assert!((2..=4).contains(&second), "{log:?}");
    assert_apart(&log[second + 1..], 6 - second, ms(1500));
    assert_apart(&pages(&[&origin]), 5, ms(600));
    verified(proxy, 5).await;
}

#[tokio::test]
async fn an_override_that_expires_no_longer_allows_waiting_requests() {
    let origin = Script::robots("User-agent: *\nDisallow: /\nCrawl-delay: 0.8\n")
        .start()
        .await;
    let (now, instant) = (clock::now(), clock::instant());
    let until = now.checked_add(3.seconds()).unwrap();
    let table = format!(
        "robots.override = [{{ origin = \"http://o.test\", action = \"allow\", \
             reason = \"contract 114\", until = {until} }}]"
    );
    let proxy = Arc::new(standard(&origin).set(&table).start().await);
    let replies = all(&proxy, &urls(8)).await;
    let served = origin.targets().len();
    assert!((1..=4).contains(&served), "{served}");
    assert_eq!(
        sorted_statuses(&replies),
        [vec![200; served], vec![403; 8 - served]].concat()
    );
    for seen in pages(&[&origin]) {
        let at = seen.at.duration_since(instant);
        assert!(at < ms(3100), "{at:?}");
    }
    assert!(until <= clock::now());
    verified(proxy, 8).await;
}

// Ours: a reload changes the pace of requests that already wait.
#[tokio::test]
async fn a_faster_pace_after_a_reload_releases_waiting_requests() {
    let origin = Script::robots("").start().await;
    let slow = standard(&origin).set("pace.origin = { rate = \"1/m\" }");
    let proxy = Arc::new(slow.start().await);
    let asking = ask_until_queued(&proxy, 3).await;
    // A request gets its turn before its row is committed, and is sent afterwards.
    until("the first page", async || {
        (origin.targets().len() == 1).then_some(())
    })
    .await;
    reload(&proxy, &standard(&origin).set("pace.profile = \"owned\"")).await;
    assert_eq!(statuses(&asking.await.unwrap()), [200; 3]);
    verified(proxy, 3).await;
}

#[tokio::test]
async fn a_slower_pace_after_a_reload_holds_waiting_requests() {
    let origin = delaying("1").start().await;
    let config = |rate: &str| {
        let config = standard(&origin).set("pace.max_wait = \"4s\"");
        config.set(&format!("pace.origin = {{ rate = \"{rate}\" }}"))
    };
    let proxy = Arc::new(config("5/s").start().await);
    let asking = ask_until_queued(&proxy, 3).await;
    reload(&proxy, &config("1/m")).await;
    // A page that got its turn before the reload may still be on its way out.
    none_in_flight(&proxy).await;
    let served = origin.targets().len();
    let replies = asking.await.unwrap();
    assert_eq!(origin.targets().len(), served);
    let put_off: Vec<_> = replies
        .iter()
        .filter(|reply| reply.status() != 200)
        .collect();
    assert_eq!(put_off.len(), 3 - served);
    for reply in put_off {
        assert!(40 < assert_later(reply, "ceiling"));
    }
    verified(proxy, 3).await;
}

// ARCHITECTURE.md, "A crawler that hangs up cancels its own exchange and nothing
// else": the delay runs from the hang-up, and the turn is free again.
#[tokio::test]
async fn a_crawler_that_hangs_up_during_a_response_frees_its_turn() {
    let gate = Gate::shut();
    let page = Page::stepped(&["a", "b"], &gate);
    let origin = delaying("0.6").page("/1", page).start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    let mut crawler = Crawler::abrupt(&proxy).await;
    crawler.start_get("http://o.test/1", "o.test").await;
    assert_eq!(crawler.head().await.unwrap().status, 200);
    let next = asking(&proxy, "http://o.test/2");
    queue(&proxy, 1).await;
    // Proof of absence: longer than the crawl delay, which must not run yet.
    tokio::time::sleep(ms(700)).await;
    assert_eq!(origin.targets(), ["/1"]);
    let gone = clock::instant();
    drop(crawler);
    assert_eq!(next.await.unwrap().status(), 200);
    let pause = when(&origin, "/2").duration_since(gone);
    assert!((ms(600)..ms(3000)).contains(&pause), "{pause:?}");
    none_in_flight(&proxy).await;
    verified(proxy, 2).await;
}

// Ours: a turn ends when the connection attempt fails.
#[tokio::test]
async fn a_failed_connection_frees_its_turn() {
    let tls = delaying("0.3").tls().start().await;
    let config = standard(&tls)
        .resolve("o.test:8081", free_address())
        .set("pace.origin = { in_flight = 1 }");
    let proxy = Arc::new(config.start().await);
    for _ in 0..3 {
        let reply = get(&proxy, "http://o.test:8081/1").await;
        reply.assert_error(502, "connection_refused");
    }
    assert_eq!(get(&proxy, "https://o.test/1").await.status(), 200);
    assert_eq!(get(&proxy, "https://o.test/2").await.status(), 200);
    none_in_flight(&proxy).await;
    verified(proxy, 5).await;
}

// Ours: requests whose turn comes after the shutdown timeout are not sent.
#[tokio::test]
async fn a_stop_does_not_wait_for_turns_beyond_the_shutdown_timeout() {
    let origin = delaying("60").start().await;
    let config = standard(&origin).set("proxy.shutdown_timeout = \"1s\"");
    let proxy = config.start().await;
    assert_eq!(get(&proxy, "http://o.test/0").await.status(), 200);
    let mut crawler = Crawler::plain(&proxy).await;
    crawler.start_get("http://o.test/1", "o.test").await;
    queue(&proxy, 1).await;
    let begun = clock::instant();
    let mut proxy = proxy;
    proxy.signal("TERM").await;
    proxy.ended().await;
    assert!(clock::since(begun) < ms(8000), "{:?}", clock::since(begun));
    assert_eq!(origin.targets(), ["/0"]);
    proxy.place().assert_verified().await;
}

// Ours: an override added by a reload applies to requests that already wait.
#[tokio::test]
async fn a_waiting_request_is_decided_by_a_new_override() {
    let origin = delaying("1").start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    let asking = ask_until_queued(&proxy, 4).await;
    reload(&proxy, &standard(&origin).set(DENY)).await;
    let statuses = sorted_statuses(&asking.await.unwrap());
    // One request had its turn already, and a second may have got one meanwhile.
    let served = pages(&[&origin]).len();
    assert!((1..=2).contains(&served), "{statuses:?}");
    let refused = vec![403; 4 - served];
    assert_eq!(statuses, [vec![200; served], refused].concat());
    verified(proxy, 4).await;
}

// Ours: the new override also applies if the same reload changes the dialect, in which
// the robots.txt in memory was not read.
#[tokio::test]
async fn a_waiting_request_is_decided_by_a_new_override_in_a_new_dialect() {
    let origin = delaying("2").start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    let asking = ask_until_queued(&proxy, 2).await;
    let config = standard(&origin).set(DENY).set("robots.dialect = \"1994\"");
    reload(&proxy, &config).await;
    assert_eq!(sorted_statuses(&asking.await.unwrap()), [200, 403]);
    verified(proxy, 2).await;
}

// Ours: the first request to a host waits for robots.txt alone; once that has arrived,
// it has no turn to wait for.
#[tokio::test]
async fn a_request_that_waits_for_robots_txt_is_decided_by_a_new_override() {
    let gate = Gate::shut();
    let robots = Page::text("User-agent: *\nAllow: /\n").after(&gate);
    let origin = Script::robots_page(robots).start().await;
    let proxy = Arc::new(standard(&origin).start().await);
    let asking = asking(&proxy, "http://o.test/1");
    until("a fetch", async || (!origin.log().is_empty()).then_some(())).await;
    reload(&proxy, &standard(&origin).set(DENY)).await;
    gate.open(1);
    let reply = asking.await.unwrap();
    assert_eq!(reply.status(), 403, "{}", reply.text());
    assert!(pages(&[&origin]).is_empty());
    let (_, rows) = verified(proxy, 1).await;
    assert_eq!(rows[0]["reason"], "override");
}

// Ours: a network that the operator denies is closed at once, even if connections to it
// are open.
#[tokio::test]
async fn a_waiting_request_is_not_sent_to_an_address_denied_meanwhile() {
    let (gate, origin) = held("/1").await;
    let one = || Config::default().set("pace.origin = { in_flight = 1 }");
    let open = one().set("egress.allow = [\"127.0.0.0/8\"]");
    let proxy = Arc::new(open.start().await);
    let address = origin.address();
    let first = asking(&proxy, &format!("http://{address}/1"));
    origin.arrival("/1").await;
    let second = asking(&proxy, &format!("http://{address}/2"));
    queue(&proxy, 1).await;
    // The first reload denies the network, the second changes another upstream setting.
    reload(&proxy, &one()).await;
    reload(&proxy, &one().set("upstream.dns_ttl = \"9s\"")).await;
    gate.open(1);
    assert_eq!(first.await.unwrap().status(), 200);
    let refused = second.await.unwrap();
    refused.assert_error(502, "destination_ip_prohibited");
    assert_eq!(origin.targets(), ["/1"]);
    let (_place, rows) = verified(proxy, 2).await;
    let expected = json!({"sent": 0, "error": "destination_ip_prohibited"});
    assert_members(&rows[1], &expected);
}

// Ours: while an expired robots.txt cannot be fetched again, its last copy decides once
// the override that took precedence over it is gone.
#[tokio::test]
async fn the_last_robots_txt_decides_once_an_override_is_removed() {
    let gate = Gate::shut();
    let rules = Page::text("User-agent: *\nCrawl-delay: 2\nDisallow: /\n");
    let rules = rules.field("Cache-Control", "max-age=1");
    let origin = Script::robots_page(rules).start().await;
    let busy = Script::robots_page(Page::text("").after(&gate));
    let busy = busy.start().await;
    let config = || {
        let config = standard(&origin).resolve("p.test", busy.address());
        config
            .set("robots.ttl_min = \"1ms\"")
            .set("robots.max_waiting = 1")
    };
    let allow = "robots.override = [{ origin = \"http://o.test\", action = \"allow\", reason = \"ours\", until = 2099-01-01T00:00:00Z }]";
    let proxy = Arc::new(config().set(allow).start().await);
    let waiting = ask_until_queued(&proxy, 2).await;
    // This fetch takes the only place for fetches that wait.
    let fetching = asking(&proxy, "http://p.test/1");
    until("a fetch", async || (!busy.log().is_empty()).then_some(())).await;
    reload(&proxy, &config()).await;
    assert_eq!(sorted_statuses(&waiting.await.unwrap()), [200, 403]);
    assert_eq!(pages(&[&origin]).len(), 1);
    gate.open(1);
    assert_eq!(fetching.await.unwrap().status(), 200);
    verified(proxy, 3).await;
}
