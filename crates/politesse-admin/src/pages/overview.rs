//! `/`: what the proxy did in the last hour, day, week or month.
//!
//! `/api/v1/overview` returns the same as JSON, and `/overview/stream` the counts as
//! they grow. Does not know how decisions are summed.

use std::cmp::Ordering;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::back_offs::{
    self, ReleaseOutcome, delaying_hosts, length_text, release_note, release_status,
};
use super::health::RecordHealth;
use super::overview_chart::{OverviewBucket, overview_chart};
use super::overview_tables::{OverviewTables, class_count};
use super::page_span::{BucketStep, PageSpan, hours_asked, span_links};
use super::sums::{NamedJson, SumsJson};
use super::{
    Dashboard, PageFailure, QUERY_TIME_MAX, news, refuse_archive, rows_link, scope_switch,
};
use crate::api::json;
use crate::channel_body::LongAnswer;
use crate::filter_query::{DecisionQuery, RecordScope};
use crate::layout::{DashboardPage, DashboardSection, layout};
use crate::live_counts::LiveTotals;
use crate::visit::Visit;
use politesse_base::clock;
use politesse_pace::host_pace::HostPace;
use politesse_pages::page::charts::ChartPart;
use politesse_pages::page::words::{bytes, number, percent};
use politesse_record::overview::{OverviewFacts, OverviewTimes, overview_facts};
use politesse_record::reader::AuditReader;
use politesse_record::recent_counts::RecentSums;
use politesse_record::stats::DecisionSums;

/// Maximum number of hosts, rules and crawlers shown.
const ROWS: usize = 10;

/// Data of the page and of its JSON.
#[derive(Debug, Serialize)]
struct OverviewPage {
    /// Records that are counted. The fields after the counts are about this node.
    #[serde(skip)]
    scope: RecordScope,
    #[serde(skip)]
    span: PageSpan,
    from: Timestamp,
    until: Timestamp,
    hours: u16,
    report_mode: bool,
    sums: SumsJson,
    /// Counts of the preceding span of equal length.
    before: SumsJson,
    /// Counts by hour, without hours that have no decision.
    over_time: Vec<HourJson>,
    /// Length of a bucket.
    step: BucketStep,
    /// Counts by minute, hour or day over the whole span.
    buckets: Vec<OverviewBucket>,
    /// Time from which the buckets count, if that is later than `from`.
    counted_from: Option<Timestamp>,
    /// Totals of the stream at the time of the counts; `None` for the records of all
    /// nodes.
    live: Option<LiveTotals>,
    /// Hosts with most requests.
    hosts: Vec<NamedJson>,
    /// Hosts that refused most of the requests sent to them.
    refusing_hosts: Vec<NamedJson>,
    /// Rules with most refusals.
    rules: Vec<NamedJson>,
    /// Crawlers with most requests.
    crawlers: Vec<NamedJson>,
    /// Reasons for which requests were put off.
    waits: Vec<NamedJson>,
    /// Hosts in back-off now, and hosts with waiting requests.
    delayed_hosts: Vec<HostPace>,
    record: RecordHealth,
}

/// Counts of an hour.
#[derive(Debug, Serialize)]
struct HourJson {
    hour: Timestamp,
    #[serde(flatten)]
    sums: SumsJson,
}

/// Shows the overview.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Response {
    respond(&dashboard, &visit, &uri, None).await
}

/// Ends the back-off of the host in the form, and shows the overview with the outcome.
pub(crate) async fn release(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    request: Request,
) -> Response {
    let uri = request.uri().clone();
    match back_offs::release(&dashboard, request).await {
        Ok(outcome) => {
            let page = respond(&dashboard, &visit, &uri, Some(&outcome)).await;
            match page.status() {
                StatusCode::OK => (release_status(&outcome), page).into_response(),
                _ => page,
            }
        }
        Err(answer) => answer,
    }
}

async fn respond(
    dashboard: &Dashboard,
    visit: &Visit,
    uri: &Uri,
    outcome: Option<&ReleaseOutcome>,
) -> Response {
    let scope = RecordScope::of(uri.query().unwrap_or_default());
    let gathered = OverviewPage::gather(dashboard, hours_asked(uri), scope);
    // Both read the record for a while.
    let (gathered, news) = tokio::join!(gathered, news::section(dashboard, visit));
    match gathered {
        Ok(overview) => {
            let query = DecisionQuery::default().in_scope(scope);
            let content = DashboardPage {
                title: "Overview".to_owned(),
                section: Some(DashboardSection::Overview),
                body: html! {
                    @if let Some(outcome) = outcome { (release_note(outcome)) }
                    (scope_switch(dashboard, visit, &query, "/"))
                    (overview.markup(visit))
                    @if scope == RecordScope::Node { (news) }
                },
            };
            layout(visit, &content)
        }
        Err(failure) => failure.answer(Some(visit), DashboardSection::Overview),
    }
}

/// Returns the overview as JSON.
pub(crate) async fn api(State(dashboard): State<Arc<Dashboard>>, uri: Uri) -> Response {
    let scope = RecordScope::of(uri.query().unwrap_or_default());
    match OverviewPage::gather(&dashboard, hours_asked(&uri), scope).await {
        Ok(overview) => json(&overview),
        Err(failure) => failure.answer(None, DashboardSection::Overview),
    }
}

/// Streams the counts of this node as they grow, to browsers and programs.
pub(crate) async fn stream(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(long): Extension<LongAnswer>,
    uri: Uri,
) -> Response {
    if let Some(refusal) = refuse_archive(&uri) {
        return refusal;
    }
    let Some(body) = dashboard.live_counts.follow(&dashboard.live) else {
        let text = "too many watchers\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    long.allow();
    let kind = HeaderValue::from_static("text/event-stream");
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

/// Counts of a page, from the records that it covers.
struct OverviewCounts {
    facts: OverviewFacts,
    /// Counts in memory at the same moment; `None` for the records of all nodes.
    recent: Option<RecentSums>,
}

impl OverviewCounts {
    async fn gather(
        dashboard: &Dashboard,
        span: PageSpan,
        scope: RecordScope,
    ) -> Result<Self, PageFailure> {
        let times = OverviewTimes {
            before: span.before(),
            from: span.from,
        };
        if scope == RecordScope::Archive {
            let facts = dashboard.archive.overview(times, ROWS).await?;
            let own = dashboard
                .audit
                .query(QUERY_TIME_MAX, AuditReader::seq_range);
            let numbers = own.await?;
            let facts = OverviewFacts { numbers, ..facts };
            return Ok(Self {
                facts,
                recent: None,
            });
        }
        let counts = Arc::clone(dashboard.audit.recent());
        let gathered = dashboard.audit.query(QUERY_TIME_MAX, move |reader| {
            let facts = overview_facts(reader, times, ROWS)?;
            // Read last, so that the stream adds no decision twice. A decision
            // committed in between is missing until the page is reloaded.
            let recent = Some(counts.read(reader)?);
            Ok(Self { facts, recent })
        });
        Ok(gathered.await?)
    }

    /// Returns the sums of each bucket of `span`. Decisions after its end are in the
    /// last one.
    fn buckets(&self, span: &PageSpan) -> Vec<DecisionSums> {
        let numbers = span.buckets();
        let (first, last) = (*numbers.start(), *numbers.end());
        if let (BucketStep::Minute, Some(recent)) = (span.step, &self.recent) {
            return recent.minutes(first..last + 1).collect();
        }
        let mut all: Vec<_> = numbers.map(|_| DecisionSums::default()).collect();
        for entry in &self.facts.hours {
            let number = span.step.number(BucketStep::Hour.begin(entry.hour));
            let place = usize::try_from(number.clamp(first, last) - first);
            if let Some(sums) = place.ok().and_then(|place| all.get_mut(place)) {
                sums.add(&entry.sums);
            }
        }
        all
    }

    /// Returns the time from which the minutes of `span` are counted, if that is later
    /// than the beginning of `span`.
    fn counted_from(&self, span: &PageSpan) -> Option<Timestamp> {
        let recent = self.recent.as_ref()?;
        let first = span.step.number(span.from);
        let is_cut = span.step == BucketStep::Minute && first < recent.complete_from;
        is_cut.then(|| span.step.begin(recent.complete_from))
    }
}

impl OverviewPage {
    async fn gather(
        dashboard: &Dashboard,
        hours: u16,
        scope: RecordScope,
    ) -> Result<Self, PageFailure> {
        let mut span = PageSpan::new(hours, clock::now());
        if scope == RecordScope::Archive && span.step == BucketStep::Minute {
            // The archive only has hourly sums.
            span.step = BucketStep::Hour;
        }
        let counts = OverviewCounts::gather(dashboard, span, scope).await?;
        let source = dashboard.pace.clone();
        // With hundreds of thousands of hosts this takes a while.
        let delayed = spawn_blocking(move || {
            let mut hosts = source.hosts();
            hosts.retain(|host| host.backoff_until.is_some() || 0 < host.queued);
            hosts
                .sort_by_key(|host| (host.backoff_until.is_none(), std::cmp::Reverse(host.queued)));
            hosts.truncate(ROWS);
            hosts
        });
        let record = RecordHealth::gather(dashboard, Ok(counts.facts.numbers)).await;
        let delayed_hosts = delayed.await.unwrap_or_default();
        let live = counts.recent.as_ref().map(|recent| LiveTotals {
            since: dashboard.audit.recent().since(),
            classes: recent.totals,
        });
        Ok(Self {
            scope,
            report_mode: dashboard.metrics.report_mode.get() != 0,
            live,
            delayed_hosts,
            record,
            ..Self::of(counts, span)
        })
    }

    fn of(counts: OverviewCounts, span: PageSpan) -> Self {
        let buckets = counts.buckets(&span);
        let counted_from = counts.counted_from(&span);
        let facts = counts.facts;
        let mut sums = facts.sums;
        if span.step == BucketStep::Minute && counted_from.is_none() {
            // Summed from the minutes, so that the chart adds up to it.
            sums = DecisionSums::default();
            buckets.iter().for_each(|bucket| sums.add(bucket));
        }
        let hours = facts.hours.iter().map(|entry| HourJson {
            hour: BucketStep::Hour.begin(entry.hour),
            sums: SumsJson::from(&entry.sums),
        });
        let numbered = span.buckets().zip(&buckets);
        Self {
            scope: RecordScope::Node,
            span,
            from: span.from,
            until: span.until,
            hours: span.hours,
            report_mode: false,
            sums: SumsJson::from(&sums),
            before: SumsJson::from(&facts.before),
            over_time: hours.collect(),
            step: span.step,
            buckets: numbered
                .map(|(number, sums)| OverviewBucket::new(&span, number, sums))
                .collect(),
            counted_from,
            live: None,
            hosts: NamedJson::list(facts.hosts),
            refusing_hosts: NamedJson::list(facts.refusing_hosts),
            rules: NamedJson::list(facts.rules),
            crawlers: NamedJson::list(facts.crawlers),
            waits: NamedJson::list(facts.waits),
            delayed_hosts: Vec::new(),
            record: RecordHealth::default(),
        }
    }

    /// Makes the query for the decisions of the whole span.
    fn rows(&self) -> DecisionQuery {
        DecisionQuery::default()
            .in_scope(self.scope)
            .with("from", &self.from.to_string())
    }

    /// Makes the address of the page, to which its forms are sent.
    fn path(&self) -> String {
        let query = DecisionQuery::default().in_scope(self.scope);
        query.behind_with("/", "hours", &self.hours.to_string())
    }

    fn tables<'a>(&self, visit: &'a Visit) -> OverviewTables<'a> {
        let counted = self.sums.classes.iter().filter(|(_, count)| 0 < *count);
        OverviewTables {
            visit,
            rows: self.rows(),
            classes: counted.map(|(class, _)| class).collect(),
        }
    }

    fn markup(&self, visit: &Visit) -> Markup {
        let tables = self.tables(visit);
        let path = DecisionQuery::default().in_scope(self.scope).behind("/");
        let newest = *self.span.buckets().end();
        let live = self
            .live
            .as_ref()
            .and_then(|live| serde_json::to_string(live).ok());
        html! {
            @if live.is_some() { (live_panel(visit)) }
            // The script replaces the content of this element.
            div id="overview" data-now=(self.until) data-ends=(self.step.begin(newest + 1))
                data-totals=[live] {
                (span_links(visit, &path, &self.span))
                (self.figures(visit))
                @if self.sums.requests == 0 {
                    p data-none {
                        "No request in this time. "
                        a href=(visit.link("/client")) { "Point a crawler at the proxy" }
                        ", and look again."
                    }
                }
                // Items that need action come first, if there are any.
                @if !self.delayed_hosts.is_empty() {
                    section { (delaying_hosts(visit, &self.delayed_hosts, self.until, &self.path())) }
                }
                (overview_chart(&self.span, &self.buckets, &tables))
                @if let Some(from) = self.counted_from {
                    p class="small" {
                        "The proxy started within this hour. Minutes before "
                        (from.strftime("%H:%M")) " UTC are not counted in the chart."
                    }
                }
                section { (tables.crawlers(&self.crawlers)) }
                div class="columns" {
                    section { h2 { "Top refused hosts" } (tables.hosts(&self.hosts)) }
                    section { h2 { "Top rules" } (tables.rules(&self.rules)) }
                    section { (tables.refusing_hosts(&self.refusing_hosts)) }
                    section { (tables.waits(&self.sums, &self.waits)) }
                    @if self.delayed_hosts.is_empty() {
                        section { (delaying_hosts(visit, &[], self.until, &self.path())) }
                    }
                    section { h2 { "Health of the record" } (self.record.markup(visit)) }
                }
            }
        }
    }

    fn figures(&self, visit: &Visit) -> Markup {
        let rows = self.rows();
        let refused = rows.clone().refused();
        let requests = ComparedFigure {
            word: "requests",
            count: self.sums.requests,
            before: self.before.requests,
        };
        html! {
            ul class="figures" {
                li { (requests.html("requests", &rows_link(visit, &rows, &number(requests.count)))) }
                @for (class, count) in self.sums.classes.iter() {
                    @let part = ChartPart::of_class(class);
                    @let word = class.as_str();
                    @let before = self.before.classes.get(class);
                    @let figure = ComparedFigure { word, count, before };
                    li class=(part.class) {
                        (figure.html(part.name, &class_count(visit, &rows, class, count)))
                    }
                }
            }
            p class="small" {
                // The script does not update these numbers.
                "At " (self.until.strftime("%H:%M:%S")) " UTC: "
                (rows_link(visit, &refused, &number(self.sums.refused)))
                " refused (" (percent(self.sums.refused, self.sums.requests)) ")"
                @if 0 < self.sums.reported {
                    ", " (rows_link(
                        visit,
                        &rows.with("effect", "reported"),
                        &number(self.sums.reported),
                    )) " of them let through by report mode"
                }
                "; " (bytes(self.sums.bytes)) " passed on. Changes are from the previous "
                (length_text(self.span.length())) "."
            }
        }
    }
}

/// Count of a span and of the preceding one.
struct ComparedFigure {
    /// Word for the class; the script finds the figure by it.
    word: &'static str,
    /// Count of the span.
    count: u64,
    /// Count of the preceding span.
    before: u64,
}

impl ComparedFigure {
    /// Shows the figure, with `number` as its markup.
    fn html(&self, name: &str, number: &Markup) -> Markup {
        html! {
            b data-class=(self.word) data-count=(self.count) data-before=(self.before) { (number) }
            span { (name) }
            span class="change" { (change_text(self.count, self.before)) }
        }
    }
}

/// Describes how much more or less `count` is than `before`.
fn change_text(count: u64, before: u64) -> String {
    let share = percent(count.abs_diff(before), before);
    match count.cmp(&before) {
        _ if before == 0 => "no earlier data".to_owned(),
        Ordering::Equal => "as many as before".to_owned(),
        Ordering::Greater => format!("{share} more than before"),
        Ordering::Less => format!("{share} fewer than before"),
    }
}

/// Makes the switch for the live counts, which the script shows.
fn live_panel(visit: &Visit) -> Markup {
    html! {
        p class="actions" data-overview=(visit.link("/overview/stream")) hidden {
            button type="button" aria-pressed="true" { "Pause" }
            span class="small" role="status" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn a_change_is_described_in_words() {
        for (count, before, text) in [
            (0, 0, "no earlier data"),
            (5, 0, "no earlier data"),
            (5, 5, "as many as before"),
            (112, 100, "12.0 % more than before"),
            (300, 100, "200.0 % more than before"),
            (0, 3, "100 % fewer than before"),
            (9_999, 10_000, "less than 0.1 % fewer than before"),
        ] {
            assert_eq!(change_text(count, before), text, "{count} {before}");
        }
    }
}
