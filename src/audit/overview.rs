//! Facts for an overview: decisions of some hours summed by hour, host, rule and
//! crawler, from one pass over their roll-ups.
//!
//! Does not know how an overview is laid out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::counting::{SumsApart, SumsByReference, count_decisions};
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::reader::{AuditReader, SeqRange};
use super::report::HourSums;
use super::stats::{DecisionSums, KeyTexts};

/// Facts about the decisions of some hours.
#[derive(Debug, Clone)]
pub struct OverviewFacts {
    /// Sums of all.
    pub sums: DecisionSums,
    /// Sums by hour, the earliest first; hours without a decision are not among them.
    pub hours: Vec<HourSums>,
    /// Hosts with most refusals, those that report mode let through among them.
    pub hosts: Vec<NamedSums>,
    /// Rules with most refusals.
    pub rules: Vec<NamedSums>,
    /// Crawlers with most requests; without a name, those that have no token.
    pub crawlers: Vec<NamedSums>,
    /// Reasons for which requests were put off, the most frequent first.
    pub waits: Vec<NamedSums>,
    /// Numbers of the first and the last decision on record, whenever they were made.
    pub numbers: Option<SeqRange>,
}

/// Sums of the decisions that have a value in common.
#[derive(Debug, Clone)]
pub struct NamedSums {
    /// The value; absent where there is none.
    pub name: Option<Arc<str>>,
    /// The sums.
    pub sums: DecisionSums,
}

/// Gathers the facts about the decisions from `from` on, with at most `rows` hosts,
/// rules and crawlers.
///
/// # Errors
///
/// [`AuditError::Read`], [`AuditError::TooManySums`].
pub fn overview_facts(
    reader: &AuditReader,
    from: Timestamp,
    rows: usize,
) -> Result<OverviewFacts, AuditError> {
    let filter = DecisionFilter {
        from: Some(from),
        ..DecisionFilter::default()
    };
    // Nothing is shown of two of hour, rule and host together: a month of ten thousand
    // hosts would have more such sums than are kept.
    let by_hour = SumsApart {
        by_hour: true,
        ..SumsApart::default()
    };
    let by_origin = SumsApart {
        by_origin: true,
        ..SumsApart::default()
    };
    let mut tables = [
        SumsByReference::by_outcome(by_hour, &reader.connection)?,
        SumsByReference::by_outcome(by_origin, &reader.connection)?,
        SumsByReference::new(SumsApart::default()),
    ];
    count_decisions(reader, &filter, &mut tables)?;
    let [by_hour, by_origin, by_ruling] = tables;
    let mut texts = KeyTexts::new(&reader.connection);
    let mut sums = DecisionSums::default();
    let mut hours: BTreeMap<i64, DecisionSums> = BTreeMap::new();
    for (references, entries) in by_hour.iter() {
        let ruling = texts.ruling(references.ruling)?;
        let added = DecisionSums::ruled(entries, &ruling);
        sums.add(&added);
        hours.entry(references.hour).or_default().add(&added);
    }
    let mut origins: HashMap<i64, DecisionSums> = HashMap::new();
    for (references, entries) in by_origin.iter() {
        let ruling = texts.ruling(references.ruling)?;
        let added = DecisionSums::ruled(entries, &ruling);
        origins.entry(references.origin).or_default().add(&added);
    }
    let mut hosts = SumsByName::default();
    for (origin, added) in &origins {
        hosts.add(Some(texts.host(*origin)?), added);
    }
    let (mut rules, mut crawlers) = (SumsByName::default(), SumsByName::default());
    let mut waits = SumsByName::default();
    for (references, entries) in by_ruling.iter() {
        let ruling = texts.ruling(references.ruling)?;
        let added = &DecisionSums::ruled(entries, &ruling);
        // Most requests are decided by no rule: that is none of the rules.
        if let Some(rule) = &ruling.rule {
            rules.add(Some(rule.as_str().into()), added);
        }
        crawlers.add(ruling.crawler.as_deref().map(Arc::from), added);
        if ruling.verdict == "later" {
            waits.add(Some(ruling.reason.as_str().into()), added);
        }
    }
    let hours = hours
        .into_iter()
        .map(|(hour, sums)| HourSums { hour, sums });
    Ok(OverviewFacts {
        sums,
        hours: hours.collect(),
        hosts: hosts.refused(rows),
        rules: rules.refused(rows),
        crawlers: crawlers.top(rows, |sums| [sums.requests, 0]),
        waits: waits.top(rows, |sums| [sums.requests, 0]),
        numbers: reader.seq_range()?,
    })
}

#[derive(Default)]
struct SumsByName(HashMap<Option<Arc<str>>, DecisionSums>);

impl SumsByName {
    fn add(&mut self, name: Option<Arc<str>>, sums: &DecisionSums) {
        self.0.entry(name).or_default().add(sums);
    }

    /// Returns the sums with most refusals; those without any are left out.
    fn refused(self, rows: usize) -> Vec<NamedSums> {
        let mut top = self.top(rows, |sums| [sums.refusals, sums.reported]);
        // A host that was never refused is none of the most refused, however few there
        // are.
        top.retain(|entry| 0 < entry.sums.refusals + entry.sums.reported);
        top
    }

    fn top(self, rows: usize, rank: impl Fn(&DecisionSums) -> [u64; 2]) -> Vec<NamedSums> {
        let mut all: Vec<_> = self
            .0
            .into_iter()
            .map(|(name, sums)| NamedSums { name, sums })
            .collect();
        // By name where the counts are equal: the same question has the same answer.
        all.sort_by(|one, other| {
            let by_rank = Reverse(rank(&one.sums)).cmp(&Reverse(rank(&other.sums)));
            by_rank.then_with(|| one.name.cmp(&other.name))
        });
        all.truncate(rows);
        all
    }
}
