//! Limit of the product tokens that a client may use at one origin
//! (`robots.max_names`).
//!
//! An origin is asked for its robots.txt once for each product token, so a
//! client that makes up tokens could have it asked without end. Does not know
//! what becomes of a request beyond the limit.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use prometheus_client::metrics::counter::Counter;

use crate::clock::{self, Stamp};
use politesse_robots::crawler::ProductToken;
use politesse_robots::origin::Origin;

/// Time for which a token counts.
const WINDOW: Duration = Duration::from_secs(60 * 60);

/// Pairs of client and origin that are remembered; the least recently used go
/// first. One of the default size takes about a kilobyte.
const SETS_MAX: u64 = 50_000;

/// Counts the product tokens of the last hour, by client and origin.
#[derive(Debug)]
pub struct NameLimiter {
    most: NonZeroUsize,
    /// Windows by the hash of client and origin. Two pairs of one hash, should
    /// they ever meet, share their tokens; a pair as the key would be copied for
    /// each request.
    seen: Cache<u64, Arc<NameWindow>>,
    hasher: RandomState,
    refused: Counter,
}

/// Product tokens of one client at one origin.
#[derive(Debug)]
struct NameWindow {
    since: Stamp,
    /// Hashes of the tokens: a client that makes them up must not fill the
    /// memory with them. Two tokens of one hash, should they ever meet, count
    /// once.
    names: Mutex<HashSet<u64>>,
}

impl NameWindow {
    fn new() -> Self {
        Self {
            since: Stamp::now(),
            names: Mutex::default(),
        }
    }
}

impl NameLimiter {
    /// Creates a limit of `most` tokens; `refused` counts what is beyond it.
    pub fn new(most: NonZeroUsize, refused: Counter) -> Self {
        Self {
            most,
            seen: Cache::builder()
                .max_capacity(SETS_MAX)
                // moka's default policy may reject the newest entry, whose
                // tokens would not be counted then.
                .eviction_policy(EvictionPolicy::lru())
                .time_to_live(WINDOW)
                .build(),
            hasher: RandomState::new(),
            refused,
        }
    }

    /// Admits `name` as one of the tokens that `client` uses at `origin`.
    ///
    /// # Errors
    ///
    /// The time at which its tokens are counted anew, if this is one too many.
    pub fn admit(
        &self,
        client: IpAddr,
        origin: &Origin,
        name: &ProductToken,
    ) -> Result<(), Timestamp> {
        let key = self.hasher.hash_one((client, origin));
        // The cache expires by the monotonic clock alone. Where the wall clock
        // is an hour further, the machine slept meanwhile.
        let known = self.seen.get(&key);
        let seen = match known.filter(|seen| seen.since.age() < WINDOW) {
            Some(seen) => seen,
            // In one step: another request may have begun the window meanwhile.
            None => {
                let is_over = |seen: &Arc<NameWindow>| WINDOW <= seen.since.age();
                let begin = || Arc::new(NameWindow::new());
                let begun = self.seen.entry(key).or_insert_with_if(begin, is_over);
                begun.into_value()
            }
        };
        let hash = self.hasher.hash_one(name);
        let mut names = seen.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.contains(&hash) {
            return Ok(());
        }
        if self.most.get() <= names.len() {
            self.refused.inc();
            return Err(clock::now() + WINDOW.saturating_sub(seen.since.age()));
        }
        names.insert(hash);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(names: &NameLimiter, client: u8, origin: &str, name: &str) -> Result<(), Timestamp> {
        let origin = origin
            .parse::<politesse_robots::origin::Target>()
            .unwrap()
            .origin;
        let name = ProductToken::new(name).unwrap();
        names.admit([127, 0, 0, client].into(), &origin, &name)
    }

    fn admitted(names: &NameLimiter, client: u8, origin: &str, name: &str) -> bool {
        admit(names, client, origin, name).is_ok()
    }

    // Ours.
    #[test]
    fn names_are_counted_by_client_and_origin_each_once() {
        let names = NameLimiter::new(NonZeroUsize::new(2).unwrap(), Counter::default());
        for (client, origin, name, expected) in [
            (1, "http://a.test/", "A", true),
            (1, "http://a.test/", "B", true),
            (1, "http://a.test/", "C", false),
            (1, "http://a.test/", "a", true),
            (1, "https://a.test/", "C", true),
            (2, "http://a.test/", "C", true),
            (1, "http://a.test/", "C", false),
        ] {
            assert_eq!(
                admitted(&names, client, origin, name),
                expected,
                "{origin} {name}"
            );
        }
        assert_eq!(names.refused.get(), 2);
    }

    // Ours: requests that come at once are in one window.
    #[test]
    fn names_that_come_at_once_are_counted_together() {
        let names = NameLimiter::new(NonZeroUsize::MIN, Counter::default());
        for round in 0..500 {
            let origin = format!("http://{round}.test/");
            let start = std::sync::Barrier::new(4);
            let admit = &|name: &str| {
                start.wait();
                admitted(&names, 1, &origin, name)
            };
            let count = std::thread::scope(|scope| {
                let threads = ["A", "B", "C", "D"].map(|name| scope.spawn(move || admit(name)));
                threads.map(|thread| usize::from(thread.join().unwrap()))
            });
            assert_eq!(count.iter().sum::<usize>(), 1, "round {round}");
        }
    }

    // Ours: the hour is over by either clock.
    #[test]
    fn names_are_counted_anew_after_an_hour_of_the_wall_clock() {
        let names = NameLimiter::new(NonZeroUsize::MIN, Counter::default());
        assert!(admitted(&names, 1, "http://a.test/", "A"));
        assert!(!admitted(&names, 1, "http://a.test/", "B"));
        clock::tests::set_wall_by(jiff::SignedDuration::from_hours(1));
        assert!(admitted(&names, 1, "http://a.test/", "B"));
    }

    // Ours: a crawler must not be told to stay away until the clock is back.
    #[test]
    fn names_are_counted_anew_within_the_hour_by_a_clock_that_was_set_back() {
        let names = NameLimiter::new(NonZeroUsize::MIN, Counter::default());
        assert!(admitted(&names, 1, "http://a.test/", "A"));
        clock::tests::set_wall_by(jiff::SignedDuration::from_hours(-1000));
        let until = admit(&names, 1, "http://a.test/", "B").unwrap_err();
        assert!(until <= clock::now() + WINDOW);
    }
}
