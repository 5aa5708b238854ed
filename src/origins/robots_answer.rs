//! What asking for a robots.txt came to, and how long that holds.
//!
//! RFC 9309, sections 2.3.1 and 2.4. How the answer was got is not known here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::freshness::{lifetime, max_age};
use super::robots_fetch::Hop;
use crate::clock;
use crate::rules::robots::Dialect;
use crate::rules::robots::access::{
    AccessResult, Cause, Copy, Snapshot, StatusMeaning, status_meaning,
};
use crate::rules::robots::kept::{Kept, Whose};

/// No copy is kept longer (RFC 9309, section 2.4).
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// What was just fetched is in force for a moment at least, or whoever asked
/// would have to ask again.
const LIFETIME_MIN: Duration = Duration::from_secs(1);

/// What asking came to.
#[derive(Debug)]
pub(super) struct Answer {
    /// Where it was asked last.
    pub(super) url: String,
    /// The status there, if there was an answer.
    pub(super) status: Option<u16>,
    /// How many redirects led there.
    pub(super) redirects: u8,
    /// The last response, or why it cannot be used.
    pub(super) result: Result<Hop, Cause>,
}

/// A snapshot with the time until which it holds.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) snapshot: Arc<Snapshot>,
    expires: Instant,
    /// How often in a row the origin was unreachable.
    pub(super) failures: u32,
}

impl Held {
    /// What was kept, while it holds; a clock that was set back does not make
    /// it hold longer than it ever may.
    pub(super) fn restored(kept: &Kept) -> Option<Self> {
        let left = kept.snapshot.expires_at.duration_since(clock::now());
        let left = Duration::try_from(left)
            .ok()
            .filter(|left| !left.is_zero())?;
        Some(Self {
            snapshot: Arc::clone(&kept.snapshot),
            expires: clock::instant() + left.min(LIFETIME_MAX),
            failures: kept.failures,
        })
    }

    /// What is to be kept of it.
    pub(super) fn kept(&self) -> Kept {
        Kept {
            snapshot: Arc::clone(&self.snapshot),
            failures: self.failures,
        }
    }

    pub(super) fn is_fresh(&self) -> bool {
        clock::instant() < self.expires
    }
}

/// How answers are read, and how long they hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lifetimes {
    pub(super) ttl: Duration,
    pub(super) ttl_min: Duration,
    pub(super) unavailable_ttl: Duration,
    pub(super) retry_first: Duration,
    pub(super) retry_longest: Duration,
    pub(super) dialect: Dialect,
}

impl Lifetimes {
    /// The snapshot of an answer that came now, after so many failures in a
    /// row.
    pub(super) fn hold(&self, whose: Whose, answer: Answer, failures: u32) -> Held {
        let now = clock::now();
        let lifetime = self.lifetime(&answer, now, failures);
        let (status, url) = (answer.status, answer.url.clone());
        let result = access_result(answer, self.dialect);
        let failures = match result {
            AccessResult::Unreachable(_) => failures.saturating_add(1),
            AccessResult::Successful(_) | AccessResult::Unavailable => 0,
        };
        let snapshot = Snapshot {
            origin: whose.origin,
            token: whose.token,
            url,
            status,
            fetched_at: now,
            expires_at: later(now, lifetime),
            result,
            stale: None,
        };
        Held {
            snapshot: Arc::new(snapshot),
            expires: clock::instant() + lifetime,
            failures,
        }
    }

    fn lifetime(&self, answer: &Answer, now: Timestamp, failures: u32) -> Duration {
        let Ok(hop) = &answer.result else {
            return self.pause(failures);
        };
        let wanted = match status_meaning(hop.status) {
            StatusMeaning::Parse => {
                let stated = lifetime(&hop.headers, now).unwrap_or(self.ttl);
                stated.max(self.ttl_min).min(self.ttl)
            }
            StatusMeaning::Unavailable => {
                let stated = max_age(&hop.headers).unwrap_or_default();
                stated.max(self.unavailable_ttl)
            }
            StatusMeaning::Redirect | StatusMeaning::Unreachable => self.pause(failures),
        };
        wanted.clamp(LIFETIME_MIN, LIFETIME_MAX)
    }

    /// The pause after another failure: twice as long each time.
    fn pause(&self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures);
        let pause = self.retry_first.saturating_mul(factor);
        pause
            .min(self.retry_longest)
            .clamp(LIFETIME_MIN, LIFETIME_MAX)
    }
}

fn access_result(answer: Answer, dialect: Dialect) -> AccessResult {
    let hop = match answer.result {
        Ok(hop) => hop,
        Err(cause) => return AccessResult::Unreachable(cause),
    };
    match status_meaning(hop.status) {
        StatusMeaning::Parse => {
            let copy = copy(&hop, (answer.redirects, dialect));
            AccessResult::Successful(Arc::new(copy))
        }
        StatusMeaning::Unavailable => AccessResult::Unavailable,
        StatusMeaning::Redirect | StatusMeaning::Unreachable => {
            AccessResult::Unreachable(Cause::Status)
        }
    }
}

fn copy(hop: &Hop, (redirects, dialect): (u8, Dialect)) -> Copy {
    let content_type = hop.headers.get(CONTENT_TYPE);
    // A slice of a larger read buffer would keep all of that alive for a day.
    let body = Bytes::copy_from_slice(&hop.body);
    let mut copy = Copy::in_dialect(body, dialect);
    if !hop.whole {
        copy.robots.cut_here();
    }
    Copy {
        whole: hop.whole,
        content_type: content_type
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
        redirects,
        ..copy
    }
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by)
        .ok()
        .and_then(|by| now.checked_add(by).ok())
        .unwrap_or(now)
}
