//! Notes that the nodes of a fleet leave in its store, for each other and for users.
//!
//! Separate from the heartbeat, which keeps the leases: a lost or late note has no effect
//! on the requests that are sent.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::status::{ConfigurationDifference, FleetBoard, NodeNote, NodeSighting};
use super::store::RedisStore;
use super::store_error::StoreError;
use politesse_base::throttle::REPEATING;
use politesse_pace::Scheduler;

/// Time between two notes of a node. Each note requires a look at all hosts.
const NOTES_EVERY: Duration = Duration::from_secs(2);

/// Fleet size from which on notes are exchanged less often, because each node reads all
/// of them.
const NODES_AT_ONCE: u32 = 64;

/// Number of exchanges for which a namesake is remembered. Two namesakes write their
/// notes equally often, but not in strict alternation.
const NAMESAKE_EXCHANGES: u8 = 3;

/// Detects another process with the name of this node.
///
/// Both processes write the same note. A process that finds another's note where it wrote
/// its own has a namesake. Before its own first note, it may find that of the previous
/// process.
#[derive(Debug, Default)]
struct NamesakeWatch {
    /// Whether this process has written a note.
    has_written: bool,
    /// Number of exchanges for which the latest namesake is still remembered.
    exchanges_left: u8,
}

impl NamesakeWatch {
    /// Records the note that was there before `process` wrote its own. Returns whether
    /// there is a namesake.
    fn see(&mut self, before: Option<NodeNote>, process: &str) -> bool {
        let is_of_other = |note: NodeNote| !note.process.is_empty() && note.process != process;
        self.exchanges_left = match self.has_written && before.is_some_and(is_of_other) {
            true => NAMESAKE_EXCHANGES,
            false => self.exchanges_left.saturating_sub(1),
        };
        self.has_written = true;
        0 < self.exchanges_left
    }
}

/// Answers of the store: the earlier note of this node, notes by node, times of
/// heartbeats by node in microseconds, and the store's clock in seconds and microseconds.
/// Names are bytes, because other programs may write any.
type StoredNotes = (
    Option<Vec<u8>>,
    HashMap<Vec<u8>, Vec<u8>>,
    Vec<(Vec<u8>, f64)>,
    (u64, u64),
);

/// Task that exchanges notes.
#[derive(Debug)]
pub struct NodeNotes {
    /// Store that holds the notes.
    pub store: Arc<RedisStore>,
    /// Notes of this node to write, and those of the others as last read.
    pub board: Arc<FleetBoard>,
    /// Time at which this process began.
    pub started: Timestamp,
    /// Whether this node is about to stop.
    pub is_draining: Arc<AtomicBool>,
}

impl NodeNotes {
    /// Exchanges notes until `stop`. Calls `changed` when the configurations of other
    /// nodes start or cease to differ from that of this node.
    pub async fn run(
        self,
        scheduler: Arc<Scheduler>,
        changed: impl Fn(&ConfigurationDifference),
        stop: CancellationToken,
    ) {
        let mut known = ConfigurationDifference::default();
        let mut watch = NamesakeWatch::default();
        while !stop.is_cancelled() {
            let hosts = scheduler.leased_hosts();
            let leased = i64::try_from(hosts).unwrap_or(i64::MAX);
            self.store.metrics.fleet_leased_hosts.set(leased);
            let pause = match self.exchange(hosts, &mut watch).await {
                Ok(nodes) => NOTES_EVERY * (1 + nodes / NODES_AT_ONCE),
                Err(StoreError::Unreached) => self.store.options.rules.beat(),
                Err(error) => {
                    tracing::warn!(target: REPEATING, %error, "the store of the fleet refused the note of this node");
                    NOTES_EVERY
                }
            };
            let difference = self.board.difference();
            // Once per change, because notes are read again and again.
            if difference != known {
                let nodes = i64::try_from(difference.nodes.len()).unwrap_or(i64::MAX);
                self.store.metrics.fleet_differing_nodes.set(nodes);
                changed(&difference);
                known = difference;
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Writes the note of this node and reads those of all. Returns the number of nodes.
    async fn exchange(&self, hosts: u64, watch: &mut NamesakeWatch) -> Result<u32, StoreError> {
        let mut connection = self.store.connection()?;
        let options = &self.store.options;
        let note = NodeNote {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: self.store.process.clone(),
            started: self.started,
            is_draining: self.is_draining.load(Ordering::Relaxed),
            hosts,
            configuration: (*self.board.configuration()).clone(),
        };
        // The note contains only words, numbers and digests, which JSON can always
        // represent.
        let text = serde_json::to_vec(&note).unwrap_or_default();
        let (notes_key, nodes_key) = (options.notes_key(), options.nodes_key());
        let mut orders = redis::pipe();
        orders.cmd("HGET").arg(&notes_key).arg(&options.node);
        let note = orders
            .cmd("HSET")
            .arg(&notes_key)
            .arg(&options.node)
            .arg(text);
        note.ignore();
        orders.cmd("HGETALL").arg(&notes_key);
        let beats = orders.cmd("ZRANGE").arg(&nodes_key).arg(0).arg(-1);
        beats.arg("WITHSCORES").cmd("TIME");
        let answer = orders.query_async(&mut connection);
        let stored: StoredNotes = self.store.in_time(answer).await?;
        let (before, mut notes, beats, (seconds, micros)) = stored;
        let before = before.and_then(|text| NodeNote::read(&text));
        self.set_namesake(watch.see(before, &self.store.process));
        let now = Duration::from_secs(seconds) + Duration::from_micros(micros);
        let sighting = |(name, beat): (Vec<u8>, f64)| {
            // A double represents microseconds since 1970 exactly until the year 2255.
            let beat = Duration::try_from_secs_f64(beat / 1e6).unwrap_or_default();
            let note = notes.remove(&name);
            Some(NodeSighting {
                age: now.saturating_sub(beat),
                note: note.and_then(|text| NodeNote::read(&text)),
                name: String::from_utf8(name).ok()?,
            })
        };
        let sightings: Vec<_> = beats.into_iter().filter_map(sighting).collect();
        let nodes = u32::try_from(sightings.len()).unwrap_or(u32::MAX);
        self.board.see(sightings);
        // The heartbeat of this node may come after its first note.
        notes.remove(options.node.as_bytes());
        if !notes.is_empty() {
            // Notes of forgotten nodes (`fleet.forget`).
            let mut order = redis::cmd("HDEL");
            order.arg(&notes_key).arg(notes.keys().collect::<Vec<_>>());
            let removed = order.query_async::<u32>(&mut connection);
            self.store.in_time(removed).await?;
        }
        Ok(nodes)
    }

    /// Records whether another process has the name of this node, and logs each change
    /// once.
    fn set_namesake(&self, has_namesake: bool) {
        let had = self
            .store
            .has_namesake
            .swap(has_namesake, Ordering::Relaxed);
        let node = &self.store.options.node;
        match (had, has_namesake) {
            (false, true) => tracing::error!(
                node,
                "another process of the fleet has the name of this node: give each one of its own (fleet.node)"
            ),
            (true, false) => tracing::info!(node, "no other process has the name of this node"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ConfigurationDigests;

    // Ours: a node that restarts finds the note of its previous process.
    #[test]
    fn a_namesake_overwrites_a_note_this_process_wrote() {
        let note = |process: &str| {
            Some(NodeNote {
                version: "1.0.0".to_owned(),
                process: process.to_owned(),
                started: Timestamp::UNIX_EPOCH,
                is_draining: false,
                hosts: 0,
                configuration: ConfigurationDigests::default(),
            })
        };
        let mut watch = NamesakeWatch::default();
        for (before, expected) in [
            (note("a#1"), false),
            (note("a#2"), false),
            (note(""), false),
            (note("a#3"), true),
            (note("a#2"), true),
            (None, true),
            (note("a#2"), false),
        ] {
            assert_eq!(watch.see(before, "a#2"), expected);
        }
    }
}
