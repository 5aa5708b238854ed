//! Shares of one resource: who may have one now, who waits, who gives way.
//!
//! Max-min fairness: what is free goes to whoever asks. What is not goes, once it
//! is free, to the waiting client that holds least. Shares that can be given up
//! at once ([`Share::may_be_displaced`]) need not become free: the client that
//! holds most loses one to a client that would still hold no more than it. Where
//! no share can be given up ([`DisplacementOrder::Never`]), each client leaves as
//! many free as it holds, and the last ones to clients that hold none.
//!
//! Does not know for how long anybody waits: whoever does sets a time for that.

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

/// Divisor of a number of shares of which none can be given up: one in so many is
/// for clients that hold none.
pub(super) const NEWCOMERS_PART: usize = 8;

/// Time in use after which a share that is given up oldest first may be displaced all
/// the same: a client could hold all of them by responses that come or are taken
/// slowly. Longer than most responses take.
const IN_USE_MAX: Duration = Duration::from_secs(2);

/// Reason why a client gets no share.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ShareRefusal {
    /// All are in use, and the client holds as many as others.
    #[error("all are in use, and this client has its share of them")]
    Full,
    /// A limit of the operator for this client or its network is reached.
    #[error("the limit for {0} is reached")]
    Limit(ClientId),
}

/// Order in which the shares of the client that holds most are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisplacementOrder {
    /// The longest held first: of idle connections a new one is about to be used.
    /// Where none may be displaced, the oldest of those that have been in use for two
    /// seconds.
    OldestFirst,
    /// The latest first: it has waited least.
    NewestFirst,
    /// None: what a share is used for cannot be stopped. So a client gets no more
    /// of them than are left free by it, and one that comes finds some: of `n`
    /// clients that want all, each has an `(n + 1)`th part, and one part is free.
    /// It takes a while until they do. Until then one share in eight is for clients
    /// that hold none.
    Never,
}

/// All shares of one resource.
#[derive(Debug)]
pub struct Shares {
    resource: Resource,
    order: DisplacementOrder,
    state: Mutex<SharesState>,
    /// Moment from which uptime counts.
    epoch: Instant,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct SharesState {
    limit: usize,
    /// Most that may wait; as many as there are shares if it is absent.
    waiting_limit: Option<usize>,
    /// Shares in use, without those that were displaced.
    used: usize,
    /// Clients that wait, each with its waiters in the order of arrival; none is
    /// empty.
    queues: Vec<ClientQueue>,
    waiting: usize,
    /// Shares that may be displaced, by the numbers of their clients.
    displaceable: HashMap<u64, ClientShares>,
    next_number: u64,
}

/// Waiters of one client.
#[derive(Debug)]
struct ClientQueue {
    client: Arc<Client>,
    waiters: VecDeque<ShareWaiter>,
}

#[derive(Debug)]
struct ShareWaiter {
    number: u64,
    grant: oneshot::Sender<Share>,
}

/// Shares of one client that may be displaced, by number: in order of age.
#[derive(Debug)]
struct ClientShares {
    client: Arc<Client>,
    shares: BTreeMap<u64, Arc<Displacement>>,
}

/// Whether a share may be displaced, and whether it was.
#[derive(Debug)]
struct Displacement {
    number: u64,
    /// Milliseconds of [`Shares::uptime`] since which the share is in use, at least 1;
    /// 0 while it may be displaced.
    in_use_since: AtomicU64,
    done: CancellationToken,
}

/// Shares that may be given up.
#[derive(Debug, Clone, Copy)]
enum Spare {
    /// Shares that may be displaced.
    Unused,
    /// Shares that are in use since this time or longer, in milliseconds.
    UsedSince(u64),
}

impl Displacement {
    fn is(&self, spare: Spare) -> bool {
        // Relaxed: whoever comes a moment late finds another.
        let since = self.in_use_since.load(Ordering::Relaxed);
        match spare {
            Spare::Unused => since == 0,
            Spare::UsedSince(time) => (1..=time).contains(&since),
        }
    }
}

/// A share of a resource, given back when dropped.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    client: Arc<Client>,
    displacement: OnceLock<Arc<Displacement>>,
}

impl Shares {
    /// Makes `limit` shares of a resource; a limit of 0 counts as 1.
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

    /// Sets how many shares there are. If there are fewer than are in use, none
    /// is given out until enough have come back.
    pub fn set_limit(self: &Arc<Self>, limit: usize) {
        self.lock().limit = limit.max(1);
        self.grant_free();
    }

    /// Sets how many may wait for a share, in place of as many as there are
    /// shares.
    pub fn set_waiting_limit(&self, limit: usize) {
        self.lock().waiting_limit = Some(limit);
    }

    /// Takes a share if one is free, or can be displaced.
    ///
    /// # Errors
    ///
    /// [`ShareRefusal`], counted.
    pub fn take_now(self: &Arc<Self>, client: &Arc<Client>) -> Result<Share, ShareRefusal> {
        let mut state = self.lock();
        let taken = self.take_locked(&mut state, client);
        drop(state);
        taken.map_err(|refusal| self.count_refused(client, refusal))
    }

    /// Takes a share if one is free, or can be displaced. Nothing is counted: the
    /// client waits for one if there is none.
    pub fn take_free(self: &Arc<Self>, client: &Arc<Client>) -> Option<Share> {
        self.take_locked(&mut self.lock(), client).ok()
    }

    /// Displaces a share for the sake of `newcomer`, although some are free: what
    /// they stand for has become scarce. Returns whether there was one.
    pub fn make_room(&self, newcomer: &Client) -> bool {
        self.displace(&mut self.lock(), newcomer)
    }

    /// Takes a share, or waits for one. Clients that hold less come first, each
    /// one's waiters in the order of arrival.
    ///
    /// As many may wait as there are shares, or as was set; where they do, the
    /// client with most waiters loses its latest.
    ///
    /// # Errors
    ///
    /// [`ShareRefusal::Full`] if too many wait already, counted.
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
        // The sender is gone when the waiter lost its place.
        share.map_err(|_gone| self.count_refused(client, ShareRefusal::Full))
    }

    /// Takes a share, or waits for one as [`Shares::take`] does, but no longer than
    /// `longest`.
    ///
    /// # Errors
    ///
    /// [`ShareRefusal::Full`], counted.
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

    /// Displaces one share for the sake of `newcomer`, if a client that holds
    /// more has one to give up. Returns whether there was one.
    fn displace(&self, state: &mut SharesState, newcomer: &Client) -> bool {
        self.displace_by(self.resource, state, newcomer, Spare::Unused)
            || self.order == DisplacementOrder::OldestFirst
                && self.displace_by(self.resource, state, newcomer, self.used_for_long())
    }

    /// Displaces a share of the client that holds most of `by`, another resource,
    /// which is held by what the shares are used for. Returns whether there was one
    /// that has been in use for long.
    pub fn make_room_by(&self, by: Resource, newcomer: &Client) -> bool {
        self.displace_by(by, &mut self.lock(), newcomer, self.used_for_long())
    }

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

    fn used_for_long(&self) -> Spare {
        let long = u64::try_from(IN_USE_MAX.as_millis()).unwrap_or(u64::MAX);
        Spare::UsedSince(self.uptime().saturating_sub(long))
    }

    /// Returns milliseconds since a moment before these shares were made.
    fn uptime(&self) -> u64 {
        let uptime = clock::instant().saturating_duration_since(self.epoch);
        let millis = u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX);
        millis.saturating_add(1)
    }

    /// Gives what is free to those that wait.
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
            // Dropped outside the lock if nobody takes it: that gives it back.
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

/// Reports whether a client that holds `own` of `limit` may have one more, of which
/// none can be given up, where `free` are free.
pub(super) fn leaves_room(limit: usize, free: usize, own: u32) -> bool {
    let own = usize::try_from(own).unwrap_or(usize::MAX);
    // A client that comes first may take a half, the next one a quarter: ten of
    // them would leave one in a thousand, and the eleventh had none.
    let kept = match own {
        0 => 0,
        _ => limit / NEWCOMERS_PART,
    };
    own.saturating_add(kept) < free
}

impl SharesState {
    /// Has a waiter join; returns its number, or `None` if there is no room.
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
            // Never its last: `own_len + 1` is at least one, so the queue stays.
            let dropped = self.queues[longest].waiters.pop_back();
            self.queues[longest].count_waiting(resource);
            self.waiting -= usize::from(dropped.is_some());
        }
        self.next_number += 1;
        let number = self.next_number;
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

    /// Returns the index of the queue that comes next: that of the client which
    /// holds least, among those below their limits, and of several the one that
    /// has waited longest.
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

    /// Removes a waiter that waits no longer.
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

    /// Counts the waiters of a queue anew, and forgets it if none is left.
    fn settle(&mut self, queue: usize, resource: Resource) {
        self.queues[queue].count_waiting(resource);
        if self.queues[queue].waiters.is_empty() {
            self.queues.swap_remove(queue);
        }
    }

    /// Forgets that a share may be displaced; returns whether it was not.
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
    /// Takes out a share that may be displaced now.
    fn give_up(&mut self, order: DisplacementOrder, spare: Spare) -> Option<Arc<Displacement>> {
        let is_allowed = |share: &&Arc<Displacement>| share.is(spare);
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
    /// Says whether the client may lose this share to one that holds less; not
    /// unless this was called. Whoever holds it then waits for
    /// [`Share::displaced`], and drops it soon after.
    pub fn may_be_displaced(&self, is_allowed: bool) {
        let displacement = self.displacement.get_or_init(|| self.register());
        let since = if is_allowed { 0 } else { self.shares.uptime() };
        displacement.in_use_since.store(since, Ordering::Relaxed);
    }

    /// Waits until the share is lost to another client.
    pub async fn displaced(&self) {
        self.displacement
            .get_or_init(|| self.register())
            .done
            .cancelled()
            .await;
    }

    /// Returns whether the share is lost to another client.
    #[must_use]
    pub fn is_displaced(&self) -> bool {
        let displacement = self.displacement.get();
        displacement.is_some_and(|displacement| displacement.done.is_cancelled())
    }

    fn register(&self) -> Arc<Displacement> {
        let mut state = self.shares.lock();
        state.next_number += 1;
        let displacement = Arc::new(Displacement {
            number: state.next_number,
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
            // Displaced: it was taken from the client then.
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

/// A place among those that wait, left when dropped.
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

    /// Clients at addresses 0, 1, 2, with at most `most` of each resource.
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
    fn a_client_may_have_all_that_is_free_and_no_more() {
        let (shares, [client, other, _]) = (shares(3), clients(None));
        let taken: Vec<_> = (0..3).map(|_| shares.take_now(&client).unwrap()).collect();
        assert_eq!(shares.take_now(&client).unwrap_err(), ShareRefusal::Full);
        // Nothing of it can be displaced.
        assert_eq!(shares.take_now(&other).unwrap_err(), ShareRefusal::Full);
        drop(taken);
        assert_eq!((held(&client), held(&other)), (0, 0));
        assert!(shares.take_now(&other).is_ok());
    }

    #[test]
    fn who_holds_most_gives_way_down_to_an_equal_share() {
        let (shares, [client, other, third]) = (shares(6), clients(None));
        let take = |client: &Arc<Client>| {
            let share = shares.take_now(client);
            share.inspect(|share| share.may_be_displaced(true))
        };
        let first: Vec<_> = (0..6).map(|_| take(&client).unwrap()).collect();
        let second: Vec<_> = std::iter::from_fn(|| take(&other).ok()).collect();
        assert_eq!((held(&client), held(&other)), (3, 3));
        // The latest went first.
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
    fn room_is_made_by_the_client_that_holds_more() {
        let (shares, [client, other, _]) = (shares(9), clients(None));
        let held = [(); 2].map(|()| shares.take_now(&client).unwrap());
        held[0].may_be_displaced(true);
        assert!(!shares.make_room(&client));
        assert!(shares.make_room(&other) && held[0].is_displaced());
        assert!(!shares.make_room(&other));
    }

    // Ours: whatever a client does with a share, it gives way in the end.
    #[tokio::test(start_paused = true)]
    async fn a_share_that_has_been_in_use_for_long_goes_where_no_other_does() {
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
        // All hold as many.
        assert!(shares.take_now(&other).is_err() && !second.is_displaced());
    }

    #[test]
    fn a_share_that_may_not_be_displaced_stays() {
        let (shares, [client, other, _]) = (shares(2), clients(None));
        let kept = [(); 2].map(|()| shares.take_now(&client).unwrap());
        kept[0].may_be_displaced(true);
        kept[0].may_be_displaced(false);
        assert_eq!(shares.take_now(&other).unwrap_err(), ShareRefusal::Full);
        kept[0].may_be_displaced(true);
        assert!(shares.take_now(&other).is_ok());
    }

    // Ours: look-ups by the system, and fetches that have begun.
    #[tokio::test(start_paused = true)]
    async fn of_shares_that_cannot_be_given_up_a_client_leaves_as_many_free_as_it_holds() {
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
        // What comes back is not for a client that has more than it leaves free.
        drop(second);
        assert!(soon(more.as_mut()).await.is_none());
        drop(first);
        assert!(soon(more).await.unwrap().is_ok());
        let [_first, _second] = [all_of(&client), all_of(&other)];
        assert!(shares.take_now(&third).is_ok());
    }

    // Ours: of ten clients that come one after the other none leaves nothing to the
    // next.
    #[test]
    fn of_shares_that_cannot_be_given_up_the_last_ones_are_for_newcomers() {
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
    async fn more_may_wait_where_that_is_set() {
        let (shares, [client, ..]) = (shares(1), clients(None));
        shares.set_waiting_limit(2);
        let _taken = shares.take_now(&client).unwrap();
        let [mut first, mut second] = [(); 2].map(|()| Box::pin(shares.take(&client)));
        assert!(soon(first.as_mut()).await.is_none());
        assert!(soon(second.as_mut()).await.is_none());
        assert!(soon(shares.take(&client)).await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_becomes_free_goes_to_the_client_that_holds_least() {
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
    async fn a_waiter_that_goes_leaves_its_place_and_what_it_was_granted() {
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
    async fn where_too_many_wait_the_client_with_most_waiters_loses_one() {
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
    async fn a_limit_of_the_operator_holds_where_shares_are_free() {
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
    async fn a_higher_limit_counts_for_those_that_wait() {
        let (shares, [client, _, _]) = (shares(1), clients(None));
        let _taken = shares.take_now(&client).unwrap();
        let mut waiting = pin!(shares.take(&client));
        assert!(soon(waiting.as_mut()).await.is_none());
        shares.set_limit(2);
        assert!(soon(waiting).await.unwrap().is_ok());
    }
}
