//! Store of a fleet in Redis or Valkey: its connection, and leases through `lease.lua`.
//!
//! All times in the store use the clock of its server. Does not know how the connection
//! is made ([`super::connect`]), nor when ([`super::heartbeat`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::SignedDuration;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Script};
use tokio::time::timeout;

use super::membership::Beat;
use super::options::{Options, StoreAddress};
use super::status::StoreState;
use super::store_error::{StoreError, is_about_rights, is_about_shards};
use politesse_base::metrics::Metrics;
use politesse_base::throttle::REPEATING;
use politesse_pace::fleet_part::HostHistory;
use politesse_pace::lease::{
    LeaseAnswer, LeaseCall, LeaseFuture, LeaseOrder, LeaseStore, StoreLost,
};

/// Connection to the primary server of the store.
#[derive(Clone)]
pub(super) struct StoreLink {
    pub(super) connection: MultiplexedConnection,
    pub(super) address: StoreAddress,
    /// `run_id` of the server, which changes at each of its starts.
    pub(super) run: String,
    /// Eviction policy of the server; `None` if it evicts no entries.
    pub(super) eviction: Option<String>,
    /// Answer to the latest heartbeat over this connection.
    pub(super) beat: Option<Beat>,
    /// Whether the store grants no leases, because each generation is replaced before it
    /// opens.
    pub(super) is_unopened: bool,
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
    /// Name of this process as a holder of leases: the node's name and a random number.
    /// After a restart, the node is a different holder.
    pub(super) process: String,
    /// Connection for leases. Absent until a heartbeat was answered over it.
    pub(super) link: ArcSwapOption<StoreLink>,
    /// `lease.lua`.
    script: Script,
    /// Whether this node considers the store available, even if calls fail at the moment.
    pub(super) is_joined: AtomicBool,
    /// Whether another process with the name of this node was seen.
    pub(super) has_namesake: AtomicBool,
    /// Microseconds that the latest answer to a heartbeat took.
    pub(super) latency_us: AtomicU64,
    pub(super) metrics: Arc<Metrics>,
}

impl RedisStore {
    /// Creates a store without a connection. [`FleetTask`](super::heartbeat::FleetTask)
    /// connects it.
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

    /// Returns whether this node considers the store available: a heartbeat was answered
    /// within the last lease.
    pub(super) fn is_joined(&self) -> bool {
        self.is_joined.load(Ordering::Relaxed)
    }

    /// Returns the state of the server that accepts commands; `None` if none does.
    #[must_use]
    pub fn state(&self) -> Option<StoreState> {
        let link = self.link.load_full()?;
        let latency = Duration::from_micros(self.latency_us.load(Ordering::Relaxed));
        Some(StoreState {
            address: link.address.to_string(),
            latency_ms: latency.as_secs_f64() * 1e3,
            generation: link.beat.as_ref()?.generation,
            is_unopened: link.is_unopened,
        })
    }

    /// Returns whether another process has the name of this node (`fleet.node`).
    #[must_use]
    pub fn has_namesake(&self) -> bool {
        self.has_namesake.load(Ordering::Relaxed)
    }

    /// Returns a connection to the server that accepts commands. All connections share a
    /// socket, and no call waits for another.
    pub(super) fn connection(&self) -> Result<MultiplexedConnection, StoreError> {
        let link = self.link.load_full().ok_or(StoreError::Unreached)?;
        Ok(link.connection.clone())
    }

    /// Waits for an answer, up to `fleet.timeout`.
    ///
    /// Disconnects from a store that refused a command for lack of a right or a key.
    /// Otherwise such a store would keep this node in the fleet through its heartbeats.
    /// The next connection attempt finds out which right is missing.
    pub(super) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, StoreError> {
        let limit = self.options.rules.timeout;
        let came = timeout(limit, answer).await;
        let answer = came.map_err(|_| StoreError::Timeout(limit))?;
        if answer
            .as_ref()
            .is_err_and(|error| is_about_rights(error) || is_about_shards(error))
        {
            self.link.store(None);
        }
        // The library has its own limit, which may be reached first.
        answer.map_err(|error| match error.is_timeout() {
            true => StoreError::Timeout(limit),
            false => error.into(),
        })
    }

    /// Runs `lease.lua` for a host.
    async fn call(&self, call: &LeaseCall<'_>) -> Result<LeaseAnswer, StoreError> {
        let link = self.link.load_full().ok_or(StoreError::Unreached)?;
        let beat = link.beat.as_ref().ok_or(StoreError::Unreached)?;
        let (order, history) = match call.order {
            LeaseOrder::Claim => ("claim", HostHistory::default()),
            LeaseOrder::Renew(history) => ("renew", history),
            LeaseOrder::Release(history) => ("release", history),
            LeaseOrder::EndBackOff => ("end_back_off", HostHistory::default()),
        };
        // Redis Cluster places a key by the part in braces, so all keys of a host are on
        // one server.
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
                // The heartbeat reports a store that does not answer. An answer about one
                // host is reported only here.
                if error.is_answer() {
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

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Adds the arguments of `lease.lua` for the history of a host; -1 stands for no age.
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
    match history.asked_for_less {
        Some(age) => invocation.arg(micros(age)),
        None => invocation.arg(-1),
    };
}

/// Parses the answer of `lease.lua`.
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
                asked_for_less: None,
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
