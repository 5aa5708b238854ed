//! When the next request to one host may start.
//!
//! Where the site asks for a pause, it counts from the end of a request to the
//! start of the next, and one is under way at a time; it binds what comes
//! before and what comes after it. Who comes next is not known here, nor why a
//! pause is as long as it is.
//!
//! Invariant: between a start and the one before it lies the longer pause that
//! either asks for, whatever was given back, ended or changed in between; but
//! for a robots.txt and the page that could not be asked for without it.

use std::time::Duration;

use super::policy::AdaptivePause;

/// A moment, as the time since one that is the same for all of them.
pub type Moment = Duration;

/// What holds for the next start; zero is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many requests may be under way, at least 1; with a delay it is 1.
    pub in_flight: u32,
    /// From one start to the next.
    pub spacing: Duration,
    /// From the end of one request to the next start.
    pub delay: Duration,
    /// Until when the site is left alone.
    pub back_off: Moment,
    /// When the hours begin in which it may be visited.
    pub opens: Moment,
    /// How long one request keeps others from the host at most.
    pub longest: Duration,
}

/// What is to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What a crawler asks for. The first of a host keeps no distance from the
    /// robots.txt that has to be read before.
    Page,
    /// The same, for which a robots.txt was asked for that does not hold for as
    /// long as the pause: it keeps its distance from pages alone, or it would
    /// never come.
    PageAtOnce,
    /// A robots.txt.
    RobotsTxt,
}

/// What keeps a request from starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Others are under way.
    InFlight,
    /// [`Limits::spacing`].
    Spacing,
    /// [`Limits::delay`].
    Delay,
    /// The last response took long.
    Adaptive,
    /// [`Limits::back_off`].
    BackOff,
    /// [`Limits::opens`].
    Hours,
}

/// When the next request may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// From then on, if nothing changes; what makes it so late.
    From(Moment, Cause),
    /// Not before one that is under way has ended, or counts as if it had.
    AfterEnd(Cause, Moment),
}

/// A start that was made; to be ended or given back, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    kind: Kind,
    /// Among those of its kind.
    number: u32,
    /// [`Schedule::overruns`] at its time.
    overruns: u32,
    /// What to go back to.
    before: Option<Moment>,
    delay_before: Duration,
}

/// How a response came, as far as a pause depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As one would wish.
    Served,
    /// By an error, which may come fast and says nothing about load.
    Failed,
}

/// The starts of one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    in_flight: u32,
    /// Of the last page.
    number: u32,
    started: Option<Moment>,
    ended: Option<Moment>,
    /// What the last page asked for.
    delay: Duration,
    adaptive: Duration,
    /// Of the last robots.txt.
    robots_number: u32,
    /// When the last robots.txt was asked for. Apart from the end of one, which
    /// must stay if the start is given back.
    robots_started: Option<Moment>,
    robots_ended: Option<Moment>,
    /// How often all that was under way was counted as ended.
    overruns: u32,
}

impl Schedule {
    /// How many requests are under way.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// When the next request of a kind may start.
    pub fn next(&self, limits: &Limits, kind: Kind) -> Next {
        let delay = limits.delay.max(self.delay);
        let last = self.started.max(self.last_robots()).unwrap_or_default();
        let at_latest = last.saturating_add(limits.longest);
        if delay.is_zero() {
            if limits.in_flight.max(1) <= self.in_flight {
                return Next::AfterEnd(Cause::InFlight, at_latest);
            }
        } else if 0 < self.in_flight {
            return Next::AfterEnd(Cause::Delay, at_latest);
        }
        let robots = match kind {
            Kind::Page => self.last_robots().filter(|_| self.started.is_some()),
            Kind::PageAtOnce => None,
            Kind::RobotsTxt => self.last_robots(),
        };
        let after = |moment: Option<Moment>, pause: Duration| {
            let moment = moment.max(robots).filter(|_| !pause.is_zero());
            moment.map_or(Moment::ZERO, |moment| moment.saturating_add(pause))
        };
        // Of equal ones the last is named.
        let (from, cause) = [
            (after(self.started, limits.spacing), Cause::Spacing),
            (after(self.ended, self.adaptive), Cause::Adaptive),
            (after(self.ended, delay), Cause::Delay),
            (limits.opens, Cause::Hours),
            (limits.back_off, Cause::BackOff),
        ]
        .into_iter()
        .filter(|(from, _)| !from.is_zero())
        .max_by_key(|(from, _)| *from)
        .unwrap_or((Moment::ZERO, Cause::Spacing));
        Next::From(from, cause)
    }

    /// Counts what is under way as ended, if that is what a request waits for by
    /// `next`, and all of it takes longer than it may: somebody reads slowly, or
    /// the host writes so. Whether it did.
    pub fn overrun(&mut self, now: Moment, next: Next) -> bool {
        let Next::AfterEnd(_, at_latest) = next else {
            return false;
        };
        if now < at_latest {
            return false;
        }
        self.in_flight = 0;
        self.overruns = self.overruns.wrapping_add(1);
        self.ended = self.ended.max(self.started.and(Some(at_latest)));
        self.robots_ended = self
            .robots_ended
            .max(self.robots_started.and(Some(at_latest)));
        true
    }

    /// When the last robots.txt was asked for, or came.
    fn last_robots(&self) -> Option<Moment> {
        self.robots_started.max(self.robots_ended)
    }

    /// Whether it counts as ended, whether it has or not.
    fn is_over(&self, start: &Start) -> bool {
        start.overruns != self.overruns
    }

    /// Starts a request, if it may start now.
    ///
    /// # Errors
    ///
    /// When it may.
    pub fn start(&mut self, now: Moment, limits: &Limits, kind: Kind) -> Result<Start, Next> {
        match self.next(limits, kind) {
            Next::From(from, _) if from <= now => {}
            not_yet @ (Next::From(..) | Next::AfterEnd(..)) => return Err(not_yet),
        }
        self.in_flight = self.in_flight.saturating_add(1);
        let delay_before = self.delay;
        let (number, last) = match kind {
            Kind::Page | Kind::PageAtOnce => {
                self.delay = limits.delay;
                (&mut self.number, &mut self.started)
            }
            Kind::RobotsTxt => (&mut self.robots_number, &mut self.robots_started),
        };
        *number = number.wrapping_add(1);
        Ok(Start {
            kind,
            number: *number,
            overruns: self.overruns,
            before: last.replace(now),
            delay_before,
        })
    }

    /// Takes back a start of which nothing came. Its time is free again unless
    /// a later one of its kind was made, which kept its distance from it.
    pub fn give_back(&mut self, start: Start) {
        if self.is_over(&start) {
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        match start.kind {
            Kind::Page | Kind::PageAtOnce if start.number == self.number => {
                // The one before is the last again, and may be given back too.
                self.number = self.number.wrapping_sub(1);
                self.started = start.before;
                self.delay = start.delay_before;
            }
            Kind::RobotsTxt if start.number == self.robots_number => {
                self.robots_number = self.robots_number.wrapping_sub(1);
                self.robots_started = start.before;
            }
            Kind::Page | Kind::PageAtOnce | Kind::RobotsTxt => {}
        }
    }

    /// Ends a request.
    pub fn end(&mut self, now: Moment, start: Start) {
        if !self.is_over(&start) {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        let last = match start.kind {
            Kind::Page | Kind::PageAtOnce => &mut self.ended,
            Kind::RobotsTxt => &mut self.robots_ended,
        };
        *last = (*last).max(Some(now));
    }

    /// A page ended then, of which nothing else is known; of no weight where
    /// another was asked for since.
    pub fn visited_before(&mut self, moment: Moment) {
        if self.started.is_none() {
            self.ended = self.ended.max(Some(moment));
        }
    }

    /// Learns from how long a response took. An error makes no pause shorter.
    pub fn adapt(&mut self, adaptive: &AdaptivePause, took: Duration, outcome: Outcome) {
        let pause = adaptive.pause(took);
        self.adaptive = match outcome {
            Outcome::Served => pause,
            Outcome::Failed => pause.max(self.adaptive),
        };
    }

    /// Forgets how long responses took.
    pub fn forget_adaptive(&mut self) {
        self.adaptive = Duration::ZERO;
    }

    /// About how far two starts lie apart under these limits; zero where only
    /// the number under way is limited.
    pub fn step(&self, limits: &Limits) -> Duration {
        limits.delay.max(self.adaptive).max(limits.spacing)
    }

    /// When the last request began or ended.
    pub fn latest(&self) -> Moment {
        let latest = self.started.max(self.ended).max(self.last_robots());
        latest.unwrap_or_default()
    }

    /// Whether nothing of it keeps a start from being made now.
    pub fn is_idle(&self, now: Moment, limits: &Limits) -> bool {
        // Whatever a page has to wait for, a robots.txt has to as well.
        let next = self.next(limits, Kind::RobotsTxt);
        let is_over = matches!(next, Next::From(from, _) if from <= now);
        self.in_flight == 0 && is_over
    }
}

#[cfg(test)]
mod tests;
