//! Look-ups that are wanted: which of them run, and which wait for a place, in
//! the names of which clients.
//!
//! One look-up serves all requests for its name. It begins as soon as one of the
//! clients that want it has a place: no client waits for a name behind what
//! another one asks. Does not know how a name is looked up.

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

/// Zones above which those that no look-up is in are forgotten.
const ZONES_SWEPT: usize = 1024;

/// Look-ups that run or wait.
#[derive(Debug)]
pub(super) struct PendingLookups {
    timeout: Duration,
    state: Mutex<PendingState>,
}

#[derive(Debug)]
struct PendingState {
    lookups: HashMap<Box<str>, PendingLookup>,
    /// Bound of the claims that wait.
    waiting: SharedBound,
}

/// Look-up of one name.
#[derive(Debug)]
struct PendingLookup {
    answer: watch::Sender<Option<ResolvedName>>,
    /// Cancelled when the look-up begins.
    begun: CancellationToken,
    begun_at: Option<Instant>,
    /// Clients with a claim that waits.
    clients: Vec<ClientId>,
}

/// What a request for a name waits for.
pub(super) struct Joined {
    pub(super) answer: watch::Receiver<Option<ResolvedName>>,
    /// Cancelled when the look-up begins.
    pub(super) begun: CancellationToken,
    /// End of the wait. Of a look-up that runs it counts from its beginning, so
    /// that a name that hangs holds up no request twice.
    pub(super) deadline: Instant,
    /// Claim that has to be followed up, if the client has none yet.
    pub(super) claim: Option<LookupClaim>,
}

/// A client's claim to look a name up. Ends when dropped: where it has begun, all
/// who wait learn that there is no answer; else they have the other claims, or
/// learn that there is no room.
pub(super) struct LookupClaim {
    pub(super) name: Box<str>,
    pub(super) client: Arc<Client>,
    /// Time at which it has waited long enough.
    pub(super) deadline: Instant,
    pending: Arc<PendingLookups>,
    answer: watch::Sender<Option<ResolvedName>>,
    begun: CancellationToken,
    state: ClaimState,
}

/// Progress of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimState {
    /// It is among those that wait.
    Waiting,
    /// Its look-up runs.
    Running,
    /// It has nothing to do any more.
    Ended,
}

impl PendingLookups {
    /// Makes a table of up to `most` claims that wait, each for `timeout`.
    pub(super) fn new(most: usize, timeout: Duration) -> Self {
        let state = Mutex::new(PendingState {
            lookups: HashMap::new(),
            waiting: SharedBound::new(most),
        });
        Self { timeout, state }
    }

    /// Joins the look-up of `name`, in the name of `client`.
    ///
    /// # Errors
    ///
    /// [`DialError::Busy`] if too many wait, and this client has its share of
    /// them.
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
            // Another client's claim may still come through.
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

    /// Returns the clients of all claims that wait.
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
    /// Removes a claim that waits; returns whether its look-up has no other.
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
    /// Waits until the claim is of no use: its look-up runs by another one, or no
    /// request waits for it.
    pub(super) async fn becomes_void(&mut self) {
        let begun = self.begun.clone();
        tokio::select! {
            () = begun.cancelled() => {}
            () = self.is_abandoned() => {}
        }
    }

    /// Waits until no request waits for the look-up, and ends the claim.
    async fn is_abandoned(&mut self) {
        loop {
            self.answer.closed().await;
            let pending = Arc::clone(&self.pending);
            // Requests join under this lock. The next one finds nothing to join,
            // and begins anew.
            let mut state = pending.state();
            if self.answer.receiver_count() == 0 {
                self.end(&mut state);
                return;
            }
        }
    }

    /// Begins the look-up; returns false if it runs already.
    pub(super) fn begin(&mut self) -> bool {
        let mut guard = self.pending.state();
        let state = &mut *guard;
        let lookup = state.lookups.get_mut(&self.name);
        let Some(lookup) = lookup.filter(|_| !self.begun.is_cancelled()) else {
            return false;
        };
        lookup.begun_at = Some(clock::instant());
        // All claims are settled at once. Those of other clients find the token
        // cancelled, and leave the table alone: it may have another look-up of
        // the name by then.
        for client in lookup.clients.drain(..) {
            state.waiting.remove(&client);
        }
        self.begun.cancel();
        self.state = ClaimState::Running;
        true
    }

    /// Ends the look-up with `found`.
    pub(super) fn finish(mut self, found: ResolvedName) {
        let pending = Arc::clone(&self.pending);
        self.end(&mut pending.state());
        self.answer.send_replace(Some(found));
    }

    /// Takes the claim out of the table; returns whether all who wait for the
    /// name are left without one.
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

/// Places of each client in each zone: the domain that somebody has registered.
///
/// The names of a zone whose name servers do not answer wait for each other, and
/// take no places from other names.
#[derive(Debug)]
pub(super) struct ZonePlaces {
    most: usize,
    zones: Mutex<ZoneTable>,
}

#[derive(Debug, Default)]
struct ZoneTable {
    zones: HashMap<ClientZone, Weak<Semaphore>>,
    /// Number of zones at which the next sweep comes.
    next_sweep: usize,
}

/// A zone, as far as one client is concerned.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ClientZone {
    client: ClientId,
    zone: Box<str>,
}

impl ZonePlaces {
    /// Makes `most` places for each client in each zone.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.min(Semaphore::MAX_PERMITS),
            zones: Mutex::default(),
        }
    }

    /// Waits for a place of `client` in the zone of `name`.
    pub(super) async fn take(&self, client: &Client, name: &str) -> Option<OwnedSemaphorePermit> {
        // Acquiring fails only on a closed semaphore, and none is ever closed.
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
            // Doubled, or a sweep that frees nothing would come with each zone.
            table.next_sweep = table.zones.len().saturating_mul(2);
        }
        let places = Arc::new(Semaphore::new(self.most));
        table.zones.insert(own, Arc::downgrade(&places));
        places
    }
}
