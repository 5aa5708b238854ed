//! State that the scheduler shares with its turns and drivers: the clock, the
//! configuration in force, metrics, and the back-off listener.
//!
//! A driver is the task that grants the turns of one host. Does not know any queue.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::back_off::{BackOff, BackOffListener};
use super::ceilings::Ceilings;
use super::fleet_part::{FleetMode, FleetPart, FleetShare};
use super::lease::{LeaseStore, LeaseTime};
use super::options::Options;
use super::schedule::Uptime;
use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_base::tasks::Tasks;
use politesse_decision::back_off::{BackOffChange, BackOffEvent, ReleaseOrder};
use politesse_decision::delay::DelayEnd;
use politesse_robots::origin::Host;

/// Configuration in force, with its ceilings.
#[derive(Debug)]
pub(super) struct ActivePace {
    /// Options in force.
    pub(super) options: Options,
    /// Ceilings over many hosts, made from the options.
    pub(super) ceilings: Arc<Ceilings>,
    /// Number of the configuration, which a host compares to detect outdated terms;
    /// wraps.
    pub(super) generation: u32,
}

/// Current time, and the configuration in force at that time.
#[derive(Debug)]
pub(super) struct Now {
    /// Time on the monotonic clock, which delays are measured by.
    pub(super) uptime: Uptime,
    /// Wall-clock time.
    pub(super) wall: Timestamp,
    /// Configuration in force.
    pub(super) active: Guard<Arc<ActivePace>>,
    /// Role of this node in its fleet; `None` outside a fleet.
    pub(super) fleet: Option<FleetPart>,
    /// Whether `fleet` may no longer hold. That is so if the process was suspended for
    /// so long that it may have lost its leases, or that the store may be back, and it
    /// has not asked the store since.
    pub(super) is_fleet_outdated: bool,
}

impl Now {
    /// Returns the time on both clocks.
    pub(super) fn time(&self) -> LeaseTime {
        LeaseTime {
            uptime: self.uptime,
            wall: self.wall,
        }
    }

    /// Returns the end of a delay that lasts until `until`.
    ///
    /// [`Uptime::MAX`] means that the time is unknown: the request waits until another
    /// one ends or leaves, which wakes it.
    pub(super) fn end_at(&self, until: Uptime) -> DelayEnd {
        match until {
            Uptime::MAX => DelayEnd::OnEvent(Duration::MAX),
            until => DelayEnd::After(until.saturating_sub(self.uptime)),
        }
    }
}

/// State that the scheduler shares with its turns and drivers.
#[derive(Debug)]
pub(super) struct PaceContext {
    /// Configuration in force.
    pub(super) active: ArcSwap<ActivePace>,
    /// Moment from which [`Uptime`] counts.
    pub(super) epoch: Instant,
    pub(super) metrics: Arc<Metrics>,
    /// Spawns tasks that serve all hosts.
    pub(super) tasks: Tasks,
    /// Spawns the drivers, and the tasks that hold leases.
    pub(super) host_tasks: HostTasks,
    /// Receives reports of back-offs.
    pub(super) listener: OnceLock<BackOffListener>,
    /// Whether the process will stop soon, so that leases are given back where nothing
    /// waits.
    pub(super) is_draining: AtomicBool,
    /// Whether requests may no longer wait.
    pub(super) is_closed: AtomicBool,
    /// Fleet of this node, if any.
    pub(super) fleet: OnceLock<PaceFleet>,
}

/// Largest number of concurrent calls that report hosts to the store or give leases
/// back.
const STORE_CALLS_MAX: usize = 64;

/// Fleet that this node belongs to.
#[derive(Debug)]
pub(super) struct PaceFleet {
    /// Store of the fleet, which grants leases of hosts.
    pub(super) store: Arc<dyn LeaseStore>,
    /// Permits for calls that report hosts or give leases back. All back-offs are reported to each
    /// generation of the store, and heartbeats share the connection.
    pub(super) store_calls: Semaphore,
    /// Role of this node, as last learnt from the store.
    pub(super) part: ArcSwap<FleetPart>,
    /// Time until which `part` is valid if the store does not answer again, in
    /// microseconds of [`Uptime`]. Not in `part`: it changes with each answer, and
    /// hosts need not be woken for that.
    valid_until: AtomicU64,
}

impl PaceFleet {
    /// Makes the fleet of a node that has not reached its store yet.
    pub(super) fn new(store: Arc<dyn LeaseStore>) -> Self {
        let part = FleetPart {
            mode: FleetMode::Closed,
            share: FleetShare::WHOLE,
            generation: 0,
        };
        Self {
            store,
            store_calls: Semaphore::new(STORE_CALLS_MAX),
            part: ArcSwap::from_pointee(part),
            valid_until: AtomicU64::new(0),
        }
    }

    /// Sets the part that is valid until `valid_until`. Returns whether hosts have to
    /// be checked again at `now`.
    pub(super) fn set_part(&self, part: FleetPart, valid_until: Uptime, now: Uptime) -> bool {
        let was_outdated = self.is_outdated(now);
        let until = u64::try_from(valid_until.as_micros()).unwrap_or(u64::MAX);
        self.valid_until.store(until, Ordering::Relaxed);
        let is_new = **self.part.load() != part;
        if is_new {
            self.part.store(Arc::new(part));
        }
        is_new || was_outdated
    }

    /// Returns whether `part` may no longer hold.
    fn is_outdated(&self, now: Uptime) -> bool {
        let until = Duration::from_micros(self.valid_until.load(Ordering::Relaxed));
        self.part.load().mode != FleetMode::Closed && until <= now
    }
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
            host_tasks: HostTasks::new(tasks.clone()),
            tasks,
            listener: OnceLock::new(),
            is_draining: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            fleet: OnceLock::new(),
        }
    }

    /// Applies new options. Returns the ceilings if they are new.
    pub(super) fn set_options(&self, options: Options) -> Option<Arc<Ceilings>> {
        let previous = self.active.load_full();
        // Equal ceilings are kept, and with them the places of waiting requests.
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

    /// Returns the time on the monotonic clock.
    pub(super) fn uptime(&self) -> Uptime {
        clock::instant().saturating_duration_since(self.epoch)
    }

    /// Returns the current time, and the configuration in force.
    pub(super) fn now(&self) -> Now {
        let (uptime, fleet) = (self.uptime(), self.fleet.get());
        Now {
            uptime,
            wall: clock::now(),
            active: self.active.load(),
            fleet: fleet.map(|fleet| **fleet.part.load()),
            is_fleet_outdated: fleet.is_some_and(|fleet| fleet.is_outdated(uptime)),
        }
    }

    /// Waits for `event`, but not past `deadline`; `None` if that comes first.
    pub(super) async fn wait_until<E: Future>(
        &self,
        deadline: Uptime,
        event: E,
    ) -> Option<E::Output> {
        match self.epoch.checked_add(deadline) {
            Some(deadline) => timeout_at(deadline, event).await.ok(),
            // The deadline is later than the clock can represent.
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
        listener.0(BackOffEvent {
            at,
            host: host.clone(),
            change,
            status,
            until,
            incidents: back_off.incidents,
            release,
        });
    }

    /// Converts `uptime` to wall-clock time, using the current reading of both clocks:
    /// the wall clock may have been set since.
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
    /// An operator ended the back-off.
    Released(ReleaseOrder),
}

/// Tasks that grant turns of hosts, and tasks that hold their leases. Tests can suspend
/// all tasks of one simulated process.
#[derive(Debug)]
pub(super) struct HostTasks {
    tasks: Tasks,
    /// Suspends the tasks in tests.
    #[cfg(any(test, feature = "testing"))]
    pub(super) gate: OnceLock<super::testing::Gate>,
}

impl HostTasks {
    pub(super) fn new(tasks: Tasks) -> Self {
        Self {
            tasks,
            #[cfg(any(test, feature = "testing"))]
            gate: OnceLock::new(),
        }
    }

    /// Spawns a task of a host.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        #[cfg(any(test, feature = "testing"))]
        let task = self.gate.get().cloned().unwrap_or_default().hold(task);
        self.tasks.0.spawn(task);
    }
}
