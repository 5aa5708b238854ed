//! Decisions counted by class.
//!
//! Does not know the names of the classes.

use serde::{Serialize, Serializer};

use super::rollup_row::EntrySums;
use politesse_decision::class::DecisionClass;
use politesse_decision::record::StoredRuling;

/// Number of decisions in each class. Each decision is in one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassCounts([u64; DecisionClass::ALL.len()]);

impl ClassCounts {
    /// Makes counts of a number for each class.
    pub fn of(count: impl FnMut(DecisionClass) -> u64) -> Self {
        Self(DecisionClass::ALL.map(count))
    }

    /// Counts `entries`, which have one `ruling`. Late endings must be among them
    /// together with their decisions.
    pub(super) fn of_entries(entries: &EntrySums, ruling: &StoredRuling) -> Self {
        let class = DecisionClass::of_words(&ruling.verdict, &ruling.reason);
        let mut counts = Self::default();
        let mut rest = entries.requests;
        // Rows that somebody changed may count more endings than there are decisions.
        let mut take = |count: u64| {
            let taken = count.min(rest);
            rest -= taken;
            taken
        };
        match class {
            Some(DecisionClass::Unreachable) => {
                counts.put(DecisionClass::Error, take(entries.errors));
            }
            Some(_) => {}
            None => {
                counts.put(DecisionClass::Withheld, take(entries.withheld));
                counts.put(DecisionClass::RefusedBySite, take(entries.refused_by_site));
                counts.put(DecisionClass::PutOff, take(entries.put_off_by_site));
                counts.put(DecisionClass::Error, take(entries.errors));
            }
        }
        counts.put(class.unwrap_or(DecisionClass::Sent), rest);
        counts
    }

    fn put(&mut self, class: DecisionClass, count: u64) {
        let all = DecisionClass::ALL.into_iter().zip(&mut self.0);
        all.filter(|(other, _)| *other == class)
            .for_each(|(_, sum)| *sum = count);
    }

    /// Returns the classes with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DecisionClass, u64)> {
        DecisionClass::ALL.into_iter().zip(self.0)
    }

    /// Returns the number of decisions in `class`.
    pub fn get(&self, class: DecisionClass) -> u64 {
        let mut all = self.iter();
        let found = all.find(|(other, _)| *other == class);
        found.map_or(0, |(_, count)| count)
    }

    /// Adds the counts of other decisions.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(more);
        }
    }
}

impl Serialize for ClassCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}
