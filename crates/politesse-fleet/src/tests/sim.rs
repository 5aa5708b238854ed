//! Fleet in simulated time: nodes, a store and an origin, with planned faults.

mod chance;
mod link;
mod store;
mod watch;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

pub(super) use self::chance::Chance;
use self::link::{Link, NodeClock, TIMEOUT};
pub(super) use self::store::LEASE;
use self::store::{BeatQuestion, Caller, Store};
use self::watch::{Start, Watch};
use crate::membership::{FleetRules, Membership, OnLoss};
use politesse_base::clients::directory::ClientDirectory;
use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_base::tasks::Tasks;
use politesse_pace::fleet_part::FleetMode;
use politesse_pace::lease::LeaseStore;
use politesse_pace::options::Options;
use politesse_pace::policy::{PaceLimits, PacePolicy, Profile};
use politesse_pace::testing::Gate;
use politesse_pace::{RobotsFetch, Scheduler, Turn, TurnOwner, TurnRequest};
use politesse_robots::PaceRecords;
use politesse_robots::origin::Host;

/// Fleet to simulate, with its site and its faults.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    /// Delay that the site asks for.
    pub(super) delay: Duration,
    /// Time that the origin takes to answer.
    pub(super) takes: Duration,
    pub(super) lasts: Duration,
    pub(super) on_loss: OnLoss,
    /// Whether some calls arrive after the caller has given up.
    pub(super) has_late_calls: bool,
    /// Longest jump of the store's clock.
    pub(super) jump_max: Duration,
    /// Faults, each with the time at which it happens.
    pub(super) faults: Vec<(Duration, Fault)>,
}

/// Fault, or its end.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The store stops answering.
    StoreStops,
    /// The store answers again, with all of its data.
    StoreGoesOn,
    /// Another process replaces the store. It lacks the data written within this time
    /// before the store stopped.
    StoreFailsOver(Duration),
    /// Another process replaces the store, without any data.
    StoreIsEmpty,
    /// The clock of the store jumps by this many microseconds.
    StoreClockJumps(i64),
    /// The connection between some nodes and the store is cut in both directions.
    NodesAreCutOff(Vec<usize>),
    /// The store receives calls from a node, but its answers are lost.
    NodeIsDeaf(usize),
    /// The connection between these nodes and the store works again.
    NodesAreBack(Vec<usize>),
    /// A node is suspended, as by SIGSTOP.
    NodeStandsStill(usize),
    /// A suspended node resumes, and may not notice that time has passed.
    NodeGoesOn(usize),
    /// A node ends without notice.
    NodeIsKilled(usize),
    /// Another process of the same name replaces the node.
    NodeStarts(usize),
}

/// Running fleet.
#[derive(Debug)]
pub(super) struct Fleet {
    plan: Plan,
    store: Arc<Mutex<Store>>,
    watch: Arc<Mutex<Watch>>,
    began: Instant,
    chance: Chance,
    running: HashMap<usize, Process>,
    standing: BTreeSet<usize>,
    processes: u32,
}

/// Process of a node.
#[derive(Debug)]
struct Process {
    gate: Gate,
    task: tokio::task::JoinHandle<()>,
}

/// Observations of one simulated fleet.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    pub(super) starts: Vec<Start>,
}

impl Run {
    /// Asserts that no two starts are closer than `delay`.
    pub(super) fn assert_gaps(&self, delay: Duration) {
        self.assert_gaps_from(Duration::ZERO, delay);
    }

    /// Asserts that no two starts after `from` are closer than `delay`.
    pub(super) fn assert_gaps_from(&self, from: Duration, delay: Duration) {
        // Clocks differ in speed, by a thousandth at most.
        let delay = delay - delay / 500;
        let pairs = self.starts.windows(2).filter(|pair| from <= pair[0].at);
        for pair in pairs {
            let gap = pair[1].at - pair[0].at;
            assert!(
                delay <= gap,
                "seed {}: {pair:?} are {gap:?} apart",
                self.seed
            );
        }
    }

    /// Returns the longest time without a start, after the first one.
    pub(super) fn longest_gap(&self) -> Duration {
        let gaps = self.starts.windows(2).map(|pair| pair[1].at - pair[0].at);
        gaps.max().unwrap_or_default()
    }

    pub(super) fn nodes_that_started(&self) -> usize {
        let nodes: BTreeSet<usize> = self.starts.iter().map(|start| start.node).collect();
        nodes.len()
    }

    /// Counts the starts in a period of time.
    pub(super) fn count(&self, from: Duration, to: Duration) -> usize {
        let within = |start: &&Start| from <= start.at && start.at < to;
        self.starts.iter().filter(within).count()
    }
}

impl Fleet {
    /// Runs a fleet in simulated time.
    ///
    /// # Panics
    ///
    /// If a start broke a law ([`Watch`]).
    pub(super) fn run(plan: &Plan, seed: u64) -> Run {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let watch = runtime.block_on(async { Self::new(plan, seed).play().await });
        let (nodes, watch) = (plan.nodes, watch.lock().unwrap());
        if let Some(broken) = &watch.broken {
            panic!("seed {seed}, {nodes} nodes: {broken}; {:?}", plan.faults);
        }
        Run {
            seed,
            nodes,
            starts: watch.starts.clone(),
        }
    }

    fn new(plan: &Plan, seed: u64) -> Self {
        let chance = Chance::new(seed);
        let mut store = Store::new(chance.clone());
        store.has_late_calls = plan.has_late_calls;
        let delay = plan.delay - plan.jump_max;
        Self {
            plan: plan.clone(),
            store: Arc::new(Mutex::new(store)),
            watch: Arc::new(Mutex::new(Watch::new(plan.nodes, delay))),
            began: clock::instant(),
            chance,
            running: HashMap::new(),
            standing: BTreeSet::new(),
            processes: 0,
        }
    }

    async fn play(mut self) -> Arc<Mutex<Watch>> {
        for node in 0..self.plan.nodes {
            self.start(node);
        }
        let mut faults = self.plan.faults.clone();
        faults.sort_by_key(|(at, _)| *at);
        for (at, fault) in faults {
            sleep_until(self.began + at).await;
            self.suffer(&fault);
            let is_parted = self.is_parted(&fault);
            let now = clock::instant().duration_since(self.began);
            self.watch.lock().unwrap().part(is_parted, now);
        }
        sleep_until(self.began + self.plan.lasts).await;
        for node in self.running.values() {
            node.task.abort();
        }
        self.watch
    }

    /// Returns whether the nodes may have different knowledge after a fault.
    fn is_parted(&self, fault: &Fault) -> bool {
        let store = self.store.lock().unwrap();
        let is_cut = !store.cut_off.is_empty() || !store.deaf.is_empty();
        let is_missing = self.running.len() < self.plan.nodes;
        let has_begun = matches!(fault, Fault::NodeStarts(_));
        let was_parted = self.watch.lock().unwrap().is_parted;
        // A node that starts without a store does not know which nodes are alone.
        let stays = store.is_stopped() && (was_parted || has_begun);
        is_cut || is_missing || !self.standing.is_empty() || stays
    }

    fn suffer(&mut self, fault: &Fault) {
        let mut store = self.store.lock().unwrap();
        match *fault {
            Fault::StoreStops => store.stop(),
            Fault::StoreGoesOn => store.go_on(),
            Fault::StoreFailsOver(lost) => store.fail_over(lost),
            Fault::StoreIsEmpty => store.forget_all(),
            Fault::StoreClockJumps(by) => store.jumped += by,
            Fault::NodesAreCutOff(ref nodes) => store.cut_off.extend(nodes),
            Fault::NodeIsDeaf(node) => {
                store.deaf.insert(node);
            }
            Fault::NodesAreBack(ref nodes) => {
                store.cut_off.retain(|node| !nodes.contains(node));
                store.deaf.retain(|node| !nodes.contains(node));
            }
            Fault::NodeStandsStill(node) => {
                if let Some(process) = self.running.get(&node) {
                    process.gate.shut();
                    self.standing.insert(node);
                }
            }
            Fault::NodeGoesOn(node) => {
                if let Some(process) = self.running.get(&node) {
                    process.gate.open();
                    self.standing.remove(&node);
                }
            }
            Fault::NodeIsKilled(node) => {
                drop(store);
                if let Some(process) = self.running.remove(&node) {
                    // Shut for ever: its tasks do not notice that they have ended.
                    process.gate.shut();
                    self.standing.remove(&node);
                }
            }
            Fault::NodeStarts(node) => {
                drop(store);
                self.start(node);
            }
        }
    }

    fn start(&mut self, node: usize) {
        if self.running.contains_key(&node) {
            return;
        }
        self.processes += 1;
        // Up to 500 millionths faster or slower.
        let clock = NodeClock(1.0 + (self.chance.below(1001) as f64 - 500.0) / 1e6);
        let link = Arc::new(Link {
            caller: Caller {
                node,
                process: self.processes,
            },
            clock,
            store: Arc::clone(&self.store),
            beat: Mutex::default(),
        });
        let gate = Gate::default();
        let life = Life {
            link,
            plan: self.plan.clone(),
            watch: Arc::clone(&self.watch),
            began: self.began,
            gate: gate.clone(),
            chance: Mutex::new(Chance::new(self.chance.below(u64::MAX >> 1))),
        };
        let task = tokio::spawn(gate.hold(life.run()));
        self.running.insert(node, Process { gate, task });
    }
}

/// Life of one process of a node.
struct Life {
    link: Arc<Link>,
    plan: Plan,
    watch: Arc<Mutex<Watch>>,
    began: Instant,
    gate: Gate,
    chance: Mutex<Chance>,
}

impl Life {
    async fn run(self) {
        politesse_base::testing::follow_tokio();
        let policy = PacePolicy::new(Profile::Owned, &PaceLimits::default(), Vec::new());
        let options = Options {
            policy: Arc::new(policy),
            ..Options::default()
        };
        let tasks = Tasks::default();
        let scheduler = Scheduler::new(options, Arc::new(Metrics::default()), tasks);
        scheduler.stand_still_at(self.gate.clone());
        scheduler.join_fleet(Arc::clone(&self.link) as Arc<dyn LeaseStore>);
        tokio::join!(self.beat(&scheduler), self.ask(&scheduler));
    }

    fn rules(&self) -> FleetRules {
        FleetRules {
            lease: self.link.clock.takes(LEASE),
            timeout: self.link.clock.takes(TIMEOUT),
            on_loss: self.plan.on_loss,
        }
    }

    /// Sends heartbeats, as the task of the fleet does.
    async fn beat(&self, scheduler: &Scheduler) {
        let rules = self.rules();
        let mut membership = Membership::new(rules);
        let mut known = None;
        loop {
            let asked_at = scheduler.uptime();
            let question = BeatQuestion {
                is_away: membership.is_away(),
                time_since_answer: membership.time_since_answer(asked_at),
                known: known.clone(),
            };
            if let Ok((run, mut beat)) = self.link.beat(question).await {
                beat.opens_in = self.link.clock.takes(beat.opens_in);
                known = Some((run, beat.clone()));
                *self.link.beat.lock().unwrap() = known.clone();
                membership.take(beat, asked_at);
            } else {
                membership.miss(asked_at);
            }
            let part = membership.part(scheduler.uptime());
            scheduler.set_fleet_part(part, membership.valid_until());
            sleep(rules.beat()).await;
        }
    }

    /// Sends requests to the host as often as allowed.
    async fn ask(&self, scheduler: &Scheduler) {
        let host: Host = "site.example".parse().unwrap();
        let delay = self.link.clock.takes(self.plan.delay);
        let records = Arc::new(PaceRecords {
            crawl_delay: Some(delay),
            ..PaceRecords::default()
        });
        let owner = TurnOwner {
            client: ClientDirectory::default().at([127, 0, 0, 1].into()),
            crawler: Some("bot".into()),
        };
        loop {
            let request = TurnRequest {
                host: &host,
                owner: &owner,
                address: None,
                pace_records: Some(Arc::clone(&records)),
                max_wait: Duration::from_secs(3600),
                robots_fetched_at: None,
                robots_fetch: RobotsFetch::NotNeeded,
                arrival: None,
                embedding: None,
            };
            let Ok(turn) = scheduler.turn(request).await else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            self.send(scheduler, turn).await;
        }
    }

    /// Sends a request as `upstream` does: over a connection that may have to be made
    /// first.
    async fn send(&self, scheduler: &Scheduler, turn: Turn) {
        turn.mark_sent();
        let connects = self.chance.lock().unwrap().below(8) == 0;
        if connects {
            sleep(Duration::from_millis(5)).await;
        }
        if !turn.holds() {
            return;
        }
        let part = scheduler.fleet_part().unwrap();
        self.watch.lock().unwrap().start(Start {
            at: clock::instant().duration_since(self.began),
            node: self.link.caller.node,
            is_alone: part.mode != FleetMode::Leased,
        });
        sleep(self.plan.takes).await;
        turn.record_status(200, None);
    }
}
