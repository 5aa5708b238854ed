//! State of one host, and the delay of a request that follows from it.
//!
//! The delay is the longest of the delays from the pace records of the site, the
//! operator's terms for the host, its back-off, and the ceilings over many hosts. The
//! schedule measures it from earlier requests to the host. Does not know the queue.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;

use super::back_off::BackOff;
use super::ceilings::CeilingClaim;
use super::context::Now;
use super::fleet_part::{FleetMode, FleetShare, HostHistory};
use super::lease::HostLease;
use super::policy::HostTerms;
use super::request::{
    Embedding, Grant, RequestsAhead, StartEstimate, TurnOwner, TurnRequest, Waiter,
};
use super::requisites::GivenPages;
use super::schedule::{Kind, Outcome, Schedule, StartLimits, Uptime};
use super::stall_watch::StallWatch;
use super::turn_activity::TurnActivity;
use politesse_base::clock;
use politesse_decision::delay::{Delay, DelayEnd, DelayScope};
use politesse_decision::reason::Reason;
use politesse_robots::PaceRecords;
use politesse_robots::origin::Host;

/// Time for which an idle host is remembered.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Interval at which a request that waits for its host's lease is checked again.
const LEASE_CHECK: Duration = Duration::from_secs(1);

/// Explanation of a delay while another node holds the lease of the host.
const ELSEWHERE: &str = "another node of the fleet asks this host at present";

/// Explanation of a delay while the store of the fleet is lost.
const LOST: &str = "the store of the fleet does not answer (fleet.on_loss)";

/// Shortest time between two checks for stalled clients.
const STALL_CHECK_MIN: Duration = Duration::from_millis(1);

/// Turn that is ending.
#[derive(Debug)]
pub(super) struct EndedTurn<'a> {
    /// Start of the turn.
    pub(super) grant: &'a Grant,
    /// Outcome of the request.
    pub(super) outcome: Outcome,
    /// Time from the last byte of the request to the end of the response.
    pub(super) response_time: Duration,
    /// Activity, if the turn ever waited for its client.
    pub(super) activity: Option<&'a Arc<TurnActivity>>,
}

/// State of one host. Kept small, because there are many hosts.
#[derive(Debug)]
pub(super) struct HostState {
    /// Starts and ends of requests.
    pub(super) schedule: Schedule,
    /// Operator's terms for the host.
    terms: Arc<HostTerms>,
    /// Generation of the configuration that `terms` come from.
    generation: u32,
    /// Back-off after a 429 or 503, current or past.
    pub(super) back_off: BackOff,
    /// Turns that have waited for their clients, and clients that stalled; few hosts
    /// have any.
    watch: Option<Box<StallWatch>>,
    /// Pages whose requisites may follow; few hosts have any.
    given_pages: Option<Box<GivenPages>>,
    /// Overruns that no turn has reported yet.
    overruns: u32,
    /// Turns that were given up and are not reported yet.
    stalls: u32,
    /// Lease of the host, in a fleet; `None` before its first use.
    pub(super) lease: Option<Box<HostLease>>,
}

impl HostState {
    pub(super) fn new(host: &Host, now: &Now) -> Self {
        Self {
            schedule: Schedule::default(),
            terms: Arc::clone(now.active.options.policy.terms(host)),
            generation: now.active.generation,
            back_off: BackOff::default(),
            watch: None,
            given_pages: None,
            overruns: 0,
            stalls: 0,
            lease: None,
        }
    }

    /// Applies the terms of the configuration in force, if it is newer.
    pub(super) fn refresh(&mut self, host: &Host, now: &Now) {
        // Another thread may still hold an older configuration. The comparison also
        // holds after the number has wrapped.
        let ahead = now.active.generation.wrapping_sub(self.generation);
        if !(1..=u32::MAX / 2).contains(&ahead) {
            return;
        }
        self.generation = now.active.generation;
        self.terms = Arc::clone(now.active.options.policy.terms(host));
        if self.terms.adaptive.is_none() {
            self.schedule.forget_adaptive();
        }
    }

    /// Estimates the delay of a request that starts after the requests `ahead`.
    pub(super) fn estimate(&self, waiter: &Waiter, ahead: &RequestsAhead, now: &Now) -> Delay {
        let limits = self.limits(waiter.pace_records.as_deref(), waiter.place.kind, now);
        if let Some(delay) = self.delay_of_fleet(waiter.place.kind, &limits, now) {
            return delay;
        }
        let next = self.schedule.next(waiter.place.kind, &limits, now.uptime);
        let back_off = limits.back_off_until.saturating_sub(now.uptime);
        let (wait, reason) = match next.wait() {
            // The end of the other request is unknown, but nothing starts before the
            // back-off is over.
            None if !back_off.is_zero() => (back_off, Reason::BackOff),
            wait => (wait.unwrap_or_default(), next.reason),
        };
        let wait = wait.saturating_add(self.wait_behind(ahead, waiter, now));
        let ceilings = waiter
            .claim
            .as_ref()
            .map_or(Duration::ZERO, CeilingClaim::wait);
        if wait < ceilings {
            Delay::of_host(Reason::Ceiling, DelayEnd::After(ceilings))
        } else {
            Delay::of_host(reason, DelayEnd::After(wait))
        }
    }

    /// Estimates when a request after those `ahead` could start, and the pause until the
    /// next start.
    ///
    /// If the site asks for a delay and a request is in flight, that request is assumed
    /// to end now, and the delay counts from its end.
    pub(super) fn estimate_start(
        &self,
        waiter: &Waiter,
        ahead: &RequestsAhead,
        now: &Now,
    ) -> StartEstimate {
        let estimated = self.estimate(waiter, ahead, now);
        let limits = self.limits(waiter.pace_records.as_deref(), waiter.place.kind, now);
        let after_end = if self.schedule.in_flight() == 0 {
            Duration::ZERO
        } else {
            limits.delay
        };
        let soonest = after_end.saturating_add(self.wait_behind(ahead, waiter, now));
        let delay = if estimated.wait().unwrap_or_default() < soonest {
            Delay::of_host(limits.delay_reason, DelayEnd::After(soonest))
        } else {
            estimated
        };
        StartEstimate {
            delay,
            pause: self.schedule.step(waiter.place.kind, &limits),
        }
    }

    /// Estimates how long the requests `ahead` of `waiter` take to start.
    fn wait_behind(&self, ahead: &RequestsAhead, waiter: &Waiter, now: &Now) -> Duration {
        let own = self.limits(waiter.pace_records.as_deref(), waiter.place.kind, now);
        let wait = |delay: Duration, count: usize| {
            let step = self
                .schedule
                .step(waiter.place.kind, &StartLimits { delay, ..own });
            step.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
        };
        let pages = ahead.pages.iter().map(|pages| {
            let records = pages.records.as_ref();
            let asked = records.and_then(|records| records.delay(now.wall));
            // A delay longer than `waiter`'s own holds up that crawler only.
            let delay = asked.map_or(Duration::ZERO, |(delay, _)| delay.min(own.delay));
            wait(delay, pages.count)
        });
        pages.fold(wait(own.delay, ahead.robots), Duration::saturating_add)
    }

    /// Starts a request.
    ///
    /// # Errors
    ///
    /// The [`Delay`] of a request that may not start now.
    pub(super) fn start(&mut self, waiter: &mut Waiter, now: &Now) -> Result<Grant, Delay> {
        let (kind, uptime) = (waiter.place.kind, now.uptime);
        let limits = self.limits(waiter.pace_records.as_deref(), kind, now);
        let of_fleet = self.delay_of_fleet(kind, &limits, now);
        let at_rest = of_fleet.or_else(|| self.delay_at_rest(kind, &limits, now));
        if let Some(delay) = at_rest.or_else(|| self.delay_of_lease(now)) {
            waiter.give_way();
            return Err(delay);
        }
        self.end_overlong(kind, &limits, now);
        let delay = self.schedule.next(kind, &limits, uptime);
        if !delay.is_over() {
            waiter.give_way();
            return Err(self.until_stalled(delay, now));
        }
        if let Some(delay) = self.delay_of_stalled(waiter, &limits, now) {
            waiter.give_way();
            return Err(delay);
        }
        if let Some(claim) = &mut waiter.claim {
            let started = claim.start(uptime, waiter.driver.as_ref());
            started.map_err(|until| Delay::of_crawler(Reason::Ceiling, now.end_at(until)))?;
        }
        let is_leased = now
            .fleet
            .is_some_and(|fleet| fleet.mode == FleetMode::Leased);
        let lease = self.lease.as_mut().filter(|_| is_leased);
        Ok(Grant {
            tenure: lease.map(|lease| lease.record_start(uptime)),
            start: self.schedule.start(kind, &limits, uptime)?,
            client: waiter.place.owner.reader().cloned(),
            ceilings: waiter.claim.take(),
            at: uptime,
            pause: self.schedule.step(kind, &limits),
            ended_back_off: self.back_off.take_end(uptime),
            overruns: std::mem::take(&mut self.overruns),
            stalls: std::mem::take(&mut self.stalls),
            waited: Duration::ZERO,
            arrival: None,
        })
    }

    /// Returns whether a request is a requisite, which shares the turn of its page, and
    /// counts it as one of that page's files.
    ///
    /// If the site itself asks for a pause, every request waits for its own turn: any
    /// crawler can send the fields that mark a requisite.
    pub(super) fn takes_requisite(&mut self, request: &TurnRequest<'_>, now: &Now) -> bool {
        let (Some(embedding), Some(pages)) = (request.embedding, &mut self.given_pages) else {
            return false;
        };
        let records = request.pace_records.as_deref();
        let asked = records.and_then(|records| records.delay(now.wall));
        asked.is_none_or(|(delay, _)| delay.is_zero())
            && pages.take_file(request.owner, &embedding, now)
    }

    /// Records that a page was passed to a crawler, whose requisites may follow now.
    pub(super) fn give_page(&mut self, owner: &TurnOwner, embedding: &Embedding, now: &Now) {
        let pages = self.given_pages.get_or_insert_default();
        pages.give(owner, embedding, now);
    }

    /// Forgets the pages whose requisites may no longer follow.
    pub(super) fn forget_pages(&mut self, now: &Now) {
        self.given_pages.take_if(|pages| pages.forget_old(now) == 0);
    }

    /// Returns whether a page waits only because of its delay after a robots.txt.
    pub(super) fn is_set_back(&self, page: &Waiter, now: &Now) -> bool {
        let kind = Kind::PageAtOnce;
        let limits = self.limits(page.pace_records.as_deref(), kind, now);
        let delay = self.schedule.next(kind, &limits, now.uptime);
        delay.is_over() && page.held_by != Some(Reason::Ceiling)
    }

    /// Counts overlong turns as ended, as if a request waited here: another node waits
    /// until nothing is in flight.
    pub(super) fn make_way(&mut self, now: &Now) {
        let limits = StartLimits {
            in_flight: 1,
            ..self.limits(None, Kind::Page, now)
        };
        self.end_overlong(Kind::Page, &limits, now);
    }

    /// Counts overlong turns as ended if the next start waits for that
    /// ([`Schedule::overrun`]).
    fn end_overlong(&mut self, kind: Kind, limits: &StartLimits, now: &Now) {
        self.overruns += u32::from(self.schedule.overrun(kind, limits, now.uptime));
        self.give_up_stalled(kind, limits, now);
    }

    /// Returns the delay of a request that is too early by this node's schedule, after
    /// the lease was given back because of such a delay.
    fn delay_at_rest(&self, kind: Kind, limits: &StartLimits, now: &Now) -> Option<Delay> {
        let is_leased = now.fleet?.mode == FleetMode::Leased;
        self.lease
            .as_ref()
            .filter(|lease| is_leased && lease.rests(now.uptime))?;
        let delay = self.schedule.next(kind, limits, now.uptime);
        (!delay.is_over()).then_some(delay)
    }

    /// Returns the delay of a request that may not start without the host's lease.
    fn delay_of_lease(&mut self, now: &Now) -> Option<Delay> {
        if now.fleet?.mode != FleetMode::Leased {
            return None;
        }
        let may_start = self.lease.as_mut()?.may_start(now.time()) && !now.is_fleet_outdated;
        let end = DelayEnd::OnEvent(LEASE_CHECK);
        (!may_start).then(|| Delay::of_host(Reason::Ceiling, end).explained(ELSEWHERE))
    }

    /// Returns the delay of a request while the fleet has no store.
    fn delay_of_fleet(&self, kind: Kind, limits: &StartLimits, now: &Now) -> Option<Delay> {
        match now.fleet?.mode {
            FleetMode::Leased => None,
            FleetMode::Alone(_) if now.is_fleet_outdated => {
                let end = DelayEnd::OnEvent(LEASE_CHECK);
                Some(Delay::of_host(Reason::Ceiling, end).explained(LOST))
            }
            FleetMode::Alone(since) => {
                // The nodes start one after the other, to avoid a burst.
                let own = self.schedule.step(kind, limits).saturating_mul(since.place);
                let from = since.from.saturating_add(own / limits.share.nodes.max(1));
                let end = DelayEnd::After(from.saturating_sub(now.uptime));
                (now.uptime < from).then(|| Delay::of_host(Reason::Ceiling, end).explained(LOST))
            }
            FleetMode::Closed => {
                let delay = Delay::of_host(Reason::Overload, DelayEnd::After(LEASE_CHECK));
                Some(Delay {
                    // The end is unknown, so the request is answered at once instead of
                    // waiting.
                    scope: DelayScope::Request,
                    ..delay.explained(LOST)
                })
            }
        }
    }

    /// Describes the host to the next holder of its lease.
    pub(super) fn history(&self, now: &Now) -> HostHistory {
        let mut history = HostHistory {
            back_off_end: self.back_off.end.map(|end| signed(end, now.uptime)),
            incidents: self.back_off.incidents,
            asked_for_less: self
                .back_off
                .asked_at
                .map(|at| now.uptime.saturating_sub(at)),
            ..HostHistory::default()
        };
        self.schedule.write_history(&mut history, now.uptime);
        let limits = self.limits(None, Kind::Page, now);
        let pause = self.schedule.step(Kind::Page, &limits);
        history.remembered = history.remembered.max(pause).max(REMEMBERED);
        if history.back_off_end.is_some() {
            let left = self.back_off.until(now.uptime).unwrap_or_default();
            let forgive = now.active.options.back_off.forgive;
            let until = left.saturating_sub(now.uptime).saturating_add(forgive);
            history.remembered = history.remembered.max(until);
        }
        history
    }

    /// Reports the host's back-off to a store of a new generation, which may have lost
    /// all data.
    pub(super) fn report_again(&mut self, host: &Host, now: &Now) {
        let Some(fleet) = now.fleet else {
            return;
        };
        let is_on = self.back_off.until(now.uptime).is_some();
        if is_on || self.lease.is_some() {
            let lease = self.lease_in(host, fleet.generation, now.uptime);
            lease.enter(fleet.generation, is_on);
        }
    }

    /// Returns the lease of `host`, the host of this state. Creates it, for a store with
    /// this `generation`, if needed.
    pub(super) fn lease_in(&mut self, host: &Host, generation: u64, now: Uptime) -> &mut HostLease {
        let back_off = &self.back_off;
        self.lease.get_or_insert_with(|| {
            // An active back-off without a lease comes from the previous process, so
            // this process has not reported it to any generation of the store.
            let told = if back_off.until(now).is_some() {
                0
            } else {
                generation
            };
            Box::new(HostLease::new(host, told))
        })
    }

    /// Merges the history from earlier lease holders. `asked_at` is when the store was
    /// asked.
    pub(super) fn learn(&mut self, history: &HostHistory, asked_at: Uptime, now: Uptime) {
        self.schedule.learn(history, now);
        let Some(from_now) = history.back_off_end else {
            return;
        };
        let end = time_at(from_now, now);
        // If the store does not know our back-off yet, it may come from a 429 received
        // just now.
        let is_new = self.back_off.asked_at.is_some_and(|at| asked_at <= at);
        let has_unreported = is_new
            || self
                .lease
                .as_ref()
                .is_some_and(|lease| lease.has_unreported());
        let is_own = |own: Uptime| own.abs_diff(end) < LEASE_CHECK || has_unreported && end < own;
        if !self.back_off.end.is_some_and(is_own) {
            // A back-off that is over may have been forgiven since.
            let first_at = self.back_off.until(now).and(self.back_off.first_at);
            self.back_off = BackOff {
                end: Some(end),
                incidents: history.incidents,
                first_at: Some(first_at.unwrap_or(now)),
                ..BackOff::default()
            };
        }
    }

    /// Gives up the turns of stalled clients, if a request waits for one to end.
    fn give_up_stalled(&mut self, kind: Kind, limits: &StartLimits, now: &Now) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        if !self.schedule.is_full(kind, limits) {
            return;
        }
        for start in watch.give_up(now.active.options.max_stall, now.uptime) {
            self.schedule.end(start, now.uptime);
            self.stalls += 1;
        }
    }

    /// Returns the delay of a request whose client has stalled. A turn that was given
    /// up is free for other clients, but still counts as in flight for the client
    /// itself.
    fn delay_of_stalled(&self, waiter: &Waiter, limits: &StartLimits, now: &Now) -> Option<Delay> {
        let client = waiter.place.owner.reader()?;
        let watch = self.watch.as_ref()?;
        let given_up = watch.given_up(client, limits.max_turn, now.uptime)?;
        let in_flight = self.schedule.in_flight().saturating_add(given_up.turns);
        let most = self.schedule.in_flight_max(waiter.place.kind, limits);
        (most <= in_flight).then(|| {
            let end = DelayEnd::OnEvent(given_up.until.saturating_sub(now.uptime));
            Delay::of_crawler(Reason::Ceiling, end)
        })
    }

    /// Limits the delay of a request that waits for another one to end to the time at
    /// which a client may have stalled.
    fn until_stalled(&self, delay: Delay, now: &Now) -> Delay {
        let DelayEnd::OnEvent(at_latest) = delay.end else {
            return delay;
        };
        let max_stall = now.active.options.max_stall;
        let watch = self.watch.as_ref();
        let first = watch.and_then(|watch| watch.look_at(max_stall, now.uptime));
        // A client that is not being waited for yet may stall by then.
        let left = first.map_or(max_stall, |first| first.saturating_sub(now.uptime));
        // At least the minimum: a client may have been waited for since a moment ago,
        // after the check for stalled ones.
        let until = left.clamp(STALL_CHECK_MIN, max_stall.max(STALL_CHECK_MIN));
        Delay {
            end: DelayEnd::OnEvent(at_latest.min(until)),
            ..delay
        }
    }

    /// Watches how long the turn waits for its client.
    pub(super) fn watch(&mut self, activity: &Arc<TurnActivity>) {
        let watch = self.watch.get_or_insert_default();
        watch.turns.push(Arc::clone(activity));
    }

    /// Returns the limits of one request.
    fn limits(&self, records: Option<&PaceRecords>, kind: Kind, now: &Now) -> StartLimits {
        let terms = &*self.terms;
        let share = now.fleet.map_or(FleetShare::WHOLE, |fleet| fleet.share);
        let mut limits = StartLimits {
            in_flight: share.of_places(terms.in_flight),
            spacing: terms.rate.map_or(Duration::ZERO, |rate| rate.pause()),
            delay: Duration::ZERO,
            delay_reason: Reason::CrawlDelay,
            back_off_until: self.back_off.until(now.uptime).unwrap_or_default(),
            opens_at: Uptime::ZERO,
            max_turn: now.active.options.max_turn,
            share,
        };
        // Shortcut for most hosts, which have neither pace records nor visiting hours.
        if records.is_none() && terms.hours.is_none() {
            return limits;
        }
        let wall = now.wall;
        if let Some((delay, record)) = records.and_then(|records| records.delay(wall)) {
            (limits.delay, limits.delay_reason) = (delay, record.into());
        }
        // A robots.txt is fetched at any hour, because it states the hours.
        if kind != Kind::RobotsTxt {
            let site = records.and_then(|records| records.opens(wall));
            let operator = terms.hours.and_then(|hours| hours.opens(wall));
            if let Some(opening) = site.max(operator) {
                let ahead = clock::passed(wall, opening);
                limits.opens_at = now.uptime.saturating_add(ahead);
            }
        }
        limits
    }

    /// Records the crawl delay that a robots.txt states, for the next robots.txt of the
    /// host.
    pub(super) fn record_crawl_delay(&mut self, records: &PaceRecords, now: &Now) {
        if let Some((delay, _)) = records.delay(now.wall) {
            self.schedule.set_robots_delay(delay);
        }
    }

    /// Returns whether the node still holds the lease under which the request was
    /// started.
    pub(super) fn holds(&self, grant: &Grant, now: &Now) -> bool {
        let Some(number) = grant.tenure else {
            return now
                .fleet
                .is_none_or(|fleet| fleet.mode != FleetMode::Leased && !now.is_fleet_outdated);
        };
        let lease = self.lease.as_deref();
        let has_lease = lease.is_some_and(|lease| lease.holds(number, now.time()));
        has_lease && !now.is_fleet_outdated
    }

    /// Takes back a start after which nothing was sent. If it ended a back-off, the
    /// next start reports that.
    pub(super) fn give_back(&mut self, grant: &Grant) {
        self.schedule.give_back(grant.start);
        self.back_off.is_end_unreported |= grant.ended_back_off.is_some();
    }

    /// Ends a request.
    pub(super) fn end(&mut self, ended: &EndedTurn<'_>, now: Uptime) {
        let EndedTurn {
            grant,
            outcome,
            response_time,
            activity,
        } = *ended;
        let watch = self.watch.as_mut();
        if activity
            .zip(watch)
            .is_some_and(|(turn, watch)| watch.end(turn, now))
        {
            self.schedule.end_given_up(grant.start, now);
        } else {
            self.schedule.end(grant.start, now);
        }
        let adaptive = self.terms.adaptive.as_ref();
        // A host whose pages are slow may still serve an image fast.
        if let Some(adaptive) = adaptive.filter(|_| grant.start.kind != Kind::Requisite) {
            self.schedule.adapt(adaptive, response_time, outcome);
        }
        if let Some(lease) = &mut self.lease {
            lease.end();
        }
    }

    /// Returns the delay of a request without pace records of its own; `None` if it may
    /// start.
    pub(super) fn delay(&self, kind: Kind, now: &Now) -> Option<Delay> {
        let limits = self.limits(None, kind, now);
        let of_fleet = self.delay_of_fleet(kind, &limits, now);
        let delay = of_fleet.unwrap_or_else(|| self.schedule.next(kind, &limits, now.uptime));
        (!delay.is_over()).then_some(delay)
    }

    /// Returns whether the state can be forgotten: every delay it imposes would also be
    /// imposed by a new one.
    pub(super) fn is_idle(&self, now: &Now) -> bool {
        let back_off_limits = &now.active.options.back_off;
        let limits = StartLimits {
            // A new state reads the operator's hours from the policy again.
            opens_at: Uptime::ZERO,
            ..self.limits(None, Kind::Page, now)
        };
        let is_watched = self
            .watch
            .as_ref()
            .is_some_and(|watch| !watch.is_idle(now.uptime));
        !is_watched
            && self.back_off.is_forgiven(back_off_limits, now.uptime)
            && self.schedule.is_idle(&limits, now.uptime)
    }

    /// Returns whether the last request started or ended at least [`REMEMBERED`] ago.
    /// An idle host is kept until then: the next crawler may have a longer delay, which
    /// counts from that request.
    pub(super) fn is_at_rest(&self, now: &Now) -> bool {
        self.schedule.latest().saturating_add(REMEMBERED) <= now.uptime
    }
}

/// Returns the time from `now` until `time`, negative if `time` has passed.
fn signed(time: Uptime, now: Uptime) -> SignedDuration {
    let signed = |time: Duration| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    signed(time).saturating_sub(signed(now))
}

/// Returns the point in time at the signed distance `from_now` from `now`.
fn time_at(from_now: SignedDuration, now: Uptime) -> Uptime {
    let distance = from_now.unsigned_abs();
    if from_now.is_negative() {
        now.saturating_sub(distance)
    } else {
        now.saturating_add(distance)
    }
}
