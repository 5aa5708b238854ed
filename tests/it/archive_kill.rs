//! Repeated SIGKILL of nodes and of their archive under load, checked against the
//! origin's log. All ours; docs/archive.md.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::archive_faults::assert_archived;
use crate::kit::archived::shipping;
use crate::kit::client::Crawler;
use crate::kit::origin::Script;
use crate::kit::postgres::Postgres;
use crate::kit::proxy::{Place, Proxy, resolve};
use crate::kit::{assert_contains, run_within};

/// Number of nodes in the fleet.
const NODES: usize = 3;

/// Crawlers per node; each requests one page after another.
const CRAWLERS: usize = 3;

/// Page count of the first crawler at which the next kill is due.
const PAGES: usize = 20;

/// Requests pages under `folder`, of which every second is refused, until the proxy is
/// gone.
async fn crawl(proxy: SocketAddr, folder: String) {
    let mut connection = Crawler::to(proxy).await;
    for page in 0.. {
        let (kind, page) = (["open", "private"][page % 2], page / 2);
        let request =
            format!("GET http://o.test/{kind}/{folder}/{page} HTTP/1.1\r\nHost: o.test\r\n\r\n");
        if connection.try_send(request.as_bytes()).await.is_err()
            || connection.try_reply_to("GET").await.is_none()
        {
            return;
        }
    }
}

/// A node with its crawlers.
struct LoadedNode {
    proxy: Proxy,
    crawlers: JoinSet<()>,
    /// Folder that contains the URLs of its pages.
    folder: String,
}

impl LoadedNode {
    /// Starts a node, and crawlers whose URLs were not requested before.
    async fn start(place: Place, folder: String) -> Self {
        let proxy = place.start().await;
        let mut crawlers = JoinSet::new();
        for number in 0..CRAWLERS {
            crawlers.spawn(crawl(proxy.address(), format!("{folder}/{number}")));
        }
        Self {
            proxy,
            crawlers,
            folder,
        }
    }

    /// Kills the proxy, and waits for its crawlers to end.
    async fn kill(self) -> Place {
        let place = self.proxy.kill().await;
        self.crawlers.join_all().await;
        place
    }
}

/// Kills a node `count` times, and the archive every second time. Then compares each
/// node's record and the archive with the origin's log.
async fn kill_repeatedly(count: usize) {
    let robots = "User-agent: *\nDisallow: /private\n";
    let origin = Script::robots(robots).start().await;
    // With fsync, committed entries survive a kill.
    let mut postgres = Postgres::with(&["fsync=on"]).await;
    let mut nodes = Vec::new();
    for number in 0..NODES {
        let config = resolve("o.test", origin.address())
            .set("audit.seal_entries = 100")
            .set(&format!("fleet.node = \"node-{number}\""));
        let place = Place::with(&shipping(config, &postgres.url()));
        nodes.push(LoadedNode::start(place, format!("first-{number}")).await);
    }
    for kill in 1..=count {
        for node in &nodes {
            let page = format!("/open/{}/0/{PAGES}", node.folder);
            origin.arrival(&page).await;
        }
        if kill % 2 == 0 {
            postgres.kill();
        }
        let place = nodes.remove(0).kill().await;
        assert_verified(&place).await;
        if kill % 2 == 0 {
            postgres.restart().await;
        }
        // Nodes take turns: the first in the list is killed and moves to the end.
        nodes.push(LoadedNode::start(place, format!("again-{kill}")).await);
    }
    let mut places = Vec::new();
    for node in nodes {
        places.push(node.kill().await);
    }
    let mut seen: HashSet<String> = origin.targets().into_iter().collect();
    assert!(count * PAGES < seen.len(), "{}", seen.len());
    for place in places {
        assert_on_record(&postgres, place, &mut seen).await;
    }
    assert_eq!(seen, HashSet::new(), "requests without a record");
    let twice = "SELECT url FROM audit_log GROUP BY url HAVING 1 < count(*)";
    assert_eq!(postgres.sql(twice).await, [""; 0]);
    // Exchanges cut short by a kill have no known ending, neither here nor on their node.
    let ended = "SELECT count(*) FROM decision WHERE sent IS NOT NULL";
    let ended = postgres.number(ended).await;
    assert!((count * PAGES) as i64 <= ended, "{ended}");
}

async fn assert_verified(place: &Place) {
    let verified = place.audit("verify").await.stdout;
    assert_contains(&verified, " 0 missing");
}

/// Asserts that a node's record is valid and in the archive, and removes its URLs from
/// `seen`.
async fn assert_on_record(postgres: &Postgres, place: Place, seen: &mut HashSet<String>) {
    // At its start the proxy records what the killed process could not.
    let place = place.start().await.stop().await;
    assert_verified(&place).await;
    place.audit("ship --once").await;
    assert_archived(postgres, &place).await;
    for row in place.rows().await {
        let url = row["url"].as_str().unwrap();
        seen.remove(url.trim_start_matches("http://o.test"));
    }
}

// ARCHITECTURE.md, invariant 3, for a fleet.
#[test]
fn three_kills_of_nodes_and_archive_lose_no_entry() {
    run_within(Duration::from_secs(180), kill_repeatedly(3));
}

// ARCHITECTURE.md, invariant 3, for a fleet, with more kills.
#[test]
#[ignore = "takes minutes: tests/full.sh"]
fn twenty_kills_of_nodes_and_archive_lose_no_entry() {
    run_within(Duration::from_secs(900), kill_repeatedly(20));
}
