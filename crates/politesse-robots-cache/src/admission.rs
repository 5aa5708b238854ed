//! Limits of fetches: slots, and time.
//!
//! Slots limit how many robots.txt fetches make requests at the same time; clients get
//! equal shares of them. Does not know what is requested.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use politesse_base::clients::client::Client;
use politesse_base::clients::shares::{Share, ShareRefusal, Shares};
use politesse_base::clock;
use politesse_base::metrics::Metrics;

/// Remaining time for an operation, and the time spent.
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

    /// Returns the output of `work`, or `None` if the time runs out first.
    pub(super) async fn spend<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let begun = clock::instant();
        let done = timeout(self.left, work).await.ok();
        let spent = clock::instant().duration_since(begun);
        self.left = self.left.saturating_sub(spent);
        self.spent += spent;
        done
    }
}

/// Slots for the fetches that make requests.
#[derive(Debug)]
pub(super) struct FetchSlots {
    shares: Arc<Shares>,
    metrics: Arc<Metrics>,
}

/// Taken slot; dropping it frees the slot.
#[derive(Debug)]
pub(super) struct FetchSlot {
    metrics: Arc<Metrics>,
    _share: Share,
}

impl FetchSlots {
    /// Creates slots from `shares`. At most `max_waiting` fetches may wait for one.
    pub(super) fn new(shares: Arc<Shares>, max_waiting: usize, metrics: Arc<Metrics>) -> Self {
        shares.set_waiting_limit(max_waiting);
        Self { shares, metrics }
    }

    /// Waits for a slot for `client`. Clients that hold fewer slots come first.
    ///
    /// # Errors
    ///
    /// [`ShareRefusal`] if too many fetches already wait.
    pub(super) async fn take(&self, client: &Arc<Client>) -> Result<FetchSlot, ShareRefusal> {
        let share = self.shares.take(client).await?;
        self.metrics.robots_fetches_under_way.inc();
        Ok(FetchSlot {
            metrics: Arc::clone(&self.metrics),
            _share: share,
        })
    }
}

/// Waits until `take` succeeds for any of `clients`, to which more may be added in the
/// meantime.
///
/// # Errors
///
/// The error of the last client, once `take` has failed for all.
pub(super) async fn take_for_any<T, E, F: Future<Output = Result<T, E>>>(
    mut clients: watch::Receiver<Vec<Arc<Client>>>,
    take: impl Fn(Arc<Client>) -> F,
) -> Result<T, E> {
    let (mut waits, mut known) = (Vec::new(), 0);
    loop {
        let all = clients.borrow_and_update().clone();
        let more = all.into_iter().skip(known);
        known += more.len();
        waits.extend(more.map(|client| Box::pin(take(client))));
        tokio::select! {
            biased;
            taken = first_success(&mut waits) => return taken,
            Ok(()) = clients.changed() => {}
        }
    }
}

/// Returns the output of the first of `futures` that succeeds, or the last error once all
/// have failed. Failed futures are removed.
async fn first_success<T, E>(
    futures: &mut Vec<impl Future<Output = Result<T, E>> + Unpin>,
) -> Result<T, E> {
    poll_fn(|cx| {
        let mut at = 0;
        while let Some(future) = futures.get_mut(at) {
            match Pin::new(future).poll(cx) {
                Poll::Pending => at += 1,
                Poll::Ready(Ok(output)) => return Poll::Ready(Ok(output)),
                Poll::Ready(Err(error)) => {
                    futures.remove(at);
                    if futures.is_empty() {
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
        Poll::Pending
    })
    .await
}

impl Drop for FetchSlot {
    fn drop(&mut self) {
        self.metrics.robots_fetches_under_way.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::num::NonZeroUsize;

    use super::*;
    use crate::options::Options;
    use crate::tests::kit::options;
    use politesse_base::clients::directory::ClientDirectory;

    // Ours: a refusal for one client does not end the wait of the others.
    #[tokio::test]
    async fn a_refusal_for_one_client_leaves_others_waiting() {
        let place = |result: Result<u8, u8>, polls: usize| {
            let mut left = polls;
            poll_fn(move |cx| {
                if left == 0 {
                    return Poll::Ready(result);
                }
                left -= 1;
                cx.waker().wake_by_ref();
                Poll::Pending
            })
        };
        let mut places = vec![place(Err(1), 0), place(Ok(2), 3), place(Err(3), 1)];
        assert_eq!(first_success(&mut places).await, Ok(2));
        let mut refused = vec![place(Err(1), 2), place(Err(2), 0)];
        assert_eq!(first_success(&mut refused).await, Err(1));
    }

    // Ours: a client that wants all slots leaves some to others.
    #[tokio::test(start_paused = true)]
    async fn a_client_leaves_others_a_share_of_the_slots() {
        let options = Options {
            max_fetches: NonZeroUsize::new(4).unwrap(),
            ..options()
        };
        let shares = options.fetch_shares(Arc::default());
        let slots = FetchSlots::new(shares, 8, Arc::default());
        let directory = ClientDirectory::default();
        let [one, other, third] = [1, 2, 3_u32].map(|n| directory.at(IpAddr::V4(n.into())));
        let at_once = async |client| timeout(Duration::ZERO, slots.take(client)).await.ok();
        let first = [at_once(&one).await, at_once(&one).await];
        assert!(first.iter().all(Option::is_some));
        assert!(at_once(&one).await.is_none());
        let second = at_once(&other).await;
        assert!(second.is_some());
        assert!(at_once(&other).await.is_none());
        assert!(at_once(&third).await.is_some());
        assert_eq!(slots.metrics.robots_fetches_under_way.get(), 3);
        drop((first, second));
        assert_eq!(slots.metrics.robots_fetches_under_way.get(), 0);
    }
}
