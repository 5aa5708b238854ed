//! What a person gets to know of a decision: the file's author, who wants to see
//! which line did it and what to change.

use super::explained::{Bound, Competing, Explained};
use crate::cli::inert::inert;
use crate::decision::access::Cause;
use crate::decision::decide::{Candidates, Reason};
use crate::decision::overrides::{Action, Override};
use crate::decision::snapshot::{AccessResult, Snapshot};
use politesse_robots::crawler::ProductToken;
use politesse_robots::{JoinedAgents, Note, NoteKind, PaceRecord, PaceScope, RobotsTxt};

/// More of one kind are counted, not told.
const TOLD_MAX: usize = 10;
/// The longest text that is told whole, in characters.
const TEXT_MAX: usize = 300;

/// Tells a decision; what is to be said of its file only if it is not the one
/// that was told of `before`.
pub(super) fn sentences(explained: &Explained, before: Option<&Snapshot>) -> String {
    let ruling = explained.ruling();
    let url = &explained.evidence().inquiry.target;
    let mut lines = vec![format!("{url}: {}", ruling.verdict)];
    lines.extend(reasons(explained));
    lines.push(format!("names: {}", names(explained)));
    lines.extend(rule(explained));
    lines.extend(others(explained));
    lines.extend(pace(explained));
    if let Some(reading) = explained.refused_reading() {
        lines.push(format!(
            "the proxy would refuse it: servers read the path as {}",
            cut(&reading)
        ));
    }
    if let Some(rule) = explained.refused_by_rule() {
        lines.push(format!(
            "the proxy would refuse it by line {}, {}: servers take the path there for this one",
            rule.line,
            quoted(&rule.text)
        ));
    }
    if explained.dialect() != Default::default() {
        lines.push(format!("dialect: {}", explained.dialect()));
    }
    lines.extend(joins(explained));
    let is_told = |told: &Snapshot| {
        explained
            .snapshot()
            .is_some_and(|now| std::ptr::eq(told, now))
    };
    if before.is_some_and(is_told) {
        lines.push("robots.txt: as above".to_owned());
    } else {
        lines.extend(source(explained));
        lines.extend(notes(explained));
    }
    lines
        .iter()
        .map(|line| inert(line))
        .collect::<Vec<_>>()
        .join("\n  ")
        + "\n"
}

/// What the site asks of who fetches it.
fn pace(explained: &Explained) -> Vec<String> {
    let ruling = explained.ruling();
    let delay = ruling.crawl_delay();
    let delay = delay.map(|seconds| format!("crawl delay: {seconds} s"));
    let (rates, visits) = match ruling.asked.as_deref() {
        Some(asked) => (texts(&asked.rates), texts(&asked.visits)),
        None => (String::new(), String::new()),
    };
    let rates = (!rates.is_empty()).then(|| format!("request rate: {rates}"));
    let visits = (!visits.is_empty()).then(|| format!("visit time: {visits} (UTC)"));
    let asked = [delay, rates, visits].into_iter().flatten();
    asked.chain(pace_records(explained)).collect()
}

/// Which pace records bind the crawler, each with the agent line by which.
fn pace_records(explained: &Explained) -> Vec<String> {
    let (Some(robots), records) = (explained.robots(), explained.pace_records()) else {
        return Vec::new();
    };
    let more = records.len().saturating_sub(TOLD_MAX);
    let told = records.iter().take(TOLD_MAX);
    let mut lines: Vec<String> = told
        .map(|PaceRecord { line, scope }| {
            let binds = match scope {
                PaceScope::Agents { line } => format!("line {line}{}", written(*line, robots)),
                PaceScope::Group => "all of its group, below whose rules it stands".to_owned(),
            };
            format!(
                "pace record: line {line}{}: for {binds}",
                written(*line, robots)
            )
        })
        .collect();
    if 0 < more {
        lines.push(format!("pace record: {more} more, which --json has"));
    }
    lines
}

fn texts(values: &[impl ToString]) -> String {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    values.join(", ")
}

/// Why it says what it says, and what the operator put in place of that.
fn reasons(explained: &Explained) -> Vec<String> {
    let ruling = explained.ruling();
    let who = explained.token().map(ProductToken::to_string);
    let who = who.unwrap_or("a crawler without a name".to_owned());
    match ruling.overriding.as_deref() {
        Some(entry) if ruling.is_overridden() => vec![
            format!("for {who}: {}", operator(entry)),
            format!("set aside: {}", because(explained)),
        ],
        Some(entry) => vec![format!("for {who}: {}", operator(entry))],
        None => vec![format!("for {who}: {}", because(explained))],
    }
}

/// What an override says, with its reason and its end.
fn operator(entry: &Override) -> String {
    let verb = match entry.action {
        Action::Allow { .. } => "allows",
        Action::Deny { .. } => "denies",
    };
    let end = entry.action.until();
    let until = end.map_or(String::new(), |end| format!(" until {end}"));
    format!("the operator {verb} it{until}: {}", entry.reason)
}

fn because(explained: &Explained) -> String {
    let ruling = explained.ruling();
    let group = cut(&ruling.group.join(", "));
    if let Some(rule) = &ruling.rule {
        let reading = ruling.reading.as_ref().map_or(String::new(), |path| {
            format!(", on the path read as {}", cut(path))
        });
        let text = quoted(&rule.text);
        return format!(
            "line {}, {text}, in the group of {group}{reading}",
            rule.line
        );
    }
    match ruling.reason {
        Reason::NoRule => format!("no rule in the group of {group} matches"),
        Reason::NoGroup => "no group is for it, nor for everyone".to_owned(),
        Reason::RobotsTxt => "robots.txt itself is always allowed".to_owned(),
        Reason::Unavailable => format!("there is no robots.txt ({})", status(explained)),
        Reason::Restricted => format!(
            "robots.txt is restricted ({}), which closes all of it",
            status(explained)
        ),
        Reason::Unreachable => format!(
            "robots.txt is unreachable ({}), so nothing may be fetched until it can be read",
            cause(explained)
        ),
        Reason::Undecided => "undecided: the file is such that trying its rules would take too \
                              long, and not knowing means no"
            .to_owned(),
        Reason::Egress => format!(
            "its address may not be dialled: {}",
            explained.evidence().denial.as_deref().unwrap_or_default()
        ),
        reason @ (Reason::Rule
        | Reason::Override
        | Reason::CrawlDelay
        | Reason::RequestRate
        | Reason::VisitTime
        | Reason::BackOff
        | Reason::Ceiling
        | Reason::QueueFull
        | Reason::Overload) => reason.to_string(),
    }
}

fn status(explained: &Explained) -> String {
    let status = explained.snapshot().and_then(|snapshot| snapshot.status);
    status.map_or("no status".to_owned(), |status| format!("status {status}"))
}

fn cause(explained: &Explained) -> String {
    match explained.snapshot().map(|snapshot| &snapshot.result) {
        Some(AccessResult::Unreachable(Cause::NoConnection(cause))) => cause.to_string(),
        Some(AccessResult::Unreachable(cause)) if *cause != Cause::Status => cause.to_string(),
        _ => status(explained),
    }
}

/// The names that were considered, and which of them counts.
fn names(explained: &Explained) -> String {
    let crawler = explained.crawler();
    let names: Vec<&str> = crawler
        .candidates()
        .iter()
        .map(ProductToken::as_str)
        .collect();
    let list = match (names.is_empty(), crawler.user_agent()) {
        (false, _) => cut(&names.join(", ")),
        (true, Some(said)) => format!("none to be found in {}", quoted(said)),
        (true, None) => "none given".to_owned(),
    };
    let bound = match (explained.bound(), names.as_slice()) {
        (None, _) => String::new(),
        (Some(Bound::Token(_)), [_]) => "; a group names it".to_owned(),
        (Some(Bound::Token(token)), _) => format!("; the group of {token} binds"),
        (Some(Bound::Everyone), []) => "; the group of everyone (*) binds".to_owned(),
        (Some(Bound::Everyone), _) => {
            "; no group for that, so that of everyone (*) binds".to_owned()
        }
        (Some(Bound::Nobody), _) => "; no group binds".to_owned(),
    };
    let all = explained.evidence().policy.candidates() == Candidates::All && 1 < names.len();
    let all = if all {
        ", and every name's must allow"
    } else {
        ""
    };
    format!("{list}{bound}{all}")
}

/// What else is to be known of the rule that counts.
fn rule(explained: &Explained) -> Vec<String> {
    let agent = explained.agent_line();
    let agent = agent.map(|(line, text)| format!("agent line: line {line}, {}", quoted(&text)));
    let length = explained
        .rule()
        .filter(|_| explained.dialect().prefers_length())
        .map(|rule| format!("length: {}", bytes(rule.length())));
    agent.into_iter().chain(length).collect()
}

/// The other rules that match.
fn others(explained: &Explained) -> Vec<String> {
    let competing = explained.competing();
    let more = competing.len().saturating_sub(TOLD_MAX);
    let mut lines: Vec<String> = competing.iter().take(TOLD_MAX).map(other).collect();
    if 0 < more {
        lines.push(format!("also matches: {more} more, which --json has"));
    }
    lines
}

fn other(competing: &Competing<'_>) -> String {
    let rule = &competing.rule;
    let (line, text) = (rule.line(), quoted(&rule.text()));
    match competing.why {
        Some(why) => format!(
            "also matches: line {line}, {text}, {}: {why}",
            bytes(rule.length())
        ),
        None => format!("set aside: line {line}, {text}"),
    }
}

/// Which agents share the rule by what may be an accident, and how to part them.
fn joins(explained: &Explained) -> Vec<String> {
    let Some(robots) = explained.robots() else {
        return Vec::new();
    };
    let joined = explained.joined();
    let told = joined.iter().take(TOLD_MAX);
    told.map(|joined| join(*joined, robots)).collect()
}

fn join(joined: JoinedAgents, robots: &RobotsTxt) -> String {
    let JoinedAgents { line, above } = joined;
    format!(
        "note: line {line}{} joins the group above: no rule stands between it and line {above}{}, \
         so the rules below bind both. An empty \"Disallow:\" above line {line} keeps them apart.{}",
        written(line, robots),
        written(above, robots),
        pace_between(joined, robots),
    )
}

/// What is to be said of the pace records between two agent lines that share
/// their rules: those are not shared.
fn pace_between(JoinedAgents { line, above }: JoinedAgents, robots: &RobotsTxt) -> String {
    let records = robots.records().skip_while(|record| record.line < above);
    let between = records.take_while(|record| record.line < line);
    let lines: Vec<u32> = between
        .filter(|record| record.kind.is_of_pace())
        .map(|record| record.line)
        .collect();
    match lines.as_slice() {
        [] => String::new(),
        [one] => format!(
            " Line {one}{}, is for the agents above it alone.",
            written(*one, robots)
        ),
        [first, .., last] => {
            format!(
                " What lines {first} to {last} ask about pace is for the agents above them alone."
            )
        }
    }
}

/// How the file was got, if it was fetched.
fn source(explained: &Explained) -> Option<String> {
    let (snapshot, age) = (explained.snapshot()?, explained.age()?);
    let redirects = match snapshot.hops.len() {
        0 => String::new(),
        1 => ", after 1 redirect".to_owned(),
        several => format!(", after {several} redirects"),
    };
    let answer = status(explained);
    let url = cut(&snapshot.url);
    Some(format!(
        "robots.txt: {url}, {answer}{redirects}, asked for {age} s ago"
    ))
}

/// What is odd about the file and was not told of the rule, the end that is
/// missing first.
fn notes(explained: &Explained) -> Vec<String> {
    let Some(robots) = explained.robots() else {
        return Vec::new();
    };
    let joined = explained.joined();
    let is_told = |note: &Note| joined.iter().any(|joined| joined.line == note.line);
    let is_cut = |note: &Note| note.kind == NoteKind::CutAtLimit;
    let notes = robots.notes().filter(|note| !is_told(note));
    let (cut, rest): (Vec<Note>, Vec<Note>) = notes.partition(is_cut);
    let more = rest.len().saturating_sub(TOLD_MAX);
    let told = cut.iter().chain(rest.iter().take(TOLD_MAX));
    let mut lines: Vec<String> = told
        .map(|Note { line, kind }| format!("note: line {line}{}: {kind}", written(*line, robots)))
        .collect();
    if 0 < more {
        lines.push(format!("note: and {more} more, which --json has"));
    }
    lines
}

/// A line's text, to stand behind its number.
fn written(line: u32, robots: &RobotsTxt) -> String {
    let text = robots.line(line).filter(|text| !text.is_empty());
    text.map_or(String::new(), |text| format!(", {}", quoted(&text)))
}

fn bytes(count: usize) -> String {
    match count {
        1 => "1 byte".to_owned(),
        _ => format!("{count} bytes"),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", cut(text))
}

/// A text from outside as far as people want to read it.
fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
