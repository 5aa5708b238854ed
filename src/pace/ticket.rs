//! Tickets of requests that wait in a queue, and the seats that count requests
//! that wait (`pace.queue`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::context::{Now, PaceContext};
use super::options::QueueLimits;
use super::queue::HostQueue;
use super::request::{QueuePlace, TurnAnswer, Waiter};
use super::schedule::Uptime;
use super::turn::Turn;
use crate::decision::delay::{Delay, DelayEnd};
use crate::decision::reason::Reason;
use crate::metrics::Metrics;
use politesse_robots::origin::Host;

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

/// Ticket of a request that waits in a queue. Dropped, its place is free, and so
/// is a turn that was granted and not taken.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) queue: Arc<HostQueue>,
    pub(super) place: QueuePlace,
    pub(super) answer: oneshot::Receiver<TurnAnswer>,
    pub(super) joined_at: Uptime,
    pub(super) deadline: Uptime,
    /// Counts the request as long as it waits; a robots.txt has none.
    pub(super) _seat: Option<Seat>,
}

impl Ticket {
    /// Waits for the turn at `host`.
    ///
    /// # Errors
    ///
    /// The [`Delay`] that is longer than the request may wait: as soon as that
    /// is known, at the deadline at the latest.
    pub(super) async fn turn(
        mut self,
        context: &Arc<PaceContext>,
        host: &Host,
    ) -> Result<Turn, Delay> {
        let answered = context.wait_until(self.deadline, &mut self.answer);
        let answer = match answered.await {
            Some(answer) => answer,
            None => match self.queue.leave(&self.place) {
                Some(waiter) => return Err(self.final_delay(waiter, &context.now())),
                // It was taken out of the queue: its answer is on the way.
                None => (&mut self.answer).await,
            },
        };
        // The sender is gone when the queue was closed.
        let grant = answer.unwrap_or_else(|_closed| Err(stopping()))?;
        let waited = context.uptime().saturating_sub(self.joined_at);
        let (context, queue) = (Arc::clone(context), Arc::clone(&self.queue));
        let turn = Turn::new(context, queue, host, grant);
        Ok(turn.after_wait(waited, self.place.arrival))
    }

    /// Returns the delay of a request whose deadline has passed.
    fn final_delay(&self, mut waiter: Waiter, now: &Now) -> Delay {
        // It has left the queue, and would be the last if it came again.
        waiter.place.arrival = u64::MAX;
        let mut delay = self.queue.estimate(&waiter, now);
        // Where nothing else would delay the request now, it waited for what
        // held it up alone.
        if let Some(reason) = waiter.held_by.filter(|_| delay.is_over()) {
            delay.reason = reason;
        }
        delay
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.queue.leave(&self.place);
        // From here on no turn can be granted; one may have been before.
        self.answer.close();
        if let Ok(Ok(unused)) = self.answer.try_recv() {
            self.queue.update(|host| host.give_back(&unused));
        }
    }
}

/// Makes the delay of a request that would have to wait while the proxy stops.
pub(super) fn stopping() -> Delay {
    let end = DelayEnd::OnEvent(Uptime::MAX);
    Delay::of_host(Reason::Overload, end).explained("the proxy is stopping")
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
