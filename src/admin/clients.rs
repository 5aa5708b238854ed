//! Page `/api/v1/clients`: the clients of the proxy, and what each holds, waits
//! for, was refused and has lost to others.
//!
//! Does not know how shares are given out; `clients` does.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::api::{ApiQuery, json};
use crate::clients::directory::ClientDirectory;
use crate::clients::snapshot::ClientSnapshots;

/// Answers with the clients, as JSON.
pub(super) async fn clients(State(directory): State<Arc<ClientDirectory>>, uri: Uri) -> Response {
    match ApiQuery::parse(uri.query().unwrap_or_default(), &["limit"]) {
        Ok(query) => json(&ClientSnapshots::first(directory.snapshot(), query.limit)),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}
