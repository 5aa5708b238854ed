//! Cache entry: a snapshot with the times at which it expires, is refreshed,
//! and becomes too old to outlive its origin.
//!
//! RFC 9309, sections 2.3.1 and 2.4. Two clocks count: the monotonic one, which
//! nobody sets, and the wall clock, which goes on while a machine sleeps. What
//! has expired by either is not used. Does not know who waits for an entry.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::options::{LIFETIME_MAX, Options};
use super::outcome::{FetchOutcome, FetchedContent};
use crate::clock::{self, Stamp, passed};
use crate::decision::access::{Cause, NoConnection};
use crate::decision::snapshot::{AccessResult, CacheKey, Snapshot, StoredSnapshot, Validators};

/// An entry in use is fetched again in the last tenth of its lifetime, so that
/// no request waits for the same robots.txt twice.
const REFRESH_PART: u32 = 10;

/// Pause after a fetch for which there was no room.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause where a redirect leads to a host without a free turn: any
/// sooner, the first host would be asked in vain.
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(60 * 60);

/// A snapshot and its lifetime.
#[derive(Debug)]
pub(super) struct CacheEntry {
    pub(super) snapshot: Arc<Snapshot>,
    expires: Instant,
    /// When the origin last sent or confirmed it.
    confirmed: Stamp,
    /// Start of the time in which it is refreshed while still in force; absent
    /// where the origin did not answer.
    refresh_from: Option<Instant>,
    /// Failures of the origin in a row.
    failures: u32,
    /// Entry that is in force after this one, where a refresh has failed.
    successor: Option<Arc<Self>>,
}

impl CacheEntry {
    /// Returns the entry for `key` that follows from `outcome`, where `earlier`
    /// was held before.
    pub(super) fn new(
        outcome: &FetchOutcome,
        key: &CacheKey,
        options: &Options,
        earlier: Option<&Self>,
    ) -> Self {
        let (result, lifetime) = match (&outcome.content, earlier) {
            (FetchedContent::File(file), _) => {
                let result = AccessResult::Successful(Arc::clone(file));
                (result, options.file_lifetime(outcome.stated))
            }
            (FetchedContent::Missing, _) => {
                let lifetime = options.missing_lifetime(outcome.stated);
                (AccessResult::Unavailable, lifetime)
            }
            (FetchedContent::NotModified, Some(earlier)) => {
                return earlier.confirmed_for(options.file_lifetime(outcome.stated));
            }
            // Validators are only sent with an earlier file, so this is a
            // server's mistake.
            (FetchedContent::NotModified, None) => {
                let failure = FailedFetch::new(outcome, Cause::Status, 0, options);
                return failure.entry(outcome, key);
            }
            (FetchedContent::Failed(cause), None) => {
                return FailedFetch::new(outcome, *cause, 0, options).entry(outcome, key);
            }
            (FetchedContent::Failed(cause), Some(earlier)) => {
                return earlier.followed_by_failure(outcome, *cause, key, options);
            }
        };
        let snapshot = snapshot(outcome, key, result, lifetime);
        Self::lasting(snapshot, lifetime, 0)
    }

    /// Restores an entry from the store, with the lifetime that it has left by
    /// the options of today.
    pub(super) fn restored(stored: &StoredSnapshot, options: &Options) -> Self {
        let (snapshot, now) = (&stored.snapshot, clock::now());
        let age = passed(snapshot.fetched_at, now);
        // A lifetime that was shortened since binds what was stored before.
        let longest = if snapshot.file().is_some() && is_answer(snapshot) {
            options.ttl.saturating_sub(age)
        } else {
            LIFETIME_MAX
        };
        let left = passed(now, snapshot.expires_at).min(longest);
        // The clock was set back: the age of the entry is unknown.
        let (left, age) = if now < snapshot.fetched_at {
            (Duration::ZERO, Duration::MAX)
        } else {
            (left, age)
        };
        Self {
            confirmed: Stamp::aged(age),
            ..Self::lasting(Arc::clone(snapshot), left, stored.failures)
        }
    }

    /// Returns what the store keeps. After a failed refresh that is the same
    /// file with the pause before the next try, so that a restart does not ask
    /// any sooner.
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

    pub(super) fn is_fresh(&self) -> bool {
        clock::instant() < self.expires && clock::now() < self.snapshot.expires_at
    }

    /// Whether the origin answered when it was last asked.
    pub(super) fn is_answer(&self) -> bool {
        is_answer(&self.snapshot)
    }

    /// Whether it is time for a refresh.
    pub(super) fn is_refresh_due(&self) -> bool {
        let now = clock::instant();
        self.refresh_from.is_some_and(|from| from <= now)
    }

    /// Returns the validators for a conditional request to `url`. There are some
    /// only for the URL that the file came from.
    pub(super) fn validators(&self, url: &str) -> Option<&Validators> {
        let validators = &self.snapshot.file()?.validators;
        let is_usable = *validators != Validators::default() && self.snapshot.url == url;
        is_usable.then_some(validators)
    }

    /// Returns the bytes that the entry takes, about: the body, its compiled
    /// rules, and the URLs that led there, which are as long as an origin likes.
    pub(super) fn weight(&self) -> usize {
        let hops: usize = self.snapshot.hops.iter().map(String::len).sum();
        let file = self.snapshot.file();
        hops + file.map_or(0, |file| file.body.len() + file.robots.weight())
    }

    fn lasting(snapshot: impl Into<Arc<Snapshot>>, left: Duration, failures: u32) -> Self {
        let (snapshot, now) = (snapshot.into(), clock::instant());
        let lifetime = passed(snapshot.fetched_at, snapshot.expires_at);
        let until_refresh = left.saturating_sub(lifetime / REFRESH_PART);
        Self {
            refresh_from: is_answer(&snapshot).then(|| now + until_refresh),
            snapshot,
            expires: now + left,
            confirmed: Stamp::now(),
            failures,
            successor: None,
        }
    }

    /// Returns the entry after a 304: the same file with a new lifetime.
    fn confirmed_for(&self, lifetime: Duration) -> Self {
        let now = clock::now();
        let snapshot = Snapshot {
            fetched_at: now,
            expires_at: later(now, lifetime),
            stale: None,
            ..(*self.snapshot).clone()
        };
        Self::lasting(snapshot, lifetime, 0)
    }

    /// Returns the entry after a failure: this one for as long as it is in
    /// force, then its file for as long as `robots.stale` allows, then nothing
    /// is allowed.
    fn followed_by_failure(
        &self,
        outcome: &FetchOutcome,
        cause: Cause,
        key: &CacheKey,
        options: &Options,
    ) -> Self {
        let failure = FailedFetch::new(outcome, cause, self.failures, options);
        let next = match self.file_left(options.stale) {
            Some(left) => {
                // Until the next try and no longer: if that brings an answer,
                // the old file is not used any more.
                let lifetime = failure.pause.min(left);
                let snapshot = Snapshot {
                    expires_at: later(clock::now(), lifetime),
                    stale: Some(cause),
                    ..(*self.snapshot).clone()
                };
                Self {
                    confirmed: self.confirmed,
                    ..Self::lasting(snapshot, lifetime, failure.failures)
                }
            }
            None => failure.entry(outcome, key),
        };
        if !self.is_fresh() {
            return next;
        }
        Self {
            snapshot: Arc::clone(&self.snapshot),
            expires: self.expires,
            confirmed: self.confirmed,
            refresh_from: Some(next.expires),
            failures: next.failures,
            successor: Some(Arc::new(next)),
        }
    }

    /// Returns the time for which the file may be used though the origin is
    /// unreachable; `None` if there is no file or it is too old.
    fn file_left(&self, stale: Duration) -> Option<Duration> {
        self.snapshot.file()?;
        let left = stale.saturating_sub(self.confirmed.age());
        (!left.is_zero()).then_some(left)
    }
}

/// A failed fetch, and the pause that follows.
struct FailedFetch {
    cause: Cause,
    /// Failures in a row, this one included.
    failures: u32,
    pause: Duration,
}

impl FailedFetch {
    fn new(outcome: &FetchOutcome, cause: Cause, failures_before: u32, options: &Options) -> Self {
        // An origin that was not asked has not failed.
        let was_asked = !matches!(
            cause,
            Cause::Busy | Cause::NoConnection(NoConnection::NoSocket)
        );
        if was_asked {
            return Self {
                cause,
                failures: failures_before.saturating_add(1),
                pause: options.retry_pause(failures_before, outcome.stated),
            };
        }
        let pause = outcome.stated.unwrap_or_default();
        Self {
            cause,
            failures: failures_before,
            pause: pause.clamp(BUSY_PAUSE, BUSY_PAUSE_MAX),
        }
    }

    /// Returns the entry where there is no file to fall back on: nothing is
    /// allowed.
    fn entry(&self, outcome: &FetchOutcome, key: &CacheKey) -> CacheEntry {
        let result = AccessResult::Unreachable(self.cause);
        let snapshot = snapshot(outcome, key, result, self.pause);
        CacheEntry::lasting(snapshot, self.pause, self.failures)
    }
}

fn snapshot(
    outcome: &FetchOutcome,
    key: &CacheKey,
    result: AccessResult,
    lifetime: Duration,
) -> Snapshot {
    let now = clock::now();
    Snapshot {
        origin: key.origin.clone(),
        token: key.token.clone(),
        url: outcome.url.clone(),
        hops: outcome.hops.clone(),
        status: outcome.status,
        fetched_at: now,
        expires_at: later(now, lifetime),
        result,
        stale: None,
    }
}

fn is_answer(snapshot: &Snapshot) -> bool {
    snapshot.stale.is_none() && !matches!(snapshot.result, AccessResult::Unreachable(_))
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by)
        .ok()
        .and_then(|by| now.checked_add(by).ok())
        .unwrap_or(now)
}
