//! What is known of the pace of one host, and what follows for a request: the
//! schedule with what the site asks for, the operator's terms, back-off and
//! the ceilings over many hosts.
//!
//! Who waits is not known here.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;

use super::ceilings::{Ceilings, Claim, Held};
use super::desk::ActivePace;
use super::told::Ended;
use crate::clock;
use crate::decision::reason::Reason;
use crate::pace::back_off::{BackOff, BackOffUpdate, ThrottleAnswer};
use crate::pace::policy::HostTerms;
use crate::pace::schedule::{Cause, Kind, Limits, Moment, Next, Outcome, Schedule, Start};
use politesse_robots::PaceRecords;
use politesse_robots::origin::Host;

/// How long a pause binds the whole host after it was last asked for, and at
/// least as long as it lasts itself.
const REMEMBERED: Duration = Duration::from_secs(600);

/// The time, and what holds at it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now<'a> {
    pub(super) moment: Moment,
    /// Found out where it is needed, if it is not known.
    pub(super) wall: Option<Timestamp>,
    pub(super) in_force: &'a ActivePace,
}

impl Now<'_> {
    fn wall(&self) -> Timestamp {
        self.wall.unwrap_or_else(clock::now)
    }

    /// A time of day as a moment.
    fn moment_of(&self, wall: Timestamp) -> Moment {
        self.moment.saturating_add(clock::passed(self.wall(), wall))
    }
}

/// What is asked for.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) kind: Kind,
    pub(super) asked: Option<Arc<PaceRecords>>,
    pub(super) claim: Claim,
    /// Where the host is, if that is known.
    pub(super) address: Option<IpAddr>,
}

impl Wish {
    /// For a robots.txt, of which no site says anything.
    pub(super) fn robots(ceilings: &Ceilings, host: &Host) -> Self {
        Self {
            kind: Kind::RobotsTxt,
            asked: None,
            claim: ceilings.claim(None, host, None),
            address: None,
        }
    }

    /// Comes under other ceilings.
    pub(super) fn move_under(
        &mut self,
        ceilings: &Ceilings,
        (crawler, host): (Option<&str>, &Host),
    ) {
        let claim = ceilings.claim(crawler, host, self.address);
        self.claim = self.claim.renewed(claim);
    }
}

/// Why a request does not start now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delayed {
    /// When it may, if nothing changes; `None` after the end of another.
    pub(super) until: Option<Moment>,
    /// When to look again at the latest.
    pub(super) again: Moment,
    pub(super) reason: Reason,
    pub(super) scope: Scope,
}

/// Whom a delay holds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Everyone at this host.
    Host,
    /// The one who asked, and who comes after him of the same crawler.
    Own,
}

/// A start with what it counts as elsewhere.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) start: Start,
    pub(super) held: Option<Held>,
    pub(super) at: Moment,
    /// How far the next start lies off, at least.
    pub(super) pause: Duration,
    /// The back-off that it is the first start behind.
    pub(super) ended: Option<Ended>,
    /// How often it was not waited for what took too long, until then.
    pub(super) overruns: u32,
}

/// What is known of the pace of one host; small, because there are many.
#[derive(Debug)]
pub(super) struct Pace {
    schedule: Schedule,
    terms: Arc<HostTerms>,
    generation: u32,
    /// The longest pause that somebody was asked for, and when last.
    asked: Option<(Weak<PaceRecords>, Moment)>,
    back_off: Option<Box<BackOff>>,
    /// How often what was under way took longer than it may.
    overruns: u32,
}

impl Pace {
    pub(super) fn new(host: &Host, now: &Now<'_>) -> Self {
        Self {
            schedule: Schedule::default(),
            terms: Arc::clone(now.in_force.options.policy.terms(host)),
            generation: now.in_force.generation,
            asked: None,
            back_off: None,
            overruns: 0,
        }
    }

    /// Takes the terms in force, if others were before.
    pub(super) fn refresh(&mut self, host: &Host, now: &Now<'_>) {
        // An older one may still be at hand where a newer came meanwhile.
        let ahead = now.in_force.generation.wrapping_sub(self.generation);
        if !(1..=u32::MAX / 2).contains(&ahead) {
            return;
        }
        self.generation = now.in_force.generation;
        self.terms = Arc::clone(now.in_force.options.policy.terms(host));
        if self.terms.adaptive.is_none() {
            self.schedule.forget_adaptive();
        }
    }

    pub(super) fn estimate(&self, wish: &Wish, ahead: usize, now: &Now<'_>) -> Delayed {
        let (limits, reason) = self.limits(wish, now);
        let next = self.delayed(self.schedule.next(&limits, wish.kind), reason);
        // When another ends is not known, but that nothing starts before this is.
        let next = match next.until {
            None if now.moment < limits.back_off => Delayed {
                until: Some(limits.back_off),
                again: limits.back_off,
                reason: Reason::BackOff,
                ..next
            },
            Some(_) | None => next,
        };
        let turns = u32::try_from(ahead).unwrap_or(u32::MAX);
        let line = self.schedule.step(&limits).saturating_mul(turns);
        let from = next.until.unwrap_or(now.moment).max(now.moment);
        let from = from.saturating_add(line);
        let ceilings = now.in_force.ceilings.wait(&wish.claim);
        let under_them = now.moment.saturating_add(ceilings);
        let reason = if from < under_them {
            Reason::Ceiling
        } else {
            next.reason
        };
        Delayed {
            until: Some(from.max(under_them)),
            reason,
            ..next
        }
    }

    pub(super) fn start(&mut self, wish: &mut Wish, now: &Now<'_>) -> Result<Started, Delayed> {
        let (limits, reason) = self.limits(wish, now);
        let mut next = self.schedule.next(&limits, wish.kind);
        if self.schedule.overrun(now.moment, next) {
            self.overruns += 1;
            next = self.schedule.next(&limits, wish.kind);
        }
        match next {
            Next::From(from, _) if from <= now.moment => {}
            next @ (Next::From(..) | Next::AfterEnd(..)) => {
                wish.claim.yields();
                return Err(self.delayed(next, reason));
            }
        }
        let ceilings = &now.in_force.ceilings;
        let held = ceilings.pass(&mut wish.claim, now.moment);
        let held = held.map_err(|until| Delayed {
            until: Some(until),
            again: until,
            reason: Reason::Ceiling,
            scope: Scope::Own,
        })?;
        let start = self.schedule.start(now.moment, &limits, wish.kind);
        let start = start.map_err(|next| self.delayed(next, reason))?;
        Ok(Started {
            start,
            held,
            at: now.moment,
            pause: self.schedule.step(&limits),
            ended: self.take_end(now.moment),
            overruns: std::mem::take(&mut self.overruns),
        })
    }

    fn delayed(&self, next: Next, of_delay: Reason) -> Delayed {
        let (until, again, cause) = match next {
            Next::From(from, cause) => (Some(from), from, cause),
            Next::AfterEnd(cause, at_latest) => (None, at_latest, cause),
        };
        let reason = match cause {
            Cause::InFlight | Cause::Spacing | Cause::Adaptive => Reason::Ceiling,
            Cause::Delay => of_delay,
            Cause::Hours => Reason::VisitTime,
            Cause::BackOff => Reason::BackOff,
        };
        let scope = if cause == Cause::Hours {
            Scope::Own
        } else {
            Scope::Host
        };
        Delayed {
            until,
            again,
            reason,
            scope,
        }
    }

    fn limits(&self, wish: &Wish, now: &Now<'_>) -> (Limits, Reason) {
        self.limits_of(wish.asked.as_deref(), wish.kind, now)
    }

    /// What holds for one request, and by what a pause is asked for.
    fn limits_of(
        &self,
        asked: Option<&PaceRecords>,
        kind: Kind,
        now: &Now<'_>,
    ) -> (Limits, Reason) {
        let terms = &*self.terms;
        let spacing = terms.rate.map_or(Duration::ZERO, |rate| rate.pause());
        let mut limits = Limits {
            in_flight: terms.in_flight,
            spacing,
            delay: Duration::ZERO,
            back_off: self.back_off_until(now.moment).unwrap_or_default(),
            opens: Moment::ZERO,
            longest: now.in_force.options.max_turn,
        };
        let mut reason = Reason::CrawlDelay;
        if asked.is_none() && self.asked.is_none() && terms.hours.is_none() {
            return (limits, reason);
        }
        let wall = now.wall();
        let longest = self.remembered(now);
        for asked in asked.into_iter().chain(longest.as_deref()) {
            if let Some((delay, by)) = asked.delay(wall).filter(|(delay, _)| limits.delay < *delay)
            {
                (limits.delay, reason) = (delay, by.into());
            }
        }
        // A robots.txt is what says when one may come.
        if kind != Kind::RobotsTxt {
            let site = asked.and_then(|asked| asked.opens(wall));
            let hours = terms.hours.and_then(|hours| hours.opens(wall));
            let opening = site.max(hours);
            limits.opens = opening.map_or(Moment::ZERO, |opening| now.moment_of(opening));
        }
        (limits, reason)
    }

    pub(super) fn back_off_until(&self, now: Moment) -> Option<Moment> {
        self.back_off
            .as_ref()
            .and_then(|back_off| back_off.until(now))
    }

    /// The longest pause that somebody was asked for of late, as long as the
    /// robots.txt that asks for it is held.
    fn remembered(&self, now: &Now<'_>) -> Option<Arc<PaceRecords>> {
        let (asked, last) = self.asked.as_ref()?;
        let asked = asked.upgrade()?;
        let (delay, _) = asked.delay(now.wall())?;
        let until = last.saturating_add(delay.max(REMEMBERED));
        (now.moment <= until).then_some(asked)
    }

    /// The longest pause asked for binds everyone at this host: it is one host
    /// whatever the scheme, the port and the crawler. Says whether this one is
    /// longer.
    pub(super) fn remember(&mut self, asked: Option<&Arc<PaceRecords>>, now: &Now<'_>) -> bool {
        let Some(asked) = asked else { return false };
        let Some((delay, _)) = asked.delay(now.wall()) else {
            return false;
        };
        let longest = self.remembered(now);
        let longest = longest.and_then(|longest| longest.delay(now.wall()));
        let longest = longest.map_or(Duration::ZERO, |(longest, _)| longest);
        if longest <= delay {
            self.asked = Some((Arc::downgrade(asked), now.moment));
        }
        longest < delay
    }

    /// Takes back a start of which nothing came; a back-off that ended with it
    /// is to be told by the next.
    pub(super) fn give_back(&mut self, started: &Started) {
        self.schedule.give_back(started.start);
        if let Some(back_off) = self.back_off.as_mut().filter(|_| started.ended.is_some()) {
            back_off.untake_end();
        }
    }

    /// The process before may have asked for a page until this one began; it
    /// is not known when.
    pub(super) fn visited_before(&mut self) {
        self.schedule.visited_before(Moment::ZERO);
    }

    /// Ends what was started.
    pub(super) fn end(&mut self, start: Start, now: Moment, (took, outcome): (Duration, Outcome)) {
        self.schedule.end(now, start);
        if let Some(adaptive) = &self.terms.adaptive {
            self.schedule.adapt(adaptive, took, outcome);
        }
    }

    /// Learns from a response that asks for less. What changed, and until when
    /// the host is left alone if that is later now.
    pub(super) fn observe(
        &mut self,
        answered: ThrottleAnswer,
        now: &Now<'_>,
    ) -> (BackOffUpdate, Option<Delayed>) {
        let back_off = self.back_off.get_or_insert_default();
        let change = back_off.note(answered, now.moment, &now.in_force.options.back_off);
        let until = back_off
            .until(now.moment)
            .filter(|_| change != BackOffUpdate::None);
        let delayed = until.map(|until| Delayed {
            until: Some(until),
            again: until,
            reason: Reason::BackOff,
            scope: Scope::Host,
        });
        (change, delayed)
    }

    /// What the host asked for: until when it is left alone, and how often in a
    /// row it named no time.
    pub(super) fn left_alone(&self, now: Moment) -> Option<(Moment, u32)> {
        let back_off = self.back_off.as_ref()?;
        Some((back_off.until(now)?, back_off.incidents()))
    }

    /// When a back-off ended, if it is over and nobody was told.
    pub(super) fn take_end(&mut self, now: Moment) -> Option<Ended> {
        let back_off = self.back_off.as_mut()?;
        let ended = Ended {
            at: back_off.end()?,
            incidents: back_off.incidents(),
        };
        back_off.take_end(now).then_some(ended)
    }

    /// Takes up what the process before knew.
    pub(super) fn restore(&mut self, back_off: BackOff) {
        self.back_off = Some(Box::new(back_off));
    }

    /// How many requests are under way.
    pub(super) fn in_flight(&self) -> u32 {
        self.schedule.in_flight()
    }

    /// What keeps one of a kind from being asked for now, of which nothing is
    /// asked.
    pub(super) fn next(&self, kind: Kind, now: &Now<'_>) -> Option<Delayed> {
        let (limits, reason) = self.limits_of(None, kind, now);
        let next = self.delayed(self.schedule.next(&limits, kind), reason);
        next.until
            .is_none_or(|until| now.moment < until)
            .then_some(next)
    }

    /// Whether nothing was asked for of late, for which somebody may come that is
    /// asked for a longer pause.
    pub(super) fn is_at_rest(&self, now: &Now<'_>) -> bool {
        self.schedule.latest().saturating_add(REMEMBERED) <= now.moment
    }

    /// Whether nothing of it has to be remembered.
    pub(super) fn is_idle(&self, now: &Now<'_>) -> bool {
        let times = &now.in_force.options.back_off;
        let back_off = self.back_off.as_ref();
        let (mut limits, _) = self.limits_of(None, Kind::Page, now);
        // Hours are the policy's, which forgets nothing.
        limits.opens = Moment::ZERO;
        back_off.is_none_or(|back_off| back_off.is_forgiven(now.moment, times))
            && self.schedule.is_idle(now.moment, &limits)
    }
}
