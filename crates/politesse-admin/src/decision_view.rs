//! Decisions on pages: a row in the table of decisions, and an explanation with the
//! robots.txt.
//!
//! Does not know which decisions are shown.

use maud::{Markup, html};

use super::layout::time;
use super::robots_view::{LineMark, robots_lines};
use politesse_base::inert::inert;
use politesse_decision::record::{StoredRecord, StoredRuling};
use politesse_pages::explain::Explanation;
use politesse_pages::explain::facts::{Facts, sentence};
use politesse_pages::page::words::{breakable, code, duration, foreign, shown};

/// Characters of a URL in a row; the page of the decision has all.
const URL_MAX: usize = 200;

/// Shows a verdict: by a sign and a word beside its colour (WCAG 2.2, 1.4.1).
pub(super) fn verdict_mark(ruling: &StoredRuling) -> Markup {
    let (class, sign) = match ruling.verdict.as_str() {
        "allow" => ("verdict allow", "✓"),
        "disallow" => ("verdict disallow", "✕"),
        "later" => ("verdict later", "◷"),
        _ => ("verdict", "?"),
    };
    html! {
        span class=(class) { span aria-hidden="true" { (sign) } " " bdi { (ruling.verdict) } }
        @if ruling.effect != "enforced" { " " span class="small" { bdi { (ruling.effect) } } }
    }
}

/// Shows a decision in one sentence.
pub(super) fn answer(explanation: &Explanation) -> Markup {
    let ruling = &explanation.record.ruling;
    let class = match ruling.verdict.as_str() {
        "allow" => "answer allow",
        "disallow" => "answer disallow",
        "later" => "answer later",
        _ => "answer",
    };
    html! {
        p class=(class) role="status" {
            (verdict_mark(ruling)) " " bdi { (inert(&sentence(&explanation.record))) }
            @if let Some(line) = ruling.line {
                " · " a href=(format!("#L{line}")) { "the line that decided" }
            }
        }
    }
}

/// Shows the facts about a decision, and its robots.txt with the line that decided and
/// those that it outranks.
pub(super) fn facts_and_file(explanation: &Explanation) -> Markup {
    let ruling = &explanation.record.ruling;
    let decided = ruling.line.iter().map(|line| LineMark {
        line: *line,
        note: html! { b { "◀ decided" } },
    });
    let competing = explanation.competing().into_iter();
    let outranked = competing.filter_map(|other| {
        let why = other.why?;
        Some(LineMark {
            line: other.rule.line(),
            note: html! { span class="small" { "◁ matches, but does not count: " (why) } },
        })
    });
    // Of two marks at a line the first is shown.
    let marks: Vec<LineMark> = decided.chain(outranked).collect();
    html! {
        h2 { "Facts" }
        (Facts::of(explanation).html())
        @if let Some(robots) = explanation.robots() {
            h2 { "robots.txt" }
            (robots_lines(robots, &marks))
        }
    }
}

/// Makes the row of a decision; `base` is the path below which the pages are.
pub(super) fn decision_row(base: &str, record: &StoredRecord) -> Markup {
    let ruling = &record.ruling;
    let story = match &record.node {
        None => format!("{base}/decisions/{}", record.seq),
        Some(node) => {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("of", "archive")
                .append_pair("node", node)
                .finish();
            format!("{base}/decisions/{}?{query}", record.seq)
        }
    };
    html! {
        tr {
            th scope="row" class="t" { a href=(story) { (time(record.at)) } }
            @if let Some(node) = &record.node { td { (foreign(node)) } }
            td { (verdict_mark(ruling)) }
            td { (foreign(&ruling.reason)) }
            td { (foreign(ruling.crawler.as_deref().unwrap_or("*"))) }
            td class="u" { (foreign(&record.method)) " " bdi { (breakable(&shown(&record.url, URL_MAX))) } }
            td {
                @if let Some(line) = ruling.line {
                    a href=(format!("{story}#L{line}")) { "line " (line) } " "
                }
                @if let Some(rule) = &ruling.rule { (code(rule)) }
            }
            td class="n" {
                @match record.status {
                    Some(status) => { (status) }
                    None => { "–" }
                }
                @if let Some(error) = &record.error { " " (foreign(error)) }
            }
            td class="n" {
                @if record.wait_ms == 0 { "–" } @else {
                    (duration(record.wait_ms.saturating_mul(1000)))
                }
            }
        }
    }
}
