//! Membership of a running proxy in a fleet (`fleet`): it joins at the start and leaves
//! at the stop.
//!
//! Writes each change of this node's part in the fleet to the record and the log. Does
//! not know how the part affects requests.

use std::sync::Arc;

use anyhow::Context as _;
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::agreement::agreed;
use super::parts::{SharedParts, node_name};
use crate::config::Settings;
use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_base::server::user_and_password;
use politesse_base::tls::{Roots, client_config};
use politesse_decision::digest::Digest;
use politesse_decision::snapshot::CacheKey;
use politesse_fleet::heartbeat::FleetTask;
use politesse_fleet::membership::Beat;
use politesse_fleet::notes::NodeNotes;
use politesse_fleet::options::Options;
use politesse_fleet::robots_store::RobotsStore;
use politesse_fleet::shared_answer::FleetKey;
use politesse_fleet::status::{ConfigurationDifference, FleetBoard, FleetStatus};
use politesse_fleet::store::RedisStore;
use politesse_pace::fleet_part::{FleetMode, FleetPart};
use politesse_proxy::server::{ActiveConfig, ProxyServer};
use politesse_record::AuditLog;
use politesse_record::events::{ProcessEvent, ProcessEventKind};
use politesse_robots_cache::shared_answers::SharedStore;

/// Stores of the fleet that this proxy will join.
#[derive(Debug)]
pub(super) struct FleetStores {
    leases: Arc<RedisStore>,
    robots: Option<Arc<RobotsStore>>,
    /// Fingerprint of the fleet's key, if there is one.
    key: Option<Digest>,
}

impl FleetStores {
    /// Makes the stores that `settings` name, if any. Connects to none of them yet.
    ///
    /// # Errors
    ///
    /// The key cannot be read, or the machine's name is no valid node name.
    pub(super) fn open(
        settings: &Settings,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<Option<Self>> {
        let mut options = settings.fleet.clone();
        if options.store.is_empty() {
            return Ok(None);
        }
        options.node = node_name(&options.node)?;
        let read = options.key.as_deref().map(FleetKey::read);
        let key = read.transpose().context("fleet.key")?;
        let leases = Arc::new(RedisStore::new(options, Arc::clone(metrics)));
        let max_bytes = settings.robots.max_bytes;
        // Only the store of robots.txt files gets the key itself, if the fleet has one.
        let fingerprint = key.as_ref().map(FleetKey::fingerprint);
        let robots = key.map(|key| RobotsStore::new(Arc::clone(&leases), key, max_bytes));
        Ok(Some(Self {
            leases,
            robots: robots.map(Arc::new),
            key: fingerprint,
        }))
    }

    /// Returns the store of robots.txt files, if the nodes have a key.
    pub(super) fn robots(&self) -> Option<Arc<dyn SharedStore>> {
        let robots = self.robots.clone()?;
        Some(robots)
    }

    /// Joins the fleet. Nothing is sent to origins until the store has answered.
    ///
    /// # Errors
    ///
    /// Credentials or certificates cannot be read.
    pub(super) fn join(
        self,
        settings: &Settings,
        shared: &SharedParts,
        server: &Arc<ProxyServer>,
    ) -> anyhow::Result<FleetMember> {
        let store = self.leases;
        let options = store.options.clone();
        let auth = options.store_auth.as_deref().map(user_and_password);
        let credentials = auth.transpose().context("fleet.store_auth")?;
        if let Some(path) = &options.store_ca {
            // The store's library accepts a file that contains no certificate.
            client_config(&[Roots::File(path.clone())]).context("fleet.store_ca")?;
        }
        let file = options.store_ca.as_deref().map(std::fs::read);
        let roots = file.transpose().context("fleet.store_ca cannot be read")?;
        let task = FleetTask::new(Arc::clone(&store), credentials.as_ref(), roots.as_deref())?;
        let scheduler = Arc::clone(&shared.scheduler);
        scheduler.join_fleet(Arc::clone(&store) as Arc<_>);
        let (stop, audit) = (CancellationToken::new(), Arc::clone(&shared.audit));
        let configuration = agreed(settings, &server.in_force.load(), self.key.as_ref());
        let board = Arc::new(FleetBoard::new(&options, configuration));
        let notes = NodeNotes {
            store: Arc::clone(&store),
            board: Arc::clone(&board),
            started: clock::now(),
            is_draining: Arc::clone(&server.is_draining),
        };
        let (record, own) = (Arc::clone(&audit), options.clone());
        let differs = move |difference: &ConfigurationDifference| {
            report_difference(&record, &own, difference);
        };
        let noting = notes.run(Arc::clone(&scheduler), differs, stop.clone());
        let changed = move |part: FleetPart, beat: Option<&Beat>| {
            report(&audit, &options, part, beat);
        };
        let running = task.run(scheduler, changed, stop.clone());
        let view = FleetView {
            store: Arc::clone(&store),
            board,
            shares_robots: self.robots.is_some(),
        };
        let changes = self.robots.map(|robots| {
            let following = follow_changes(robots, Arc::clone(server), stop.clone());
            AbortOnDropHandle::new(tokio::spawn(following))
        });
        Ok(FleetMember {
            store,
            view,
            key: self.key,
            stop,
            task: AbortOnDropHandle::new(tokio::spawn(running)),
            notes: AbortOnDropHandle::new(tokio::spawn(noting)),
            _changes: changes,
        })
    }
}

/// Membership of this proxy in its fleet.
#[derive(Debug)]
pub(super) struct FleetMember {
    store: Arc<RedisStore>,
    view: FleetView,
    key: Option<Digest>,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
    notes: AbortOnDropHandle<()>,
    _changes: Option<AbortOnDropHandle<()>>,
}

/// Sources of the fleet's state, for the pages and the API.
#[derive(Debug, Clone)]
pub(super) struct FleetView {
    store: Arc<RedisStore>,
    board: Arc<FleetBoard>,
    shares_robots: bool,
}

impl FleetView {
    /// Returns the state of the fleet, in which this node has `part`.
    pub(super) fn status(&self, part: FleetPart) -> FleetStatus {
        let options = &self.store.options;
        FleetStatus {
            fleet: options.name.clone(),
            node: options.node.clone(),
            has_namesake: self.store.has_namesake(),
            mode: part.mode.into(),
            store: self.store.state(),
            shares_robots: self.shares_robots,
            configuration: (*self.board.configuration()).clone(),
            nodes: self.board.nodes(),
        }
    }
}

impl FleetMember {
    /// Returns the sources of the fleet's state.
    pub(super) fn view(&self) -> FleetView {
        self.view.clone()
    }

    /// Publishes that another configuration is in force, for the other nodes to
    /// compare.
    pub(super) fn set_configuration(&self, settings: &Settings, config: &ActiveConfig) {
        let configuration = agreed(settings, config, self.key.as_ref());
        self.view.board.set_configuration(configuration);
    }

    /// Returns the leases of hosts and leaves the fleet, so that no other node waits
    /// for this one.
    pub(super) async fn leave(self, shared: &SharedParts) {
        let patience = 2 * self.store.options.rules.timeout;
        // Before leaving: the next holder of a host needs the time of the last request
        // to it.
        let _ = timeout(patience, shared.scheduler.leases_released()).await;
        self.stop.cancel();
        // Both tasks must end first: a later heartbeat or note would register this node
        // again.
        let _ = timeout(patience, self.task).await;
        let _ = timeout(patience, self.notes).await;
        FleetTask::leave(&self.store).await;
    }
}

/// Updates the cache in force with the robots.txt changes that other nodes have found.
async fn follow_changes(
    robots: Arc<RobotsStore>,
    server: Arc<ProxyServer>,
    stop: CancellationToken,
) {
    let changed = |key: CacheKey| {
        // Loaded each time: a reload may have put another cache in force.
        let config = server.in_force.load_full();
        async move { config.proxy.turns.decider.robots.take_newer(&key).await }
    };
    robots.follow_changes(changed, stop).await;
}

/// Logs and records the part that this node now has in the fleet.
fn report(audit: &AuditLog, options: &Options, part: FleetPart, beat: Option<&Beat>) {
    let (nodes, live) = beat.map_or((0, 0), |beat| (beat.names.len(), beat.live));
    let mode = match part.mode {
        FleetMode::Leased => {
            let node = &options.node;
            tracing::info!(fleet = options.name, node, nodes, live, "joined the fleet");
            "joined"
        }
        FleetMode::Alone(_) => {
            tracing::warn!(
                fleet = options.name,
                nodes,
                "the store of the fleet does not answer: this node continues with the pauses of all nodes"
            );
            "alone"
        }
        FleetMode::Closed => {
            tracing::warn!(
                fleet = options.name,
                "the store of the fleet does not answer: nothing is sent until it does"
            );
            "closed"
        }
    };
    let detail = json!({
        "fleet": options.name,
        "node": options.node,
        "mode": mode,
        "nodes": nodes,
        "live": live,
        "generation": beat.map(|beat| beat.generation),
    });
    audit.record_process_event(ProcessEvent::now(ProcessEventKind::Fleet, detail));
}

/// Logs and records which parts of the configuration differ on other nodes, or that
/// none does any more.
fn report_difference(audit: &AuditLog, options: &Options, difference: &ConfigurationDifference) {
    let parts: Vec<_> = difference.parts.iter().map(String::as_str).collect();
    let (parts_text, nodes) = (parts.join(", "), difference.nodes.join(", "));
    let mode = if parts.is_empty() {
        tracing::info!(
            fleet = options.name,
            "all nodes of the fleet have the configuration of this one"
        );
        "alike"
    } else {
        tracing::warn!(
            fleet = options.name,
            parts = parts_text,
            nodes,
            "other nodes of the fleet have another configuration than this one"
        );
        "differs"
    };
    let detail = json!({
        "fleet": options.name,
        "node": options.node,
        "mode": mode,
        "parts": parts,
        "nodes": difference.nodes,
    });
    audit.record_process_event(ProcessEvent::now(ProcessEventKind::Fleet, detail));
}
