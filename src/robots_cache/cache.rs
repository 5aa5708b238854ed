//! The snapshots in force: what each origin said, asked once for all who wait.
//!
//! RFC 9309, sections 2.3.1 and 2.4. A snapshot belongs to an origin and to
//! the product token it was fetched for: no crawler is judged by the file that
//! another was given. With a fixed `robots.user_agent` that one's token counts
//! for all.
//!
//! Invariant 4: not knowing means no. Whatever keeps a fetch from its answer,
//! a panic of our own included, is a snapshot that disallows.

mod asking;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use crate::clock;
use crate::decision::access::{Cause, Snapshot};
use crate::decision::decide::{Inquiry, Policy};
use crate::decision::stored_snapshot::CacheKey;
use crate::metrics::Metrics;
use crate::robots_cache::answer::Answer;
use crate::robots_cache::fetch::{Asker, FetchRobots, HttpFetcher};
use crate::robots_cache::held::CacheEntry;
use crate::robots_cache::places::Places;
use crate::robots_cache::ready::{read, ready};
use crate::robots_cache::snapshots::{Flight, Found, Room, Snapshots, State, Watched};
use crate::robots_cache::store::KeepRobots;
use crate::robots_cache::trail::Trail;
use crate::throttle::REPEATING;
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Host;

pub use crate::robots_cache::options::{Options, UserAgent};

/// The longest wait for what a store keeps, its queue after a restart included;
/// without it the origin is asked.
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The snapshots of all origins, bounded; the longest unused go first.
pub struct RobotsCache<F = HttpFetcher> {
    shared: Arc<Shared<F>>,
}

/// What the tasks that fetch need as well.
struct Shared<F> {
    options: Options,
    /// In whose name all are asked, where it is not the crawler's.
    named: Option<Client>,
    /// By what the pages that redirects lead to are judged: where nobody asked
    /// for them, they are not followed in doubt.
    policy: ArcSwap<Policy>,
    fetcher: F,
    store: Arc<dyn KeepRobots>,
    snapshots: Arc<Snapshots>,
    places: Places,
    tracker: TaskTracker,
}

/// What is known for an inquiry.
#[derive(Debug)]
pub struct Known {
    /// What holds.
    pub snapshot: Arc<Snapshot>,
    /// Whether the origin had to be asked first.
    pub was_asked: bool,
    /// How long the fetch waited for turns meanwhile.
    pub waited: Duration,
    /// The host at which that would have been too long, and how much longer,
    /// probably: nothing is known then.
    pub too_long: Option<(Host, Duration)>,
}

impl Known {
    fn at_once(held: &CacheEntry) -> Self {
        Self {
            snapshot: Arc::clone(&held.snapshot),
            was_asked: false,
            waited: Duration::ZERO,
            too_long: None,
        }
    }
}

/// For whom a fetch is made.
#[derive(Debug, Clone)]
struct Client {
    crawler: Crawler,
    asker: Asker,
}

impl UserAgent {
    fn named(&self) -> Option<Client> {
        let Self::Fixed(agent) = self else {
            return None;
        };
        let asker = Asker {
            client: None,
            user_agent: HeaderValue::from_str(agent).ok(),
            from: None,
        };
        Some(Client {
            crawler: Crawler::parse(agent),
            asker,
        })
    }
}

/// How long somebody waits for turns, and did until now.
struct Patience {
    left: Duration,
    waited: Duration,
}

impl Patience {
    /// Waits until a fetch has the turn that comes at `until`, probably; whether
    /// it did, with somebody still there.
    async fn lasts(
        &mut self,
        (watched, until): (&mut Watched, Instant),
        gone: impl Future<Output = ()>,
    ) -> bool {
        let begun = clock::instant();
        if self.left < until.saturating_duration_since(begun) {
            return false;
        }
        let goes_on = seen(watched, |state| !matches!(state, State::InLine { .. }));
        let lasts = tokio::select! {
            biased;
            in_time = timeout(self.left, goes_on) => in_time.is_ok(),
            () = gone => false,
        };
        let waited = clock::instant().duration_since(begun);
        self.waited += waited;
        self.left = self.left.saturating_sub(waited);
        lasts
    }
}

/// Where a fetch stands once `of` holds of that; nothing if it never will.
async fn seen(watched: &mut Watched, of: impl Fn(&State) -> bool) -> Option<State> {
    let state = watched.wait_for(of).await.ok()?;
    Some(state.clone())
}

/// A snapshot, or the fetch that it will come from.
enum Sought {
    InForce(Arc<CacheEntry>),
    Awaited(Watched),
}

impl<F: FetchRobots> RobotsCache<F> {
    /// A cache that holds nothing yet but what is in `store`, and whose fetches
    /// run in tasks of `tracker`.
    pub fn new(
        options: Options,
        (fetcher, store): (F, Arc<dyn KeepRobots>),
        metrics: Arc<Metrics>,
        tracker: TaskTracker,
    ) -> Self {
        let room = Room {
            snapshots: options.max_snapshots,
            bytes: options.max_snapshot_bytes,
            flights: options.max_waiting,
        };
        let snapshots = Snapshots::new(options.lifetimes(), room, Arc::clone(&metrics));
        let shared = Shared {
            policy: ArcSwap::from_pointee(options.policy.for_redirects()),
            fetcher,
            store,
            snapshots: Arc::new(snapshots),
            places: Places::new(options.places(), metrics),
            named: options.user_agent.named(),
            options,
            tracker,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// What the origin of an inquiry said to its crawler: the snapshot in
    /// force, or that of one fetch which all who ask meanwhile share.
    ///
    /// Never fails, and takes little longer than `robots.timeout`; twice that
    /// where so many fetches are under way that it has to wait for a place.
    /// While the fetch waits for its turn at a host, whoever asked is let go
    /// when his patience is over, or will not do, or when he is `gone`. Dropped,
    /// it takes nothing from the others who wait.
    pub async fn snapshot(
        &self,
        inquiry: &Inquiry,
        asker: &Asker,
        (patience, gone): (Duration, impl Future<Output = ()>),
    ) -> Known {
        let mut gone = pin!(gone);
        let shared = &self.shared;
        let key = shared.key(inquiry);
        let client = || shared.client(&inquiry.crawler, asker);
        let mut watched = match shared.seek(&key, client) {
            Sought::InForce(held) => return Known::at_once(&held),
            Sought::Awaited(watched) => watched,
        };
        let mut patience = Patience {
            left: patience,
            waited: Duration::ZERO,
        };
        let known = loop {
            match seen(&mut watched, State::matters).await {
                Some(State::Done(held)) => break Known::at_once(&held),
                Some(State::InLine { host, until }) => {
                    if !patience.lasts((&mut watched, until), &mut gone).await {
                        let left = until.saturating_duration_since(clock::instant());
                        break Known {
                            too_long: Some((host, left)),
                            ..Known::at_once(&shared.failed(&key, Cause::Busy))
                        };
                    }
                }
                Some(State::Asking | State::Judging) | None => {
                    break Known::at_once(&shared.failed(&key, Cause::Internal));
                }
            }
        };
        Known {
            was_asked: true,
            waited: patience.waited,
            ..known
        }
    }

    /// Judges where redirects lead by another policy from now on. The dialect
    /// stays: what is held was read by it.
    pub fn judge_by(&self, policy: &Policy) {
        self.shared.policy.store(Arc::new(policy.for_redirects()));
    }

    /// What is in force for an inquiry that was decided by `before`: that, or
    /// what came in its place; nothing if the origin has to be asked.
    pub fn still(&self, inquiry: &Inquiry, before: &Arc<Snapshot>) -> Option<Arc<Snapshot>> {
        let key = self.shared.key(inquiry);
        match self.shared.snapshots.latest(&key) {
            Some(held) => held.is_fresh().then(|| Arc::clone(&held.snapshot)),
            // Gone for lack of room, which makes it no less true.
            None => (clock::now() < before.expires_at).then(|| Arc::clone(before)),
        }
    }
}

impl<F: FetchRobots> Shared<F> {
    fn key(&self, inquiry: &Inquiry) -> CacheKey {
        let named = self.named.as_ref();
        let asker = named.map_or(&inquiry.crawler, |named| &named.crawler);
        CacheKey {
            origin: inquiry.target.origin.clone(),
            token: asker.token().cloned(),
        }
    }

    /// What is held to where there is no answer.
    fn failed(&self, key: &CacheKey, cause: Cause) -> CacheEntry {
        let none = Answer::none(key, cause).read(self.policy.load().dialect());
        none.hold(key.clone(), self.snapshots.lifetimes(), None)
    }

    fn client(&self, crawler: &Crawler, asker: &Asker) -> Client {
        let named = self.named.as_ref();
        let said = named.map_or(asker, |named| &named.asker);
        Client {
            crawler: crawler.clone(),
            asker: Asker {
                client: asker.client,
                ..said.clone()
            },
        }
    }

    /// The snapshot in force, else a fetch; and a fetch behind it where its end
    /// is near, so that nobody waits for it again.
    fn seek(self: &Arc<Self>, key: &CacheKey, client: impl FnOnce() -> Client) -> Sought {
        match self.snapshots.find(key) {
            Found::InForce(held) => {
                if let Some(flight) = self.snapshots.refresh(key, &held) {
                    self.start(flight, client());
                }
                Sought::InForce(held)
            }
            Found::Awaited(watched) => Sought::Awaited(watched),
            Found::Wanted(flight) => Sought::Awaited(self.start(flight, client())),
            Found::Full(earlier) => {
                let held = self.snapshots.busy(key, earlier.as_deref());
                Sought::InForce(held)
            }
        }
    }

    /// Starts a fetch in a task of its own, which a crawler that hangs up does
    /// not end.
    fn start(self: &Arc<Self>, flight: Flight, client: Client) -> Watched {
        let watched = flight.watched();
        self.tracker.spawn(Arc::clone(self).fetch(flight, client));
        watched
    }

    async fn fetch(self: Arc<Self>, mut flight: Flight, client: Client) {
        let mut blind = false;
        if flight.earlier.is_none() {
            let loaded = self.load_in_time(&flight.key, &client).await;
            blind = loaded.is_err();
            flight.earlier = loaded.ok().flatten();
            if let Some(held) = flight.earlier.clone().filter(|held| held.is_fresh()) {
                return flight.land_on(&held);
            }
        }
        let mut trail = Trail::new(flight.key.origin.robots_txt());
        let Some((flight, leave)) = self.in_turn(flight, &client).await else {
            return;
        };
        let result = match leave {
            Some(leave) => self.ask((&mut trail, leave), &flight, &client).await,
            None => Err(Cause::Busy),
        };
        let answer = trail.answer(result);
        let failed = Answer::internal(&flight.key);
        let policy = self.policy.load_full();
        let reading = match read(answer, &policy, &client.crawler).await {
            Some(reading) => reading,
            None => failed.read(policy.dialect()),
        };
        let held = flight.hold(&reading);
        // What was not seen may be a copy, which is worth more than no answer.
        let saved = !blind || held.is_answer();
        // In the store's queue before there can be a decision by it, if there is
        // room.
        let saving = saved.then(|| self.store.save(held.kept()));
        flight.land_on(&held);
        if let Some(saving) = saving {
            saving.await;
        }
    }

    /// What the store has, unless it takes too long to say so.
    async fn load_in_time(
        &self,
        key: &CacheKey,
        client: &Client,
    ) -> Result<Option<Arc<CacheEntry>>, Elapsed> {
        let loaded = timeout(LOAD_TIMEOUT, self.load(key, client)).await;
        if loaded.is_err() {
            tracing::warn!(target: REPEATING, origin = %key.origin, "what is kept of a robots.txt was not read in time");
        }
        loaded
    }

    /// What the store has, ready for use.
    async fn load(&self, key: &CacheKey, client: &Client) -> Option<Arc<CacheEntry>> {
        let policy = self.policy.load_full();
        let kept = self.store.load(key, policy.dialect()).await?;
        let kept = ready(kept, &policy, &client.crawler).await?;
        Some(Arc::new(CacheEntry::restored(
            &kept,
            self.snapshots.lifetimes(),
        )))
    }
}

impl<F> fmt::Debug for RobotsCache<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RobotsCache")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
