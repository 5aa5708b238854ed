//! Pending lookups of names: which ones run, and which wait to start, for which clients.
//!
//! One lookup serves all requests for its name. Each client that wants it has a *claim*
//! ([`LookupClaim`]), and waits for its own permits to look up the name. The first claim
//! with its permits starts the lookup, and the other claims end. So a client never waits
//! because another client has many lookups. Does not know how a name is looked up.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::rules::{DialError, ResolvedName};
use politesse_base::clients::bound::SharedBound;
use politesse_base::clients::client::{Client, ClientId, Resource};
use politesse_base::clock;

/// Number of zones above which idle ones are removed.
const ZONES_SWEPT: usize = 1024;

/// Running and waiting lookups.
#[derive(Debug)]
pub(super) struct PendingLookups {
    timeout: Duration,
    state: Mutex<PendingState>,
}

#[derive(Debug)]
struct PendingState {
    lookups: HashMap<Box<str>, PendingLookup>,
    /// Number of waiting claims, and the limit on them.
    waiting: SharedBound,
}

/// Lookup of one name.
#[derive(Debug)]
struct PendingLookup {
    /// Passes the answer to the waiting requests; `None` until then.
    answer: watch::Sender<Option<ResolvedName>>,
    start: StartSignal,
    /// Time at which the lookup started; `None` while it waits to start.
    started_at: Option<Instant>,
    /// Clients with a waiting claim. Empty once the lookup runs.
    clients: Vec<ClientId>,
}

/// Signal that a lookup has started. All clones share it.
#[derive(Debug, Clone)]
pub(super) struct StartSignal(CancellationToken);

/// Handles for a request that waits for the lookup of a name.
pub(super) struct JoinedLookup {
    /// Receives the answer; `None` until then.
    pub(super) answer: watch::Receiver<Option<ResolvedName>>,
    pub(super) start: StartSignal,
    /// Time at which the request stops waiting. Measured from the start of the lookup if
    /// that runs already, so that a hanging name delays a request only once.
    pub(super) deadline: Instant,
    /// New claim, which the caller must carry out. `None` if none is needed, because the
    /// lookup runs or the client already has a claim, or if the client may have no more
    /// claims.
    pub(super) claim: Option<LookupClaim>,
}

/// Claim of a client to look up a name.
///
/// [`LookupClaim::begin`] starts the lookup, [`LookupClaim::finish`] passes on its answer.
/// A claim dropped before that ends as well. If its lookup was running, the requests for
/// the name are left without an answer. If the lookup had not started, they depend on the
/// claims of other clients; with the last of these claims they get [`DialError::Busy`].
pub(super) struct LookupClaim {
    pub(super) name: Box<str>,
    pub(super) client: Arc<Client>,
    /// Time at which the claim gives up waiting for its permits.
    pub(super) deadline: Instant,
    pending: Arc<PendingLookups>,
    answer: watch::Sender<Option<ResolvedName>>,
    start: StartSignal,
    state: ClaimState,
}

/// Progress of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimState {
    /// The claim waits for its permits. If another claim starts the lookup, this claim
    /// stays in this state, but is no longer in the table.
    Waiting,
    /// The claim has started the lookup, which runs.
    Running,
    /// The claim is neither in the table nor counted.
    Ended,
}

impl PendingLookups {
    /// Creates a table for at most `most` waiting claims. Claims and requests wait up to
    /// `timeout`.
    pub(super) fn new(most: usize, timeout: Duration) -> Self {
        let state = Mutex::new(PendingState {
            lookups: HashMap::new(),
            waiting: SharedBound::new(most),
        });
        Self { timeout, state }
    }

    /// Joins the lookup of `name` on behalf of `client`, or creates it.
    ///
    /// # Errors
    ///
    /// [`DialError::Busy`] if no lookup of `name` is pending, and too many claims wait for
    /// this client to have another one.
    pub(super) fn join(
        self: &Arc<Self>,
        name: &str,
        client: &Arc<Client>,
    ) -> Result<JoinedLookup, DialError> {
        let mut guard = self.state();
        let state = &mut *guard;
        if let Some(lookup) = state.lookups.get(name)
            && (lookup.started_at.is_some() || lookup.clients.contains(&client.id))
        {
            return Ok(self.joined(lookup, None));
        }
        if !state.waiting.add(&client.id) {
            client.count_refused(Resource::Lookups);
            // The claim of another client may still succeed.
            let other = state.lookups.get(name);
            return other
                .map(|lookup| self.joined(lookup, None))
                .ok_or(DialError::Busy);
        }
        let new = || PendingLookup {
            answer: watch::Sender::new(None),
            start: StartSignal(CancellationToken::new()),
            started_at: None,
            clients: Vec::new(),
        };
        let lookup = state.lookups.entry(name.into()).or_insert_with(new);
        lookup.clients.push(client.id.clone());
        let claim = LookupClaim {
            name: name.into(),
            client: Arc::clone(client),
            deadline: clock::instant() + self.timeout,
            pending: Arc::clone(self),
            answer: lookup.answer.clone(),
            start: lookup.start.clone(),
            state: ClaimState::Waiting,
        };
        Ok(self.joined(lookup, Some(claim)))
    }

    fn joined(&self, lookup: &PendingLookup, claim: Option<LookupClaim>) -> JoinedLookup {
        let since = lookup.started_at.unwrap_or_else(clock::instant);
        JoinedLookup {
            answer: lookup.answer.subscribe(),
            start: lookup.start.clone(),
            deadline: since + self.timeout,
            claim,
        }
    }

    /// Returns the clients of all waiting claims.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> Vec<ClientId> {
        let state = self.state();
        let lookups = state.lookups.values();
        lookups.flat_map(|lookup| lookup.clients.clone()).collect()
    }

    fn state(&self) -> MutexGuard<'_, PendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingState {
    /// Removes a waiting claim. Returns whether it was the last one of its lookup.
    fn leave(&mut self, claim: &LookupClaim) -> bool {
        let client = &claim.client.id;
        self.waiting.remove(client);
        let Some(lookup) = self.lookups.get_mut(&claim.name) else {
            return false;
        };
        lookup.clients.retain(|other| other != client);
        lookup.clients.is_empty()
    }
}

impl StartSignal {
    /// Reports whether the lookup has started.
    pub(super) fn is_given(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl LookupClaim {
    /// Waits until the claim is no longer needed: another claim has started the lookup, or
    /// no request waits for the name any more.
    pub(super) async fn until_unneeded(&mut self) {
        let start = self.start.clone();
        tokio::select! {
            () = start.0.cancelled() => {}
            () = self.until_abandoned() => {}
        }
    }

    /// Waits until no request waits for the name, and then ends the claim.
    async fn until_abandoned(&mut self) {
        loop {
            self.answer.closed().await;
            let pending = Arc::clone(&self.pending);
            // Requests join under this lock. The next one finds no lookup to join and
            // starts a new one.
            let mut state = pending.state();
            if self.answer.receiver_count() == 0 {
                self.end(&mut state);
                return;
            }
        }
    }

    /// Marks the lookup as running and ends the other claims for its name. Returns false
    /// if another claim has already started it.
    pub(super) fn begin(&mut self) -> bool {
        let mut guard = self.pending.state();
        let state = &mut *guard;
        let lookup = state.lookups.get_mut(&self.name);
        let Some(lookup) = lookup.filter(|_| !self.start.is_given()) else {
            return false;
        };
        lookup.started_at = Some(clock::instant());
        // Removes all claims for the name at once. The claims of other clients notice the
        // signal and leave the table alone, because it may contain a new lookup of the
        // name by then.
        for client in lookup.clients.drain(..) {
            state.waiting.remove(&client);
        }
        self.start.0.cancel();
        self.state = ClaimState::Running;
        true
    }

    /// Ends the lookup, and passes its result `found` to the waiting requests.
    pub(super) fn finish(mut self, found: ResolvedName) {
        let pending = Arc::clone(&self.pending);
        self.end(&mut pending.state());
        self.answer.send_replace(Some(found));
    }

    /// Removes the claim from the table. Returns whether its lookup had not started and
    /// this was the last claim for it.
    fn end(&mut self, state: &mut PendingState) -> bool {
        match mem::replace(&mut self.state, ClaimState::Ended) {
            ClaimState::Waiting if self.start.is_given() => false,
            ClaimState::Waiting => {
                let is_last = state.leave(self);
                if is_last {
                    state.lookups.remove(&self.name);
                }
                is_last
            }
            ClaimState::Running => {
                state.lookups.remove(&self.name);
                false
            }
            ClaimState::Ended => false,
        }
    }
}

impl Drop for LookupClaim {
    fn drop(&mut self) {
        let pending = Arc::clone(&self.pending);
        if self.end(&mut pending.state()) {
            self.client.count_refused(Resource::Lookups);
            self.answer.send_replace(Some(Err(DialError::Busy)));
        }
    }
}

/// Permits that limit the running lookups of each client in each zone. The zone of a name
/// is its registered domain: `site.example` for `www.site.example`.
///
/// If the name servers of a zone do not answer, the names of the zone wait for each other
/// and do not use up the client's share of all lookups.
#[derive(Debug)]
pub(super) struct ZonePermits {
    /// Permits of one client in one zone.
    most: usize,
    zones: Mutex<ZoneTable>,
}

#[derive(Debug, Default)]
struct ZoneTable {
    /// Semaphores with the permits. One without a permit in use and without a waiter is
    /// already dropped; its entry remains until the next sweep.
    zones: HashMap<ClientZone, Weak<Semaphore>>,
    /// Number of zones that triggers the next sweep.
    next_sweep: usize,
}

/// Zone, for a single client.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ClientZone {
    client: ClientId,
    zone: Box<str>,
}

impl ZonePermits {
    /// Creates `most` permits for each client in each zone.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.min(Semaphore::MAX_PERMITS),
            zones: Mutex::default(),
        }
    }

    /// Waits for a permit for `client` in the zone of `name`. Never returns `None`.
    pub(super) async fn acquire(
        &self,
        client: &Client,
        name: &str,
    ) -> Option<OwnedSemaphorePermit> {
        // Acquiring fails only on a closed semaphore, and these are never closed.
        self.semaphore(client, name).acquire_owned().await.ok()
    }

    fn semaphore(&self, client: &Client, name: &str) -> Arc<Semaphore> {
        let key = ClientZone {
            client: client.id.clone(),
            zone: psl::domain_str(name).unwrap_or(name).into(),
        };
        let mut table = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permits) = table.zones.get(&key).and_then(Weak::upgrade) {
            return permits;
        }
        if table.next_sweep.max(ZONES_SWEPT) <= table.zones.len() {
            table.zones.retain(|_, permits| 0 < permits.strong_count());
            // Doubled; otherwise a sweep that frees nothing would be repeated for each
            // new zone.
            table.next_sweep = table.zones.len().saturating_mul(2);
        }
        let permits = Arc::new(Semaphore::new(self.most));
        table.zones.insert(key, Arc::downgrade(&permits));
        permits
    }
}
