//! Text answers of `check`, for the author of a robots.txt, who wants to see which
//! line decided and what to change.
//!
//! Does not know how a decision is explanation, only how the explanation reads.

use super::explanation::{BoundName, CompetingRule, DecisionExplanation};
use politesse_base::inert::inert;
use politesse_decision::access::Cause;
use politesse_decision::decide::{Candidates, Reason};
use politesse_decision::overrides::{Action, Override};
use politesse_decision::snapshot::{AccessResult, Snapshot};
use politesse_robots::crawler::ProductToken;
use politesse_robots::{JoinedAgents, Note, NoteKind, PaceRecord, PaceScope, RobotsTxt};

/// Most lines of one kind; the others are counted.
const LINES_MAX: usize = 10;
/// Longest text that is printed whole, in characters.
const TEXT_CHARS_MAX: usize = 300;

/// Returns the lines for a decision. Source and notes of its file are left out if
/// it is the `previous` one, for which they were printed.
pub(super) fn sentences(explanation: &DecisionExplanation, previous: Option<&Snapshot>) -> String {
    let ruling = explanation.ruling();
    let url = &explanation.evidence().inquiry.target;
    let mut lines = vec![format!("{url}: {}", ruling.verdict)];
    lines.extend(reasons(explanation));
    lines.push(format!("names: {}", names(explanation)));
    lines.extend(rule(explanation));
    lines.extend(others(explanation));
    lines.extend(pace(explanation));
    if let Some(reading) = explanation.refused_reading() {
        lines.push(format!(
            "the proxy would refuse it: servers take the path for {}",
            cut(&reading)
        ));
    }
    if let Some(rule) = explanation.refused_by_rule() {
        lines.push(format!(
            "the proxy would refuse it by line {}, {}: servers take the path there for this one",
            rule.line,
            quoted(&rule.text)
        ));
    }
    if explanation.dialect() != Default::default() {
        lines.push(format!("dialect: {}", explanation.dialect()));
    }
    lines.extend(joins(explanation));
    // By address: two files with the same text are of two origins, and both are
    // described.
    let is_same = |previous: &Snapshot| {
        explanation
            .snapshot()
            .is_some_and(|snapshot| std::ptr::eq(previous, snapshot))
    };
    if previous.is_some_and(is_same) {
        lines.push("robots.txt: as above".to_owned());
    } else {
        lines.extend(source(explanation));
        lines.extend(notes(explanation));
    }
    // All lines hold text of the site or of the crawler.
    lines
        .iter()
        .map(|line| inert(line))
        .collect::<Vec<_>>()
        .join("\n  ")
        + "\n"
}

/// Returns lines with the pace that the site asks for.
fn pace(explanation: &DecisionExplanation) -> Vec<String> {
    let ruling = explanation.ruling();
    let delay = ruling
        .crawl_delay()
        .map(|seconds| format!("crawl delay: {seconds} s"));
    let (rates, visits) = match ruling.asked.as_deref() {
        Some(asked) => (texts(&asked.rates), texts(&asked.visits)),
        None => (String::new(), String::new()),
    };
    let rates = (!rates.is_empty()).then(|| format!("request rate: {rates}"));
    let visits = (!visits.is_empty()).then(|| format!("visit time: {visits} (UTC)"));
    let asked = [delay, rates, visits].into_iter().flatten();
    asked.chain(pace_records(explanation)).collect()
}

/// Returns lines with the pace records that bind the crawler, each with the agent
/// line by which it does.
fn pace_records(explanation: &DecisionExplanation) -> Vec<String> {
    let (Some(robots), records) = (explanation.robots(), explanation.pace_records()) else {
        return Vec::new();
    };
    first_lines("pace record:", &records, |PaceRecord { line, scope }| {
        let binds = match scope {
            PaceScope::Agents { line } => format!("line {line}{}", written(*line, robots)),
            PaceScope::Group => "all of its group, below whose rules it stands".to_owned(),
        };
        format!(
            "pace record: line {line}{}: for {binds}",
            written(*line, robots)
        )
    })
}

/// Returns a line for each of the first items, and one that counts the others.
fn first_lines<T>(label: &str, items: &[T], line: impl Fn(&T) -> String) -> Vec<String> {
    let mut lines: Vec<String> = items.iter().take(LINES_MAX).map(line).collect();
    let more = items.len().saturating_sub(LINES_MAX);
    if 0 < more {
        lines.push(format!("{label} {more} more, which --json has"));
    }
    lines
}

fn texts(values: &[impl ToString]) -> String {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    values.join(", ")
}

/// Returns lines with the reason of the verdict, and an override of it.
fn reasons(explanation: &DecisionExplanation) -> Vec<String> {
    let ruling = explanation.ruling();
    let token = explanation.token().map(ProductToken::as_str);
    let who = token.unwrap_or("a crawler without a name");
    match ruling.overriding.as_deref() {
        Some(entry) if ruling.is_overridden() => vec![
            format!("for {who}: {}", operator(entry)),
            format!("set aside: {}", because(explanation)),
        ],
        Some(entry) => vec![format!("for {who}: {}", operator(entry))],
        None => vec![format!("for {who}: {}", because(explanation))],
    }
}

/// Describes an override, with its reason and its end.
fn operator(entry: &Override) -> String {
    let verb = match entry.action {
        Action::Allow { .. } => "allows",
        Action::Deny { .. } => "denies",
    };
    let end = entry.action.until();
    let until = end.map_or(String::new(), |end| format!(" until {end}"));
    format!("the operator {verb} it{until}: {}", entry.reason)
}

fn because(explanation: &DecisionExplanation) -> String {
    let ruling = explanation.ruling();
    let group = cut(&ruling.group.join(", "));
    if let Some(rule) = &ruling.rule {
        let reading = ruling.reading.as_ref().map_or(String::new(), |path| {
            format!(", on the path taken for {}", cut(path))
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
        Reason::Unavailable => format!("there is no robots.txt ({})", status(explanation)),
        Reason::Restricted => format!(
            "robots.txt is restricted ({}), which closes all of it",
            status(explanation)
        ),
        Reason::Unreachable => format!(
            "robots.txt is unreachable ({}), so nothing may be fetched until it can be read",
            cause(explanation)
        ),
        Reason::Undecided => "undecided: the file is such that trying its rules would take too \
                              long, and not knowing means no"
            .to_owned(),
        Reason::Egress => format!(
            "its address may not be dialled: {}",
            explanation.evidence().denial.as_deref().unwrap_or_default()
        ),
        // A rule is described above. The others are no reasons of a robots.txt: their
        // text is all that there is to say.
        reason @ (Reason::Rule
        | Reason::Override
        | Reason::Identity
        | Reason::CrawlDelay
        | Reason::RequestRate
        | Reason::VisitTime
        | Reason::BackOff
        | Reason::Ceiling
        | Reason::QueueFull
        | Reason::Overload
        | Reason::Quota) => reason.to_string(),
    }
}

fn status(explanation: &DecisionExplanation) -> String {
    let status = explanation.snapshot().and_then(|snapshot| snapshot.status);
    status.map_or("no status".to_owned(), |status| format!("status {status}"))
}

fn cause(explanation: &DecisionExplanation) -> String {
    match explanation.snapshot().map(|snapshot| &snapshot.result) {
        Some(AccessResult::Unreachable(Cause::NoConnection(cause))) => cause.to_string(),
        Some(AccessResult::Unreachable(Cause::NotText)) => "its body is no text".to_owned(),
        Some(AccessResult::Unreachable(cause)) if *cause != Cause::Status => cause.to_string(),
        _ => status(explanation),
    }
}

/// Lists the names that were considered, and says which group binds.
fn names(explanation: &DecisionExplanation) -> String {
    let crawler = explanation.crawler();
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
    let bound = match (explanation.bound(), names.as_slice()) {
        (None, _) => String::new(),
        (Some(BoundName::Token(_)), [_]) => "; a group names it".to_owned(),
        (Some(BoundName::Token(token)), _) => format!("; the group of {token} binds"),
        (Some(BoundName::Everyone), []) => "; the group of everyone (*) binds".to_owned(),
        (Some(BoundName::Everyone), _) => {
            "; no group for that, so that of everyone (*) binds".to_owned()
        }
        (Some(BoundName::Nobody), _) => "; no group binds".to_owned(),
    };
    let all_must_allow =
        explanation.evidence().policy.terms().candidates == Candidates::All && 1 < names.len();
    let others = if all_must_allow {
        ", and every name's must allow"
    } else {
        ""
    };
    format!("{list}{bound}{others}")
}

/// Returns lines with the agent line and the length of the rule that decided.
fn rule(explanation: &DecisionExplanation) -> Vec<String> {
    let agent = explanation
        .agent_line()
        .map(|(line, text)| format!("agent line: line {line}, {}", quoted(&text)));
    let length = explanation
        .rule()
        .filter(|_| explanation.dialect().prefers_length())
        .map(|rule| format!("length: {}", bytes(rule.length())));
    agent.into_iter().chain(length).collect()
}

/// Returns lines with the other rules that match.
fn others(explanation: &DecisionExplanation) -> Vec<String> {
    let competing = explanation.competing();
    first_lines(
        "also matches:",
        &competing,
        |CompetingRule { rule, why }| {
            let (line, text) = (rule.line(), quoted(&rule.text()));
            match why {
                Some(why) => format!(
                    "also matches: line {line}, {text}, {}: {why}",
                    bytes(rule.length())
                ),
                None => format!("set aside: line {line}, {text}"),
            }
        },
    )
}

/// Returns notes on agents that share the rule by what may be an accident, with a
/// way to part them.
fn joins(explanation: &DecisionExplanation) -> Vec<String> {
    let Some(robots) = explanation.robots() else {
        return Vec::new();
    };
    let joined = explanation.joined();
    let shown = joined.iter().take(LINES_MAX);
    shown.map(|joined| join(*joined, robots)).collect()
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

/// Returns a sentence on the pace records between two agent lines that share
/// their rules: pace records are not shared.
fn pace_between(JoinedAgents { line, above }: JoinedAgents, robots: &RobotsTxt) -> String {
    let records = robots.records().skip_while(|record| record.line < above);
    let between = records.take_while(|record| record.line < line);
    let lines: Vec<u32> = between
        .filter(|record| record.kind.is_of_pace())
        .map(|record| record.line)
        .collect();
    match lines.as_slice() {
        [] => String::new(),
        [line] => format!(
            " Line {line}{}, is for the agents above it alone.",
            written(*line, robots)
        ),
        [first, .., last] => {
            format!(
                " What lines {first} to {last} ask about pace is for the agents above them alone."
            )
        }
    }
}

/// Returns a line with the source of the file, if it was fetched.
fn source(explanation: &DecisionExplanation) -> Option<String> {
    let (snapshot, age) = (explanation.snapshot()?, explanation.age()?);
    let redirects = match snapshot.hops.len() {
        0 => String::new(),
        1 => ", after 1 redirect".to_owned(),
        several => format!(", after {several} redirects"),
    };
    let answer = status(explanation);
    let url = cut(&snapshot.url);
    let then = if explanation.is_recorded() {
        "earlier"
    } else {
        "ago"
    };
    Some(format!(
        "robots.txt: {url}, {answer}{redirects}, asked for {age} s {then}"
    ))
}

/// Returns lines with the oddities of the file that are not among [`joins`]. That
/// its end is missing comes first.
fn notes(explanation: &DecisionExplanation) -> Vec<String> {
    let Some(robots) = explanation.robots() else {
        return Vec::new();
    };
    let joined = explanation.joined();
    let is_shown = |note: &Note| joined.iter().any(|joined| joined.line == note.line);
    let is_cut = |note: &Note| note.kind == NoteKind::CutAtLimit;
    let notes = robots.notes().filter(|note| !is_shown(note));
    // Rules after the cut do not count, which matters more than any oddity.
    let (cut, rest): (Vec<Note>, Vec<Note>) = notes.partition(is_cut);
    let line =
        |Note { line, kind }: &Note| format!("note: line {line}{}: {kind}", written(*line, robots));
    let mut lines: Vec<String> = cut.iter().map(line).collect();
    lines.extend(first_lines("note: and", &rest, line));
    lines
}

/// Returns the text of a line, to stand after its number.
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

/// Cuts a text from outside to the length that people want to read.
fn cut(text: &str) -> String {
    // By characters: a cut inside of one would not be UTF-8.
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
