//! Store of a fleet in Redis or Valkey: connection, scripts, and their answers.
//!
//! One task ([`FleetTask`]) connects to the primary server. It sends a heartbeat at
//! short intervals, whose answer ([`Beat`]) counts the nodes of the fleet, and sets
//! this node's part of the fleet in the scheduler. [`RedisStore`] uses the same
//! connection for leases. All times in the store are by the clock of its server.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::SignedDuration;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, InfoDict, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, Script, TlsCertificates,
};
use thiserror::Error;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::membership::{Beat, Membership};
use super::options::{Options, StoreAddress};
use super::rights;
use super::status::StoreState;
use super::store_error::{StoreError, first_command_error, is_about_rights};
use crate::clock;
use crate::metrics::Metrics;
use crate::pace::Scheduler;
use crate::pace::fleet_part::{FleetMode, FleetPart, HostHistory};
use crate::pace::lease::{LeaseAnswer, LeaseCall, LeaseFuture, LeaseOrder, LeaseStore, StoreLost};
use crate::throttle::REPEATING;
use crate::upstream::parent::UserPassword;

/// Largest number of nodes that a heartbeat names. A store that has lost its data
/// learns the nodes of the fleet from these names.
const NODES_MAX: usize = 1000;

/// Connection to the primary server of the store.
#[derive(Clone)]
pub(super) struct StoreLink {
    pub(super) connection: MultiplexedConnection,
    address: StoreAddress,
    /// `run_id` of the server: another one after each of its starts.
    pub(super) run: String,
    /// Policy by which it removes entries where it is full; `None`: it removes none.
    eviction: Option<String>,
    /// Answer to the latest heartbeat over this connection.
    beat: Option<Beat>,
}

impl fmt::Debug for StoreLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreLink({})", self.run)
    }
}

/// Leases of hosts, in Redis or Valkey.
#[derive(Debug)]
pub struct RedisStore {
    /// Options of the fleet.
    pub options: Options,
    /// Name of this process as a holder of leases: the node's name and a random
    /// number. A node that starts again is another holder.
    pub(super) process: String,
    /// Connection for leases. Absent until a heartbeat was answered over it.
    pub(super) link: ArcSwapOption<StoreLink>,
    script: Script,
    /// Whether this node takes the store to be there, answers or not.
    is_joined: AtomicBool,
    /// Whether another process was seen with the name of this node.
    pub(super) has_namesake: AtomicBool,
    /// Microseconds that the latest answer to the heartbeat took.
    latency_us: AtomicU64,
    pub(super) metrics: Arc<Metrics>,
}

impl RedisStore {
    /// Makes a store without a connection. [`FleetTask`] connects it.
    #[must_use]
    pub fn new(options: Options, metrics: Arc<Metrics>) -> Self {
        let chance = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), ());
        Self {
            process: format!("{}#{chance:016x}", options.node),
            options,
            link: ArcSwapOption::empty(),
            script: Script::new(include_str!("lease.lua")),
            is_joined: AtomicBool::new(false),
            has_namesake: AtomicBool::new(false),
            latency_us: AtomicU64::new(0),
            metrics,
        }
    }

    /// Returns whether this node takes the store to be there: it had an answer to a
    /// heartbeat within a lease.
    pub(super) fn is_joined(&self) -> bool {
        self.is_joined.load(Ordering::Relaxed)
    }

    /// Returns the state of the server that takes orders; `None` while none does.
    #[must_use]
    pub fn state(&self) -> Option<StoreState> {
        let link = self.link.load_full()?;
        let latency = Duration::from_micros(self.latency_us.load(Ordering::Relaxed));
        Some(StoreState {
            address: link.address.to_string(),
            latency_ms: latency.as_secs_f64() * 1e3,
            generation: link.beat.as_ref()?.generation,
        })
    }

    /// Returns whether another process has the name of this node (`fleet.node`).
    #[must_use]
    pub fn has_namesake(&self) -> bool {
        self.has_namesake.load(Ordering::Relaxed)
    }

    /// Returns a connection to the server that takes orders. All of them share a socket,
    /// and no call waits for another.
    pub(super) fn connection(&self) -> Result<MultiplexedConnection, StoreError> {
        let link = self.link.load_full().ok_or(StoreError::Unreached)?;
        Ok(link.connection.clone())
    }

    /// Waits for an answer, up to `fleet.timeout`.
    ///
    /// A store that has refused a command is given up: one on which a right is missing
    /// must not keep this node in the fleet by its heartbeats, and the next one finds out
    /// which right that is.
    pub(super) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, StoreError> {
        let limit = self.options.rules.timeout;
        let came = timeout(limit, answer).await;
        let answer = came.map_err(|_| StoreError::Timeout(limit))?;
        if answer.as_ref().is_err_and(is_about_rights) {
            self.link.store(None);
        }
        // The library has the same limit, and may be first.
        answer.map_err(|error| match error.is_timeout() {
            true => StoreError::Timeout(limit),
            false => error.into(),
        })
    }

    async fn call(&self, call: &LeaseCall<'_>) -> Result<LeaseAnswer, StoreError> {
        let link = self.link.load_full().ok_or(StoreError::Unreached)?;
        let beat = link.beat.as_ref().ok_or(StoreError::Unreached)?;
        let (order, history) = match call.order {
            LeaseOrder::Claim => ("claim", HostHistory::default()),
            LeaseOrder::Renew(history) => ("renew", history),
            LeaseOrder::Release(history) => ("release", history),
            LeaseOrder::EndBackOff => ("end_back_off", HostHistory::default()),
        };
        // Redis Cluster places a key by the part in braces: all keys of a host are
        // on one server.
        let key = format!("{}:{{{}}}", self.options.name, call.host);
        let mut invocation = self.script.key(key);
        invocation
            .arg(order)
            .arg(&self.process)
            .arg(call.number)
            .arg(beat.generation)
            .arg(beat.opens_us)
            .arg(micros(self.options.rules.lease));
        add_history(&mut invocation, &history);
        let mut connection = link.connection.clone();
        let answer = invocation.invoke_async(&mut connection);
        let words: Vec<String> = self.in_time(answer).await?;
        lease_answer(&words, self.options.rules.lease)
    }
}

impl LeaseStore for RedisStore {
    fn lease<'a>(&'a self, call: LeaseCall<'a>) -> LeaseFuture<'a> {
        Box::pin(async move {
            self.metrics.fleet_calls.inc();
            self.call(&call).await.map_err(|error| {
                self.metrics.fleet_call_errors.inc();
                // The heartbeat reports a store that does not answer. What it says about one
                // host nobody else would know.
                if let StoreError::Redis(_) | StoreError::Foreign(_) = &error {
                    tracing::warn!(
                        target: REPEATING, host = %call.host, error = error.with_advice(),
                        "the store of the fleet gave no lease"
                    );
                }
                StoreLost
            })
        })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn add_history(invocation: &mut redis::ScriptInvocation<'_>, history: &HostHistory) {
    for age in [history.started, history.ended, history.robots] {
        match age {
            Some(age) => invocation.arg(micros(age)),
            None => invocation.arg(-1),
        };
    }
    invocation.arg(micros(history.adaptive));
    invocation.arg(micros(history.robots_delay));
    let end = history.back_off_end.map(|end| end.as_micros().to_string());
    invocation.arg(end.unwrap_or_default());
    invocation.arg(history.incidents);
    invocation.arg(micros(history.remembered));
}

/// Reads the answer of `lease.lua`.
fn lease_answer(words: &[String], length: Duration) -> Result<LeaseAnswer, StoreError> {
    let broken = || StoreError::Answer(words.join(" "));
    let number = |index: usize| {
        let word = words.get(index).ok_or_else(broken)?;
        word.parse::<i64>().map_err(|_| broken())
    };
    let time = |index| number(index).map(|micros| Duration::from_micros(micros.unsigned_abs()));
    let age = |index| Ok::<_, StoreError>((0 <= number(index)?).then_some(time(index)?));
    match (number(0)?, words.len()) {
        (0, 2) => Ok(LeaseAnswer::Refused(time(1)?)),
        (2, 1) => Ok(LeaseAnswer::Noted),
        (3, 1) => Ok(LeaseAnswer::Freed),
        (1, 2) => Ok(LeaseAnswer::Held {
            length,
            is_wanted: number(1)? != 0,
            history: None,
        }),
        (1, 10) => Ok(LeaseAnswer::Held {
            length,
            is_wanted: number(1)? != 0,
            history: Some(HostHistory {
                started: age(2)?,
                ended: age(3)?,
                robots: age(4)?,
                adaptive: time(5)?,
                robots_delay: time(6)?,
                remembered: time(7)?,
                incidents: u32::try_from(number(8)?).unwrap_or(u32::MAX),
                back_off_end: match words.get(9).map(String::as_str) {
                    Some("") => None,
                    _ => Some(SignedDuration::from_micros(number(9)?)),
                },
            }),
        }),
        (4, 2) => Err(StoreError::Foreign(words[1].clone())),
        _ => Err(broken()),
    }
}

/// Reads the answer of `beat.lua` to `node`. The names are missing from it where they are
/// those of the latest answer.
fn beat_answer(words: &[String], node: &str, latest: Option<&Beat>) -> Result<Beat, StoreError> {
    let broken = || StoreError::Answer(words.join(" "));
    let [generation, opens, live, list, _, told @ ..] = words else {
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
        live: live.parse().map_err(|_| broken())?,
        place: u32::try_from(before.count()).unwrap_or(u32::MAX),
        list: list.clone(),
        names,
    })
}

/// Reason why a store cannot be connected to at all. The proxy does not start then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreSetupError {
    /// An address cannot be used with the certificates that are configured.
    #[error("{address} cannot be used: {source}")]
    Client {
        /// Address of the store.
        address: StoreAddress,
        /// Cause, from the Redis client.
        source: RedisError,
    },
}

/// Task that keeps this node in its fleet.
#[derive(Debug)]
pub struct FleetTask {
    store: Arc<RedisStore>,
    clients: Arc<[Client]>,
    membership: Membership,
    script: Script,
    mode: Option<FleetMode>,
    /// `run_id` of the server that answered the latest heartbeat.
    run: Option<String>,
    /// Policy of the server that was used last, by which it removes entries.
    eviction: Option<String>,
    /// Error of the latest attempt to connect, by store. Each one is logged once.
    troubles: HashMap<StoreAddress, String>,
}

impl FleetTask {
    /// Makes the task that connects `store`; `roots` are certificates in PEM.
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
        })
    }

    /// Sends heartbeats until `stop`, and calls `changed` after each change of the
    /// mode. The node stays in the store until [`FleetTask::leave`].
    pub async fn run(
        mut self,
        scheduler: Arc<Scheduler>,
        changed: impl Fn(FleetPart, Option<&Beat>),
        stop: CancellationToken,
    ) {
        let rules = self.store.options.rules;
        while !stop.is_cancelled() {
            self.beat(&scheduler).await;
            // A heartbeat without an answer counts, too: leases may have expired.
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

    /// Removes this node from the store, so that a new generation does not wait for
    /// it.
    pub async fn leave(store: &RedisStore) {
        let Ok(mut connection) = store.connection() else {
            return;
        };
        let (options, mut orders) = (&store.options, redis::pipe());
        orders.zrem(options.nodes_key(), &options.node);
        orders.hdel(options.notes_key(), &options.node);
        // Without a number the list of nodes gets another one, and is told to all.
        orders.hdel(fleet_key(options), "list");
        let gone = orders.query_async::<(u32, u32, u32)>(&mut connection);
        if store.in_time(gone).await.is_err() {
            tracing::warn!("the store of the fleet was not told that this node stops");
        }
    }

    /// Shows whether the fleet is joined, also in metrics.
    fn show(&self, part: FleetPart) {
        let (metrics, is_joined) = (&self.store.metrics, part.mode == FleetMode::Leased);
        self.store.is_joined.store(is_joined, Ordering::Relaxed);
        metrics.fleet_degraded.set((!is_joined).into());
        metrics.fleet_nodes.set(part.share.nodes.into());
        let live = self.membership.latest().map_or(0, |latest| latest.live);
        metrics.fleet_live_nodes.set(live.into());
    }

    /// Sends a heartbeat, over a new connection if there is none.
    async fn beat(&mut self, scheduler: &Scheduler) {
        let asked_at = scheduler.uptime();
        let known = self.store.link.load_full();
        let link = match known.as_deref() {
            Some(link) => Some(link.clone()),
            None => self.connect().await,
        };
        let Some(mut link) = link else {
            return self.membership.miss(asked_at);
        };
        match self.ask(&mut link, asked_at).await {
            Ok(beat) => {
                link.beat = Some(beat.clone());
                self.troubles.clear();
                self.run = Some(link.run.clone());
                self.store.link.store(Some(Arc::new(link)));
                self.membership.take(beat, asked_at);
            }
            Err(error) => {
                self.store.link.store(None);
                self.membership.miss(asked_at);
                self.report(&link.address, &error);
            }
        }
    }

    /// Counts an error of a store and logs it, but for one that was logged already: each
    /// heartbeat tries again.
    fn report(&mut self, address: &StoreAddress, error: &StoreError) {
        self.store.metrics.fleet_call_errors.inc();
        let trouble = error.with_advice();
        if self.troubles.get(address) != Some(&trouble) {
            tracing::warn!(%address, error = trouble, "a store of the fleet cannot be used");
            self.troubles.insert(address.clone(), trouble);
        }
    }

    /// Runs `beat.lua` over `link`.
    async fn ask(&self, link: &mut StoreLink, now: Duration) -> Result<Beat, StoreError> {
        let options = &self.store.options;
        let latest = self.membership.latest();
        let generation = latest.map_or(0, |latest| latest.generation);
        // Another server, or the same one started again: it may have lost the latest
        // nodes, so the heartbeat names them.
        let is_new = self.run.as_ref() != Some(&link.run);
        let list = latest.filter(|_| !is_new);
        let mut invocation = self.script.key(fleet_key(options));
        invocation
            .key(options.nodes_key())
            .arg(&options.node)
            .arg(&link.run)
            .arg(u8::from(self.membership.is_away()))
            .arg(generation)
            .arg(micros(options.rules.lease))
            .arg(micros(options.forget))
            .arg(micros(self.membership.heard_before(now)))
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
            tracing::warn!(removed, "somebody else wrote into the store of the fleet");
        }
        beat_answer(&words, &options.node, list).and_then(|beat| {
            // A replica that became primary without the latest data. Leases given by
            // it could be held by two nodes.
            let is_older = beat.generation < generation;
            if is_older {
                return Err(StoreError::Older(beat.generation));
            }
            Ok(beat)
        })
    }

    /// Connects to the primary server. If several servers say that they are it, takes
    /// the one of the latest generation.
    async fn connect(&mut self) -> Option<StoreLink> {
        let limit = self.store.options.rules.timeout;
        let mut best: Option<(u64, StoreLink)> = None;
        let (store, clients) = (Arc::clone(&self.store), Arc::clone(&self.clients));
        for (client, address) in clients.iter().zip(&store.options.store) {
            let found = timeout(limit, self.look_at(client, address)).await;
            match found.unwrap_or(Err(StoreError::Timeout(limit))) {
                // For a while after a fail-over the old server may be a primary, too.
                Ok(found) => {
                    if best.as_ref().is_none_or(|(latest, _)| *latest < found.0) {
                        best = Some(found);
                    }
                }
                Err(error) => self.report(address, &error),
            }
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

    /// Connects to a server, and returns its generation with the connection.
    async fn look_at(
        &self,
        client: &Client,
        address: &StoreAddress,
    ) -> Result<(u64, StoreLink), StoreError> {
        let limit = self.store.options.rules.timeout;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(limit));
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(first_command_error)?;
        // All sections: servers before Redis 7 take at most one name of a section.
        let facts: InfoDict = redis::cmd("INFO")
            .query_async(&mut connection)
            .await
            .map_err(first_command_error)?;
        let role: String = facts.get("role").unwrap_or_default();
        let mode: Option<String> = facts.get("redis_mode");
        match mode.as_deref() {
            Some("sentinel") => return Err(StoreError::Sentinel),
            Some("cluster") => check_shards(&mut connection).await?,
            _ => {}
        }
        if role != "master" {
            return Err(StoreError::Role(role));
        }
        let run: String = facts.get("run_id").ok_or(StoreError::Nameless)?;
        let memory: Option<u64> = facts.get("maxmemory");
        let policy: Option<String> = facts.get("maxmemory_policy");
        rights::check(&mut connection, &self.store.options).await?;
        let mut order = redis::cmd("HGET");
        order.arg(fleet_key(&self.store.options));
        order.arg("generation");
        // What is no number, the heartbeat replaces.
        let generation: Option<Vec<u8>> = order.query_async(&mut connection).await?;
        let text = generation
            .as_deref()
            .and_then(|bytes| str::from_utf8(bytes).ok());
        let link = StoreLink {
            connection,
            address: address.clone(),
            run,
            eviction: policy.filter(|policy| memory != Some(0) && policy != "noeviction"),
            beat: None,
        };
        Ok((text.and_then(|text| text.parse().ok()).unwrap_or(0), link))
    }
}

/// Holds that a server of a cluster has all keys: of several, each has some, and redirects
/// the rest.
async fn check_shards(connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
    let mut order = redis::cmd("CLUSTER");
    let facts: InfoDict = order.arg("INFO").query_async(connection).await?;
    match facts.get("cluster_size") {
        Some(shards) if 1 < shards => Err(StoreError::Shard(shards)),
        _ => Ok(()),
    }
}

fn fleet_key(options: &Options) -> String {
    format!("{}:{{fleet}}", options.name)
}

fn client(
    address: &StoreAddress,
    credentials: Option<&UserPassword>,
    roots: Option<&[u8]>,
) -> Result<Client, RedisError> {
    let (host, port) = (address.server.host.clone(), address.server.port);
    let place = if address.is_tls {
        ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    let mut settings = RedisConnectionInfo::default().set_db(address.database.into());
    if let Some(credentials) = credentials {
        settings = settings
            .set_username(&credentials.user)
            .set_password(&credentials.password);
    }
    let connection: ConnectionInfo = place.into_connection_info()?.set_redis_settings(settings);
    match roots.filter(|_| address.is_tls) {
        Some(roots) => Client::build_with_tls(
            connection,
            TlsCertificates {
                client_tls: None,
                root_cert: Some(roots.to_vec()),
            },
        ),
        None => Client::open(connection),
    }
}
