//! Tables of a report: crawlers, rules, speeds, back-offs, and what could not be
//! determined.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::gathered::{RankedRule, ReportData, RuleKey};
use crate::page::charts::{NamedBar, named_chart};
use crate::page::tables::{ReportTable, deciding_line, reason_words};
use crate::page::words::{bytes, code, counted, duration, foreign, minute, number, shown};
use politesse_record::report::{HostSpeed, SiteRefusals};
use politesse_record::robots_versions::RobotsVersion;
use politesse_record::stats::{DecisionSums, StatGroup};

/// Maximum number of bars in the chart of hosts.
const BARS_MAX: usize = 15;

/// Lists the names under which crawlers asked.
pub(super) fn crawlers(data: &ReportData) -> Markup {
    let mut names: BTreeMap<&str, DecisionSums> = BTreeMap::new();
    for entry in &data.facts.rulings {
        let name = entry.ruling.crawler.as_deref().unwrap_or("");
        names.entry(name).or_default().add(&entry.sums);
    }
    let mut names: Vec<_> = names.into_iter().collect();
    // The sort is stable and the map is sorted by name, so equal counts stay in that
    // order and the same record always gives the same report.
    names.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.requests));
    ReportTable::of(names.iter(), "name")
        .text("Name", |(name, _)| {
            html! { @if name.is_empty() { "no name" } @else { (foreign(name)) } }
        })
        .count("Requests", |(_, sums)| sums.requests)
        .count("Refused", |(_, sums)| sums.refusals)
        .count("Put off", |(_, sums)| sums.later)
        .amount("Received", |(_, sums)| bytes(sums.bytes))
        .html()
}

/// Lists the User-Agents that the crawlers sent.
pub(super) fn user_agents(data: &ReportData) -> Markup {
    let mut agents: BTreeMap<Option<&str>, u64> = BTreeMap::new();
    for entry in &data.facts.crawlers {
        let agent = entry.crawler.user_agent.as_deref();
        *agents.entry(agent).or_default() += entry.requests;
    }
    let mut agents: Vec<_> = agents.into_iter().collect();
    // Stable, as for crawlers, so that the same record always gives the same report.
    agents.sort_by_key(|(_, requests)| std::cmp::Reverse(*requests));
    ReportTable::of(agents.iter(), "User-Agent")
        .text("User-Agent, as your log has it", |(agent, _)| {
            html! { @match agent { Some(agent) => (code(agent)), None => "none was sent" } }
        })
        .count("Requests", |(_, requests)| *requests)
        .html()
}

/// Columns of a table of rules.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleColumns {
    /// Heading for the counts.
    pub(super) count: &'static str,
    /// Whether there are several hosts.
    pub(super) has_host: bool,
}

/// Lists rules, each as the line in its file.
pub(super) fn rules(ranked: &[RankedRule], shown: RuleColumns) -> Markup {
    let mut table = ReportTable::of(ranked.iter(), "rule");
    if shown.has_host {
        table = table.text("Website", |ranked| foreign(&ranked.rule.host));
    }
    table
        .text("Line of its robots.txt", |RankedRule { rule, .. }| {
            deciding_line(rule.line, rule.rule.as_deref(), &rule.reason)
        })
        .text("Written for", |ranked| group(&ranked.rule.group))
        .count(shown.count, |ranked| ranked.requests)
        .html()
}

/// Names the crawlers of a robots.txt group.
fn group(group: &[String]) -> Markup {
    html! {
        @if group.iter().any(|agent| agent == "*") { "all crawlers" }
        @else { (foreign(&group.join(", "))) }
    }
}

/// Lists refusals without a rule, by reason.
pub(super) fn other_reasons(data: &ReportData) -> Markup {
    let mut reasons: BTreeMap<&str, ReasonRefusals<'_>> = BTreeMap::new();
    for entry in &data.facts.rulings {
        if entry.ruling.reason != "rule" && 0 < entry.sums.refusals {
            let found = reasons.entry(&entry.ruling.reason).or_default();
            found.refusals += entry.sums.refusals;
            found.hosts.insert(&entry.host);
        }
    }
    // Most reports have no such refusals, and need no empty table.
    if reasons.is_empty() {
        return html! {};
    }
    let rows: Vec<_> = reasons.into_iter().collect();
    let mut table = ReportTable::of(rows.iter(), "reason").text("Why", |(word, _)| {
        html! { (reason_words(word)) }
    });
    if data.scope.host().is_none() {
        table = table.count("Websites", |(_, counted)| counted.hosts.len() as u64);
    }
    html! {
        p { "Other requests were refused without a rule that says so:" }
        (table.count("Refused", |(_, counted)| counted.refusals).html())
    }
}

/// Lists the statements that deny purposes of crawlers, by website.
pub(super) fn denials(data: &ReportData) -> Markup {
    let value = |group: &StatGroup, at: usize| {
        let value = group.values.get(at).cloned().flatten();
        foreign(value.as_deref().unwrap_or_default())
    };
    html! {
        @if !data.facts.denials.is_empty() {
            h2 { "What websites deny by purpose" }
            p {
                "Websites state what their pages may be used for. These statements deny what \
                 crawlers fetched pages for, as the operator declares it. A request with several \
                 denied purposes is counted once for each. Refused pages were never fetched; \
                 withheld ones were fetched, and not given to the crawler."
            }
            (ReportTable::of(data.facts.denials.iter(), "statement")
                .text("Website", |group| value(group, 0))
                .text("Statement", |group| value(group, 1))
                .text("Denies", |group| value(group, 2))
                .count("Requests", |group| group.sums.requests)
                .count("Refused", |group| group.sums.refusals)
                .count("Withheld", |group| group.sums.withheld)
                .html())
        }
    }
}

/// Number of refusals for one reason, and the hosts concerned.
#[derive(Default)]
struct ReasonRefusals<'a> {
    refusals: u64,
    hosts: BTreeSet<&'a str>,
}

/// Lists the hosts that refused requests, with their answers.
pub(super) fn site_refusals(data: &ReportData) -> Markup {
    let answers = |refusals: &SiteRefusals| {
        let answers = refusals.answers.iter();
        let texts = answers.map(|(answer, requests)| format!("{} × {answer}", number(*requests)));
        texts.collect::<Vec<_>>().join(", ")
    };
    ReportTable::of(data.facts.site_refusals.iter(), "website")
        .text("Website", |refusals| foreign(&refusals.host))
        .count("Refused", |refusals| refusals.requests)
        .text("Answers", |refusals| html! { (answers(refusals)) })
        .text("Price", |refusals| {
            html! { @match &refusals.price { Some(price) => (foreign(price)), None => "–" } }
        })
        .html()
}

/// Draws how many requests each host received in its busiest minute.
pub(super) fn speed_chart(speeds: &[HostSpeed]) -> Markup {
    let mut fastest: Vec<_> = speeds.iter().collect();
    // By the busiest minute, not by all requests, because load comes from simultaneous
    // requests.
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
    ReportTable::of(data.facts.speeds.iter(), "website")
        .text("Website", |speed| foreign(&speed.host))
        .count("Requests sent", |speed| speed.sent)
        .count("Most in a minute", |speed| speed.busiest_minute)
        .amount("Usual pause between two", |speed| {
            speed.usual_pause_us.map_or("–".to_owned(), duration)
        })
        .html()
}

/// Lists the back-offs: when, at which host, and for how long.
pub(super) fn back_offs(data: &ReportData) -> Markup {
    let events = |kind: &'static str| {
        data.back_offs
            .iter()
            .filter(move |event| event.kind == kind)
    };
    // The ends of back-offs are events as well. They are left out, since each row has
    // the end of the pause.
    let begun: Vec<_> = events("backoff_entered").collect();
    let released = events("backoff_released").count() as u64;
    let table = ReportTable::of(begun.iter().rev(), "time")
        .time("When", |event| html! { (minute(event.at)) })
        .text("Website", |event| foreign(&event.host))
        .text("Answer", |event| {
            html! { (event.status.map_or("–".to_owned(), |status| status.to_string())) }
        })
        .time("Left alone until", |event| html! { (minute(event.until)) })
        .text("How long", |event| {
            html! {
                @match event.incidents {
                    // Incidents are counted only for answers without `Retry-After`.
                    0 => "as long as it asked",
                    1 => "by our own rule",
                    times => { "by our own rule, time " (number(times)) " in a row" }
                }
            }
        });
    html! {
        (table.html())
        @if 0 < released {
            p { "Our operator ended " (counted(released, "such pause")) " before its time." }
        }
    }
}

/// Lists the hosts whose rules were unknown, and the gaps of the record.
pub(super) fn unknown(data: &ReportData) -> Markup {
    // For all other reasons it is known who refused, the site or the operator.
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
            "decisions were made by another version of the program, and this one would decide differently",
        ),
        (
            sums.form_only,
            "requests were refused for the address they would connect to; there is nothing to decide again",
        ),
    ] {
        // A count of zero is not worth a line.
        if 0 < count {
            facts.push(format!("{} {text}.", number(count)));
        }
    }
    let table = ReportTable::of(ranked.iter(), "website")
        .text("Website", |ranked| foreign(&ranked.rule.host))
        .text("What was not known", |ranked| {
            html! { (reason_words(&ranked.rule.reason)) }
        })
        .count("Requests", |ranked| ranked.requests)
        .count("Let through", |ranked| let_through(data, &ranked.rule));
    html! {
        @if ranked.is_empty() {
            p { "No decision rests on a robots.txt that could not be read." }
        }
        @if !ranked.is_empty() {
            p {
                "If a robots.txt cannot be read, it is not known what the owner wants."
            }
            (table.html())
        }
        @if !facts.is_empty() { ul { @for fact in &facts { li { (fact) } } } }
    }
}

/// Counts the requests decided for the reason of `rule` that were neither refused nor
/// put off: report mode or an override let them through.
fn let_through(data: &ReportData, rule: &RuleKey) -> u64 {
    let ranked = data.ranked(|entry| entry.sums.let_through());
    let found = ranked.iter().find(|ranked| ranked.rule == *rule);
    found.map_or(0, |found| found.requests)
}

/// Lists the versions of the robots.txt of a host.
pub(super) fn versions(data: &ReportData) -> Markup {
    ReportTable::of(data.versions.iter().rev(), "version")
        .time("Read", |version| {
            let fetched_at = version.snapshot.fetched_at;
            html! {
                (minute(fetched_at))
                @if fetched_at != version.last_seen { br; "to " (minute(version.last_seen)) }
            }
        })
        .text("At", |version| {
            html! {
                (foreign(&version.origin))
                @if let Some(token) = &version.snapshot.token { br; "as " (foreign(token)) }
            }
        })
        .text("Answer", |RobotsVersion { snapshot, .. }| {
            html! {
                (answer(snapshot.status, &snapshot.result))
                @if let Some(sha256) = snapshot.sha256 {
                    br; "SHA-256 " code { (shown(&sha256.to_string(), 16)) }
                }
            }
        })
        .count("Decided in all", |version| {
            version.decided.iter().map(|count| count.requests).sum()
        })
        .html()
}

/// Describes the response to a fetch of a robots.txt.
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
