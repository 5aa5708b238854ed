//! Store of the robots.txt files that the nodes of a fleet fetch for each other.
//!
//! The node whose turn it is at a host fetches its robots.txt, and the others find it
//! here. Files are kept by their digest, once for all origins that have the same. What
//! cannot be read, or is not from this fleet ([`FleetKey`]), is fetched anew. Each
//! command has one key, as clusters want it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{FromRedisValue, Pipeline, RedisError};
use thiserror::Error;
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::shared_answer::{FleetKey, SharedAnswer, SnapshotReading, key_text};
use super::store::RedisStore;
use crate::clock::{self, passed};
use crate::decision::snapshot::{CacheKey, StoredSnapshot};
use crate::metrics::ResultLabel;
use crate::robots_cache::options::LIFETIME_MAX;
use crate::robots_cache::store::{SnapshotStore, StoreFuture};
use crate::throttle::REPEATING;
use politesse_robots::Dialect;
use politesse_robots::crawler::ProductToken;
use politesse_robots::origin::Target;

/// Time between two questions which files have changed: a node knows of a change within
/// a second.
const CHANGES_EVERY: Duration = Duration::from_millis(500);

/// Changes that the store keeps for nodes that come back, and that are read at a time.
const CHANGES_MAX: usize = 10_000;
const CHANGES_READ: usize = 256;

/// Seconds for which a file is kept: longer than any answer that names it.
const BODY_SECONDS: u64 = LIFETIME_MAX.as_secs() + 60;

/// Place before all changes.
const BEGINNING: &str = "0-0";

/// A change as the store gives it: its place, and names with their values.
type StreamEntry = (String, Vec<String>);

/// Store of the files of a fleet.
#[derive(Debug)]
pub struct RobotsStore {
    store: Arc<RedisStore>,
    key: FleetKey,
    /// Longest file that is taken (`robots.max_bytes`).
    max_bytes: usize,
}

/// Reason why an answer was neither found nor missing.
#[derive(Debug, Error)]
enum ExchangeError {
    #[error("the store cannot be reached")]
    Unreached,
    #[error("no answer in time")]
    Timeout(#[from] Elapsed),
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error("it was not made with the key of this fleet")]
    Unverified,
}

impl RobotsStore {
    /// Makes the store of a fleet whose nodes have `key`.
    #[must_use]
    pub fn new(store: Arc<RedisStore>, key: FleetKey, max_bytes: usize) -> Self {
        Self {
            store,
            key,
            max_bytes,
        }
    }

    fn name(&self, kind: &str, rest: &str) -> String {
        format!("{}:{kind}:{rest}", self.store.options.name)
    }

    fn changes_key(&self) -> String {
        format!("{}:{{fleet}}:changes", self.store.options.name)
    }

    fn count(&self, result: &'static str) {
        let robots = &self.store.metrics.fleet_robots;
        robots.get_or_create(&ResultLabel { result }).inc();
    }

    /// Gives orders to the store, and waits for the answers up to `fleet.timeout`.
    async fn ask<T: FromRedisValue>(&self, orders: &Pipeline) -> Result<T, ExchangeError> {
        let link = self
            .store
            .link
            .load_full()
            .ok_or(ExchangeError::Unreached)?;
        let limit = self.store.options.rules.timeout;
        // Clones share the socket: no file waits for another.
        let mut connection = link.connection.clone();
        Ok(timeout(limit, orders.query_async(&mut connection)).await??)
    }

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
                // A node that keeps more of a file may have stored it.
                match body.filter(|bytes| bytes.len() <= self.max_bytes) {
                    None => return Ok(None),
                    Some(bytes) => Some(Bytes::from(bytes)),
                }
            }
        };
        let read = SnapshotReading {
            dialect,
            now: clock::now(),
            left: Duration::from_millis(u64::try_from(left).unwrap_or(0)),
        };
        // Verified as it is, an answer without its file is none.
        let snapshot = answer.snapshot(key.clone(), body, read);
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
        // The file first: an answer is there only with its file, which outlives it.
        if let (Some(file), Some(digest)) = (snapshot.file(), answer.file_digest()) {
            let order = orders.cmd("SET").arg(self.name("body", digest));
            order.arg(&file.body[..]).arg("EX").arg(BODY_SECONDS);
            order.ignore();
        }
        let left = passed(clock::now(), snapshot.expires_at).as_millis();
        let order = orders.cmd("SET").arg(&name).arg(bytes).arg("PX");
        order
            .arg(u64::try_from(left).unwrap_or(0).max(1))
            .arg("GET");
        let (before,) = self.ask::<(Option<Vec<u8>>,)>(&orders).await?;
        if let Some(before) = before {
            let before = self.key.open(&name, &before);
            if before.is_none_or(|before| !before.says_the_same(&answer)) {
                self.announce(&snapshot.key).await?;
            }
        }
        Ok(true)
    }

    /// Tells the other nodes that the rules for `key` have changed.
    async fn announce(&self, key: &CacheKey) -> Result<(), ExchangeError> {
        let token = key.token.as_ref().map_or("", ProductToken::as_str);
        let url = key.origin.robots_txt().to_string();
        let mut orders = redis::pipe();
        let order = orders.cmd("XADD").arg(self.changes_key());
        order.arg(&["MAXLEN", "~"]).arg(CHANGES_MAX).arg("*");
        order.arg(&["url", &url, "token", token]);
        self.ask::<(String,)>(&orders).await.map(drop)
    }

    /// Calls `changed` for each origin and crawler whose rules another node found
    /// changed, within a second, until `stop`.
    pub async fn follow_changes<F: Future<Output = ()>>(
        &self,
        changed: impl Fn(CacheKey) -> F,
        stop: CancellationToken,
    ) {
        let mut run = None;
        let mut place = BEGINNING.to_owned();
        while !stop.is_cancelled() {
            let link = self.store.link.load_full();
            if let Some(link) = link.filter(|link| run.as_ref() != Some(&link.run)) {
                // Places of another process of the store need not follow those before.
                place = BEGINNING.to_owned();
                run = Some(link.run.clone());
            }
            let entries = self.changes_after(&place).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "changes of robots.txt files cannot be read");
                Vec::new()
            });
            // A node that was away reads what it missed at once.
            let is_all = entries.len() < CHANGES_READ;
            for (found, fields) in entries {
                if let Some(key) = changed_key(&fields) {
                    changed(key).await;
                }
                place = found;
            }
            if is_all {
                tokio::select! {
                    () = sleep(CHANGES_EVERY) => {}
                    () = stop.cancelled() => {}
                }
            }
        }
    }

    async fn changes_after(&self, place: &str) -> Result<Vec<StreamEntry>, ExchangeError> {
        let mut orders = redis::pipe();
        let order = orders.cmd("XRANGE").arg(self.changes_key());
        order
            .arg(format!("({place}"))
            .arg(&["+", "COUNT"])
            .arg(CHANGES_READ);
        let (entries,) = self.ask::<(Vec<StreamEntry>,)>(&orders).await?;
        Ok(entries)
    }
}

/// Reads what [`RobotsStore::announce`] wrote.
fn changed_key(fields: &[String]) -> Option<CacheKey> {
    let [_, url, _, token] = fields else {
        return None;
    };
    Some(CacheKey {
        origin: url.parse::<Target>().ok()?.origin,
        token: match token.as_str() {
            "" => None,
            token => Some(ProductToken::new(token).ok()?),
        },
    })
}

impl SnapshotStore for RobotsStore {
    fn load<'a>(
        &'a self,
        key: &'a CacheKey,
        dialect: Dialect,
    ) -> StoreFuture<'a, Option<StoredSnapshot>> {
        Box::pin(async move {
            let (result, snapshot) = match self.find(key, dialect).await {
                Ok(Some(snapshot)) => ("found", Some(snapshot)),
                Ok(None) => ("absent", None),
                Err(ExchangeError::Unverified) => {
                    tracing::warn!(
                        target: REPEATING,
                        origin = %key.origin,
                        "a robots.txt in the store of the fleet was not made with its key (fleet.key): \
                         it is not used"
                    );
                    ("unverified", None)
                }
                Err(error) => {
                    tracing::debug!(origin = %key.origin, %error, "a shared robots.txt cannot be read");
                    ("failed", None)
                }
            };
            self.count(result);
            snapshot
        })
    }

    fn save(&self, stored: StoredSnapshot) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            match self.share(&stored).await {
                Ok(true) => self.count("shared"),
                Ok(false) => {}
                Err(error) => {
                    let origin = &stored.snapshot.key.origin;
                    tracing::debug!(%origin, %error, "a robots.txt cannot be shared");
                    self.count("failed");
                }
            }
        })
    }
}
