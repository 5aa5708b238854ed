//! Values that an entry shares with the previous entry of its kind.
//!
//! Most decisions of a crawl differ from the previous one only in path and time.
//! Comparing two values is much faster than encoding one and looking it up, so the
//! rows of the latest entry are tried first. Does not know how other rows are
//! found.

use std::sync::Arc;

use super::dictionary::DictionaryRef;
use super::joint_digests::{ContextRefs, OutcomeRefs};
use politesse_decision::decide::Evidence;
use politesse_decision::digest::Digest;
use politesse_decision::record::{Record, Seen, StoredCrawler, bound_token};
use politesse_robots::crawler::{Crawler, ProductToken};

/// Latest decision written, and the rows that it refers to.
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

/// Rows that a decision shares with the previous one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KnownRows {
    pub(super) client: Option<DictionaryRef>,
    pub(super) crawler: Option<DictionaryRef>,
    pub(super) method: Option<DictionaryRef>,
    pub(super) ruling: Option<DictionaryRef>,
    pub(super) policy: Option<DictionaryRef>,
}

impl LatestDecision {
    /// Returns the rows that `record` shares with this decision. Origin and
    /// snapshot are not among them, because they change from one decision to the
    /// next in a crawl of many hosts.
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

/// Reports whether two crawlers have the same row. Names are equal in any case, but
/// a row stores them as written.
fn are_written_alike(one: &Crawler, other: &Crawler) -> bool {
    one.user_agent() == other.user_agent()
        && StoredCrawler::names_of(one).eq(StoredCrawler::names_of(other))
}

/// Reports whether two decisions with the same effect have the same ruling row.
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

/// Latest ending written, for reuse by the next one.
#[derive(Debug)]
pub(super) struct LatestEnding {
    /// Directives of the response.
    pub(super) seen: Option<Seen>,
    /// Values of the ending, and ids of the rows that it refers to.
    pub(super) refs: OutcomeRefs,
    /// Digest of `refs`.
    pub(super) outcome: Digest,
}
