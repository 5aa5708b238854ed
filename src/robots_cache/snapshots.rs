//! Which snapshots are held, and which are being asked for.
//!
//! RFC 9309, section 2.4. What is held is bounded, and the longest unused goes
//! first; what is being asked for is not in that list, so that it cannot go
//! while somebody waits. How a fetch is made is not known here.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::decision::access::Cause;
use crate::decision::stored_snapshot::CacheKey;
use crate::metrics::{Metrics, ResultLabel};
use crate::robots_cache::answer::{Answer, ReadAnswer};
use crate::robots_cache::held::CacheEntry;
use crate::robots_cache::lifetimes::Lifetimes;
use politesse_robots::Dialect;
use politesse_robots::origin::Host;

/// The snapshots of all origins.
pub(super) struct Snapshots {
    held: Cache<CacheKey, Arc<CacheEntry>>,
    flights: Mutex<HashMap<CacheKey, watch::Sender<State>>>,
    flights_max: NonZeroUsize,
    lifetimes: Lifetimes,
    metrics: Arc<Metrics>,
}

/// How much is held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) snapshots: NonZeroUsize,
    /// Bytes, about.
    pub(super) bytes: usize,
    /// How many are being asked for at most.
    pub(super) flights: NonZeroUsize,
}

/// A fetch, as seen by those who wait for it.
pub(super) type Watched = watch::Receiver<State>;

/// Where a fetch stands.
#[derive(Debug, Clone)]
pub(super) enum State {
    /// It asks the origin.
    Asking,
    /// It waits for its turn at a host.
    InLine {
        /// Which.
        host: Host,
        /// When that comes, probably.
        until: Instant,
    },
    /// It waits for another origin's robots.txt, which a redirect needs.
    Judging,
    /// It came to this.
    Done(Arc<CacheEntry>),
}

impl State {
    /// Whether those who wait for the end have to do something.
    pub(super) fn matters(&self) -> bool {
        matches!(self, Self::InLine { .. } | Self::Done(_))
    }
}

/// Tells those who wait for a fetch where it stands.
pub(super) struct Teller(watch::Sender<State>);

impl Teller {
    pub(super) fn tell(&self, state: State) {
        self.0.send_replace(state);
    }
}

/// What there is of a snapshot.
pub(super) enum Found {
    /// It is in force.
    InForce(Arc<CacheEntry>),
    /// It is being asked for.
    Awaited(Watched),
    /// Nothing, and it is the finder's to ask.
    Wanted(Flight),
    /// Nothing but this of before, and too many are being asked for.
    Full(Option<Arc<CacheEntry>>),
}

impl Snapshots {
    pub(super) fn new(lifetimes: Lifetimes, room: Room, metrics: Arc<Metrics>) -> Self {
        let weights = Weights::new(room);
        // The other policy may turn new entries away, and the fetch was in
        // vain.
        let held = Cache::builder()
            .max_capacity(weights.most)
            .weigher(move |_, held: &Arc<CacheEntry>| weights.of(held))
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Self {
            held,
            flights: Mutex::default(),
            flights_max: room.flights,
            lifetimes,
            metrics,
        }
    }

    pub(super) fn lifetimes(&self) -> &Lifetimes {
        &self.lifetimes
    }

    /// What is held, in force or not.
    pub(super) fn latest(&self, key: &CacheKey) -> Option<Arc<CacheEntry>> {
        self.held.get(key).map(CacheEntry::latest)
    }

    /// What is in force, or the fetch that somebody makes or the finder is to
    /// make; never two at once.
    pub(super) fn find(self: &Arc<Self>, key: &CacheKey) -> Found {
        if let Some(held) = self.in_force(key) {
            return Found::InForce(held);
        }
        let mut flights = self.flights();
        if let Some(state) = flights.get(key) {
            return Found::Awaited(state.subscribe());
        }
        // A fetch may have ended since we looked.
        match self.latest(key) {
            Some(held) if held.is_fresh() => Found::InForce(held),
            earlier if self.flights_max.get() <= flights.len() => Found::Full(earlier),
            earlier => Found::Wanted(self.start(&mut flights, key, earlier)),
        }
    }

    /// The fetch that is due for what is in force, if nobody makes it yet.
    pub(super) fn refresh(
        self: &Arc<Self>,
        key: &CacheKey,
        held: &Arc<CacheEntry>,
    ) -> Option<Flight> {
        if !held.is_due() {
            return None;
        }
        let mut flights = self.flights();
        let replaced = self
            .held
            .get(key)
            .is_none_or(|now| !Arc::ptr_eq(&now, held));
        let full = self.flights_max.get() <= flights.len();
        if full || replaced || flights.contains_key(key) {
            return None;
        }
        let mut flight = self.start(&mut flights, key, Some(Arc::clone(held)));
        flight.is_refresh = true;
        Some(flight)
    }

    /// What is answered where there is no room to ask; it is not held.
    pub(super) fn busy(&self, key: &CacheKey, earlier: Option<&CacheEntry>) -> Arc<CacheEntry> {
        let none = Answer::none(key, Cause::Busy).read(Dialect::default());
        let held = none.hold(key.clone(), &self.lifetimes, earlier);
        self.note(none.word(&held));
        Arc::new(held)
    }

    fn note(&self, result: &'static str) {
        let fetches = &self.metrics.robots_fetches;
        fetches.get_or_create(&ResultLabel { result }).inc();
    }

    /// What is in force, without asking.
    fn in_force(&self, key: &CacheKey) -> Option<Arc<CacheEntry>> {
        self.latest(key).filter(|held| held.is_fresh())
    }

    fn start(
        self: &Arc<Self>,
        flights: &mut HashMap<CacheKey, watch::Sender<State>>,
        key: &CacheKey,
        earlier: Option<Arc<CacheEntry>>,
    ) -> Flight {
        let state = watch::Sender::new(State::Asking);
        flights.insert(key.clone(), state.clone());
        self.metrics.robots_waiting.inc();
        Flight {
            key: key.clone(),
            earlier,
            snapshots: Arc::clone(self),
            state,
            is_refresh: false,
            is_over: false,
        }
    }

    fn take_off(&self, flights: &mut HashMap<CacheKey, watch::Sender<State>>, key: &CacheKey) {
        flights.remove(key);
        self.metrics.robots_waiting.dec();
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<CacheKey, watch::Sender<State>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) {
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let metrics = &self.metrics;
        metrics.robots_snapshots.set(gauge(self.held.entry_count()));
        metrics
            .robots_snapshot_bytes
            .set(gauge(self.held.weighted_size()));
    }

    /// How many are held, once all that is too much has gone.
    #[cfg(test)]
    pub(super) fn len(&self) -> u64 {
        self.held.run_pending_tasks();
        self.held.entry_count()
    }
}

/// The duty to tell those who wait what a fetch came to; dropped without, by a
/// panic or at the end of the runtime, it tells them that it failed.
pub(super) struct Flight {
    pub(super) key: CacheKey,
    /// What is known from before.
    pub(super) earlier: Option<Arc<CacheEntry>>,
    snapshots: Arc<Snapshots>,
    state: watch::Sender<State>,
    is_refresh: bool,
    /// Whether nobody is to be told any more.
    is_over: bool,
}

impl Flight {
    /// Where it stands, for those who want to.
    pub(super) fn watched(&self) -> Watched {
        self.state.subscribe()
    }

    /// Returns once nobody waits for it any more who did; never for a refresh,
    /// which nobody waits for.
    pub(super) async fn abandoned(&self) {
        if self.is_refresh {
            return std::future::pending().await;
        }
        self.state.closed().await;
    }

    /// Ends it without an answer, if still nobody waits.
    pub(super) fn abandon(mut self) -> Result<(), Self> {
        let snapshots = Arc::clone(&self.snapshots);
        let mut flights = snapshots.flights();
        if 0 < self.state.receiver_count() {
            return Err(self);
        }
        snapshots.take_off(&mut flights, &self.key);
        self.is_over = true;
        Ok(())
    }

    /// Tells where it stands on the way.
    pub(super) fn teller(&self) -> Teller {
        Teller(self.state.clone())
    }

    /// Ends with what an answer led to, or with what was kept and still holds.
    pub(super) fn land_on(self, held: &Arc<CacheEntry>) {
        self.put(held);
    }

    /// What an answer leads to.
    pub(super) fn hold(&self, reading: &ReadAnswer) -> Arc<CacheEntry> {
        let lifetimes = &self.snapshots.lifetimes;
        let held = reading.hold(self.key.clone(), lifetimes, self.earlier.as_deref());
        self.snapshots.note(reading.word(&held));
        Arc::new(held)
    }

    /// Held before told, and told before it is off the list: whoever looks
    /// finds one of the three.
    fn put(&self, held: &Arc<CacheEntry>) {
        let snapshots = &self.snapshots;
        snapshots.held.insert(self.key.clone(), Arc::clone(held));
        self.state.send_replace(State::Done(Arc::clone(held)));
        snapshots.take_off(&mut snapshots.flights(), &self.key);
        snapshots.count();
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let is_done = matches!(*self.state.borrow(), State::Done(_));
        if !is_done && !self.is_over {
            let failed = Answer::internal(&self.key);
            self.put(&self.hold(&failed.read(Dialect::default())));
        }
    }
}

/// How snapshots count towards the two limits, in bytes.
#[derive(Debug, Clone, Copy)]
struct Weights {
    /// What all may weigh together.
    most: u64,
    /// What one weighs at least, so that no more fit in than may.
    least: u32,
}

impl Weights {
    fn new(room: Room) -> Self {
        let most = room.bytes.max(room.snapshots.get());
        let least = most / room.snapshots.get();
        Self {
            most: u64::try_from(most).unwrap_or(u64::MAX),
            least: u32::try_from(least).unwrap_or(u32::MAX),
        }
    }

    fn of(self, held: &CacheEntry) -> u32 {
        let bytes = u32::try_from(held.weight()).unwrap_or(u32::MAX);
        bytes.max(self.least)
    }
}
