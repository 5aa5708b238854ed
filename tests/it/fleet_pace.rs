//! The pace that a host sees from a fleet of real processes with a real Redis. The
//! simulation in `crates/politesse-fleet/src/tests.rs` covers far more faults.

use std::time::Duration;

use tokio::time::Instant;

use politesse_base::clock;

use crate::kit::fleet::{Load, all_are, node, quoted, ready_nodes};
use crate::kit::paced::{metric, metric_is, ms};
use crate::kit::redis::Redis;
use crate::kit::timed_origin::{Served, TimedOrigin};
use crate::kit::until;

/// Crawl delay in the robots.txt of the host.
pub(crate) const DELAY: Duration = Duration::from_millis(200);

/// Extra pages allowed at the ends of a period in which three nodes act alone.
const EDGES: f64 = 3.0;

/// Pages that the host served in a period.
#[derive(Debug)]
pub(crate) struct SeenPages {
    /// Number of pages.
    pub(crate) count: u32,
    /// Shortest time from the end of a page to the next request.
    pub(crate) shortest: Duration,
    /// Longest time between requests, or from the last request to the end.
    pub(crate) longest: Duration,
}

impl SeenPages {
    pub(crate) fn between(origin: &TimedOrigin, from: Instant, to: Instant) -> Self {
        let pages = origin.pages();
        let is_within = |page: &&Served| (from..to).contains(&page.came);
        let count = pages.iter().filter(is_within).count();
        let pairs = || {
            let pairs = pages.windows(2);
            pairs.filter(|pair| (from..to).contains(&pair[1].came))
        };
        let pause = |pair: &[Served]| match pair[0].ended {
            // The node was killed before the page ended: count from the request.
            None => pair[1].came - pair[0].came,
            Some(ended) => pair[1].came.saturating_duration_since(ended),
        };
        let latest = pages.iter().rev().find(|page| page.came < to);
        let silence = latest.map(|page| to - page.came);
        let distances = pairs().map(|pair| pair[1].came - pair[0].came);
        Self {
            count: u32::try_from(count).unwrap(),
            shortest: pairs().map(pause).min().unwrap_or(Duration::MAX),
            longest: distances.chain(silence).max().unwrap_or_default(),
        }
    }

    /// Asserts that the mean rate over `time` was at most one page per delay, plus
    /// `edges` pages.
    pub(crate) fn assert_mean_rate(&self, time: Duration, edges: f64) {
        let most = time.as_secs_f64() / DELAY.as_secs_f64() + edges;
        assert!(f64::from(self.count) <= most, "{self:?} of {most}");
    }
}

/// Waits until the host has served `count` pages since `from`, and asserts that no pause
/// was shorter than the delay.
pub(crate) async fn await_paced_pages(origin: &TimedOrigin, from: Instant, count: u32) {
    let seen = until("pages", async || {
        let seen = SeenPages::between(origin, from, clock::instant());
        (count <= seen.count).then_some(seen)
    })
    .await;
    assert!(DELAY <= seen.shortest, "{seen:?}");
}

// Ours: without the store, only the mean rate is kept. `fleet_long.rs` has the long run.
#[tokio::test]
async fn a_fleet_keeps_one_pace_through_faults_of_nodes_and_store() {
    let origin = TimedOrigin::start("User-agent: *\nCrawl-delay: 0.2\n", "x", ms(2)).await;
    let mut leader = Redis::start(&[]).await;
    let mut second = Redis::copy_of(&leader).await;
    let stores = quoted(&[&leader, &second]);
    let config = |number| node(number, &stores, origin.address());
    let mut nodes = ready_nodes((0..3).map(config)).await;
    let mut load: Vec<_> = nodes.iter().map(Load::on).collect();
    let from = clock::instant();
    await_paced_pages(&origin, from, 10).await;

    // A node is killed; its lease expires.
    load.remove(0);
    let place = nodes.remove(0).kill().await;
    await_paced_pages(&origin, clock::instant(), 5).await;
    let again = place.start().await;
    load.push(Load::on(&again));
    nodes.push(again);
    await_paced_pages(&origin, clock::instant(), 5).await;

    // A node is suspended until the others hold the host, then resumes.
    nodes[0].signal("STOP").await;
    await_paced_pages(&origin, clock::instant() + 2 * DELAY, 10).await;
    nodes[0].signal("CONT").await;
    await_paced_pages(&origin, clock::instant(), 5).await;

    // After a failover the store may lack the latest leases.
    leader.kill().await;
    second.promote().await;
    all_are(&nodes, "ready").await;
    await_paced_pages(&origin, clock::instant(), 10).await;
    await_paced_pages(&origin, from, 30).await;

    // Without a store each node continues alone.
    let lost = clock::instant();
    second.kill().await;
    all_are(&nodes, "degraded").await;
    let alone = clock::instant();
    until("pages without a store", async || {
        let seen = SeenPages::between(&origin, alone, clock::instant());
        (10 <= seen.count).then_some(())
    })
    .await;
    let back = clock::instant();
    SeenPages::between(&origin, lost, back).assert_mean_rate(back - lost, EDGES);
    assert_eq!(metric(&nodes[0], "politesse_fleet_degraded").await, 1.0);

    second.restart().await;
    all_are(&nodes, "ready").await;
    await_paced_pages(&origin, clock::instant() + DELAY, 10).await;
    assert_eq!(metric(&nodes[0], "politesse_fleet_nodes").await, 3.0);

    // The store is suspended and resumes with its old data.
    let lost = clock::instant();
    second.signal("STOP").await;
    all_are(&nodes, "degraded").await;
    second.signal("CONT").await;
    all_are(&nodes, "ready").await;
    let back = clock::instant();
    SeenPages::between(&origin, lost, back).assert_mean_rate(back - lost, EDGES);
    await_paced_pages(&origin, back + DELAY, 5).await;

    // The other nodes do not wait for a stopped one.
    drop(load);
    nodes.pop().unwrap().stop().await;
    metric_is(&nodes[0], "politesse_fleet_nodes", 2.0).await;
}
