//! Facts about a decision as pairs of name and value, and the decision in one sentence.
//!
//! Does not know where they are shown: text from outside in them is made inert by
//! whoever shows it.

use std::fmt::Display;
use std::io::{self, Write};

use serde_json::Value;

use super::DecisionDetails;
use politesse_base::command_line::command;
use politesse_base::inert::{inert, shell_word};
use politesse_decision::decide::{EnforcementMode, Policy, Reason};
use politesse_decision::record::{RecordedSnapshot, StoredRecord};

/// Names and values, in the order in which they are shown.
pub struct Facts(pub Vec<(&'static str, String)>);

impl Facts {
    /// Lists the facts about a decision.
    pub fn of(details: &DecisionDetails) -> Self {
        let mut facts = Self(Vec::new());
        facts.request(details);
        facts.verdict(details);
        facts.answer(details);
        if let Some(snapshot) = &details.record.snapshot {
            facts.robots(snapshot);
        }
        facts.policy(details);
        facts.trust(details);
        facts
    }

    /// Writes one line for each fact.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for (name, value) in &self.0 {
            writeln!(out, "{name:<12} {}", inert(value))?;
        }
        Ok(())
    }

    fn add(&mut self, name: &'static str, value: impl Display) {
        self.0.push((name, value.to_string()));
    }

    fn request(&mut self, details: &DecisionDetails) {
        let record = &details.record;
        match &record.node {
            Some(node) => self.add("decision", format!("{} of node {node}", record.seq)),
            None => self.add("decision", record.seq),
        }
        self.add("time", record.at);
        self.add("request", format!("{} {}", record.method, record.url));
        let client = &record.client;
        self.add(
            "client",
            match &client.credential {
                Some(name) => format!("{}, with the credential of {name}", client.address),
                None => client.address.clone(),
            },
        );
        let user_agent = record.crawler.user_agent.as_deref();
        self.add("user_agent", user_agent.unwrap_or("none was sent"));
        let bound = record.ruling.crawler.as_deref().unwrap_or("*");
        let candidates = &record.crawler.candidates;
        let unlisted = &record.crawler.unlisted;
        let names = [candidates.as_slice(), unlisted].concat().join(", ");
        self.add(
            "crawler",
            match (candidates.len(), details.is_known_by_user_agent()) {
                (0, _) => "none: no name that a group could have; bound by the group of everyone"
                    .to_owned(),
                (1, true) => format!("{bound}, as its User-Agent says"),
                (_, true) => format!("{bound}; its User-Agent gives {names}"),
                (_, false) => format!(
                    "{bound}; named by the configuration (`crawler`), not by its User-Agent: {names}"
                ),
            },
        );
    }

    fn verdict(&mut self, details: &DecisionDetails) {
        let ruling = &details.record.ruling;
        self.add("verdict", &ruling.verdict);
        self.add(
            "reason",
            format!("{}: {}", ruling.reason, meaning(&ruling.reason)),
        );
        if let (Some(line), Some(rule)) = (ruling.line, &ruling.rule) {
            self.add("rule", format!("line {line}: {rule}"));
        }
        if !ruling.group.is_empty() {
            let group = ruling.group.join(", ");
            match details.agent_line() {
                Some(line) => self.add("group", format!("{group}, by line {line}")),
                None => self.add("group", group),
            }
        }
        if let Some(reading) = &details.record.reading {
            self.add(
                "reading",
                format!("{reading}: the path as a server may read it"),
            );
        }
        let effect = ruling.effect.as_str();
        self.add("effect", format!("{effect}: {}", effect_meaning(effect)));
    }

    fn answer(&mut self, details: &DecisionDetails) {
        let record = &details.record;
        self.add("wait", format!("{} ms", record.wait_ms));
        match record.status {
            Some(status) => self.add("status", status),
            None if record.error.is_some() => self.add("status", "none"),
            None => self.add(
                "status",
                "none: the exchange is under way, or the proxy was killed",
            ),
        }
        if let Some(bytes) = record.bytes {
            self.add("bytes", bytes);
        }
        if let Some(error) = &record.error {
            self.add("error", error);
        }
        let seen = record.directives.as_deref();
        if let Some(seen) = seen {
            self.add("directives", &seen.directives);
        }
        let said = seen
            .and_then(|seen| seen.said.as_deref())
            .unwrap_or_default();
        for statement in serde_json::from_str::<Vec<Value>>(said).unwrap_or_default() {
            let word = |name| statement.get(name).and_then(Value::as_str).unwrap_or("?");
            self.add("  said", format!("{}: {}", word("by"), word("said")));
        }
    }

    fn robots(&mut self, snapshot: &RecordedSnapshot) {
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
        if let Some(token) = &snapshot.token {
            self.add("  fetched as", token);
        }
        self.add("  fetched", snapshot.fetched_at);
        self.add("  expires", snapshot.expires_at);
        if let Some(sha256) = snapshot.sha256 {
            self.add("  sha256", sha256);
        }
        if let Some(charset) = &snapshot.charset {
            self.add("  charset", charset);
        }
    }

    /// The policy, as far as it had a part in the decision.
    fn policy(&mut self, details: &DecisionDetails) {
        self.add("policy", details.record.policy.sha256);
        let Some(policy) = &details.policy else {
            self.add("  problem", "it cannot be read");
            return;
        };
        self.add("  mode", mode(policy));
        self.add("  dialect", policy.terms().dialect);
        let json = serde_json::from_str::<Value>(policy.json()).unwrap_or_default();
        for (key, name) in [
            ("readings", "  readings"),
            ("candidates", "  candidates"),
            ("unauthorized", "  401 and 403"),
        ] {
            if let Some(value) = json.get(key).and_then(Value::as_str) {
                self.add(name, value);
            }
        }
        if let Some(entry) = details.overriding() {
            self.add("  override", entry);
        }
    }

    fn trust(&mut self, details: &DecisionDetails) {
        let text = match (&details.again, details.is_as_written) {
            (Ok(()), None) => {
                "deciding again gives the same; `verify` at the node proves that the row is as it \
                 was written"
            }
            (Ok(()), Some(true)) if details.record.snapshot.is_none() => {
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
        if let Some(others) = details.others.filter(|others| 0 < *others) {
            self.add(
                "others",
                format!(
                    "{others} more about this URL: {}",
                    command(format_args!(
                        "audit list --url {}",
                        shell_word(&details.record.url)
                    ))
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

/// Explains the word of a reason.
pub fn meaning(reason: &str) -> &'static str {
    Reason::of_word(reason).map_or("no word of this version", Reason::meaning)
}

/// Explains the word of an effect.
pub(crate) fn effect_meaning(effect: &str) -> &'static str {
    match effect {
        "enforced" => "the verdict was acted on",
        "reported" => "report mode: it was forwarded although the verdict is disallow",
        "overridden" => "an override of the operator set this aside, and it was allowed",
        "cached" => "our copy of robots.txt was the answer, nothing was sent",
        _ => "no word of this version",
    }
}

/// Makes one sentence of a decision: URL, verdict, crawler, and the rule or reason.
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
    let because = match (ruling.line, &ruling.rule) {
        (Some(line), Some(rule)) => format!("line {line}, {rule}"),
        _ => meaning(&ruling.reason).to_owned(),
    };
    let crawler = ruling
        .crawler
        .as_deref()
        .unwrap_or("a crawler without a name");
    format!("{}: {verdict} for {crawler}: {because}", record.url)
}
