//! Counts of decisions by class.
//!
//! Does not know the names of the classes.

use serde::{Serialize, Serializer};

use super::rollup_row::EntrySums;
use politesse_decision::class::DecisionClass;
use politesse_decision::outcome::EndingClass;
use politesse_decision::reason::{Reason, Verdict};
use politesse_decision::record::StoredRuling;

/// Number of decisions in each class. Each decision belongs to one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassCounts([u64; DecisionClass::ALL.len()]);

impl ClassCounts {
    /// Creates counts by calling `count` for each class.
    pub fn of(count: impl FnMut(DecisionClass) -> u64) -> Self {
        Self(DecisionClass::ALL.map(count))
    }

    /// Counts `entries` that all have the ruling `ruling`. Late endings must be
    /// summed together with their decisions.
    pub(super) fn of_entries(entries: &EntrySums, ruling: &StoredRuling) -> Self {
        let class = DecisionClass::of_words(&ruling.verdict, &ruling.reason);
        let mut counts = Self::default();
        let mut rest = entries.requests;
        // Altered rows may have more endings than decisions.
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

    /// Returns the number of decisions in [`DecisionClass::REFUSED`].
    pub fn refused(&self) -> u64 {
        let counts = DecisionClass::REFUSED.map(|class| self.get(class));
        counts.into_iter().fold(0, u64::saturating_add)
    }

    /// Adds the counts of other decisions.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(more);
        }
    }

    /// Replaces counts: subtracts `old`, which was added before, and adds `new`.
    pub(super) fn replace(&mut self, old: &Self, new: &Self) {
        for (sum, (old, new)) in self.0.iter_mut().zip(old.0.into_iter().zip(new.0)) {
            *sum = sum.saturating_sub(old).saturating_add(new);
        }
    }
}

/// SQL columns that determine the class of a decision.
#[derive(Debug, Clone, Copy)]
pub struct ClassColumns {
    /// Verdict, as a word.
    pub verdict: &'static str,
    /// Reason, as a word.
    pub reason: &'static str,
    /// Error term of the ending; null without an error.
    pub error: &'static str,
    /// Status of the answer.
    pub status: &'static str,
    /// Number of times the request was sent.
    pub sent: &'static str,
}

/// Returns the SQL expression for the class of a decision, in the dialect that
/// SQLite and PostgreSQL share. Tests compare it with [`ClassCounts`].
pub fn class_sql(columns: &ClassColumns) -> String {
    let ClassColumns {
        verdict,
        reason,
        error,
        ..
    } = columns;
    let refusals = Reason::ALL.map(|reason| {
        let class = DecisionClass::of_refusal(reason);
        format!("WHEN '{reason}' THEN '{class}'")
    });
    format!(
        "CASE WHEN {verdict} = '{later}' THEN '{put_off}' \
         WHEN {verdict} = '{disallow}' AND {reason} = '{unreachable}' AND {error} IS NOT NULL \
         THEN '{lost}' \
         WHEN {verdict} = '{disallow}' THEN CASE {reason} {refusals} ELSE '{rule}' END \
         WHEN {error} = '{withheld}' THEN '{is_withheld}' \
         WHEN {is_refused} THEN '{refused}' WHEN {is_put_off} THEN '{put_off}' \
         WHEN {error} IS NOT NULL THEN '{lost}' ELSE '{sent}' END",
        later = Verdict::Later,
        disallow = Verdict::Disallow,
        unreachable = Reason::Unreachable,
        refusals = refusals.join(" "),
        withheld = EndingClass::WITHHELD,
        is_refused = refused_by_site_sql(columns),
        is_put_off = put_off_by_site_sql(columns),
        put_off = DecisionClass::PutOff,
        rule = DecisionClass::Rule,
        is_withheld = DecisionClass::Withheld,
        refused = DecisionClass::RefusedBySite,
        lost = DecisionClass::Error,
        sent = DecisionClass::Sent,
    )
}

/// Returns the SQL condition for an ending of class [`EndingClass::RefusedBySite`].
pub fn refused_by_site_sql(columns: &ClassColumns) -> String {
    let ClassColumns {
        error,
        status,
        sent,
        ..
    } = columns;
    format!(
        "({error} = '{challenge}' OR ({error} IS DISTINCT FROM '{withheld}' \
         AND {status} IN (401, 402, 403, 451) AND {sent} > 0))",
        challenge = EndingClass::BOT_CHALLENGE,
        withheld = EndingClass::WITHHELD,
    )
}

/// Returns the SQL condition for an ending of class [`EndingClass::PutOffBySite`].
pub fn put_off_by_site_sql(columns: &ClassColumns) -> String {
    let ClassColumns {
        error,
        status,
        sent,
        ..
    } = columns;
    format!(
        "(coalesce({error}, '') NOT IN ('{withheld}', '{challenge}') AND {sent} > 0 \
         AND ({status} = 429 OR {status} = 503 AND {error} IS DISTINCT FROM '{lost_turn}'))",
        withheld = EndingClass::WITHHELD,
        challenge = EndingClass::BOT_CHALLENGE,
        lost_turn = EndingClass::LOST_TURN,
    )
}

impl Serialize for ClassCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}
