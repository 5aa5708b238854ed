//! `/hosts`: one host, with its robots.txt as it is and was, the lines that decided,
//! its pace and its back-offs. `/api/v1/hosts` is the same as JSON.
//!
//! Does not know how a robots.txt is read.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use jiff::Timestamp;
use maud::{Markup, html};
use politesse_robots::RobotsTxt;
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::{Dashboard, QUERY_TIME_MAX, query_failed, rows_link};
use crate::admin::api::{host as read_host, json};
use crate::admin::filter_query::DecisionQuery;
use crate::admin::layout::{DashboardPage, DashboardSection, error_page, layout, time};
use crate::admin::robots_view::{LineMark, robots_lines};
use crate::admin::visit::Visit;
use crate::audit::AuditError;
use crate::audit::filter::{DecisionFilter, EventFilter};
use crate::audit::reader::AuditReader;
use crate::audit::report::ruling_sums;
use crate::audit::robots_history::RobotsOwner;
use crate::audit::robots_versions::{RobotsVersion, fetched_versions};
use crate::audit::stats::DecisionSums;
use crate::decision::digest::Digest;
use crate::pace::host_pace::HostPace;
use crate::page::line_diff::LineDiff;
use crate::page::words::{code, counted, foreign, number, shown};

/// Versions that are shown, the newest first.
const VERSIONS_MAX: usize = 50;
/// Back-offs that are shown, the newest first.
const BACK_OFFS_MAX: usize = 20;
/// Rules that are listed, those with most requests first.
const RULES_MAX: usize = 100;

/// What the page shows.
#[derive(Serialize)]
struct HostPage {
    host: String,
    requests: u64,
    refusals: u64,
    reported: u64,
    later: u64,
    versions: Vec<VersionJson>,
    rules: Vec<RuleJson>,
    back_offs: Vec<BackOffJson>,
    pace: Option<HostPace>,
    /// Version that is shown as a whole.
    #[serde(skip)]
    shown: Option<ShownFile>,
}

/// Version of a robots.txt.
#[derive(Debug, Serialize)]
struct VersionJson {
    origin: String,
    /// Token of the crawler that it was fetched for; absent if for all.
    token: Option<String>,
    first_seen: Timestamp,
    last_seen: Timestamp,
    fetches: u64,
    result: String,
    status: Option<u16>,
    sha256: Option<String>,
}

/// Rule that decided at the host, and the line that it was on.
#[derive(Debug, Serialize)]
struct RuleJson {
    line: u32,
    rule: String,
    requests: u64,
}

/// Back-off that has begun.
#[derive(Debug, Serialize)]
struct BackOffJson {
    time: Timestamp,
    kind: String,
    status: Option<u16>,
    until: Timestamp,
}

/// Version that is shown, and the one that it is compared with.
struct ShownFile {
    digest: Digest,
    body: Vec<u8>,
    /// The version of before, where the differences are wanted.
    previous: Option<Vec<u8>>,
}

/// Question about a host.
struct HostQuery {
    host: Option<String>,
    /// Digest of the version that is wanted; absent: the newest.
    sha256: Option<String>,
    /// Digest of the version that it is compared with.
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

/// Shows a host, or asks for one.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Response {
    let query = HostQuery::parse(&uri);
    // The form alone, where no host is named yet.
    let Some(wanted) = query.host.clone() else {
        let body = host_form(&visit, "");
        return layout(&visit, &content("Hosts".to_owned(), body));
    };
    let Ok(host) = read_host(&wanted) else {
        let text = "A name or an address is wanted, without a port.";
        return error_page(&visit, StatusCode::BAD_REQUEST, text);
    };
    match HostPage::gather(&dashboard, host.to_string(), query).await {
        Ok(page) => {
            let title = format!("Host {}", shown(&page.host, 100));
            layout(&visit, &content(title, page.markup(&visit)))
        }
        Err(error) => query_failed(Some(&visit), &error),
    }
}

fn content(title: String, body: Markup) -> DashboardPage {
    DashboardPage {
        title,
        section: Some(DashboardSection::Hosts),
        body,
    }
}

/// Answers with a host as JSON.
pub(crate) async fn api(State(dashboard): State<Arc<Dashboard>>, uri: Uri) -> Response {
    let query = HostQuery::parse(&uri);
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
        let paces = dashboard.pace.clone();
        let wanted = host.clone();
        // Hundreds of thousands of hosts take a while.
        let pace = spawn_blocking(move || {
            let hosts = (paces.0)();
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
        // A site that changes its file with each fetch is not to fill the page.
        versions.truncate(VERSIONS_MAX);
        let shown = ShownFile::find(reader, &versions, query)?;
        let of_host = DecisionFilter {
            host: Some(host.clone()),
            ..DecisionFilter::default()
        };
        let mut sums = DecisionSums::default();
        let mut counts: BTreeMap<(u32, String), u64> = BTreeMap::new();
        for entry in ruling_sums(reader, &of_host)? {
            // A roll-up is of whole parts: it has other hosts, too.
            if *entry.host != *host {
                continue;
            }
            sums.add(&entry.sums);
            if let (Some(line), Some(rule)) = (entry.ruling.line, &entry.ruling.rule) {
                *counts.entry((line, rule.clone())).or_default() += entry.sums.requests;
            }
        }
        let mut rules: Vec<_> = counts
            .into_iter()
            .map(|((line, rule), requests)| RuleJson {
                line,
                rule,
                requests,
            })
            .collect();
        rules.sort_by_key(|rule| Reverse(rule.requests));
        // A robots.txt may have a hundred thousand rules, and a site may use each.
        rules.truncate(RULES_MAX);
        Ok(Self {
            back_offs: back_offs(reader, &host)?,
            host,
            requests: sums.requests,
            refusals: sums.refusals,
            reported: sums.reported,
            later: sums.later,
            versions: versions.into_iter().map(VersionJson::from).collect(),
            rules,
            pace: None,
            shown,
        })
    }

    fn rows(&self) -> DecisionQuery {
        DecisionQuery::default().with("host", &self.host)
    }

    fn markup(&self, visit: &Visit) -> Markup {
        let refused = self.rows().with("verdict", "disallow");
        html! {
            (host_form(visit, &self.host))
            p {
                (rows_link(visit, &self.rows(), &counted(self.requests, "request")))
                ", " (rows_link(visit, &refused, &number(self.refusals + self.reported)))
                " disallowed, "
                (rows_link(visit, &self.rows().with("verdict", "later"), &number(self.later)))
                " put off."
            }
            (self.pace())
            (self.file(visit))
            (self.versions(visit))
            (self.back_offs())
        }
    }

    fn pace(&self) -> Markup {
        let Some(pace) = &self.pace else {
            return html! { p class="small" { "Nothing is sent to it or waits for it now." } };
        };
        html! {
            h2 { "Pace now" }
            dl {
                dt { "in flight" } dd { (number(pace.in_flight.into())) }
                dt { "waiting" } dd { (number(pace.queued.into())) }
                @if let Some(next) = pace.next_start { dt { "next start" } dd { (time(next)) } }
                @if let Some(cause) = &pace.cause { dt { "because of" } dd { (foreign(cause)) } }
                @if let Some(until) = pace.backoff_until {
                    dt { "back-off until" } dd { (time(until)) }
                }
            }
        }
    }

    fn file(&self, visit: &Visit) -> Markup {
        let Some(file) = &self.shown else {
            return html! { h2 { "robots.txt" } p { "None of this host is on record." } };
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
            (robots_lines(&robots, &self.marks(&robots, visit)))
        }
    }

    /// Makes the marks at the lines that have decided. A line counts if it has the
    /// rule that decided then: another version may have another one there.
    fn marks(&self, robots: &RobotsTxt, visit: &Visit) -> Vec<LineMark> {
        let mut marks = Vec::new();
        for (at, text) in robots.numbered_lines() {
            let of_line = self.rules.iter().filter(|rule| rule.line == at);
            for rule in of_line.filter(|rule| text.contains(&*rule.rule)) {
                let query = self.rows().with("rule", &rule.rule);
                let text = format!("◀ decided {}", counted(rule.requests, "request"));
                marks.push(LineMark {
                    line: at,
                    note: rows_link(visit, &query, &text),
                });
            }
        }
        marks
    }

    fn versions(&self, visit: &Visit) -> Markup {
        html! {
            h2 { "Versions" }
            div class="scroll" {
                table class="rows" {
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
                                td class="t" { (time(version.last_seen)) }
                                td { (foreign(&version.origin)) }
                                td { (foreign(version.token.as_deref().unwrap_or("every crawler"))) }
                                td {
                                    (foreign(&version.result))
                                    @if let Some(status) = version.status { " " (status) }
                                    ", " (counted(version.fetches, "fetch"))
                                }
                                td { (self.version_links(at, version, visit)) }
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
        // What a version changed is told against the one before it of the same crawler.
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
            }
        }
    }

    fn back_offs(&self) -> Markup {
        html! {
            h2 { "Back-offs" }
            @if self.back_offs.is_empty() { p class="small" { "None on record." } } @else {
                div class="scroll" {
                    table {
                        caption { "The newest first; times in UTC" }
                        thead {
                            tr {
                                th scope="col" { "time" }
                                th scope="col" { "event" }
                                th scope="col" { "status" }
                                th scope="col" { "until" }
                            }
                        }
                        tbody {
                            @for entry in &self.back_offs {
                                tr {
                                    th scope="row" class="t" { (time(entry.time)) }
                                    td { (foreign(&entry.kind)) }
                                    td { @if let Some(status) = entry.status { (status) } }
                                    td class="t" { (time(entry.until)) }
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
    /// Finds the version that is wanted among those of the host: no other file of the
    /// record can be asked for.
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
        Ok(Some(Self {
            digest,
            body,
            previous,
        }))
    }
}

impl From<RobotsVersion> for VersionJson {
    fn from(version: RobotsVersion) -> Self {
        let snapshot = version.snapshot;
        Self {
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
        });
        match found.len() < BACK_OFFS_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(found)
}

/// Shows a line of a difference: its sign beside its colour (WCAG 2.2, 1.4.1).
fn diff_line(line: &str) -> Markup {
    let class = match line.as_bytes().first() {
        Some(b'+') => Some("ins"),
        Some(b'-') => Some("del"),
        _ => None,
    };
    html! { span class=[class] { bdi { (shown(line, 2_000)) } } "\n" }
}
