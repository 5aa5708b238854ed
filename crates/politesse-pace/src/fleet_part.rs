//! Role of this node in a fleet of proxies, as far as the pace depends on it.
//!
//! While the store can be reached, only the node that holds the lease of a host sends
//! requests to it. Without the store, each node keeps a longer distance, so that all
//! nodes together keep the host's. A node that the others no longer hear from may be
//! doing that, so the others also keep a longer distance. When the lease of a host moves
//! to another node, its history moves with it ([`HostHistory`]). Does not know the store.

use std::time::Duration;

use jiff::SignedDuration;

/// Condition under which this node may send requests to hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetMode {
    /// With the host's lease.
    Leased,
    /// Without leases, because the store cannot be reached.
    Alone(AloneSince),
    /// Never: the store was not reached yet, or it cannot be reached and the operator has
    /// chosen to stop in that case.
    Closed,
}

/// Start of the time without a store, and the node's position in the order of starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AloneSince {
    /// Time at which all earlier leases have expired, on the scheduler's clock
    /// ([`super::Scheduler::uptime`]).
    pub from: Duration,
    /// Number of nodes that start before this one.
    pub place: u32,
}

/// Number of nodes that share a host, and the part of them that this node accounts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetShare {
    /// Nodes of the fleet, reachable or not; at least 1.
    pub nodes: u32,
    /// Nodes that share the lease with this one, including itself; at least 1.
    pub sharing: u32,
}

impl FleetShare {
    /// Share of a node that is the whole fleet.
    pub const WHOLE: Self = Self {
        nodes: 1,
        sharing: 1,
    };

    /// Returns the pause that this node keeps so that the whole fleet keeps `pause`.
    #[must_use]
    pub fn stretch(&self, pause: Duration) -> Duration {
        let sharing = self.sharing.max(1);
        if self.nodes <= sharing {
            return pause;
        }
        pause.saturating_mul(self.nodes) / sharing
    }

    /// Returns how many requests this node may have in flight, out of `most` for the
    /// whole fleet; at least 1.
    #[must_use]
    pub fn of_places(&self, most: u32) -> u32 {
        let nodes = u64::from(self.nodes.max(1));
        let own = u64::from(most) * u64::from(self.sharing) / nodes;
        u32::try_from(own).unwrap_or(most).clamp(1, most.max(1))
    }
}

/// Role of this node in a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetPart {
    /// Condition under which this node may send requests to hosts.
    pub mode: FleetMode,
    /// Share of each host.
    pub share: FleetShare,
    /// Number of the store's generation; 0 before the first. The store may have lost
    /// everything that was reported to an earlier generation.
    pub generation: u64,
}

/// History of a host as the holder of its lease knows it, in times relative to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostHistory {
    /// Time since the latest page started; `None` if unknown.
    pub started: Option<Duration>,
    /// Time since the latest page ended.
    pub ended: Option<Duration>,
    /// Time since the latest robots.txt ended, or started.
    pub robots: Option<Duration>,
    /// Pause derived from the duration of the last response.
    pub adaptive: Duration,
    /// Delay of the next robots.txt.
    pub robots_delay: Duration,
    /// Time until the host's back-off ends, or, if negative, since it ended. `None`:
    /// there was none.
    pub back_off_end: Option<SignedDuration>,
    /// Time since this node last received a 429 or 503 from the host. `None`: it received
    /// none, or only an earlier process did.
    pub asked_for_less: Option<Duration>,
    /// Number of back-offs in a row for which the host named no time.
    pub incidents: u32,
    /// Time for which the history has to be remembered: at least the longest delay of any
    /// page.
    pub remembered: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    // Ours: the mean rate of all nodes stays within one request per delay.
    #[test]
    fn a_node_stretches_pauses_by_its_share_of_the_fleet() {
        let pause = |nodes, sharing| FleetShare { nodes, sharing }.stretch(SECOND);
        assert_eq!(FleetShare::WHOLE.stretch(SECOND), SECOND);
        assert_eq!(pause(8, 1), 8 * SECOND);
        assert_eq!(pause(8, 8), SECOND);
        assert_eq!(pause(8, 6), SECOND * 8 / 6);
        assert_eq!(pause(1, 3), SECOND);
        assert_eq!(pause(0, 0), SECOND);
    }

    #[test]
    fn places_in_flight_are_shared_and_each_node_has_at_least_one() {
        let places = |nodes, sharing| FleetShare { nodes, sharing }.of_places(4);
        assert_eq!([places(1, 1), places(2, 1), places(8, 1)], [4, 2, 1]);
        assert_eq!([places(4, 3), places(0, 0), places(1, 9)], [3, 1, 4]);
    }
}
