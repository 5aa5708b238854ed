//! The operator's limits over many hosts: for a crawler, for a registered
//! domain, for an address, and in all (`pace.crawler`, `.domain`, `.address`,
//! `.total`).
//!
//! Rates are governor's, without a burst: "20/m" is one each three seconds, so
//! that no minute has more than twenty. What a host itself asks for is not
//! known here.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use tokio::time::Instant;

use crate::clock;
use crate::rules::origin::Host;
use crate::rules::pace::options::Options;
use crate::rules::pace::schedule::Moment;
use crate::rules::pace::terms::Ceilings as Limits;

/// Names are told apart by this many numbers: whoever makes up more of them
/// shares one with somebody, which lets neither do more.
const KEYS: u64 = 1 << 18;

/// When to look again whether fewer are under way. Who ends one does not know
/// who waits for it at which host.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How many kinds of ceiling there are.
const KINDS: usize = 4;

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
    over: [Over; KINDS],
    hasher: RandomState,
}

/// The ceiling over one kind of thing.
#[derive(Debug)]
struct Over {
    limits: Limits,
    rate: Option<Limiter>,
    under_way: Mutex<HashMap<u32, u32>>,
}

/// Under which ceilings a request comes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Keys([Option<u32>; KINDS]);

/// The rates that a request has passed already: it is counted once, however
/// often it is held up by the others.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Passed([bool; KINDS]);

/// A request under way, as ceilings count it.
#[derive(Debug)]
pub(super) struct Held {
    ceilings: Arc<Ceilings>,
    keys: Keys,
}

impl Ceilings {
    pub(super) fn new(options: &Options, ticks: &Ticks) -> Arc<Self> {
        let all = [
            options.crawler,
            options.domain,
            options.address,
            options.total,
        ];
        let over = all.map(|limits| Over {
            limits,
            rate: limits.rate.and_then(|rate| {
                let quota = Quota::with_period(rate.pause())?;
                Some(Limiter::hashmap_with_clock(quota, ticks.clone()))
            }),
            under_way: Mutex::default(),
        });
        let hasher = RandomState::new();
        Arc::new(Self { over, hasher })
    }

    /// Whether these are the ceilings of other options too.
    pub(super) fn are_of(&self, options: &Options) -> bool {
        let all = [
            options.crawler,
            options.domain,
            options.address,
            options.total,
        ];
        self.over
            .iter()
            .zip(all)
            .all(|(over, limits)| over.limits == limits)
    }

    /// The ceilings over a request.
    pub(super) fn keys(&self, crawler: &str, host: &Host, address: Option<IpAddr>) -> Keys {
        let mut keys = Keys::default();
        for (kind, over) in self.over.iter().enumerate() {
            if over.limits.are_none() {
                continue;
            }
            keys.0[kind] = match kind {
                0 => Some(self.number(crawler)),
                1 => Some(self.number(&registered_domain(host))),
                2 => address.map(|address| self.number(&address)),
                _ => Some(0),
            };
        }
        keys
    }

    fn number(&self, name: &(impl std::hash::Hash + ?Sized)) -> u32 {
        let number = self.hasher.hash_one(name) % KEYS;
        u32::try_from(number).unwrap_or(0)
    }

    /// Counts a request in, if all ceilings let it start at `now`.
    ///
    /// # Errors
    ///
    /// When to ask again.
    pub(super) fn pass(
        self: &Arc<Self>,
        keys: Keys,
        passed: &mut Passed,
        now: Moment,
    ) -> Result<Option<Held>, Moment> {
        if keys.0.iter().all(Option::is_none) {
            return Ok(None);
        }
        let mut held = Held {
            ceilings: Arc::clone(self),
            keys: Keys::default(),
        };
        for (kind, key) in keys.0.into_iter().enumerate() {
            let Some(key) = key else { continue };
            if !self.over[kind].take(key) {
                return Err(now.saturating_add(LOOK_AGAIN));
            }
            held.keys.0[kind] = Some(key);
        }
        for (kind, key) in keys.0.into_iter().enumerate() {
            let Some(key) = key.filter(|_| !passed.0[kind]) else {
                continue;
            };
            if let Some(rate) = &self.over[kind].rate {
                rate.check_key(&key)
                    .map_err(|not| not.earliest_possible())?;
            }
            passed.0[kind] = true;
        }
        Ok(Some(held))
    }

    /// Forgets what no longer limits anything.
    pub(super) fn sweep(&self) {
        for rate in self.over.iter().filter_map(|over| over.rate.as_ref()) {
            rate.retain_recent();
            rate.shrink_to_fit();
        }
    }
}

impl Over {
    /// Whether one more may be under way; if so it is.
    fn take(&self, key: u32) -> bool {
        let Some(most) = self.limits.in_flight else {
            return true;
        };
        let mut under_way = self.under_way();
        let own = under_way.entry(key).or_default();
        let may = *own < most.get();
        *own += u32::from(may);
        may
    }

    fn end(&self, key: u32) {
        if self.limits.in_flight.is_none() {
            return;
        }
        let mut under_way = self.under_way();
        let left = under_way.get(&key).map_or(0, |own| own.saturating_sub(1));
        if left == 0 {
            under_way.remove(&key);
        } else {
            under_way.insert(key, left);
        }
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<u32, u32>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for (over, key) in self.ceilings.over.iter().zip(self.keys.0) {
            if let Some(key) = key {
                over.end(key);
            }
        }
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
