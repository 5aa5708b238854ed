//! Fleet store in memory, which may be late or lost for one of the nodes.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::time::{Instant, sleep};

use super::kit::SECOND;
use super::*;
use crate::shared_answers::{
    ClaimAnswer, ClaimCall, SharedStore, SharedStoreError, SharedStoreTimes,
};
use crate::store::StoreFuture;
use politesse_decision::snapshot::StoredSnapshot;
use politesse_robots::Dialect;

/// Times of the store, as in a fleet with leases of two seconds.
pub(crate) const TIMES: SharedStoreTimes = SharedStoreTimes {
    claim: Duration::from_secs(8),
    patience: Duration::from_secs(2),
};

/// Longest time that a node waits for an answer.
pub(super) const TIMEOUT: Duration = Duration::from_millis(200);

/// Store shared by all nodes.
#[derive(Debug, Default)]
pub(crate) struct SharedShelf {
    kept: Mutex<HashMap<CacheKey, StoredSnapshot>>,
    claims: Mutex<HashMap<CacheKey, ShelfClaim>>,
    save_takes: Mutex<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct ShelfClaim {
    node: usize,
    number: u64,
    ends: Instant,
}

/// Trouble that a node has with the store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Trouble {
    #[default]
    None,
    /// The given number of calls takes effect, but their answers are lost.
    Unanswered(u32),
    /// Calls are late, and have no effect.
    Late,
    /// The node considers the store lost.
    Lost,
}

/// Connection of one node to the store.
#[derive(Debug)]
pub(crate) struct ShelfLink {
    shelf: Arc<SharedShelf>,
    node: usize,
    trouble: Mutex<Trouble>,
}

impl SharedShelf {
    pub(crate) fn link(self: &Arc<Self>, node: usize) -> Arc<ShelfLink> {
        Arc::new(ShelfLink {
            shelf: Arc::clone(self),
            node,
            trouble: Mutex::default(),
        })
    }

    pub(super) fn keep(&self, kept: StoredSnapshot) {
        let key = kept.snapshot.key.clone();
        self.kept.lock().unwrap().insert(key, kept);
    }

    pub(super) fn only(&self) -> StoredSnapshot {
        self.kept.lock().unwrap().values().next().unwrap().clone()
    }

    pub(super) fn takes(&self, time: Duration) {
        *self.save_takes.lock().unwrap() = time;
    }

    /// Returns how many claims are held.
    pub(super) fn claims(&self) -> usize {
        let now = clock::instant();
        let claims = self.claims.lock().unwrap();
        claims.values().filter(|claim| now < claim.ends).count()
    }

    fn claim(&self, node: usize, call: ClaimCall<'_>) -> ClaimAnswer {
        let now = clock::instant();
        let mut claims = self.claims.lock().unwrap();
        let held = claims.get(call.key);
        if held.is_some_and(|claim| claim.node != node && now < claim.ends) {
            return ClaimAnswer::Refuse;
        }
        let claim = ShelfClaim {
            node,
            number: call.number,
            ends: now + TIMES.claim,
        };
        claims.insert(call.key.clone(), claim);
        ClaimAnswer::Take
    }

    fn release(&self, node: usize, call: ClaimCall<'_>) {
        let is_own = |claim: &ShelfClaim| (claim.node, claim.number) == (node, call.number);
        let mut claims = self.claims.lock().unwrap();
        if claims.get(call.key).is_some_and(is_own) {
            claims.remove(call.key);
        }
    }
}

impl ShelfLink {
    pub(super) fn has(&self, trouble: Trouble) {
        *self.trouble.lock().unwrap() = trouble;
    }

    async fn call<T>(&self, act: impl FnOnce() -> T) -> Result<T, SharedStoreError> {
        let trouble = *self.trouble.lock().unwrap();
        match trouble {
            Trouble::None | Trouble::Unanswered(0) => return Ok(act()),
            Trouble::Unanswered(calls) => {
                act();
                self.has(Trouble::Unanswered(calls - 1));
            }
            Trouble::Late => {}
            Trouble::Lost => return Err(SharedStoreError::Lost),
        }
        sleep(TIMEOUT).await;
        Err(SharedStoreError::Late)
    }
}

impl SharedStore for ShelfLink {
    fn times(&self) -> SharedStoreTimes {
        TIMES
    }

    fn load<'a>(
        &'a self,
        key: &'a CacheKey,
        _: Dialect,
    ) -> StoreFuture<'a, Result<Option<StoredSnapshot>, SharedStoreError>> {
        Box::pin(self.call(|| self.shelf.kept.lock().unwrap().get(key).cloned()))
    }

    fn save(&self, answer: StoredSnapshot) -> StoreFuture<'_, Result<(), SharedStoreError>> {
        Box::pin(async move {
            let takes = *self.shelf.save_takes.lock().unwrap();
            sleep(takes).await;
            self.call(|| self.shelf.keep(answer)).await
        })
    }

    fn claim<'a>(
        &'a self,
        call: ClaimCall<'a>,
    ) -> StoreFuture<'a, Result<ClaimAnswer, SharedStoreError>> {
        Box::pin(self.call(move || self.shelf.claim(self.node, call)))
    }

    fn release<'a>(&'a self, call: ClaimCall<'a>) -> StoreFuture<'a, Result<(), SharedStoreError>> {
        Box::pin(self.call(move || self.shelf.release(self.node, call)))
    }
}

/// Waits until `seconds` have passed since the start of a test, on its paused clock.
pub(super) async fn wait_until(began: Instant, seconds: u32) {
    tokio::time::sleep_until(began + SECOND * seconds).await;
}
