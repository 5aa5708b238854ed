//! Cache entry: a snapshot with the times at which it expires, is refreshed, and becomes
//! too old to be used for an unreachable origin.
//!
//! RFC 9309, sections 2.3.1 and 2.4. Two clocks count: the monotonic one, which cannot be
//! set, and the wall clock, which advances while a machine sleeps. An entry that has
//! expired by either of them is not used. Does not know which requests wait for an entry.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::options::{LIFETIME_MAX, Options};
use super::outcome::FetchOutcome;
use politesse_base::clock::{self, Stamp, passed};
use politesse_decision::access::Cause;
use politesse_decision::snapshot::{AccessResult, Snapshot, StoredSnapshot, Validators};
use politesse_net::client::Asker;

/// An entry in use is refreshed in the last tenth of its lifetime, so that no request
/// waits for the same robots.txt twice.
const REFRESH_PART: u32 = 10;

/// Pause after a fetch that was refused for lack of room.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause if a redirect leads to a host without a free turn. Asking the first host
/// any earlier would be pointless.
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(60 * 60);

/// Snapshot and its lifetime.
#[derive(Debug)]
pub(super) struct CacheEntry {
    pub(super) snapshot: Arc<Snapshot>,
    expires: Instant,
    /// Time at which the origin last sent or confirmed the snapshot.
    confirmed: Stamp,
    /// Time from which the entry is refreshed while it is still in force; `None` if the
    /// origin did not answer.
    refresh_from: Option<Instant>,
    /// Number of consecutive failures of the origin.
    failures: u32,
    /// Whether the store had not been read when the origin failed. It may still hold a
    /// file.
    pub(super) is_store_unread: bool,
    /// Sender for which the entry was fetched, without its client. `None` if all crawlers
    /// use the same `User-Agent`, and after a restart.
    pub(super) asker: Option<Asker>,
    /// Entry that is in force after this one, if a refresh has failed.
    successor: Option<Arc<Self>>,
}

impl CacheEntry {
    /// Returns the entry that follows from `outcome`, replacing `earlier`.
    pub(super) fn new(outcome: &FetchOutcome, options: &Options, earlier: Option<&Self>) -> Self {
        let lifetime = match outcome.snapshot.result {
            AccessResult::Successful(_) => options.file_lifetime(outcome.stated),
            AccessResult::Unavailable => options.missing_lifetime(outcome.stated),
            AccessResult::Unreachable(cause) => {
                return Self::after_failure(outcome, cause, options, earlier);
            }
        };
        Self::lasting(outcome.snapshot.clone(), lifetime, 0)
    }

    /// Restores an entry from the store. Its remaining lifetime follows from the current
    /// options.
    pub(super) fn restored(stored: &StoredSnapshot, options: &Options) -> Self {
        let (snapshot, now) = (&stored.snapshot, clock::now());
        // The clock was set back, so the age of the entry is unknown.
        let is_age_unknown = now < snapshot.fetched_at;
        let age = if is_age_unknown {
            Duration::MAX
        } else {
            passed(snapshot.fetched_at, now)
        };
        // A lifetime that was shortened since also applies to stored entries.
        let longest = if snapshot.file().is_some() && snapshot.is_answer() {
            options.ttl.saturating_sub(age)
        } else if is_age_unknown {
            Duration::ZERO
        } else {
            LIFETIME_MAX
        };
        let left = passed(now, snapshot.expires_at).min(longest);
        Self {
            confirmed: Stamp::aged(age),
            ..Self::with_left(Arc::clone(snapshot), left, stored.failures)
        }
    }

    /// Returns the snapshot for the store. After a failed refresh that is the same file
    /// with the pause before the next try, so that the origin is not asked earlier after
    /// a restart.
    pub(super) fn to_stored(&self) -> StoredSnapshot {
        let successor = self.successor.as_ref().map(|entry| &entry.snapshot);
        let same_file = successor.filter(|snapshot| snapshot.file().is_some());
        StoredSnapshot {
            snapshot: Arc::clone(same_file.unwrap_or(&self.snapshot)),
            failures: self.failures,
            led_to: None,
        }
    }

    /// Returns the entry itself, or its successor once it has expired.
    pub(super) fn latest(self: Arc<Self>) -> Arc<Self> {
        match &self.successor {
            Some(successor) if !self.is_fresh() => Arc::clone(successor),
            Some(_) | None => self,
        }
    }

    /// Returns the entry with its refresh due now. It stays in force until a fetch ends.
    pub(super) fn due(self: &Arc<Self>) -> Arc<Self> {
        let latest = Arc::clone(self).latest();
        Arc::new(Self {
            snapshot: Arc::clone(&latest.snapshot),
            expires: latest.expires,
            confirmed: latest.confirmed,
            refresh_from: Some(clock::instant()),
            failures: latest.failures,
            is_store_unread: latest.is_store_unread,
            asker: self.asker.clone(),
            successor: latest.successor.clone(),
        })
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.is_fresh_at(clock::instant())
    }

    fn is_fresh_at(&self, now: Instant) -> bool {
        now < self.expires && clock::now() < self.snapshot.expires_at
    }

    /// Returns whether the entry is in force and needs no refresh yet.
    pub(super) fn is_settled(&self) -> bool {
        let now = clock::instant();
        let is_refresh_due = self.refresh_from.is_some_and(|from| from <= now);
        !is_refresh_due && self.is_fresh_at(now)
    }

    /// Returns the validators for a conditional request to `url`. They exist only for the
    /// URL that the file came from.
    pub(super) fn validators(&self, url: &str) -> Option<&Validators> {
        let validators = &self.snapshot.file()?.validators;
        let is_usable = *validators != Validators::default() && self.snapshot.url == url;
        is_usable.then_some(validators)
    }

    /// Returns the approximate size of the entry in bytes: the body, its compiled rules,
    /// the URLs of the redirects, whose length the origin chooses, and the fields of its
    /// sender.
    pub(super) fn weight(&self) -> usize {
        let hops = self.snapshot.hops.iter().chain([&self.snapshot.url]);
        let urls: usize = hops.map(String::len).sum();
        let sent = self
            .asker
            .iter()
            .flat_map(|asker| [&asker.user_agent, &asker.from]);
        let fields: usize = sent.flatten().map(|field| field.as_bytes().len()).sum();
        let file = self.snapshot.file();
        urls + fields + file.map_or(0, |file| file.body.len() + file.robots.weight())
    }

    /// Returns an entry whose lifetime begins now.
    fn lasting(snapshot: Snapshot, lifetime: Duration, failures: u32) -> Self {
        let snapshot = Snapshot {
            expires_at: later(clock::now(), lifetime),
            ..snapshot
        };
        Self::with_left(Arc::new(snapshot), lifetime, failures)
    }

    fn with_left(snapshot: Arc<Snapshot>, left: Duration, failures: u32) -> Self {
        let now = clock::instant();
        let lifetime = passed(snapshot.fetched_at, snapshot.expires_at);
        let until_refresh = left.saturating_sub(lifetime / REFRESH_PART);
        Self {
            refresh_from: snapshot.is_answer().then(|| now + until_refresh),
            snapshot,
            expires: now + left,
            confirmed: Stamp::now(),
            failures,
            is_store_unread: false,
            asker: None,
            successor: None,
        }
    }

    /// Returns the entry after a failure. `earlier` applies while it is in force, then
    /// its file for as long as `robots.stale` allows, and after that nothing is allowed.
    fn after_failure(
        outcome: &FetchOutcome,
        cause: Cause,
        options: &Options,
        earlier: Option<&Self>,
    ) -> Self {
        let before = earlier.map_or(0, |earlier| earlier.failures);
        // An origin that was not asked has not failed.
        let was_asked = cause.was_asked();
        let failures = before.saturating_add(u32::from(was_asked));
        let pause = if was_asked {
            options.retry_pause(before, outcome.stated)
        } else {
            let wanted = outcome.stated.unwrap_or_default();
            wanted.clamp(BUSY_PAUSE, BUSY_PAUSE_MAX)
        };
        let stale = earlier.and_then(|earlier| Some((earlier, earlier.file_left(options.stale)?)));
        let next = match stale {
            Some((earlier, left)) => {
                let snapshot = Snapshot {
                    key: outcome.snapshot.key.clone(),
                    stale: Some(cause),
                    ..(*earlier.snapshot).clone()
                };
                Self {
                    confirmed: earlier.confirmed,
                    // Until the next try, not longer: once that brings an answer, the old
                    // file is no longer used.
                    ..Self::lasting(snapshot, pause.min(left), failures)
                }
            }
            None => Self::lasting(outcome.snapshot.clone(), pause, failures),
        };
        // The shared entry stays in force independently of one sender's failure.
        let is_same_key =
            |earlier: &&Self| earlier.snapshot.key.sender == outcome.snapshot.key.sender;
        match earlier.filter(is_same_key) {
            Some(earlier) if earlier.is_fresh() => Self {
                snapshot: Arc::clone(&earlier.snapshot),
                expires: earlier.expires,
                confirmed: earlier.confirmed,
                refresh_from: Some(next.expires),
                failures,
                is_store_unread: false,
                asker: None,
                successor: Some(Arc::new(next)),
            },
            Some(_) | None => next,
        }
    }

    /// Returns the time for which the file may still be used while the origin is
    /// unreachable; `None` if there is no file or it is too old.
    fn file_left(&self, stale: Duration) -> Option<Duration> {
        self.snapshot.file()?;
        let left = stale.saturating_sub(self.confirmed.age());
        (!left.is_zero()).then_some(left)
    }
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by)
        .ok()
        .and_then(|by| now.checked_add(by).ok())
        .unwrap_or(now)
}
