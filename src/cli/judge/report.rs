//! Reports of judged requests: counts in columns for users, as JSON and as CSV.
//!
//! Does not know how requests are judged.

use std::io::{self, Write as _};

use serde_json::{Value, json};

use super::counts::{
    CountedKey, DisallowedSample, DisallowingRule, JudgeCounts, JudgedGroup, RuleLine, UnreadPart,
    VerdictCounts, unknown_sentence,
};
use super::outcome::PastVerdict;
use super::purposes::PurposeCounts;
use crate::cli::audit::rows::{RowForm, RowLayout, RowWriter, write_json};
use crate::cli::output::columns;
use politesse_base::inert::inert;

/// CSV columns of the groups.
const GROUP_COLUMNS: [&str; 7] = [
    "host", "crawler", "verdict", "reason", "line", "rule", "requests",
];

/// Prints the counts in `form`. A table in columns has at most `limit` rows; 0 means
/// all.
///
/// # Errors
///
/// Any error of writing to stdout.
pub(super) fn print_counts(counts: &JudgeCounts, form: RowForm, limit: usize) -> io::Result<()> {
    match form {
        RowForm::Json => write_json(&mut io::stdout().lock(), &json(counts)),
        RowForm::Csv => print_groups(counts),
        RowForm::Columns => io::stdout()
            .lock()
            .write_all(text(counts, limit).as_bytes()),
    }
}

fn print_groups(counts: &JudgeCounts) -> io::Result<()> {
    let layout = RowLayout {
        header: String::new(),
        columns: GROUP_COLUMNS.to_vec(),
    };
    let mut rows = RowWriter::new(RowForm::Csv, layout);
    for (group, requests) in &counts.groups {
        rows.row(|| group_json(group, *requests), String::new)?;
    }
    rows.end()
}

fn group_json(group: &JudgedGroup, requests: u64) -> Value {
    json!({
        "host": group.host,
        "crawler": group.crawler_names(),
        "verdict": group.verdict.as_str(),
        "reason": group.reason,
        "line": group.rule.as_ref().map(|rule| rule.line),
        "rule": group.rule.as_ref().map(|rule| &rule.text),
        "requests": requests,
    })
}

/// Builds the report for programs: one object, with all groups.
fn json(counts: &JudgeCounts) -> Value {
    let groups = counts.groups.iter();
    let hosts = counts.by(|group| group.host.clone());
    let crawlers = counts.by_crawler();
    json!({
        "files": counts.files,
        "agents": counts.agents,
        "from": counts.from.map(|at| at.to_string()),
        "until": counts.until.map(|at| at.to_string()),
        "requests": counts.totals.all(),
        "disallowed": counts.totals.disallowed,
        "unknown": counts.totals.unknown,
        "allowed": counts.totals.allowed,
        "overridden": counts.overridden,
        "old_robots": counts.old_robots,
        "unread": counts.unread,
        "unread_parts": counts.unread_parts.iter().map(unread_json).collect::<Vec<_>>(),
        "hosts": hosts.iter().map(|row| counted_json("host", row)).collect::<Vec<_>>(),
        "crawlers": crawlers.iter().map(|row| counted_json("crawler", row)).collect::<Vec<_>>(),
        "groups": groups.map(|(group, requests)| group_json(group, *requests)).collect::<Vec<_>>(),
        "ungrouped": counts.ungrouped.all(),
        "purposes": purposes_json(&counts.purposes),
        "samples": counts.samples.iter().map(sample_json).collect::<Vec<_>>(),
    })
}

fn counted_json(name: &str, row: &CountedKey<String>) -> Value {
    json!({
        name: row.key,
        "disallowed": row.counts.disallowed,
        "unknown": row.counts.unknown,
        "allowed": row.counts.allowed,
    })
}

fn unread_json(part: &UnreadPart) -> Value {
    json!({ "file": part.file, "place": part.place, "cause": part.cause })
}

fn sample_json(sample: &DisallowedSample) -> Value {
    json!({
        "time": sample.at.map(|at| at.to_string()),
        "url": sample.url,
        "crawler": sample.group.crawler_names(),
        "reason": sample.group.reason,
        "line": sample.group.rule.as_ref().map(|rule| rule.line),
        "rule": sample.group.rule.as_ref().map(|rule| &rule.text),
    })
}

/// Builds the object about purposes; `null` if none were given.
fn purposes_json(counts: &PurposeCounts) -> Value {
    if counts.purposes.is_empty() {
        return Value::Null;
    }
    let stated = counts.by_pages().into_iter().map(|(denial, pages)| {
        json!({
            "host": denial.host,
            "purpose": denial.purpose,
            "statement": denial.statement,
            "places": denial.places,
            "pages": pages,
        })
    });
    let samples = counts.samples.iter().map(|sample| {
        json!({
            "time": sample.at.map(|at| at.to_string()),
            "url": sample.url,
            "denials": sample.denials,
        })
    });
    json!({
        "purposes": counts.purposes,
        "pages": counts.pages,
        "denied": counts.denied,
        "unseen": counts.unseen,
        "partial": counts.partial,
        "stated": stated.collect::<Vec<_>>(),
        "uncounted": counts.uncounted,
        "samples": samples.collect::<Vec<_>>(),
    })
}

/// Builds the report for users.
fn text(counts: &JudgeCounts, limit: usize) -> String {
    let VerdictCounts {
        allowed,
        disallowed,
        unknown,
    } = counts.totals;
    let files = if counts.files == 1 { "file" } else { "files" };
    let mut text = format!(
        "{} requests of {} {files}",
        counts.totals.all(),
        counts.files
    );
    if let (Some(from), Some(until)) = (counts.from, counts.until) {
        text.push_str(&format!(", {from:.0} to {until:.0}"));
    }
    let for_whom = match counts.agents.as_slice() {
        [] => String::new(),
        agents => format!(" for any of {}", agents.join(", ")),
    };
    text.push_str(&format!(
        "\n  {disallowed} disallowed{for_whom}\n  {unknown} unknown\n  {allowed} allowed\n"
    ));
    // Without a request the tables would consist of titles only.
    if counts.totals.all() == 0 {
        text.push_str(&notes(counts));
        return text;
    }
    let hosts = counts.by(|group| group.host.clone());
    let crawlers = counts.by_crawler();
    text.push_str(&verdict_table("HOST", &hosts, limit));
    text.push_str(&verdict_table("CRAWLER", &crawlers, limit));
    text.push_str(&rule_table(counts, limit));
    text.push_str(&unknown_lines(counts));
    text.push_str(&samples(counts, limit));
    text.push_str(&denied_pages(&counts.purposes, limit));
    text.push_str(&notes(counts));
    text
}

fn verdict_table(title: &str, rows: &[CountedKey<String>], limit: usize) -> String {
    let cells: Vec<_> = shown(rows, limit)
        .iter()
        .map(|row| {
            let VerdictCounts {
                allowed,
                disallowed,
                unknown,
            } = row.counts;
            let numbers = [disallowed, unknown, allowed].map(|number| number.to_string());
            let [disallowed, unknown, allowed] = numbers;
            [inert(&row.key), disallowed, unknown, allowed]
        })
        .collect();
    let table = columns([title, "DISALLOWED", "NOT KNOWN", "ALLOWED"], &cells);
    format!("\n{table}{}", left_out(rows.len(), limit))
}

/// Lists the rules that disallowed requests.
fn rule_table(counts: &JudgeCounts, limit: usize) -> String {
    let rules = counts.by_rule();
    if rules.is_empty() {
        return String::new();
    }
    let cells: Vec<_> = shown(&rules, limit)
        .iter()
        .map(|row| {
            let DisallowingRule {
                host,
                rule,
                reason,
                agents,
            } = &row.key;
            let by = rule.as_ref();
            let for_whom = agents.as_ref().map(|names| format!(" ({})", inert(names)));
            [
                inert(host.as_deref().unwrap_or("-")),
                row.counts.disallowed.to_string(),
                by.map_or_else(|| (*reason).to_owned(), rule_text) + &for_whom.unwrap_or_default(),
            ]
        })
        .collect();
    let table = columns(["HOST", "DISALLOWED", "BY"], &cells);
    format!("\n{table}{}", left_out(rules.len(), limit))
}

fn rule_text(rule: &RuleLine) -> String {
    format!("line {}: {}", rule.line, inert(&rule.text))
}

fn unknown_lines(counts: &JudgeCounts) -> String {
    // One sentence per cause, because the remedies differ.
    let causes = counts.by(|group| (group.verdict == PastVerdict::Unknown).then_some(group.reason));
    let lines = causes.iter().map(|row| {
        let (number, reason) = (row.counts.unknown, row.key);
        format!("  {number} {reason}: {}\n", unknown_sentence(reason))
    });
    let list: String = lines.collect();
    if list.is_empty() {
        return list;
    }
    format!("\nUnknown:\n{list}")
}

fn samples(counts: &JudgeCounts, limit: usize) -> String {
    let lines = shown(&counts.samples, limit).iter().map(|sample| {
        let at = sample.at.map_or_else(String::new, |at| format!("{at:.0} "));
        let group = &sample.group;
        let crawler = group.crawler_names();
        let name = crawler.as_deref().unwrap_or("-");
        let rule = group.rule.as_ref();
        let by = rule.map_or_else(|| group.reason.to_owned(), rule_text);
        format!("  {at}{} {} ({by})\n", inert(name), inert(&sample.url))
    });
    let list: String = lines.collect();
    if list.is_empty() {
        return list;
    }
    format!("\nThe first disallowed requests:\n{list}")
}

/// Lists the pages denied for purposes, by statement and host.
fn denied_pages(counts: &PurposeCounts, limit: usize) -> String {
    if counts.purposes.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n{} of {} pages denied for {}\n",
        counts.denied,
        counts.pages,
        counts.names()
    );
    let rows = counts.by_pages();
    let cells: Vec<_> = shown(&rows, limit)
        .iter()
        .map(|(denial, pages)| {
            let by = format!("{} ({})", denial.statement, denial.places);
            [
                inert(&denial.host),
                pages.to_string(),
                denial.purpose.to_string(),
                by,
            ]
        })
        .collect();
    if !rows.is_empty() {
        let table = columns(["HOST", "PAGES", "PURPOSE", "DENIED BY"], &cells);
        text.push_str(&format!("\n{table}{}", left_out(rows.len(), limit)));
    }
    let samples = shown(&counts.samples, limit);
    if !samples.is_empty() {
        text.push_str("\nThe first denied pages:\n");
    }
    for sample in samples {
        let at = sample.at.map_or_else(String::new, |at| format!("{at:.0} "));
        text.push_str(&format!(
            "  {at}{} {}\n",
            inert(&sample.url),
            sample.denials
        ));
    }
    text
}

/// Lists the limits of the counts: old robots.txt files, and parts that were not read.
fn notes(counts: &JudgeCounts) -> String {
    let mut text = String::new();
    if 0 < counts.overridden {
        text.push_str(&format!(
            "\n{} of the allowed requests were disallowed by robots.txt, and are allowed by \
             robots.override.\n",
            counts.overridden
        ));
    }
    for limit in counts.limits() {
        text.push_str(&format!("\n{}\n", inert(&limit)));
    }
    text
}

fn shown<T>(rows: &[T], limit: usize) -> &[T] {
    match limit {
        0 => rows,
        limit => &rows[..rows.len().min(limit)],
    }
}

fn left_out(rows: usize, limit: usize) -> String {
    match rows.checked_sub(limit) {
        Some(left) if limit != 0 && left != 0 => format!("{left} more; --limit 0 shows all\n"),
        _ => String::new(),
    }
}
