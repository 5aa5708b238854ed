//! Fetches of the cache: each is a task that waits for admission, makes the
//! requests, follows redirects, and ends with a cache entry.
//!
//! RFC 9309, section 2.3.1.2. Not knowing means no: a fetch that fails, by a
//! panic of our own too, ends with a snapshot that disallows. Does not know the
//! requests that wait for a fetch.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::admission::{Admission, FetchSlot, FetchSlots, TimeBudget, TurnQueue};
use super::entry::CacheEntry;
use super::fetch::{Asker, RobotsFetcher, RobotsQuery, RobotsResponse};
use super::options::{Options, UserAgent};
use super::outcome::{FetchOutcome, RedirectTrail};
use super::store::{EntryTable, FetchState, Lookup, RunningFetch, SnapshotStore};
use crate::clock;
use crate::decision::access::{Cause, StatusMeaning, status_meaning};
use crate::decision::decide::{Candidates, Inquiry, Policy, RobotsPermit, Verdict, decide};
use crate::decision::snapshot::{CacheKey, RobotsFile, Snapshot};
use crate::metrics::Metrics;
use crate::throttle::REPEATING;
use crate::upstream::location::redirect_target;
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::{ROBOTS_TXT, Target};

/// Longest wait for the store, whose queue is long after a restart. Behind it
/// the origin is asked.
pub(super) const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// A larger file is hashed and compiled on a blocking thread, since that takes
/// some milliseconds a megabyte. A change of threads takes some microseconds,
/// which is more than most files need.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Crawler and client for which a fetch is made.
#[derive(Debug, Clone)]
pub(super) struct Requester {
    pub(super) crawler: Crawler,
    pub(super) asker: Asker,
}

impl Requester {
    /// Returns the requester of all fetches, if `robots.user_agent` is fixed.
    fn fixed(user_agent: &UserAgent) -> Option<Self> {
        let UserAgent::Fixed(agent) = user_agent else {
            return None;
        };
        Some(Self {
            crawler: Crawler::parse(agent),
            asker: Asker {
                client: None,
                user_agent: HeaderValue::from_str(agent).ok(),
                from: None,
            },
        })
    }
}

/// Sources of the snapshots of a cache: network and store.
pub struct CacheSources<F> {
    /// Makes the requests.
    pub fetcher: F,
    /// Store of the snapshots that the previous process left.
    pub store: Arc<dyn SnapshotStore>,
}

/// Starts fetches, and holds what they need.
pub(super) struct FetchWorker<F> {
    pub(super) options: Options,
    fixed_requester: Option<Requester>,
    /// Policy for pages that a robots.txt redirects to.
    redirect_policy: ArcSwap<Policy>,
    fetcher: F,
    store: Arc<dyn SnapshotStore>,
    pub(super) table: Arc<EntryTable>,
    pub(super) slots: FetchSlots,
    tracker: TaskTracker,
}

impl<F: RobotsFetcher> FetchWorker<F> {
    pub(super) fn new(
        options: Options,
        sources: CacheSources<F>,
        metrics: Arc<Metrics>,
        tracker: TaskTracker,
    ) -> Self {
        Self {
            fixed_requester: Requester::fixed(&options.user_agent),
            redirect_policy: ArcSwap::from_pointee(options.policy.for_redirects()),
            fetcher: sources.fetcher,
            store: sources.store,
            table: Arc::new(EntryTable::new(options.clone(), Arc::clone(&metrics))),
            slots: FetchSlots::new(&options, metrics),
            options,
            tracker,
        }
    }

    pub(super) fn set_redirect_policy(&self, policy: &Policy) {
        self.redirect_policy.store(Arc::new(policy.for_redirects()));
    }

    /// Returns the key of the entry that an inquiry is decided by.
    pub(super) fn key(&self, inquiry: &Inquiry) -> CacheKey {
        let fixed = self.fixed_requester.as_ref();
        let crawler = fixed.map_or(&inquiry.crawler, |fixed| &fixed.crawler);
        CacheKey {
            origin: inquiry.target.origin.clone(),
            token: crawler.token().cloned(),
        }
    }

    /// Returns a snapshot that disallows everything because of `cause`.
    pub(super) fn refusal(&self, key: &CacheKey, cause: Cause) -> Arc<Snapshot> {
        let outcome = FetchOutcome::failed(&key.origin, cause);
        CacheEntry::new(&outcome, key, &self.options, None).snapshot
    }

    /// Returns the requester of a fetch that `crawler` needs. A fixed
    /// `User-Agent` takes the place of the crawler's; the address of the client
    /// still counts for its share of the slots.
    pub(super) fn requester(&self, crawler: &Crawler, asker: &Asker) -> Requester {
        let fixed = self.fixed_requester.as_ref();
        let sent = fixed.map_or(asker, |fixed| &fixed.asker);
        Requester {
            crawler: crawler.clone(),
            asker: Asker {
                client: asker.client,
                ..sent.clone()
            },
        }
    }

    /// Returns the entry for `key`, or the fetch that it will come from, which
    /// is started if none runs.
    pub(super) fn look_up(
        self: &Arc<Self>,
        key: &CacheKey,
        requester: impl FnOnce() -> Requester,
    ) -> Lookup {
        self.table.look_up(key, |fetch| {
            // A task of its own: other requests may wait for the fetch when the
            // crawler that began it hangs up.
            let run = Arc::clone(self).run(fetch, requester());
            self.tracker.spawn(run);
        })
    }

    async fn run(self: Arc<Self>, mut fetch: RunningFetch, requester: Requester) {
        let mut was_loaded = true;
        // What is in memory is at least as new as what is in the store.
        if fetch.earlier.is_none() {
            let load = self.load(&fetch.key, &requester.crawler);
            match timeout(LOAD_TIMEOUT, load).await {
                Ok(Some(entry)) if entry.is_fresh() => return fetch.finish(&entry),
                Ok(earlier) => fetch.earlier = earlier,
                Err(_) => {
                    tracing::warn!(target: REPEATING, origin = %fetch.key.origin, "what is kept of a robots.txt was not read in time");
                    was_loaded = false;
                }
            }
        }
        let Some((fetch, admission)) = self.admit(fetch, &requester).await else {
            return;
        };
        let mut trail = RedirectTrail::new(fetch.key.origin.robots_txt());
        let response = match admission {
            Some(admission) => {
                let mut walk = Walk {
                    worker: &self,
                    fetch: &fetch,
                    requester: &requester,
                    trail: &mut trail,
                };
                walk.follow(admission).await
            }
            None => Err(Cause::Busy),
        };
        let outcome = self
            .read(trail, response, &requester.crawler)
            .await
            .unwrap_or_else(|| FetchOutcome::failed(&fetch.key.origin, Cause::Internal));
        let entry = fetch.entry(&outcome);
        // If the store was too slow to load an earlier file, a failure must not
        // take its place.
        let is_saved = was_loaded || entry.is_answer();
        // `save` queues the write when it is called, not when its future is
        // polled: before the entry is handed out, so that no decision rests on
        // what a restart would not find.
        let saving = is_saved.then(|| self.store.save(entry.to_stored()));
        fetch.finish(&entry);
        if let Some(saving) = saving {
            saving.await;
        }
    }

    /// Loads the entry for `key` from the store, its rules compiled.
    async fn load(&self, key: &CacheKey, crawler: &Crawler) -> Option<Arc<CacheEntry>> {
        let policy = self.redirect_policy.load_full();
        let stored = self.store.load(key, policy.dialect()).await?;
        let bytes = stored.snapshot.file().map_or(0, |file| file.body.len());
        let (candidates, crawler) = (policy.candidates(), crawler.clone());
        let compiled = off_thread(bytes, move || {
            if let Some(file) = stored.snapshot.file() {
                compile(file, &crawler, candidates);
            }
            stored
        });
        let entry = CacheEntry::restored(&compiled.await?, &self.options);
        Some(Arc::new(entry))
    }

    /// Waits for a turn and a slot, which may not come in time. Returns `None`
    /// where every request that waited has hung up: their fetch would only
    /// delay others.
    async fn admit(
        &self,
        mut fetch: RunningFetch,
        requester: &Requester,
    ) -> Option<(RunningFetch, Option<Admission<'_, F::Turn>>)> {
        let host = fetch.key.origin.host().clone();
        let (client, limit) = (requester.asker.client, self.options.timeout);
        let queue = self.turn_queue(&fetch);
        let mut admission = pin!(queue.admit(&host, &self.slots, client, limit));
        loop {
            tokio::select! {
                biased;
                // First: an admission that has come is used, and its file
                // serves whoever comes next.
                admission = &mut admission => return Some((fetch, admission)),
                () = fetch.abandoned() => match fetch.abandon() {
                    Ok(()) => return None,
                    Err(wanted_again) => fetch = wanted_again,
                },
            }
        }
    }

    fn turn_queue(&self, fetch: &RunningFetch) -> TurnQueue<'_, F> {
        TurnQueue {
            fetcher: &self.fetcher,
            state: fetch.state(),
        }
    }

    /// Reads the last response, and compiles the rules of its file; `None` if
    /// that panicked.
    async fn read(
        &self,
        trail: RedirectTrail,
        response: Result<RobotsResponse, Cause>,
        crawler: &Crawler,
    ) -> Option<FetchOutcome> {
        let policy = self.redirect_policy.load_full();
        let crawler = crawler.clone();
        let bytes = response
            .as_ref()
            .map_or(0, |response| response.body.bytes.len());
        let reading = off_thread(bytes, move || {
            let outcome = trail.outcome(response, policy.dialect());
            if let Some(file) = outcome.file() {
                compile(file, &crawler, policy.candidates());
            }
            outcome
        });
        reading.await
    }

    /// Returns the snapshot by which an inquiry about a redirect is decided;
    /// `None` if it needs another origin's robots.txt itself.
    async fn rules_for_redirect(
        self: &Arc<Self>,
        inquiry: &Inquiry,
        requester: &Requester,
    ) -> Option<Arc<Snapshot>> {
        let mut watch = match self.look_up(&self.key(inquiry), || requester.clone()) {
            Lookup::Fresh(entry) => return Some(Arc::clone(&entry.snapshot)),
            Lookup::Running(watch) => watch,
        };
        let decides = |state: &FetchState| {
            matches!(state, FetchState::CheckingRedirect | FetchState::Done(_))
        };
        match watch.wait_for(decides).await.as_deref() {
            Ok(FetchState::Done(entry)) => Some(Arc::clone(&entry.snapshot)),
            Ok(_) | Err(_) => None,
        }
    }
}

/// The requests of one fetch, from the first URL to the last.
struct Walk<'a, F> {
    worker: &'a Arc<FetchWorker<F>>,
    fetch: &'a RunningFetch,
    requester: &'a Requester,
    trail: &'a mut RedirectTrail,
}

impl<F: RobotsFetcher> Walk<'_, F> {
    /// Makes the requests and follows redirects within `robots.timeout`, which
    /// begins with the admission and leaves out the waits for turns.
    ///
    /// Redirects on the same host share one turn: a pause between them could be
    /// longer than any client waits.
    async fn follow(&mut self, admission: Admission<'_, F::Turn>) -> Result<RobotsResponse, Cause> {
        let mut budget = TimeBudget::new(self.worker.options.timeout);
        let mut permit = RobotsPermit::first(&self.fetch.key.origin);
        let (mut turn, mut slot) = (admission.turn, Some(admission.slot));
        loop {
            let request = self.request(permit, &mut turn, slot.take());
            let next = match budget.spend(request).await {
                Some(Ok(ControlFlow::Break(response))) => return Ok(response),
                Some(Ok(ControlFlow::Continue(next))) => next,
                Some(Err(cause)) => return Err(cause),
                None => return Err(self.trail.timeout_cause()),
            };
            let is_foreign = next.origin != self.fetch.key.origin;
            let host = next.origin.host();
            let is_same_host = host == self.trail.last.origin.host();
            // Another origin's robots.txt may be read; a page of it only if its
            // rules allow that.
            let is_checked = is_foreign && next.path_and_query() != ROBOTS_TXT;
            // No turn is held during the wait for another: fetches could wait
            // for each other in a circle.
            let held = (!is_checked && is_same_host).then_some(turn);
            if is_checked {
                let check = budget.spend(self.check_redirect(&next)).await;
                check.unwrap_or_else(|| Err(self.trail.timeout_cause()))?;
            }
            turn = match held {
                Some(turn) => turn,
                None => match self.worker.turn_queue(self.fetch).turn(host).await {
                    Some(turn) => turn,
                    None => {
                        self.trail.turn_in = Some(self.worker.fetcher.wait(host));
                        return Err(Cause::Busy);
                    }
                },
            };
            self.trail.follow(next.clone());
            permit = RobotsPermit::redirected(next);
        }
    }

    /// Makes one request. Continues with the URL that it redirects to, or breaks
    /// with the response.
    ///
    /// The slot is free again after the request: held during the wait for
    /// another fetch, slots could be waited for in a circle.
    async fn request(
        &mut self,
        permit: RobotsPermit,
        turn: &mut F::Turn,
        slot: Option<FetchSlot<'_>>,
    ) -> Result<ControlFlow<RobotsResponse, Target>, Cause> {
        let url = self.trail.last.to_string();
        let earlier = self.fetch.earlier.as_deref();
        let query = RobotsQuery {
            asker: &self.requester.asker,
            known: earlier.and_then(|earlier| earlier.validators(&url)),
        };
        self.trail.is_conditional = query.known.is_some();
        self.trail.awaits_slot = true;
        let slot = match slot {
            Some(slot) => slot,
            None => self.worker.slots.take(self.requester.asker.client).await,
        };
        self.trail.awaits_slot = false;
        let fetched = self.worker.fetcher.fetch(permit, query, turn).await;
        drop(slot);
        let response = fetched.map_err(|error| self.trail.failure_cause(&error))?;
        self.trail.status = Some(response.status);
        if status_meaning(response.status) != StatusMeaning::Redirect {
            return Ok(ControlFlow::Break(response));
        }
        let next =
            redirect_target(&self.trail.last, &response.headers).ok_or(Cause::RedirectTarget)?;
        self.trail.check(&next, self.worker.options.redirects)?;
        Ok(ControlFlow::Continue(next))
    }

    /// Decides whether a redirect to a page of another origin may be followed,
    /// by the rules of that origin.
    ///
    /// Two origins may redirect to each other. So this does not wait for an
    /// origin whose own fetch checks a redirect; and since each fetch reports
    /// that it does so before it looks at the other, one of them sees it.
    async fn check_redirect(&self, target: &Target) -> Result<(), Cause> {
        let state = self.fetch.state();
        state.send_replace(FetchState::CheckingRedirect);
        // Decided like a request of the crawler, since it is done in its name.
        let inquiry = Arc::new(Inquiry {
            crawler: self.requester.crawler.clone(),
            target: target.clone(),
            method: "GET".to_owned(),
        });
        let snapshot = self
            .worker
            .rules_for_redirect(&inquiry, self.requester)
            .await
            .ok_or(Cause::RedirectDisallowed)?;
        state.send_replace(FetchState::Requesting);
        let policy = self.worker.redirect_policy.load();
        let decision = decide(&inquiry, &snapshot, &policy, clock::now());
        match decision.ruling().verdict {
            Verdict::Allow => Ok(()),
            Verdict::Disallow | Verdict::Later => Err(Cause::RedirectDisallowed),
        }
    }
}

/// Compiles the rules of a file for a crawler, so that its first decision need
/// not.
fn compile(file: &RobotsFile, crawler: &Crawler, candidates: Candidates) {
    match candidates {
        Candidates::First => drop(file.robots.binding(crawler)),
        Candidates::All => drop(file.robots.bindings(crawler)),
    }
}

/// Does `work`, on a blocking thread if it is about many bytes. Returns `None`
/// if it panicked there.
async fn off_thread<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if bytes <= INLINE_BYTES_MAX {
        return Some(work());
    }
    spawn_blocking(work).await.ok()
}
