//! State of a fleet for people: its nodes, when they were last heard of, and whether
//! they have the same configuration.
//!
//! Each node leaves a note in the store ([`NodeNote`]) and reads those of the others.
//! Nothing that is sent to a site depends on one: whoever can write to the store can
//! write a note. Does no IO.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::options::Options;
use politesse_base::clock;
use politesse_decision::digest::Digest;
use politesse_pace::fleet_part::FleetMode;

/// Longest note that is read, in bytes.
const NOTE_BYTES_MAX: usize = 4096;

/// Digests of what all nodes of a fleet have alike, by part of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConfigurationDigests(pub BTreeMap<String, String>);

impl ConfigurationDigests {
    /// Returns the SHA-256 of all parts.
    #[must_use]
    pub fn whole(&self) -> Digest {
        let lines = self
            .0
            .iter()
            .map(|(part, digest)| format!("{part} {digest}\n"));
        Digest::of(lines.collect::<String>().as_bytes())
    }

    /// Returns the parts that are not as `other` has them. One that only one of them
    /// has is of another version of the program, and is not compared.
    #[must_use]
    pub fn differing(&self, other: &Self) -> Vec<String> {
        let differs = |(part, digest): &(&String, &String)| {
            other.0.get(*part).is_some_and(|theirs| theirs != *digest)
        };
        let parts = self.0.iter().filter(differs);
        parts.map(|(part, _)| part.clone()).collect()
    }
}

/// Note that a node leaves in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeNote {
    /// Version of its program.
    pub version: String,
    /// Name of its process: a node that starts again has another one. Empty in notes of
    /// versions that did not say it.
    #[serde(default)]
    pub process: String,
    /// Time at which its process began.
    pub started: Timestamp,
    /// Whether it is about to stop (`proxy.drain_time`).
    pub is_draining: bool,
    /// Hosts whose lease it holds.
    pub hosts: u64,
    /// Digests of the configuration that all nodes should have alike.
    pub configuration: ConfigurationDigests,
}

impl NodeNote {
    /// Reads a note; `None` if it is none.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Self> {
        // Whoever fills the store must not fill the memory of each node with it.
        let is_short = text.len() <= NOTE_BYTES_MAX;
        is_short.then(|| serde_json::from_slice(text).ok())?
    }
}

/// A node, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSighting {
    /// Name.
    pub name: String,
    /// Time since it was last heard of.
    pub age: Duration,
    /// Its note, if it has left one.
    pub note: Option<NodeNote>,
}

/// Nodes as they were when the store was last asked.
#[derive(Debug)]
struct NodesSeen {
    at: Instant,
    sightings: Vec<NodeSighting>,
}

/// Whether a node can be reckoned with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Heard of within a lease.
    Live,
    /// Heard of within a lease, and about to stop (`proxy.drain_time`).
    Draining,
    /// Not heard of within a lease.
    Missing,
}

impl NodeState {
    /// Word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Draining => "draining",
            Self::Missing => "missing",
        }
    }
}

/// A node, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetNode {
    /// Name (`fleet.node`).
    pub node: String,
    /// Whether it can be reckoned with.
    pub state: NodeState,
    /// Time since it was last heard of.
    pub heartbeat_ms: u64,
    /// Version of its program.
    pub version: Option<String>,
    /// Time at which its process began.
    pub started: Option<Timestamp>,
    /// Hosts whose lease it holds.
    pub hosts: Option<u64>,
    /// SHA-256 of what it should have as the others do.
    pub configuration: Option<String>,
    /// Parts of that which the node that was asked has otherwise.
    pub differs: Vec<String>,
}

/// How a node stands to its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetStanding {
    /// The node asks hosts by their leases.
    Joined,
    /// The store cannot be reached, and the node paces hosts by itself.
    Alone,
    /// The store cannot be reached, and nothing is sent.
    Closed,
}

impl FleetStanding {
    /// Word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Alone => "alone",
            Self::Closed => "closed",
        }
    }
}

impl From<FleetMode> for FleetStanding {
    fn from(mode: FleetMode) -> Self {
        match mode {
            FleetMode::Leased => Self::Joined,
            FleetMode::Alone(_) => Self::Alone,
            FleetMode::Closed => Self::Closed,
        }
    }
}

/// Store that takes orders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreState {
    /// Its address.
    pub address: String,
    /// Time that its latest answer took.
    pub latency_ms: f64,
    /// Number of its generation: one more after each fail-over, and after each return of
    /// a node that was alone.
    pub generation: u64,
    /// Whether each generation was followed by another one before it gave a lease, for three
    /// leases.
    #[serde(default)]
    pub is_unopened: bool,
}

/// State of a fleet, as one node knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// Name (`fleet.name`).
    pub fleet: String,
    /// The node that was asked.
    pub node: String,
    /// Whether another process has the name of that node: the fleet counts both as one.
    #[serde(default)]
    pub has_namesake: bool,
    /// How it stands to the fleet.
    pub mode: FleetStanding,
    /// The store; absent while none can be reached.
    pub store: Option<StoreState>,
    /// Whether a robots.txt is fetched once for all nodes (`fleet.key`).
    pub shares_robots: bool,
    /// SHA-256 of each part of the configuration that the nodes should have alike.
    pub configuration: ConfigurationDigests,
    /// All nodes, in the order of their names.
    pub nodes: Vec<FleetNode>,
}

/// Answer of `/api/v1/fleet`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetAnswer {
    /// State of the fleet; absent if the proxy is in none.
    pub fleet: Option<FleetStatus>,
}

impl FleetStatus {
    /// Returns whether the store answers, and begins the fleet again and again
    /// ([`StoreState::is_unopened`]).
    #[must_use]
    pub fn is_unopened(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.is_unopened)
    }

    /// Returns where live nodes have another configuration than the one that was asked.
    #[must_use]
    pub fn difference(&self) -> ConfigurationDifference {
        difference(&self.nodes)
    }
}

/// Differences between the configuration of live nodes and that of this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigurationDifference {
    /// Nodes that have one.
    pub nodes: Vec<String>,
    /// Parts of the configuration that differ.
    pub parts: BTreeSet<String>,
}

fn difference(nodes: &[FleetNode]) -> ConfigurationDifference {
    // A node that is missing may come back with the same.
    let live = nodes.iter().filter(|node| node.state != NodeState::Missing);
    let mut difference = ConfigurationDifference::default();
    for node in live.filter(|node| !node.differs.is_empty()) {
        difference.nodes.push(node.node.clone());
        difference.parts.extend(node.differs.iter().cloned());
    }
    difference
}

/// Note of this node, and those of the others as they were last read.
#[derive(Debug)]
pub struct FleetBoard {
    lease: Duration,
    configuration: ArcSwap<ConfigurationDigests>,
    seen: ArcSwap<NodesSeen>,
}

impl FleetBoard {
    /// Makes the board of a node that has read nothing yet.
    #[must_use]
    pub fn new(options: &Options, configuration: ConfigurationDigests) -> Self {
        Self {
            lease: options.rules.lease,
            configuration: ArcSwap::from_pointee(configuration),
            seen: ArcSwap::from_pointee(NodesSeen {
                at: clock::instant(),
                sightings: Vec::new(),
            }),
        }
    }

    /// Sets what this node should have as the others do.
    pub fn set_configuration(&self, configuration: ConfigurationDigests) {
        self.configuration.store(Arc::new(configuration));
    }

    /// Returns what this node should have as the others do.
    #[must_use]
    pub fn configuration(&self) -> Arc<ConfigurationDigests> {
        self.configuration.load_full()
    }

    /// Takes what the store knows of all nodes.
    pub fn see(&self, sightings: Vec<NodeSighting>) {
        let at = clock::instant();
        self.seen.store(Arc::new(NodesSeen { at, sightings }));
    }

    /// Returns the nodes, in the order of their names.
    #[must_use]
    pub fn nodes(&self) -> Vec<FleetNode> {
        let (seen, own) = (self.seen.load(), self.configuration.load());
        let passed = clock::instant().saturating_duration_since(seen.at);
        let shown = |sighting: &NodeSighting| shown(sighting, passed, &own, self.lease);
        let mut nodes: Vec<_> = seen.sightings.iter().map(shown).collect();
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
        nodes
    }

    /// Returns where live nodes have another configuration than this one.
    #[must_use]
    pub fn difference(&self) -> ConfigurationDifference {
        difference(&self.nodes())
    }
}

/// Returns a node as it is shown, `passed` after the store was asked.
fn shown(
    sighting: &NodeSighting,
    passed: Duration,
    own: &ConfigurationDigests,
    lease: Duration,
) -> FleetNode {
    let note = sighting.note.as_ref();
    // What happened since is not known: it may have been heard of again.
    let state = if lease < sighting.age {
        NodeState::Missing
    } else if note.is_some_and(|note| note.is_draining) {
        NodeState::Draining
    } else {
        NodeState::Live
    };
    let heartbeat = sighting.age.saturating_add(passed);
    FleetNode {
        node: sighting.name.clone(),
        state,
        heartbeat_ms: u64::try_from(heartbeat.as_millis()).unwrap_or(u64::MAX),
        version: note.map(|note| note.version.clone()),
        started: note.map(|note| note.started),
        hosts: note.map(|note| note.hosts),
        configuration: note.map(|note| note.configuration.whole().to_string()),
        differs: note.map_or_else(Vec::new, |note| own.differing(&note.configuration)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(parts: &[(&str, &str)]) -> ConfigurationDigests {
        let parts = parts
            .iter()
            .map(|(part, digest)| ((*part).to_owned(), (*digest).to_owned()));
        ConfigurationDigests(parts.collect())
    }

    fn sighting(name: &str, seconds: u64, pace: &str) -> NodeSighting {
        NodeSighting {
            name: name.to_owned(),
            age: Duration::from_secs(seconds),
            note: Some(NodeNote {
                version: "1.0.0".to_owned(),
                process: format!("{name}#1"),
                started: Timestamp::UNIX_EPOCH,
                is_draining: name == "c",
                hosts: 3,
                configuration: digests(&[("pace", pace), ("policy", "1")]),
            }),
        }
    }

    // Ours: a part that another version of the program does not know is not compared.
    #[test]
    fn parts_that_both_have_are_compared() {
        let one = digests(&[("ca", "1"), ("pace", "2"), ("robots", "3")]);
        let other = digests(&[("ca", "1"), ("pace", "4"), ("policy", "5")]);
        assert_eq!(one.differing(&other), ["pace"]);
        assert_ne!(one.whole(), other.whole());
    }

    // Ours: a node that is missing may have been stopped to be configured anew.
    #[test]
    fn live_nodes_with_another_configuration_are_named_with_its_parts() {
        let lease = Duration::from_secs(2);
        let own = digests(&[("pace", "1"), ("policy", "1")]);
        let nodes = [
            sighting("a", 0, "1"),
            sighting("b", 1, "2"),
            sighting("c", 1, "1"),
            sighting("d", 3, "2"),
        ];
        let shown = nodes.map(|node| shown(&node, Duration::from_millis(5), &own, lease));
        let states = shown.each_ref().map(|node| node.state.as_str());
        assert_eq!(states, ["live", "live", "draining", "missing"]);
        assert_eq!(shown[1].heartbeat_ms, 1005);
        let found = difference(&shown);
        assert_eq!(found.nodes, ["b"]);
        assert!(found.parts.iter().eq(["pace"]));
    }

    // Ours: whoever can write to the store can leave anything there.
    #[test]
    fn what_is_no_note_or_too_long_is_none() {
        let NodeSighting { note, .. } = sighting("a", 0, "1");
        let text = serde_json::to_vec(&note).unwrap();
        assert_eq!(NodeNote::read(&text), note);
        let long = serde_json::to_vec(&sighting("a", 0, &"1".repeat(NOTE_BYTES_MAX)).note);
        for wrong in [b"{}".to_vec(), b"\xff".to_vec(), long.unwrap()] {
            assert_eq!(NodeNote::read(&wrong), None);
        }
    }
}
