//! Whole fleets, simulated: schedulers as they are, a store that does what the
//! scripts do, and all that may happen between them.

mod sim;

use std::time::Duration;

use sim::{Chance, Fault, Fleet, Plan};

use super::membership::OnLoss;

/// Seeds that each simulation is run with; `POLITESSE_FLEET_SEEDS` takes more.
fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("POLITESSE_FLEET_SEEDS").ok();
    0..given.and_then(|seeds| seeds.parse().ok()).unwrap_or(8)
}

const DELAY: Duration = Duration::from_millis(200);

/// The delay counts from the end of a request.
const APART: Duration = Duration::from_millis(210);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A fleet asks one host as fast as it may.
fn busy(seed: u64) -> Plan {
    Plan {
        nodes: 2 + usize::try_from(seed % 7).unwrap(),
        delay: DELAY,
        takes: APART - DELAY,
        lasts: seconds(60),
        on_loss: OnLoss::Degrade,
        faults: Vec::new(),
    }
}

/// Faults of all kinds, a few seconds apart, for half a minute.
fn chaos(plan: &Plan, chance: &mut Chance) -> Vec<(Duration, Fault)> {
    let mut faults = Vec::new();
    let mut at = seconds(4);
    let mut killed = None;
    while at < seconds(34) {
        let node = usize::try_from(chance.below(plan.nodes as u64)).unwrap();
        let lost = Duration::from_millis(chance.below(1500));
        let fault = match (chance.below(6), killed) {
            (0, _) => Fault::StoreStops,
            (1, _) => Fault::StoreGoesOn,
            (2, _) => Fault::StoreFailsOver(lost),
            (3, _) => Fault::NodeIsCutOff(node),
            (4, _) => Fault::NodeIsBack(node),
            (_, None) => {
                killed = Some(node);
                Fault::NodeIsKilled(node)
            }
            (_, Some(node)) => {
                killed = None;
                Fault::NodeStarts(node)
            }
        };
        faults.push((at, fault));
        at += Duration::from_millis(50 + chance.below(4000));
    }
    faults.push((at, Fault::StoreGoesOn));
    faults.extend((0..plan.nodes).map(|node| (at, Fault::NodeIsBack(node))));
    faults.extend(killed.map(|node| (at, Fault::NodeStarts(node))));
    faults
}

// Ours, operations.md 2.3: no gap under the delay, whichever node asks.
#[test]
fn all_nodes_keep_one_distance() {
    for seed in seeds() {
        let run = Fleet::run(&busy(seed), seed);
        run.assert_gaps(APART);
        // Less the opening of the first generation, within 5 % of the best.
        let best = (60_000 - 2_000) / 210;
        assert!(best * 95 / 100 <= run.starts.len(), "seed {seed}: {run:?}");
        assert_eq!(run.nodes_that_started(), run.nodes, "seed {seed}");
    }
}

// Ours: a node that ends costs no more than what is left of its lease.
#[test]
fn a_node_that_is_killed_costs_a_lease() {
    for seed in seeds() {
        let mut plan = busy(seed);
        for round in 1..6_u64 {
            let node = usize::try_from(round).unwrap() % plan.nodes;
            let killed = seconds(10 * round);
            plan.faults.push((killed, Fault::NodeIsKilled(node)));
            plan.faults
                .push((killed + seconds(1), Fault::NodeStarts(node)));
        }
        let run = Fleet::run(&plan, seed);
        run.assert_gaps(APART);
        assert!(run.longest_gap() <= seconds(2) + 2 * APART, "seed {seed}");
    }
}

// Ours: "closed" keeps every gap, whatever happens to nodes, store and net.
#[test]
fn closed_keeps_every_gap() {
    for seed in seeds() {
        let mut chance = Chance::new(seed + 1_000_000);
        let mut plan = busy(seed);
        plan.on_loss = OnLoss::Closed;
        plan.faults = chaos(&plan, &mut chance);
        let run = Fleet::run(&plan, seed);
        run.assert_gaps(DELAY);
        // Once all is well again, it goes on as before.
        let late = run.count(seconds(45), seconds(60));
        assert!(15_000 / 210 * 95 / 100 <= late, "seed {seed}: {late}");
    }
}

// Ours: without the store the mean rate stays within one request in a delay, and all
// goes on when it is back.
#[test]
fn without_the_store_the_mean_rate_is_that_of_one_crawler() {
    for seed in seeds() {
        let mut plan = busy(seed);
        plan.faults = vec![
            (seconds(15), Fault::StoreStops),
            (seconds(40), Fault::StoreGoesOn),
        ];
        let run = Fleet::run(&plan, seed);
        for from in 0..50 {
            let most = run.count(seconds(from), seconds(from + 10));
            assert!(most <= 10_000 / 200 + 1, "seed {seed} at {from}: {most}");
        }
        let alone = run.count(seconds(22), seconds(40));
        assert!(18_000 / 210 * 9 / 10 <= alone, "seed {seed}: {alone}");
        run.assert_gaps_from(seconds(41), DELAY);
        let late = run.count(seconds(46), seconds(60));
        assert!(14_000 / 210 * 95 / 100 <= late, "seed {seed}: {late}");
    }
}

// Ours: a fail-over loses what was written last. It costs a lease and a delay, and no
// gap.
#[test]
fn a_fail_over_costs_a_lease_and_a_delay() {
    for seed in seeds() {
        let mut plan = busy(seed);
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

// Ours: a node that is cut off goes on alone, and the others leave room for it.
#[test]
fn others_leave_room_for_a_node_that_is_cut_off() {
    for seed in seeds() {
        let mut plan = busy(seed);
        plan.faults = vec![
            (seconds(15), Fault::NodeIsCutOff(0)),
            (seconds(45), Fault::NodeIsBack(0)),
        ];
        let run = Fleet::run(&plan, seed);
        for from in 0..50 {
            let most = run.count(seconds(from), seconds(from + 10));
            assert!(most <= 10_000 / 200 + 1, "seed {seed} at {from}: {most}");
        }
        run.assert_gaps_from(seconds(46), DELAY);
    }
}

// Ours: whatever happens, the mean rate stays within one request in a delay, but for
// what nobody can know before it is missed: a lease's time for each fault.
#[test]
fn whatever_happens_the_mean_rate_is_kept() {
    for seed in seeds() {
        let mut chance = Chance::new(seed + 2_000_000);
        let mut plan = busy(seed);
        plan.faults = chaos(&plan, &mut chance);
        let run = Fleet::run(&plan, seed);
        let all = run.starts.len();
        assert!(all <= 60_000 / 200, "seed {seed}: {all}");
        let late = run.count(seconds(45), seconds(60));
        assert!(15_000 / 210 * 95 / 100 <= late, "seed {seed}: {late}");
    }
}
