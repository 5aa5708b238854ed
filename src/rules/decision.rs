//! The decision: who asks for what, what the origin said, what follows.
//!
//! Invariant 1: only a permit reaches an origin. [`Permit`] has no constructor
//! but [`Decision::into_permit`], and its fields are private to this file:
//!
//! ```compile_fail
//! use politesse::rules::decision::Permit;
//! let permit = Permit { target: "http://h.test/".parse().unwrap() };
//! ```
//!
//! Invariant 2: [`decide`] is a pure function of [`Inquiry`], [`Snapshot`] and
//! [`Policy`], so that a record of the three can be decided again.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::crawler::{Crawler, ProductToken};
use super::digest::Digest;
use super::origin::{Origin, ROBOTS_TXT, Target};
use super::reading::without_dot_segments;
use super::receipt::Receipt;
use super::robots::access::{AccessResult, Copy, Snapshot};
use super::robots::{Binding, Judgement, Rule};

/// Who asks for what, how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// Who asks.
    pub crawler: Crawler,
    /// The URL asked for.
    pub target: Target,
    /// The method (RFC 9110, section 9); the verdict is the same for all.
    pub method: String,
}

/// What a 401 or 403 for robots.txt is taken for (`robots.status.unauthorized`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unauthorized {
    /// No rules, as for any other 4xx (RFC 9309, section 2.3.1.3).
    Allow,
    /// Access to everything is restricted (the draft of 1996, section 3.1).
    Refuse,
}

/// Which readings of a path are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readings {
    /// The URL as sent: the verdict of the standard.
    Sent,
    /// That, and the URL without its dot segments: what the proxy judges.
    Dots,
}

/// What the operator laid down, as far as a decision depends on it.
#[derive(Debug, Clone)]
pub struct Policy {
    terms: Terms,
    json: String,
    digest: Digest,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Terms {
    unauthorized: Unauthorized,
    readings: Readings,
}

impl Policy {
    /// The policy of a proxy: it judges every reading it knows.
    pub fn new(unauthorized: Unauthorized) -> Self {
        Self::of(Terms {
            unauthorized,
            readings: Readings::Dots,
        })
    }

    /// The same policy, judging the URL as sent and no other reading.
    #[must_use]
    pub fn as_sent(&self) -> Self {
        Self::of(Terms {
            readings: Readings::Sent,
            ..self.terms
        })
    }

    /// The policy that an audit record names.
    ///
    /// # Errors
    ///
    /// The text is no policy of a version that this one knows.
    pub fn restore(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json).map(Self::of)
    }

    fn of(terms: Terms) -> Self {
        // Two unit variants: there is nothing in them that JSON cannot hold.
        let json = serde_json::to_string(&terms).unwrap_or_default();
        Self {
            digest: Digest::of(json.as_bytes()),
            json,
            terms,
        }
    }

    /// The policy as JSON: what the audit keeps, and the digest is of.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The SHA-256 by which records name it.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

/// What a decision says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The URL may be fetched.
    Allow,
    /// It may not.
    Disallow,
}

impl Verdict {
    /// The word for it in records, metrics and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Disallow => "disallow",
        }
    }
}

/// Why a decision says what it says; the words are those of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A rule matched.
    Rule,
    /// There are rules for this crawler, and none matches.
    NoRule,
    /// No group is for this crawler, nor for everyone.
    NoGroup,
    /// The file itself is always allowed (RFC 9309, section 2.2.2).
    RobotsTxt,
    /// There is no robots.txt: a status from 400 to 499.
    Unavailable,
    /// A 401 or 403, where the operator counts that as a refusal.
    Restricted,
    /// It could not be found out.
    Unreachable,
    /// A bound was met while deciding: the file is made to be slow.
    Undecided,
    /// The address may not be dialled.
    Egress,
}

impl Reason {
    /// The word for it in records, metrics and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::NoRule => "no_rule",
            Self::NoGroup => "no_group",
            Self::RobotsTxt => "robots_txt",
            Self::Unavailable => "unavailable",
            Self::Restricted => "restricted",
            Self::Unreachable => "unreachable",
            Self::Undecided => "undecided",
            Self::Egress => "egress",
        }
    }
}

/// The answer of [`decide`], with what it rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruling {
    /// Allow or disallow.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// The rule that counts, if one matched.
    pub rule: Option<RuleCited>,
    /// The agent line by which it binds.
    pub agent_line: Option<u32>,
    /// The agents of its group, or of the groups that bind; `["*"]` for the
    /// group of everyone.
    pub group: Vec<String>,
    /// The candidate that was bound.
    pub token: Option<ProductToken>,
    /// The reading of the path that was refused, if not the one sent.
    pub reading: Option<String>,
    /// Seconds that the binding groups ask for between two requests.
    pub crawl_delay: Option<f64>,
}

/// A rule as evidence: where it stands and how it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleCited {
    /// Its line in robots.txt, from 1.
    pub line: u32,
    /// The line as written.
    pub text: String,
}

impl From<&Rule<'_>> for RuleCited {
    fn from(rule: &Rule<'_>) -> Self {
        Self {
            line: rule.line(),
            text: rule.text().into_owned(),
        }
    }
}

impl Ruling {
    /// A ruling that rests on no rule.
    fn without_rule(verdict: Verdict, reason: Reason) -> Self {
        Self {
            verdict,
            reason,
            rule: None,
            agent_line: None,
            group: Vec::new(),
            token: None,
            reading: None,
            crawl_delay: None,
        }
    }
}

/// Everything a decision was made from, and what it says: what a record keeps.
#[derive(Debug)]
pub struct Evidence {
    /// Who asked for what.
    pub inquiry: Arc<Inquiry>,
    /// What the origin said; absent if it was not asked.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Why the origin may not be dialled, if that is why it was not asked.
    pub denial: Option<String>,
    /// What the operator laid down.
    pub policy: Arc<Policy>,
    /// What follows.
    pub ruling: Ruling,
}

/// A ruling on one inquiry. It says whether; only [`Decision::into_permit`]
/// turns it into leave to send.
#[derive(Debug)]
pub struct Decision {
    evidence: Arc<Evidence>,
    digest: Digest,
}

/// Decides an inquiry by what the origin said and the operator laid down.
pub fn decide(inquiry: &Arc<Inquiry>, snapshot: &Arc<Snapshot>, policy: &Arc<Policy>) -> Decision {
    Decision::of(Evidence {
        inquiry: Arc::clone(inquiry),
        snapshot: Some(Arc::clone(snapshot)),
        denial: None,
        policy: Arc::clone(policy),
        ruling: rule_on(inquiry, snapshot, policy.terms),
    })
}

fn rule_on(inquiry: &Inquiry, snapshot: &Snapshot, terms: Terms) -> Ruling {
    let path = inquiry.target.path_and_query();
    if path == ROBOTS_TXT {
        return Ruling::without_rule(Verdict::Allow, Reason::RobotsTxt);
    }
    let unauthorized = matches!(snapshot.status, Some(401 | 403));
    match &snapshot.result {
        AccessResult::Successful(copy) => {
            let binding = copy.robots.binding(&inquiry.crawler);
            let sent = judge(&binding, path);
            match terms.readings {
                Readings::Dots if sent.verdict == Verdict::Allow => {
                    disallowed_reading(&binding, path).unwrap_or(sent)
                }
                Readings::Dots | Readings::Sent => sent,
            }
        }
        AccessResult::Unavailable if unauthorized && terms.unauthorized == Unauthorized::Refuse => {
            Ruling::without_rule(Verdict::Disallow, Reason::Restricted)
        }
        AccessResult::Unavailable => Ruling::without_rule(Verdict::Allow, Reason::Unavailable),
        AccessResult::Unreachable(_) => {
            Ruling::without_rule(Verdict::Disallow, Reason::Unreachable)
        }
    }
}

/// The ruling on another reading of the path, if it disallows.
fn disallowed_reading(binding: &Binding, path: &str) -> Option<Ruling> {
    let reading = without_dot_segments(path)?;
    let ruling = judge(binding, &reading);
    (ruling.verdict == Verdict::Disallow).then_some(Ruling {
        reading: Some(reading),
        ..ruling
    })
}

fn judge(binding: &Binding, path: &str) -> Ruling {
    let judgement = binding.judge(path);
    let rule = judgement.rule();
    let verdict = if judgement.allows() {
        Verdict::Allow
    } else {
        Verdict::Disallow
    };
    Ruling {
        rule: rule.map(RuleCited::from),
        agent_line: rule.and_then(|rule| binding.agent_line(rule)),
        group: rule.map_or_else(|| binding.names(), |rule| binding.names_of(rule)),
        token: binding.token().cloned(),
        crawl_delay: binding.crawl_delay(),
        ..Ruling::without_rule(verdict, Reason::from(&judgement))
    }
}

impl From<&Judgement<'_>> for Reason {
    fn from(judgement: &Judgement<'_>) -> Self {
        match judgement {
            Judgement::Rule(_) => Self::Rule,
            Judgement::NoRule => Self::NoRule,
            Judgement::NoGroup => Self::NoGroup,
            Judgement::RobotsTxt => Self::RobotsTxt,
            Judgement::Undecided => Self::Undecided,
        }
    }
}

impl Decision {
    /// The decision that no robots.txt was asked for, because the origin may
    /// not be dialled, for the reason that `denial` tells.
    pub fn denied(inquiry: Arc<Inquiry>, policy: Arc<Policy>, denial: String) -> Self {
        Self::of(Evidence {
            inquiry,
            snapshot: None,
            denial: Some(denial),
            policy,
            ruling: Ruling::without_rule(Verdict::Disallow, Reason::Egress),
        })
    }

    fn of(evidence: Evidence) -> Self {
        Self {
            digest: evidence.digest(),
            evidence: Arc::new(evidence),
        }
    }

    /// What it was made from, and what it says.
    pub fn evidence(&self) -> &Arc<Evidence> {
        &self.evidence
    }

    /// Verdict, reason and rule.
    pub fn ruling(&self) -> &Ruling {
        &self.evidence.ruling
    }

    /// The digest that its receipt must carry.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The copy of robots.txt that answers this request without asking the
    /// origin: for GET and HEAD of the file itself, if it came as a 200, whole
    /// and without redirects.
    pub fn own_copy(&self) -> Option<(&Snapshot, &Copy)> {
        let snapshot = self.evidence.snapshot.as_deref()?;
        let copy = snapshot.copy()?;
        let asked = self.ruling().reason == Reason::RobotsTxt
            && matches!(self.evidence.inquiry.method.as_str(), "GET" | "HEAD");
        let faithful = copy.whole && copy.redirects == 0 && snapshot.status == Some(200);
        (asked && faithful).then_some((snapshot, copy))
    }

    /// Leave to send, against the log's word that this decision is kept.
    /// Invariant 3.
    ///
    /// # Errors
    ///
    /// [`NoPermit::Refused`] if the decision disallows;
    /// [`NoPermit::ForeignReceipt`] if the receipt was given for another one.
    pub fn into_permit(self, receipt: &Receipt) -> Result<Permit, NoPermit> {
        if receipt.decision() != self.digest {
            return Err(NoPermit::ForeignReceipt);
        }
        match self.evidence.ruling.verdict {
            Verdict::Allow => Ok(Permit {
                inquiry: Arc::clone(&self.evidence.inquiry),
            }),
            Verdict::Disallow => Err(NoPermit::Refused(Refusal {
                seq: receipt.seq(),
                evidence: self.evidence,
            })),
        }
    }
}

impl Evidence {
    /// A digest of all that tells one decision from another.
    fn digest(&self) -> Digest {
        let ruling = &self.ruling;
        let snapshot = self.snapshot.as_deref();
        let text = format!(
            "{} {}\n{:?}\n{} {} {:?}\n{:?} {:?}\n{}",
            self.inquiry.method,
            self.inquiry.target,
            self.inquiry.crawler.token(),
            ruling.verdict.as_str(),
            ruling.reason.as_str(),
            ruling.rule.as_ref().map(|rule| rule.line),
            snapshot.map(|snapshot| snapshot.fetched_at),
            snapshot.and_then(Snapshot::copy).map(|copy| copy.digest),
            self.policy.digest(),
        );
        Digest::of(text.as_bytes())
    }
}

/// Why a decision gave no leave.
#[derive(Debug, Error)]
pub enum NoPermit {
    /// The decision disallows.
    #[error("refused: {}", .0.evidence.ruling.reason.as_str())]
    Refused(Refusal),
    /// The receipt was given for another decision.
    #[error("the receipt is for another decision")]
    ForeignReceipt,
}

/// Leave to fetch one URL once: it is spent by being sent.
#[derive(Debug)]
pub struct Permit {
    inquiry: Arc<Inquiry>,
}

impl Permit {
    /// The URL that may be fetched: the one that is sent, whatever the request
    /// said.
    pub fn target(&self) -> &Target {
        &self.inquiry.target
    }

    /// Who may fetch it.
    pub fn crawler(&self) -> &Crawler {
        &self.inquiry.crawler
    }

    /// The method it was asked for with.
    pub fn method(&self) -> &str {
        &self.inquiry.method
    }
}

/// A decision that refuses, on record.
#[derive(Debug)]
pub struct Refusal {
    /// The record's sequence number.
    pub seq: u64,
    /// What was decided, and from what.
    pub evidence: Arc<Evidence>,
}

/// Leave to read one origin's robots.txt, and where it redirects to: the one
/// leave that no rule gave. What it fetches can only be parsed, or served as
/// that origin's own /robots.txt.
#[derive(Debug)]
pub struct RobotsPermit {
    target: Target,
}

impl RobotsPermit {
    /// Leave to read the robots.txt of `origin`.
    pub(crate) fn first(origin: &Origin) -> Self {
        Self {
            target: origin.robots_txt(),
        }
    }

    /// Leave to follow a redirect of that robots.txt to `target`.
    pub(crate) fn redirected(target: Target) -> Self {
        Self { target }
    }

    /// The URL that may be fetched.
    pub fn target(&self) -> &Target {
        &self.target
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
