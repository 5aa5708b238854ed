//! Fleet of a running proxy (`fleet`): joined at the start, left at the stop.
//!
//! Changes of its part go to the record and to the log. What the part means for a
//! request is not known here.

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

/// Stores of the fleet that this proxy is going to be in.
#[derive(Debug)]
pub(super) struct FleetStores {
    leases: Arc<RedisStore>,
    robots: Option<Arc<RobotsStore>>,
    /// Fingerprint of the key of the fleet, if there is one.
    key: Option<Digest>,
}

impl FleetStores {
    /// Makes the stores of `settings`, if they name any. None is reached yet.
    ///
    /// # Errors
    ///
    /// A key that cannot be read, or a machine whose name cannot be that
    /// of a node.
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
        // The key itself goes to the store of robots.txt files, if at all.
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

    /// Joins the fleet. Nothing is sent until its store was reached.
    ///
    /// # Errors
    ///
    /// Credentials or certificates that cannot be read.
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
            // The store's library takes a file without a certificate for one.
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

/// Sources of what an operator is shown of the fleet.
#[derive(Debug, Clone)]
pub(super) struct FleetView {
    store: Arc<RedisStore>,
    board: Arc<FleetBoard>,
    shares_robots: bool,
}

impl FleetView {
    /// Returns the state of the fleet, in which this node plays `part`.
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
    /// Returns what is shown of the fleet.
    pub(super) fn view(&self) -> FleetView {
        self.view.clone()
    }

    /// Notes that another configuration is in force: the other nodes compare it.
    pub(super) fn set_configuration(&self, settings: &Settings, config: &ActiveConfig) {
        let configuration = agreed(settings, config, self.key.as_ref());
        self.view.board.set_configuration(configuration);
    }

    /// Gives back the leases of hosts and leaves the fleet, so that nobody waits for
    /// this node.
    pub(super) async fn leave(self, shared: &SharedParts) {
        let patience = 2 * self.store.options.rules.timeout;
        // Before it leaves: whoever gets a host next is to know when it was asked last.
        let _ = timeout(patience, shared.scheduler.leases_released()).await;
        self.stop.cancel();
        // Both end first: a heartbeat or a note that comes later would bring it back.
        let _ = timeout(patience, self.task).await;
        let _ = timeout(patience, self.notes).await;
        FleetTask::leave(&self.store).await;
    }
}

/// Takes what other nodes found changed in place of what the cache in force has.
async fn follow_changes(
    robots: Arc<RobotsStore>,
    server: Arc<ProxyServer>,
    stop: CancellationToken,
) {
    let changed = |key: CacheKey| {
        // Anew each time: a reload may have put another cache in force.
        let config = server.in_force.load_full();
        async move { config.proxy.turns.decider.robots.take_newer(&key).await }
    };
    robots.follow_changes(changed, stop).await;
}

/// Returns the name of the machine.
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
                "the store of the fleet does not answer: this node goes on with the pauses of all nodes"
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

/// Says where other nodes have another configuration than this one, or no longer have.
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
