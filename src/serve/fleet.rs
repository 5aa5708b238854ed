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

use super::parts::{SharedParts, node_name};
use crate::audit::AuditLog;
use crate::audit::events::{ProcessEvent, ProcessEventKind};
use crate::config::Settings;
use crate::decision::snapshot::CacheKey;
use crate::fleet::membership::Beat;
use crate::fleet::options::Options;
use crate::fleet::robots_store::RobotsStore;
use crate::fleet::shared_answer::FleetKey;
use crate::fleet::store::{FleetTask, RedisStore};
use crate::metrics::Metrics;
use crate::pace::fleet_part::{FleetMode, FleetPart};
use crate::proxy::server::ProxyServer;
use crate::robots_cache::store::SnapshotStore;
use crate::upstream::parent::user_and_password;

/// Stores of the fleet that this proxy is going to be in.
#[derive(Debug)]
pub(super) struct FleetStores {
    leases: Arc<RedisStore>,
    robots: Option<Arc<RobotsStore>>,
}

impl FleetStores {
    /// Makes the stores of `settings`, if they name any. None is reached yet.
    ///
    /// # Errors
    ///
    /// A key that cannot be read, or a machine without a name.
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
        let robots = key.map(|key| RobotsStore::new(Arc::clone(&leases), key, max_bytes));
        Ok(Some(Self {
            leases,
            robots: robots.map(Arc::new),
        }))
    }

    /// Returns the store of robots.txt files, if the nodes have a key.
    pub(super) fn robots(&self) -> Option<Arc<dyn SnapshotStore>> {
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
        shared: &SharedParts,
        server: &Arc<ProxyServer>,
    ) -> anyhow::Result<FleetMember> {
        let store = self.leases;
        let options = store.options.clone();
        let auth = options.store_auth.as_deref().map(user_and_password);
        let credentials = auth.transpose().context("fleet.store_auth")?;
        let file = options.store_ca.as_deref().map(std::fs::read);
        let roots = file.transpose().context("fleet.store_ca cannot be read")?;
        let task = FleetTask::new(Arc::clone(&store), credentials.as_ref(), roots.as_deref())?;
        let scheduler = Arc::clone(&shared.scheduler);
        scheduler.join_fleet(Arc::clone(&store) as Arc<_>);
        let (stop, audit) = (CancellationToken::new(), Arc::clone(&shared.audit));
        let changed = move |part: FleetPart, beat: Option<&Beat>| {
            report(&audit, &options, part, beat);
        };
        let running = task.run(scheduler, changed, stop.clone());
        let changes = self.robots.map(|robots| {
            let following = follow_changes(robots, Arc::clone(server), stop.clone());
            AbortOnDropHandle::new(tokio::spawn(following))
        });
        Ok(FleetMember {
            store,
            stop,
            task: AbortOnDropHandle::new(tokio::spawn(running)),
            _changes: changes,
        })
    }
}

/// Membership of this proxy in its fleet.
#[derive(Debug)]
pub(super) struct FleetMember {
    store: Arc<RedisStore>,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
    _changes: Option<AbortOnDropHandle<()>>,
}

impl FleetMember {
    /// Gives back the leases of hosts and leaves the fleet, so that nobody waits for
    /// this node.
    pub(super) async fn leave(self, shared: &SharedParts) {
        let patience = 2 * self.store.options.rules.timeout;
        // Before it leaves: whoever gets a host next is to know when it was asked last.
        let _ = timeout(patience, shared.scheduler.leases_released()).await;
        self.stop.cancel();
        let _ = timeout(patience, self.task).await;
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
