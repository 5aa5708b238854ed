//! What people are shown of the pace of one host.

use std::borrow::Cow;

use jiff::Timestamp;

/// One host as it is at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPace {
    /// Its name or address, on all ports.
    pub host: String,
    /// Requests that it is answering.
    pub in_flight: u32,
    /// Requests that wait for their turn.
    pub queued: u32,
    /// When the next may start; nothing if that is now.
    pub next_start: Option<Timestamp>,
    /// What makes it wait: the word of a reason, such as `crawl_delay`.
    pub cause: Option<Cow<'static, str>>,
    /// Until when the host is left alone since it asked for less; nothing if it
    /// is not.
    pub backoff_until: Option<Timestamp>,
}
