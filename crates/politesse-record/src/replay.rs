//! Replay: decides recorded requests again with the policies of two configurations,
//! or of one configuration and the record, and compares the rulings.
//!
//! Invariant 2 (ARCHITECTURE.md) makes this possible: each row has all the evidence
//! of its decision, and only the policy is replaced. Rows that their own policy
//! does not reproduce are not replayed, because the difference would be attributed
//! to the new policy. Does not know which configurations are compared, or how
//! requests get the names of their crawlers.

use std::sync::Arc;

use super::entry_rows::DECISIONS;
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::reader::AuditReader;
use politesse_decision::again::{
    Again, EvidenceCache, Undecidable, WITHHELD, decide_again, decision_again,
};
use politesse_decision::record::{StoredCrawler, StoredPolicy, StoredRecord, StoredRuling};

/// Outcome of replaying a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// The decision is the same.
    Same,
    /// The rulings differ.
    Changed(Box<RulingChange>),
    /// The new decision cannot be determined.
    Unknown(ReplayObstacle),
}

/// Rulings of two configurations on the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulingChange {
    /// Ruling before: as recorded, or by the current configuration.
    pub before: StoredRuling,
    /// Ruling by the other configuration.
    pub after: StoredRuling,
}

/// Reason why a decision cannot be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplayObstacle {
    /// The decision rests on the address to be dialled instead of a robots.txt.
    NoRobots,
    /// The decision may rest on a query string that is not on record.
    QueryWithheld,
    /// Client and URL of the decision were redacted.
    Redacted,
    /// Another revision of the engine made the decision, and this revision decides
    /// differently with the same policy.
    OtherRevision,
    /// Evidence of the decision is missing or was altered.
    Evidence,
    /// The other configuration cannot identify the crawler.
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

    /// Returns the obstacle as a word.
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

    /// Returns the obstacle as a phrase.
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

/// Sender of a request according to another configuration.
#[derive(Debug, Clone)]
pub struct ReplaySender {
    /// Names of the crawler.
    pub crawler: Arc<StoredCrawler>,
    /// Policy that applies to its requests.
    pub policy: Arc<StoredPolicy>,
}

/// Identifies the sender of a request by a configuration; returns `None` if it
/// cannot.
pub type SenderLookup<'a> = Box<dyn FnMut(&StoredRecord) -> Option<ReplaySender> + 'a>;

/// Configurations to compare.
pub struct ReplaySides<'a> {
    /// Configuration before; `None` for the decisions as recorded.
    pub before: Option<SenderLookup<'a>>,
    /// Configuration after.
    pub after: SenderLookup<'a>,
}

/// Decides the requests that match `filter` again with both `sides`, the oldest
/// first, and passes each with its outcome to `visit`.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn replay(
    reader: &AuditReader,
    filter: &DecisionFilter,
    mut sides: ReplaySides<'_>,
    mut visit: impl FnMut(&StoredRecord, ReplayOutcome),
) -> Result<(), AuditError> {
    let mut run = ReplayRun {
        reader,
        evidence: EvidenceCache::default(),
    };
    let mut rows = reader.decision_reader();
    let mut scan = reader.narrow_scan(DECISIONS, filter)?;
    while let Some(page) = scan.next_page(|row| rows.record(row))? {
        for record in page {
            if !filter.admits(&record) {
                continue;
            }
            let outcome = match run.obstacle(&record)? {
                Some(obstacle) => ReplayOutcome::Unknown(obstacle),
                None => run.compare(&record, &mut sides)?,
            };
            visit(&record, outcome);
        }
    }
    Ok(())
}

/// State of a replay.
struct ReplayRun<'a> {
    reader: &'a AuditReader,
    evidence: EvidenceCache,
}

impl ReplayRun<'_> {
    /// Decides `record` again as it was, to find what prevents a replay.
    fn obstacle(&mut self, record: &StoredRecord) -> Result<Option<ReplayObstacle>, AuditError> {
        let body = self.reader.body_for(record, &self.evidence)?;
        Ok(match decide_again(record, body, &mut self.evidence) {
            Ok(Again::Same) => None,
            Ok(Again::FormOnly) => Some(ReplayObstacle::NoRobots),
            Ok(Again::QueryWithheld) => Some(ReplayObstacle::QueryWithheld),
            Ok(Again::OfRevision { .. }) => Some(ReplayObstacle::OtherRevision),
            Err(Undecidable::Redacted) => Some(ReplayObstacle::Redacted),
            Ok(Again::Differs(_) | Again::OtherEnding(_)) | Err(_) => {
                Some(ReplayObstacle::Evidence)
            }
        })
    }

    fn compare(
        &mut self,
        record: &StoredRecord,
        sides: &mut ReplaySides<'_>,
    ) -> Result<ReplayOutcome, AuditError> {
        let ruling_before = match &mut sides.before {
            Some(side) => self.ruling(record, side)?,
            None => Ok(StoredRuling::clone(&record.ruling)),
        };
        let ruling_after = self.ruling(record, &mut sides.after)?;
        Ok(match (ruling_before, ruling_after) {
            (Ok(before), Ok(after)) if before == after => ReplayOutcome::Same,
            // The withheld query string might have led to different rulings.
            (Ok(_), Ok(_)) if record.url.contains(WITHHELD) => {
                ReplayOutcome::Unknown(ReplayObstacle::QueryWithheld)
            }
            (Ok(before), Ok(after)) => {
                ReplayOutcome::Changed(Box::new(RulingChange { before, after }))
            }
            (Err(obstacle), _) | (_, Err(obstacle)) => ReplayOutcome::Unknown(obstacle),
        })
    }

    /// Decides a request again with the configuration of `lookup`. Returns the
    /// recorded ruling if the new one is equal.
    fn ruling(
        &mut self,
        record: &StoredRecord,
        lookup: &mut SenderLookup<'_>,
    ) -> Result<Result<StoredRuling, ReplayObstacle>, AuditError> {
        let Some(ReplaySender { crawler, policy }) = lookup(record) else {
            return Ok(Err(ReplayObstacle::Sender));
        };
        let recorded = || StoredRuling::clone(&record.ruling);
        if crawler == record.crawler && policy.sha256 == record.policy.sha256 {
            return Ok(Ok(recorded()));
        }
        let replayed = StoredRecord {
            crawler,
            policy,
            ..record.clone()
        };
        let body = self.reader.body_for(&replayed, &self.evidence)?;
        let decision = decision_again(&replayed, body, &mut self.evidence);
        Ok(match decision {
            Ok(Some(decision)) if !record.ruling.is_of(decision.evidence()) => {
                Ok(StoredRuling::of(decision.evidence()))
            }
            Ok(_) => Ok(recorded()),
            Err(_) => Err(ReplayObstacle::Evidence),
        })
    }
}
