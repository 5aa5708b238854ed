//! Membership of this node in the fleet: what follows from the answers of the store.
//!
//! A node asks in short intervals who is there ([`Beat`]). Once the store has not
//! answered for as long as a lease lasts, no lease holds any more, and after some
//! questions in vain the node is alone. When it comes back, others may have asked hosts of
//! which the store knows nothing: the store begins another generation, in which no lease
//! is given until all of them have come back, or were missing for as long.
//!
//! Does no IO, and takes the time as an argument.

use std::sync::Arc;
use std::time::Duration;

use politesse_pace::fleet_part::{AloneSince, FleetMode, FleetPart, FleetShare};

/// Times within one lease that a node asks who is there.
const BEATS: u32 = 4;

/// Questions that are asked in vain, after its leases ended, before a node takes itself
/// to be alone. A node that stood still has asked none in time, and some answers come
/// too late: of 500, one in the simulation. Two of them in a row were met in 2,800
/// simulated crawls.
const VAIN_MIN: u32 = 3;

/// Leases for which no generation has to open before a node says so. A store that is back
/// has one open after a lease, and after another one if the last node comes back then.
const UNOPENED_LEASES: u32 = 3;

/// Conduct of a node that cannot reach the store (`fleet.on_loss`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// Each node goes on by itself, with the distances of the whole fleet.
    Degrade,
    /// Nothing is sent.
    Closed,
}

/// Rules of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetRules {
    /// Time for which a lease holds without being renewed.
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
    /// A node that is alone sends for a lease from when it asked in vain
    /// ([`Membership::valid_until`]). By then another question must have ended, which
    /// begins a [`Self::beat`] after the end of the first.
    #[must_use]
    pub fn answer_max(lease: Duration) -> Duration {
        lease / 4
    }

    /// Returns the time from one question who is there to the next.
    #[must_use]
    pub fn beat(&self) -> Duration {
        self.lease / BEATS
    }
}

/// Nodes of a fleet, as the store counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Number of the generation.
    pub generation: u64,
    /// Time of the store, in microseconds, from which on leases of the generation
    /// are given.
    pub opens_us: u64,
    /// Time that was left until then.
    pub opens_in: Duration,
    /// Nodes that were heard of within a lease, this one included.
    pub live: u32,
    /// Nodes that come before this one in the order of names.
    pub place: u32,
    /// Number of the list of names: the time at which the store changed it last.
    pub list: String,
    /// Names of all nodes, heard of or not, until they are forgotten.
    pub names: Arc<[String]>,
}

/// Membership of this node.
#[derive(Clone, Debug)]
pub struct Membership {
    rules: FleetRules,
    /// Latest answer of the store, and when it was asked for.
    latest: Option<Beat>,
    asked_at: Duration,
    /// Time of the first question since the latest answer of a generation that was open.
    unopened_since: Option<Duration>,
    /// Time of the first question that was asked in vain since the leases ended; before
    /// that, of any that was.
    unheard_at: Option<Duration>,
    /// Time of the latest question that was asked in vain.
    missed_at: Option<Duration>,
    /// Questions that were asked in vain since `unheard_at`.
    vain: u32,
    /// Whether the node may have asked hosts without a lease since then.
    is_away: bool,
    /// Whether another process has the name of this node.
    has_namesake: bool,
}

impl Membership {
    /// Makes the membership of a node that has not reached the store yet.
    #[must_use]
    pub fn new(rules: FleetRules) -> Self {
        Self {
            rules,
            latest: None,
            asked_at: Duration::ZERO,
            unopened_since: None,
            unheard_at: None,
            missed_at: None,
            vain: 0,
            is_away: false,
            has_namesake: false,
        }
    }

    /// Takes an answer to a question that was asked at `asked_at`.
    pub fn take(&mut self, beat: Beat, asked_at: Duration) {
        let is_open = beat.opens_in.is_zero();
        self.unopened_since = match is_open {
            true => None,
            false => self.unopened_since.or(Some(asked_at)),
        };
        self.latest = Some(beat);
        self.asked_at = asked_at;
        self.unheard_at = None;
        self.missed_at = None;
        self.vain = 0;
        self.is_away = false;
    }

    /// Takes note that a question was not answered that was asked at `asked_at`.
    pub fn miss(&mut self, asked_at: Duration) {
        if !self.has_asked_in_vain() {
            self.unheard_at = Some(asked_at);
            // Before the leases end, none counts but the latest.
            self.vain = 0;
        }
        self.vain += 1;
        self.missed_at = Some(asked_at);
        if self.is_alone() {
            // One that is back then is given the time for it.
            self.unopened_since = None;
        }
    }

    fn has_asked_in_vain(&self) -> bool {
        self.unheard_at.is_some_and(|at| self.leases_end_at() <= at)
    }

    /// Returns whether [`VAIN_MIN`] questions were asked in vain since the leases ended:
    /// only from then on is more than one counted.
    fn is_alone(&self) -> bool {
        VAIN_MIN <= self.vain
    }

    /// Returns whether the store answers, but this node has met no generation that was open
    /// for long: each is followed by another one before. Hosts are waited for in vain then.
    #[must_use]
    pub fn is_unopened(&self) -> bool {
        let longest = self.rules.lease * UNOPENED_LEASES;
        self.unopened_since
            .is_some_and(|since| since.saturating_add(longest) <= self.asked_at)
    }

    fn leases_end_at(&self) -> Duration {
        self.asked_at.saturating_add(self.rules.lease)
    }

    /// Returns the latest answer.
    #[must_use]
    pub fn latest(&self) -> Option<&Beat> {
        self.latest.as_ref()
    }

    /// Returns how long ago the question was asked that was answered last; a whole
    /// lease at most, and where none was.
    ///
    /// The store counts a node as heard of from there on, and not from a question of
    /// which nobody knows whether its answer came: a node that gets no answers goes on
    /// alone, and the others must leave room for it.
    #[must_use]
    pub fn heard_before(&self, now: Duration) -> Duration {
        match self.latest {
            Some(_) => now.saturating_sub(self.asked_at).min(self.rules.lease),
            None => self.rules.lease,
        }
    }

    /// Returns whether the node may have asked hosts without a lease since the
    /// latest answer: the store is told with the next question.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// Sets whether another process has the name of this node. The store counts both as
    /// one, so that neither knows how many nodes there are: alone, it sends nothing.
    pub fn set_namesake(&mut self, has_namesake: bool) {
        self.has_namesake = has_namesake;
    }

    /// Returns the part that this node plays at `now`.
    pub fn part(&mut self, now: Duration) -> FleetPart {
        let closed = FleetPart {
            mode: FleetMode::Closed,
            share: FleetShare::WHOLE,
            generation: self.latest.as_ref().map_or(0, |latest| latest.generation),
        };
        let Some(latest) = &self.latest else {
            // How many others there are is not known.
            return closed;
        };
        let nodes = u32::try_from(latest.names.len()).unwrap_or(u32::MAX);
        let ends = self.leases_end_at();
        match self.rules.on_loss {
            // Who is not heard of sends nothing.
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
                // By then no other node holds a lease that it renewed until just before it
                // asked in vain itself.
                let later = self.rules.beat().saturating_add(self.rules.timeout);
                FleetPart {
                    mode: FleetMode::Alone(AloneSince {
                        from: self.unheard_at.unwrap_or(ends).saturating_add(later),
                        place: latest.place,
                    }),
                    share: FleetShare { nodes, sharing: 1 },
                    ..closed
                }
            }
        }
    }

    /// Returns when the part ends if no question is asked until then: nothing starts from
    /// then on.
    ///
    /// That is a lease after the latest question also for a node that is alone. It may
    /// have stood still, and the store may be back: other nodes have leases then, though
    /// none for as long as that.
    #[must_use]
    pub fn valid_until(&self) -> Duration {
        match self.missed_at.filter(|_| self.is_alone()) {
            Some(missed_at) => missed_at.saturating_add(self.rules.lease),
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

    // Ours: a process that stood still for a minute, beside a store that is there.
    #[test]
    fn a_node_is_not_alone_before_it_has_asked_in_vain() {
        let mut membership = member();
        let later = 70 * SECOND;
        assert_eq!(membership.part(later).mode, FleetMode::Leased);
        assert!(membership.valid_until() < later);
        membership.miss(11 * SECOND);
        assert_eq!(membership.part(later).mode, FleetMode::Leased);
        // Questions may be lost, and the process may stand still after them.
        membership.miss(later);
        membership.miss(later + SECOND);
        let later = later + 5 * SECOND;
        assert_eq!(membership.part(later).mode, FleetMode::Leased);
        assert!(membership.valid_until() < later);
        membership.miss(later);
        let part = membership.part(later);
        assert!(matches!(part.mode, FleetMode::Alone(_)));
        assert!(membership.is_away());
        // As long as it asks.
        assert_eq!(membership.valid_until(), later + 2 * SECOND);
    }

    // Ours: a store that starts again and again answers, and never has a lease to give.
    #[test]
    fn generations_none_of_which_opens_are_noticed_after_three_leases() {
        let mut membership = member();
        let unopened = Beat {
            opens_in: SECOND,
            ..membership.latest().unwrap().clone()
        };
        for (at, expected) in [(11, false), (16, false), (17, true)] {
            membership.take(unopened.clone(), at * SECOND);
            // Answers that are missing are not of an open one.
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
        // Lost for long.
        (21..24).for_each(|at| membership.miss(at * SECOND));
        membership.take(unopened, 60 * SECOND);
        assert!(!membership.is_unopened());
    }

    // Ours: two nodes that are counted as one would keep half of the distance.
    #[test]
    fn a_node_whose_name_another_one_has_is_not_alone_but_closed() {
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

    // Ours: a node that is heard, and does not hear.
    #[test]
    fn a_node_counts_from_the_question_that_was_answered() {
        let membership = member();
        assert_eq!(membership.heard_before(11 * SECOND), SECOND);
        assert_eq!(membership.heard_before(70 * SECOND), 2 * SECOND);
        let unheard = Membership::new(membership.rules);
        assert_eq!(unheard.heard_before(SECOND), 2 * SECOND);
    }
}
