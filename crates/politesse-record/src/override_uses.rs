//! Overrides that decisions rest on, found by making those decisions again.
//!
//! A row refers to its policy, which has all overrides of the time, but not to the
//! override that applied. Does not know why an override was set.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::error::AuditError;
use super::filter::DecisionFilter;
use super::order::Direction;
use super::reader::AuditReader;
use politesse_decision::again::{EvidenceCache, decision_again};
use politesse_decision::overrides::Override;
use politesse_decision::reason::Reason;
use politesse_decision::record::{Effect, StoredRecord};

/// Maximum number of overrides listed. Decisions by further ones count as unknown.
const OVERRIDES_MAX: usize = 4096;

/// Override, with the decisions that rest on it.
#[derive(Debug)]
pub struct OverrideUse {
    /// The override.
    pub entry: Override,
    /// Time of the first decision.
    pub first: Timestamp,
    /// Time of the last decision.
    pub last: Timestamp,
    /// Number of decisions.
    pub requests: u64,
}

/// Overrides that decisions rest on.
#[derive(Debug, Default)]
pub struct OverrideUses {
    /// Overrides, those with most decisions first.
    pub uses: Vec<OverrideUse>,
    /// Decisions whose override cannot be determined: they were redacted, or their
    /// evidence is not on record.
    pub unknown: u64,
}

/// Finds the overrides that the decisions matching `filter` rest on.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn override_uses(
    reader: &AuditReader,
    filter: &DecisionFilter,
) -> Result<OverrideUses, AuditError> {
    let mut search = OverrideSearch {
        reader,
        evidence: EvidenceCache::default(),
        uses: BTreeMap::new(),
        unknown: 0,
    };
    let allowed = DecisionFilter {
        effect: Some(Effect::Overridden.as_str().to_owned()),
        ..filter.clone()
    };
    let denied = DecisionFilter {
        reason: Some(Reason::Override.as_str().to_owned()),
        ..filter.clone()
    };
    for filter in [allowed, denied] {
        search.read(&filter)?;
    }
    let mut uses: Vec<_> = search.uses.into_values().collect();
    uses.sort_by_key(|found| std::cmp::Reverse(found.requests));
    Ok(OverrideUses {
        uses,
        unknown: search.unknown,
    })
}

/// State of a search for overrides.
struct OverrideSearch<'a> {
    reader: &'a AuditReader,
    evidence: EvidenceCache,
    /// Uses by the JSON of the override.
    uses: BTreeMap<String, OverrideUse>,
    unknown: u64,
}

impl OverrideSearch<'_> {
    fn read(&mut self, filter: &DecisionFilter) -> Result<(), AuditError> {
        let reader = self.reader;
        let mut outcome = Ok(());
        reader.visit_decisions(filter, Direction::OldestFirst, |record| {
            outcome = self.add(&record);
            match outcome {
                Ok(()) => std::ops::ControlFlow::Continue(()),
                Err(_) => std::ops::ControlFlow::Break(()),
            }
        })?;
        outcome
    }

    fn add(&mut self, record: &StoredRecord) -> Result<(), AuditError> {
        let body = self.reader.body_for(record, &self.evidence)?;
        let decision = decision_again(record, body, &mut self.evidence)
            .ok()
            .flatten();
        let entry = decision.and_then(|decision| decision.ruling().overriding.clone());
        let Some(entry) = entry else {
            self.unknown += 1;
            return Ok(());
        };
        // Serialization cannot fail, because an override consists of words and
        // texts.
        let key = serde_json::to_string(&entry).unwrap_or_default();
        if !self.uses.contains_key(&key) && OVERRIDES_MAX <= self.uses.len() {
            self.unknown += 1;
            return Ok(());
        }
        let found = self.uses.entry(key).or_insert_with(|| OverrideUse {
            entry: *entry,
            first: record.at,
            last: record.at,
            requests: 0,
        });
        found.first = found.first.min(record.at);
        found.last = found.last.max(record.at);
        found.requests += 1;
        Ok(())
    }
}
