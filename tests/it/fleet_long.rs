//! A fleet of eight for ten minutes, with nodes and a store to which everything happens.

use std::fmt::Write as _;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use politesse_base::clock;

use super::fleet_pace::{DELAY, SeenPages};
use crate::kit::fleet::{Load, all_are, node, page, quoted};
use crate::kit::paced::ms;
use crate::kit::proxy::Proxy;
use crate::kit::redis::Redis;
use crate::kit::run_within;
use crate::kit::timed_origin::TimedOrigin;

const LEASE: Duration = Duration::from_secs(2);

/// Time from one kill of a node to the next.
const ROUND: Duration = Duration::from_secs(30);
const ROUNDS: u32 = 20;

/// Longest time from a lost store until the nodes go on alone: a lease, three questions
/// in vain, each after a quarter of a lease, and the time-out of each.
const UNTIL_ALONE: Duration = Duration::from_millis(2_000 + 3 * (500 + 200) + 200);

/// Longest silence that a node may cost that is killed, or stands still, while it has the
/// host: what is left of its lease, the time until another one asks for it, and a delay.
const COST_OF_NODE: Duration = Duration::from_millis(2_000 + 50 + 200);

/// Time within which a machine that does more lets a process have its turn.
const SLACK: Duration = Duration::from_millis(500);

/// Fault of the store, in the order in which they come.
#[derive(Clone, Copy, Debug)]
enum StoreFault {
    StandsStill,
    IsKilled,
    FailsOver,
}

/// Time in which a fault kept all nodes from the store.
const STORE_LOST: Duration = Duration::from_secs(8);

impl StoreFault {
    const ALL: [Self; 3] = [Self::StandsStill, Self::IsKilled, Self::FailsOver];

    /// Makes it happen to the first of the stores; the second is its copy. Returns when
    /// the store is there again.
    async fn happen(self, stores: &mut [Redis; 2]) {
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

/// Eight nodes, their store with its copy, and the host that all of them ask.
struct LongRun {
    origin: TimedOrigin,
    stores: [Redis; 2],
    nodes: Vec<Proxy>,
    load: Vec<Load>,
    /// Time in which nothing had to be lost, and the pages in it.
    calm: Duration,
    calm_pages: u32,
    /// Faults of a round, and the longest time without a page, in seconds, after each.
    report: String,
}

impl LongRun {
    async fn start() -> Self {
        let origin = TimedOrigin::start("User-agent: *\nCrawl-delay: 0.2\n", "x", ms(2)).await;
        let store = Redis::start(&[]).await;
        let copy = Redis::copy_of(&store).await;
        let stores = [store, copy];
        let addresses = quoted(&[&stores[0], &stores[1]]);
        let mut nodes = Vec::new();
        for number in 0..8 {
            let config = node(number, &addresses, origin.address());
            nodes.push(config.set("fleet.lease = \"2s\"").start().await);
        }
        all_are(&nodes, "ready").await;
        // Each fetches the robots.txt for itself, which takes a turn and is no page.
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

    /// Counts the time since `from` as one in which every start had to be on time.
    fn add_calm(&mut self, from: Instant) {
        let seen = self.seen(from);
        assert!(DELAY <= seen.shortest, "{seen:?}");
        self.calm += clock::instant() - from;
        self.calm_pages += seen.count;
    }

    /// Has a node stand still, and go on.
    async fn stop_a_node(&mut self, time: Duration) {
        let from = clock::instant();
        self.nodes[3].signal("STOP").await;
        sleep(time).await;
        self.nodes[3].signal("CONT").await;
        // Until it was heard of again.
        sleep(ms(500) + SLACK).await;
        self.assert_cost_of_node("stop", from);
    }

    /// Kills a node (SIGKILL), and starts it again.
    async fn kill_a_node(&mut self) {
        let from = clock::instant();
        self.load.remove(0);
        let again = self.nodes.remove(0).kill().await.start().await;
        self.nodes.push(again);
        all_are(&self.nodes, "ready").await;
        let again = self.nodes.last().unwrap();
        // It fetches the robots.txt anew.
        page(again.address()).await.unwrap();
        self.load.push(Load::on(again));
        sleep(LEASE + SLACK).await;
        self.assert_cost_of_node("kill", from);
    }

    /// Asserts that nothing was lost since `from` but one node's lease, and its part of
    /// the host: the seven others leave room for one that is not heard of.
    fn assert_cost_of_node(&mut self, what: &str, from: Instant) {
        let seen = self.seen(from);
        assert!(DELAY <= seen.shortest, "{what}: {seen:?}");
        assert!(seen.longest <= COST_OF_NODE + SLACK, "{what}: {seen:?}");
        let left = (clock::instant() - from).saturating_sub(COST_OF_NODE);
        let least = 0.95 * 7.0 / 8.0 * left.as_secs_f64() / DELAY.as_secs_f64();
        assert!(
            least <= f64::from(seen.count) + 1.0,
            "{what}: {seen:?} of {least}"
        );
        write!(self.report, " {what} {:.1}", seen.longest.as_secs_f64()).unwrap();
    }

    async fn have_store_fail(&mut self, fault: StoreFault) {
        let lost = clock::instant();
        fault.happen(&mut self.stores).await;
        let there = clock::instant();
        let without = self.seen(lost);
        all_are(&self.nodes, "ready").await;
        // A generation begins when the first node is back, and opens a lease later; the
        // others look twice a second.
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
        // The crawl does not stand still. Each of eight nodes keeps eight delays.
        let alone = (there - lost).saturating_sub(UNTIL_ALONE).as_secs_f64();
        let least = 0.7 * alone / DELAY.as_secs_f64();
        assert!(least <= f64::from(without.count), "{without:?} of {least}");
    }

    async fn round(&mut self, round: u32) {
        let (from, has_fault) = (clock::instant(), round % 2 == 1);
        sleep(Duration::from_secs(if has_fault { 8 } else { 12 })).await;
        self.add_calm(from);
        self.stop_a_node(Duration::from_secs(u64::from(1 + round % 4)))
            .await;
        self.kill_a_node().await;
        if has_fault {
            let fault = StoreFault::ALL[(round as usize / 2) % 3];
            self.have_store_fail(fault).await;
        }
        let settled = clock::instant();
        sleep_until((from + ROUND).max(settled + Duration::from_secs(2))).await;
        self.add_calm(settled);
    }

    /// Returns the part of the best possible rate that was reached in calm time.
    fn reached(&self) -> f64 {
        let best = self.calm.as_secs_f64() / DELAY.as_secs_f64();
        f64::from(self.calm_pages) / best
    }
}

// Issue: "8 real processes, one host, delay 200 ms, 10 minutes, a node killed every 30 s,
// the store stopped (SIGSTOP), killed, restarted and failed over …: no gap under the delay
// while the store is there, mean rate never above 1/delay without it; starts on time
// within 5 % of the best possible rate".
//
// The best possible rate is one start in a delay. Starts are held to 95 % of that in all
// calm time: while the store is there, all nodes are heard of, and no fault is being
// noticed. Faults cost what nobody can avoid, and are held to no more:
//
// - A node that is killed, or stopped, while it has the host: the rest of its lease, and a
//   delay. While it is not heard of, the others keep 8/7 of the delay.
// - A store that is lost: a lease in which nobody starts, since others may have started
//   just before; then each node goes on alone, with eight delays.
// - A store that is back, or is another one: a lease in which nobody starts, and a delay.
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
