//! How requests are paced, as the operator has it (`pace`).

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::back_off::BackOffLimits;
use super::policy::{PaceLimits, PacePolicy};

/// How requests are paced.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long any request may wait for its turn, the longest of
    /// `pace.max_wait` and those of crawlers: a robots.txt may be for each.
    pub max_wait: Duration,
    /// How many may wait (`pace.queue`).
    pub queue: QueueLimits,
    /// How hosts are left alone that ask for less (`pace.backoff`).
    pub back_off: BackOffLimits,
    /// What each crawler gets (`pace.crawler`).
    pub crawler: PaceLimits,
    /// What there is for all together (`pace.total`).
    pub total: PaceLimits,
    /// What all hosts of a registered domain get (`pace.domain`).
    pub domain: PaceLimits,
    /// What all hosts at an address get (`pace.address`).
    pub address: PaceLimits,
    /// How long one response keeps others from its host (`pace.max_turn`).
    pub max_turn: Duration,
    /// Of how many hosts something is known at a time (`pace.max_hosts`).
    pub max_hosts: NonZeroUsize,
    /// What is laid down for hosts (`pace.profile`, `pace.origin`, `pace.rule`).
    pub policy: Arc<PacePolicy>,
}

/// How many requests may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// For one host.
    pub origin: NonZeroUsize,
    /// Of one crawler, for all hosts.
    pub crawler: NonZeroUsize,
    /// In all.
    pub total: NonZeroUsize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        const ORIGIN: NonZeroUsize = NonZeroUsize::new(256).unwrap();
        const CRAWLER: NonZeroUsize = NonZeroUsize::new(512).unwrap();
        const TOTAL: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
        Self {
            origin: ORIGIN,
            crawler: CRAWLER,
            total: TOTAL,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        const HOSTS: NonZeroUsize = NonZeroUsize::new(200_000).unwrap();
        Self {
            max_wait: Duration::from_secs(120),
            queue: QueueLimits::default(),
            back_off: BackOffLimits::default(),
            crawler: PaceLimits::default(),
            total: PaceLimits::default(),
            domain: PaceLimits::default(),
            address: PaceLimits::default(),
            max_turn: Duration::from_secs(120),
            max_hosts: HOSTS,
            policy: Arc::default(),
        }
    }
}
