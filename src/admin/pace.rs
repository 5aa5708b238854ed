//! `GET /api/v1/pace`: how fast hosts are asked, and what waits.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use thiserror::Error;
use tokio::task::spawn_blocking;

use super::Admin;
use crate::pace::host_pace::{HostPace, HostPaces};
use politesse_robots::origin::Host;

/// Hosts shown unless asked otherwise.
pub const HOSTS_SHOWN: usize = 1000;

/// Where the page has its hosts from: who paces them, asked each time, and not
/// to wait for anything.
#[derive(Clone)]
pub struct PaceSource(pub Arc<dyn Fn() -> Vec<HostPace> + Send + Sync>);

impl fmt::Debug for PaceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PaceSource")
    }
}

/// Which hosts are asked for.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    limit: usize,
    host: Option<String>,
}

/// What a question cannot be.
#[derive(Debug, Error, PartialEq, Eq)]
enum BadQuestion {
    /// A number is wanted.
    #[error("limit is a whole number; 0 means all")]
    Limit,
    /// A host is wanted.
    #[error("host is a name or an address, without a port")]
    Host,
    /// Nothing else can be asked.
    #[error("limit and host can be asked for, each once")]
    Unknown,
}

/// The page.
pub(super) async fn pace(State(admin): State<Arc<Admin>>, uri: Uri) -> Response {
    let question = match Question::parse(uri.query().unwrap_or_default()) {
        Ok(question) => question,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    // Hundreds of thousands of hosts take a while.
    let answer = spawn_blocking(move || {
        let mut hosts = (admin.pace.0)();
        if let Some(wanted) = &question.host {
            hosts.retain(|host| host.host == *wanted);
        }
        serde_json::to_vec(&HostPaces::first(hosts, question.limit))
    });
    match answer.await {
        Ok(Ok(body)) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Ok(Err(_)) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

impl Question {
    fn parse(query: &str) -> Result<Self, BadQuestion> {
        let (mut limit, mut host) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("limit", value)) if limit.is_none() => limit = Some(number(value)?),
                Some(("host", value)) if host.is_none() => host = Some(normal(value)?),
                _ => return Err(BadQuestion::Unknown),
            }
        }
        let limit = limit.unwrap_or(HOSTS_SHOWN);
        Ok(Self { limit, host })
    }
}

/// A limit; 0 means all.
fn number(value: &str) -> Result<usize, BadQuestion> {
    match value.parse() {
        Ok(0) => Ok(usize::MAX),
        Ok(limit) => Ok(limit),
        Err(_) => Err(BadQuestion::Limit),
    }
}

/// A host as it is shown: lower case, no final dot, an IPv6 address in brackets.
/// Of what queries escape, hosts have these three.
fn normal(value: &str) -> Result<String, BadQuestion> {
    let mut text = value.to_ascii_lowercase();
    for (escaped, letter) in [("%3a", ":"), ("%5b", "["), ("%5d", "]")] {
        text = text.replace(escaped, letter);
    }
    let host = text.parse::<Host>();
    let host = host.or_else(|_| format!("[{text}]").parse());
    host.map(|host| host.to_string())
        .map_err(|_| BadQuestion::Host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(limit: usize, host: Option<&str>) -> Result<Question, BadQuestion> {
        let host = host.map(str::to_owned);
        Ok(Question { limit, host })
    }

    // Issue 6, Deliver 5.
    #[test]
    fn a_question_has_a_limit_and_a_host() {
        for (query, question) in [
            ("", asked(1000, None)),
            ("&", asked(1000, None)),
            ("limit=7", asked(7, None)),
            ("limit=0", asked(usize::MAX, None)),
            ("host=O.Test.", asked(1000, Some("o.test"))),
            ("host=%5B::1%5d&limit=2", asked(2, Some("[::1]"))),
            ("host=%3a%3A1", asked(1000, Some("[::1]"))),
            ("host=10.0.0.1", asked(1000, Some("10.0.0.1"))),
            ("limit=x", Err(BadQuestion::Limit)),
            ("limit=-1", Err(BadQuestion::Limit)),
            ("host=", Err(BadQuestion::Host)),
            ("host=o.test:80", Err(BadQuestion::Host)),
            ("hosts=o.test", Err(BadQuestion::Unknown)),
            ("limit", Err(BadQuestion::Unknown)),
            ("limit=1&limit=2", Err(BadQuestion::Unknown)),
        ] {
            assert_eq!(Question::parse(query), question, "{query}");
        }
    }
}
