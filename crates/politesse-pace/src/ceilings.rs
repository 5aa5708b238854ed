//! Operator's limits over many hosts: per crawler, per registered domain, per address,
//! and in total (`pace.crawler`, `.domain`, `.address`, `.total`).
//!
//! A *ceiling* limits the starts per time (its rate), the requests in flight, or both.
//! Rates allow no burst: `20/m` is one start every three seconds, so no minute has more
//! than twenty.
//!
//! A waiting request is in the *queue* of its host. While a ceiling holds it up, it also
//! has a place in the *line* of that ceiling, among requests to all hosts. One *driver*
//! for each queue, a task, checks the first requests of the queue and starts those that
//! may. Does not know what a host itself asks for.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::ceiling_lines::{CeilingKey, CeilingLines};
use super::options::Options;
use super::policy::PaceLimits;
use super::schedule::Uptime;
use politesse_robots::origin::Host;

/// Number of hash values for crawlers, domains and addresses. It bounds the memory that
/// made-up names can take. Two names with the same value share one limit, so neither gets
/// more than its own.
const HASH_VALUES: u64 = 1 << 18;

/// Number of kinds of ceiling. A request is checked against them in the order below.
const KINDS: usize = 4;
const CRAWLER: usize = 0;
const DOMAIN: usize = 1;
const ADDRESS: usize = 2;
const TOTAL: usize = 3;

/// Ceilings of one configuration.
#[derive(Debug)]
pub(super) struct Ceilings {
    /// Limits by kind of ceiling.
    limits: [PaceLimits; KINDS],
    lines: SharedLines,
    hasher: RandomState,
}

/// Lines of all ceilings, under one lock: a request starts under all of its ceilings or
/// under none. Shared by all configurations, because requests stay in flight across a
/// reload.
#[derive(Debug, Clone, Default)]
struct SharedLines(Arc<Mutex<CeilingLines>>);

impl SharedLines {
    fn lock(&self) -> MutexGuard<'_, CeilingLines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Claim of one request on its ceilings: first for a start, then for its share of the
/// requests in flight. Dropping it gives both up.
#[derive(Debug)]
pub(super) struct CeilingClaim {
    /// Ceilings that apply to the request, in the order in which they are checked.
    stops: Vec<CeilingStop>,
    /// Index of the ceiling in whose line the request waits.
    current: Option<usize>,
    /// Latest refusal, if any.
    refusal: Option<CeilingRefusal>,
    /// Whether the request counts as in flight.
    is_started: bool,
    /// Whether the request may start before the requests that wait in lines.
    skips_lines: bool,
    lines: SharedLines,
}

/// Ceiling that applies to a request, and the state of the request there.
#[derive(Debug)]
struct CeilingStop {
    key: CeilingKey,
    limits: PaceLimits,
    /// Whether the rate has counted the request. It does so once, even if other
    /// ceilings hold the request up again.
    is_counted: bool,
    /// Place in the line of this ceiling. A waiting request has one at its current
    /// ceiling. If that is the total, it may have kept one at the previous ceiling
    /// ([`CeilingClaim::wait_for`]).
    place: Option<u64>,
}

/// Refusal of a start by one ceiling.
#[derive(Debug, Clone, Copy)]
struct CeilingRefusal {
    /// Index of the ceiling in [`CeilingClaim::stops`].
    stop: usize,
    /// Earliest time at which another attempt makes sense: when the rate has room, or the
    /// time of the refusal if the limit in flight or the order of the line refused. The
    /// request stays in the line of this ceiling until then. If it left earlier, it might
    /// go back and forth between two lines and never start.
    until: Uptime,
}

impl Ceilings {
    /// Makes the ceilings of `options`. The ceilings `before`, if any, pass on their
    /// starts and their requests in flight.
    pub(super) fn new(options: &Options, before: Option<&Self>) -> Arc<Self> {
        Arc::new(Self {
            limits: limits_of(options),
            lines: before.map_or_else(SharedLines::default, |before| before.lines.clone()),
            // With another hasher, the lines would belong to different names.
            hasher: before.map_or_else(RandomState::new, |before| before.hasher.clone()),
        })
    }

    /// Returns whether `options` have the same ceilings.
    pub(super) fn are_of(&self, options: &Options) -> bool {
        self.limits == limits_of(options)
    }

    /// Makes the claim of a request. `crawler` is `None` for a robots.txt fetch, and
    /// `address` if it is unknown; their ceilings then do not apply. Returns `None` if no
    /// ceiling applies to the request.
    pub(super) fn claim(
        &self,
        crawler: Option<&str>,
        host: &Host,
        address: Option<IpAddr>,
    ) -> Option<CeilingClaim> {
        if self.limits.iter().all(PaceLimits::are_none) {
            return None;
        }
        let hash = |kind: usize| match kind {
            CRAWLER => crawler.map(|crawler| self.hash(crawler)),
            DOMAIN => Some(self.hash(&registered_domain(host))),
            ADDRESS => address.map(|address| self.hash(&address)),
            // There is only one total.
            _ => Some(0),
        };
        let stop = |kind: usize| {
            let limits = Some(self.limits[kind]).filter(|limits| !limits.are_none())?;
            let hash = hash(kind)?;
            Some(CeilingStop {
                key: CeilingKey { kind, hash },
                limits,
                is_counted: false,
                place: None,
            })
        };
        let stops: Vec<CeilingStop> = (0..KINDS).filter_map(stop).collect();
        (!stops.is_empty()).then(|| CeilingClaim {
            stops,
            current: None,
            refusal: None,
            is_started: false,
            skips_lines: false,
            lines: self.lines.clone(),
        })
    }

    /// Returns the hash value of a name or address, below [`HASH_VALUES`].
    fn hash(&self, name: &(impl Hash + ?Sized)) -> u32 {
        let value = self.hasher.hash_one(name) % HASH_VALUES;
        u32::try_from(value).unwrap_or(0)
    }

    /// Forgets the starts that no longer limit anything.
    pub(super) fn sweep(&self, now: Uptime) {
        self.lines.lock().forget_starts(|key, started| {
            let rate = self.limits[key.kind].rate;
            rate.is_none_or(|rate| started.saturating_add(rate.pause()) <= now)
        });
    }

    /// Returns the number of remembered lines ([`CeilingLines::len`]).
    #[cfg(test)]
    pub(super) fn len(&self, busy: bool) -> usize {
        self.lines.lock().len(busy)
    }
}

impl CeilingClaim {
    /// Turns the claim into that of a requisite: a file embedded in a page, which is
    /// fetched without a start of its own. It does not count under rates, and may start
    /// before the requests that are ahead of it in a line. Returns `None` if no other limit
    /// applies to it.
    pub(super) fn without_rates(mut self) -> Option<Self> {
        self.stops.retain(|stop| stop.limits.in_flight.is_some());
        self.stops
            .iter_mut()
            .for_each(|stop| stop.limits.rate = None);
        // The first request in a line may be waiting for the rate, which does not concern
        // a requisite.
        self.skips_lines = true;
        (!self.stops.is_empty()).then_some(self)
    }

    /// Counts the request as in flight if all of its ceilings let it start at `now`.
    /// Otherwise the request takes a place in the line of the ceiling that refuses it, and
    /// `driver` is woken when it may start. `driver` is `None` for a request that is in no
    /// queue; such a request takes no place.
    ///
    /// # Errors
    ///
    /// Time at which to try again; [`Uptime::MAX`] if the driver will be woken. Without a
    /// driver, roughly the time at which the request could start if it waited.
    pub(super) fn start(
        &mut self,
        now: Uptime,
        driver: Option<&Arc<Notify>>,
    ) -> Result<(), Uptime> {
        let shared = self.lines.clone();
        let mut lines = shared.lock();
        if let Err(refusal) = self.pass_ceilings(&mut lines, now) {
            self.refusal = Some(refusal);
            return Err(match driver {
                Some(driver) => self.wait_for(refusal, driver, &mut lines),
                None => {
                    let wait = self.stops[refusal.stop].wait(&lines);
                    refusal.until.saturating_add(wait)
                }
            });
        }
        let keys = self.limited_in_flight();
        keys.for_each(|key| lines.begin(key));
        self.leave_all(&mut lines);
        self.is_started = true;
        Ok(())
    }

    /// Checks limits in flight and the order of the lines for all ceilings, and then counts
    /// the request under each rate in turn. A refusal by a rate leaves it counted under the
    /// rates before; they do not count it again.
    ///
    /// # Errors
    ///
    /// The refusal. One that lasts beyond `now` is returned again without any check.
    fn pass_ceilings(
        &mut self,
        lines: &mut CeilingLines,
        now: Uptime,
    ) -> Result<(), CeilingRefusal> {
        if let Some(refusal) = self.refusal.filter(|refusal| now < refusal.until) {
            return Err(refusal);
        }
        for (index, stop) in self.stops.iter().enumerate() {
            // A request respects the order of the line in which it waits, and of the lines
            // after it: if requests wait in one of those, it must join that line instead.
            // It ignores the lines before, which it has passed. If it had to be first in
            // two lines at once, two requests, each first in one of them, could wait for
            // each other forever.
            let is_past = self.skips_lines || self.current.is_some_and(|current| index < current);
            if stop.is_full(lines) || !(is_past || stop.is_next(lines)) {
                return Err(CeilingRefusal {
                    stop: index,
                    until: now,
                });
            }
        }
        for (index, stop) in self.stops.iter_mut().enumerate() {
            if let Some(rate) = stop.limits.rate.filter(|_| !stop.is_counted) {
                let counted = lines.count_start(stop.key, rate, now);
                counted.map_err(|until| CeilingRefusal { stop: index, until })?;
                stop.is_counted = true;
            }
        }
        Ok(())
    }

    /// Puts the request in the line of the ceiling that refused it, and takes it out of
    /// other lines. Returns when to try again; [`Uptime::MAX`] if `driver` will be woken.
    fn wait_for(
        &mut self,
        refusal: CeilingRefusal,
        driver: &Arc<Notify>,
        lines: &mut CeilingLines,
    ) -> Uptime {
        let CeilingRefusal { stop, until } = refusal;
        if self.current != Some(stop) {
            let is_total = self.stops[stop].key.kind == TOTAL;
            let stops = self.stops.iter_mut().enumerate();
            for (index, other) in stops.filter(|(index, _)| *index != stop) {
                // The first request of a line keeps its place there when it moves on to the
                // line of the total. Otherwise the request after it would move on, too. When
                // that one's turn at the total came, its own ceiling might be full again, and
                // would send it to the end of the line that it had left.
                let is_before = is_total && self.current == Some(index);
                if !(is_before && other.is_next(lines)) {
                    other.leave(lines);
                }
            }
            self.current = Some(stop);
        }
        let stop = &mut self.stops[stop];
        stop.place
            .get_or_insert_with(|| lines.join(stop.key, driver));
        // Only a refusal by the rate ends at a known time, and only the first request of
        // the line waits for that time. Others are woken: by the request ahead of them when
        // it leaves the line, or by one in flight when it ends.
        let waits_for_rate = stop.limits.rate.is_some() && !stop.is_full(lines);
        if stop.is_next(lines) && waits_for_rate {
            until
        } else {
            Uptime::MAX
        }
    }

    /// Returns roughly how long a request that arrives now has to wait for its rates.
    pub(super) fn wait(&self) -> Duration {
        let lines = self.lines.lock();
        // The longest wait, not the sum: time passes under all rates at once.
        let waits = self.stops.iter().map(|stop| stop.wait(&lines));
        waits.max().unwrap_or_default()
    }

    /// Gives up the request's places in lines. Called when something else holds up the
    /// request, such as its host: the requests after it must not wait for that.
    pub(super) fn give_way(&mut self) {
        if self.current.is_some() {
            let shared = self.lines.clone();
            self.leave_all(&mut shared.lock());
        }
    }

    /// Returns the ceilings that limit the requests in flight.
    fn limited_in_flight(&self) -> impl Iterator<Item = CeilingKey> + '_ {
        let limited = |stop: &&CeilingStop| stop.limits.in_flight.is_some();
        self.stops.iter().filter(limited).map(|stop| stop.key)
    }

    fn leave_all(&mut self, lines: &mut CeilingLines) {
        self.current = None;
        self.stops.iter_mut().for_each(|stop| stop.leave(lines));
    }
}

impl CeilingStop {
    /// Returns whether the limit in flight leaves no room.
    fn is_full(&self, lines: &CeilingLines) -> bool {
        let most = self.limits.in_flight;
        most.is_some_and(|most| most.get() <= lines.in_flight(self.key))
    }

    /// Returns whether no other request waits in this line before this one.
    fn is_next(&self, lines: &CeilingLines) -> bool {
        lines.is_next(self.key, self.place)
    }

    /// Returns roughly how long a request at the end of the line has to wait for the
    /// rate.
    fn wait(&self, lines: &CeilingLines) -> Duration {
        let pause = self.limits.rate.map_or(Duration::ZERO, |rate| rate.pause());
        let waiting = u32::try_from(lines.waiting(self.key)).unwrap_or(u32::MAX);
        pause.saturating_mul(waiting)
    }

    fn leave(&mut self, lines: &mut CeilingLines) {
        if let Some(place) = self.place.take() {
            lines.leave(self.key, place);
        }
    }
}

impl Drop for CeilingClaim {
    fn drop(&mut self) {
        if self.is_started {
            let mut lines = self.lines.lock();
            self.limited_in_flight().for_each(|key| lines.end(key));
        }
        self.give_way();
    }
}

fn limits_of(options: &Options) -> [PaceLimits; KINDS] {
    [
        options.crawler,
        options.domain,
        options.address,
        options.total,
    ]
}

/// Returns the registered domain of a host, by the public suffix list. A name that is
/// itself a suffix is returned unchanged.
fn registered_domain(host: &Host) -> String {
    match host {
        Host::Name(name) => psl::domain_str(name).unwrap_or(name).to_owned(),
        Host::Address(_) => host.to_string(),
    }
}

#[cfg(test)]
mod tests;
