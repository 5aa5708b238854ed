//! Sections about how decisions were enforced: the modes of enforcement, and exceptions
//! of the operator.
//!
//! Each sentence depends on the rows: a report about report mode never claims that a
//! robots.txt was obeyed.

use maud::{Markup, html};

use super::gathered::ReportData;
use crate::page::tables::ReportTable;
use crate::page::words::{code, counted, foreign, minute, number};
use politesse_decision::decide::EnforcementMode;
use politesse_record::override_uses::OverrideUse;

/// Describes what was done about requests that robots.txt disallows, by the mode in
/// which each decision was made.
pub(super) fn enforcement(data: &ReportData) -> Markup {
    let totals = &data.totals;
    let requests = totals.sums.requests;
    let enforced = requests.saturating_sub(totals.in_report_mode + totals.in_unknown_mode);
    html! {
        @if requests == 0 {
            p { "No request is on record in this time." }
        } @else if totals.in_report_mode == requests {
            p {
                b { "Nothing was enforced: " }
                "politesse was in report mode for all of these requests. It noted what it would \
                 have refused, and let it through: "
                (counted(totals.sums.reported, "request")) "."
            }
            (unsent_in_report_mode(data))
        } @else if enforced == requests {
            p {
                "politesse decided these requests by the robots.txt of their websites and by the \
                 settings of its operator, and enforced each decision."
                @if 0 < totals.overridden {
                    " Exceptions of the operator let "
                    (counted(totals.overridden, "request")) " through that it refuses otherwise."
                }
            }
        } @else {
            p {
                "politesse enforced its decisions about " (counted(enforced, "request")) ". For "
                (counted(totals.in_report_mode, "request"))
                " it was in report mode: it noted what it would have refused, and let it through ("
                (counted(totals.sums.reported, "request")) "). That mode does not change what is \
                 refused for an address, a name or a website that does not answer, nor pauses."
                @if 0 < totals.in_unknown_mode {
                    " The mode of " (counted(totals.in_unknown_mode, "request"))
                    " cannot be read from the record."
                }
            }
            (modes(data))
        }
    }
}

/// Counts the requests that were refused or put off in spite of report mode. Without this
/// paragraph, these counts would contradict "nothing was enforced".
fn unsent_in_report_mode(data: &ReportData) -> Markup {
    let sums = &data.totals.sums;
    html! {
        @if 0 < sums.refusals + sums.later {
            p {
                "This mode does not change what is refused for an address, a name or a website \
                 that does not answer, nor pauses: " (number(sums.refusals)) " refused, "
                (number(sums.later)) " put off."
            }
        }
    }
}

/// Lists the modes of enforcement, each with its time span.
fn modes(data: &ReportData) -> Markup {
    ReportTable::of(data.facts.modes.iter(), "change")
        .time("From", |span| html! { (minute(span.times.first)) })
        .time("To", |span| html! { (minute(span.times.last)) })
        .text("Mode", |span| {
            html! {
                @match span.mode {
                    Some(EnforcementMode::Enforce) => "enforced",
                    Some(EnforcementMode::Report) => "report mode: noted, not enforced",
                    None => "not known",
                }
            }
        })
        .count("Requests", |span| span.requests)
        .html()
}

/// Lists the overrides that decided requests, each with the operator's reason.
pub(super) fn exceptions(data: &ReportData) -> Markup {
    let uses = &data.overrides.uses;
    let table = ReportTable::of(uses.iter(), "exception")
        .text("For", |OverrideUse { entry, .. }| {
            html! {
                (foreign(&entry.origin.to_string()))
                @if let Some(path) = &entry.path { " " (code(path.as_str())) }
                @if let Some(agent) = &entry.agent { br; "as " (foreign(agent.as_str())) }
            }
        })
        .text("Exception", |OverrideUse { entry, .. }| {
            html! {
                (entry.action.as_str())
                @if let Some(end) = entry.action.until() { br; "until " (minute(end)) }
            }
        })
        .text("Reason", |found| foreign(&found.entry.reason))
        .time("Used", |found| {
            html! { (minute(found.first)) br; "to " (minute(found.last)) }
        })
        .count("Requests", |found| found.requests);
    html! {
        @if !uses.is_empty() {
            (table.html())
        }
        @if 0 < data.overrides.unknown {
            p {
                "For " (counted(data.overrides.unknown, "request")) " decided by an exception, the \
                 exception is unknown: redacted, or without evidence."
            }
        }
    }
}
