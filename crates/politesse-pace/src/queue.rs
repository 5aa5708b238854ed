//! Queue of one host: the state of the host and the requests that wait for it.
//!
//! A request that need not wait starts under the lock and leaves no trace here. While
//! requests wait, one task, the driver ([`HostQueue::drive`]), sleeps for all of them and
//! grants turns one by one; it is woken when a request ends or a limit changes. In a
//! fleet, another task, the keeper ([`HostQueue::keep_lease`]), works on the lease of the
//! host. The guard is never held across an await, and no lock of another host is taken under it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::future::pending;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::back_off::{BackOffUpdate, ThrottleResponse};
use super::ceilings::Ceilings;
use super::context::{Now, PaceContext};
use super::fair_queue::FairQueue;
use super::fleet_part::FleetMode;
use super::host::HostState;
use super::host_pace::HostPace;
use super::lease::{HostLease, HostNeeds, LeaseCall, LeaseOrder, LeaseStep};
use super::request::{Grant, QueuePlace, StartEstimate, TurnAnswer, Waiter};
use super::schedule::{Kind, Uptime};
use super::seats::Seat;
use politesse_decision::delay::{Delay, DelayEnd};
use politesse_decision::reason::Reason;
use politesse_robots::origin::Host;

/// Queue of one host.
#[derive(Debug)]
pub(super) struct HostQueue {
    /// State shared with the queues of other hosts.
    pub(super) context: Arc<PaceContext>,
    /// Everything about this host, under its lock.
    state: Mutex<QueueState>,
}

/// State of the host and its queue, under one lock.
#[derive(Debug)]
struct QueueState {
    /// State of the host.
    host: HostState,
    /// Waiting requests. Present as long as a task drives it; most hosts have no waiting requests.
    waiting: Option<Box<FairQueue>>,
    /// Time before which no waiting request can start; zero if unknown.
    next_look: Uptime,
}

/// Ticket of a request that waits in a queue. Dropping it frees the place, and gives
/// back a turn that was granted and not taken.
#[derive(Debug)]
pub(super) struct Ticket {
    /// Queue in which the request waits.
    pub(super) queue: Arc<HostQueue>,
    /// Place of the request in it.
    place: QueuePlace,
    /// Receives the granted turn, or the delay of a request that is put off.
    answer: oneshot::Receiver<TurnAnswer>,
    /// Time at which the request joined.
    joined_at: Uptime,
    /// Time at which the request gives up.
    deadline: Uptime,
    /// Counts the request while it waits; `None` for a robots.txt.
    seat: Option<Seat>,
}

impl HostQueue {
    pub(super) fn new(context: &Arc<PaceContext>, host: &Host, now: &Now) -> Self {
        Self {
            context: Arc::clone(context),
            state: Mutex::new(QueueState {
                host: HostState::new(host, now),
                waiting: None,
                next_look: Uptime::ZERO,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `look` with the state of the host, without waking the driver.
    pub(super) fn with_host<T>(&self, look: impl FnOnce(&mut HostState) -> T) -> T {
        look(&mut self.lock().host)
    }

    /// Changes the state of the host and wakes the driver.
    pub(super) fn update<T>(self: &Arc<Self>, change: impl FnOnce(&mut HostState) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state.host);
        // The request that the others waited for may have ended. The lease task may run
        // before the driver, and with an old `next_look` it would give the lease back
        // although the wait is over.
        state.next_look = Uptime::ZERO;
        state.wake_driver();
        self.look_after_lease(&mut state);
        result
    }

    /// Wakes the driver and the lease task.
    pub(super) fn wake(self: &Arc<Self>, host: &Host) {
        let now = self.context.now();
        let mut state = self.lock();
        state.host.report_again(host, &now);
        state.wake_driver();
        self.look_after_lease(&mut state);
    }

    /// Applies the options in force. Waiting requests are checked again, under
    /// `ceilings` if those are new.
    pub(super) fn refresh(&self, host: &Host, now: &Now, ceilings: Option<&Ceilings>) {
        let mut state = self.lock();
        state.host.refresh(host, now);
        if let Some(waiting) = &mut state.waiting {
            waiting.for_each(|waiter| {
                waiter.not_before = Uptime::ZERO;
                if let Some(ceilings) = ceilings {
                    let crawler = waiter.place.owner.crawler.as_deref();
                    let claim = ceilings.claim(crawler, host, waiter.address);
                    waiter.set_claim(claim);
                }
            });
        }
        state.wake_driver();
    }

    /// Starts a request if nothing delays it.
    ///
    /// # Errors
    ///
    /// The estimated [`Delay`].
    pub(super) fn start(
        self: &Arc<Self>,
        host: &Host,
        waiter: &mut Waiter,
        now: &Now,
    ) -> Result<Grant, Delay> {
        let mut state = self.lock();
        state.host.refresh(host, now);
        if let Some(fleet) = now.fleet {
            state.host.lease_in(host, fleet.generation, now.uptime);
        }
        let waiting = state.waiting.as_ref();
        let Some(waiting) = waiting.filter(|waiting| !waiting.is_empty()) else {
            let started = state.host.start(waiter, now);
            self.look_after_lease(&mut state);
            return started;
        };
        let ahead = waiting.ahead(&waiter.place);
        Err(state.host.estimate(waiter, &ahead, now))
    }

    /// Estimates the delay of a request that arrives now.
    pub(super) fn estimate(&self, waiter: &Waiter, now: &Now) -> Delay {
        let state = self.lock();
        let waiting = state.waiting.as_ref();
        let ahead = waiting.map(|waiting| waiting.ahead(&waiter.place));
        state.host.estimate(waiter, &ahead.unwrap_or_default(), now)
    }

    /// Estimates when a request that arrives now could start, without adding it to the
    /// queue.
    pub(super) fn estimate_start(&self, waiter: &Waiter, now: &Now) -> StartEstimate {
        let state = self.lock();
        let waiting = state.waiting.as_ref();
        let ahead = waiting.map(|waiting| waiting.ahead(&waiter.place));
        state
            .host
            .estimate_start(waiter, &ahead.unwrap_or_default(), now)
    }

    /// Returns whether anything delays a robots.txt now.
    pub(super) fn delays_robots(&self, now: &Now) -> bool {
        let state = self.lock();
        state.waiting.is_some() || state.host.delay(Kind::RobotsTxt, now).is_some()
    }

    /// Adds a request to the queue, with the seat that it holds. Returns `None` if too
    /// many pages wait (`pace.queue.origin`).
    pub(super) fn join(
        self: Arc<Self>,
        mut waiter: Waiter,
        seat: Option<Seat>,
        now: &Now,
    ) -> Option<Ticket> {
        let mut state = self.lock();
        let is_driven = state.waiting.is_some();
        let waiting = state.waiting.get_or_insert_default();
        let pages_max = now.active.options.queue.origin.get();
        if !waiting.make_room(&waiter.place, pages_max) {
            return None;
        }
        let driver = Arc::clone(&waiting.driver);
        let (sender, answer) = oneshot::channel();
        waiter.ticket = Some(sender);
        waiter.driver = Some(Arc::clone(&driver));
        let (place, deadline) = (waiter.place.clone(), waiter.deadline);
        waiting.push(waiter);
        driver.notify_one();
        drop(state);
        // Read after the request has joined. The scheduler sets the flag before it
        // closes the queues, so a request that `close` missed finds it set here.
        if self.context.is_closed.load(Ordering::SeqCst) {
            self.close();
        }
        if !is_driven {
            let drive = Arc::clone(&self).drive(driver);
            self.context.host_tasks.spawn(drive);
        }
        Some(Ticket {
            queue: self,
            place,
            answer,
            joined_at: now.uptime,
            deadline,
            seat,
        })
    }

    /// Takes a request out of the queue before its turn; `None` if it was already
    /// answered.
    fn leave(&self, place: &QueuePlace) -> Option<Waiter> {
        let mut state = self.lock();
        let waiter = state.waiting.as_mut()?.remove(place)?;
        state.wake_driver();
        Some(waiter)
    }

    /// Removes every waiting request.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        let waiting = state.waiting.as_mut();
        let gone = waiting.map(|waiting| waiting.remove_all(|_| true));
        state.wake_driver();
        state.wake_keeper();
        drop(state);
        // A ticket whose sender is dropped gets no answer. Dropping a waiter that holds
        // a place under a ceiling takes that lock, so it happens after this one is
        // released.
        drop(gone);
    }

    /// Removes the requests that could not start within `time`.
    pub(super) fn close_beyond(&self, time: Duration, now: &Now) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(waiting) = &mut state.waiting else {
            return;
        };
        let is_late = |waiter: &&Waiter| {
            let ahead = waiting.ahead(&waiter.place);
            let wait = state.host.estimate(waiter, &ahead, now).wait();
            wait.is_some_and(|wait| time < wait)
        };
        // All late requests are found before any is removed, because each estimate
        // counts the requests ahead.
        let late: HashSet<_> = waiting
            .waiters()
            .filter(is_late)
            .map(|waiter| waiter.place.arrival)
            .collect();
        let gone = waiting.remove_all(|waiter| late.contains(&waiter.place.arrival));
        state.wake_driver();
        drop(guard);
        drop(gone);
    }

    /// Records a 429 or 503. Requests that would have to give up before the back-off
    /// ends are answered at once.
    pub(super) fn record_throttle(self: &Arc<Self>, response: &ThrottleResponse) -> BackOffUpdate {
        let now = &self.context.now();
        let mut state = self.lock();
        let (back_off, limits) = (&mut state.host.back_off, &now.active.options.back_off);
        let update = back_off.record(response, limits, now.uptime);
        let until = back_off.until(now.uptime);
        let Some(until) = until.filter(|_| update != BackOffUpdate::None) else {
            return update;
        };
        state.wake_driver();
        if let Some(lease) = &mut state.host.lease {
            lease.report_back_off();
        }
        self.look_after_lease(&mut state);
        let delay = Delay::of_host(Reason::BackOff, now.end_at(until));
        let hopeless = |waiter: &Waiter| waiter.is_hopeless(&delay, now);
        let waiting = state.waiting.as_mut();
        let gone = waiting.map(|waiting| waiting.remove_all(hopeless));
        drop(state);
        for waiter in gone.unwrap_or_default() {
            waiter.answer(Err(delay.clone()));
        }
        update
    }

    /// Returns whether no request waits and the host's state can be forgotten
    /// ([`HostState::is_idle`]).
    pub(super) fn is_idle(&self, now: &Now) -> bool {
        let state = self.lock();
        state.waiting.is_none() && state.host.is_idle(now)
    }

    /// Describes the queue for display.
    pub(super) fn snapshot(&self, host: &Host, now: &Now) -> HostPace {
        let state = self.lock();
        let waiting = state.waiting.as_deref();
        // If nothing delays the host, each request has a delay of its own.
        let own_delay = || {
            let firsts = waiting?.firsts();
            firsts.min_by_key(|first| first.not_before)?.own_delay(now)
        };
        let host_delay = state.host.delay(Kind::Page, now);
        let delays = host_delay.into_iter().chain(own_delay());
        let delay = delays.max_by_key(Delay::recheck_after);
        let back_off = state.host.back_off.until(now.uptime);
        let queued = waiting.map_or(0, FairQueue::len);
        let at = |wait| now.wall.checked_add(wait).ok();
        HostPace {
            host: host.to_string(),
            in_flight: state.host.schedule.in_flight(),
            queued: u32::try_from(queued).unwrap_or(u32::MAX),
            next_start: delay.as_ref().and_then(Delay::wait).and_then(at),
            cause: delay.map(|delay| Cow::Borrowed(delay.reason.as_str())),
            backoff_until: back_off.and_then(|until| at(until.saturating_sub(now.uptime))),
        }
    }

    /// Grants turns as long as requests wait.
    async fn drive(self: Arc<Self>, driver: Arc<Notify>) {
        while let Some(until) = self.grant_turns() {
            self.context.wait_until(until, driver.notified()).await;
        }
    }

    /// Grants the turns that are due. Returns when to check again unless the driver is
    /// woken earlier; `None` if no request waits.
    fn grant_turns(self: &Arc<Self>) -> Option<Uptime> {
        loop {
            self.context.metrics.pace_wakeups.inc();
            let now = self.context.now();
            let mut state = self.lock();
            let waiting = state.waiting.take();
            let mut waiting = waiting.filter(|waiting| !waiting.is_empty())?;
            // A wake-up does not say which request it is for.
            waiting.for_each_first(Waiter::wake);
            let served = waiting.serve(&mut state.host, &now);
            state.waiting = Some(waiting);
            let is_missed = |lease: &HostLease| lease.is_missed();
            state.next_look = match &served {
                Err(until) if !state.host.lease.as_deref().is_some_and(is_missed) => *until,
                _ => Uptime::ZERO,
            };
            self.look_after_lease(&mut state);
            drop(state);
            match served {
                Err(until) => return Some(until),
                Ok((waiter, grant)) => {
                    // The ticket is gone: the client hung up in the meantime.
                    if let Some(unused) = waiter.answer(Ok(grant)) {
                        self.update(|host| host.give_back(&unused));
                    }
                }
            }
        }
    }

    /// Makes sure that a task works on the lease of the host if it needs attention.
    fn look_after_lease(self: &Arc<Self>, state: &mut QueueState) {
        let Some(lease) = &mut state.host.lease else {
            return;
        };
        if lease.has_keeper {
            lease.keeper.notify_one();
        } else if lease.is_due() {
            lease.has_keeper = true;
            let keeper = Arc::clone(&lease.keeper);
            let host = lease.host.clone();
            let keep = Arc::clone(self).keep_lease(host, keeper);
            self.context.host_tasks.spawn(keep);
        }
    }

    /// Claims the lease of the host, renews it and gives it back, until nothing is left
    /// to do.
    async fn keep_lease(self: Arc<Self>, host: Host, keeper: Arc<Notify>) {
        let Some(fleet) = self.context.fleet.get() else {
            return;
        };
        loop {
            let asked_at = self.context.now().time();
            let call = match self.lease_step() {
                LeaseStep::Rest => return,
                LeaseStep::Wait(until) => {
                    self.context.wait_until(until, keeper.notified()).await;
                    continue;
                }
                LeaseStep::Call(number, order) => LeaseCall {
                    host: &host,
                    number,
                    order,
                },
            };
            let answer = match call.order {
                LeaseOrder::Release(_) => {
                    // The semaphore is never closed.
                    let permit = fleet.store_calls.acquire().await;
                    // The host may have answered with a 429 or 503 in the meantime.
                    let history = self.with_host(|host| host.history(&self.context.now()));
                    let order = LeaseOrder::Release(history);
                    let answer = fleet.store.lease(LeaseCall { order, ..call }).await;
                    drop(permit);
                    answer
                }
                LeaseOrder::Claim | LeaseOrder::Renew(_) | LeaseOrder::EndBackOff => {
                    fleet.store.lease(call).await
                }
            };
            if answer.is_err() && self.context.is_closed.load(Ordering::SeqCst) {
                return;
            }
            let now = self.context.uptime();
            let mut state = self.lock();
            state.next_look = Uptime::ZERO;
            let lease = state.host.lease.as_mut();
            let history = lease.and_then(|lease| lease.take(answer, asked_at, now));
            if let Some(history) = history {
                state.host.learn(&history, asked_at.uptime, now);
            }
            state.wake_driver();
        }
    }

    /// Returns the next step of the lease task.
    fn lease_step(&self) -> LeaseStep {
        let mut state = self.lock();
        // Read under the lock: a thread that has changed the fleet part since then
        // wakes this queue afterwards.
        let now = self.context.now();
        if state
            .host
            .lease
            .as_deref()
            .is_some_and(HostLease::is_wanted)
        {
            state.host.make_way(&now);
        }
        let needs = HostNeeds {
            is_waiting: state
                .waiting
                .as_ref()
                .is_some_and(|waiting| !waiting.is_empty()),
            in_flight: state.host.schedule.in_flight(),
            next_look: state.next_look,
            is_under_ceiling: state
                .waiting
                .as_ref()
                .is_some_and(|waiting| waiting.is_under_ceiling()),
            history: state.host.history(&now),
            is_draining: self.context.is_draining.load(Ordering::Relaxed),
            is_closing: self.context.is_closed.load(Ordering::SeqCst),
            is_fleet_outdated: now.is_fleet_outdated,
        };
        let Some(lease) = &mut state.host.lease else {
            return LeaseStep::Rest;
        };
        if now
            .fleet
            .is_none_or(|fleet| fleet.mode != FleetMode::Leased)
        {
            lease.forget();
            // After a mode change, `wake` starts the task again.
            lease.has_keeper = false;
            return LeaseStep::Rest;
        }
        let step = lease.step(&needs, now.time());
        lease.has_keeper = step != LeaseStep::Rest;
        step
    }
}

impl QueueState {
    fn wake_keeper(&self) {
        if let Some(lease) = &self.host.lease {
            lease.keeper.notify_one();
        }
    }

    fn wake_driver(&self) {
        if let Some(waiting) = &self.waiting {
            waiting.driver.notify_one();
        }
    }
}

impl Ticket {
    /// Waits for the turn.
    ///
    /// # Errors
    ///
    /// A [`Delay`] as soon as it is known to be longer than the request may wait, at
    /// the latest at the deadline. Or the delay of a request whose seat was taken by
    /// another client.
    pub(super) async fn grant(mut self) -> Result<Grant, Delay> {
        let mut is_displaced = false;
        let answered = {
            let context = &self.queue.context;
            let answered = context.wait_until(self.deadline, &mut self.answer);
            let displaced = async {
                match &self.seat {
                    Some(seat) => seat.displaced().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                answered = answered => answered,
                () = displaced => {
                    is_displaced = true;
                    None
                }
            }
        };
        let answer = match answered {
            Some(answer) => answer,
            None => match self.queue.leave(&self.place) {
                Some(waiter) if is_displaced => {
                    return Err(Delay {
                        reason: Reason::QueueFull,
                        ..self.final_delay(waiter)
                    });
                }
                Some(waiter) => return Err(self.final_delay(waiter)),
                // The request was taken out of the queue, so its answer is on the way.
                None => (&mut self.answer).await,
            },
        };
        // The sender is dropped when the queue is closed.
        let grant = answer.unwrap_or_else(|_closed| Err(stopping()))?;
        let now = self.queue.context.uptime();
        Ok(Grant {
            waited: now.saturating_sub(self.joined_at),
            arrival: Some(self.place.arrival),
            ..grant
        })
    }

    /// Returns the delay of a request that has left the queue.
    fn final_delay(&self, mut waiter: Waiter) -> Delay {
        let now = &self.queue.context.now();
        // If the request came again, it would be the last in the queue.
        waiter.place.arrival = u64::MAX;
        let mut delay = self.queue.estimate(&waiter, now);
        // If nothing else would delay the request now, it was held up by a delay of its
        // own.
        if let Some(reason) = waiter.held_by.filter(|_| delay.is_over()) {
            delay.reason = reason;
        }
        delay
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.queue.leave(&self.place);
        // No turn can be granted after this point; one may have been granted before.
        self.answer.close();
        if let Ok(Ok(unused)) = self.answer.try_recv() {
            self.queue.update(|host| host.give_back(&unused));
        }
    }
}

/// Returns the delay of a request that would have to wait while the proxy stops.
pub(super) fn stopping() -> Delay {
    // The start of the next process is unknown.
    let end = DelayEnd::OnEvent(Duration::MAX);
    Delay::of_host(Reason::Overload, end).explained("the proxy is stopping")
}
