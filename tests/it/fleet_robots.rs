//! Sharing of robots.txt: a fleet of real processes with a real Redis fetches each file
//! once.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use politesse_base::clock;

use crate::kit::client::{Crawler, get};
use crate::kit::fleet::{SECRET, all_are, quoted, ready_nodes, sharing, start_with_key};
use crate::kit::origin::Script;
use crate::kit::paced::{metric, ms};
use crate::kit::page::Page;
use crate::kit::proxy::Proxy;
use crate::kit::redis::Redis;
use crate::kit::until;

const ROBOTS: &str = "User-agent: *\nDisallow: /no\n";

/// Number of hosts whose robots.txt is fetched while the store is slow.
const HOSTS: usize = 300;

// Ours: the store answers later than `fleet.timeout` (200 ms).
#[tokio::test]
async fn a_robots_txt_is_fetched_once_even_if_the_store_is_slow() {
    let origin = Script::robots(ROBOTS).start().await;
    let store = Redis::start(&[]).await;
    let stores = quoted(&[&store]);
    let nodes = (0..4).map(|number| {
        // With a shorter lease, a node on a busy machine could miss its heartbeat.
        let config = sharing(number, &stores, origin.address()).set("fleet.lease = \"2s\"");
        (0..HOSTS).fold(config, |config, host| {
            config.resolve(&format!("h{host}.test"), origin.address())
        })
    });
    let nodes = ready_nodes(nodes).await;
    let pauses = async {
        loop {
            // Scripted fault: each pause is longer than `fleet.timeout`.
            store.signal("STOP").await;
            sleep(ms(350)).await;
            store.signal("CONT").await;
            sleep(ms(650)).await;
        }
    };
    tokio::select! {
        () = ask_all_hosts(&nodes) => {}
        () = pauses => {}
    }
    store.signal("CONT").await;
    assert_eq!(origin.robots_fetches(), HOSTS);
    origin.assert_only_robots_fetched();
    let mut late = 0.0;
    for node in &nodes {
        late += metric(node, "politesse_fleet_robots_total{result=\"late\"}").await;
    }
    assert!(0.0 < late, "the store was never late");
}

/// Requests a page of each host through each of `nodes`, which have no robots.txt yet.
async fn ask_all_hosts(nodes: &[Proxy]) {
    let mut asking = JoinSet::new();
    for proxy in nodes.iter().map(Proxy::address) {
        for first in 0..20 {
            // In equal order at each node, so that nodes reach a host together.
            asking.spawn(async move {
                let mut crawler = Crawler::to(proxy).await;
                for host in (first..HOSTS).step_by(20) {
                    assert_refused(&mut crawler, &format!("h{host}.test")).await;
                }
            });
        }
    }
    asking.join_all().await;
}

// Ours: nodes do not wait for a claim that no node can have made.
#[tokio::test]
async fn an_invalid_fetch_claim_does_not_block_a_robots_txt() {
    let origin = Script::robots(ROBOTS).start().await;
    let store = Redis::start(&[]).await;
    let mut config = sharing(0, &quoted(&[&store]), origin.address());
    let claims: [&[&str]; 4] = [
        &["set", "somebody"],
        // Without an expiry it would hold forever.
        &["set", "somebody 1"],
        // An expiry longer than that of any real claim.
        &["set", "somebody 1", "px", "86400000"],
        &["hset", "holder", "somebody"],
    ];
    for (host, claim) in claims.iter().enumerate() {
        config = config.resolve(&format!("h{host}.test"), origin.address());
        let key = format!("politesse:fetch:http://h{host}.test ");
        let words = [&claim[..1], &[&key], &claim[1..]].concat();
        store.cli(&words).await;
    }
    let nodes = ready_nodes([config]).await;
    let mut crawler = Crawler::to(nodes[0].address()).await;
    for host in 0..claims.len() {
        assert_refused(&mut crawler, &format!("h{host}.test")).await;
    }
    assert_eq!(origin.robots_fetches(), claims.len());
    until("the release of all claims", async || {
        let claims = store.cli(&["keys", "politesse:fetch:*"]).await;
        claims.trim().is_empty().then_some(())
    })
    .await;
}

// Ours: another program may have written to the store.
#[tokio::test]
async fn keys_of_the_wrong_type_are_replaced_and_files_stay_shared() {
    let store = Redis::start(&[]).await;
    for key in ["state", "nodes", "notes", "changes"] {
        let key = format!("politesse:{{fleet}}:{key}");
        store.cli(&["set", &key, "x"]).await;
    }
    let answer = "politesse:robots:http://o.test examplebot";
    store.cli(&["hset", answer, "x", "x"]).await;
    // Without this key, the store cannot show that the file has changed.
    let script = "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'x', 'x')";
    let fault = ["eval", script, "1", answer];
    time_to_spread_a_changed_robots_txt(2, &store, &fault).await;
    assert_eq!(store.cli(&["type", answer]).await.trim(), "string");
}

// Ours: a changed robots.txt reaches every node soon after its refetch. A change list with
// the highest possible id takes no more entries; it is deleted and read from the start.
#[tokio::test]
async fn a_changed_robots_txt_reaches_every_node_through_a_restarted_change_list() {
    let store = Redis::start(&[]).await;
    let (changes, last) = ("politesse:{fleet}:changes", u64::MAX);
    let end = format!("{last}-{last}");
    store.cli(&["xadd", changes, &end, "url", "x"]).await;
    let took = time_to_spread_a_changed_robots_txt(2, &store, &["ping"]).await;
    // Three seconds, because a machine that runs other tests may be slow.
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(store.cli(&["xlen", changes]).await.trim(), "1");
}

/// Requests a page that the robots.txt of `host` disallows, and asserts the refusal.
async fn assert_refused(crawler: &mut Crawler, host: &str) {
    let request = format!("GET http://{host}/no HTTP/1.1\r\nHost: {host}\r\n\r\n");
    crawler.send(request.as_bytes()).await;
    assert_eq!(crawler.reply_to("GET").await.status(), 403, "{host}");
}

#[tokio::test]
#[ignore = "a second is short beside other tests: tests/full.sh runs it"]
async fn a_changed_robots_txt_reaches_four_nodes_within_a_second() {
    let took = time_to_spread_a_changed_robots_txt(4, &Redis::start(&[]).await, &["ping"]).await;
    println!("known to four nodes after {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// Returns the time from when one of `count` nodes has a changed robots.txt until all
/// have it. The command `fault` is sent to the store before the change.
async fn time_to_spread_a_changed_robots_txt(
    count: usize,
    store: &Redis,
    fault: &[&str],
) -> Duration {
    let before = Page::text("User-agent: *\nDisallow: /a\n").field("ETag", "\"1\"");
    let after = Page::text("User-agent: *\nDisallow: /b\n").field("ETag", "\"2\"");
    let script = Script::robots_page(before).robots_if_conditional(after);
    let origin = script.start().await;
    let stores = quoted(&[store]);
    let nodes = (0..count).map(|number| {
        sharing(number, &stores, origin.address())
            .set("robots.ttl = \"5s\"")
            .set("robots.ttl_min = \"1s\"")
    });
    let nodes = ready_nodes(nodes).await;
    for node in &nodes {
        assert_eq!(get(node, "http://o.test/a").await.status(), 403);
    }
    assert_eq!(origin.robots_fetches(), 1);
    store.cli(fault).await;
    let found = "politesse_fleet_robots_total{result=\"found\"}";
    let mut known = Vec::new();
    for node in &nodes {
        known.push(metric(node, found).await);
    }
    until("another file at the first node", async || {
        let status = get(&nodes[0], "http://o.test/a").await.status();
        (status == 200).then_some(())
    })
    .await;
    let since = clock::instant();
    // The other nodes get no request, which would make them look for a newer file.
    for (node, known) in nodes.iter().zip(known).skip(1) {
        until("another file at the other nodes", async || {
            (known < metric(node, found).await).then_some(())
        })
        .await;
    }
    let took = clock::instant() - since;
    for node in &nodes[1..] {
        assert_eq!(get(node, "http://o.test/b").await.status(), 403);
    }
    assert_eq!(origin.robots_fetches(), 2);
    took
}

// Ours: a robots.txt whose signature does not verify is fetched from the site.
#[tokio::test]
async fn a_robots_txt_signed_with_another_key_is_not_used() {
    let origin = Script::robots(ROBOTS).start().await;
    let store = Redis::start(&[]).await;
    let mut nodes = Vec::new();
    for (number, secret) in [SECRET, &SECRET.replace('0', "1")].into_iter().enumerate() {
        let config = sharing(number, &quoted(&[&store]), origin.address());
        nodes.push(start_with_key(&config, secret).await);
    }
    all_are(&nodes, "ready").await;
    for node in &nodes {
        assert_eq!(get(node, "http://o.test/no").await.status(), 403);
    }
    assert_eq!(origin.robots_fetches(), 2);
    let unverified = "politesse_fleet_robots_total{result=\"unverified\"}";
    assert_eq!(metric(&nodes[1], unverified).await, 2.0);
    nodes[1].logged("fleet.key").await;
}
