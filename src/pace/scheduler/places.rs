//! How many requests wait, for one crawler and in all (`pace.queue`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::metrics::Metrics;
use crate::pace::options::QueueLimits;

/// Those that wait, counted.
#[derive(Debug)]
pub(super) struct Places {
    taken: Mutex<Taken>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    /// Only crawlers of which something waits.
    crawlers: HashMap<Arc<str>, usize>,
}

/// The place of one that waits.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    crawler: Arc<str>,
}

/// What has no room for one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// This crawler waits for too much.
    Crawler,
    /// Too much waits in all.
    Total,
}

impl Places {
    pub(super) fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        let taken = Mutex::default();
        Arc::new(Self { taken, metrics })
    }

    /// A place for one more of this crawler.
    ///
    /// # Errors
    ///
    /// [`Full`] where there is none.
    pub(super) fn take(
        self: &Arc<Self>,
        crawler: &Arc<str>,
        limits: &QueueLimits,
    ) -> Result<Place, Full> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if limits.total.get() <= taken.total {
            return Err(Full::Total);
        }
        let own = taken.crawlers.get(crawler).copied().unwrap_or(0);
        if limits.crawler.get() <= own {
            return Err(Full::Crawler);
        }
        taken.total += 1;
        taken.crawlers.insert(Arc::clone(crawler), own + 1);
        self.metrics.pace_queued.inc();
        Ok(Place {
            places: Arc::clone(self),
            crawler: Arc::clone(crawler),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self
            .places
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        taken.total -= 1;
        let left = taken.crawlers.get_mut(&self.crawler).map(|own| {
            *own -= 1;
            *own
        });
        if left == Some(0) {
            taken.crawlers.remove(&self.crawler);
        }
        self.places.metrics.pace_queued.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    // The issue, deliverable 1; contract, `pace.queue`.
    #[test]
    fn places_are_counted_by_crawler_and_in_all_and_given_back() {
        let places = Places::new(Arc::default());
        let count = |count| NonZeroUsize::new(count).unwrap();
        let limits = QueueLimits {
            origin: count(9),
            crawler: count(2),
            total: count(3),
        };
        let take = |name: &str| places.take(&name.into(), &limits);
        let first = take("a").unwrap();
        let _second = take("a").unwrap();
        assert_eq!(take("a").unwrap_err(), Full::Crawler);
        let third = take("b").unwrap();
        assert_eq!(take("c").unwrap_err(), Full::Total);
        assert_eq!(places.metrics.pace_queued.get(), 3);
        drop((first, third));
        assert!(take("a").is_ok());
        let taken = places.taken.lock().unwrap();
        assert_eq!((taken.total, taken.crawlers.len()), (1, 1));
    }
}
