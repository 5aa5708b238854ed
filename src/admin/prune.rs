//! `POST /api/v1/audit/prune?before=TIME`: removes old entries of the record.
//!
//! Does not know the record's files.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;

use super::api;
use super::release::AdminClient;
use crate::audit::AuditLog;

/// Begins to remove the entries from before the time in the query.
pub(super) async fn prune(State(audit): State<Arc<AuditLog>>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let Some(before) = before(query) else {
        let text = "a time is wanted: ?before=2026-11-22T10:00:00Z\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let client = request.extensions().get::<AdminClient>();
    let by = client.map_or_else(
        || "admin token".to_owned(),
        |AdminClient(address)| format!("admin token from {}", address.ip().to_canonical()),
    );
    // Only begun: it may go on for longer than a client waits for an answer.
    match audit.prune(before, by).await {
        Ok(numbers) => api::json(&numbers),
        Err(error) => api::unavailable(&error),
    }
}

fn before(query: &str) -> Option<Timestamp> {
    api::unescape(query.strip_prefix("before=")?)?.parse().ok()
}
