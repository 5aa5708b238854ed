//! Layer 3: what is shown to people and to their monitoring.
//!
//! `/healthz` (the process runs), `/readyz` (the audit can be written),
//! `/metrics`: open to whoever reaches the listener, so they name no host, URL
//! or crawler. `/api/v1/pace` names hosts, and wants the password.

mod access;

mod name;

mod pace;

pub mod password;

mod tries;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::access::Access;
pub use self::pace::{HOSTS_SHOWN, PaceSource};
use self::password::{Password, PasswordError};
use crate::audit::AuditLog;
use crate::metrics::Metrics;
use crate::throttle::REPEATING;

/// Where to listen.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address; port 0 takes any.
    pub listen: SocketAddr,
    /// The file with the password of what names hosts; without one nobody may
    /// ask for that.
    pub password_file: Option<PathBuf>,
}

impl Options {
    /// The password, if there is to be one.
    ///
    /// # Errors
    ///
    /// Each [`PasswordError`].
    pub fn password(&self) -> Result<Option<Password>, PasswordError> {
        self.password_file
            .as_deref()
            .map(Password::read)
            .transpose()
    }
}

/// What the pages are made from.
#[derive(Debug)]
pub struct Admin {
    /// Asked whether it can be written.
    pub audit: Arc<AuditLog>,
    /// Shown as they are.
    pub metrics: Arc<Metrics>,
    /// Cancelled when the proxy stops: not ready from then on.
    pub stop: CancellationToken,
    /// Who may ask what names hosts.
    pub access: Arc<Access>,
    /// How fast hosts are asked.
    pub pace: PaceSource,
}

/// The longest a request's head may take, and a connection be idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest a connection may last: it serves one page.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections open at one time; more are closed after `PLACE_TIMEOUT`.
pub const CONNECTIONS_MAX: usize = 64;
/// How long a connection beyond [`CONNECTIONS_MAX`] waits for another to end.
/// Connections that their clients have closed already end within it.
const PLACE_TIMEOUT: Duration = Duration::from_millis(10);
/// After a failed `accept`: time for descriptors to come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The content type of OpenMetrics 1.0.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves on `listener`, in a task of its own, until `end` is cancelled.
pub fn listen(
    admin: Admin,
    listener: TcpListener,
    (tracker, end): (&TaskTracker, CancellationToken),
) {
    let admin = Arc::new(admin);
    let api = Router::new()
        .route("/api/v1/pace", get(pace::pace))
        .route_layer(from_fn_with_state(Arc::clone(&admin), access::guard));
    let router = api
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .layer(from_fn(name::guard))
        .with_state(admin);
    let connections = tracker.clone();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    tracker.spawn(async move {
        loop {
            let accepted = tokio::select! {
                () = end.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => {
                    let place = Arc::clone(&places).acquire_owned();
                    let Ok(Ok(place)) = timeout(PLACE_TIMEOUT, place).await else {
                        continue;
                    };
                    let router = router.clone().layer(Extension(from.ip()));
                    let served = serve(stream, router, end.clone());
                    connections.spawn(async move {
                        // A page is small: who has not read it by then will not.
                        let _ = timeout(CONNECTION_TIMEOUT, served).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(target: REPEATING, %error, "the admin listener cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
}

/// Serves one connection until it ends, or until `end` and its last page.
async fn serve(stream: TcpStream, router: Router, end: CancellationToken) {
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = end.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an admin connection ended badly");
    }
}

async fn readyz(State(admin): State<Arc<Admin>>) -> Response {
    if admin.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    match admin.audit.probe().await {
        Ok(()) => "ready\n".into_response(),
        Err(error) => {
            let cause = std::error::Error::source(&error);
            let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
            let text = format!("{error}{cause}\n");
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    (
        [(header::CONTENT_TYPE, OPENMETRICS)],
        admin.metrics.render(),
    )
        .into_response()
}

#[cfg(test)]
mod tests;
