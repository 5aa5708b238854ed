//! Layout of the operator's report, for auditors and anyone responsible for a crawl.
//!
//! Does not know how the data was gathered.

use maud::{Markup, html};

use super::common::{how_to_check, report_page, requests_over_time};
use super::completeness::completeness;
use super::enforcement::{enforcement, exceptions};
use super::gathered::ReportData;
use super::tables::{
    RuleColumns, back_offs, crawlers, denials, other_reasons, rules, site_refusals, speed_chart,
    speeds, unknown,
};
use crate::page::tables::glossary;
use crate::page::words::{bytes, code, counted, duration, foreign, minute, number, percent, shown};
use crate::page::{Figure, figures, robots_box};

/// Maximum number of configurations shown, the latest ones.
const CONFIGURATIONS_MAX: usize = 3;

/// Sections of a configuration that are shown: they determine when and from where requests
/// are sent.
const SHOWN_SECTIONS: [&str; 2] = ["[pace]", "[egress]"];

/// Makes the whole document.
pub(super) fn document(data: &ReportData) -> Markup {
    let title = match data.scope.host() {
        Some(host) => format!("What was asked of {}", shown(host, 80)),
        None => "What our crawlers asked for".to_owned(),
    };
    report_page(data, &title, &sections(data))
}

/// Makes the sections of the body.
fn sections(data: &ReportData) -> Markup {
    html! {
        (brief(data))
        (robots_box())
        (requests_over_time(data))
        (who_asked(data))
        (refusals(data))
        (denials(data))
        (refused_by_site(data))
        (report_mode(data))
        (overrides(data))
        (pace(data))
        (left_alone(data))
        (configurations(data))
        h2 { "What could not be known" }
        (unknown(data))
        (completeness(data))
        (how_to_check(data))
        (words())
    }
}

/// Shows the pace and egress settings in force in the time span.
fn configurations(data: &ReportData) -> Markup {
    let configurations = &data.history.configurations;
    let earlier = configurations.len().saturating_sub(CONFIGURATIONS_MAX);
    html! {
        @if !configurations.is_empty() {
            h2 { "How the program was set up" }
            p {
                "When and where requests were sent follows from these settings. "
                code { "politesse audit events --kind configuration --json" }
                " prints all settings but for secrets."
            }
            @for configuration in configurations.iter().rev().take(CONFIGURATIONS_MAX) {
                p {
                    "In force from " (minute(configuration.at)) " on"
                    @if let Some(operator) = &configuration.operator {
                        ", run by " (foreign(operator))
                    }
                    ":"
                }
                pre { @for line in shown_lines(&configuration.text) { (foreign(line)) "\n" } }
            }
            @if 0 < earlier {
                p { "Before that there were " (counted(earlier as u64, "other configuration")) " in this time." }
            }
        }
    }
}

/// Returns the lines of a configuration that determine how origins are contacted.
fn shown_lines(text: &str) -> impl Iterator<Item = &str> {
    let is_shown = |section: &&str| SHOWN_SECTIONS.iter().any(|name| section.starts_with(name));
    text.split("\n\n").filter(is_shown).flat_map(str::lines)
}

/// Shows the most important numbers.
fn brief(data: &ReportData) -> Markup {
    let totals = &data.totals;
    html! {
        p class="lead" {
            (counted(totals.crawlers, "crawler")) " made "
            (counted(totals.sums.requests, "request"))
            @if data.scope.host().is_none() { " to " (counted(totals.hosts, "website")) }
            " through the program politesse. This page shows what is on record about them, and \
             nothing of requests that went another way."
        }
        (enforcement(data))
        (figures(&[
            Figure { class: "", count: totals.sums.requests, text: "requests by crawlers" },
            Figure { class: "sent", count: totals.let_through(), text: "let through" },
            Figure { class: "refused", count: totals.sums.refusals, text: "refused, and not sent" },
            Figure { class: "later", count: totals.sums.later, text: "put off, to ask again later" },
            Figure { class: "withheld", count: totals.sums.withheld, text: "fetched, and withheld" },
            Figure { class: "site", count: totals.sums.refused_by_site, text: "refused by the website" },
        ]))
    }
}

fn who_asked(data: &ReportData) -> Markup {
    html! {
        h2 { "Who asked" }
        p { "Crawlers by the name that a robots.txt would call them." }
        (crawlers(data))
    }
}

fn refusals(data: &ReportData) -> Markup {
    let totals = &data.totals;
    // Refusals for other reasons have their own table (`other_reasons`).
    let ranked = data.ranked(|entry| match entry.ruling.reason.as_str() {
        "rule" => entry.sums.refusals,
        _ => 0,
    });
    html! {
        h2 { "What was refused, and by whose rule" }
        @if ranked.is_empty() {
            p { "No request was refused by a rule of a robots.txt." }
        } @else {
            p {
                (counted(totals.by_rules, "request")) " (" (percent(totals.by_rules, totals.sums.requests))
                " of all) " @if totals.by_rules == 1 { "was" } @else { "were" }
                " not sent because the owner of the website disallows it. The line is quoted \
                 from the file as it was then."
            }
            (rules(&ranked, RuleColumns { count: "Refused", has_host: data.scope.host().is_none() }))
        }
        (other_reasons(data))
    }
}

fn refused_by_site(data: &ReportData) -> Markup {
    html! {
        @if 0 < data.totals.sums.refused_by_site {
            h2 { "What websites refused themselves" }
            p {
                (counted(data.totals.sums.refused_by_site, "request"))
                " that the robots.txt of the website allows, or that were let through all the \
                 same, were answered with 401, 402, 403, 451 or a bot challenge. An owner who \
                 does this has said something, too."
            }
            (site_refusals(data))
        }
    }
}

/// Shows which requests enforcing would have refused.
fn report_mode(data: &ReportData) -> Markup {
    let totals = &data.totals;
    // Left out if everything is enforced, so that it is not mistaken for an actual
    // cost.
    let reported = totals.sums.reported;
    let ranked = data.ranked(|entry| entry.sums.reported);
    html! {
        @if 0 < reported {
            h2 { "What enforcing would have cost" }
            p {
                "In report mode the program lets requests through that it refuses otherwise. \
                 Enforcing would have refused "
                (counted(reported, "request")) " (" (percent(reported, totals.let_through()))
                " of all that was let through), to which crawlers received "
                (bytes(totals.reported_bytes)) "."
            }
            (rules(&ranked, RuleColumns { count: "Let through", has_host: data.scope.host().is_none() }))
        }
    }
}

/// Shows which requests the operator's overrides let through, and the overrides.
fn overrides(data: &ReportData) -> Markup {
    let ranked = data.ranked(|entry| match entry.ruling.effect.as_str() {
        "overridden" => entry.sums.requests,
        _ => 0,
    });
    let uses = &data.overrides;
    html! {
        @if !ranked.is_empty() || !uses.uses.is_empty() || 0 < uses.unknown {
            h2 { "Exceptions of the operator" }
            p {
                "Settings of the operator (" code { "robots.override" } ") let "
                (counted(data.totals.overridden, "request"))
                " through against a robots.txt, or without one that could be read."
            }
            (exceptions(data))
            @if !ranked.is_empty() {
                (rules(&ranked, RuleColumns { count: "Let through", has_host: data.scope.host().is_none() }))
            }
        }
    }
}

fn pace(data: &ReportData) -> Markup {
    let sums = &data.totals.sums;
    html! {
        h2 { "How fast websites were asked" }
        @if data.facts.speeds.is_empty() {
            p { "No request is on record as sent." }
        } @else {
            p {
                "Requests waited for their turn: "
                (duration(sums.wait_ms.saturating_mul(1000))) " in all, and "
                (number(sums.later)) @if sums.later == 1 { " was" } @else { " were" } " put off. The usual pause is the one in the middle, \
                 if all pauses between two requests are put in order."
            }
            @if data.scope.host().is_none() { (speed_chart(&data.facts.speeds)) }
            (speeds(data))
        }
    }
}

/// Shows the back-offs: pauses after a 429 or 503.
fn left_alone(data: &ReportData) -> Markup {
    html! {
        h2 { "Which websites asked for less" }
        p {
            "A website that has too much to do answers with 429 or 503 (\u{201c}too many requests\u{201d}, \
             \u{201c}service unavailable\u{201d}). It is then left alone: for as long as it asks, or, \
             if it does not say, for longer each time in a row."
        }
        @if data.back_offs.iter().any(|event| event.kind == "backoff_entered") {
            (back_offs(data))
        } @else {
            p { "No pause after such an answer is on record." }
        }
    }
}

/// Explains the words of the report.
fn words() -> Markup {
    html! {
        (glossary(&[
            (
                "let through",
                "permitted: sent to the website, answered from a copy of its robots.txt, or given \
                 up by the crawler",
            ),
            (
                "refused",
                "answered with an error by politesse; the website never saw it",
            ),
            (
                "put off",
                "not refused, but too early: the crawler was told when to ask again",
            ),
            (
                "withheld",
                "let through, and not passed on to the crawler because of what the response states",
            ),
            (
                "refused by the website",
                "let through, and answered with 401, 402, 403, 451 or a bot challenge",
            ),
        ]))
        p class="small" {
            "One decision in full: " (code("politesse audit show NUMBER")) ". A table: "
            (code("politesse audit stats --by host,rule --csv")) "."
        }
    }
}
