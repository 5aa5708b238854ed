//! Limits of the operator over many hosts: for a crawler, a registered domain,
//! an address, and in all (`pace.crawler`, `.domain`, `.address`, `.total`).
//!
//! Rates have no burst: `20/m` is one start each three seconds, so that no
//! minute has more than twenty. Does not know what a host itself asks for.

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

/// Names are told apart by this many numbers, so that made-up names take no
/// memory. Two names that share a number share a limit: neither gets more.
const NUMBERS: u64 = 1 << 18;

/// Kinds of ceiling, in the order in which a request waits for them.
const KINDS: usize = 4;
const CRAWLER: usize = 0;
const DOMAIN: usize = 1;
const ADDRESS: usize = 2;
const TOTAL: usize = 3;

/// Ceilings of one configuration.
#[derive(Debug)]
pub(super) struct Ceilings {
    limits: [PaceLimits; KINDS],
    lines: SharedLines,
    hasher: RandomState,
}

/// Lines of all ceilings, behind one lock: a request starts under all of its
/// ceilings or under none. Shared by all configurations, since requests are in
/// flight across a reload.
#[derive(Debug, Clone, Default)]
struct SharedLines(Arc<Mutex<CeilingLines>>);

impl SharedLines {
    fn lock(&self) -> MutexGuard<'_, CeilingLines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Claim of one request on a start under its ceilings. Dropped, its places in
/// their lines are given up.
#[derive(Debug, Default)]
pub(super) struct CeilingClaim {
    /// Ceilings that the request comes under, by kind.
    keys: [Option<CeilingKey>; KINDS],
    address: Option<IpAddr>,
    /// Rates that have counted the request: once, however often the other
    /// ceilings hold it up.
    counted: [bool; KINDS],
    /// Rate that refused the request, and until when. The request stays in that
    /// line until then: between two lines that hold each other up it could go
    /// back and forth without end.
    refused: Option<(CeilingKey, Uptime)>,
    /// Waker of the host's driver, if the request waits.
    waker: Option<Arc<Notify>>,
    /// Ceiling that held the request up last.
    current: Option<CeilingKey>,
    /// Places in lines, by kind: at the current ceiling, and perhaps at the one
    /// before it.
    places: [Option<u64>; KINDS],
    /// Lines in which the places are; `None` if the request comes under no
    /// ceiling.
    lines: Option<SharedLines>,
}

/// Request in flight, counted under its ceilings until this is dropped.
#[derive(Debug)]
pub(super) struct CeilingGuard {
    /// Ceilings with a limit of requests in flight.
    keys: [Option<CeilingKey>; KINDS],
    lines: SharedLines,
}

impl Ceilings {
    /// Makes the ceilings of `options`; starts and requests in flight are those
    /// of the ceilings before.
    pub(super) fn new(options: &Options, before: Option<&Self>) -> Arc<Self> {
        Arc::new(Self {
            limits: limits_of(options),
            lines: before.map_or_else(SharedLines::default, |before| before.lines.clone()),
            // The hasher of before, too: by another one the lines would belong
            // to other names.
            hasher: before.map_or_else(RandomState::new, |before| before.hasher.clone()),
        })
    }

    /// Returns whether `options` have the same ceilings.
    pub(super) fn are_of(&self, options: &Options) -> bool {
        self.limits == limits_of(options)
    }

    /// Makes the claim of a request; one without a crawler is for a robots.txt.
    pub(super) fn claim(
        &self,
        crawler: Option<&str>,
        host: &Host,
        address: Option<IpAddr>,
    ) -> CeilingClaim {
        let number = |kind: usize| match kind {
            CRAWLER => crawler.map(|crawler| self.number(crawler)),
            DOMAIN => Some(self.number(&registered_domain(host))),
            ADDRESS => address.map(|address| self.number(&address)),
            _ => Some(0),
        };
        let key = |kind: usize| {
            let is_limited = !self.limits[kind].are_none();
            let key = |number| CeilingKey { kind, number };
            is_limited.then(|| number(kind)).flatten().map(key)
        };
        let mut claim = CeilingClaim::default();
        claim.keys = std::array::from_fn(key);
        claim.address = address;
        claim.lines = (!claim.is_empty()).then(|| self.lines.clone());
        claim
    }

    fn number(&self, name: &(impl Hash + ?Sized)) -> u32 {
        let number = self.hasher.hash_one(name) % NUMBERS;
        u32::try_from(number).unwrap_or(0)
    }

    /// Counts a request in if all of its ceilings let it start at `now`;
    /// `None` if it comes under none.
    ///
    /// # Errors
    ///
    /// Time at which to ask again; [`Uptime::MAX`] if the claim's waker is
    /// notified.
    pub(super) fn start(
        &self,
        claim: &mut CeilingClaim,
        now: Uptime,
    ) -> Result<Option<CeilingGuard>, Uptime> {
        if claim.is_empty() {
            return Ok(None);
        }
        let mut lines = self.lines.lock();
        if let Err((key, until)) = self.take(claim, now, &mut lines) {
            claim.refused = until.map(|until| (key, until));
            return Err(self.wait_for(key, until.unwrap_or(now), claim, &mut lines));
        }
        let is_limited = |key: &CeilingKey| self.limits[key.kind].in_flight.is_some();
        let keys = claim.keys.map(|key| key.filter(is_limited));
        keys.into_iter().flatten().for_each(|key| lines.begin(key));
        claim.leave_all(&mut lines);
        Ok(Some(CeilingGuard {
            keys,
            lines: self.lines.clone(),
        }))
    }

    /// Counts the claim under its rates if there is room under all ceilings.
    ///
    /// # Errors
    ///
    /// The ceiling that has no room, and until when, if that is known.
    fn take(
        &self,
        claim: &mut CeilingClaim,
        now: Uptime,
        lines: &mut CeilingLines,
    ) -> Result<(), (CeilingKey, Option<Uptime>)> {
        if let Some((key, until)) = claim.refused.filter(|(_, until)| now < *until) {
            return Err((key, Some(until)));
        }
        for key in claim.keys.into_iter().flatten() {
            // A request that waits for one ceiling keeps to the order of that
            // line and of those behind it. In two lines at once, two requests
            // could wait for each other.
            let is_past = claim.current.is_some_and(|current| key.kind < current.kind);
            let is_next = is_past || lines.is_next(key, claim.places[key.kind]);
            if self.is_full(key, lines) || !is_next {
                return Err((key, None));
            }
        }
        for key in claim.keys.into_iter().flatten() {
            let rate = self.limits[key.kind].rate;
            if let Some(rate) = rate.filter(|_| !claim.counted[key.kind]) {
                let counted = lines.count_start(key, rate, now);
                counted.map_err(|until| (key, Some(until)))?;
                claim.counted[key.kind] = true;
            }
        }
        Ok(())
    }

    /// Puts a claim that has a waker in the line of `key`, and returns when to
    /// ask again.
    fn wait_for(
        &self,
        key: CeilingKey,
        until: Uptime,
        claim: &mut CeilingClaim,
        lines: &mut CeilingLines,
    ) -> Uptime {
        let Some(waker) = claim.waker.clone() else {
            return until.saturating_add(self.wait_behind(key, lines));
        };
        if claim.current != Some(key) {
            for other in claim
                .keys
                .into_iter()
                .flatten()
                .filter(|other| *other != key)
            {
                // A request that goes on to the line of the total keeps the first
                // place in the one before: those behind it there would come no
                // further than it has, and go back.
                let is_first = lines.is_next(other, claim.places[other.kind]);
                let stays = key.kind == TOTAL && claim.current == Some(other) && is_first;
                if !stays && let Some(place) = claim.places[other.kind].take() {
                    lines.leave(other, place);
                }
            }
            claim.current = Some(key);
            claim.places[key.kind].get_or_insert_with(|| lines.join(key, &waker));
        }
        // Only the first of a line watches the clock; it wakes the next one.
        let is_first = lines.is_next(key, claim.places[key.kind]);
        let has_rate = self.limits[key.kind].rate.is_some();
        if is_first && has_rate && !self.is_full(key, lines) {
            until
        } else {
            Uptime::MAX
        }
    }

    fn is_full(&self, key: CeilingKey, lines: &CeilingLines) -> bool {
        let most = self.limits[key.kind].in_flight;
        most.is_some_and(|most| most.get() <= lines.in_flight(key))
    }

    /// Returns about how long the rate makes a request wait behind its line.
    fn wait_behind(&self, key: CeilingKey, lines: &CeilingLines) -> Duration {
        let rate = self.limits[key.kind].rate;
        let pause = rate.map_or(Duration::ZERO, |rate| rate.pause());
        let waiting = u32::try_from(lines.waiting(key)).unwrap_or(u32::MAX);
        pause.saturating_mul(waiting)
    }

    /// Returns about how long the rates make a request wait that comes now.
    pub(super) fn wait(&self, claim: &CeilingClaim) -> Duration {
        if claim.is_empty() {
            return Duration::ZERO;
        }
        let lines = self.lines.lock();
        let keys = claim.keys.into_iter().flatten();
        // The longest, not the sum: time goes by under all rates at once.
        let waits = keys.map(|key| self.wait_behind(key, &lines));
        waits.max().unwrap_or_default()
    }

    /// Forgets the starts that no longer limit anything.
    pub(super) fn sweep(&self, now: Uptime) {
        self.lines.lock().forget_starts(|key, started| {
            let rate = self.limits[key.kind].rate;
            rate.is_none_or(|rate| started.saturating_add(rate.pause()) <= now)
        });
    }

    /// Returns the number of lines that are remembered
    /// ([`CeilingLines::len`]).
    #[cfg(test)]
    pub(super) fn len(&self, busy: bool) -> usize {
        self.lines.lock().len(busy)
    }
}

impl CeilingClaim {
    /// Has the request wait in lines, to be woken by `waker`.
    pub(super) fn wait_with(&mut self, waker: &Arc<Notify>) {
        self.waker = Some(Arc::clone(waker));
    }

    /// Makes the claim anew, for ceilings that replace those of before.
    pub(super) fn renew(&mut self, ceilings: &Ceilings, crawler: Option<&str>, host: &Host) {
        let waker = self.waker.take();
        *self = ceilings.claim(crawler, host, self.address);
        self.waker = waker;
    }

    /// Gives up the request's places, because its host holds it up as well:
    /// those behind it must not wait for that.
    pub(super) fn give_way(&mut self) {
        if self.current.is_some()
            && let Some(lines) = self.lines.clone()
        {
            self.leave_all(&mut lines.lock());
        }
    }

    fn leave_all(&mut self, lines: &mut CeilingLines) {
        self.current = None;
        for key in self.keys.into_iter().flatten() {
            if let Some(place) = self.places[key.kind].take() {
                lines.leave(key, place);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.keys.iter().all(Option::is_none)
    }
}

impl Drop for CeilingClaim {
    fn drop(&mut self) {
        self.give_way();
    }
}

impl Drop for CeilingGuard {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        self.keys
            .into_iter()
            .flatten()
            .for_each(|key| lines.end(key));
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

/// Returns the domain that somebody registered, by the public suffix list; a
/// name below no suffix is its own.
fn registered_domain(host: &Host) -> String {
    match host {
        Host::Name(name) => psl::domain_str(name).unwrap_or(name).to_owned(),
        Host::Address(_) => host.to_string(),
    }
}

#[cfg(test)]
mod tests;
