//! Explanation of a decision: its record, the values that the record refers to, and
//! whether deciding again gives the same verdict.
//!
//! Does not know how an explanation is printed.

pub mod facts;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use politesse_decision::again::{Again, EvidenceCache, decide_again, decision_again};
use politesse_decision::decide::{Evidence, Policy};
use politesse_decision::record::{RecordedSnapshot, StoredRecord};
use politesse_record::filter::{DecisionFilter, UrlPattern};
use politesse_record::reader::AuditReader;
use politesse_record::{AuditError, CheckedRecord, row_json};
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use politesse_robots::{Dialect, FileSource, RobotsTxt};

/// Version of the JSON of a decision in exports: raised when a member is removed or
/// changes its meaning, not when one is added.
const LINE_VERSION: u32 = 1;

/// A decision record with everything that it refers to.
pub struct DecisionDetails {
    /// The row.
    pub record: StoredRecord,
    /// Whether the row holds the values that were written; `None` if nothing proves it, as
    /// in the archive.
    pub is_as_written: Option<bool>,
    /// Body of the robots.txt, if there was one and the audit record has it.
    pub body: Option<Bytes>,
    /// Policy, if it can be read.
    pub policy: Option<Policy>,
    /// Evidence of the decision made again, if it can be.
    pub evidence: Option<Arc<Evidence>>,
    /// Result of deciding again: `Ok` if the verdict is the same, else a clause that
    /// says what differs or why it could not be decided.
    pub again: Result<(), String>,
    /// Number of other decisions about the same URL; `None` if it was not counted in time.
    pub others: Option<u64>,
}

impl DecisionDetails {
    /// Reads the values that `row` refers to, and decides it again. Counting other
    /// decisions about the URL stops at `deadline`, if there is one.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn of(
        reader: &AuditReader,
        row: CheckedRecord,
        deadline: Option<Instant>,
    ) -> Result<Self, AuditError> {
        let CheckedRecord {
            record,
            is_as_written,
            ..
        } = row;
        let snapshot = record.snapshot.as_ref();
        let body = match snapshot.and_then(|snapshot| snapshot.sha256) {
            Some(sha256) => reader.body(sha256)?.map(Bytes::from),
            None => None,
        };
        let all = match record.url.parse() {
            Ok(target) => reader.count_until(&of_url(UrlPattern::exact(&target)), deadline)?,
            // The row was altered, and the text is no URL that could be searched for.
            Err(_) => Some(1),
        };
        Ok(Self {
            is_as_written: Some(is_as_written),
            others: all.map(|all| all.saturating_sub(1)),
            ..Self::decided_again(record, body)
        })
    }

    /// Decides `record` again from the values that it rests on.
    pub fn decided_again(record: StoredRecord, body: Option<Bytes>) -> Self {
        let mut cache = EvidenceCache::default();
        let again = match decide_again(&record, body.clone(), &mut cache) {
            Ok(Again::Same | Again::FormOnly) => Ok(()),
            Ok(Again::Differs(again)) => Err(format!(
                "deciding again gives {} {}",
                again.verdict, again.reason
            )),
            Ok(Again::OfRevision { decided_by, now }) => Err(format!(
                "it was decided by revision {decided_by} of the engine; this one would say {} {}",
                now.verdict, now.reason
            )),
            Ok(Again::QueryWithheld) => {
                Err("it may rest on the query string, which is not on record".to_owned())
            }
            Err(why) => Err(format!("it cannot be decided again: {why}")),
        };
        let decision = decision_again(&record, body.clone(), &mut cache)
            .ok()
            .flatten();
        Self {
            is_as_written: None,
            policy: Policy::restore(&record.policy.json).ok(),
            evidence: decision.map(|decision| Arc::clone(decision.evidence())),
            others: None,
            record,
            body,
            again,
        }
    }

    /// Parses the robots.txt as it was parsed for the decision.
    pub fn robots(&self) -> Option<RobotsTxt> {
        let policy = self.policy.as_ref();
        let dialect = policy.map_or_else(Dialect::default, |policy| policy.terms().dialect);
        let body = self.body.clone()?;
        let target = self.record.url.parse::<Target>().ok();
        let snapshot = self.record.snapshot.as_deref();
        let charset = snapshot.and_then(|snapshot| snapshot.charset.as_ref());
        let source = FileSource {
            origin: target.map(|target| target.origin),
            charset: charset.and_then(|charset| charset.parse().ok()),
        };
        Some(RobotsTxt::from_source(body, dialect, source))
    }

    /// Reports whether the product tokens come from the User-Agent, and not from a
    /// `crawler` entry of the configuration.
    pub(crate) fn is_known_by_user_agent(&self) -> bool {
        let stored = &self.record.crawler;
        let crawler = Crawler::parse(stored.user_agent.as_deref().unwrap_or_default());
        let tokens = crawler.candidates().iter().map(|token| token.as_str());
        tokens.eq(stored.candidates.iter().map(String::as_str))
    }

    /// Returns the override that decided, if one did.
    pub(crate) fn overriding(&self) -> Option<Value> {
        let evidence = self.evidence.as_ref()?;
        let entry = evidence.ruling.overriding.as_deref()?;
        serde_json::to_value(entry).ok()
    }

    /// Returns the line of the `User-agent` record by which the group binds the crawler.
    pub(crate) fn agent_line(&self) -> Option<u32> {
        self.evidence.as_ref()?.ruling.agent_line
    }

    /// Makes the JSON: the row of `audit list`, with the values that it refers to.
    pub fn json(&self) -> Value {
        let mut row = row_json(&self.record);
        if let Some(snapshot) = &self.record.snapshot {
            let robots = &mut row["robots"];
            robots["hops"] = json!(snapshot.hops);
            add_fetch(robots, snapshot);
            robots["text"] = json!(self.robots().map(|robots| robots.text().into_owned()));
        }
        let policy = serde_json::from_str(&self.record.policy.json);
        row["credential"] = json!(self.record.client.credential);
        row["candidates"] = json!(self.record.crawler.candidates);
        row["unlisted"] = json!(self.record.crawler.unlisted);
        row["agent_line"] = json!(self.agent_line());
        row["override"] = json!(self.overriding());
        row["policy_json"] = policy.unwrap_or(Value::Null);
        row["as_written"] = json!(self.is_as_written);
        row["decided_again"] = json!(self.again.as_ref().map_or_else(String::as_str, |()| "same"));
        row["others"] = json!(self.others);
        row
    }
}

/// Adds result, times and token of the fetch of a robots.txt to its JSON.
pub fn add_fetch(robots: &mut Value, snapshot: &RecordedSnapshot) {
    robots["token"] = json!(snapshot.token);
    robots["result"] = json!(snapshot.result);
    robots["cause"] = json!(snapshot.cause);
    robots["fetched_at"] = json!(snapshot.fetched_at.to_string());
    robots["expires_at"] = json!(snapshot.expires_at.to_string());
}

/// Makes the filter for all decisions about one URL.
pub fn of_url(url: UrlPattern) -> DecisionFilter {
    DecisionFilter {
        url: Some(url),
        ..DecisionFilter::default()
    }
}

/// Makes the JSON of a decision for exports: the row of `audit list`, with the id of its
/// audit record, the credential, and the fetch of the robots.txt.
pub fn decision_json(decision: &StoredRecord, record: &str) -> Value {
    let mut members = Map::new();
    members.insert("version".to_owned(), json!(LINE_VERSION));
    members.insert("record".to_owned(), json!(record));
    // After the version, by which a program knows the other members.
    if let Value::Object(row) = row_json(decision) {
        members.extend(row);
    }
    members.insert("credential".to_owned(), json!(decision.client.credential));
    members.insert("candidates".to_owned(), json!(decision.crawler.candidates));
    let mut line = Value::Object(members);
    if let Some(snapshot) = &decision.snapshot {
        add_fetch(&mut line["robots"], snapshot);
    }
    line
}
