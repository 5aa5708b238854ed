//! Options of the pace layer (`pace`).

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::back_off::BackOffLimits;
use super::policy::{PaceLimits, PacePolicy};

/// Options of the pace layer.
#[derive(Clone, Debug)]
pub struct Options {
    /// Longest wait of any request: the longest of `pace.max_wait` and those of
    /// crawlers, since a robots.txt may be for each of them.
    pub max_wait: Duration,
    /// Bounds of the requests that wait (`pace.queue`).
    pub queue: QueueLimits,
    /// Growth of back-offs (`pace.backoff`).
    pub back_off: BackOffLimits,
    /// Limits of each crawler (`pace.crawler`).
    pub crawler: PaceLimits,
    /// Limits of all together (`pace.total`).
    pub total: PaceLimits,
    /// Limits of all hosts of a registered domain (`pace.domain`).
    pub domain: PaceLimits,
    /// Limits of all hosts at an address (`pace.address`).
    pub address: PaceLimits,
    /// Longest time for which a response keeps others from its host
    /// (`pace.max_turn`).
    pub max_turn: Duration,
    /// Longest time for which a client that takes or sends nothing keeps its turn
    /// from others (`pace.max_stall`).
    pub max_stall: Duration,
    /// Hosts that are remembered (`pace.max_hosts`).
    pub max_hosts: NonZeroUsize,
    /// Bounds of the files that follow a page (`pace.requisites`).
    pub requisites: RequisiteLimits,
    /// Terms for hosts (`pace.profile`, `pace.origin`, `pace.rule`).
    pub policy: Arc<PacePolicy>,
}

/// Bounds of the requests that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests for one host.
    pub origin: NonZeroUsize,
    /// Requests of one crawler, for all hosts.
    pub crawler: NonZeroUsize,
    /// Requests in all.
    pub total: NonZeroUsize,
}

/// Bounds of the files that a page embeds and that go in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequisiteLimits {
    /// Time after the page in which they may follow.
    pub time: Duration,
    /// Files of each page.
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
