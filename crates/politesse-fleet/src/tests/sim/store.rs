//! Simulated store: behaves like `beat.lua` and `lease.lua`, for one host.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::chance::Chance;
use crate::membership::Beat;
use politesse_base::clock;
use politesse_pace::fleet_part::HostHistory;
use politesse_pace::lease::{LeaseAnswer, LeaseOrder};

pub(crate) const LEASE: Duration = Duration::from_secs(2);
const FORGET: Duration = Duration::from_secs(600);

/// Longest lag of the store's replica.
const COPY_LAG: i64 = 2_000_000;

/// Entry of the host in the simulated store.
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
    remembered: Duration,
}

/// Contents of the simulated store.
#[derive(Clone, Debug, Default)]
struct Memory {
    generation: u64,
    born: i64,
    run: u32,
    /// Time of the latest heartbeat by node number.
    nodes: Arc<BTreeMap<usize, i64>>,
    /// Names of the nodes, in order.
    names: Arc<[String]>,
    host: HostEntry,
}

/// Store shared by all nodes.
#[derive(Debug)]
pub(super) struct Store {
    memory: Memory,
    /// Earlier states of the memory, by time.
    earlier: VecDeque<(i64, Memory)>,
    /// Number of the process of the store.
    pub(super) run: u32,
    is_stopped: bool,
    /// Wakes the calls that wait for a stopped store.
    pub(super) goes_on: Arc<Notify>,
    /// Nodes whose calls do not arrive.
    pub(super) cut_off: BTreeSet<usize>,
    /// Nodes whose calls arrive but get no answers.
    pub(super) deaf: BTreeSet<usize>,
    pub(super) chance: Chance,
    /// Whether some calls arrive after the caller has given up.
    pub(super) has_late_calls: bool,
    pub(super) began: Instant,
    /// Speed difference of the store's clock, in millionths.
    drift: i64,
    /// Total jump of the store's clock, in microseconds.
    pub(super) jumped: i64,
}

/// Calling node: its number, and that of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) node: usize,
    pub(super) process: u32,
}

/// Heartbeat of a node.
#[derive(Clone, Debug)]
pub(super) struct BeatQuestion {
    pub(super) is_away: bool,
    /// Time since the latest answered heartbeat.
    pub(super) time_since_answer: Duration,
    /// Latest answer, with the process of the store that gave it.
    pub(super) known: Option<(u32, Beat)>,
}

pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap()
}

/// Returns the time from `then` to `now`.
fn age(now: i64, then: i64) -> Duration {
    Duration::from_micros(u64::try_from(now - then).unwrap_or(0))
}

impl Store {
    pub(super) fn new(mut chance: Chance) -> Self {
        // 500 in a million: the fastest that a clock is slewed.
        let drift = i64::try_from(chance.below(1001)).unwrap() - 500;
        Self {
            memory: Memory::default(),
            earlier: VecDeque::new(),
            run: 1,
            is_stopped: false,
            goes_on: Arc::default(),
            cut_off: BTreeSet::new(),
            deaf: BTreeSet::new(),
            chance,
            has_late_calls: false,
            began: clock::instant(),
            drift,
            jumped: 0,
        }
    }

    fn now(&self) -> i64 {
        // Never 0, which means "never" in some fields.
        let passed = micros(clock::instant().duration_since(self.began));
        1_000_000_000_000 + passed + passed * self.drift / 1_000_000 + self.jumped
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Lets the store resume, with all of its data and all calls that wait for it.
    pub(super) fn go_on(&mut self) {
        self.is_stopped = false;
        self.goes_on.notify_waiters();
    }

    /// Replaces the store with another process, which lacks the data written within the
    /// last `lost` and the waiting calls.
    pub(super) fn fail_over(&mut self, lost: Duration) {
        let since = self.now() - micros(lost);
        let kept = self.earlier.iter().rev().find(|(at, _)| *at <= since);
        if let Some((_, memory)) = kept.cloned() {
            self.memory = memory;
        }
        self.run += 1;
        self.go_on();
    }

    /// Replaces the store with another process without any data.
    pub(super) fn forget_all(&mut self) {
        self.memory = Memory::default();
        self.run += 1;
        self.go_on();
    }

    /// Behaves like `beat.lua`.
    pub(super) fn beat(&mut self, caller: Caller, question: &BeatQuestion) -> Beat {
        let (now, run, node) = (self.now(), self.run, caller.node);
        let known = question.known.as_ref();
        let told = known.map_or(0, |(_, known)| known.generation);
        let memory = &mut self.memory;
        let nodes = Arc::make_mut(&mut memory.nodes);
        // Heartbeats from before the clock was set back.
        for at in nodes.values_mut().filter(|at| now < **at) {
            *at = now - micros(LEASE);
        }
        let is_silent = nodes.values().all(|at| *at <= now - micros(LEASE));
        let is_first = LEASE <= question.time_since_answer && !nodes.is_empty() && is_silent;
        let is_old = memory.born + micros(LEASE) <= now;
        let is_other = memory.run != run || now < memory.born || memory.generation < told;
        if is_other || (question.is_away || is_first) && is_old {
            memory.generation = memory.generation.max(told) + 1;
            (memory.born, memory.run) = (now, run);
        }
        nodes.retain(|_, at| now - micros(FORGET) < *at);
        let earlier = known.filter(|(other, _)| *other != run);
        for name in earlier
            .into_iter()
            .flat_map(|(_, known)| known.names.iter())
        {
            nodes.entry(number(name)).or_insert(now - micros(LEASE));
        }
        nodes.insert(node, now - micros(question.time_since_answer));
        // Rebuilt only when the names change, because the script sends them only then.
        if !memory
            .names
            .iter()
            .map(|name| number(name))
            .eq(nodes.keys().copied())
        {
            memory.names = nodes.keys().map(|node| format!("{node:03}")).collect();
        }
        let live = nodes.values().filter(|at| now - micros(LEASE) < **at);
        let opens = memory.born + micros(LEASE);
        Beat {
            generation: memory.generation,
            opens_us: u64::try_from(opens).unwrap(),
            opens_in: age(opens, now),
            live: live.count() as u32,
            place: nodes.keys().filter(|other| **other < node).count() as u32,
            list: String::new(),
            names: Arc::clone(&memory.names),
        }
    }

    /// Behaves like `lease.lua`.
    pub(super) fn lease(&mut self, call: &HostCall) -> LeaseAnswer {
        let now = self.now();
        // A fail-over returns to one of these: replicas lag the answers.
        self.earlier.push_back((now, self.memory.clone()));
        while self
            .earlier
            .front()
            .is_some_and(|(at, _)| *at < now - COPY_LAG)
        {
            self.earlier.pop_front();
        }
        let entry = &mut self.memory.host;
        let is_holder = entry.holder == Some((call.caller.node, call.caller.process, call.number));
        match call.order {
            LeaseOrder::EndBackOff => LeaseAnswer::Freed,
            LeaseOrder::Claim => entry.claim(call, now),
            LeaseOrder::Renew(_) if !is_holder => LeaseAnswer::Refused(Duration::ZERO),
            LeaseOrder::Renew(history) => {
                entry.note(&history, is_holder, now);
                entry.generation = call.generation;
                entry.until = now + micros(LEASE);
                entry.held(now, None)
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

/// Call about the lease of the host.
#[derive(Clone, Debug)]
pub(super) struct HostCall {
    pub(super) caller: Caller,
    /// Generation of the latest heartbeat's answer, and when it opens.
    pub(super) generation: u64,
    pub(super) opens_us: u64,
    pub(super) number: u32,
    pub(super) order: LeaseOrder,
}

fn number(name: &str) -> usize {
    name.parse().unwrap()
}

impl HostEntry {
    fn claim(&mut self, call: &HostCall, now: i64) -> LeaseAnswer {
        let is_other =
            |(node, process, _)| (node, process) != (call.caller.node, call.caller.process);
        let is_others = self.holder.is_some_and(is_other);
        // A clock that was set back must not keep the host for longer than a lease.
        self.until = self.until.min(now + micros(LEASE));
        if is_others && now < self.until {
            self.wanted = now + 250_000;
            return LeaseAnswer::Refused(age(self.until, now));
        }
        let opens = i64::try_from(call.opens_us).unwrap();
        let is_another = self.generation != call.generation;
        if is_another && now < opens {
            return LeaseAnswer::Refused(age(opens, now));
        }
        let mut latest = if is_others { self.until } else { 0 };
        if is_another {
            latest = latest.max(opens);
        }
        // Another node may have sent requests to the host until then without reporting
        // them.
        if 0 < latest {
            self.ended = self.ended.max(Some(latest));
            self.started = self.started.map(|started| started.max(latest));
        }
        self.generation = call.generation;
        self.holder = Some((call.caller.node, call.caller.process, call.number));
        self.until = now + micros(LEASE);
        let since = |at: Option<i64>| at.map(|at| age(now, at));
        let history = HostHistory {
            started: since(self.started),
            ended: since(self.ended),
            robots: since(self.robots),
            adaptive: self.adaptive,
            robots_delay: self.delay,
            remembered: self.remembered,
            ..HostHistory::default()
        };
        self.held(now, Some(history))
    }

    fn held(&self, now: i64, history: Option<HostHistory>) -> LeaseAnswer {
        LeaseAnswer::Held {
            length: LEASE,
            is_wanted: (now..now + 250_000).contains(&self.wanted),
            history,
        }
    }

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
    }
}
