//! The page around a report, and the sections that both kinds of report have.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::charts::{ChartPart, TimeBar, time_chart};
use super::gathered::ReportData;
use super::words::{code, counted, foreign, minute, number};
use crate::audit::report::hour_begin;
use crate::audit::stats::DecisionSums;
use crate::cli::inert::inert;

/// Style of the page. It holds no text from outside, and no character that is
/// markup in HTML.
const STYLE: &str = include_str!("page.css");

/// What the page may load: nothing. So text that got past the escapes could do
/// nothing, either.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Bars of the chart over time at most: more are too thin to be told apart.
const BARS_MAX: i64 = 100;

/// Hours that a bar may stand for: parts of a day, and days.
const BAR_HOURS: [i64; 9] = [1, 3, 6, 12, 24, 48, 168, 720, 8760];

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

/// Lays out a page.
pub(super) fn page(data: &ReportData, title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width";
                // The page may be put on a server: links that are followed from it tell no one.
                meta name="referrer" content="no-referrer";
                meta name="robots" content="noindex";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { bdi { (title) } }
                p class="when" { (when(data)) }
                (body)
                p class="small" {
                    "Made by politesse " (env!("CARGO_PKG_VERSION")) " on "
                    (minute(data.scope.made_at)) " UTC from the record " (code(&data.record)) "."
                }
            }
        }
    }
}

/// Says which time it is about.
fn when(data: &ReportData) -> String {
    let filter = &data.scope.filter;
    let first = data.facts.span.map(|span| span.first);
    match (filter.from.or(first), filter.until) {
        (Some(from), Some(until)) => format!("{} to {} (UTC)", minute(from), minute(until)),
        (None, Some(until)) => format!("Up to {} (UTC)", minute(until)),
        (_, None) => "All that is on record".to_owned(),
    }
}

/// A large number with what it counts.
pub(super) struct Figure {
    pub(super) class: &'static str,
    pub(super) count: u64,
    pub(super) text: &'static str,
}

/// Shows the numbers that matter most.
pub(super) fn figures(figures: &[Figure]) -> Markup {
    html! {
        ul class="figures" {
            @for figure in figures {
                li class=(figure.class) { b { (number(figure.count)) } span { (figure.text) } }
            }
        }
    }
}

/// Explains what a robots.txt is, for someone who has never seen one.
pub(super) fn robots_box() -> Markup {
    html! {
        div class="box" {
            p {
                b { "What is a robots.txt? " }
                "A short text file on a website. In it the owner says which addresses programs \
                 that read the web by themselves, called crawlers, may fetch. The line "
                code { "Disallow: /private" }
                " asks them to leave alone all addresses that begin with /private. The lines "
                code { "User-agent:" }
                " above it say which crawlers are meant, " code { "*" } " all that are not \
                 named. The rules are an internet standard, RFC 9309."
            }
        }
    }
}

/// Draws the requests over time.
pub(super) fn over_time(data: &ReportData) -> Markup {
    let hours = &data.facts.hours;
    let (Some(first), Some(last)) = (hours.first(), hours.last()) else {
        return html! {};
    };
    let span = last.hour - first.hour + 1;
    let fits = |hours: &&i64| span <= BARS_MAX * **hours;
    // The shortest step with which all bars fit on a page.
    let step = BAR_HOURS
        .iter()
        .find(fits)
        .copied()
        .unwrap_or(span / BARS_MAX + 1);
    // Bars begin at round times, so that two reports can be compared.
    let begin = first.hour - first.hour.rem_euclid(step);
    let mut bars: Vec<TimeBar> = Vec::new();
    let mut rest = hours.as_slice();
    for at in 0..=(last.hour - begin) / step {
        let end = begin + (at + 1) * step;
        // Hours are in order, so each is looked at once.
        let (within, behind) = rest.split_at(rest.partition_point(|entry| entry.hour < end));
        rest = behind;
        let mut sums = DecisionSums::default();
        within.iter().for_each(|entry| sums.add(&entry.sums));
        let time = hour_begin(begin + at * step);
        // A bar of a day or more has no hour of its own.
        let form = if step < 24 { "%m-%d %H:%M" } else { "%Y-%m-%d" };
        bars.push(TimeBar {
            label: time.strftime(form).to_string(),
            counts: counts(&sums).to_vec(),
        });
    }
    let each = match step {
        1 => "each hour".to_owned(),
        24 => "each day".to_owned(),
        hours if hours < 24 => format!("every {hours} hours"),
        hours => format!("every {} days", hours / 24),
    };
    html! {
        h2 { "Requests " (each) }
        (time_chart("Requests over time", &PARTS, &bars))
        p class="small" {
            "A request is one attempt to fetch an address. Times are UTC."
        }
    }
}

/// Returns the counts of the parts of a bar.
fn counts(sums: &DecisionSums) -> [u64; 4] {
    // These exclude each other; what is left was let through.
    let other = sums.refusals + sums.later + sums.reported;
    let through = sums.requests.saturating_sub(other);
    [through, sums.reported, sums.later, sums.refusals]
}

/// Tells how the report can be checked, and whether the record bears it out.
pub(super) fn how_to_check(data: &ReportData) -> Markup {
    let check = &data.check;
    let sums = &check.sums;
    let arguments = data.scope.arguments();
    html! {
        h2 { "How to check this" }
        p {
            "Each request stands in a record, with the robots.txt that was in force and the \
             settings of that time, and was written there before anything was sent. For this \
             page " (counted(sums.decided, "decision")) " were made once more from what is on \
             record"
            @if check.is_good() { ": all came out the same." } @else { "." }
        }
        @if !check.is_good() {
            div class="box bad" {
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
            "Whoever has the record, or a copy of it, finds the same number by the command below \
             it, unless a decision was changed, added or taken away:"
        }
        pre { "SHA-256 " (data.facts.digest) "\npolitesse audit report" (arguments) " --digest" }
        p { "and verifies the whole record by " code { "politesse audit verify" } "." }
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
