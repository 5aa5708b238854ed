//! When a request may go to its host: one pace for a host name, on all ports
//! and by both schemes.
//!
//! What the site asks for (`rules::pace::asked`), what the operator lays down
//! (`terms`), back-off and what is under way meet in a gate per host. Whether a
//! request may go at all is not known here, nor is anything sent.
//!
//! Invariant 8: who waits is bounded by number (`pace.queue`) and by time, and
//! so is the number of hosts (`pace.max_hosts`).

mod waiting;

mod turn;

mod hosts;

mod gate;

mod pace;

mod line;

mod ceilings;

mod places;

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{Instant, sleep, sleep_until};

use self::ceilings::{Ceilings, Keys, Passed, Ticks};
use self::gate::{Gate, Joining, Step};
use self::hosts::{Hosts, SLICES};
use self::line::Whose;
use self::pace::{Delayed, Now, Started, Wish};
use self::places::{Full, Places};
pub use self::turn::Turn;
use self::waiting::{InVain, Waiting};
use crate::clock;
use crate::metrics::{Metrics, ReasonLabel};
use crate::rules::origin::Host;
use crate::rules::pace::asked::Asked;
use crate::rules::pace::host_pace::HostPace;
use crate::rules::pace::options::Options;
use crate::rules::pace::schedule::{Kind, Moment};
use crate::rules::reason::Reason;
use crate::tasks::Tasks;

/// How often what is idle is forgotten.
const SWEEP_SECONDS: u64 = 60;

/// Nobody is told to come back sooner.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

/// When to look again for room for one more host.
const ROOM: Duration = Duration::from_millis(100);

/// What a request asks of the pacer.
#[derive(Debug, Clone)]
pub struct Asking<'a> {
    /// The host it goes to.
    pub host: &'a Host,
    /// Who asks: a product token, else a client's address.
    pub crawler: &'a str,
    /// Where the host is, if that is known; for `pace.address`.
    pub address: Option<IpAddr>,
    /// What the site asks of this crawler.
    pub asked: Option<Arc<Asked>>,
    /// How long it may wait.
    pub longest: Duration,
}

/// A request that is not to be sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Later {
    /// What it would have waited for.
    pub reason: Reason,
    /// When it is worth asking again.
    pub retry_after: Duration,
    /// The same for people.
    pub detail: String,
}

/// Grants turns.
#[derive(Debug)]
pub struct Pacer {
    desk: Arc<Desk>,
}

/// One configuration's parts.
#[derive(Debug)]
struct InForce {
    options: Options,
    ceilings: Arc<Ceilings>,
    /// By which a gate sees that its terms are of another configuration.
    generation: u32,
}

/// What turns, lines and their drivers share.
#[derive(Debug)]
struct Desk {
    in_force: ArcSwap<InForce>,
    hosts: Hosts,
    places: Arc<Places>,
    epoch: Instant,
    metrics: Arc<Metrics>,
    tasks: Tasks,
    /// For those who wait, each one its own.
    numbers: AtomicU64,
    /// In seconds since `epoch`.
    next_sweep: AtomicU64,
    /// How often drivers looked at their lines.
    #[cfg(test)]
    steps: std::sync::atomic::AtomicUsize,
}

impl Pacer {
    /// A pacer that knows no host yet.
    pub fn new(options: Options, metrics: Arc<Metrics>, tasks: Tasks) -> Self {
        let epoch = clock::instant();
        let in_force = InForce {
            ceilings: Ceilings::new(&options, &Ticks::since(epoch)),
            options,
            generation: 0,
        };
        let desk = Desk {
            in_force: ArcSwap::from_pointee(in_force),
            hosts: Hosts::new(Arc::clone(&metrics)),
            places: Places::new(Arc::clone(&metrics)),
            epoch,
            metrics,
            tasks,
            numbers: AtomicU64::new(0),
            next_sweep: AtomicU64::new(SWEEP_SECONDS),
            #[cfg(test)]
            steps: std::sync::atomic::AtomicUsize::default(),
        };
        let desk = Arc::new(desk);
        Self { desk }
    }

    /// Lets other options hold from now on, for those who wait too. What was
    /// started stays as it is.
    pub fn adopt(&self, options: Options) {
        let before = self.desk.in_force.load_full();
        let ceilings = if before.ceilings.are_of(&options) {
            Arc::clone(&before.ceilings)
        } else {
            Ceilings::new(&options, &Ticks::since(self.desk.epoch))
        };
        let in_force = Arc::new(InForce {
            options,
            ceilings,
            generation: before.generation.wrapping_add(1),
        });
        self.desk.in_force.store(Arc::clone(&in_force));
        let now = self.desk.now(&in_force);
        self.desk.hosts.each(|host, gate| gate.adopt(host, &now));
    }

    /// A turn, once it comes.
    ///
    /// # Errors
    ///
    /// [`Later`]: at once where the wait would be longer than the longest, and
    /// when that is over at the latest.
    pub async fn turn(&self, asking: Asking<'_>) -> Result<Turn, Later> {
        let desk = &self.desk;
        let (waiting, begun) = match desk.ask(&asking) {
            Ok(turn) => return Ok(turn),
            Err(Postponed::Later(later)) => return Err(later),
            Err(Postponed::Waiting(waiting, begun)) => (waiting, begun),
        };
        let gate = Arc::clone(&waiting.gate);
        let deadline = begun.saturating_add(asking.longest);
        let answer = waiting.turn(desk, Some(deadline)).await;
        let waited = desk.moment().saturating_sub(begun);
        match answer {
            Ok(started) => Ok(Turn::new(Arc::clone(desk), gate, started).after(waited)),
            Err(in_vain) => Err(desk.later_in_vain(&asking, &gate, in_vain)),
        }
    }

    /// A turn for a robots.txt, before all pages that wait.
    ///
    /// It waits for as long as it takes: whoever fetches has a time limit. No
    /// delay follows it as long as no page was asked for.
    pub async fn robots_turn(&self, host: &Host) -> Turn {
        let begun = self.desk.moment();
        loop {
            if let Some(turn) = self.desk.robots_turn(host, begun).await {
                return turn;
            }
            sleep(ROOM).await;
        }
    }

    /// Every host of which something is known, as it is now.
    pub fn snapshot(&self) -> Vec<HostPace> {
        let in_force = self.desk.in_force.load();
        let mut now = self.desk.now(&in_force);
        let wall = clock::now();
        now.wall = Some(wall);
        let at = |moment: Moment| wall.checked_add(moment.saturating_sub(now.moment)).ok();
        let mut all = Vec::new();
        self.desk.hosts.each(|host, gate| {
            let seen = gate.seen(&now);
            all.push(HostPace {
                host: host.to_string(),
                in_flight: seen.in_flight,
                queued: u32::try_from(seen.queued).unwrap_or(u32::MAX),
                next_start: seen.next.and_then(|next| next.until).and_then(at),
                cause: seen.next.map(|next| next.reason.as_str().into()),
                backoff_until: seen.back_off.and_then(at),
            });
        });
        all
    }

    /// Forgets all hosts of which nothing has to be remembered, as is done each
    /// minute.
    pub async fn sweep(&self) {
        self.desk.sweep().await;
    }
}

/// A request that does not start at once.
enum Postponed {
    Later(Later),
    Waiting(Waiting, Moment),
}

impl Desk {
    fn moment(&self) -> Moment {
        clock::instant().saturating_duration_since(self.epoch)
    }

    fn now<'a>(&self, in_force: &'a InForce) -> Now<'a> {
        Now {
            moment: self.moment(),
            wall: None,
            in_force,
        }
    }

    /// A turn, if nothing keeps it from being now; else a place in line.
    fn ask(self: &Arc<Self>, asking: &Asking<'_>) -> Result<Turn, Postponed> {
        let in_force = self.in_force.load();
        let now = self.now(&in_force);
        self.sweep_if_due(now.moment);
        let Some(gate) = self.hosts.gate(asking.host, &now) else {
            let detail = "the paces of too many hosts have to be remembered";
            return Err(Postponed::Later(self.later(
                Reason::Overload,
                Duration::ZERO,
                detail,
            )));
        };
        let ceilings = &in_force.ceilings;
        let mut wish = Wish {
            kind: Kind::Page,
            asked: asking.asked.clone(),
            keys: ceilings.keys(asking.crawler, asking.host, asking.address),
            passed: Passed::default(),
        };
        let whose = || Whose::Crawler(asking.crawler.into());
        match gate.ask(&mut wish, (asking.host, &whose), &now) {
            Ok(started) => Ok(Turn::new(Arc::clone(self), gate, started)),
            Err(delayed) => Err(self.postpone((asking, wish), (gate, delayed), &now)),
        }
    }

    fn postpone(
        self: &Arc<Self>,
        (asking, wish): (&Asking<'_>, Wish),
        (gate, delayed): (Arc<Gate>, Delayed),
        now: &Now<'_>,
    ) -> Postponed {
        let deadline = now.moment.saturating_add(asking.longest);
        let is_too_long = delayed.until.is_some_and(|until| deadline < until);
        if is_too_long || asking.longest.is_zero() {
            return Postponed::Later(self.later_than(asking, delayed, now));
        }
        let crawler: Arc<str> = asking.crawler.into();
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
        let whose = Whose::Crawler(crawler);
        match self.join((gate, whose), wish, (Some(deadline), limits.origin.get())) {
            Some(mut waiting) => {
                waiting.place = Some(place);
                Postponed::Waiting(waiting, now.moment)
            }
            None => full("too many requests for this host wait already"),
        }
    }

    fn join(
        self: &Arc<Self>,
        (gate, whose): (Arc<Gate>, Whose),
        wish: Wish,
        (deadline, room): (Option<Moment>, usize),
    ) -> Option<Waiting> {
        let joining = Joining {
            whose: &whose,
            wish,
            deadline,
            room,
        };
        let joined = gate.join(joining, &self.numbers)?;
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

    async fn robots_turn(self: &Arc<Self>, host: &Host, begun: Moment) -> Option<Turn> {
        let (gate, waiting) = self.ask_for_robots(host)?;
        let started = match waiting {
            Ok(started) => return Some(Turn::new(Arc::clone(self), gate, started)),
            Err(waiting) => waiting.turn(self, None).await.ok()?,
        };
        let waited = self.moment().saturating_sub(begun);
        Some(Turn::new(Arc::clone(self), gate, started).after(waited))
    }

    fn ask_for_robots(
        self: &Arc<Self>,
        host: &Host,
    ) -> Option<(Arc<Gate>, Result<Started, Waiting>)> {
        let in_force = self.in_force.load();
        let now = self.now(&in_force);
        let gate = self.hosts.gate(host, &now)?;
        let mut wish = Wish {
            kind: Kind::RobotsTxt,
            asked: None,
            keys: Keys::default(),
            passed: Passed::default(),
        };
        if let Ok(started) = gate.ask(&mut wish, (host, &|| Whose::Robots), &now) {
            return Some((gate, Ok(started)));
        }
        let line = (Arc::clone(&gate), Whose::Robots);
        let waiting = self.join(line, wish, (None, usize::MAX))?;
        Some((gate, Err(waiting)))
    }

    fn later_in_vain(&self, asking: &Asking<'_>, gate: &Gate, in_vain: InVain) -> Later {
        let in_force = self.in_force.load();
        let now = self.now(&in_force);
        match in_vain {
            InVain::Told(delayed) => self.later_than(asking, delayed, &now),
            InVain::TooLong(wish) => {
                let whose = Whose::Crawler(asking.crawler.into());
                let delayed = gate.estimate(&wish, &whose, &now);
                self.later_than(asking, delayed, &now)
            }
            InVain::Ended => self.later(Reason::Overload, Duration::ZERO, "stopping"),
        }
    }

    fn later_than(&self, asking: &Asking<'_>, delayed: Delayed, now: &Now<'_>) -> Later {
        let until = delayed.until.unwrap_or(now.moment);
        let reason = delayed.reason;
        let detail = format!("the pace of {}: {}", asking.host, in_words(reason));
        self.later(reason, until.saturating_sub(now.moment), &detail)
    }

    fn later(&self, reason: Reason, pause: Duration, detail: &str) -> Later {
        let label = ReasonLabel {
            reason: reason.as_str(),
        };
        self.metrics.pace_later.get_or_create(&label).inc();
        Later {
            reason,
            retry_after: pause.max(RETRY_AFTER_MIN),
            detail: detail.to_owned(),
        }
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
    async fn sweep(&self) {
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
        self.hosts.sweep(slice, &now);
    }
}

/// Grants turns at one host for as long as somebody waits there.
async fn drive(gate: Arc<Gate>, desk: Arc<Desk>) {
    loop {
        #[cfg(test)]
        desk.steps.fetch_add(1, Ordering::Relaxed);
        let step = {
            let in_force = desk.in_force.load();
            gate.step(&desk.now(&in_force))
        };
        match step {
            Step::Again => {}
            Step::Over => return,
            Step::Wait(told) => told.notified().await,
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

/// A number from 0 to 1 that nobody can tell before.
fn chance() -> f64 {
    let bits = RandomState::new().hash_one(()) >> 32;
    u32::try_from(bits).map_or(0.0, |bits| f64::from(bits) / f64::from(u32::MAX))
}

fn in_words(reason: Reason) -> &'static str {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the others are not about when"
    )]
    match reason {
        Reason::CrawlDelay => "the site asks for a pause between requests",
        Reason::RequestRate => "the site asks for fewer requests in a time",
        Reason::VisitTime => "it is not the time of day for it",
        Reason::BackOff => "the site asked for less, and is left alone for a while",
        _ => "a limit of the operator's",
    }
}
