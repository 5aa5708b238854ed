//! Admission of a fetch: its turn at the host, its slot among the fetches that
//! make requests, and its time limit.
//!
//! Slots bound how many fetches of robots.txt make requests at the same time,
//! in all and for one client. Does not know what is requested.

use std::collections::HashMap;
use std::future::ready;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;

use super::fetch::RobotsFetcher;
use super::options::Options;
use super::store::FetchState;
use crate::clock;
use crate::metrics::Metrics;
use politesse_robots::origin::Host;

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

    #[cfg(test)]
    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    #[cfg(test)]
    pub(super) fn under_way(&self) -> i64 {
        self.metrics.robots_fetches_under_way.get()
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

/// Turn and slot with which a fetch makes its first request.
pub(super) struct Admission<'a, T> {
    pub(super) turn: T,
    pub(super) slot: FetchSlot<'a>,
}

/// Host at which fetches take turns, and the requests that are told of the wait.
pub(super) struct TurnQueue<'a, F> {
    pub(super) fetcher: &'a F,
    pub(super) state: watch::Sender<FetchState>,
}

impl<F: RobotsFetcher> TurnQueue<'_, F> {
    /// Waits for a turn at `host` and a slot for `client`; `None` if they do not
    /// come within `limit`.
    ///
    /// Neither is held while the fetch waits for the other. Slots are shared by
    /// all hosts, and a turn by all fetches at one host: holding one would stop
    /// fetches that need nothing but that.
    pub(super) async fn admit<'a>(
        &self,
        host: &Host,
        slots: &'a FetchSlots,
        client: Option<IpAddr>,
        limit: Duration,
    ) -> Option<Admission<'a, F::Turn>> {
        let mut budget = TimeBudget::new(limit);
        loop {
            let turn = self.turn(host).await?;
            if let Some(slot) = at_once(slots.take(client)).await {
                return Some(Admission { turn, slot });
            }
            drop(turn);
            let slot = budget.spend(slots.take(client)).await?;
            if let Some(turn) = at_once(self.fetcher.turn(host)).await.flatten() {
                return Some(Admission { turn, slot });
            }
        }
    }

    /// Waits for a turn at `host`; `None` if it would not come soon enough.
    /// Reports the wait, since each waiting request has a patience of its own.
    pub(super) async fn turn(&self, host: &Host) -> Option<F::Turn> {
        // The estimate is made before the fetch stands in the queue itself.
        let until = clock::instant() + self.fetcher.wait(host);
        let mut turn = pin!(self.fetcher.turn(host));
        if let Some(turn) = at_once(turn.as_mut()).await {
            return turn;
        }
        let host = host.clone();
        self.state.send_replace(FetchState::Queued { host, until });
        let turn = turn.await;
        self.state.send_replace(FetchState::Requesting);
        turn
    }
}

/// Returns the output of `work` if it is ready without a wait.
async fn at_once<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = ready(()) => None,
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
