//! Parts that the scheduler shares with its turns and drivers: the clock, the
//! configuration in force, metrics, and the back-off listener.
//!
//! Does not know any queue.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

use super::back_off::{
    BackOff, BackOffChange, BackOffEvent, BackOffListener, ReleaseOrder, SavedUrl, UrlBackOff,
};
use super::ceilings::Ceilings;
use super::fleet_part::FleetPart;
use super::lease::LeaseStore;
use super::options::Options;
use super::schedule::Uptime;
use crate::clock;
use crate::decision::delay::DelayEnd;
use crate::metrics::Metrics;
use crate::tasks::Tasks;
use politesse_robots::origin::Host;

/// Configuration in force, with the ceilings that follow from it.
#[derive(Debug)]
pub(super) struct ActivePace {
    pub(super) options: Options,
    pub(super) ceilings: Arc<Ceilings>,
    /// Number of the configuration, by which a host sees that its terms are
    /// those of another one; wraps.
    pub(super) generation: u32,
}

/// Current time, and the configuration that holds at it.
#[derive(Debug)]
pub(super) struct Now {
    pub(super) uptime: Uptime,
    pub(super) wall: Timestamp,
    pub(super) active: Guard<Arc<ActivePace>>,
    /// Part that this node plays in a fleet, if it is in one.
    pub(super) fleet: Option<FleetPart>,
}

impl Now {
    /// Returns the end of a delay that lasts until `until`.
    ///
    /// [`Uptime::MAX`] stands for no known time: the request waits for another
    /// one to end or to leave, and is woken then.
    pub(super) fn end_at(&self, until: Uptime) -> DelayEnd {
        match until {
            Uptime::MAX => DelayEnd::OnEvent(Duration::MAX),
            until => DelayEnd::After(until.saturating_sub(self.uptime)),
        }
    }
}

/// Parts that the scheduler shares with its turns and drivers.
#[derive(Debug)]
pub(super) struct PaceContext {
    pub(super) active: ArcSwap<ActivePace>,
    /// Moment from which [`Uptime`] counts.
    pub(super) epoch: Instant,
    pub(super) metrics: Arc<Metrics>,
    pub(super) tasks: Tasks,
    pub(super) listener: OnceLock<BackOffListener>,
    /// Whether a stop is near, and leases are given back where nothing waits.
    pub(super) is_draining: AtomicBool,
    /// Whether requests may no longer wait.
    pub(super) is_closed: AtomicBool,
    /// Fleet that this node is in, if any.
    pub(super) fleet: OnceLock<PaceFleet>,
}

/// Fleet that this node is in.
#[derive(Debug)]
pub(super) struct PaceFleet {
    pub(super) store: Arc<dyn LeaseStore>,
    pub(super) part: ArcSwap<FleetPart>,
}

impl PaceContext {
    pub(super) fn new(options: Options, metrics: Arc<Metrics>, tasks: Tasks) -> Self {
        let active = ActivePace {
            ceilings: Ceilings::new(&options, None),
            options,
            generation: 0,
        };
        Self {
            active: ArcSwap::from_pointee(active),
            epoch: clock::instant(),
            metrics,
            tasks,
            listener: OnceLock::new(),
            is_draining: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            fleet: OnceLock::new(),
        }
    }

    /// Puts other options in force. Returns the ceilings if they are new.
    pub(super) fn set_options(&self, options: Options) -> Option<Arc<Ceilings>> {
        let previous = self.active.load_full();
        // Equal ceilings stay, and with them the places of requests that wait.
        let is_same = previous.ceilings.are_of(&options);
        let replaced = (!is_same).then(|| Ceilings::new(&options, Some(&previous.ceilings)));
        let ceilings = replaced.as_ref().unwrap_or(&previous.ceilings);
        self.active.store(Arc::new(ActivePace {
            ceilings: Arc::clone(ceilings),
            options,
            generation: previous.generation.wrapping_add(1),
        }));
        replaced
    }

    pub(super) fn uptime(&self) -> Uptime {
        clock::instant().saturating_duration_since(self.epoch)
    }

    pub(super) fn now(&self) -> Now {
        Now {
            uptime: self.uptime(),
            wall: clock::now(),
            active: self.active.load(),
            fleet: self.fleet.get().map(|fleet| **fleet.part.load()),
        }
    }

    /// Waits for `event`, until `deadline` at the latest; `None` if that comes
    /// first.
    pub(super) async fn wait_until<E: Future>(
        &self,
        deadline: Uptime,
        event: E,
    ) -> Option<E::Output> {
        match self.epoch.checked_add(deadline) {
            Some(deadline) => timeout_at(deadline, event).await.ok(),
            // The clock does not reach that far.
            None => Some(event.await),
        }
    }

    /// Reports the back-off of a host to the listener.
    pub(super) fn report(&self, host: &Host, back_off: &BackOff, report: BackOffReport) {
        let (Some(listener), Some(end)) = (self.listener.get(), back_off.end) else {
            return;
        };
        let wall = clock::now();
        let until = self.wall_at(end, wall);
        let (at, change, status, release) = match report {
            BackOffReport::Entered(status) => (wall, BackOffChange::Entered, Some(status), None),
            BackOffReport::Left => (until, BackOffChange::Left, None, None),
            BackOffReport::Released(order) => (wall, BackOffChange::Released, None, Some(order)),
        };
        let saved = |own: &UrlBackOff| SavedUrl {
            url: own.url,
            until: self.wall_at(own.until, wall),
        };
        let now = self.uptime();
        let on = back_off.urls.iter().filter(|own| now < own.until);
        listener.0(BackOffEvent {
            at,
            host: host.clone(),
            change,
            status,
            until,
            incidents: back_off.incidents,
            probe_at: back_off
                .probe_at
                .map(|probe_at| self.wall_at(probe_at, wall)),
            urls: on.map(saved).collect(),
            release,
        });
    }

    /// Returns the time of `uptime` on the wall clock, by both clocks as they are
    /// now: the wall clock may have been set since.
    fn wall_at(&self, uptime: Uptime, wall: Timestamp) -> Timestamp {
        let now = self.uptime();
        let time = match uptime.checked_sub(now) {
            Some(remaining) => wall.checked_add(remaining),
            None => wall.checked_sub(now.saturating_sub(uptime)),
        };
        time.unwrap_or(wall)
    }
}

/// Change of a back-off, as it is reported.
#[derive(Debug)]
pub(super) enum BackOffReport {
    /// The host answered with this status.
    Entered(u16),
    /// The host may be asked again.
    Left,
    /// An operator ended it.
    Released(ReleaseOrder),
}
