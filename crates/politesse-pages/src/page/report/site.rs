//! Layout of the site's page, for the owner of a host who wants to know which crawlers
//! came. It contains nothing about other hosts, and no client addresses.
//!
//! Does not know how the data was gathered.

use maud::{Markup, html};

use super::common::{how_to_check, report_page, requests_over_time};
use super::completeness::completeness;
use super::enforcement::{enforcement, exceptions};
use super::gathered::ReportData;
use super::tables::{
    RuleColumns, back_offs, crawlers, denials, other_reasons, rules, site_refusals, unknown,
    user_agents, versions,
};
use crate::page::words::{bytes, code, counted, duration, foreign, number, shown};
use crate::page::{Figure, figures};

/// Makes the whole document.
pub(super) fn document(data: &ReportData) -> Markup {
    let host = data.scope.host().unwrap_or_default();
    let title = format!("Who came to {}", shown(host, 80));
    let body = html! {
        (brief(data, host))
        (requests_over_time(data))
        h2 { "Who came" }
        p {
            "The names are those by which your robots.txt can address these crawlers, in a line "
            code { "User-agent:" } "."
        }
        (crawlers(data))
        (user_agents(data))
        (pace(data))
        (refusals(data))
        (denials(data))
        (against_rules(data))
        h2 { "Your robots.txt, as we read it" }
        (versions(data))
        (left_alone(data))
        h2 { "What could not be known" }
        (unknown(data))
        (completeness(data))
        (what_to_do(data))
        (how_to_check(data))
    };
    report_page(data, &title, &body)
}

fn brief(data: &ReportData, host: &str) -> Markup {
    let totals = &data.totals;
    let received = totals.sums.bytes;
    html! {
        p class="lead" {
            "This page is for the owner of " (foreign(host)) ". It says which of our crawlers \
             asked for its pages through the program politesse, when, how often and how fast. \
             Other websites are not part of this page."
        }
        (enforcement(data))
        (figures(&[
            Figure { class: "", count: totals.sums.requests, text: "requests by our crawlers" },
            Figure { class: "sent", count: totals.let_through(), text: "let through to you" },
            Figure { class: "refused", count: totals.sums.refusals, text: "refused: you never saw them" },
            Figure { class: "later", count: totals.sums.later, text: "put off, so as not to hurry you" },
            Figure { class: "withheld", count: totals.sums.withheld, text: "withheld from our crawlers" },
            Figure { class: "site", count: totals.sums.refused_by_site, text: "refused by you" },
        ]))
        p { "Our crawlers received " (bytes(received)) ", without the heads of the answers." }
    }
}

fn pace(data: &ReportData) -> Markup {
    html! {
        h2 { "How fast" }
        @match data.facts.speeds.first() {
            None => p { "No request is on record as sent to you." },
            Some(speed) => p {
                (counted(speed.sent, "request")) " were sent to you"
                @if let Some(pause) = speed.usual_pause_us {
                    ", usually " (duration(pause)) " after the one before"
                }
                ". In the busiest minute there were " (number(speed.busiest_minute))
                ". Requests for your robots.txt come on top."
            },
        }
    }
}

fn refusals(data: &ReportData) -> Markup {
    let ranked = data.ranked(|entry| match entry.ruling.reason.as_str() {
        "rule" => entry.sums.refusals,
        _ => 0,
    });
    html! {
        h2 { "What your rules refused" }
        @if ranked.is_empty() {
            p { "No request was refused by a rule of your robots.txt." }
        } @else {
            p { "These requests were stopped on our side by a line of your robots.txt." }
            (rules(&ranked, RuleColumns { count: "Refused", has_host: false }))
        }
        (other_reasons(data))
        @if 0 < data.totals.sums.refused_by_site {
            p { "These requests you refused yourself, by 401, 402, 403, 451 or a bot challenge:" }
            (site_refusals(data))
        }
    }
}

/// Shows how many requests were sent although a rule disallows them. The owner of the
/// site has a right to know.
fn against_rules(data: &ReportData) -> Markup {
    let ranked = data.ranked(|entry| match entry.ruling.effect.as_str() {
        "overridden" => entry.sums.requests,
        _ => entry.sums.reported,
    });
    html! {
        @if !ranked.is_empty() {
            h2 { "What was let through although it would be refused" }
            p {
                (counted(data.totals.overridden, "request")) " by an exception that our operator \
                 made, and " (counted(data.totals.sums.reported, "request"))
                " while the program noted such requests and did not stop them (report mode)."
            }
            (rules(&ranked, RuleColumns { count: "Let through", has_host: false }))
        }
        @if !data.overrides.uses.is_empty() || 0 < data.overrides.unknown {
            p { "The exceptions of our operator that decided requests:" }
            (exceptions(data))
        }
    }
}

/// Shows the back-offs: pauses after a 429 or 503.
fn left_alone(data: &ReportData) -> Markup {
    html! {
        h2 { "When you asked for less" }
        @if data.back_offs.iter().any(|event| event.kind == "backoff_entered") {
            p { "You answered with 429 or 503, and were left alone for a time." }
            (back_offs(data))
        } @else {
            p {
                "No pause after an answer of yours with 429 or 503 is on record. After such an \
                 answer you are left alone for a time: as long as " code { "Retry-After" } " says, or longer each time \
                 in a row."
            }
        }
    }
}

/// Explains how the owner can slow or stop the crawlers, and whom to ask.
fn what_to_do(data: &ReportData) -> Markup {
    let mut names = data.facts.rulings.iter();
    let first = names.find_map(|entry| entry.ruling.crawler.as_deref());
    let name = shown(first.unwrap_or("*"), 40);
    html! {
        h2 { "What you can do" }
        p { "To be asked more slowly, or not at all, add lines to your robots.txt, such as:" }
        pre { "User-agent: " bdi { (name) } "\nCrawl-delay: 10\nDisallow: /private\n" }
        p {
            "It is read again within a day or so. " code { "Disallow: /" } " alone asks a crawler \
             to stay away from all of your site."
        }
        @if 0 < data.totals.in_report_mode {
            p {
                "In report mode, which the program was in for a time, it keeps the pauses that you \
                 ask for and does not stop what you disallow."
            }
        }
        @match &data.contact {
            Some(contact) => p { "Questions reach us here: " (code(contact)) },
            None => p { "For questions, reply to the person who sent you this page." },
        }
    }
}
