//! Fetches of the cache. Each is a task that waits for admission, makes the requests,
//! follows redirects, and ends with a cache entry.
//!
//! RFC 9309, section 2.3.1.2. An unknown answer means no (ARCHITECTURE.md, invariant 4):
//! a fetch that fails, even through a panic of our own, ends with a snapshot that
//! disallows everything. Does not know the requests that wait for a fetch.

use std::fmt;
use std::future::ready;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::{HeaderValue, Response};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use super::admission::{FetchSlot, FetchSlots, TimeBudget, take_for_any};
use super::entry::CacheEntry;
use super::fetch::{Asker, FetchError, RobotsFetcher, RobotsRequest};
use super::options::UserAgent;
use super::outcome::FetchOutcome;
use super::shared_answers::{Claim, FetchClaim, SharedAnswers};
use super::store::{
    EntryTable, FetchState, Lookup, LookupKeys, RunningFetch, SnapshotStore, StoreUnread,
};
use politesse_base::clients::client::Client;
use politesse_base::clients::shares::{ShareRefusal, Shares};
use politesse_base::clock;
use politesse_base::throttle::REPEATING;
use politesse_decision::access::{Cause, StatusMeaning, status_meaning};
use politesse_decision::decide::{
    Candidates, Inquiry, Policy, RobotsPermit, Verdict, decide, ruling,
};
use politesse_decision::snapshot::{
    AccessResult, AnswerChange, CacheKey, RobotsBody, Snapshot, StoredSnapshot,
};
use politesse_net::location::redirect_target;
use politesse_robots::Dialect;
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::origin::{Host, ROBOTS_TXT, Target};

/// Longest wait for the store, whose queue is long after a restart. After that the origin
/// is asked.
pub(super) const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest file that is hashed and compiled on the current thread. Larger ones move to a
/// blocking thread, because they take some milliseconds per megabyte. Switching threads
/// takes some microseconds, more than most files need.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Interval at which a node checks again whether another node has fetched a file.
const CLAIM_CHECK: Duration = Duration::from_millis(100);

/// Largest number of turns that a fetch may lose before it made any request. A machine
/// that is suspended again and again does not get further.
const LOST_TURNS_MAX: u32 = 4;

/// Crawler and client for which a fetch is made.
#[derive(Debug, Clone)]
pub(super) struct Requester {
    pub(super) crawler: Crawler,
    pub(super) asker: Asker,
}

impl Requester {
    /// Returns the requester of all fetches, if `robots.user_agent` is fixed.
    pub(super) fn fixed(user_agent: &UserAgent) -> Option<Self> {
        let UserAgent::Fixed(agent) = user_agent else {
            return None;
        };
        Some(Self {
            crawler: Crawler::parse(agent),
            asker: Asker {
                client: None,
                entry: None,
                user_agent: HeaderValue::from_str(agent).ok(),
                from: None,
            },
        })
    }
}

/// Sources of a cache's snapshots: the network, the store, and the slots that limit the
/// use of the network.
pub struct CacheSources<F> {
    /// Makes the requests.
    pub fetcher: F,
    /// Snapshots that the previous process stored; `None` for commands that ask only
    /// once.
    pub store: Option<Arc<dyn SnapshotStore>>,
    /// Answers that the nodes of a fleet share; `None` if each node fetches for itself.
    /// Failures are not shared: another node may reach the origin.
    pub shared: Option<SharedAnswers>,
    /// Shares that limit the fetches making requests: [`Options::fetch_shares`].
    ///
    /// [`Options::fetch_shares`]: super::options::Options::fetch_shares
    pub slots: Arc<Shares>,
    /// Listener of changes; `None` for commands.
    pub changes: Option<RobotsChangeListener>,
    /// Policy currently in force, even if a later configuration brought it. It decides
    /// whether a redirect to a page may be followed.
    pub latest_policy: Arc<ArcSwap<Policy>>,
}

/// Receives every change that a fetch brings. It must not block, because requests wait
/// for the fetch.
#[derive(Clone)]
pub struct RobotsChangeListener(pub Arc<dyn Fn(AnswerChange) + Send + Sync>);

impl fmt::Debug for RobotsChangeListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RobotsChangeListener")
    }
}

/// Starts fetches, and holds everything they need.
pub(super) struct FetchWorker<F> {
    /// Requester of all fetches, if `robots.user_agent` is fixed.
    pub(super) fixed_requester: Option<Requester>,
    pub(super) sources: CacheSources<F>,
    pub(super) table: Arc<EntryTable>,
    pub(super) slots: FetchSlots,
    /// Client for fetches that are made for no client in particular.
    pub(super) own: Arc<Client>,
    pub(super) tracker: TaskTracker,
    /// Most recently derived policy for redirects.
    pub(super) redirect_policy: ArcSwapOption<RedirectPolicy>,
}

/// Policy for pages that a robots.txt redirects to, and the policy it was derived from.
#[derive(Debug)]
pub(super) struct RedirectPolicy {
    latest: Arc<Policy>,
    derived: Arc<Policy>,
}

impl<F: RobotsFetcher> FetchWorker<F> {
    /// Returns the keys of the entries that may decide an inquiry of `asker`.
    pub(super) fn keys<'a>(&self, inquiry: &Inquiry, asker: &'a Asker) -> LookupKeys<'a> {
        let fixed = self.fixed_requester.as_ref();
        let crawler = fixed.map_or(&inquiry.crawler, |fixed| &fixed.crawler);
        let shared = CacheKey::new(inquiry.target.origin.clone(), crawler.token().cloned());
        match fixed {
            Some(_) => LookupKeys {
                shared,
                asker: None,
            },
            None => LookupKeys {
                shared: CacheKey {
                    entry: asker.entry,
                    ..shared
                },
                asker: Some(asker),
            },
        }
    }

    /// Returns the requester of a fetch that `crawler` needs. A fixed `User-Agent`
    /// replaces the crawler's; the client's address still determines its share of the
    /// slots.
    pub(super) fn requester(&self, crawler: &Crawler, asker: &Asker) -> Requester {
        let fixed = self.fixed_requester.as_ref();
        let sent = fixed.map_or(asker, |fixed| &fixed.asker);
        Requester {
            crawler: crawler.clone(),
            asker: Asker {
                client: asker.client.clone(),
                ..sent.clone()
            },
        }
    }

    /// Returns the entry for one of `keys`, or the fetch that produces it, started if
    /// needed.
    pub(super) fn look_up(
        self: &Arc<Self>,
        keys: &LookupKeys<'_>,
        asker: &Asker,
        requester: impl FnOnce() -> Requester,
    ) -> Lookup {
        self.table.look_up(keys, self.sharer(asker), |fetch| {
            self.start(fetch, requester());
        })
    }

    /// Starts a fetch.
    pub(super) fn start(self: &Arc<Self>, fetch: RunningFetch, requester: Requester) {
        // A separate task: other requests may wait for the fetch when the crawler that
        // started it hangs up.
        self.tracker.spawn(Arc::clone(self).run(fetch, requester));
    }

    /// Returns the client in whose share a fetch for `asker` is.
    pub(super) fn sharer<'a>(&'a self, asker: &'a Asker) -> &'a Arc<Client> {
        asker.client.as_ref().unwrap_or(&self.own)
    }

    async fn run(self: Arc<Self>, mut fetch: RunningFetch, requester: Requester) {
        let is_kept = match timeout(LOAD_TIMEOUT, self.load_kept(&mut fetch, &requester)).await {
            Ok(is_kept) => is_kept.unwrap_or(false),
            Err(_) => {
                tracing::warn!(target: REPEATING, origin = %fetch.key.origin, "the stored copy of a robots.txt was not read in time");
                false
            }
        };
        // Checked even if this process stored a file that is still in force: another node
        // may have fetched a newer one since.
        if let Some(entry) = self.newer(&fetch).await {
            return self.keep(&entry, || fetch.finish(&entry)).await;
        }
        if let Some(entry) = fetch.known.in_force().filter(|_| is_kept) {
            fetch.hold_own();
            return fetch.finish(&entry);
        }
        let mut walk = Walk::new(&self, &fetch, &requester);
        let response = match walk.run().await {
            FetchEnd::Response(response) => response,
            FetchEnd::Elsewhere(entry) => {
                self.keep(&entry, || fetch.finish(&entry)).await;
                return walk.release_claim().await;
            }
            FetchEnd::Abandon => return walk.release_claim().await,
        };
        let outcome = walk.outcome(response).await;
        let entry = fetch.entry(outcome);
        self.report_change(&fetch, &entry.snapshot);
        let end = || fetch.finish(&entry);
        if entry.snapshot.is_answer() {
            self.keep(&entry, end).await;
            if let Some(shared) = &self.sources.shared {
                shared.save(&entry.to_stored()).await;
            }
            // Turn and claim end after that, so the next node to hold them finds the
            // answer.
        } else if entry.is_store_unread {
            end();
        } else {
            self.keep(&entry, end).await;
        }
        walk.release_claim().await;
    }

    /// Reports an answer that differs from the previous one. An outage is not an answer.
    fn report_change(&self, fetch: &RunningFetch, after: &Arc<Snapshot>) {
        let (Some(changes), Some(earlier)) = (&self.sources.changes, fetch.known.latest()) else {
            return;
        };
        let before = &earlier.snapshot;
        // After an outage that outlasted the earlier answer there is nothing to compare
        // with.
        let was_answer = !matches!(before.result, AccessResult::Unreachable(_));
        if was_answer && after.is_answer() && !before.is_same_answer(after) {
            (changes.0)(AnswerChange {
                before: Arc::clone(before),
                after: Arc::clone(after),
            });
        }
    }

    /// Saves an entry in the store of this process, and calls `hand_out` to hand it out.
    async fn keep(&self, entry: &CacheEntry, hand_out: impl FnOnce()) {
        // `save` queues the write when it is called, not when its future is polled. So
        // the write is queued before the entry is handed out, and a restart finds every
        // entry that a decision was based on.
        let store = self.sources.store.as_ref();
        let saving = store.map(|store| store.save(entry.to_stored()));
        hand_out();
        if let Some(saving) = saving {
            saving.await;
        }
    }

    /// Returns the entry in force that another node shared, unless the known answer is at
    /// least as new.
    async fn newer(&self, fetch: &RunningFetch) -> Option<Arc<CacheEntry>> {
        let shared = self.sources.shared.as_ref()?;
        let known = &fetch.known;
        let mut slots = vec![(&fetch.key, &known.shared)];
        if fetch.own_key != fetch.key {
            slots.push((&fetch.own_key, &known.own));
        }
        for (key, earlier) in slots {
            // If the store was unavailable for the first key, it is not tried again.
            let stored = shared.load(key, self.dialect()).await?;
            let newer = self.newer_than(earlier.as_deref(), stored).await;
            if newer.is_some() {
                return newer;
            }
        }
        None
    }

    /// Returns the stored entry if it is in force, unless `earlier` is an answer that is
    /// at least as new.
    async fn newer_than(
        &self,
        earlier: Option<&CacheEntry>,
        stored: Option<StoredSnapshot>,
    ) -> Option<Arc<CacheEntry>> {
        let stored = stored?;
        let token = stored.snapshot.key.token.as_ref();
        let crawler = Crawler::parse(token.map_or("", ProductToken::as_str));
        let entry = self.restored(&stored, &crawler).await?;
        let asked_at = entry.snapshot.fetched_at;
        // A failure does not replace an answer that other nodes still use.
        let is_older = |known: &CacheEntry| {
            !known.snapshot.is_answer() || known.snapshot.fetched_at < asked_at
        };
        let is_newer = earlier.is_none_or(is_older);
        (is_newer && entry.is_fresh()).then_some(entry)
    }

    /// Replaces an older entry in memory with the one that another node shared.
    pub(super) async fn take_newer(&self, key: &CacheKey) {
        let (Some(shared), Some(earlier)) = (&self.sources.shared, self.table.latest(key)) else {
            return;
        };
        let stored = shared.load(key, self.dialect()).await.flatten();
        if let Some(entry) = self.newer_than(Some(&earlier), stored).await {
            self.keep(&entry, || self.table.insert(key, &entry)).await;
        }
    }

    /// Returns the dialect for reading files.
    fn dialect(&self) -> Dialect {
        self.table.options.policy.terms().dialect
    }

    /// Returns the policy in force for pages that a robots.txt redirects to, in the
    /// dialect that was used for the files in memory.
    pub(super) fn redirect_policy(&self) -> Arc<Policy> {
        let latest = self.sources.latest_policy.load_full();
        // A policy with many overrides takes a while to copy, and an origin can redirect
        // often.
        let known = self.redirect_policy.load_full();
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.latest, &latest)) {
            return Arc::clone(&known.derived);
        }
        let derived = Arc::new(latest.for_redirects().in_dialect(self.dialect()));
        self.redirect_policy.store(Some(Arc::new(RedirectPolicy {
            latest,
            derived: Arc::clone(&derived),
        })));
        derived
    }

    /// Loads the entries of a fetch that are in the store but not in memory, if they are
    /// at least as new. Returns whether any were found.
    async fn load_kept(
        &self,
        fetch: &mut RunningFetch,
        requester: &Requester,
    ) -> Result<bool, StoreUnread> {
        let mut is_kept = false;
        if fetch.is_store_unread {
            let kept = self.load_own(&fetch.key, &requester.crawler).await?;
            fetch.is_store_unread = false;
            is_kept = kept.is_some();
            fetch.known.shared = kept.or(fetch.known.shared.take());
            if is_kept && fetch.known.in_force().is_some() {
                return Ok(true);
            }
        }
        if fetch.known.own.is_none() && fetch.own_key != fetch.key {
            let kept = self.load_own(&fetch.own_key, &requester.crawler).await?;
            is_kept |= kept.is_some();
            fetch.known.own = kept;
        }
        Ok(is_kept)
    }

    /// Loads the entry for `key` that this process or the previous one stored.
    pub(super) async fn load_own(
        &self,
        key: &CacheKey,
        crawler: &Crawler,
    ) -> Result<Option<Arc<CacheEntry>>, StoreUnread> {
        let Some(store) = &self.sources.store else {
            return Ok(None);
        };
        match store.load(key, self.dialect()).await? {
            Some(stored) => Ok(self.restored(&stored, crawler).await),
            None => Ok(None),
        }
    }

    /// Returns the stored entry with its rules compiled. `None` if it applies to one
    /// sender but was stored for all, as earlier versions did.
    async fn restored(
        &self,
        stored: &StoredSnapshot,
        crawler: &Crawler,
    ) -> Option<Arc<CacheEntry>> {
        let is_for_all = stored.snapshot.key.sender.is_none() && self.fixed_requester.is_none();
        if is_for_all && stored.snapshot.is_for_one_sender() {
            return None;
        }
        let bytes = stored.snapshot.file().map_or(0, |file| file.body.len());
        let snapshot = Arc::clone(&stored.snapshot);
        self.compiled(bytes, crawler, |_| snapshot).await?;
        let entry = CacheEntry::restored(stored, &self.table.options);
        Some(Arc::new(entry))
    }

    /// Returns the result of `read`, its rules compiled for `crawler`, so that the first
    /// decision need not compile them. `bytes` is the approximate size of the input.
    /// Returns `None` if `read` panicked on a blocking thread.
    async fn compiled<S: AsRef<Snapshot> + Send + 'static>(
        &self,
        bytes: usize,
        crawler: &Crawler,
        read: impl FnOnce(Dialect) -> S + Send + 'static,
    ) -> Option<S> {
        let terms = self.table.options.policy.terms();
        let (dialect, candidates) = (terms.dialect, terms.candidates);
        let crawler = crawler.clone();
        let work = move || {
            let snapshot = read(dialect);
            if let Some(file) = snapshot.as_ref().file() {
                match candidates {
                    Candidates::First => drop(file.robots.binding(&crawler)),
                    Candidates::All => drop(file.robots.bindings(&crawler)),
                }
                drop(file.robots.unlisted_bindings(&crawler));
            }
            snapshot
        };
        if bytes <= INLINE_BYTES_MAX {
            return Some(work());
        }
        spawn_blocking(work).await.ok()
    }
}

/// Turn and slot with which a fetch makes a request.
struct Admission<T> {
    turn: T,
    slot: FetchSlot,
}

/// How a fetch ended.
enum FetchEnd {
    /// The last response, or the reason why there is no response.
    Response(Result<Response<RobotsBody>, Cause>),
    /// Another node of the fleet has fetched the file.
    Elsewhere(Arc<CacheEntry>),
    /// No request waits for the fetch any longer.
    Abandon,
}

/// Permission to make the first request of a fetch.
enum Leave<T> {
    /// The request may be made.
    Ask(Admission<T>),
    /// No request is needed: another node of the fleet has fetched the file.
    Found(Arc<CacheEntry>),
    /// Neither came in time.
    Busy,
}

/// Requests of one fetch, from the first URL to the last.
///
/// Outlives the time limit of the fetch, so that a snapshot can state where the time ran
/// out.
struct Walk<'a, F: RobotsFetcher> {
    worker: &'a Arc<FetchWorker<F>>,
    fetch: &'a RunningFetch,
    requester: &'a Requester,
    /// URL that is being requested.
    url: Target,
    /// URLs whose redirects were followed, in order.
    hops: Vec<Target>,
    /// Status of the response from `url`.
    status: Option<u16>,
    /// Whether the request to `url` carried validators.
    is_conditional: bool,
    /// Time after which the host of the next URL has a free turn, if none came soon
    /// enough.
    turn_in: Option<Duration>,
    /// Turn of the last request, held until its answer is shared.
    last_turn: Option<F::Turn>,
    /// Claim on the fetch; `None` outside a fleet.
    claim: Option<Arc<FetchClaim>>,
}

impl<'a, F: RobotsFetcher> Walk<'a, F> {
    fn new(
        worker: &'a Arc<FetchWorker<F>>,
        fetch: &'a RunningFetch,
        requester: &'a Requester,
    ) -> Self {
        Self {
            worker,
            fetch,
            requester,
            url: fetch.key.origin.robots_txt(),
            hops: Vec::new(),
            status: None,
            is_conditional: false,
            turn_in: None,
            last_turn: None,
            claim: None,
        }
    }

    /// Waits for permission, makes the requests and follows redirects.
    async fn run(&mut self) -> FetchEnd {
        for _ in 0..LOST_TURNS_MAX {
            let fetch = self.fetch;
            let leave = tokio::select! {
                biased;
                // Polled first: a permission that was granted is used, and the file
                // serves later requests.
                leave = self.leave() => leave,
                // Every waiting request has been cancelled, so the fetch would only delay
                // others.
                () = fetch.abandoned() => return FetchEnd::Abandon,
            };
            let admission = match leave {
                Leave::Ask(admission) => admission,
                Leave::Found(entry) => return FetchEnd::Elsewhere(entry),
                Leave::Busy => return FetchEnd::Response(Err(Cause::Busy)),
            };
            let claim = self.claim.clone();
            let follow = self.follow(admission);
            let response = match &claim {
                Some(claim) => claim.during(follow).await,
                None => follow.await,
            };
            match response {
                Ok(response) => return FetchEnd::Response(Ok(response)),
                Err(FetchError::Unreachable(cause)) => return FetchEnd::Response(Err(cause)),
                // Another node may have made requests in the meantime, so everything
                // starts over.
                Err(FetchError::TurnLost) => self.begin_anew(),
            }
        }
        FetchEnd::Response(Err(Cause::Timeout))
    }

    fn begin_anew(&mut self) {
        let claim = self.claim.take();
        *self = Self::new(self.worker, self.fetch, self.requester);
        self.claim = claim;
    }

    /// Waits for admission, and until no other node of the fleet is fetching the same
    /// file.
    async fn leave(&mut self) -> Leave<F::Turn> {
        // The wait for a turn does not count: it has its own limit.
        let mut elsewhere_since = None;
        loop {
            let Some(admission) = self.admit().await else {
                return Leave::Busy;
            };
            let (worker, key) = (self.worker, &self.fetch.key);
            let Some(shared) = &worker.sources.shared else {
                return Leave::Ask(admission);
            };
            let claim = shared.claim(key).await;
            let is_elsewhere = matches!(claim, Claim::Elsewhere);
            // An earlier claim has expired by now, and no request uses it any longer.
            self.claim = match claim {
                Claim::Taken(claim) => Some(claim),
                Claim::Alone | Claim::Elsewhere => None,
            };
            // Checked after the claim: its previous holder has shared an answer by now.
            if let Some(entry) = worker.newer(self.fetch).await {
                return Leave::Found(entry);
            }
            if !is_elsewhere {
                return Leave::Ask(admission);
            }
            // The other node has no turn here or lost it: it was redirected, suspended or
            // killed. In the last two cases its claim ends. Meanwhile others can use turn
            // and slot.
            drop(admission);
            let since = *elsewhere_since.get_or_insert_with(clock::instant);
            if worker.table.options.timeout <= clock::instant().duration_since(since) {
                return Leave::Busy;
            }
            sleep(CLAIM_CHECK).await;
        }
    }

    /// Gives the claim back once no other node has to wait.
    async fn release_claim(&self) {
        if let Some(claim) = &self.claim {
            claim.release().await;
        }
    }

    /// Waits for a turn at the host and a slot; `None` if they do not come within
    /// `robots.timeout`.
    ///
    /// Neither is held while the fetch waits for the other. Slots are shared by all
    /// hosts, and the turns of a host by all its fetches: holding one would stop fetches
    /// that need only that.
    async fn admit(&self) -> Option<Admission<F::Turn>> {
        let worker = self.worker;
        let host = self.url.origin.host();
        let mut budget = TimeBudget::new(worker.table.options.timeout);
        loop {
            let turn = self.turn(host).await?;
            if let Some(Ok(slot)) = at_once(self.slot()).await {
                return Some(Admission { turn, slot });
            }
            drop(turn);
            let slot = budget.spend(self.slot()).await?.ok()?;
            if let Some(turn) = at_once(self.turn_for_any(host)).await.flatten() {
                return Some(Admission { turn, slot });
            }
        }
    }

    /// Waits for a slot of any client that waits for the fetch, so that no client is held
    /// up by the other requests of another.
    async fn slot(&self) -> Result<FetchSlot, ShareRefusal> {
        let (clients, slots) = (self.fetch.clients.subscribe(), &self.worker.slots);
        take_for_any(clients, async |client| slots.take(&client).await).await
    }

    /// Waits for a turn at `host` in the share of any client that waits for the fetch.
    async fn turn_for_any(&self, host: &Host) -> Option<F::Turn> {
        let fetcher = &self.worker.sources.fetcher;
        let clients = self.fetch.clients.subscribe();
        let turn = async |client| fetcher.turn(host, &client).await.ok_or(());
        take_for_any(clients, turn).await.ok()
    }

    /// Waits for a turn at `host`; `None` if it would not come soon enough. Reports the
    /// wait, because each waiting request has its own patience.
    async fn turn(&self, host: &Host) -> Option<F::Turn> {
        // Estimated before the fetch itself joins the queue.
        let until = clock::instant() + self.wait(host);
        let mut turn = pin!(self.turn_for_any(host));
        if let Some(turn) = at_once(turn.as_mut()).await {
            return turn;
        }
        let host = host.clone();
        self.fetch.report(FetchState::Queued { host, until });
        let turn = turn.await;
        self.fetch.report(FetchState::Requesting);
        turn
    }

    /// Returns the approximate wait for a turn of the client that started the fetch.
    fn wait(&self, host: &Host) -> Duration {
        let fetcher = &self.worker.sources.fetcher;
        fetcher.wait(host, &self.fetch.client)
    }

    /// Makes the requests and follows redirects within `robots.timeout`, which starts
    /// with the admission and excludes the waits for turns.
    ///
    /// Redirects on the same host share one turn: a pause between them could be longer
    /// than any client waits.
    async fn follow(
        &mut self,
        admission: Admission<F::Turn>,
    ) -> Result<Response<RobotsBody>, FetchError> {
        let Admission { mut turn, mut slot } = admission;
        let (worker, origin) = (self.worker, &self.fetch.key.origin);
        let mut budget = TimeBudget::new(worker.table.options.timeout);
        let mut permit = RobotsPermit::first(origin);
        loop {
            let request = budget.spend(self.request(permit, &mut turn)).await;
            let response = request.unwrap_or(Err(Cause::Timeout.into()))?;
            // Released before waiting for another fetch, because fetches could wait for
            // each other's slots in a circle.
            drop(slot);
            let status = response.status().as_u16();
            self.status = Some(status);
            if status_meaning(status) != StatusMeaning::Redirect {
                self.last_turn = worker.sources.shared.is_some().then_some(turn);
                return Ok(response);
            }
            let next = self.redirect(&response)?;
            let host = next.origin.host();
            // A robots.txt of another origin may be read in any case, a page there only
            // if the rules of that origin allow it.
            let is_page = next.path_and_query() != ROBOTS_TXT;
            let is_checked = is_page && next.origin != *origin;
            if is_page && !is_checked {
                self.check_denied(&next)?;
            }
            if is_checked || host != self.url.origin.host() {
                // No turn is held while waiting for another one: fetches could wait for
                // each other in a circle.
                drop(turn);
                if is_checked {
                    let check = budget.spend(self.check_redirect(&next)).await;
                    check.unwrap_or(Err(Cause::Timeout))?;
                }
                turn = match self.turn(host).await {
                    Some(turn) => turn,
                    None => {
                        self.turn_in = Some(self.wait(host));
                        return Err(Cause::Busy.into());
                    }
                };
            }
            // `Busy`, because the missing slot is ours: it says nothing about the origin.
            slot = budget
                .spend(self.slot())
                .await
                .and_then(Result::ok)
                .ok_or(Cause::Busy)?;
            // Decisions made before the waits may no longer hold.
            if is_checked {
                self.check_redirect_again(&next)?;
            } else if is_page {
                self.check_denied(&next)?;
            }
            self.hops.push(mem::replace(&mut self.url, next.clone()));
            self.status = None;
            permit = RobotsPermit::redirected(next);
        }
    }

    async fn request(
        &mut self,
        permit: RobotsPermit,
        turn: &mut F::Turn,
    ) -> Result<Response<RobotsBody>, FetchError> {
        let earlier = self.fetch.known.shared.as_deref();
        let known = earlier.and_then(|earlier| earlier.validators(&self.url.to_string()));
        self.is_conditional = known.is_some();
        let request = RobotsRequest {
            permit,
            asker: &self.requester.asker,
            known,
            claim: self.claim.as_ref(),
        };
        let fetched = self.worker.sources.fetcher.fetch(request, turn);
        fetched.await.map_err(|error| match error {
            // `NoConnection` is answered with 502, so only the initial origin may have
            // it: the crawler requested nothing from the others.
            FetchError::Unreachable(Cause::NoConnection(_)) if !self.hops.is_empty() => {
                Cause::RedirectTarget.into()
            }
            FetchError::Unreachable(_) | FetchError::TurnLost => error,
        })
    }

    /// Returns the URL that a response redirects to. An error if that is one redirect too
    /// many, or a URL that was already requested.
    fn redirect(&self, response: &Response<RobotsBody>) -> Result<Target, Cause> {
        let next = redirect_target(&self.url, response.headers()).ok_or(Cause::RedirectTarget)?;
        let was_requested = self.url == next || self.hops.contains(&next);
        let redirects_max = usize::from(self.worker.table.options.redirects);
        if was_requested || redirects_max <= self.hops.len() {
            return Err(Cause::Redirects);
        }
        Ok(next)
    }

    /// Decides whether a redirect to a page of another origin may be followed, by the
    /// rules of that origin.
    ///
    /// Two origins may redirect to each other. So this does not wait for an origin whose
    /// own fetch is checking a redirect. Each fetch reports that it does so before it
    /// looks at the other, so one of them sees it.
    async fn check_redirect(&mut self, target: &Target) -> Result<(), Cause> {
        self.fetch.report(FetchState::CheckingRedirect);
        let inquiry = self.inquiry(target);
        let (worker, asker) = (self.worker, &self.requester.asker);
        let keys = worker.keys(&inquiry, asker);
        let entry = loop {
            match worker.look_up(&keys, asker, || self.requester.clone()) {
                Lookup::Fresh(entry) => break entry,
                Lookup::Running(mut watch) => {
                    let decides = |state: &FetchState| {
                        matches!(state, FetchState::CheckingRedirect | FetchState::Done(_))
                    };
                    match watch.wait_for(decides).await.as_deref() {
                        Ok(FetchState::Done(entry)) if keys.include(&entry.snapshot) => {
                            break Arc::clone(entry);
                        }
                        // The answer was for another sender.
                        Ok(FetchState::Done(_)) => {}
                        Ok(_) | Err(_) => return Err(Cause::RedirectDisallowed),
                    }
                }
            }
        };
        self.fetch.report(FetchState::Requesting);
        self.judge_redirect(&inquiry, &entry)
    }

    /// Decides a redirect to a page of another origin again, by the robots.txt in memory.
    fn check_redirect_again(&mut self, target: &Target) -> Result<(), Cause> {
        let inquiry = self.inquiry(target);
        let keys = self.worker.keys(&inquiry, &self.requester.asker);
        match self.worker.table.known(&keys).in_force() {
            Some(entry) => self.judge_redirect(&inquiry, &entry),
            None => Err(Cause::Busy),
        }
    }

    /// Decides a redirect to the page of `inquiry` by the robots.txt of its origin.
    fn judge_redirect(&mut self, inquiry: &Arc<Inquiry>, entry: &CacheEntry) -> Result<(), Cause> {
        let policy = self.worker.redirect_policy();
        let decision = decide(inquiry, &entry.snapshot, &policy, clock::now());
        match decision.ruling().verdict {
            // The evidence is out of date: a page it allowed may be disallowed by now.
            // The page is not requested before the file has been fetched again.
            Verdict::Allow if decision.evidence().is_out_of_date() => {
                self.turn_in = Some(decision.evidence().holds_for(clock::now()));
                Err(Cause::Busy)
            }
            Verdict::Allow => Ok(()),
            Verdict::Disallow | Verdict::Later => Err(Cause::RedirectDisallowed),
        }
    }

    /// Decides whether a redirect to a page of the same origin may be followed, by the
    /// operator's policy alone: the rules of the origin are what this fetch is about to
    /// find out.
    fn check_denied(&self, target: &Target) -> Result<(), Cause> {
        let (policy, now) = (self.worker.redirect_policy(), clock::now());
        let without_rules = Snapshot {
            result: AccessResult::Unavailable,
            ..Snapshot::unreachable(self.fetch.key.clone(), Cause::Busy, now)
        };
        match ruling(&self.inquiry(target), &without_rules, &policy, now).verdict {
            Verdict::Allow => Ok(()),
            Verdict::Disallow | Verdict::Later => Err(Cause::RedirectDisallowed),
        }
    }

    /// Makes the inquiry for a page that is requested on the crawler's behalf, as if the
    /// crawler requested it.
    fn inquiry(&self, target: &Target) -> Arc<Inquiry> {
        Arc::new(Inquiry {
            crawler: self.requester.crawler.clone(),
            target: target.clone(),
            method: "GET".to_owned(),
        })
    }

    /// Reads the last response.
    async fn outcome(&self, response: Result<Response<RobotsBody>, Cause>) -> FetchOutcome {
        let key = &self.fetch.key;
        let unread = |cause| Snapshot {
            url: self.url.to_string(),
            hops: self.hops.iter().map(Target::to_string).collect(),
            status: self.status,
            ..Snapshot::unreachable(key.clone(), cause, clock::now())
        };
        let response = match response {
            Ok(response) => response,
            Err(cause) => {
                return FetchOutcome {
                    stated: self.turn_in,
                    ..FetchOutcome::from(unread(cause))
                };
            }
        };
        let (bytes, unread) = (response.body().bytes.len(), unread(Cause::Status));
        let earlier = self.fetch.known.shared.as_ref();
        let known = earlier.filter(|_| self.is_conditional);
        let earlier = known.map(|known| Arc::clone(&known.snapshot));
        let read =
            move |dialect| FetchOutcome::read(&response, dialect, unread, earlier.as_deref());
        let outcome = self.worker.compiled(bytes, &self.requester.crawler, read);
        let failed = || FetchOutcome::failed(key, Cause::Internal);
        outcome.await.unwrap_or_else(failed)
    }
}

/// Returns the output of `work` if it is ready without waiting.
async fn at_once<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = ready(()) => None,
    }
}
