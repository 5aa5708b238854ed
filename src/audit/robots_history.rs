//! Which robots.txt of a host was in force at a time.
//!
//! Decisions rest on snapshots: what an origin answered when it was asked for
//! its robots.txt, for one product token or for all. A snapshot is in force from
//! its fetch to the next one. Only snapshots that some decision rests on are on
//! record.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use super::AuditError;
use super::filter::normal_host;
use super::query::AuditReader;
use super::row::{SNAPSHOT_COLUMNS, snapshot_of};
use crate::decision::record::RecordedSnapshot;
use politesse_robots::origin::Origin;

/// Snapshots read in one transaction.
const PAGE: usize = 1024;

/// What is asked for.
#[derive(Debug, Clone)]
pub enum RobotsOwner {
    /// Every origin at this host, whatever its scheme and port.
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

/// A snapshot, and the origin it is of.
#[derive(Debug, Clone)]
pub struct OriginSnapshot {
    /// The origin.
    pub origin: String,
    /// What it had answered.
    pub snapshot: RecordedSnapshot,
}

impl AuditReader {
    /// The snapshots that were in force at `at`, one for each origin of `owner`
    /// and each token that they were fetched for, in that order.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn robots_at(
        &self,
        owner: &RobotsOwner,
        at: Timestamp,
    ) -> Result<Vec<OriginSnapshot>, AuditError> {
        let read = || {
            let mut all = Vec::new();
            for origin in self.origins(owner)? {
                all.extend(self.robots_of(&origin, at)?);
            }
            Ok(all)
        };
        read().map_err(AuditError::Read)
    }

    /// When the first robots.txt of `owner` that is on record was fetched.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn first_robots(&self, owner: &RobotsOwner) -> Result<Option<Timestamp>, AuditError> {
        let read = || {
            let mut first: Option<i64> = None;
            for origin in self.origins(owner)? {
                let sql = "SELECT min(fetched_us) FROM snapshot WHERE origin = ?";
                let mut statement = self.connection.prepare_cached(sql)?;
                let fetched: Option<i64> = statement.query_row([origin], |row| row.get(0))?;
                first = first.into_iter().chain(fetched).min();
            }
            Ok(first)
        };
        let first = read().map_err(AuditError::Read)?;
        Ok(first.and_then(|first| Timestamp::from_microsecond(first).ok()))
    }

    fn origins(&self, owner: &RobotsOwner) -> rusqlite::Result<Vec<String>> {
        match owner {
            RobotsOwner::Host(host) => self.origins_of(&normal_host(host)),
            RobotsOwner::Origin(origin) => Ok(vec![origin.to_string()]),
        }
    }

    /// The origins at `host` that have snapshots.
    fn origins_of(&self, host: &str) -> rusqlite::Result<Vec<String>> {
        let mut origins = Vec::new();
        for scheme in ["http", "https"] {
            let origin = format!("{scheme}://{host}");
            // Behind the colon of a port comes a digit, and `;` comes behind the
            // colon.
            let with_port = (format!("{origin}:"), format!("{origin};"));
            if self.next_origin(&origin, &format!("{origin}\0"))?.is_some() {
                origins.push(origin);
            }
            let (mut from, end) = with_port;
            while let Some(next) = self.next_origin(&from, &end)? {
                from = format!("{next}\0");
                origins.push(next);
            }
        }
        Ok(origins)
    }

    fn next_origin(&self, from: &str, end: &str) -> rusqlite::Result<Option<String>> {
        let sql = "SELECT origin FROM snapshot WHERE ? <= origin AND origin < ?
                   ORDER BY origin LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        statement
            .query_row([from, end], |row| row.get(0))
            .optional()
    }

    /// The last snapshot of each token at `origin` that was there by `at`.
    fn robots_of(&self, origin: &str, at: Timestamp) -> rusqlite::Result<Vec<OriginSnapshot>> {
        let mut by_token: BTreeMap<Option<String>, RecordedSnapshot> = BTreeMap::new();
        let (mut fetched_us, mut id) = (at.as_microsecond(), i64::MAX);
        loop {
            let mut statement = self.connection.prepare_cached(
                "SELECT origin, token, url, status, fetched_us, expires_us, result, cause, body,
                        hops, id
                 FROM snapshot WHERE origin = ? AND (fetched_us, id) <= (?, ?)
                 ORDER BY fetched_us DESC, id DESC LIMIT 1024",
            )?;
            let page = statement.query_map(params![origin, fetched_us, id], |row| {
                let place: (i64, i64) = (row.get(4)?, row.get(SNAPSHOT_COLUMNS)?);
                Ok((place, snapshot_of(row)?))
            })?;
            let page = page.collect::<rusqlite::Result<Vec<_>>>()?;
            let count = page.len();
            for (place, snapshot) in page {
                (fetched_us, id) = (place.0, place.1.saturating_sub(1));
                let token = snapshot.token.as_deref().map(str::to_ascii_lowercase);
                by_token.entry(token).or_insert(snapshot);
            }
            if count < PAGE {
                break;
            }
        }
        Ok(by_token
            .into_values()
            .map(|snapshot| OriginSnapshot {
                origin: origin.to_owned(),
                snapshot,
            })
            .collect())
    }
}
