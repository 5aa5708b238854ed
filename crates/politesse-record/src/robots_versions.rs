//! Versions of a host's robots.txt: when each was seen, and the decisions that rest
//! on it.
//!
//! Consecutive fetches with the same answer are one version. An answer that returns
//! after another one is a new version. Does not know how two versions differ.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::Row;

use super::columns::count;
use super::dictionary_cache::DictionaryValues;
use super::entry_rows::DECISIONS;
use super::error::AuditError;
use super::filter::DecisionFilter;
use super::pages::NumberedTable;
use super::reader::AuditReader;
use super::robots_history::{RobotsOwner, origins, visit_snapshots};
use politesse_decision::record::{RecordedSnapshot, StoredRuling};

/// Snapshot and ruling of each decision.
const RULED: NumberedTable = NumberedTable {
    select: "SELECT d.seq, d.snapshot, d.ruling FROM decision AS d",
    ..DECISIONS
};

/// Version of the robots.txt of an origin.
#[derive(Debug, Clone)]
pub struct RobotsVersion {
    /// The origin.
    pub origin: String,
    /// Id of the snapshot of its first fetch.
    pub number: u64,
    /// Answer, as of the first fetch.
    pub snapshot: RecordedSnapshot,
    /// Time of the last fetch.
    pub last_seen: Timestamp,
    /// Number of fetches that decisions rest on.
    pub fetches: u64,
    /// Decisions that rest on the version, the most frequent ruling first.
    pub decided: Vec<RulingCount>,
}

/// Number of decisions with the same ruling.
#[derive(Debug, Clone)]
pub struct RulingCount {
    /// The ruling.
    pub ruling: Arc<StoredRuling>,
    /// Number of decisions.
    pub requests: u64,
}

/// Returns all versions of the robots.txt of `owner`, by origin and then by time.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn robots_versions(
    reader: &AuditReader,
    owner: &RobotsOwner,
) -> Result<Vec<RobotsVersion>, AuditError> {
    let mut history = RobotsHistory::read(reader, owner)?;
    history.add_decisions(reader, owner)?;
    Ok(history.versions)
}

/// Returns all versions of the robots.txt of `owner`, by origin and then by time,
/// but without the decisions that rest on them. Counting those would read all
/// decisions about the host.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn fetched_versions(
    reader: &AuditReader,
    owner: &RobotsOwner,
) -> Result<Vec<RobotsVersion>, AuditError> {
    Ok(RobotsHistory::read(reader, owner)?.versions)
}

/// Versions found so far.
#[derive(Debug, Default)]
struct RobotsHistory {
    versions: Vec<RobotsVersion>,
    /// Index of the version that each snapshot belongs to, by row id.
    by_row: HashMap<i64, usize>,
}

impl RobotsHistory {
    fn read(reader: &AuditReader, owner: &RobotsOwner) -> rusqlite::Result<Self> {
        let mut history = Self::default();
        let connection = &reader.connection;
        for origin in origins(connection, owner)? {
            let mut newest: BTreeMap<Option<String>, usize> = BTreeMap::new();
            visit_snapshots(connection, &origin, Timestamp::MAX, |id, snapshot| {
                let token = snapshot.token.as_deref().map(str::to_ascii_lowercase);
                let previous = newest.get(&token).copied();
                let at = history.add_snapshot(previous, &origin, id, snapshot);
                newest.insert(token, at);
                history.by_row.insert(id, at);
            })?;
        }
        Ok(history)
    }

    /// Adds a snapshot to the previous version if the answer is the same, or as a
    /// new version. Returns the index of its version.
    fn add_snapshot(
        &mut self,
        previous: Option<usize>,
        origin: &str,
        id: i64,
        snapshot: RecordedSnapshot,
    ) -> usize {
        if let Some(at) = previous
            && let Some(version) = self.versions.get_mut(at)
            && is_same_answer(&version.snapshot, &snapshot)
        {
            version.last_seen = snapshot.fetched_at;
            version.fetches += 1;
            return at;
        }
        self.versions.push(RobotsVersion {
            origin: origin.to_owned(),
            number: count(id),
            last_seen: snapshot.fetched_at,
            snapshot,
            fetches: 1,
            decided: Vec::new(),
        });
        self.versions.len() - 1
    }

    fn add_decisions(
        &mut self,
        reader: &AuditReader,
        owner: &RobotsOwner,
    ) -> Result<(), AuditError> {
        let host = match owner {
            RobotsOwner::Host(host) => host.clone(),
            RobotsOwner::Origin(origin) => origin.host().to_string(),
        };
        let filter = DecisionFilter {
            host: Some(host),
            ..DecisionFilter::default()
        };
        let mut counts: HashMap<(usize, i64), u64> = HashMap::new();
        let mut scan = reader.narrow_scan(RULED, &filter)?;
        let read = |row: &Row<'_>| Ok((row.get::<_, Option<i64>>(1)?, row.get::<_, i64>(2)?));
        while let Some(page) = scan.next_page(read)? {
            for (snapshot, ruling) in page {
                let version = snapshot.and_then(|snapshot| self.by_row.get(&snapshot));
                if let Some(version) = version {
                    *counts.entry((*version, ruling)).or_default() += 1;
                }
            }
        }
        self.add_counts(reader, counts)
    }

    /// Adds the counts of decisions to their versions.
    fn add_counts(
        &mut self,
        reader: &AuditReader,
        counts: HashMap<(usize, i64), u64>,
    ) -> Result<(), AuditError> {
        let mut values = DictionaryValues::default();
        for ((version, ruling), requests) in counts {
            let found = values.rulings.get(&reader.connection, ruling)?;
            // A ruling whose row is missing has no values.
            let ruling = found.map(|found| found.value).unwrap_or_default();
            if let Some(version) = self.versions.get_mut(version) {
                version.decided.push(RulingCount { ruling, requests });
            }
        }
        for version in &mut self.versions {
            version.decided.sort_by(|one, other| {
                let by_line = || one.ruling.line.cmp(&other.ruling.line);
                let by_words = || {
                    let words = |count: &RulingCount| {
                        let ruling = &count.ruling;
                        [&ruling.verdict, &ruling.reason, &ruling.effect].map(String::clone)
                    };
                    words(one).cmp(&words(other))
                };
                let by_count = other.requests.cmp(&one.requests);
                by_count.then_with(by_line).then_with(by_words)
            });
        }
        Ok(())
    }
}

/// Reports whether two fetches gave the same answer. Files are compared only by
/// their bytes, because while a site is unreachable its earlier file stays in
/// force.
pub(super) fn is_same_answer(one: &RecordedSnapshot, other: &RecordedSnapshot) -> bool {
    let kind = |snapshot: &RecordedSnapshot| match snapshot.sha256 {
        Some(_) => None,
        None => Some((snapshot.status, snapshot.cause.clone())),
    };
    let file = |snapshot: &RecordedSnapshot| (snapshot.sha256, snapshot.charset.clone());
    (&one.result, file(one), kind(one)) == (&other.result, file(other), kind(other))
}
