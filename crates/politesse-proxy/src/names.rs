//! Limit on the product tokens that a client may use at one origin (`robots.max_names`).
//!
//! Each product token causes one robots.txt request to the origin, so a client that
//! invents tokens could cause any number of them. Does not know how a request beyond the
//! limit is answered.

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

/// Length of the window in which tokens are counted.
const WINDOW: Duration = Duration::from_secs(60 * 60);

/// Maximum number of tracked pairs of client and origin. The least recently used are
/// dropped first. A pair with the default limit takes about a kilobyte.
const PAIRS_MAX: usize = 50_000;

/// Number of hash bits that select a shard of the table. Each shard has its own lock,
/// which a request holds for a fraction of a microsecond.
const SHARD_BITS: u32 = 4;
const SHARDS: usize = 1 << SHARD_BITS;

/// Counts the product tokens of the last hour by client and origin.
#[derive(Debug)]
pub struct NameLimiter {
    /// Maximum number of tokens of a client at an origin (`robots.max_names`).
    names_max: NonZeroUsize,
    shards: [Mutex<WindowTable>; SHARDS],
    /// Hashes pairs of client and origin, and tokens.
    hasher: RandomState,
    /// Counts the refused tokens.
    refused: Counter,
}

/// Windows by the hash of client and origin. Two pairs with equal hashes would share
/// their tokens; a full pair as the key would have to be copied for each request.
///
/// Entries are kept in two generations, so that a request never moves the whole table: a
/// used entry is in the young generation. Entries not used since the last change of
/// generations are dropped at the next one.
#[derive(Debug)]
struct WindowTable {
    /// Windows used since `since`.
    // A sorted map, because a hash map would hash the keys again, which are hashes
    // already.
    young: BTreeMap<u64, NameWindow>,
    /// Windows of the generation before, not used since.
    old: BTreeMap<u64, NameWindow>,
    /// Start of the young generation.
    since: Stamp,
    /// Whether the young generation was too old at the last insertion. Makes the table
    /// release the memory of finished crawls.
    is_over: bool,
}

/// Product tokens of one client at one origin.
#[derive(Debug)]
struct NameWindow {
    /// Start of the hour.
    since: Stamp,
    /// Hashes of the tokens, so that a client cannot fill the memory with long invented
    /// ones. Two tokens with equal hashes would count once.
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
    /// Returns the window of a pair, and starts one if the pair is not tracked. At most
    /// `pairs_max` pairs are tracked.
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
            Entry::Vacant(vacant) => {
                self.is_over = WINDOW <= self.since.age();
                let before = self.old.remove(&pair);
                vacant.insert(before.unwrap_or_else(NameWindow::new))
            }
        }
    }
}

impl NameLimiter {
    /// Creates a limiter for `names_max` tokens; `refused` counts the requests beyond it.
    pub fn new(names_max: NonZeroUsize, refused: Counter) -> Self {
        Self {
            names_max,
            shards: Default::default(),
            hasher: RandomState::new(),
            refused,
        }
    }

    /// Admits `name` as one of the tokens of `client` at `origin`.
    ///
    /// # Errors
    ///
    /// The time at which a new window starts, if the limit is reached.
    pub fn admit(
        &self,
        client: &ClientId,
        origin: &Origin,
        name: &ProductToken,
    ) -> Result<(), Timestamp> {
        let pair = self.hasher.hash_one((client, origin));
        let hash = self.hasher.hash_one(name);
        let shard = usize::try_from(pair >> (u64::BITS - SHARD_BITS)).unwrap_or(0);
        let mut table = self.shards[shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let window = table.window(pair, PAIRS_MAX / SHARDS);
        if window.names.contains(&hash) {
            return Ok(());
        }
        // An expired window is only replaced at the next new token: until then the client
        // invents none.
        if WINDOW <= window.since.age() {
            *window = NameWindow::new();
        }
        if self.names_max.get() <= window.names.len() {
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
    fn each_name_counts_once_per_client_and_origin() {
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

    // Ours: concurrent requests share one window.
    #[test]
    fn concurrent_names_are_counted_together() {
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

    // Ours: a pair in use is not evicted in favour of others.
    #[test]
    fn pairs_are_bounded_and_used_ones_are_kept() {
        let mut table = WindowTable::default();
        table.window(0, 8).names.insert(1);
        for pair in 1..1000 {
            table.window(pair, 8);
            assert!(table.window(0, 8).names.contains(&1), "{pair}");
            assert!(table.young.len() + table.old.len() <= 8, "{pair}");
        }
    }

    // Ours: the memory of a finished crawl is released.
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

    // Ours: the window ends by either clock.
    #[test]
    fn a_new_window_starts_after_an_hour_of_wall_clock_time() {
        let names = NameLimiter::new(NonZeroUsize::MIN, Counter::default());
        assert!(admitted(&names, 1, "http://a.test/", "A"));
        assert!(!admitted(&names, 1, "http://a.test/", "B"));
        politesse_base::testing::set_wall_by(jiff::SignedDuration::from_hours(1));
        assert!(admitted(&names, 1, "http://a.test/", "B"));
    }

    // Ours: a crawler must not have to wait until a clock that was set back catches up.
    #[test]
    fn a_clock_set_back_does_not_extend_the_window() {
        let names = NameLimiter::new(NonZeroUsize::MIN, Counter::default());
        assert!(admitted(&names, 1, "http://a.test/", "A"));
        politesse_base::testing::set_wall_by(jiff::SignedDuration::from_hours(-1000));
        let until = admit(&names, 1, "http://a.test/", "B").unwrap_err();
        assert!(until <= clock::now() + WINDOW);
    }
}
