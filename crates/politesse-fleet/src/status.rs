//! State of a fleet for users: its nodes, their latest heartbeats, and whether they have
//! the same configuration.
//!
//! Each node leaves a note in the store ([`NodeNote`]) and reads those of the others. No
//! request to a site depends on a note, because anyone with write access to the store can
//! write one. Does no I/O.

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

/// Digests of the configuration that all nodes of a fleet should share, by part.
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

    /// Returns the parts that differ from those of `other`. A part that only one of them
    /// has comes from another version of the program, and is not compared.
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
    /// Version of the program.
    pub version: String,
    /// Name of the process, which changes at each restart of the node. Empty in notes of
    /// versions without this field.
    #[serde(default)]
    pub process: String,
    /// Time at which the process began.
    pub started: Timestamp,
    /// Whether the node is about to stop (`proxy.drain_time`).
    pub is_draining: bool,
    /// Number of hosts whose lease the node holds.
    pub hosts: u64,
    /// Digests of the configuration that all nodes should share.
    pub configuration: ConfigurationDigests,
}

impl NodeNote {
    /// Parses a note; `None` if the text is not a note.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Self> {
        // Limited in size, so that other programs cannot fill the memory of each node
        // through the store.
        let is_short = text.len() <= NOTE_BYTES_MAX;
        is_short.then(|| serde_json::from_slice(text).ok())?
    }
}

/// Heartbeat and note of a node, as found in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSighting {
    /// Name.
    pub name: String,
    /// Time since its latest heartbeat.
    pub age: Duration,
    /// Note of the node, if it has left one.
    pub note: Option<NodeNote>,
}

/// Nodes as of the latest answer of the store.
#[derive(Debug)]
struct NodesSeen {
    /// Time of the answer.
    at: Instant,
    sightings: Vec<NodeSighting>,
}

/// Availability of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Heartbeat within the last lease.
    Live,
    /// Heartbeat within the last lease, and about to stop (`proxy.drain_time`).
    Draining,
    /// No heartbeat within the last lease.
    Missing,
}

impl NodeState {
    /// Returns the state as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Draining => "draining",
            Self::Missing => "missing",
        }
    }
}

/// Node as shown to users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetNode {
    /// Name (`fleet.node`).
    pub node: String,
    /// Availability of the node.
    pub state: NodeState,
    /// Time since its latest heartbeat.
    pub heartbeat_ms: u64,
    /// Version of the program.
    pub version: Option<String>,
    /// Time at which its process began.
    pub started: Option<Timestamp>,
    /// Number of hosts whose lease it holds.
    pub hosts: Option<u64>,
    /// SHA-256 of the configuration that all nodes should share.
    pub configuration: Option<String>,
    /// Parts of that configuration that differ from those of the queried node.
    pub differs: Vec<String>,
}

/// Relation of a node to its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetStanding {
    /// The node uses the leases of hosts.
    Joined,
    /// The store cannot be reached, and the node paces hosts alone.
    Alone,
    /// The store cannot be reached, and nothing is sent.
    Closed,
}

impl FleetStanding {
    /// Returns the standing as a word.
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

/// Store server that accepts commands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreState {
    /// Address of the server.
    pub address: String,
    /// Time that its latest answer took.
    pub latency_ms: f64,
    /// Number of its generation: incremented after each fail-over, and after each return
    /// of a node that was alone.
    pub generation: u64,
    /// Whether, for three leases, each generation was replaced before it granted a lease.
    #[serde(default)]
    pub is_unopened: bool,
}

/// State of a fleet, as one node knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// Name (`fleet.name`).
    pub fleet: String,
    /// The queried node.
    pub node: String,
    /// Whether another process has the name of that node. The fleet counts both as one.
    #[serde(default)]
    pub has_namesake: bool,
    /// Relation of that node to the fleet.
    pub mode: FleetStanding,
    /// The store; absent if no server can be reached.
    pub store: Option<StoreState>,
    /// Whether each robots.txt is fetched once for all nodes (`fleet.key`).
    pub shares_robots: bool,
    /// SHA-256 of each part of the configuration that the nodes should share.
    pub configuration: ConfigurationDigests,
    /// All nodes, ordered by name.
    pub nodes: Vec<FleetNode>,
}

/// Answer of `/api/v1/fleet`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetAnswer {
    /// State of the fleet; absent if the proxy is not in one.
    pub fleet: Option<FleetStatus>,
}

impl FleetStatus {
    /// Returns whether the store answers, but begins a new generation again and again
    /// ([`StoreState::is_unopened`]).
    #[must_use]
    pub fn is_unopened(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.is_unopened)
    }

    /// Returns which live nodes differ from the queried node in their configuration, and
    /// where.
    #[must_use]
    pub fn difference(&self) -> ConfigurationDifference {
        difference(&self.nodes)
    }
}

/// Differences between the configurations of live nodes and that of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigurationDifference {
    /// Nodes with a difference.
    pub nodes: Vec<String>,
    /// Parts of the configuration that differ.
    pub parts: BTreeSet<String>,
}

fn difference(nodes: &[FleetNode]) -> ConfigurationDifference {
    // A missing node may come back with the same configuration.
    let live = nodes.iter().filter(|node| node.state != NodeState::Missing);
    let mut difference = ConfigurationDifference::default();
    for node in live.filter(|node| !node.differs.is_empty()) {
        difference.nodes.push(node.node.clone());
        difference.parts.extend(node.differs.iter().cloned());
    }
    difference
}

/// Configuration of this node, for its note, and the notes of all nodes as last read.
#[derive(Debug)]
pub struct FleetBoard {
    /// Time without a heartbeat after which a node is missing.
    lease: Duration,
    /// Shared part of this node's configuration.
    configuration: ArcSwap<ConfigurationDigests>,
    seen: ArcSwap<NodesSeen>,
}

impl FleetBoard {
    /// Creates the board of a node that has read nothing yet.
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

    /// Sets the shared part of this node's configuration.
    pub fn set_configuration(&self, configuration: ConfigurationDigests) {
        self.configuration.store(Arc::new(configuration));
    }

    /// Returns the shared part of this node's configuration.
    #[must_use]
    pub fn configuration(&self) -> Arc<ConfigurationDigests> {
        self.configuration.load_full()
    }

    /// Records what the store knows of all nodes.
    pub fn see(&self, sightings: Vec<NodeSighting>) {
        let at = clock::instant();
        self.seen.store(Arc::new(NodesSeen { at, sightings }));
    }

    /// Returns the nodes, ordered by name.
    #[must_use]
    pub fn nodes(&self) -> Vec<FleetNode> {
        let (seen, own) = (self.seen.load(), self.configuration.load());
        let passed = clock::instant().saturating_duration_since(seen.at);
        let shown = |sighting: &NodeSighting| shown(sighting, passed, &own, self.lease);
        let mut nodes: Vec<_> = seen.sightings.iter().map(shown).collect();
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
        nodes
    }

    /// Returns which live nodes differ from this node in their configuration, and where.
    #[must_use]
    pub fn difference(&self) -> ConfigurationDifference {
        difference(&self.nodes())
    }
}

/// Returns a node as it is shown, `passed` after the store answered.
fn shown(
    sighting: &NodeSighting,
    passed: Duration,
    own: &ConfigurationDigests,
    lease: Duration,
) -> FleetNode {
    let note = sighting.note.as_ref();
    // The state refers to the time of the answer: the node may have sent a heartbeat
    // since.
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
    fn only_parts_that_both_have_are_compared() {
        let one = digests(&[("ca", "1"), ("pace", "2"), ("robots", "3")]);
        let other = digests(&[("ca", "1"), ("pace", "4"), ("policy", "5")]);
        assert_eq!(one.differing(&other), ["pace"]);
        assert_ne!(one.whole(), other.whole());
    }

    // Ours: a missing node may have been stopped in order to be reconfigured.
    #[test]
    fn live_nodes_that_differ_are_listed_with_the_differing_parts() {
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

    // Ours: anyone with write access to the store can write any note.
    #[test]
    fn malformed_or_overlong_notes_are_ignored() {
        let NodeSighting { note, .. } = sighting("a", 0, "1");
        let text = serde_json::to_vec(&note).unwrap();
        assert_eq!(NodeNote::read(&text), note);
        let long = serde_json::to_vec(&sighting("a", 0, &"1".repeat(NOTE_BYTES_MAX)).note);
        for wrong in [b"{}".to_vec(), b"\xff".to_vec(), long.unwrap()] {
            assert_eq!(NodeNote::read(&wrong), None);
        }
    }
}
