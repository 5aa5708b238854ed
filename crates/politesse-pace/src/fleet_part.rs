//! Part that this node plays in a fleet of proxies, as far as the pace depends on it.
//!
//! As long as the store can be reached, a host is asked by the one node that holds
//! its lease. Without the store each node keeps a longer distance, so that all
//! together keep the host's. A node that others do not hear of may be doing that, so
//! that they keep a longer distance, too. Does not know the store. Where a host
//! changes hands, its history goes along ([`HostHistory`]).

use std::time::Duration;

use jiff::SignedDuration;

/// How this node may ask hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetMode {
    /// With the host's lease.
    Leased,
    /// Without, since the store cannot be reached.
    Alone(AloneSince),
    /// Not at all: the store cannot be reached, and that is what the operator wants
    /// then, or it was not reached yet.
    Closed,
}

/// Since when a node is alone, and after how many others it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AloneSince {
    /// Time at which no lease of before holds any more, on the scheduler's clock
    /// ([`super::Scheduler::uptime`]).
    pub from: Duration,
    /// Nodes that begin before this one.
    pub place: u32,
}

/// How many nodes share a host, and for how many this one stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetShare {
    /// Nodes of the fleet, heard of or not; at least 1.
    pub nodes: u32,
    /// Nodes that share the lease with this one, itself included; at least 1.
    pub sharing: u32,
}

impl FleetShare {
    /// Share of a node that is the whole fleet.
    pub const WHOLE: Self = Self {
        nodes: 1,
        sharing: 1,
    };

    /// Returns the distance that this node keeps, where the fleet keeps `pause`.
    #[must_use]
    pub fn stretch(&self, pause: Duration) -> Duration {
        let sharing = self.sharing.max(1);
        if self.nodes <= sharing {
            return pause;
        }
        pause.saturating_mul(self.nodes) / sharing
    }

    /// Returns how many requests this node may have in flight, of `most` in all; at
    /// least 1.
    #[must_use]
    pub fn of_places(&self, most: u32) -> u32 {
        let nodes = u64::from(self.nodes.max(1));
        let own = u64::from(most) * u64::from(self.sharing) / nodes;
        u32::try_from(own).unwrap_or(most).clamp(1, most.max(1))
    }
}

/// Part that this node plays in a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetPart {
    /// How it may ask hosts.
    pub mode: FleetMode,
    /// Its share of each host.
    pub share: FleetShare,
    /// Number of the store's generation; 0 before the first. Of what was told to an
    /// earlier one the store may know nothing.
    pub generation: u64,
}

/// History of a host as the holder of its lease knows it, in times from now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostHistory {
    /// Time since the latest page began; `None`: none is known.
    pub started: Option<Duration>,
    /// Time since the latest page ended.
    pub ended: Option<Duration>,
    /// Time since the latest robots.txt ended, or began.
    pub robots: Option<Duration>,
    /// Pause that follows from how long the last response took.
    pub adaptive: Duration,
    /// Delay that the next robots.txt keeps.
    pub robots_delay: Duration,
    /// Time until the host's back-off ends, or since it ended; `None`: there was
    /// none.
    pub back_off_end: Option<SignedDuration>,
    /// Time since the host asked this node for less; `None`: it did not, or another
    /// process of it knows.
    pub asked_for_less: Option<Duration>,
    /// Back-offs in a row in which the host named no time.
    pub incidents: u32,
    /// Time for which this has to be remembered: the longest delay that any page
    /// asked for.
    pub remembered: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    // Ours: operations.md, 2.3: the mean rate of all stays within one request in a
    // delay.
    #[test]
    fn a_node_keeps_the_distance_of_those_that_it_stands_for() {
        let pause = |nodes, sharing| FleetShare { nodes, sharing }.stretch(SECOND);
        assert_eq!(FleetShare::WHOLE.stretch(SECOND), SECOND);
        assert_eq!(pause(8, 1), 8 * SECOND);
        assert_eq!(pause(8, 8), SECOND);
        assert_eq!(pause(8, 6), SECOND * 8 / 6);
        assert_eq!(pause(1, 3), SECOND);
        assert_eq!(pause(0, 0), SECOND);
    }

    #[test]
    fn places_are_shared_and_each_node_has_one() {
        let places = |nodes, sharing| FleetShare { nodes, sharing }.of_places(4);
        assert_eq!([places(1, 1), places(2, 1), places(8, 1)], [4, 2, 1]);
        assert_eq!([places(4, 3), places(0, 0), places(1, 9)], [3, 1, 4]);
    }
}
