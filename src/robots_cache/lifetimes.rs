//! How long what was said about a robots.txt holds.
//!
//! RFC 9309, section 2.4. What a response says of it is read in `freshness`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// No copy is kept longer without asking (RFC 9309, section 2.4).
pub(super) const LIFETIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// What was just fetched is in force for a moment at least, or whoever asked
/// would have to ask again.
const LIFETIME_MIN: Duration = Duration::from_secs(1);

/// Lifetimes as configured (`robots.*`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Lifetimes {
    /// Of a file that says nothing itself, and at most.
    pub(super) ttl: Duration,
    /// Of a file at least.
    pub(super) ttl_min: Duration,
    /// Of the answer that there is none, at least.
    pub(super) unavailable_ttl: Duration,
    /// Of a copy whose origin has become unreachable, from when the origin
    /// last said that it was its file.
    pub(super) stale: Duration,
    /// The first pause after an origin was unreachable.
    pub(super) retry_first: Duration,
    /// The longest pause, unless the origin asks for more.
    pub(super) retry_longest: Duration,
}

impl Lifetimes {
    /// Of a file that states this for itself.
    pub(super) fn of_file(&self, stated: Option<Duration>) -> Duration {
        let stated = stated.unwrap_or(self.ttl);
        bounded(stated.max(self.ttl_min).min(self.ttl))
    }

    /// Of the answer that there is no file, if it states this for itself.
    pub(super) fn of_none(&self, stated: Option<Duration>) -> Duration {
        bounded(stated.unwrap_or_default().max(self.unavailable_ttl))
    }

    /// The pause after one failure more: twice as long each time, and no
    /// shorter than the origin asks for.
    pub(super) fn pause(&self, failures: u32, asked_for: Option<Duration>) -> Duration {
        let factor = 2_u32.saturating_pow(failures);
        let pause = self.retry_first.saturating_mul(factor);
        let asked_for = asked_for.unwrap_or_default();
        bounded(pause.min(self.retry_longest).max(asked_for))
    }
}

fn bounded(lifetime: Duration) -> Duration {
    lifetime.clamp(LIFETIME_MIN, LIFETIME_MAX)
}

/// The moment so much later.
pub(super) fn later(now: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by)
        .ok()
        .and_then(|by| now.checked_add(by).ok())
        .unwrap_or(now)
}
