//! The decision: who asks for what, what the origin said, what follows.
//!
//! Invariant 1: only a permit reaches an origin. [`Permit`] has no constructor
//! but [`Decision::into_permit`], and its fields are private to this file:
//!
//! ```compile_fail
//! use politesse::decision::decide::Permit;
//! let permit = Permit { target: "http://h.test/".parse().unwrap() };
//! ```
//!
//! Invariant 2: [`decide`] is a pure function of [`Inquiry`], [`Snapshot`],
//! [`Policy`] and the time, so that a record of the four can be decided again.

mod evidence;

use std::sync::Arc;

use jiff::Timestamp;
use thiserror::Error;

use super::access::{AccessResult, RobotsFile, Snapshot};
use super::delay::Delay;
use super::digest::Digest;
use super::overrides::{self, Override};
use super::policy::Terms;
use super::receipt::Receipt;
use politesse_robots::PaceRecords;
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::{Origin, ROBOTS_TXT, Target};
use politesse_robots::reading;
use politesse_robots::{Binding, CanonicalPath};

pub use self::evidence::Evidence;
pub use super::policy::{Candidates, EnforcementMode, Policy, Readings, Revision, Unauthorized};
pub use super::ruling::{Reason, RuleCited, Ruling, Verdict};

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

/// A ruling on one inquiry. It says whether; only [`Decision::into_permit`]
/// turns it into leave to send.
#[derive(Debug)]
pub struct Decision {
    evidence: Arc<Evidence>,
    digest: Digest,
}

/// Decides an inquiry by what the origin said and the operator laid down, at
/// the time `at`, which says what overrides are in force.
pub fn decide(
    inquiry: &Arc<Inquiry>,
    snapshot: &Arc<Snapshot>,
    (policy, at): (&Arc<Policy>, Timestamp),
) -> Decision {
    let at = to_microsecond(at);
    Decision::of(Evidence {
        inquiry: Arc::clone(inquiry),
        snapshot: Some(Arc::clone(snapshot)),
        denial: None,
        delay: None,
        policy: Arc::clone(policy),
        at,
        ruling: rule_on(inquiry, snapshot, (policy.terms(), at)),
    })
}

/// What [`decide`] would say, without the evidence: for who asks by the
/// million, keeps nothing and sends nothing. No permit comes of it.
pub fn ruling(
    inquiry: &Inquiry,
    snapshot: &Snapshot,
    (policy, at): (&Policy, Timestamp),
) -> Ruling {
    rule_on(inquiry, snapshot, (policy.terms(), to_microsecond(at)))
}

/// A time as exactly as records keep it: deciding again must not come to lie
/// on the other side of an override's end.
fn to_microsecond(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

fn rule_on(inquiry: &Inquiry, snapshot: &Snapshot, (terms, at): (&Terms, Timestamp)) -> Ruling {
    let path = inquiry.target.path_and_query();
    if path == ROBOTS_TXT && terms.dialect.exempts_robots_txt() {
        return Ruling::without_rule(Verdict::Allow, Reason::RobotsTxt);
    }
    let disallows = |ruling: &Ruling| ruling.verdict == Verdict::Disallow;
    let mut readings = every_reading((inquiry, snapshot), terms);
    let counts = readings.iter().position(disallows).unwrap_or(0);
    let overriding = overriding(inquiry, &readings, (terms, at));
    let ruling = readings.swap_remove(counts);
    match overriding {
        Some((entry, reading)) => ruling.overridden_by(entry, reading),
        None => ruling,
    }
}

/// What robots.txt says of each reading of the path, the one sent first. Behind
/// the first that is disallowed there are others only where an override may ask
/// for them.
fn every_reading((inquiry, snapshot): (&Inquiry, &Snapshot), terms: &Terms) -> Vec<Ruling> {
    let said = |path: &str| said_of(path, (&inquiry.crawler, snapshot), terms);
    let sent = inquiry.target.path_and_query();
    let mut rulings = vec![said(sent)];
    for reading in other_readings(sent, terms.readings) {
        let disallowed = rulings
            .last()
            .is_some_and(|last| last.verdict == Verdict::Disallow);
        if disallowed && terms.overrides.is_empty() {
            break;
        }
        let ruling = said(judged_as(&reading, terms.readings));
        rulings.push(Ruling {
            reading: Some(reading),
            ..ruling
        });
    }
    rulings
}

/// The path by which a reading is judged. Only the bytes `/robots.txt` are
/// exempt from all rules, not another spelling that is read as them, so such a
/// reading is judged in a form that means the same.
fn judged_as(reading: &str, readings: Readings) -> &str {
    match readings {
        Readings::Server if reading == ROBOTS_TXT => "/robots%2Etxt",
        Readings::Sent | Readings::Dots | Readings::Server => reading,
    }
}

fn other_readings(path: &str, readings: Readings) -> Vec<String> {
    match readings {
        Readings::Sent => Vec::new(),
        Readings::Dots => reading::without_dot_segments(path).into_iter().collect(),
        Readings::Server => reading::of_servers(path),
    }
}

/// The override that counts, and the reading it fits by if that is not the
/// path as sent.
fn overriding<'a>(
    inquiry: &Inquiry,
    readings: &[Ruling],
    (terms, at): (&'a Terms, Timestamp),
) -> Option<(&'a Override, Option<String>)> {
    if terms.overrides.is_empty() {
        return None;
    }
    let sent = inquiry.target.path_and_query();
    let asked = overrides::Asked {
        origin: &inquiry.target.origin,
        crawler: &inquiry.crawler,
        readings: readings
            .iter()
            .map(|ruling| overrides::Reading {
                path: CanonicalPath::new(ruling.reading.as_deref().unwrap_or(sent)),
                disallowed: ruling.verdict == Verdict::Disallow,
            })
            .collect(),
        at,
    };
    let (entry, index) = overrides::first(&terms.overrides, &asked)?;
    Some((entry, readings.get(index)?.reading.clone()))
}

/// What robots.txt says of one reading of the path.
fn said_of(path: &str, (crawler, snapshot): (&Crawler, &Snapshot), terms: &Terms) -> Ruling {
    let unauthorized = matches!(snapshot.status, Some(401 | 403));
    match &snapshot.result {
        AccessResult::Successful(copy) => {
            let bound_by = |binding| with_forms(binding, terms.readings);
            match terms.candidates {
                Candidates::First => judge(&bound_by(copy.robots.binding(crawler)), path),
                Candidates::All => {
                    let bindings = copy.robots.bindings(crawler).into_iter();
                    judge_all(&bindings.map(bound_by).collect::<Vec<_>>(), path)
                }
            }
        }
        AccessResult::Unavailable if unauthorized && terms.refuses_unauthorized() => {
            Ruling::without_rule(Verdict::Disallow, Reason::Restricted)
        }
        AccessResult::Unavailable => Ruling::without_rule(Verdict::Allow, Reason::Unavailable),
        AccessResult::Unreachable(_) => {
            Ruling::without_rule(Verdict::Disallow, Reason::Unreachable)
        }
    }
}

/// Returns the binding with the forms of rules that a level of readings judges
/// by.
pub fn with_forms(binding: Binding, readings: Readings) -> Binding {
    match readings {
        Readings::Sent | Readings::Dots => binding,
        Readings::Server => binding.as_served(),
    }
}

/// The ruling by the groups of every candidate: the first that disallows, else
/// the first. What all of them ask for counts.
fn judge_all(bindings: &[Binding], path: &str) -> Ruling {
    let asked = PaceRecords::all(bindings.iter().filter_map(Binding::pace));
    let disallows = |binding: &&Binding| !binding.judge(path).allows();
    let counts = bindings.iter().find(disallows).or(bindings.first());
    let ruling = match counts {
        Some(binding) => judge(binding, path),
        // There is always one: that of everyone, if it binds anything or not.
        None => Ruling::without_rule(Verdict::Disallow, Reason::Undecided),
    };
    Ruling { asked, ..ruling }
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
        asked: binding.pace().cloned(),
        ..Ruling::without_rule(verdict, Reason::from(&judgement))
    }
}

impl Decision {
    /// The decision that no robots.txt was asked for, because the origin may
    /// not be dialled, for the reason that `denial` tells. No override allows
    /// that.
    pub fn denied(
        inquiry: Arc<Inquiry>,
        (policy, at): (&Arc<Policy>, Timestamp),
        denial: String,
    ) -> Self {
        Self::of(Evidence {
            inquiry,
            snapshot: None,
            denial: Some(denial),
            delay: None,
            policy: Arc::clone(policy),
            at: to_microsecond(at),
            ruling: Ruling::without_rule(Verdict::Disallow, Reason::Egress),
        })
    }

    /// The decision that what this one lets through has to come later. Rule,
    /// group and token stay those by which it may; a decision that refuses stays
    /// as it is, unless its origin is still to be asked.
    #[must_use]
    pub fn later(self, delay: Delay) -> Self {
        let evidence = &*self.evidence;
        if !evidence.lets_through() && !evidence.lacks_an_answer_for_now() {
            return self;
        }
        Self::of(Evidence {
            inquiry: Arc::clone(&evidence.inquiry),
            snapshot: evidence.snapshot.clone(),
            denial: None,
            policy: Arc::clone(&evidence.policy),
            at: evidence.at,
            ruling: Ruling {
                verdict: Verdict::Later,
                reason: delay.reason,
                ..evidence.ruling.clone()
            },
            delay: Some(delay),
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
    pub fn own_copy(&self) -> Option<(&Snapshot, &RobotsFile)> {
        let snapshot = self.evidence.snapshot.as_deref()?;
        let copy = snapshot.file()?;
        let asked = self.ruling().reason == Reason::RobotsTxt
            && matches!(self.evidence.inquiry.method.as_str(), "GET" | "HEAD");
        let faithful = copy.whole && snapshot.hops.is_empty() && snapshot.status == Some(200);
        (asked && faithful).then_some((snapshot, copy))
    }

    /// Leave to send, against the log's word that this decision is kept.
    /// Invariant 3.
    ///
    /// # Errors
    ///
    /// [`NoPermit::Refused`] if the decision disallows, and is not one that is
    /// only reported ([`Evidence::is_reported`]); [`NoPermit::Later`] if it puts
    /// the request off;
    /// [`NoPermit::ForeignReceipt`] if the receipt was given for another one.
    pub fn into_permit(self, receipt: &Receipt) -> Result<Permit, NoPermit> {
        if receipt.decision() != self.digest {
            return Err(NoPermit::ForeignReceipt);
        }
        if self.evidence.lets_through() {
            return Ok(Permit {
                inquiry: Arc::clone(&self.evidence.inquiry),
            });
        }
        let verdict = self.evidence.ruling.verdict;
        let refusal = Refusal {
            seq: receipt.seq(),
            evidence: self.evidence,
        };
        Err(match verdict {
            Verdict::Later => NoPermit::Later(refusal),
            Verdict::Allow | Verdict::Disallow => NoPermit::Refused(refusal),
        })
    }
}

/// Why a decision gave no leave.
#[derive(Debug, Error)]
pub enum NoPermit {
    /// The decision disallows.
    #[error("refused: {}", .0.evidence.ruling.reason.as_str())]
    Refused(Refusal),
    /// The decision puts the request off.
    #[error("put off: {}", .0.evidence.ruling.reason.as_str())]
    Later(Refusal),
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

/// A decision that refuses or puts off, on record.
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

#[cfg(test)]
mod tests;
