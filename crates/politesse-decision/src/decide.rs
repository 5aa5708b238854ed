//! Decision: a ruling with its evidence, and the permits that follow from it.
//!
//! Invariant 1 (ARCHITECTURE.md): only a permit reaches an origin. [`Permit`]
//! has no constructor but [`Decision::into_permit`], and its fields are private
//! to this file:
//!
//! ```compile_fail
//! use politesse_decision::decide::{Inquiry, Permit, Policy};
//! use std::sync::Arc;
//!
//! fn forged(inquiry: Arc<Inquiry>, policy: Arc<Policy>) -> Permit {
//!     Permit { inquiry, policy }
//! }
//! ```
//!
//! Invariant 2 (ARCHITECTURE.md): [`decide`] is a pure function of [`Inquiry`],
//! [`Snapshot`], [`Policy`] and the time, so that anyone with these four values
//! can repeat the decision. Does not know when a request may start: `pace` does.

use std::sync::Arc;

use jiff::Timestamp;
use thiserror::Error;

use super::delay::Delay;
use super::digest::Digest;
use super::snapshot::{RobotsFile, Snapshot};
use super::tls_exception::TlsException;
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::origin::{Origin, Target};

pub use super::evidence::Evidence;
pub use super::inquiry::Inquiry;
pub use super::policy::{
    Candidates, EnforcementMode, Policy, PolicyTerms, Readings, Revision, Unauthorized,
};
pub use super::ruling::{Reason, RuleCited, Ruling, Verdict};

/// Decision on one inquiry: whether the request may be sent. Sending also needs a
/// [`Permit`], which only [`Decision::into_permit`] creates.
#[derive(Debug)]
pub struct Decision {
    evidence: Arc<Evidence>,
}

/// Decides an inquiry by the origin's robots.txt (`snapshot`) and the operator's
/// `policy`. The time `at` determines which overrides are in force.
pub fn decide(
    inquiry: &Arc<Inquiry>,
    snapshot: &Arc<Snapshot>,
    policy: &Arc<Policy>,
    at: Timestamp,
) -> Decision {
    let at = to_microsecond(at);
    Decision::of(Evidence {
        inquiry: Arc::clone(inquiry),
        snapshot: Some(Arc::clone(snapshot)),
        denial: None,
        delay: None,
        policy: Arc::clone(policy),
        at,
        ruling: Ruling::of(inquiry, snapshot, policy.terms(), at),
    })
}

/// Returns the ruling of [`decide`] without the evidence. Used for lists of millions
/// of URLs that are neither recorded nor requested.
pub fn ruling(inquiry: &Inquiry, snapshot: &Snapshot, policy: &Policy, at: Timestamp) -> Ruling {
    Ruling::of(inquiry, snapshot, policy.terms(), to_microsecond(at))
}

/// Truncates a time to the microsecond, the precision of decision records.
/// Otherwise a repeated decision could fall on the other side of the end of an
/// override.
fn to_microsecond(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

impl Decision {
    /// Creates the decision that `egress` prohibits a connection to the origin, for the
    /// reason `denial`. It needs no robots.txt, and no override can change it.
    pub fn denied(
        inquiry: Arc<Inquiry>,
        policy: &Arc<Policy>,
        at: Timestamp,
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

    /// Creates the decision that the client may not use `name`, because an entry of
    /// `crawler` reserves it for other clients. It needs no robots.txt, and no override
    /// can change it.
    pub fn foreign_name(
        inquiry: Arc<Inquiry>,
        policy: &Arc<Policy>,
        at: Timestamp,
        name: &ProductToken,
    ) -> Self {
        let denied = Self::denied(inquiry, policy, at, name.to_string());
        Self::of(Evidence {
            ruling: Ruling::without_rule(Verdict::Disallow, Reason::Identity),
            ..(*denied.evidence).clone()
        })
    }

    /// Delays a request that this decision lets through. Rule, group and token stay
    /// unchanged. A refusal also stays unchanged, unless its only reason is that
    /// robots.txt has not been fetched yet.
    #[must_use]
    pub fn later(self, delay: Delay) -> Self {
        let evidence = &*self.evidence;
        // A disallowed page will still be disallowed later: asking the crawler to
        // come back would waste its next request.
        if !evidence.lets_through() && !evidence.lacks_an_answer_for_now() {
            return self;
        }
        Self::of(Evidence {
            denial: None,
            ruling: Ruling {
                verdict: Verdict::Later,
                reason: delay.reason,
                ..evidence.ruling.clone()
            },
            delay: Some(delay),
            ..evidence.clone()
        })
    }

    fn of(evidence: Evidence) -> Self {
        Self {
            evidence: Arc::new(evidence),
        }
    }

    /// Returns the input and the result of the decision.
    pub fn evidence(&self) -> &Arc<Evidence> {
        &self.evidence
    }

    /// Returns verdict, reason and rule.
    pub fn ruling(&self) -> &Ruling {
        &self.evidence.ruling
    }

    /// Computes the digest that identifies the decision outside this process.
    pub fn digest(&self) -> Digest {
        self.evidence.digest()
    }

    /// Returns the cached robots.txt if it can answer this request without asking
    /// the origin. The request must be a GET or HEAD of the file itself, and the copy
    /// must be a complete 200 response that came without redirects.
    pub fn own_copy(&self) -> Option<(&Snapshot, &RobotsFile)> {
        let snapshot = self.evidence.snapshot.as_deref()?;
        let file = snapshot.file()?;
        let is_wanted = self.ruling().reason == Reason::RobotsTxt;
        let is_faithful = file.whole && snapshot.hops.is_empty() && snapshot.status == Some(200);
        (is_wanted && is_faithful).then_some((snapshot, file))
    }

    /// Exchanges the decision and the receipt for its decision record for a permit to
    /// send (ARCHITECTURE.md, invariant 3: written before sent).
    ///
    /// # Errors
    ///
    /// [`NoPermit::Refused`] if the decision disallows and is not merely reported
    /// ([`Evidence::is_reported`]); [`NoPermit::Later`] if it delays the request;
    /// [`NoPermit::ForeignReceipt`] if the receipt was issued for another decision.
    pub fn into_permit(self, receipt: &Receipt) -> Result<Permit, NoPermit> {
        // Two requests may be recorded at the same time. The receipt for one
        // must not release the other.
        if !Arc::ptr_eq(&receipt.evidence, &self.evidence) {
            return Err(NoPermit::ForeignReceipt {
                receipt: receipt.decision(),
                decision: self.digest(),
            });
        }
        if self.evidence.lets_through() {
            return Ok(Permit {
                inquiry: Arc::clone(&self.evidence.inquiry),
                policy: Arc::clone(&self.evidence.policy),
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

/// Proof that the audit record has accepted one decision.
///
/// Only `politesse-record` issues receipts; the layering test ensures that no other
/// crate calls the constructor.
#[derive(Debug)]
pub struct Receipt {
    seq: u64,
    /// Evidence that was recorded. Receipts are compared by its address, so the receipt
    /// holds a reference: while it does, no other evidence can have the same address.
    evidence: Arc<Evidence>,
}

impl Receipt {
    /// Issues the receipt for decision record `seq`, which contains `evidence`.
    pub fn issue(seq: u64, evidence: &Arc<Evidence>) -> Self {
        Self {
            seq,
            evidence: Arc::clone(evidence),
        }
    }

    /// Returns the sequence number of the decision record, from 1.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Computes the digest of the decision that the receipt was issued for.
    pub fn decision(&self) -> Digest {
        self.evidence.digest()
    }
}

/// Reason why a decision yields no permit.
#[derive(Debug, Error)]
pub enum NoPermit {
    /// The decision disallows the request.
    #[error("refused: {}", .0.evidence.ruling.reason.as_str())]
    Refused(Refusal),
    /// The decision delays the request.
    #[error("put off: {}", .0.evidence.ruling.reason.as_str())]
    Later(Refusal),
    /// The receipt was issued for another decision.
    #[error("the receipt is for decision {receipt}, not for {decision}")]
    ForeignReceipt {
        /// Digest of the decision that was recorded.
        receipt: Digest,
        /// Digest of the decision that the permit was requested for.
        decision: Digest,
    },
}

/// Permission to fetch one URL once. Sending the request consumes it.
#[derive(Debug)]
pub struct Permit {
    inquiry: Arc<Inquiry>,
    policy: Arc<Policy>,
}

impl Permit {
    /// Maximum number of times that the request of one permit is handed to a connection.
    /// The second time is a retry after the first connection turned out to be closing.
    pub const SENDS_MAX: u32 = 2;

    /// Returns the URL that may be fetched. The request sent upstream uses this URL,
    /// not the text of the client's request.
    pub fn target(&self) -> &Target {
        &self.inquiry.target
    }

    /// Returns the TLS exception for the host of the URL, as recorded in the policy, if
    /// there is one.
    pub fn tls_exception(&self) -> Option<&TlsException> {
        self.policy.terms().tls_exception(&self.target().origin)
    }

    /// Returns the crawler that may fetch the URL.
    pub fn crawler(&self) -> &Crawler {
        &self.inquiry.crawler
    }

    /// Returns the method of the request.
    pub fn method(&self) -> &str {
        &self.inquiry.method
    }
}

/// Decision that refuses or delays a request, after it was written to the audit record.
#[derive(Debug)]
pub struct Refusal {
    /// Sequence number of the decision record.
    pub seq: u64,
    /// Input and result of the decision.
    pub evidence: Arc<Evidence>,
}

/// Permission to fetch one origin's robots.txt or the target of its redirect.
///
/// This is the only permission that needs no rule. The response can only be parsed, or
/// served as that origin's own /robots.txt.
#[derive(Debug)]
pub struct RobotsPermit {
    target: Target,
}

impl RobotsPermit {
    /// Creates the permission to fetch the robots.txt of `origin`.
    pub fn first(origin: &Origin) -> Self {
        Self {
            target: origin.robots_txt(),
        }
    }

    /// Creates the permission to follow a redirect of a robots.txt to `target`.
    pub fn redirected(target: Target) -> Self {
        Self { target }
    }

    /// Returns the URL that may be fetched.
    pub fn target(&self) -> &Target {
        &self.target
    }
}

#[cfg(test)]
mod tests;
