//! The operator's limits over many hosts: for a crawler, for a registered
//! domain, for an address, and in all (`pace.crawler`, `.domain`, `.address`,
//! `.total`).
//!
//! Rates are governor's, without a burst: "20/m" is one each three seconds, so
//! that no minute has more than twenty. What a host itself asks for is not
//! known here.

mod lines;

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::lines::{At, Enrolled, Lines, lock};
use crate::clock;
use crate::pace::options::Options;
use crate::pace::policy::PaceLimits as Limits;
use crate::pace::schedule::Moment;
use politesse_robots::origin::Host;

/// Names are told apart by this many numbers: whoever makes up more of them
/// shares one with somebody, which lets neither do more.
const KEYS: u64 = 1 << 18;

/// How many kinds of ceiling there are.
const KINDS: usize = 4;

/// The one that is over all.
const TOTAL: usize = KINDS - 1;

/// tokio's clock, so that tests can pause it.
#[derive(Debug, Clone)]
pub(super) struct Ticks(Instant);

impl Ticks {
    pub(super) fn since(epoch: Instant) -> Self {
        Self(epoch)
    }
}

impl Clock for Ticks {
    type Instant = Moment;

    fn now(&self) -> Moment {
        clock::instant().saturating_duration_since(self.0)
    }
}

type Limiter = RateLimiter<u32, HashMapStateStore<u32>, Ticks, NoOpMiddleware<Moment>>;

/// All ceilings of one configuration.
#[derive(Debug)]
pub(super) struct Ceilings {
    limits: [Limits; KINDS],
    rates: [Option<Arc<Limiter>>; KINDS],
    /// Those of the configurations before as well.
    lines: Arc<Mutex<Lines>>,
    hasher: RandomState,
}

/// What a request needs to start under its ceilings.
#[derive(Debug, Default)]
pub(super) struct Claim {
    keys: [Option<u32>; KINDS],
    /// The rates that have counted it already: once, however often it is held up
    /// by the others.
    counted: [bool; KINDS],
    /// The rate that did not let it pass, and until when it will not. It stays
    /// in that line until then: between two lines that hold each other up it
    /// could go back and forth without end.
    shut: Option<(At, Moment)>,
    /// By what it is told that it is its turn, if it waits in a line.
    told: Option<Arc<Notify>>,
    /// Its place in the line of the ceiling that held it up last.
    enrolled: Option<Enrolled>,
    /// The place that it had before it came to the line of all: none of those
    /// behind it would come further than it has.
    kept: Option<Enrolled>,
}

/// A request under way, as ceilings count it.
#[derive(Debug)]
pub(super) struct Held {
    ceilings: Arc<Ceilings>,
    keys: [Option<u32>; KINDS],
}

fn limits(options: &Options) -> [Limits; KINDS] {
    [
        options.crawler,
        options.domain,
        options.address,
        options.total,
    ]
}

fn limiter(limits: Limits, ticks: &Ticks) -> Option<Arc<Limiter>> {
    let quota = Quota::with_period(limits.rate?.pause())?;
    let limiter = Limiter::hashmap_with_clock(quota, ticks.clone());
    Some(Arc::new(limiter))
}

impl Ceilings {
    /// What is under way under those of before is so under these.
    pub(super) fn new(options: &Options, ticks: &Ticks, before: Option<&Self>) -> Arc<Self> {
        let limits = limits(options);
        let mut rates = limits.map(|limits| limiter(limits, ticks));
        for (kind, rate) in rates.iter_mut().enumerate() {
            let same = before.filter(|before| before.limits[kind].rate == limits[kind].rate);
            if let Some(same) = same {
                rate.clone_from(&same.rates[kind]);
            }
        }
        Arc::new(Self {
            limits,
            rates,
            lines: before.map_or_else(Arc::default, |before| Arc::clone(&before.lines)),
            hasher: before.map_or_else(RandomState::new, |before| before.hasher.clone()),
        })
    }

    /// Whether these are the ceilings of other options too.
    pub(super) fn are_of(&self, options: &Options) -> bool {
        self.limits == limits(options)
    }

    /// The claim of a request. Without a crawler it is our own, for a
    /// robots.txt.
    pub(super) fn claim(
        &self,
        crawler: Option<&str>,
        host: &Host,
        address: Option<IpAddr>,
    ) -> Claim {
        let mut claim = Claim::default();
        for (kind, limits) in self.limits.iter().enumerate() {
            if limits.are_none() {
                continue;
            }
            claim.keys[kind] = match kind {
                0 => crawler.map(|crawler| self.number(crawler)),
                1 => Some(self.number(&registered_domain(host))),
                2 => address.map(|address| self.number(&address)),
                _ => Some(0),
            };
        }
        claim
    }

    fn number(&self, name: &(impl std::hash::Hash + ?Sized)) -> u32 {
        let number = self.hasher.hash_one(name) % KEYS;
        u32::try_from(number).unwrap_or(0)
    }

    /// Counts a request in, if all ceilings let it start at `now`.
    ///
    /// # Errors
    ///
    /// When to ask again; [`Moment::MAX`] where it is told.
    pub(super) fn pass(
        self: &Arc<Self>,
        claim: &mut Claim,
        now: Moment,
    ) -> Result<Option<Held>, Moment> {
        if claim.keys.iter().all(Option::is_none) {
            return Ok(None);
        }
        let mut lines = lock(&self.lines);
        if let Err((at, until)) = self.take(claim, now, &mut lines) {
            claim.shut = until.map(|until| (at, until));
            return Err(self.wait_at(at, until.unwrap_or(now), (claim, lines)));
        }
        let held = Held {
            ceilings: Arc::clone(self),
            keys: claim.keys,
        };
        held.limited().for_each(|at| lines.begin(at));
        drop(lines);
        claim.yields();
        Ok(Some(held))
    }

    /// Whether there is room under all of them; else which has none, and until
    /// when if that is known.
    ///
    /// Who waits for one keeps to the order of that line, and of those behind
    /// it: with two lines at once two could wait for each other.
    fn take(
        &self,
        claim: &mut Claim,
        now: Moment,
        lines: &mut Lines,
    ) -> Result<(), (At, Option<Moment>)> {
        if let Some((at, until)) = claim.shut.filter(|(_, until)| now < *until) {
            return Err((at, Some(until)));
        }
        let enrolled = claim.enrolled.as_ref();
        for at in claim.all() {
            let mine = claim.place_at(at);
            let is_past = enrolled.is_some_and(|enrolled| at.0 < enrolled.at.0);
            if self.is_full(at, lines) || !is_past && !lines.is_next(at, mine) {
                return Err((at, None));
            }
        }
        for at in claim.all() {
            let (kind, key) = at;
            let rate = self.rates[kind].as_ref();
            let Some(rate) = rate.filter(|_| !claim.counted[kind]) else {
                continue;
            };
            let counted = rate.check_key(&key);
            counted.map_err(|not_until| (at, Some(not_until.earliest_possible())))?;
            claim.counted[kind] = true;
        }
        Ok(())
    }

    /// Has a claim wait for one ceiling; when to ask again.
    fn wait_at(
        &self,
        at: At,
        until: Moment,
        (claim, mut lines): (&mut Claim, MutexGuard<'_, Lines>),
    ) -> Moment {
        let Some(told) = &claim.told else {
            return until.saturating_add(self.wait_behind(at, &lines));
        };
        if claim
            .enrolled
            .as_ref()
            .is_none_or(|enrolled| enrolled.at != at)
        {
            let kept = claim.kept.take();
            let (enrolled, kept) = match kept {
                Some(kept) if kept.at == at => (kept, None),
                kept => (Enrolled::new(&self.lines, &mut lines, (at, told)), kept),
            };
            let before = claim.enrolled.replace(enrolled);
            let was_first = before
                .as_ref()
                .is_some_and(|one| lines.is_next(one.at, Some(one)));
            // To give one up takes the lock.
            drop(lines);
            if at.0 == TOTAL && was_first {
                claim.kept = before;
            } else {
                drop(before);
            }
            drop(kept);
            lines = lock(&self.lines);
        }
        // Only who is first has a clock to look at.
        let is_first = lines.is_next(at, claim.enrolled.as_ref());
        let has_clock = self.rates[at.0].is_some() && is_first;
        if has_clock && !self.is_full(at, &lines) {
            until
        } else {
            Moment::MAX
        }
    }

    fn is_full(&self, at: At, lines: &Lines) -> bool {
        let most = self.limits[at.0].in_flight;
        most.is_some_and(|most| most.get() <= lines.under_way(at))
    }

    fn wait_behind(&self, at: At, lines: &Lines) -> Duration {
        let pause = self.limits[at.0]
            .rate
            .map_or(Duration::ZERO, |rate| rate.pause());
        let waiting = u32::try_from(lines.waiting(at)).unwrap_or(u32::MAX);
        pause.saturating_mul(waiting)
    }

    /// About how long the rates let a request wait that comes now.
    pub(super) fn wait(&self, claim: &Claim) -> Duration {
        if claim.keys.iter().all(Option::is_none) {
            return Duration::ZERO;
        }
        let lines = lock(&self.lines);
        let waits = claim.all().map(|at| self.wait_behind(at, &lines));
        waits.max().unwrap_or_default()
    }

    /// How many lines there are to remember.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        lock(&self.lines).len()
    }

    /// Forgets what no longer limits anything.
    pub(super) fn sweep(&self) {
        for rate in self.rates.iter().flatten() {
            rate.retain_recent();
            rate.shrink_to_fit();
        }
    }
}

impl Claim {
    /// It waits in a line, and is told by this.
    pub(super) fn told_by(&mut self, told: &Arc<Notify>) {
        self.told = Some(Arc::clone(told));
    }

    /// The same under other ceilings.
    pub(super) fn renewed(&self, claim: Self) -> Self {
        Self {
            told: self.told.clone(),
            ..claim
        }
    }

    /// Gives up its place, because its host has it wait as well: whoever is
    /// behind it must not wait for that.
    pub(super) fn yields(&mut self) {
        (self.enrolled, self.kept) = (None, None);
    }

    fn place_at(&self, at: At) -> Option<&Enrolled> {
        let places = [&self.enrolled, &self.kept].into_iter().flatten();
        places.into_iter().find(|place| place.at == at)
    }

    /// The ceilings that it comes under.
    fn all(&self) -> impl Iterator<Item = At> + use<> {
        all(self.keys)
    }
}

fn all(keys: [Option<u32>; KINDS]) -> impl Iterator<Item = At> {
    let keys = keys.into_iter().enumerate();
    keys.filter_map(|(kind, key)| Some((kind, key?)))
}

impl Held {
    /// Under which of them it counts as long as it is under way.
    fn limited(&self) -> impl Iterator<Item = At> + use<> {
        let is_limited = self
            .ceilings
            .limits
            .map(|limits| limits.in_flight.is_some());
        all(self.keys).filter(move |(kind, _)| is_limited[*kind])
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut lines = lock(&self.ceilings.lines);
        self.limited().for_each(|at| lines.end(at));
    }
}

/// The domain that somebody registered, by the public suffix list; what is
/// under none is its own.
fn registered_domain(host: &Host) -> String {
    match host {
        Host::Name(name) => psl::domain_str(name).unwrap_or(name).to_owned(),
        Host::Address(_) => host.to_string(),
    }
}

#[cfg(test)]
mod tests;
