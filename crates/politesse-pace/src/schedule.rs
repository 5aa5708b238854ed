//! Earliest start of the next request to one host.
//!
//! A site's delay (`Crawl-delay`) is the pause from the end of one request to the start
//! of the next, and allows one request in flight at a time. Does not know which request
//! comes next, nor where a limit comes from.
//!
//! A request starts no sooner than its own delay after the latest end of any request to
//! the host, no matter what was given back, ended or changed in between. The delays of
//! other requests do not count: if the site asks one crawler to wait an hour, the others
//! need not wait an hour. There are two exceptions: a robots.txt before the first page,
//! and a page that follows its robots.txt at once ([`Kind`]).
//!
//! The operator's pauses apply between pages. A requisite (a file that a page embeds)
//! neither waits for them nor starts one.

use std::time::Duration;

use super::fleet_part::{FleetShare, HostHistory};
use super::policy::AdaptivePause;
use politesse_decision::delay::{Delay, DelayEnd};
use politesse_decision::reason::Reason;

/// Longest delay before a robots.txt is fetched. In the meantime the pages of other
/// crawlers wait as well, although the site may ask them for no delay.
const ROBOTS_DELAY_MAX: Duration = Duration::from_secs(10);

/// Time since the scheduler began, on the monotonic clock: setting the wall clock must
/// never let a request start earlier.
pub(super) type Uptime = Duration;

/// Limits that apply to the next start; a duration of zero means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StartLimits {
    /// Requests in flight, at least 1, if there is no `delay`.
    pub(super) in_flight: u32,
    /// Time from one start to the next.
    pub(super) spacing: Duration,
    /// Time from the end of one request to the next start.
    pub(super) delay: Duration,
    /// Reason that a refusal gives for `delay`.
    pub(super) delay_reason: Reason,
    /// End of the host's back-off.
    pub(super) back_off_until: Uptime,
    /// Next time at which the host may be visited (`Visit-time` or the operator's hours).
    pub(super) opens_at: Uptime,
    /// Longest time for which one request in flight makes others wait
    /// ([`Schedule::overrun`]).
    pub(super) max_turn: Duration,
    /// Share of the host that this fleet node has. The smaller it is, the longer are
    /// spacing and delay.
    pub(super) share: FleetShare,
}

impl StartLimits {
    /// Returns how long an operator's `pause` is for a request of `kind` at this node.
    fn operators_pause(&self, kind: Kind, pause: Duration) -> Duration {
        match kind {
            Kind::Requisite => Duration::ZERO,
            Kind::Page | Kind::PageAtOnce | Kind::RobotsTxt => self.share.stretch(pause),
        }
    }
}

/// Kind of request, which determines the earlier requests after which it keeps its delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A page. Keeps its delay after pages and robots.txt fetches; the first page of a
    /// host starts directly after its robots.txt.
    Page,
    /// A page whose robots.txt expires before its delay is over. Keeps the delay after
    /// pages only: otherwise each newly fetched robots.txt would delay it again, and it
    /// would never start.
    PageAtOnce,
    /// A file that a page embeds and that shares the turn of the page. Keeps a site's
    /// delay, but neither spacing nor the adaptive pause.
    Requisite,
    /// A robots.txt. Keeps the delay that the host last asked for, up to
    /// [`ROBOTS_DELAY_MAX`].
    RobotsTxt,
}

impl Kind {
    /// Returns whether the request is for a page.
    fn is_page(self) -> bool {
        matches!(self, Self::Page | Self::PageAtOnce)
    }
}

/// Started request. Passed once to [`Schedule::end`] or [`Schedule::give_back`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// Kind of the request.
    pub(super) kind: Kind,
    /// [`Track::number`] of this start.
    number: u32,
    /// [`Schedule::overruns`] at the time of this start.
    overruns: u32,
    /// Time of this start.
    at: Uptime,
    /// Time of the previous start, restored if this one is given back.
    previous_start: Option<Uptime>,
    /// [`Schedule::robots_delay`] before this start, restored likewise.
    previous_robots_delay: Duration,
}

/// Outcome of a request, for the adaptive pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A response below 400.
    Served,
    /// An error, which may come fast and says nothing about load.
    Failed,
}

/// Latest start and end of the pages, the requisites, or the robots.txt fetches of a
/// host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Track {
    /// Number of the latest start; wraps.
    number: u32,
    /// Time of the latest start.
    started: Option<Uptime>,
    /// Time of the latest end. Not in one field with `started`: it must remain when a
    /// start is given back.
    ended: Option<Uptime>,
}

/// Starts of one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Schedule {
    /// Number of requests in flight, of all kinds.
    in_flight: u32,
    /// Starts and ends of pages.
    pages: Track,
    /// Starts and ends of requisites.
    requisites: Track,
    /// Starts and ends of robots.txt fetches.
    robots: Track,
    /// Delay before the next robots.txt: that of the latest page, or the one set by
    /// [`Schedule::set_robots_delay`].
    robots_delay: Duration,
    /// Longest delay of any page so far. Until it is over, the schedule is not idle and
    /// must not be forgotten.
    longest_delay: Duration,
    /// Adaptive pause, which grows with the time that the latest response took.
    adaptive: Duration,
    /// Number of times that everything in flight was counted as ended; wraps.
    overruns: u32,
}

impl Schedule {
    /// Returns the number of requests in flight.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the delay of a request that arrives at `now`. The delay is over
    /// ([`Delay::is_over`]) if the request may start.
    pub(super) fn next(&self, kind: Kind, limits: &StartLimits, now: Uptime) -> Delay {
        let delay = self.delay(kind, limits);
        if self.is_full(kind, limits) {
            return self.delay_of_full(kind, limits, now);
        }
        let robots = match kind {
            Kind::Page => self
                .robots
                .latest()
                .filter(|_| self.pages.started.is_some()),
            Kind::PageAtOnce | Kind::Requisite => None,
            Kind::RobotsTxt => self.robots.latest(),
        };
        let after = |time: Option<Uptime>, pause: Duration| {
            let time = time.max(robots).filter(|_| !pause.is_zero());
            time.map_or(Uptime::ZERO, |time| time.saturating_add(pause))
        };
        let of_operator = |pause: Duration| limits.operators_pause(kind, pause);
        let ended = self.pages.ended.max(self.requisites.ended);
        let (from, reason) = [
            (
                // The latest start is unknown if a store has lost it.
                after(
                    self.pages.started.or(self.pages.ended),
                    of_operator(limits.spacing),
                ),
                Reason::Ceiling,
            ),
            (
                after(self.pages.ended, of_operator(self.adaptive)),
                Reason::Ceiling,
            ),
            (after(ended, delay), limits.delay_reason),
            (limits.opens_at, Reason::VisitTime),
            (limits.back_off_until, Reason::BackOff),
        ]
        .into_iter()
        .filter(|(from, _)| !from.is_zero())
        // `max_by_key` returns the last of equal times, so the order above matters: a
        // back-off is a better explanation than a rate.
        .max_by_key(|(from, _)| *from)
        .unwrap_or((Uptime::ZERO, Reason::Ceiling));
        let end = DelayEnd::After(from.saturating_sub(now));
        // Hours and delays differ by crawler: a request of another crawler may be able to
        // start now.
        if reason == Reason::VisitTime || reason == limits.delay_reason {
            Delay::of_crawler(reason, end)
        } else {
            Delay::of_host(reason, end)
        }
    }

    /// Returns the delay of a request that waits for another one to end.
    fn delay_of_full(&self, kind: Kind, limits: &StartLimits, now: Uptime) -> Delay {
        let at_latest = self.overrun_at(limits).saturating_sub(now);
        let end = DelayEnd::OnEvent(at_latest);
        let reason = if self.delay(kind, limits).is_zero() {
            Reason::Ceiling
        } else {
            limits.delay_reason
        };
        if limits.in_flight.max(1) <= self.in_flight {
            return Delay::of_host(reason, end);
        }
        // This crawler has a delay, so its request must be the only one in flight. A
        // request of another crawler may start now.
        Delay::of_crawler(reason, end)
    }

    /// Returns the delay that a request of `kind` keeps after the end of others.
    fn delay(&self, kind: Kind, limits: &StartLimits) -> Duration {
        let delay = match kind {
            Kind::Page | Kind::PageAtOnce | Kind::Requisite => limits.delay,
            Kind::RobotsTxt => limits.delay.max(self.robots_delay).min(ROBOTS_DELAY_MAX),
        };
        limits.share.stretch(delay)
    }

    /// Counts everything in flight as ended if the next start waits for that and
    /// `max_turn` has passed since the latest start: the client may read slowly, or the
    /// host send slowly. Returns whether it did.
    pub(super) fn overrun(&mut self, kind: Kind, limits: &StartLimits, now: Uptime) -> bool {
        let at_latest = self.overrun_at(limits);
        if !self.is_full(kind, limits) || now < at_latest {
            return false;
        }
        self.in_flight = 0;
        self.overruns = self.overruns.wrapping_add(1);
        for track in [&mut self.pages, &mut self.requisites, &mut self.robots] {
            track.ended = track.ended.max(track.started.and(Some(at_latest)));
        }
        true
    }

    /// Returns whether a request of `kind` has to wait for another one to end.
    pub(super) fn is_full(&self, kind: Kind, limits: &StartLimits) -> bool {
        self.in_flight_max(kind, limits) <= self.in_flight
    }

    /// Returns how many requests may be in flight, including the next one of `kind`.
    pub(super) fn in_flight_max(&self, kind: Kind, limits: &StartLimits) -> u32 {
        // A delay counts from the end of a request, so only one may be in flight at a
        // time.
        if self.delay(kind, limits).is_zero() {
            limits.in_flight.max(1)
        } else {
            1
        }
    }

    /// Returns when everything in flight counts as ended.
    fn overrun_at(&self, limits: &StartLimits) -> Uptime {
        let tracks = [
            self.pages.started,
            self.requisites.started,
            self.robots.latest(),
        ];
        let latest = tracks.into_iter().flatten().max();
        latest.unwrap_or_default().saturating_add(limits.max_turn)
    }

    /// Returns the track that requests of `kind` belong to.
    fn track(&mut self, kind: Kind) -> &mut Track {
        match kind {
            Kind::Page | Kind::PageAtOnce => &mut self.pages,
            Kind::Requisite => &mut self.requisites,
            Kind::RobotsTxt => &mut self.robots,
        }
    }

    /// Starts a request.
    ///
    /// # Errors
    ///
    /// The [`Delay`] of a request that may not start now.
    pub(super) fn start(
        &mut self,
        kind: Kind,
        limits: &StartLimits,
        now: Uptime,
    ) -> Result<Start, Delay> {
        let delay = self.next(kind, limits, now);
        if !delay.is_over() {
            return Err(delay);
        }
        self.in_flight = self.in_flight.saturating_add(1);
        let (overruns, previous_robots_delay) = (self.overruns, self.robots_delay);
        if kind.is_page() {
            self.robots_delay = limits.delay;
            self.longest_delay = self.longest_delay.max(limits.delay);
        }
        let track = self.track(kind);
        track.number = track.number.wrapping_add(1);
        Ok(Start {
            kind,
            number: track.number,
            overruns,
            at: now,
            previous_start: track.started.replace(now),
            previous_robots_delay,
        })
    }

    /// Takes back a start after which nothing was sent.
    pub(super) fn give_back(&mut self, start: Start) {
        if start.overruns != self.overruns {
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        let track = self.track(start.kind);
        // A later start has kept its distance from this one, so this one still counts.
        if track.number != start.number {
            return;
        }
        // The previous start becomes the latest again, and may itself be given back
        // later.
        track.number = track.number.wrapping_sub(1);
        // Another fleet node may have sent a request since.
        if track.started == Some(start.at) {
            track.started = start.previous_start;
        }
        if start.kind.is_page() {
            self.robots_delay = start.previous_robots_delay;
        }
    }

    /// Ends a request.
    pub(super) fn end(&mut self, start: Start, now: Uptime) {
        // After an overrun the request no longer counts as in flight.
        if start.overruns == self.overruns {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        let track = self.track(start.kind);
        track.ended = track.ended.max(Some(now));
    }

    /// Records the end of a request for which [`Schedule::end`] was already called: only
    /// now has its response really ended.
    pub(super) fn end_given_up(&mut self, start: Start, now: Uptime) {
        let track = self.track(start.kind);
        track.ended = track.ended.max(Some(now));
    }

    /// Counts a page as ended at `time` if no page was started so far: the previous
    /// process may have sent requests to the host.
    pub(super) fn assume_page_at(&mut self, time: Uptime) {
        if self.pages.started.is_none() {
            self.pages.ended = self.pages.ended.max(Some(time));
        }
    }

    /// Writes the latest requests into `history`, for the next holder of the host's
    /// lease.
    pub(super) fn write_history(&self, history: &mut HostHistory, now: Uptime) {
        let age = |time: Option<Uptime>| time.map(|time| now.saturating_sub(time));
        history.started = age(self.pages.started);
        history.ended = age(self.pages.ended.max(self.requisites.ended));
        history.robots = age(self.robots.latest());
        history.adaptive = self.adaptive;
        history.robots_delay = self.robots_delay;
        history.remembered = self.longest_delay;
    }

    /// Merges the requests in `history`, from earlier holders of the host's lease, with
    /// those of this node.
    pub(super) fn learn(&mut self, history: &HostHistory, now: Uptime) {
        let time = |age: Option<Duration>| age.map(|age| now.saturating_sub(age));
        self.pages.started = self.pages.started.max(time(history.started));
        self.pages.ended = self.pages.ended.max(time(history.ended));
        self.robots.ended = self.robots.ended.max(time(history.robots));
        self.adaptive = self.adaptive.max(history.adaptive);
        self.robots_delay = self.robots_delay.max(history.robots_delay);
        self.longest_delay = self.longest_delay.max(history.remembered);
    }

    /// Sets the adaptive pause from the time that a response took. An error never
    /// shortens it: a host in trouble may fail fast.
    pub(super) fn adapt(&mut self, adaptive: &AdaptivePause, duration: Duration, outcome: Outcome) {
        let pause = adaptive.pause(duration);
        self.adaptive = match outcome {
            Outcome::Served => pause,
            Outcome::Failed => pause.max(self.adaptive),
        };
    }

    /// Ends the adaptive pause.
    pub(super) fn forget_adaptive(&mut self) {
        self.adaptive = Duration::ZERO;
    }

    /// Sets the delay of the next robots.txt.
    pub(super) fn set_robots_delay(&mut self, delay: Duration) {
        self.robots_delay = delay;
    }

    /// Returns the expected time from one start to the next; zero if only the number in
    /// flight is limited.
    pub(super) fn step(&self, kind: Kind, limits: &StartLimits) -> Duration {
        let own = self.adaptive.max(limits.spacing);
        self.delay(kind, limits)
            .max(limits.operators_pause(kind, own))
    }

    /// Returns when the last request started or ended.
    pub(super) fn latest(&self) -> Uptime {
        let tracks = [&self.pages, &self.requisites, &self.robots];
        let latest = tracks.into_iter().filter_map(Track::latest);
        latest.max().unwrap_or_default()
    }

    /// Returns whether nothing is in flight and any request could start.
    pub(super) fn is_idle(&self, limits: &StartLimits, now: Uptime) -> bool {
        // The first check covers the delay of a page; all other limits apply to a
        // robots.txt as well.
        self.in_flight == 0
            && self
                .latest()
                .saturating_add(limits.share.stretch(self.longest_delay))
                <= now
            && self.next(Kind::RobotsTxt, limits, now).is_over()
    }
}

impl Track {
    /// Returns the time of the latest start or end.
    fn latest(&self) -> Option<Uptime> {
        self.started.max(self.ended)
    }
}

#[cfg(test)]
mod tests;
