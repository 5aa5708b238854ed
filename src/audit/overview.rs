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
use super::filter::{DecisionFilter, rule_key};
use super::reader::{AuditReader, SeqRange};
use super::report::HourSums;
use super::stats::{CountedSums, DecisionSums, KeyTexts};

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

impl NamedSums {
    /// Adds up the sums of one name, under its most frequent spelling.
    fn of(spellings: HashMap<Option<Arc<str>>, DecisionSums>) -> Option<Self> {
        let mut sums = DecisionSums::default();
        spellings.values().for_each(|other| sums.add(other));
        let rank = |name: &Option<Arc<str>>, sums: &DecisionSums| (sums.requests, name.clone());
        let spelling = spellings
            .into_iter()
            .max_by(|(one, sums), (other, others)| rank(one, sums).cmp(&rank(other, others)));
        spelling.map(|(name, _)| Self { name, sums })
    }
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
    let [by_hour, by_origin, by_ruling] = tables.map(|table| {
        let sums = table.iter();
        let counted = sums.map(|(references, sums)| CountedSums::of(references, *sums));
        counted.collect()
    });
    let counts = OverviewCounts {
        by_hour,
        by_origin,
        by_ruling,
    };
    let facts = counted_facts(reader, &counts, rows)?;
    Ok(OverviewFacts {
        numbers: reader.seq_range()?,
        ..facts
    })
}

/// Decisions of some hours, counted in three ways.
#[derive(Debug, Default)]
pub struct OverviewCounts {
    /// Decisions by hour, and by ruling or what rulings have in common.
    pub by_hour: Vec<CountedSums>,
    /// Decisions by origin, and by ruling or what rulings have in common.
    pub by_origin: Vec<CountedSums>,
    /// Decisions by ruling.
    pub by_ruling: Vec<CountedSums>,
}

/// Makes the facts from `counts`, as [`overview_facts`] does, but for the numbers of
/// decisions. `reader` has the rows that they refer to.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn counted_facts(
    reader: &AuditReader,
    counts: &OverviewCounts,
    rows: usize,
) -> Result<OverviewFacts, AuditError> {
    let mut texts = KeyTexts::new(&reader.connection);
    let hours = hours(&counts.by_hour, &mut texts)?;
    let mut sums = DecisionSums::default();
    hours.iter().for_each(|hour| sums.add(&hour.sums));
    let mut origins: HashMap<i64, DecisionSums> = HashMap::new();
    for counted in &counts.by_origin {
        let ruling = texts.ruling(counted.ruling)?;
        let added = DecisionSums::ruled(&counted.sums, &ruling);
        origins.entry(counted.origin).or_default().add(&added);
    }
    let mut hosts = SumsByName::default();
    for (origin, added) in &origins {
        let host = texts.host(*origin)?;
        hosts.add(host.to_string(), Some(host), added);
    }
    let (mut rules, mut crawlers) = (SumsByName::default(), SumsByName::default());
    let mut waits = SumsByName::default();
    for counted in &counts.by_ruling {
        let ruling = texts.ruling(counted.ruling)?;
        let added = &DecisionSums::ruled(&counted.sums, &ruling);
        // Most requests are decided by no rule: that is none of the rules.
        if let Some(rule) = &ruling.rule {
            rules.add(rule_key(rule), Some(rule.as_str().into()), added);
        }
        // Product tokens are compared without regard to case (RFC 9309, section 2.2.1).
        let token = ruling.crawler.as_deref();
        let key = token.unwrap_or_default().to_ascii_lowercase();
        crawlers.add(key, token.map(Arc::from), added);
        if ruling.verdict == "later" {
            let reason = &ruling.reason;
            waits.add(reason.clone(), Some(reason.as_str().into()), added);
        }
    }
    Ok(OverviewFacts {
        sums,
        hours,
        hosts: hosts.refused(rows),
        rules: rules.refused(rows),
        crawlers: crawlers.top(rows, |sums| [sums.requests, 0]),
        waits: waits.top(rows, |sums| [sums.requests, 0]),
        numbers: None,
    })
}

/// Returns the sums of each hour, the earliest first.
fn hours(by_hour: &[CountedSums], texts: &mut KeyTexts<'_>) -> rusqlite::Result<Vec<HourSums>> {
    let mut hours: BTreeMap<i64, DecisionSums> = BTreeMap::new();
    for counted in by_hour {
        let ruling = texts.ruling(counted.ruling)?;
        let added = DecisionSums::ruled(&counted.sums, &ruling);
        hours.entry(counted.hour).or_default().add(&added);
    }
    let sums = |(hour, sums)| HourSums { hour, sums };
    Ok(hours.into_iter().map(sums).collect())
}

/// Sums by what a name means, and by how it is written.
#[derive(Default)]
struct SumsByName(HashMap<String, HashMap<Option<Arc<str>>, DecisionSums>>);

impl SumsByName {
    /// Adds the sums of `name`, which means the same as others with this `key`.
    fn add(&mut self, key: String, name: Option<Arc<str>>, sums: &DecisionSums) {
        let spellings = self.0.entry(key).or_default();
        spellings.entry(name).or_default().add(sums);
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
        let mut all: Vec<_> = self.0.into_values().filter_map(NamedSums::of).collect();
        // By name where the counts are equal: the same question has the same answer.
        all.sort_by(|one, other| {
            let by_rank = Reverse(rank(&one.sums)).cmp(&Reverse(rank(&other.sums)));
            by_rank.then_with(|| one.name.cmp(&other.name))
        });
        all.truncate(rows);
        all
    }
}
