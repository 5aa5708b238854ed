//! Decision: a ruling with its evidence, and the permits that come of it.
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
//! [`Snapshot`], [`Policy`] and the time, so that whoever has stored these four
//! can decide again. Does not know when a request may start: that is for
//! `pace`.

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

/// Decision on one inquiry. It says whether the request may be sent; only
/// [`Decision::into_permit`] turns it into leave to send.
#[derive(Debug)]
pub struct Decision {
    evidence: Arc<Evidence>,
}

/// Decides an inquiry by what the origin and the operator say. The time `at`
/// decides which overrides are in force.
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

/// Returns the ruling of [`decide`] without the evidence: for lists of millions
/// of URLs, of which nothing is recorded and nothing is sent.
pub fn ruling(inquiry: &Inquiry, snapshot: &Snapshot, policy: &Policy, at: Timestamp) -> Ruling {
    Ruling::of(inquiry, snapshot, policy.terms(), to_microsecond(at))
}

/// Cuts a time to the microsecond, as exactly as decision records keep it.
/// Otherwise deciding again could come to lie on the other side of an
/// override's end.
fn to_microsecond(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

impl Decision {
    /// Decides that the origin may not be dialled, for the reason `denial`. No
    /// robots.txt is fetched then, and no override allows the request.
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

    /// Decides that the client may not use `name`, which an entry of `crawler` pins to
    /// other clients. No robots.txt is fetched then, and no override allows the request.
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

    /// Delays a request that this decision lets through. Rule, group and token
    /// stay those by which it may be sent. A decision that refuses stays as it
    /// is, unless it refuses only because its robots.txt was not fetched yet.
    #[must_use]
    pub fn later(self, delay: Delay) -> Self {
        let evidence = &*self.evidence;
        // A page that is disallowed is disallowed later, too: a crawler that is
        // told to come back would come back for nothing.
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

    /// Returns what the decision was made from, and what it says.
    pub fn evidence(&self) -> &Arc<Evidence> {
        &self.evidence
    }

    /// Returns verdict, reason and rule.
    pub fn ruling(&self) -> &Ruling {
        &self.evidence.ruling
    }

    /// Computes the digest that names it outside this process.
    pub fn digest(&self) -> Digest {
        self.evidence.digest()
    }

    /// Returns the robots.txt that answers this request without asking the
    /// origin: for GET and HEAD of the file itself, if it came as a 200, whole
    /// and without redirects.
    pub fn own_copy(&self) -> Option<(&Snapshot, &RobotsFile)> {
        let snapshot = self.evidence.snapshot.as_deref()?;
        let file = snapshot.file()?;
        let is_wanted = self.ruling().reason == Reason::RobotsTxt;
        let is_faithful = file.whole && snapshot.hops.is_empty() && snapshot.status == Some(200);
        (is_wanted && is_faithful).then_some((snapshot, file))
    }

    /// Turns the decision into leave to send, against the receipt of its
    /// decision record (ARCHITECTURE.md, invariant 3: written before sent).
    ///
    /// # Errors
    ///
    /// [`NoPermit::Refused`] if the decision disallows, and is not one that is
    /// only reported ([`Evidence::is_reported`]); [`NoPermit::Later`] if it
    /// delays the request; [`NoPermit::ForeignReceipt`] if the receipt was given
    /// for another decision.
    pub fn into_permit(self, receipt: &Receipt) -> Result<Permit, NoPermit> {
        // Two requests may be recorded at the same time. The receipt of one
        // must not let the other out.
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
/// Receipts are made in `politesse-record` alone; the layering test keeps their
/// constructor there.
#[derive(Debug)]
pub struct Receipt {
    seq: u64,
    /// Evidence that was recorded. It is held, so that no other evidence has its
    /// address: a receipt is compared by that.
    evidence: Arc<Evidence>,
}

impl Receipt {
    /// Creates the receipt for the decision record `seq`, which holds `evidence`.
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

    /// Computes the digest of the decision it was given for.
    pub fn decision(&self) -> Digest {
        self.evidence.digest()
    }
}

/// Reason why a decision gives no leave to send.
#[derive(Debug, Error)]
pub enum NoPermit {
    /// The decision disallows.
    #[error("refused: {}", .0.evidence.ruling.reason.as_str())]
    Refused(Refusal),
    /// The decision delays the request.
    #[error("put off: {}", .0.evidence.ruling.reason.as_str())]
    Later(Refusal),
    /// The receipt was given for another decision.
    #[error("the receipt is for decision {receipt}, not for {decision}")]
    ForeignReceipt {
        /// Digest of the decision that was recorded.
        receipt: Digest,
        /// Digest of the decision that asked for leave.
        decision: Digest,
    },
}

/// Leave to fetch one URL once: sending spends it.
#[derive(Debug)]
pub struct Permit {
    inquiry: Arc<Inquiry>,
    policy: Arc<Policy>,
}

impl Permit {
    /// Number of times that the request of one permit is handed to a connection, at most:
    /// once more where the first connection was closing.
    pub const SENDS_MAX: u32 = 2;

    /// Returns the URL that may be fetched. It is the one that is sent, whatever
    /// the request said.
    pub fn target(&self) -> &Target {
        &self.inquiry.target
    }

    /// Returns the exception for TLS with its host that is on record, if there is one.
    pub fn tls_exception(&self) -> Option<&TlsException> {
        self.policy.terms().tls_exception(&self.target().origin)
    }

    /// Returns the crawler that may fetch it.
    pub fn crawler(&self) -> &Crawler {
        &self.inquiry.crawler
    }

    /// Returns the method of the request.
    pub fn method(&self) -> &str {
        &self.inquiry.method
    }
}

/// Decision that refuses or delays, once it is in the audit record.
#[derive(Debug)]
pub struct Refusal {
    /// Sequence number of the decision record.
    pub seq: u64,
    /// Evidence: the decision, and everything that it was made from.
    pub evidence: Arc<Evidence>,
}

/// Leave to read one origin's robots.txt, and where it redirects to: the only
/// leave that no rule gave. What it fetches can only be parsed, or served as
/// that origin's own /robots.txt.
#[derive(Debug)]
pub struct RobotsPermit {
    target: Target,
}

impl RobotsPermit {
    /// Creates leave to read the robots.txt of `origin`.
    pub fn first(origin: &Origin) -> Self {
        Self {
            target: origin.robots_txt(),
        }
    }

    /// Creates leave to follow a redirect of that robots.txt to `target`.
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
