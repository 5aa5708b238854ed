//! Where requests ask for turns: finds the gate, says what becomes of those who
//! have to wait, drives the lines, and forgets what is idle.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};

use super::ceilings::{Ceilings, Ticks};
use super::gate::{HostQueue, Joining, Step};
use super::hosts::{HostMap, SLICES};
use super::later::TOO_MANY_HOSTS;
use super::line::QueueOwner;
use super::pace::{Delayed, Now, Started, Wish};
use super::places::{Full, Place, Places};
use super::waiting::Waiting;
use super::{BackOffListener, Later, RobotsFetch, Turn, TurnRequest};
use crate::clock;
use crate::decision::reason::Reason;
use crate::metrics::Metrics;
use crate::pace::options::Options;
use crate::pace::schedule::{Kind, Moment};
use crate::tasks::Tasks;
use politesse_robots::origin::Host;

/// How often what is idle is forgotten.
const SWEEP_SECONDS: u64 = 60;

/// One configuration's parts.
#[derive(Debug)]
pub(super) struct ActivePace {
    pub(super) options: Options,
    pub(super) ceilings: Arc<Ceilings>,
    /// By which a gate sees that its terms are of another configuration.
    pub(super) generation: u32,
}

/// What turns, lines and their drivers share.
#[derive(Debug)]
pub(super) struct SchedulerCore {
    pub(super) in_force: ArcSwap<ActivePace>,
    pub(super) hosts: HostMap,
    places: Arc<Places>,
    pub(super) epoch: Instant,
    /// The same by the clock of the wall.
    began: Timestamp,
    pub(super) metrics: Arc<Metrics>,
    tasks: Tasks,
    /// For those who wait, each one its own.
    numbers: AtomicU64,
    pub(super) told: OnceLock<BackOffListener>,
    /// In seconds since `epoch`.
    next_sweep: AtomicU64,
    /// Whether nobody may wait any more.
    pub(super) is_closed: AtomicBool,
}

/// A request that does not start at once.
pub(super) enum Postponed {
    /// It is not to be sent now.
    Later(Later),
    /// It waits, from this moment on.
    Waiting(Waiting, Moment),
}

impl SchedulerCore {
    pub(super) fn new(options: Options, metrics: Arc<Metrics>, tasks: Tasks) -> Self {
        let epoch = clock::instant();
        let in_force = ActivePace {
            ceilings: Ceilings::new(&options, &Ticks::since(epoch), None),
            options,
            generation: 0,
        };
        Self {
            in_force: ArcSwap::from_pointee(in_force),
            hosts: HostMap::new(Arc::clone(&metrics)),
            places: Places::new(Arc::clone(&metrics)),
            epoch,
            began: clock::now(),
            metrics,
            tasks,
            numbers: AtomicU64::new(0),
            told: OnceLock::new(),
            next_sweep: AtomicU64::new(SWEEP_SECONDS),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(super) fn moment(&self) -> Moment {
        clock::instant().saturating_duration_since(self.epoch)
    }

    pub(super) fn now<'a>(&self, in_force: &'a ActivePace) -> Now<'a> {
        Now {
            moment: self.moment(),
            wall: None,
            in_force,
        }
    }

    /// A turn, if nothing keeps it from being now; else a place in line.
    pub(super) fn ask(self: &Arc<Self>, request: &TurnRequest<'_>) -> Result<Turn, Postponed> {
        let in_force = self.in_force.load();
        let now = self.now(&in_force);
        self.sweep_if_due(now.moment);
        let Some(gate) = self.hosts.gate(request.host, &now) else {
            let later = self.later(Reason::Overload, Duration::ZERO, TOO_MANY_HOSTS);
            return Err(Postponed::Later(later));
        };
        let ceilings = &in_force.ceilings;
        let kind = match request.robots_fetch {
            RobotsFetch::No | RobotsFetch::Once => Kind::Page,
            RobotsFetch::Again => Kind::PageAtOnce,
        };
        let mut wish = Wish {
            kind,
            asked: request.pace_records.clone(),
            claim: ceilings.claim(Some(request.crawler), request.host, request.address),
            address: request.address,
        };
        if request
            .robots_fetched_at
            .is_some_and(|from| from < self.began)
        {
            gate.visited_before();
        }
        let whose = || QueueOwner::Crawler(request.crawler.into());
        let who = (request.host, &whose, request.arrival);
        let mut answer = gate.ask(&mut wish, who, &now);
        if request.robots_fetch == RobotsFetch::Once
            && let Err(delayed) = &answer
            && is_too_long(request, delayed, &now)
        {
            wish.kind = Kind::PageAtOnce;
            answer = gate.ask(&mut wish, who, &now);
        }
        match answer {
            Ok(started) => Ok(self.granted(request.host, gate, started)),
            Err(delayed) => Err(self.postpone((request, wish), (gate, delayed), &now)),
        }
    }

    pub(super) fn granted(
        self: &Arc<Self>,
        host: &Host,
        gate: Arc<HostQueue>,
        mut started: Started,
    ) -> Turn {
        let overruns = &self.metrics.pace_overruns;
        overruns.inc_by(started.overruns.into());
        if let Some(ended) = started.ended.take() {
            self.tell_left(host, ended);
        }
        Turn::new(Arc::clone(self), gate, started)
    }

    fn postpone(
        self: &Arc<Self>,
        (request, wish): (&TurnRequest<'_>, Wish),
        (gate, delayed): (Arc<HostQueue>, Delayed),
        now: &Now<'_>,
    ) -> Postponed {
        if is_too_long(request, &delayed, now) {
            return Postponed::Later(self.later_than(request.host, delayed, now));
        }
        let crawler: Arc<str> = request.crawler.into();
        let limits = &now.in_force.options.queue;
        let pause = delayed
            .until
            .map_or(Duration::ZERO, |until| until.saturating_sub(now.moment));
        let full = |what: &str| Postponed::Later(self.later(Reason::QueueFull, pause, what));
        let place = match self.places.take(&crawler, limits) {
            Ok(place) => place,
            Err(Full::Crawler) => return full("too many requests of this crawler wait already"),
            Err(Full::Total) => return full("too many requests wait already"),
        };
        let whose = QueueOwner::Crawler(crawler);
        let joining = Joining {
            whose: &whose,
            wish,
            deadline: now.moment.saturating_add(request.max_wait),
            room: limits.origin.get(),
            number: request.arrival,
        };
        match self.join(gate, joining) {
            Some(mut waiting) => {
                waiting.place = Some(place);
                Postponed::Waiting(waiting, now.moment)
            }
            None => full("too many requests for this host wait already"),
        }
    }

    pub(super) fn seat(&self, crawler: &str) -> Option<Place> {
        let limits = self.in_force.load().options.queue;
        self.places.take(&crawler.into(), &limits).ok()
    }

    pub(super) fn join(
        self: &Arc<Self>,
        gate: Arc<HostQueue>,
        joining: Joining<'_>,
    ) -> Option<Waiting> {
        let whose = joining.whose.clone();
        let joined = gate.join(joining, &self.numbers)?;
        // Looked at behind the gate's lock, so that none joins unseen by `close`.
        if self.is_closed.load(Ordering::SeqCst) {
            gate.empty();
        }
        if joined.is_first {
            let driver = drive(Arc::clone(&gate), Arc::clone(self));
            self.tasks.0.spawn(driver);
        }
        Some(Waiting {
            gate,
            whose,
            number: joined.number,
            answer: joined.answer,
            place: None,
        })
    }

    /// Sends all away that wait, and that would wait from now on.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.hosts.each(|_, gate| gate.empty());
    }

    fn sweep_if_due(self: &Arc<Self>, now: Moment) {
        let due = self.next_sweep.load(Ordering::Relaxed);
        if now.as_secs() < due {
            return;
        }
        let (next, order) = (now.as_secs() + SWEEP_SECONDS, Ordering::Relaxed);
        if self
            .next_sweep
            .compare_exchange(due, next, order, order)
            .is_ok()
        {
            let desk = Arc::clone(self);
            self.tasks.0.spawn(async move { desk.sweep().await });
        }
    }

    /// Looks through one slice at a time, and lets others run in between.
    pub(super) async fn sweep(&self) {
        for slice in 0..SLICES {
            self.sweep_slice(slice);
            tokio::task::yield_now().await;
        }
        self.in_force.load().ceilings.sweep();
    }

    fn sweep_slice(&self, slice: usize) {
        let in_force = self.in_force.load();
        let mut now = self.now(&in_force);
        now.wall = Some(clock::now());
        for (host, ended) in self.hosts.ended(slice, now.moment) {
            self.tell_left(&host, ended);
        }
        self.hosts.sweep(slice, &now);
    }
}

/// Whether a request may not wait for that.
fn is_too_long(request: &TurnRequest<'_>, delayed: &Delayed, now: &Now<'_>) -> bool {
    let deadline = now.moment.saturating_add(request.max_wait);
    request.max_wait.is_zero() || delayed.until.is_some_and(|until| deadline < until)
}

/// Grants turns at one host for as long as somebody waits there.
async fn drive(gate: Arc<HostQueue>, desk: Arc<SchedulerCore>) {
    loop {
        desk.metrics.pace_wakeups.inc();
        let step = {
            let in_force = desk.in_force.load();
            gate.step(&desk.now(&in_force))
        };
        match step {
            Step::Again => {}
            Step::Over => return,
            Step::Sleep(until, told) => {
                let Some(until) = desk.epoch.checked_add(until) else {
                    told.notified().await;
                    continue;
                };
                tokio::select! {
                    () = told.notified() => {}
                    () = sleep_until(until) => {}
                }
            }
        }
    }
}
