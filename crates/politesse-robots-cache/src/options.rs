//! Settings of the robots.txt cache (`robots.*`), and the lifetimes that follow from
//! them.
//!
//! RFC 9309, section 2.4, sets the longest lifetime. The lifetime that a response states
//! is read in `lifetime` and passed in here.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use politesse_base::clients::client::Resource;
use politesse_base::clients::shares::{DisplacementOrder, Shares};
use politesse_base::metrics::Metrics;
use politesse_decision::decide::Policy;

/// Longest time for which an entry is used without asking the origin again (RFC 9309,
/// section 2.4).
pub const LIFETIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Shortest lifetime. With less, an entry could expire before the decision on the request
/// that caused its fetch, and that request would fetch it again.
const LIFETIME_MIN: Duration = Duration::from_secs(1);

/// `User-Agent` of the requests for robots.txt files (`robots.user_agent`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserAgent {
    /// The `User-Agent` of the crawler that needs the file. One cache entry per product
    /// token.
    Crawler,
    /// A fixed text. One cache entry for all crawlers, under its product token.
    Fixed(String),
}

/// Limits and lifetimes (`robots.*`).
#[derive(Debug, Clone)]
pub struct Options {
    /// `User-Agent` of the requests.
    pub user_agent: UserAgent,
    /// Largest number of bytes that are read from a file.
    pub max_bytes: usize,
    /// Lifetime of a file whose response states none, and longest lifetime of any file.
    pub ttl: Duration,
    /// Shortest lifetime of a file.
    pub ttl_min: Duration,
    /// Shortest lifetime of the answer that there is no file.
    pub unavailable_ttl: Duration,
    /// Time for which a file is used while its origin is unreachable, counted from when
    /// the origin last sent or confirmed it.
    pub stale: Duration,
    /// Pause after the first failure; it doubles with each further one.
    pub retry_first: Duration,
    /// Longest pause, unless the origin asks for a longer one.
    pub retry_longest: Duration,
    /// Largest number of redirects that a fetch follows.
    pub redirects: u8,
    /// Longest duration of a fetch, including all redirects and bodies.
    pub timeout: Duration,
    /// Fetches that may make requests at the same time; others wait. It is the limit of
    /// the shares passed to the cache.
    pub max_fetches: NonZeroUsize,
    /// Fetches that may run or wait; further ones are refused.
    pub max_waiting: NonZeroUsize,
    /// Largest number of entries in memory.
    pub max_snapshots: NonZeroUsize,
    /// Approximate number of bytes of all entries in memory.
    pub max_snapshot_bytes: usize,
    /// Policy of the proxy. It names the dialect for reading files, and the groups to
    /// compile in advance.
    pub policy: Policy,
}

impl Options {
    /// Creates the shares that limit concurrent fetches.
    #[must_use]
    pub fn fetch_shares(&self, metrics: Arc<Metrics>) -> Arc<Shares> {
        Shares::new(
            Resource::RobotsFetches,
            self.max_fetches.get(),
            // A fetch that has started continues: asking again later would cost the
            // origin one more request.
            DisplacementOrder::Never,
            metrics,
        )
    }

    /// Returns the lifetime of a file whose response states `stated`.
    pub(super) fn file_lifetime(&self, stated: Option<Duration>) -> Duration {
        let wanted = stated.unwrap_or(self.ttl);
        bounded(wanted.max(self.ttl_min).min(self.ttl))
    }

    /// Returns the lifetime of the answer that there is no file.
    pub(super) fn missing_lifetime(&self, stated: Option<Duration>) -> Duration {
        bounded(stated.unwrap_or_default().max(self.unavailable_ttl))
    }

    /// Returns the pause after a failed fetch, before the origin is asked again.
    ///
    /// `failures` counts the failures in a row before this one; `requested` is the pause
    /// that the origin itself asked for, if any.
    pub(super) fn retry_pause(&self, failures: u32, requested: Option<Duration>) -> Duration {
        // Saturating: the failures of a month would overflow.
        let factor = 2_u32.saturating_pow(failures);
        let pause = self.retry_first.saturating_mul(factor);
        bounded(
            pause
                .min(self.retry_longest)
                .max(requested.unwrap_or_default()),
        )
    }
}

fn bounded(lifetime: Duration) -> Duration {
    lifetime.clamp(LIFETIME_MIN, LIFETIME_MAX)
}
