//! TDM files of origins (`/.well-known/tdmrep.json`) in memory: the results of the
//! requests for them, as long as they are used.
//!
//! TDMRep (W3C Community Group Final Report of 10 May 2024) gives the file no lifetime of
//! its own, so it has that of a robots.txt (RFC 9309, section 2.4). Does not know how the
//! file is requested: it is a page, and the proxy requests it like any other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::body_text::decoded_text;
use super::fetch::Asker;
use super::lifetime::{stated_lifetime, stated_max_age};
use super::options::Options;
use politesse_base::byte_cache::ByteCache;
use politesse_base::clock;
use politesse_base::metrics::{Metrics, ResultLabel};
use politesse_decision::access::is_challenge;
use politesse_decision::decide::Inquiry;
use politesse_decision::snapshot::{CacheKey, Snapshot};
use politesse_decision::tdm::{TdmResult, TdmSnapshot};
use politesse_directives::preferences::TdmFile;
use politesse_net::retry_after::retry_after;

/// Number of bytes that an answer without a file counts for.
const SLOT_BYTES: usize = 1024;

/// Approximate memory of a rule, as a multiple of its text.
const BYTES_PER_BYTE: usize = 4;

/// Divisor of `robots.max_snapshot_bytes`: TDM files may take this part in addition.
const PART_OF_SNAPSHOTS: usize = 4;

/// TDM files by origin, product token and entry of `crawler`. Their memory is limited;
/// the least recently used are evicted first.
pub struct TdmFiles {
    slots: Mutex<ByteCache<CacheKey, Arc<TdmSlot>>>,
    /// Lifetimes.
    options: Options,
    metrics: Arc<Metrics>,
}

/// Answer about one TDM file, and the request for it.
#[derive(Debug, Default)]
pub struct TdmSlot {
    /// Held while the file is requested, so that one request serves all waiting ones.
    pub asking: AsyncMutex<()>,
    answer: Mutex<Option<TdmAnswer>>,
}

/// Answer with its lifetime.
#[derive(Debug)]
struct TdmAnswer {
    tdm: Arc<TdmSnapshot>,
    expires: Instant,
    /// Number of consecutive unknown answers.
    failures: u32,
    /// Latest robots.txt snapshot that the answer was joined with, and the joined
    /// snapshot. The record identifies a snapshot by its address, so each one is made
    /// once.
    joined: Option<JoinedSnapshot>,
}

#[derive(Debug)]
struct JoinedSnapshot {
    robots: Arc<Snapshot>,
    both: Arc<Snapshot>,
}

impl TdmSlot {
    /// Returns whether there is an answer that may still be used.
    pub fn is_fresh(&self) -> bool {
        self.answer().as_ref().is_some_and(TdmAnswer::is_fresh)
    }

    fn answer(&self) -> MutexGuard<'_, Option<TdmAnswer>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TdmAnswer {
    fn is_fresh(&self) -> bool {
        clock::instant() < self.expires && clock::now() < self.tdm.expires_at
    }
}

impl TdmFiles {
    pub(super) fn new(options: Options, metrics: Arc<Metrics>) -> Self {
        let bytes_max = options.max_snapshot_bytes / PART_OF_SNAPSHOTS;
        Self {
            slots: Mutex::new(ByteCache::new(bytes_max)),
            options,
            metrics,
        }
    }

    /// Returns the slot for the TDM file that applies to `inquiry`.
    pub fn slot(&self, inquiry: &Inquiry, asker: &Asker) -> Arc<TdmSlot> {
        let key = key(inquiry, asker);
        let mut slots = self.slots();
        if let Some(slot) = slots.get(&key) {
            return Arc::clone(slot);
        }
        let slot = Arc::new(TdmSlot::default());
        slots.insert(key, Arc::clone(&slot), SLOT_BYTES);
        self.metrics.tdm_files.set(gauge(slots.len()));
        slot
    }

    /// Adds the answer in memory to the snapshot that decides `inquiry`. Returns the
    /// snapshot unchanged if the file has to be requested.
    pub fn join(&self, inquiry: &Inquiry, asker: &Asker, robots: &Arc<Snapshot>) -> Arc<Snapshot> {
        let key = key(inquiry, asker);
        let Some(slot) = self.slots().get(&key).cloned() else {
            return Arc::clone(robots);
        };
        let mut known = slot.answer();
        let Some(answer) = known.as_mut().filter(|answer| answer.is_fresh()) else {
            return Arc::clone(robots);
        };
        if let Some(joined) = &answer.joined
            && Arc::ptr_eq(&joined.robots, robots)
        {
            return Arc::clone(&joined.both);
        }
        let both = Snapshot::with_tdm(robots, Arc::clone(&answer.tdm));
        answer.joined = Some(JoinedSnapshot {
            robots: Arc::clone(robots),
            both: Arc::clone(&both),
        });
        drop(known);
        // It may hold a robots.txt that its own cache has dropped.
        self.insert(key, slot, weight(&both));
        both
    }

    /// Stores the answer to a request for the file. `None` means that there was no
    /// answer: robots.txt disallows the request, or the origin did not respond.
    pub fn keep(&self, inquiry: &Inquiry, asker: &Asker, answer: Option<&Response<Bytes>>) {
        let slot = self.slot(inquiry, asker);
        let before = slot.answer().as_ref().map_or(0, |known| known.failures);
        let (result, lifetime) = self.read(answer, before);
        let (label, failures) = match result {
            TdmResult::File(_) => ("file", 0),
            TdmResult::Absent => ("absent", 0),
            TdmResult::Unknown => ("unknown", before.saturating_add(1)),
        };
        let fetches = &self.metrics.tdm_fetches;
        fetches.get_or_create(&ResultLabel { result: label }).inc();
        let now = clock::now();
        let tdm = Arc::new(TdmSnapshot {
            status: answer.map(|response| response.status().as_u16()),
            fetched_at: now,
            expires_at: now.checked_add(lifetime).unwrap_or(now),
            result,
        });
        *slot.answer() = Some(TdmAnswer {
            tdm,
            expires: clock::instant() + lifetime,
            failures,
            joined: None,
        });
    }

    /// Returns the meaning and lifetime of an answer, given the number of earlier
    /// `failures`.
    fn read(&self, answer: Option<&Response<Bytes>>, failures: u32) -> (TdmResult, Duration) {
        let options = &self.options;
        let unknown = |pause| (TdmResult::Unknown, options.retry_pause(failures, pause));
        let Some(response) = answer else {
            return unknown(None);
        };
        let (fields, now) = (response.headers(), clock::now());
        match response.status().as_u16() {
            200..=299 if !is_challenge(fields) => {
                let text = decoded_text(response.body().clone(), TdmFile::BYTES_MAX);
                match text.map_or(TdmResult::Unknown, |text| TdmResult::read(&text)) {
                    TdmResult::Unknown => unknown(None),
                    file @ (TdmResult::File(_) | TdmResult::Absent) => {
                        (file, options.file_lifetime(stated_lifetime(fields, now)))
                    }
                }
            }
            404 | 410 => {
                let lifetime = options.missing_lifetime(stated_max_age(fields));
                (TdmResult::Absent, lifetime)
            }
            429 | 503 => unknown(retry_after(fields, now)),
            _ => unknown(None),
        }
    }

    fn insert(&self, key: CacheKey, slot: Arc<TdmSlot>, bytes: usize) {
        let mut slots = self.slots();
        let removed = slots.insert(key, slot, bytes);
        self.metrics.tdm_files.set(gauge(slots.len()));
        // Freeing them may take a while.
        drop(slots);
        drop(removed);
    }

    fn slots(&self) -> MutexGuard<'_, ByteCache<CacheKey, Arc<TdmSlot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the key of the file that applies to `inquiry`. As with robots.txt, a site may
/// answer one crawler differently from another.
fn key(inquiry: &Inquiry, asker: &Asker) -> CacheKey {
    let token = inquiry.crawler.token().cloned();
    CacheKey {
        entry: asker.entry,
        ..CacheKey::new(inquiry.target.origin.clone(), token)
    }
}

/// Returns the approximate size of a joined snapshot in bytes.
fn weight(both: &Snapshot) -> usize {
    let robots = both.file();
    let robots_bytes = robots.map_or(0, |file| file.body.len() + file.robots.weight());
    let tdm_bytes = match both.tdm.as_ref().map(|tdm| &tdm.result) {
        Some(TdmResult::File(file)) => BYTES_PER_BYTE * file.text.len(),
        _ => 0,
    };
    SLOT_BYTES + robots_bytes + tdm_bytes
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
