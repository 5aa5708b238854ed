//! The snapshots in force: what each origin said, asked once for all who wait.
//!
//! RFC 9309, sections 2.3.1 and 2.4. A snapshot belongs to an origin and to
//! the product token it was fetched for: no crawler is judged by the file that
//! another was given. With a fixed `robots.user_agent` it belongs to the
//! origin alone.
//!
//! Invariant 4: not knowing means no. Whatever keeps a fetch from its answer,
//! a panic of our own included, is a snapshot that disallows.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use moka::ops::compute::Op;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::body::BodyError;
use super::location::redirect_target;
use super::robots_answer::{Answer, Held, Lifetimes};
use super::robots_fetch::{Asker, FetchError, FetchRobots, Hop, HttpFetcher};
use super::robots_store::KeepRobots;
use super::upstream::UpstreamError;
use crate::clock;
use crate::metrics::{Metrics, ResultLabel};
use crate::rules::crawler::Crawler;
use crate::rules::decision::{Inquiry, Policy, RobotsPermit, Verdict, decide};
use crate::rules::origin::{ROBOTS_TXT, Target};
use crate::rules::robots::access::{
    AccessResult, Cause, Copy, NoConnection, Snapshot, StatusMeaning, status_meaning,
};
use crate::rules::robots::kept::Whose;

/// As whom a robots.txt is asked for (`robots.user_agent`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserAgent {
    /// As the crawler that needs it; one snapshot for each product token.
    Crawler,
    /// As this; one snapshot for all.
    Fixed(String),
}

/// Limits and lifetimes (`robots.*`).
#[derive(Debug, Clone)]
pub struct Options {
    /// As whom to ask.
    pub user_agent: UserAgent,
    /// How much of a file is read.
    pub max_bytes: usize,
    /// How long a copy holds that says nothing itself, and at most.
    pub ttl: Duration,
    /// How long it holds at least.
    pub ttl_min: Duration,
    /// How long it holds that there is none.
    pub unavailable_ttl: Duration,
    /// The first pause after an origin was unreachable; each one is twice as
    /// long.
    pub retry_first: Duration,
    /// The longest pause.
    pub retry_longest: Duration,
    /// How many redirects are followed.
    pub redirects: u8,
    /// The longest a fetch may take, all redirects and bodies included.
    pub timeout: Duration,
    /// How many snapshots are held.
    pub max_snapshots: NonZeroUsize,
    /// How many octets they take together, about.
    pub max_snapshot_bytes: usize,
    /// By what the pages that redirects lead to are judged.
    pub policy: Policy,
}

/// The snapshots of all origins, bounded; the longest unused go first.
pub struct RobotsCache<F = HttpFetcher> {
    shared: Arc<Shared<F>>,
}

/// What the tasks that fetch need as well.
struct Shared<F> {
    options: Options,
    lifetimes: Lifetimes,
    /// By what the pages that redirects lead to are judged: where nobody asked
    /// for them, they are not followed in doubt.
    policy: ArcSwap<Policy>,
    fetcher: F,
    store: Arc<dyn KeepRobots>,
    entries: Cache<Whose, Entry>,
    metrics: Arc<Metrics>,
    tracker: TaskTracker,
}

/// Where a fetch stands, for all who wait for it.
type Entry = watch::Receiver<State>;

#[derive(Debug)]
enum State {
    /// It asks the origin.
    Asking,
    /// It waits for another origin's robots.txt, which a redirect needs.
    Judging,
    /// It came to this.
    Done(Arc<Held>),
}

/// For whom a fetch is made.
#[derive(Debug, Clone)]
struct Client {
    crawler: Crawler,
    asker: Asker,
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
        let weights = Weights::new(&options);
        let shared = Shared {
            lifetimes: Lifetimes {
                ttl: options.ttl,
                ttl_min: options.ttl_min,
                unavailable_ttl: options.unavailable_ttl,
                retry_first: options.retry_first,
                retry_longest: options.retry_longest,
                dialect: options.policy.dialect(),
            },
            policy: ArcSwap::from_pointee(options.policy.for_redirects()),
            options,
            fetcher,
            store,
            // The other policy may turn new entries away, and with them the
            // fetch that others should share.
            entries: Cache::builder()
                .max_capacity(weights.most)
                .weigher(move |_, entry| weights.of(entry))
                .eviction_policy(EvictionPolicy::lru())
                .build(),
            metrics,
            tracker,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// What the origin of an inquiry said to its crawler: the snapshot in
    /// force, or that of one fetch which all who ask meanwhile share.
    ///
    /// Never fails, and takes no longer than `robots.timeout`. Dropped, it
    /// takes nothing from the others who wait.
    pub async fn snapshot(&self, inquiry: &Inquiry, asker: &Asker) -> Arc<Snapshot> {
        let shared = &self.shared;
        let whose = shared.whose(inquiry);
        let client = || shared.client(&inquiry.crawler, asker);
        let mut entry = shared.entry(&whose, client);
        let done = entry
            .wait_for(|state| matches!(state, State::Done(_)))
            .await;
        match done.as_deref() {
            Ok(State::Done(held)) => Arc::clone(&held.snapshot),
            Ok(State::Asking | State::Judging) | Err(_) => {
                let answer = internal(&whose);
                shared.lifetimes.hold(whose, answer, 0).snapshot
            }
        }
    }

    /// Judges where redirects lead by another policy from now on. The dialect
    /// stays: what is held was read by it.
    pub fn judge_by(&self, policy: &Policy) {
        self.shared.policy.store(Arc::new(policy.for_redirects()));
    }

    /// Whether a snapshot is still the one in force: neither expired, nor
    /// replaced by another.
    pub fn holds(&self, snapshot: &Arc<Snapshot>) -> bool {
        let whose = Whose {
            origin: snapshot.origin.clone(),
            token: snapshot.token.clone(),
        };
        let Some(entry) = self.shared.entries.get(&whose) else {
            // Evicted for lack of room, which makes it no less true.
            return clock::now() < snapshot.expires_at;
        };
        match &*entry.borrow() {
            State::Done(held) => Arc::ptr_eq(&held.snapshot, snapshot) && held.is_fresh(),
            State::Asking | State::Judging => clock::now() < snapshot.expires_at,
        }
    }
}

impl<F: FetchRobots> Shared<F> {
    fn whose(&self, inquiry: &Inquiry) -> Whose {
        let token = match self.options.user_agent {
            UserAgent::Crawler => inquiry.crawler.token().cloned(),
            UserAgent::Fixed(_) => None,
        };
        Whose {
            origin: inquiry.target.origin.clone(),
            token,
        }
    }

    fn client(&self, crawler: &Crawler, asker: &Asker) -> Client {
        let asker = match &self.options.user_agent {
            UserAgent::Crawler => asker.clone(),
            UserAgent::Fixed(agent) => Asker {
                user_agent: HeaderValue::from_str(agent).ok(),
                from: None,
            },
        };
        Client {
            crawler: crawler.clone(),
            asker,
        }
    }

    /// The entry in force, or that of a fetch which begins now.
    fn entry(self: &Arc<Self>, whose: &Whose, client: impl FnOnce() -> Client) -> Entry {
        if let Some(entry) = self.entries.get(whose)
            && !is_spent(&entry)
        {
            return entry;
        }
        let entry = self.entries.entry_by_ref(whose).and_upsert_with(|earlier| {
            match earlier.map(moka::Entry::into_value) {
                Some(entry) if !is_spent(&entry) => entry,
                earlier => self.start(
                    whose.clone(),
                    client(),
                    earlier.as_ref().map_or(0, failures),
                ),
            }
        });
        entry.into_value()
    }

    /// Starts a fetch in a task of its own, which a crawler that hangs up does
    /// not end.
    fn start(self: &Arc<Self>, whose: Whose, client: Client, failures: u32) -> Entry {
        let (state, entry) = watch::channel(State::Asking);
        let pending = Pending {
            whose,
            failures,
            lifetimes: self.lifetimes,
            state,
        };
        self.tracker.spawn(Arc::clone(self).fetch(pending, client));
        entry
    }

    async fn fetch(self: Arc<Self>, mut pending: Pending, client: Client) {
        if let Some(kept) = self
            .store
            .load(&pending.whose, self.lifetimes.dialect)
            .await
        {
            if let Some(held) = Held::restored(&kept) {
                pending.state.send_replace(State::Done(Arc::new(held)));
                self.weigh_anew(&pending);
                return;
            }
            pending.failures = kept.failures;
        }
        let mut trail = Trail::new(pending.whose.origin.robots_txt());
        let walk = self.walk(&mut trail, &pending, &client);
        let result = timeout(self.options.timeout, walk).await;
        let held = pending.hold(trail.answer(result.unwrap_or(Err(Cause::Timeout))));
        let saving = self.store.save(held.kept());
        pending.publish(&held);
        self.weigh_anew(&pending);
        let result = match held.snapshot.result {
            AccessResult::Successful(_) => "successful",
            AccessResult::Unavailable => "unavailable",
            AccessResult::Unreachable(_) => "unreachable",
        };
        self.metrics
            .robots_fetches
            .get_or_create(&ResultLabel { result })
            .inc();
        let entries = i64::try_from(self.entries.entry_count()).unwrap_or(i64::MAX);
        self.metrics.robots_snapshots.set(entries);
        saving.await;
    }

    /// Puts the entry of a finished fetch in its own place again: entries are
    /// weighed when they are put there, and this one has a body now.
    fn weigh_anew(&self, pending: &Pending) {
        let own = pending.state.subscribe();
        self.entries
            .entry_by_ref(&pending.whose)
            .and_compute_with(|entry| match entry {
                Some(entry) if entry.value().same_channel(&own) => Op::Put(own),
                Some(_) | None => Op::Nop,
            });
    }

    /// Asks, and follows redirects (RFC 9309, section 2.3.1.2).
    async fn walk(
        self: &Arc<Self>,
        trail: &mut Trail,
        pending: &Pending,
        client: &Client,
    ) -> Result<Hop, Cause> {
        let mut permit = RobotsPermit::first(&pending.whose.origin);
        loop {
            trail.status = None;
            let fetched = self.fetcher.fetch(permit, &client.asker).await;
            let hop = fetched.map_err(|error| trail.cause(&error))?;
            trail.status = Some(hop.status);
            if status_meaning(hop.status) != StatusMeaning::Redirect {
                return Ok(hop);
            }
            let next = redirect_target(&trail.last, &hop.headers).ok_or(Cause::RedirectTarget)?;
            trail.check(&next, self.options.redirects)?;
            let foreign = next.origin != pending.whose.origin;
            if foreign && next.path_and_query() != ROBOTS_TXT {
                self.judge(&next, pending, client).await?;
            }
            trail.follow(next.clone());
            permit = RobotsPermit::redirected(next);
        }
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
        pending: &Pending,
        client: &Client,
    ) -> Result<(), Cause> {
        pending.state.send_replace(State::Judging);
        let inquiry = Arc::new(Inquiry {
            crawler: client.crawler.clone(),
            target: target.clone(),
            method: "GET".to_owned(),
        });
        let mut entry = self.entry(&self.whose(&inquiry), || client.clone());
        let snapshot = match entry
            .wait_for(|state| !matches!(state, State::Asking))
            .await
            .as_deref()
        {
            Ok(State::Done(held)) => Arc::clone(&held.snapshot),
            Ok(State::Asking | State::Judging) | Err(_) => return Err(Cause::RedirectDisallowed),
        };
        pending.state.send_replace(State::Asking);
        let decision = decide(&inquiry, &snapshot, (&self.policy.load(), clock::now()));
        match decision.ruling().verdict {
            Verdict::Allow => Ok(()),
            Verdict::Disallow => Err(Cause::RedirectDisallowed),
        }
    }
}

/// How entries count towards the two limits, in octets.
#[derive(Debug, Clone, Copy)]
struct Weights {
    /// What all may weigh together.
    most: u64,
    /// What one weighs at least, so that no more than `max_snapshots` fit in.
    least: u32,
}

impl Weights {
    fn new(options: &Options) -> Self {
        let most = options.max_snapshot_bytes.max(options.max_snapshots.get());
        let least = most / options.max_snapshots.get();
        Self {
            most: u64::try_from(most).unwrap_or(u64::MAX),
            least: u32::try_from(least).unwrap_or(u32::MAX),
        }
    }

    fn of(self, entry: &Entry) -> u32 {
        let octets = match &*entry.borrow() {
            State::Done(held) => held.snapshot.copy().map_or(0, weight),
            State::Asking | State::Judging => 0,
        };
        u32::try_from(octets).unwrap_or(u32::MAX).max(self.least)
    }
}

/// About what a copy takes: its body, and the rules of a crawler or two.
fn weight(copy: &Copy) -> usize {
    copy.body.len() + copy.robots.weight()
}

/// Whether an entry must be replaced before it can be used.
fn is_spent(entry: &Entry) -> bool {
    match &*entry.borrow() {
        State::Done(held) => !held.is_fresh(),
        State::Asking | State::Judging => false,
    }
}

/// How often in a row the origin was unreachable.
fn failures(entry: &Entry) -> u32 {
    match &*entry.borrow() {
        State::Done(held) => held.failures,
        State::Asking | State::Judging => 0,
    }
}

/// The answer of a fetch that failed on our side.
fn internal(whose: &Whose) -> Answer {
    Answer {
        url: whose.origin.robots_txt().to_string(),
        status: None,
        redirects: 0,
        result: Err(Cause::Internal),
    }
}

/// The duty to tell those who wait what a fetch came to; dropped without, by a
/// panic or at the end of the runtime, it tells them that it failed.
struct Pending {
    whose: Whose,
    failures: u32,
    lifetimes: Lifetimes,
    state: watch::Sender<State>,
}

impl Pending {
    fn hold(&self, answer: Answer) -> Arc<Held> {
        let whose = self.whose.clone();
        Arc::new(self.lifetimes.hold(whose, answer, self.failures))
    }

    fn publish(&self, held: &Arc<Held>) {
        self.state.send_replace(State::Done(Arc::clone(held)));
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let is_done = matches!(*self.state.borrow(), State::Done(_));
        if !is_done {
            self.publish(&self.hold(internal(&self.whose)));
        }
    }
}

/// Where a fetch has been. It outlives the time limit of the fetch, so that a
/// snapshot can say where the time ran out.
struct Trail {
    last: Target,
    before: Vec<Target>,
    status: Option<u16>,
}

impl Trail {
    fn new(first: Target) -> Self {
        Self {
            last: first,
            before: Vec::new(),
            status: None,
        }
    }

    fn redirects(&self) -> u8 {
        u8::try_from(self.before.len()).unwrap_or(u8::MAX)
    }

    /// Refuses a redirect that is one too many, or leads round.
    fn check(&self, next: &Target, redirects_max: u8) -> Result<(), Cause> {
        let seen = self.last == *next || self.before.contains(next);
        if seen || redirects_max <= self.redirects() {
            return Err(Cause::Redirects);
        }
        Ok(())
    }

    fn follow(&mut self, next: Target) {
        self.before.push(std::mem::replace(&mut self.last, next));
    }

    /// What a failure means here. Only the initial origin counts as one that
    /// cannot be connected to: the crawler asked for nothing of the others.
    fn cause(&self, error: &FetchError) -> Cause {
        let no_connection = |cause| match self.before.as_slice() {
            [] => Cause::NoConnection(cause),
            _ => Cause::RedirectTarget,
        };
        match error {
            FetchError::Upstream(UpstreamError::NoConnection(cause)) => no_connection(*cause),
            FetchError::Upstream(UpstreamError::Prohibited(_)) => {
                no_connection(NoConnection::Prohibited)
            }
            FetchError::Upstream(UpstreamError::Target) => Cause::RedirectTarget,
            FetchError::Upstream(UpstreamError::FirstByteTimeout)
            | FetchError::Body(BodyError::Stalled) => Cause::Timeout,
            FetchError::Coding => Cause::Coding,
            FetchError::Upstream(_) | FetchError::Body(_) => Cause::Broken,
        }
    }

    fn answer(self, result: Result<Hop, Cause>) -> Answer {
        Answer {
            url: self.last.to_string(),
            status: self.status,
            redirects: self.redirects(),
            result,
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
