//! Turns for robots.txt, which our own fetches take.

use std::sync::Arc;
use std::time::Duration;

use super::Turn;
use super::desk::SchedulerCore;
use super::gate::{HostQueue, Joining};
use super::later::RETRY_AFTER_MIN;
use super::line::QueueOwner;
use super::pace::{Started, Wish};
use super::waiting::Waiting;
use crate::decision::reason::Reason;
use crate::pace::schedule::Moment;
use politesse_robots::PaceRecords;
use politesse_robots::origin::Host;

impl SchedulerCore {
    pub(super) async fn robots_turn(
        self: &Arc<Self>,
        host: &Host,
        longest: Duration,
    ) -> Option<Turn> {
        let begun = self.moment();
        let deadline = begun.saturating_add(longest);
        let (gate, waiting) = self.ask_for_robots(host, deadline)?;
        let started = match waiting {
            Ok(started) => return Some(self.granted(host, gate, started)),
            Err(waiting) => waiting.turn(self, deadline).await.ok()?,
        };
        let waited = self.moment().saturating_sub(begun);
        Some(self.granted(host, gate, started).after(waited, None))
    }

    fn ask_for_robots(
        self: &Arc<Self>,
        host: &Host,
        deadline: Moment,
    ) -> Option<(Arc<HostQueue>, Result<Started, Waiting>)> {
        let in_force = self.in_force.load();
        let now = self.now(&in_force);
        let gate = self.hosts.gate(host, &now)?;
        let mut wish = Wish::robots(&in_force.ceilings, host);
        let delayed = match gate.ask(&mut wish, (host, &|| QueueOwner::Robots, None), &now) {
            Ok(started) => return Some((gate, Ok(started))),
            Err(delayed) => delayed,
        };
        if delayed.until.is_some_and(|until| deadline < until) {
            return None;
        }
        let joining = Joining {
            whose: &QueueOwner::Robots,
            wish,
            deadline,
            room: usize::MAX,
            number: None,
        };
        let waiting = self.join(Arc::clone(&gate), joining)?;
        Some((gate, Err(waiting)))
    }

    pub(super) fn record_crawl_delay(&self, host: &Host, asked: &Arc<PaceRecords>) {
        let in_force = self.in_force.load();
        let now = self.now(&in_force);
        if let Some(gate) = self.hosts.gate(host, &now) {
            gate.record_crawl_delay(asked, &now);
        }
    }

    /// What keeps a robots.txt from being asked for, and about how long.
    pub(super) fn robots_delayed(&self, host: &Host) -> (Reason, Duration) {
        let in_force = self.in_force.load();
        let now = self.now(&in_force);
        let Some(gate) = self.hosts.gate(host, &now) else {
            return (Reason::Overload, RETRY_AFTER_MIN);
        };
        let wish = Wish::robots(&in_force.ceilings, host);
        let delayed = gate.estimate(&wish, &QueueOwner::Robots, &now);
        let until = delayed.until.unwrap_or_default();
        (delayed.reason, until.saturating_sub(now.moment))
    }

    /// Whether anything does, though how long that will be may not be known.
    pub(super) fn keeps_robots(&self, host: &Host) -> bool {
        let in_force = self.in_force.load();
        let now = self.now(&in_force);
        let gate = self.hosts.gate(host, &now);
        gate.is_some_and(|gate| gate.keeps_robots(&now))
    }
}
