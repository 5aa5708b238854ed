//! Store of the robots.txt files that the nodes of a fleet fetch for each other.
//!
//! The node that has the turn at a host fetches its robots.txt, and the others find it
//! here. `claim.lua` keeps two nodes from fetching the same file. Files are stored by
//! digest, once for all origins with equal files. An answer that is unreadable, or not
//! from this fleet ([`FleetKey`]), is fetched again. Each command uses a single key, as
//! clusters require.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{FromRedisValue, Pipeline, Script};
use thiserror::Error;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::membership::FleetRules;
use super::shared_answer::{FleetKey, LoadContext, SharedAnswer, key_text};
use super::store::RedisStore;
use super::store_error::{StoreError, is_about_type, with_advice};
use politesse_base::clock::{self, passed};
use politesse_base::metrics::ResultLabel;
use politesse_base::throttle::REPEATING;
use politesse_decision::snapshot::{CacheKey, StoredSnapshot};
use politesse_robots::Dialect;
use politesse_robots::origin::Target;
use politesse_robots_cache::options::LIFETIME_MAX;
use politesse_robots_cache::shared_answers::{
    ClaimAnswer, ClaimCall, SharedStore, SharedStoreError, SharedStoreTimes,
};
use politesse_robots_cache::store::StoreFuture;

/// Interval at which a node asks for changed files. It learns of a change within a
/// second.
const CHANGES_EVERY: Duration = Duration::from_millis(500);

/// Number of changes that the store keeps for returning nodes, and number that is read at
/// once.
const CHANGES_MAX: usize = 10_000;
const CHANGES_READ: usize = 256;

/// Seconds for which a file is stored: longer than any answer that names it.
const BODY_SECONDS: u64 = LIFETIME_MAX.as_secs() + 60;

/// Number of leases for which a claim is valid. A node without an answer for one lease
/// considers the store lost, so a node with a store never loses a claim during a fetch.
const CLAIM_LEASES: u32 = 4;

/// Position before all changes, in the stream of changes (a Redis stream).
const BEGINNING: &str = "0-0";

/// Change as the store returns it: its position in the stream, and the names and values of
/// its fields in turn. Bytes, because other programs may write any.
type StreamEntry = (String, Vec<Vec<u8>>);

/// Store of the files of a fleet.
#[derive(Debug)]
pub struct RobotsStore {
    store: Arc<RedisStore>,
    key: FleetKey,
    /// Longest file that is accepted (`robots.max_bytes`).
    max_bytes: usize,
    /// Claims the fetch of a file (`claim.lua`).
    claim: Script,
    /// Adds a change to the stream of changes (`announce.lua`).
    announce: Script,
}

/// Reason why the result of a command to the store is unknown or useless.
#[derive(Debug, Error)]
enum ExchangeError {
    /// The store did not answer, or refused the command.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No node of this fleet can have written the value: its type or its MAC is wrong, or
    /// its file is missing.
    #[error("it was not made with the key of this fleet")]
    Unverified,
}

impl ExchangeError {
    /// Logs a refusal of the store, because nothing else reports that files are not
    /// shared. The heartbeat reports a store that does not answer.
    fn report(&self) {
        if let Self::Store(StoreError::Redis(error)) = self
            && !self.may_pass()
        {
            tracing::warn!(
                target: REPEATING,
                error = with_advice(error),
                "robots.txt files are not shared through the store of the fleet"
            );
        }
    }

    /// Returns whether another attempt may get an answer. Not if the store has refused.
    fn may_pass(&self) -> bool {
        match self {
            Self::Store(error) => !error.is_answer(),
            Self::Unverified => false,
        }
    }
}

impl RobotsStore {
    /// Creates the store of a fleet whose nodes have `key`.
    #[must_use]
    pub fn new(store: Arc<RedisStore>, key: FleetKey, max_bytes: usize) -> Self {
        Self {
            store,
            key,
            max_bytes,
            claim: Script::new(include_str!("claim.lua")),
            announce: Script::new(include_str!("announce.lua")),
        }
    }

    /// Returns the name in the store for something of a kind: `robots` (answer), `body`
    /// (file) or `fetch` (claim).
    fn name(&self, kind: &str, rest: &str) -> String {
        format!("{}:{kind}:{rest}", self.store.options.name)
    }

    fn changes_key(&self) -> String {
        self.store.options.shared_key("changes")
    }

    fn count(&self, result: &'static str) {
        let robots = &self.store.metrics.fleet_robots;
        robots.get_or_create(&ResultLabel { result }).inc();
    }

    /// Sends commands to the store, and waits for the answers up to `fleet.timeout`.
    async fn ask<T: FromRedisValue>(&self, orders: &Pipeline) -> Result<T, ExchangeError> {
        let mut connection = self.store.connection()?;
        let asked = orders.query_async(&mut connection);
        let answer = self.store.in_time(asked).await;
        if let Err(StoreError::Redis(error)) = &answer
            && is_about_type(error)
        {
            return Err(ExchangeError::Unverified);
        }
        Ok(answer?)
    }

    /// Loads the answer for `key` with its file; `None` if either is not in the store, or
    /// if the file is too long.
    async fn find(
        &self,
        key: &CacheKey,
        dialect: Dialect,
    ) -> Result<Option<StoredSnapshot>, ExchangeError> {
        let name = self.name("robots", &key_text(key));
        let mut orders = redis::pipe();
        orders.cmd("GET").arg(&name).cmd("PTTL").arg(&name);
        let (Some(bytes), left) = self.ask::<(Option<Vec<u8>>, i64)>(&orders).await? else {
            return Ok(None);
        };
        let opened = self.key.open(&name, &bytes);
        let answer = opened.ok_or(ExchangeError::Unverified)?;
        let body = match answer.file_digest() {
            None => None,
            Some(digest) => {
                let mut orders = redis::pipe();
                orders.cmd("GET").arg(self.name("body", digest));
                let (body,) = self.ask::<(Option<Vec<u8>>,)>(&orders).await?;
                // A node with a higher `robots.max_bytes` may have stored it.
                match body.filter(|bytes| bytes.len() <= self.max_bytes) {
                    None => return Ok(None),
                    Some(bytes) => Some(Bytes::from(bytes)),
                }
            }
        };
        let context = LoadContext {
            dialect,
            now: clock::now(),
            time_left: Duration::from_millis(u64::try_from(left).unwrap_or(0)),
        };
        // A verified answer without its file is useless.
        let snapshot = answer.snapshot(key.clone(), body, context);
        snapshot.ok_or(ExchangeError::Unverified).map(Some)
    }

    /// Stores an answer with its file. Returns whether there was one.
    async fn share(&self, stored: &StoredSnapshot) -> Result<bool, ExchangeError> {
        let snapshot = &stored.snapshot;
        let Some(answer) = SharedAnswer::of(stored) else {
            return Ok(false);
        };
        let name = self.name("robots", &key_text(&snapshot.key));
        // Too long: each node fetches it, as without a fleet.
        let Some(bytes) = self.key.seal(&name, &answer) else {
            return Ok(false);
        };
        let mut orders = redis::pipe();
        // The file first: an answer is present only with its file, which outlives it.
        if let (Some(file), Some(digest)) = (snapshot.file(), answer.file_digest()) {
            let order = orders.cmd("SET").arg(self.name("body", digest));
            order.arg(&file.body[..]).arg("EX").arg(BODY_SECONDS);
            order.ignore();
        }
        let left = passed(clock::now(), snapshot.expires_at);
        let left_ms = millis(left).max(1);
        let order = orders.cmd("SET").arg(&name).arg(&bytes).arg("PX");
        order.arg(left_ms).arg("GET");
        let before = match self.ask::<(Option<Vec<u8>>,)>(&orders).await {
            Ok((before,)) => before,
            // The key has another type, so the previous answer is unknown.
            Err(ExchangeError::Unverified) => {
                let mut orders = redis::pipe();
                let order = orders.cmd("DEL").arg(&name).cmd("SET").arg(&name);
                order.arg(bytes).arg("PX").arg(left_ms);
                self.ask::<(u32, ())>(&orders).await?;
                self.report_foreign(&name);
                Some(Vec::new())
            }
            Err(error) => return Err(error),
        };
        if let Some(before) = before {
            let before = self.key.open(&name, &before);
            // An equal answer comes from an earlier attempt that timed out, so the answer
            // before it is unknown.
            let is_change =
                |before: SharedAnswer| before == answer || !before.has_equal_rules(&answer);
            if before.is_none_or(is_change) {
                self.announce(&snapshot.key).await?;
            }
        }
        Ok(true)
    }

    /// Tells the other nodes that the rules for `key` have changed.
    async fn announce(&self, key: &CacheKey) -> Result<(), ExchangeError> {
        let (url, scope) = (key.origin.robots_txt().to_string(), key.scope());
        let changes = self.changes_key();
        let mut invocation = self.announce.key(&changes);
        invocation.arg(&url).arg(scope).arg(CHANGES_MAX);
        let mut connection = self.store.connection()?;
        let answer = invocation.invoke_async::<u32>(&mut connection);
        if self.store.in_time(answer).await? == 1 {
            self.report_foreign(&changes);
        }
        Ok(())
    }

    /// Logs that a key was removed because no node can have written it.
    fn report_foreign(&self, removed: &str) {
        tracing::warn!(removed, "another program wrote into the store of the fleet");
    }

    /// Calls `changed` within a second for each origin and crawler whose rules changed
    /// according to another node, until `stop`.
    pub async fn follow_changes<F: Future<Output = ()>>(
        &self,
        changed: impl Fn(CacheKey) -> F,
        stop: CancellationToken,
    ) {
        let mut position = BEGINNING.to_owned();
        while !stop.is_cancelled() {
            let entries = self
                .changes_after(&mut position)
                .await
                .unwrap_or_else(|error| {
                    error.report();
                    Vec::new()
                });
            // A node that was away reads all missed changes at once.
            let is_all = entries.len() < CHANGES_READ;
            for (reached, fields) in entries {
                if let Some(key) = changed_key(&fields) {
                    changed(key).await;
                    // Otherwise it is unknown whether the store was still reachable.
                    if self.store.connection().is_err() {
                        break;
                    }
                }
                position = reached;
            }
            if is_all {
                tokio::select! {
                    () = sleep(CHANGES_EVERY) => {}
                    () = stop.cancelled() => {}
                }
            }
        }
    }

    /// Returns the changes after the one at `position`. If the stream no longer contains
    /// that one, it is a different stream: the store lost the earlier one, or another
    /// program removed it. In that case `position` is set to the beginning, and all
    /// changes of the stream are new.
    async fn changes_after(
        &self,
        position: &mut String,
    ) -> Result<Vec<StreamEntry>, ExchangeError> {
        let mut entries = self.changes_from(position).await?;
        if entries.first().is_some_and(|(first, _)| first == position) {
            entries.remove(0);
        } else if position != BEGINNING {
            BEGINNING.clone_into(position);
            entries = self.changes_from(position).await?;
        }
        Ok(entries)
    }

    /// Returns the change at `position` and those after it.
    async fn changes_from(&self, position: &str) -> Result<Vec<StreamEntry>, ExchangeError> {
        let mut orders = redis::pipe();
        let order = orders.cmd("XRANGE").arg(self.changes_key()).arg(position);
        order.arg(&["+", "COUNT"]).arg(1 + CHANGES_READ);
        match self.ask::<(Vec<StreamEntry>,)>(&orders).await {
            Ok((entries,)) => Ok(entries),
            // The key is not a stream until the next change is added.
            Err(ExchangeError::Unverified) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Parses the entry that [`RobotsStore::announce`] wrote.
fn changed_key(fields: &[Vec<u8>]) -> Option<CacheKey> {
    let [_, url, _, scope] = fields else {
        return None;
    };
    let (url, scope) = (str::from_utf8(url).ok()?, str::from_utf8(scope).ok()?);
    CacheKey::of_scope(url.parse::<Target>().ok()?.origin, scope)
}

impl RobotsStore {
    /// Claims a fetch for the time `lasts`, or gives the claim back if that is zero. Returns
    /// false if another node has claimed the fetch.
    async fn claim_for(&self, call: ClaimCall<'_>, lasts: Duration) -> Result<bool, ExchangeError> {
        let name = self.name("fetch", &key_text(call.key));
        let mut invocation = self.claim.key(name);
        invocation
            .arg(&self.store.process)
            .arg(call.number)
            .arg(millis(lasts))
            .arg(millis(CLAIM_LEASES * FleetRules::LEASE_MAX));
        let mut connection = self.store.connection()?;
        let answer = invocation.invoke_async(&mut connection);
        Ok(self.store.in_time(answer).await?)
    }

    /// Logs and counts an error. Returns [`SharedStoreError::Late`] if the caller should
    /// try again.
    fn counted_error(&self, error: &ExchangeError, key: &CacheKey) -> SharedStoreError {
        let origin = &key.origin;
        tracing::debug!(%origin, %error, "the store of the fleet gave no answer about a robots.txt");
        error.report();
        if error.may_pass() && self.store.is_joined() {
            self.count("late");
            return SharedStoreError::Late;
        }
        self.count("failed");
        SharedStoreError::Lost
    }
}

impl SharedStore for RobotsStore {
    fn times(&self) -> SharedStoreTimes {
        let lease = self.store.options.rules.lease;
        SharedStoreTimes {
            claim: lease.saturating_mul(CLAIM_LEASES),
            // As long as the heartbeat continues without an answer.
            patience: lease,
        }
    }

    fn load<'a>(
        &'a self,
        key: &'a CacheKey,
        dialect: Dialect,
    ) -> StoreFuture<'a, Result<Option<StoredSnapshot>, SharedStoreError>> {
        Box::pin(async move {
            match self.find(key, dialect).await {
                Ok(snapshot) => {
                    self.count(if snapshot.is_some() {
                        "found"
                    } else {
                        "absent"
                    });
                    Ok(snapshot)
                }
                Err(ExchangeError::Unverified) => {
                    tracing::warn!(
                        target: REPEATING,
                        origin = %key.origin,
                        "a robots.txt in the store of the fleet was not made with its key (fleet.key): \
                         it is not used"
                    );
                    self.count("unverified");
                    Ok(None)
                }
                Err(error) => Err(self.counted_error(&error, key)),
            }
        })
    }

    fn save(&self, answer: StoredSnapshot) -> StoreFuture<'_, Result<(), SharedStoreError>> {
        Box::pin(async move {
            let shared = self.share(&answer).await;
            if shared.map_err(|error| self.counted_error(&error, &answer.snapshot.key))? {
                self.count("shared");
            }
            Ok(())
        })
    }

    fn claim<'a>(
        &'a self,
        call: ClaimCall<'a>,
    ) -> StoreFuture<'a, Result<ClaimAnswer, SharedStoreError>> {
        Box::pin(async move {
            match self.claim_for(call, self.times().claim).await {
                Ok(true) => Ok(ClaimAnswer::Take),
                Ok(false) => {
                    self.count("elsewhere");
                    Ok(ClaimAnswer::Refuse)
                }
                Err(error) => Err(self.counted_error(&error, call.key)),
            }
        })
    }

    fn release<'a>(&'a self, call: ClaimCall<'a>) -> StoreFuture<'a, Result<(), SharedStoreError>> {
        Box::pin(async move {
            let released = self.claim_for(call, Duration::ZERO).await;
            released
                .map(drop)
                .map_err(|error| self.counted_error(&error, call.key))
        })
    }
}
