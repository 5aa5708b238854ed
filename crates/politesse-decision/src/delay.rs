//! Delay: why a request that may be sent is not sent yet, and for how long.
//!
//! `pace` creates a delay when a request has to wait; the record and the 429 response
//! use it unchanged. Does not know hosts, queues or clocks: a wait counts from the
//! moment at which the delay was created.

use std::borrow::Cow;
use std::time::Duration;

use super::reason::Reason;

/// Reason why a request may not start yet, with the end of the delay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delay {
    /// Cause: one of [`Reason::OF_PACE`].
    pub reason: Reason,
    /// End of the delay.
    pub end: DelayEnd,
    /// Requests that the delay holds up.
    pub scope: DelayScope,
    /// Explanation for people; empty until the request is put off.
    pub detail: Cow<'static, str>,
}

/// End of a delay, counted from its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayEnd {
    /// The delay is over after this time, unless something else changes.
    After(Duration),
    /// The delay is over when another request ends. That request counts as ended after
    /// this time at the latest. [`Duration::MAX`] if its end wakes the waiting request.
    OnEvent(Duration),
}

/// Requests that a delay holds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayScope {
    /// Every request to the host.
    Host,
    /// The delayed request, and later ones of the same crawler.
    Crawler,
    /// Only the delayed request. It does not wait in a queue, where it would hold up
    /// other requests of its crawler.
    Request,
}

impl Delay {
    /// Shortest time that a client is asked to wait before it retries.
    const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

    /// Creates a delay that holds up every request to the host.
    pub fn of_host(reason: Reason, end: DelayEnd) -> Self {
        Self {
            reason,
            end,
            scope: DelayScope::Host,
            detail: Cow::Borrowed(""),
        }
    }

    /// Creates a delay that holds up the requests of one crawler.
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

    /// Reports whether the delay is over, so that the request may start.
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

    /// Returns the longest time to wait before checking again whether the delay is over.
    pub fn recheck_after(&self) -> Duration {
        let (DelayEnd::After(time) | DelayEnd::OnEvent(time)) = self.end;
        time
    }

    /// Returns the time that a client is asked to wait before it retries: one second if
    /// the wait is shorter or unknown.
    pub fn retry_after(&self) -> Duration {
        // `Retry-After` has whole seconds (RFC 9110, section 10.2.3), and 0 would
        // invite a client to retry in a tight loop.
        self.wait().unwrap_or_default().max(Self::RETRY_AFTER_MIN)
    }
}
