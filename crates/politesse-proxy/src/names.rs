//! Limit of the product tokens that a client may use at one origin
//! (`robots.max_names`).
//!
//! An origin is asked for its robots.txt once for each product token, so a
//! client that makes up tokens could have it asked without end. Does not know
//! what becomes of a request beyond the limit.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::mem;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;

use politesse_base::clients::client::ClientId;
use politesse_base::clock::{self, Stamp};
use politesse_robots::crawler::ProductToken;
use politesse_robots::origin::Origin;

/// Time for which a token counts.
const WINDOW: Duration = Duration::from_secs(60 * 60);

/// Pairs of client and origin that are remembered; those that were not used for
/// longest go first. One of the default size takes about a kilobyte.
const PAIRS_MAX: usize = 50_000;

/// Bits of a hash that choose a part of the table. Each part has a lock of its
/// own, which a request holds for a fraction of a microsecond.
const SHARD_BITS: u32 = 4;
const SHARDS: usize = 1 << SHARD_BITS;

/// Counts the product tokens of the last hour, by client and origin.
#[derive(Debug)]
pub struct NameLimiter {
    most: NonZeroUsize,
    shards: [Mutex<WindowTable>; SHARDS],
    hasher: RandomState,
    refused: Counter,
}

/// Windows by the hash of client and origin. Two pairs of one hash, should they
/// ever meet, share their tokens; a pair as the key would be copied for each
/// request.
///
/// In two generations, so that nothing has to be moved at a request: what is
/// used is in the young one, and what was not used since the last change of
/// generations goes with the next.
#[derive(Debug)]
struct WindowTable {
    // Sorted, since the keys are hashes already: a hash map would hash them once more.
    young: BTreeMap<u64, NameWindow>,
    old: BTreeMap<u64, NameWindow>,
    /// Begin of the young generation.
    since: Stamp,
    /// Whether the young generation was old enough to change when it was looked
    /// at last, so that the memory of a crawl that has moved on is given back.
    is_over: bool,
}

/// Product tokens of one client at one origin.
#[derive(Debug)]
struct NameWindow {
    since: Stamp,
    /// Hashes of the tokens: a client that makes them up must not fill the
    /// memory with them. Two tokens of one hash, should they ever meet, count
    /// once.
    names: BTreeSet<u64>,
}

impl NameWindow {
    fn new() -> Self {
        Self {
            since: Stamp::now(),
            names: BTreeSet::new(),
        }
    }
}

impl Default for WindowTable {
    fn default() -> Self {
        Self {
            young: BTreeMap::new(),
            old: BTreeMap::new(),
            since: Stamp::now(),
            is_over: false,
        }
    }
}

impl WindowTable {
    /// Returns the window of a pair, which begins now if there is none. At most
    /// `pairs_max` are remembered.
    fn window(&mut self, pair: u64, pairs_max: usize) -> &mut NameWindow {
        if self.is_over || pairs_max <= self.young.len() * 2 {
            let young = mem::take(&mut self.young);
            *self = Self {
                old: young,
                ..Self::default()
            };
        }
        match self.young.entry(pair) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                self.is_over = WINDOW <= self.since.age();
                let before = self.old.remove(&pair);
                place.insert(before.unwrap_or_else(NameWindow::new))
            }
        }
    }
}

impl NameLimiter {
    /// Creates a limit of `most` tokens; `refused` counts what is beyond it.
    pub fn new(most: NonZeroUsize, refused: Counter) -> Self {
        Self {
            most,
            shards: Default::default(),
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
        client: &ClientId,
        origin: &Origin,
        name: &ProductToken,
    ) -> Result<(), Timestamp> {
        let pair = self.hasher.hash_one((client, origin));
        let hash = self.hasher.hash_one(name);
        let place = usize::try_from(pair >> (u64::BITS - SHARD_BITS)).unwrap_or(0);
        let mut table = self.shards[place]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let window = table.window(pair, PAIRS_MAX / SHARDS);
        if window.names.contains(&hash) {
            return Ok(());
        }
        // A window that is over ends with the next new token: without one, nobody
        // makes up tokens.
        if WINDOW <= window.since.age() {
            *window = NameWindow::new();
        }
        if self.most.get() <= window.names.len() {
            self.refused.inc();
            return Err(clock::now() + WINDOW.saturating_sub(window.since.age()));
        }
        window.names.insert(hash);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn admit(names: &NameLimiter, client: u8, origin: &str, name: &str) -> Result<(), Timestamp> {
        let origin = origin
            .parse::<politesse_robots::origin::Target>()
            .unwrap()
            .origin;
        let name = ProductToken::new(name).unwrap();
        names.admit(&IpAddr::from([127, 0, 0, client]).into(), &origin, &name)
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

    // Ours: a pair in use is not forgotten for others.
    #[test]
    fn pairs_are_bounded_and_those_in_use_stay() {
        let mut table = WindowTable::default();
        table.window(0, 8).names.insert(1);
        for pair in 1..1000 {
            table.window(pair, 8);
            assert!(table.window(0, 8).names.contains(&1), "{pair}");
            assert!(table.young.len() + table.old.len() <= 8, "{pair}");
        }
    }

    // Ours: a crawl that has moved on leaves no memory behind.
    #[test]
    fn pairs_of_hours_ago_are_forgotten() {
        let mut table = WindowTable::default();
        table.window(0, 1000);
        for pair in 1..5 {
            politesse_base::testing::set_wall_by(jiff::SignedDuration::from_hours(1));
            table.window(pair, 1000);
        }
        assert!(!table.young.contains_key(&0) && !table.old.contains_key(&0));
    }

    // Ours: the hour is over by either clock.
    #[test]
    fn names_are_counted_anew_after_an_hour_of_the_wall_clock() {
        let names = NameLimiter::new(NonZeroUsize::MIN, Counter::default());
        assert!(admitted(&names, 1, "http://a.test/", "A"));
        assert!(!admitted(&names, 1, "http://a.test/", "B"));
        politesse_base::testing::set_wall_by(jiff::SignedDuration::from_hours(1));
        assert!(admitted(&names, 1, "http://a.test/", "B"));
    }

    // Ours: a crawler must not be told to stay away until the clock is back.
    #[test]
    fn names_are_counted_anew_within_the_hour_by_a_clock_that_was_set_back() {
        let names = NameLimiter::new(NonZeroUsize::MIN, Counter::default());
        assert!(admitted(&names, 1, "http://a.test/", "A"));
        politesse_base::testing::set_wall_by(jiff::SignedDuration::from_hours(-1000));
        let until = admit(&names, 1, "http://a.test/", "B").unwrap_err();
        assert!(until <= clock::now() + WINDOW);
    }
}
