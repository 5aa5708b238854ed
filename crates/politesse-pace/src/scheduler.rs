//! Scheduler: grants turns to send requests, with one pace per host over all its ports
//! and both schemes.
//!
//! Finds the queue of a host, starts a request or lets it wait there, and explains a
//! refusal. Does not know whether a request may be sent at all, and sends nothing.
//!
//! Waiting requests are limited in number (`pace.queue`) and in time, and so is the
//! number of hosts (`pace.max_hosts`; ARCHITECTURE.md, invariant 8).

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use super::back_off::{BackOff, BackOffListener, BackedOffHosts};
use super::context::{BackOffReport, Now, PaceContext, PaceFleet};
use super::fleet_part::FleetPart;
use super::host::HostState;
use super::host_map::HostMap;
use super::host_pace::HostPace;
use super::lease::LeaseStore;
use super::options::Options;
use super::queue::{HostQueue, Ticket, stopping};
use super::request::{RobotsFetch, StartEstimate, TurnOwner, TurnRequest, Waiter};
use super::schedule::{Kind, Uptime};
use super::seats::{Seat, Seats};
use super::turn::Turn;
use politesse_base::clients::client::Client;
use politesse_base::clock;
use politesse_base::metrics::{Metrics, ReasonLabel};
use politesse_base::tasks::Tasks;
use politesse_decision::back_off::{ReleaseOrder, SavedBackOff};
use politesse_decision::delay::{Delay, DelayEnd, DelayScope};
use politesse_decision::reason::Reason;
use politesse_robots::PaceRecords;
use politesse_robots::origin::Host;

/// Time between two sweeps. A host is kept for ten minutes in any case.
const SWEEP_SECONDS: u64 = 60;

/// Grants turns.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) context: Arc<PaceContext>,
    hosts: Arc<HostMap>,
    seats: Arc<Seats>,
    /// Wall-clock time at which this process began.
    began: Timestamp,
    /// Next arrival number.
    arrivals: AtomicU64,
    /// Uptime of the next sweep, in seconds.
    next_sweep: AtomicU64,
}

impl Scheduler {
    /// Creates a scheduler that knows no hosts yet.
    pub fn new(options: Options, metrics: Arc<Metrics>, tasks: Tasks) -> Self {
        let seats = Seats::new(&options.queue, Arc::clone(&metrics));
        let context = Arc::new(PaceContext::new(options, metrics, tasks));
        Self {
            hosts: Arc::new(HostMap::new(Arc::clone(&context))),
            context,
            seats,
            began: clock::now(),
            arrivals: AtomicU64::new(0),
            next_sweep: AtomicU64::new(SWEEP_SECONDS),
        }
    }

    /// Applies new options, also to waiting requests. Requests in flight are not
    /// affected.
    pub fn set_options(&self, options: Options) {
        self.seats.set_limits(&options.queue);
        let ceilings = self.context.set_options(options);
        let now = self.context.now();
        self.hosts
            .for_each(|host, queue| queue.refresh(host, &now, ceilings.as_deref()));
    }

    /// Joins a fleet whose store keeps the leases of hosts. Only the first call counts.
    /// Nothing starts until [`Scheduler::set_fleet_part`] is called.
    pub fn join_fleet(&self, store: Arc<dyn LeaseStore>) {
        let _ = self.context.fleet.set(PaceFleet::new(store));
    }

    /// Sets the role of this node in its fleet, also for waiting requests. It is valid
    /// until `valid_until` ([`Scheduler::uptime`]); unless another one is set, nothing
    /// starts after that.
    pub fn set_fleet_part(&self, part: FleetPart, valid_until: Duration) {
        let Some(fleet) = self.context.fleet.get() else {
            return;
        };
        // Called twice a second, so hosts are woken only if something changed.
        if fleet.set_part(part, valid_until, self.uptime()) {
            self.hosts.for_each(|host, queue| queue.wake(host));
        }
    }

    /// Returns the role of this node in its fleet; `None` outside a fleet.
    pub fn fleet_part(&self) -> Option<FleetPart> {
        self.context.now().fleet
    }

    /// Waits until the leases of all hosts are given back, after [`Scheduler::close`].
    pub async fn leases_released(&self) {
        let tasks = &self.context.tasks.0;
        tasks.close();
        tasks.wait().await;
    }

    /// Returns the time since the scheduler began, from which [`FleetPart`] counts.
    pub fn uptime(&self) -> Duration {
        self.context.uptime()
    }

    /// Sets the listener. Only the first call counts: with two listeners each
    /// would miss the events before it was set.
    pub fn set_back_off_listener(&self, listener: BackOffListener) {
        let _ = self.context.listener.set(listener);
    }

    /// Restores the back-offs that the previous process saved.
    ///
    /// The remaining time is capped at `pace.backoff.longest`, because the clock may have
    /// been wrong when a back-off was saved. A back-off that has ended and is not
    /// forgiven yet keeps its incidents, so that the next one of that host is longer.
    pub fn restore_back_offs(&self, saved: impl IntoIterator<Item = SavedBackOff>) {
        let now = self.context.now();
        let limits = now.active.options.back_off;
        for entry in saved {
            if limits.forgive <= clock::passed(entry.quiet_since, now.wall) {
                continue;
            }
            let remaining = clock::passed(now.wall, entry.until).min(limits.longest);
            let back_off = BackOff {
                end: Some(now.uptime.saturating_add(remaining)),
                incidents: entry.incidents,
                is_end_unreported: true,
                asked_at: None,
                // The record does not say when it began.
                first_at: Some(now.uptime),
            };
            if let Ok(queue) = self.hosts.queue(&entry.host, &now) {
                queue.update(|host| host.back_off = back_off);
            }
        }
    }

    /// Gives back the leases of hosts as soon as nothing waits for them, because the
    /// process is about to stop.
    pub fn drain(&self) {
        self.context.is_draining.store(true, Ordering::Relaxed);
        self.hosts.for_each(|host, queue| queue.wake(host));
    }

    /// Ends the waits of requests that could not start within `time`, because the process
    /// stops then.
    pub fn close_beyond(&self, time: Duration) {
        let now = self.context.now();
        self.hosts
            .for_each(|_, queue| queue.close_beyond(time, &now));
    }

    /// Ends all waits, because the process stops. From now on, requests that cannot start
    /// at once are put off ([`Reason::Overload`]).
    pub fn close(&self) {
        self.context.is_closed.store(true, Ordering::SeqCst);
        self.hosts.for_each(|_, queue| queue.close());
    }

    /// Waits for a turn.
    ///
    /// # Errors
    ///
    /// The [`Delay`] of a request that is put off: at once if its wait would exceed
    /// `max_wait`, otherwise after `max_wait` at the latest.
    pub async fn turn(&self, request: TurnRequest<'_>) -> Result<Turn, Delay> {
        let turn = self.start_or_wait(&request).await;
        turn.map_err(|delay| self.put_off(request.host, delay))
    }

    /// Waits for a turn to fetch a robots.txt for `client`, ahead of all waiting pages.
    /// Returns `None` if that would take longer than any request may wait.
    pub async fn robots_turn(&self, host: &Host, client: &Arc<Client>) -> Option<Turn> {
        // A robots.txt may be for any page, so it may wait as long as any page.
        let max_wait = self.context.active.load().options.max_wait;
        let owner = TurnOwner::of_robots(client);
        let request = TurnRequest::robots(host, &owner, max_wait);
        self.start_or_wait(&request).await.ok()
    }

    /// Records the crawl delay of a robots.txt that no page follows: the next robots.txt
    /// of its host keeps this delay.
    pub fn record_crawl_delay(&self, host: &Host, records: &PaceRecords) {
        let now = self.context.now();
        if let Ok(queue) = self.hosts.queue(host, &now) {
            queue.with_host(|host| host.record_crawl_delay(records, &now));
        }
    }

    /// Returns roughly how long a robots.txt for `client` would wait for its turn now.
    pub fn robots_wait(&self, host: &Host, client: &Arc<Client>) -> Duration {
        let delay = self.estimate_robots(host, client);
        delay.wait().unwrap_or_default()
    }

    /// Puts off a request of `client` whose robots.txt cannot be fetched now; `None` if
    /// the host delays no robots.txt.
    pub fn put_off_robots(&self, host: &Host, client: &Arc<Client>) -> Option<Delay> {
        let now = self.context.now();
        let queue = self.hosts.queue(host, &now);
        let is_delayed = queue.is_ok_and(|queue| queue.delays_robots(&now));
        is_delayed.then(|| self.put_off(host, self.estimate_robots(host, client)))
    }

    /// Returns the delay of a request of `client` whose robots.txt would have to wait for
    /// `wait`, because of `reason` if that is known.
    pub fn put_off_robots_by(
        &self,
        host: &Host,
        client: &Arc<Client>,
        reason: Option<Reason>,
        wait: Duration,
    ) -> Delay {
        // Only the reason is taken from the estimate: the length of the wait was
        // determined when the fetch joined the queue.
        let reason = reason.unwrap_or_else(|| self.estimate_robots(host, client).reason);
        self.put_off(host, Delay::of_host(reason, DelayEnd::After(wait)))
    }

    /// Takes a seat for a request that waits for its robots.txt, counted together with
    /// the requests in queues. Returns `None` if too many wait (`pace.queue`).
    pub fn seat(&self, owner: &TurnOwner) -> Option<Seat> {
        let limits = self.context.active.load().options.queue;
        self.seats.take(owner, &limits).ok().flatten()
    }

    /// Ends the back-off of a host, on an operator's order. Returns whether there was
    /// one.
    pub fn release(&self, host: &Host, order: ReleaseOrder) -> bool {
        let now = self.context.now();
        let Some(queue) = self.hosts.known(host) else {
            return false;
        };
        let ended = queue.update(|state| {
            let is_on = state.back_off.until(now.uptime).is_some();
            if is_on && let Some(lease) = &mut state.lease {
                lease.free();
            }
            is_on.then(|| std::mem::take(&mut state.back_off))
        });
        let Some(ended) = ended else {
            return false;
        };
        let released = BackOff {
            end: Some(now.uptime),
            incidents: ended.incidents,
            ..BackOff::default()
        };
        self.context
            .report(host, &released, BackOffReport::Released(order));
        true
    }

    /// Estimates when a request could start, without making it. The estimate takes no
    /// place in a queue, and does not make the scheduler remember the host.
    pub fn estimate(&self, request: &TurnRequest<'_>) -> StartEstimate {
        let now = self.context.now();
        let known = self.hosts.known(request.host);
        // A list of hosts that never get a request must not take up the places of hosts
        // that do (`pace.max_hosts`).
        let queue =
            known.unwrap_or_else(|| Arc::new(HostQueue::new(&self.context, request.host, &now)));
        self.assume_page_before(request, &queue);
        queue.estimate_start(&self.waiter(request, &now), &now)
    }

    /// Counts the hosts in back-off. Takes milliseconds if there are many hosts.
    pub fn backed_off(&self) -> BackedOffHosts {
        let now = self.context.now();
        let mut count = BackedOffHosts::default();
        self.hosts.for_each(|_, queue| {
            queue.with_host(|host| {
                count.all += i64::from(host.back_off.until(now.uptime).is_some());
                count.long += i64::from(host.back_off.is_long(now.uptime));
            });
        });
        count
    }

    /// Counts the hosts whose lease this fleet node holds. Takes milliseconds if there
    /// are many hosts.
    pub fn leased_hosts(&self) -> u64 {
        let now = self.context.uptime();
        let mut count = 0;
        self.hosts.for_each(|_, queue| {
            let lease =
                |host: &mut HostState| host.lease.as_ref().is_some_and(|lease| lease.is_held(now));
            count += u64::from(queue.with_host(lease));
        });
        count
    }

    /// Describes every host that is remembered.
    pub fn snapshot(&self) -> Vec<HostPace> {
        let now = self.context.now();
        let mut hosts = Vec::new();
        self.hosts
            .for_each(|host, queue| hosts.push(queue.snapshot(host, &now)));
        hosts
    }

    /// Forgets the hosts that need not be remembered. Also runs once a minute, when a
    /// turn is asked for. Blocks for some milliseconds with a hundred thousand hosts.
    pub fn sweep(&self) {
        sweep(&self.context, &self.hosts);
    }

    async fn start_or_wait(&self, request: &TurnRequest<'_>) -> Result<Turn, Delay> {
        let ticket = {
            let now = self.context.now();
            self.sweep_if_due(now.uptime);
            let queue = self.hosts.queue(request.host, &now)?;
            self.assume_page_before(request, &queue);
            let mut waiter = self.waiter(request, &now);
            let is_requisite = request.embedding.is_some()
                && queue.with_host(|host| host.takes_requisite(request, &now));
            if is_requisite {
                waiter.follow_page();
            }
            let may_wait = |delay: &Delay, waiter: &Waiter| {
                !request.max_wait.is_zero()
                    && delay.scope != DelayScope::Request
                    && !waiter.is_hopeless(delay, &now)
            };
            let mut started = queue.start(request.host, &mut waiter, &now);
            if request.robots_fetch == RobotsFetch::BeforeTurn
                && !is_requisite
                && started
                    .as_ref()
                    .is_err_and(|delay| !may_wait(delay, &waiter))
            {
                // If it were put off now, each retry would find its robots.txt expired
                // and keep a delay after the new fetch, without ever starting.
                waiter.place.kind = Kind::PageAtOnce;
                started = queue.start(request.host, &mut waiter, &now);
            }
            match started {
                Ok(grant) => return Ok(Turn::new(queue, request.host, grant)),
                Err(delay) if !may_wait(&delay, &waiter) => return Err(delay),
                Err(delay) => self.join(queue, waiter, &now).map_err(|detail| {
                    Delay::of_host(Reason::QueueFull, delay.end).explained(detail)
                })?,
            }
        };
        let queue = Arc::clone(&ticket.queue);
        Ok(Turn::new(queue, request.host, ticket.grant().await?))
    }

    /// Counts a page of the previous process at the host of `request`, if its robots.txt
    /// dates from that process.
    fn assume_page_before(&self, request: &TurnRequest<'_>, queue: &HostQueue) {
        // The previous process may have requested a page just before it ended. No record
        // of that exists, so a request at our own start is assumed.
        if request.robots_fetched_at.is_some_and(|at| at < self.began) {
            queue.with_host(|host| host.schedule.assume_page_at(Uptime::ZERO));
        }
    }

    fn waiter(&self, request: &TurnRequest<'_>, now: &Now) -> Waiter {
        Waiter::new(request, self.arrivals.fetch_add(1, Ordering::Relaxed), now)
    }

    /// Adds a request to a queue, on a seat if it is a page.
    ///
    /// # Errors
    ///
    /// An explanation if there is no room.
    fn join(
        &self,
        queue: Arc<HostQueue>,
        waiter: Waiter,
        now: &Now,
    ) -> Result<Ticket, Cow<'static, str>> {
        let limits = &now.active.options.queue;
        let seat = self.seats.take(&waiter.place.owner, limits)?;
        let ticket = queue.join(waiter, seat, now);
        ticket.ok_or(Cow::Borrowed(
            "too many requests for this host wait already",
        ))
    }

    fn estimate_robots(&self, host: &Host, client: &Arc<Client>) -> Delay {
        let now = self.context.now();
        let owner = TurnOwner::of_robots(client);
        let request = TurnRequest::robots(host, &owner, Duration::ZERO);
        match self.hosts.queue(host, &now) {
            Ok(queue) => queue.estimate(&self.waiter(&request, &now), &now),
            Err(delay) => delay,
        }
    }

    /// Counts a request that is put off, and explains its delay unless it is already
    /// explained.
    fn put_off(&self, host: &Host, delay: Delay) -> Delay {
        let delay = if !delay.detail.is_empty() {
            delay
        } else if self.context.is_closed.load(Ordering::SeqCst) {
            stopping()
        } else {
            let why = self.operators_reason(host, delay.reason);
            let detail = format!("the pace of {host}: {}{why}", delay.reason.meaning());
            delay.explained(detail)
        };
        let reason = delay.reason.as_str();
        let later = &self.context.metrics.pace_later;
        later.get_or_create(&ReasonLabel { reason }).inc();
        delay
    }

    /// Returns the operator's text for a limit they set, to be appended to an
    /// explanation.
    fn operators_reason(&self, host: &Host, reason: Reason) -> String {
        let active = self.context.active.load();
        let terms = active.options.policy.terms(host);
        let by_hours = reason == Reason::VisitTime && terms.hours.is_some();
        let is_operators = reason == Reason::Ceiling || by_hours;
        let text = terms.reason.as_ref().filter(|_| is_operators);
        text.map_or_else(String::new, |text| format!(" ({text})"))
    }

    fn sweep_if_due(&self, now: Uptime) {
        let due = self.next_sweep.load(Ordering::Relaxed);
        if now.as_secs() < due {
            return;
        }
        let (next, order) = (now.as_secs() + SWEEP_SECONDS, Ordering::Relaxed);
        let is_ours = self.next_sweep.compare_exchange(due, next, order, order);
        if is_ours.is_ok() {
            let (context, hosts) = (Arc::clone(&self.context), Arc::clone(&self.hosts));
            // With many hosts a sweep takes milliseconds, which would block the other
            // requests of this thread.
            let tasks = &self.context.tasks;
            tasks.0.spawn_blocking(move || sweep(&context, &hosts));
        }
    }
}

fn sweep(context: &PaceContext, hosts: &HostMap) {
    let now = context.now();
    for (host, back_off) in hosts.sweep(&now) {
        context.report(&host, &back_off, BackOffReport::Left);
    }
    now.active.ceilings.sweep(now.uptime);
}
