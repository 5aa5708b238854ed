//! Cache of robots.txt files of [politesse](https://crates.io/crates/politesse).
//!
//! There is one snapshot for each origin, product token and entry of `crawler`; all
//! waiting requests share its fetch. A sender that got any other answer than a file has a
//! snapshot of its own (docs/decisions/031-shared-robots.md).
//!
//! RFC 9309, sections 2.3.1 and 2.4. With a fixed `robots.user_agent` all crawlers share
//! one snapshot per origin. Does not know the proxy: `serve` builds the cache and
//! connects its store.
//!
//! The modules are listed in reading order; each uses only the modules below it.

pub mod refetch;

mod worker;

pub mod tdm_files;

pub mod fetch;

pub mod body_text;

pub mod shared_answers;

mod admission;

pub mod store;

mod entry;

pub mod options;

mod outcome;

mod lifetime;

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use self::admission::{FetchSlots, TimeBudget};
use self::entry::CacheEntry;
use self::fetch::{Asker, HttpFetcher, RobotsFetcher};
use self::options::Options;
use self::outcome::FetchOutcome;
use self::refetch::Refetch;
use self::store::{EntryTable, FetchState, KnownEntries, Lookup, SENDERS_MAX};
use self::tdm_files::TdmFiles;
use self::worker::{FetchWorker, Requester};
use politesse_base::clients::client::Client;
use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_decision::access::Cause;
use politesse_decision::decide::Inquiry;
use politesse_decision::snapshot::{CacheKey, Snapshot};
use politesse_robots::origin::Host;

pub use self::worker::{CacheSources, RobotsChangeListener};

/// Largest number of fetches that one request waits for. Before its own fetch, it may have
/// to wait for those of many other senders that arrived at the same time.
const FETCHES_MAX: usize = 16 * SENDERS_MAX;

/// Cache of robots.txt files. Its size is limited; the least recently used entries are
/// evicted first.
pub struct RobotsCache<F = HttpFetcher> {
    worker: Arc<FetchWorker<F>>,
    /// TDM files, which are considered together with the robots.txt of their origin.
    pub tdm_files: TdmFiles,
}

/// Snapshot that decides an inquiry, and how it was obtained.
#[derive(Debug)]
pub struct RobotsLookup {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// Whether the request waited for a fetch.
    pub was_fetched: bool,
    /// Time that the fetch spent waiting for turns in the meantime.
    pub waited: Duration,
    /// Queue of the fetch when the request gave up waiting, because the wait would have
    /// been longer than the client allows. The snapshot is then unreachable
    /// ([`Cause::Busy`]).
    pub queued: Option<QueuedFetch>,
}

/// Fetch that waits for a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedFetch {
    /// Host at which the fetch waits.
    pub host: Host,
    /// Approximate time until its turn.
    pub wait: Duration,
}

impl<F: RobotsFetcher> RobotsCache<F> {
    /// Creates a cache whose fetches run in tasks of `tracker`. At first the cache holds
    /// only what the store of `sources` contains.
    pub fn new(
        options: Options,
        sources: CacheSources<F>,
        metrics: Arc<Metrics>,
        tracker: TaskTracker,
    ) -> Self {
        let tdm_files = TdmFiles::new(options.clone(), Arc::clone(&metrics));
        let worker = FetchWorker {
            fixed_requester: Requester::fixed(&options.user_agent),
            slots: FetchSlots::new(
                Arc::clone(&sources.slots),
                options.max_waiting.get(),
                Arc::clone(&metrics),
            ),
            sources,
            own: Client::proxy(),
            table: Arc::new(EntryTable::new(options, metrics)),
            tracker,
            redirect_policy: arc_swap::ArcSwapOption::empty(),
        };
        Self {
            worker: Arc::new(worker),
            tdm_files,
        }
    }

    /// Returns the snapshot in force for an inquiry. If no entry is in force, waits for a
    /// fetch, which all requests that arrive in the meantime share.
    ///
    /// Never fails, and takes little longer than `robots.timeout`: twice that if the
    /// fetch has to wait for a slot, and as long again for each fetch of another sender
    /// that yields no file. While the fetch waits for its turn at a host, this returns
    /// early when `patience` has run out or cannot suffice, or when `gone` is ready.
    /// Dropping the future does not end the fetch.
    pub async fn snapshot(
        &self,
        inquiry: &Inquiry,
        asker: &Asker,
        patience: Duration,
        gone: impl Future<Output = ()>,
    ) -> RobotsLookup {
        let keys = self.worker.keys(inquiry, asker);
        let requester = || self.worker.requester(&inquiry.crawler, asker);
        let (mut gone, mut patience) = (pin!(gone), TimeBudget::new(patience));
        let mut fetches = 0;
        let (snapshot, queued) = loop {
            let mut watch = match self.worker.look_up(&keys, asker, requester) {
                Lookup::Fresh(entry) => break (Arc::clone(&entry.snapshot), None),
                Lookup::Running(watch) => watch,
            };
            fetches += 1;
            let fetcher = &self.worker.sources.fetcher;
            let own_wait = |host: &Host| fetcher.wait(host, self.worker.sharer(asker));
            let end = end_of(&mut watch, &mut patience, gone.as_mut(), own_wait).await;
            match end {
                Ok(entry) if keys.include(&entry.snapshot) => {
                    break (Arc::clone(&entry.snapshot), None);
                }
                // The answer was for another sender, so this sender asks again.
                Ok(_) if fetches < FETCHES_MAX => {}
                Ok(_) => break (self.refusal(&keys.shared, Cause::Busy), None),
                Err(UnfinishedFetch { cause, queued }) => {
                    break (self.refusal(&keys.shared, cause), queued);
                }
            }
        };
        RobotsLookup {
            snapshot,
            was_fetched: 0 < fetches,
            waited: patience.spent,
            queued,
        }
    }

    /// Returns the snapshot in memory that would decide an inquiry now; `None` if the
    /// origin would have to be asked. Nothing is fetched.
    pub fn cached(&self, inquiry: &Inquiry, asker: &Asker) -> Option<Arc<Snapshot>> {
        let known = self.worker.table.known(&self.worker.keys(inquiry, asker));
        Some(Arc::clone(&known.in_force()?.snapshot))
    }

    /// Starts to fetch each copy of a robots.txt at `host` again, regardless of its age,
    /// and returns the fetches; empty if there is no copy. Each fetch waits for its turn
    /// as usual, and the copy stays in force until the fetch has an answer.
    pub async fn refetch(&self, host: &Host) -> Vec<Refetch> {
        self.worker.refetch(host).await
    }

    /// Loads the answer that another node shared for `key`, if memory holds an older one.
    pub async fn take_newer(&self, key: &CacheKey) {
        self.worker.take_newer(key).await;
    }

    /// Returns the snapshot in force now for an inquiry that was decided by `before`;
    /// `None` if the origin has to be asked for one of its files.
    pub fn current(&self, before: &Arc<Snapshot>) -> Option<Arc<Snapshot>> {
        let robots = self.current_robots(before)?;
        let Some(tdm) = &before.tdm else {
            return Some(robots);
        };
        if tdm.expires_at <= clock::now() {
            return None;
        }
        let is_same = robots.fetched_at == before.fetched_at
            && robots.expires_at == before.expires_at
            && robots.stale == before.stale;
        Some(if is_same {
            Arc::clone(before)
        } else {
            Snapshot::with_tdm(&robots, Arc::clone(tdm))
        })
    }

    fn current_robots(&self, before: &Arc<Snapshot>) -> Option<Arc<Snapshot>> {
        let table = &self.worker.table;
        let known = KnownEntries {
            shared: table.latest(&before.key.shared()),
            own: table.latest(&before.key),
        };
        if known.shared.is_some() || known.own.is_some() {
            return Some(Arc::clone(&known.in_force()?.snapshot));
        }
        // Evicted to make room. The snapshot itself has not expired.
        (clock::now() < before.expires_at).then(|| Arc::clone(before))
    }

    /// Returns a snapshot that disallows everything because of `cause`.
    fn refusal(&self, key: &CacheKey, cause: Cause) -> Arc<Snapshot> {
        let outcome = FetchOutcome::failed(key, cause);
        CacheEntry::new(&outcome, &self.worker.table.options, None).snapshot
    }
}

/// Reason for not waiting until a fetch ended.
struct UnfinishedFetch {
    cause: Cause,
    queued: Option<QueuedFetch>,
}

/// Waits for the entry of a fetch. While the fetch waits for its turn, the wait ends when
/// `patience` runs out or `gone` is ready. `own_wait` estimates the wait at a host in the
/// share of the waiting client.
async fn end_of(
    watch: &mut watch::Receiver<FetchState>,
    patience: &mut TimeBudget,
    mut gone: Pin<&mut impl Future<Output = ()>>,
    own_wait: impl Fn(&Host) -> Duration,
) -> Result<Arc<CacheEntry>, UnfinishedFetch> {
    let is_queued = |state: &FetchState| matches!(state, FetchState::Queued { .. });
    let concerns_us = |state: &FetchState| is_queued(state) || matches!(state, FetchState::Done(_));
    loop {
        let state = watch.wait_for(concerns_us).await;
        match state.map(|state| state.clone()) {
            Ok(FetchState::Done(entry)) => return Ok(entry),
            Ok(FetchState::Queued { host, until }) => {
                // `until` is the estimate for the client that started the fetch. In the
                // share of this client the turn may come sooner.
                let wait = || {
                    let first = until.saturating_duration_since(clock::instant());
                    first.min(own_wait(&host))
                };
                let leaves_queue = async {
                    tokio::select! {
                        biased;
                        _ = watch.wait_for(|state| !is_queued(state)) => true,
                        () = gone.as_mut() => false,
                    }
                };
                let is_too_long = patience.left < wait();
                if is_too_long || patience.spend(leaves_queue).await != Some(true) {
                    let wait = wait();
                    return Err(UnfinishedFetch {
                        cause: Cause::Busy,
                        queued: Some(QueuedFetch { host, wait }),
                    });
                }
            }
            // A fetch with waiting requests always ends with an entry, even after a
            // panic, so this is a bug. When in doubt, the cache refuses
            // (docs/decisions/007-doubt-refuses.md).
            Ok(_) | Err(_) => {
                let (cause, queued) = (Cause::Internal, None);
                return Err(UnfinishedFetch { cause, queued });
            }
        }
    }
}

impl<F> fmt::Debug for RobotsCache<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RobotsCache")
            .field("options", &self.worker.table.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
