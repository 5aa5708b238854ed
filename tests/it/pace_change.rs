//! Changes while requests wait for their turns: each request is decided again, by the
//! robots.txt and configuration in force, before it is sent.

use std::sync::Arc;

use jiff::ToSpan as _;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::kit::addresses::free_address;
use crate::kit::client::{self, Crawler, Reply, get};
use crate::kit::origin::{Script, Seen};
use crate::kit::paced::{
    all, asking_all, asking_for, assert_apart, assert_later, delaying, held, ms, none_in_flight,
    pages, queue, standard, standard_site, statuses, urls, verified, when,
};
use crate::kit::page::{Gate, Page};
use crate::kit::proxy::{Config, Proxy};
use crate::kit::{assert_members, clock};

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
    let asking = asking_all(proxy, &urls(count as usize));
    queue(proxy, count - 1).await;
    asking
}

/// Asserts that `served` of the requests got their page, and all others a refusal.
fn assert_served(replies: &[Reply], served: usize) {
    let mut statuses = statuses(replies);
    statuses.sort_unstable();
    let refused = vec![403; replies.len() - served];
    assert_eq!(statuses, [vec![200; served], refused].concat());
}

/// Returns the place of the last robots.txt fetch among all requests.
fn last_robots_fetch(log: &[Seen]) -> usize {
    let place = log.iter().rposition(|seen| seen.target == "/robots.txt");
    place.unwrap()
}

async fn reload(proxy: &Proxy, config: &Config) {
    proxy.place().configure(config);
    client::reload(proxy).await;
}

#[tokio::test]
async fn a_waiting_request_is_decided_by_a_robots_txt_fetched_meanwhile() {
    let delay = "User-agent: *\nCrawl-delay: 0.7\n";
    let script = changing(delay, &format!("{delay}Disallow: /\n"));
    let origin = script.start().await;
    let config = standard(&origin).set("robots.ttl_min = \"1ms\"");
    let proxy = Arc::new(config.start().await);
    let replies = ask_until_queued(&proxy, 6).await.await.unwrap();
    let log = origin.log();
    // No page is requested after the robots.txt that disallows it.
    assert_eq!(last_robots_fetch(&log), log.len() - 1, "{log:?}");
    let served = log.len() - 2;
    assert!((1..=3).contains(&served), "{log:?}");
    assert_served(&replies, served);
    for reply in replies.iter().filter(|reply| reply.status() == 403) {
        assert_eq!(reply.json()["reason"], "rule");
    }
    assert_apart(&pages(&[&origin]), served, ms(700));
    let (_place, rows) = verified(proxy, 6).await;
    let refused = rows.iter().filter(|row| row["verdict"] == "disallow");
    assert_eq!(refused.clone().count(), 6 - served);
    for row in refused {
        assert!(700 < row["wait_ms"].as_u64().unwrap(), "{row}");
    }
}

// A new `Crawl-delay` applies to requests that already wait.
#[tokio::test]
async fn waiting_requests_keep_a_crawl_delay_raised_meanwhile() {
    let then = "User-agent: *\nCrawl-delay: 1.5\n";
    let script = changing("User-agent: *\nCrawl-delay: 0.6\n", then);
    let origin = script.start().await;
    let config = standard(&origin).set("robots.ttl_min = \"1ms\"");
    let proxy = Arc::new(config.start().await);
    let replies = ask_until_queued(&proxy, 5).await.await.unwrap();
    assert_eq!(statuses(&replies), [200; 5]);
    let log = origin.log();
    let second = last_robots_fetch(&log);
    assert!((2..=4).contains(&second), "{log:?}");
    assert_apart(&log[second + 1..], 6 - second, ms(1500));
    assert_apart(&pages(&[&origin]), 5, ms(600));
    verified(proxy, 5).await;
}

#[tokio::test]
async fn an_override_that_expires_no_longer_allows_waiting_requests() {
    let script = Script::robots("User-agent: *\nDisallow: /\nCrawl-delay: 0.8\n");
    let origin = script.start().await;
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
    assert_served(&replies, served);
    for seen in pages(&[&origin]) {
        let at = seen.at.duration_since(instant);
        assert!(at < ms(3100), "{at:?}");
    }
    assert!(until <= clock::now());
    verified(proxy, 8).await;
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
    let put_off = replies.iter().filter(|reply| reply.status() != 200);
    assert_eq!(put_off.clone().count(), 3 - served);
    for reply in put_off {
        assert!(40 < assert_later(reply, "ceiling"));
    }
    verified(proxy, 3).await;
}

// Ours: the delay runs from the hang-up.
#[tokio::test]
async fn a_crawler_that_hangs_up_frees_its_turn_or_its_place_in_the_queue() {
    let gate = Gate::shut();
    let page = Page::stepped(&["a", "b"], &gate);
    let (origin, proxy) = standard_site(delaying("0.6").page("/1", page)).await;
    let mut crawler = Crawler::abrupt(&proxy).await;
    crawler.start_get("http://o.test/1", "o.test").await;
    assert_eq!(crawler.head().await.unwrap().status, 200);
    let mut queued = Vec::new();
    for number in 1..=5 {
        let mut crawler = Crawler::abrupt(&proxy).await;
        let url = format!("http://o.test/queued/{number}");
        crawler.start_get(&url, "o.test").await;
        queued.push(crawler);
    }
    queue(&proxy, 5).await;
    let next = asking_for(&proxy, "http://o.test/2");
    queue(&proxy, 6).await;
    drop(queued);
    queue(&proxy, 1).await;
    // Proof of absence: longer than the crawl delay, which must not run yet.
    tokio::time::sleep(ms(700)).await;
    assert_eq!(origin.targets(), ["/1"]);
    let gone = clock::instant();
    drop(crawler);
    assert_eq!(next.await.unwrap().status(), 200);
    let pause = when(&origin, "/2").duration_since(gone);
    assert!((ms(600)..ms(3000)).contains(&pause), "{pause:?}");
    assert_eq!(origin.targets(), ["/1", "/2"]);
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

// Ours: an override added by a reload applies to requests that already wait, also if the
// same reload changes the dialect, in which the robots.txt in memory was not read.
#[tokio::test]
async fn a_waiting_request_is_decided_by_a_new_override() {
    for dialect in ["rfc9309", "1994"] {
        let (origin, proxy) = standard_site(delaying("1")).await;
        let asking = ask_until_queued(&proxy, 4).await;
        let dialect = format!("robots.dialect = \"{dialect}\"");
        reload(&proxy, &standard(&origin).set(DENY).set(&dialect)).await;
        let replies = asking.await.unwrap();
        // One request had its turn already, and a second may have got one meanwhile.
        let served = pages(&[&origin]).len();
        assert!((1..=2).contains(&served), "{dialect}: {replies:?}");
        assert_served(&replies, served);
        verified(proxy, 4).await;
    }
}

// Ours: once robots.txt has arrived, the first request has no turn to wait for.
#[tokio::test]
async fn a_request_that_waits_for_robots_txt_is_decided_by_a_new_override() {
    let gate = Gate::shut();
    let robots = Page::text("User-agent: *\nAllow: /\n").after(&gate);
    let (origin, proxy) = standard_site(Script::robots_page(robots)).await;
    let asking = asking_for(&proxy, "http://o.test/1");
    origin.arrival("/robots.txt").await;
    reload(&proxy, &standard(&origin).set(DENY)).await;
    gate.open(1);
    let reply = asking.await.unwrap();
    assert_eq!(reply.status(), 403, "{}", reply.text());
    assert!(pages(&[&origin]).is_empty());
    let (_, rows) = verified(proxy, 1).await;
    assert_eq!(rows[0]["reason"], "override");
}

// Ours: even if connections to the denied network are open.
#[tokio::test]
async fn a_waiting_request_is_not_sent_to_an_address_denied_meanwhile() {
    let (gate, origin) = held("/1").await;
    let one = || Config::default().set("pace.origin = { in_flight = 1 }");
    let open = one().set("egress.allow = [\"127.0.0.0/8\"]");
    let proxy = Arc::new(open.start().await);
    let address = origin.address();
    let first = asking_for(&proxy, &format!("http://{address}/1"));
    origin.arrival("/1").await;
    let second = asking_for(&proxy, &format!("http://{address}/2"));
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
        standard(&origin)
            .resolve("p.test", busy.address())
            .set("robots.ttl_min = \"1ms\"")
            .set("robots.max_waiting = 1")
    };
    let allow = "robots.override = [{ origin = \"http://o.test\", action = \"allow\", reason = \"ours\", until = 2099-01-01T00:00:00Z }]";
    let proxy = Arc::new(config().set(allow).start().await);
    let waiting = ask_until_queued(&proxy, 2).await;
    // This fetch takes the only place for fetches that wait.
    let fetching = asking_for(&proxy, "http://p.test/1");
    busy.arrival("/robots.txt").await;
    reload(&proxy, &config()).await;
    assert_served(&waiting.await.unwrap(), 1);
    assert_eq!(pages(&[&origin]).len(), 1);
    gate.open(1);
    assert_eq!(fetching.await.unwrap().status(), 200);
    verified(proxy, 3).await;
}
