//! A snapshot with the times that it lives by.
//!
//! RFC 9309, section 2.4. Two clocks count: the monotonic one, which nobody
//! sets, and that of the wall, which goes on while a machine sleeps. What has
//! expired by either is not used.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::{self, Stamp, passed};
use crate::decision::access::{AccessResult, Snapshot, Validators};
use crate::decision::stored_snapshot::StoredSnapshot;
use crate::robots_cache::lifetimes::{LIFETIME_MAX, Lifetimes};

/// What is in use is asked for again in the last part of its life, one of so
/// many, so that nobody waits for it twice.
const REFRESH_PART: u32 = 10;

/// A snapshot, and for how long it holds.
#[derive(Debug)]
pub(super) struct CacheEntry {
    pub(super) snapshot: Arc<Snapshot>,
    expires: Instant,
    /// When the origin last sent or confirmed it.
    confirmed: Stamp,
    /// From when on it is asked for again while it still holds; never where
    /// the origin did not answer.
    refresh_from: Option<Instant>,
    /// How often in a row the origin was unreachable.
    pub(super) failures: u32,
    /// What holds after it: it was asked for ahead of its end, in vain.
    then: Option<Arc<Self>>,
}

/// For how long something holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// How long in all.
    whole: Duration,
    /// How much of that is left.
    left: Duration,
}

impl Span {
    /// A lifetime that begins now.
    pub(super) fn whole(lifetime: Duration) -> Self {
        Self {
            whole: lifetime,
            left: lifetime,
        }
    }
}

impl CacheEntry {
    /// A snapshot that holds for `span` from now on, after so many failures in
    /// a row.
    pub(super) fn new(snapshot: impl Into<Arc<Snapshot>>, span: Span, failures: u32) -> Self {
        let (snapshot, now) = (snapshot.into(), clock::instant());
        let ahead = span.whole / REFRESH_PART;
        Self {
            refresh_from: is_answer(&snapshot).then(|| now + span.left.saturating_sub(ahead)),
            snapshot,
            expires: now + span.left,
            confirmed: Stamp::now(),
            failures,
            then: None,
        }
    }

    /// The snapshot, with a copy that is as old as that of `earlier`.
    pub(super) fn with_age_of(self, earlier: &Self) -> Self {
        Self {
            confirmed: earlier.confirmed,
            ..self
        }
    }

    /// What was kept, with the time it has left by the lifetimes of now.
    pub(super) fn restored(kept: &StoredSnapshot, lifetimes: &Lifetimes) -> Self {
        let (snapshot, now) = (&kept.snapshot, clock::now());
        let most = if snapshot.file().is_some() && is_answer(snapshot) {
            lifetimes
                .ttl
                .saturating_sub(passed(snapshot.fetched_at, now))
        } else {
            LIFETIME_MAX
        };
        let left = passed(now, snapshot.expires_at).min(most);
        // With a clock that was set back nobody can tell how old it is.
        let (left, age) = if now < snapshot.fetched_at {
            (Duration::ZERO, Duration::MAX)
        } else {
            (left, passed(snapshot.fetched_at, now))
        };
        let whole = passed(snapshot.fetched_at, snapshot.expires_at);
        let span = Span { whole, left };
        Self {
            confirmed: Stamp::aged(age),
            ..Self::new(Arc::clone(snapshot), span, kept.failures)
        }
    }

    /// What is to be kept of it: where it was asked for again in vain, the same
    /// rules with the pause before the next time.
    pub(super) fn kept(&self) -> StoredSnapshot {
        let then = self.then.as_ref().map(|then| &then.snapshot);
        let same = then.filter(|then| then.file().is_some());
        StoredSnapshot {
            snapshot: Arc::clone(same.unwrap_or(&self.snapshot)),
            failures: self.failures,
            led_to: None,
        }
    }

    /// The same, asked for again ahead of its end in vain: it holds on, and
    /// `then` follows.
    pub(super) fn followed_by(&self, then: Self) -> Self {
        Self {
            snapshot: Arc::clone(&self.snapshot),
            expires: self.expires,
            confirmed: self.confirmed,
            refresh_from: Some(then.expires),
            failures: then.failures,
            then: Some(Arc::new(then)),
        }
    }

    /// It, or what follows it once it has expired.
    pub(super) fn latest(self: Arc<Self>) -> Arc<Self> {
        match &self.then {
            Some(then) if !self.is_fresh() => Arc::clone(then),
            Some(_) | None => self,
        }
    }

    pub(super) fn is_fresh(&self) -> bool {
        clock::instant() < self.expires && clock::now() < self.snapshot.expires_at
    }

    /// Whether the origin said so itself when it was last asked.
    pub(super) fn is_answer(&self) -> bool {
        is_answer(&self.snapshot)
    }

    /// Whether it is time to ask for it again, while it holds.
    pub(super) fn is_due(&self) -> bool {
        let now = clock::instant();
        self.refresh_from.is_some_and(|from| from <= now)
    }

    /// How long its copy may be used though the origin is unreachable, `stale`
    /// at most after the origin sent or confirmed it; `None` if not at all.
    pub(super) fn copy_left(&self, stale: Duration) -> Option<Duration> {
        self.snapshot.file()?;
        let left = stale.saturating_sub(self.confirmed.age());
        (!left.is_zero()).then_some(left)
    }

    /// By what the origin can be asked at `url` whether the copy is still the
    /// file: only where the copy came from.
    pub(super) fn validators(&self, url: &str) -> Option<&Validators> {
        let copy = self.snapshot.file()?;
        let known = copy.validators != Validators::default();
        (known && self.snapshot.url == url).then_some(&copy.validators)
    }

    /// About what it takes, in bytes: its body, the rules of a crawler or two,
    /// and the URLs that led there, which are as long as an origin likes.
    pub(super) fn weight(&self) -> usize {
        let hops: usize = self.snapshot.hops.iter().map(String::len).sum();
        let copy = self.snapshot.file();
        hops + copy.map_or(0, |copy| copy.body.len() + copy.robots.weight())
    }
}

/// Whether the origin said so itself when it was last asked.
fn is_answer(snapshot: &Snapshot) -> bool {
    snapshot.stale.is_none() && !matches!(snapshot.result, AccessResult::Unreachable(_))
}
