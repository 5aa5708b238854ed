//! `/decisions`: the decisions that meet a filter, in pages, as a live stream, and as a
//! download. `/api/v1/decisions` has the same data as JSON.
//!
//! Does not know how decisions are found.

use std::io;
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use maud::{Markup, html};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Dashboard, PageFailure, QUERY_TIME_MAX, scope_switch};
use crate::api::json;
use crate::archive_asker::{ArchiveAsker, RowsQuestion};
use crate::channel_body::{BodyChannel, BodyPart, LongAnswer, channel_body};
use crate::decision_view::decision_row;
use crate::filter_query::{DecisionQuery, EFFECTS, RecordScope, VERDICTS};
use crate::layout::{DashboardPage, DashboardSection, error_page, layout};
use crate::live::{LiveForm, LiveQuestion};
use crate::visit::Visit;
use politesse_base::clock;
use politesse_base::inert::{append_json, csv_line, csv_row};
use politesse_decision::class::DecisionClass;
use politesse_decision::decide::Reason;
use politesse_decision::record::StoredRecord;
use politesse_decision::row_json::{ROW_COLUMNS, row_json};
use politesse_directives::denials::statement_texts;
use politesse_pages::explain::json::decision_json;
use politesse_pages::page::words::{counted, foreign, number, shown};
use politesse_record::filter::DecisionFilter;
use politesse_record::reader::PageBounds;
use politesse_record::stats::{DecisionTotal, total};
use politesse_record::{AuditLog, Direction};

/// Number of rows on a page.
const ROWS: usize = 50;
/// Time after which a page shows the rows found so far. The next page continues the
/// search.
const SEARCH_TIME: Duration = Duration::from_millis(100);
/// Time after which a page without rows is shown: a link to a rare class should not
/// lead to an empty list.
const EMPTY_SEARCH_TIME: Duration = Duration::from_millis(500);
/// Longest time of an export.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(30 * 60);
/// Number of rows of the archive that are read at a time for an export.
const ARCHIVE_ROWS: usize = 1000;
/// Number of bytes of an export that are sent at a time.
const EXPORT_PART: usize = 64 << 10;

/// Shows a page of decisions.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Response {
    let query = DecisionQuery::parse(uri.query().unwrap_or_default());
    let found = match query.filter() {
        Ok(_) => match find(&dashboard, &query, ROWS).await {
            Ok(found) => Ok(found),
            Err(failure) => return failure.answer(Some(&visit), DashboardSection::Decisions),
        },
        Err(error) => Err(error.to_string()),
    };
    let total = count(&dashboard, &query).await;
    // Above the filled-in form, so that the user can correct it.
    let status = if found.is_ok() {
        StatusCode::OK
    } else {
        StatusCode::BAD_REQUEST
    };
    let content = DashboardPage {
        title: "Decisions".to_owned(),
        section: Some(DashboardSection::Decisions),
        body: html! {
            (scope_switch(&dashboard, &visit, &query, "/decisions"))
            (filter_form(&visit, &query))
            @match found {
                Ok(found) => {
                    (total_line(&query, total))
                    (listing(&visit, &query, &found))
                }
                Err(error) => { p class="error" role="alert" { bdi { (shown(&error, 500)) } } }
            }
        },
    };
    (status, layout(&visit, &content)).into_response()
}

/// Returns a page of decisions as JSON.
pub(crate) async fn api(State(dashboard): State<Arc<Dashboard>>, uri: Uri) -> Response {
    let query = DecisionQuery::parse(uri.query().unwrap_or_default());
    if let Err(error) = query.filter() {
        return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response();
    }
    let rows = query.limit.unwrap_or(ROWS);
    match find(&dashboard, &query, rows).await {
        Ok(found) => {
            let rows: Vec<_> = found.records.iter().map(row_json).collect();
            // `next` is the `before` of the next page; `cut` means that there may be
            // more rows.
            json(&json!({ "decisions": rows, "next": found.next, "cut": found.is_cut }))
        }
        Err(failure) => failure.answer(None, DashboardSection::Decisions),
    }
}

async fn find(
    dashboard: &Dashboard,
    query: &DecisionQuery,
    rows: usize,
) -> Result<FoundDecisions, PageFailure> {
    let Ok(filter) = query.filter() else {
        return Ok(FoundDecisions::default());
    };
    if query.scope == RecordScope::Archive {
        let question = RowsQuestion {
            filter,
            direction: Direction::NewestFirst,
            after: query.after_place,
            rows,
        };
        let found = dashboard.archive.rows(&question).await?;
        return Ok(FoundDecisions {
            newest: 0,
            records: found.records,
            next: found.next.map(|place| json!(place.to_string())),
            is_cut: false,
        });
    }
    let mut bounds = PageBounds {
        before: query.before,
        rows,
        deadline: clock::instant() + SEARCH_TIME,
    };
    let found = dashboard.audit.query(QUERY_TIME_MAX, move |reader| {
        // Read before the search: the live view begins after this number and must not
        // miss decisions made during the search.
        let newest = reader.seq_range()?.map_or(0, |range| range.last);
        let patience = clock::instant() + EMPTY_SEARCH_TIME;
        let mut page = reader.decision_page(&filter, &bounds)?;
        while page.records.is_empty() && page.is_cut && clock::instant() < patience {
            bounds.before = page.next;
            bounds.deadline = clock::instant() + SEARCH_TIME;
            page = reader.decision_page(&filter, &bounds)?;
        }
        Ok(FoundDecisions {
            newest,
            records: page.records,
            next: page.next.map(|number| json!(number)),
            is_cut: page.is_cut,
        })
    });
    Ok(found.await?)
}

/// Page of decisions.
#[derive(Default)]
struct FoundDecisions {
    /// Highest number on record, with any filter.
    newest: u64,
    records: Vec<StoredRecord>,
    /// Position of the next page: a number, or text in the case of the archive.
    next: Option<Value>,
    is_cut: bool,
}

/// Counts the decisions that meet the filter. Returns `None` if the count fails; the
/// list is then shown without it.
async fn count(dashboard: &Dashboard, query: &DecisionQuery) -> Option<DecisionTotal> {
    let filter = query.filter().ok()?;
    if query.scope == RecordScope::Archive {
        return dashboard.archive.total(&filter).await.ok();
    }
    // Separate from the search, because a program that reads the rows does not need the
    // count.
    let counted = dashboard.audit.query(QUERY_TIME_MAX, move |reader| {
        total(reader, &filter, clock::instant() + SEARCH_TIME)
    });
    counted.await.ok()
}

fn filter_form(visit: &Visit, query: &DecisionQuery) -> Markup {
    let text = |name: &'static str, label: &str, hint: &str| {
        html! {
            div {
                label for=(name) { (label) }
                input id=(name) name=(name) value=[query.value(name)] placeholder=(hint);
            }
        }
    };
    let choice = |name: &'static str, words: &[&str]| {
        html! {
            div {
                label for=(name) { (name) }
                select id=(name) name=(name) {
                    option value="" { "any" }
                    @for word in words {
                        option selected[query.value(name) == Some(word)] { (word) }
                    }
                }
            }
        }
    };
    html! {
        form class="search" method="get" action=(visit.link("/decisions")) role="search" {
            @if query.scope == RecordScope::Archive {
                input type="hidden" name="of" value="archive";
            }
            div class="actions" {
                label for="search" { "part of host or URL" }
                input id="search" name="search" type="search" value=[query.value("search")];
                button class="primary" { "Filter" }
            }
            // Opened if a value is invalid, so that the user sees it.
            details class="more" open[query.filter().is_err()] {
                summary { "More filters" }
                div class="filters" {
                    @if query.scope == RecordScope::Archive { (text("node", "node", "eu-1")) }
                    (text("from", "from (UTC)", "1h, 2026-11-22"))
                    (text("until", "until (UTC)", "2026-11-23T10:00"))
                    (text("host", "whole host", "site.example"))
                    (text("crawler", "crawler", "FooBot"))
                    (text("label", "crawl", "shop-2026-11"))
                    (text("client", "client", "10.0.0.7, FooBot"))
                    (text("method", "method", "GET"))
                    (text("status", "status", "404, 4xx"))
                    (choice("class", &DecisionClass::ALL.map(DecisionClass::as_str)))
                    (choice("preference", &statement_texts()))
                    (choice("verdict", &VERDICTS))
                    (choice("reason", &Reason::ALL.map(Reason::as_str)))
                    (choice("effect", &EFFECTS))
                    (text("url", "URL, or its beginning and *", "https://site.example/a*"))
                    (text("rule", "rule", "Disallow: /private"))
                    div { button { "Show decisions" } }
                }
            }
        }
        (chips(visit, query))
    }
}

/// Shows the conditions in force, each with a link that removes it.
fn chips(visit: &Visit, query: &DecisionQuery) -> Markup {
    let all = DecisionQuery::default().in_scope(query.scope);
    html! {
        @if query.is_narrow() {
            ul class="chips" aria-label="Filters in force" {
                @for (name, value) in query.conditions() {
                    @let rest = query.clone().without(name).behind("/decisions");
                    li {
                        a href=(visit.link(&rest)) title="Remove this filter" {
                            (name) ": " (foreign(value)) " " span aria-hidden="true" { "✕" }
                            span class="unseen" { ", remove" }
                        }
                    }
                }
                li { a href=(visit.link(&all.behind("/decisions"))) { "All decisions" } }
            }
        }
    }
}

/// Shows how many decisions meet the filter, and which page of them this is.
fn total_line(query: &DecisionQuery, total: Option<DecisionTotal>) -> Markup {
    let page = page_number(query);
    html! {
        p class="total" {
            @if let Some(total) = total.filter(|total| 0 < total.count || !total.is_cut) {
                @if total.is_cut { "more than " }
                b { (counted(total.count, "decision")) }
                " · "
            }
            "page " (number(page))
            @if let Some(DecisionTotal { count, is_cut: false }) = total {
                @let pages = count.div_ceil(ROWS as u64).max(page);
                " of " (number(pages))
            }
        }
    }
}

/// Returns the number of the page, counted from 1.
fn page_number(query: &DecisionQuery) -> u64 {
    // A page number without a position would be wrong.
    let is_first = query.before.is_none() && query.after_place.is_none();
    query
        .page
        .filter(|page| 1 < *page && !is_first)
        .unwrap_or(1)
}

/// Shows where to watch decisions that are not in the archive yet.
fn archive_note(visit: &Visit, query: &DecisionQuery) -> Markup {
    html! {
        p class="small" {
            "Decisions arrive in the archive about a second after they were made. Those of \
             this node can be watched live: "
            a href=(visit.link(&query.clone().in_scope(RecordScope::Node).behind("/decisions"))) {
                "decisions of this node"
            }
        }
    }
}

fn listing(visit: &Visit, query: &DecisionQuery, found: &FoundDecisions) -> Markup {
    let stream = query.behind("/decisions/stream");
    let is_of_archive = query.scope == RecordScope::Archive;
    html! {
        @let known_later = ["until", "status", "class"].map(|name| query.value(name).is_some());
        // New decisions appear on the first page only, and reach the node's record
        // first.
        @if known_later.contains(&true) {
            p class="small" {
                "Watch live is not available with the filters until, status and class: a \
                 decision is shown before its exchange has ended."
            }
        } @else if query.before.is_none() && !is_of_archive {
            div class="actions" data-live=(visit.link(&stream)) data-last=(found.newest)
                data-rows="#rows" hidden {
                button type="button" aria-pressed="false" { "Watch live" }
                span role="status" class="small" {}
            }
        }
        @if is_of_archive { (archive_note(visit, query)) }
        div class="scroll" {
            table class="rows cards" {
                caption {
                    "Decisions, the newest first; times in UTC."
                    @if found.records.is_empty() { @if found.is_cut { " No matches so far." } @else { " No matches." }  }
                }
                thead {
                    tr {
                        th scope="col" { "time" }
                        @if is_of_archive { th scope="col" { "node" } }
                        th scope="col" { "verdict" }
                        th scope="col" { "reason" }
                        th scope="col" { "crawler" }
                        th scope="col" class="u" { "request" }
                        th scope="col" { "rule" }
                        th scope="col" class="n" { "status" }
                        th scope="col" class="n" { "wait" }
                    }
                }
                tbody id="rows" {
                    @for record in &found.records { (decision_row(&visit.link(""), record)) }
                }
            }
        }
        @if found.is_cut {
            p class="small" {
                "The search ran out of time before it had read the whole record."
            }
        }
        p class="actions" {
            @if let Some(next) = &found.next {
                @let place = next.as_str().map_or_else(|| next.to_string(), str::to_owned);
                @let number = page_number(query).saturating_add(u64::from(!found.records.is_empty()));
                @let rest = query.behind_with("/decisions", "before", &place);
                @let older = format!("{rest}&page={number}");
                a rel="next" href=(visit.link(&older)) {
                    @if found.is_cut { "Search on" } @else { "Older" }
                }
            }
            @if query.before.is_some() || query.after_place.is_some() {
                a href=(visit.link(&query.behind("/decisions"))) { "Newest" }
            }
            span class="small" { "Download all that match:" }
            @for form in ["csv", "jsonl"] {
                @let export = query.behind_with("/decisions/export", "form", form);
                a href=(visit.link(&export)) download { (form.to_uppercase()) }
            }
        }
    }
}

/// Streams new decisions that meet the filter, as rows of the table.
pub(crate) async fn stream(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(long): Extension<LongAnswer>,
    fields: HeaderMap,
    uri: Uri,
) -> Response {
    let asked = StreamQuery::read(&fields, &uri);
    follow(&dashboard, LiveForm::Row, &long, asked).await
}

/// Streams new decisions that meet the filter, as JSON.
pub(crate) async fn api_stream(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(long): Extension<LongAnswer>,
    fields: HeaderMap,
    uri: Uri,
) -> Response {
    let asked = StreamQuery::read(&fields, &uri);
    follow(&dashboard, LiveForm::Json, &long, asked).await
}

/// Query of a stream.
struct StreamQuery {
    query: DecisionQuery,
    /// Number of the decision after which the stream begins: the last one received
    /// before the connection broke, or the newest one when the page was made.
    last: Option<u64>,
}

impl StreamQuery {
    fn read(fields: &HeaderMap, uri: &Uri) -> Self {
        let query = DecisionQuery::parse(uri.query().unwrap_or_default());
        let field = fields.get("last-event-id");
        let received = field.and_then(|field| field.to_str().ok()?.parse().ok());
        Self {
            last: received.or(query.after),
            query,
        }
    }
}

async fn follow(
    dashboard: &Dashboard,
    form: LiveForm,
    long: &LongAnswer,
    asked: StreamQuery,
) -> Response {
    let filter = match asked.query.filter() {
        Ok(filter) => filter,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    if asked.query.scope == RecordScope::Archive {
        let text = "decisions reach the record of a node first: leave out of=archive\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    if filter.status.is_some() || !filter.classes.is_empty() {
        let text = "decisions are sent before their exchanges end: leave out status and class\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    let question = LiveQuestion { form, filter };
    let Some(body) = dashboard.live.follow(question, asked.last) else {
        let text = "too many watchers\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    long.allow();
    let kind = HeaderValue::from_static("text/event-stream");
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

/// Format of an export.
#[derive(Debug, Clone, Copy)]
enum DownloadForm {
    Csv,
    Jsonl,
}

/// Sends all decisions that meet the filter, the oldest first.
pub(crate) async fn export(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    Extension(long): Extension<LongAnswer>,
    uri: Uri,
) -> Response {
    let text = uri.query().unwrap_or_default();
    let mut pairs = form_urlencoded::parse(text.as_bytes());
    let wanted = pairs.find(|(name, _)| name == "form");
    let form = match wanted.as_ref().map(|(_, form)| &**form) {
        Some("csv") => DownloadForm::Csv,
        Some("jsonl") | None => DownloadForm::Jsonl,
        Some(_) => {
            let text = "form: csv or jsonl is wanted";
            return error_page(&visit, StatusCode::BAD_REQUEST, text);
        }
    };
    let query = DecisionQuery::parse(text);
    let filter = match query.filter() {
        Ok(filter) => filter,
        Err(error) => return error_page(&visit, StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let Ok(place) = Arc::clone(&dashboard.exports).try_acquire_owned() else {
        let text = "Too many downloads are running. Try again in a while.";
        return error_page(&visit, StatusCode::SERVICE_UNAVAILABLE, text);
    };
    long.allow();
    let BodyChannel { parts, body } = channel_body();
    let name = match query.scope {
        RecordScope::Node => "decisions",
        RecordScope::Archive => "decisions-of-all-nodes",
    };
    let (archive, audit) = (dashboard.archive.clone(), Arc::clone(&dashboard.audit));
    dashboard.tracker.spawn(async move {
        match query.scope {
            RecordScope::Node => export_record(&audit, form, parts, filter).await,
            RecordScope::Archive => {
                let export = ArchiveExport {
                    archive,
                    form,
                    parts,
                };
                export.send(filter).await;
            }
        }
        drop(place);
    });
    download(form, name, body)
}

/// Makes the response for a file.
fn download(form: DownloadForm, name: &str, body: Body) -> Response {
    let (kind, end) = match form {
        DownloadForm::Csv => ("text/csv; charset=utf-8", "csv"),
        DownloadForm::Jsonl => ("application/jsonl", "jsonl"),
    };
    let disposition = format!("attachment; filename=\"{name}.{end}\"");
    (
        [
            (header::CONTENT_TYPE, kind.to_owned()),
            (header::CONTENT_DISPOSITION, disposition),
        ],
        body,
    )
        .into_response()
}

/// Sends all decisions of the record that `filter` selects.
async fn export_record(
    audit: &Arc<AuditLog>,
    form: DownloadForm,
    parts: mpsc::Sender<BodyPart>,
    filter: DecisionFilter,
) {
    let cut = parts.clone();
    let written = audit.query(EXPORT_TIME_MAX, move |reader| {
        let record = reader.record_id()?;
        let mut part = ExportPart {
            record,
            ..ExportPart::begin(form, RecordScope::Node)
        };
        let mut is_gone = false;
        reader.visit_decisions(&filter, Direction::OldestFirst, |row| {
            part.add(&row);
            is_gone = EXPORT_PART <= part.bytes.len() && part.send(&parts).is_err();
            if is_gone {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if !is_gone {
            // Fails only if the client has closed the connection.
            part.send(&parts).unwrap_or_default();
        }
        Ok(())
    });
    tokio::select! {
        // A search that finds little sends nothing for a long time, and would not
        // notice.
        () = cut.closed() => {}
        written = written => if let Err(error) = written {
            // The body breaks off, so that the client sees that it is incomplete.
            let _ = cut.send(Err(io::Error::other(error))).await;
        },
    }
}

/// Export of the decisions of all nodes.
struct ArchiveExport {
    archive: ArchiveAsker,
    form: DownloadForm,
    parts: mpsc::Sender<BodyPart>,
}

impl ArchiveExport {
    /// Sends all decisions of `filter` page by page. Each page is a separate query with
    /// its own time limit.
    async fn send(self, filter: DecisionFilter) {
        let mut question = RowsQuestion {
            filter,
            direction: Direction::OldestFirst,
            after: None,
            rows: ARCHIVE_ROWS,
        };
        let mut part = ExportPart::begin(self.form, RecordScope::Archive);
        loop {
            let page = match self.archive.rows(&question).await {
                Ok(page) => page,
                Err(error) => {
                    // The body breaks off, so that the client sees that it is
                    // incomplete.
                    let _ = self.parts.send(Err(io::Error::other(error))).await;
                    return;
                }
            };
            page.records.iter().for_each(|row| part.add(row));
            if self.parts.send(Ok(part.take())).await.is_err() || page.next.is_none() {
                return;
            }
            // Decisions that arrive meanwhile come after the last position, or are left
            // out.
            question.after = page.next;
        }
    }
}

/// Rows to send next.
struct ExportPart {
    form: DownloadForm,
    /// Columns of CSV.
    columns: Vec<&'static str>,
    /// Id of the record; empty if there are several.
    record: String,
    bytes: Vec<u8>,
}

impl ExportPart {
    fn begin(form: DownloadForm, scope: RecordScope) -> Self {
        let node = match scope {
            RecordScope::Node => None,
            RecordScope::Archive => Some("node"),
        };
        let columns: Vec<_> = node.into_iter().chain(ROW_COLUMNS).collect();
        let header = match form {
            DownloadForm::Csv => csv_line(columns.iter().copied()),
            DownloadForm::Jsonl => String::new(),
        };
        Self {
            form,
            columns,
            record: String::new(),
            bytes: header.into_bytes(),
        }
    }

    fn take(&mut self) -> Bytes {
        Bytes::from(mem::take(&mut self.bytes))
    }

    fn add(&mut self, row: &StoredRecord) {
        match self.form {
            DownloadForm::Csv => {
                let line = csv_row(&row_json(row), &self.columns);
                self.bytes.extend_from_slice(line.as_bytes());
            }
            DownloadForm::Jsonl => {
                let json: Value = decision_json(row, &self.record);
                // All members are text, so they serialize as JSON.
                append_json(&mut self.bytes, &json).unwrap_or_default();
                self.bytes.push(b'\n');
            }
        }
    }

    /// Sends the rows, and waits for the client.
    fn send(&mut self, parts: &mpsc::Sender<BodyPart>) -> Result<(), ()> {
        parts.blocking_send(Ok(self.take())).map_err(drop)
    }
}
