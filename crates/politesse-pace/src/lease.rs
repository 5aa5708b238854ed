//! Lease of a host: the right of one fleet node to send requests to the host.
//!
//! Only the holder starts requests, so every limit of the host applies to the whole
//! fleet, and a single request needs no call to the store. The next holder learns when
//! the host last received a request ([`HostHistory`]). If other nodes want the host, the
//! holder hands the lease on after a while.
//!
//! Time is measured by the node's monotonic clock. A lease also ends by the wall clock,
//! because the monotonic clock stops while a machine sleeps. A call takes time, and the
//! node cannot tell when during the call the store acted. So a lease counts from when it
//! was asked for, and ages count from when they arrived. Does not know which requests
//! wait, nor how the store is reached.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;
use tokio::sync::Notify;

use super::fleet_part::HostHistory;
use super::schedule::Uptime;
use politesse_base::clock;
use politesse_robots::origin::Host;

/// Divisor of a lease's length: after this part of it, the holder renews it or hands it
/// on.
const PARTS: u32 = 4;

/// Divisor of a lease's length: this part is left unused, because clocks run at different
/// speeds.
const UNUSED_PARTS: u32 = 50;

/// Divisor of a lease's length: a host with a start within this part keeps its lease
/// although nothing waits.
const RECENT_PARTS: u32 = 16;

/// Shortest and longest time before a node asks again for a lease that another node
/// holds.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(50));

/// Order to the store about the lease of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOrder {
    /// Take the lease if no node holds it.
    Claim,
    /// Extend the lease.
    Renew(HostHistory),
    /// Give the lease back, or report requests that ended after it was lost.
    Release(HostHistory),
    /// End the host's back-off, on an operator's order.
    EndBackOff,
}

/// Call to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseCall<'a> {
    /// Host whose lease the call is about.
    pub host: &'a Host,
    /// Number of this node's latest claim for the host.
    pub number: u32,
    /// Action that the store carries out.
    pub order: LeaseOrder,
}

/// Answer of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// The node holds the lease, for this time from when it asked.
    Held {
        /// Length of the lease.
        length: Duration,
        /// Whether another node wants the lease.
        is_wanted: bool,
        /// History of the host. Present after a claim, and if an operator has ended the
        /// back-off in the meantime.
        history: Option<HostHistory>,
    },
    /// Refused for at most this time: another node holds the lease, or none may hold it
    /// yet.
    Refused(Duration),
    /// The store has recorded the history.
    Noted,
    /// The host no longer has a back-off.
    Freed,
}

/// The store of the fleet did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the store of the fleet does not answer")]
pub struct StoreLost;

/// Pending answer to a call.
pub type LeaseFuture<'a> =
    Pin<Box<dyn Future<Output = Result<LeaseAnswer, StoreLost>> + Send + 'a>>;

/// Store that keeps the leases of all hosts, for all nodes.
pub trait LeaseStore: fmt::Debug + Send + Sync {
    /// Carries out a call.
    fn lease<'a>(&'a self, call: LeaseCall<'a>) -> LeaseFuture<'a>;
}

/// Next step of the lease task of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseStep {
    /// Call the store with this order and the number of the latest claim.
    Call(u32, LeaseOrder),
    /// Wait until then, or until something changes.
    Wait(Uptime),
    /// Nothing is left to do.
    Rest,
}

/// Needs of the requests at a host that its lease depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostNeeds {
    /// Whether requests wait.
    pub(super) is_waiting: bool,
    /// Requests in flight.
    pub(super) in_flight: u32,
    /// Time before which no waiting request can start.
    pub(super) next_look: Uptime,
    /// Whether a waiting request is held up by a ceiling over many hosts, not by this
    /// host.
    pub(super) is_under_ceiling: bool,
    /// History of the host, as this node knows it.
    pub(super) history: HostHistory,
    /// Whether the process will stop soon, so that other nodes should get the host early.
    pub(super) is_draining: bool,
    /// Whether the process stops.
    pub(super) is_closing: bool,
    /// Whether the node must ask the store for the current members before it takes a
    /// lease.
    pub(super) is_fleet_outdated: bool,
}

/// Time on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseTime {
    /// Time on the monotonic clock.
    pub(super) uptime: Uptime,
    /// Wall-clock time, which also passes while the machine sleeps.
    pub(super) wall: Timestamp,
}

/// Whether the node holds the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Not held; asked for from this time on.
    Not(Uptime),
    /// Held.
    Held(Tenure),
}

/// Period for which a lease is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tenure {
    /// End of the lease on the monotonic clock, which stops while the machine sleeps.
    until: Uptime,
    /// Time at which the lease was asked for.
    asked_at: LeaseTime,
    /// Length of the lease, counted from `asked_at`.
    length: Duration,
    /// Time from which it is renewed or handed on.
    look_at: Uptime,
    /// Whether another node wants it.
    is_wanted: bool,
    /// Time at which the latest request was started under it.
    latest_start: Option<Uptime>,
    /// Whether the host was at rest when the lease was renewed. If so, the lease is given
    /// back at once when another node wants it.
    is_spare: bool,
    /// Whether the lease is handed on as soon as nothing is in flight.
    is_leaving: bool,
}

impl Tenure {
    /// Returns whether the lease is still valid.
    fn lasts(&self, now: LeaseTime) -> bool {
        let by_wall = clock::passed(self.asked_at.wall, now.wall);
        now.uptime < self.until && by_wall < self.length
    }

    /// Returns whether the lease should be given back now.
    fn ends(&mut self, needs: &HostNeeds, now: Uptime) -> bool {
        let is_due = self.look_at <= now;
        let is_used = self.latest_start.is_some();
        self.is_leaving |= needs.is_closing || is_due && self.is_wanted && is_used;
        // A host that gets requests often will need the lease again soon, and a claim
        // takes time. A lease that no request has used yet is kept: the request that it
        // was claimed for may be about to join the queue.
        let recently = self.length / RECENT_PARTS;
        let is_recent = |start: Uptime| now < start.saturating_add(recently);
        let is_recent = self.latest_start.is_some_and(is_recent);
        let is_over = is_due && !is_recent || needs.is_draining && is_used;
        let is_idle = is_over && !needs.is_waiting;
        // The place under a ceiling is lost with the lease.
        let is_kept = needs.is_under_ceiling && !(self.is_wanted && is_due);
        let waits_longer = self.is_too_short(needs) && !is_kept;
        needs.in_flight == 0 && (self.is_leaving || is_idle || waits_longer)
    }

    /// Returns whether the requests wait for longer than the lease lasts.
    fn is_too_short(&self, needs: &HostNeeds) -> bool {
        needs.is_waiting && self.until < needs.next_look
    }
}

/// Lease of one host, as this node knows it.
#[derive(Debug)]
pub(super) struct HostLease {
    /// Host that the lease is for.
    pub(super) host: Host,
    /// Number of the latest claim. It keeps a call that was delayed on its way from
    /// ending a later tenure.
    pub(super) number: u32,
    /// Whether the lease is held, and for how long.
    hold: Hold,
    /// Whether a request is blocked on the lease.
    is_missed: bool,
    /// Whether the lease was claimed since a request became blocked on it.
    was_claimed: bool,
    /// Time until which the lease is not asked for, because the host has a longer delay.
    /// In the meantime the local schedule decides when requests may start.
    rests_until: Option<Uptime>,
    /// Whether this node's history of the host has something that the store does not know
    /// of: an ended request, or a back-off.
    has_unreported: bool,
    /// Whether the store does not know yet that an operator ended the back-off.
    is_freed: bool,
    /// Generation of the store to which the host was last reported.
    generation: u64,
    /// Whether a task, the keeper, works on the lease ([`super::queue`]).
    pub(super) has_keeper: bool,
    /// Wakes the keeper.
    pub(super) keeper: Arc<Notify>,
}

impl HostLease {
    /// Makes the lease of a host that needs no report to this `generation` of the store.
    pub(super) fn new(host: &Host, generation: u64) -> Self {
        Self {
            host: host.clone(),
            number: 0,
            hold: Hold::Not(Uptime::ZERO),
            is_missed: false,
            was_claimed: false,
            rests_until: None,
            has_unreported: false,
            is_freed: false,
            generation,
            has_keeper: false,
            keeper: Arc::default(),
        }
    }

    /// Returns whether a request may start. If not, the lease will be asked for.
    pub(super) fn may_start(&mut self, now: LeaseTime) -> bool {
        let may_start = match &self.hold {
            Hold::Not(_) => false,
            Hold::Held(tenure) => tenure.lasts(now) && !tenure.is_leaving,
        };
        self.is_missed |= !may_start;
        may_start
    }

    /// Returns whether the lease was given back because all waiting requests have a long
    /// delay.
    pub(super) fn rests(&self, now: Uptime) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    /// Returns whether a request that was started in tenure `number` may still be sent.
    pub(super) fn holds(&self, number: u32, now: LeaseTime) -> bool {
        let lasts = matches!(&self.hold, Hold::Held(tenure) if tenure.lasts(now));
        lasts && self.number == number
    }

    /// Records that a request was started. Returns the number of the tenure.
    pub(super) fn record_start(&mut self, now: Uptime) -> u32 {
        if let Hold::Held(tenure) = &mut self.hold {
            tenure.latest_start = Some(now);
        }
        self.number
    }

    /// Records that a request ended.
    pub(super) fn end(&mut self) {
        self.has_unreported |= matches!(self.hold, Hold::Not(_));
    }

    /// Schedules an immediate report of a new back-off to the store: this node may stop
    /// before it renews the lease.
    pub(super) fn report_back_off(&mut self) {
        // The operator's order applied to an earlier back-off.
        self.is_freed = false;
        match &mut self.hold {
            Hold::Not(_) => self.has_unreported = true,
            Hold::Held(tenure) => tenure.look_at = Uptime::ZERO,
        }
    }

    /// Records the generation of the store. A back-off of the host (`is_left_alone`) has
    /// to be reported again to a new generation.
    pub(super) fn enter(&mut self, generation: u64, is_left_alone: bool) {
        if self.generation != generation {
            self.generation = generation;
            self.has_unreported |= is_left_alone;
        }
    }

    /// Schedules a report to the store that an operator ended the host's back-off.
    pub(super) fn free(&mut self) {
        self.is_freed = true;
        if let Hold::Held(tenure) = &mut self.hold {
            tenure.look_at = Uptime::ZERO;
        }
    }

    /// Returns whether there is something to report to the store.
    pub(super) fn has_unreported(&self) -> bool {
        self.has_unreported
    }

    /// Drops the lease because the store was lost, and everything that was to be reported
    /// except an operator's order.
    pub(super) fn forget(&mut self) {
        self.hold = Hold::Not(Uptime::ZERO);
        self.is_missed = false;
        self.was_claimed = false;
        self.rests_until = None;
        self.has_unreported = false;
        // Once the store is back, active back-offs are reported to it again.
        self.generation = 0;
    }

    /// Returns whether this node holds the lease.
    pub(super) fn is_held(&self, now: Uptime) -> bool {
        matches!(&self.hold, Hold::Held(tenure) if now < tenure.until)
    }

    /// Returns whether this node holds the lease and should hand it on.
    pub(super) fn is_wanted(&self) -> bool {
        matches!(&self.hold, Hold::Held(tenure) if tenure.is_wanted || tenure.is_leaving)
    }

    /// Returns whether the lease needs attention.
    pub(super) fn is_due(&self) -> bool {
        let is_held = matches!(self.hold, Hold::Held(_));
        let is_asked_for = self.is_missed || self.rests_until.is_some();
        is_asked_for || self.has_unreported || self.is_freed || is_held
    }

    /// Returns whether a request is blocked on the lease.
    pub(super) fn is_missed(&self) -> bool {
        self.is_missed
    }

    /// Returns the next step.
    pub(super) fn step(&mut self, needs: &HostNeeds, time: LeaseTime) -> LeaseStep {
        let now = time.uptime;
        let (rests, is_needed) = (self.rests(now), self.is_needed(needs));
        match &mut self.hold {
            Hold::Held(tenure) if tenure.lasts(time) => {
                if !tenure.ends(needs, now) {
                    let order = match self.is_freed {
                        true => LeaseOrder::EndBackOff,
                        false => LeaseOrder::Renew(needs.history),
                    };
                    if now < tenure.look_at {
                        return LeaseStep::Wait(tenure.look_at);
                    }
                    let is_at_rest = !needs.is_waiting && needs.in_flight == 0;
                    tenure.is_spare = is_at_rest && tenure.latest_start.is_some();
                    return LeaseStep::Call(self.number, order);
                }
                if tenure.is_too_short(needs) && !needs.is_under_ceiling {
                    let latest = now.saturating_add(tenure.length);
                    self.rests_until = Some(needs.next_look.min(latest));
                }
                // Applies from now on, even if the answer is lost. Other nodes ask at
                // shorter intervals, so they may get the lease first.
                self.hold = Hold::Not(now.saturating_add(2 * ASK_AGAIN.1));
                self.has_unreported = true;
                LeaseStep::Call(self.number, LeaseOrder::Release(needs.history))
            }
            Hold::Held(_) => {
                // The lease was not renewed in time: the machine was suspended, or the
                // store did not answer.
                self.hold = Hold::Not(now);
                self.is_missed = needs.is_waiting;
                self.has_unreported = true;
                LeaseStep::Wait(now)
            }
            Hold::Not(ask_at) if now < *ask_at => LeaseStep::Wait(*ask_at),
            Hold::Not(_) if self.is_freed => LeaseStep::Call(self.number, LeaseOrder::EndBackOff),
            Hold::Not(_) if self.has_unreported && needs.in_flight == 0 => {
                LeaseStep::Call(self.number, LeaseOrder::Release(needs.history))
            }
            // The node's generation number and its share of the host are outdated, so it
            // makes no claim yet.
            Hold::Not(_) if is_needed && needs.is_fleet_outdated => {
                LeaseStep::Wait(now.saturating_add(ASK_AGAIN.1))
            }
            // Afterwards the lease is claimed again, because another node may have
            // changed the delays that are known here.
            Hold::Not(_) if !self.is_missed && needs.is_waiting && rests => {
                LeaseStep::Wait(self.rests_until.unwrap_or(now))
            }
            Hold::Not(_) if is_needed => {
                self.was_claimed = true;
                self.rests_until = None;
                self.number = self.number.wrapping_add(1);
                LeaseStep::Call(self.number, LeaseOrder::Claim)
            }
            Hold::Not(_) => {
                self.is_missed = false;
                self.rests_until = None;
                LeaseStep::Rest
            }
        }
    }

    /// Returns whether the lease should be asked for.
    fn is_needed(&self, needs: &HostNeeds) -> bool {
        match needs.is_waiting {
            true => self.is_missed || self.rests_until.is_some(),
            false => self.is_missed && !self.was_claimed,
        }
    }

    /// Applies the answer to a call that was made at `asked_at`. Returns the history from
    /// earlier holders, if the answer contains one.
    pub(super) fn take(
        &mut self,
        answer: Result<LeaseAnswer, StoreLost>,
        asked_at: LeaseTime,
        now: Uptime,
    ) -> Option<HostHistory> {
        match answer {
            Ok(LeaseAnswer::Held {
                length,
                is_wanted,
                history,
            }) => {
                let before = match self.hold {
                    Hold::Held(tenure) => tenure,
                    Hold::Not(_) => Tenure::default(),
                };
                let used = length - length / UNUSED_PARTS;
                let part = match is_wanted && before.is_spare {
                    true => Duration::ZERO,
                    false => length / PARTS,
                };
                self.hold = Hold::Held(Tenure {
                    until: asked_at.uptime.saturating_add(used),
                    asked_at,
                    length: used,
                    look_at: asked_at.uptime.saturating_add(part),
                    is_wanted,
                    is_spare: false,
                    ..before
                });
                (self.is_missed, self.was_claimed) = (false, false);
                history
            }
            Ok(LeaseAnswer::Refused(time)) => {
                let (least, most) = ASK_AGAIN;
                // The history sent with a renewal was not recorded, either.
                self.has_unreported |= matches!(self.hold, Hold::Held(_));
                self.hold = Hold::Not(now.saturating_add(time.clamp(least, most)));
                None
            }
            Ok(LeaseAnswer::Noted) => {
                self.has_unreported = false;
                None
            }
            Ok(LeaseAnswer::Freed) => {
                self.is_freed = false;
                None
            }
            Err(StoreLost) => {
                let again = now.saturating_add(ASK_AGAIN.1);
                match &mut self.hold {
                    Hold::Not(ask_at) => *ask_at = again,
                    Hold::Held(tenure) => tenure.look_at = again,
                }
                None
            }
        }
    }
}
