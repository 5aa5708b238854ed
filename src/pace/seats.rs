//! Seats, by which the requests that wait are counted for each crawler and in
//! all (`pace.queue`).
//!
//! Does not know where they wait: in a queue, or for their robots.txt.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::options::QueueLimits;
use crate::metrics::Metrics;

/// Seats of all requests that wait, in a queue or for their robots.txt.
#[derive(Debug)]
pub(super) struct Seats {
    taken: Mutex<TakenSeats>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct TakenSeats {
    total: usize,
    /// Seats by crawler; crawlers without any are not remembered.
    by_crawler: HashMap<Arc<str>, usize>,
}

/// Seat of one request that waits, counted until this is dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    crawler: Arc<str>,
}

impl Seats {
    pub(super) fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        let taken = Mutex::default();
        Arc::new(Self { taken, metrics })
    }

    fn lock(&self) -> MutexGuard<'_, TakenSeats> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat for one more request of `crawler`.
    ///
    /// # Errors
    ///
    /// An explanation if no seat is left, for this crawler or in all.
    pub(super) fn take(
        self: &Arc<Self>,
        crawler: &Arc<str>,
        limits: &QueueLimits,
    ) -> Result<Seat, &'static str> {
        let mut taken = self.lock();
        if limits.total.get() <= taken.total {
            return Err("too many requests wait already");
        }
        // A limit for each crawler within that for all, or one crawler could
        // take every seat.
        let own = taken.by_crawler.get(crawler).copied().unwrap_or(0);
        if limits.crawler.get() <= own {
            return Err("too many requests of this crawler wait already");
        }
        taken.total += 1;
        taken.by_crawler.insert(Arc::clone(crawler), own + 1);
        self.metrics.pace_queued.inc();
        Ok(Seat {
            seats: Arc::clone(self),
            crawler: Arc::clone(crawler),
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        taken.total -= 1;
        if let Some(own) = taken.by_crawler.get_mut(&self.crawler) {
            *own -= 1;
            if *own == 0 {
                taken.by_crawler.remove(&self.crawler);
            }
        }
        self.seats.metrics.pace_queued.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    // Ours: `pace.queue`.
    #[test]
    fn seats_are_counted_by_crawler_and_in_all_and_given_back() {
        let seats = Seats::new(Arc::default());
        let count = |count| NonZeroUsize::new(count).unwrap();
        let limits = QueueLimits {
            origin: count(9),
            crawler: count(2),
            total: count(3),
        };
        let take = |name: &str| seats.take(&name.into(), &limits);
        let first = take("a").unwrap();
        let _second = take("a").unwrap();
        assert!(take("a").unwrap_err().contains("of this crawler"));
        let third = take("b").unwrap();
        assert_eq!(take("c").unwrap_err(), "too many requests wait already");
        assert_eq!(seats.metrics.pace_queued.get(), 3);
        drop((first, third));
        assert!(take("a").is_ok());
        let taken = seats.taken.lock().unwrap();
        assert_eq!((taken.total, taken.by_crawler.len()), (1, 1));
    }
}
