//! Options of the pace layer (`pace`).

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::back_off::BackOffLimits;
use super::policy::{PaceLimits, PacePolicy};

/// Options of the pace layer.
#[derive(Clone, Debug)]
pub struct Options {
    /// Longest wait of any request: the maximum of `pace.max_wait` and of the waits set
    /// for single crawlers. A robots.txt may be fetched for any of them, so it may wait
    /// this long.
    pub max_wait: Duration,
    /// Limits on the number of waiting requests (`pace.queue`).
    pub queue: QueueLimits,
    /// Growth of back-offs (`pace.backoff`).
    pub back_off: BackOffLimits,
    /// Limits of each crawler (`pace.crawler`).
    pub crawler: PaceLimits,
    /// Limits of all crawlers together (`pace.total`).
    pub total: PaceLimits,
    /// Limits of all hosts of one registered domain (`pace.domain`).
    pub domain: PaceLimits,
    /// Limits of all hosts at one address (`pace.address`).
    pub address: PaceLimits,
    /// Longest time for which a response keeps other requests from its host
    /// (`pace.max_turn`).
    pub max_turn: Duration,
    /// Longest time for which a client that neither reads nor sends keeps its turn from
    /// other requests (`pace.max_stall`).
    pub max_stall: Duration,
    /// Largest number of hosts that are remembered (`pace.max_hosts`).
    pub max_hosts: NonZeroUsize,
    /// Limits on the files that follow a page (`pace.requisites`).
    pub requisites: RequisiteLimits,
    /// Operator's terms for hosts (`pace.profile`, `pace.origin`, `pace.rule`).
    pub policy: Arc<PacePolicy>,
}

/// Limits on the number of waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests waiting for one host.
    pub origin: NonZeroUsize,
    /// Requests of one crawler, over all hosts.
    pub crawler: NonZeroUsize,
    /// Requests in total.
    pub total: NonZeroUsize,
}

/// Limits on the embedded files that share the turn of their page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequisiteLimits {
    /// Time after the page within which its files may follow.
    pub time: Duration,
    /// Number of files per page.
    pub files: NonZeroUsize,
}

impl Default for RequisiteLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(60),
            files: const { NonZeroUsize::new(100).unwrap() },
        }
    }
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            origin: const { NonZeroUsize::new(256).unwrap() },
            crawler: const { NonZeroUsize::new(512).unwrap() },
            total: const { NonZeroUsize::new(10_000).unwrap() },
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_wait: Duration::from_secs(120),
            queue: QueueLimits::default(),
            back_off: BackOffLimits::default(),
            crawler: PaceLimits::default(),
            total: PaceLimits::default(),
            domain: PaceLimits::default(),
            address: PaceLimits::default(),
            max_turn: Duration::from_secs(120),
            max_stall: Duration::from_secs(5),
            max_hosts: const { NonZeroUsize::new(200_000).unwrap() },
            requisites: RequisiteLimits::default(),
            policy: Arc::default(),
        }
    }
}
