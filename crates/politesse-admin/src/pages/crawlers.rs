//! `/crawlers`: the crawlers active in the last hours, the groups of robots.txt that
//! bound each, its request rate, and why its requests were put off; with `crawler=`,
//! only one crawler. `/api/v1/crawlers` returns the same as JSON.
//!
//! Does not know how a crawler is recognised.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use serde::Serialize;

use super::page_span::{PageSpan, hours_asked, span_links};
use super::sums::SumsJson;
use super::{
    Dashboard, QUERY_TIME_MAX, crawler_link, node_alone, query_failed, refuse_archive, rows_link,
};
use crate::api::json;
use crate::filter_query::DecisionQuery;
use crate::layout::{DashboardPage, DashboardSection, layout};
use crate::visit::Visit;
use politesse_base::clock;
use politesse_pages::explain::facts::meaning;
use politesse_pages::page::charts::ChartPart;
use politesse_pages::page::words::{code, counted, foreign, number, percent, shown};
use politesse_pages::page::{Figure, figures};
use politesse_record::AuditError;
use politesse_record::crawler_sums::{CrawlerSums, CrawlersSeen, crawler_sums};
use politesse_record::filter::DecisionFilter;

/// Maximum number of crawlers shown.
const CRAWLERS_MAX: usize = 100;
/// Maximum number of characters shown of a User-Agent, and of a name in the title.
const AGENT_MAX: usize = 200;
const TITLE_MAX: usize = 80;
/// Filter value for crawlers without a token.
const NAMELESS: &str = "*";

/// Data of the page and of its JSON.
#[derive(Debug, Serialize)]
struct CrawlersPage {
    #[serde(skip)]
    span: PageSpan,
    from: Timestamp,
    until: Timestamp,
    hours: u16,
    crawlers: Vec<CrawlerJson>,
    /// Number of crawlers, shown or not.
    total: usize,
    /// The requested crawler, as named in the address.
    #[serde(skip)]
    chosen: Option<String>,
}

/// Decisions about one crawler.
#[derive(Debug, Serialize)]
struct CrawlerJson {
    /// Token that was bound; `None` if the User-Agent has none.
    name: Option<String>,
    #[serde(flatten)]
    sums: SumsJson,
    /// Mean over the whole time span.
    requests_per_minute: f64,
    /// Groups of robots.txt files that bound the crawler.
    groups: Vec<GroupJson>,
    /// Numbers of requests that were put off, by reason word.
    put_off: BTreeMap<String, u64>,
    /// Values of `User-Agent` that the crawler sent.
    user_agents: Vec<String>,
}

/// Group that bound a crawler.
#[derive(Debug, Serialize)]
struct GroupJson {
    /// Agents that the group names; `["*"]` for the group of all crawlers.
    agents: Vec<String>,
    /// Number of requests that it bound.
    requests: u64,
}

impl CrawlerJson {
    /// Makes the counts of one crawler over a period of the length `time`.
    fn new(entry: CrawlerSums, time: SignedDuration) -> Self {
        let sums = SumsJson::from(&entry.sums);
        // Exact up to 2^53, which no record reaches.
        let requests = sums.requests as f64;
        let groups = entry.groups.into_iter().map(|group| GroupJson {
            agents: group.agents,
            requests: group.requests,
        });
        Self {
            name: entry.name.map(|name| name.to_string()),
            // At least a second, because a day may just have begun.
            requests_per_minute: requests * 60.0 / time.as_secs_f64().max(1.0),
            groups: groups.collect(),
            put_off: entry.put_off,
            user_agents: entry.user_agents,
            sums,
        }
    }

    /// Makes the query for the crawler's decisions.
    fn rows(&self, page: &CrawlersPage) -> DecisionQuery {
        let name = self.name.as_deref().unwrap_or(NAMELESS);
        DecisionQuery::default()
            .with("from", &page.from.to_string())
            .with("crawler", name)
    }

    fn link(&self, visit: &Visit) -> Markup {
        crawler_link(visit, self.name.as_deref())
    }
}

/// Shows the crawlers.
pub(crate) async fn page(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Response {
    match CrawlersPage::gather(&dashboard, &uri).await {
        Ok(crawlers) => {
            let content = DashboardPage {
                title: crawlers.title(),
                section: Some(DashboardSection::Crawlers),
                body: html! {
                    (node_alone(&dashboard, &visit, &DecisionQuery::default()))
                    (crawlers.markup(&visit))
                },
            };
            layout(&visit, &content)
        }
        Err(error) => query_failed(Some(&visit), &error),
    }
}

/// Returns the crawlers as JSON.
pub(crate) async fn api(State(dashboard): State<Arc<Dashboard>>, uri: Uri) -> Response {
    if let Some(refusal) = refuse_archive(&uri) {
        return refusal;
    }
    match CrawlersPage::gather(&dashboard, &uri).await {
        Ok(crawlers) => json(&crawlers),
        Err(error) => query_failed(None, &error),
    }
}

impl CrawlersPage {
    async fn gather(dashboard: &Dashboard, uri: &Uri) -> Result<Self, AuditError> {
        let hours = hours_asked(uri);
        let chosen = chosen_crawler(uri);
        let span = PageSpan::new(hours, clock::now());
        let from = span.from;
        let filter = DecisionFilter {
            from: Some(from),
            crawler: chosen.clone(),
            ..DecisionFilter::default()
        };
        let summed = dashboard.audit.query(QUERY_TIME_MAX, move |reader| {
            crawler_sums(reader, &filter, CRAWLERS_MAX)
        });
        let CrawlersSeen { first, total } = summed.await?;
        let crawlers = first.into_iter();
        Ok(Self {
            span,
            from,
            until: span.until,
            hours,
            crawlers: crawlers
                .map(|entry| CrawlerJson::new(entry, span.length()))
                .collect(),
            total,
            chosen,
        })
    }

    fn title(&self) -> String {
        match self.chosen.as_deref() {
            None => "Crawlers".to_owned(),
            Some(NAMELESS) => "Crawlers without a name".to_owned(),
            Some(name) => format!("Crawler {}", shown(name, TITLE_MAX)),
        }
    }

    /// Returns the address of the page, without the time span.
    fn path(&self) -> String {
        let query = DecisionQuery::default();
        match &self.chosen {
            None => "/crawlers".to_owned(),
            Some(name) => query.with("crawler", name).behind("/crawlers"),
        }
    }

    fn markup(&self, visit: &Visit) -> Markup {
        let nameless = self.crawlers.iter().find(|entry| entry.name.is_none());
        let is_of_one = self.chosen.is_some();
        html! {
            (span_links(visit, &self.path(), &self.span))
            @if is_of_one { p { a href=(visit.link("/crawlers")) { "All crawlers" } } }
            @if self.crawlers.is_empty() { p { "No request in this time." } } @else {
                @if is_of_one { @for entry in &self.crawlers { (class_figures(&entry.sums)) } }
                @else { p {
                    (counted(self.total as u64, "crawler")) " asked."
                    @if self.crawlers.len() < self.total {
                        " The " (number(self.crawlers.len() as u64)) " with most requests are listed."
                    }
                } }
                @if let Some(entry) = nameless {
                    p class="note" {
                        b { "Identity missing. " }
                        (rows_link(visit, &entry.rows(self), &counted(entry.sums.requests, "request")))
                        " gave no product token in User-Agent. The group of " code { "*" }
                        " binds them, and no site can address them by name."
                    }
                }
                (self.requests(visit))
                (self.groups(visit))
            }
        }
    }

    fn requests(&self, visit: &Visit) -> Markup {
        html! {
            div class="scroll" {
                table class="cards" {
                    caption { "Most active, by product token" }
                    thead {
                        tr {
                            th scope="col" { "crawler" }
                            th scope="col" class="n" { "requests" }
                            th scope="col" class="n" { "a minute" }
                            th scope="col" class="n" { "refused" }
                            th scope="col" class="n" { "mean wait" }
                            th scope="col" class="n" { "put off" }
                            th scope="col" { "reason" }
                        }
                    }
                    tbody {
                        @for entry in &self.crawlers { (self.row(entry, visit)) }
                    }
                }
            }
        }
    }

    fn row(&self, entry: &CrawlerJson, visit: &Visit) -> Markup {
        let (rows, sums) = (entry.rows(self), &entry.sums);
        let refused = sums.refused;
        let mean = sums.wait_ms.checked_div(sums.requests).unwrap_or_default();
        html! {
            tr {
                th scope="row" { (entry.link(visit)) (user_agents(&entry.user_agents)) }
                td class="n" data-label="requests" {
                    (rows_link(visit, &rows, &number(sums.requests)))
                }
                td class="n" data-label="a minute" {
                    (format!("{:.1}", entry.requests_per_minute))
                }
                td class="n" data-label="refused" {
                    (rows_link(visit, &rows.clone().refused(), &number(refused)))
                    " " span class="small" { "(" (percent(refused, sums.requests)) ")" }
                }
                td class="n" data-label="mean wait" { (number(mean)) " ms" }
                td class="n" data-label="put off" {
                    (rows_link(visit, &rows.clone().with("verdict", "later"), &number(sums.later)))
                }
                td data-label="reason" {
                    @for (reason, requests) in &entry.put_off {
                        @let query = rows.clone().with("verdict", "later").with("reason", reason);
                        div {
                            (rows_link(visit, &query, &number(*requests))) " "
                            (foreign(reason)) ": " (meaning(reason))
                        }
                    }
                }
            }
        }
    }

    fn groups(&self, visit: &Visit) -> Markup {
        html! {
            h2 { "Groups of robots.txt that applied" }
            div class="scroll" {
                table class="cards" {
                    caption { "Groups of robots.txt, as the files of all sites name them" }
                    thead {
                        tr {
                            th scope="col" { "crawler" }
                            th scope="col" { "group" }
                            th scope="col" class="n" { "requests" }
                        }
                    }
                    tbody {
                        @for entry in &self.crawlers {
                            @for group in &entry.groups {
                                tr {
                                    th scope="row" { (entry.link(visit)) }
                                    td data-label="group" { (group_name(&group.agents)) }
                                    td class="n" data-label="requests" { (number(group.requests)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the crawler that an address selects; `*` selects those without a token.
fn chosen_crawler(uri: &Uri) -> Option<String> {
    let query = uri.query().unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let chosen = pairs.find(|(name, value)| name == "crawler" && !value.trim().is_empty());
    chosen.map(|(_, value)| value.trim().to_owned())
}

/// Shows the requests of a crawler by class.
fn class_figures(sums: &SumsJson) -> Markup {
    let counts = sums.classes.iter().filter(|(_, count)| 0 < *count);
    let shown: Vec<_> = counts
        .map(|(class, count)| {
            let ChartPart { name, class } = ChartPart::of_class(class);
            Figure {
                class,
                count,
                text: name,
            }
        })
        .collect();
    figures(&shown)
}

/// Lists the User-Agents of a crawler, folded because they are long.
fn user_agents(agents: &[String]) -> Markup {
    html! {
        @if !agents.is_empty() {
            details class="small" {
                summary { "User-Agent" }
                @for agent in agents { div { bdi { (shown(agent, AGENT_MAX)) } } }
            }
        }
    }
}

fn group_name(agents: &[String]) -> Markup {
    html! {
        @if agents.is_empty() {
            "no matching group, or no robots.txt"
        }
        @for agent in agents { (code(agent)) " " }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use politesse_record::crawler_sums::GroupCount;

    // Ours: the mean over the whole time span.
    #[test]
    fn the_rate_is_in_requests_per_minute() {
        let mut entry = CrawlerSums::default();
        entry.sums.requests = 90;
        entry.groups.push(GroupCount {
            agents: vec!["*".to_owned()],
            requests: 90,
        });
        let json = CrawlerJson::new(entry, SignedDuration::from_hours(1));
        assert_eq!(format!("{:.2}", json.requests_per_minute), "1.50");
        assert_eq!(json.groups[0].agents, ["*"]);
    }
}
