//! Simulations of whole fleets: real schedulers, a store that behaves like the scripts,
//! and everything that can happen between them.
//!
//! Each start is checked against the laws of `sim/watch.rs` when it happens. The
//! assertions here are additional.

mod sim;

use std::time::Duration;

use sim::{Chance, Fault, Fleet, LEASE, Plan};

use super::membership::OnLoss;

/// Seeds for each simulation: a few, or those of `POLITESSE_FLEET_SEEDS` (`10000`, or
/// `5000..10000`).
fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("POLITESSE_FLEET_SEEDS").unwrap_or_else(|_| "4".to_owned());
    let (from, to) = given.split_once("..").unwrap_or(("0", &given));
    from.parse().unwrap()..to.parse().unwrap()
}

const DELAY: Duration = Duration::from_millis(200);

/// Distance between starts: the delay counts from the end of a request.
const APART: Duration = Duration::from_millis(210);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Plan of a fleet that uses one host as fast as it may. It has 2 to 8 nodes, and for one
/// seed in 64, up to 64. Those take as long as twenty others, so the few seeds of a usual
/// run include none.
fn busy(seed: u64) -> Plan {
    let nodes = match seed % 64 {
        63 => 9 + Chance::new(seed).below(56),
        _ => 2 + 5 * seed % 7,
    };
    Plan {
        nodes: usize::try_from(nodes).unwrap(),
        delay: DELAY,
        takes: APART - DELAY,
        lasts: seconds(60),
        on_loss: OnLoss::Degrade,
        has_late_calls: true,
        jump_max: Duration::ZERO,
        faults: Vec::new(),
    }
}

/// Faults of all kinds, in sequence and at the same time, for half a minute.
struct Chaos {
    nodes: usize,
    chance: Chance,
    killed: Option<usize>,
    faults: Vec<(Duration, Fault)>,
}

/// Time at which all faults of [`Chaos`] are over.
const CALM: Duration = Duration::from_secs(40);

impl Chaos {
    fn faults(nodes: usize, seed: u64) -> Vec<(Duration, Fault)> {
        let mut chaos = Self {
            nodes,
            chance: Chance::new(seed),
            killed: None,
            faults: Vec::new(),
        };
        let mut at = seconds(4);
        while at < seconds(34) {
            chaos.add(at);
            // Often before the previous fault is noticed.
            at += chaos.chance.micros(4_000_000);
        }
        let all = (0..nodes).collect();
        chaos.faults.push((CALM, Fault::StoreGoesOn));
        chaos.faults.push((CALM, Fault::NodesAreBack(all)));
        let killed = chaos.killed.map(|node| (CALM, Fault::NodeStarts(node)));
        chaos.faults.extend(killed);
        chaos.faults
    }

    fn node(&mut self) -> usize {
        usize::try_from(self.chance.below(self.nodes as u64)).unwrap()
    }

    fn some_nodes(&mut self) -> Vec<usize> {
        let some = self.chance.below(4);
        (0..self.nodes)
            .filter(|_| self.chance.below(4) <= some)
            .collect()
    }

    fn add(&mut self, at: Duration) {
        let node = self.node();
        let fault = match (self.chance.below(9), self.killed) {
            (0, _) => Fault::StoreStops,
            (1, _) => Fault::StoreGoesOn,
            (2, _) => Fault::StoreFailsOver(self.chance.micros(1_500_000)),
            (3, _) => Fault::NodesAreCutOff(self.some_nodes()),
            (4, _) => Fault::NodesAreBack(self.some_nodes()),
            (5, _) => Fault::NodeIsDeaf(node),
            (6 | 7, _) => {
                // Up to several leases long, and often across the end of one.
                let lasts = self.chance.micros(3 * 2_000_000);
                self.faults.push((at + lasts, Fault::NodeGoesOn(node)));
                Fault::NodeStandsStill(node)
            }
            (_, None) => {
                self.killed = Some(node);
                Fault::NodeIsKilled(node)
            }
            (_, Some(node)) => {
                self.killed = None;
                Fault::NodeStarts(node)
            }
        };
        self.faults.push((at, fault));
    }
}

// Ours: no gap is shorter than the delay, no matter which node sends.
#[test]
fn all_nodes_together_keep_the_delay() {
    for seed in seeds() {
        let run = Fleet::run(&busy(seed), seed);
        run.assert_gaps(APART);
        // Within 5 % of the best possible, minus the opening of the first generation.
        let best = (60_000 - 2_000) / 210;
        assert!(best * 95 / 100 <= run.starts.len(), "seed {seed}: {run:?}");
        // With more nodes, not each one gets the host within a minute.
        if run.nodes <= 8 {
            assert_eq!(run.nodes_that_started(), run.nodes, "seed {seed}");
        }
    }
}

// Ours: a node that ends costs no more than the rest of its lease.
#[test]
fn a_killed_node_costs_at_most_a_lease() {
    for seed in seeds() {
        let mut plan = busy(seed);
        // A late claim may cost another lease.
        plan.has_late_calls = false;
        for round in 1..6_u64 {
            let node = usize::try_from(round).unwrap() % plan.nodes;
            let killed = seconds(10 * round);
            plan.faults.push((killed, Fault::NodeIsKilled(node)));
            plan.faults
                .push((killed + seconds(1), Fault::NodeStarts(node)));
        }
        let run = Fleet::run(&plan, seed);
        run.assert_gaps(DELAY);
        // A claim may be lost.
        assert!(run.longest_gap() <= LEASE + seconds(1), "seed {seed}");
    }
}

// Ours: when a suspended node resumes, it has lost its leases and the requests that it
// was about to send.
#[test]
fn a_suspended_node_does_not_use_its_expired_lease() {
    for seed in seeds() {
        let (mut plan, mut chance) = (busy(seed), Chance::new(seed + 3_000_000));
        let mut at = seconds(4);
        while at < seconds(50) {
            let node = usize::try_from(chance.below(plan.nodes as u64)).unwrap();
            let lasts = chance.micros(8_000_000);
            plan.faults.push((at, Fault::NodeStandsStill(node)));
            plan.faults.push((at + lasts, Fault::NodeGoesOn(node)));
            at += chance.micros(3_000_000);
        }
        let run = Fleet::run(&plan, seed);
        run.assert_gaps(DELAY);
    }
}

// Ours: "closed" keeps every gap, no matter what happens to nodes, store and network.
#[test]
fn on_loss_closed_keeps_every_gap() {
    for seed in seeds() {
        let mut plan = busy(seed);
        plan.on_loss = OnLoss::Closed;
        plan.faults = Chaos::faults(plan.nodes, seed + 1_000_000);
        let run = Fleet::run(&plan, seed);
        run.assert_gaps(DELAY);
        // Once everything is well again, it continues as before.
        let late = run.count(seconds(47), seconds(60));
        assert!(13_000 / 210 * 95 / 100 <= late, "seed {seed}: {late}");
    }
}

// Ours: with an empty store, a node that has just started may be the first to reach it,
// although it lacks the others' knowledge.
#[test]
fn nodes_recover_with_an_empty_store_no_matter_which_is_first() {
    for seed in seeds() {
        for on_loss in [OnLoss::Closed, OnLoss::Degrade] {
            let mut plan = busy(seed);
            plan.on_loss = on_loss;
            for round in 1..5_u64 {
                let node = usize::try_from(round).unwrap() % plan.nodes;
                let at = seconds(10 * round);
                plan.faults.push((at, Fault::NodeIsKilled(node)));
                plan.faults.push((at, Fault::StoreIsEmpty));
                plan.faults.push((at, Fault::NodeStarts(node)));
            }
            let run = Fleet::run(&plan, seed);
            run.assert_gaps(DELAY);
            // Each time, a lease of silence, and the lease of a late call.
            let (asked, best) = (run.count(seconds(4), seconds(60)), 56_000 / 210);
            assert!(best * 70 / 100 <= asked, "seed {seed}: {run:?}");
            let late = run.count(seconds(47), seconds(60));
            assert!(13_000 / 210 * 95 / 100 <= late, "seed {seed}: {late}");
        }
    }
}

// Ours: without the store, the mean rate stays within one request per delay, and
// everything resumes when the store is back.
#[test]
fn without_the_store_the_mean_rate_is_that_of_one_crawler() {
    for seed in seeds() {
        let mut plan = busy(seed);
        plan.faults = vec![
            (seconds(15), Fault::StoreStops),
            (seconds(40), Fault::StoreGoesOn),
        ];
        let run = Fleet::run(&plan, seed);
        let most = run.count(seconds(15), seconds(42));
        assert!(most <= 27_000 / 200, "seed {seed}: {most}");
        let alone = run.count(seconds(22), seconds(40));
        assert!(18_000 / 210 * 85 / 100 <= alone, "seed {seed}: {alone}");
        run.assert_gaps_from(seconds(41), DELAY);
        let late = run.count(seconds(46), seconds(60));
        assert!(14_000 / 210 * 95 / 100 <= late, "seed {seed}: {late}");
    }
}

// Ours: a fail-over loses the latest writes. It costs a lease and a delay, but no gap.
#[test]
fn a_fail_over_costs_a_lease_and_a_delay() {
    for seed in seeds() {
        let mut plan = busy(seed);
        plan.has_late_calls = false;
        let lost = Duration::from_millis(100 * (seed % 16));
        plan.faults = vec![
            (seconds(20), Fault::StoreStops),
            (seconds(21), Fault::StoreFailsOver(lost)),
            (seconds(40), Fault::StoreFailsOver(lost)),
        ];
        let run = Fleet::run(&plan, seed);
        run.assert_gaps(DELAY);
        assert!(
            run.longest_gap() <= seconds(4),
            "seed {seed}: {:?}",
            run.longest_gap()
        );
    }
}

// Source: docs/fleet.md. Within one lease, the clock of the store must not jump by more
// than a fiftieth of a lease. Set back, it costs a silence.
#[test]
fn a_store_whose_clock_jumps_a_little_keeps_every_gap() {
    for seed in seeds() {
        let (mut plan, mut chance) = (busy(seed), Chance::new(seed + 4_000_000));
        // The age of the latest request seems greater by this much.
        plan.jump_max = Duration::from_millis(30);
        for round in 2..18 {
            let by = match chance.below(4) {
                0 => -i64::try_from(chance.below(3_600_000_000)).unwrap(),
                _ => i64::try_from(chance.below(30_000)).unwrap(),
            };
            plan.faults
                .push((seconds(3 * round), Fault::StoreClockJumps(by)));
        }
        let run = Fleet::run(&plan, seed);
        run.assert_gaps(DELAY - plan.jump_max);
    }
}

// Ours: nodes that are cut off continue alone, and the others leave room for them, even
// for a node whose heartbeats arrive but whose answers are lost.
#[test]
fn nodes_leave_room_for_others_that_are_cut_off() {
    for seed in seeds() {
        let mut plan = busy(seed);
        let some: Vec<_> = (0..plan.nodes).step_by(3).collect();
        let away = match seed % 3 {
            0 => Fault::NodeIsDeaf(0),
            1 => Fault::NodesAreCutOff(vec![0]),
            _ => Fault::NodesAreCutOff(some.clone()),
        };
        plan.faults = vec![
            (seconds(15), away),
            (seconds(45), Fault::NodesAreBack(some)),
        ];
        let run = Fleet::run(&plan, seed);
        let most = run.count(seconds(15), seconds(47));
        assert!(most <= 32_000 / 200, "seed {seed}: {most}");
        // Its first heartbeat may be lost.
        run.assert_gaps_from(seconds(49), DELAY);
    }
}

// Ours: no matter what happens, the mean rate stays within one request per delay, except
// for faults before they are noticed: the length of a lease for each.
#[test]
fn the_mean_rate_is_kept_under_random_faults() {
    // With these seeds, a node that was not alone yet got a lease just after the last
    // start of one that was alone (472, 5764), or worked alone although the store was
    // there (2797).
    for seed in seeds().chain([472, 2797, 5764]) {
        let mut plan = busy(seed);
        plan.faults = Chaos::faults(plan.nodes, seed + 2_000_000);
        let run = Fleet::run(&plan, seed);
        let all = run.starts.len();
        assert!(all <= 60_000 / 200, "seed {seed}: {all}");
        let late = run.count(seconds(47), seconds(60));
        assert!(13_000 / 210 * 95 / 100 <= late, "seed {seed}: {late}");
    }
}
