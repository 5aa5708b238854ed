//! The SQLite file: how it is opened, and its tables.
//!
//! One process writes to it, which has locked its folder; any number read.
//! Does not know what is in a row.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::AuditError;
use super::order::{AS_FROM_4, FROM_4};
use super::row::count;

/// The version of the tables, kept in the file as `user_version`.
const SCHEMA_VERSION: i64 = 6;

/// The version from which on a file has an id in the table `record`.
pub(super) const RECORD_SINCE: i64 = 6;

/// How long a lock of another process on the file is waited for.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// The tables of version 2, which a new file has for a moment.
///
/// `AUTOINCREMENT` keeps the highest number ever given, so that one is never
/// given twice and rows taken off the end are missed.
const SCHEMA: &str = "
BEGIN IMMEDIATE;
CREATE TABLE body (
  sha256 BLOB NOT NULL PRIMARY KEY,
  body BLOB NOT NULL
) STRICT;
CREATE TABLE policy (
  sha256 BLOB NOT NULL PRIMARY KEY,
  json TEXT NOT NULL
) STRICT;
CREATE TABLE snapshot (
  id INTEGER PRIMARY KEY,
  origin TEXT NOT NULL,
  token TEXT,
  url TEXT NOT NULL,
  status INTEGER,
  fetched_us INTEGER NOT NULL,
  expires_us INTEGER NOT NULL,
  result TEXT NOT NULL,
  cause TEXT,
  body BLOB REFERENCES body
) STRICT;
CREATE INDEX snapshot_origin ON snapshot (origin, fetched_us);
CREATE TABLE decision (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  time_us INTEGER NOT NULL,
  client TEXT NOT NULL,
  candidates TEXT NOT NULL,
  crawler TEXT,
  user_agent TEXT,
  method TEXT NOT NULL,
  url TEXT NOT NULL,
  host TEXT NOT NULL,
  verdict TEXT NOT NULL,
  reason TEXT NOT NULL,
  effect TEXT NOT NULL,
  line INTEGER,
  rule TEXT,
  groups TEXT NOT NULL,
  reading TEXT,
  wait_ms INTEGER NOT NULL,
  policy BLOB NOT NULL REFERENCES policy,
  snapshot INTEGER REFERENCES snapshot,
  digest BLOB NOT NULL,
  status INTEGER,
  bytes INTEGER,
  error TEXT,
  directives TEXT,
  said TEXT,
  ended BLOB
) STRICT;
CREATE INDEX decision_host ON decision (host);
PRAGMA user_version = 2;
COMMIT;";

/// What makes a file of version 1 one of version 2. Its rows have no
/// directives; what they have, and their digests, stays.
const FROM_1: &str = "
BEGIN IMMEDIATE;
ALTER TABLE decision ADD COLUMN directives TEXT;
ALTER TABLE decision ADD COLUMN said TEXT;
ALTER TABLE decision ADD COLUMN ended BLOB;
PRAGMA user_version = 2;
COMMIT;";

/// What makes a file of version 2 one of version 3: the redirects that led to a
/// robots.txt, and what is known last of each. That is no evidence; what
/// decisions rest on stays in `snapshot`.
///
/// Hops are a JSON list, and NULL where there are none, as in the rows that had
/// no such column.
///
/// The token is '' where one snapshot serves every crawler: two nulls would be
/// two rows. `NOCASE` folds what [`ProductToken`] folds.
///
/// [`ProductToken`]: politesse_robots::crawler::ProductToken
const FROM_2: &str = "
BEGIN IMMEDIATE;
ALTER TABLE snapshot ADD COLUMN hops TEXT;
CREATE TABLE kept (
  origin TEXT NOT NULL,
  token TEXT NOT NULL COLLATE NOCASE,
  url TEXT NOT NULL,
  status INTEGER,
  fetched_us INTEGER NOT NULL,
  expires_us INTEGER NOT NULL,
  result TEXT NOT NULL,
  cause TEXT,
  body BLOB REFERENCES body,
  hops TEXT,
  whole INTEGER,
  content_type TEXT,
  etag BLOB,
  last_modified BLOB,
  failures INTEGER NOT NULL,
  led_to TEXT,
  digest BLOB NOT NULL,
  PRIMARY KEY (origin, token)
) STRICT, WITHOUT ROWID;
CREATE INDEX kept_expires ON kept (expires_us);
PRAGMA user_version = 3;
COMMIT;";

/// What makes a file of version 3 one of version 4: that origins asked for less,
/// as evidence, and how long they are left alone, for the next process.
const FROM_3: &str = "
BEGIN IMMEDIATE;
CREATE TABLE event (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  time_us INTEGER NOT NULL,
  host TEXT NOT NULL,
  kind TEXT NOT NULL,
  status INTEGER,
  until_us INTEGER NOT NULL,
  incidents INTEGER NOT NULL,
  digest BLOB NOT NULL
) STRICT;
CREATE INDEX event_host ON event (host);
CREATE TABLE back_off (
  host TEXT NOT NULL PRIMARY KEY,
  until_us INTEGER NOT NULL,
  incidents INTEGER NOT NULL,
  since_us INTEGER NOT NULL,
  digest BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX back_off_until ON back_off (until_us);
PRAGMA user_version = 4;
COMMIT;";

/// Upgrades a file of version 5 to version 6: the record's id, in one row, which
/// is added when the file is opened for writing.
const FROM_5: &str = "
BEGIN IMMEDIATE;
CREATE TABLE record (
  id TEXT NOT NULL PRIMARY KEY,
  begun_us INTEGER NOT NULL,
  before TEXT,
  before_last INTEGER,
  digest BLOB NOT NULL
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 6;
COMMIT;";

/// Shows a file of version 1 to its reader as one of version 2: whoever reads
/// changes nothing, and an old log must stay readable.
const AS_FROM_1: &str = "
CREATE TEMP VIEW decision AS
SELECT *, NULL AS directives, NULL AS said, NULL AS ended FROM main.decision;";

/// Shows a file of version 2 to its reader as one of version 3.
const AS_FROM_2: &str = "
CREATE TEMP VIEW snapshot AS SELECT *, NULL AS hops FROM main.snapshot;
CREATE TEMP VIEW kept AS
SELECT '' AS origin, '' AS token, '' AS url, NULL AS status, 0 AS fetched_us,
       0 AS expires_us, '' AS result, NULL AS cause, NULL AS body,
       NULL AS hops, NULL AS whole, NULL AS content_type, NULL AS etag,
       NULL AS last_modified, 0 AS failures, NULL AS led_to, x'' AS digest
WHERE 0;";

/// Shows a file of version 3 to its reader as one of version 4.
const AS_FROM_3: &str = "
CREATE TEMP VIEW event AS
SELECT 0 AS seq, 0 AS time_us, '' AS host, '' AS kind, NULL AS status,
       0 AS until_us, 0 AS incidents, x'' AS digest
WHERE 0;
CREATE TEMP VIEW back_off AS
SELECT '' AS host, 0 AS until_us, 0 AS incidents, 0 AS since_us, x'' AS digest
WHERE 0;";

/// Shows a file of version 5 to its reader as one of version 6.
const AS_FROM_5: &str = "
CREATE TEMP VIEW record AS
SELECT '' AS id, 0 AS begun_us, NULL AS before, NULL AS before_last, x'' AS digest
WHERE 0;";

/// What makes a commit outlast the power (WAL, `synchronous=FULL`), and keeps
/// the WAL from holding the disk space of its worst hour.
const DURABLE: &str = "
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA foreign_keys = ON;
PRAGMA journal_size_limit = 67108864;";

/// Opens the file at `path` for writing, and makes the tables if it is new.
///
/// # Errors
///
/// [`AuditError::Open`] and [`AuditError::Schema`].
pub(super) fn open(path: &Path) -> Result<Connection, AuditError> {
    let failed = |source| AuditError::Open {
        path: path.to_owned(),
        source,
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    if is_empty(&connection).map_err(failed)? {
        connection.execute_batch(SCHEMA).map_err(failed)?;
    }
    for (from, step) in [
        (1, FROM_1),
        (2, FROM_2),
        (3, FROM_3),
        (4, FROM_4),
        (5, FROM_5),
    ] {
        if version(&connection).map_err(failed)? == from {
            connection.execute_batch(step).map_err(failed)?;
        }
    }
    check_version(&connection, path)?;
    connection.execute_batch(DURABLE).map_err(failed)?;
    Ok(connection)
}

/// Opens the file at `path` for reading.
///
/// # Errors
///
/// [`AuditError::Missing`], [`AuditError::Open`] and [`AuditError::Schema`].
pub(super) fn open_to_read(path: &Path) -> Result<Connection, AuditError> {
    if !path.exists() {
        return Err(AuditError::Missing(path.to_owned()));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .and_then(|connection| connection.busy_timeout(BUSY_TIMEOUT).map(|()| connection))
        .map_err(|source| AuditError::Open {
            path: path.to_owned(),
            source,
        })?;
    let failed = |source| AuditError::Open {
        path: path.to_owned(),
        source,
    };
    let views: &[&str] = match version(&connection).map_err(failed)? {
        1 => &[AS_FROM_1, AS_FROM_2, AS_FROM_3, AS_FROM_4, AS_FROM_5],
        2 => &[AS_FROM_2, AS_FROM_3, AS_FROM_4, AS_FROM_5],
        3 => &[AS_FROM_3, AS_FROM_4, AS_FROM_5],
        4 => &[AS_FROM_4, AS_FROM_5],
        5 => &[AS_FROM_5],
        _ => {
            check_version(&connection, path)?;
            &[]
        }
    };
    for view in views {
        connection.execute_batch(view).map_err(failed)?;
    }
    Ok(connection)
}

/// Whether the file is new: no version, no tables.
fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let tables = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = connection.query_row(tables, [], |row| row.get(0))?;
    Ok(tables == 0 && version(connection)? == 0)
}

/// The version of the tables.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Whether the tables are those of this version.
fn check_version(connection: &Connection, path: &Path) -> Result<(), AuditError> {
    let found = version(connection).map_err(|source| AuditError::Open {
        path: path.to_owned(),
        source,
    })?;
    if found != SCHEMA_VERSION {
        return Err(AuditError::Schema {
            path: path.to_owned(),
            found,
            known: SCHEMA_VERSION,
        });
    }
    Ok(())
}

/// The highest number ever given to a decision; 0 if none was.
pub(super) fn last_seq(connection: &Connection) -> rusqlite::Result<u64> {
    last_number(
        connection,
        "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'decision'), 0),
                    coalesce((SELECT max(seq) FROM decision), 0))",
    )
}

/// The highest number ever given to an event; 0 if none was.
pub(super) fn last_event(connection: &Connection) -> rusqlite::Result<u64> {
    last_number(
        connection,
        "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0),
                    coalesce((SELECT max(seq) FROM event), 0))",
    )
}

fn last_number(connection: &Connection, sql: &str) -> rusqlite::Result<u64> {
    connection
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0).map(count))
}
