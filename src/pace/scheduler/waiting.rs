//! One that waits in line, as it looks from its own side.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::desk::SchedulerCore;
use super::gate::HostQueue;
use super::line::QueueOwner;
use super::pace::{Delayed, Started, Wish};
use super::places::Place;
use super::waiter::Answer;
use crate::decision::reason::Reason;
use crate::pace::schedule::Moment;

/// A place in a line. Dropped, it is somebody else's, and so is a turn that was
/// granted and not taken.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) gate: Arc<HostQueue>,
    pub(super) whose: QueueOwner,
    pub(super) number: u64,
    pub(super) answer: oneshot::Receiver<Answer>,
    /// Counts it as long as it waits.
    pub(super) place: Option<Place>,
}

/// How a wait ended without a turn.
#[derive(Debug)]
pub(super) enum InVain {
    /// Before its time, since it would have been too long.
    Told(Delayed),
    /// It was too long; with what it waited for alone.
    TooLong(Wish, Option<Reason>),
    /// Nobody drives the line any more: the process ends.
    Ended,
}

impl Waiting {
    /// The turn, if it comes before `deadline`.
    pub(super) async fn turn(
        mut self,
        desk: &SchedulerCore,
        deadline: Moment,
    ) -> Result<Started, InVain> {
        let deadline = desk.epoch.checked_add(deadline);
        let answer = match deadline {
            Some(deadline) => timeout_at(deadline, &mut self.answer).await,
            None => Ok((&mut self.answer).await),
        };
        match answer {
            Ok(Ok(answer)) => answer.map_err(InVain::Told),
            Ok(Err(_)) => Err(InVain::Ended),
            Err(_) => self.too_long().await,
        }
    }

    async fn too_long(&mut self) -> Result<Started, InVain> {
        if let Some((wish, kept_by)) = self.gate.leave(&self.whose, self.number) {
            return Err(InVain::TooLong(wish, kept_by));
        }
        // It was taken out of the line, so that its answer is on the way.
        match (&mut self.answer).await {
            Ok(answer) => answer.map_err(InVain::Told),
            Err(_) => Err(InVain::Ended),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.gate.leave(&self.whose, self.number);
        // From here on no turn can be granted; one may have been before.
        self.answer.close();
        if let Ok(Ok(started)) = self.answer.try_recv() {
            self.gate.give_back(&started);
        }
        self.place = None;
    }
}
