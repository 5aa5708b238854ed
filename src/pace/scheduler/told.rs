//! Telling who keeps the record that a host is left alone, and taking up what
//! the process before knew.

use std::fmt;

use super::Scheduler;
use super::desk::SchedulerCore;
use crate::clock::{self, passed};
use crate::pace::back_off::BackOff;
use crate::pace::back_off_event::{BackOffChange, BackOffEvent, SavedBackOff};
use crate::pace::schedule::Moment;
use politesse_robots::origin::Host;

/// Who is told.
pub struct BackOffListener(pub Box<dyn Fn(BackOffEvent) + Send + Sync>);

impl fmt::Debug for BackOffListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackOffListener")
    }
}

/// The end of a back-off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) at: Moment,
    pub(super) incidents: u32,
}

impl Scheduler {
    /// Has `told` hear of each back-off from now on. Once.
    pub fn set_back_off_listener(&self, told: BackOffListener) {
        // A second one would hear half of a story.
        let _ = self.desk.told.set(told);
    }

    /// Leaves the hosts alone that the process before left alone, but none for
    /// longer than the longest back-off: the clock may have been wrong. What was
    /// over and is not forgiven counts as over since now.
    pub fn restore_back_offs(&self, kept: impl IntoIterator<Item = SavedBackOff>) {
        let in_force = self.desk.in_force.load();
        let now = self.desk.now(&in_force);
        let (wall, times) = (clock::now(), in_force.options.back_off);
        for one in kept {
            let quiet = passed(one.quiet_since, wall);
            if times.forgive <= quiet {
                continue;
            }
            let left = passed(wall, one.until).min(times.longest);
            let until = now.moment.saturating_add(left);
            if let Some(gate) = self.desk.hosts.gate(&one.host, &now) {
                gate.restore(BackOff::kept(until, one.incidents));
            }
        }
    }
}

impl SchedulerCore {
    /// Tells that `host` asked for less, with this status.
    pub(super) fn tell_entered(&self, host: &Host, (until, incidents): (Moment, u32), status: u16) {
        self.tell(host, (until, incidents), |event| BackOffEvent {
            status: Some(status),
            ..event
        });
    }

    /// Tells that `host` may be asked again.
    pub(super) fn tell_left(&self, host: &Host, ended: Ended) {
        self.tell(host, (ended.at, ended.incidents), |event| BackOffEvent {
            at: event.until,
            change: BackOffChange::Left,
            ..event
        });
    }

    fn tell(
        &self,
        host: &Host,
        (until, incidents): (Moment, u32),
        of: impl FnOnce(BackOffEvent) -> BackOffEvent,
    ) {
        let Some(told) = self.told.get() else { return };
        let (wall, now) = (clock::now(), self.moment());
        let until = match until.checked_sub(now) {
            Some(ahead) => wall.checked_add(ahead),
            None => wall.checked_sub(now.saturating_sub(until)),
        };
        (told.0)(of(BackOffEvent {
            at: wall,
            host: host.clone(),
            change: BackOffChange::Entered,
            status: None,
            until: until.unwrap_or(wall),
            incidents,
        }));
    }
}
