//! History of robots.txt: the file of a host that was in force at a given time.
//!
//! Decisions rest on snapshots: the answer of a site to a request for its
//! robots.txt, for one product token or for all. A snapshot is in force from its
//! fetch to the next one. Only snapshots that decisions rest on are on record.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::columns::{ColumnReader, column};
use super::error::AuditError;
use super::filter::normal_host;
use super::reader::AuditReader;
use super::snapshot_row::read_snapshot;
use politesse_decision::again::{Undecidable, restore_snapshot};
use politesse_decision::record::RecordedSnapshot;
use politesse_decision::snapshot::Snapshot;
use politesse_robots::Dialect;
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Origin;

/// Number of snapshots read in one transaction.
const PAGE: usize = 1024;

const SNAPSHOTS: &str = "
SELECT origin, token, url, status, fetched_us, expires_us, result, cause, body, hops,
       charset, tdm, id
FROM snapshot WHERE origin = ?1 AND (fetched_us, id) > (?2, ?3) AND fetched_us <= ?4
ORDER BY fetched_us, id LIMIT 1024";

const NEXT_ORIGIN: &str = "
SELECT origin FROM snapshot WHERE ? <= origin AND origin < ? ORDER BY origin LIMIT 1";

/// Host or origin whose robots.txt is wanted.
#[derive(Debug, Clone)]
pub enum RobotsOwner {
    /// All origins of this host, with any scheme and port.
    Host(String),
    /// One origin.
    Origin(Origin),
}

impl fmt::Display for RobotsOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Origin(origin) => origin.fmt(f),
        }
    }
}

/// Snapshot with its origin.
#[derive(Debug, Clone)]
pub struct OriginSnapshot {
    /// The origin.
    pub origin: String,
    /// The snapshot.
    pub snapshot: RecordedSnapshot,
}

impl OriginSnapshot {
    /// Reports whether the snapshot applies to the crawler `name`. A site may
    /// answer each crawler differently, so an answer to one says nothing about
    /// another.
    #[must_use]
    pub fn serves(&self, name: &str) -> bool {
        let token = self.snapshot.token.as_deref();
        token.is_none_or(|token| token.eq_ignore_ascii_case(name))
    }
}

/// Robots.txt that was in force for a crawler.
#[derive(Debug, Clone)]
pub struct PastRobots {
    /// The snapshot.
    pub found: OriginSnapshot,
    /// Body, if the snapshot has one and it is on record.
    pub body: Option<Bytes>,
}

impl PastRobots {
    /// Restores the snapshot for decisions about `origin`, parsing its file with
    /// `dialect`.
    ///
    /// # Errors
    ///
    /// [`Undecidable`], which says what is missing or unknown.
    pub fn snapshot(&self, origin: Origin, dialect: Dialect) -> Result<Arc<Snapshot>, Undecidable> {
        restore_snapshot(&self.found.snapshot, origin, self.body.clone(), dialect)
    }
}

/// Returns the robots.txt of `origin` that was in force at `at` for `crawler`; the
/// newest, if there are several.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn robots_for(
    reader: &AuditReader,
    origin: &Origin,
    crawler: &Crawler,
    at: Timestamp,
) -> Result<Option<PastRobots>, AuditError> {
    let all = robots_at(reader, &RobotsOwner::Origin(origin.clone()), at)?;
    let token = crawler.token();
    let newest = all
        .into_iter()
        .filter(|entry| token.is_none_or(|token| entry.serves(token.as_str())))
        .max_by_key(|entry| entry.snapshot.fetched_at);
    let Some(found) = newest else {
        return Ok(None);
    };
    let body = match found.snapshot.sha256 {
        Some(sha256) => reader.body(sha256)?.map(Bytes::from),
        None => None,
    };
    Ok(Some(PastRobots { found, body }))
}

/// Returns the snapshots in force at `at`, one for each origin of `owner` and each
/// token they were fetched for, in that order.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn robots_at(
    reader: &AuditReader,
    owner: &RobotsOwner,
    at: Timestamp,
) -> Result<Vec<OriginSnapshot>, AuditError> {
    let mut found = Vec::new();
    for origin in origins(&reader.connection, owner)? {
        let snapshots = snapshots_at(&reader.connection, &origin, at)?;
        found.extend(snapshots.into_iter().map(|snapshot| OriginSnapshot {
            origin: origin.clone(),
            snapshot,
        }));
    }
    Ok(found)
}

/// Returns the time of the earliest recorded fetch of a robots.txt of `owner`.
///
/// # Errors
///
/// [`AuditError::Read`].
pub fn first_robots(
    reader: &AuditReader,
    owner: &RobotsOwner,
) -> Result<Option<Timestamp>, AuditError> {
    let mut first: Option<Timestamp> = None;
    for origin in origins(&reader.connection, owner)? {
        let sql = "SELECT min(fetched_us) FROM snapshot WHERE origin = ?";
        let mut statement = reader.connection.prepare_cached(sql)?;
        let fetched: Option<Timestamp> = statement.query_row([origin], |row| column(row, 0))?;
        first = first.into_iter().chain(fetched).min();
    }
    Ok(first)
}

/// Returns the origins of `owner` that have snapshots.
pub(super) fn origins(
    connection: &Connection,
    owner: &RobotsOwner,
) -> rusqlite::Result<Vec<String>> {
    let host = match owner {
        RobotsOwner::Host(host) => normal_host(host),
        RobotsOwner::Origin(origin) => return Ok(vec![origin.to_string()]),
    };
    // Steps from one origin to the next through the index. `SELECT DISTINCT` would
    // read every snapshot of the host.
    let mut statement = connection.prepare_cached(NEXT_ORIGIN)?;
    let mut next = |from: &str, end: &str| {
        let row = statement.query_row([from, end], |row| row.get::<_, String>(0));
        row.optional()
    };
    let mut origins = Vec::new();
    for scheme in ["http", "https"] {
        let origin = format!("{scheme}://{host}");
        origins.extend(next(&origin, &format!("{origin}\0"))?);
        // Origins with a port: a digit follows the colon, and `;` is the character
        // after the colon in ASCII.
        let (mut from, end) = (format!("{origin}:"), format!("{origin};"));
        while let Some(with_port) = next(&from, &end)? {
            from = format!("{with_port}\0");
            origins.push(with_port);
        }
    }
    Ok(origins)
}

/// Returns the last snapshot of each token at `origin` that was fetched by `at`.
fn snapshots_at(
    connection: &Connection,
    origin: &str,
    at: Timestamp,
) -> rusqlite::Result<Vec<RecordedSnapshot>> {
    let mut by_token: BTreeMap<Option<String>, RecordedSnapshot> = BTreeMap::new();
    visit_snapshots(connection, origin, at, |_, snapshot| {
        let token = snapshot.token.as_deref().map(str::to_ascii_lowercase);
        by_token.insert(token, snapshot);
    })?;
    Ok(by_token.into_values().collect())
}

/// Passes the snapshots of `origin` fetched by `at` to `visit`, the oldest first,
/// each with its row id.
pub(super) fn visit_snapshots(
    connection: &Connection,
    origin: &str,
    at: Timestamp,
    mut visit: impl FnMut(i64, RecordedSnapshot),
) -> rusqlite::Result<()> {
    let (mut fetched_us, mut id) = (i64::MIN, i64::MIN);
    loop {
        // One transaction per page, because a long one would keep the WAL from
        // being reused (docs/decisions/012-reading-the-record.md).
        let mut statement = connection.prepare_cached(SNAPSHOTS)?;
        let read = |row: &Row<'_>| {
            let place: (i64, i64) = (row.get("fetched_us")?, row.get("id")?);
            Ok((place, read_snapshot(&mut ColumnReader::new(row))?))
        };
        let page = statement
            .query_map(params![origin, fetched_us, id, at.as_microsecond()], read)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let count = page.len();
        for (place, snapshot) in page {
            (fetched_us, id) = place;
            visit(id, snapshot);
        }
        if count < PAGE {
            return Ok(());
        }
    }
}
