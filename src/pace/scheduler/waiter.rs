//! One that waits, as the line and its gate see it.

use tokio::sync::oneshot;

use super::line::{Line, Waits};
use super::pace::{Delayed, Scope, Started, Wish};
use crate::decision::reason::Reason;
use crate::pace::schedule::Moment;

/// The word to one that waits.
pub(super) type Answer = Result<Started, Delayed>;

/// One that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) number: u64,
    pub(super) wish: Wish,
    /// When it goes, if it waits for so long.
    pub(super) deadline: Moment,
    pub(super) not_before: Moment,
    /// What keeps it alone, if it was asked.
    pub(super) kept_by: Option<Reason>,
    pub(super) answer: oneshot::Sender<Answer>,
}

impl Waits for Waiter {
    fn number(&self) -> u64 {
        self.number
    }

    fn not_before(&self) -> Moment {
        self.not_before
    }

    fn wake(&mut self) {
        if self.not_before == Moment::MAX {
            self.not_before = Moment::ZERO;
        }
    }

    fn yields(&mut self) {
        self.wish.claim.yields();
    }
}

impl Line<Waiter> {
    /// What the page that comes next waits for, if it is that alone.
    pub(super) fn first_kept(&self) -> Option<Delayed> {
        let first = self.front()?;
        let until = first.not_before;
        Some(Delayed {
            until: Some(until).filter(|until| *until < Moment::MAX),
            again: until,
            reason: first.kept_by?,
            scope: Scope::Own,
        })
    }
}

impl Waiter {
    /// Whether it would have gone before that.
    pub(super) fn is_in_vain(&self, delayed: &Delayed) -> bool {
        // Nobody knows when he is told.
        let until = delayed.until.filter(|until| *until < Moment::MAX);
        until.is_some_and(|until| self.deadline < until)
    }
}
