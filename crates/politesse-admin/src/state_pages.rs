//! Pages about the current state: `/api/v1/pace` lists hosts with their requests in
//! flight and in the queue, and the time of the next start; `/api/v1/clients` lists
//! what each client holds, waits for, was refused and has lost to others.
//!
//! Does not know the scheduler (`serve` provides a [`PaceSource`]) or how shares are
//! allocated (`clients`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::api::{ApiQuery, json};
use politesse_base::clients::directory::ClientDirectory;
use politesse_base::clients::snapshot::ClientSnapshots;
use politesse_fleet::status::FleetStatus;
use politesse_pace::host_pace::{HostPace, HostPaces};

/// Source of the pace of all hosts that the scheduler remembers.
#[derive(Clone)]
pub struct PaceSource(pub Arc<dyn Fn() -> Vec<HostPace> + Send + Sync>);

impl PaceSource {
    /// Returns the pace of all hosts, in no order. Takes milliseconds if there are many
    /// hosts.
    pub(super) fn hosts(&self) -> Vec<HostPace> {
        (self.0)()
    }
}

/// Source of the state of the fleet that this proxy belongs to, if any.
#[derive(Clone)]
pub struct FleetSource(pub Arc<dyn Fn() -> Option<FleetStatus> + Send + Sync>);

impl fmt::Debug for FleetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FleetSource")
    }
}

impl fmt::Debug for PaceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PaceSource")
    }
}

/// Function that updates the gauges that are computed on demand. It may block.
#[derive(Clone)]
pub struct GaugeRefresh(pub Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for GaugeRefresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GaugeRefresh")
    }
}

/// Longest wait of `/metrics` for its gauges.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(1);

impl GaugeRefresh {
    /// Runs the function, and waits for at most [`REFRESH_TIMEOUT`].
    pub(super) async fn run(&self) {
        let refresh = self.clone();
        // A hanging disk must not hide the other metrics, which may show the cause.
        let run = spawn_blocking(move || (refresh.0)());
        let _ = timeout(REFRESH_TIMEOUT, run).await;
    }
}

/// Returns the hosts that a query selects, as JSON.
pub(super) async fn pace(State(source): State<PaceSource>, uri: Uri) -> Response {
    let query = match ApiQuery::parse(uri.query().unwrap_or_default(), &["limit", "host"]) {
        Ok(query) => query,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    // With hundreds of thousands of hosts this takes a while.
    let answer = spawn_blocking(move || {
        let mut hosts = source.hosts();
        if let Some(wanted) = &query.host {
            hosts.retain(|host| host.host == *wanted);
        }
        json(&HostPaces::first(hosts, query.limit))
    });
    let failed = |_| StatusCode::INTERNAL_SERVER_ERROR.into_response();
    answer.await.unwrap_or_else(failed)
}

/// Returns the clients, as JSON.
pub(super) async fn clients(State(directory): State<Arc<ClientDirectory>>, uri: Uri) -> Response {
    match ApiQuery::parse(uri.query().unwrap_or_default(), &["limit"]) {
        Ok(query) => json(&ClientSnapshots::first(directory.snapshot(), query.limit)),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}
