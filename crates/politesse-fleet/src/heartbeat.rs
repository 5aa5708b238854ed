//! Heartbeat of a node: the task that keeps it in its fleet.
//!
//! The task connects to the primary server of the store and asks at short intervals for
//! the current members (`beat.lua`). It passes the resulting role of this node
//! ([`super::membership`]) to the scheduler.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Client, Script};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::connect::{StoreSetupError, client, look_at};
use super::membership::{Beat, FleetRules, Membership};
use super::options::StoreAddress;
use super::store::{RedisStore, StoreLink, micros};
use super::store_error::StoreError;
use politesse_base::clock;
use politesse_base::server::UserPassword;
use politesse_pace::Scheduler;
use politesse_pace::fleet_part::{FleetMode, FleetPart};

/// Largest number of nodes that a heartbeat names. A store that has lost its data learns
/// the nodes of the fleet from these names.
const NODES_MAX: usize = 1000;

/// Task that keeps this node in its fleet.
#[derive(Debug)]
pub struct FleetTask {
    store: Arc<RedisStore>,
    /// Redis clients, one for each address of the store.
    clients: Arc<[Client]>,
    membership: Membership,
    /// `beat.lua`.
    script: Script,
    /// Mode that was reported last.
    mode: Option<FleetMode>,
    /// `run_id` of the server that answered the latest heartbeat.
    run: Option<String>,
    /// Eviction policy of the server that was used last, if it evicts entries. A change is
    /// logged.
    eviction: Option<String>,
    /// Latest error per store, so that each error is logged once.
    troubles: HashMap<StoreAddress, StoreTrouble>,
    /// Stores that have answered since the start.
    answered: HashSet<StoreAddress>,
}

/// Role of a store that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreRole {
    /// Another store answers.
    Standby,
    /// No other store answers, so the fleet needs this one.
    Wanted,
}

/// Error of a store, as it was logged.
#[derive(Debug, PartialEq, Eq)]
struct StoreTrouble {
    role: StoreRole,
    text: String,
}

impl FleetTask {
    /// Creates the task that connects `store`; `roots` are certificates in PEM.
    ///
    /// # Errors
    ///
    /// [`StoreSetupError`].
    pub fn new(
        store: Arc<RedisStore>,
        credentials: Option<&UserPassword>,
        roots: Option<&[u8]>,
    ) -> Result<Self, StoreSetupError> {
        let addresses = store.options.store.iter();
        let clients = addresses.map(|address| {
            client(address, credentials, roots).map_err(|source| StoreSetupError::Client {
                address: address.clone(),
                source,
            })
        });
        Ok(Self {
            clients: clients.collect::<Result<_, _>>()?,
            membership: Membership::new(store.options.rules),
            script: Script::new(include_str!("beat.lua")),
            store,
            mode: None,
            run: None,
            eviction: None,
            troubles: HashMap::new(),
            answered: HashSet::new(),
        })
    }

    /// Sends heartbeats until `stop`, and calls `changed` after each change of the mode.
    /// The node stays in the store until [`FleetTask::leave`].
    pub async fn run(
        mut self,
        scheduler: Arc<Scheduler>,
        changed: impl Fn(FleetPart, Option<&Beat>),
        stop: CancellationToken,
    ) {
        let rules = self.store.options.rules;
        while !stop.is_cancelled() {
            self.beat(&scheduler).await;
            // A failed heartbeat matters as well: leases may have expired.
            self.membership.set_namesake(self.store.has_namesake());
            let part = self.membership.part(scheduler.uptime());
            scheduler.set_fleet_part(part, self.membership.valid_until());
            self.show(part);
            if self.mode != Some(part.mode) {
                self.mode = Some(part.mode);
                changed(part, self.membership.latest());
            }
            tokio::select! {
                () = sleep(rules.beat()) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Removes this node from the store, so that a new generation does not wait for it.
    pub async fn leave(store: &RedisStore) {
        let Ok(mut connection) = store.connection() else {
            return;
        };
        let (options, mut orders) = (&store.options, redis::pipe());
        orders.zrem(options.nodes_key(), &options.node);
        orders.hdel(options.notes_key(), &options.node);
        // Without a version, the list of nodes gets a new one and is sent to all nodes.
        orders.hdel(options.state_key(), "list");
        let gone = orders.query_async::<(u32, u32, u32)>(&mut connection);
        if store.in_time(gone).await.is_err() {
            tracing::warn!("the store of the fleet could not be told that this node stops");
        }
    }

    /// Publishes whether the node has joined the fleet, also in metrics.
    fn show(&self, part: FleetPart) {
        let (metrics, is_joined) = (&self.store.metrics, part.mode == FleetMode::Leased);
        self.store.is_joined.store(is_joined, Ordering::Relaxed);
        metrics.fleet_degraded.set((!is_joined).into());
        metrics.fleet_nodes.set(part.share.nodes.into());
        let live = self.membership.latest().map_or(0, |latest| latest.live);
        metrics.fleet_live_nodes.set(live.into());
    }

    /// Sends a heartbeat, over the current connection or a new one.
    async fn beat(&mut self, scheduler: &Scheduler) {
        let began_at = scheduler.uptime();
        let longest = FleetRules::answer_max(self.store.options.rules.lease);
        let began = clock::instant();
        let known = self.store.link.load_full();
        let link = match known.as_deref() {
            Some(link) => Some(link.clone()),
            None => self.connect(began + longest).await,
        };
        let Some(mut link) = link else {
            return self.membership.miss(began_at);
        };
        // Later than `began_at`, because the store was reachable until now.
        let asked_at = scheduler.uptime();
        let end = began + longest * 3 / 2;
        let asked = timeout_at(end, self.ask(&mut link, asked_at)).await;
        match asked.unwrap_or(Err(StoreError::Timeout(longest / 2))) {
            Ok(beat) => {
                self.membership.take(beat.clone(), asked_at);
                link.is_unopened = self.membership.is_unopened();
                if link.is_unopened {
                    self.report(&link.address, StoreError::Unopened, StoreRole::Wanted);
                } else {
                    self.troubles.clear();
                }
                self.run = Some(link.run.clone());
                link.beat = Some(beat);
                self.store.link.store(Some(Arc::new(link)));
            }
            Err(error) => {
                self.store.link.store(None);
                self.membership.miss(began_at);
                self.report(&link.address, error, StoreRole::Wanted);
            }
        }
    }

    /// Counts an error of a store, and logs it unless it was logged already: each
    /// heartbeat tries again.
    fn report(&mut self, address: &StoreAddress, error: StoreError, role: StoreRole) {
        self.store.metrics.fleet_call_errors.inc();
        let error = if let StoreError::Silent(limit) = error
            && self.answered.contains(address)
        {
            // The address is right: the server has answered before.
            StoreError::Timeout(limit)
        } else {
            error
        };
        let trouble = StoreTrouble {
            role,
            text: error.with_advice(),
        };
        if self.troubles.get(address) == Some(&trouble) {
            return;
        }
        let error = &trouble.text;
        match role {
            StoreRole::Wanted => {
                tracing::warn!(%address, error, "a store of the fleet cannot be used");
            }
            // No data is lost, and a replica reports this permanently.
            StoreRole::Standby => {
                tracing::info!(%address, error, "a store of the fleet stands by and cannot be used");
            }
        }
        self.troubles.insert(address.clone(), trouble);
    }

    /// Runs `beat.lua` over `link`.
    async fn ask(&self, link: &mut StoreLink, now: Duration) -> Result<Beat, StoreError> {
        let options = &self.store.options;
        let latest = self.membership.latest();
        let generation = latest.map_or(0, |latest| latest.generation);
        // Another server, or a restarted one, may have lost the latest nodes, so the
        // heartbeat names them.
        let is_new = self.run.as_ref() != Some(&link.run);
        let list = latest.filter(|_| !is_new);
        let mut invocation = self.script.key(options.state_key());
        invocation
            .key(options.nodes_key())
            .key(options.notes_key())
            .arg(&options.node)
            .arg(&link.run)
            .arg(u8::from(self.membership.is_away()))
            .arg(generation)
            .arg(micros(options.rules.lease))
            .arg(micros(options.forget))
            .arg(micros(self.membership.time_since_answer(now)))
            .arg(list.map_or("", |latest| &latest.list));
        let told = latest.filter(|_| is_new);
        let names = told.into_iter().flat_map(|latest| latest.names.iter());
        for name in names.take(NODES_MAX) {
            invocation.arg(name);
        }
        let asked_at = clock::instant();
        let answer = invocation.invoke_async(&mut link.connection);
        let words: Vec<String> = self.store.in_time(answer).await?;
        let took = clock::instant().saturating_duration_since(asked_at);
        self.store.latency_us.store(micros(took), Ordering::Relaxed);
        self.store
            .metrics
            .fleet_store_seconds
            .observe(took.as_secs_f64());
        if let Some(removed) = words.get(4).filter(|removed| !removed.is_empty()) {
            tracing::warn!(removed, "another program wrote into the store of the fleet");
        }
        beat_answer(&words, &options.node, list)
    }

    /// Connects to the primary server, until `end`. If several servers claim to be the
    /// primary, takes the one with the latest generation.
    async fn connect(&mut self, end: Instant) -> Option<StoreLink> {
        let store = Arc::clone(&self.store);
        // All at the same time: silent servers must not delay the others.
        let servers = self.clients.iter().zip(&store.options.store);
        let looks = servers.map(|(client, address)| {
            let (store, client) = (Arc::clone(&store), client.clone());
            let at = address.clone();
            let look = async move { look_at(&client, at, &store.options, end).await };
            (address, AbortOnDropHandle::new(tokio::spawn(look)))
        });
        let mut best: Option<(u64, StoreLink)> = None;
        let mut failed = Vec::new();
        for (address, look) in Vec::from_iter(looks) {
            let found = look.await.unwrap_or(Err(StoreError::Unreached));
            if found.as_ref().map_or_else(StoreError::is_answer, |_| true) {
                self.answered.insert(address.clone());
            }
            match found {
                // For a while after a fail-over, the old server may still be a primary.
                Ok(found) => {
                    if best.as_ref().is_none_or(|(latest, _)| *latest < found.0) {
                        best = Some(found);
                    }
                }
                Err(error) => failed.push((address, error)),
            }
        }
        // While one server accepts commands, the others only stand by.
        let role = match best {
            Some(_) => StoreRole::Standby,
            None => StoreRole::Wanted,
        };
        for (address, error) in failed {
            self.report(address, error, role);
        }
        let (_, link) = best?;
        if let Some(policy) = link.eviction.as_ref()
            && link.eviction != self.eviction
        {
            tracing::warn!(
                address = %link.address, policy,
                "the store of the fleet removes entries when it is full, and with them delays: \
                 set its maxmemory-policy to noeviction"
            );
        }
        self.eviction.clone_from(&link.eviction);
        Some(link)
    }
}

/// Parses the answer of `beat.lua` to `node`. The answer omits the names if they are
/// those of the latest answer.
fn beat_answer(words: &[String], node: &str, latest: Option<&Beat>) -> Result<Beat, StoreError> {
    let broken = || StoreError::Answer(words.join(" "));
    let [generation, opens, live, list, _, left, told @ ..] = words else {
        return Err(broken());
    };
    let same = latest.filter(|latest| latest.list == *list);
    let names = match (told, same) {
        ([], Some(latest)) => Arc::clone(&latest.names),
        ([], None) => return Err(broken()),
        (names, _) => names.into(),
    };
    let before = names.iter().filter(|name| name.as_str() < node);
    Ok(Beat {
        generation: generation.parse().map_err(|_| broken())?,
        opens_us: opens.parse().map_err(|_| broken())?,
        opens_in: Duration::from_micros(left.parse().map_err(|_| broken())?),
        live: live.parse().map_err(|_| broken())?,
        place: u32::try_from(before.count()).unwrap_or(u32::MAX),
        list: list.clone(),
        names,
    })
}
