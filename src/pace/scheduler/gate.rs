//! One host: when its next request may start, and who waits for that.
//!
//! Whoever need not wait starts under the lock and is gone. While somebody
//! waits, one task (`drive`) sleeps for all of them and grants turns one by
//! one; it is told when something ends or changes. The guard never crosses an
//! await, and nothing of another host is held beside it.

mod serve;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::ceilings::Ceilings;
use super::line::{Line, QueueOwner};
use super::pace::{Delayed, Now, Pace, Scope, Started, Wish};
use super::told::Ended;
use super::waiter::{Answer, Waiter};
use crate::decision::reason::Reason;
use crate::pace::back_off::{BackOff, BackOffUpdate, ThrottleAnswer};
use crate::pace::schedule::{Kind, Moment, Outcome, Start};
use politesse_robots::PaceRecords;
use politesse_robots::origin::Host;

/// One that comes to wait.
#[derive(Debug)]
pub(super) struct Joining<'a> {
    pub(super) whose: &'a QueueOwner,
    pub(super) wish: Wish,
    /// When it goes.
    pub(super) deadline: Moment,
    /// How many pages may wait, with this one.
    pub(super) room: usize,
    /// Its number, if it has one already.
    pub(super) number: Option<u64>,
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
    /// Ends: nobody waits.
    Over,
}

/// One host.
#[derive(Debug)]
pub(super) struct HostQueue {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    /// As long as somebody drives it; most hosts have none.
    queue: Option<Box<Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    line: Line<Waiter>,
    told: Arc<Notify>,
}

/// What is to be seen of a gate.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) in_flight: u32,
    pub(super) queued: usize,
    pub(super) next: Option<Delayed>,
    pub(super) back_off: Option<Moment>,
}

impl HostQueue {
    pub(super) fn new(host: &Host, now: &Now<'_>) -> Self {
        Self {
            state: Mutex::new(State {
                pace: Pace::new(host, now),
                queue: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the terms in force; whoever waits is looked at again, under the
    /// ceilings that are new, if they are.
    pub(super) fn set_options(&self, host: &Host, now: &Now<'_>, ceilings: Option<&Ceilings>) {
        let mut state = self.state();
        state.pace.refresh(host, now);
        if let Some(queue) = &mut state.queue {
            queue.line.each(|crawler, waiter| {
                waiter.not_before = Moment::ZERO;
                if let Some(ceilings) = ceilings {
                    waiter.wish.move_under(ceilings, (crawler, host));
                }
            });
        }
        state.tell();
    }

    /// The process before may have asked for pages of it.
    pub(super) fn visited_before(&self) {
        self.state().pace.visited_before();
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
        (host, whose, number): (&Host, &impl Fn() -> QueueOwner, Option<u64>),
        now: &Now<'_>,
    ) -> Result<Started, Delayed> {
        let mut state = self.state();
        state.pace.refresh(host, now);
        let is_longest = state.pace.remember(wish.asked.as_ref(), now);
        let waiting = state.queue.as_ref();
        let Some(queue) = waiting.filter(|queue| !queue.line.is_empty()) else {
            return state.pace.start(wish, now);
        };
        if is_longest {
            queue.told.notify_one();
        }
        let ahead = queue.line.ahead(&whose(), number.unwrap_or(u64::MAX));
        Err(state.pace.estimate(wish, ahead, now))
    }

    /// Remembers what a robots.txt asks for.
    pub(super) fn record_crawl_delay(&self, asked: &Arc<PaceRecords>, now: &Now<'_>) {
        let mut state = self.state();
        if state.pace.remember(Some(asked), now) {
            state.tell();
        }
    }

    /// When a turn would probably come that is asked for now.
    pub(super) fn estimate(&self, wish: &Wish, whose: &QueueOwner, now: &Now<'_>) -> Delayed {
        let state = self.state();
        let queue = state.queue.as_ref();
        let ahead = queue.map_or(0, |queue| queue.line.ahead(whose, u64::MAX));
        state.pace.estimate(wish, ahead, now)
    }

    /// Whether anything keeps a robots.txt from being asked for now.
    pub(super) fn keeps_robots(&self, now: &Now<'_>) -> bool {
        let state = self.state();
        state.queue.is_some() || state.pace.next(Kind::RobotsTxt, now).is_some()
    }

    /// Joins the line, unless it is full.
    pub(super) fn join(&self, joining: Joining<'_>, numbers: &AtomicU64) -> Option<Joined> {
        let mut state = self.state();
        state.make_room(&joining)?;
        let is_first = state.queue.is_none();
        let queue = state.queue.get_or_insert_default();
        let (sender, answer) = oneshot::channel();
        // Under the lock, so that numbers rise along the line.
        let next = || numbers.fetch_add(1, Ordering::Relaxed);
        let number = joining.number.unwrap_or_else(next);
        let mut wish = joining.wish;
        wish.claim.told_by(&queue.told);
        let waiter = Waiter {
            number,
            wish,
            deadline: joining.deadline,
            not_before: Moment::ZERO,
            kept_by: None,
            answer: sender,
        };
        queue.line.push(joining.whose, waiter);
        queue.told.notify_one();
        Some(Joined {
            number,
            answer,
            is_first,
        })
    }

    /// Leaves the line before its turn, with what it waited for alone; `None` if
    /// that was answered already.
    pub(super) fn leave(&self, whose: &QueueOwner, number: u64) -> Option<(Wish, Option<Reason>)> {
        let mut state = self.state();
        let queue = state.queue.as_mut();
        let waiter = queue.and_then(|queue| queue.line.remove(whose, number))?;
        state.tell();
        Some((waiter.wish, waiter.kept_by))
    }

    /// Sends all away that wait.
    pub(super) fn empty(&self) {
        let mut state = self.state();
        let queue = state.queue.as_mut();
        let gone = queue.map(|queue| std::mem::take(&mut queue.line));
        state.tell();
        drop(state);
        // Whoever is not answered any more knows that nobody will.
        drop(gone);
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
        queue.line.wake();
        let step = state.serve(&mut queue, now);
        state.queue = Some(queue);
        drop(state);
        match step {
            Err(step) => step,
            Ok((waiter, started)) => {
                // He may just have left: then it is as if he had never come.
                if let Err(Ok(unused)) = waiter.answer.send(Ok(started)) {
                    self.give_back(&unused);
                }
                Step::Again
            }
        }
    }

    /// Takes back a turn of which nothing came.
    pub(super) fn give_back(&self, started: &Started) {
        let mut state = self.state();
        state.pace.give_back(started);
        state.tell();
    }

    /// Ends a turn.
    pub(super) fn end(&self, start: Start, now: Moment, how: (Duration, Outcome)) {
        let mut state = self.state();
        state.pace.end(start, now, how);
        state.tell();
    }

    /// Learns from a response that asks for less. Those who wait and would wait
    /// in vain are told so at once.
    pub(super) fn observe(&self, answered: ThrottleAnswer, now: &Now<'_>) -> BackOffUpdate {
        let mut state = self.state();
        let (change, delayed) = state.pace.observe(answered, now);
        let Some((delayed, until)) = delayed.and_then(|one| Some((one, one.until?))) else {
            return change;
        };
        state.tell();
        let queue = state.queue.as_mut();
        let in_vain = |waiter: &Waiter| waiter.deadline < until;
        let gone = queue.map_or_else(Vec::new, |queue| queue.line.remove_all(in_vain));
        drop(state);
        for waiter in gone {
            // Who has left does not mind.
            let _ = waiter.answer.send(Err(delayed));
        }
        change
    }

    /// What the host asked for: until when it is left alone, and how often in a
    /// row it named no time.
    pub(super) fn left_alone(&self, now: Moment) -> Option<(Moment, u32)> {
        self.state().pace.left_alone(now)
    }

    pub(super) fn take_end(&self, now: Moment) -> Option<Ended> {
        self.state().pace.take_end(now)
    }

    /// Takes up what the process before knew.
    pub(super) fn restore(&self, back_off: BackOff) {
        self.state().pace.restore(back_off);
    }

    /// Whether it need not even be remembered for those who come next.
    pub(super) fn is_at_rest(&self, now: &Now<'_>) -> bool {
        self.state().pace.is_at_rest(now)
    }

    /// Whether a new gate in its place would do the same.
    pub(super) fn is_idle(&self, now: &Now<'_>) -> bool {
        let state = self.state();
        state.queue.is_none() && state.pace.is_idle(now)
    }

    /// What is to be seen of it.
    pub(super) fn seen(&self, now: &Now<'_>) -> Seen {
        let state = self.state();
        let line = state.queue.as_ref().map(|queue| &queue.line);
        // Where the host is free, what its first waits for alone.
        let first = || line?.first_kept();
        Seen {
            in_flight: state.pace.in_flight(),
            queued: line.map_or(0, Line::len),
            next: state.pace.next(Kind::Page, now).or_else(first),
            back_off: state.pace.back_off_until(now.moment),
        }
    }
}

impl State {
    /// Whether one more may wait. A crawler that fills the line gives way to one
    /// that has less in it.
    fn make_room(&mut self, joining: &Joining<'_>) -> Option<()> {
        let (QueueOwner::Crawler(name), Some(queue)) = (joining.whose, &mut self.queue) else {
            return Some(());
        };
        if queue.line.pages() < joining.room {
            return Some(());
        }
        let crowded_out = queue.line.crowd_out(name)?;
        // Who has left does not mind.
        let _ = crowded_out.answer.send(Err(Delayed {
            until: None,
            again: Moment::MAX,
            reason: Reason::QueueFull,
            scope: Scope::Own,
        }));
        Some(())
    }

    /// Something changed that the line may depend on.
    fn tell(&self) {
        if let Some(queue) = &self.queue {
            queue.told.notify_one();
        }
    }
}
