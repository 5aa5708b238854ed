//! Contents of a line of a log, the same for all formats.
//!
//! Does not know any format.

use jiff::Timestamp;

/// Contents of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CrawlLogEntry {
    /// Request.
    Request(LoggedRequest),
    /// `User-Agent` of the crawler that sends the requests of the following lines.
    Crawler(String),
    /// Line of this format that reports no request.
    Other,
    /// Line that is not of this format.
    Malformed,
}

/// Request of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    /// URL, or the part of it that the log has.
    pub url: LoggedUrl,
    /// Time, if the log has it with a time zone.
    pub at: Option<Timestamp>,
    /// Status of the response, if the log has it.
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
    /// Path and query at the server that wrote the log.
    Path(String),
    /// Host and port of a tunnel (CONNECT). Requests inside it are not in the log.
    Tunnel(String),
}

/// Reads a status of three digits.
pub(super) fn status(text: &str) -> Option<u16> {
    let code = text.parse().ok()?;
    (100..=999).contains(&code).then_some(code)
}
