//! Statistics: decisions counted by host, crawler, rule, reason and hour.
//!
//! Decisions are summed by the numbers of their dictionary rows; the texts are
//! looked up once for each sum. Does not know how the sums are shown.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row};

use super::columns::count;
use super::decision_row::DECISIONS;
use super::dictionary_cache::DictionaryValues;
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::pages::NumberedTable;
use super::reader::AuditReader;
use crate::decision::record::StoredRuling;

/// Microseconds of an hour.
const HOUR_US: i64 = 3_600_000_000;

/// Sums that are kept apart at a time, of some hundred bytes each. A question
/// that asks for more is to be narrowed.
const SUMS_MAX: usize = 1 << 20;

/// What is counted of a decision and its ending.
const COUNTED: NumberedTable = NumberedTable {
    select: "
SELECT d.seq, d.time_us, d.origin, d.ruling, d.wait_ms, e.bytes, e.error
FROM decision AS d LEFT JOIN ending AS e ON e.decision = d.seq",
    ..DECISIONS
};

/// Property by which decisions are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatKey {
    /// Host of the URL, on every port.
    Host,
    /// Token that was bound.
    Crawler,
    /// Text of the rule that decided.
    Rule,
    /// Word of the reason.
    Reason,
    /// Hour of the decision, by its beginning in UTC.
    Hour,
}

impl StatKey {
    /// All keys.
    pub const ALL: [Self; 5] = [
        Self::Host,
        Self::Crawler,
        Self::Rule,
        Self::Reason,
        Self::Hour,
    ];

    /// Returns the word of the key.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Crawler => "crawler",
            Self::Rule => "rule",
            Self::Reason => "reason",
            Self::Hour => "hour",
        }
    }
}

impl fmt::Display for StatKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
    /// Decisions that disallow and were enforced.
    pub refusals: u64,
    /// Decisions that enforcing would have refused or put off (report mode).
    pub reported: u64,
    /// Decisions by which the request was put off (429, 503).
    pub later: u64,
    /// Milliseconds that requests waited.
    pub wait_ms: u64,
    /// Bytes of bodies passed on.
    pub bytes: u64,
    /// Exchanges that ended with an error.
    pub errors: u64,
}

impl DecisionSums {
    /// Adds the sums of other decisions.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.requests, other.requests),
            (&mut self.refusals, other.refusals),
            (&mut self.reported, other.reported),
            (&mut self.later, other.later),
            (&mut self.wait_ms, other.wait_ms),
            (&mut self.bytes, other.bytes),
            (&mut self.errors, other.errors),
        ] {
            // A changed row may hold any number.
            *sum = sum.saturating_add(more);
        }
    }

    /// Counts the requests as what their `ruling` made of them.
    fn ruled(self, ruling: &StoredRuling) -> Self {
        let requests = self.requests;
        match (ruling.verdict.as_str(), ruling.effect.as_str()) {
            ("disallow" | "later", "reported") => Self {
                reported: requests,
                ..self
            },
            ("disallow", "enforced") => Self {
                refusals: requests,
                ..self
            },
            ("later", "enforced") => Self {
                later: requests,
                ..self
            },
            _ => self,
        }
    }
}

/// Decisions that have the same value for each key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatGroup {
    /// Values in the order of the keys; `None` where there is none: no rule
    /// decided, or the crawler has no token.
    pub values: Vec<Option<Arc<str>>>,
    /// Sums of the decisions.
    pub sums: DecisionSums,
}

/// Order of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatOrder {
    /// Those with most requests come first.
    Requests,
    /// Those with most refusals come first, then those with most that report mode
    /// let through, then those with most requests.
    Refusals,
}

/// Counts the decisions that meet `filter` by the values of `keys`. Without keys
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
    let mut sums = SumsByReference::new(keys);
    add_rows(reader, filter, &mut sums)?;
    let mut groups = sums.groups(&reader.connection, filter, keys)?;
    // By their values where the counts are equal: the same question has the same
    // answer each time.
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
    Ok(groups)
}

/// Adds decision by decision.
fn add_rows(
    reader: &AuditReader,
    filter: &DecisionFilter,
    sums: &mut SumsByReference,
) -> Result<(), AuditError> {
    let mut scan = reader.narrow_scan(COUNTED, filter)?;
    while let Some(page) = scan.next_page(CountedRow::read)? {
        for row in page {
            sums.add(row.references, &row.sums)?;
        }
    }
    Ok(())
}

/// A row of [`COUNTED`].
struct CountedRow {
    references: SumReferences,
    sums: DecisionSums,
}

impl CountedRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let time_us: i64 = row.get(1)?;
        let error: Option<i64> = row.get(6)?;
        Ok(Self {
            references: SumReferences {
                hour: time_us.div_euclid(HOUR_US),
                origin: row.get(2)?,
                ruling: row.get(3)?,
            },
            sums: DecisionSums {
                requests: 1,
                wait_ms: count(row.get(4)?),
                bytes: count(row.get::<_, Option<i64>>(5)?.unwrap_or_default()),
                errors: u64::from(error.is_some()),
                ..DecisionSums::default()
            },
        })
    }
}

/// Hour of a decision, and the dictionary rows that it refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SumReferences {
    /// Hours since 1970.
    hour: i64,
    origin: i64,
    ruling: i64,
}

/// Sums by hour, origin and ruling, as far as the keys tell them apart.
struct SumsByReference {
    is_by_hour: bool,
    is_by_origin: bool,
    sums: HashMap<SumReferences, DecisionSums>,
}

impl SumsByReference {
    fn new(keys: &[StatKey]) -> Self {
        Self {
            is_by_hour: keys.contains(&StatKey::Hour),
            is_by_origin: keys.contains(&StatKey::Host),
            sums: HashMap::new(),
        }
    }

    fn add(&mut self, of: SumReferences, sums: &DecisionSums) -> Result<(), AuditError> {
        // Whatever is not asked for is the same for all.
        let key = SumReferences {
            hour: if self.is_by_hour { of.hour } else { 0 },
            origin: if self.is_by_origin { of.origin } else { 0 },
            ruling: of.ruling,
        };
        self.sums.entry(key).or_default().add(sums);
        if SUMS_MAX < self.sums.len() {
            return Err(AuditError::TooManySums(SUMS_MAX));
        }
        Ok(())
    }

    /// Puts together what has the same texts for `keys`.
    fn groups(
        self,
        connection: &Connection,
        filter: &DecisionFilter,
        keys: &[StatKey],
    ) -> rusqlite::Result<Vec<StatGroup>> {
        let mut texts = KeyTexts::new(connection);
        let mut groups: HashMap<Vec<Option<Arc<str>>>, DecisionSums> = HashMap::new();
        for (references, sums) in &self.sums {
            let ruling = texts.ruling(references.ruling)?;
            if !filter.admits_rule(ruling.rule.as_deref()) {
                continue;
            }
            let values = keys.iter().map(|key| match key {
                StatKey::Host => texts.host(references.origin).map(Some),
                StatKey::Crawler => Ok(shared(ruling.crawler.as_deref())),
                StatKey::Rule => Ok(shared(ruling.rule.as_deref())),
                StatKey::Reason => Ok(shared(Some(&ruling.reason))),
                StatKey::Hour => Ok(shared(Some(&hour_text(references.hour)))),
            });
            let group = groups
                .entry(values.collect::<rusqlite::Result<_>>()?)
                .or_default();
            group.add(&sums.ruled(&ruling));
        }
        let groups = groups.into_iter();
        Ok(groups
            .map(|(values, sums)| StatGroup { values, sums })
            .collect())
    }
}

fn shared(text: Option<&str>) -> Option<Arc<str>> {
    text.map(Arc::from)
}

fn hour_text(hour: i64) -> String {
    let begin = Timestamp::from_microsecond(hour.saturating_mul(HOUR_US));
    begin.unwrap_or_default().to_string()
}

/// Texts of the dictionary rows that sums refer to.
struct KeyTexts<'a> {
    connection: &'a Connection,
    values: DictionaryValues,
    hosts: HashMap<i64, Arc<str>>,
}

impl<'a> KeyTexts<'a> {
    fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            values: DictionaryValues::default(),
            hosts: HashMap::new(),
        }
    }

    /// Finds a ruling. One that somebody took away has no values.
    fn ruling(&mut self, id: i64) -> rusqlite::Result<Arc<StoredRuling>> {
        let found = self.values.ruling(self.connection, id)?;
        Ok(found.map(|found| found.value).unwrap_or_default())
    }

    /// Finds the host of an origin; that of an origin which somebody took away has
    /// no letters.
    fn host(&mut self, origin: i64) -> rusqlite::Result<Arc<str>> {
        if let Some(host) = self.hosts.get(&origin) {
            return Ok(Arc::clone(host));
        }
        // Bytes: what somebody changed may be no UTF-8.
        let sql = "SELECT CAST(host AS BLOB) FROM origin WHERE id = ?";
        let mut statement = self.connection.prepare_cached(sql)?;
        let bytes: Option<Vec<u8>> = statement.query_row([origin], |row| row.get(0)).optional()?;
        let host: Arc<str> = String::from_utf8_lossy(&bytes.unwrap_or_default()).into();
        self.hosts.insert(origin, Arc::clone(&host));
        Ok(host)
    }
}
