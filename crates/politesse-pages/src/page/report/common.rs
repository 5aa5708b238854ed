//! Sections that both kinds of report share.

use maud::{Markup, html};

use super::gathered::ReportData;
use crate::page::charts::ChartPart;
use crate::page::over_time::{ChartRange, HourCounts, over_time};
use crate::page::words::{code, counted, foreign, minute, number};
use crate::page::{PageFrame, page};
use politesse_base::inert::inert;
use politesse_record::stats::DecisionSums;

/// Parts of the bars, in the order of [`counts`].
const PARTS: [ChartPart; 4] = [
    ChartPart {
        name: "let through",
        class: "sent",
    },
    ChartPart {
        name: "let through by report mode",
        class: "reported",
    },
    ChartPart {
        name: "put off",
        class: "later",
    },
    ChartPart {
        name: "refused",
        class: "refused",
    },
];

/// Lays out a page about `data`.
pub(super) fn report_page(data: &ReportData, title: &str, body: &Markup) -> Markup {
    let frame = PageFrame {
        title,
        when: &when(data),
        made_at: data.scope.made_at,
        source: html! { "the record " (code(&data.record)) },
    };
    page(&frame, body)
}

/// Describes the time span of the report.
fn when(data: &ReportData) -> String {
    let filter = &data.scope.filter;
    let until = minute(filter.until.unwrap_or(data.scope.made_at));
    match (filter.from, data.history.first_entry) {
        (Some(from), _) => format!("{} to {until} (UTC)", minute(from)),
        (None, Some(first)) => {
            format!(
                "{}, the first entry on record, to {until} (UTC)",
                minute(first)
            )
        }
        (None, None) => format!("Up to {until} (UTC); there is no entry on record"),
    }
}

/// Draws the requests over time.
pub(super) fn requests_over_time(data: &ReportData) -> Markup {
    let hours = data.facts.hours.iter().map(|entry| HourCounts {
        hour: entry.hour,
        counts: counts(&entry.sums).to_vec(),
    });
    let (scope, first) = (&data.scope, data.history.first_entry);
    let range = ChartRange {
        // There is nothing to draw before the first entry, even if the report begins
        // earlier.
        from: scope.filter.from.max(first),
        until: scope.filter.until.map(|until| until.min(scope.made_at)),
    };
    over_time(&PARTS, &hours.collect::<Vec<_>>(), range)
}

/// Returns the counts of the parts of a bar.
fn counts(sums: &DecisionSums) -> [u64; 4] {
    // These exclude each other; the remaining requests were let through.
    let other = sums.refusals + sums.later + sums.reported;
    let through = sums.requests.saturating_sub(other);
    [through, sums.reported, sums.later, sums.refusals]
}

/// Explains how to check the report, and whether the record confirms it.
pub(super) fn how_to_check(data: &ReportData) -> Markup {
    let check = &data.check;
    let sums = &check.sums;
    let arguments = data.scope.arguments();
    // A decision that another version of the program made, and that this one decides
    // differently, is no finding, but is not the same either.
    let is_same = check.is_confirmed() && sums.other_revision == 0;
    html! {
        h2 { "How to check this" }
        p {
            "Each request is in a record, with the robots.txt and the settings that decided it. \
             For this page " (counted(sums.decided, "decision"))
            @if sums.decided == 1 { " was" } @else { " were" }
            " made once more from what is on record"
            @if is_same { ": all came out the same." } @else { "." }
        }
        @if !check.is_confirmed() {
            div class="error" {
                p {
                    b { "The record does not bear all of this out: " }
                    (counted(sums.mismatches, "entry")) " that do not fit, "
                    (counted(sums.missing, "entry")) " missing."
                }
                @for finding in &check.findings { p { (foreign(finding)) } }
                @if 0 < check.more_findings { p { "and " (number(check.more_findings)) " more" } }
            }
        }
        p {
            "Anyone who has the record, or a copy of it, gets the same number from the command \
             below it, unless a decision was changed, added or removed:"
        }
        pre { "SHA-256 " (data.facts.digest) "\npolitesse audit report" (arguments) " --digest" }
        p {
            "and verifies the whole record with " code { "politesse audit verify" } "."
            @if !data.scope.is_whole {
                " That is also how entries are found to be missing, which this page cannot tell."
            } @else if check.sums.missing == 0 {
                " That was done for this page: no entry is missing."
            }
        }
        @if let Some(head) = &check.head {
            p {
                "The record is sealed: a signed head states how many entries there are and what \
                 they hold. With a head that was kept elsewhere, and the public key, "
                code { "politesse audit verify --head FILE --key KEY" }
                " proves that nothing before it was changed. The newest head when this page was \
                 made:"
            }
            pre { @for line in head.lines() { (inert(line)) "\n" } }
        }
    }
}
