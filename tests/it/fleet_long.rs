//! A fleet of eight nodes for ten minutes, with repeated faults of nodes and store.

use std::fmt::Write as _;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use politesse_base::clock;

use super::fleet_pace::{DELAY, SeenPages};
use crate::kit::fleet::{Load, all_are, node, page, quoted, ready_nodes};
use crate::kit::paced::ms;
use crate::kit::proxy::Proxy;
use crate::kit::redis::Redis;
use crate::kit::run_within;
use crate::kit::timed_origin::TimedOrigin;

const LEASE: Duration = Duration::from_secs(2);

/// Interval between kills of a node.
const ROUND: Duration = Duration::from_secs(30);
const ROUNDS: u32 = 20;

/// Longest time from the loss of the store until nodes act alone: a lease, then three
/// failed heartbeats, each a quarter of a lease apart plus its timeout.
const UNTIL_ALONE: Duration = Duration::from_millis(2_000 + 3 * (500 + 200) + 200);

/// Longest gap at the host after the node that holds the lease is killed or stopped: the
/// rest of the lease, the time until another node claims it, and a delay.
const COST_OF_NODE: Duration = Duration::from_millis(2_000 + 50 + 200);

/// Scheduling delay to allow for on a busy machine.
const SLACK: Duration = Duration::from_millis(500);

/// A fault of the store.
#[derive(Clone, Copy, Debug)]
enum StoreFault {
    StandsStill,
    IsKilled,
    FailsOver,
}

/// Time for which a fault makes the store unavailable.
const STORE_LOST: Duration = Duration::from_secs(8);

impl StoreFault {
    const ALL: [Self; 3] = [Self::StandsStill, Self::IsKilled, Self::FailsOver];

    /// Applies the fault to the first of the stores; the second is its replica. Returns
    /// when a store is available again. Its sleeps are scripted faults.
    async fn apply(self, stores: &mut [Redis; 2]) {
        let [store, copy] = stores;
        match self {
            Self::StandsStill => {
                store.signal("STOP").await;
                sleep(STORE_LOST).await;
                store.signal("CONT").await;
            }
            Self::IsKilled => {
                store.kill().await;
                sleep(STORE_LOST).await;
                store.restart().await;
            }
            Self::FailsOver => {
                store.kill().await;
                copy.promote().await;
                std::mem::swap(store, copy);
                copy.restart_as_copy(store).await;
            }
        }
    }
}

/// Eight nodes, their store with its replica, and the host that all of them crawl.
struct LongRun {
    origin: TimedOrigin,
    stores: [Redis; 2],
    nodes: Vec<Proxy>,
    load: Vec<Load>,
    /// Total time without faults, and the pages served in it.
    calm: Duration,
    calm_pages: u32,
    /// Faults of the current round, each with the longest gap between pages in seconds.
    report: String,
}

impl LongRun {
    async fn start() -> Self {
        let origin = TimedOrigin::start("User-agent: *\nCrawl-delay: 0.2\n", "x", ms(2)).await;
        let store = Redis::start(&[]).await;
        let copy = Redis::copy_of(&store).await;
        let stores = [store, copy];
        let addresses = quoted(&[&stores[0], &stores[1]]);
        let lease = "fleet.lease = \"2s\"";
        let config = |number| node(number, &addresses, origin.address()).set(lease);
        let nodes = ready_nodes((0..8).map(config)).await;
        // Each node fetches robots.txt, which takes a turn but is not counted as a page.
        for node in &nodes {
            page(node.address()).await.unwrap();
        }
        let load = nodes.iter().map(Load::on).collect();
        Self {
            origin,
            stores,
            nodes,
            load,
            calm: Duration::ZERO,
            calm_pages: 0,
            report: String::new(),
        }
    }

    fn seen(&self, from: Instant) -> SeenPages {
        SeenPages::between(&self.origin, from, clock::instant())
    }

    /// Counts the time since `from` as calm, so that every start in it had to be on time.
    fn add_calm(&mut self, from: Instant) {
        let seen = self.seen(from);
        assert!(DELAY <= seen.shortest, "{seen:?}");
        self.calm += clock::instant() - from;
        self.calm_pages += seen.count;
    }

    /// Suspends a node for `time` (SIGSTOP, SIGCONT).
    async fn stop_a_node(&mut self, time: Duration) {
        let from = clock::instant();
        self.nodes[3].signal("STOP").await;
        // Scripted fault.
        sleep(time).await;
        self.nodes[3].signal("CONT").await;
        // Time under test: until the other nodes see its heartbeat again.
        sleep(ms(500) + SLACK).await;
        self.assert_cost_of_node("stop", from);
    }

    /// Kills a node (SIGKILL) and restarts it.
    async fn kill_a_node(&mut self) {
        let from = clock::instant();
        self.load.remove(0);
        let again = self.nodes.remove(0).kill().await.start().await;
        self.nodes.push(again);
        all_are(&self.nodes, "ready").await;
        let again = self.nodes.last().unwrap();
        // The restarted node fetches robots.txt again.
        page(again.address()).await.unwrap();
        self.load.push(Load::on(again));
        // Time under test: what the kill may cost.
        sleep(LEASE + SLACK).await;
        self.assert_cost_of_node("kill", from);
    }

    /// Asserts that the fault since `from` cost one node's lease and its share of the
    /// host: the seven others keep leaving room for a missing node.
    fn assert_cost_of_node(&mut self, what: &str, from: Instant) {
        let seen = self.seen(from);
        assert!(DELAY <= seen.shortest, "{what}: {seen:?}");
        assert!(seen.longest <= COST_OF_NODE + SLACK, "{what}: {seen:?}");
        let left = (clock::instant() - from).saturating_sub(COST_OF_NODE);
        let least = 0.95 * 7.0 / 8.0 * left.as_secs_f64() / DELAY.as_secs_f64();
        let count = f64::from(seen.count) + 1.0;
        assert!(least <= count, "{what}: {seen:?} of {least}");
        write!(self.report, " {what} {:.1}", seen.longest.as_secs_f64()).unwrap();
    }

    async fn fail_store(&mut self, fault: StoreFault) {
        let lost = clock::instant();
        fault.apply(&mut self.stores).await;
        let there = clock::instant();
        let without = self.seen(lost);
        all_are(&self.nodes, "ready").await;
        // Time under test: the first node to return begins a generation, which opens a
        // lease later; the others poll twice a second.
        sleep(LEASE + ms(500) + SLACK).await;
        let (seen, back) = (self.seen(lost), clock::instant());
        seen.assert_mean_rate(back - lost, 1.0);
        let silence = seen.longest.as_secs_f64();
        write!(self.report, " {fault:?} {silence:.1}").unwrap();
        if matches!(fault, StoreFault::FailsOver) {
            assert!(DELAY <= seen.shortest, "{seen:?}");
            let most = 2 * LEASE + DELAY + SLACK;
            assert!(seen.longest <= most, "{seen:?}, {most:?} at most");
            return;
        }
        // The crawl continues: each of the eight nodes keeps eight times the delay.
        let alone = (there - lost).saturating_sub(UNTIL_ALONE).as_secs_f64();
        let least = 0.7 * alone / DELAY.as_secs_f64();
        assert!(least <= f64::from(without.count), "{without:?} of {least}");
    }

    async fn round(&mut self, round: u32) {
        let (from, has_fault) = (clock::instant(), round % 2 == 1);
        // Time under test: the rate in calm time, here and at the end of the round.
        sleep(Duration::from_secs(if has_fault { 8 } else { 12 })).await;
        self.add_calm(from);
        self.stop_a_node(Duration::from_secs(u64::from(1 + round % 4)))
            .await;
        self.kill_a_node().await;
        if has_fault {
            let fault = StoreFault::ALL[(round as usize / 2) % 3];
            self.fail_store(fault).await;
        }
        let settled = clock::instant();
        sleep_until((from + ROUND).max(settled + Duration::from_secs(2))).await;
        self.add_calm(settled);
    }

    /// Returns the fraction of the best possible rate reached in calm time.
    fn reached(&self) -> f64 {
        let best = self.calm.as_secs_f64() / DELAY.as_secs_f64();
        f64::from(self.calm_pages) / best
    }
}

// Ours: eight processes crawl one host with a delay of 200 ms. A node is killed every
// 30 s, and the store is stopped (SIGSTOP), killed, restarted and failed over. While the
// store is available no gap is shorter than the delay; without it the mean rate never
// exceeds 1/delay.
//
// The best possible rate is one start per delay. In calm time (store available, all nodes
// alive, no fault being noticed) at least 95 % of it must be reached. A fault may cost
// only what cannot be avoided:
//
// - A node that is killed or stopped while it holds the host: the rest of its lease, and
//   a delay. While it is missing, the others keep 8/7 of the delay.
// - A lost store: a lease without starts, since another node may have started just
//   before; then each node continues alone, with eight times the delay.
// - A store that returns or is replaced: a lease without starts, and a delay.
#[test]
#[ignore = "ten minutes long: tests/full.sh runs it"]
fn eight_nodes_keep_one_pace_for_ten_minutes() {
    run_within(Duration::from_secs(900), async {
        let mut fleet = LongRun::start().await;
        let began = clock::instant();
        for round in 0..ROUNDS {
            fleet.round(round).await;
            let (reached, report) = (fleet.reached(), std::mem::take(&mut fleet.report));
            println!("round {round}: {reached:.3} of the best rate;{report}");
        }
        println!(
            "{} pages in {:.0?}, {} of them in {:.0?} of calm: {:.3} of the best rate",
            fleet.origin.pages().len(),
            clock::instant() - began,
            fleet.calm_pages,
            fleet.calm,
            fleet.reached(),
        );
        assert!(0.95 <= fleet.reached(), "{}", fleet.reached());
    });
}
