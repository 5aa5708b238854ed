//! How many fetches of robots.txt are under way at the same time, in all and for
//! one client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::metrics::Metrics;

/// Above so many clients those are forgotten that have no place and want none.
const CLIENTS_SWEPT: usize = 1024;

/// How many fetches may be under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) all: usize,
    pub(super) one_client: usize,
}

/// A place for each fetch that may be under way.
#[derive(Debug)]
pub(super) struct Places {
    limits: Limits,
    free: Semaphore,
    /// What is free for a client, as long as it has a place or wants one.
    clients: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
    metrics: Arc<Metrics>,
}

/// A place that is taken, and counted.
#[derive(Debug)]
pub(super) struct Place<'a> {
    metrics: &'a Metrics,
    _permit: Option<SemaphorePermit<'a>>,
    _own: Option<OwnedSemaphorePermit>,
}

impl Places {
    pub(super) fn new(limits: Limits, metrics: Arc<Metrics>) -> Self {
        Self {
            free: semaphore(limits.all),
            limits,
            clients: Mutex::default(),
            metrics,
        }
    }

    /// A place, once there is one for this client.
    pub(super) async fn take(&self, client: Option<IpAddr>) -> Place<'_> {
        // Both fail only where they were closed, which nobody does.
        let own = match client {
            Some(client) => self.of(client).acquire_owned().await.ok(),
            None => None,
        };
        let permit = self.free.acquire().await.ok();
        self.metrics.robots_fetches_under_way.inc();
        Place {
            metrics: &self.metrics,
            _permit: permit,
            _own: own,
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
        let own = Arc::new(semaphore(self.limits.one_client));
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

fn semaphore(places: usize) -> Semaphore {
    Semaphore::new(places.min(Semaphore::MAX_PERMITS))
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.metrics.robots_fetches_under_way.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn client(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(number.into()))
    }

    async fn at_once<'a>(places: &'a Places, number: u32) -> Option<Place<'a>> {
        timeout(Duration::ZERO, places.take(client(number)))
            .await
            .ok()
    }

    // Security, section 6: a client that wants all leaves the others some.
    #[tokio::test(start_paused = true)]
    async fn a_client_has_its_share_and_is_forgotten() {
        let limits = Limits {
            all: 4,
            one_client: 3,
        };
        let places = Places::new(limits, Arc::default());
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.push(at_once(&places, 1).await.unwrap());
        }
        assert!(at_once(&places, 1).await.is_none());
        taken.push(at_once(&places, 2).await.unwrap());
        assert!(at_once(&places, 3).await.is_none());
        drop(taken);
        for number in 0..5_000 {
            tokio::task::yield_now().await;
            assert!(at_once(&places, number).await.is_some());
        }
        let remembered = places.clients.lock().unwrap().len();
        assert!(remembered <= CLIENTS_SWEPT, "{remembered}");
    }
}
