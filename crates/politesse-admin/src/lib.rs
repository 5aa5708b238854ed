//! Admin listener of [politesse](https://crates.io/crates/politesse): pages for
//! operators and for their monitoring.
//!
//! `/healthz` (the process runs), `/readyz` (the audit record can be written) and
//! `/metrics` are open to every client of the listener, so they name no host, URL or
//! crawler. `/client` and the files it links to are open as well. The dashboard at `/`
//! requires a session, `/api/v1` a session or the token. Does not know how requests are
//! paced and recorded.

mod access;
mod api;
mod archive_asker;
mod arrival;
mod channel_body;
mod check;
mod client;
mod dashboard;
mod decision_view;
mod filter_query;
mod in_force;
mod kept_news;
mod layout;
mod live;
mod live_counts;
mod orders;
mod pages;
mod places;
mod robots_view;
mod sessions;
mod sign_in;
mod state_pages;
mod token;
mod visit;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::extract::State;
use axum::http::{Request, StatusCode, Uri, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::access::Access;
use self::access::{make_private, require_token};
pub use self::api::ROWS_SHOWN;
pub use self::archive_asker::ArchiveAsker;
pub use self::arrival::ArrivalRules;
use self::arrival::{AdminConnection, require_own_host};
use self::channel_body::LongAnswer;
use self::check::CheckState;
pub use self::check::{PlanFuture, PlanResult, PlanSource, URLS_MAX};
use self::client::AdminLocal;
pub use self::client::ClientPageSource;
use self::dashboard::DashboardParts;
pub use self::in_force::{
    ConfigurationCell, ConfigurationInForce, FailedReload, ShownKey, ShownOverride,
};
pub use self::orders::{BackOffRelease, REASON_BYTES_MAX, RefetchFuture, RobotsRefetch, is_reason};
pub use self::places::CONNECTIONS_MAX;
use self::places::{AdminPlace, AdminPlaces, ArrivingBody};
pub use self::sessions::SessionOptions;
use self::sign_in::SignInState;
pub use self::state_pages::{FleetSource, GaugeRefresh, PaceSource};
pub use self::token::{AdminToken, TokenError};
use politesse_base::clients::directory::ClientDirectory;
use politesse_base::metrics::Metrics;
use politesse_base::throttle::REPEATING;
use politesse_fleet::status::{FleetStanding, FleetStatus};
use politesse_proxy::listener_tls::{self, ListenerTls};
use politesse_record::AuditLog;
use politesse_robots::origin::Scheme;

/// Options of the admin listener.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address to listen on; port 0 picks any free port.
    pub listen: SocketAddr,
    /// File with the token.
    pub token_file: PathBuf,
    /// Path below which browsers see the pages, without a trailing slash; empty for
    /// `/`.
    pub base_path: Arc<str>,
    /// Hosts that requests may be sent to, and the trusted proxies.
    pub arrival: ArrivalRules,
    /// Certificate of the listener, if it has one.
    pub tls: listener_tls::Options,
    /// Limits of sessions.
    pub sessions: SessionOptions,
}

/// Sources of the pages; `serve` provides them.
#[derive(Debug)]
pub struct Admin {
    /// Audit record: `/readyz` answers 503 if it cannot be written.
    pub audit: Arc<AuditLog>,
    /// Metrics shown by `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Updates the gauges that are computed on demand.
    pub gauges: GaugeRefresh,
    /// Whether a stop is near: `/readyz` then answers 503, for load balancers.
    pub is_draining: Arc<AtomicBool>,
    /// Cancelled when the proxy begins to stop: from then on `/readyz` answers 503; the
    /// other pages are unaffected.
    pub stop: CancellationToken,
    /// Check of the token, for pages that name hosts.
    pub access: Arc<Access>,
    /// Pace of all hosts, shown by `/api/v1/pace`.
    pub pace: PaceSource,
    /// Archive of all nodes, queried by pages.
    pub archive: ArchiveAsker,
    /// State of the fleet that this proxy belongs to.
    pub fleet: FleetSource,
    /// Ends back-offs, for `DELETE /api/v1/pace/HOST` and the dashboard.
    pub release: BackOffRelease,
    /// Fetches robots.txt files again, for `/api/v1/robots/HOST/refetch` and the
    /// dashboard.
    pub refetch: RobotsRefetch,
    /// Clients, shown by `/api/v1/clients`.
    pub clients: Arc<ClientDirectory>,
    /// Plans requests, for `/api/v1/check`.
    pub plan: PlanSource,
    /// Pages for setting up a client.
    pub client: ClientPageSource,
    /// Configuration in force, shown by `/configuration`.
    pub configuration: ConfigurationCell,
    /// Path below which browsers see the pages; empty for `/`.
    pub base_path: Arc<str>,
    /// Hosts that requests may be sent to, and the trusted proxies.
    pub arrival: Arc<ArrivalRules>,
    /// Certificate in force; `None` without TLS.
    pub tls: Arc<ArcSwapOption<ListenerTls>>,
}

/// Longest time for the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest time of a connection. It serves one small page, and a client that has not
/// read it by then never will.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time of a response that is made while it is sent. For the live view, the
/// browser reconnects; an export has ended by then.
const LONG_CONNECTION_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// First byte of a TLS connection: the type of a handshake record (RFC 8446, section
/// 5.1).
const TLS_HANDSHAKE: u8 = 22;
/// Pause after a failed `accept`, which gives file descriptors time to become free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Content type of OpenMetrics 1.0.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves the pages of `admin` on `listener`, in tasks of `tracker`, until `end` is
/// cancelled. `end` is later than `admin.stop`, so that a stop can be observed.
pub fn listen(admin: Admin, listener: TcpListener, tracker: &TaskTracker, end: CancellationToken) {
    let connections = tracker.clone();
    let server = AdminServer {
        base_path: Arc::clone(&admin.base_path),
        tls: Arc::clone(&admin.tls),
        pages: pages(admin, tracker, &end),
        end,
    };
    tracker.spawn(async move {
        let serving = |stream, place| server.clone().serve(stream, place);
        tokio::select! {
            () = server.end.cancelled() => {}
            () = accept(&listener, &connections, serving) => {}
        }
    });
}

/// Returns the routes: open ones, and those that require the token.
fn pages(admin: Admin, tracker: &TaskTracker, end: &CancellationToken) -> Router {
    let dashboard = dashboard::routes(DashboardParts {
        archive: admin.archive.clone(),
        audit: Arc::clone(&admin.audit),
        metrics: Arc::clone(&admin.metrics),
        access: Arc::clone(&admin.access),
        pace: admin.pace.clone(),
        fleet: admin.fleet.clone(),
        release: admin.release.clone(),
        refetch: admin.refetch.clone(),
        plan: admin.plan.clone(),
        clients: Arc::clone(&admin.clients),
        gauges: admin.gauges.clone(),
        configuration: Arc::clone(&admin.configuration),
        client_pages: admin.client.clone(),
        base_path: Arc::clone(&admin.base_path),
        tracker: tracker.clone(),
        end: end.clone(),
    });
    let hosts = from_fn_with_state(Arc::clone(&admin.arrival), require_own_host);
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
        .route("/api/v1/robots/{host}/refetch", post(orders::refetch))
        .with_state(admin.refetch.clone())
        .route("/api/v1/clients", get(state_pages::clients))
        .with_state(Arc::clone(&admin.clients))
        .route("/api/v1/audit/prune", post(orders::prune))
        .route("/api/v1/audit/redact", post(orders::redact))
        .with_state(Arc::clone(&admin.audit))
        .route("/api/v1/check", post(check::check))
        .with_state(checks)
        .route("/api/v1/sign-in-link", post(sign_in::make_link))
        .with_state(SignInState {
            access: Arc::clone(&admin.access),
            base_path: Arc::clone(&admin.base_path),
        })
        .route("/api/v1/openapi.json", get(api::document))
        // `route_layer`, not `layer`, so that an unknown path answers 404, not 401.
        .route_layer(guard);
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(admin))
        .merge(for_clients)
        .merge(guarded)
        .merge(dashboard)
        .method_not_allowed_fallback(async || {
            let text = "this method is not for this page\n";
            (StatusCode::METHOD_NOT_ALLOWED, text)
        })
        .layer(from_fn(make_private))
        // The host is checked before the token: a page of another site can make its own
        // name resolve to this listener (DNS rebinding), and must not learn whether a
        // token is right.
        .layer(hosts)
}

/// Accepts connections forever and serves each in its own task, at most
/// [`CONNECTIONS_MAX`] at a time.
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
                tracker.spawn(served);
            }
            Err(error) => {
                tracing::warn!(target: REPEATING, %error, "the admin listener cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Server for connections to the admin listener.
#[derive(Clone)]
struct AdminServer {
    base_path: Arc<str>,
    tls: Arc<ArcSwapOption<ListenerTls>>,
    pages: Router,
    end: CancellationToken,
}

impl AdminServer {
    /// Serves one connection, with TLS if there is a certificate. A connection from the
    /// same machine may omit TLS, because it crosses no network.
    async fn serve(self, stream: TcpStream, place: AdminPlace) {
        let (Ok(peer), Ok(own)) = (stream.peer_addr(), stream.local_addr()) else {
            // The connection has already closed.
            return;
        };
        let connection = AdminConnection {
            peer,
            own,
            scheme: Scheme::Http,
        };
        let Some(tls) = self.tls.load_full() else {
            return self.serve_pages(stream, connection, place).await;
        };
        let mut first = [0];
        let peeked = tokio::select! {
            peeked = timeout(HEADER_TIMEOUT, stream.peek(&mut first)) => peeked,
            () = place.displaced.cancelled() => return,
            () = self.end.cancelled() => return,
        };
        let is_handshake = matches!(peeked, Ok(Ok(1))) && first == [TLS_HANDSHAKE];
        let is_of_this_machine = peer.ip().is_loopback() || peer.ip() == own.ip();
        if is_handshake {
            let handshake = tokio::select! {
                handshake = tls.accept(stream, HEADER_TIMEOUT) => handshake,
                // Without the timeout, an abandoned handshake would hold a descriptor.
                () = place.displaced.cancelled() => return,
                () = self.end.cancelled() => return,
            };
            match handshake {
                Ok(stream) => {
                    let scheme = Scheme::Https;
                    let secure = AdminConnection {
                        scheme,
                        ..connection
                    };
                    self.serve_pages(stream, secure, place).await;
                }
                Err(error) => tracing::debug!(%error, "an admin connection has no TLS session"),
            }
        } else if is_of_this_machine {
            self.serve_pages(stream, connection, place).await;
        }
    }

    /// Serves pages until the connection ends, or until another connection takes its
    /// place. Once `end` is cancelled, only a response in progress is completed.
    async fn serve_pages<S>(self, stream: S, connection: AdminConnection, place: AdminPlace)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { base_path, end, .. } = self;
        let displaced = place.displaced.clone();
        let place = Arc::new(place);
        let long = LongAnswer::default();
        let routes = self
            .pages
            .layer(Extension(AdminLocal(connection.own)))
            .layer(Extension(connection))
            .layer(Extension(long.clone()));
        let pages = TowerToHyperService::new(routes);
        let answer = service_fn(move |mut request| {
            take_base_path(&base_path, &mut request);
            pages.call(request.map(|body| ArrivingBody::new(body, Arc::clone(&place))))
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                // One page per connection: with keep-alive, 64 idle clients would lock
                // monitoring out.
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), answer)
        );
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = displaced.cancelled() => return,
            () = long.expired(CONNECTION_TIMEOUT, LONG_CONNECTION_TIMEOUT) => return,
            () = end.cancelled() => {
                connection.as_mut().graceful_shutdown();
                // A client that does not read must not delay a stop.
                timeout(CONNECTION_TIMEOUT, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "an admin connection ended badly");
        }
    }
}

/// Strips the base path from a target, so that routes match with it and without it:
/// some reverse proxies strip it themselves.
fn take_base_path<B>(base_path: &str, request: &mut Request<B>) {
    let Some(target) = request.uri().path_and_query() else {
        return;
    };
    let rest = match target.as_str().strip_prefix(base_path) {
        Some(rest) if !base_path.is_empty() => rest,
        _ => return,
    };
    let within = match rest.chars().next() {
        None => "/".to_owned(),
        Some('/') => rest.to_owned(),
        Some('?') => format!("/{rest}"),
        // Another path that merely has the same beginning.
        Some(_) => return,
    };
    let mut parts = request.uri().clone().into_parts();
    // The authority, if present, is kept: the host check needs it later.
    parts.path_and_query = within.parse().ok();
    if let Ok(within) = Uri::from_parts(parts) {
        *request.uri_mut() = within;
    }
}

async fn readyz(State(admin): State<Arc<Admin>>) -> Response {
    if admin.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    if admin.is_draining.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    match admin.audit.probe().await {
        Ok(()) => (admin.fleet.0)().as_ref().map_or_else(
            || ready(&admin.audit),
            |fleet| readyz_of_node(fleet, &admin.audit),
        ),
        Err(error) => api::unavailable(&error),
    }
}

/// Reports that the proxy is ready, and whether sealing of the record has failed.
/// Crawls continue, but the operator should look at it.
fn ready(audit: &AuditLog) -> Response {
    match audit.seal_fault() {
        Some(fault) => {
            format!("ready, but the record is not sealed any further: {fault}\n").into_response()
        }
        None => "ready\n".into_response(),
    }
}

/// Reports whether a node of a fleet is ready. Names no node, because the page is open.
fn readyz_of_node(fleet: &FleetStatus, audit: &AuditLog) -> Response {
    match fleet.mode {
        FleetStanding::Closed => {
            let text = "closed: the store of the fleet does not answer\n";
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
        FleetStanding::Alone => {
            "degraded: the store of the fleet does not answer\n".into_response()
        }
        FleetStanding::Joined if fleet.is_unopened() => {
            "degraded: the store of the fleet begins it again and again\n".into_response()
        }
        FleetStanding::Joined if fleet.has_namesake => {
            "ready, but another process has the name of this node (fleet.node)\n".into_response()
        }
        FleetStanding::Joined => {
            let parts: Vec<_> = fleet.difference().parts.into_iter().collect();
            // Not 503: a balancer that removed all nodes for it would stop the crawl.
            match parts.join(", ").as_str() {
                "" => ready(audit),
                parts => {
                    let what = "the configuration is not that of all nodes";
                    format!("ready, but {what}: {parts}\n").into_response()
                }
            }
        }
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
