//! Copies of a robots.txt that are fetched again on an operator's order.
//!
//! A copy stays in force until its fetch has an answer. If the fetch fails, the copy is
//! kept as after any failed refresh. Does not know who gives the order.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use http::HeaderValue;
use tokio::sync::watch;
use tokio::time::timeout;

use super::entry::CacheEntry;
use super::fetch::{Asker, RobotsFetcher};
use super::store::{FetchState, Lookup};
use super::worker::{FetchWorker, LOAD_TIMEOUT};
use politesse_decision::decide::Inquiry;
use politesse_decision::snapshot::{CacheKey, Snapshot};
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::origin::Host;

/// Largest number of fetches that one order starts. The other copies, the oldest ones,
/// are fetched when their crawlers next ask: a site must not get one request for every
/// crawler that ever asked.
const REFETCHES_MAX: usize = 16;

/// Fetch of a robots.txt for which a copy exists.
#[derive(Debug)]
pub struct Refetch {
    /// Copy that the answer replaces.
    pub before: Arc<Snapshot>,
    /// Progress; `None` if no further fetch may wait (`robots.max_waiting`).
    state: Option<watch::Receiver<FetchState>>,
}

/// Outcome of a [`Refetch`].
#[derive(Debug, Clone)]
pub enum RefetchOutcome {
    /// The origin gave another answer.
    Changed(Arc<Snapshot>),
    /// The origin gave the same answer.
    Unchanged,
    /// The origin gave no answer. The copy stays in force by the rules for stale copies.
    Failed,
    /// The fetch has not ended.
    Pending,
}

impl RefetchOutcome {
    /// Returns the outcome as a word.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Changed(_) => "changed",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
            Self::Pending => "pending",
        }
    }
}

impl Refetch {
    /// Waits for the end of the fetch. Returns [`RefetchOutcome::Pending`] if it did not
    /// start; the next request then fetches the copy.
    pub async fn outcome(&mut self) -> RefetchOutcome {
        let Some(state) = &mut self.state else {
            return RefetchOutcome::Pending;
        };
        let has_ended =
            |state: &FetchState| matches!(state, FetchState::Done(_) | FetchState::Abandoned);
        let ended = state.wait_for(has_ended).await;
        let Ok(FetchState::Done(entry)) = ended.map(|state| state.clone()) else {
            return RefetchOutcome::Pending;
        };
        let (before, now) = (&self.before, &entry.snapshot);
        if Arc::ptr_eq(before, now) || !now.is_answer() {
            RefetchOutcome::Failed
        } else if answer(before) == answer(now) {
            RefetchOutcome::Unchanged
        } else {
            RefetchOutcome::Changed(Arc::clone(now))
        }
    }
}

/// Returns the parts of a snapshot that its rules follow from.
fn answer(snapshot: &Snapshot) -> impl PartialEq {
    let file = snapshot.file().map(|file| file.digest);
    // A file that a 304 confirmed has another status, but is the same file.
    (
        snapshot.is_answer(),
        file,
        snapshot.status.filter(|_| file.is_none()),
    )
}

impl<F: RobotsFetcher> FetchWorker<F> {
    /// Makes all copies at `host` due, and starts to fetch the newest.
    pub(super) async fn refetch(self: &Arc<Self>, host: &Host) -> Vec<Refetch> {
        // A store that hangs must not keep the copies in memory from being fetched.
        let _ = timeout(LOAD_TIMEOUT, self.load_host(host)).await;
        let mut entries = self.table.make_due(host);
        // The newest copies belong to the crawlers that are active now.
        entries.sort_by_key(|entry| Reverse(entry.snapshot.fetched_at));
        let (mut refetches, mut keys) = (Vec::new(), HashSet::new());
        for entry in entries {
            if refetches.len() < REFETCHES_MAX {
                refetches.extend(self.refetch_entry(&entry, &mut keys));
            }
        }
        refetches
    }

    /// Loads the entries at `host` that are in the store but not in memory.
    async fn load_host(&self, host: &Host) {
        let Some(store) = &self.sources.store else {
            return;
        };
        for key in store.keys(host).await.unwrap_or_default() {
            if self.table.latest(&key).is_some() {
                continue;
            }
            // An unreadable entry is fetched when it is next needed.
            if let Ok(Some(entry)) = self.load_own(&key, &crawler(&key)).await {
                self.table.insert(&key, &entry);
            }
        }
    }

    /// Starts to fetch the robots.txt of `entry` and adds its key to `keys`; `None` if
    /// `keys` already contains it.
    fn refetch_entry(
        self: &Arc<Self>,
        entry: &Arc<CacheEntry>,
        keys: &mut HashSet<CacheKey>,
    ) -> Option<Refetch> {
        let key = &entry.snapshot.key;
        let asker = entry.asker.clone().unwrap_or_else(|| named(key));
        let inquiry = Inquiry {
            crawler: crawler(key),
            target: key.origin.robots_txt(),
            method: "GET".to_owned(),
        };
        let lookup_keys = self.keys(&inquiry, &asker);
        if !keys.insert(lookup_keys.shared.clone()) {
            return None;
        }
        let mut state = None;
        let requester = self.requester(&inquiry.crawler, &asker);
        let sharer = self.sharer(&asker);
        let lookup = self.table.look_up(&lookup_keys, sharer, |fetch| {
            state = Some(fetch.watch());
            self.start(fetch, requester);
        });
        let running = match lookup {
            Lookup::Running(state) => Some(state),
            // A fetch that was already running when the order came is used as well.
            Lookup::Fresh(_) => self.table.watch(&lookup_keys.shared),
        };
        Some(Refetch {
            before: Arc::clone(&entry.snapshot),
            state: state.or(running),
        })
    }
}

/// Returns the crawler of an entry, as far as its key identifies it.
fn crawler(key: &CacheKey) -> Crawler {
    Crawler::parse(key.token.as_ref().map_or("", ProductToken::as_str))
}

/// Returns a sender with the name in `key`. Used after a restart, when the full
/// `User-Agent` is unknown. An answer that applies to one sender only then applies to
/// this one.
fn named(key: &CacheKey) -> Asker {
    let token = key.token.as_ref().map(ProductToken::as_str);
    Asker {
        client: None,
        entry: key.entry,
        user_agent: token.and_then(|token| HeaderValue::from_str(token).ok()),
        from: None,
    }
}
