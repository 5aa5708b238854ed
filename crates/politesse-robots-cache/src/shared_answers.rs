//! Robots.txt files that the nodes of a fleet fetch for each other: the answers that they
//! share, and the claims that keep two nodes from the same request.
//!
//! A node claims a robots.txt before it asks for it, renews the claim while it does, and
//! gives it back once its answer is shared (docs/decisions/031-shared-robots.md). A store
//! that is merely late is asked again, within a bound; one that is lost is done without.
//! Does not know how a robots.txt is fetched, nor how the store is reached.

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

/// Time after which a store that was late is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Times that a claim is renewed while it lasts.
const PARTS: u32 = 4;

/// Part of a claim that its holder does not use, since clocks differ in speed.
const UNUSED_PARTS: u32 = 50;

/// Reason why the store of a fleet gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SharedStoreError {
    /// The node takes the store to be there, so that it may answer the next time.
    #[error("the store of the fleet is late")]
    Late,
    /// The store is lost, or does not take the order.
    #[error("the store of the fleet is lost, or refuses")]
    Lost,
}

/// Claim on the fetch of a robots.txt, as the store is asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimCall<'a> {
    /// Robots.txt that is to be fetched.
    pub key: &'a CacheKey,
    /// Number of the claim: what is late must not end a later claim of this process.
    pub number: u64,
}

/// Answer of the store to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// This process has the claim.
    Take,
    /// Another one has it.
    Refuse,
}

/// Times of a store of robots.txt files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedStoreTimes {
    /// Time for which a claim holds if it is not renewed.
    pub claim: Duration,
    /// Longest time for which a late store is asked again before it is done without.
    pub patience: Duration,
}

/// Store that all nodes of a fleet use.
pub trait SharedStore: Debug + Send + Sync + 'static {
    /// Returns the times of the store.
    fn times(&self) -> SharedStoreTimes;

    /// Loads the answer that a node shared for `key`, its file read by `dialect`.
    fn load<'a>(
        &'a self,
        key: &'a CacheKey,
        dialect: Dialect,
    ) -> StoreFuture<'a, Result<Option<StoredSnapshot>, SharedStoreError>>;

    /// Shares an answer, in place of an earlier one.
    fn save(&self, answer: StoredSnapshot) -> StoreFuture<'_, Result<(), SharedStoreError>>;

    /// Claims a fetch, or renews the claim.
    fn claim<'a>(
        &'a self,
        call: ClaimCall<'a>,
    ) -> StoreFuture<'a, Result<ClaimAnswer, SharedStoreError>>;

    /// Gives a claim back.
    fn release<'a>(&'a self, call: ClaimCall<'a>) -> StoreFuture<'a, Result<(), SharedStoreError>>;
}

/// Answers of a fleet, from a store that may be late.
#[derive(Clone, Debug)]
pub struct SharedAnswers(Arc<dyn SharedStore>);

/// Outcome of a claim.
#[derive(Debug)]
pub(super) enum Claim {
    /// No other node fetches the robots.txt as long as this lasts.
    Taken(Arc<FetchClaim>),
    /// Another node fetches it.
    Elsewhere,
    /// There is no store to agree with others by: this node goes on alone.
    Alone,
}

impl SharedAnswers {
    /// Makes the answers that are in `store`.
    pub fn new(store: Arc<dyn SharedStore>) -> Self {
        Self(store)
    }

    /// Loads the answer for `key`, if there is one; `None` without a store.
    pub(super) async fn load(
        &self,
        key: &CacheKey,
        dialect: Dialect,
    ) -> Option<Option<StoredSnapshot>> {
        self.patiently(|| self.0.load(key, dialect)).await
    }

    /// Shares an answer.
    pub(super) async fn save(&self, answer: &StoredSnapshot) {
        // Without a store there is nobody to share it with.
        let _ = self.patiently(|| self.0.save(answer.clone())).await;
    }

    /// Claims the fetch of `key`.
    pub(super) async fn claim(&self, key: &CacheKey) -> Claim {
        let claim = FetchClaim {
            store: self.clone(),
            key: key.clone(),
            // Each `RandomState` has keys of its own.
            number: RandomState::new().hash_one(()),
            since: Mutex::new(Some(Stamp::now())),
        };
        match self.patiently(|| self.0.claim(claim.call())).await {
            Some(ClaimAnswer::Take) => Claim::Taken(Arc::new(claim)),
            Some(ClaimAnswer::Refuse) => Claim::Elsewhere,
            None => Claim::Alone,
        }
    }

    /// Returns the answer to `ask`, which is asked again while the store is late.
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
                    // The crawl must not stand still for a store that answers nobody.
                    if self.0.times().patience <= clock::instant().duration_since(began) {
                        return None;
                    }
                    sleep(ASK_AGAIN).await;
                }
            }
        }
    }
}

/// Claim of this node on the fetch of a robots.txt. Dropped and not given back, it ends
/// by itself.
#[derive(Debug)]
pub struct FetchClaim {
    store: SharedAnswers,
    key: CacheKey,
    number: u64,
    /// Time of the latest question that the store answered with the claim; `None` once
    /// the claim was lost, since another node may have fetched the file meanwhile.
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

    /// Renews the claim again and again, for as long as `work` takes.
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
            // Taken anew after it was over: others had it, or could have had.
            Some(_) => *since = None,
            None => {}
        }
    }

    /// Gives the claim back.
    pub(super) async fn release(&self) {
        // Once: a claim that is not given back is over soon.
        let _ = self.store.0.release(self.call()).await;
    }
}
