//! `/hosts?host=NAME`: one host, with its current and past robots.txt, the lines that
//! decided, its pace and its back-offs. `/api/v1/hosts` returns the same as JSON.
//!
//! Does not know how a robots.txt is read.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use jiff::Timestamp;
use maud::{Markup, html};
use politesse_robots::RobotsTxt;
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::back_offs::release_form;
use super::changes::change_link;
use super::{
    Dashboard, QUERY_TIME_MAX, hosts, node_alone, query_failed, refuse_archive, rows_link,
};
use crate::api::{host as read_host, json};
use crate::filter_query::DecisionQuery;
use crate::layout::{DashboardPage, DashboardSection, error_page, form_token, layout, time};
use crate::orders::{HostOrder, REASON_BYTES_MAX, RefetchedCopy, RefetchedRobots};
use crate::robots_view::{LineMark, diff_line, robots_lines};
use crate::visit::Visit;
use politesse_decision::digest::Digest;
use politesse_pace::host_pace::HostPace;
use politesse_pages::page::line_diff::LineDiff;
use politesse_pages::page::words::{code, counted, foreign, number, robots_words, shown};
use politesse_record::AuditError;
use politesse_record::filter::EventFilter;
use politesse_record::reader::AuditReader;
use politesse_record::report::origin_sums;
use politesse_record::robots_history::RobotsOwner;
use politesse_record::robots_versions::{RobotsVersion, fetched_versions};
use politesse_record::stats::DecisionSums;

/// Maximum number of versions shown, the newest first.
const VERSIONS_MAX: usize = 50;
/// Maximum number of back-offs shown, the newest first.
const BACK_OFFS_MAX: usize = 20;
/// Maximum number of rules listed, those with most requests first.
const RULES_MAX: usize = 100;

/// Data of the page and of its JSON.
#[derive(Serialize)]
struct HostPage {
    host: String,
    // Counts of decisions, as in `SumsJson`.
    requests: u64,
    refused: u64,
    refusals: u64,
    reported: u64,
    later: u64,
    withheld: u64,
    refused_by_site: u64,
    versions: Vec<VersionJson>,
    /// Lines that decided most requests.
    rules: Vec<RuleJson>,
    /// The newest back-off events.
    back_offs: Vec<BackOffJson>,
    /// Current pace; `None` if the scheduler does not remember the host.
    pace: Option<HostPace>,
    /// Version that is shown in full.
    #[serde(skip)]
    shown: Option<ShownFile>,
    /// Whether the requested version is not one of this host.
    #[serde(skip)]
    is_unknown_version: bool,
}

/// Version of a robots.txt.
#[derive(Debug, Serialize)]
struct VersionJson {
    /// Number of its first fetch, which is also the number of the change.
    number: u64,
    origin: String,
    /// Token of the crawler that it was fetched for; `None` if it is for all.
    token: Option<String>,
    first_seen: Timestamp,
    last_seen: Timestamp,
    /// Number of fetches that returned this version.
    fetches: u64,
    /// Result of the fetches, as a word.
    result: String,
    /// Status of the response, if there was one.
    status: Option<u16>,
    /// Digest of the file, if the response had one.
    sha256: Option<String>,
}

/// Line that decided, in any version of an origin's robots.txt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct DecidingLine {
    origin: String,
    line: u32,
    /// Text of the line, without comment and surrounding whitespace.
    rule: String,
}

/// Line that decided, with its number of requests.
#[derive(Debug, Serialize)]
struct RuleJson {
    #[serde(flatten)]
    deciding: DecidingLine,
    requests: u64,
}

/// Back-off event.
#[derive(Debug, Serialize)]
struct BackOffJson {
    /// Time of the event.
    time: Timestamp,
    /// Kind of event, as a word: whether the back-off began, changed or ended.
    kind: String,
    /// Status of the response that caused the event, if one did.
    status: Option<u16>,
    /// End of the back-off as of the event.
    until: Timestamp,
    /// Operator who ended the back-off, if any.
    actor: Option<String>,
    /// Reason given by the operator.
    reason: Option<String>,
}

/// Version to show, and the one to compare it with.
struct ShownFile {
    digest: Digest,
    /// Origins that have served it.
    origins: BTreeSet<String>,
    body: Vec<u8>,
    /// Previous version, if the differences were requested.
    previous: Option<Vec<u8>>,
}

/// Query for a host.
struct HostQuery {
    host: Option<String>,
    /// Digest of the requested version; `None` for the newest.
    sha256: Option<String>,
    /// Digest of the version to compare it with.
    previous: Option<String>,
}

impl HostQuery {
    fn parse(uri: &Uri) -> Self {
        let value = |wanted: &str| {
            let query = uri.query().unwrap_or_default();
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            let found = pairs.find(|(name, value)| name == wanted && !value.trim().is_empty());
            found.map(|(_, value)| value.trim().to_owned())
        };
        Self {
            host: value("host"),
            sha256: value("sha256"),
            previous: value("previous"),
        }
    }
}

/// Shows a host, or the list of hosts.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Response {
    let query = HostQuery::parse(&uri);
    if query.host.is_some() {
        return respond(&dashboard, &visit, query, &html! {}).await;
    }
    match hosts::markup(&dashboard, &visit, &uri).await {
        Ok(list) => {
            let body = html! {
                (node_alone(&dashboard, &visit, &DecisionQuery::default()))
                (list)
            };
            layout(&visit, &content("Hosts".to_owned(), body))
        }
        Err(answer) => answer,
    }
}

/// Answers `POST /hosts`: fetches the robots.txt of the host in the form again, and
/// shows the host with the outcome. `access` has already checked the form's token.
pub(crate) async fn refetch(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    request: Request,
) -> Response {
    let order = match HostOrder::of_form(request).await {
        Ok(order) => order,
        Err(refusal) => return refusal,
    };
    let query = HostQuery {
        host: Some(order.host.clone()),
        sha256: None,
        previous: None,
    };
    match dashboard.refetch.order(order).await {
        Ok(refetched) => respond(&dashboard, &visit, query, &outcome_note(&refetched)).await,
        Err(refusal) => {
            // Above the page of the host, so that the form can be sent again.
            let note = html! {
                p class="error" role="alert" { (foreign(&refusal.to_string())) }
            };
            let page = respond(&dashboard, &visit, query, &note).await;
            (refusal.status(), page).into_response()
        }
    }
}

/// Makes the page for a query, with a `note` about the order just carried out.
async fn respond(
    dashboard: &Dashboard,
    visit: &Visit,
    query: HostQuery,
    note: &Markup,
) -> Response {
    let wanted = query.host.clone().unwrap_or_default();
    let Ok(host) = read_host(&wanted) else {
        let text = "A name or an address is wanted, without a port.";
        return error_page(visit, StatusCode::BAD_REQUEST, text);
    };
    match HostPage::gather(dashboard, host.to_string(), query).await {
        // After an order the host has a page even without a record, for the note.
        Ok(page) if page.is_unknown() && note.0.is_empty() => {
            let text = format!("There is no record of {}.", shown(&page.host, 100));
            error_page(visit, StatusCode::NOT_FOUND, &text)
        }
        Ok(page) => {
            let title = format!("Host {}", shown(&page.host, 100));
            let body = html! {
                (note)
                (node_alone(dashboard, visit, &page.rows()))
                (page.markup(visit))
            };
            layout(visit, &content(title, body))
        }
        Err(error) => query_failed(Some(visit), &error),
    }
}

fn content(title: String, body: Markup) -> DashboardPage {
    DashboardPage {
        title,
        section: Some(DashboardSection::Hosts),
        body,
    }
}

/// Returns a host, or the list, as JSON.
pub(crate) async fn api(State(dashboard): State<Arc<Dashboard>>, uri: Uri) -> Response {
    if let Some(refusal) = refuse_archive(&uri) {
        return refusal;
    }
    let query = HostQuery::parse(&uri);
    if query.host.is_none() {
        return hosts::api(&dashboard, &uri).await;
    }
    let host = read_host(query.host.as_deref().unwrap_or_default());
    match host {
        Ok(host) => match HostPage::gather(&dashboard, host.to_string(), query).await {
            Ok(page) => json(&page),
            Err(error) => query_failed(None, &error),
        },
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

fn host_form(visit: &Visit, host: &str) -> Markup {
    html! {
        form class="filters" method="get" action=(visit.link("/hosts")) role="search" {
            div {
                label for="host" { "host" }
                input id="host" name="host" value=(host) required placeholder="site.example";
            }
            div class="actions" { button class="primary" { "Show" } }
        }
    }
}

impl HostPage {
    async fn gather(
        dashboard: &Dashboard,
        host: String,
        query: HostQuery,
    ) -> Result<Self, AuditError> {
        let source = dashboard.pace.clone();
        let wanted = host.clone();
        // With hundreds of thousands of hosts this takes a while.
        let pace = spawn_blocking(move || {
            let hosts = source.hosts();
            hosts.into_iter().find(|entry| entry.host == wanted)
        });
        let gathered = dashboard.audit.query(QUERY_TIME_MAX, move |reader| {
            Self::read(reader, host, &query)
        });
        let page = gathered.await?;
        Ok(Self {
            pace: pace.await.unwrap_or_default(),
            ..page
        })
    }

    fn read(reader: &AuditReader, host: String, query: &HostQuery) -> Result<Self, AuditError> {
        let mut versions = fetched_versions(reader, &RobotsOwner::Host(host.clone()))?;
        versions.sort_by_key(|version| version.snapshot.fetched_at);
        versions.reverse();
        let shown = ShownFile::find(reader, &versions, query)?;
        // A site that changes its file with each fetch must not flood the page.
        versions.truncate(VERSIONS_MAX);
        let mut sums = DecisionSums::default();
        let mut counts: BTreeMap<DecidingLine, u64> = BTreeMap::new();
        for entry in origin_sums(reader, &host)? {
            sums.add(&entry.sums);
            if let (Some(line), Some(rule)) = (entry.ruling.line, &entry.ruling.rule) {
                let deciding = DecidingLine {
                    origin: entry.origin.to_string(),
                    line,
                    rule: rule.clone(),
                };
                *counts.entry(deciding).or_default() += entry.sums.requests;
            }
        }
        let mut rules: Vec<_> = counts
            .into_iter()
            .map(|(deciding, requests)| RuleJson { deciding, requests })
            .collect();
        rules.sort_by_key(|rule| Reverse(rule.requests));
        // A robots.txt may have a hundred thousand rules, and each may have decided.
        rules.truncate(RULES_MAX);
        Ok(Self {
            is_unknown_version: query.sha256.is_some() && shown.is_none(),
            back_offs: back_offs(reader, &host)?,
            host,
            requests: sums.requests,
            refused: sums.classes.refused(),
            refusals: sums.refusals,
            reported: sums.reported,
            later: sums.later,
            withheld: sums.withheld,
            refused_by_site: sums.refused_by_site,
            versions: versions.into_iter().map(VersionJson::from).collect(),
            rules,
            pace: None,
            shown,
        })
    }

    /// Reports whether neither the host nor its robots.txt was ever requested.
    fn is_unknown(&self) -> bool {
        let is_asked = 0 < self.requests || self.pace.is_some();
        !is_asked && self.versions.is_empty() && self.back_offs.is_empty()
    }

    fn rows(&self) -> DecisionQuery {
        DecisionQuery::default().with("host", &self.host)
    }

    fn markup(&self, visit: &Visit) -> Markup {
        let refused = self.rows().refused();
        html! {
            (host_form(visit, &self.host))
            p {
                (rows_link(visit, &self.rows(), &counted(self.requests, "request")))
                ", " (rows_link(visit, &refused, &number(self.refused)))
                " refused, "
                (rows_link(visit, &self.rows().with("verdict", "later"), &number(self.later)))
                " put off, " (number(self.refused_by_site)) " refused by the site, "
                (number(self.withheld)) " withheld."
            }
            (self.pace(visit))
            (self.file(visit))
            (refetch_form(visit, &self.host))
            (self.versions(visit))
            (self.back_offs())
        }
    }

    fn pace(&self, visit: &Visit) -> Markup {
        let Some(pace) = &self.pace else {
            return html! { p class="small" { "No requests are waiting or in flight." } };
        };
        html! {
            h2 { "Pace now" }
            dl {
                dt { "in flight" } dd { (number(pace.in_flight.into())) }
                dt { "waiting" } dd { (number(pace.queued.into())) }
                @if let Some(next) = pace.next_start { dt { "next start" } dd { (time(next)) } }
                @if let Some(cause) = &pace.cause { dt { "reason" } dd { (foreign(cause)) } }
                @if let Some(until) = pace.backoff_until {
                    dt { "back-off ends" }
                    dd { (time(until)) (release_form(visit, &self.host, "/queues")) }
                }
            }
        }
    }

    fn file(&self, visit: &Visit) -> Markup {
        let Some(file) = &self.shown else {
            let text = match self.is_unknown_version {
                true => "This host has no such version.",
                false => "No robots.txt of this host is on record.",
            };
            return html! { h2 { "robots.txt" } p { (text) } };
        };
        if let Some(previous) = &file.previous {
            let diff = LineDiff::new(previous, &file.body);
            return html! {
                h2 { "What changed in robots.txt" }
                p { (diff.added()) " lines added, " (diff.removed()) " removed." }
                pre tabindex="0" { @for line in diff.unified().lines() { (diff_line(line)) } }
            };
        }
        let body = Bytes::from(file.body.clone());
        // Only its lines are shown, and those are the same in every dialect.
        let robots = RobotsTxt::in_dialect(body, Default::default());
        html! {
            h2 { "robots.txt" }
            p class="small" { "SHA-256 " code { (file.digest) } }
            @let marks = self.marks(file, &robots, visit);
            @if !marks.is_empty() {
                p class="small" {
                    "Marked lines decided requests. The counts cover all versions of such a line at " @for origin in &file.origins { (foreign(origin)) " " }
                }
            }
            (robots_lines(&robots, &marks))
        }
    }

    /// Makes the marks at the lines that decided. The text must match the rule, because
    /// another version may have a different line at that number.
    fn marks(&self, file: &ShownFile, robots: &RobotsTxt, visit: &Visit) -> Vec<LineMark> {
        let mut requests: BTreeMap<(u32, &str), u64> = BTreeMap::new();
        let is_of_file = |rule: &&RuleJson| file.origins.contains(&*rule.deciding.origin);
        for RuleJson {
            deciding,
            requests: decided,
        } in self.rules.iter().filter(is_of_file)
        {
            *requests.entry((deciding.line, &deciding.rule)).or_default() += decided;
        }
        let mut marks = Vec::new();
        for ((line, rule), requests) in requests {
            let text = robots.line(line).unwrap_or_default();
            let written = text.split('#').next().unwrap_or_default();
            if written.trim_start_matches('\u{feff}').trim() != rule {
                continue;
            }
            marks.push(LineMark {
                line,
                note: html! {
                    "◀ decided " (counted(requests, "request")) " "
                    // The record is searched by the rule, which other hosts may have as
                    // well.
                    (rows_link(visit, &self.rows().with("rule", rule), "by this rule"))
                },
            });
        }
        marks
    }

    fn versions(&self, visit: &Visit) -> Markup {
        html! {
            h2 { "Versions" }
            div class="scroll" {
                table class="cards rows" {
                    caption { "What was fetched as robots.txt, the newest first; times in UTC" }
                    thead {
                        tr {
                            th scope="col" { "first seen" }
                            th scope="col" { "last seen" }
                            th scope="col" { "origin" }
                            th scope="col" { "for" }
                            th scope="col" { "result" }
                            th scope="col" { "file" }
                        }
                    }
                    tbody {
                        @for (at, version) in self.versions.iter().enumerate() {
                            tr {
                                th scope="row" class="t" { (time(version.first_seen)) }
                                td class="t" data-label="last seen" { (time(version.last_seen)) }
                                td data-label="origin" { (foreign(&version.origin)) }
                                td data-label="for" {
                                    (foreign(version.token.as_deref().unwrap_or("every crawler")))
                                }
                                td data-label="result" {
                                    (foreign(&version.result))
                                    @if let Some(status) = version.status { " " (status) }
                                    ", " (counted(version.fetches, "fetch"))
                                }
                                td data-label="file" { (self.version_links(at, version, visit)) }
                            }
                        }
                    }
                }
            }
        }
    }

    fn version_links(&self, at: usize, version: &VersionJson, visit: &Visit) -> Markup {
        let Some(sha256) = &version.sha256 else {
            return html! { "none" };
        };
        // A version is compared with the previous one for the same crawler.
        let before = self
            .versions
            .get(at + 1..)
            .unwrap_or_default()
            .iter()
            .find(|other| other.origin == version.origin && other.token == version.token);
        let earlier = before.and_then(|other| other.sha256.as_ref());
        let link = |previous: Option<&String>| {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query
                .append_pair("host", &self.host)
                .append_pair("sha256", sha256);
            if let Some(previous) = previous {
                query.append_pair("previous", previous);
            }
            visit.link(&format!("/hosts?{}", query.finish()))
        };
        html! {
            a href=(link(None)) { (code(&sha256.chars().take(12).collect::<String>())) }
            @if earlier.is_some_and(|earlier| earlier != sha256) {
                " " a href=(link(earlier)) { "what changed" }
                " " (change_link(visit, version.number, "its effect"))
            }
        }
    }

    fn back_offs(&self) -> Markup {
        html! {
            h2 { "Back-offs" }
            @if self.back_offs.is_empty() { p class="small" { "None on record." } } @else {
                div class="scroll" {
                    table class="cards" {
                        caption { "The newest first; times in UTC" }
                        thead {
                            tr {
                                th scope="col" { "time" }
                                th scope="col" { "event" }
                                th scope="col" { "status" }
                                th scope="col" { "until" }
                                th scope="col" { "ended by" }
                                th scope="col" { "reason" }
                            }
                        }
                        tbody {
                            @for entry in &self.back_offs {
                                tr {
                                    th scope="row" class="t" { (time(entry.time)) }
                                    td data-label="event" { (foreign(&entry.kind)) }
                                    td data-label="status" {
                                        @if let Some(status) = entry.status { (status) }
                                    }
                                    td class="t" data-label="until" { (time(entry.until)) }
                                    td data-label="ended by" {
                                        @if let Some(actor) = &entry.actor { (foreign(actor)) }
                                    }
                                    td data-label="reason" {
                                        @if let Some(reason) = &entry.reason { (foreign(reason)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

impl ShownFile {
    /// Finds the requested version among those of the host, so that no other file of
    /// the record can be read.
    fn find(
        reader: &AuditReader,
        versions: &[RobotsVersion],
        query: &HostQuery,
    ) -> Result<Option<Self>, AuditError> {
        let digests = || {
            versions
                .iter()
                .filter_map(|version| version.snapshot.sha256)
        };
        let named = |wanted: &String| digests().find(|digest| digest.to_string() == *wanted);
        let digest = match &query.sha256 {
            Some(wanted) => named(wanted),
            None => digests().next(),
        };
        let Some(digest) = digest else {
            return Ok(None);
        };
        let Some(body) = reader.body(digest)? else {
            return Ok(None);
        };
        let previous = match query.previous.as_ref().and_then(named) {
            Some(previous) => reader.body(previous)?,
            None => None,
        };
        let with_it = versions
            .iter()
            .filter(|version| version.snapshot.sha256 == Some(digest));
        Ok(Some(Self {
            digest,
            origins: with_it.map(|version| version.origin.clone()).collect(),
            body,
            previous,
        }))
    }
}

impl From<RobotsVersion> for VersionJson {
    fn from(version: RobotsVersion) -> Self {
        let snapshot = version.snapshot;
        Self {
            number: version.number,
            origin: version.origin,
            token: snapshot.token,
            first_seen: snapshot.fetched_at,
            last_seen: version.last_seen,
            fetches: version.fetches,
            result: snapshot.result,
            status: snapshot.status,
            sha256: snapshot.sha256.map(|digest| digest.to_string()),
        }
    }
}

fn back_offs(reader: &AuditReader, host: &str) -> Result<Vec<BackOffJson>, AuditError> {
    let filter = EventFilter {
        host: Some(host.to_owned()),
        ..EventFilter::default()
    };
    let mut found = Vec::new();
    reader.visit_events(&filter, |event| {
        found.push(BackOffJson {
            time: event.at,
            kind: event.kind,
            status: event.status,
            until: event.until,
            actor: event.actor,
            reason: event.reason,
        });
        match found.len() < BACK_OFFS_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(found)
}

/// Makes the form for fetching the robots.txt of a host again.
fn refetch_form(visit: &Visit, host: &str) -> Markup {
    html! {
        details class="release" {
            summary { "Fetch robots.txt again now" }
            form method="post" action=(visit.link("/hosts")) {
                (form_token(visit))
                input type="hidden" name="host" value=(host);
                label {
                    "Reason, for the record "
                    input name="reason" required maxlength=(REASON_BYTES_MAX);
                }
                button { "Fetch it again" }
            }
        }
    }
}

/// Shows the results of the fetches of an order.
fn outcome_note(refetched: &RefetchedRobots) -> Markup {
    html! {
        div class="note" role="status" {
            p { "robots.txt was requested again. The record shows who asked for it and why." }
            ul {
                @for copy in &refetched.copies {
                    li {
                        (foreign(&copy.origin)) " for "
                        (foreign(copy.token.as_deref().unwrap_or("every crawler"))) ": "
                        (copy_outcome(copy))
                    }
                }
            }
            p class="small" {
                "A new version is listed below after the first decision based on it. In a fleet, \
                 the other nodes receive the answer like any other that this node fetches."
            }
        }
    }
}

fn copy_outcome(copy: &RefetchedCopy) -> Markup {
    let words = robots_words(copy.result, copy.status);
    html! {
        @match copy.outcome {
            "changed" => {
                b { "changed" } ": " (words) ", " (counted(copy.lines_added as u64, "line"))
                " added, " (number(copy.lines_removed as u64)) " removed"
            },
            "unchanged" => { "not changed: " (words) },
            "failed" => { "no answer, so the previous copy stays in force: " (words) },
            _ => { "not answered yet; the previous copy stays in force: " (words) },
        }
    }
}
