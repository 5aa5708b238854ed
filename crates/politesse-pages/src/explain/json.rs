//! JSON of an explanation, of a ruling, and of a decision in exports.
//!
//! Does not know how a ruling is made.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::rules::{CompetingRule, DecidingRules};
use super::{Explanation, RowState};
use politesse_decision::decide::{Reason, Ruling, Verdict};
use politesse_decision::record::{RecordedSnapshot, StoredRecord};
use politesse_decision::row_json::row_json;
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::{JoinedAgents, Note, PaceRecord, PaceScope, RobotsTxt};

/// Version of the JSON of a decision in exports. It is raised when a member is removed
/// or changes its meaning, not when one is added.
const LINE_VERSION: u32 = 1;

/// Members of every answer of `check`: those of the batch format, except the id.
#[derive(Debug, Serialize)]
pub struct RulingJson<'a> {
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
    pub fn new(ruling: &'a Ruling, crawler: &'a Crawler) -> Self {
        // If no group binds the crawler, its first candidate identifies it.
        let token = ruling.token.as_ref().or_else(|| crawler.token());
        Self {
            verdict: ruling.verdict,
            reason: ruling.reason,
            line: ruling.rule.as_ref().and_then(|rule| rule.line),
            rule: ruling.rule.as_ref().map(|rule| rule.text.as_str()),
            group: (!ruling.group.is_empty()).then_some(&ruling.group),
            token: token.map(ProductToken::as_str),
            candidates: crawler.candidates(),
            crawl_delay: ruling.crawl_delay(),
        }
    }
}

fn names<S: Serializer>(tokens: &&[ProductToken], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tokens.iter().map(ProductToken::as_str))
}

impl Explanation {
    /// Makes the JSON: the members of the batch format of `check`, plus all that
    /// explains them. For a row it also has the members of `audit list`, and the
    /// policy.
    pub fn json(&self) -> Value {
        let record = &self.record;
        let mut members = match &self.row {
            None => object(json!({ "url": record.url, "user_agent": record.crawler.user_agent })),
            Some(_) => object(row_json(record)),
        };
        if let Some(row) = &self.row {
            members.extend(object(row.json(record)));
        }
        for (name, value) in self.rules.iter().flat_map(DecidingRules::json) {
            // The row takes precedence, because its query string may be withheld.
            members.entry(name).or_insert(value);
        }
        let snapshot = record.snapshot.as_deref();
        let robots = snapshot.map(|snapshot| self.robots_json(snapshot));
        members.insert("robots".to_owned(), json!(robots));
        members.insert("tls".to_owned(), json!(self.tls_exception()));
        Value::Object(members)
    }

    /// Describes the robots.txt. Redirects and times are included only if it was
    /// fetched, and its text only if it is on record.
    fn robots_json(&self, snapshot: &RecordedSnapshot) -> Value {
        let rules = self.rules.as_ref();
        let content_type = rules.and_then(|rules| rules.file()?.content_type.as_deref());
        let mut robots = fetch_json(snapshot);
        robots["content_type"] = json!(content_type);
        robots["age"] = json!(self.age());
        robots["redirects"] = json!(snapshot.hops.len());
        if self.row.is_some() {
            let text = self.robots().map(|robots| robots.text().into_owned());
            robots["text"] = json!(text);
        }
        if self.asked_at.is_none() {
            // A saved file was never fetched; its snapshot has the time of the check.
            for member in ["redirects", "hops", "fetched_at", "expires_at"] {
                robots[member] = Value::Null;
            }
        }
        robots
    }
}

impl RowState {
    /// Makes the members of a row that `audit list` does not have.
    fn json(&self, record: &StoredRecord) -> Value {
        let policy = serde_json::from_str(&record.policy.json);
        json!({
            "credential": record.client.credential,
            "candidates": record.crawler.candidates,
            "unlisted": record.crawler.unlisted,
            "policy_json": policy.unwrap_or(Value::Null),
            "as_written": self.context.is_as_written,
            "decided_again": self.again.as_ref().map_or_else(String::as_str, |()| "same"),
            "others": self.context.others,
        })
    }
}

impl DecidingRules {
    fn json(&self) -> Map<String, Value> {
        let (ruling, crawler) = (self.ruling(), self.crawler());
        let (agent_line, agent_text) = self.agent_line().unzip();
        let records = ruling.pace_records.as_deref();
        let members = json!({
            "bound": self.bound(),
            "agent_line": agent_line,
            "agent_text": agent_text,
            "length": self.rule().map(|rule| rule.length()),
            "request_rate": records.map_or_else(Vec::new, |records| texts(&records.rates)),
            "visit_time": records.map_or_else(Vec::new, |records| texts(&records.visits)),
            "pace_records": array(self.pace_records(), pace_record),
            "competing": array(self.competing(), competing),
            "reading": ruling.reading,
            "refused_reading": self.refused_reading(),
            "refused_by_line": self.refused_by_rule().map(|(line, _)| line),
            "override": ruling.overriding,
            "egress": self.egress_denial(),
            "dialect": self.dialect().as_str(),
            "joins": array(self.joined(), |JoinedAgents { line, above }| {
                json!({ "line": line, "above": above })
            }),
            "notes": array(self.robots().into_iter().flat_map(RobotsTxt::notes), note),
        });
        let decided = serde_json::to_value(RulingJson::new(ruling, crawler));
        let mut all = object(decided.unwrap_or_default());
        all.extend(object(members));
        all
    }
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(members) = value else {
        return Map::new();
    };
    members
}

fn array<T>(items: impl IntoIterator<Item = T>, json: impl Fn(T) -> Value) -> Value {
    items.into_iter().map(json).collect()
}

fn texts(values: &[impl ToString]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

/// Describes a pace record that binds. The agent line is the one directly above it, or
/// `null` if the record stands below the group's rules and binds the whole group.
fn pace_record(PaceRecord { line, scope }: PaceRecord) -> Value {
    let agent_line = match scope {
        PaceScope::Agents { line } => Some(line),
        PaceScope::Group => None,
    };
    json!({ "line": line, "agent_line": agent_line })
}

fn competing(CompetingRule { rule, why }: CompetingRule<'_>) -> Value {
    json!({
        "line": rule.line(),
        "rule": rule.text(),
        "length": rule.length(),
        // The words come from the engine, except for overrides, which the engine does
        // not know.
        "why": why.map_or("set_aside", |why| why.as_str()),
    })
}

fn note(Note { line, kind }: Note) -> Value {
    json!({ "line": line, "kind": kind.as_str(), "note": kind.to_string() })
}

/// Makes the JSON of a robots.txt with the result, the times and the token of its
/// fetch.
pub fn fetch_json(snapshot: &RecordedSnapshot) -> Value {
    json!({
        "url": snapshot.url,
        "status": snapshot.status,
        "sha256": snapshot.sha256.map(|digest| digest.to_string()),
        "charset": snapshot.charset,
        "hops": snapshot.hops,
        "token": snapshot.token,
        "result": snapshot.result,
        "cause": snapshot.cause,
        "fetched_at": snapshot.fetched_at.to_string(),
        "expires_at": snapshot.expires_at.to_string(),
    })
}

/// Makes the JSON of a decision for exports: the row of `audit list` with the id of its
/// audit record, the credential, and the fetch of the robots.txt.
pub fn decision_json(decision: &StoredRecord, record: &str) -> Value {
    let mut members = Map::new();
    members.insert("version".to_owned(), json!(LINE_VERSION));
    members.insert("record".to_owned(), json!(record));
    // After the version, which tells a program how to read the other members.
    members.extend(object(row_json(decision)));
    members.insert("credential".to_owned(), json!(decision.client.credential));
    members.insert("candidates".to_owned(), json!(decision.crawler.candidates));
    if let Some(snapshot) = &decision.snapshot {
        members.insert("robots".to_owned(), fetch_json(snapshot));
    }
    Value::Object(members)
}
