//! Facts about a decision as pairs of name and value, and the decision in one sentence.
//!
//! External text in them is made inert where it is shown.

use std::fmt::Display;

use maud::{Markup, html};
use serde_json::Value;

use super::rules::{CompetingRule, DecidingRules};
use super::{Explanation, RowState};
use crate::page::words::breakable;
use politesse_base::command_line::command;
use politesse_base::inert::{inert, shell_word};
use politesse_decision::decide::{Candidates, EnforcementMode, Policy, Reason};
use politesse_decision::overrides::{Action, Override};
use politesse_decision::record::{Effect, RecordedSnapshot, StoredRecord};
use politesse_decision::withholding::{Withholding, stated_denials};
use politesse_robots::{Dialect, JoinedAgents, Note, NoteKind, PaceRecord, PaceScope, RobotsTxt};

/// Name of the fact that states how many other decisions about the URL exist.
const OTHERS: &str = "others";
/// Maximum number of facts with the same name about a file; the others are counted.
const OF_A_NAME_MAX: usize = 10;
/// Longest line of a robots.txt that is shown in full next to the line that decided, in
/// characters.
const TEXT_CHARS_MAX: usize = 300;
/// Names of the facts about the file itself, which are the same for all its URLs.
const OF_FILE: [&str; 8] = [
    "robots",
    "  hop",
    "  fetched as",
    "  fetched",
    "  expires",
    "  sha256",
    "  charset",
    "note",
];

/// Names and values, in the order in which they are shown.
pub struct Facts(pub Vec<(&'static str, String)>);

impl Facts {
    /// Lists the facts about a decision.
    pub fn of(explanation: &Explanation) -> Self {
        let mut facts = Self(Vec::new());
        let record = &explanation.record;
        if explanation.row.is_some() {
            facts.request(record);
        }
        facts.crawler(explanation);
        facts.verdict(explanation);
        if let Some(rules) = &explanation.rules {
            facts.rules(rules);
        }
        let exception = explanation.tls_exception();
        facts.add_some("TLS", exception.map(|it| format!("of this host: {it}")));
        if explanation.row.is_some() {
            facts.answer(record);
            if let Some(rules) = &explanation.rules {
                facts.report(record, rules);
            }
        }
        if let (Some(snapshot), Some(age)) = (&record.snapshot, explanation.age()) {
            facts.robots(snapshot, age);
        }
        if let Some(rules) = &explanation.rules {
            facts.notes(rules);
        }
        if let Some(row) = &explanation.row {
            facts.policy(record, row.policy.as_ref());
            facts.trust(record, row);
        }
        facts
    }

    /// Removes the facts that are the same for all URLs of a robots.txt.
    pub fn leave_out_file(&mut self) {
        self.0.retain(|(name, _)| !OF_FILE.contains(name));
        self.add("robots", "as above");
    }

    /// Returns one line for each fact, after `indent`.
    pub fn text(&self, indent: &str) -> String {
        let lines = self.0.iter();
        lines
            .map(|(name, value)| format!("{indent}{name:<12} {}\n", inert(value)))
            .collect()
    }

    /// Shows the facts as a list.
    pub fn html(&self) -> Markup {
        html! {
            dl {
                // The command for other decisions is for a terminal; a page links to
                // them.
                @for (name, value) in self.0.iter().filter(|(name, _)| *name != OTHERS) {
                    dt { (name.trim()) }
                    dd { bdi { (breakable(&inert(value))) } }
                }
            }
        }
    }

    fn add(&mut self, name: &'static str, value: impl Display) {
        self.0.push((name, value.to_string()));
    }

    fn add_some(&mut self, name: &'static str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    /// Adds the first of `items`, and the number of the others.
    fn add_first<T>(&mut self, name: &'static str, items: &[T], text: impl Fn(&T) -> String) {
        for item in items.iter().take(OF_A_NAME_MAX) {
            self.add(name, text(item));
        }
        if let more @ 1.. = items.len().saturating_sub(OF_A_NAME_MAX) {
            self.add(name, format_args!("and {more} more, which --json has"));
        }
    }

    fn request(&mut self, record: &StoredRecord) {
        match &record.node {
            Some(node) => self.add("decision", format_args!("{} of node {node}", record.seq)),
            None => self.add("decision", record.seq),
        }
        self.add("time", record.at);
        self.add("request", format_args!("{} {}", record.method, record.url));
        let address = &record.client.address;
        match &record.client.credential {
            Some(name) => self.add(
                "client",
                format_args!("{address}, with the credential of {name}"),
            ),
            None => self.add("client", address),
        }
        let user_agent = record.crawler.user_agent.as_deref();
        self.add("user_agent", user_agent.unwrap_or("none was sent"));
        if let Some(label) = &record.crawler.label {
            self.add("label", label);
        }
    }

    fn crawler(&mut self, explanation: &Explanation) {
        let record = &explanation.record;
        let bound = record.ruling.crawler.as_deref().unwrap_or("*");
        let candidates = &record.crawler.candidates;
        let unlisted = &record.crawler.unlisted;
        let names = [candidates.as_slice(), unlisted].concat().join(", ");
        let text = match (candidates.len(), explanation.is_known_by_user_agent()) {
            (0, _) => "none: no name that a group could have".to_owned(),
            (1, true) => format!("{bound}, as its User-Agent says"),
            (_, true) => format!("{bound}; its User-Agent gives {names}"),
            (_, false) => format!(
                "{bound}; named by the configuration (`crawler`), not by its User-Agent: {names}"
            ),
        };
        self.add("crawler", text);
    }

    fn verdict(&mut self, explanation: &Explanation) {
        let (record, rules) = (&explanation.record, explanation.rules.as_ref());
        let ruling = &record.ruling;
        self.add("verdict", &ruling.verdict);
        let reason = &ruling.reason;
        self.add("reason", format_args!("{reason}: {}", meaning(reason)));
        match (ruling.line, &ruling.rule) {
            (Some(line), Some(rule)) => self.add("rule", format_args!("line {line}: {rule}")),
            (None, Some(rule)) => self.add("rule", rule),
            (_, None) => {}
        }
        if !ruling.group.is_empty() {
            let group = ruling.group.join(", ");
            match rules.and_then(DecidingRules::agent_line) {
                Some((line, text)) => {
                    self.add(
                        "group",
                        format_args!("{group}, by line {line}: {}", cut(&text)),
                    );
                }
                None => self.add("group", group),
            }
        }
        if let Some(reading) = &record.reading {
            let text = format_args!("{reading}: the path as a server may read it");
            self.add("reading", text);
        }
        let effect = ruling.effect.as_str();
        // Nothing was done about a request that is not recorded.
        if explanation.row.is_some() || effect != Effect::Enforced.as_str() {
            let meaning = effect_meaning(effect);
            self.add("effect", format_args!("{effect}: {meaning}"));
        }
    }

    /// Adds the override, the rules that have no effect, and the pace that the site
    /// asks for.
    fn rules(&mut self, rules: &DecidingRules) {
        let ruling = rules.ruling();
        self.add_some("override", ruling.overriding.as_deref().map(operator));
        self.add_some("egress", rules.egress_denial());
        self.add_first("denied", &ruling.denials, ToString::to_string);
        let prefers_length = rules.dialect().prefers_length();
        let rule = rules.rule().filter(|_| prefers_length);
        self.add_some("length", rule.map(|rule| bytes(rule.length())));
        self.add_first("also matches", &rules.competing(), competing);
        let delay = ruling.crawl_delay();
        self.add_some("crawl delay", delay.map(|seconds| format!("{seconds} s")));
        if let Some(records) = ruling.pace_records.as_deref() {
            self.add_some("request rate", list(&records.rates));
            let visits = list(&records.visits);
            self.add_some("visit time", visits.map(|visits| format!("{visits} (UTC)")));
        }
        if let Some(robots) = rules.robots() {
            let records = rules.pace_records();
            self.add_first("pace record", &records, |record| {
                pace_record(*record, robots)
            });
        }
        if let Some(path) = rules.refused_reading() {
            let text = format_args!("would refuse it: servers take the path for {}", cut(path));
            self.add("proxy", text);
        }
        if let Some((line, rule)) = rules.refused_by_rule() {
            let text = format!(
                "would refuse it by line {line}, {}: servers take the path there for this one",
                quoted(rule)
            );
            self.add("proxy", text);
        }
        let terms = rules.evidence().policy.terms();
        if terms.candidates == Candidates::All && 1 < rules.crawler().candidates().len() {
            self.add("candidates", "all: every name must be allowed");
        }
        if rules.dialect() != Dialect::default() {
            self.add("dialect", rules.dialect());
        }
    }

    fn answer(&mut self, record: &StoredRecord) {
        self.add("wait", format!("{} ms", record.wait_ms));
        match record.status {
            Some(status) => self.add("status", status),
            None if record.error.is_some() => self.add("status", "none"),
            None => self.add(
                "status",
                "none: the exchange is under way, or the proxy was killed",
            ),
        }
        self.add_some("bytes", record.bytes);
        self.add_some("error", record.error.as_ref());
        let seen = record.directives.as_deref();
        self.add_some("directives", seen.map(|seen| &seen.directives));
        let said = seen
            .and_then(|seen| seen.said.as_deref())
            .unwrap_or_default();
        for statement in serde_json::from_str::<Vec<Value>>(said).unwrap_or_default() {
            let word = |name| statement.get(name).and_then(Value::as_str).unwrap_or("?");
            self.add("  said", format!("{}: {}", word("by"), word("said")));
        }
        let denials = seen.map_or(&[][..], |seen| &seen.denials);
        self.add_first("  denies", denials, |denial| {
            format!("{} ({})", denial.purpose, denial.statement)
        });
        if record.error.as_deref() == Some(Withholding::ERROR) {
            let because = match denials {
                [] => "what it states could not be read whole (preferences.unknown)",
                _ => "it denies what it was fetched for",
            };
            let text = format!("the client got 403, and nothing of the response: {because}");
            self.add("  withheld", text);
        }
    }

    /// Adds a note if report mode let a response through that would have been withheld.
    fn report(&mut self, record: &StoredRecord, rules: &DecidingRules) {
        let evidence = rules.evidence();
        let stated = record.status.zip(record.directives.as_deref());
        let withholding = stated.and_then(|(status, seen)| {
            let stated = stated_denials(evidence, &seen.directives);
            Withholding::of(evidence, status, stated)
        });
        if withholding.is_some_and(|withholding| withholding.is_reported) {
            let text = "the response was given, and would be withheld if preferences were enforced";
            self.add("  reported", text);
        }
    }

    fn robots(&mut self, snapshot: &RecordedSnapshot, age: i64) {
        let status = snapshot
            .status
            .map_or(String::new(), |status| format!(", status {status}"));
        let cause = match &snapshot.cause {
            Some(cause) if snapshot.result == "successful" => {
                format!(", an earlier copy: {cause}")
            }
            Some(cause) => format!(": {cause}"),
            None => String::new(),
        };
        self.add(
            "robots",
            format!("{}{status}, {}{cause}", snapshot.url, snapshot.result),
        );
        for hop in &snapshot.hops {
            self.add("  hop", format!("{hop} redirected"));
        }
        self.add_some("  fetched as", snapshot.token.as_ref());
        let fetched_at = snapshot.fetched_at;
        self.add("  fetched", format_args!("{fetched_at}, {age} s before"));
        self.add("  expires", snapshot.expires_at);
        self.add_some("  sha256", snapshot.sha256);
        self.add_some("  charset", snapshot.charset.as_ref());
    }

    /// Adds notes on agents that may share the rule by accident, with a way to separate
    /// them, and on other oddities of the file. A truncated file comes first.
    fn notes(&mut self, rules: &DecidingRules) {
        let Some(robots) = rules.robots() else {
            return;
        };
        let joined = rules.joined();
        let is_joined = |note: &Note| joined.iter().any(|joined| joined.line == note.line);
        let is_cut = |note: &Note| note.kind == NoteKind::CutAtLimit;
        let notes = robots.notes().filter(|note| !is_joined(note));
        // Rules after the cut have no effect, which matters more than any oddity.
        let (cut, rest): (Vec<Note>, Vec<Note>) = notes.partition(is_cut);
        let text = |note: &Note| format!("{}: {}", line_text(note.line, robots), note.kind);
        self.add_first("note", &joined, |joined| join(*joined, robots));
        self.add_first("note", &cut, text);
        self.add_first("note", &rest, text);
    }

    /// Adds the policy, as far as it contributed to the decision.
    fn policy(&mut self, record: &StoredRecord, policy: Option<&Policy>) {
        self.add("policy", record.policy.sha256);
        let Some(policy) = policy else {
            self.add("  problem", "it cannot be read");
            return;
        };
        self.add("  mode", mode(policy));
        self.add("  dialect", policy.terms().dialect);
        if let Some(preferences) = policy.terms().preferences {
            let purposes = preferences.purposes.iter().map(|purpose| purpose.as_str());
            self.add("  purposes", purposes.collect::<Vec<_>>().join(", "));
        }
        let json = serde_json::from_str::<Value>(policy.json()).unwrap_or_default();
        for (key, name) in [
            ("readings", "  readings"),
            ("candidates", "  candidates"),
            ("unauthorized", "  401 and 403"),
        ] {
            self.add_some(name, json.get(key).and_then(Value::as_str));
        }
    }

    fn trust(&mut self, record: &StoredRecord, row: &RowState) {
        let text = match (&row.again, row.context.is_as_written) {
            (Ok(()), None) => {
                "deciding again gives the same; `verify` at the node proves that the row is as it \
                 was written"
            }
            (Ok(()), Some(true)) if record.snapshot.is_none() => {
                "the row is as it was written; no robots.txt was looked at, so there is nothing to \
                 decide again"
            }
            (Ok(()), Some(true)) => {
                "the row is as it was written, and deciding again gives the same"
            }
            (Ok(()), Some(false)) => "THE ROW IS NOT AS IT WAS WRITTEN",
            (Err(why), _) => why,
        };
        self.add("verify", text);
        if let Some(others) = row.context.others.filter(|others| 0 < *others) {
            self.add(
                OTHERS,
                format!(
                    "{others} more about this URL: {}",
                    command(format_args!("audit list --url {}", shell_word(&record.url)))
                ),
            );
        }
    }
}

fn mode(policy: &Policy) -> &'static str {
    match policy.terms().mode {
        EnforcementMode::Enforce => "enforce",
        EnforcementMode::Report => "report: what would be refused is forwarded",
    }
}

/// Explains the word for a reason.
pub fn meaning(reason: &str) -> &'static str {
    Reason::of_word(reason).map_or("no word of this version", Reason::meaning)
}

/// Explains the word for an effect.
pub fn effect_meaning(effect: &str) -> &'static str {
    match effect {
        "enforced" => "the verdict was acted on",
        "reported" => "report mode: it was forwarded although the verdict is disallow",
        "overridden" => "an override of the operator set this aside, and it was allowed",
        "cached" => "our copy of robots.txt was the answer, nothing was sent",
        _ => "no word of this version",
    }
}

/// Describes a decision in one sentence: URL, verdict, crawler, and the rule or reason.
pub fn sentence(record: &StoredRecord) -> String {
    let ruling = &record.ruling;
    let verdict = match (ruling.verdict.as_str(), ruling.effect.as_str()) {
        ("disallow", "enforced") => "refused",
        ("later", "enforced") => "put off",
        (_, "reported") => "let through by report mode, and would be refused",
        (_, "overridden") => "allowed by an override of the operator that sets aside",
        (_, "cached") => "answered from our copy",
        ("allow", _) => "allowed",
        (other, _) => other,
    };
    let outcome = match record.error.as_deref() {
        Some(Withholding::ERROR) => "; fetched, and withheld from the client",
        Some(_) | None => "",
    };
    let because = match (ruling.line, &ruling.rule) {
        (Some(line), Some(rule)) => format!("line {line}, {rule}"),
        (None, Some(rule)) => rule.clone(),
        _ => meaning(&ruling.reason).to_owned(),
    };
    let crawler = ruling
        .crawler
        .as_deref()
        .unwrap_or("a crawler without a name");
    format!(
        "{}: {verdict} for {crawler}: {because}{outcome}",
        record.url
    )
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

fn competing(CompetingRule { rule, why }: &CompetingRule<'_>) -> String {
    let (line, text) = (rule.line(), quoted(&rule.text()));
    match why {
        Some(why) => format!("line {line}, {text}, {}: {why}", bytes(rule.length())),
        None => format!("line {line}, {text}: set aside"),
    }
}

/// Describes a pace record that binds the crawler, with the agent line that makes it
/// binding.
fn pace_record(PaceRecord { line, scope }: PaceRecord, robots: &RobotsTxt) -> String {
    let binds = match scope {
        PaceScope::Agents { line } => line_text(line, robots),
        PaceScope::Group => "all of its group, below whose rules it stands".to_owned(),
    };
    format!("{}: for {binds}", line_text(line, robots))
}

fn join(joined: JoinedAgents, robots: &RobotsTxt) -> String {
    let JoinedAgents { line, above } = joined;
    format!(
        "{} joins the group above: no rule stands between it and {}, so the rules below bind \
         both. An empty \"Disallow:\" above line {line} keeps them apart.{}",
        line_text(line, robots),
        line_text(above, robots),
        pace_between(joined, robots),
    )
}

/// Returns a sentence about the pace records between two agent lines that share their
/// rules: pace records are not shared.
fn pace_between(JoinedAgents { line, above }: JoinedAgents, robots: &RobotsTxt) -> String {
    let records = robots.records().skip_while(|record| record.line < above);
    let between = records.take_while(|record| record.line < line);
    let lines: Vec<u32> = between
        .filter(|record| record.kind.is_of_pace())
        .map(|record| record.line)
        .collect();
    match lines.as_slice() {
        [] => String::new(),
        [line] => {
            let text = line_text(*line, robots);
            format!(" The pace record of {text} is for the agents above it alone.")
        }
        [first, .., last] => {
            format!(" The pace records of lines {first} to {last} are for the agents above alone.")
        }
    }
}

/// Returns the number of a line together with its text.
fn line_text(line: u32, robots: &RobotsTxt) -> String {
    match robots.line(line).filter(|text| !text.is_empty()) {
        Some(text) => format!("line {line}, {}", quoted(&text)),
        None => format!("line {line}"),
    }
}

/// Lists `values`; `None` if there are none.
fn list(values: &[impl ToString]) -> Option<String> {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    (!values.is_empty()).then(|| values.join(", "))
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

/// Cuts an external text to a readable length.
fn cut(text: &str) -> String {
    // Cuts between characters, because a cut inside one would not be valid UTF-8.
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
