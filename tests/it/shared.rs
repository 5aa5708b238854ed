//! A proxy shared by clients that take all they can (`bad`) and one that behaves (`good`),
//! each at its own address.
//!
//! The good client must get no error and at least four fifths of its fair share. Time
//! limits are generous, because machines are busy.

use std::sync::Arc;
use std::time::Duration;

use politesse_base::clock;
use tokio::task::JoinSet;

use crate::kit::client::{Crawler, metrics};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::paced::{ONE_FILE, standard};
use crate::kit::page::{Length, Page};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::tenant::{
    Crowd, GOOD, ask, at_least, bad, bad_agent, crawl, slow_reader, slow_upload,
};
use crate::kit::{run, until};

/// Time for which the good client crawls, alone and beside others.
const TIME: Duration = Duration::from_secs(3);
/// Four fifths of a fair share between two clients.
const OF_TWO: f64 = 0.8 / 2.0;
const URL: &str = "http://o.test/page";
const QUEUED: &str = "politesse_pace_queued";

async fn origin() -> Origin {
    Script::robots("").start().await
}

/// Opens `count` connections one after the other and sends nothing on them.
async fn hold_silent_connections(proxy: Arc<Proxy>, number: u8, count: usize) {
    let mut open = Vec::new();
    for _ in 0..count {
        open.extend(Crawler::at(bad(number), &proxy).await);
    }
    // Scripted load: a client that holds its connections.
    tokio::time::sleep(Duration::from_millis(300)).await;
}

// Ours: clients share `proxy.max_connections`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_clients_with_all_connections_do_not_shut_an_eleventh_out() {
    let origin = origin().await;
    let config = resolve("o.test", origin.address()).set("proxy.max_connections = 200");
    let proxy = Arc::new(config.start().await);
    let alone = crawl(&proxy, GOOD, "GoodBot", URL, TIME).await;
    let mut crowd = Crowd::default();
    for number in 0..10 {
        crowd.repeat(&proxy, move |proxy| {
            hold_silent_connections(proxy, number, 220)
        });
    }
    until("all connections open", async || {
        let shares = metrics(&proxy).await;
        let shared = "client_shares_total{resource=\"connections\"";
        shares.contains(shared).then_some(())
    })
    .await;
    let beside = crawl(&proxy, GOOD, "GoodBot", URL, TIME).await;
    beside.assert_beside(&alone, 0.8 / 11.0);
}

// Ours: clients share the places in the queue. The bad client's streams wait for a host
// with a crawl delay; the good client's requests wait for each other at another host.
#[tokio::test]
async fn a_client_that_fills_the_queue_does_not_shut_another_out() {
    let slow = Script::robots("User-agent: *\nCrawl-delay: 1\n").name("slow.test");
    let slow = slow.tls().start().await;
    let origin = origin().await;
    let config = standard(&origin)
        .resolve("slow.test", slow.address())
        .set("pace.origin = { rate = \"20/s\", in_flight = 1 }")
        .set("pace.queue = { total = 60, crawler = 1000, origin = 1000 }");
    let proxy = Arc::new(config.start().await);
    let mut connection = H2Crawler::inside(&proxy, "slow.test:443").await;
    let _waiting: JoinSet<_> = (0..90)
        .map(|number| connection.open(&format!("https://slow.test/{number}")))
        .collect();
    at_least(&proxy, QUEUED, 40).await;
    let twenty = (0..20).map(|_| {
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move { ask(&proxy, GOOD, "GoodBot", URL).await })
    });
    for asked in twenty.collect::<Vec<_>>() {
        assert_eq!(asked.await.unwrap(), Ok(()));
    }
}

// Ours: turns go round by client first, then by crawler name.
#[tokio::test]
async fn a_client_with_sixty_names_gets_no_more_turns_than_one_with_one_name() {
    let origin = origin().await;
    let config = standard(&origin)
        .set(ONE_FILE)
        .set("pace.origin = { rate = \"20/s\", in_flight = 1 }");
    let proxy = Arc::new(config.start().await);
    let mut crowd = Crowd::default();
    for number in 0..60 {
        crowd.repeat(&proxy, move |proxy| async move {
            drop(ask(&proxy, bad(0), &bad_agent(number), URL).await);
        });
    }
    at_least(&proxy, QUEUED, 50).await;
    let good = crawl(&proxy, GOOD, "GoodBot", URL, TIME).await;
    assert!(good.errors.is_empty(), "{:?}", good.errors);
    // Half of the 20 turns a second are its own.
    let fair = 20.0 * TIME.as_secs_f64() * OF_TWO;
    assert!(fair <= good.times.len() as f64, "{}", good.times.len());
}

// Ours: a `Crawl-delay` applies only to the crawlers of its group.
#[tokio::test]
async fn a_crawl_delay_for_one_crawler_does_not_delay_another() {
    let robots = "User-agent: SlowBot\nCrawl-delay: 2000\n\nUser-agent: *\nDisallow:\n";
    let origin = Script::robots(robots).start().await;
    let proxy = standard(&origin).start().await;
    ask(&proxy, bad(0), "SlowBot", URL).await.unwrap();
    let again = ask(&proxy, bad(0), "SlowBot", URL).await.unwrap_err();
    assert!(again.contains("crawl_delay"), "{again}");
    for _ in 0..3 {
        ask(&proxy, GOOD, "GoodBot", URL).await.unwrap();
    }
}

/// Asserts that the good client gets two turns soon while `count` slow clients hold or
/// await the turns of its host.
async fn assert_served_beside_slow<F: Future<Output = ()> + Send + 'static>(
    count: usize,
    slow: fn(Arc<Proxy>) -> F,
) {
    let endless = Page::stream(1 << 30, Length::Announced);
    let origin = Script::robots("").page("/endless", endless).start().await;
    let config = standard(&origin).set("pace.origin = { in_flight = 2 }");
    let proxy = Arc::new(config.start().await);
    let mut crowd = Crowd::default();
    for _ in 0..count {
        crowd.repeat(&proxy, slow);
    }
    at_least(&proxy, QUEUED, count - 2).await;
    let begun = clock::instant();
    ask(&proxy, GOOD, "GoodBot", URL).await.unwrap();
    ask(&proxy, GOOD, "GoodBot", URL).await.unwrap();
    // A turn ends well before `pace.max_turn`, which is two minutes.
    let time = clock::instant() - begun;
    assert!(time < Duration::from_secs(30), "{time:?}");
}

// Ours: a stalled client loses its turn if other clients wait for it.
#[test]
fn slow_uploads_lose_their_turns_to_another_client() {
    run(assert_served_beside_slow(8, |proxy| {
        slow_upload(proxy, 0, Duration::from_secs(1))
    }));
}

#[test]
fn stalled_readers_lose_their_turns_to_another_client() {
    run(assert_served_beside_slow(24, |proxy| {
        slow_reader(proxy, 0, Duration::from_secs(100))
    }));
}

// Ours: `politesse clients`.
#[tokio::test]
async fn the_clients_command_shows_the_connections_of_each_client() {
    let (_origin, proxy) = site(Script::robots(""), &[]).await;
    let mut open = Vec::new();
    for _ in 0..7 {
        open.extend(Crawler::at(bad(3), &proxy).await);
    }
    ask(&proxy, GOOD, "GoodBot", URL).await.unwrap();
    until("seven connections", async || {
        let outcome = proxy.run_admin(&["clients"]).await.assert_code(0);
        let mut lines = outcome.stdout.lines().map(str::split_whitespace);
        lines
            .any(|row| row.take(3).eq(["127.0.1.3", "connections", "7"]))
            .then_some(())
    })
    .await;
}
