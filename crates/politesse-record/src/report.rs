//! Facts for a report: decisions summed by time, host and ruling; the modes in
//! which they were made; the speed at which hosts were asked; the crawlers that
//! asked; and a digest of all rows that were read.
//!
//! Does not know how a report is laid out, or what happened besides decisions
//! (`report_history`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::slice::from_mut;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use jiff::Timestamp;
use rusqlite::{Connection, Row};
use serde::Serialize;
use serde_json::Value as Json;

use super::columns::{column, read_digest};
use super::counting::{SumsApart, SumsByReference, count_decisions};
use super::dictionary_cache::DictionaryValues;
use super::entry_rows::DECISIONS;
use super::error::AuditError;
use super::filter::{DecisionFilter, normal_host};
use super::pages::NumberedTable;
use super::reader::AuditReader;
use super::rollup::CountedDecision;
use super::speed::{PauseCounts, SPEEDS_MAX};
use super::stats::{DecisionSums, KeyTexts, StatGroup, StatKey, StatOrder, stats};
use politesse_decision::decide::{EnforcementMode, Policy};
use politesse_decision::digest::Digest;
use politesse_decision::outcome::EndingClass;
use politesse_decision::record::{StoredCrawler, StoredRuling};

/// Decisions with their endings: the columns of [`CountedDecision`], then the
/// others that a report needs.
const REPORTED: NumberedTable = NumberedTable {
    select: "
SELECT d.seq, d.time_us, d.origin, d.ruling, d.wait_ms,
       e.seq, e.bytes, e.status, e.sent, e.error, t.text,
       d.crawler, d.policy, d.salt, d.leaf, e.leaf, e.directives
FROM decision AS d LEFT JOIN ending AS e ON e.decision = d.seq
LEFT JOIN term AS t ON t.id = e.error",
    ..DECISIONS
};

/// Reports whether any decision or response denies purposes.
const HAS_DENIALS: &str = "
SELECT EXISTS (SELECT 1 FROM ruling WHERE denials IS NOT NULL)
       OR EXISTS (SELECT 1 FROM directives WHERE denials IS NOT NULL)";

const ORIGINS: &str = "SELECT id, origin FROM origin WHERE host = ?";

/// Facts about the decisions of a report.
#[derive(Debug)]
pub struct ReportFacts {
    /// Sums by hour, the earliest first. Hours without a decision are left out.
    pub hours: Vec<HourSums>,
    /// Sums by host and ruling.
    pub rulings: Vec<RulingSums>,
    /// Speed by host, hosts with most requests first. Hosts that received no
    /// request are left out.
    pub speeds: Vec<HostSpeed>,
    /// Hosts that refused requests, those with most refusals first.
    pub site_refusals: Vec<SiteRefusals>,
    /// Crawlers, those with most requests first.
    pub crawlers: Vec<CrawlerCount>,
    /// Denials of purposes, by host, statement and purpose, those with most requests first.
    pub denials: Vec<StatGroup>,
    /// Time of the first and of the last decision.
    pub span: Option<ReportSpan>,
    /// Modes of enforcement, in the order of the decisions made in them.
    pub modes: Vec<ModeSpan>,
    /// Numbers of redacted decisions, in ascending order.
    pub redacted: Vec<i64>,
    /// Number of decisions without an ending: the outcome of the exchange is not on
    /// record.
    pub unended: u64,
    /// SHA-256 of the leaves of all decisions and endings, in the order of the
    /// decisions.
    pub digest: Digest,
}

/// Times of the earliest and the latest decision.
#[derive(Debug, Clone, Copy)]
pub struct ReportSpan {
    /// Earliest time.
    pub first: Timestamp,
    /// Latest time.
    pub last: Timestamp,
}

impl ReportSpan {
    fn new(first_us: i64, last_us: i64) -> Option<Self> {
        Some(Self {
            first: Timestamp::from_microsecond(first_us).ok()?,
            last: Timestamp::from_microsecond(last_us).ok()?,
        })
    }
}

/// Consecutive decisions made in the same mode.
#[derive(Debug, Clone)]
pub struct ModeSpan {
    /// Mode; `None` if the policy of the decisions cannot be read.
    pub mode: Option<EnforcementMode>,
    /// Times of the first and the last decision.
    pub times: ReportSpan,
    /// Number of decisions.
    pub requests: u64,
}

/// Sums of an hour.
#[derive(Debug, Clone)]
pub struct HourSums {
    /// Hours since 1970.
    pub hour: i64,
    /// The sums.
    pub sums: DecisionSums,
}

/// Sums of the decisions about one host with the same ruling.
#[derive(Debug, Clone)]
pub struct RulingSums {
    /// The host.
    pub host: Arc<str>,
    /// The ruling.
    pub ruling: Arc<StoredRuling>,
    /// The sums.
    pub sums: DecisionSums,
}

/// Requests that were sent to a host and that it refused.
#[derive(Debug, Clone, Serialize)]
pub struct SiteRefusals {
    /// The host.
    pub host: String,
    /// Number of requests.
    pub requests: u64,
    /// Requests by answer: the status, or `challenge` for a bot challenge.
    pub answers: BTreeMap<String, u64>,
    /// Price named by the latest 402 (`crawler-price`).
    pub price: Option<String>,
}

impl SiteRefusals {
    fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            requests: 0,
            answers: BTreeMap::new(),
            price: None,
        }
    }

    fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        for (answer, requests) in &other.answers {
            let sum = self.answers.entry(answer.clone()).or_default();
            *sum = sum.saturating_add(*requests);
        }
        self.price = other.price.clone().or_else(|| self.price.take());
    }
}

/// Decisions about requests of one crawler, identified by its own words.
#[derive(Debug, Clone)]
pub struct CrawlerCount {
    /// The crawler.
    pub crawler: Arc<StoredCrawler>,
    /// Number of decisions.
    pub requests: u64,
}

/// Speed at which a host was asked.
#[derive(Debug, Clone)]
pub struct HostSpeed {
    /// The host.
    pub host: Arc<str>,
    /// Requests that were sent, repeats included.
    pub sent: u64,
    /// Maximum number of requests in a clock minute.
    pub busiest_minute: u64,
    /// Median pause between two consecutive requests, in microseconds, exact to an
    /// eighth; `None` for a single request.
    pub usual_pause_us: Option<u64>,
}

/// Gathers the facts about the decisions that match `filter`. Only its times and
/// host are used. Redacted decisions belong to the host of their robots.txt.
///
/// # Errors
///
/// [`AuditError::Read`], [`AuditError::TooManySums`].
pub fn report_facts(
    reader: &AuditReader,
    filter: &DecisionFilter,
) -> Result<ReportFacts, AuditError> {
    let filter = DecisionFilter {
        from: filter.from,
        until: filter.until,
        host: filter.host.clone(),
        ..DecisionFilter::default()
    };
    let mut decisions = ReportedDecisions::new(&filter);
    decisions.read(reader, &filter)?;
    let mut texts = KeyTexts::new(&reader.connection);
    Ok(ReportFacts {
        hours: decisions.hours(&mut texts)?,
        rulings: decisions.rulings(&mut texts)?,
        speeds: decisions.speeds(&mut texts)?,
        site_refusals: decisions.site_refusals(&mut texts)?,
        crawlers: decisions.crawlers(reader)?,
        denials: denials(reader, &filter)?,
        span: decisions.span(),
        modes: decisions.mode_spans(),
        unended: decisions.unended,
        redacted: std::mem::take(&mut decisions.redacted),
        digest: decisions.digest(),
    })
}

/// Counts the denials of purposes by host, statement and purpose.
fn denials(reader: &AuditReader, filter: &DecisionFilter) -> Result<Vec<StatGroup>, AuditError> {
    let has_any: bool = reader
        .connection
        .query_row(HAS_DENIALS, [], |row| row.get(0))?;
    // Most records have none, and reading each decision takes long.
    if !has_any {
        return Ok(Vec::new());
    }
    let keys = [StatKey::Host, StatKey::Preference, StatKey::Purpose];
    let mut groups = stats(reader, filter, &keys, StatOrder::Requests)?;
    groups.retain(|group| group.values.iter().all(Option::is_some));
    Ok(groups)
}

/// Sums of the decisions about one origin with the same ruling.
#[derive(Debug, Clone)]
pub struct OriginRulingSums {
    /// The origin.
    pub origin: Arc<str>,
    /// The ruling.
    pub ruling: Arc<StoredRuling>,
    /// The sums.
    pub sums: DecisionSums,
}

/// Returns the origins of `host` in the record, by row id.
pub(super) fn origins_of(
    connection: &Connection,
    host: &str,
) -> rusqlite::Result<HashMap<i64, Arc<str>>> {
    let mut statement = connection.prepare_cached(ORIGINS)?;
    let named = statement.query_map([normal_host(host)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    named.collect()
}

/// Sums all decisions about `host` by origin and ruling.
///
/// # Errors
///
/// [`AuditError::Read`], [`AuditError::TooManySums`].
pub fn origin_sums(reader: &AuditReader, host: &str) -> Result<Vec<OriginRulingSums>, AuditError> {
    let filter = DecisionFilter {
        host: Some(host.to_owned()),
        ..DecisionFilter::default()
    };
    let origins = origins_of(&reader.connection, host)?;
    let mut texts = KeyTexts::new(&reader.connection);
    let mut sums = SumsByReference::new(SumsApart::ORIGINS);
    count_decisions(reader, &filter, from_mut(&mut sums))?;
    let mut found = Vec::new();
    for (references, entry) in sums.iter() {
        let Some(origin) = origins.get(&references.origin) else {
            continue;
        };
        let ruling = texts.ruling(references.ruling)?;
        found.push(OriginRulingSums {
            origin: Arc::clone(origin),
            sums: DecisionSums::ruled(entry, &ruling),
            ruling,
        });
    }
    Ok(found)
}

/// Consecutive decisions in the same mode. Runs are not kept by policy, because
/// crawlers with purposes have their own policies, and each decision could then be
/// a run.
struct ModeRun {
    /// Mode; `None` if the policy cannot be read.
    mode: Option<EnforcementMode>,
    first_us: i64,
    last_us: i64,
    requests: u64,
}

/// Facts gathered while decisions are read.
struct ReportedDecisions {
    /// Host of all decisions, if the report covers a single one.
    host: Option<Arc<str>>,
    by_hour: SumsByReference,
    by_origin: SumsByReference,
    origins: HashMap<i64, PauseCounts>,
    /// Refusals by origin.
    refusals: BTreeMap<i64, SiteRefusals>,
    crawlers: HashMap<i64, u64>,
    /// Modes of the policies, by row id.
    modes: HashMap<i64, Option<EnforcementMode>>,
    runs: Vec<ModeRun>,
    redacted: Vec<i64>,
    unended: u64,
    leaves: Context,
}

impl ReportedDecisions {
    fn new(filter: &DecisionFilter) -> Self {
        Self {
            host: filter.host.as_deref().map(|host| normal_host(host).into()),
            by_hour: SumsByReference::new(SumsApart::HOURS),
            by_origin: SumsByReference::new(SumsApart::ORIGINS),
            origins: HashMap::new(),
            refusals: BTreeMap::new(),
            crawlers: HashMap::new(),
            modes: HashMap::new(),
            runs: Vec::new(),
            redacted: Vec::new(),
            unended: 0,
            leaves: Context::new(&SHA256),
        }
    }

    fn read(&mut self, reader: &AuditReader, filter: &DecisionFilter) -> Result<(), AuditError> {
        let mut scan = reader.narrow_scan(REPORTED, filter)?;
        while let Some(page) = scan.next_page(|row| self.add(row, reader))? {
            for counted in page {
                self.by_hour.add_decision(&counted)?;
                self.by_origin.add_decision(&counted)?;
            }
            if SPEEDS_MAX < self.origins.len() {
                return Err(AuditError::TooManySums(SPEEDS_MAX));
            }
        }
        Ok(())
    }

    fn add(&mut self, row: &Row<'_>, reader: &AuditReader) -> rusqlite::Result<CountedDecision> {
        let counted = CountedDecision::read(row)?;
        let at = counted.time_us;
        *self.crawlers.entry(row.get(11)?).or_default() += 1;
        let mode = self.mode(row.get(12)?, reader)?;
        self.add_to_run(mode, at);
        // A redacted row has a commitment in place of its salt, which has the
        // length of a digest.
        if row
            .get_ref(13)?
            .as_blob()
            .is_ok_and(|salt| read_digest(salt).is_some())
        {
            self.redacted.push(counted.seq);
        }
        self.unended += u64::from(counted.ending.is_none());
        let mut ending = counted.ending.iter();
        if ending.any(|ending| ending.class == EndingClass::RefusedBySite) {
            self.add_refusal(counted.origin, row, reader)?;
        }
        for column in [14, 15] {
            // A leaf that was altered may not be a blob. The digest then differs
            // anyway.
            let leaf = row.get_ref(column)?.as_blob_or_null();
            self.leaves.update(leaf.ok().flatten().unwrap_or_default());
        }
        let sent = column::<Option<u64>>(row, 8)?.unwrap_or_default();
        if 0 < sent {
            self.origins
                .entry(counted.origin)
                .or_default()
                .add(at, sent);
        }
        Ok(counted)
    }

    /// Adds a request that the site refused.
    fn add_refusal(
        &mut self,
        origin: i64,
        row: &Row<'_>,
        reader: &AuditReader,
    ) -> rusqlite::Result<()> {
        let status: Option<u16> = row.get(7)?;
        let term = row.get_ref(10)?.as_str().ok();
        let answer = match status {
            Some(status) if term != Some(EndingClass::BOT_CHALLENGE) => status.to_string(),
            _ => "challenge".to_owned(),
        };
        // The host is set later, once for each origin.
        let refusal = SiteRefusals {
            requests: 1,
            answers: BTreeMap::from([(answer, 1)]),
            price: match (status, row.get(16)?) {
                (Some(402), Some(directives)) => price(directives, reader)?,
                _ => None,
            },
            ..SiteRefusals::new("")
        };
        let refusals = self.refusals.entry(origin);
        refusals
            .or_insert_with(|| SiteRefusals::new(""))
            .add(&refusal);
        Ok(())
    }

    /// Returns the enforcement mode of a policy.
    fn mode(
        &mut self,
        policy: i64,
        reader: &AuditReader,
    ) -> rusqlite::Result<Option<EnforcementMode>> {
        if let Some(mode) = self.modes.get(&policy) {
            return Ok(*mode);
        }
        let mut values = DictionaryValues::default();
        let stored = values.policies.get(&reader.connection, policy)?;
        let restored = stored.and_then(|stored| Policy::restore(&stored.value.json).ok());
        let mode = restored.map(|policy| policy.terms().mode);
        self.modes.insert(policy, mode);
        Ok(mode)
    }

    fn add_to_run(&mut self, mode: Option<EnforcementMode>, at: i64) {
        match self.runs.last_mut() {
            Some(run) if run.mode == mode => {
                run.first_us = run.first_us.min(at);
                run.last_us = run.last_us.max(at);
                run.requests += 1;
            }
            _ => self.runs.push(ModeRun {
                mode,
                first_us: at,
                last_us: at,
                requests: 1,
            }),
        }
    }

    fn hours(&self, texts: &mut KeyTexts<'_>) -> Result<Vec<HourSums>, AuditError> {
        let mut hours: BTreeMap<i64, DecisionSums> = BTreeMap::new();
        for (references, entry) in self.by_hour.iter() {
            let ruling = texts.ruling(references.ruling)?;
            let hour = hours.entry(references.hour).or_default();
            hour.add(&DecisionSums::ruled(entry, &ruling));
        }
        let hours = hours.into_iter();
        Ok(hours.map(|(hour, sums)| HourSums { hour, sums }).collect())
    }

    fn rulings(&self, texts: &mut KeyTexts<'_>) -> Result<Vec<RulingSums>, AuditError> {
        let mut rulings: HashMap<(Arc<str>, i64), RulingSums> = HashMap::new();
        for (references, entry) in self.by_origin.iter() {
            let ruling = texts.ruling(references.ruling)?;
            let host = self.host(references.origin, texts)?;
            // The origins of one host are combined.
            let key = (Arc::clone(&host), references.ruling);
            let found = rulings.entry(key).or_insert_with(|| RulingSums {
                host,
                ruling: Arc::clone(&ruling),
                sums: DecisionSums::default(),
            });
            found.sums.add(&DecisionSums::ruled(entry, &ruling));
        }
        Ok(rulings.into_values().collect())
    }

    /// Returns the host of an origin. Redacted decisions have none.
    fn host(&self, origin: i64, texts: &mut KeyTexts<'_>) -> rusqlite::Result<Arc<str>> {
        match &self.host {
            Some(host) => Ok(Arc::clone(host)),
            None => texts.host(origin),
        }
    }

    fn site_refusals(&self, texts: &mut KeyTexts<'_>) -> rusqlite::Result<Vec<SiteRefusals>> {
        let mut hosts: BTreeMap<Arc<str>, SiteRefusals> = BTreeMap::new();
        for (origin, refusals) in &self.refusals {
            let host = self.host(*origin, texts)?;
            let of_host = || SiteRefusals::new(&host);
            hosts
                .entry(Arc::clone(&host))
                .or_insert_with(of_host)
                .add(refusals);
        }
        let mut refusals: Vec<_> = hosts.into_values().collect();
        // The sort is stable, so hosts with equal counts stay in alphabetical
        // order.
        refusals.sort_by_key(|refusals| Reverse(refusals.requests));
        Ok(refusals)
    }

    fn span(&self) -> Option<ReportSpan> {
        let first = self.runs.iter().map(|run| run.first_us).min();
        let last = self.runs.iter().map(|run| run.last_us).max();
        ReportSpan::new(first?, last?)
    }

    /// Returns the modes in the order of the decisions.
    fn mode_spans(&self) -> Vec<ModeSpan> {
        let span = |run: &ModeRun| {
            Some(ModeSpan {
                mode: run.mode,
                times: ReportSpan::new(run.first_us, run.last_us)?,
                requests: run.requests,
            })
        };
        self.runs.iter().filter_map(span).collect()
    }

    /// Returns the speeds of hosts. For pauses, the busiest origin of a host
    /// counts, because pauses of several origins cannot be added.
    fn speeds(&self, texts: &mut KeyTexts<'_>) -> rusqlite::Result<Vec<HostSpeed>> {
        let mut speeds: HashMap<Arc<str>, HostSpeed> = HashMap::new();
        for (origin, pauses) in &self.origins {
            let host = self.host(*origin, texts)?;
            let found = speeds.entry(Arc::clone(&host)).or_insert(HostSpeed {
                host,
                sent: 0,
                busiest_minute: 0,
                usual_pause_us: None,
            });
            found.sent = found.sent.saturating_add(pauses.sent);
            found.busiest_minute = found.busiest_minute.max(pauses.busiest_minute);
            let shortest = found.usual_pause_us.into_iter().chain(pauses.median_us());
            found.usual_pause_us = shortest.min();
        }
        let mut speeds: Vec<_> = speeds.into_values().collect();
        speeds.sort_by(|one, other| {
            let by_count = other.sent.cmp(&one.sent);
            by_count.then_with(|| one.host.cmp(&other.host))
        });
        Ok(speeds)
    }

    fn crawlers(&self, reader: &AuditReader) -> rusqlite::Result<Vec<CrawlerCount>> {
        let mut values = DictionaryValues::default();
        let mut crawlers = Vec::with_capacity(self.crawlers.len());
        for (id, requests) in &self.crawlers {
            let found = values.crawlers.get(&reader.connection, *id)?;
            crawlers.push(CrawlerCount {
                crawler: found.map(|found| found.value).unwrap_or_default(),
                requests: *requests,
            });
        }
        crawlers.sort_by(|one, other| {
            let by_count = other.requests.cmp(&one.requests);
            by_count.then_with(|| one.crawler.user_agent.cmp(&other.crawler.user_agent))
        });
        Ok(crawlers)
    }

    fn digest(self) -> Digest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.leaves.finish().as_ref());
        bytes.into()
    }
}

/// Returns the price among the statements of a response.
fn price(directives: i64, reader: &AuditReader) -> rusqlite::Result<Option<String>> {
    let mut values = DictionaryValues::default();
    let seen = values.directives.get(&reader.connection, directives)?;
    let said = seen.and_then(|seen| seen.value.said.clone());
    // A value that was altered into invalid JSON has no price.
    let statements: Vec<Json> = serde_json::from_str(&said.unwrap_or_default()).unwrap_or_default();
    let mut prices = statements.iter().filter(|one| one["by"] == "crawler-price");
    let price = prices.next().and_then(|price| price["said"].as_str());
    Ok(price.map(str::to_owned))
}
