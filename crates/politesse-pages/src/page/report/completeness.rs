//! Section about the record itself: where it begins, what was removed from it, and when
//! the program did not run.

use maud::{Markup, html};

use super::gathered::ReportData;
use crate::page::tables::{ROWS_MAX, ReportTable};
use crate::page::words::{counted, foreign, minute, number};
use politesse_record::removals::RemovalNote;

/// Describes what the record lacks in the time span: removed or redacted entries, and
/// times when the program did not run.
pub(super) fn completeness(data: &ReportData) -> Markup {
    let history = &data.history;
    let facts = &data.facts;
    let begins_later = match (data.scope.filter.from, history.first_entry) {
        (Some(from), Some(first)) => (from < first).then_some(first),
        _ => None,
    };
    html! {
        h2 { "What the record has of this time" }
        @if let Some(first) = begins_later {
            p {
                "The first entry on record is from " (minute(first))
                ". Nothing from before that is on record."
            }
        }
        (removals(data))
        (redactions(data))
        (absences(data))
        @for at in history.restores.iter().take(ROWS_MAX) {
            p { "A backup took the place of the record at " (minute(*at)) "." }
        }
        @if 0 < history.lost {
            p {
                (counted(history.lost, "number")) " of entries were noted as lost, after damage \
                 or when a backup was restored."
            }
        }
        @if 0 < facts.unended {
            p {
                "The outcome of " (counted(facts.unended, "request")) " is not on record: the \
                 exchange was under way, or the program was cut off."
            }
        }
    }
}

/// Shows why entries were removed or redacted, and who ordered it. A page about one host
/// omits the latter: its owner need not know the operator's user accounts.
fn order_text(data: &ReportData, note: &RemovalNote) -> Markup {
    match data.scope.host() {
        Some(_) => foreign(note.why()),
        None => foreign(&note.order()),
    }
}

fn redactions(data: &ReportData) -> Markup {
    let (redacted, redactions) = (&data.facts.redacted, &data.history.redactions);
    let table = ReportTable::of(redactions.iter(), "time")
        .time("When", |note| html! { (minute(note.note.at)) })
        .text("By whom, and why", |note| order_text(data, &note.note))
        .count("Requests", |note| note.decisions);
    html! {
        @if !redacted.is_empty() {
            p {
                "Client and address were taken away from "
                (counted(redacted.len() as u64, "request"))
                ". They are counted on this page by what is left of them, and are not decided again."
            }
            (table.html())
        }
    }
}

fn removals(data: &ReportData) -> Markup {
    let removals = &data.history.removals;
    let table = ReportTable::of(removals.iter().rev(), "time")
        .time("When", |removal| html! { (minute(removal.note.at)) })
        .text("Entries", |removal| {
            html! { (number(removal.first)) " to " (number(removal.last)) }
        })
        .time("From before", |removal| {
            html! { (removal.note.before().map_or("–".to_owned(), minute)) }
        })
        .text("By whom, and why", |removal| {
            html! {
                @if removal.note.is_by_age() { "by their age (" code { "audit.retention" } ")" }
                @else { (order_text(data, &removal.note)) }
            }
        });
    html! {
        @if !removals.is_empty() {
            p { "Old entries were removed from the record, so that there may be fewer than there were:" }
            (table.html())
        }
    }
}

fn absences(data: &ReportData) -> Markup {
    let absences = &data.history.absences;
    let table = ReportTable::of(absences.iter().rev(), "time")
        .time("From", |absence| html! { (minute(absence.since)) })
        .time("To", |absence| {
            html! { (absence.until.map_or("not started since".to_owned(), minute)) }
        })
        .text("How it ended", |absence| {
            html! {
                @if absence.is_stopped { "it was stopped" }
                @else { "unexpectedly; the last decision before is from that time" }
            }
        });
    html! {
        @if absences.is_empty() {
            p { "No stop and no restart of the program is on record in this time." }
        } @else {
            p {
                "At these times the program was stopped, or ended unexpectedly and was started \
                 again. While it was stopped it forwarded no requests. Where it ended unexpectedly, \
                 it may have run for some of the time: its last requests may not be on record."
            }
            (table.html())
        }
    }
}
