//! Shares of one resource: which client gets one, which client waits, and which client
//! must give one up.
//!
//! Allocation is max-min fair. A free share goes to any client that asks. A share that
//! becomes free goes to the waiting client that holds the fewest. If a holder can give up
//! a share at once ([`Share::may_be_displaced`]), the newcomer does not wait: the client
//! that holds the most loses one, provided that the newcomer then holds no more than it.
//! If no share can be given up ([`DisplacementOrder::Never`]), each client must leave as
//! many free as it holds, and the last ones are reserved for clients that hold none.
//!
//! Does not limit how long a client waits: the caller sets a timeout.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::{Client, ClientId, Resource};
use crate::clock;
use crate::metrics::{Metrics, ShareLabels};

/// Divisor for the reserve of newcomers: if no share can be given up, one in this many is
/// reserved for clients that hold none.
pub(super) const NEWCOMERS_PART: usize = 8;

/// Time in use after which a share may be displaced even though its holder has not offered
/// it, under [`DisplacementOrder::OldestFirst`]. Otherwise a client could hold all shares
/// with slow responses. Longer than most responses take.
const IN_USE_MAX: Duration = Duration::from_secs(2);

/// Reason why a client does not get a share.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ShareRefusal {
    /// All shares are in use, and no client holds enough more to give one up.
    #[error("all are in use, and this client has its share of them")]
    Full,
    /// The operator's limit for this client or its network is reached.
    #[error("the limit for {0} is reached")]
    Limit(ClientId),
}

/// Order in which the client that holds the most gives up its shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisplacementOrder {
    /// Oldest first: of several idle connections, a new one is likely to be used soon.
    /// If the holder has offered none, the oldest share that has been in use for two
    /// seconds.
    OldestFirst,
    /// Newest first: it has waited the shortest time.
    NewestFirst,
    /// Never, because the work that uses a share cannot be stopped. A client gets at most
    /// as many shares as it leaves free. In the long run, each of `n` clients that want
    /// all shares has one part in `n + 1`, and one part stays free. Until that balance is
    /// reached, one share in eight is reserved for clients that hold none.
    Never,
}

/// All shares of one resource.
#[derive(Debug)]
pub struct Shares {
    resource: Resource,
    order: DisplacementOrder,
    state: Mutex<SharesState>,
    /// Start of [`Shares::uptime`].
    epoch: Instant,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct SharesState {
    /// Number of shares.
    limit: usize,
    /// Maximum number of waiters; `None` means the number of shares.
    waiting_limit: Option<usize>,
    /// Shares in use, excluding displaced ones.
    used: usize,
    /// Waiting clients, each with its waiters in order of arrival. No queue is empty.
    queues: Vec<ClientQueue>,
    /// Number of waiters in all queues.
    waiting: usize,
    /// Shares registered for displacement, by client number.
    displaceable: HashMap<u64, ClientShares>,
    /// Number given last to a waiter or to a share registered for displacement.
    last_number: u64,
}

/// Waiters of one client.
#[derive(Debug)]
struct ClientQueue {
    client: Arc<Client>,
    waiters: VecDeque<ShareWaiter>,
}

/// Waiter for one share.
#[derive(Debug)]
struct ShareWaiter {
    /// Number that orders waiters by arrival.
    number: u64,
    /// Passes the share to the waiter.
    grant: oneshot::Sender<Share>,
}

/// Shares of one client that are registered for displacement, by number and so by age.
#[derive(Debug)]
struct ClientShares {
    client: Arc<Client>,
    shares: BTreeMap<u64, Arc<Displacement>>,
}

/// Displacement state of a share: whether it may be displaced, and whether it was.
#[derive(Debug)]
struct Displacement {
    /// Number that orders the shares of a client by age.
    number: u64,
    /// Start of use, in milliseconds of [`Shares::uptime`], at least 1; 0 while the holder
    /// offers the share for displacement.
    in_use_since: AtomicU64,
    /// Cancelled when the share is displaced.
    done: CancellationToken,
}

/// Kind of shares to displace.
#[derive(Debug, Clone, Copy)]
enum Spare {
    /// Shares that their holder offers for displacement.
    Unused,
    /// Shares in use since this time or earlier, in milliseconds of [`Shares::uptime`].
    UsedSince(u64),
}

impl Displacement {
    /// Reports whether the share is of this kind.
    fn is_of(&self, spare: Spare) -> bool {
        // Relaxed is enough: after a stale read, another share is displaced.
        let since = self.in_use_since.load(Ordering::Relaxed);
        match spare {
            Spare::Unused => since == 0,
            Spare::UsedSince(time) => (1..=time).contains(&since),
        }
    }
}

/// Share of a resource, returned on drop.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    client: Arc<Client>,
    /// Set once the share is registered for displacement.
    displacement: OnceLock<Arc<Displacement>>,
}

impl Shares {
    /// Creates `limit` shares of a resource; a limit of 0 counts as 1.
    #[must_use]
    pub fn new(
        resource: Resource,
        limit: usize,
        order: DisplacementOrder,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let state = Mutex::new(SharesState {
            limit: limit.max(1),
            ..SharesState::default()
        });
        Arc::new(Self {
            resource,
            order,
            state,
            epoch: clock::instant(),
            metrics,
        })
    }

    /// Sets the number of shares. If more are in use, no share is granted until enough
    /// have been returned.
    pub fn set_limit(self: &Arc<Self>, limit: usize) {
        self.lock().limit = limit.max(1);
        self.grant_free();
    }

    /// Sets the maximum number of waiters. The default is the number of shares.
    pub fn set_waiting_limit(&self, limit: usize) {
        self.lock().waiting_limit = Some(limit);
    }

    /// Takes a share if one is free or can be displaced.
    ///
    /// # Errors
    ///
    /// [`ShareRefusal`] if not; the refusal is counted.
    pub fn take_now(self: &Arc<Self>, client: &Arc<Client>) -> Result<Share, ShareRefusal> {
        let mut state = self.lock();
        let taken = self.take_locked(&mut state, client);
        drop(state);
        taken.map_err(|refusal| self.count_refused(client, refusal))
    }

    /// Takes a share if one is free or can be displaced. Does not count a refusal: the
    /// client will wait for a share.
    pub fn take_free(self: &Arc<Self>, client: &Arc<Client>) -> Option<Share> {
        self.take_locked(&mut self.lock(), client).ok()
    }

    /// Displaces a share for `newcomer` even if shares are free, because the underlying
    /// resource has become scarce. Returns whether a share was displaced.
    pub fn make_room(&self, newcomer: &Client) -> bool {
        self.displace(&mut self.lock(), newcomer)
    }

    /// Takes a share, or waits for one. Clients that hold fewer shares are served first,
    /// and the waiters of one client in order of arrival.
    ///
    /// The number of waiters is limited ([`Shares::set_waiting_limit`]). At the limit, the
    /// client with the most waiters loses its latest one.
    ///
    /// # Errors
    ///
    /// [`ShareRefusal::Full`] if too many are already waiting; the refusal is counted.
    pub async fn take(self: &Arc<Self>, client: &Arc<Client>) -> Result<Share, ShareRefusal> {
        let (number, granted) = {
            let mut state = self.lock();
            if let Ok(share) = self.take_locked(&mut state, client) {
                return Ok(share);
            }
            let (grant, granted) = oneshot::channel();
            let joined = state.join(client, self.resource, grant);
            drop(state);
            let number = joined.ok_or_else(|| self.count_refused(client, ShareRefusal::Full))?;
            (number, granted)
        };
        let waiting = WaitingShare {
            shares: self,
            client,
            number,
        };
        let share = granted.await;
        drop(waiting);
        // The sender is dropped if the waiter lost its place.
        share.map_err(|_gone| self.count_refused(client, ShareRefusal::Full))
    }

    /// Takes a share as [`Shares::take`] does, but waits at most `longest`.
    ///
    /// # Errors
    ///
    /// [`ShareRefusal::Full`] if the time is over or too many are already waiting; the
    /// refusal is counted.
    pub async fn take_within(
        self: &Arc<Self>,
        client: &Arc<Client>,
        longest: Duration,
    ) -> Result<Share, ShareRefusal> {
        let taken = tokio::time::timeout(longest, self.take(client)).await;
        taken.unwrap_or_else(|_elapsed| Err(self.count_refused(client, ShareRefusal::Full)))
    }

    fn take_locked(
        self: &Arc<Self>,
        state: &mut SharesState,
        client: &Arc<Client>,
    ) -> Result<Share, ShareRefusal> {
        if let Some(id) = client.limited_by(self.resource) {
            return Err(ShareRefusal::Limit(id.clone()));
        }
        if !state.has_room(client, self.resource, self.order) && !self.displace(state, client) {
            return Err(ShareRefusal::Full);
        }
        Ok(self.share(state, client))
    }

    fn share(self: &Arc<Self>, state: &mut SharesState, client: &Arc<Client>) -> Share {
        state.used += 1;
        client.add_held(self.resource);
        Share {
            shares: Arc::clone(self),
            client: Arc::clone(client),
            displacement: OnceLock::new(),
        }
    }

    /// Displaces one share for `newcomer`, if a client that holds more can give one up.
    /// Returns whether a share was displaced.
    fn displace(&self, state: &mut SharesState, newcomer: &Client) -> bool {
        self.displace_by(self.resource, state, newcomer, Spare::Unused)
            || self.order == DisplacementOrder::OldestFirst
                && self.displace_by(self.resource, state, newcomer, self.used_for_long())
    }

    /// Displaces a share of the client that holds the most of `by`, another resource that
    /// users of these shares hold. Considers only shares that have been in use for two
    /// seconds or longer. Returns whether a share was displaced.
    pub fn make_room_by(&self, by: Resource, newcomer: &Client) -> bool {
        self.displace_by(by, &mut self.lock(), newcomer, self.used_for_long())
    }

    /// Displaces a share as [`Shares::displace`] does, but of the client that holds the most
    /// of the resource `by`.
    fn displace_by(
        &self,
        by: Resource,
        state: &mut SharesState,
        newcomer: &Client,
        spare: Spare,
    ) -> bool {
        let own = newcomer.held(by);
        let held = |shares: &ClientShares| shares.client.held(by);
        let mut richer: Vec<&mut ClientShares> = state
            .displaceable
            .values_mut()
            .filter(|shares| own + 1 < held(shares))
            .collect();
        richer.sort_by_key(|shares| std::cmp::Reverse(held(shares)));
        for shares in richer {
            if let Some(displacement) = shares.give_up(self.order, spare) {
                shares.client.remove_held(self.resource);
                shares.client.uses[self.resource as usize]
                    .displaced
                    .fetch_add(1, Ordering::Relaxed);
                state.used -= 1;
                self.count("displaced");
                displacement.done.cancel();
                return true;
            }
        }
        false
    }

    /// Returns the kind of shares that have been in use for [`IN_USE_MAX`] or longer.
    fn used_for_long(&self) -> Spare {
        let long = u64::try_from(IN_USE_MAX.as_millis()).unwrap_or(u64::MAX);
        Spare::UsedSince(self.uptime().saturating_sub(long))
    }

    /// Returns the milliseconds since these shares were created, plus 1, so that the
    /// result is never 0.
    fn uptime(&self) -> u64 {
        let uptime = clock::instant().saturating_duration_since(self.epoch);
        let millis = u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX);
        millis.saturating_add(1)
    }

    /// Grants free shares to waiting clients.
    fn grant_free(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            if state.waiting == 0 || state.limit <= state.used {
                return;
            }
            let Some(queue) = state.next_queue(self.resource, self.order) else {
                return;
            };
            let Some((client, waiter)) = state.pop(queue, self.resource) else {
                return;
            };
            let share = self.share(&mut state, &client);
            drop(state);
            // If the receiver is gone, the share is dropped here, outside the lock,
            // which its drop takes to return it.
            drop(waiter.grant.send(share));
        }
    }

    fn lock(&self) -> MutexGuard<'_, SharesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_refused(&self, client: &Client, refusal: ShareRefusal) -> ShareRefusal {
        client.count_refused(self.resource);
        self.count(match refusal {
            ShareRefusal::Full => "full",
            ShareRefusal::Limit(_) => "limit",
        });
        refusal
    }

    fn count(&self, result: &'static str) {
        let resource = self.resource.as_str();
        let labels = ShareLabels { resource, result };
        self.metrics.client_shares.get_or_create(&labels).inc();
    }
}

/// Reports whether a client that holds `own` shares may have one more, if `free` of `limit`
/// are free and none can be given up.
pub(super) fn leaves_room(limit: usize, free: usize, own: u32) -> bool {
    let own = usize::try_from(own).unwrap_or(usize::MAX);
    // Without the reserve, the first client may take a half, the next one a quarter,
    // and so on: ten clients would leave one share in a thousand, and none for more.
    let kept = match own {
        0 => 0,
        _ => limit / NEWCOMERS_PART,
    };
    own.saturating_add(kept) < free
}

impl SharesState {
    /// Adds a waiter. Returns its number, or `None` if there is no room.
    fn join(
        &mut self,
        client: &Arc<Client>,
        resource: Resource,
        grant: oneshot::Sender<Share>,
    ) -> Option<u64> {
        let own = self.queues.iter().position(|queue| queue.is_of(client));
        if self.waiting_limit.unwrap_or(self.limit) <= self.waiting {
            let own_len = own.map_or(0, |own| self.queues[own].waiters.len());
            let longest = self
                .queues
                .iter()
                .enumerate()
                .max_by_key(|(_, queue)| queue.waiters.len())
                .filter(|(_, queue)| own_len + 1 < queue.waiters.len())?
                .0;
            // Never the last waiter of the queue, because the queue is longer than
            // `own_len + 1`. So the queue does not become empty.
            let dropped = self.queues[longest].waiters.pop_back();
            self.queues[longest].count_waiting(resource);
            self.waiting -= usize::from(dropped.is_some());
        }
        self.last_number += 1;
        let number = self.last_number;
        let waiter = ShareWaiter { number, grant };
        let queue = match own {
            Some(own) => &mut self.queues[own],
            None => {
                self.queues.push(ClientQueue {
                    client: Arc::clone(client),
                    waiters: VecDeque::new(),
                });
                self.queues.last_mut()?
            }
        };
        queue.waiters.push_back(waiter);
        queue.count_waiting(resource);
        self.waiting += 1;
        Some(number)
    }

    /// Reports whether there is a free share for `client`.
    fn has_room(&self, client: &Client, resource: Resource, order: DisplacementOrder) -> bool {
        let free = self.limit.saturating_sub(self.used);
        match order {
            DisplacementOrder::OldestFirst | DisplacementOrder::NewestFirst => 0 < free,
            DisplacementOrder::Never => leaves_room(self.limit, free, client.held(resource)),
        }
    }

    /// Returns the index of the next queue to serve: that of the client with the fewest
    /// shares among the clients below their limits, and of several equal ones the queue
    /// that has waited longest.
    fn next_queue(&self, resource: Resource, order: DisplacementOrder) -> Option<usize> {
        let queues = self.queues.iter().enumerate();
        let open = queues.filter(|(_, queue)| {
            queue.client.limited_by(resource).is_none()
                && self.has_room(&queue.client, resource, order)
        });
        let first = |queue: &ClientQueue| queue.waiters.front().map(|waiter| waiter.number);
        open.min_by_key(|(_, queue)| (queue.client.held(resource), first(queue)))
            .map(|(index, _)| index)
    }

    fn pop(&mut self, queue: usize, resource: Resource) -> Option<(Arc<Client>, ShareWaiter)> {
        let waiter = self.queues[queue].waiters.pop_front()?;
        self.waiting -= 1;
        let client = Arc::clone(&self.queues[queue].client);
        self.settle(queue, resource);
        Some((client, waiter))
    }

    /// Removes a waiter that has stopped waiting.
    fn remove(&mut self, client: &Client, number: u64, resource: Resource) {
        let Some(queue) = self.queues.iter().position(|queue| queue.is_of(client)) else {
            return;
        };
        let waiters = &mut self.queues[queue].waiters;
        let Ok(index) = waiters.binary_search_by_key(&number, |waiter| waiter.number) else {
            return;
        };
        waiters.remove(index);
        self.waiting -= 1;
        self.settle(queue, resource);
    }

    /// Updates the count of waiters of a queue, and removes the queue if it is empty.
    fn settle(&mut self, queue: usize, resource: Resource) {
        self.queues[queue].count_waiting(resource);
        if self.queues[queue].waiters.is_empty() {
            self.queues.swap_remove(queue);
        }
    }

    /// Removes a share from those registered for displacement. Returns false if it is not
    /// there, which means that it was displaced.
    fn forget(&mut self, client: &Client, number: u64) -> bool {
        let Some(own) = self.displaceable.get_mut(&client.number) else {
            return false;
        };
        let was_there = own.shares.remove(&number).is_some();
        if own.shares.is_empty() {
            self.displaceable.remove(&client.number);
        }
        was_there
    }
}

impl ClientQueue {
    fn is_of(&self, client: &Client) -> bool {
        self.client.number == client.number
    }

    fn count_waiting(&self, resource: Resource) {
        let waiting = u32::try_from(self.waiters.len()).unwrap_or(u32::MAX);
        self.client.uses[resource as usize]
            .waiting
            .store(waiting, Ordering::Relaxed);
    }
}

impl ClientShares {
    /// Removes and returns a share that may be displaced now.
    fn give_up(&mut self, order: DisplacementOrder, spare: Spare) -> Option<Arc<Displacement>> {
        let is_allowed = |share: &&Arc<Displacement>| share.is_of(spare);
        let found = match order {
            DisplacementOrder::OldestFirst => self.shares.values().find(is_allowed),
            DisplacementOrder::NewestFirst => self.shares.values().rev().find(is_allowed),
            DisplacementOrder::Never => None,
        };
        let number = found?.number;
        self.shares.remove(&number)
    }
}

impl Share {
    /// Sets whether the client may lose this share to a client that holds fewer. By
    /// default it may not. The holder must wait for [`Share::displaced`], and then drop
    /// the share soon.
    pub fn may_be_displaced(&self, is_allowed: bool) {
        let displacement = self.displacement.get_or_init(|| self.register());
        let since = if is_allowed { 0 } else { self.shares.uptime() };
        displacement.in_use_since.store(since, Ordering::Relaxed);
    }

    /// Waits until the share is displaced.
    pub async fn displaced(&self) {
        self.displacement
            .get_or_init(|| self.register())
            .done
            .cancelled()
            .await;
    }

    /// Reports whether the share was displaced.
    #[must_use]
    pub fn is_displaced(&self) -> bool {
        let displacement = self.displacement.get();
        displacement.is_some_and(|displacement| displacement.done.is_cancelled())
    }

    fn register(&self) -> Arc<Displacement> {
        let mut state = self.shares.lock();
        state.last_number += 1;
        let displacement = Arc::new(Displacement {
            number: state.last_number,
            in_use_since: AtomicU64::new(self.shares.uptime()),
            done: CancellationToken::new(),
        });
        let entry = state.displaceable.entry(self.client.number);
        let own = entry.or_insert_with(|| ClientShares {
            client: Arc::clone(&self.client),
            shares: BTreeMap::new(),
        });
        own.shares
            .insert(displacement.number, Arc::clone(&displacement));
        displacement
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.shares.lock();
        if let Some(displacement) = self.displacement.get()
            && !state.forget(&self.client, displacement.number)
        {
            // The share was displaced, which already took it from the client.
            return;
        }
        state.used -= 1;
        self.client.remove_held(self.shares.resource);
        let is_wanted = 0 < state.waiting;
        drop(state);
        if is_wanted {
            self.shares.grant_free();
        }
    }
}

/// Place in the queue of waiters, released on drop.
struct WaitingShare<'a> {
    shares: &'a Shares,
    client: &'a Client,
    number: u64,
}

impl Drop for WaitingShare<'_> {
    fn drop(&mut self) {
        let resource = self.shares.resource;
        self.shares
            .lock()
            .remove(self.client, self.number, resource);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::pin::pin;
    use std::time::Duration;

    use super::*;
    use crate::clients::client::ClientLimits;
    use crate::clients::directory::{ClientDirectory, Options};

    fn shares(limit: usize) -> Arc<Shares> {
        Shares::new(
            Resource::Lookups,
            limit,
            DisplacementOrder::NewestFirst,
            Arc::default(),
        )
    }

    /// Returns clients at addresses 0, 1 and 2, each with at most `most` lookups.
    fn clients(most: Option<u32>) -> [Arc<Client>; 3] {
        let directory = ClientDirectory::default();
        let mut each = ClientLimits::default();
        if let Some(most) = most {
            each.set(Resource::Lookups, most);
        }
        directory.set_options(Options {
            each,
            networks: Vec::new(),
        });
        [0, 1, 2].map(|number: u32| directory.at(IpAddr::V4(number.into())))
    }

    fn held(client: &Client) -> u32 {
        client.held(Resource::Lookups)
    }

    async fn soon<T>(future: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::from_millis(1), future)
            .await
            .ok()
    }

    // Ours: max-min fairness.
    #[test]
    fn a_client_may_take_every_free_share() {
        let (shares, [client, other, _]) = (shares(3), clients(None));
        let taken: Vec<_> = (0..3).map(|_| shares.take_now(&client).unwrap()).collect();
        assert_eq!(shares.take_now(&client).unwrap_err(), ShareRefusal::Full);
        // No share was offered for displacement.
        assert_eq!(shares.take_now(&other).unwrap_err(), ShareRefusal::Full);
        drop(taken);
        assert_eq!((held(&client), held(&other)), (0, 0));
        assert!(shares.take_now(&other).is_ok());
    }

    #[test]
    fn the_client_that_holds_most_gives_up_shares_until_all_are_equal() {
        let (shares, [client, other, third]) = (shares(6), clients(None));
        let take = |client: &Arc<Client>| {
            let share = shares.take_now(client);
            share.inspect(|share| share.may_be_displaced(true))
        };
        let first: Vec<_> = (0..6).map(|_| take(&client).unwrap()).collect();
        let second: Vec<_> = std::iter::from_fn(|| take(&other).ok()).collect();
        assert_eq!((held(&client), held(&other)), (3, 3));
        // The newest shares were displaced first.
        let displaced = first.iter().map(Share::is_displaced);
        assert_eq!(
            displaced.collect::<Vec<_>>(),
            [false, false, false, true, true, true]
        );
        let last: Vec<_> = std::iter::from_fn(|| take(&third).ok()).collect();
        assert_eq!([held(&client), held(&other), held(&third)], [2, 2, 2]);
        drop((first, second, last));
        let state = shares.lock();
        assert_eq!((state.used, state.displaceable.len()), (0, 0));
        assert_eq!([held(&client), held(&other), held(&third)], [0; 3]);
    }

    #[test]
    fn only_a_client_that_holds_more_makes_room() {
        let (shares, [client, other, _]) = (shares(9), clients(None));
        let held = [(); 2].map(|()| shares.take_now(&client).unwrap());
        held[0].may_be_displaced(true);
        assert!(!shares.make_room(&client));
        assert!(shares.make_room(&other) && held[0].is_displaced());
        assert!(!shares.make_room(&other));
    }

    // Ours: a client cannot hold shares forever by keeping them in use.
    #[tokio::test(start_paused = true)]
    async fn a_share_in_use_for_long_is_displaced_if_no_other_is_offered() {
        let shares = Shares::new(
            Resource::Lookups,
            3,
            DisplacementOrder::OldestFirst,
            Arc::default(),
        );
        let [client, other, third] = clients(None);
        let used = [(); 3].map(|()| shares.take_now(&client).unwrap());
        for share in &used {
            share.may_be_displaced(false);
        }
        assert!(shares.take_now(&other).is_err());
        tokio::time::sleep(IN_USE_MAX).await;
        used[2].may_be_displaced(true);
        let second = shares.take_now(&other).unwrap();
        second.may_be_displaced(false);
        assert!(used[2].is_displaced() && !used[0].is_displaced());
        let _third = shares.take_now(&third).unwrap();
        assert!(used[0].is_displaced() && !used[1].is_displaced());
        assert!(!shares.make_room_by(Resource::Requests, &third));
        tokio::time::sleep(IN_USE_MAX).await;
        // Every client holds one share now.
        assert!(shares.take_now(&other).is_err() && !second.is_displaced());
    }

    #[test]
    fn only_offered_shares_are_displaced() {
        let (shares, [client, other, _]) = (shares(2), clients(None));
        let kept = [(); 2].map(|()| shares.take_now(&client).unwrap());
        kept[0].may_be_displaced(true);
        kept[0].may_be_displaced(false);
        assert_eq!(shares.take_now(&other).unwrap_err(), ShareRefusal::Full);
        kept[0].may_be_displaced(true);
        assert!(shares.take_now(&other).is_ok());
    }

    // Ours: for DNS lookups and fetches, which cannot be stopped once they have begun.
    #[tokio::test(start_paused = true)]
    async fn without_displacement_a_client_leaves_as_many_shares_free_as_it_holds() {
        let shares = Shares::new(
            Resource::Lookups,
            12,
            DisplacementOrder::Never,
            Arc::default(),
        );
        let [client, other, third] = clients(None);
        let all_of = |client: &Arc<Client>| -> Vec<_> {
            std::iter::from_fn(|| shares.take_now(client).ok()).collect()
        };
        let first = all_of(&client);
        assert_eq!(held(&client), 6);
        let mut more = pin!(shares.take(&client));
        assert!(soon(more.as_mut()).await.is_none());
        let second = all_of(&other);
        assert_eq!(held(&other), 3);
        // Returned shares do not go to a client that holds more than it leaves free.
        drop(second);
        assert!(soon(more.as_mut()).await.is_none());
        drop(first);
        assert!(soon(more).await.unwrap().is_ok());
        let [_first, _second] = [all_of(&client), all_of(&other)];
        assert!(shares.take_now(&third).is_ok());
    }

    // Ours: each of many clients that come one after the other still finds a share.
    #[test]
    fn without_displacement_the_last_shares_are_reserved_for_newcomers() {
        let shares = Shares::new(
            Resource::Lookups,
            256,
            DisplacementOrder::Never,
            Arc::default(),
        );
        let directory = ClientDirectory::default();
        let all_of = |number: u32| -> Vec<_> {
            let client = directory.at(IpAddr::V4(number.into()));
            std::iter::from_fn(|| shares.take_now(&client).ok()).collect()
        };
        let taken: Vec<_> = (0..20).map(all_of).collect();
        let numbers = taken.iter().map(Vec::len);
        assert_eq!(
            numbers.take(8).collect::<Vec<_>>(),
            [112, 56, 28, 14, 7, 4, 2, 1]
        );
        assert!(taken.iter().all(|shares| !shares.is_empty()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_waiting_limit_replaces_the_number_of_shares() {
        let (shares, [client, ..]) = (shares(1), clients(None));
        shares.set_waiting_limit(2);
        let _taken = shares.take_now(&client).unwrap();
        let [mut first, mut second] = [(); 2].map(|()| Box::pin(shares.take(&client)));
        assert!(soon(first.as_mut()).await.is_none());
        assert!(soon(second.as_mut()).await.is_none());
        assert!(soon(shares.take(&client)).await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_returned_share_goes_to_the_client_that_holds_least() {
        let (shares, [client, other, _]) = (shares(3), clients(None));
        let mut taken: Vec<_> = (0..3).map(|_| shares.take_now(&client).unwrap()).collect();
        let mut more = pin!(shares.take(&client));
        assert!(soon(more.as_mut()).await.is_none());
        let mut first = pin!(shares.take(&other));
        assert!(soon(first.as_mut()).await.is_none());
        taken.pop();
        assert!(soon(more.as_mut()).await.is_none());
        let first = soon(first).await.unwrap().unwrap();
        assert_eq!((held(&client), held(&other)), (2, 1));
        drop(first);
        assert!(soon(more).await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_waiter_gives_up_its_place_and_its_granted_share() {
        let (shares, [client, other, _]) = (shares(1), clients(None));
        let taken = shares.take_now(&client).unwrap();
        {
            let mut gone = pin!(shares.take(&other));
            assert!(soon(gone.as_mut()).await.is_none());
            assert_eq!(shares.lock().waiting, 1);
        }
        assert_eq!(shares.lock().waiting, 0);
        {
            let mut granted = pin!(shares.take(&other));
            assert!(soon(granted.as_mut()).await.is_none());
            drop(taken);
            assert_eq!(held(&other), 1);
        }
        assert_eq!((held(&other), shares.lock().used), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_waiting_limit_the_client_with_most_waiters_loses_one() {
        let (shares, [client, other, _]) = (shares(2), clients(None));
        let _taken = [(); 2].map(|()| shares.take_now(&client).unwrap());
        let (mut first, mut latest) = (pin!(shares.take(&client)), pin!(shares.take(&client)));
        assert!(soon(first.as_mut()).await.is_none());
        assert!(soon(latest.as_mut()).await.is_none());
        assert_eq!(
            soon(shares.take(&client)).await.unwrap().unwrap_err(),
            ShareRefusal::Full
        );
        let mut newcomer = pin!(shares.take(&other));
        assert!(soon(newcomer.as_mut()).await.is_none());
        assert!(soon(latest).await.unwrap().is_err());
        assert!(soon(first.as_mut()).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_operators_limit_applies_even_if_shares_are_free() {
        let (shares, [client, other, _]) = (shares(9), clients(Some(1)));
        let taken = shares.take_now(&client).unwrap();
        assert_eq!(
            shares.take_now(&client).unwrap_err(),
            ShareRefusal::Limit(client.id.clone())
        );
        assert!(shares.take_now(&other).is_ok());
        let mut waiting = pin!(shares.take(&client));
        assert!(soon(waiting.as_mut()).await.is_none());
        drop(taken);
        assert!(soon(waiting).await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn raising_the_limit_serves_waiting_clients() {
        let (shares, [client, _, _]) = (shares(1), clients(None));
        let _taken = shares.take_now(&client).unwrap();
        let mut waiting = pin!(shares.take(&client));
        assert!(soon(waiting.as_mut()).await.is_none());
        shares.set_limit(2);
        assert!(soon(waiting).await.unwrap().is_ok());
    }
}
