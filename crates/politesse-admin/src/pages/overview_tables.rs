//! Tables of an overview: crawlers, hosts and rules with their counts, each linked to
//! its decisions.
//!
//! Does not know the time span, or how decisions were counted.

use maud::{Markup, html};

use super::sums::{NamedJson, SumsJson};
use super::{crawler_link, host_link, rows_link};
use crate::filter_query::DecisionQuery;
use crate::visit::Visit;
use politesse_decision::class::DecisionClass;
use politesse_pages::explain::facts::meaning;
use politesse_pages::page::charts::ChartPart;
use politesse_pages::page::words::{code, duration, foreign, number, percent};

/// Tables of one overview.
pub(super) struct OverviewTables<'a> {
    pub(super) visit: &'a Visit,
    /// Query for the decisions of the whole span.
    pub(super) rows: DecisionQuery,
    /// Classes with at least one decision; each is a column.
    pub(super) classes: Vec<DecisionClass>,
}

impl OverviewTables<'_> {
    /// Makes the headings for the columns of [`OverviewTables::class_cells`].
    pub(super) fn class_heads(&self) -> Markup {
        html! {
            @for class in &self.classes {
                th scope="col" class="n" { (ChartPart::of_class(*class).name) }
            }
        }
    }

    /// Makes a cell for each class, linked to the decisions of `rows`.
    pub(super) fn class_cells(&self, sums: &SumsJson, rows: &DecisionQuery) -> Markup {
        html! {
            @for class in &self.classes {
                td class="n" data-label=(ChartPart::of_class(*class).name) {
                    (class_count(self.visit, rows, *class, sums.classes.get(*class)))
                }
            }
        }
    }

    /// Lists crawlers with their classes.
    pub(super) fn crawlers(&self, crawlers: &[NamedJson]) -> Markup {
        html! {
            h2 { "Crawlers" }
            @if crawlers.is_empty() { p class="small" { "None." } } @else {
                div class="scroll" {
                    table class="cards" {
                        caption { "Most active, by product token" }
                        thead {
                            tr {
                                th scope="col" { "crawler" }
                                th scope="col" class="n" { "requests" }
                                th scope="col" class="n" { "refused" }
                                (self.class_heads())
                            }
                        }
                        tbody { @for entry in crawlers { (self.crawler(entry)) } }
                    }
                }
            }
        }
    }

    fn crawler(&self, entry: &NamedJson) -> Markup {
        // The filter uses a star for crawlers without a token.
        let name = entry.name.as_deref().unwrap_or("*");
        let rows = self.rows.clone().with("crawler", name);
        let sums = &entry.sums;
        html! {
            tr {
                th scope="row" { (crawler_link(self.visit, entry.name.as_deref())) }
                td class="n" data-label="requests" {
                    (rows_link(self.visit, &rows, &number(sums.requests)))
                }
                td class="n" data-label="refused" {
                    @let query = rows.clone().refused();
                    (rows_link(self.visit, &query, &number(sums.refused)))
                    " " span class="small" { "(" (percent(sums.refused, sums.requests)) ")" }
                }
                (self.class_cells(sums, &rows))
            }
        }
    }

    /// Lists the hosts with most refusals.
    pub(super) fn hosts(&self, hosts: &[NamedJson]) -> Markup {
        let link = |name: &str, _: &DecisionQuery| host_link(self.visit, name);
        self.refused("host", hosts, link)
    }

    /// Lists the rules with most refusals.
    pub(super) fn rules(&self, rules: &[NamedJson]) -> Markup {
        let link = |name: &str, rows: &DecisionQuery| {
            let path = rows.behind("/decisions");
            html! { a href=(self.visit.link(&path)) { (code(name)) } }
        };
        self.refused("rule", rules, link)
    }

    /// Lists `entries`, which are values of the condition `key`, with their refusals.
    fn refused(
        &self,
        key: &'static str,
        entries: &[NamedJson],
        link: impl Fn(&str, &DecisionQuery) -> Markup,
    ) -> Markup {
        html! {
            @if entries.is_empty() { p class="small" { "None." } } @else {
                div class="scroll" {
                    table class="cards" {
                        caption { "Most refused first" }
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
                                @let rows = self.rows.clone().with(key, name);
                                @let refused = rows.clone().refused();
                                tr {
                                    th scope="row" { (link(name, &rows)) }
                                    td class="n" data-label="refused" {
                                        (rows_link(self.visit, &refused, &number(entry.sums.refused)))
                                    }
                                    td class="n" data-label="requests" {
                                        (rows_link(self.visit, &rows, &number(entry.sums.requests)))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Lists the hosts that refused requests sent to them.
    pub(super) fn refusing_hosts(&self, hosts: &[NamedJson]) -> Markup {
        html! {
            h2 { "Sites that refused requests" }
            @if hosts.is_empty() { p class="small" { "None." } } @else {
                div class="scroll" {
                    table class="cards" {
                        caption { "By 401, 402, 403, 451 or a bot challenge" }
                        thead {
                            tr {
                                th scope="col" { "host" }
                                th scope="col" class="n" { "refused by the site" }
                                th scope="col" class="n" { "requests" }
                            }
                        }
                        tbody {
                            @for entry in hosts {
                                @let name = entry.name.as_deref().unwrap_or_default();
                                @let rows = self.rows.clone().with("host", name);
                                tr {
                                    th scope="row" { (host_link(self.visit, name)) }
                                    td class="n" data-label="refused by the site" {
                                        (class_count(
                                            self.visit,
                                            &rows,
                                            DecisionClass::RefusedBySite,
                                            entry.sums.refused_by_site,
                                        ))
                                    }
                                    td class="n" data-label="requests" {
                                        (rows_link(self.visit, &rows, &number(entry.sums.requests)))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Shows how long requests waited, and why they were put off.
    pub(super) fn waits(&self, sums: &SumsJson, waits: &[NamedJson]) -> Markup {
        let mean = sums.wait_ms.checked_div(sums.requests);
        html! {
            h2 { "Waits" }
            p {
                "Requests waited " (number(mean.unwrap_or_default())) " ms on average, "
                (duration(sums.wait_ms.saturating_mul(1000))) " in all."
            }
            @if !waits.is_empty() {
                table class="cards" {
                    caption { "Why requests were put off" }
                    thead {
                        tr {
                            th scope="col" { "reason" }
                            th scope="col" class="n" { "requests" }
                        }
                    }
                    tbody {
                        @for entry in waits {
                            @let name = entry.name.as_deref().unwrap_or_default();
                            @let rows = self.rows.clone().with("verdict", "later");
                            tr {
                                th scope="row" { (foreign(name)) ": " (meaning(name)) }
                                td class="n" data-label="requests" {
                                    (rows_link(
                                        self.visit,
                                        &rows.with("reason", name),
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
}

/// Shows the number of decisions in a class, as a link to them among `rows`.
pub(super) fn class_count(
    visit: &Visit,
    rows: &DecisionQuery,
    class: DecisionClass,
    count: u64,
) -> Markup {
    let chosen = rows.clone().with("class", class.as_str());
    rows_link(visit, &chosen, &number(count))
}
