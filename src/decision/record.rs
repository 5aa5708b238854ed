//! The record of a decision: the evidence as kept, and deciding again from it.
//!
//! Invariant 2: a record names the inquiry, the snapshot and the policy, so
//! that [`decide_again`] must come to the same answer, years later and offline.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use thiserror::Error;

use super::access::{AccessResult, Cause, RobotsFile, Snapshot};
use super::delay::{Delay, DelayEnd};
use super::digest::Digest;
use crate::decision::decide::{
    Decision, Evidence, Inquiry, Policy, Reason, Revision, Verdict, decide,
};
use politesse_robots::Dialect;
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::origin::InvalidTarget;

/// What was done about a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// What it says.
    Enforced,
    /// It disallows, and in report mode the request is forwarded all the same.
    Reported,
    /// The operator's override allowed what it disallows.
    Overridden,
    /// /robots.txt was answered from our copy; nothing was sent.
    Cached,
}

impl Effect {
    /// What is done about the decision of `evidence` unless more is known.
    pub fn of(evidence: &Evidence) -> Self {
        if evidence.ruling.is_overridden() {
            Self::Overridden
        } else if evidence.is_reported() {
            Self::Reported
        } else {
            Self::Enforced
        }
    }

    /// The effect with this word, if it is one that the decision was set aside
    /// with.
    pub fn exception(word: &str) -> Option<Self> {
        [Self::Reported, Self::Overridden]
            .into_iter()
            .find(|effect| effect.as_str() == word)
    }

    /// The word for it in records and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Reported => "reported",
            Self::Overridden => "overridden",
            Self::Cached => "cached",
        }
    }
}

/// A decision about to be written down.
#[derive(Debug)]
pub struct Record {
    /// The address the crawler asked from.
    pub client: IpAddr,
    /// How long the request waited for it.
    pub waited: Duration,
    /// What was done about it.
    pub effect: Effect,
    /// The decision, and what it was made from.
    pub evidence: Arc<Evidence>,
    /// The digest that the receipt must carry.
    pub digest: Digest,
}

impl Record {
    /// The record of `decision`, made for a crawler at `client` that has waited
    /// for it as long as `waited`.
    pub fn of(decision: &Decision, client: IpAddr, waited: Duration) -> Self {
        Self {
            client,
            waited,
            effect: Effect::of(decision.evidence()),
            evidence: Arc::clone(decision.evidence()),
            digest: decision.digest(),
        }
    }
}

/// What a response said about its own use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What is in force for the crawler and how far that is known, as in the
    /// annotation field, with the preferences.
    pub directives: String,
    /// The statements it follows from, as written: a JSON array of objects with
    /// `by` and `said`. Absent if there were none.
    pub said: Option<String>,
}

/// How an exchange ended: what completes its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The status the crawler was answered with, if any.
    pub status: Option<u16>,
    /// What the origin's response said, if there was one.
    pub seen: Option<Seen>,
    /// Bytes of the body passed on.
    pub bytes: u64,
    /// Why it did not end well: a word of RFC 9209, section 2.3, or ours
    /// (`client_gone`, `incomplete`).
    pub error: Option<&'static str>,
}

/// A record as read back from the store.
#[derive(Debug, Clone)]
pub struct StoredRecord {
    /// Its sequence number, from 1.
    pub seq: u64,
    /// When the decision was made.
    pub at: Timestamp,
    /// The address the crawler asked from.
    pub client: String,
    /// The candidate tokens, in order.
    pub candidates: Vec<String>,
    /// The User-Agent they came from.
    pub user_agent: Option<String>,
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// The ruling, as words and values.
    pub ruling: StoredRuling,
    /// What was done about it.
    pub effect: String,
    /// What the origin had said; absent if it was not asked.
    pub snapshot: Option<RecordedSnapshot>,
    /// What the operator had laid down.
    pub policy: StoredPolicy,
    /// Milliseconds the request waited.
    pub wait_ms: u64,
    /// The status answered with.
    pub status: Option<u16>,
    /// What is in force for the crawler, as in the annotation field.
    pub directives: Option<String>,
    /// The statements it follows from: JSON.
    pub said: Option<String>,
    /// Bytes of body passed on.
    pub bytes: Option<u64>,
    /// Why it did not end well.
    pub error: Option<String>,
}

/// A policy as read back from the store; records that rest on one share it.
#[derive(Debug, Clone)]
pub struct StoredPolicy {
    /// Its JSON.
    pub json: Arc<str>,
    /// The digest of that.
    pub sha256: Digest,
}

impl StoredPolicy {
    /// The policy with this JSON.
    pub fn new(json: &str) -> Self {
        Self {
            sha256: Digest::of(json.as_bytes()),
            json: json.into(),
        }
    }
}

/// A ruling as the store keeps it: what deciding again must reproduce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRuling {
    /// `allow`, `disallow` or `later`.
    pub verdict: String,
    /// The reason's word.
    pub reason: String,
    /// The rule's line.
    pub line: Option<u32>,
    /// The rule's text.
    pub rule: Option<String>,
    /// The group's agents.
    pub group: Vec<String>,
    /// The token that was bound, else the first candidate.
    pub crawler: Option<String>,
    /// The other reading that was refused.
    pub reading: Option<String>,
    /// How what robots.txt says was set aside, if it was: `Reported` or
    /// `Overridden`. The store keeps it as the effect.
    pub exception: Option<Effect>,
}

impl StoredRuling {
    /// The form of a decision's ruling that the store keeps.
    pub fn of(evidence: &Evidence) -> Self {
        let (ruling, crawler) = (&evidence.ruling, &evidence.inquiry.crawler);
        let token = ruling.token.as_ref().or_else(|| crawler.token());
        Self {
            verdict: ruling.verdict.as_str().to_owned(),
            reason: ruling.reason.as_str().to_owned(),
            line: ruling.rule.as_ref().map(|rule| rule.line),
            rule: ruling.rule.as_ref().map(|rule| rule.text.clone()),
            group: ruling.group.clone(),
            crawler: token.map(ToString::to_string),
            reading: ruling.reading.clone(),
            exception: Some(Effect::of(evidence)).filter(|effect| *effect != Effect::Enforced),
        }
    }
}

/// A snapshot as read back from the store; its body stands apart, by digest.
#[derive(Debug, Clone)]
pub struct RecordedSnapshot {
    /// The token it was fetched for.
    pub token: Option<String>,
    /// Where it was asked last.
    pub url: String,
    /// The URLs whose redirects led there, in order.
    pub hops: Vec<String>,
    /// The status that ended the fetch.
    pub status: Option<u16>,
    /// When the answer was there.
    pub fetched_at: Timestamp,
    /// From when on it might not be used.
    pub expires_at: Timestamp,
    /// `successful`, `unavailable` or `unreachable`.
    pub result: String,
    /// The cause's word, if unreachable, or if the file is an earlier copy
    /// because the origin was unreachable.
    pub cause: Option<String>,
    /// The SHA-256 of the body, if successful.
    pub sha256: Option<Digest>,
}

/// The word for an access result in the store.
pub fn result_word(result: &AccessResult) -> &'static str {
    match result {
        AccessResult::Successful(_) => "successful",
        AccessResult::Unavailable => "unavailable",
        AccessResult::Unreachable(_) => "unreachable",
    }
}

/// What deciding a record again came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Again {
    /// The same answer.
    Same,
    /// Another answer, by the revision that decided the row: the row or its
    /// evidence has changed.
    Differs(Box<StoredRuling>),
    /// Another answer, but the row was decided by another revision of the
    /// engine, so that it may well be the answer of then.
    OfRevision {
        /// The revision that decided the row.
        decided_by: Revision,
        /// The answer of this one.
        now: Box<StoredRuling>,
    },
    /// The record rests on no snapshot (`egress`); its form is right.
    FormOnly,
}

/// Why a record cannot be decided again. Each says that the store was changed
/// by another hand, or written by a version that knew more.
#[derive(Debug, Error)]
pub enum Undecidable {
    /// The URL is none.
    #[error("its url cannot be read")]
    Url(#[from] InvalidTarget),
    /// The policy is none.
    #[error("its policy cannot be read")]
    Policy(#[from] serde_json::Error),
    /// A word or value that no version writes.
    #[error("its {field} is {value:?}, which is not known")]
    Value {
        /// The column.
        field: &'static str,
        /// What stands in it.
        value: String,
    },
    /// The body of robots.txt is not in the store.
    #[error("the body {0} of its robots.txt is missing")]
    BodyMissing(Digest),
    /// The body of robots.txt is not the one that was decided by.
    #[error("the body kept as {0} has another digest")]
    BodyChanged(Digest),
}

/// Decides a record again from what is stored: its own values, and the body of
/// robots.txt that its snapshot names.
///
/// # Errors
///
/// [`Undecidable`], with what keeps it from being decided.
pub fn decide_again(record: &StoredRecord, body: Option<Bytes>) -> Result<Again, Undecidable> {
    let Some(decision) = decision_again(record, body)? else {
        return form_only(record);
    };
    let evidence = decision.evidence();
    let again = StoredRuling::of(evidence);
    Ok(match evidence.policy.revision() {
        _ if again == record.ruling => Again::Same,
        Revision::CURRENT => Again::Differs(Box::new(again)),
        decided_by => Again::OfRevision {
            decided_by,
            now: Box::new(again),
        },
    })
}

/// The decision that follows from what a record rests on; `None` if it rests on
/// no snapshot.
///
/// # Errors
///
/// [`Undecidable`], with what keeps it from being decided.
pub fn decision_again(
    record: &StoredRecord,
    body: Option<Bytes>,
) -> Result<Option<Decision>, Undecidable> {
    let target = record.url.parse()?;
    let policy = Arc::new(Policy::restore(&record.policy.json)?);
    let Some(stored) = &record.snapshot else {
        return Ok(None);
    };
    let inquiry = Arc::new(Inquiry {
        crawler: Crawler::restore(tokens(&record.candidates)?, record.user_agent.clone()),
        target,
        method: record.method.clone(),
    });
    let snapshot = Arc::new(Snapshot {
        origin: inquiry.target.origin.clone(),
        token: None,
        url: stored.url.clone(),
        hops: stored.hops.clone(),
        status: stored.status,
        fetched_at: stored.fetched_at,
        expires_at: stored.expires_at,
        result: restore_result(stored, (body, policy.dialect()))?,
        stale: restore_stale(stored)?,
    });
    let decision = decide(&inquiry, &snapshot, (&policy, record.at));
    Ok(Some(match put_off(&record.ruling)? {
        Some(reason) => decision.later(Delay::of_host(reason, DelayEnd::After(Duration::ZERO))),
        None => decision,
    }))
}

/// Only an egress refusal is decided without asking the origin.
fn form_only(record: &StoredRecord) -> Result<Again, Undecidable> {
    let ruling = &record.ruling;
    if ruling.reason != Reason::Egress.as_str() {
        return Err(unknown("reason", &ruling.reason));
    }
    if ruling.verdict != Verdict::Disallow.as_str() {
        return Err(unknown("verdict", &ruling.verdict));
    }
    if let Some(effect) = ruling.exception {
        return Err(unknown("effect", effect.as_str()));
    }
    Ok(Again::FormOnly)
}

/// What a `later` row was put off for. The pace of that hour is not kept; that
/// the request was let through, and by which rule, must follow again.
fn put_off(ruling: &StoredRuling) -> Result<Option<Reason>, Undecidable> {
    if ruling.verdict != Verdict::Later.as_str() {
        return Ok(None);
    }
    let mut reasons = Reason::OF_PACE.into_iter();
    let reason = reasons.find(|reason| reason.as_str() == ruling.reason);
    let reason = reason.ok_or_else(|| unknown("reason", &ruling.reason))?;
    Ok(Some(reason))
}

fn tokens(candidates: &[String]) -> Result<Vec<ProductToken>, Undecidable> {
    candidates
        .iter()
        .map(|token| ProductToken::new(token).map_err(|_| unknown("candidates", token)))
        .collect()
}

fn restore_result(
    stored: &RecordedSnapshot,
    (body, dialect): (Option<Bytes>, Dialect),
) -> Result<AccessResult, Undecidable> {
    match (stored.result.as_str(), stored.sha256, &stored.cause) {
        ("successful", Some(digest), _) => {
            let body = body.ok_or(Undecidable::BodyMissing(digest))?;
            let copy = RobotsFile::read(body, dialect);
            if copy.digest != digest {
                return Err(Undecidable::BodyChanged(digest));
            }
            Ok(AccessResult::Successful(Arc::new(copy)))
        }
        ("unavailable", _, _) => Ok(AccessResult::Unavailable),
        ("unreachable", _, Some(cause)) => {
            let cause = cause.parse().map_err(|_| unknown("cause", cause))?;
            Ok(AccessResult::Unreachable(cause))
        }
        (result, _, _) => Err(unknown("result", result)),
    }
}

/// Of a file the cause says why the origin could not be asked again.
fn restore_stale(stored: &RecordedSnapshot) -> Result<Option<Cause>, Undecidable> {
    let cause = stored
        .cause
        .as_ref()
        .filter(|_| stored.result == "successful");
    let cause = cause.map(|cause| cause.parse().map_err(|_| unknown("cause", cause)));
    cause.transpose()
}

fn unknown(field: &'static str, value: &str) -> Undecidable {
    Undecidable::Value {
        field,
        value: value.to_owned(),
    }
}
