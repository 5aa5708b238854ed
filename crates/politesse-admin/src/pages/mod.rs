//! Pages of the dashboard. Each page is made from one value, which `/api/v1` returns as
//! JSON.
//!
//! Does not know who may see a page.

mod back_offs;
pub(super) mod changes;
pub(super) mod configuration;
pub(super) mod crawlers;
pub(super) mod decision;
pub(super) mod decisions;
pub(super) mod fleet;
mod health;
pub(super) mod host;
mod hosts;
pub(super) mod news;
mod override_form;
pub(super) mod overview;
mod overview_chart;
mod overview_tables;
mod page_span;
pub(super) mod queues;
pub(super) mod reports;
mod sums;
pub(super) mod test_url;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::api::error_text;
use super::archive_asker::{ArchiveAsker, NoAnswer};
use super::check::PlanSource;
use super::client::ClientPageSource;
use super::filter_query::{DecisionQuery, RecordScope, check_listed};
use super::in_force::ConfigurationCell;
use super::kept_news::KeptNews;
use super::layout::{DashboardPage, DashboardSection, error_page, layout};
use super::live::LiveTail;
use super::live_counts::LiveCounts;
use super::orders::{BackOffRelease, RobotsRefetch};
use super::state_pages::{FleetSource, GaugeRefresh, PaceSource};
use super::visit::Visit;
use politesse_base::clients::directory::ClientDirectory;
use politesse_base::metrics::Metrics;
use politesse_pages::page::words::{foreign, shown};
use politesse_record::{AuditError, AuditLog};

/// Longest time for searching the record for a page.
pub(super) const QUERY_TIME_MAX: Duration = Duration::from_secs(5);

/// Maximum number of exports at a time: each reads the whole record and occupies one of
/// the few readers.
pub(super) const EXPORTS_MAX: usize = 2;

/// Maximum number of reports and bundles at a time: each keeps a processor busy.
pub(super) const REPORTS_MAX: usize = 1;

/// Sources of the pages.
#[derive(Debug)]
pub(super) struct Dashboard {
    pub(super) archive: ArchiveAsker,
    pub(super) audit: Arc<AuditLog>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) pace: PaceSource,
    pub(super) fleet: FleetSource,
    pub(super) release: BackOffRelease,
    pub(super) refetch: RobotsRefetch,
    pub(super) live: LiveTail,
    pub(super) live_counts: LiveCounts,
    pub(super) news: Arc<KeptNews>,
    pub(super) plan: PlanSource,
    pub(super) clients: Arc<ClientDirectory>,
    pub(super) gauges: GaugeRefresh,
    pub(super) configuration: ConfigurationCell,
    pub(super) client_pages: ClientPageSource,
    /// Slots for exports.
    pub(super) exports: Arc<Semaphore>,
    /// Slots for reports and bundles.
    pub(super) reports: Arc<Semaphore>,
    /// Tasks of the admin listener.
    pub(super) tracker: TaskTracker,
}

/// Reports that a query of the record failed: as a page if there is a `visit`,
/// otherwise as text.
pub(super) fn query_failed(visit: Option<&Visit>, error: &AuditError) -> Response {
    let is_busy = matches!(
        error,
        AuditError::QueryTimeout | AuditError::QueryBusy | AuditError::Closed
    );
    let status = if is_busy {
        StatusCode::SERVICE_UNAVAILABLE
    } else if matches!(error, AuditError::TooManySums(_)) {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        tracing::warn!(
            error = error_text(error),
            "the record cannot be read for a page"
        );
        StatusCode::INTERNAL_SERVER_ERROR
    };
    match visit {
        Some(visit) => error_page(visit, status, &error_text(error)),
        None => (status, format!("{}\n", error_text(error))).into_response(),
    }
}

/// Reason why a page cannot be shown.
#[derive(Debug)]
pub(super) enum PageFailure {
    /// The record could not be read.
    Record(AuditError),
    /// The archive could not be read.
    Archive(NoAnswer),
}

impl From<AuditError> for PageFailure {
    fn from(error: AuditError) -> Self {
        Self::Record(error)
    }
}

impl From<NoAnswer> for PageFailure {
    fn from(error: NoAnswer) -> Self {
        Self::Archive(error)
    }
}

impl PageFailure {
    /// Makes the error response. `section` is the section whose page for this node
    /// still works.
    pub(super) fn answer(&self, visit: Option<&Visit>, section: DashboardSection) -> Response {
        let error = match self {
            Self::Record(error) => return query_failed(visit, error),
            Self::Archive(error) => error,
        };
        let status = match error {
            NoAnswer::NoArchive => StatusCode::NOT_FOUND,
            #[cfg(feature = "postgres")]
            NoAnswer::NoNode(_) => StatusCode::NOT_FOUND,
            #[cfg(feature = "postgres")]
            NoAnswer::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        let Some(visit) = visit else {
            return (status, format!("{error}\n")).into_response();
        };
        let content = DashboardPage {
            title: "All nodes".to_owned(),
            section: Some(section),
            body: html! {
                p class="error" role="alert" { bdi { (shown(&error.to_string(), 500)) } }
                p {
                    "The record of this node is still available: "
                    a href=(visit.link(section.path())) { (section.title()) " of this node" }
                }
            },
        };
        (status, layout(visit, &content)).into_response()
    }
}

/// Shows which records a page covers, with a link to the same page for the others.
/// Shows nothing if there is no archive. `path` is the page with its conditions.
pub(super) fn scope_switch(
    dashboard: &Dashboard,
    visit: &Visit,
    query: &DecisionQuery,
    path: &str,
) -> Markup {
    let scopes = [
        (RecordScope::Node, "this node"),
        (RecordScope::Archive, "all nodes (archive)"),
    ];
    html! {
        @if dashboard.archive.has_archive() {
            nav class="actions" aria-label="Records" {
                span class="small" { "Records of" }
                @for (scope, text) in scopes {
                    @let is_current = (query.scope == scope).then_some("true");
                    a href=(visit.link(&query.clone().in_scope(scope).behind(path)))
                        aria-current=[is_current] { (text) }
                }
            }
        }
    }
}

/// Notes that a page covers only this node, and links to the decisions of all nodes
/// that `rows` selects. Shows nothing if there is no archive.
pub(super) fn node_alone(dashboard: &Dashboard, visit: &Visit, rows: &DecisionQuery) -> Markup {
    let all = rows.clone().in_scope(RecordScope::Archive);
    html! {
        @if dashboard.archive.has_archive() {
            p class="note" {
                "This page covers this node only. For all nodes, see the "
                a href=(visit.link(&all.behind("/decisions"))) { "decisions in the archive" } "."
            }
        }
    }
}

/// Refuses a query with `of=archive` on a page that only reads the record of this node;
/// `None` for other queries.
pub(super) fn refuse_archive(uri: &Uri) -> Option<Response> {
    let is_of_archive = RecordScope::of(uri.query().unwrap_or_default()) == RecordScope::Archive;
    is_of_archive.then(|| {
        let text = "this covers one node only: leave out of=archive; /api/v1/decisions and \
                    /api/v1/overview cover all nodes\n";
        (StatusCode::BAD_REQUEST, text).into_response()
    })
}

/// Refuses API queries with a value that is not listed for its parameter. Pages treat
/// such a value as the default.
pub(crate) async fn refuse_unlisted_values(request: Request, next: Next) -> Response {
    match check_listed(request.uri().query().unwrap_or_default()) {
        Ok(()) => next.run(request).await,
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

/// Makes a link with `text` to the decisions of `query`.
pub(super) fn rows_link(visit: &Visit, query: &DecisionQuery, text: &str) -> Markup {
    html! { a href=(visit.link(&query.behind("/decisions"))) { (text) } }
}

/// Makes a link to the page of a host.
pub(super) fn host_link(visit: &Visit, host: &str) -> Markup {
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("host", host)
        .finish();
    html! { a href=(visit.link(&format!("/hosts?{query}"))) { (foreign(host)) } }
}

/// Makes a link to the page of a crawler; `None` stands for crawlers without a token.
pub(super) fn crawler_link(visit: &Visit, token: Option<&str>) -> Markup {
    // The star stands for them in every filter.
    let query = DecisionQuery::default().with("crawler", token.unwrap_or("*"));
    html! {
        a href=(visit.link(&query.behind("/crawlers"))) {
            @match token { Some(token) => (foreign(token)), None => "without a name" }
        }
    }
}
