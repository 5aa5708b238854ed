//! Membership of this node in the fleet, derived from the answers of the store.
//!
//! At short intervals, a node asks the store for the current members ([`Beat`]). Once the
//! store has not answered for the length of a lease, all leases have expired, and after
//! some failed heartbeats the node works alone. When it comes back, nodes may have sent
//! requests to hosts without the store's knowledge. So the store begins a new generation,
//! in which it grants no lease until all nodes have come back, or have been missing for
//! the length of a lease.
//!
//! Does no I/O, and takes the time as an argument.

use std::sync::Arc;
use std::time::Duration;

use politesse_pace::fleet_part::{AloneSince, FleetMode, FleetPart, FleetShare};

/// Number of heartbeats per lease.
const BEATS: u32 = 4;

/// Number of failed heartbeats, after its leases ended, before a node considers itself
/// alone. A suspended node has sent none in time, and some answers come too late: one in
/// 500 in the simulation. Two in a row occurred in 2,800 simulated crawls.
const FAILURES_MIN: u32 = 3;

/// Number of leases without an open generation before the node reports it. A store that
/// is back opens a generation after one lease, and after another one if the last node
/// comes back then.
const UNOPENED_LEASES: u32 = 3;

/// Conduct of a node that cannot reach the store (`fleet.on_loss`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// Each node continues alone, with the delays of the whole fleet.
    Degrade,
    /// Nothing is sent.
    Closed,
}

/// Rules of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetRules {
    /// Time for which a lease is valid without renewal.
    pub lease: Duration,
    /// Longest wait for an answer of the store.
    pub timeout: Duration,
    /// Conduct without the store.
    pub on_loss: OnLoss,
}

impl FleetRules {
    /// Longest lease (`fleet.lease`).
    pub const LEASE_MAX: Duration = Duration::from_secs(60);

    /// Returns the longest wait for an answer, or for a connection.
    ///
    /// A node that is alone may send requests for one lease after its latest failed
    /// heartbeat began ([`Membership::valid_until`]). By then another heartbeat must have
    /// ended, which begins one [`Self::beat`] after the end of the first.
    #[must_use]
    pub fn answer_max(lease: Duration) -> Duration {
        lease / 4
    }

    /// Returns the time from one heartbeat to the next.
    #[must_use]
    pub fn beat(&self) -> Duration {
        self.lease / BEATS
    }
}

/// Nodes of a fleet, as counted by the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Number of the generation.
    pub generation: u64,
    /// Time of the store, in microseconds, from which leases of the generation are
    /// granted.
    pub opens_us: u64,
    /// Time left until then.
    pub opens_in: Duration,
    /// Nodes with a heartbeat within the last lease, including this one.
    pub live: u32,
    /// Number of nodes whose names sort before this one's.
    pub place: u32,
    /// Version of `names`: the time at which the store last changed the list.
    pub list: String,
    /// Names of all nodes that are not forgotten, whether they are live or not.
    pub names: Arc<[String]>,
}

/// Membership of this node.
#[derive(Clone, Debug)]
pub struct Membership {
    rules: FleetRules,
    /// Latest answer of the store.
    latest: Option<Beat>,
    /// Time at which the heartbeat with that answer was sent. This and all other times are
    /// those of [`Scheduler::uptime`](politesse_pace::Scheduler::uptime).
    asked_at: Duration,
    /// Time of the first heartbeat since the latest answer with an open generation.
    unopened_since: Option<Duration>,
    /// Time of the first heartbeat that failed after the leases ended. Until one has, the
    /// time of the latest failed heartbeat.
    first_failure_at: Option<Duration>,
    /// Time of the latest failed heartbeat.
    latest_failure_at: Option<Duration>,
    /// Number of failed heartbeats since `first_failure_at`.
    failures: u32,
    /// Whether the node may have sent requests without a lease since the latest answer.
    is_away: bool,
    /// Whether another process has the name of this node.
    has_namesake: bool,
}

impl Membership {
    /// Creates the membership of a node that has not reached the store yet.
    #[must_use]
    pub fn new(rules: FleetRules) -> Self {
        Self {
            rules,
            latest: None,
            asked_at: Duration::ZERO,
            unopened_since: None,
            first_failure_at: None,
            latest_failure_at: None,
            failures: 0,
            is_away: false,
            has_namesake: false,
        }
    }

    /// Records the answer to a heartbeat that was sent at `asked_at`.
    pub fn take(&mut self, beat: Beat, asked_at: Duration) {
        let is_open = beat.opens_in.is_zero();
        self.unopened_since = match is_open {
            true => None,
            false => self.unopened_since.or(Some(asked_at)),
        };
        self.latest = Some(beat);
        self.asked_at = asked_at;
        self.first_failure_at = None;
        self.latest_failure_at = None;
        self.failures = 0;
        self.is_away = false;
    }

    /// Records that the heartbeat sent at `asked_at` failed.
    pub fn miss(&mut self, asked_at: Duration) {
        if !self.has_failed_after_leases() {
            self.first_failure_at = Some(asked_at);
            // Before the leases end, only the latest failure counts.
            self.failures = 0;
        }
        self.failures += 1;
        self.latest_failure_at = Some(asked_at);
        if self.is_alone() {
            // After the node has been alone, a new generation gets the full time to open.
            self.unopened_since = None;
        }
    }

    /// Returns whether a heartbeat has failed that was sent after the leases ended.
    fn has_failed_after_leases(&self) -> bool {
        self.first_failure_at
            .is_some_and(|at| self.leases_end_at() <= at)
    }

    /// Returns whether [`FAILURES_MIN`] heartbeats have failed since the leases ended.
    /// Failures before that count as at most one.
    fn is_alone(&self) -> bool {
        FAILURES_MIN <= self.failures
    }

    /// Returns whether the store answers, but has had no open generation for long,
    /// because each is replaced before it opens. In that case requests wait in vain.
    #[must_use]
    pub fn is_unopened(&self) -> bool {
        let longest = self.rules.lease * UNOPENED_LEASES;
        self.unopened_since
            .is_some_and(|since| since.saturating_add(longest) <= self.asked_at)
    }

    /// Returns the time at which the leases of this node end unless the store answers.
    fn leases_end_at(&self) -> Duration {
        self.asked_at.saturating_add(self.rules.lease)
    }

    /// Returns the latest answer.
    #[must_use]
    pub fn latest(&self) -> Option<&Beat> {
        self.latest.as_ref()
    }

    /// Returns the time since the latest answered heartbeat was sent: a lease at most, and
    /// a lease if none was answered.
    ///
    /// The store counts the node as live from that time. It does not count from
    /// heartbeats whose answers may have been lost: a node that gets no answers continues
    /// alone, and the others must leave room for it.
    #[must_use]
    pub fn time_since_answer(&self, now: Duration) -> Duration {
        match self.latest {
            Some(_) => now.saturating_sub(self.asked_at).min(self.rules.lease),
            None => self.rules.lease,
        }
    }

    /// Returns whether the node may have sent requests without a lease since the latest
    /// answer. The next heartbeat reports that to the store.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// Sets whether another process has the name of this node. The store counts both as
    /// one node, so neither knows how many nodes there are: without the store, such a
    /// node sends nothing.
    pub fn set_namesake(&mut self, has_namesake: bool) {
        self.has_namesake = has_namesake;
    }

    /// Returns the role of this node at `now`.
    pub fn part(&mut self, now: Duration) -> FleetPart {
        let closed = FleetPart {
            mode: FleetMode::Closed,
            share: FleetShare::WHOLE,
            generation: self.latest.as_ref().map_or(0, |latest| latest.generation),
        };
        let Some(latest) = &self.latest else {
            // The number of other nodes is unknown.
            return closed;
        };
        let nodes = u32::try_from(latest.names.len()).unwrap_or(u32::MAX);
        let ends = self.leases_end_at();
        match self.rules.on_loss {
            // A node without heartbeats sends nothing, so the others need not leave room
            // for it.
            OnLoss::Closed if now < ends => FleetPart {
                mode: FleetMode::Leased,
                ..closed
            },
            OnLoss::Closed => closed,
            OnLoss::Degrade if now < ends || !self.is_alone() => FleetPart {
                mode: FleetMode::Leased,
                share: FleetShare {
                    nodes,
                    sharing: latest.live.clamp(1, nodes.max(1)),
                },
                ..closed
            },
            OnLoss::Degrade if self.has_namesake => closed,
            OnLoss::Degrade => {
                self.is_away = true;
                // By then every other node has lost a lease that it renewed just before
                // its own heartbeat failed.
                let later = self.rules.beat().saturating_add(self.rules.timeout);
                FleetPart {
                    mode: FleetMode::Alone(AloneSince {
                        from: self.first_failure_at.unwrap_or(ends).saturating_add(later),
                        place: latest.place,
                    }),
                    share: FleetShare { nodes, sharing: 1 },
                    ..closed
                }
            }
        }
    }

    /// Returns when the role expires unless another heartbeat is sent: nothing starts
    /// after that.
    ///
    /// For a node that is alone, too, that is one lease after its latest heartbeat. It
    /// may have been suspended, and the store may be back, so that other nodes hold
    /// leases, though not for as long as that.
    #[must_use]
    pub fn valid_until(&self) -> Duration {
        match self.latest_failure_at.filter(|_| self.is_alone()) {
            Some(failed_at) => failed_at.saturating_add(self.rules.lease),
            None => self.leases_end_at(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn member() -> Membership {
        let mut membership = Membership::new(FleetRules {
            lease: 2 * SECOND,
            timeout: SECOND / 5,
            on_loss: OnLoss::Degrade,
        });
        let beat = Beat {
            generation: 1,
            opens_us: 0,
            opens_in: Duration::ZERO,
            live: 2,
            place: 0,
            list: "1".to_owned(),
            names: ["a".to_owned(), "b".to_owned()].into(),
        };
        membership.take(beat, 10 * SECOND);
        membership
    }

    // Ours: a process that was suspended for a minute, with a working store.
    #[test]
    fn a_node_is_not_alone_before_heartbeats_have_failed() {
        let mut membership = member();
        let later = 70 * SECOND;
        assert_eq!(membership.part(later).mode, FleetMode::Leased);
        assert!(membership.valid_until() < later);
        membership.miss(11 * SECOND);
        assert_eq!(membership.part(later).mode, FleetMode::Leased);
        // Heartbeats may be lost, and the process may be suspended after them.
        membership.miss(later);
        membership.miss(later + SECOND);
        let later = later + 5 * SECOND;
        assert_eq!(membership.part(later).mode, FleetMode::Leased);
        assert!(membership.valid_until() < later);
        membership.miss(later);
        let part = membership.part(later);
        assert!(matches!(part.mode, FleetMode::Alone(_)));
        assert!(membership.is_away());
        // As long as it sends heartbeats.
        assert_eq!(membership.valid_until(), later + 2 * SECOND);
    }

    // Ours: a store that restarts again and again answers, but never grants a lease.
    #[test]
    fn generations_that_never_open_are_noticed_after_three_leases() {
        let mut membership = member();
        let unopened = Beat {
            opens_in: SECOND,
            ..membership.latest().unwrap().clone()
        };
        for (at, expected) in [(11, false), (16, false), (17, true)] {
            membership.take(unopened.clone(), at * SECOND);
            // Failed heartbeats do not count as an open generation.
            membership.miss(at * SECOND + SECOND / 2);
            assert_eq!(membership.is_unopened(), expected, "{at}");
        }
        let open = Beat {
            opens_in: Duration::ZERO,
            ..unopened.clone()
        };
        membership.take(open, 18 * SECOND);
        assert!(!membership.is_unopened());
        membership.take(unopened.clone(), 19 * SECOND);
        assert!(!membership.is_unopened());
        // After a long loss of the store.
        (21..24).for_each(|at| membership.miss(at * SECOND));
        membership.take(unopened, 60 * SECOND);
        assert!(!membership.is_unopened());
    }

    // Ours: two nodes that are counted as one would keep only half of the delay.
    #[test]
    fn a_node_with_a_namesake_is_closed_without_the_store() {
        let mut membership = member();
        membership.set_namesake(true);
        assert_eq!(membership.part(11 * SECOND).mode, FleetMode::Leased);
        membership.miss(70 * SECOND);
        membership.miss(71 * SECOND);
        membership.miss(71 * SECOND);
        assert_eq!(membership.part(71 * SECOND).mode, FleetMode::Closed);
        assert!(!membership.is_away());
        membership.set_namesake(false);
        let part = membership.part(71 * SECOND);
        assert!(matches!(part.mode, FleetMode::Alone(_)));
    }

    // Ours: a node whose heartbeats arrive but whose answers are lost.
    #[test]
    fn a_node_counts_as_live_from_its_latest_answered_heartbeat() {
        let membership = member();
        assert_eq!(membership.time_since_answer(11 * SECOND), SECOND);
        assert_eq!(membership.time_since_answer(70 * SECOND), 2 * SECOND);
        let unheard = Membership::new(membership.rules);
        assert_eq!(unheard.time_since_answer(SECOND), 2 * SECOND);
    }
}
