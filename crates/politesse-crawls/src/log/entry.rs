//! Contents of a log line, in a form that all formats share.
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
    /// Line that is not in this format.
    Malformed,
}

/// Request of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    /// URL, or the part of it that the log contains.
    pub url: LoggedUrl,
    /// Time, if the log contains it with a time zone.
    pub at: Option<Timestamp>,
    /// Status of the response, if the log contains it.
    pub status: Option<u16>,
    /// `User-Agent` field, as far as the log contains it.
    pub user_agent: LoggedAgent,
}

/// `User-Agent` of a request in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedAgent {
    /// The log format does not include it.
    Untold,
    /// The request had none, or an empty one.
    Silent,
    /// Value of the field.
    Named(String),
}

/// URL of a request in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedUrl {
    /// Whole URL.
    Whole(String),
    /// Path and query on the server that wrote the log.
    Path(String),
    /// Host and port of a tunnel (CONNECT). Requests inside it are not in the log.
    Tunnel(String),
}

/// Parses a status of three digits.
pub(super) fn status(text: &str) -> Option<u16> {
    let code = text.parse().ok()?;
    (100..=999).contains(&code).then_some(code)
}
