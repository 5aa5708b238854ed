//! `/hosts` without a host: the hosts of the last hours, searchable, sortable, in
//! pages. `/api/v1/hosts` returns the same as JSON.
//!
//! Does not know the page of one host.

use std::time::Duration;

use axum::http::Uri;
use axum::response::Response;
use bytes::Bytes;
use jiff::Timestamp;
use maud::{Markup, html};
use politesse_robots::RobotsTxt;
use politesse_robots::crawler::Crawler;
use serde::Serialize;

use super::page_span::{PageSpan, hours_asked, span_links};
use super::sums::SumsJson;
use super::{Dashboard, QUERY_TIME_MAX, host_link, query_failed, rows_link};
use crate::api::{json, query_value};
use crate::filter_query::DecisionQuery;
use crate::layout::time;
use crate::visit::Visit;
use politesse_base::clock;
use politesse_pages::page::words::{counted, duration, number, percent, robots_words};
use politesse_record::AuditError;
use politesse_record::host_list::{HostRanking, HostsQuestion, ListedHost, RobotsCopy, host_list};
use politesse_record::reader::AuditReader;

/// Number of hosts on a page.
const ROWS: usize = 50;

/// Time after which counting stops. The page then says that the list is incomplete.
const COUNT_TIME: Duration = Duration::from_millis(600);

/// Size in bytes of the largest robots.txt that is parsed to find the pace it asks for.
/// A page parses one for each of its [`ROWS`] hosts.
const FILE_BYTES_MAX: usize = 64 * 1024;

/// Query in the address of the list.
#[derive(Debug, Clone)]
struct HostsQuery {
    /// Length of the time span, up to now.
    hours: u16,
    /// Part of the host names to list; empty for all hosts.
    search: String,
    order: HostRanking,
    /// Number of the page, from 1.
    page: usize,
}

/// Data of the page and of its JSON.
#[derive(Debug, Serialize)]
struct HostsPage {
    #[serde(skip)]
    query: HostsQuery,
    #[serde(skip)]
    span: PageSpan,
    from: Timestamp,
    until: Timestamp,
    /// Length of the time span as requested: it begins with a whole bucket.
    hours: u16,
    /// Number of the page shown, from 1.
    page: usize,
    /// Number of pages; at least 1.
    pages: usize,
    /// Number of hosts on all pages.
    total: usize,
    /// Whether the time ran out before everything was counted.
    cut: bool,
    hosts: Vec<HostJson>,
}

/// Host in the list.
#[derive(Debug, Serialize)]
struct HostJson {
    host: String,
    #[serde(flatten)]
    sums: SumsJson,
    /// Number of back-offs that began in the time span.
    back_offs: u64,
    /// Newest copy of the robots.txt; `None` if none was fetched.
    robots: Option<CopyJson>,
    /// Pause that the newest robots.txt asks for ([`asked_pause`]).
    asked_pause_ms: Option<u64>,
    /// Median pause between the newest requests ([`ListedHost::usual_pause_us`]).
    usual_pause_ms: Option<u64>,
}

/// Newest copy of a robots.txt.
#[derive(Debug, Serialize)]
struct CopyJson {
    fetched_at: Timestamp,
    /// Result of the fetch, as a word.
    result: String,
    /// Status of the response, if there was one.
    status: Option<u16>,
}

impl HostsQuery {
    fn parse(uri: &Uri) -> Self {
        let value = |wanted: &str| {
            let found = query_value(uri.query()?, wanted);
            found.map(|value| value.trim().to_owned())
        };
        let sort = value("sort").unwrap_or_default();
        // As on every page, an unknown word selects the default.
        let mut rankings = HostRanking::ALL.into_iter();
        let chosen = rankings.find(|ranking| ranking.as_str() == sort);
        Self {
            hours: hours_asked(uri),
            search: value("search").unwrap_or_default(),
            order: chosen.unwrap_or(HostRanking::Requests),
            page: value("page")
                .and_then(|page| page.parse().ok())
                .unwrap_or(1),
        }
    }

    /// Makes the path and query of the list, without the time span.
    fn path(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if !self.search.is_empty() {
            query.append_pair("search", &self.search);
        }
        query.append_pair("sort", self.order.as_str());
        // The first page gets no number, so that it has only one address.
        if 1 < self.page {
            query.append_pair("page", &self.page.to_string());
        }
        format!("/hosts?{}", query.finish())
    }

    /// Makes the link to the list.
    fn link(&self, visit: &Visit) -> String {
        visit.link(&format!("{}&hours={}", self.path(), self.hours))
    }
}

/// Makes the list of hosts.
///
/// # Errors
///
/// A response, if the list cannot be made.
pub(super) async fn markup(
    dashboard: &Dashboard,
    visit: &Visit,
    uri: &Uri,
) -> Result<Markup, Response> {
    let page = HostsPage::gather(dashboard, HostsQuery::parse(uri)).await;
    match page {
        Ok(page) => Ok(page.markup(visit)),
        Err(error) => Err(query_failed(Some(visit), &error)),
    }
}

/// Returns the list of hosts as JSON.
pub(super) async fn api(dashboard: &Dashboard, uri: &Uri) -> Response {
    match HostsPage::gather(dashboard, HostsQuery::parse(uri)).await {
        Ok(page) => json(&page),
        Err(error) => query_failed(None, &error),
    }
}

impl HostJson {
    fn new(reader: &AuditReader, listed: ListedHost) -> Result<Self, AuditError> {
        let asked = match &listed.robots {
            Some(copy) => asked_pause(reader, copy)?,
            None => None,
        };
        Ok(Self {
            host: listed.host.to_string(),
            sums: SumsJson::from(&listed.sums),
            back_offs: listed.back_offs,
            robots: listed.robots.map(|copy| CopyJson {
                fetched_at: copy.fetched_at,
                result: copy.result,
                status: copy.status,
            }),
            asked_pause_ms: asked.and_then(|pause| pause.as_millis().try_into().ok()),
            usual_pause_ms: listed.usual_pause_us.map(|pause| pause / 1000),
        })
    }
}

/// Finds the pause that a robots.txt asks for now, from the crawler that it was fetched
/// for. Returns `None` if it asks for none, or is longer than [`FILE_BYTES_MAX`].
fn asked_pause(reader: &AuditReader, copy: &RobotsCopy) -> Result<Option<Duration>, AuditError> {
    let body = match copy.sha256 {
        Some(sha256) => reader.body(sha256)?,
        None => None,
    };
    let Some(body) = body.filter(|body| body.len() <= FILE_BYTES_MAX) else {
        return Ok(None);
    };
    let crawler = Crawler::parse(copy.token.as_deref().unwrap_or_default());
    let robots = RobotsTxt::in_dialect(Bytes::from(body), Default::default());
    let binding = robots.binding(&crawler);
    let asked = binding
        .pace()
        .and_then(|records| records.delay(clock::now()));
    Ok(asked.map(|(pause, _)| pause))
}

impl HostsPage {
    async fn gather(dashboard: &Dashboard, query: HostsQuery) -> Result<Self, AuditError> {
        let span = PageSpan::new(query.hours, clock::now());
        let (from, until) = (span.from, span.until);
        let question = HostsQuestion {
            from,
            search: query.search.clone(),
            order: query.order,
            page: query.page,
            rows: ROWS,
            deadline: clock::instant() + COUNT_TIME,
        };
        let listed = dashboard.audit.query(QUERY_TIME_MAX, move |reader| {
            let list = host_list(reader, &question)?;
            let hosts = list
                .hosts
                .into_iter()
                .map(|host| HostJson::new(reader, host));
            Ok(Self {
                hosts: hosts.collect::<Result<_, _>>()?,
                span,
                from,
                until,
                hours: query.hours,
                page: list.page,
                pages: list.total.div_ceil(ROWS).max(1),
                total: list.total,
                cut: list.is_cut,
                // Links continue from the page shown, which exists; the requested page
                // may not.
                query: HostsQuery {
                    page: list.page,
                    ..query
                },
            })
        });
        listed.await
    }

    fn markup(&self, visit: &Visit) -> Markup {
        let first = HostsQuery {
            page: 1,
            ..self.query.clone()
        };
        html! {
            (span_links(visit, &first.path(), &self.span))
            (self.search_form(visit))
            p class="total" {
                b { (counted(self.total as u64, "host")) }
                " · page " (number(self.page as u64)) " of " (number(self.pages as u64))
                " · " a href=(visit.link("/hosts/changes")) { "Changed robots.txt" }
            }
            @if self.cut {
                p class="note" {
                    "The list is incomplete: there was not enough time to count all decisions. \
                     Choose a shorter time span for exact numbers."
                }
            }
            (self.table(visit))
            (self.page_links(visit))
        }
    }

    fn search_form(&self, visit: &Visit) -> Markup {
        html! {
            form class="search" method="get" action=(visit.link("/hosts")) role="search" {
                // A new search begins on the first page, with the same time span and
                // order.
                input type="hidden" name="hours" value=(self.hours);
                input type="hidden" name="sort" value=(self.query.order.as_str());
                div class="actions" {
                    label for="search" { "part of a name" }
                    input id="search" name="search" type="search" value=(self.query.search);
                    button class="primary" { "Search" }
                }
            }
        }
    }

    fn table(&self, visit: &Visit) -> Markup {
        html! {
            div class="scroll" {
                table class="cards rows" {
                    caption {
                        "Pace asked: the pause that the newest robots.txt wants from the crawler \
                         it was fetched for. Pace kept: the usual pause between the newest \
                         requests sent to the host, at most 100; blank if the newest decisions \
                         about all hosts include fewer than two. Times in UTC."
                        @if self.hosts.is_empty() { " No host was found." }
                    }
                    thead {
                        tr {
                            (self.sortable_heading(visit, HostRanking::Name, "host"))
                            (self.sortable_heading(visit, HostRanking::Requests, "requests"))
                            (self.sortable_heading(visit, HostRanking::Refused, "refused"))
                            th scope="col" class="n" { "pace asked" }
                            th scope="col" class="n" { "pace kept" }
                            (self.sortable_heading(visit, HostRanking::BackOffs, "back-offs"))
                            th scope="col" { "robots.txt" }
                            (self.sortable_heading(visit, HostRanking::Robots, "robots.txt age"))
                        }
                    }
                    tbody { @for host in &self.hosts { (self.row(visit, host)) } }
                }
            }
        }
    }

    /// Makes the heading of a column by which the list can be sorted.
    fn sortable_heading(&self, visit: &Visit, order: HostRanking, title: &str) -> Markup {
        let (class, direction) = match order {
            HostRanking::Requests | HostRanking::Refused | HostRanking::BackOffs => {
                (Some("n"), "descending")
            }
            HostRanking::Robots | HostRanking::Name => (None, "ascending"),
        };
        let sorted = HostsQuery {
            order,
            page: 1,
            ..self.query.clone()
        };
        let is_current = self.query.order == order;
        html! {
            th scope="col" class=[class] aria-sort=[is_current.then_some(direction)] {
                a href=(sorted.link(visit)) { (title) }
            }
        }
    }

    fn row(&self, visit: &Visit, host: &HostJson) -> Markup {
        let rows = DecisionQuery::default()
            .with("from", &self.from.to_string())
            .with("host", &host.host);
        let refused = host.sums.refused;
        let pause = |pause: Option<u64>| pause.map(|ms| duration(ms.saturating_mul(1000)));
        html! {
            tr {
                th scope="row" { (host_link(visit, &host.host)) }
                td class="n" data-label="requests" {
                    (rows_link(visit, &rows, &number(host.sums.requests)))
                }
                td class="n" data-label="refused" {
                    (rows_link(visit, &rows.refused(), &number(refused)))
                    " " span class="small" { "(" (percent(refused, host.sums.requests)) ")" }
                }
                td class="n" data-label="pace asked" {
                    @if let Some(pause) = pause(host.asked_pause_ms) { (pause) }
                }
                td class="n" data-label="pace kept" {
                    @if let Some(pause) = pause(host.usual_pause_ms) { (pause) }
                }
                td class="n" data-label="back-offs" { (number(host.back_offs)) }
                td data-label="robots.txt" {
                    @match &host.robots {
                        Some(copy) => (robots_words(&copy.result, copy.status)),
                        None => "not fetched",
                    }
                }
                td class="t" data-label="robots.txt age" {
                    @if let Some(copy) = &host.robots { (time(copy.fetched_at)) }
                }
            }
        }
    }

    fn page_links(&self, visit: &Visit) -> Markup {
        let link = |page: usize| {
            let query = HostsQuery {
                page,
                ..self.query.clone()
            };
            query.link(visit)
        };
        html! {
            p class="actions" {
                @if 1 < self.page { a rel="prev" href=(link(self.page - 1)) { "Previous" } }
                @if self.page < self.pages { a rel="next" href=(link(self.page + 1)) { "Next" } }
            }
        }
    }
}
