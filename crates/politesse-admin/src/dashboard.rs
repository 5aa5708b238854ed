//! Routes of the dashboard: its pages, their counterparts in JSON, and the files that a
//! browser loads with them.
//!
//! Does not know what a page shows, or how a connection is served.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::access::{Access, Pass, require_own_origin, require_token};
use super::archive_asker::ArchiveAsker;
use super::check::PlanSource;
use super::client::ClientPageSource;
use super::in_force::ConfigurationCell;
use super::layout::{asset, error_page};
use super::live::{LiveTail, LiveTasks};
use super::live_counts::LiveCounts;
use super::orders::{BackOffRelease, RobotsRefetch};
use super::pages::{
    Dashboard, EXPORTS_MAX, REPORTS_MAX, changes, configuration, crawlers, decision, decisions,
    fleet, host, news, overview, queues, refuse_unlisted_values, reports, test_url,
};
use super::sign_in::{self, SignInState, require_sign_in};
use super::state_pages::{FleetSource, GaugeRefresh, PaceSource};
use super::visit::{Visit, VisitState, begin_visit};
use politesse_base::clients::directory::ClientDirectory;
use politesse_base::metrics::Metrics;
use politesse_record::AuditLog;

/// Parts that the dashboard is built from.
#[derive(Debug)]
pub(super) struct DashboardParts {
    pub(super) archive: ArchiveAsker,
    pub(super) audit: Arc<AuditLog>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) access: Arc<Access>,
    pub(super) pace: PaceSource,
    pub(super) fleet: FleetSource,
    pub(super) release: BackOffRelease,
    pub(super) refetch: RobotsRefetch,
    pub(super) plan: PlanSource,
    pub(super) clients: Arc<ClientDirectory>,
    pub(super) gauges: GaugeRefresh,
    pub(super) configuration: ConfigurationCell,
    pub(super) client_pages: ClientPageSource,
    /// Path below which browsers see the pages; empty for `/`.
    pub(super) base_path: Arc<str>,
    /// Tracks the tasks of the live view and of exports.
    pub(super) tracker: TaskTracker,
    pub(super) end: CancellationToken,
}

/// Makes the routes.
pub(super) fn routes(parts: DashboardParts) -> Router {
    let visits = VisitState {
        base_path: Arc::clone(&parts.base_path),
        metrics: Arc::clone(&parts.metrics),
        fleet: parts.fleet.clone(),
    };
    let sign_in = SignInState {
        access: Arc::clone(&parts.access),
        base_path: Arc::clone(&parts.base_path),
    };
    let access = Arc::clone(&parts.access);
    let unknown = unknown_paths(visits.clone(), Arc::clone(&access));
    let dashboard = dashboard(parts);
    // The layer added last runs first: a visit begins after the session is known.
    let visit = from_fn_with_state(visits, begin_visit);
    let pages = Router::new()
        .route("/", get(overview::page).post(overview::release))
        .route("/overview/stream", get(overview::stream))
        .route("/decisions", get(decisions::page))
        .route("/decisions/stream", get(decisions::stream))
        .route("/decisions/export", get(decisions::export))
        .route("/decisions/{number}", get(decision::page))
        .route("/decisions/{number}/part", get(decision::part))
        .route("/hosts", get(host::page).post(host::refetch))
        .route("/hosts/changes", get(changes::page))
        .route("/hosts/changes/{number}", get(changes::story_page))
        .route("/crawlers", get(crawlers::page))
        .route("/queues", get(queues::page).post(queues::release))
        .route("/fleet", get(fleet::page))
        .route("/reports", get(reports::page))
        .route("/reports/report", get(reports::report))
        .route("/reports/site", get(reports::site))
        .route("/reports/bundle", get(reports::bundle))
        .route("/test", get(test_url::page).post(test_url::ask))
        .route("/configuration", get(configuration::page))
        .with_state(Arc::clone(&dashboard))
        .route("/logout", post(sign_in::sign_out))
        .with_state(sign_in.clone())
        .route_layer(visit.clone())
        .route_layer(from_fn_with_state(sign_in.clone(), require_sign_in));
    let open = Router::new()
        .route("/login", get(sign_in::show).post(sign_in::sign_in))
        .route("/theme", post(sign_in::choose_theme))
        .route("/zone", post(sign_in::choose_zone))
        .with_state(sign_in)
        .route_layer(visit)
        .route_layer(from_fn(require_own_origin))
        .route("/assets/{name}", get(asset));
    let api = Router::new()
        .route("/api/v1/overview", get(overview::api))
        .route("/api/v1/overview/stream", get(overview::stream))
        .route("/api/v1/decisions", get(decisions::api))
        .route("/api/v1/decisions/stream", get(decisions::api_stream))
        .route("/api/v1/decisions/{number}", get(decision::api))
        .route("/api/v1/hosts", get(host::api))
        .route("/api/v1/hosts/changes", get(changes::api))
        .route("/api/v1/hosts/changes/{number}", get(changes::story_api))
        .route("/api/v1/news", get(news::api))
        .route("/api/v1/crawlers", get(crawlers::api))
        .route("/api/v1/fleet", get(fleet::api))
        .route("/api/v1/report", get(reports::api_report))
        .route("/api/v1/bundle", get(reports::api_bundle))
        .route("/api/v1/configuration", get(configuration::api))
        .with_state(dashboard)
        // Guarded by the token: the layer added last runs first.
        .route_layer(from_fn(refuse_unlisted_values))
        .route_layer(from_fn_with_state(access, require_token));
    pages.merge(open).merge(api).fallback_service(unknown)
}

/// Makes the routes for unknown paths: a page for sessions, text for programs.
fn unknown_paths(visits: VisitState, access: Arc<Access>) -> Router {
    Router::new()
        .fallback(
            async |Extension(visit): Extension<Visit>| match visit.form_token {
                Some(_) => error_page(&visit, StatusCode::NOT_FOUND, "There is no such page."),
                None => {
                    let text = "there is no such page; begin at /\n";
                    (StatusCode::NOT_FOUND, text).into_response()
                }
            },
        )
        .layer(from_fn_with_state(visits, begin_visit))
        .layer(from_fn_with_state(access, find_session))
}

/// Middleware: adds the session to a request outside `/api`, if there is one. Counts no
/// refusal, because an unknown path needs no session.
async fn find_session(
    State(access): State<Arc<Access>>,
    mut request: Request,
    next: Next,
) -> Response {
    let is_for_programs = request.uri().path().starts_with("/api/");
    let session = access.sessions.find(request.headers());
    if let Some(session) = session.filter(|_| !is_for_programs) {
        request.extensions_mut().insert(Pass::Session(session));
    }
    next.run(request).await
}

fn dashboard(parts: DashboardParts) -> Arc<Dashboard> {
    let tasks = LiveTasks {
        tracker: parts.tracker.clone(),
        end: parts.end,
    };
    let live = LiveTail::new(
        Arc::clone(&parts.audit),
        Arc::clone(&parts.metrics),
        parts.base_path,
        tasks,
    );
    let live_counts = LiveCounts::new(Arc::clone(parts.audit.recent()));
    Arc::new(Dashboard {
        archive: parts.archive,
        audit: parts.audit,
        metrics: parts.metrics,
        pace: parts.pace,
        fleet: parts.fleet,
        release: parts.release,
        refetch: parts.refetch,
        live,
        live_counts,
        news: Arc::default(),
        plan: parts.plan,
        clients: parts.clients,
        gauges: parts.gauges,
        configuration: parts.configuration,
        client_pages: parts.client_pages,
        exports: Arc::new(Semaphore::new(EXPORTS_MAX)),
        reports: Arc::new(Semaphore::new(REPORTS_MAX)),
        tracker: parts.tracker,
    })
}
