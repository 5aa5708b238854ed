//! Counts of decisions in the JSON of pages.
//!
//! Does not know how the decisions are grouped.

use serde::Serialize;

use politesse_record::class_counts::ClassCounts;
use politesse_record::overview::NamedSums;
use politesse_record::stats::DecisionSums;

/// Counts of decisions, as in [`DecisionSums`].
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct SumsJson {
    /// Decisions.
    pub(super) requests: u64,
    /// Decisions of the refused classes ([`ClassCounts::refused`]), enforced or only
    /// reported.
    pub(super) refused: u64,
    /// Enforced decisions that disallow, for any reason.
    pub(super) refusals: u64,
    /// Requests that only report mode let through.
    pub(super) reported: u64,
    /// Enforced decisions that put the request off.
    pub(super) later: u64,
    /// Time that requests waited.
    pub(super) wait_ms: u64,
    /// Bytes of bodies passed on.
    pub(super) bytes: u64,
    /// Exchanges that ended with an error other than the kinds below.
    errors: u64,
    /// Responses that were fetched and withheld from the client.
    pub(super) withheld: u64,
    /// Requests that the site refused.
    pub(super) refused_by_site: u64,
    /// Requests that the site put off.
    put_off_by_site: u64,
    /// Numbers of decisions by class.
    pub(super) classes: ClassCounts,
}

impl From<&DecisionSums> for SumsJson {
    fn from(sums: &DecisionSums) -> Self {
        Self {
            requests: sums.requests,
            refused: sums.classes.refused(),
            refusals: sums.refusals,
            reported: sums.reported,
            later: sums.later,
            wait_ms: sums.wait_ms,
            bytes: sums.bytes,
            errors: sums.errors,
            withheld: sums.withheld,
            refused_by_site: sums.refused_by_site,
            put_off_by_site: sums.put_off_by_site,
            classes: sums.classes,
        }
    }
}

/// Counts of the decisions that share a value.
#[derive(Debug, Serialize)]
pub(super) struct NamedJson {
    /// The shared value; `None` for decisions without one.
    pub(super) name: Option<String>,
    #[serde(flatten)]
    pub(super) sums: SumsJson,
}

impl NamedJson {
    /// Converts the sums of each name, keeping their order.
    pub(super) fn list(entries: Vec<NamedSums>) -> Vec<Self> {
        let entries = entries.into_iter();
        let json = entries.map(|NamedSums { name, sums }| Self {
            name: name.map(|name| name.to_string()),
            sums: SumsJson::from(&sums),
        });
        json.collect()
    }
}
