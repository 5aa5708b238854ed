//! `/reports`: reports and bundles of the record, made on request and downloaded.
//! `/api/v1/report` returns the numbers of a report as JSON, `/api/v1/bundle` the
//! bundle.
//!
//! Nothing is stored here: a repeated request gets the same from the record. Does not
//! know the content of a report.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use thiserror::Error;

use super::Dashboard;
use crate::api::json;
use crate::channel_body::LongAnswer;
use crate::filter_query::{DecisionQuery, InvalidFilter};
use crate::layout::{DashboardPage, DashboardSection, layout};
use crate::visit::Visit;
use politesse_base::command_line::command;
use politesse_pages::page::report::{Report, ReportKind, make_report};
use politesse_pages::page::words::shown;
use politesse_record::AuditError;
use politesse_record::bundle::{BundleError, write_bundle};
use politesse_record::filter::DecisionFilter;
use politesse_record::reader::AuditReader;

/// Longest time for making one; millions of decisions may have to be repeated.
const MAKING_TIME_MAX: Duration = Duration::from_secs(10 * 60);

/// Maximum bytes of a bundle, which stays in memory until it is sent.
const BUNDLE_BYTES_MAX: usize = 64 << 20;

/// Seconds after which a client may retry while another report is being made.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("10");

/// Reason why there is no report or bundle.
#[derive(Debug, Error)]
enum ReportFailure {
    /// The query string is invalid.
    #[error(transparent)]
    Filter(#[from] InvalidFilter),
    /// Reports do not accept this condition.
    #[error("a report or bundle accepts only the conditions from, until and host")]
    Condition,
    /// The page for the owner of a site needs a host.
    #[error("host: the page for the owner of a site needs one")]
    NoHost,
    /// Another report is being made.
    #[error("another report is being made; try again in a moment")]
    Busy,
    /// The bundle exceeds the memory limit.
    #[error(
        "the bundle has more than {} MiB: choose fewer decisions, or make it where the record is, \
         with {}",
        BUNDLE_BYTES_MAX >> 20,
        command("audit bundle")
    )]
    TooLarge,
    /// The record does not contain such a bundle.
    #[error(transparent)]
    Bundle(BundleError),
    /// The record cannot be read.
    #[error(transparent)]
    Record(#[from] AuditError),
}

impl ReportFailure {
    fn status(&self) -> StatusCode {
        match self {
            Self::Filter(_) | Self::Condition | Self::NoHost => StatusCode::BAD_REQUEST,
            Self::TooLarge
            | Self::Record(AuditError::TooManySums(_))
            | Self::Bundle(
                BundleError::Unsealed | BundleError::Empty(_) | BundleError::TooLarge(_),
            ) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Busy
            | Self::Record(AuditError::QueryTimeout | AuditError::QueryBusy | AuditError::Closed) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            // The record is damaged or unreadable, which its operator must know.
            Self::Bundle(_) | Self::Record(_) => {
                tracing::warn!(error = %self, "a report or bundle cannot be made");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// Makes the response for programs.
    fn in_text(&self) -> Response {
        self.answer(format!("{self}\n").into_response())
    }

    /// Makes the response with `body`, which gives the reason.
    fn answer(&self, body: Response) -> Response {
        let status = self.status();
        let mut answer = (status, body).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            answer
                .headers_mut()
                .insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        answer
    }
}

/// Query for a report or a bundle.
#[derive(Debug)]
struct ReportQuery(DecisionQuery);

impl ReportQuery {
    fn parse(uri: &Uri) -> Self {
        Self(DecisionQuery::parse(uri.query().unwrap_or_default()))
    }

    fn filter(&self) -> Result<DecisionFilter, ReportFailure> {
        let filter = self.0.filter()?;
        let about = DecisionFilter {
            from: filter.from,
            until: filter.until,
            host: filter.host.clone(),
            ..DecisionFilter::default()
        };
        // Ignoring the other conditions would give a report about something else.
        if filter != about {
            return Err(ReportFailure::Condition);
        }
        Ok(filter)
    }

    /// Makes the name of a file.
    fn file(&self, stem: &str, end: &str) -> String {
        // Letters, digits, dots and hyphens are safe in every file system and in the
        // header field with the name.
        let host = self.filter().ok().and_then(|filter| filter.host);
        let letters = host.iter().flat_map(|host| host.chars());
        let is_safe = |letter: char| letter.is_ascii_alphanumeric() || ".-".contains(letter);
        let safe = letters.map(|letter| if is_safe(letter) { letter } else { '-' });
        let host: String = safe.collect();
        match host.is_empty() {
            true => format!("{stem}.{end}"),
            false => format!("{stem}-{host}.{end}"),
        }
    }
}

/// Shows the form.
pub(crate) async fn page(Extension(visit): Extension<Visit>, uri: Uri) -> Response {
    let mut query = ReportQuery::parse(&uri);
    if !query.0.is_narrow() {
        // A day is the most common choice, and is made quickly.
        query.0 = query.0.with("from", "24h");
    }
    form_page(&visit, &query, None)
}

/// Sends a report for auditors.
pub(crate) async fn report(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    Extension(long): Extension<LongAnswer>,
    uri: Uri,
) -> Response {
    let query = ReportQuery::parse(&uri);
    long.allow();
    let made = report_file(&dashboard, &query, ReportKind::Operator).await;
    file_or_form(&visit, &query, made)
}

/// Sends the page for the owner of a site.
pub(crate) async fn site(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    Extension(long): Extension<LongAnswer>,
    uri: Uri,
) -> Response {
    let query = ReportQuery::parse(&uri);
    long.allow();
    let made = report_file(&dashboard, &query, ReportKind::Site).await;
    file_or_form(&visit, &query, made)
}

/// Sends a bundle.
pub(crate) async fn bundle(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    Extension(long): Extension<LongAnswer>,
    uri: Uri,
) -> Response {
    let query = ReportQuery::parse(&uri);
    long.allow();
    let made = bundle_file(&dashboard, &query).await;
    file_or_form(&visit, &query, made)
}

/// Returns the numbers of a report as JSON.
pub(crate) async fn api_report(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(long): Extension<LongAnswer>,
    uri: Uri,
) -> Response {
    long.allow();
    let query = ReportQuery::parse(&uri);
    match make(&dashboard, &query, ReportKind::Operator).await {
        Ok(report) => json(&report.summary),
        Err(failure) => failure.in_text(),
    }
}

/// Returns a bundle.
pub(crate) async fn api_bundle(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(long): Extension<LongAnswer>,
    uri: Uri,
) -> Response {
    long.allow();
    match bundle_file(&dashboard, &ReportQuery::parse(&uri)).await {
        Ok(file) => file.into_response(),
        Err(failure) => failure.in_text(),
    }
}

/// File to download.
struct MadeFile {
    name: String,
    kind: &'static str,
    bytes: Vec<u8>,
}

impl IntoResponse for MadeFile {
    fn into_response(self) -> Response {
        let disposition = format!("attachment; filename=\"{}\"", self.name);
        let fields = [
            (header::CONTENT_TYPE, self.kind.to_owned()),
            (header::CONTENT_DISPOSITION, disposition),
        ];
        (fields, self.bytes).into_response()
    }
}

async fn report_file(
    dashboard: &Dashboard,
    query: &ReportQuery,
    kind: ReportKind,
) -> Result<MadeFile, ReportFailure> {
    let report = make(dashboard, query, kind).await?;
    let stem = match kind {
        ReportKind::Operator => "report",
        ReportKind::Site => "site",
    };
    Ok(MadeFile {
        name: query.file(stem, "html"),
        kind: "text/html; charset=utf-8",
        bytes: report.page.into_bytes(),
    })
}

async fn make(
    dashboard: &Dashboard,
    query: &ReportQuery,
    kind: ReportKind,
) -> Result<Report, ReportFailure> {
    let filter = query.filter()?;
    if kind == ReportKind::Site && filter.host.is_none() {
        return Err(ReportFailure::NoHost);
    }
    let contact = dashboard.configuration.load().contact.clone();
    let made = in_turn(dashboard, move |reader| {
        make_report(reader, &filter, kind, contact.as_deref())
    });
    made.await
}

async fn bundle_file(
    dashboard: &Dashboard,
    query: &ReportQuery,
) -> Result<MadeFile, ReportFailure> {
    let filter = query.filter()?;
    let made = in_turn(dashboard, move |reader| {
        // In memory, not on the disk of the record, which exchanges need more.
        let mut file = BoundedFile::default();
        match write_bundle(reader, &filter, &mut file) {
            Ok(_) => Ok(Ok(file.0)),
            // A timeout is one of these errors.
            Err(BundleError::Record(error)) => Err(error),
            Err(_) if file.is_full() => Ok(Err(ReportFailure::TooLarge)),
            Err(error) => Ok(Err(ReportFailure::Bundle(error))),
        }
    });
    Ok(MadeFile {
        name: query.file("bundle", "jsonl.gz"),
        kind: "application/gzip",
        bytes: made.await??,
    })
}

/// Runs `query` on the record, unless another one is running. It ends early when no
/// client waits for it any more.
async fn in_turn<T: Send + 'static>(
    dashboard: &Dashboard,
    query: impl FnOnce(&AuditReader) -> Result<T, AuditError> + Send + 'static,
) -> Result<T, ReportFailure> {
    let places = Arc::clone(&dashboard.reports);
    let place = places
        .try_acquire_owned()
        .map_err(|_| ReportFailure::Busy)?;
    let asked = dashboard.audit.query(MAKING_TIME_MAX, move |reader| {
        let made = query(reader);
        // Released by the thread, which runs on for a moment after the client has
        // disconnected.
        drop(place);
        made
    });
    Ok(asked.await?)
}

/// File in memory that fails with an error at its size limit.
#[derive(Default)]
struct BoundedFile(Vec<u8>);

impl BoundedFile {
    /// Reports whether a write was refused, or the next one will be.
    fn is_full(&self) -> bool {
        BUNDLE_BYTES_MAX <= self.0.len()
    }
}

impl Write for BoundedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // As much as fits is written, so that a file with a refused write counts as
        // full.
        let room = BUNDLE_BYTES_MAX
            .saturating_sub(self.0.len())
            .min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.write(bytes.get(..room).unwrap_or_default())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes the response: the file, or the form with the reason why it could not be made.
fn file_or_form(
    visit: &Visit,
    query: &ReportQuery,
    made: Result<MadeFile, ReportFailure>,
) -> Response {
    match made {
        Ok(file) => file.into_response(),
        Err(failure) => {
            let page = form_page(visit, query, Some(&failure));
            failure.answer(page)
        }
    }
}

fn form_page(visit: &Visit, query: &ReportQuery, failure: Option<&ReportFailure>) -> Response {
    let content = DashboardPage {
        title: "Reports".to_owned(),
        section: Some(DashboardSection::Reports),
        body: html! {
            @if let Some(failure) = failure {
                p class="error" role="alert" { bdi { (shown(&failure.to_string(), 500)) } }
            }
            (form(visit, query))
            (explanation(visit))
        },
    };
    layout(visit, &content)
}

fn form(visit: &Visit, query: &ReportQuery) -> Markup {
    let text = |name: &'static str, label: &str, hint: &str| {
        html! {
            div {
                label for=(name) { (label) }
                input id=(name) name=(name) value=[query.0.value(name)] placeholder=(hint);
            }
        }
    };
    html! {
        form class="filters" method="get" action=(visit.link("/reports/report")) {
            (text("from", "from (UTC)", "24h, 2026-11-22"))
            (text("until", "until (UTC)", "now"))
            (text("host", "host", "all; or site.example"))
            div class="actions wide" {
                button class="primary" { "Report" }
                button formaction=(visit.link("/reports/site")) { "Page for the site's owner" }
                button formaction=(visit.link("/reports/bundle")) { "Bundle" }
            }
        }
    }
}

fn explanation(visit: &Visit) -> Markup {
    html! {
        dl {
            dt { "Report" }
            dd {
                "A page for people who have never seen a robots.txt: what crawlers asked for, \
                 what was refused by whose rule, and how fast websites were asked. Every decision \
                 in it is verified while it is made, which takes a while if there are millions."
            }
            dt { "Page for the site's owner" }
            dd {
                "The same for the owner of one host who asks who came. It shows nothing about \
                 other hosts and no address of a client."
            }
            dt { "Bundle" }
            dd {
                "The decisions in one file, each with its evidence and the proof that it is on \
                 record since a signed time. The recipient needs neither the record nor this \
                 machine: " code { "politesse audit verify bundle.jsonl.gz --key KEY" }
                ". Send the key separately; " code { (command("audit key")) } " prints it. \
                 Decisions that are not sealed yet are left out."
            }
        }
        p class="small" {
            "Nothing is stored here: the same times give the same result again. The numbers of a \
             report as JSON: " code { "/api/v1/report" } ". To download decisions as a table, use \
             the links below the list of " a href=(visit.link("/decisions")) { "decisions" } "."
        }
    }
}
