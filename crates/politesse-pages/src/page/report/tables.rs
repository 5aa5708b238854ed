//! Tables of a report: crawlers, rules, speeds, back-offs, and what could not be
//! known.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::gathered::{RankedRule, ReportData, RuleKey};
use crate::page::charts::{NamedBar, named_chart};
use crate::page::words::{bytes, code, counted, duration, foreign, minute, number, shown};
use politesse_record::report::HostSpeed;
use politesse_record::stats::DecisionSums;

/// Rows of a table; the others are counted.
pub(super) const ROWS_MAX: usize = 25;

/// Bars of the chart of hosts.
const BARS_MAX: usize = 15;

/// Says how many rows a table leaves out.
pub(super) fn left_out(all: usize, what: &str) -> Markup {
    let left = all.saturating_sub(ROWS_MAX) as u64;
    html! {
        @if 0 < left { p class="small" { "and " (counted(left, what)) " more." } }
    }
}

/// Lists the names under which crawlers asked.
pub(super) fn crawlers(data: &ReportData) -> Markup {
    let mut names: BTreeMap<&str, DecisionSums> = BTreeMap::new();
    for entry in &data.facts.rulings {
        let name = entry.ruling.crawler.as_deref().unwrap_or("");
        names.entry(name).or_default().add(&entry.sums);
    }
    let mut names: Vec<_> = names.into_iter().collect();
    // The sort is stable and the map is sorted by name: equal counts stay in that order,
    // so that the same record always gives the same report.
    names.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.requests));
    html! {
        table {
            thead { tr {
                th { "Name" } th class="n" { "Requests" } th class="n" { "Refused" }
                th class="n" { "Put off" } th class="n" { "Received" }
            } }
            tbody {
                @for (name, sums) in names.iter().take(ROWS_MAX) {
                    tr {
                        td { @if name.is_empty() { "no name" } @else { (foreign(name)) } }
                        td class="n" { (number(sums.requests)) }
                        td class="n" { (number(sums.refusals)) }
                        td class="n" { (number(sums.later)) }
                        td class="n" { (bytes(sums.bytes)) }
                    }
                }
            }
        }
        (left_out(names.len(), "name"))
    }
}

/// Lists what the crawlers sent as their User-Agent.
pub(super) fn user_agents(data: &ReportData) -> Markup {
    let mut agents: BTreeMap<Option<&str>, u64> = BTreeMap::new();
    for entry in &data.facts.crawlers {
        let agent = entry.crawler.user_agent.as_deref();
        *agents.entry(agent).or_default() += entry.requests;
    }
    let mut agents: Vec<_> = agents.into_iter().collect();
    // Stable, as for crawlers: the same record always gives the same report.
    agents.sort_by_key(|(_, requests)| std::cmp::Reverse(*requests));
    html! {
        table {
            thead { tr { th { "User-Agent, as your log has it" } th class="n" { "Requests" } } }
            tbody {
                @for (agent, requests) in agents.iter().take(ROWS_MAX) {
                    tr {
                        td { @match agent { Some(agent) => (code(agent)), None => "none was sent" } }
                        td class="n" { (number(*requests)) }
                    }
                }
            }
        }
        (left_out(agents.len(), "User-Agent"))
    }
}

/// Columns of a table of rules.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleColumns {
    /// Title of the counts.
    pub(super) count: &'static str,
    /// Whether there are several hosts.
    pub(super) has_host: bool,
}

/// Lists rules, each as its line of the file.
pub(super) fn rules(ranked: &[RankedRule], columns: RuleColumns) -> Markup {
    html! {
        table {
            thead { tr {
                @if columns.has_host { th { "Website" } }
                th { "Line of its robots.txt" } th { "Written for" } th class="n" { (columns.count) }
            } }
            tbody {
                @for RankedRule { rule, requests } in ranked.iter().take(ROWS_MAX) {
                    tr {
                        @if columns.has_host { td { (foreign(&rule.host)) } }
                        td {
                            @match (rule.line, &rule.rule) {
                                (Some(line), Some(text)) => { (line) ": " (code(text)) }
                                _ => (reason(&rule.reason)),
                            }
                        }
                        td { (group(&rule.group)) }
                        td class="n" { (number(*requests)) }
                    }
                }
            }
        }
        (left_out(ranked.len(), "rule"))
    }
}

fn group(group: &[String]) -> Markup {
    html! {
        @if group.iter().any(|agent| agent == "*") { "all crawlers" }
        @else { (foreign(&group.join(", "))) }
    }
}

/// Lists what was refused for other reasons than a rule, by reason.
pub(super) fn other_reasons(data: &ReportData) -> Markup {
    let mut reasons: BTreeMap<&str, (u64, Vec<&str>)> = BTreeMap::new();
    for entry in &data.facts.rulings {
        if entry.ruling.reason != "rule" && 0 < entry.sums.refusals {
            let found = reasons.entry(&entry.ruling.reason).or_default();
            found.0 += entry.sums.refusals;
            found.1.push(&entry.host);
        }
    }
    // Most reports have no such request, and need no empty table.
    if reasons.is_empty() {
        return html! {};
    }
    html! {
        p { "Other requests were refused without a rule that says so:" }
        table {
            thead { tr {
                th { "Why" } @if data.scope.host().is_none() { th class="n" { "Websites" } }
                th class="n" { "Refused" }
            } }
            tbody {
                @for (word, (requests, hosts)) in &mut reasons {
                    tr {
                        td { (reason(word)) }
                        @if data.scope.host().is_none() { td class="n" { (number(distinct(hosts))) } }
                        td class="n" { (number(*requests)) }
                    }
                }
            }
        }
    }
}

fn distinct(hosts: &mut Vec<&str>) -> u64 {
    hosts.sort_unstable();
    hosts.dedup();
    hosts.len() as u64
}

/// Explains the word of a reason to people.
fn reason(word: &str) -> &'static str {
    match word {
        "unreachable" => "The robots.txt could not be read",
        "restricted" => "The website keeps its robots.txt from us (status 401 or 403)",
        "undecided" => "The robots.txt is made so that its rules take too long to try",
        "override" => "Our operator does not want it fetched",
        "egress" => "An address or port that our crawlers may not connect to",
        "identity" => "A client used the name of another one of our crawlers",
        "rule" => "A rule of the robots.txt",
        _ => "Another reason",
    }
}

/// Draws how many requests each host got in its busiest minute.
pub(super) fn speed_chart(speeds: &[HostSpeed]) -> Markup {
    let mut fastest: Vec<_> = speeds.iter().collect();
    // By the busiest minute, not by all requests: load comes from requests at one time.
    fastest.sort_by_key(|speed| std::cmp::Reverse(speed.busiest_minute));
    let bar = |speed: &&HostSpeed| NamedBar {
        name: speed.host.to_string(),
        count: speed.busiest_minute,
        note: match speed.usual_pause_us {
            Some(pause) => format!(
                "{} in a minute, pause {}",
                number(speed.busiest_minute),
                duration(pause)
            ),
            None => format!("{} in a minute", number(speed.busiest_minute)),
        },
    };
    let bars: Vec<_> = fastest.iter().take(BARS_MAX).map(bar).collect();
    html! {
        @if !bars.is_empty() {
            (named_chart("Most requests to a website within a minute", "sent", &bars))
        }
    }
}

/// Lists for each host the most requests in a minute, and the usual pause.
pub(super) fn speeds(data: &ReportData) -> Markup {
    let speeds = &data.facts.speeds;
    html! {
        table {
            thead { tr {
                th { "Website" } th class="n" { "Requests sent" }
                th class="n" { "Most in a minute" } th class="n" { "Usual pause between two" }
            } }
            tbody {
                @for speed in speeds.iter().take(ROWS_MAX) {
                    tr {
                        td { (foreign(&speed.host)) }
                        td class="n" { (number(speed.sent)) }
                        td class="n" { (number(speed.busiest_minute)) }
                        td class="n" { (speed.usual_pause_us.map_or("–".to_owned(), duration)) }
                    }
                }
            }
        }
        (left_out(speeds.len(), "website"))
    }
}

/// Lists the back-offs: when, at which host, and for how long.
pub(super) fn back_offs(data: &ReportData) -> Markup {
    let events = |kind: &'static str| {
        data.back_offs
            .iter()
            .filter(move |event| event.kind == kind)
    };
    // The ends of back-offs are events, too. They are left out, since each row has the
    // time until which the host is left alone.
    let begun: Vec<_> = events("backoff_entered").collect();
    let released = events("backoff_released").count() as u64;
    html! {
        table {
            thead { tr {
                th { "When" } th { "Website" } th { "Answer" }
                th { "Left alone until" } th { "How long" }
            } }
            tbody {
                @for event in begun.iter().rev().take(ROWS_MAX) {
                    tr {
                        td class="t" { (minute(event.at)) }
                        td { (foreign(&event.host)) }
                        td { (event.status.map_or("–".to_owned(), |status| status.to_string())) }
                        td class="t" { (minute(event.until)) }
                        td {
                            @match event.incidents {
                                // Incidents are counted for answers without
                                // `Retry-After` only.
                                0 => "as long as it asked",
                                1 => "by our own rule",
                                times => { "by our own rule, time " (number(times)) " in a row" }
                            }
                        }
                    }
                }
            }
        }
        (left_out(begun.len(), "time"))
        @if 0 < released {
            p { "Our operator ended " (counted(released, "such pause")) " before its time." }
        }
    }
}

/// Lists the hosts whose rules were not known, and what the record does not have.
pub(super) fn unknown(data: &ReportData) -> Markup {
    // For all other reasons it is known who refused: the site or the operator.
    let is_unknown = |word: &str| matches!(word, "unreachable" | "undecided");
    let ranked = data.ranked(|entry| {
        let DecisionSums { requests, .. } = entry.sums;
        if is_unknown(&entry.ruling.reason) {
            requests
        } else {
            0
        }
    });
    let sums = &data.check.sums;
    let mut facts = Vec::new();
    for (count, text) in [
        (
            sums.query_withheld,
            "decisions may rest on a part of the address that is not kept on record",
        ),
        (
            sums.other_revision,
            "decisions were made by another version of the program, and this one would decide otherwise",
        ),
        (
            sums.form_only,
            "requests were refused for the address they would connect to; there is nothing to decide once more",
        ),
    ] {
        // A count of zero is not worth a line.
        if 0 < count {
            facts.push(format!("{} {text}.", number(count)));
        }
    }
    html! {
        @if ranked.is_empty() {
            p { "No decision rests on a robots.txt that could not be read." }
        }
        @if !ranked.is_empty() {
            p {
                "Where a robots.txt cannot be read it is not known what the owner wants."
            }
            table {
                thead { tr {
                    th { "Website" } th { "What was not known" }
                    th class="n" { "Requests" } th class="n" { "Let through" }
                } }
                tbody {
                    @for RankedRule { rule, requests } in ranked.iter().take(ROWS_MAX) {
                        tr {
                            td { (foreign(&rule.host)) }
                            td { (reason(&rule.reason)) }
                            td class="n" { (number(*requests)) }
                            td class="n" { (number(let_through(data, rule))) }
                        }
                    }
                }
            }
            (left_out(ranked.len(), "website"))
        }
        @if !facts.is_empty() { ul { @for fact in &facts { li { (fact) } } } }
    }
}

/// Counts the requests decided for the reason of `rule` that were neither refused nor put
/// off: report mode, or an override, let them through.
fn let_through(data: &ReportData, rule: &RuleKey) -> u64 {
    let ranked = data.ranked(|entry| entry.sums.let_through());
    let found = ranked.iter().find(|ranked| ranked.rule == *rule);
    found.map_or(0, |found| found.requests)
}

/// Lists the versions of the robots.txt of a host.
pub(super) fn versions(data: &ReportData) -> Markup {
    html! {
        table {
            thead { tr {
                th { "Read" } th { "At" } th { "Answer" } th class="n" { "Decided in all" }
            } }
            tbody {
                @for version in data.versions.iter().rev().take(ROWS_MAX) {
                    @let snapshot = &version.snapshot;
                    @let decided = version.decided.iter().map(|count| count.requests).sum();
                    tr {
                        td class="t" {
                            (minute(snapshot.fetched_at))
                            @if snapshot.fetched_at != version.last_seen {
                                br; "to " (minute(version.last_seen))
                            }
                        }
                        td {
                            (foreign(&version.origin))
                            @if let Some(token) = &snapshot.token { br; "as " (foreign(token)) }
                        }
                        td {
                            (answer(snapshot.status, &snapshot.result))
                            @if let Some(sha256) = snapshot.sha256 {
                                br; "SHA-256 " code { (shown(&sha256.to_string(), 16)) }
                            }
                        }
                        td class="n" { (number(decided)) }
                    }
                }
            }
        }
        (left_out(data.versions.len(), "version"))
    }
}

/// Explains the answer to a fetch of a robots.txt.
fn answer(status: Option<u16>, result: &str) -> String {
    let meaning = match result {
        "successful" => "the file was read",
        "unavailable" => "there is no file to read",
        _ => "it could not be read",
    };
    match status {
        Some(status) => format!("{status}: {meaning}"),
        None => format!("No answer: {meaning}"),
    }
}
