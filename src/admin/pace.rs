//! Page `/api/v1/pace`: hosts with their requests in flight and in the queue, and
//! the time of the next start.
//!
//! Does not know the scheduler: `serve` hands over a [`PaceSource`].

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use thiserror::Error;
use tokio::task::spawn_blocking;

use crate::pace::host_pace::{HostPace, HostPaces};
use politesse_robots::origin::Host;

/// Default of the parameter `limit`: hosts in an answer.
pub const HOSTS_SHOWN: usize = 1000;

/// Source of the page: returns the pace of all hosts. It waits for no turn, but
/// takes milliseconds where hosts are many.
#[derive(Clone)]
pub struct PaceSource(pub Arc<dyn Fn() -> Vec<HostPace> + Send + Sync>);

impl fmt::Debug for PaceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PaceSource")
    }
}

/// Query of the page.
#[derive(Debug, PartialEq, Eq)]
struct PaceQuery {
    /// The most hosts that are shown.
    limit: usize,
    /// The only host that is shown, spelled as in [`HostPace`].
    host: Option<String>,
}

/// Reason why a query is answered with 400.
#[derive(Debug, Error, PartialEq, Eq)]
enum InvalidQuery {
    /// `limit` is not a number.
    #[error("limit is a whole number; 0 means all")]
    Limit,
    /// `host` is not a host.
    #[error("host is a name or an address, without a port")]
    Host,
    /// A parameter is not known, has no value, or is given twice.
    #[error("limit and host can be asked for, each once")]
    Unknown,
}

/// Answers with the hosts of a query, as JSON.
pub(super) async fn pace(State(source): State<PaceSource>, uri: Uri) -> Response {
    let query = match PaceQuery::parse(uri.query().unwrap_or_default()) {
        Ok(query) => query,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    // Hundreds of thousands of hosts take a while.
    let answer = spawn_blocking(move || {
        let mut hosts = (source.0)();
        if let Some(wanted) = &query.host {
            hosts.retain(|host| host.host == *wanted);
        }
        serde_json::to_vec(&HostPaces::first(hosts, query.limit))
    });
    match answer.await {
        Ok(Ok(body)) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Ok(Err(_)) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

impl PaceQuery {
    /// Reads the part of a target after `?`.
    fn parse(query: &str) -> Result<Self, InvalidQuery> {
        let (mut limit, mut host) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("limit", value)) if limit.is_none() => limit = Some(number(value)?),
                Some(("host", value)) if host.is_none() => host = Some(normal(value)?),
                _ => return Err(InvalidQuery::Unknown),
            }
        }
        let limit = limit.unwrap_or(HOSTS_SHOWN);
        Ok(Self { limit, host })
    }
}

/// Reads a limit; 0 means all.
fn number(value: &str) -> Result<usize, InvalidQuery> {
    match value.parse() {
        Ok(0) => Ok(usize::MAX),
        Ok(limit) => Ok(limit),
        Err(_) => Err(InvalidQuery::Limit),
    }
}

/// Reads a host and spells it as the page does: in lower case, without a final
/// dot, an IPv6 address in brackets.
fn normal(value: &str) -> Result<String, InvalidQuery> {
    // A host has only three of the bytes that clients escape in a query (RFC
    // 3986, section 2.2), so no general decoder is needed.
    let text = value
        .to_ascii_lowercase()
        .replace("%3a", ":")
        .replace("%5b", "[")
        .replace("%5d", "]");
    let host = text
        .parse::<Host>()
        .or_else(|_| format!("[{text}]").parse());
    host.map(|host| host.to_string())
        .map_err(|_| InvalidQuery::Host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(limit: usize, host: Option<&str>) -> Result<PaceQuery, InvalidQuery> {
        let host = host.map(str::to_owned);
        Ok(PaceQuery { limit, host })
    }

    // Ours.
    #[test]
    fn a_query_has_a_limit_and_a_host() {
        for (text, expected) in [
            ("", query(1000, None)),
            ("&", query(1000, None)),
            ("limit=7", query(7, None)),
            ("limit=0", query(usize::MAX, None)),
            ("host=O.Test.", query(1000, Some("o.test"))),
            ("host=%5B::1%5d&limit=2", query(2, Some("[::1]"))),
            ("host=%3a%3A1", query(1000, Some("[::1]"))),
            ("host=10.0.0.1", query(1000, Some("10.0.0.1"))),
            ("limit=x", Err(InvalidQuery::Limit)),
            ("limit=-1", Err(InvalidQuery::Limit)),
            ("host=", Err(InvalidQuery::Host)),
            ("host=o.test:80", Err(InvalidQuery::Host)),
            ("hosts=o.test", Err(InvalidQuery::Unknown)),
            ("limit", Err(InvalidQuery::Unknown)),
            ("limit=1&limit=2", Err(InvalidQuery::Unknown)),
        ] {
            assert_eq!(PaceQuery::parse(text), expected, "{text}");
        }
    }
}
