//! Robots.txt files that the nodes of a fleet fetch for each other: the answers that they
//! share, and the claims that keep two nodes from making the same request.
//!
//! A node claims a robots.txt before it requests it, renews the claim during the fetch,
//! and gives it back once its answer is shared (docs/decisions/031-shared-robots.md). A
//! store that is merely late is asked again, up to a limit; without a store the node
//! continues alone. Does not know how a robots.txt is fetched, nor how the store is
//! reached.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::pending;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::time::sleep;

use super::store::StoreFuture;
use politesse_base::clock::{self, Stamp};
use politesse_decision::snapshot::{CacheKey, StoredSnapshot};
use politesse_robots::Dialect;

/// Pause before a late store is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Number of times that a claim is renewed before it would end.
const PARTS: u32 = 4;

/// Divisor of a claim's length: this part is left unused, because clocks run at different
/// speeds.
const UNUSED_PARTS: u32 = 50;

/// Reason why the fleet's store gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SharedStoreError {
    /// The node considers the store available, so the next call may be answered.
    #[error("the store of the fleet is late")]
    Late,
    /// The store is lost, or refuses the order.
    #[error("the store of the fleet is lost, or refuses")]
    Lost,
}

/// Call that claims the fetch of a robots.txt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimCall<'a> {
    /// Robots.txt to fetch.
    pub key: &'a CacheKey,
    /// Number of the claim. It keeps a late call from ending a later claim of this
    /// process.
    pub number: u64,
}

/// Answer of the store to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// The calling process has the claim.
    Take,
    /// Another process has the claim.
    Refuse,
}

/// Times of a store of robots.txt files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedStoreTimes {
    /// Time for which a claim holds if it is not renewed.
    pub claim: Duration,
    /// Longest time for which a late store is asked again before the node continues
    /// without it.
    pub patience: Duration,
}

/// Store that all nodes of a fleet use.
pub trait SharedStore: Debug + Send + Sync + 'static {
    /// Returns the times of the store.
    fn times(&self) -> SharedStoreTimes;

    /// Loads the answer that a node shared for `key`, with its file read in `dialect`.
    fn load<'a>(
        &'a self,
        key: &'a CacheKey,
        dialect: Dialect,
    ) -> StoreFuture<'a, Result<Option<StoredSnapshot>, SharedStoreError>>;

    /// Shares an answer, replacing an earlier one.
    fn save(&self, answer: StoredSnapshot) -> StoreFuture<'_, Result<(), SharedStoreError>>;

    /// Claims a fetch, or renews the claim.
    fn claim<'a>(
        &'a self,
        call: ClaimCall<'a>,
    ) -> StoreFuture<'a, Result<ClaimAnswer, SharedStoreError>>;

    /// Gives a claim back.
    fn release<'a>(&'a self, call: ClaimCall<'a>) -> StoreFuture<'a, Result<(), SharedStoreError>>;
}

/// Shared answers of a fleet, from a store that may be late.
#[derive(Clone, Debug)]
pub struct SharedAnswers(Arc<dyn SharedStore>);

/// Outcome of a claim.
#[derive(Debug)]
pub(super) enum Claim {
    /// No other node fetches the robots.txt while the claim lasts.
    Taken(Arc<FetchClaim>),
    /// Another node fetches the robots.txt.
    Elsewhere,
    /// Without a store to coordinate with others, this node continues alone.
    Alone,
}

impl SharedAnswers {
    /// Wraps the answers in `store`.
    pub fn new(store: Arc<dyn SharedStore>) -> Self {
        Self(store)
    }

    /// Loads the answer for `key`, if any. The outer `Option` is `None` without a store.
    pub(super) async fn load(
        &self,
        key: &CacheKey,
        dialect: Dialect,
    ) -> Option<Option<StoredSnapshot>> {
        self.patiently(|| self.0.load(key, dialect)).await
    }

    /// Shares an answer.
    pub(super) async fn save(&self, answer: &StoredSnapshot) {
        // Without a store there is no other node to share with.
        let _ = self.patiently(|| self.0.save(answer.clone())).await;
    }

    /// Claims the fetch of `key`.
    pub(super) async fn claim(&self, key: &CacheKey) -> Claim {
        let claim = FetchClaim {
            store: self.clone(),
            key: key.clone(),
            // Each `RandomState` has its own keys.
            number: RandomState::new().hash_one(()),
            since: Mutex::new(Some(Stamp::now())),
        };
        match self.patiently(|| self.0.claim(claim.call())).await {
            Some(ClaimAnswer::Take) => Claim::Taken(Arc::new(claim)),
            Some(ClaimAnswer::Refuse) => Claim::Elsewhere,
            None => Claim::Alone,
        }
    }

    /// Returns the answer to `ask`, which is repeated while the store is late.
    async fn patiently<'a, T>(
        &'a self,
        ask: impl Fn() -> StoreFuture<'a, Result<T, SharedStoreError>>,
    ) -> Option<T> {
        let began = clock::instant();
        loop {
            match ask().await {
                Ok(answer) => return Some(answer),
                Err(SharedStoreError::Lost) => return None,
                Err(SharedStoreError::Late) => {
                    // An unresponsive store must not stop the crawl.
                    if self.0.times().patience <= clock::instant().duration_since(began) {
                        return None;
                    }
                    sleep(ASK_AGAIN).await;
                }
            }
        }
    }
}

/// Claim of this node on the fetch of a robots.txt. A claim that is dropped without being
/// given back expires.
#[derive(Debug)]
pub struct FetchClaim {
    store: SharedAnswers,
    key: CacheKey,
    number: u64,
    /// Time of the latest call that the store answered with the claim. `None` once the
    /// claim was lost, because another node may have fetched the file in the meantime.
    since: Mutex<Option<Stamp>>,
}

impl FetchClaim {
    fn call(&self) -> ClaimCall<'_> {
        ClaimCall {
            key: &self.key,
            number: self.number,
        }
    }

    fn since(&self) -> Option<Stamp> {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no other node can have the claim.
    pub fn is_held(&self) -> bool {
        let lasts = self.store.0.times().claim;
        let used = lasts - lasts / UNUSED_PARTS;
        self.since().is_some_and(|since| since.age() < used)
    }

    /// Renews the claim regularly while `work` runs.
    pub(super) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = work => done,
            never = self.keep() => match never {},
        }
    }

    async fn keep(&self) -> Infallible {
        while self.is_held() {
            sleep(self.store.0.times().claim / PARTS).await;
            self.renew().await;
        }
        pending().await
    }

    async fn renew(&self) {
        let asked_at = Stamp::now();
        let store = &self.store;
        let answer = store.patiently(|| store.0.claim(self.call())).await;
        let is_held = self.is_held();
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Some(ClaimAnswer::Take) if is_held => *since = Some(asked_at),
            // Taken again after it had expired: other nodes had it, or could have had it.
            Some(_) => *since = None,
            None => {}
        }
    }

    /// Gives the claim back.
    pub(super) async fn release(&self) {
        // Tried once: a claim that is not given back expires soon.
        let _ = self.store.0.release(self.call()).await;
    }
}
