//! Pending lookups: which ones run, and which wait for a place, and for which clients.
//!
//! One lookup serves all requests for its name. It starts as soon as any of the clients
//! that want it has a place, so that no client's lookup is queued after the lookups of
//! another client. Does not know how a name is looked up.

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
    /// Limit on the waiting claims.
    waiting: SharedBound,
}

/// Lookup of one name.
#[derive(Debug)]
struct PendingLookup {
    answer: watch::Sender<Option<ResolvedName>>,
    /// Cancelled when the lookup starts.
    begun: CancellationToken,
    begun_at: Option<Instant>,
    /// Clients with a waiting claim.
    clients: Vec<ClientId>,
}

/// Handles for a request that waits for a name.
pub(super) struct Joined {
    pub(super) answer: watch::Receiver<Option<ResolvedName>>,
    /// Cancelled when the lookup starts.
    pub(super) begun: CancellationToken,
    /// Time limit of the wait. For a running lookup it is measured from the lookup's
    /// start, so that a hanging name delays a request only once.
    pub(super) deadline: Instant,
    /// Claim that the caller must follow, unless the client already has one.
    pub(super) claim: Option<LookupClaim>,
}

/// A client's claim to look up a name. It ends when dropped. If its lookup has started,
/// the waiting requests then learn that there is no answer. Otherwise they depend on the
/// remaining claims. After the last one they learn that there is no capacity.
pub(super) struct LookupClaim {
    pub(super) name: Box<str>,
    pub(super) client: Arc<Client>,
    /// Time at which the claim gives up waiting.
    pub(super) deadline: Instant,
    pending: Arc<PendingLookups>,
    answer: watch::Sender<Option<ResolvedName>>,
    begun: CancellationToken,
    state: ClaimState,
}

/// Progress of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimState {
    /// The claim is waiting.
    Waiting,
    /// The lookup of the claim runs.
    Running,
    /// The claim is settled.
    Ended,
}

impl PendingLookups {
    /// Creates a table of at most `most` waiting claims, each of which waits up to
    /// `timeout`.
    pub(super) fn new(most: usize, timeout: Duration) -> Self {
        let state = Mutex::new(PendingState {
            lookups: HashMap::new(),
            waiting: SharedBound::new(most),
        });
        Self { timeout, state }
    }

    /// Joins the lookup of `name` on behalf of `client`.
    ///
    /// # Errors
    ///
    /// [`DialError::Busy`] if too many claims wait and this client has used up its share
    /// of them.
    pub(super) fn join(
        self: &Arc<Self>,
        name: &str,
        client: &Arc<Client>,
    ) -> Result<Joined, DialError> {
        let mut guard = self.state();
        let state = &mut *guard;
        if let Some(lookup) = state.lookups.get(name)
            && (lookup.begun_at.is_some() || lookup.clients.contains(&client.id))
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
            begun: CancellationToken::new(),
            begun_at: None,
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
            begun: lookup.begun.clone(),
            state: ClaimState::Waiting,
        };
        Ok(self.joined(lookup, Some(claim)))
    }

    fn joined(&self, lookup: &PendingLookup, claim: Option<LookupClaim>) -> Joined {
        let since = lookup.begun_at.unwrap_or_else(clock::instant);
        Joined {
            answer: lookup.answer.subscribe(),
            begun: lookup.begun.clone(),
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

impl LookupClaim {
    /// Completes when the claim is no longer needed: another claim has started the
    /// lookup, or no request waits for it.
    pub(super) async fn becomes_void(&mut self) {
        let begun = self.begun.clone();
        tokio::select! {
            () = begun.cancelled() => {}
            () = self.is_abandoned() => {}
        }
    }

    /// Completes when no request waits for the lookup, and ends the claim.
    async fn is_abandoned(&mut self) {
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

    /// Starts the lookup. Returns false if it is already running.
    pub(super) fn begin(&mut self) -> bool {
        let mut guard = self.pending.state();
        let state = &mut *guard;
        let lookup = state.lookups.get_mut(&self.name);
        let Some(lookup) = lookup.filter(|_| !self.begun.is_cancelled()) else {
            return false;
        };
        lookup.begun_at = Some(clock::instant());
        // Settles all claims at once. The claims of other clients notice the cancelled
        // token and leave the table alone, because it may contain a new lookup of the
        // name by then.
        for client in lookup.clients.drain(..) {
            state.waiting.remove(&client);
        }
        self.begun.cancel();
        self.state = ClaimState::Running;
        true
    }

    /// Ends the lookup with the result `found`.
    pub(super) fn finish(mut self, found: ResolvedName) {
        let pending = Arc::clone(&self.pending);
        self.end(&mut pending.state());
        self.answer.send_replace(Some(found));
    }

    /// Removes the claim from the table. Returns whether the requests waiting for the
    /// name are left without any claim.
    fn end(&mut self, state: &mut PendingState) -> bool {
        match mem::replace(&mut self.state, ClaimState::Ended) {
            ClaimState::Waiting if self.begun.is_cancelled() => false,
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

/// Lookup places per client and zone. A zone is a registered domain.
///
/// If the name servers of a zone do not answer, its names wait for each other and take no
/// places from other names.
#[derive(Debug)]
pub(super) struct ZonePlaces {
    most: usize,
    zones: Mutex<ZoneTable>,
}

#[derive(Debug, Default)]
struct ZoneTable {
    zones: HashMap<ClientZone, Weak<Semaphore>>,
    /// Number of zones that triggers the next sweep.
    next_sweep: usize,
}

/// A zone, for a single client.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ClientZone {
    client: ClientId,
    zone: Box<str>,
}

impl ZonePlaces {
    /// Creates `most` places for each client in each zone.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.min(Semaphore::MAX_PERMITS),
            zones: Mutex::default(),
        }
    }

    /// Waits for a place for `client` in the zone of `name`.
    pub(super) async fn take(&self, client: &Client, name: &str) -> Option<OwnedSemaphorePermit> {
        // Acquiring fails only on a closed semaphore, and these are never closed.
        self.of(client, name).acquire_owned().await.ok()
    }

    fn of(&self, client: &Client, name: &str) -> Arc<Semaphore> {
        let own = ClientZone {
            client: client.id.clone(),
            zone: psl::domain_str(name).unwrap_or(name).into(),
        };
        let mut table = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = table.zones.get(&own).and_then(Weak::upgrade) {
            return places;
        }
        if table.next_sweep.max(ZONES_SWEPT) <= table.zones.len() {
            table.zones.retain(|_, places| 0 < places.strong_count());
            // Doubled; otherwise a sweep that frees nothing would be repeated for each
            // new zone.
            table.next_sweep = table.zones.len().saturating_mul(2);
        }
        let places = Arc::new(Semaphore::new(self.most));
        table.zones.insert(own, Arc::downgrade(&places));
        places
    }
}
