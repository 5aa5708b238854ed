//! Lease of a host: the right of one node of a fleet to ask the host.
//!
//! Only the holder starts requests, so that every limit of the host is that of the
//! whole fleet, and no call is made for a request. The next holder learns when the
//! host was asked last ([`HostHistory`]). Where others want the host, the holder
//! hands the lease on after a while.
//!
//! Time is that of the node's monotonic clock; a lease also ends by the wall clock,
//! since the other one stands still while a machine sleeps. A call takes time, and
//! nobody knows when within it the store acted: a lease counts from when it was asked
//! for, and ages from when they came. Does not know which requests wait, nor how the
//! store is reached.

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

/// Part of a lease after which its holder renews it or hands it on.
const PARTS: u32 = 4;

/// Part of a lease that its holder does not use, since clocks differ in speed.
const UNUSED_PARTS: u32 = 50;

/// Part of a lease within which a host was asked that keeps its lease although nothing
/// waits.
const RECENT_PARTS: u32 = 16;

/// Shortest and longest time after which a node asks again for a lease that
/// another one holds.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(50));

/// Order about the lease of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOrder {
    /// Take the lease, if nobody holds it.
    Claim,
    /// Hold it for longer.
    Renew(HostHistory),
    /// Give it back, or tell of requests that ended after it was lost.
    Release(HostHistory),
    /// End the host's back-off, by order of an operator.
    EndBackOff,
}

/// Call to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseCall<'a> {
    /// Host that is asked about.
    pub host: &'a Host,
    /// Number of this node's latest claim for the host.
    pub number: u32,
    /// Action that the store is asked for.
    pub order: LeaseOrder,
}

/// Answer of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// The node holds the lease, for this time from when it asked.
    Held {
        /// Time for which it holds.
        length: Duration,
        /// Whether another node wants it.
        is_wanted: bool,
        /// History of the host: with a claim, and if an operator ended its back-off
        /// meanwhile.
        history: Option<HostHistory>,
    },
    /// Not now: another node holds it, or nobody may, for this time at most.
    Refused(Duration),
    /// What was told is known.
    Noted,
    /// The host has no back-off any more.
    Freed,
}

/// The store of the fleet did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the store of the fleet does not answer")]
pub struct StoreLost;

/// Answer to a call, when it comes.
pub type LeaseFuture<'a> =
    Pin<Box<dyn Future<Output = Result<LeaseAnswer, StoreLost>> + Send + 'a>>;

/// Store that keeps the leases of all hosts, for all nodes.
pub trait LeaseStore: fmt::Debug + Send + Sync {
    /// Carries out a call.
    fn lease<'a>(&'a self, call: LeaseCall<'a>) -> LeaseFuture<'a>;
}

/// Next step of whoever looks after the lease of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseStep {
    /// Call the store, with the number of the latest claim.
    Call(u32, LeaseOrder),
    /// Wait until then, or until something changes.
    Wait(Uptime),
    /// Nothing is left to do.
    Rest,
}

/// Needs of the requests at a host, as far as its lease depends on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostNeeds {
    /// Whether requests wait.
    pub(super) is_waiting: bool,
    /// Requests in flight.
    pub(super) in_flight: u32,
    /// Time before which none of those that wait can start.
    pub(super) next_look: Uptime,
    /// Whether one of them waits for a ceiling over many hosts, not for this one.
    pub(super) is_under_ceiling: bool,
    /// What is known of the host.
    pub(super) history: HostHistory,
    /// Whether a stop is near: other nodes are to have the host soon.
    pub(super) is_draining: bool,
    /// Whether the process stops.
    pub(super) is_closing: bool,
    /// Whether the node has to ask the store who is there before it takes a lease.
    pub(super) is_fleet_outdated: bool,
}

/// Time on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseTime {
    pub(super) uptime: Uptime,
    pub(super) wall: Timestamp,
}

/// Whether the lease is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// It is not; it is asked for from then on.
    Not(Uptime),
    /// It is.
    Held(Tenure),
}

/// Time for which a lease is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tenure {
    until: Uptime,
    /// Time at which the lease was asked for, and for how long it holds from then.
    asked_at: LeaseTime,
    length: Duration,
    /// Time from which it is renewed or handed on.
    look_at: Uptime,
    /// Whether another node wants it.
    is_wanted: bool,
    /// Time at which the latest request was started in it.
    latest_start: Option<Uptime>,
    /// Whether the host was at rest when the lease was renewed: it is given back at once
    /// if another node wants it.
    is_spare: bool,
    /// Whether it is handed on as soon as nothing is in flight.
    is_leaving: bool,
}

impl Tenure {
    /// Returns whether the lease still holds.
    fn lasts(&self, now: LeaseTime) -> bool {
        let by_wall = clock::passed(self.asked_at.wall, now.wall);
        now.uptime < self.until && by_wall < self.length
    }

    /// Returns whether the lease is to be given back now.
    fn ends(&mut self, needs: &HostNeeds, now: Uptime) -> bool {
        let is_due = self.look_at <= now;
        let is_used = self.latest_start.is_some();
        self.is_leaving |= needs.is_closing || is_due && self.is_wanted && is_used;
        // A host that is asked often is asked again soon, and a claim takes a while. Not
        // before it was used: the request that it was claimed for may be about to join
        // the queue.
        let recently = self.length / RECENT_PARTS;
        let is_recent = |start: Uptime| now < start.saturating_add(recently);
        let is_recent = self.latest_start.is_some_and(is_recent);
        let is_over = is_due && !is_recent || needs.is_draining && is_used;
        let is_idle = is_over && !needs.is_waiting;
        // The place under a ceiling is lost with the lease.
        let is_kept = needs.is_under_ceiling && !(self.is_wanted && is_due);
        let is_long = self.is_too_short(needs) && !is_kept;
        needs.in_flight == 0 && (self.is_leaving || is_idle || is_long)
    }

    /// Returns whether those that wait do so for longer than the lease lasts.
    fn is_too_short(&self, needs: &HostNeeds) -> bool {
        needs.is_waiting && self.until < needs.next_look
    }
}

/// Lease of one host, as this node knows it.
#[derive(Debug)]
pub(super) struct HostLease {
    pub(super) host: Host,
    /// Number of the latest claim: a call that was on its way for long must not end a
    /// later tenure.
    pub(super) number: u32,
    hold: Hold,
    /// Whether a request could not start for want of the lease.
    is_missed: bool,
    /// Whether it was asked for since.
    is_asked: bool,
    /// Time until which it is not asked for, since the host has asked for longer: what is
    /// known of it says when requests may start.
    rests_until: Option<Uptime>,
    /// Whether a request ended of which the store knows nothing.
    is_untold: bool,
    /// Whether the store does not know yet that an operator ended the back-off.
    is_freed: bool,
    /// Generation of the store that was told last.
    generation: u64,
    /// Whether a task looks after the lease.
    pub(super) is_kept: bool,
    /// Wakes that task.
    pub(super) keeper: Arc<Notify>,
}

impl HostLease {
    /// Makes one of a host of which the store's `generation` knows all that is to be told.
    pub(super) fn new(host: &Host, generation: u64) -> Self {
        Self {
            host: host.clone(),
            number: 0,
            hold: Hold::Not(Uptime::ZERO),
            is_missed: false,
            is_asked: false,
            rests_until: None,
            is_untold: false,
            is_freed: false,
            generation,
            is_kept: false,
            keeper: Arc::default(),
        }
    }

    /// Returns whether a request may start; if not, the lease will be asked for.
    pub(super) fn may_start(&mut self, now: LeaseTime) -> bool {
        let may_start = match &self.hold {
            Hold::Not(_) => false,
            Hold::Held(tenure) => tenure.lasts(now) && !tenure.is_leaving,
        };
        self.is_missed |= !may_start;
        may_start
    }

    /// Returns whether the lease was given back because all that wait do so for long.
    pub(super) fn rests(&self, now: Uptime) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    /// Returns whether a request that was started in the tenure of this number may
    /// still be sent.
    pub(super) fn holds(&self, number: u32, now: LeaseTime) -> bool {
        let lasts = matches!(&self.hold, Hold::Held(tenure) if tenure.lasts(now));
        lasts && self.number == number
    }

    /// Notes that a request was started. Returns the number of the tenure.
    pub(super) fn use_up(&mut self, now: Uptime) -> u32 {
        if let Hold::Held(tenure) = &mut self.hold {
            tenure.latest_start = Some(now);
        }
        self.number
    }

    /// Notes that a request ended.
    pub(super) fn end(&mut self) {
        self.is_untold |= matches!(self.hold, Hold::Not(_));
    }

    /// Has the store know at once what the host asked for: this node may end before
    /// it renews the lease.
    pub(super) fn tell(&mut self) {
        // An operator has ended an earlier one.
        self.is_freed = false;
        match &mut self.hold {
            Hold::Not(_) => self.is_untold = true,
            Hold::Held(tenure) => tenure.look_at = Uptime::ZERO,
        }
    }

    /// Takes in the generation of the store. Another one knows nothing of a host that is to
    /// be left alone, as this one is if `is_left_alone`.
    pub(super) fn enter(&mut self, generation: u64, is_left_alone: bool) {
        if self.generation != generation {
            self.generation = generation;
            self.is_untold |= is_left_alone;
        }
    }

    /// Has the store know that an operator ended the host's back-off.
    pub(super) fn free(&mut self) {
        self.is_freed = true;
        if let Hold::Held(tenure) = &mut self.hold {
            tenure.look_at = Uptime::ZERO;
        }
    }

    /// Returns whether the host asked for something of which the store knows nothing.
    pub(super) fn is_untold(&self) -> bool {
        self.is_untold
    }

    /// Gives up the lease, since the store was lost, and what was to be told, but for what
    /// an operator has said.
    pub(super) fn forget(&mut self) {
        self.hold = Hold::Not(Uptime::ZERO);
        self.is_missed = false;
        self.is_asked = false;
        self.rests_until = None;
        self.is_untold = false;
        // Once the store is back, it is told of what is still on.
        self.generation = 0;
    }

    /// Returns whether this node holds the lease.
    pub(super) fn is_held(&self, now: Uptime) -> bool {
        matches!(&self.hold, Hold::Held(tenure) if now < tenure.until)
    }

    /// Returns whether this node holds the lease and another one waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        matches!(&self.hold, Hold::Held(tenure) if tenure.is_wanted || tenure.is_leaving)
    }

    /// Returns whether something has to be done about the lease.
    pub(super) fn is_due(&self) -> bool {
        let is_held = matches!(self.hold, Hold::Held(_));
        let is_asked_for = self.is_missed || self.rests_until.is_some();
        is_asked_for || self.is_untold || self.is_freed || is_held
    }

    /// Returns whether a request could not start for want of the lease.
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
                // From here on, also if the answer is lost. The others may have it
                // first, who ask more often than that.
                self.hold = Hold::Not(now.saturating_add(2 * ASK_AGAIN.1));
                self.is_untold = true;
                LeaseStep::Call(self.number, LeaseOrder::Release(needs.history))
            }
            Hold::Held(_) => {
                // Nobody renewed it in time: the machine stood still, or the store
                // did not answer.
                self.hold = Hold::Not(now);
                self.is_missed = needs.is_waiting;
                self.is_untold = true;
                LeaseStep::Wait(now)
            }
            Hold::Not(ask_at) if now < *ask_at => LeaseStep::Wait(*ask_at),
            Hold::Not(_) if self.is_freed => LeaseStep::Call(self.number, LeaseOrder::EndBackOff),
            Hold::Not(_) if self.is_untold && needs.in_flight == 0 => {
                LeaseStep::Call(self.number, LeaseOrder::Release(needs.history))
            }
            // The number of its generation is old, and so is its share of the host.
            Hold::Not(_) if is_needed && needs.is_fleet_outdated => {
                LeaseStep::Wait(now.saturating_add(ASK_AGAIN.1))
            }
            // What is known here may have changed at another node.
            Hold::Not(_) if !self.is_missed && needs.is_waiting && rests => {
                LeaseStep::Wait(self.rests_until.unwrap_or(now))
            }
            Hold::Not(_) if is_needed => {
                self.is_asked = true;
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

    /// Returns whether the lease is to be asked for.
    fn is_needed(&self, needs: &HostNeeds) -> bool {
        match needs.is_waiting {
            true => self.is_missed || self.rests_until.is_some(),
            false => self.is_missed && !self.is_asked,
        }
    }

    /// Takes the answer to a call that was made at `asked_at`. Returns what earlier
    /// holders knew, if the lease was taken.
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
                (self.is_missed, self.is_asked) = (false, false);
                history
            }
            Ok(LeaseAnswer::Refused(time)) => {
                let (least, most) = ASK_AGAIN;
                // What was told with a renewal is not there, either.
                self.is_untold |= matches!(self.hold, Hold::Held(_));
                self.hold = Hold::Not(now.saturating_add(time.clamp(least, most)));
                None
            }
            Ok(LeaseAnswer::Noted) => {
                self.is_untold = false;
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
