//! Chart of an overview over time, and the same data as a table.
//!
//! Does not know how decisions are counted.

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;

use super::overview_tables::OverviewTables;
use super::page_span::{BucketStep, PageSpan};
use super::sums::SumsJson;
use politesse_decision::class::DecisionClass;
use politesse_pages::page::charts::{ChartPart, ChartUsage, TimeBar, TimeChart};
use politesse_pages::page::words::minute;
use politesse_record::stats::DecisionSums;

/// Counts of one minute, hour or day.
#[derive(Debug, Serialize)]
pub(super) struct OverviewBucket {
    /// Beginning. The first hour of an archive is only counted from the start of the
    /// span.
    from: Timestamp,
    #[serde(skip)]
    until: Timestamp,
    #[serde(flatten)]
    sums: SumsJson,
}

impl OverviewBucket {
    /// Makes the bucket `number` of `span`.
    pub(super) fn new(span: &PageSpan, number: i64, sums: &DecisionSums) -> Self {
        Self {
            from: span.step.begin(number).max(span.from),
            until: span.step.begin(number + 1),
            sums: SumsJson::from(sums),
        }
    }

    fn bar(&self, step: BucketStep) -> TimeBar {
        let (label, time) = match step {
            BucketStep::Minute => ("%H:%M", "%H:%M"),
            BucketStep::Hour => ("%H:%M", "%m-%d %H:%M"),
            BucketStep::Day => ("%m-%d", "%Y-%m-%d"),
        };
        TimeBar {
            label: self.from.strftime(label).to_string(),
            time: self.from.strftime(time).to_string(),
            counts: self.sums.classes.iter().map(|(_, count)| count).collect(),
        }
    }
}

/// Draws `buckets`, which are the buckets of `span`.
pub(super) fn overview_chart(
    span: &PageSpan,
    buckets: &[OverviewBucket],
    tables: &OverviewTables<'_>,
) -> Markup {
    let bars: Vec<_> = buckets.iter().map(|bucket| bucket.bar(span.step)).collect();
    let chart = TimeChart {
        title: "Requests over time",
        parts: &DecisionClass::ALL.map(ChartPart::of_class),
        bars: &bars,
        usage: ChartUsage::Live,
    };
    let noun = span.step.noun();
    html! {
        section {
            h2 { "Requests each " (noun) }
            (chart.html())
            p class="small" {
                "A request is one attempt to fetch an address. Times are UTC. The newest "
                (noun) " is not over yet."
            }
            details {
                summary { "Show as a table" }
                div class="scroll" {
                    table class="cards" {
                        caption { "Requests by " (noun) " (UTC) and what became of them" }
                        thead {
                            tr {
                                th scope="col" { (noun) }
                                (tables.class_heads())
                            }
                        }
                        tbody { @for bucket in buckets { (row(bucket, tables)) } }
                    }
                }
            }
        }
    }
}

fn row(bucket: &OverviewBucket, tables: &OverviewTables<'_>) -> Markup {
    let (from, until) = (bucket.from.to_string(), bucket.until.to_string());
    let rows = tables
        .rows
        .clone()
        .with("from", &from)
        .with("until", &until);
    html! {
        tr {
            th scope="row" class="t" { (minute(bucket.from)) }
            (tables.class_cells(&bucket.sums, &rows))
        }
    }
}
