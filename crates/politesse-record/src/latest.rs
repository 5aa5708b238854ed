//! Values that an entry shares with the entry of its kind before it.
//!
//! Most decisions of a crawl differ from the one before in path and time alone.
//! To compare two values takes a fraction of the time in which one is encoded and
//! looked up, so the rows of the latest entry are tried first. Does not know how
//! any other row is found.

use std::sync::Arc;

use super::dictionary::DictionaryRef;
use super::joint_digests::{ContextRefs, OutcomeRefs};
use politesse_decision::decide::Evidence;
use politesse_decision::digest::Digest;
use politesse_decision::record::{Record, Seen, StoredCrawler, bound_token};
use politesse_robots::crawler::{Crawler, ProductToken};

/// Decision that was written last, and the rows that it refers to.
#[derive(Debug)]
pub(super) struct LatestDecision {
    pub(super) record: Record,
    pub(super) rows: DecisionRows,
    /// Digest of the context in `rows`.
    pub(super) context: Digest,
}

/// Rows that a decision refers to.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecisionRows {
    pub(super) client: DictionaryRef,
    pub(super) origin: DictionaryRef,
    pub(super) snapshot: Option<DictionaryRef>,
    pub(super) context: ContextRefs,
}

/// Rows of a decision that are those of the one before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KnownRows {
    pub(super) client: Option<DictionaryRef>,
    pub(super) crawler: Option<DictionaryRef>,
    pub(super) method: Option<DictionaryRef>,
    pub(super) ruling: Option<DictionaryRef>,
    pub(super) policy: Option<DictionaryRef>,
}

impl LatestDecision {
    /// Returns the rows that `record` has in common with this decision. Its
    /// origin and snapshot are not among them: those change from one decision to
    /// the next where hosts are many.
    pub(super) fn shared_with(&self, record: &Record) -> KnownRows {
        let (own, other) = (&*self.record.evidence, &*record.evidence);
        let context = &self.rows.context;
        let is_same_client =
            self.record.client == record.client && self.record.credential == record.credential;
        let is_same_crawler = self.record.label == record.label
            && are_written_alike(&own.inquiry.crawler, &other.inquiry.crawler);
        let is_same_method = own.inquiry.method == other.inquiry.method;
        let is_same_ruling =
            self.record.effect == record.effect && have_same_ruling_row(own, other);
        let is_same_policy = Arc::ptr_eq(&own.policy, &other.policy);
        KnownRows {
            client: is_same_client.then_some(self.rows.client),
            crawler: is_same_crawler.then_some(context.crawler),
            method: is_same_method.then_some(context.method),
            ruling: is_same_ruling.then_some(context.ruling),
            policy: is_same_policy.then_some(context.policy),
        }
    }
}

/// Reports whether two crawlers have one row: names are equal in any case, and a
/// row has them as they are written.
fn are_written_alike(one: &Crawler, other: &Crawler) -> bool {
    one.user_agent() == other.user_agent()
        && StoredCrawler::names_of(one).eq(StoredCrawler::names_of(other))
}

/// Reports whether two decisions of one effect are the same in all that the row
/// of a ruling has.
fn have_same_ruling_row(one: &Evidence, other: &Evidence) -> bool {
    let (ruling, other_ruling) = (&one.ruling, &other.ruling);
    let token_text = |evidence| bound_token(evidence).map(ProductToken::as_str);
    ruling.verdict == other_ruling.verdict
        && ruling.reason == other_ruling.reason
        && ruling.rule == other_ruling.rule
        && ruling.group == other_ruling.group
        && ruling.denials == other_ruling.denials
        && token_text(one) == token_text(other)
}

/// Ending that was written last, as far as others may share it.
#[derive(Debug)]
pub(super) struct LatestEnding {
    /// Directives of the response.
    pub(super) seen: Option<Seen>,
    /// Numbers, and the rows under them.
    pub(super) refs: OutcomeRefs,
    /// Digest of `refs`.
    pub(super) outcome: Digest,
}
