//! SIGKILL of nodes and of their archive under load, again and again: judged by the log
//! of the origin. All ours; docs/archive.md.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::kit::archived::{ArchivedNode, shipping};
use crate::kit::client::Crawler;
use crate::kit::origin::{Origin, Script};
use crate::kit::postgres::Postgres;
use crate::kit::proxy::{Place, Proxy, resolve};
use crate::kit::run_within;

/// Nodes of the fleet.
const NODES: usize = 3;

/// Crawlers of each node, each of which asks for one page after the other.
const CRAWLERS: usize = 3;

/// Page of the first crawler at which it is time for the next kill.
const PAGES: usize = 20;

/// Asks for pages below `folder`, of which every second is refused, until the proxy is
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

/// Node with its crawlers.
struct LoadedNode {
    proxy: Proxy,
    crawlers: JoinSet<()>,
    /// Folder of its pages.
    folder: String,
}

impl LoadedNode {
    /// Starts a node, and crawlers that ask for pages which nobody has asked for.
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

    /// Waits until the origin has served some of its pages.
    async fn is_loaded(&self, origin: &Origin) {
        origin
            .arrival(&format!("/open/{}/0/{PAGES}", self.folder))
            .await;
    }

    /// Kills the proxy, after which its crawlers end.
    async fn kill(self) -> Place {
        let place = self.proxy.kill().await;
        self.crawlers.join_all().await;
        place
    }
}

/// Kills a node `count` times, and the archive every second time, then holds the record
/// of each node and the archive against the log of the origin.
async fn kill_again_and_again(count: usize) {
    let origin = Script::robots("User-agent: *\nDisallow: /private\n")
        .start()
        .await;
    // What it has confirmed is to outlast it.
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
            node.is_loaded(&origin).await;
        }
        if kill % 2 == 0 {
            postgres.kill();
        }
        let place = nodes.remove(0).kill().await;
        assert_verified(&place).await;
        if kill % 2 == 0 {
            postgres.restart().await;
        }
        // All come in turn: the first of the list is killed, and is the last then.
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
    // Those that a kill cut short have the ending that their node does not know either.
    let ended = "SELECT count(*) FROM decision WHERE sent IS NOT NULL";
    let ended = postgres.number(ended).await;
    assert!((count * PAGES) as i64 <= ended, "{ended}");
}

async fn assert_verified(place: &Place) {
    let outcome = place.run(&["audit", "verify"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains(" 0 missing"), "{outcome:?}");
}

/// Holds that the record of a node is sound and in the archive, and takes what it has
/// out of `seen`.
async fn assert_on_record(postgres: &Postgres, place: Place, seen: &mut HashSet<String>) {
    // A start notes what the last process has not.
    let place = place.start().await.stop().await;
    assert_verified(&place).await;
    let outcome = place.run(&["audit", "ship", "--once"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    ArchivedNode::of(postgres, &place)
        .await
        .assert_whole()
        .await;
    let database = place.database();
    let mut statement = database.prepare("SELECT path FROM decision").unwrap();
    let paths = statement
        .query_map([], |row| row.get::<_, String>(0))
        .unwrap();
    for path in paths {
        seen.remove(&path.unwrap());
    }
}

// Invariant 3, of a fleet.
#[test]
fn kills_of_nodes_and_of_the_archive_lose_no_entry() {
    run_within(Duration::from_secs(180), kill_again_and_again(3));
}

// Invariant 3, of a fleet: at length.
#[test]
#[ignore = "takes minutes: tests/full.sh"]
fn twenty_kills_of_nodes_and_of_the_archive_lose_no_entry() {
    run_within(Duration::from_secs(900), kill_again_and_again(20));
}
