//! How many fetches of robots.txt are under way at the same time.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::metrics::Metrics;

/// A place for each fetch that may be under way.
#[derive(Debug)]
pub(super) struct Places {
    free: Semaphore,
    metrics: Arc<Metrics>,
}

/// A place that is taken, and counted.
#[derive(Debug)]
pub(super) struct Place<'a> {
    metrics: &'a Metrics,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Places {
    pub(super) fn new(places: usize, metrics: Arc<Metrics>) -> Self {
        Self {
            free: Semaphore::new(places.min(Semaphore::MAX_PERMITS)),
            metrics,
        }
    }

    /// A place, once there is one.
    pub(super) async fn take(&self) -> Place<'_> {
        // It fails only where it was closed, which nobody does.
        let permit = self.free.acquire().await.ok();
        self.metrics.robots_fetches_under_way.inc();
        Place {
            metrics: &self.metrics,
            _permit: permit,
        }
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

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.metrics.robots_fetches_under_way.dec();
    }
}
