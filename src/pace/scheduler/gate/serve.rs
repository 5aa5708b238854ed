//! Which of those who wait at a host starts next.

use std::sync::Arc;

use super::{Queue, State, Step};
use crate::pace::schedule::Moment;
use crate::pace::scheduler::line::Line;
use crate::pace::scheduler::pace::{Delayed, Now, Scope, Started};
use crate::pace::scheduler::waiter::Waiter;

impl State {
    /// Serves who comes next, or says what to do until that can be.
    pub(super) fn serve(
        &mut self,
        queue: &mut Queue,
        now: &Now<'_>,
    ) -> Result<(Waiter, Started), Step> {
        let serve_first = if queue.line.is_robots_turn() {
            [Self::serve_robots, Self::serve_page]
        } else {
            [Self::serve_page, Self::serve_robots]
        };
        let mut earliest = Moment::MAX;
        for serve in serve_first {
            match serve(self, &mut queue.line, now) {
                Ok(served) => return Ok(served),
                Err(until) => earliest = earliest.min(until),
            }
        }
        Err(Step::Sleep(earliest, Arc::clone(&queue.told)))
    }

    /// The robots.txt that comes next; else when to ask again, which is for ever
    /// where the line is told.
    fn serve_robots(
        &mut self,
        line: &mut Line<Waiter>,
        now: &Now<'_>,
    ) -> Result<(Waiter, Started), Moment> {
        let waiter = line.robots().ok_or(Moment::MAX)?;
        let started = self.pace.start(&mut waiter.wish, now);
        let started = started.map_err(|delayed| delayed.again)?;
        let waiter = line.pop_robots().ok_or(now.moment)?;
        Ok((waiter, started))
    }

    /// The same for the page that comes next.
    fn serve_page(
        &mut self,
        line: &mut Line<Waiter>,
        now: &Now<'_>,
    ) -> Result<(Waiter, Started), Moment> {
        loop {
            let waiter = line.first(now.moment)?;
            match self.pace.start(&mut waiter.wish, now) {
                Ok(started) => {
                    let waiter = line.pop().ok_or(now.moment)?;
                    return Ok((waiter, started));
                }
                Err(delayed) if waiter.is_in_vain(&delayed) => {
                    if let Some(waiter) = line.take() {
                        // Who has left does not mind.
                        let _ = waiter.answer.send(Err(delayed));
                    }
                }
                Err(Delayed {
                    again,
                    scope: Scope::Own,
                    reason,
                    ..
                }) => (waiter.not_before, waiter.kept_by) = (again, Some(reason)),
                Err(Delayed { again, .. }) => {
                    waiter.kept_by = None;
                    line.yields();
                    return Err(again);
                }
            }
        }
    }
}
