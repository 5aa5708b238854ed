//! The log's word that a decision is kept.

use super::digest::Digest;

/// Proof that the record of one decision was accepted by the audit log.
///
/// Invariant 3 (written before sent): a decision turns into a permit only
/// against the receipt given for it. Receipts are made in `audit/` alone; the
/// layering test keeps their constructor there.
#[derive(Debug)]
pub struct Receipt {
    seq: u64,
    decision: Digest,
}

impl Receipt {
    /// The receipt for the record `seq`, whose decision has this digest.
    pub(crate) fn issue(seq: u64, decision: Digest) -> Self {
        Self { seq, decision }
    }

    /// The record's sequence number, from 1.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The digest of the decision it was given for.
    pub fn decision(&self) -> Digest {
        self.decision
    }
}
