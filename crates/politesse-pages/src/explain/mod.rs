//! Explanation of a decision: its values, the rules that decided, and whether deciding
//! again gives the same result. It is made once, from a decision or from its row in the
//! audit record, and shown as text, as JSON ([`json`]) or as HTML.
//!
//! Does not know where rows are read from.

pub mod facts;
pub mod json;
pub mod rules;

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use self::rules::{CompetingRule, DecidingRules};
use politesse_decision::again::{Again, EvidenceCache, decide_again, decision_again};
use politesse_decision::decide::{Evidence, Policy};
use politesse_decision::record::StoredRecord;
use politesse_decision::tls_exception::TlsException;
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use politesse_robots::{Dialect, FileSource, RobotsTxt};

/// A decision with everything that explains it.
pub struct Explanation {
    /// Values of the decision, as they are or would be in its row.
    pub record: StoredRecord,
    /// State of its row; `None` if the decision is not recorded.
    row: Option<RowState>,
    /// Time for computing the age of the robots.txt; `None` for a saved file, which was
    /// never fetched.
    asked_at: Option<Timestamp>,
    /// Rules that decided; `None` if there is no evidence, or none that leads to this
    /// decision.
    rules: Option<DecidingRules>,
    /// The robots.txt, if `rules` does not have it.
    parsed: Option<RobotsTxt>,
}

/// State of a row in the audit record.
struct RowState {
    context: RowContext,
    /// Policy, if it can be read.
    policy: Option<Policy>,
    /// Result of deciding again: `Ok` if the verdict is the same; otherwise a clause
    /// that says what differs or why it could not be decided.
    again: Result<(), String>,
}

/// Information from the source of a row, besides its values.
#[derive(Default)]
pub struct RowContext {
    /// Whether the row still has the values that were written; `None` if nothing proves
    /// it, as in the archive.
    pub is_as_written: Option<bool>,
    /// Number of other decisions about the same URL; `None` if it was not counted in
    /// time.
    pub others: Option<u64>,
}

impl Explanation {
    /// Explains a decision from its evidence. `proxy_policy` is the policy of the
    /// proxy. `asked_at` is the time for computing the age of the robots.txt, if it was
    /// fetched.
    pub fn of_evidence(
        evidence: &Arc<Evidence>,
        proxy_policy: &Policy,
        asked_at: Option<Timestamp>,
    ) -> Self {
        Self {
            rules: Some(DecidingRules::new(evidence, proxy_policy)),
            ..Self::of_answer(evidence, asked_at)
        }
    }

    /// Explains a decision for a response to a crawler, without the rules that have no
    /// effect and the oddities of the file. Listing those can take a second for a file
    /// made to be slow, and the proxy could answer no other request in that time.
    pub fn of_answer(evidence: &Arc<Evidence>, asked_at: Option<Timestamp>) -> Self {
        Self {
            record: StoredRecord::unrecorded(evidence),
            row: None,
            asked_at,
            rules: None,
            parsed: None,
        }
    }

    /// Explains the decision of a row by deciding it again. `body` is the body of its
    /// robots.txt, if there was one and the source has it.
    pub fn of_row(record: StoredRecord, body: Option<Bytes>, context: RowContext) -> Self {
        let mut cache = EvidenceCache::default();
        let again = match decide_again(&record, body.clone(), &mut cache) {
            Ok(Again::Same | Again::FormOnly) => Ok(()),
            Ok(Again::Differs(again)) => Err(format!(
                "deciding again gives {} {}",
                again.verdict, again.reason
            )),
            Ok(Again::OfRevision { decided_by, now }) => Err(format!(
                "it was decided by revision {decided_by} of the engine; this one would say {} {}",
                now.verdict, now.reason
            )),
            Ok(Again::OtherEnding(finding)) => Err(finding.to_owned()),
            Ok(Again::QueryWithheld) => {
                Err("it may rest on the query string, which is not on record".to_owned())
            }
            Err(why) => Err(format!("it cannot be decided again: {why}")),
        };
        // Rules that lead to a different verdict do not explain this one.
        let decision = again.is_ok().then(|| {
            let decision = decision_again(&record, body.clone(), &mut cache);
            decision.ok().flatten()
        });
        let rules = decision.flatten().map(|decision| {
            let evidence = decision.evidence();
            DecidingRules::new(evidence, &evidence.policy)
        });
        let policy = Policy::restore(&record.policy.json).ok();
        Self {
            parsed: match rules {
                Some(_) => None,
                None => body.map(|body| parsed(&record, policy.as_ref(), body)),
            },
            asked_at: Some(record.at),
            row: Some(RowState {
                context,
                policy,
                again,
            }),
            record,
            rules,
        }
    }

    /// Returns the evidence of the decision, if deciding again gives the same result.
    pub fn evidence(&self) -> Option<&Evidence> {
        self.rules.as_ref().map(DecidingRules::evidence)
    }

    /// Returns the robots.txt, parsed as for the decision.
    pub fn robots(&self) -> Option<&RobotsTxt> {
        let by_rules = self.rules.as_ref().and_then(DecidingRules::robots);
        by_rules.or(self.parsed.as_ref())
    }

    /// Returns the other matching rules, the closest to the path first.
    pub fn competing(&self) -> Vec<CompetingRule<'_>> {
        let rules = self.rules.as_ref();
        rules.map_or_else(Vec::new, DecidingRules::competing)
    }

    /// Returns the exception for TLS with the host of the URL, if the policy has one.
    fn tls_exception(&self) -> Option<&TlsException> {
        let decided_by = self.rules.as_ref().map(|rules| &*rules.evidence().policy);
        let policy = decided_by.or_else(|| self.row.as_ref()?.policy.as_ref())?;
        let target: Target = self.record.url.parse().ok()?;
        policy.terms().tls_exception(&target.origin)
    }

    /// Reports whether the product tokens come from the User-Agent, as opposed to a
    /// `crawler` entry of the configuration.
    fn is_known_by_user_agent(&self) -> bool {
        let stored = &self.record.crawler;
        let crawler = Crawler::parse(stored.user_agent.as_deref().unwrap_or_default());
        let tokens = crawler.candidates().iter().map(|token| token.as_str());
        tokens.eq(stored.candidates.iter().map(String::as_str))
    }

    /// Returns the seconds since the robots.txt was fetched, if it was.
    fn age(&self) -> Option<i64> {
        let fetched_at = self.record.snapshot.as_ref()?.fetched_at;
        let age = self.asked_at?.as_second() - fetched_at.as_second();
        Some(age.max(0))
    }
}

/// Parses a robots.txt in the same way as for the decision of `record`.
fn parsed(record: &StoredRecord, policy: Option<&Policy>, body: Bytes) -> RobotsTxt {
    let dialect = policy.map_or_else(Dialect::default, |policy| policy.terms().dialect);
    let target = record.url.parse::<Target>().ok();
    let snapshot = record.snapshot.as_deref();
    let charset = snapshot.and_then(|snapshot| snapshot.charset.as_ref());
    let source = FileSource {
        origin: target.map(|target| target.origin),
        charset: charset.and_then(|charset| charset.parse().ok()),
    };
    RobotsTxt::from_source(body, dialect, source)
}
