//! `/`: what the proxy did in the last hours. `/api/v1/overview` is the same as JSON.
//!
//! Does not know how decisions are summed.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::health::RecordHealth;
use super::{Dashboard, PageFailure, QUERY_TIME_MAX, host_link, rows_link, scope_switch};
use crate::api::json;
use crate::filter_query::{DecisionQuery, RecordScope, SPANS};
use crate::layout::{DashboardPage, DashboardSection, layout, time, time_in_text};
use crate::visit::Visit;
use politesse_base::clock;
use politesse_decision::class::DecisionClass;
use politesse_pace::host_pace::HostPace;
use politesse_pages::explain::facts::meaning;
use politesse_pages::page::charts::ChartPart;
use politesse_pages::page::over_time::{ChartRange, HourCounts, hour_begin, over_time};
use politesse_pages::page::words::{bytes, code, foreign, minute, number, percent};
use politesse_record::class_counts::ClassCounts;
use politesse_record::overview::{NamedSums, OverviewFacts, overview_facts};
use politesse_record::reader::AuditReader;
use politesse_record::stats::DecisionSums;

/// Hosts, rules and crawlers that are shown.
const ROWS: usize = 10;

/// Span without a choice.
const USUAL_SPAN: u16 = 24;

/// Data of the page and of its JSON.
#[derive(Debug, Serialize)]
struct OverviewPage {
    /// Records that are counted. What follows the counts is of this node.
    #[serde(skip)]
    scope: RecordScope,
    from: Timestamp,
    until: Timestamp,
    hours: u16,
    report_mode: bool,
    sums: SumsJson,
    over_time: Vec<HourJson>,
    hosts: Vec<NamedJson>,
    refusing_hosts: Vec<NamedJson>,
    rules: Vec<NamedJson>,
    crawlers: Vec<NamedJson>,
    waits: Vec<NamedJson>,
    /// Hosts that are left alone now, and those where requests wait.
    delayed_hosts: Vec<HostPace>,
    record: RecordHealth,
}

/// Counts of decisions.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct SumsJson {
    pub(super) requests: u64,
    pub(super) refusals: u64,
    pub(super) reported: u64,
    pub(super) later: u64,
    pub(super) wait_ms: u64,
    bytes: u64,
    errors: u64,
    pub(super) withheld: u64,
    pub(super) refused_by_site: u64,
    put_off_by_site: u64,
    pub(super) classes: ClassCounts,
}

#[derive(Debug, Serialize)]
struct HourJson {
    hour: Timestamp,
    #[serde(skip)]
    number: i64,
    #[serde(flatten)]
    sums: SumsJson,
}

#[derive(Debug, Serialize)]
struct NamedJson {
    name: Option<String>,
    #[serde(flatten)]
    sums: SumsJson,
}

impl From<&DecisionSums> for SumsJson {
    fn from(sums: &DecisionSums) -> Self {
        Self {
            requests: sums.requests,
            refusals: sums.refusals,
            reported: sums.reported,
            later: sums.later,
            wait_ms: sums.wait_ms,
            bytes: sums.bytes,
            errors: sums.errors,
            withheld: sums.withheld,
            refused_by_site: sums.refused_by_site,
            put_off_by_site: sums.put_off_by_site,
            classes: sums.classes,
        }
    }
}

impl SumsJson {
    /// Returns the refusals that pages show, those that report mode let through among
    /// them.
    pub(super) fn refused(&self) -> u64 {
        self.refusals.saturating_add(self.reported)
    }
}

/// Shows the overview.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Response {
    let scope = RecordScope::of(uri.query().unwrap_or_default());
    match OverviewPage::gather(&dashboard, span(&uri), scope).await {
        Ok(overview) => {
            let query = DecisionQuery::default().in_scope(scope);
            let content = DashboardPage {
                title: "Overview".to_owned(),
                section: Some(DashboardSection::Overview),
                body: html! {
                    (scope_switch(&dashboard, &visit, &query, "/"))
                    (overview.markup(&visit))
                },
            };
            layout(&visit, &content)
        }
        Err(failure) => failure.answer(Some(&visit), DashboardSection::Overview),
    }
}

/// Answers with the overview as JSON.
pub(crate) async fn api(State(dashboard): State<Arc<Dashboard>>, uri: Uri) -> Response {
    let scope = RecordScope::of(uri.query().unwrap_or_default());
    match OverviewPage::gather(&dashboard, span(&uri), scope).await {
        Ok(overview) => json(&overview),
        Err(failure) => failure.answer(None, DashboardSection::Overview),
    }
}

/// Reads the span that the address asks for, in hours.
pub(super) fn span(uri: &Uri) -> u16 {
    let query = uri.query().unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let chosen = pairs.find(|(name, _)| name == "hours");
    let hours = chosen.and_then(|(_, hours)| hours.parse().ok());
    hours
        .filter(|hours| SPANS.contains(hours))
        .unwrap_or(USUAL_SPAN)
}

impl OverviewPage {
    async fn gather(
        dashboard: &Dashboard,
        hours: u16,
        scope: RecordScope,
    ) -> Result<Self, PageFailure> {
        let until = clock::now();
        let from = until
            .checked_sub(SignedDuration::from_hours(hours.into()))
            .unwrap_or(Timestamp::UNIX_EPOCH);
        let facts = match scope {
            RecordScope::Archive => {
                let facts = dashboard.archive.overview(from, ROWS).await?;
                let own = dashboard
                    .audit
                    .query(QUERY_TIME_MAX, AuditReader::seq_range);
                OverviewFacts {
                    numbers: own.await?,
                    ..facts
                }
            }
            RecordScope::Node => {
                let gathered = dashboard.audit.query(QUERY_TIME_MAX, move |reader| {
                    overview_facts(reader, from, ROWS)
                });
                gathered.await?
            }
        };
        let paces = dashboard.pace.clone();
        // Hundreds of thousands of hosts take a while.
        let delayed = spawn_blocking(move || {
            let mut hosts = (paces.0)();
            hosts.retain(|host| host.backoff_until.is_some() || 0 < host.queued);
            hosts
                .sort_by_key(|host| (host.backoff_until.is_none(), std::cmp::Reverse(host.queued)));
            hosts.truncate(ROWS);
            hosts
        });
        let record = RecordHealth::gather(dashboard, Ok(facts.numbers)).await;
        let is_reporting = dashboard.metrics.report_mode.get() != 0;
        let delayed_hosts = delayed.await.unwrap_or_default();
        Ok(Self {
            scope,
            hours,
            from,
            until,
            report_mode: is_reporting,
            delayed_hosts,
            record,
            ..Self::of(facts, from)
        })
    }

    fn of(facts: OverviewFacts, from: Timestamp) -> Self {
        let named = |entries: Vec<NamedSums>| -> Vec<NamedJson> {
            let entries = entries.into_iter();
            let json = entries.map(|NamedSums { name, sums }| NamedJson {
                name: name.map(|name| name.to_string()),
                sums: SumsJson::from(&sums),
            });
            json.collect()
        };
        let hours = facts.hours.iter().map(|entry| HourJson {
            hour: hour_begin(entry.hour),
            number: entry.hour,
            sums: SumsJson::from(&entry.sums),
        });
        Self {
            scope: RecordScope::Node,
            from,
            until: from,
            hours: 0,
            report_mode: false,
            sums: SumsJson::from(&facts.sums),
            over_time: hours.collect(),
            hosts: named(facts.hosts),
            refusing_hosts: named(facts.refusing_hosts),
            rules: named(facts.rules),
            crawlers: named(facts.crawlers),
            waits: named(facts.waits),
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

    fn markup(&self, visit: &Visit) -> Markup {
        html! {
            (span_links(visit, &DecisionQuery::default().in_scope(self.scope).behind("/"), self.hours, self.until))
            (self.figures(visit))
            @if self.sums.requests == 0 {
                p {
                    "No request in this time. "
                    a href=(visit.link("/client")) { "Point a crawler at the proxy" }
                    ", and look again."
                }
            }
            (self.chart(visit))
            section { (self.crawlers(visit)) }
            div class="columns" {
                section { (self.refused("Top refused hosts", "host", &self.hosts, visit)) }
                section { (self.refused("Top rules", "rule", &self.rules, visit)) }
                section { (self.refusing(visit)) }
                section { (self.waits(visit)) }
                section { (self.delayed(visit)) }
                section { h2 { "Health of the record" } (self.record.markup(visit)) }
            }
        }
    }

    fn figures(&self, visit: &Visit) -> Markup {
        let rows = self.rows();
        let refused = rows.clone().with("verdict", "disallow");
        html! {
            ul class="figures" {
                li {
                    b { (rows_link(visit, &rows, &number(self.sums.requests))) }
                    span { "requests" }
                }
                @for (class, count) in self.sums.classes.iter() {
                    @let ChartPart { name, class: colour } = ChartPart::of_class(class);
                    li class=(colour) {
                        b { (class_count(visit, &rows, class, count)) }
                        span { (name) }
                    }
                }
            }
            p class="small" {
                (rows_link(visit, &refused, &number(self.sums.refused())))
                " disallowed (" (percent(self.sums.refused(), self.sums.requests)) ")"
                @if 0 < self.sums.reported {
                    ", " (rows_link(
                        visit,
                        &rows.with("effect", "reported"),
                        &number(self.sums.reported),
                    )) " of them let through by report mode"
                }
                "; " (bytes(self.sums.bytes)) " passed on."
            }
        }
    }

    fn chart(&self, visit: &Visit) -> Markup {
        let hours: Vec<_> = self
            .over_time
            .iter()
            .map(|entry| HourCounts {
                hour: entry.number,
                counts: entry.sums.classes.iter().map(|(_, count)| count).collect(),
            })
            .collect();
        html! {
            section {
                (over_time(
                    &DecisionClass::ALL.map(ChartPart::of_class),
                    &hours,
                    ChartRange::default(),
                ))
                details {
                    summary { "The same as a table" }
                    div class="scroll" {
                        table {
                            caption { "Requests by hour (UTC) and what became of them" }
                            thead {
                                tr {
                                    th scope="col" { "Hour" }
                                    (self.class_heads())
                                }
                            }
                            tbody {
                                @for entry in &self.over_time { (self.hour_row(entry, visit)) }
                            }
                        }
                    }
                }
            }
        }
    }

    fn refused(
        &self,
        title: &str,
        key: &'static str,
        entries: &[NamedJson],
        visit: &Visit,
    ) -> Markup {
        html! {
            h2 { (title) }
            @if entries.is_empty() {
                p class="small" { "None." }
            } @else {
                div class="scroll" {
                    table {
                        caption { "With most refusals" }
                        thead {
                            tr {
                                th scope="col" { (key) }
                                th scope="col" class="n" { "refused" }
                                th scope="col" class="n" { "requests" }
                            }
                        }
                        tbody {
                            @for entry in entries {
                                @let name = entry.name.as_deref().unwrap_or_default();
                                @let rows = self.rows().with(key, name);
                                @let refused = entry.sums.refused();
                                tr {
                                    th scope="row" {
                                        @if key == "rule" { (code(name)) } @else { (host_link(visit, name)) }
                                    }
                                    td class="n" {
                                        @let query = rows.clone().with("verdict", "disallow");
                                        (rows_link(visit, &query, &number(refused)))
                                    }
                                    td class="n" {
                                        (rows_link(visit, &rows, &number(entry.sums.requests)))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn refusing(&self, visit: &Visit) -> Markup {
        html! {
            h2 { "Hosts that refuse" }
            @if self.refusing_hosts.is_empty() { p class="small" { "None." } } @else {
                div class="scroll" {
                    table {
                        caption { "By 401, 402, 403, 451 or a bot challenge" }
                        thead {
                            tr {
                                th scope="col" { "host" }
                                th scope="col" class="n" { "refused by the site" }
                                th scope="col" class="n" { "requests" }
                            }
                        }
                        tbody {
                            @for entry in &self.refusing_hosts {
                                @let name = entry.name.as_deref().unwrap_or_default();
                                @let rows = self.rows().with("host", name);
                                tr {
                                    th scope="row" { (host_link(visit, name)) }
                                    td class="n" { (number(entry.sums.refused_by_site)) }
                                    td class="n" {
                                        (rows_link(visit, &rows, &number(entry.sums.requests)))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn hour_row(&self, entry: &HourJson, visit: &Visit) -> Markup {
        // Of the first hour only what is within the time is counted.
        let hour = DecisionQuery::default()
            .in_scope(self.scope)
            .with("from", &entry.hour.max(self.from).to_string())
            .with("until", &hour_begin(entry.number + 1).to_string());
        html! {
            tr {
                th scope="row" class="t" { (minute(entry.hour)) }
                (self.class_cells(&entry.sums, &hour, visit))
            }
        }
    }

    /// Returns the classes that have a decision, which are the columns of tables.
    fn classes(&self) -> impl Iterator<Item = DecisionClass> {
        let counted = self.sums.classes.iter();
        counted
            .filter(|(_, count)| 0 < *count)
            .map(|(class, _)| class)
    }

    fn class_heads(&self) -> Markup {
        html! {
            @for class in self.classes() {
                th scope="col" class="n" { (ChartPart::of_class(class).name) }
            }
        }
    }

    fn class_cells(&self, sums: &SumsJson, rows: &DecisionQuery, visit: &Visit) -> Markup {
        html! {
            @for class in self.classes() {
                td class="n" { (class_count(visit, rows, class, sums.classes.get(class))) }
            }
        }
    }

    fn crawlers(&self, visit: &Visit) -> Markup {
        html! {
            h2 { "Crawlers" }
            @if self.crawlers.is_empty() { p class="small" { "None." } } @else {
                div class="scroll" {
                    table {
                        caption { "With most requests, by the token that was bound" }
                        thead {
                            tr {
                                th scope="col" { "crawler" }
                                th scope="col" class="n" { "requests" }
                                th scope="col" class="n" { "disallowed" }
                                (self.class_heads())
                            }
                        }
                        tbody {
                            @for entry in &self.crawlers { (self.crawler_row(entry, visit)) }
                        }
                    }
                }
            }
        }
    }

    fn crawler_row(&self, entry: &NamedJson, visit: &Visit) -> Markup {
        // The filter has a star for crawlers without a token.
        let name = entry.name.as_deref().unwrap_or("*");
        let rows = self.rows().with("crawler", name);
        let sums = &entry.sums;
        html! {
            tr {
                th scope="row" {
                    @if entry.name.is_some() { (foreign(name)) } @else { "without a name" }
                }
                td class="n" { (rows_link(visit, &rows, &number(sums.requests))) }
                td class="n" {
                    @let query = rows.clone().with("verdict", "disallow");
                    (rows_link(visit, &query, &number(sums.refused())))
                    " " span class="small" { "(" (percent(sums.refused(), sums.requests)) ")" }
                }
                (self.class_cells(sums, &rows, visit))
            }
        }
    }

    fn waits(&self, visit: &Visit) -> Markup {
        let mean = self.sums.wait_ms.checked_div(self.sums.requests);
        html! {
            h2 { "Waits" }
            p {
                "Requests waited " (number(mean.unwrap_or_default())) " ms on average, "
                (number(self.sums.wait_ms / 1000)) " s in all."
            }
            @if !self.waits.is_empty() {
                table {
                    caption { "Why requests were put off" }
                    thead {
                        tr {
                            th scope="col" { "reason" }
                            th scope="col" class="n" { "requests" }
                        }
                    }
                    tbody {
                        @for entry in &self.waits {
                            @let name = entry.name.as_deref().unwrap_or_default();
                            tr {
                                th scope="row" { (foreign(name)) ": " (meaning(name)) }
                                td class="n" {
                                    @let query = self.rows().with("verdict", "later");
                                    (rows_link(
                                        visit,
                                        &query.with("reason", name),
                                        &number(entry.sums.requests),
                                    ))
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn delayed(&self, visit: &Visit) -> Markup {
        html! {
            h2 { "Hosts that make requests wait" }
            @if self.delayed_hosts.is_empty() { p class="small" { "None now." } } @else {
                div class="scroll" {
                    table {
                        caption { "Now, those in back-off first" }
                        thead {
                            tr {
                                th scope="col" { "host" }
                                th scope="col" { "back-off until" }
                                th scope="col" class="n" { "waiting" }
                            }
                        }
                        tbody {
                            @for host in &self.delayed_hosts {
                                tr {
                                    th scope="row" { (host_link(visit, &host.host)) }
                                    td class="t" {
                                        @match host.backoff_until {
                                            Some(until) => { (time(until)) }
                                            None => { "–" }
                                        }
                                    }
                                    td class="n" { (number(host.queued.into())) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Shows the number of decisions in a class; as a link to them among `rows` if filters of
/// the record choose the class.
fn class_count(visit: &Visit, rows: &DecisionQuery, class: DecisionClass, count: u64) -> Markup {
    let chosen = match class {
        DecisionClass::PutOff => rows.clone().with("verdict", "later"),
        DecisionClass::Preference => {
            let refused = rows.clone().with("verdict", "disallow");
            refused.with("reason", class.as_str())
        }
        // They depend on the ending, or have several reasons.
        DecisionClass::Sent
        | DecisionClass::Rule
        | DecisionClass::Operator
        | DecisionClass::Withheld
        | DecisionClass::Unreachable
        | DecisionClass::RefusedBySite
        | DecisionClass::Error => return html! { (number(count)) },
    };
    rows_link(visit, &chosen, &number(count))
}

/// Makes the links to a page by the spans that can be chosen.
pub(super) fn span_links(visit: &Visit, path: &str, hours: u16, until: Timestamp) -> Markup {
    html! {
        p class="actions" {
            @for span in SPANS {
                @let is_current = (span == hours).then_some("true");
                @let mark = if path.contains('?') { '&' } else { '?' };
                a href=(visit.link(&format!("{path}{mark}hours={span}"))) aria-current=[is_current] {
                    (span_text(span))
                }
            }
            span class="small" { "until " (time_in_text(until)) }
        }
    }
}

fn span_text(hours: u16) -> String {
    match hours {
        1 => "last hour".to_owned(),
        hours if hours <= 24 => format!("last {hours} hours"),
        hours => format!("last {} days", hours / 24),
    }
}
