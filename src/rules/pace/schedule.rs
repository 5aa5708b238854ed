//! When the next request to one host may start.
//!
//! Where the site asks for a pause, it counts from the end of a request to the
//! start of the next, and one is under way at a time; it binds what comes
//! before and what comes after it. Who comes next is not known here, nor why a
//! pause is as long as it is.
//!
//! Invariant: between a start and the one before it lies the longer pause that
//! either asks for, whatever was given back, ended or changed in between.

use std::time::Duration;

use super::terms::Adaptive;

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
}

/// What is to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What a crawler asks for.
    Page,
    /// A robots.txt, which no pause follows until the first page was asked for:
    /// it has to be read before any page is.
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
    /// Not before one that is under way has ended.
    AfterEnd(Cause),
}

/// A start that was made; to be ended or given back, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    kind: Counted,
    /// What to go back to.
    before: Option<Moment>,
    delay_before: Duration,
}

/// Whether later starts keep their distance from this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// They do; the number of the start.
    As(u32),
    /// They do not.
    Not,
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
    /// Of the last start that counts.
    number: u32,
    started: Option<Moment>,
    ended: Option<Moment>,
    /// What the last start asked for.
    delay: Duration,
    adaptive: Duration,
}

impl Schedule {
    /// How many requests are under way.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// When the next request may start.
    pub fn next(&self, limits: &Limits) -> Next {
        let delay = limits.delay.max(self.delay);
        if delay.is_zero() {
            if limits.in_flight.max(1) <= self.in_flight {
                return Next::AfterEnd(Cause::InFlight);
            }
        } else if 0 < self.in_flight {
            return Next::AfterEnd(Cause::Delay);
        }
        let after = |moment: Option<Moment>, pause: Duration| {
            let moment = moment.filter(|_| !pause.is_zero());
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
        .max_by_key(|(from, _)| *from)
        .unwrap_or((Moment::ZERO, Cause::Spacing));
        Next::From(from, cause)
    }

    /// Starts a request, if it may start now.
    ///
    /// # Errors
    ///
    /// When it may.
    pub fn start(&mut self, now: Moment, limits: &Limits, kind: Kind) -> Result<Start, Next> {
        match self.next(limits) {
            Next::From(from, _) if from <= now => {}
            not_yet @ (Next::From(..) | Next::AfterEnd(_)) => return Err(not_yet),
        }
        let mut start = Start {
            kind: Counted::Not,
            before: self.started,
            delay_before: self.delay,
        };
        self.in_flight = self.in_flight.saturating_add(1);
        if kind == Kind::Page || self.started.is_some() {
            self.number = self.number.wrapping_add(1);
            start.kind = Counted::As(self.number);
            self.started = Some(now);
            self.delay = limits.delay;
        }
        Ok(start)
    }

    /// Takes back a start of which nothing came. Its time is free again unless
    /// a later start was made, which kept its distance from it.
    pub fn give_back(&mut self, start: Start) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if start.kind == Counted::As(self.number) {
            self.started = start.before;
            self.delay = start.delay_before;
        }
    }

    /// Ends a request.
    pub fn end(&mut self, now: Moment, start: Start) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if start.kind != Counted::Not {
            self.ended = self.ended.max(Some(now));
        }
    }

    /// Learns from how long a response took. An error makes no pause shorter.
    pub fn adapt(&mut self, adaptive: &Adaptive, took: Duration, outcome: Outcome) {
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

    /// Whether nothing of it keeps a start from being made now.
    pub fn is_idle(&self, now: Moment, limits: &Limits) -> bool {
        let is_over = matches!(self.next(limits), Next::From(from, _) if from <= now);
        self.in_flight == 0 && is_over
    }
}

#[cfg(test)]
mod tests;
