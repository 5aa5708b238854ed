//! Replay: decides recorded requests again by the policy of another configuration.
//!
//! Invariant 2 (ARCHITECTURE.md) makes that possible: each row has all that it was
//! decided from, and the policy alone is replaced. Rows that do not come out as they
//! were written, by their own policy, are not replayed: whatever made the difference
//! would be taken for the policy's. Does not know which configuration it is, nor how
//! requests get the names of their crawlers.

use std::sync::Arc;

use bytes::Bytes;

use super::decision_row::DECISIONS;
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::reader::AuditReader;
use crate::decision::again::{
    Again, EvidenceCache, Undecidable, WITHHELD, decide_again, decision_again,
};
use crate::decision::decide::Policy;
use crate::decision::record::{StoredCrawler, StoredPolicy, StoredRecord, StoredRuling};

/// Outcome of replaying a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// The decision would be the same.
    Same,
    /// The decision would have this ruling.
    Changed(Box<StoredRuling>),
    /// What the decision would be cannot be known.
    Unknown(ReplayObstacle),
}

/// Reason why a decision cannot be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplayObstacle {
    /// The decision rests on no robots.txt, but on the address that was to be dialled.
    NoRobots,
    /// The decision may rest on a query string that is not on record.
    QueryWithheld,
    /// Client and URL of the decision were redacted.
    Redacted,
    /// Another revision of the engine made the decision, and this one decides otherwise
    /// by the same policy.
    OtherRevision,
    /// Evidence of the decision is gone or was changed.
    Evidence,
    /// The crawler cannot be recognised by the other configuration.
    Sender,
}

impl ReplayObstacle {
    /// All obstacles, in the order in which they are shown.
    pub const ALL: [Self; 6] = [
        Self::NoRobots,
        Self::QueryWithheld,
        Self::Redacted,
        Self::OtherRevision,
        Self::Evidence,
        Self::Sender,
    ];

    /// Returns its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoRobots => "no_robots",
            Self::QueryWithheld => "query_withheld",
            Self::Redacted => "redacted",
            Self::OtherRevision => "other_revision",
            Self::Evidence => "evidence",
            Self::Sender => "sender",
        }
    }

    /// Explains it in words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::NoRobots => "refused by address or port, without a robots.txt",
            Self::QueryWithheld => "may rest on query strings that are not on record",
            Self::Redacted => "whose client and URL were redacted",
            Self::OtherRevision => "decided by another version of the program",
            Self::Evidence => "do not follow from what is on record: see audit verify",
            Self::Sender => "whose requests they were cannot be told by this configuration",
        }
    }
}

/// Configuration that past requests are decided by.
pub struct ReplayTerms<F> {
    /// The policy.
    pub policy: Policy,
    /// Gives the names of the crawler that sent a request; `None` if they cannot be
    /// told.
    pub crawler: F,
}

/// Decides the requests that meet `filter` again by `terms`, the oldest first, and
/// hands each with its outcome to `visit`.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn replay<F>(
    reader: &AuditReader,
    filter: &DecisionFilter,
    terms: ReplayTerms<F>,
    mut visit: impl FnMut(&StoredRecord, ReplayOutcome),
) -> Result<(), AuditError>
where
    F: FnMut(&StoredRecord) -> Option<Arc<StoredCrawler>>,
{
    let mut run = ReplayRun {
        reader,
        policy: Arc::new(StoredPolicy::new(terms.policy.json())),
        crawler: terms.crawler,
        evidence: EvidenceCache::default(),
    };
    let mut rows = reader.decision_reader();
    let mut scan = reader.narrow_scan(DECISIONS, filter)?;
    while let Some(page) = scan.next_page(|row| rows.record(row))? {
        for record in page {
            if filter.admits(&record) {
                let outcome = run.outcome(&record)?;
                visit(&record, outcome);
            }
        }
    }
    Ok(())
}

/// A replay under way.
struct ReplayRun<'a, F> {
    reader: &'a AuditReader,
    policy: Arc<StoredPolicy>,
    crawler: F,
    evidence: EvidenceCache,
}

impl<F: FnMut(&StoredRecord) -> Option<Arc<StoredCrawler>>> ReplayRun<'_, F> {
    fn outcome(&mut self, record: &StoredRecord) -> Result<ReplayOutcome, AuditError> {
        let body = self.body(record)?;
        let obstacle = match decide_again(record, body, &mut self.evidence) {
            Ok(Again::Same) => None,
            Ok(Again::FormOnly) => Some(ReplayObstacle::NoRobots),
            Ok(Again::QueryWithheld) => Some(ReplayObstacle::QueryWithheld),
            Ok(Again::OfRevision { .. }) => Some(ReplayObstacle::OtherRevision),
            Err(Undecidable::Redacted) => Some(ReplayObstacle::Redacted),
            Ok(Again::Differs(_)) | Err(_) => Some(ReplayObstacle::Evidence),
        };
        if let Some(obstacle) = obstacle {
            return Ok(ReplayOutcome::Unknown(obstacle));
        }
        let Some(crawler) = (self.crawler)(record) else {
            return Ok(ReplayOutcome::Unknown(ReplayObstacle::Sender));
        };
        if crawler == record.crawler && self.policy.sha256 == record.policy.sha256 {
            return Ok(ReplayOutcome::Same);
        }
        let replayed = StoredRecord {
            crawler,
            policy: Arc::clone(&self.policy),
            ..record.clone()
        };
        let replayed_body = self.body(&replayed)?;
        let decision = decision_again(&replayed, replayed_body, &mut self.evidence);
        Ok(changed(
            record,
            decision.map(|decision| {
                let decision = decision?;
                let evidence = decision.evidence();
                let is_same = record.ruling.is_of(evidence);
                (!is_same).then(|| StoredRuling::of(evidence))
            }),
        ))
    }

    /// Reads the robots.txt that `record` rests on, unless it is parsed already.
    fn body(&self, record: &StoredRecord) -> Result<Option<Bytes>, AuditError> {
        match self.evidence.wanted_body(record) {
            Some(wanted) => Ok(self.reader.body(wanted)?.map(Bytes::from)),
            None => Ok(None),
        }
    }
}

/// Returns the outcome for a ruling that differs from that of `record`, if it does.
fn changed(
    record: &StoredRecord,
    ruling: Result<Option<StoredRuling>, Undecidable>,
) -> ReplayOutcome {
    match ruling {
        Ok(None) => ReplayOutcome::Same,
        // The rest of the URL might have been judged otherwise.
        Ok(Some(_)) if record.url.contains(WITHHELD) => {
            ReplayOutcome::Unknown(ReplayObstacle::QueryWithheld)
        }
        Ok(Some(ruling)) => ReplayOutcome::Changed(Box::new(ruling)),
        Err(_) => ReplayOutcome::Unknown(ReplayObstacle::Evidence),
    }
}
