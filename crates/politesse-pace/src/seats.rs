//! Seats, which count the waiting requests per client, per crawler and in total
//! (`pace.queue`).
//!
//! When all seats are taken, a client that holds fewer than another takes over that
//! client's latest seat. Does not know where requests wait: in a queue, or for their
//! robots.txt.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::options::QueueLimits;
use super::request::TurnOwner;
use politesse_base::clients::client::Resource;
use politesse_base::clients::shares::{DisplacementOrder, Share, ShareRefusal, Shares};
use politesse_base::metrics::Metrics;

/// Seats of all waiting requests, in a queue or for their robots.txt.
#[derive(Debug)]
pub(super) struct Seats {
    /// Seats by client, and their total.
    shares: Arc<Shares>,
    /// Seats by crawler; crawlers without seats are removed.
    by_crawler: Mutex<HashMap<Arc<str>, usize>>,
    metrics: Arc<Metrics>,
}

/// Seat of one waiting request, counted until this is dropped.
#[derive(Debug)]
pub struct Seat {
    /// Seats that this one belongs to.
    seats: Arc<Seats>,
    /// Crawler that the seat counts for.
    crawler: Arc<str>,
    /// Seat of the client, which another client may take over.
    share: Share,
}

impl Seats {
    pub(super) fn new(limits: &QueueLimits, metrics: Arc<Metrics>) -> Arc<Self> {
        let shares = Shares::new(
            Resource::Waiting,
            limits.total.get(),
            // The latest request has waited least, and its crawler retries soonest.
            DisplacementOrder::NewestFirst,
            Arc::clone(&metrics),
        );
        Arc::new(Self {
            shares,
            by_crawler: Mutex::default(),
            metrics,
        })
    }

    /// Applies new limits; taken seats are kept.
    pub(super) fn set_limits(&self, limits: &QueueLimits) {
        self.shares.set_limit(limits.total.get());
    }

    fn by_crawler(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.by_crawler
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat for one more request of `owner`; `None` for a robots.txt, which
    /// needs none. The caller must also wait for [`Seat::displaced`].
    ///
    /// # Errors
    ///
    /// An explanation if no seat is left for this crawler, for this client, or in
    /// total.
    pub(super) fn take(
        self: &Arc<Self>,
        owner: &TurnOwner,
        limits: &QueueLimits,
    ) -> Result<Option<Seat>, Cow<'static, str>> {
        let Some(crawler) = &owner.crawler else {
            return Ok(None);
        };
        // The crawler limit applies in addition to the total. Without it, one crawler
        // could take every seat through its many clients.
        self.count_crawler(crawler, limits)?;
        match self.shares.take_now(&owner.client) {
            Ok(share) => {
                share.may_be_displaced(true);
                self.metrics.pace_queued.inc();
                Ok(Some(Seat {
                    seats: Arc::clone(self),
                    crawler: Arc::clone(crawler),
                    share,
                }))
            }
            Err(refusal) => {
                self.uncount_crawler(crawler);
                Err(in_words(&refusal))
            }
        }
    }

    /// Counts one more seat of a crawler, unless it has as many as it may have.
    fn count_crawler(&self, crawler: &Arc<str>, limits: &QueueLimits) -> Result<(), &'static str> {
        let mut by_crawler = self.by_crawler();
        let own = by_crawler.get(crawler).copied().unwrap_or(0);
        if limits.crawler.get() <= own {
            return Err("too many requests of this crawler wait already");
        }
        by_crawler.insert(Arc::clone(crawler), own + 1);
        Ok(())
    }

    /// Counts one seat of a crawler less.
    fn uncount_crawler(&self, crawler: &Arc<str>) {
        let mut by_crawler = self.by_crawler();
        if let Some(own) = by_crawler.get_mut(crawler) {
            *own -= 1;
            if *own == 0 {
                by_crawler.remove(crawler);
            }
        }
    }
}

/// Explains to a client why it gets no seat.
fn in_words(refusal: &ShareRefusal) -> Cow<'static, str> {
    match refusal {
        ShareRefusal::Full => Cow::Borrowed(
            "too many requests wait already, and this client has its share of the places",
        ),
        ShareRefusal::Limit(id) => Cow::Owned(format!(
            "as many requests of {id} wait as the operator allows"
        )),
    }
}

impl Seat {
    /// Waits until a client with fewer seats takes this one over.
    pub async fn displaced(&self) {
        self.share.displaced().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.uncount_crawler(&self.crawler);
        self.seats.metrics.pace_queued.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::num::NonZeroUsize;

    use super::*;
    use politesse_base::clients::client::ClientLimits;
    use politesse_base::clients::directory::{ClientDirectory, Options};

    fn limits(crawler: usize, total: usize) -> QueueLimits {
        let count = |count| NonZeroUsize::new(count).unwrap();
        QueueLimits {
            origin: count(9),
            crawler: count(crawler),
            total: count(total),
        }
    }

    fn owner(directory: &ClientDirectory, client: u32, crawler: &str) -> TurnOwner {
        TurnOwner {
            client: directory.at(IpAddr::V4(client.into())),
            crawler: Some(crawler.into()),
        }
    }

    // Ours: `pace.queue`.
    #[test]
    fn seats_are_counted_by_crawler_and_in_total_and_given_back() {
        let (limits, directory) = (limits(2, 3), ClientDirectory::default());
        let seats = Seats::new(&limits, Arc::default());
        let take = |name: &str| {
            let taken = seats.take(&owner(&directory, 1, name), &limits);
            taken.map(Option::unwrap)
        };
        let first = take("a").unwrap();
        let _second = take("a").unwrap();
        assert!(take("a").unwrap_err().contains("of this crawler"));
        let third = take("b").unwrap();
        assert!(take("c").unwrap_err().starts_with("too many requests wait"));
        assert_eq!(seats.metrics.pace_queued.get(), 3);
        drop((first, third));
        assert!(take("a").is_ok());
        assert_eq!(seats.by_crawler().len(), 1);
        assert_eq!(seats.metrics.pace_queued.get(), 1);
    }

    // Ours: max-min fairness by client, no matter which names a client uses.
    #[tokio::test(start_paused = true)]
    async fn a_client_with_fewer_seats_takes_the_latest_seat_of_the_one_with_most() {
        let (limits, directory) = (limits(9, 4), ClientDirectory::default());
        let seats = Seats::new(&limits, Arc::default());
        let take = |client, name: &str| {
            let taken = seats.take(&owner(&directory, client, name), &limits);
            taken.map(Option::unwrap)
        };
        let many = ["a", "b", "c", "d"].map(|name| take(1, name).unwrap());
        let few = [(); 2].map(|()| take(2, "x").unwrap());
        many[3].displaced().await;
        many[2].displaced().await;
        assert!(!many[1].share.is_displaced());
        assert!(take(2, "x").is_err(), "equal shares are reached");
        drop((many, few));
        assert!(seats.by_crawler().is_empty());
    }

    #[test]
    fn a_refusal_names_the_operators_limit() {
        let (limits, directory) = (limits(9, 9), ClientDirectory::default());
        let mut each = ClientLimits::default();
        each.set(Resource::Waiting, 1);
        directory.set_options(Options {
            each,
            networks: Vec::new(),
        });
        let seats = Seats::new(&limits, Arc::default());
        let owner = owner(&directory, 1, "a");
        let _seat = seats.take(&owner, &limits).unwrap();
        let refusal = seats.take(&owner, &limits).unwrap_err();
        assert_eq!(
            refusal,
            "as many requests of 0.0.0.1 wait as the operator allows"
        );
    }
}
