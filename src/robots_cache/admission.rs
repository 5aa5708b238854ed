//! Bounds of fetches: slots, and time.
//!
//! Slots bound how many fetches of robots.txt make requests at the same time,
//! in all and for one client. Does not know what is requested.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::options::Options;
use crate::clock;
use crate::metrics::Metrics;

/// Number of clients above which those without a slot are forgotten.
const CLIENTS_SWEPT: usize = 1024;

/// Time that is left for something.
#[derive(Debug)]
pub(super) struct TimeBudget {
    pub(super) left: Duration,
    pub(super) spent: Duration,
}

impl TimeBudget {
    pub(super) fn new(left: Duration) -> Self {
        Self {
            left,
            spent: Duration::ZERO,
        }
    }

    /// Returns the output of `work`, or `None` if the time is up before.
    pub(super) async fn spend<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let begun = clock::instant();
        let done = timeout(self.left, work).await.ok();
        let spent = clock::instant().duration_since(begun);
        self.left = self.left.saturating_sub(spent);
        self.spent += spent;
        done
    }
}

/// Slots of the fetches that make requests.
#[derive(Debug)]
pub(super) struct FetchSlots {
    all: Semaphore,
    per_client: usize,
    /// Slots of each client that has one or waits for one.
    clients: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
    metrics: Arc<Metrics>,
}

/// A slot that is taken; free again when dropped.
#[derive(Debug)]
pub(super) struct FetchSlot<'a> {
    metrics: &'a Metrics,
    _all: Option<SemaphorePermit<'a>>,
    _client: Option<OwnedSemaphorePermit>,
}

impl FetchSlots {
    pub(super) fn new(options: &Options, metrics: Arc<Metrics>) -> Self {
        Self {
            all: semaphore(options.max_fetches.get()),
            per_client: options.max_fetches_per_client.get(),
            clients: Mutex::default(),
            metrics,
        }
    }

    /// Waits for a slot for `client`.
    pub(super) async fn take(&self, client: Option<IpAddr>) -> FetchSlot<'_> {
        // Acquiring fails only on a closed semaphore, and none is ever closed.
        let own = match client {
            Some(client) => self.of(client).acquire_owned().await.ok(),
            None => None,
        };
        // Last: a client that waits for its own share must not hold a slot that
        // others could use.
        let all = self.all.acquire().await.ok();
        self.metrics.robots_fetches_under_way.inc();
        FetchSlot {
            metrics: &self.metrics,
            _all: all,
            _client: own,
        }
    }

    fn of(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = clients.get(&client).and_then(Weak::upgrade) {
            return own;
        }
        if CLIENTS_SWEPT <= clients.len() {
            clients.retain(|_, own| 0 < own.strong_count());
        }
        let own = Arc::new(semaphore(self.per_client));
        clients.insert(client, Arc::downgrade(&own));
        own
    }
}

fn semaphore(slots: usize) -> Semaphore {
    Semaphore::new(slots.min(Semaphore::MAX_PERMITS))
}

impl Drop for FetchSlot<'_> {
    fn drop(&mut self) {
        self.metrics.robots_fetches_under_way.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::robots_cache::tests::kit::options;

    fn client(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(number.into()))
    }

    async fn at_once<'a>(slots: &'a FetchSlots, number: u32) -> Option<FetchSlot<'a>> {
        timeout(Duration::ZERO, slots.take(client(number)))
            .await
            .ok()
    }

    // Ours: a client that wants all leaves the others some.
    #[tokio::test(start_paused = true)]
    async fn a_client_has_its_share_and_is_forgotten() {
        let options = Options {
            max_fetches: NonZeroUsize::new(4).unwrap(),
            max_fetches_per_client: NonZeroUsize::new(3).unwrap(),
            ..options()
        };
        let slots = FetchSlots::new(&options, Arc::default());
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.push(at_once(&slots, 1).await.unwrap());
        }
        assert!(at_once(&slots, 1).await.is_none());
        taken.push(at_once(&slots, 2).await.unwrap());
        assert!(at_once(&slots, 3).await.is_none());
        drop(taken);
        for number in 0..5_000 {
            tokio::task::yield_now().await;
            assert!(at_once(&slots, number).await.is_some());
        }
        let remembered = slots.clients.lock().unwrap().len();
        assert!(remembered <= CLIENTS_SWEPT, "{remembered}");
    }
}
