//! A fleet in simulated time: nodes, a store and an origin, with faults by plan.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::clients::directory::ClientDirectory;
use crate::clock;
use crate::fleet::membership::{Beat, FleetRules, Membership, OnLoss};
use crate::metrics::Metrics;
use crate::pace::fleet_part::HostHistory;
use crate::pace::lease::{LeaseAnswer, LeaseCall, LeaseFuture, LeaseOrder, LeaseStore, StoreLost};
use crate::pace::options::Options;
use crate::pace::policy::{PaceLimits, PacePolicy, Profile};
use crate::pace::{RobotsFetch, Scheduler, TurnOwner, TurnRequest};
use crate::tasks::Tasks;
use politesse_robots::PaceRecords;
use politesse_robots::origin::Host;

/// What is simulated.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    /// Delay that the site asks for.
    pub(super) delay: Duration,
    /// Time that the origin takes to answer.
    pub(super) takes: Duration,
    pub(super) lasts: Duration,
    pub(super) on_loss: OnLoss,
    /// What happens, and when.
    pub(super) faults: Vec<(Duration, Fault)>,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The store answers nobody.
    StoreStops,
    /// It answers again, and has forgotten nothing.
    StoreGoesOn,
    /// Another process takes the place of the store, and has lost what it had
    /// written in this time before it stopped.
    StoreFailsOver(Duration),
    /// The store does not hear from one node, nor that from it.
    NodeIsCutOff(usize),
    /// They hear from each other again.
    NodeIsBack(usize),
    /// A node ends without a word.
    NodeIsKilled(usize),
    /// Another process of the same name takes its place.
    NodeStarts(usize),
}

/// Chance that repeats itself (xorshift64*).
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound.max(1)
    }

    fn micros(&mut self, below: u64) -> Duration {
        Duration::from_micros(self.below(below))
    }
}

/// What the store keeps of a host, as `lease.lua` does.
#[derive(Clone, Debug, Default)]
struct HostEntry {
    generation: u64,
    holder: Option<(usize, u32, u32)>,
    until: i64,
    wanted: i64,
    started: Option<i64>,
    ended: Option<i64>,
    robots: Option<i64>,
    adaptive: Duration,
    delay: Duration,
    back_off: Option<i64>,
    incidents: u32,
    remembered: Duration,
}

/// What the store keeps.
#[derive(Clone, Debug, Default)]
struct Memory {
    generation: u64,
    born: i64,
    run: u32,
    nodes: BTreeMap<String, i64>,
    hosts: HashMap<String, HostEntry>,
}

/// Store, for all nodes.
#[derive(Debug)]
struct Store {
    memory: Memory,
    /// Memory of before, by time.
    earlier: Vec<(i64, Memory)>,
    run: u32,
    is_stopped: bool,
    cut_off: BTreeSet<usize>,
    chance: Chance,
    began: Instant,
    /// How much faster the clock of the store is, in millionths.
    drift: i64,
}

const LEASE: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_millis(200);
const FORGET: Duration = Duration::from_secs(600);

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap()
}

fn rules(on_loss: OnLoss) -> FleetRules {
    FleetRules {
        lease: LEASE,
        timeout: TIMEOUT,
        on_loss,
    }
}

impl Store {
    fn now(&self) -> i64 {
        // Any time but 0, which stands for "never" in some fields.
        let passed = micros(clock::instant().duration_since(self.began));
        1_000_000_000 + passed + passed / 1_000_000 * self.drift
    }

    fn reaches(&self, node: usize) -> bool {
        !self.is_stopped && !self.cut_off.contains(&node)
    }

    /// Does what `beat.lua` does.
    fn beat(&mut self, node: usize, is_away: bool, known: Option<&(u32, Beat)>) -> Beat {
        let (now, run) = (self.now(), self.run);
        let memory = &mut self.memory;
        let is_old = memory.born + micros(LEASE) <= now;
        if memory.run != run || is_away && is_old {
            let known = known.map_or(0, |(_, known)| known.generation);
            memory.generation = memory.generation.max(known) + 1;
            (memory.born, memory.run) = (now, run);
        }
        memory.nodes.retain(|_, at| now - micros(FORGET) < *at);
        let told = known.filter(|(other, _)| *other != run);
        for name in told.into_iter().flat_map(|(_, known)| &known.names) {
            let missing = now - micros(LEASE);
            memory.nodes.entry(name.clone()).or_insert(missing);
        }
        let name = format!("node-{node:03}");
        memory.nodes.insert(name.clone(), now);
        let live = memory
            .nodes
            .values()
            .filter(|at| now - micros(LEASE) < **at);
        Beat {
            generation: memory.generation,
            opens_us: u64::try_from(memory.born + micros(LEASE)).unwrap(),
            live: live.count() as u32,
            place: memory.nodes.keys().filter(|other| **other < name).count() as u32,
            names: memory.nodes.keys().cloned().collect(),
        }
    }

    /// Does what `lease.lua` does.
    fn lease(&mut self, node: (usize, u32), beat: &Beat, call: &LeaseCall<'_>) -> LeaseAnswer {
        let now = self.now();
        // A fail-over goes back to one of these: copies are made behind the answers.
        self.earlier.push((now, self.memory.clone()));
        self.earlier.retain(|(at, _)| now - 2_000_000 < *at);
        let entry = self.memory.hosts.entry(call.host.to_string()).or_default();
        let holder = entry.holder.map(|(node, process, _)| (node, process));
        let is_holder = entry.holder == Some((node.0, node.1, call.number));
        let opens = i64::try_from(beat.opens_us).unwrap();
        match call.order {
            LeaseOrder::EndBackOff => {
                entry.back_off = Some(now);
                LeaseAnswer::Freed
            }
            LeaseOrder::Claim => {
                if holder.is_some_and(|holder| holder != node) && now < entry.until {
                    entry.wanted = now + 250_000;
                    return LeaseAnswer::Refused(age(entry.until, now));
                }
                if entry.generation != beat.generation && now < opens {
                    return LeaseAnswer::Refused(age(opens, now));
                }
                let mut latest = 0;
                if holder.is_some_and(|holder| holder != node) {
                    latest = entry.until;
                }
                if entry.generation != beat.generation {
                    latest = latest.max(opens);
                }
                // Somebody may have asked the host until then, and told nobody.
                if 0 < latest {
                    entry.ended = entry.ended.max(Some(latest));
                    entry.started = entry.started.map(|started| started.max(latest));
                }
                entry.generation = beat.generation;
                entry.holder = Some((node.0, node.1, call.number));
                entry.until = now + micros(LEASE);
                let since = |at: Option<i64>| at.map(|at| age(now, at));
                let history = HostHistory {
                    started: since(entry.started),
                    ended: since(entry.ended),
                    robots: since(entry.robots),
                    adaptive: entry.adaptive,
                    robots_delay: entry.delay,
                    back_off_end: entry
                        .back_off
                        .map(|end| SignedDuration::from_micros(end - now)),
                    incidents: entry.incidents,
                    remembered: entry.remembered,
                };
                LeaseAnswer::Held {
                    length: LEASE,
                    is_wanted: now < entry.wanted,
                    history: Some(history),
                }
            }
            LeaseOrder::Renew(_) if !is_holder => LeaseAnswer::Refused(Duration::ZERO),
            LeaseOrder::Renew(history) => {
                entry.note(&history, is_holder, now);
                entry.generation = beat.generation;
                entry.until = now + micros(LEASE);
                LeaseAnswer::Held {
                    length: LEASE,
                    is_wanted: now < entry.wanted,
                    history: None,
                }
            }
            LeaseOrder::Release(history) => {
                entry.note(&history, is_holder, now);
                if is_holder {
                    entry.holder = None;
                }
                LeaseAnswer::Noted
            }
        }
    }
}

/// Returns the time from `then` to `now`.
fn age(now: i64, then: i64) -> Duration {
    Duration::from_micros(u64::try_from(now - then).unwrap_or(0))
}

impl HostEntry {
    fn note(&mut self, history: &HostHistory, is_holder: bool, now: i64) {
        let at = |age: Option<Duration>, before: Option<i64>| match age {
            None => before,
            Some(age) if is_holder => Some(now - micros(age)),
            Some(age) => before.max(Some(now - micros(age))),
        };
        self.started = at(history.started, self.started);
        self.ended = at(history.ended, self.ended);
        self.robots = at(history.robots, self.robots);
        if is_holder {
            self.adaptive = Duration::ZERO;
            self.delay = Duration::ZERO;
        }
        self.adaptive = self.adaptive.max(history.adaptive);
        self.delay = self.delay.max(history.robots_delay);
        self.remembered = self.remembered.max(history.remembered);
        if let Some(end) = history.back_off_end {
            self.back_off = Some(now + i64::try_from(end.as_micros()).unwrap());
            self.incidents = history.incidents;
        }
    }
}

/// Way of one node to the store, which may be slow, and may be cut at any moment.
#[derive(Debug)]
struct Link {
    node: usize,
    process: u32,
    store: Arc<Mutex<Store>>,
    /// Latest answer, with the process of the store that gave it: connections to
    /// another one are gone.
    beat: Mutex<Option<(u32, Beat)>>,
}

impl Link {
    /// Lets the store act on a call that takes a while each way.
    async fn call<T>(&self, act: impl FnOnce(&mut Store) -> T) -> Result<T, StoreLost> {
        let (there, back) = {
            let mut store = self.store.lock().unwrap();
            // One in 50 is slow, and may come too late.
            let longest = if store.chance.below(50) == 0 {
                150_000
            } else {
                2_000
            };
            (store.chance.micros(longest), store.chance.micros(longest))
        };
        let answered = timeout(TIMEOUT, async {
            sleep(there).await;
            let answer = {
                // Not across the wait: others call meanwhile.
                let mut store = self.store.lock().unwrap();
                store.reaches(self.node).then(|| act(&mut store))
            };
            sleep(back).await;
            // The store has acted, and the node does not know.
            if answer.is_none() || !self.store.lock().unwrap().reaches(self.node) {
                sleep(TIMEOUT).await;
            }
            answer
        });
        answered.await.ok().flatten().ok_or(StoreLost)
    }
}

impl LeaseStore for Link {
    fn lease<'a>(&'a self, call: LeaseCall<'a>) -> LeaseFuture<'a> {
        Box::pin(async move {
            let (run, beat) = self.beat.lock().unwrap().clone().ok_or(StoreLost)?;
            let answer = self.call(|store| {
                let own = (self.node, self.process);
                (store.run == run).then(|| store.lease(own, &beat, &call))
            });
            answer.await?.ok_or(StoreLost)
        })
    }
}

/// Start of a request at the origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) at: Duration,
    pub(super) node: usize,
}

/// A fleet that runs.
#[derive(Debug)]
pub(super) struct Fleet {
    plan: Plan,
    store: Arc<Mutex<Store>>,
    starts: Arc<Mutex<Vec<Start>>>,
    began: Instant,
    running: HashMap<usize, tokio::task::JoinHandle<()>>,
    processes: u32,
}

/// What was seen of a fleet.
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

    /// Asserts it of the starts from a time on.
    pub(super) fn assert_gaps_from(&self, from: Duration, delay: Duration) {
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

    /// Returns the longest time without a start, after the first.
    pub(super) fn longest_gap(&self) -> Duration {
        let gaps = self.starts.windows(2).map(|pair| pair[1].at - pair[0].at);
        gaps.max().unwrap_or_default()
    }

    pub(super) fn nodes_that_started(&self) -> usize {
        let nodes: BTreeSet<usize> = self.starts.iter().map(|start| start.node).collect();
        nodes.len()
    }

    /// Counts the starts from one time to another.
    pub(super) fn count(&self, from: Duration, to: Duration) -> usize {
        let within = |start: &&Start| from <= start.at && start.at < to;
        self.starts.iter().filter(within).count()
    }
}

impl Fleet {
    /// Runs a fleet in simulated time.
    pub(super) fn run(plan: &Plan, seed: u64) -> Run {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let starts = runtime.block_on(Self::new(plan, seed).play());
        Run {
            seed,
            nodes: plan.nodes,
            starts,
        }
    }

    fn new(plan: &Plan, seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let drift = i64::try_from(chance.below(401)).unwrap() - 200;
        Self {
            plan: plan.clone(),
            store: Arc::new(Mutex::new(Store {
                memory: Memory::default(),
                earlier: Vec::new(),
                run: 1,
                is_stopped: false,
                cut_off: BTreeSet::new(),
                chance,
                began: clock::instant(),
                drift,
            })),
            starts: Arc::default(),
            began: clock::instant(),
            running: HashMap::new(),
            processes: 0,
        }
    }

    async fn play(mut self) -> Vec<Start> {
        self.began = clock::instant();
        self.store.lock().unwrap().began = self.began;
        for node in 0..self.plan.nodes {
            self.start(node);
        }
        for (at, fault) in self.plan.faults.clone() {
            sleep_until(self.began + at).await;
            self.suffer(&fault);
        }
        sleep_until(self.began + self.plan.lasts).await;
        for node in self.running.values() {
            node.abort();
        }
        std::mem::take(&mut *self.starts.lock().unwrap())
    }

    fn suffer(&mut self, fault: &Fault) {
        let mut store = self.store.lock().unwrap();
        match *fault {
            Fault::StoreStops => store.is_stopped = true,
            Fault::StoreGoesOn => store.is_stopped = false,
            Fault::StoreFailsOver(lost) => {
                let since = store.now() - micros(lost);
                let kept = store.earlier.iter().rev().find(|(at, _)| *at <= since);
                if let Some((_, memory)) = kept.cloned() {
                    store.memory = memory;
                }
                store.run += 1;
                store.is_stopped = false;
            }
            Fault::NodeIsCutOff(node) => {
                store.cut_off.insert(node);
            }
            Fault::NodeIsBack(node) => {
                store.cut_off.remove(&node);
            }
            Fault::NodeIsKilled(node) => {
                drop(store);
                if let Some(running) = self.running.remove(&node) {
                    running.abort();
                }
            }
            Fault::NodeStarts(node) => {
                drop(store);
                self.start(node);
            }
        }
    }

    fn start(&mut self, node: usize) {
        self.processes += 1;
        let link = Arc::new(Link {
            node,
            process: self.processes,
            store: Arc::clone(&self.store),
            beat: Mutex::default(),
        });
        let life = Life {
            link,
            plan: self.plan.clone(),
            starts: Arc::clone(&self.starts),
            began: self.began,
        };
        self.running.insert(node, tokio::spawn(life.run()));
    }
}

/// Life of one node.
struct Life {
    link: Arc<Link>,
    plan: Plan,
    starts: Arc<Mutex<Vec<Start>>>,
    began: Instant,
}

impl Life {
    async fn run(self) {
        let policy = PacePolicy::new(Profile::Owned, &PaceLimits::default(), Vec::new());
        let options = Options {
            policy: Arc::new(policy),
            ..Options::default()
        };
        let tasks = Tasks::default();
        let scheduler = Scheduler::new(options, Arc::new(Metrics::default()), tasks);
        scheduler.join_fleet(Arc::clone(&self.link) as Arc<dyn LeaseStore>);
        // The tasks of a scheduler that is killed go on: their calls must not count.
        let _killed = Killed(Arc::clone(&self.link));
        tokio::join!(self.beat(&scheduler), self.ask(&scheduler));
    }

    /// Asks who is there, as the task of the fleet does.
    async fn beat(&self, scheduler: &Scheduler) {
        let rules = rules(self.plan.on_loss);
        let mut membership = Membership::new(rules);
        let mut known_at = None;
        loop {
            let asked_at = scheduler.uptime();
            let (is_away, known) = (membership.is_away(), known_at.clone());
            let node = self.link.node;
            let answer = self
                .link
                .call(|store| (store.run, store.beat(node, is_away, known.as_ref())));
            if let Ok((run, beat)) = answer.await {
                known_at = Some((run, beat.clone()));
                *self.link.beat.lock().unwrap() = Some((run, beat.clone()));
                membership.take(beat, asked_at);
            }
            let part = membership.part(scheduler.uptime());
            scheduler.set_fleet_part(part);
            sleep(rules.beat().min(TIMEOUT)).await;
        }
    }

    /// Asks the host as often as it may.
    async fn ask(&self, scheduler: &Scheduler) {
        let host: Host = "site.example".parse().unwrap();
        let records = Arc::new(PaceRecords {
            crawl_delay: Some(self.plan.delay),
            ..PaceRecords::default()
        });
        let owner = TurnOwner {
            client: ClientDirectory::default().at([127, 0, 0, 1].into()),
            crawler: "bot".into(),
        };
        loop {
            let request = TurnRequest {
                host: &host,
                owner: Some(&owner),
                address: None,
                pace_records: Some(Arc::clone(&records)),
                url: None,
                max_wait: Duration::from_secs(3600),
                robots_fetched_at: None,
                robots_fetch: RobotsFetch::No,
                arrival: None,
            };
            let Ok(turn) = scheduler.turn(request).await else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            turn.mark_sent();
            self.starts.lock().unwrap().push(Start {
                at: clock::instant().duration_since(self.began),
                node: self.link.node,
            });
            sleep(self.plan.takes).await;
            turn.record_status(200, None);
        }
    }
}

/// Cuts the way of a process that ended.
struct Killed(Arc<Link>);

impl Drop for Killed {
    fn drop(&mut self) {
        *self.0.beat.lock().unwrap() = None;
    }
}
