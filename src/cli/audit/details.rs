//! A decision as `audit show` tells it: its row, what the row refers to, and
//! what deciding again comes to.
//!
//! Does not know how it is printed.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::audit::filter::{DecisionFilter, UrlPattern};
use crate::audit::reader::AuditReader;
use crate::audit::{CheckedRecord, row_json};
use crate::decision::decide::{Evidence, Policy};
use crate::decision::record::{Again, StoredRecord, decide_again, decision_again};
use politesse_robots::RobotsTxt;
use politesse_robots::crawler::Crawler;

/// A decision with what its record refers to.
pub(super) struct DecisionDetails {
    pub(super) record: StoredRecord,
    /// Whether the row holds what was written.
    pub(super) is_as_written: bool,
    /// The body of its robots.txt, if there was one and it is on record.
    pub(super) body: Option<Bytes>,
    /// The policy, if it can be read.
    pub(super) policy: Option<Policy>,
    /// The same decision made now, if it can be.
    pub(super) evidence: Option<Arc<Evidence>>,
    /// What deciding again came to, in words.
    pub(super) again: Result<(), String>,
    /// How many other decisions there are about the same URL.
    pub(super) others: u64,
}

impl DecisionDetails {
    /// Looks up what `record` refers to, and decides it again.
    ///
    /// # Errors
    ///
    /// The record cannot be read.
    pub(super) fn of(reader: &AuditReader, row: CheckedRecord) -> anyhow::Result<Self> {
        let CheckedRecord {
            record,
            is_as_written,
        } = row;
        let snapshot = record.snapshot.as_ref();
        let body = match snapshot.and_then(|snapshot| snapshot.sha256) {
            Some(sha256) => reader.body(sha256)?.map(Bytes::from),
            None => None,
        };
        let again = match decide_again(&record, body.clone()) {
            Ok(Again::Same | Again::FormOnly) => Ok(()),
            Ok(Again::Differs(again)) => Err(format!(
                "deciding again gives {} {}",
                again.verdict, again.reason
            )),
            Ok(Again::OfRevision { decided_by, now }) => Err(format!(
                "it was decided by revision {decided_by} of the engine; this one would say {} {}",
                now.verdict, now.reason
            )),
            Err(why) => Err(format!("it cannot be decided again: {why}")),
        };
        let decision = decision_again(&record, body.clone()).ok().flatten();
        let about_it = record.url.parse().ok();
        let about_it = about_it.map(|target| of_url(UrlPattern::exact(&target)));
        let all = about_it.map_or(Ok(1), |filter| reader.count(&filter))?;
        Ok(Self {
            is_as_written,
            policy: Policy::restore(&record.policy.json).ok(),
            evidence: decision.map(|decision| Arc::clone(decision.evidence())),
            others: all.saturating_sub(1),
            record,
            body,
            again,
        })
    }

    /// The robots.txt, read as it was when the decision was made.
    pub(super) fn robots(&self) -> Option<RobotsTxt> {
        let dialect = self.policy.as_ref().map(Policy::dialect);
        let body = self.body.clone()?;
        Some(RobotsTxt::in_dialect(body, dialect.unwrap_or_default()))
    }

    /// Whether the tokens are those that the User-Agent gives.
    pub(super) fn is_known_by_user_agent(&self) -> bool {
        let user_agent = self.record.user_agent.as_deref().unwrap_or_default();
        let derived = Crawler::parse(user_agent);
        let derived = derived.candidates().iter().map(|token| token.as_str());
        derived.eq(self.record.candidates.iter().map(String::as_str))
    }

    /// The override that decided, if one did.
    pub(super) fn overriding(&self) -> Option<Value> {
        let evidence = self.evidence.as_ref()?;
        let entry = evidence.ruling.overriding.as_deref()?;
        serde_json::to_value(entry).ok()
    }

    /// The line of the agent by which the group binds.
    pub(super) fn agent_line(&self) -> Option<u32> {
        self.evidence.as_ref()?.ruling.agent_line
    }

    /// The row of `audit list`, and what stands beside it.
    pub(super) fn json(&self) -> Value {
        let mut row = row_json(&self.record);
        if let Some(snapshot) = &self.record.snapshot {
            let robots = &mut row["robots"];
            robots["hops"] = json!(snapshot.hops);
            robots["token"] = json!(snapshot.token);
            robots["result"] = json!(snapshot.result);
            robots["cause"] = json!(snapshot.cause);
            robots["fetched_at"] = json!(snapshot.fetched_at.to_string());
            robots["expires_at"] = json!(snapshot.expires_at.to_string());
            robots["text"] = json!(self.robots().map(|robots| robots.text().into_owned()));
        }
        let policy = serde_json::from_str(&self.record.policy.json);
        row["candidates"] = json!(self.record.candidates);
        row["agent_line"] = json!(self.agent_line());
        row["override"] = json!(self.overriding());
        row["policy_json"] = policy.unwrap_or(Value::Null);
        row["as_written"] = json!(self.is_as_written);
        row["decided_again"] = json!(self.again.as_ref().map_or_else(String::as_str, |()| "same"));
        row["others"] = json!(self.others);
        row
    }
}

/// The filter for all decisions about one URL.
pub(super) fn of_url(url: UrlPattern) -> DecisionFilter {
    DecisionFilter {
        url: Some(url),
        ..DecisionFilter::default()
    }
}
