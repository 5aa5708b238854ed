//! JSON answers of `check`.
//!
//! Does not know how a ruling comes about.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::explanation::{BoundName, CompetingRule, DecisionExplanation};
use politesse_decision::decide::{Reason, Ruling, Verdict};
use politesse_decision::overrides::Override;
use politesse_decision::snapshot::AccessResult;
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::{JoinedAgents, Note, PaceRecord, PaceScope};

/// Members that every answer has: those of the batch format, less the id.
#[derive(Serialize)]
pub(crate) struct RulingJson<'a> {
    verdict: Verdict,
    reason: Reason,
    line: Option<u32>,
    rule: Option<&'a str>,
    group: Option<&'a [String]>,
    token: Option<&'a str>,
    #[serde(serialize_with = "names")]
    candidates: &'a [ProductToken],
    crawl_delay: Option<f64>,
}

impl<'a> RulingJson<'a> {
    /// Builds the members from the ruling for a crawler.
    pub(crate) fn new(ruling: &'a Ruling, crawler: &'a Crawler) -> Self {
        // Without a group for it, the crawler is known by its first candidate.
        let token = ruling.token.as_ref().or_else(|| crawler.token());
        Self {
            verdict: ruling.verdict,
            reason: ruling.reason,
            line: ruling.rule.as_ref().map(|rule| rule.line),
            rule: ruling.rule.as_ref().map(|rule| rule.text.as_str()),
            group: (!ruling.group.is_empty()).then_some(&ruling.group),
            token: token.map(ProductToken::as_str),
            candidates: crawler.candidates(),
            crawl_delay: ruling.crawl_delay(),
        }
    }
}

/// Answer of `check --json`: the members of the batch format, and all that
/// explains them.
#[derive(Serialize)]
pub(super) struct ExplanationJson<'a> {
    url: String,
    #[serde(flatten)]
    ruling: RulingJson<'a>,
    #[serde(flatten)]
    explanation: Value,
}

impl<'a> ExplanationJson<'a> {
    /// Builds the answer.
    pub(super) fn new(explanation: &'a DecisionExplanation) -> Self {
        let (ruling, evidence) = (explanation.ruling(), explanation.evidence());
        let (agent_line, agent_text) = explanation.agent_line().unzip();
        let asked = ruling.asked.as_deref();
        let members = json!({
            "user_agent": explanation.crawler().user_agent(),
            "bound": bound(explanation),
            "agent_line": agent_line,
            "agent_text": agent_text,
            "length": explanation.rule().map(|rule| rule.length()),
            "request_rate": asked.map_or_else(Vec::new, |asked| texts(&asked.rates)),
            "visit_time": asked.map_or_else(Vec::new, |asked| texts(&asked.visits)),
            "pace_records": pace_records(explanation),
            "competing": competing(explanation),
            "reading": ruling.reading,
            "refused_reading": explanation.refused_reading(),
            "refused_by_line": explanation.refused_by_rule().map(|rule| rule.line),
            "override": ruling.overriding.as_deref().map(override_json),
            "egress": evidence.denial,
            "dialect": explanation.dialect().as_str(),
            "robots": robots(explanation),
            "joins": joins(explanation),
            "notes": notes(explanation),
        });
        Self {
            url: evidence.inquiry.target.to_string(),
            ruling: RulingJson::new(ruling, explanation.crawler()),
            explanation: members,
        }
    }
}

fn texts(values: &[impl ToString]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn bound(explanation: &DecisionExplanation) -> Option<&str> {
    match explanation.bound()? {
        BoundName::Token(token) => Some(token.as_str()),
        BoundName::Everyone => Some("*"),
        BoundName::Nobody => None,
    }
}

/// Returns the pace records that bind, each with the agent line directly above
/// it: `null` if it stands below the rules of the group, and binds all of it.
fn pace_records(explanation: &DecisionExplanation) -> Value {
    let records = explanation.pace_records().into_iter();
    let lines = records.map(|PaceRecord { line, scope }| {
        let agent_line = match scope {
            PaceScope::Agents { line } => Some(line),
            PaceScope::Group => None,
        };
        json!({ "line": line, "agent_line": agent_line })
    });
    lines.collect()
}

fn competing(explanation: &DecisionExplanation) -> Value {
    let competing = explanation.competing().into_iter();
    let rules = competing.map(|CompetingRule { rule, why }| {
        json!({
            "line": rule.line(),
            "rule": rule.text(),
            "length": rule.length(),
            // The words are those of the engine, but for an override, which it does
            // not know.
            "why": why.map_or("set_aside", |why| why.as_str()),
        })
    });
    rules.collect()
}

fn joins(explanation: &DecisionExplanation) -> Value {
    let joined = explanation.joined().into_iter();
    joined
        .map(|JoinedAgents { line, above }| json!({ "line": line, "above": above }))
        .collect()
}

fn notes(explanation: &DecisionExplanation) -> Value {
    let notes = explanation
        .robots()
        .into_iter()
        .flat_map(|robots| robots.notes());
    notes
        .map(|Note { line, kind }| {
            json!({ "line": line, "kind": kind.as_str(), "note": kind.to_string() })
        })
        .collect()
}

fn override_json(entry: &Override) -> Value {
    json!({
        "action": entry.action.as_str(),
        "reason": entry.reason,
        "until": entry.action.until().map(|end| end.to_string()),
    })
}

/// Describes the robots.txt; redirects and times only if it was fetched.
fn robots(explanation: &DecisionExplanation) -> Option<Value> {
    let (snapshot, file) = (explanation.snapshot()?, explanation.file());
    // A saved file was never fetched: its snapshot has the time of the check.
    let age = explanation.age();
    let fetched = age.map(|_| snapshot);
    let (result, cause) = match &snapshot.result {
        AccessResult::Successful(_) => ("successful", None),
        AccessResult::Unavailable => ("unavailable", None),
        AccessResult::Unreachable(cause) => ("unreachable", Some(cause.as_str())),
    };
    Some(json!({
        "url": snapshot.url,
        "status": snapshot.status,
        "sha256": file.map(|file| file.digest.to_string()),
        "result": result,
        "cause": cause,
        "redirects": fetched.map(|snapshot| snapshot.hops.len()),
        "hops": fetched.map(|snapshot| &snapshot.hops),
        "content_type": file.and_then(|file| file.content_type.as_deref()),
        "fetched_at": fetched.map(|snapshot| snapshot.fetched_at.to_string()),
        "expires_at": fetched.map(|snapshot| snapshot.expires_at.to_string()),
        "age": age,
    }))
}

fn names<S: Serializer>(tokens: &&[ProductToken], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tokens.iter().map(ProductToken::as_str))
}
