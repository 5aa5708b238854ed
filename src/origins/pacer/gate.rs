//! One host: when its next request may start, and who waits for that.
//!
//! Whoever need not wait starts under the lock and is gone. While somebody
//! waits, one task (`drive`) sleeps for all of them and grants turns one by
//! one; it is told when something ends or changes. The guard never crosses an
//! await, and nothing of another host is held beside it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, oneshot};

use super::InForce;
use super::ceilings::{Held, Keys, Passed};
use super::line::{Line, Waits, Whose};
use crate::clock;
use crate::rules::origin::Host;
use crate::rules::pace::asked::Asked;
use crate::rules::pace::back_off::{Answered, BackOff, Change};
use crate::rules::pace::schedule::{Cause, Kind, Limits, Moment, Next, Outcome, Schedule, Start};
use crate::rules::pace::terms::Terms;
use crate::rules::ruling::Reason;

/// How long a pause binds the whole host after it was last asked for, and at
/// least as long as it lasts itself.
const REMEMBERED: Duration = Duration::from_secs(600);

/// The time, and what holds at it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now<'a> {
    pub(super) moment: Moment,
    /// Found out where it is needed, if it is not known.
    pub(super) wall: Option<Timestamp>,
    pub(super) in_force: &'a InForce,
}

impl Now<'_> {
    fn wall(&self) -> Timestamp {
        self.wall.unwrap_or_else(clock::now)
    }

    /// A time of day as a moment.
    fn moment_of(&self, wall: Timestamp) -> Moment {
        let ahead = wall.duration_since(self.wall());
        let ahead = Duration::try_from(ahead).unwrap_or_default();
        self.moment.saturating_add(ahead)
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) kind: Kind,
    pub(super) asked: Option<Arc<Asked>>,
    pub(super) keys: Keys,
    pub(super) passed: Passed,
}

/// Why a request does not start now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delayed {
    /// When it may, if nothing changes; `None` after the end of another.
    pub(super) until: Option<Moment>,
    pub(super) reason: Reason,
    scope: Scope,
}

/// Whom a delay holds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
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
}

/// The word to one that waits.
pub(super) type Answer = Result<Started, Delayed>;

/// One that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) number: u64,
    pub(super) wish: Wish,
    /// When it goes, if it waits for so long; `None` is never.
    deadline: Option<Moment>,
    not_before: Moment,
    answer: oneshot::Sender<Answer>,
}

impl Waits for Waiter {
    fn number(&self) -> u64 {
        self.number
    }

    fn not_before(&self) -> Moment {
        self.not_before
    }
}

/// What joining the line came to.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) number: u64,
    pub(super) answer: oneshot::Receiver<Answer>,
    /// Whether somebody has to drive the line from now on.
    pub(super) is_first: bool,
}

/// What the driver of a line does next.
#[derive(Debug)]
pub(super) enum Step {
    /// Goes on.
    Again,
    /// Sleeps until then, or until told.
    Sleep(Moment, Arc<Notify>),
    /// Waits until told.
    Wait(Arc<Notify>),
    /// Ends: nobody waits.
    Over,
}

/// One host.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
}

/// Small, because there are many: what only some have is in a box.
#[derive(Debug)]
struct State {
    schedule: Schedule,
    terms: Arc<Terms>,
    generation: u32,
    /// The longest pause that somebody was asked for, and when last.
    asked: Option<(Weak<Asked>, Moment)>,
    back_off: Option<Box<BackOff>>,
    queue: Option<Box<Queue>>,
}

#[derive(Debug)]
struct Queue {
    line: Line<Waiter>,
    told: Arc<Notify>,
    next_number: u64,
}

/// What is to be seen of a gate.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) in_flight: u32,
    pub(super) queued: usize,
    pub(super) next: Option<Delayed>,
    pub(super) back_off: Option<Moment>,
}

impl Gate {
    pub(super) fn new(host: &Host, now: &Now<'_>) -> Self {
        Self {
            state: Mutex::new(State {
                schedule: Schedule::default(),
                terms: Arc::clone(now.in_force.options.policy.terms(host)),
                generation: now.in_force.generation,
                asked: None,
                back_off: None,
                queue: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the terms in force; whoever waits is looked at again.
    pub(super) fn adopt(&self, host: &Host, now: &Now<'_>) {
        let mut state = self.state();
        state.refresh(host, now);
        if let Some(queue) = &mut state.queue {
            queue.line.for_each(|waiter| waiter.not_before = Moment::ZERO);
        }
        state.tell();
    }

    /// Starts a request if nothing keeps it from that; else when its turn is
    /// likely to come.
    ///
    /// # Errors
    ///
    /// Why it waits, and until when about.
    pub(super) fn ask(
        &self,
        wish: &mut Wish,
        (host, whose): (&Host, &impl Fn() -> Whose),
        now: &Now<'_>,
    ) -> Result<Started, Delayed> {
        let mut state = self.state();
        state.refresh(host, now);
        state.remember(wish.asked.as_ref(), now);
        let Some(queue) = &state.queue else {
            return state.start(wish, now);
        };
        let ahead = queue.line.ahead(&whose());
        Err(state.estimate(wish, ahead, now))
    }

    /// When a turn would probably come that is asked for now.
    pub(super) fn estimate(&self, wish: &Wish, whose: &Whose, now: &Now<'_>) -> Delayed {
        let state = self.state();
        let queue = state.queue.as_ref();
        state.estimate(wish, queue.map_or(0, |queue| queue.line.ahead(whose)), now)
    }

    /// Joins the line, unless it is full.
    pub(super) fn join(
        &self,
        whose: &Whose,
        wish: Wish,
        (deadline, room): (Option<Moment>, usize),
    ) -> Option<Joined> {
        let mut state = self.state();
        let is_first = state.queue.is_none();
        let queue = state.queue.get_or_insert_with(Queue::boxed);
        if *whose != Whose::Robots && room <= queue.line.pages() {
            if is_first {
                state.queue = None;
            }
            return None;
        }
        let (sender, answer) = oneshot::channel();
        let number = queue.next_number;
        queue.next_number += 1;
        let waiter = Waiter {
            number,
            wish,
            deadline,
            not_before: Moment::ZERO,
            answer: sender,
        };
        queue.line.push(whose, waiter);
        queue.told.notify_one();
        Some(Joined {
            number,
            answer,
            is_first,
        })
    }

    /// Leaves the line before its turn; `None` if that was answered already.
    pub(super) fn leave(&self, whose: &Whose, number: u64) -> Option<Wish> {
        let mut state = self.state();
        let queue = state.queue.as_mut();
        let waiter = queue.and_then(|queue| queue.line.remove(whose, number))?;
        state.tell();
        Some(waiter.wish)
    }

    /// Grants one turn, if one is due.
    pub(super) fn step(&self, now: &Now<'_>) -> Step {
        let mut state = self.state();
        let Some(mut queue) = state.queue.take() else {
            return Step::Over;
        };
        if queue.line.is_empty() {
            return Step::Over;
        }
        let step = state.serve(&mut queue, now);
        state.queue = Some(queue);
        drop(state);
        match step {
            Err(step) => step,
            Ok((waiter, started)) => {
                // He may just have left: then it is as if he had never come.
                if let Err(Ok(unused)) = waiter.answer.send(Ok(started)) {
                    self.give_back(unused.start);
                }
                Step::Again
            }
        }
    }

    /// Takes back a turn of which nothing came.
    pub(super) fn give_back(&self, start: Start) {
        let mut state = self.state();
        state.schedule.give_back(start);
        state.tell();
    }

    /// Ends a turn.
    pub(super) fn end(&self, start: Start, now: Moment, (took, outcome): (Duration, Outcome)) {
        let mut state = self.state();
        state.schedule.end(now, start);
        if let Some(adaptive) = state.terms.adaptive {
            state.schedule.adapt(&adaptive, took, outcome);
        }
        state.tell();
    }

    /// Learns from a status. Those who wait and would wait in vain are told so
    /// at once.
    pub(super) fn observe(&self, answered: Answered, now: &Now<'_>) -> Change {
        if !answered.asks_for_less() {
            return Change::None;
        }
        let times = &now.in_force.options.back_off;
        let mut state = self.state();
        let back_off = state.back_off.get_or_insert_default();
        let change = back_off.note(answered, now.moment, times);
        let until = back_off.until(now.moment);
        let (Change::Entered | Change::Extended, Some(until)) = (change, until) else {
            return change;
        };
        state.tell();
        let queue = state.queue.as_mut();
        let in_vain = |waiter: &Waiter| waiter.deadline.is_some_and(|deadline| deadline < until);
        let gone = queue.map_or_else(Vec::new, |queue| queue.line.remove_all(in_vain));
        drop(state);
        for waiter in gone {
            // Who has left does not mind.
            let _ = waiter.answer.send(Err(Delayed {
                until: Some(until),
                reason: Reason::BackOff,
                scope: Scope::Host,
            }));
        }
        change
    }

    /// Whether a new gate in its place would do the same.
    pub(super) fn is_idle(&self, now: &Now<'_>) -> bool {
        let state = self.state();
        let times = &now.in_force.options.back_off;
        let back_off = state.back_off.as_ref();
        let (limits, _) = state.limits_of(None, Kind::Page, now);
        state.queue.is_none()
            && back_off.is_none_or(|back_off| back_off.is_forgiven(now.moment, times))
            && state.schedule.is_idle(now.moment, &limits)
    }

    /// What is to be seen of it.
    pub(super) fn seen(&self, now: &Now<'_>) -> Seen {
        let state = self.state();
        let (limits, reason) = state.limits_of(None, Kind::Page, now);
        let next = state.delayed(state.schedule.next(&limits), reason);
        Seen {
            in_flight: state.schedule.in_flight(),
            queued: state.queue.as_ref().map_or(0, |queue| queue.line.len()),
            next: next.until.is_none_or(|until| now.moment < until).then_some(next),
            back_off: state.back_off_until(now.moment),
        }
    }
}

impl Queue {
    fn boxed() -> Box<Self> {
        Box::new(Self {
            line: Line::default(),
            told: Arc::default(),
            next_number: 0,
        })
    }
}

impl State {
    /// Takes the terms in force, if others were before.
    fn refresh(&mut self, host: &Host, now: &Now<'_>) {
        if self.generation == now.in_force.generation {
            return;
        }
        self.generation = now.in_force.generation;
        self.terms = Arc::clone(now.in_force.options.policy.terms(host));
        if self.terms.adaptive.is_none() {
            self.schedule.forget_adaptive();
        }
    }

    /// Something changed that the line may depend on.
    fn tell(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.told.notify_one();
        }
    }

    /// Serves who comes next, or says what to do until that can be.
    fn serve(&mut self, queue: &mut Queue, now: &Now<'_>) -> Result<(Waiter, Started), Step> {
        let told = || Arc::clone(&queue.told);
        loop {
            let first = queue.line.first(now.moment);
            let waiter = first.map_err(|until| Step::Sleep(until, told()))?;
            match self.start(&mut waiter.wish, now) {
                Ok(started) => {
                    let waiter = queue.line.pop(now.moment).ok_or(Step::Again)?;
                    return Ok((waiter, started));
                }
                Err(Delayed { until: None, .. }) => return Err(Step::Wait(told())),
                Err(Delayed {
                    until: Some(until),
                    scope,
                    ..
                }) => match scope {
                    Scope::Host => return Err(Step::Sleep(until, told())),
                    Scope::Own => waiter.not_before = until,
                },
            }
        }
    }

    fn estimate(&self, wish: &Wish, ahead: usize, now: &Now<'_>) -> Delayed {
        let (limits, reason) = self.limits(wish, now);
        let next = self.delayed(self.schedule.next(&limits), reason);
        let turns = u32::try_from(ahead).unwrap_or(u32::MAX);
        let line = self.schedule.step(&limits).saturating_mul(turns);
        let from = next.until.unwrap_or(now.moment).max(now.moment);
        Delayed {
            until: Some(from.saturating_add(line)),
            ..next
        }
    }

    fn start(&mut self, wish: &mut Wish, now: &Now<'_>) -> Result<Started, Delayed> {
        let (limits, reason) = self.limits(wish, now);
        match self.schedule.next(&limits) {
            Next::From(from, _) if from <= now.moment => {}
            next => return Err(self.delayed(next, reason)),
        }
        let ceilings = &now.in_force.ceilings;
        let held = ceilings.pass(wish.keys, &mut wish.passed, now.moment);
        let held = held.map_err(|until| Delayed {
            until: Some(until),
            reason: Reason::Ceiling,
            scope: Scope::Own,
        })?;
        let start = self.schedule.start(now.moment, &limits, wish.kind);
        let start = start.map_err(|next| self.delayed(next, reason))?;
        let at = now.moment;
        Ok(Started { start, held, at })
    }

    fn delayed(&self, next: Next, of_delay: Reason) -> Delayed {
        let (until, cause) = match next {
            Next::From(from, cause) => (Some(from), cause),
            Next::AfterEnd(cause) => (None, cause),
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
            reason,
            scope,
        }
    }

    fn limits(&self, wish: &Wish, now: &Now<'_>) -> (Limits, Reason) {
        self.limits_of(wish.asked.as_deref(), wish.kind, now)
    }

    /// What holds for one request, and by what a pause is asked for.
    fn limits_of(&self, asked: Option<&Asked>, kind: Kind, now: &Now<'_>) -> (Limits, Reason) {
        let terms = &*self.terms;
        let spacing = terms.rate.map_or(Duration::ZERO, |rate| rate.pause());
        let mut limits = Limits {
            in_flight: terms.in_flight,
            spacing,
            delay: Duration::ZERO,
            back_off: self.back_off_until(now.moment).unwrap_or_default(),
            opens: Moment::ZERO,
        };
        let mut reason = Reason::CrawlDelay;
        if asked.is_none() && self.asked.is_none() && terms.hours.is_none() {
            return (limits, reason);
        }
        let wall = now.wall();
        let longest = self.remembered(now);
        for asked in asked.into_iter().chain(longest.as_deref()) {
            if let Some((delay, by)) = asked.delay(wall).filter(|(delay, _)| limits.delay < *delay) {
                (limits.delay, reason) = (delay, by);
            }
        }
        // A robots.txt is what says when one may come.
        if kind == Kind::Page {
            let site = asked.and_then(|asked| asked.opens(wall));
            let hours = terms.hours.and_then(|hours| hours.opens(wall));
            let opening = site.max(hours);
            limits.opens = opening.map_or(Moment::ZERO, |opening| now.moment_of(opening));
        }
        (limits, reason)
    }

    fn back_off_until(&self, now: Moment) -> Option<Moment> {
        self.back_off.as_ref().and_then(|back_off| back_off.until(now))
    }

    /// The longest pause that somebody was asked for of late, as long as the
    /// robots.txt that asks for it is held.
    fn remembered(&self, now: &Now<'_>) -> Option<Arc<Asked>> {
        let (asked, last) = self.asked.as_ref()?;
        let asked = asked.upgrade()?;
        let (delay, _) = asked.delay(now.wall())?;
        let until = last.saturating_add(delay.max(REMEMBERED));
        (now.moment <= until).then_some(asked)
    }

    /// The longest pause asked for binds everyone at this host: it is one host
    /// whatever the scheme, the port and the crawler.
    fn remember(&mut self, asked: Option<&Arc<Asked>>, now: &Now<'_>) {
        let Some(asked) = asked else { return };
        let Some((delay, _)) = asked.delay(now.wall()) else {
            return;
        };
        let longest = self.remembered(now);
        let longest = longest.and_then(|longest| longest.delay(now.wall()));
        if longest.is_none_or(|(longest, _)| longest <= delay) {
            self.asked = Some((Arc::downgrade(asked), now.moment));
            self.tell();
        }
    }
}
