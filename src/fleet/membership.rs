//! Membership of this node in the fleet: what follows from the answers of the store.
//!
//! A node asks in short intervals who is there ([`Beat`]). Once the store has not
//! answered for as long as a lease lasts, no lease holds any more, and the node is
//! alone. When it comes back, others may have asked hosts of which the store knows
//! nothing: the store begins another generation, in which no lease is given until
//! all of them have come back, or were missing for as long.
//!
//! Does no IO, and takes the time as an argument.

use std::time::Duration;

use crate::pace::fleet_part::{AloneSince, FleetMode, FleetPart, FleetShare};

/// Times within one lease that a node asks who is there.
const BEATS: u32 = 4;

/// What to do where the store cannot be reached (`fleet.on_loss`).
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
    /// What to do where the store cannot be reached.
    pub on_loss: OnLoss,
}

impl FleetRules {
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
    /// Nodes that were heard of within a lease, this one included.
    pub live: u32,
    /// Nodes that come before this one in the order of names.
    pub place: u32,
    /// Names of all nodes, heard of or not, until they are forgotten.
    pub names: Vec<String>,
}

/// Membership of this node.
#[derive(Clone, Debug)]
pub struct Membership {
    rules: FleetRules,
    /// Latest answer of the store, and when it was asked for.
    latest: Option<Beat>,
    asked_at: Duration,
    /// Whether the node may have asked hosts without a lease since then.
    is_away: bool,
}

impl Membership {
    /// Makes the membership of a node that has not reached the store yet.
    #[must_use]
    pub fn new(rules: FleetRules) -> Self {
        Self {
            rules,
            latest: None,
            asked_at: Duration::ZERO,
            is_away: false,
        }
    }

    /// Takes an answer to a question that was asked at `asked_at`.
    pub fn take(&mut self, beat: Beat, asked_at: Duration) {
        self.latest = Some(beat);
        self.asked_at = asked_at;
        self.is_away = false;
    }

    /// Returns the latest answer.
    #[must_use]
    pub fn latest(&self) -> Option<&Beat> {
        self.latest.as_ref()
    }

    /// Returns whether the node may have asked hosts without a lease since the
    /// latest answer: the store is told with the next question.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// Returns the part that this node plays at `now`.
    pub fn part(&mut self, now: Duration) -> FleetPart {
        let closed = FleetPart {
            mode: FleetMode::Closed,
            share: FleetShare::WHOLE,
        };
        let Some(latest) = &self.latest else {
            // How many others there are is not known.
            return closed;
        };
        let nodes = u32::try_from(latest.names.len()).unwrap_or(u32::MAX);
        let ends = self.asked_at.saturating_add(self.rules.lease);
        match self.rules.on_loss {
            // Who is not heard of sends nothing.
            OnLoss::Closed if now < ends => FleetPart {
                mode: FleetMode::Leased,
                ..closed
            },
            OnLoss::Closed => closed,
            OnLoss::Degrade if now < ends => FleetPart {
                mode: FleetMode::Leased,
                share: FleetShare {
                    nodes,
                    sharing: latest.live.clamp(1, nodes.max(1)),
                },
            },
            OnLoss::Degrade => {
                self.is_away = true;
                // Others may have renewed a lease until just before they asked in
                // vain themselves.
                let later = self.rules.beat().saturating_add(self.rules.timeout);
                FleetPart {
                    mode: FleetMode::Alone(AloneSince {
                        from: ends.saturating_add(later),
                        place: latest.place,
                    }),
                    share: FleetShare { nodes, sharing: 1 },
                }
            }
        }
    }

    /// Returns when the part changes at the latest, if no answer comes.
    #[must_use]
    pub fn ends_at(&self) -> Duration {
        self.asked_at.saturating_add(self.rules.lease)
    }
}
