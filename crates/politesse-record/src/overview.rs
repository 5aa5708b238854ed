//! Facts for an overview: decisions of a time range summed by hour, host, rule and
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
pub use super::report::HourSums;
use super::stats::{DecisionSums, KeyTexts, StatOrder, stats};

/// Facts about the decisions of a time range.
#[derive(Debug, Clone)]
pub struct OverviewFacts {
    /// Sums of all decisions.
    pub sums: DecisionSums,
    /// Sums of the decisions in the time range before, for comparison.
    pub before: DecisionSums,
    /// Sums by hour, the earliest first. Hours without a decision are left out.
    pub hours: Vec<HourSums>,
    /// Hosts with most refusals, including requests that report mode let through.
    pub hosts: Vec<NamedSums>,
    /// Hosts that refused most of the requests sent to them.
    pub refusing_hosts: Vec<NamedSums>,
    /// Rules with most refusals.
    pub rules: Vec<NamedSums>,
    /// Crawlers with most requests; without a name for crawlers that have no token.
    pub crawlers: Vec<NamedSums>,
    /// Reasons for which requests were put off, the most frequent first.
    pub waits: Vec<NamedSums>,
    /// Numbers of the first and the last decision on record, at any time.
    pub numbers: Option<SeqRange>,
}

/// Time ranges of an overview.
#[derive(Debug, Clone, Copy)]
pub struct OverviewTimes {
    /// Start of the time range for comparison.
    pub before: Timestamp,
    /// Start of the overview's time range, and end of the one for comparison.
    pub from: Timestamp,
}

impl OverviewTimes {
    /// Returns the filter for the decisions of the overview.
    pub fn filter(&self) -> DecisionFilter {
        DecisionFilter {
            from: Some(self.from),
            ..DecisionFilter::default()
        }
    }

    /// Returns the filter for the decisions it is compared with.
    pub fn filter_before(&self) -> DecisionFilter {
        DecisionFilter {
            from: Some(self.before),
            until: Some(self.from),
            ..DecisionFilter::default()
        }
    }
}

/// Sums of the decisions that share a value.
#[derive(Debug, Clone)]
pub struct NamedSums {
    /// Value; `None` for decisions without one.
    pub name: Option<Arc<str>>,
    /// The sums.
    pub sums: DecisionSums,
}

impl NamedSums {
    /// Combines the sums of one name, under its most frequent spelling.
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

/// Gathers the facts about the decisions in `times`, with at most `rows` hosts,
/// rules and crawlers.
///
/// # Errors
///
/// [`AuditError::Read`], [`AuditError::TooManySums`].
pub fn overview_facts(
    reader: &AuditReader,
    times: OverviewTimes,
    rows: usize,
) -> Result<OverviewFacts, AuditError> {
    let before = stats(reader, &times.filter_before(), &[], StatOrder::Requests)?;
    // Separate tables, because no view combines hour, rule and host: for a month
    // with ten thousand hosts, the combined sums would exceed the limit.
    let mut tables = [
        SumsByReference::by_outcome(SumsApart::HOURS, &reader.connection)?,
        SumsByReference::by_outcome(SumsApart::ORIGINS, &reader.connection)?,
        SumsByReference::new(SumsApart::NONE),
    ];
    count_decisions(reader, &times.filter(), &mut tables)?;
    let sums = OverviewSums::read(reader, &tables)?;
    Ok(OverviewFacts {
        numbers: reader.seq_range()?,
        before: before.first().map(|all| all.sums).unwrap_or_default(),
        ..sums.facts(rows)
    })
}

/// Sums of decisions by hour, and by each value that an overview shows. A value may
/// occur several times.
#[derive(Debug, Clone, Default)]
pub struct OverviewSums {
    /// Sums by hour.
    pub hours: Vec<HourSums>,
    /// Sums by host.
    pub hosts: Vec<NamedSums>,
    /// Sums by the rule that decided; without a name if no rule did.
    pub rules: Vec<NamedSums>,
    /// Sums by crawler; without a name if it has no token.
    pub crawlers: Vec<NamedSums>,
    /// Sums by the reason for putting the request off; without a name if it was not
    /// put off.
    pub waits: Vec<NamedSums>,
}

impl OverviewSums {
    /// Looks up the values of decisions counted by hour, by origin and by ruling.
    fn read(
        reader: &AuditReader,
        [by_hour, by_origin, by_ruling]: &[SumsByReference; 3],
    ) -> Result<Self, AuditError> {
        let mut texts = KeyTexts::new(&reader.connection);
        let mut all = Self::default();
        for (references, sums) in by_hour.iter() {
            let ruling = texts.ruling(references.ruling)?;
            all.hours.push(HourSums {
                hour: references.hour,
                sums: DecisionSums::ruled(sums, &ruling),
            });
        }
        for (references, sums) in by_origin.iter() {
            let ruling = texts.ruling(references.ruling)?;
            all.hosts.push(NamedSums {
                name: Some(texts.host(references.origin)?),
                sums: DecisionSums::ruled(sums, &ruling),
            });
        }
        for (references, sums) in by_ruling.iter() {
            let ruling = texts.ruling(references.ruling)?;
            let sums = DecisionSums::ruled(sums, &ruling);
            let named = |name: Option<&str>| NamedSums {
                name: name.map(Arc::from),
                sums,
            };
            let reason = ruling.reason.as_str();
            all.rules.push(named(ruling.rule.as_deref()));
            all.crawlers.push(named(ruling.crawler.as_deref()));
            all.waits
                .push(named((ruling.verdict == "later").then_some(reason)));
        }
        Ok(all)
    }

    /// Returns the facts, with at most `rows` hosts, rules and crawlers. The
    /// numbers of decisions and the sums for comparison are left empty.
    pub fn facts(self, rows: usize) -> OverviewFacts {
        let mut hours: BTreeMap<i64, DecisionSums> = BTreeMap::new();
        let mut sums = DecisionSums::default();
        for hour in &self.hours {
            hours.entry(hour.hour).or_default().add(&hour.sums);
            sums.add(&hour.sums);
        }
        let hours = hours.into_iter();
        // Most requests are decided without a rule, and these must not appear among
        // the rules.
        let has_name = |entry: &NamedSums| entry.name.is_some();
        let rules = self.rules.into_iter().filter(has_name);
        let waits = self.waits.into_iter().filter(has_name);
        let hosts = SumsByName::of(self.hosts, str::to_owned);
        let mut refusing_hosts = hosts.clone().top(rows, |sums| sums.refused_by_site);
        refusing_hosts.retain(|host| 0 < host.sums.refused_by_site);
        OverviewFacts {
            sums,
            before: DecisionSums::default(),
            hours: hours.map(|(hour, sums)| HourSums { hour, sums }).collect(),
            refusing_hosts,
            hosts: hosts.refused(rows),
            rules: SumsByName::of(rules, rule_key).refused(rows),
            // Product tokens are compared without regard to case (RFC 9309, section 2.2.1).
            crawlers: SumsByName::of(self.crawlers, str::to_ascii_lowercase)
                .top(rows, |sums| sums.requests),
            waits: SumsByName::of(waits, str::to_owned).top(rows, |sums| sums.requests),
            numbers: None,
        }
    }
}

/// Sums by normalized name, and by spelling.
#[derive(Clone, Default)]
struct SumsByName(HashMap<String, HashMap<Option<Arc<str>>, DecisionSums>>);

impl SumsByName {
    /// Combines the sums of names; names with the same `key` are equivalent.
    fn of(all: impl IntoIterator<Item = NamedSums>, key: impl Fn(&str) -> String) -> Self {
        let mut by_key = Self::default();
        for NamedSums { name, sums } in all {
            let key = key(name.as_deref().unwrap_or_default());
            let spellings = by_key.0.entry(key).or_default();
            spellings.entry(name).or_default().add(&sums);
        }
        by_key
    }

    /// Returns the entries with most refusals, enforced or reported, because pages
    /// show both as one number. Entries without refusals are left out.
    fn refused(self, rows: usize) -> Vec<NamedSums> {
        let mut top = self.top(rows, |sums| sums.classes.refused());
        // A short list would otherwise be filled up with hosts without refusals.
        top.retain(|entry| 0 < entry.sums.classes.refused());
        top
    }

    fn top(self, rows: usize, rank: impl Fn(&DecisionSums) -> u64) -> Vec<NamedSums> {
        let mut all: Vec<_> = self.0.into_values().filter_map(NamedSums::of).collect();
        // Entries with equal counts are sorted by name, so that equal queries have
        // equal answers.
        all.sort_by(|one, other| {
            let by_rank = Reverse(rank(&one.sums)).cmp(&Reverse(rank(&other.sums)));
            by_rank.then_with(|| one.name.cmp(&other.name))
        });
        all.truncate(rows);
        all
    }
}
