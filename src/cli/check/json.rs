//! JSON answers of `check`.
//!
//! Does not know how a ruling comes about.

use serde::{Serialize, Serializer};

use super::explanation::{BoundName, DecisionExplanation};
use crate::decision::decide::{Reason, Ruling, Verdict};
use crate::decision::overrides::Override;
use crate::decision::snapshot::{AccessResult, Snapshot};
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::{JoinedAgents, PaceRecord, PaceScope};

/// RulingJson that every answer has: those of the batch format, less the id.
#[derive(Serialize)]
pub(super) struct RulingJson<'a> {
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
    pub(super) fn new(ruling: &'a Ruling, crawler: &'a Crawler) -> Self {
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
    user_agent: Option<&'a str>,
    /// Candidate that a group names, `*`, or nothing.
    bound: Option<&'a str>,
    agent_line: Option<u32>,
    agent_text: Option<String>,
    length: Option<usize>,
    request_rate: Vec<String>,
    visit_time: Vec<String>,
    pace_records: Vec<PaceRecordJson>,
    competing: Vec<CompetingRuleJson>,
    reading: Option<&'a str>,
    refused_reading: Option<String>,
    refused_by_line: Option<u32>,
    r#override: Option<OverrideJson<'a>>,
    egress: Option<&'a str>,
    dialect: &'static str,
    robots: Option<RobotsTxtJson<'a>>,
    joins: Vec<AgentJoinJson>,
    notes: Vec<NoteJson>,
}

/// Pace record that binds.
#[derive(Serialize)]
struct PaceRecordJson {
    line: u32,
    /// Agent line directly above it; absent if the record stands below the rules
    /// of the group, and binds all of it.
    agent_line: Option<u32>,
}

/// Rule that matches and does not count.
#[derive(Serialize)]
struct CompetingRuleJson {
    line: u32,
    rule: String,
    length: usize,
    why: &'static str,
}

/// Override of the operator.
#[derive(Serialize)]
struct OverrideJson<'a> {
    action: &'static str,
    reason: &'a str,
    until: Option<String>,
}

/// Robots.txt that was judged by; redirects and times only if it was fetched.
#[derive(Serialize)]
struct RobotsTxtJson<'a> {
    url: &'a str,
    status: Option<u16>,
    sha256: Option<String>,
    result: &'static str,
    cause: Option<&'static str>,
    redirects: Option<usize>,
    hops: Option<&'a [String]>,
    content_type: Option<&'a str>,
    fetched_at: Option<String>,
    expires_at: Option<String>,
    age: Option<i64>,
}

/// Agent line that joins the group above it.
#[derive(Serialize)]
struct AgentJoinJson {
    line: u32,
    above: u32,
}

/// Oddity of the file.
#[derive(Serialize)]
struct NoteJson {
    line: u32,
    kind: &'static str,
    note: String,
}

impl<'a> ExplanationJson<'a> {
    /// Builds the answer.
    pub(super) fn new(explanation: &'a DecisionExplanation) -> Self {
        let (ruling, evidence) = (explanation.ruling(), explanation.evidence());
        let (agent_line, agent_text) = explanation.agent_line().unzip();
        let joined = explanation.joined().into_iter();
        let asked = ruling.asked.as_deref();
        Self {
            url: evidence.inquiry.target.to_string(),
            ruling: RulingJson::new(ruling, explanation.crawler()),
            user_agent: explanation.crawler().user_agent(),
            bound: bound(explanation),
            agent_line,
            agent_text,
            length: explanation.rule().map(|rule| rule.length()),
            request_rate: asked.map_or_else(Vec::new, |asked| texts(&asked.rates)),
            visit_time: asked.map_or_else(Vec::new, |asked| texts(&asked.visits)),
            pace_records: pace_records(explanation),
            competing: competitors(explanation),
            reading: ruling.reading.as_deref(),
            refused_reading: explanation.refused_reading(),
            refused_by_line: explanation.refused_by_rule().map(|rule| rule.line),
            r#override: ruling.overriding.as_deref().map(OverrideJson::new),
            egress: evidence.denial.as_deref(),
            dialect: explanation.dialect().as_str(),
            robots: RobotsTxtJson::new(explanation),
            joins: joined
                .map(|JoinedAgents { line, above }| AgentJoinJson { line, above })
                .collect(),
            notes: notes(explanation),
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

fn pace_records(explanation: &DecisionExplanation) -> Vec<PaceRecordJson> {
    let records = explanation.pace_records().into_iter();
    records
        .map(|PaceRecord { line, scope }| PaceRecordJson {
            line,
            agent_line: match scope {
                PaceScope::Agents { line } => Some(line),
                PaceScope::Group => None,
            },
        })
        .collect()
}

fn competitors(explanation: &DecisionExplanation) -> Vec<CompetingRuleJson> {
    let competing = explanation.competing().into_iter();
    competing
        .map(|competing| CompetingRuleJson {
            line: competing.rule.line(),
            rule: competing.rule.text().into_owned(),
            length: competing.rule.length(),
            why: competing.why.map_or("set_aside", |why| why.as_str()),
        })
        .collect()
}

fn notes(explanation: &DecisionExplanation) -> Vec<NoteJson> {
    let robots = explanation.robots().into_iter();
    robots
        .flat_map(|robots| robots.notes())
        .map(|note| NoteJson {
            line: note.line,
            kind: note.kind.as_str(),
            note: note.kind.to_string(),
        })
        .collect()
}

impl<'a> OverrideJson<'a> {
    fn new(entry: &'a Override) -> Self {
        Self {
            action: entry.action.as_str(),
            reason: &entry.reason,
            until: entry.action.until().map(|end| end.to_string()),
        }
    }
}

impl<'a> RobotsTxtJson<'a> {
    fn new(explanation: &'a DecisionExplanation) -> Option<Self> {
        let (snapshot, file) = (explanation.snapshot()?, explanation.file());
        let age = explanation.age();
        let fetched = age.map(|_| snapshot);
        let (result, cause) = result(snapshot);
        Some(Self {
            url: &snapshot.url,
            status: snapshot.status,
            sha256: file.map(|file| file.digest.to_string()),
            result,
            cause,
            redirects: fetched.map(|snapshot| snapshot.hops.len()),
            hops: fetched.map(|snapshot| snapshot.hops.as_slice()),
            content_type: file.and_then(|file| file.content_type.as_deref()),
            fetched_at: fetched.map(|snapshot| snapshot.fetched_at.to_string()),
            expires_at: fetched.map(|snapshot| snapshot.expires_at.to_string()),
            age,
        })
    }
}

fn result(snapshot: &Snapshot) -> (&'static str, Option<&'static str>) {
    match &snapshot.result {
        AccessResult::Successful(_) => ("successful", None),
        AccessResult::Unavailable => ("unavailable", None),
        AccessResult::Unreachable(cause) => ("unreachable", Some(cause.as_str())),
    }
}

fn names<S: Serializer>(tokens: &&[ProductToken], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tokens.iter().map(ProductToken::as_str))
}
