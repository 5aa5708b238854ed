//! Contents of a line of a log, whatever its form.
//!
//! Does not know any form.

use jiff::Timestamp;

/// Contents of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CrawlLogEntry {
    /// Request.
    Request(LoggedRequest),
    /// Name of the crawler that sends the requests after it.
    Crawler(String),
    /// Line without a request, as the form has them.
    Other,
    /// Line that is not of this form.
    Malformed,
}

/// Request of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    /// URL, or the part of it that the log has.
    pub url: LoggedUrl,
    /// Time, if the log tells it with its zone.
    pub at: Option<Timestamp>,
    /// Status of the answer.
    pub status: Option<u16>,
    /// `User-Agent` field, if the log tells it; of an empty one, nothing.
    pub user_agent: LoggedAgent,
}

/// `User-Agent` as a log tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedAgent {
    /// The form has no place for it.
    Untold,
    /// The request had none.
    Silent,
    /// Its value.
    Named(String),
}

/// URL as a log tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedUrl {
    /// Whole URL.
    Whole(String),
    /// Path and query at the server whose log it is.
    Path(String),
    /// Host and port of a tunnel. What was asked for inside it was not seen.
    Tunnel(String),
}

/// Reads a status of three digits.
pub(super) fn status(text: &str) -> Option<u16> {
    let code = text.parse().ok()?;
    (100..=999).contains(&code).then_some(code)
}
