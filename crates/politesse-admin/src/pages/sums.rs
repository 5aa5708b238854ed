//! Counts of decisions in the JSON of pages.
//!
//! Does not know how the decisions are grouped.

use serde::Serialize;

use politesse_record::class_counts::ClassCounts;
use politesse_record::overview::NamedSums;
use politesse_record::stats::DecisionSums;

/// Counts of decisions.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct SumsJson {
    pub(super) requests: u64,
    pub(super) refused: u64,
    pub(super) refusals: u64,
    pub(super) reported: u64,
    pub(super) later: u64,
    pub(super) wait_ms: u64,
    pub(super) bytes: u64,
    errors: u64,
    pub(super) withheld: u64,
    pub(super) refused_by_site: u64,
    put_off_by_site: u64,
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
