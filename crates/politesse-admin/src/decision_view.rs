//! Decisions on pages: a row in the table of decisions, and an explanation with the
//! robots.txt.
//!
//! Does not know which decisions are shown.

use maud::{Markup, html};

use super::filter_query::{DecisionQuery, RecordScope};
use super::layout::time;
use super::robots_view::{LineMark, robots_excerpt, robots_lines};
use politesse_base::inert::inert;
use politesse_decision::class::DecisionClass;
use politesse_decision::record::{StoredRecord, StoredRuling};
use politesse_pages::explain::Explanation;
use politesse_pages::explain::facts::{Facts, sentence};
use politesse_pages::page::charts::ChartPart;
use politesse_pages::page::words::{breakable, code, duration, foreign, shown};
use politesse_record::filter::RulePattern;

/// Maximum number of characters of a URL in a row; the decision's own page shows the
/// whole URL.
const URL_MAX: usize = 200;
/// Maximum number of bytes of a rule in a link.
const LINKED_RULE_MAX: usize = 512;

/// Shows a verdict with a sign and a word besides its colour (WCAG 2.2, 1.4.1).
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

/// Shows the class of a decision, with its colour, if the verdict does not imply it: a
/// site may refuse a request that robots.txt allows.
fn class_mark(record: &StoredRecord) -> Markup {
    let class = DecisionClass::of_record(record);
    let ChartPart {
        name,
        class: colour,
    } = ChartPart::of_class(class);
    html! {
        @if !matches!(class, DecisionClass::Sent | DecisionClass::Rule) {
            " " span class="small mark" {
                svg class="key" viewBox="0 0 10 10" aria-hidden="true" {
                    rect class=(colour) width="10" height="10" {}
                }
                (name)
            }
        }
    }
}

/// Shows a decision in one sentence. `page` is the address of the page with the
/// robots.txt; empty on that page itself.
pub(super) fn answer(explanation: &Explanation, page: &str) -> Markup {
    let ruling = &explanation.record.ruling;
    let class = match ruling.verdict.as_str() {
        "allow" => "answer allow",
        "disallow" => "answer disallow",
        "later" => "answer later",
        _ => "answer",
    };
    html! {
        p class=(class) role="status" {
            (verdict_mark(ruling)) (class_mark(&explanation.record)) " "
            bdi { (inert(&sentence(&explanation.record))) }
            @if let Some(line) = ruling.line {
                " · " a href=(format!("{page}#L{line}")) { "the line that decided" }
            }
        }
    }
}

/// Shows the facts about a decision, and its robots.txt with marks at the line that
/// decided and at the lines it outranks.
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
            note: html! { span class="small" { "◁ matches, but has no effect: " (why) } },
        })
    });
    // If a line has two marks, the first is shown.
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

/// Shows the facts about a decision, and the lines around the one that decided, for
/// display below the decision's row. `page` is the address of its page.
pub(super) fn facts_and_line(explanation: &Explanation, page: &str) -> Markup {
    html! {
        (Facts::of(explanation).html())
        @if let (Some(robots), Some(line)) = (explanation.robots(), explanation.record.ruling.line) {
            (robots_excerpt(robots, line, page))
        }
    }
}

/// Returns the address of a decision. `part` is appended to its number in the path;
/// `base` is the path below which the pages are.
pub(super) fn decision_address(base: &str, record: &StoredRecord, part: &str) -> String {
    let path = format!("{base}/decisions/{}{part}", record.seq);
    match &record.node {
        None => path,
        Some(node) => rows_of(record).with("node", node).behind(&path),
    }
}

/// Begins a query for decisions in the records that `record` comes from.
pub(super) fn rows_of(record: &StoredRecord) -> DecisionQuery {
    let scope = match record.node {
        Some(_) => RecordScope::Archive,
        None => RecordScope::Node,
    };
    DecisionQuery::default().in_scope(scope)
}

/// Makes the row of a decision. `base` is the path below which the pages are.
pub(super) fn decision_row(base: &str, record: &StoredRecord) -> Markup {
    let ruling = &record.ruling;
    let story = decision_address(base, record, "");
    let crawler = ruling.crawler.as_deref().unwrap_or("*");
    let crawlers = DecisionQuery::default()
        .with("crawler", crawler)
        .behind("/crawlers");
    html! {
        tr {
            th scope="row" class="t" {
                button type="button" data-part=(decision_address(base, record, "/part")) data-scripted hidden
                    aria-expanded="false" aria-label=(format!("Facts of decision {}", record.seq)) {
                    span aria-hidden="true" { "▸" }
                }
                a href=(story) { (time(record.at)) }
            }
            @if let Some(node) = &record.node { td data-label="node" { (foreign(node)) } }
            td data-label="verdict" { (verdict_mark(ruling)) (class_mark(record)) }
            td data-label="reason" { (foreign(&ruling.reason)) }
            td data-label="crawler" {
                a href=(format!("{base}{crawlers}")) { (foreign(crawler)) }
            }
            td class="u" data-label="request" {
                (foreign(&record.method)) " " bdi { (breakable(&shown(&record.url, URL_MAX))) }
            }
            td data-label="rule" {
                @if let Some(line) = ruling.line {
                    a href=(format!("{story}#L{line}")) { "line " (line) } " "
                }
                @if let Some(rule) = &ruling.rule { (rule_link(base, record, rule)) }
            }
            td class="n" data-label="status" {
                @match record.status {
                    Some(status) => { (status) }
                    None => { "–" }
                }
                @if let Some(error) = &record.error { " " (foreign(error)) }
            }
            td class="n" data-label="wait" {
                @if record.wait_ms == 0 { "–" } @else {
                    (duration(record.wait_ms.saturating_mul(1000)))
                }
            }
        }
    }
}

/// Shows a rule with a link to the decisions made by it.
fn rule_link(base: &str, record: &StoredRecord, rule: &str) -> Markup {
    // A statement of a TDM file is not a rule, and a hostile rule of several kilobytes
    // would double the size of each row.
    let is_filter = rule.len() <= LINKED_RULE_MAX && rule.parse::<RulePattern>().is_ok();
    let rows = rows_of(record).with("rule", rule).behind("/decisions");
    html! {
        @if is_filter { a href=(format!("{base}{rows}")) { (code(rule)) } } @else { (code(rule)) }
    }
}
