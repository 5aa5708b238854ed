//! Orders of an operator: requests to the admin listener that change something.
//!
//! `DELETE /api/v1/pace/HOST?reason=TEXT` ends the back-off of a host.
//! `POST /api/v1/audit/prune?request=JSON` removes old entries of the record, and
//! `POST /api/v1/audit/redact?request=JSON` removes client and URL from some. Each order
//! is recorded with the operator's address.
//!
//! Does not know the scheduler ([`BackOffRelease`] is made by `serve`), nor the files of
//! the record.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::json;
use thiserror::Error;

use super::api;
use super::arrival::AdminArrival;
use politesse_base::clock;
use politesse_decision::back_off::ReleaseOrder;
use politesse_record::{AuditError, AuditLog, PruneRequest, RedactionRequest};
use politesse_robots::origin::Host;

/// Longest reason, in bytes: it stands in one line of a list.
pub const REASON_BYTES_MAX: usize = 500;

/// Function that ends the back-off of a host; returns whether there was one.
type ReleaseFunction = dyn Fn(&Host, ReleaseOrder) -> bool + Send + Sync;

/// Ends back-offs.
#[derive(Clone)]
pub struct BackOffRelease(pub Arc<ReleaseFunction>);

impl fmt::Debug for BackOffRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackOffRelease")
    }
}

/// Reason why no back-off was ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum ReleaseRefusal {
    /// No host is named.
    #[error("a host is wanted: a name or an address, without a port")]
    Host,
    /// No reason is given, or one that cannot be listed.
    #[error("a reason is wanted: one line of text, {REASON_BYTES_MAX} bytes at most")]
    Reason,
    /// The host is not in a back-off.
    #[error("{0} has no back-off that could be ended")]
    NoBackOff(Host),
}

impl ReleaseRefusal {
    /// Returns the HTTP status of the refusal.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Host | Self::Reason => StatusCode::BAD_REQUEST,
            Self::NoBackOff(_) => StatusCode::NOT_FOUND,
        }
    }
}

impl BackOffRelease {
    /// Ends the back-off of the host named `host`, and returns the host.
    ///
    /// # Errors
    ///
    /// [`ReleaseRefusal`].
    pub(super) fn release(&self, host: &str, order: ReleaseOrder) -> Result<Host, ReleaseRefusal> {
        let host = api::host(host).map_err(|_| ReleaseRefusal::Host)?;
        // The record must show auditors why the site's wish for a pause was overridden.
        if !is_reason(&order.reason) {
            return Err(ReleaseRefusal::Reason);
        }
        match (self.0)(&host, order) {
            true => Ok(host),
            false => Err(ReleaseRefusal::NoBackOff(host)),
        }
    }
}

/// Ends the back-off of the host in the path.
pub(super) async fn release(
    State(release): State<BackOffRelease>,
    Path(host): Path<String>,
    request: Request,
) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let order = ReleaseOrder {
        by: giver(&request),
        reason: reason(query).unwrap_or_default(),
    };
    match release.release(&host, order) {
        Ok(host) => api::json(&json!({ "host": host.to_string(), "released": true })),
        Err(refusal) => (refusal.status(), format!("{refusal}\n")).into_response(),
    }
}

/// Begins to remove the entries from before the time in the query.
pub(super) async fn prune(State(audit): State<Arc<AuditLog>>, request: Request) -> Response {
    // A time in the future would remove every entry.
    let is_whole =
        |asked: &PruneRequest| asked.before <= clock::now() && is_reason(&asked.reason.why);
    let Some(asked) = asked::<PruneRequest>(&request).filter(is_whole) else {
        let text = format!(
            "a time in the past and a reason are wanted: ?request=JSON with \"before\" and \
             {REASON_BYTES_MAX} bytes of \"why\" at most\n"
        );
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    // Only begun: it may go on for longer than a client waits for an answer.
    match audit.prune(asked, giver(&request)).await {
        Ok(numbers) => api::json(&numbers),
        Err(error @ AuditError::TooYoung { .. }) => {
            (StatusCode::CONFLICT, format!("{error}\n")).into_response()
        }
        Err(error) => api::unavailable(&error),
    }
}

/// Takes the next step of the redaction in the query.
pub(super) async fn redact(State(audit): State<Arc<AuditLog>>, request: Request) -> Response {
    let is_whole = |asked: &RedactionRequest| asked.has_condition() && is_reason(&asked.reason.why);
    let Some(asked) = asked(&request).filter(is_whole) else {
        let text = format!(
            "a condition and a reason are wanted: ?request=JSON, {REASON_BYTES_MAX} bytes of \"why\" at most\n"
        );
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    match audit.redact(asked, giver(&request)).await {
        Ok(step) => api::json(&step),
        Err(error) => api::unavailable(&error),
    }
}

/// Reads what `request` asks for, from the JSON in its query.
fn asked<T: DeserializeOwned>(request: &Request) -> Option<T> {
    let query = request.uri().query()?;
    let json = api::unescape(query.strip_prefix("request=")?)?;
    serde_json::from_str(&json).ok()
}

/// Names who has given the order of `request`, as the record has it.
pub(super) fn giver(request: &Request) -> String {
    let arrival = request.extensions().get::<AdminArrival>();
    let from = arrival.map_or_else(String::new, |arrival| format!(" from {}", arrival.client));
    format!("admin token{from}")
}

/// Reads the reason of a query; `None` if it is absent, or not UTF-8.
fn reason(query: &str) -> Option<String> {
    api::unescape(query.strip_prefix("reason=")?)
}

/// Reports whether a text is a reason: one line of at most [`REASON_BYTES_MAX`] bytes.
pub fn is_reason(text: &str) -> bool {
    let is_line = !text.trim().is_empty() && !text.contains(char::is_control);
    is_line && text.len() <= REASON_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn a_reason_is_one_line_of_text() {
        let long = format!("reason={}", "a".repeat(REASON_BYTES_MAX));
        for (query, expected) in [
            ("reason=one%20bad%20URL", Some("one bad URL")),
            ("reason=caf%C3%A9&x", Some("café&x")),
            (&*long, Some(&long[7..])),
            (&format!("{long}a"), None),
            ("", None),
            ("reason=", None),
            ("reason=%20", None),
            ("reason=a%0Ab", None),
            ("reason=%ff", None),
            ("reason=%2", None),
            ("reasons=a", None),
        ] {
            let text = reason(query).filter(|text| is_reason(text));
            assert_eq!(text.as_deref(), expected, "{query}");
        }
    }
}
