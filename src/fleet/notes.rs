//! Notes that the nodes of a fleet leave in its store for each other and for people.
//!
//! Apart from the heartbeat, by which leases are kept: a note that is lost or late
//! changes nothing of what is sent.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use redis::RedisError;
use thiserror::Error;
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::status::{ConfigurationDifference, FleetBoard, NodeNote, NodeSighting};
use super::store::RedisStore;
use crate::pace::Scheduler;
use crate::throttle::REPEATING;

/// Time between two notes of a node. For each, all hosts are looked at.
const NOTES_EVERY: Duration = Duration::from_secs(2);

/// Nodes of a fleet from which on notes are left less often: each reads those of all.
const NODES_AT_ONCE: u32 = 64;

/// Reason why notes were not exchanged.
#[derive(Debug, Error)]
enum NotesError {
    #[error("the store cannot be reached")]
    Unreached,
    #[error("no answer in time")]
    Timeout(#[from] Elapsed),
    #[error(transparent)]
    Redis(#[from] RedisError),
}

/// Answers of the store: notes by node, times of heartbeats by node in microseconds,
/// and its clock in seconds and microseconds.
type StoredNotes = (HashMap<String, Vec<u8>>, Vec<(String, f64)>, (u64, u64));

/// Task that exchanges notes.
#[derive(Debug)]
pub struct NodeNotes {
    /// Store that they are in.
    pub store: Arc<RedisStore>,
    /// Notes of this node to be written, and those of the others that were read.
    pub board: Arc<FleetBoard>,
    /// Time at which this process began.
    pub started: Timestamp,
    /// Whether this node is about to stop.
    pub is_draining: Arc<AtomicBool>,
}

impl NodeNotes {
    /// Exchanges notes until `stop`. Calls `changed` when other nodes have another
    /// configuration than before, compared with this one.
    pub async fn run(
        self,
        scheduler: Arc<Scheduler>,
        changed: impl Fn(&ConfigurationDifference),
        stop: CancellationToken,
    ) {
        let mut known = ConfigurationDifference::default();
        while !stop.is_cancelled() {
            let hosts = scheduler.leased_hosts();
            let leased = i64::try_from(hosts).unwrap_or(i64::MAX);
            self.store.metrics.fleet_leased_hosts.set(leased);
            let pause = match self.exchange(hosts).await {
                Ok(nodes) => NOTES_EVERY * (1 + nodes / NODES_AT_ONCE),
                Err(NotesError::Unreached) => self.store.options.rules.beat(),
                Err(error) => {
                    tracing::warn!(target: REPEATING, %error, "the store of the fleet takes no note of this node");
                    NOTES_EVERY
                }
            };
            let difference = self.board.difference();
            // Once for each change: notes are read again and again.
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

    /// Leaves the note of this node, and reads those of all. Returns how many nodes there
    /// are.
    async fn exchange(&self, hosts: u64) -> Result<u32, NotesError> {
        let link = self.store.link.load_full().ok_or(NotesError::Unreached)?;
        let options = &self.store.options;
        let note = NodeNote {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started,
            is_draining: self.is_draining.load(Ordering::Relaxed),
            hosts,
            configuration: (*self.board.configuration()).clone(),
        };
        // Words, numbers and digests: there is nothing in them that JSON cannot hold.
        let text = serde_json::to_vec(&note).unwrap_or_default();
        let (notes_key, nodes_key) = (options.notes_key(), options.nodes_key());
        let mut orders = redis::pipe();
        let note = orders
            .cmd("HSET")
            .arg(&notes_key)
            .arg(&options.node)
            .arg(text);
        note.ignore();
        orders.cmd("HGETALL").arg(&notes_key);
        let beats = orders.cmd("ZRANGE").arg(&nodes_key).arg(0).arg(-1);
        beats.arg("WITHSCORES").cmd("TIME");
        let mut connection = link.connection.clone();
        let limit = options.rules.timeout;
        let answer = timeout(limit, orders.query_async(&mut connection)).await;
        let (mut notes, beats, (seconds, micros)): StoredNotes = answer??;
        let now = Duration::from_secs(seconds) + Duration::from_micros(micros);
        let sighting = |(name, beat): (String, f64)| {
            // A double holds microseconds since 1970 exactly until the year 2255.
            let beat = Duration::try_from_secs_f64(beat / 1e6).unwrap_or_default();
            let note = notes.remove(&name);
            NodeSighting {
                age: now.saturating_sub(beat),
                note: note.and_then(|text| NodeNote::read(&text)),
                name,
            }
        };
        let sightings: Vec<_> = beats.into_iter().map(sighting).collect();
        let nodes = u32::try_from(sightings.len()).unwrap_or(u32::MAX);
        self.board.see(sightings);
        // The heartbeat of this node may come after its first note.
        notes.remove(&options.node);
        if !notes.is_empty() {
            // Of nodes that are forgotten (`fleet.forget`).
            let mut order = redis::cmd("HDEL");
            order.arg(&notes_key).arg(notes.keys().collect::<Vec<_>>());
            timeout(limit, order.query_async::<u32>(&mut connection)).await??;
        }
        Ok(nodes)
    }
}
