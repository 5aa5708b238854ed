//! Restarts: the state of each robots.txt is kept on disk, so that no origin is asked for
//! it again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::kit::client::Crawler;
use crate::kit::loopback::{Kind, Origins};
use crate::kit::paced::metric;
use crate::kit::proxy::{Config, Place, Proxy};
use crate::kit::{assert_contains, until};

const ORIGINS: u16 = 200;
/// Concurrent crawlers.
const CRAWLERS: u16 = 7;

/// Returns a configuration that may connect to loopback addresses, with these pauses before
/// a failed fetch is retried.
fn retrying(pauses: &str) -> Config {
    Config::default()
        .set("egress.allow = [\"127.0.0.0/8\"]")
        .set("robots.timeout = \"1s\"")
        .set(&format!("robots.retry = {pauses}"))
}

/// Returns a configuration whose pauses are so long that no failed fetch is retried within
/// a test.
fn patient() -> Config {
    retrying("[\"10m\", \"30m\"]")
}

/// Requests an open page and a disallowed one from each origin. Returns their statuses by
/// origin.
async fn crawl(proxy: &Proxy, origins: &Origins) -> BTreeMap<u16, [u16; 2]> {
    let mut crawlers = JoinSet::new();
    for own in 0..CRAWLERS {
        let (address, origins) = (proxy.address(), origins.clone());
        crawlers.spawn(async move {
            let mut answers = Vec::new();
            for number in origins.numbers().filter(|number| number % CRAWLERS == own) {
                let open = status(address, &origins.url(number, "/open")).await;
                let private = status(address, &origins.url(number, "/private")).await;
                answers.push((number, [open, private]));
            }
            answers
        });
    }
    crawlers.join_all().await.into_iter().flatten().collect()
}

async fn status(proxy: SocketAddr, url: &str) -> u16 {
    let line = format!("GET {url} HTTP/1.1");
    let lines = [line.as_str(), "Host: x", "User-Agent: ExampleBot/1.0"];
    Crawler::to(proxy).await.ask(&lines).await.status()
}

fn assert_answers(answers: &BTreeMap<u16, [u16; 2]>) {
    for (number, answer) in answers {
        let wanted = match Origins::kind(*number) {
            Kind::File | Kind::Gzip | Kind::Redirect => [200, 403],
            Kind::Missing => [200, 200],
            Kind::Failing | Kind::Hanging => [403, 403],
        };
        assert_eq!(*answer, wanted, "{number}: {:?}", Origins::kind(*number));
    }
}

// Ours.
#[tokio::test]
async fn after_a_stop_no_robots_txt_is_fetched_again_and_no_verdict_changes() {
    let origins = Origins::start(ORIGINS).await;
    let proxy = patient().start().await;
    let before = crawl(&proxy, &origins).await;
    assert_answers(&before);
    origins.assert_fetched(origins.numbers(), 1);
    let proxy = proxy.stop().await.start().await;
    assert_eq!(crawl(&proxy, &origins).await, before);
    origins.assert_fetched(origins.numbers(), 1);
    let kept = "politesse_robots_loaded_total{result=\"kept\"}";
    assert_eq!(metric(&proxy, kept).await, f64::from(ORIGINS));
    let place = proxy.stop().await;
    let verified = place.audit("verify --json").await.json_lines();
    assert_eq!(verified[0]["kept"], ORIGINS);
}

/// Returns the origins that have a decision in the record.
async fn on_record(place: &Place, origins: &Origins) -> BTreeSet<u16> {
    let rows = place.rows().await;
    let urls: BTreeSet<_> = rows.iter().filter_map(|row| row["url"].as_str()).collect();
    origins
        .numbers()
        .filter(|number| {
            let mut paths = ["/open", "/private"].into_iter();
            paths.any(|path| urls.contains(origins.url(*number, path).as_str()))
        })
        .collect()
}

// Ours: every decision is on disk before it takes effect.
#[tokio::test]
async fn after_kill_9_only_fetches_in_flight_are_repeated() {
    let origins = Origins::start(ORIGINS).await;
    let proxy = patient().start().await;
    let half = until("half of the origins", async || {
        (usize::from(ORIGINS) / 2 < origins.fetches().len()).then_some(())
    });
    tokio::select! {
        _ = crawl(&proxy, &origins) => panic!("the crawl has ended"),
        () = half => {}
    }
    let place = proxy.kill().await;
    let known = on_record(&place, &origins).await;
    assert!(usize::from(ORIGINS) / 4 < known.len());
    let proxy = place.start().await;
    assert_answers(&crawl(&proxy, &origins).await);
    origins.assert_fetched(known, 1);
    let fetches = origins.fetches();
    let again = fetches.values().filter(|fetched| 1 < **fetched).count();
    assert!(again <= usize::from(CRAWLERS), "{again} were fetched again");
}

// Ours: a changed row is fetched again, and no other.
#[tokio::test]
async fn a_robots_txt_changed_on_disk_is_fetched_again() {
    let origins = Origins::start(12).await;
    let proxy = patient().start().await;
    let before = crawl(&proxy, &origins).await;
    let place = proxy.stop().await;
    let changed = origins.url(3, "");
    let sql = "UPDATE kept SET result = 'successful' WHERE origin = ?";
    assert_eq!(place.database().execute(sql, [&changed]).unwrap(), 1);
    assert_contains(&place.audit_code(1, "verify").await.stdout, &changed);
    let proxy = place.start().await;
    assert_eq!(crawl(&proxy, &origins).await, before);
    origins.assert_fetched([3], 2);
    origins.assert_fetched(origins.numbers().filter(|number| *number != 3), 1);
    let changed = "politesse_robots_loaded_total{result=\"changed\"}";
    assert_eq!(metric(&proxy, changed).await, 1.0);
}

// Ours: a restart does not extend the lifetime of a copy.
#[tokio::test]
async fn an_expired_robots_txt_is_fetched_again_after_a_restart() {
    let origins = Origins::start(6).await;
    let lifetimes = ["ttl", "ttl_min", "unavailable_ttl"];
    let config = lifetimes
        .into_iter()
        .fold(retrying("[\"1s\", \"1s\"]"), |config, key| {
            config.set(&format!("robots.{key} = \"1s\""))
        });
    let proxy = config.start().await;
    crawl(&proxy, &origins).await;
    let place = proxy.stop().await;
    // Time under test: every copy must be older than its lifetime of one second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    crawl(&place.start().await, &origins).await;
    origins.assert_fetched(origins.numbers(), 2);
}

// Ours: a copy that cannot be saved is only fetched again after a restart.
#[tokio::test]
async fn a_store_that_saves_nothing_stops_no_request() {
    let origins = Origins::start(12).await;
    let proxy = patient().start().await;
    let broken = "CREATE TRIGGER broken BEFORE INSERT ON kept
                  BEGIN SELECT RAISE(ABORT, 'disk full'); END;";
    proxy.place().database().execute_batch(broken).unwrap();
    let before = crawl(&proxy, &origins).await;
    assert_answers(&before);
    assert_eq!(crawl(&proxy, &origins).await, before);
    origins.assert_fetched(origins.numbers(), 1);
    let lost = "politesse_robots_saved_total{result=\"lost\"}";
    assert_eq!(metric(&proxy, lost).await, 12.0);
    let proxy = proxy.stop().await.start().await;
    assert_eq!(crawl(&proxy, &origins).await, before);
    origins.assert_fetched(origins.numbers(), 2);
}
