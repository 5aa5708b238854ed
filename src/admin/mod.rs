//! Admin listener: pages for people and for their monitoring.
//!
//! `/healthz` (the process runs), `/readyz` (the audit record can be written)
//! and `/metrics` are open to every client of the listener, so they name no
//! host, URL or crawler. So are `/client` and what it links to. `/api/v1/pace` names hosts, `/api/v1/clients` clients, and
//! `/api/v1/check` plans requests; all want the token. Does not know how requests are paced and recorded.

mod access;
mod api;
mod check;
mod client;
mod orders;
mod places;
mod state_pages;
mod token;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::access::Access;
use self::access::{require_own_host, require_token};
pub use self::api::ROWS_SHOWN;
use self::check::CheckState;
pub use self::check::{PlanFuture, PlanResult, PlanSource, URLS_MAX};
use self::client::AdminLocal;
pub use self::client::ClientPageSource;
use self::orders::AdminClient;
pub use self::orders::{BackOffRelease, REASON_BYTES_MAX, is_reason};
pub use self::places::CONNECTIONS_MAX;
use self::places::{AdminPlace, AdminPlaces};
pub use self::state_pages::{GaugeRefresh, PaceSource};
pub use self::token::{AdminToken, TokenError};
use crate::audit::AuditLog;
use crate::clients::directory::ClientDirectory;
use crate::metrics::Metrics;
use crate::throttle::REPEATING;

/// Options of the admin listener.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address to listen on; port 0 takes any.
    pub listen: SocketAddr,
    /// The file of the token.
    pub token_file: PathBuf,
}

/// Sources of the pages, which `serve` brings together.
#[derive(Debug)]
pub struct Admin {
    /// The audit record: `/readyz` answers 503 if it cannot be written.
    pub audit: Arc<AuditLog>,
    /// The metrics that `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// Brings those up to date that are looked up when they are asked for.
    pub gauges: GaugeRefresh,
    /// Cancelled when the proxy begins to stop: `/readyz` answers 503 from then
    /// on, and the other pages as before.
    pub stop: CancellationToken,
    /// The check of the token, for pages that name hosts.
    pub access: Arc<Access>,
    /// The pace of all hosts, which `/api/v1/pace` shows.
    pub pace: PaceSource,
    /// Ends back-offs, for `DELETE /api/v1/pace/HOST`.
    pub release: BackOffRelease,
    /// The clients, which `/api/v1/clients` shows.
    pub clients: Arc<ClientDirectory>,
    /// Plans requests, for `/api/v1/check`.
    pub plan: PlanSource,
    /// Pages for whoever points a client here.
    pub client: ClientPageSource,
}

/// The longest that the head of a request may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest that a connection may last. It serves one small page: a client
/// that has not read it by then never will.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed `accept`: time for descriptors to come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The content type of OpenMetrics 1.0.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves the pages of `admin` on `listener`, in tasks of `tracker`, until `end`
/// is cancelled: later than `admin.stop`, so that a stop can be watched.
pub fn listen(admin: Admin, listener: TcpListener, tracker: &TaskTracker, end: CancellationToken) {
    let connections = tracker.clone();
    let pages = pages(admin);
    tracker.spawn(async move {
        let serving = |stream, place| serve(stream, place, pages.clone(), end.clone());
        tokio::select! {
            () = end.cancelled() => {}
            () = accept(&listener, &connections, serving) => {}
        }
    });
}

/// Returns the routes: open ones, and those that want the token.
fn pages(admin: Admin) -> Router {
    let guard = from_fn_with_state(Arc::clone(&admin.access), require_token);
    let checks = CheckState::new(
        admin.plan.clone(),
        Arc::clone(&admin.clients),
        Arc::clone(&admin.metrics),
    );
    let for_clients = client::routes(admin.client.clone());
    let guarded = Router::new()
        .route("/api/v1/pace", get(state_pages::pace))
        .with_state(admin.pace.clone())
        .route("/api/v1/pace/{host}", delete(orders::release))
        .with_state(admin.release.clone())
        .route("/api/v1/clients", get(state_pages::clients))
        .with_state(Arc::clone(&admin.clients))
        .route("/api/v1/audit/prune", post(orders::prune))
        .route("/api/v1/audit/redact", post(orders::redact))
        .with_state(Arc::clone(&admin.audit))
        .route("/api/v1/check", post(check::check))
        .with_state(checks)
        // `route_layer`, not `layer`: an unknown path answers 404, not 401.
        .route_layer(guard);
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(admin))
        .merge(for_clients)
        .merge(guarded)
        // The host is checked before the token: a page of another site can have
        // its own name resolve to this listener (DNS rebinding), and must not
        // learn whether a token is right.
        .layer(from_fn(require_own_host))
}

/// Accepts connections without end, and serves each in a task of its own, at
/// most [`CONNECTIONS_MAX`] at one time.
async fn accept<S>(
    listener: &TcpListener,
    tracker: &TaskTracker,
    serve: impl Fn(TcpStream, AdminPlace) -> S,
) where
    S: Future<Output = ()> + Send + 'static,
{
    let places = AdminPlaces::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Some(place) = places.take().await else {
                    continue;
                };
                let served = serve(stream, place);
                tracker.spawn(async move {
                    let _ = timeout(CONNECTION_TIMEOUT, served).await;
                });
            }
            Err(error) => {
                tracing::warn!(target: REPEATING, %error, "the admin listener cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection until it ends, or its place is given to another. Once
/// `end` is cancelled, only a page that is being answered is still sent.
async fn serve(stream: TcpStream, place: AdminPlace, pages: Router, end: CancellationToken) {
    let displaced = place.displaced.clone();
    let (Ok(address), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
        // The connection is over by now.
        return;
    };
    let to_us = pages.layer(Extension(AdminLocal(local)));
    let pages = TowerToHyperService::new(to_us.layer(Extension(AdminClient(address))));
    let answer = service_fn(move |request| {
        place.begin_request();
        pages.call(request)
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            // One page a connection: with keep-alive 64 idle clients would lock
            // monitoring out.
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), answer)
    );
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = displaced.cancelled() => return,
        () = end.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "an admin connection ended badly");
    }
}

async fn readyz(State(admin): State<Arc<Admin>>) -> Response {
    if admin.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    match admin.audit.probe().await {
        Ok(()) => "ready\n".into_response(),
        Err(error) => api::unavailable(&error),
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    admin.gauges.run().await;
    (
        [(header::CONTENT_TYPE, OPENMETRICS)],
        admin.metrics.render(),
    )
        .into_response()
}

#[cfg(test)]
mod tests;
