//! Statistics: decisions counted by host, URL, crawler, rule, reason and hour.
//!
//! Decisions are summed by the ids of their dictionary rows, and the texts are
//! looked up once for each sum. Properties that no roll-up has, such as URLs, are
//! counted row by row. Does not know how the sums are shown.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::slice::from_mut;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::Connection;
use tokio::time::Instant;

use super::class_counts::ClassCounts;
pub use super::counting::SUMS_MAX;
use super::counting::{SumsApart, SumsByReference, count_decisions, count_until};
use super::dictionary_cache::DictionaryValues;
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::order::Direction;
use super::reader::AuditReader;
use super::rollup::HOUR_US;
pub use super::rollup_row::EntrySums;
use politesse_decision::outcome::EndingClass;
use politesse_decision::record::{StoredDenial, StoredRecord, StoredRuling};
use politesse_robots::origin::Target;

/// Property that decisions are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatKey {
    /// Host of the URL, with any port.
    Host,
    /// Whole URL.
    Url,
    /// Token of the crawler that was applied.
    Crawler,
    /// Label of the crawl.
    Label,
    /// Statement that denies a purpose of the crawler; each statement has its own
    /// group.
    Preference,
    /// Denied purpose of the crawler; each purpose has its own group.
    Purpose,
    /// Text of the rule that decided.
    Rule,
    /// Reason, as a word.
    Reason,
    /// Hour of the decision, given by its start in UTC.
    Hour,
    /// Node that made the decision, where the records of several nodes are read
    /// together.
    Node,
}

impl StatKey {
    /// All keys.
    pub const ALL: [Self; 10] = [
        Self::Host,
        Self::Url,
        Self::Crawler,
        Self::Label,
        Self::Preference,
        Self::Purpose,
        Self::Rule,
        Self::Reason,
        Self::Hour,
        Self::Node,
    ];

    /// Returns the key as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Url => "url",
            Self::Crawler => "crawler",
            Self::Label => "label",
            Self::Preference => "preference",
            Self::Purpose => "purpose",
            Self::Rule => "rule",
            Self::Reason => "reason",
            Self::Hour => "hour",
            Self::Node => "node",
        }
    }

    /// Reports whether roll-ups have separate sums for its values.
    fn is_rolled_up(self) -> bool {
        !matches!(
            self,
            Self::Url | Self::Label | Self::Preference | Self::Purpose
        )
    }
}

impl FromStr for StatKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut keys = Self::ALL.into_iter();
        let key = keys.find(|key| key.as_str() == text);
        key.ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            format!("one of {words} is wanted, or several with commas between them")
        })
    }
}

/// Sums of some decisions and their endings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecisionSums {
    /// Decisions.
    pub requests: u64,
    /// Enforced decisions that disallow.
    pub refusals: u64,
    /// Decisions that enforcement would have refused or put off (report mode).
    pub reported: u64,
    /// Enforced decisions that put the request off (429, 503).
    pub later: u64,
    /// Milliseconds that requests waited.
    pub wait_ms: u64,
    /// Bytes of bodies passed on.
    pub bytes: u64,
    /// Exchanges that ended with an error other than the kinds below.
    pub errors: u64,
    /// Responses that were fetched and withheld from the client.
    pub withheld: u64,
    /// Requests that the site refused: 401, 402, 403, 451 or a bot challenge.
    pub refused_by_site: u64,
    /// Requests that the site put off: 429 or 503.
    pub put_off_by_site: u64,
    /// Numbers of decisions by class.
    pub classes: ClassCounts,
}

impl DecisionSums {
    /// Returns the number of requests that were neither refused nor put off.
    pub fn let_through(&self) -> u64 {
        self.requests
            .saturating_sub(self.refusals)
            .saturating_sub(self.later)
    }

    /// Adds the sums of other decisions.
    pub fn add(&mut self, other: &Self) {
        self.classes.add(&other.classes);
        for (sum, more) in [
            (&mut self.requests, other.requests),
            (&mut self.refusals, other.refusals),
            (&mut self.reported, other.reported),
            (&mut self.later, other.later),
            (&mut self.wait_ms, other.wait_ms),
            (&mut self.bytes, other.bytes),
            (&mut self.errors, other.errors),
            (&mut self.withheld, other.withheld),
            (&mut self.refused_by_site, other.refused_by_site),
            (&mut self.put_off_by_site, other.put_off_by_site),
        ] {
            // An altered row may hold any number.
            *sum = sum.saturating_add(more);
        }
    }

    /// Returns the sums of entries, with their requests counted under what `ruling`
    /// made of them.
    pub(super) fn ruled(entries: &EntrySums, ruling: &StoredRuling) -> Self {
        let EntrySums {
            requests,
            wait_ms,
            bytes,
            errors,
            withheld,
            refused_by_site,
            put_off_by_site,
        } = *entries;
        let count_if = |is_so: bool| if is_so { requests } else { 0 };
        let (verdict, effect) = (ruling.verdict.as_str(), ruling.effect.as_str());
        Self {
            requests,
            refusals: count_if(verdict == "disallow" && effect == "enforced"),
            reported: count_if(verdict != "allow" && effect == "reported"),
            later: count_if(verdict == "later" && effect == "enforced"),
            wait_ms,
            bytes,
            errors,
            withheld,
            refused_by_site,
            put_off_by_site,
            classes: ClassCounts::of_entries(entries, ruling),
        }
    }
}

/// Group of decisions that have the same value for each key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatGroup {
    /// Values in the order of the keys; `None` without a value: no rule decided, or
    /// the crawler has no token.
    pub values: Vec<Option<Arc<str>>>,
    /// Sums of the decisions.
    pub sums: DecisionSums,
}

/// Order of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatOrder {
    /// Groups with most requests first.
    Requests,
    /// Groups with most refusals first; then by most requests that only report mode
    /// let through, then by most requests.
    Refusals,
}

/// Query for the sums of decisions.
#[derive(Debug, Clone, Copy)]
pub struct StatQuestion<'a> {
    /// Filter for the decisions that are counted.
    pub filter: &'a DecisionFilter,
    /// Properties that the decisions are grouped by.
    pub keys: &'a [StatKey],
    /// Order of the groups.
    pub order: StatOrder,
}

/// Counts the decisions that match `filter` by the values of `keys`. Without keys
/// there is one group, or none if there are no decisions.
///
/// # Errors
///
/// [`AuditError::Read`]; [`AuditError::TooManySums`] if the groups do not fit into
/// memory.
pub fn stats(
    reader: &AuditReader,
    filter: &DecisionFilter,
    keys: &[StatKey],
    order: StatOrder,
) -> Result<Vec<StatGroup>, AuditError> {
    let mut groups = if keys.iter().any(|key| !key.is_rolled_up()) {
        groups_by_row(reader, filter, keys)?
    } else {
        let mut sums = SumsByReference::new(SumsApart {
            by_hour: keys.contains(&StatKey::Hour),
            by_origin: keys.contains(&StatKey::Host),
        });
        count_decisions(reader, filter, from_mut(&mut sums))?;
        groups(reader, &sums, filter, keys)?
    };
    sort_groups(&mut groups, order);
    Ok(groups)
}

/// Number of decisions that match a filter, as far as counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecisionTotal {
    /// Number of decisions counted.
    pub count: u64,
    /// Whether the deadline passed before all were counted.
    pub is_cut: bool,
}

/// Counts the decisions that match `filter`, until `deadline`.
///
/// # Errors
///
/// [`AuditError::Read`], [`AuditError::TooManySums`].
pub fn total(
    reader: &AuditReader,
    filter: &DecisionFilter,
    deadline: Instant,
) -> Result<DecisionTotal, AuditError> {
    let mut sums = SumsByReference::new(SumsApart::NONE);
    let is_cut = count_until(reader, filter, from_mut(&mut sums), Some(deadline))?;
    let groups = groups(reader, &sums, filter, &[])?;
    Ok(DecisionTotal {
        count: groups.iter().map(|group| group.sums.requests).sum(),
        is_cut,
    })
}

/// Sorts groups.
pub fn sort_groups(groups: &mut [StatGroup], order: StatOrder) {
    // Groups with equal counts are sorted by value, so that equal queries have
    // equal answers.
    groups.sort_by(|one, other| {
        let rank = |group: &StatGroup| {
            let DecisionSums {
                requests,
                refusals,
                reported,
                ..
            } = group.sums;
            Reverse(match order {
                StatOrder::Requests => [requests, 0, 0],
                StatOrder::Refusals => [refusals, reported, requests],
            })
        };
        rank(one)
            .cmp(&rank(other))
            .then_with(|| one.values.cmp(&other.values))
    });
}

/// Combines the sums that have the same texts for `keys`.
fn groups(
    reader: &AuditReader,
    counted: &SumsByReference,
    filter: &DecisionFilter,
    keys: &[StatKey],
) -> rusqlite::Result<Vec<StatGroup>> {
    let mut texts = KeyTexts::new(&reader.connection);
    let mut groups: HashMap<Vec<Option<Arc<str>>>, DecisionSums> = HashMap::new();
    for (references, sums) in counted.iter() {
        let ruling = texts.ruling(references.ruling)?;
        if !filter.admits_ruling(&ruling) {
            continue;
        }
        let values = keys.iter().map(|key| match key {
            StatKey::Host => texts.host(references.origin).map(Some),
            StatKey::Crawler => Ok(shared(ruling.crawler.as_deref())),
            StatKey::Rule => Ok(shared(ruling.rule.as_deref())),
            StatKey::Reason => Ok(shared(Some(&ruling.reason))),
            StatKey::Hour => Ok(Some(texts.hour(references.hour))),
            // These keys are counted row by row, and a single record has one node.
            StatKey::Node
            | StatKey::Url
            | StatKey::Label
            | StatKey::Preference
            | StatKey::Purpose => Ok(None),
        });
        let group = groups
            .entry(values.collect::<rusqlite::Result<_>>()?)
            .or_default();
        group.add(&DecisionSums::ruled(sums, &ruling));
    }
    Ok(listed(groups))
}

/// Counts row by row, for `keys` that roll-ups do not have. A decision with several
/// denials is counted in each of their groups.
fn groups_by_row(
    reader: &AuditReader,
    filter: &DecisionFilter,
    keys: &[StatKey],
) -> Result<Vec<StatGroup>, AuditError> {
    let mut texts = KeyTexts::new(&reader.connection);
    let mut groups: HashMap<Vec<Option<Arc<str>>>, DecisionSums> = HashMap::new();
    let mut room = 0;
    reader.visit_decisions(filter, Direction::OldestFirst, |record| {
        let denials = record.denials();
        let each: Vec<_> = match denials.is_empty() {
            true => vec![None],
            false => denials.iter().map(Some).collect(),
        };
        let mut apart = BTreeSet::new();
        for denial in each {
            let values = keys
                .iter()
                .map(|key| texts.of_record(*key, &record, denial));
            apart.insert(values.collect::<Vec<_>>());
        }
        let entries = EntrySums {
            requests: 1,
            wait_ms: record.wait_ms,
            ..EntrySums::of_ending(
                EndingClass::of_record(&record),
                record.bytes.unwrap_or_default(),
            )
        };
        for values in apart {
            // A URL may take as much memory as thousands of other sums.
            let bytes: usize = values.iter().flatten().map(|value| value.len()).sum();
            let group = groups.entry(values).or_insert_with(|| {
                room += 1 + bytes / SUM_BYTES;
                DecisionSums::default()
            });
            group.add(&DecisionSums::ruled(&entries, &record.ruling));
        }
        if SUMS_MAX < room {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    if SUMS_MAX < room {
        return Err(AuditError::TooManySums(SUMS_MAX));
    }
    Ok(listed(groups))
}

fn listed(groups: HashMap<Vec<Option<Arc<str>>>, DecisionSums>) -> Vec<StatGroup> {
    let groups = groups.into_iter();
    groups
        .map(|(values, sums)| StatGroup { values, sums })
        .collect()
}

fn shared(text: Option<&str>) -> Option<Arc<str>> {
    text.map(Arc::from)
}

/// Approximate memory of a sum in bytes.
const SUM_BYTES: usize = 128;

/// Number of hosts read at a time.
const HOSTS_READ: i64 = 1024;

/// Texts of the dictionary rows that sums refer to.
pub(super) struct KeyTexts<'a> {
    connection: &'a Connection,
    values: DictionaryValues,
    hosts: HashMap<i64, Arc<str>>,
    hours: HashMap<i64, Arc<str>>,
}

impl<'a> KeyTexts<'a> {
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            values: DictionaryValues::default(),
            hosts: HashMap::new(),
            hours: HashMap::new(),
        }
    }

    /// Returns the value of a decision for `key`, for one of its denials.
    fn of_record(
        &mut self,
        key: StatKey,
        record: &StoredRecord,
        denial: Option<&StoredDenial>,
    ) -> Option<Arc<str>> {
        let ruling = &record.ruling;
        match key {
            StatKey::Url => shared(Some(&record.url)),
            StatKey::Host => {
                let url = match (&record.snapshot, record.is_redacted()) {
                    (Some(snapshot), true) => &snapshot.origin,
                    (None, true) => return shared(Some(StoredRecord::REDACTED)),
                    (_, false) => &record.url,
                };
                let target = url.parse::<Target>().ok();
                // An origin that was altered has an empty host, as in `host`.
                let host = target.map(|target| target.origin.host().to_string());
                shared(Some(&host.unwrap_or_default()))
            }
            StatKey::Crawler => shared(ruling.crawler.as_deref()),
            StatKey::Label => shared(record.crawler.label.as_deref()),
            StatKey::Rule => shared(ruling.rule.as_deref()),
            StatKey::Reason => shared(Some(&ruling.reason)),
            StatKey::Hour => Some(self.hour(record.at.as_microsecond().div_euclid(HOUR_US))),
            StatKey::Node => record.node.clone(),
            StatKey::Preference => shared(denial.map(|denial| &*denial.statement)),
            StatKey::Purpose => shared(denial.map(|denial| &*denial.purpose)),
        }
    }

    /// Formats an hour by its start.
    fn hour(&mut self, hour: i64) -> Arc<str> {
        let text = self.hours.entry(hour).or_insert_with(|| {
            let begin = Timestamp::from_microsecond(hour.saturating_mul(HOUR_US));
            begin.unwrap_or_default().to_string().into()
        });
        Arc::clone(text)
    }

    /// Returns a ruling; without values if its row is gone.
    pub(super) fn ruling(&mut self, id: i64) -> rusqlite::Result<Arc<StoredRuling>> {
        let found = self.values.rulings.get(self.connection, id)?;
        Ok(found.map(|found| found.value).unwrap_or_default())
    }

    /// Returns the host of an origin; empty if its row is gone.
    pub(super) fn host(&mut self, origin: i64) -> rusqlite::Result<Arc<str>> {
        // 0 stands for a redacted origin; no row has this id.
        if origin == 0 {
            return Ok(StoredRecord::REDACTED.into());
        }
        if let Some(host) = self.hosts.get(&origin) {
            return Ok(Arc::clone(host));
        }
        // Reads the neighbouring rows as well, because a count by host needs most
        // of them. Reads bytes, because an altered value may not be valid UTF-8.
        let sql = "SELECT id, CAST(host AS BLOB) FROM origin WHERE ? <= id AND id < ?";
        let begin = origin - origin.rem_euclid(HOSTS_READ);
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([begin, begin.saturating_add(HOSTS_READ)])?;
        while let Some(row) = rows.next()? {
            let bytes = row.get_ref(1)?.as_bytes_or_null().ok().flatten();
            let host = String::from_utf8_lossy(bytes.unwrap_or_default());
            self.hosts.insert(row.get(0)?, host.into());
        }
        Ok(Arc::clone(self.hosts.entry(origin).or_default()))
    }
}
