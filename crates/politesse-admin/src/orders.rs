//! Orders of an operator: requests to the admin listener that change something.
//!
//! `DELETE /api/v1/pace/HOST?reason=TEXT` ends the back-off of a host, and
//! `POST /api/v1/robots/HOST/refetch?reason=TEXT` fetches its robots.txt again.
//! `POST /api/v1/audit/prune?request=JSON` removes old entries of the record, and
//! `POST /api/v1/audit/redact?request=JSON` removes client and URL from selected
//! entries. Each order is recorded with the operator's address.
//!
//! Does not know the scheduler or the cache of robots.txt files (`serve` provides
//! [`BackOffRelease`] and [`RobotsRefetch`]), or the files of the record.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use thiserror::Error;
use tokio::time::timeout_at;

use super::api;
use super::arrival::AdminArrival;
use politesse_base::clock;
use politesse_decision::back_off::ReleaseOrder;
use politesse_decision::digest::Digest;
use politesse_decision::record::result_word;
use politesse_decision::snapshot::Snapshot;
use politesse_pages::page::line_diff::LineDiff;
use politesse_record::events::{ProcessEvent, ProcessEventKind};
use politesse_record::{AuditError, AuditLog, PruneRequest, RedactionRequest};
use politesse_robots::origin::Host;
use politesse_robots_cache::refetch::{Refetch, RefetchOutcome};

/// Longest reason, in bytes: it has to fit on one line of a list.
pub const REASON_BYTES_MAX: usize = 500;

/// Function that ends the back-off of a host. Returns whether there was one.
type ReleaseFunction = dyn Fn(&Host, ReleaseOrder) -> bool + Send + Sync;

/// Ends back-offs.
#[derive(Clone)]
pub struct BackOffRelease(pub Arc<ReleaseFunction>);

impl fmt::Debug for BackOffRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackOffRelease")
    }
}

/// Future of the fetches that an order started.
pub type RefetchFuture = Pin<Box<dyn Future<Output = Vec<Refetch>> + Send>>;

/// Function that starts fetching the copies of a host's robots.txt again.
type RefetchFunction = dyn Fn(Host) -> RefetchFuture + Send + Sync;

/// Longest wait for the fetches of an order. They continue after it.
const REFETCH_WAIT: Duration = Duration::from_secs(10);

/// Maximum bytes of a form: a host, a fully escaped reason, and the token.
const FORM_BYTES_MAX: usize = 4096;

/// Fetches robots.txt files again.
#[derive(Clone)]
pub struct RobotsRefetch {
    /// Starts the fetches.
    pub begin: Arc<RefetchFunction>,
    /// Record in which the order is entered.
    pub audit: Arc<AuditLog>,
}

impl fmt::Debug for RobotsRefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RobotsRefetch")
    }
}

/// Order about a host.
#[derive(Debug)]
pub(super) struct HostOrder {
    /// Host, as written.
    pub(super) host: String,
    /// Credential and address used for the order.
    pub(super) by: String,
    /// Reason, in the operator's words.
    pub(super) reason: String,
}

/// Outcome of an order to fetch a robots.txt again.
#[derive(Debug, Serialize)]
pub(super) struct RefetchedRobots {
    pub(super) host: String,
    /// Copies that were fetched, the newest first.
    pub(super) copies: Vec<RefetchedCopy>,
}

/// Copy of a robots.txt that was fetched again.
#[derive(Debug, Serialize)]
pub(super) struct RefetchedCopy {
    pub(super) origin: String,
    /// Token of the crawler that it was fetched for; `None` if it is for all.
    pub(super) token: Option<String>,
    pub(super) outcome: &'static str,
    /// Result now in force.
    pub(super) result: &'static str,
    pub(super) status: Option<u16>,
    pub(super) sha256: Option<Digest>,
    pub(super) lines_added: usize,
    pub(super) lines_removed: usize,
}

/// Reason why an order was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum OrderRefusal {
    /// No valid host is named.
    #[error("a host is wanted: a name or an address, without a port")]
    Host,
    /// The reason is missing, too long, or not a single line of text.
    #[error("a reason is wanted: one line of text, {REASON_BYTES_MAX} bytes at most")]
    Reason,
    /// The host is not in a back-off.
    #[error("{0} has no back-off that could be ended")]
    NoBackOff(Host),
    /// No copy of the host's robots.txt is cached.
    #[error("there is no copy of a robots.txt of {0}: the next request fetches it")]
    NoCopy(Host),
}

impl OrderRefusal {
    /// Returns the HTTP status of the refusal.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Host | Self::Reason => StatusCode::BAD_REQUEST,
            Self::NoBackOff(_) | Self::NoCopy(_) => StatusCode::NOT_FOUND,
        }
    }
}

impl BackOffRelease {
    /// Ends the back-off of the host named `host`, and returns the host.
    ///
    /// # Errors
    ///
    /// [`OrderRefusal`].
    pub(super) fn release(&self, host: &str, order: ReleaseOrder) -> Result<Host, OrderRefusal> {
        let host = api::host(host).map_err(|_| OrderRefusal::Host)?;
        // The record must show auditors why the pause that the site asked for was cut
        // short.
        if !is_reason(&order.reason) {
            return Err(OrderRefusal::Reason);
        }
        match (self.0)(&host, order) {
            true => Ok(host),
            false => Err(OrderRefusal::NoBackOff(host)),
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

impl HostOrder {
    /// Reads an order from a form with `host` and `reason`.
    ///
    /// # Errors
    ///
    /// A response, if the form is too long.
    pub(super) async fn of_form(request: Request) -> Result<Self, Response> {
        // Reading the body consumes the request, including the address for the record.
        let by = giver(&request);
        let Ok(form) = to_bytes(request.into_body(), FORM_BYTES_MAX).await else {
            let text = format!("a form has {FORM_BYTES_MAX} bytes at most\n");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, text).into_response());
        };
        let value = |wanted: &str| {
            let mut fields = form_urlencoded::parse(&form);
            let found = fields.find(|(name, _)| name == wanted);
            found
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        Ok(Self {
            host: value("host"),
            reason: value("reason"),
            by,
        })
    }
}

impl RobotsRefetch {
    /// Fetches the copies of a host's robots.txt again, and waits for the results.
    ///
    /// # Errors
    ///
    /// [`OrderRefusal`].
    pub(super) async fn order(&self, order: HostOrder) -> Result<RefetchedRobots, OrderRefusal> {
        let host = api::host(&order.host).map_err(|_| OrderRefusal::Host)?;
        if !is_reason(&order.reason) {
            return Err(OrderRefusal::Reason);
        }
        let begun = (self.begin)(host.clone()).await;
        if begun.is_empty() {
            return Err(OrderRefusal::NoCopy(host));
        }
        // Recorded before the wait, which ends if the operator disconnects: requests
        // sent to a site must be on record.
        self.audit.record_process_event(ProcessEvent::now(
            ProcessEventKind::RobotsRefetched,
            json!({ "host": host.to_string(), "by": order.by, "why": order.reason }),
        ));
        // One deadline for all fetches, because they run at the same time.
        let until = clock::instant() + REFETCH_WAIT;
        let mut copies = Vec::new();
        for mut refetch in begun {
            let ended = timeout_at(until, refetch.outcome()).await;
            let outcome = ended.unwrap_or(RefetchOutcome::Pending);
            copies.push(RefetchedCopy::new(&refetch.before, &outcome));
        }
        Ok(RefetchedRobots {
            host: host.to_string(),
            copies,
        })
    }
}

impl RefetchedCopy {
    fn new(before: &Snapshot, outcome: &RefetchOutcome) -> Self {
        let now = match outcome {
            RefetchOutcome::Changed(now) => now,
            RefetchOutcome::Unchanged | RefetchOutcome::Failed | RefetchOutcome::Pending => before,
        };
        let bytes = |snapshot: &Snapshot| {
            let file = snapshot.file();
            file.map(|file| file.body.clone()).unwrap_or_default()
        };
        let (old, new) = (bytes(before), bytes(now));
        let diff = LineDiff::new(&old, &new);
        Self {
            origin: now.key.origin.to_string(),
            token: now.key.token.as_ref().map(ToString::to_string),
            outcome: outcome.as_str(),
            result: result_word(&now.result),
            status: now.status,
            sha256: now.file().map(|file| file.digest),
            lines_added: diff.added(),
            lines_removed: diff.removed(),
        }
    }
}

/// Fetches the robots.txt of the host in the path again.
pub(super) async fn refetch(
    State(refetch): State<RobotsRefetch>,
    Path(host): Path<String>,
    request: Request,
) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let order = HostOrder {
        host,
        by: giver(&request),
        reason: reason(query).unwrap_or_default(),
    };
    match refetch.order(order).await {
        Ok(refetched) => api::json(&refetched),
        Err(refusal) => (refusal.status(), format!("{refusal}\n")).into_response(),
    }
}

/// Starts removing the entries from before the time in the query.
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
    // Only started here: it may take longer than a client waits for a response.
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

/// Reads the order in a request from the JSON in its query.
fn asked<T: DeserializeOwned>(request: &Request) -> Option<T> {
    let query = request.uri().query()?;
    let json = api::unescape(query.strip_prefix("request=")?)?;
    serde_json::from_str(&json).ok()
}

/// Names the giver of the order in `request`, as written to the record.
pub(super) fn giver(request: &Request) -> String {
    let arrival = request.extensions().get::<AdminArrival>();
    let from = arrival.map_or_else(String::new, |arrival| format!(" from {}", arrival.client));
    format!("admin token{from}")
}

/// Reads the reason in a query; `None` if it is absent or not UTF-8.
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
