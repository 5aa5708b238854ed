//! The snapshots in force: what each origin said, asked once for all who wait.
//!
//! RFC 9309, sections 2.3.1 and 2.4. A snapshot belongs to an origin and to
//! the product token it was fetched for: no crawler is judged by the file that
//! another was given. With a fixed `robots.user_agent` that one's token counts
//! for all.
//!
//! Invariant 4: not knowing means no. Whatever keeps a fetch from its answer,
//! a panic of our own included, is a snapshot that disallows.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::location::redirect_target;
use super::robots_answer::Answer;
use super::robots_fetch::{Asker, FetchRobots, Hop, HttpFetcher, RobotsQuery};
use super::robots_held::Held;
use super::robots_places::{Place, Places};
use super::robots_ready::{read, ready};
use super::robots_snapshots::{Flight, Found, Room, Snapshots, State, Watched};
use super::robots_store::KeepRobots;
use super::robots_trail::Trail;
use crate::clock;
use crate::metrics::Metrics;
use crate::rules::crawler::Crawler;
use crate::rules::decision::{Inquiry, Policy, RobotsPermit, Verdict, decide};
use crate::rules::origin::{ROBOTS_TXT, Target};
use crate::rules::robots::access::{Cause, Snapshot, StatusMeaning, status_meaning};
use crate::rules::robots::kept::Whose;

pub use super::robots_options::{Options, UserAgent};

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

/// What a fetch needs to ask a host.
struct Leave<'a, F: FetchRobots> {
    turn: F::Turn,
    place: Place<'a>,
}

/// Where one request of a fetch led.
enum Step {
    /// To the answer.
    End(Hop),
    /// To another URL.
    On(RobotsPermit),
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

/// A snapshot, or the fetch that it will come from.
enum Sought {
    InForce(Arc<Held>),
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
            octets: options.max_snapshot_bytes,
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
    /// where so many fetches are under way that it has to wait for a place. A
    /// host's pace may let each of its requests wait for its turn, besides.
    /// Dropped, it takes nothing from the others who wait.
    pub async fn snapshot(&self, inquiry: &Inquiry, asker: &Asker) -> Arc<Snapshot> {
        let shared = &self.shared;
        let whose = shared.whose(inquiry);
        let client = || shared.client(&inquiry.crawler, asker);
        let mut watched = match shared.seek(&whose, client) {
            Sought::InForce(held) => return Arc::clone(&held.snapshot),
            Sought::Awaited(watched) => watched,
        };
        let done = watched.wait_for(|state| matches!(state, State::Done(_)));
        match done.await.as_deref() {
            Ok(State::Done(held)) => Arc::clone(&held.snapshot),
            Ok(State::Asking | State::Judging) | Err(_) => {
                let failed = Answer::internal(&whose).read(shared.policy.load().dialect());
                failed
                    .hold(whose, shared.snapshots.lifetimes(), None)
                    .snapshot
            }
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
        let whose = self.shared.whose(inquiry);
        match self.shared.snapshots.latest(&whose) {
            Some(held) => held.is_fresh().then(|| Arc::clone(&held.snapshot)),
            // Gone for lack of room, which makes it no less true.
            None => (clock::now() < before.expires_at).then(|| Arc::clone(before)),
        }
    }
}

impl<F: FetchRobots> Shared<F> {
    fn whose(&self, inquiry: &Inquiry) -> Whose {
        let named = self.named.as_ref();
        let asker = named.map_or(&inquiry.crawler, |named| &named.crawler);
        Whose {
            origin: inquiry.target.origin.clone(),
            token: asker.token().cloned(),
        }
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
    fn seek(self: &Arc<Self>, whose: &Whose, client: impl FnOnce() -> Client) -> Sought {
        match self.snapshots.find(whose) {
            Found::InForce(held) => {
                if let Some(flight) = self.snapshots.refresh(whose, &held) {
                    self.start(flight, client());
                }
                Sought::InForce(held)
            }
            Found::Awaited(watched) => Sought::Awaited(watched),
            Found::Wanted(flight) => Sought::Awaited(self.start(flight, client())),
            Found::Full(earlier) => {
                let held = self.snapshots.busy(whose, earlier.as_deref());
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
            let loaded = self.load_in_time(&flight.whose, &client).await;
            blind = loaded.is_err();
            flight.earlier = loaded.ok().flatten();
            if let Some(held) = flight.earlier.clone().filter(|held| held.is_fresh()) {
                return flight.land_on(&held);
            }
        }
        let mut trail = Trail::new(flight.whose.origin.robots_txt());
        let Some((flight, leave)) = self.in_turn(flight, &client).await else {
            return;
        };
        let result = match leave {
            Some(leave) => self.ask((&mut trail, leave), &flight, &client).await,
            None => Err(Cause::Busy),
        };
        let answer = trail.answer(result);
        let failed = Answer::internal(&flight.whose);
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
        whose: &Whose,
        client: &Client,
    ) -> Result<Option<Arc<Held>>, Elapsed> {
        let loaded = timeout(LOAD_TIMEOUT, self.load(whose, client)).await;
        if loaded.is_err() {
            tracing::warn!(origin = %whose.origin, "what is kept of a robots.txt was not read in time");
        }
        loaded
    }

    /// What the store has, ready for use.
    async fn load(&self, whose: &Whose, client: &Client) -> Option<Arc<Held>> {
        let policy = self.policy.load_full();
        let kept = self.store.load(whose, policy.dialect()).await?;
        let kept = ready(kept, &policy, &client.crawler).await?;
        Some(Arc::new(Held::restored(&kept, self.snapshots.lifetimes())))
    }

    /// Leave to ask, if it comes in time; nothing at all where whoever waited has
    /// hung up, so that they do not stand before those who wait.
    async fn in_turn(
        &self,
        mut flight: Flight,
        client: &Client,
    ) -> Option<(Flight, Option<Leave<'_, F>>)> {
        let host = flight.whose.origin.host().clone();
        // The turn first: a place that waits is taken from all hosts.
        let leave = async {
            let turn = self.fetcher.turn(&host).await?;
            let place = self.places.take(client.asker.client);
            let place = timeout(self.options.timeout, place).await.ok()?;
            Some(Leave { turn, place })
        };
        let mut leave = std::pin::pin!(leave);
        loop {
            tokio::select! {
                biased;
                leave = &mut leave => return Some((flight, leave)),
                () = flight.abandoned() => match flight.abandon() {
                    Ok(()) => return None,
                    Err(again) => flight = again,
                },
            }
        }
    }

    /// Asks, and follows redirects (RFC 9309, section 2.3.1.2), within the time
    /// limit. It begins with the leave, and what the pace of a host takes does
    /// not count.
    async fn ask<'a>(
        self: &'a Arc<Self>,
        (trail, leave): (&mut Trail, Leave<'a, F>),
        flight: &Flight,
        client: &Client,
    ) -> Result<Hop, Cause> {
        let mut left = self.options.timeout;
        let mut permit = RobotsPermit::first(&flight.whose.origin);
        let (mut turn, mut place) = (leave.turn, Some(leave.place));
        loop {
            let begun = clock::instant();
            let step = self.step((trail, permit), (turn, place.take()), (flight, client));
            match timeout(left, step).await {
                Ok(Ok(Step::End(hop))) => return Ok(hop),
                Ok(Ok(Step::On(next))) => permit = next,
                Ok(Err(cause)) => return Err(cause),
                Err(_) => return Err(trail.late()),
            }
            left = left.saturating_sub(clock::instant().duration_since(begun));
            let next = self.fetcher.turn(trail.last.origin.host()).await;
            turn = next.ok_or(Cause::Busy)?;
        }
    }

    /// Asks one URL, and sees where it leads.
    ///
    /// Nobody keeps a place while he waits for another fetch, or all could wait
    /// for each other.
    async fn step<'a>(
        self: &'a Arc<Self>,
        (trail, permit): (&mut Trail, RobotsPermit),
        (turn, place): (F::Turn, Option<Place<'a>>),
        (flight, client): (&Flight, &Client),
    ) -> Result<Step, Cause> {
        let url = trail.last.to_string();
        let earlier = flight.earlier.as_deref();
        let query = RobotsQuery {
            asker: &client.asker,
            known: earlier.and_then(|earlier| earlier.validators(&url)),
        };
        trail.conditional = query.known.is_some();
        trail.waits = true;
        let place = match place {
            Some(place) => place,
            None => self.places.take(client.asker.client).await,
        };
        trail.waits = false;
        let fetched = self.fetcher.fetch(permit, query, turn).await;
        drop(place);
        let hop = fetched.map_err(|error| trail.cause(&error))?;
        trail.status = Some(hop.status);
        if status_meaning(hop.status) != StatusMeaning::Redirect {
            return Ok(Step::End(hop));
        }
        let next = redirect_target(&trail.last, &hop.headers).ok_or(Cause::RedirectTarget)?;
        trail.check(&next, self.options.redirects)?;
        let foreign = next.origin != flight.whose.origin;
        if foreign && next.path_and_query() != ROBOTS_TXT {
            self.judge(&next, flight, client).await?;
        }
        trail.follow(next.clone());
        Ok(Step::On(RobotsPermit::redirected(next)))
    }

    /// Asks another origin's rules whether a redirect may be followed to a
    /// page of it.
    ///
    /// That origin's own redirects are not waited for: two origins could wait
    /// for each other. Each says that it judges before it looks at the other,
    /// so at least one of them sees it.
    async fn judge(
        self: &Arc<Self>,
        target: &Target,
        flight: &Flight,
        client: &Client,
    ) -> Result<(), Cause> {
        flight.judging();
        let inquiry = Arc::new(Inquiry {
            crawler: client.crawler.clone(),
            target: target.clone(),
            method: "GET".to_owned(),
        });
        let snapshot = self.rules_of(&inquiry, client).await;
        let snapshot = snapshot.ok_or(Cause::RedirectDisallowed)?;
        flight.asking();
        let decision = decide(&inquiry, &snapshot, (&self.policy.load(), clock::now()));
        match decision.ruling().verdict {
            Verdict::Allow => Ok(()),
            Verdict::Disallow | Verdict::Later => Err(Cause::RedirectDisallowed),
        }
    }

    /// What the origin of an inquiry said, unless its fetch waits for another.
    async fn rules_of(
        self: &Arc<Self>,
        inquiry: &Inquiry,
        client: &Client,
    ) -> Option<Arc<Snapshot>> {
        let whose = self.whose(inquiry);
        let mut watched = match self.seek(&whose, || client.clone()) {
            Sought::InForce(held) => return Some(Arc::clone(&held.snapshot)),
            Sought::Awaited(watched) => watched,
        };
        let state = watched.wait_for(|state| !matches!(state, State::Asking));
        match state.await.as_deref() {
            Ok(State::Done(held)) => Some(Arc::clone(&held.snapshot)),
            Ok(State::Asking | State::Judging) | Err(_) => None,
        }
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
