//! Reason why a request that may be sent is not sent yet, and for how long.
//!
//! Made where a request has to wait (`pace`), and carried unchanged to the
//! record and the 429. Does not know hosts, queues or clocks: a wait is counted
//! from the moment at which the delay was made.

use std::borrow::Cow;
use std::time::Duration;

use super::reason::Reason;

/// "Not now, because X": why a request does not start, and how long that lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delay {
    /// Cause: one of [`Reason::OF_PACE`].
    pub reason: Reason,
    /// End of the delay.
    pub end: DelayEnd,
    /// Requests that are held up.
    pub scope: DelayScope,
    /// Explanation for people; empty until the request is put off.
    pub detail: Cow<'static, str>,
}

/// End of a delay, counted from when the delay was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayEnd {
    /// The delay is over after this time, unless something else changes.
    After(Duration),
    /// The delay is over when another request ends, which counts as ended after
    /// this time at the latest; [`Duration::MAX`] if whoever waits is woken.
    OnEvent(Duration),
}

/// Requests that a delay holds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayScope {
    /// Every request to the host.
    Host,
    /// The request that was asked about, and later ones of the same crawler.
    Crawler,
    /// The request that was asked about alone. It does not wait in a queue, where
    /// it would hold up others of its crawler.
    Request,
}

impl Delay {
    /// Shortest time after which a client is asked to come back.
    const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

    /// Makes a delay that holds up every request to the host.
    pub fn of_host(reason: Reason, end: DelayEnd) -> Self {
        Self {
            reason,
            end,
            scope: DelayScope::Host,
            detail: Cow::Borrowed(""),
        }
    }

    /// Makes a delay that holds up the requests of one crawler.
    pub fn of_crawler(reason: Reason, end: DelayEnd) -> Self {
        Self {
            scope: DelayScope::Crawler,
            ..Self::of_host(reason, end)
        }
    }

    /// Adds an explanation for people.
    #[must_use]
    pub fn explained(self, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            detail: detail.into(),
            ..self
        }
    }

    /// Returns whether the request may start.
    pub fn is_over(&self) -> bool {
        self.end == DelayEnd::After(Duration::ZERO)
    }

    /// Returns the time until the request may start, if that is known.
    pub fn wait(&self) -> Option<Duration> {
        match self.end {
            DelayEnd::After(wait) => Some(wait),
            DelayEnd::OnEvent(_) => None,
        }
    }

    /// Returns the time after which to look again at the latest.
    pub fn recheck_after(&self) -> Duration {
        let (DelayEnd::After(time) | DelayEnd::OnEvent(time)) = self.end;
        time
    }

    /// Returns the time after which a client is asked to come back: at least a
    /// second, since an unknown wait is no reason to ask again at once.
    pub fn retry_after(&self) -> Duration {
        // `Retry-After` has whole seconds (RFC 9110, section 10.2.3), and 0
        // invites a client to ask without end.
        self.wait().unwrap_or_default().max(Self::RETRY_AFTER_MIN)
    }
}
