//! Decision record: the evidence of one decision as the audit record stores it
//! in a row, and deciding again from it.
//!
//! Invariant 2 (ARCHITECTURE.md): a decision record names the inquiry, the
//! snapshot and the policy, so that [`decide_again`] must come to the same
//! answer, years later and offline. Does not know how rows are stored.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::access::Cause;
use super::delay::{Delay, DelayEnd};
use super::digest::Digest;
use super::reason::words;
use super::snapshot::{AccessResult, CacheKey, RobotsFile, Snapshot};
use crate::decision::decide::{
    Decision, Evidence, Inquiry, Policy, Reason, Revision, Verdict, decide,
};
use politesse_robots::Dialect;
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::origin::InvalidTarget;

words! {
    /// Effect of a decision on its request.
    Effect {
        /// The decision was enforced.
        Enforced = "enforced",
        /// The decision disallows, and in report mode the request was forwarded.
        Reported = "reported",
        /// An override allowed what robots.txt disallows.
        Overridden = "overridden",
        /// The answer was our copy of /robots.txt; nothing was sent.
        Cached = "cached",
    }
}

impl Effect {
    /// Returns the effect that follows from `evidence` alone.
    pub fn of(evidence: &Evidence) -> Self {
        if evidence.ruling.is_overridden() {
            Self::Overridden
        } else if evidence.is_reported() {
            Self::Reported
        } else {
            Self::Enforced
        }
    }

    /// Returns the effect with this word, if it is one by which the verdict of
    /// robots.txt was set aside.
    pub fn exception(word: &str) -> Option<Self> {
        [Self::Reported, Self::Overridden]
            .into_iter()
            .find(|effect| effect.as_str() == word)
    }
}

/// Decision that is about to be recorded.
#[derive(Debug)]
pub struct Record {
    /// Address that the request came from.
    pub client: IpAddr,
    /// Time that the request waited for the decision.
    pub waited: Duration,
    /// Effect of the decision.
    pub effect: Effect,
    /// The decision, and what it was made from.
    pub evidence: Arc<Evidence>,
    /// The digest that the receipt must carry.
    pub digest: Digest,
}

impl Record {
    /// Creates the decision record of `decision` for a request from `client`
    /// that has waited for `waited`.
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

/// Directives that a response stated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Directives in force for the crawler, as in the annotation field, with the
    /// preferences.
    pub directives: String,
    /// Statements that they follow from, as written: a JSON array of objects with
    /// `by` and `said`. Absent if there were none.
    pub said: Option<String>,
}

/// End of an exchange, which completes its decision record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeEnd {
    /// The status the crawler was answered with, if any.
    pub status: Option<u16>,
    /// Directives of the origin's response, if there was one.
    pub seen: Option<Seen>,
    /// Bytes of the body passed on.
    pub bytes: u64,
    /// Error that ended it: a word of RFC 9209, section 2.3, or ours
    /// (`client_gone`, `incomplete`).
    pub error: Option<&'static str>,
}

/// Record as read back from the store.
#[derive(Debug, Clone)]
pub struct StoredRecord {
    /// Sequence number of the row, from 1.
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
    /// Effect of the decision.
    pub effect: String,
    /// Snapshot of the origin; absent if it was not asked.
    pub snapshot: Option<RecordedSnapshot>,
    /// Policy of the operator.
    pub policy: StoredPolicy,
    /// Milliseconds the request waited.
    pub wait_ms: u64,
    /// The status answered with.
    pub status: Option<u16>,
    /// Directives in force for the crawler, as in the annotation field.
    pub directives: Option<String>,
    /// Statements that they follow from: JSON.
    pub said: Option<String>,
    /// Bytes of body passed on.
    pub bytes: Option<u64>,
    /// Error that ended the exchange.
    pub error: Option<String>,
}

/// A policy as read back from the store; decision records that rest on one
/// share it.
#[derive(Debug, Clone)]
pub struct StoredPolicy {
    /// JSON of the policy.
    pub json: Arc<str>,
    /// The digest of that.
    pub sha256: Digest,
}

impl StoredPolicy {
    /// Creates the policy with this JSON.
    pub fn new(json: &str) -> Self {
        Self {
            sha256: Digest::of(json.as_bytes()),
            json: json.into(),
        }
    }
}

/// Ruling as the store keeps it. Deciding again must reproduce it.
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
    /// Effect by which the verdict of robots.txt was set aside, if it was:
    /// `Reported` or `Overridden`.
    pub exception: Option<Effect>,
}

impl StoredRuling {
    /// Creates the stored form of a decision's ruling.
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
            // A decision that is enforced has set nothing aside.
            exception: Some(Effect::of(evidence)).filter(|effect| *effect != Effect::Enforced),
        }
    }
}

/// Snapshot of a decision record, as read back from the store. Its body is
/// stored apart, by digest.
#[derive(Debug, Clone)]
pub struct RecordedSnapshot {
    /// The token it was fetched for.
    pub token: Option<String>,
    /// URL that was requested last.
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
    /// Word of the cause, if the origin was unreachable, whether there was an
    /// earlier file or not.
    pub cause: Option<String>,
    /// The SHA-256 of the body, if successful.
    pub sha256: Option<Digest>,
}

/// Returns the word for an access result in the store.
pub fn result_word(result: &AccessResult) -> &'static str {
    match result {
        AccessResult::Successful(_) => "successful",
        AccessResult::Unavailable => "unavailable",
        AccessResult::Unreachable(_) => "unreachable",
    }
}

/// Result of making a recorded decision again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Again {
    /// Deciding again gives the same answer.
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
    /// The decision rests on no snapshot (`egress`); its form is right.
    FormOnly,
}

/// Reason why a recorded decision cannot be made again: the store was changed
/// by another hand, or written by a later version.
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
        /// Value in the column.
        value: String,
    },
    /// The body of robots.txt is not in the store.
    #[error("the body {0} of its robots.txt is missing")]
    BodyMissing(Digest),
    /// The body of robots.txt is not the one that was decided by.
    #[error("the body kept as {0} has another digest")]
    BodyChanged(Digest),
}

/// Makes a recorded decision again from what is stored: the values of the
/// record, and the body of robots.txt that its snapshot names.
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
    Ok(match evidence.policy.terms().revision {
        // Equal answers need no excuse, whatever revision decided the row.
        _ if again == record.ruling => Again::Same,
        Revision::CURRENT => Again::Differs(Box::new(again)),
        decided_by => Again::OfRevision {
            decided_by,
            now: Box::new(again),
        },
    })
}

/// Makes a recorded decision again; `None` if it rests on no snapshot.
///
/// # Errors
///
/// [`Undecidable`], with what keeps it from being decided.
pub fn decision_again(
    record: &StoredRecord,
    body: Option<Bytes>,
) -> Result<Option<Decision>, Undecidable> {
    let target = record.url.parse()?;
    // Before the snapshot is looked for: a row without one must have a policy
    // that can be read, too.
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
        // Verdicts do not depend on the token that a file was fetched for, only
        // on its body.
        key: CacheKey {
            origin: inquiry.target.origin.clone(),
            token: None,
        },
        url: stored.url.clone(),
        hops: stored.hops.clone(),
        status: stored.status,
        fetched_at: stored.fetched_at,
        expires_at: stored.expires_at,
        result: restore_result(stored, body, policy.terms().dialect)?,
        // The cause of an unreachable origin is part of its access result.
        stale: match stored.result.as_str() {
            "successful" => restore_cause(stored)?,
            _ => None,
        },
    });
    let decision = decide(&inquiry, &snapshot, &policy, record.at);
    Ok(Some(match delay_reason(&record.ruling)? {
        // No wait and no explanation: neither is part of the ruling that is
        // compared.
        Some(reason) => decision.later(Delay::of_host(reason, DelayEnd::After(Duration::ZERO))),
        None => decision,
    }))
}

/// Checks the form of a decision record without a snapshot. Only an egress
/// refusal is decided without asking the origin.
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

/// Returns the reason of a delay. The pace of that hour is not stored; that the
/// request was let through, and by which rule, must follow again.
fn delay_reason(ruling: &StoredRuling) -> Result<Option<Reason>, Undecidable> {
    if ruling.verdict != Verdict::Later.as_str() {
        return Ok(None);
    }
    let mut reasons = Reason::OF_PACE.into_iter();
    let known = reasons.find(|reason| reason.as_str() == ruling.reason);
    known
        .map(Some)
        .ok_or_else(|| unknown("reason", &ruling.reason))
}

fn tokens(candidates: &[String]) -> Result<Vec<ProductToken>, Undecidable> {
    candidates
        .iter()
        .map(|token| ProductToken::new(token).map_err(|_| unknown("candidates", token)))
        .collect()
}

fn restore_result(
    stored: &RecordedSnapshot,
    body: Option<Bytes>,
    dialect: Dialect,
) -> Result<AccessResult, Undecidable> {
    match (stored.result.as_str(), stored.sha256) {
        ("successful", Some(digest)) => {
            let body = body.ok_or(Undecidable::BodyMissing(digest))?;
            // The body was stored as it was cut, so it is read as a whole file:
            // rules behind the cut decided nothing.
            let copy = RobotsFile::read(body, dialect);
            if copy.digest != digest {
                return Err(Undecidable::BodyChanged(digest));
            }
            Ok(AccessResult::Successful(Arc::new(copy)))
        }
        ("unavailable", _) => Ok(AccessResult::Unavailable),
        ("unreachable", _) => restore_cause(stored)?
            .map(AccessResult::Unreachable)
            .ok_or_else(|| unknown("result", &stored.result)),
        (result, _) => Err(unknown("result", result)),
    }
}

fn restore_cause(stored: &RecordedSnapshot) -> Result<Option<Cause>, Undecidable> {
    let read = |cause: &String| cause.parse().map_err(|_| unknown("cause", cause));
    stored.cause.as_ref().map(read).transpose()
}

fn unknown(field: &'static str, value: &str) -> Undecidable {
    Undecidable::Value {
        field,
        value: value.to_owned(),
    }
}
