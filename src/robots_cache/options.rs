//! How robots.txt is asked for, and what is kept of it (`robots.*`).

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::decision::decide::Policy;
use crate::robots_cache::lifetimes::Lifetimes;
use crate::robots_cache::places::Limits;

/// As whom a robots.txt is asked for (`robots.user_agent`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserAgent {
    /// As the crawler that needs it; one snapshot for each product token.
    Crawler,
    /// As this; one snapshot for all, by the product token in it.
    Fixed(String),
}

/// Limits and lifetimes (`robots.*`).
#[derive(Debug, Clone)]
pub struct Options {
    /// As whom to ask.
    pub user_agent: UserAgent,
    /// How much of a file is read.
    pub max_bytes: usize,
    /// How long a copy holds that says nothing itself, and at most.
    pub ttl: Duration,
    /// How long it holds at least.
    pub ttl_min: Duration,
    /// How long it holds that there is none.
    pub unavailable_ttl: Duration,
    /// How long a copy is used after the origin last confirmed it, while the
    /// origin is unreachable.
    pub stale: Duration,
    /// The first pause after an origin was unreachable; each one is twice as
    /// long.
    pub retry_first: Duration,
    /// The longest pause.
    pub retry_longest: Duration,
    /// How many redirects are followed.
    pub redirects: u8,
    /// The longest a fetch may take, all redirects and bodies included.
    pub timeout: Duration,
    /// How many fetches may be under way; the next ones wait.
    pub max_fetches: NonZeroUsize,
    /// How many of them for one client.
    pub max_fetches_per_client: NonZeroUsize,
    /// How many may be sought, those under way included; others are refused.
    pub max_waiting: NonZeroUsize,
    /// How many snapshots are held.
    pub max_snapshots: NonZeroUsize,
    /// How many bytes they take together, about.
    pub max_snapshot_bytes: usize,
    /// By what pages are judged, those that redirects lead to among them.
    pub policy: Policy,
}

impl Options {
    pub(super) fn places(&self) -> Limits {
        Limits {
            all: self.max_fetches.get(),
            one_client: self.max_fetches_per_client.get(),
        }
    }

    /// How long answers hold.
    pub(super) fn lifetimes(&self) -> Lifetimes {
        Lifetimes {
            ttl: self.ttl,
            ttl_min: self.ttl_min,
            unavailable_ttl: self.unavailable_ttl,
            stale: self.stale,
            retry_first: self.retry_first,
            retry_longest: self.retry_longest,
        }
    }
}
