//! Laws that every start of a simulated fleet is checked against when it happens.

use std::time::Duration;

/// Time after the last fault in which its traces may still be visible: a node comes back
/// within a heartbeat interval, and the generation that begins then opens after a lease.
const SETTLED: Duration = Duration::from_secs(5);

/// Start of a request at the origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) at: Duration,
    pub(crate) node: usize,
    /// Whether the node held no lease because it could not reach the store.
    pub(crate) is_alone: bool,
}

/// Checks the starts of a fleet.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) starts: Vec<Start>,
    /// First law that was broken.
    pub(super) broken: Option<String>,
    nodes: usize,
    /// Shortest time between two starts.
    delay: Duration,
    latest_leased: Option<Start>,
    /// Time at which the next start would be due at a rate of one per delay.
    due: Duration,
    /// Whether some node may not reach the store, or may have ended without notice, while
    /// another reaches it.
    pub(super) is_parted: bool,
    settled_at: Duration,
}

impl Watch {
    pub(super) fn new(nodes: usize, delay: Duration) -> Self {
        Self {
            starts: Vec::new(),
            broken: None,
            nodes,
            // The clocks of two nodes and of the store may differ in speed, and that of
            // the store may have jumped.
            delay: delay - delay / 100 - Duration::from_millis(1),
            latest_leased: None,
            due: Duration::ZERO,
            is_parted: false,
            settled_at: Duration::ZERO,
        }
    }

    /// Records whether the states of the nodes differ.
    pub(super) fn part(&mut self, is_parted: bool, now: Duration) {
        if is_parted || self.is_parted {
            self.settled_at = now + SETTLED;
        }
        self.is_parted = is_parted;
    }

    /// Records a start, and checks it against the laws.
    pub(super) fn start(&mut self, start: Start) {
        self.hold_leases_apart(start);
        self.hold_all_apart(start);
        self.hold_mean_rate(start);
        self.starts.push(start);
    }

    /// Checks that starts with leases keep the delay, under all faults.
    fn hold_leases_apart(&mut self, start: Start) {
        if start.is_alone {
            return;
        }
        if let Some(latest) = self.latest_leased.replace(start) {
            self.hold(start.at - latest.at, "two leases", [latest, start]);
        }
    }

    /// Checks the delay between a start with a lease and one without, if all nodes lost the
    /// store together.
    fn hold_all_apart(&mut self, start: Start) {
        let is_settled = !self.is_parted && self.settled_at <= start.at;
        let latest = self.starts.last().copied();
        if let Some(latest) =
            latest.filter(|latest| is_settled && latest.is_alone != start.is_alone)
        {
            self.hold(start.at - latest.at, "loss and return", [latest, start]);
        }
    }

    /// Checks the mean rate: one start per delay, over any time. Each node that is alone
    /// may have one extra start at either end of that time, and a few more happen before
    /// a node is missed.
    fn hold_mean_rate(&mut self, start: Start) {
        self.due = self.due.max(start.at) + self.delay;
        let nodes = u32::try_from(self.nodes).unwrap();
        if start.at + self.delay * (nodes + 4) < self.due {
            let ahead = self.due - start.at;
            self.break_law(format!("{start:?} is {ahead:?} before it is due"));
        }
    }

    fn hold(&mut self, gap: Duration, law: &str, pair: [Start; 2]) {
        if gap < self.delay {
            self.break_law(format!("{law}: {pair:?} are {gap:?} apart"));
        }
    }

    fn break_law(&mut self, how: String) {
        self.broken.get_or_insert(how);
    }
}
