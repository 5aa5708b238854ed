//! Schema of the database: its tables, its versions, and how it is opened.
//!
//! One process writes to the database, which has locked its folder; any number
//! read. Versions 1 to 3 are older than the first release and are not read.
//!
//! Does not know what is in a row.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::error::AuditError;
use super::wal::BUSY_TIMEOUT;

/// Version of the tables, kept in the file as `user_version`.
const SCHEMA_VERSION: i64 = 6;

/// Oldest version that is read, and upgraded by a writer.
const OLDEST_VERSION: i64 = 4;

/// Version from which on a file has an id, in the table `record`.
pub(super) const RECORD_SINCE: i64 = 6;

/// Tables of [`OLDEST_VERSION`]; a new file gets the others as an old one does.
///
/// `AUTOINCREMENT` keeps the highest number ever given, so that one is never
/// given twice and rows taken off the end are missed. The hops are a JSON list,
/// and NULL where there are none. The token in `kept` is '' where one snapshot
/// serves every crawler: two nulls would be two rows. `NOCASE` folds what
/// [`ProductToken`] folds.
///
/// [`ProductToken`]: politesse_robots::crawler::ProductToken
const TABLES: &str = "
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
  body BLOB REFERENCES body,
  hops TEXT
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
";

/// Tables that later versions have added: the version, and the table.
///
/// `clock_step` holds the numbers that begin a run (see `order`), `record` the
/// one row with the record's id, which is written when the file is opened.
const ADDED_TABLES: [(i64, &str); 2] = [
    (5, "clock_step (seq INTEGER PRIMARY KEY) STRICT"),
    (
        RECORD_SINCE,
        "record (
  id TEXT NOT NULL PRIMARY KEY,
  begun_us INTEGER NOT NULL,
  before TEXT,
  before_last INTEGER,
  digest BLOB NOT NULL
) STRICT, WITHOUT ROWID",
    ),
];

/// Settings of a connection that writes.
///
/// With WAL and `synchronous=FULL` a commit outlasts a power failure. The size
/// limit keeps the WAL from holding the disk space of its worst hour.
const DURABLE: &str = "
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA foreign_keys = ON;
PRAGMA journal_size_limit = 67108864;";

/// Opens the database at `path` for writing. Makes the tables if it is empty,
/// and upgrades one of an older version.
///
/// # Errors
///
/// [`AuditError::Open`], [`AuditError::Schema`], [`AuditError::Outdated`].
pub(super) fn open(path: &Path) -> Result<Connection, AuditError> {
    // A connection that writes moves the WAL into the file when it is closed. A
    // file of a version that is not known stays as it is, so look at it first.
    let reader = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let is_new = is_empty(&reader).map_err(open_error(path))?;
    if !is_new {
        check_version(&reader, path)?;
    }
    drop(reader);
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let prepare = || {
        if is_new {
            make(&connection, TABLES, OLDEST_VERSION)?;
        }
        for (version, table) in ADDED_TABLES {
            if schema_version(&connection)? < version {
                make(&connection, &format!("CREATE TABLE {table};"), version)?;
            }
        }
        connection.execute_batch(DURABLE)
    };
    prepare().map_err(open_error(path))?;
    Ok(connection)
}

/// Opens the database at `path` for reading.
///
/// # Errors
///
/// [`AuditError::Missing`], [`AuditError::Open`], [`AuditError::Schema`],
/// [`AuditError::Outdated`].
pub(super) fn open_to_read(path: &Path) -> Result<Connection, AuditError> {
    if !path.exists() {
        return Err(AuditError::Missing(path.to_owned()));
    }
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let found = check_version(&connection, path)?;
    for (version, table) in ADDED_TABLES {
        // Reading changes no file: a table that an older one lacks is an empty
        // one of this connection.
        if found < version {
            let made = connection.execute_batch(&format!("CREATE TEMP TABLE {table};"));
            made.map_err(open_error(path))?;
        }
    }
    Ok(connection)
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, AuditError> {
    // Without SQLite's own lock: rusqlite lets one thread at a time use a
    // connection.
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
        .and_then(|connection| connection.busy_timeout(BUSY_TIMEOUT).map(|()| connection))
        .map_err(open_error(path))
}

/// Wraps an error of SQLite with the path of the database that it opened.
pub(super) fn open_error(path: &Path) -> impl FnOnce(rusqlite::Error) -> AuditError {
    |error| AuditError::Open(path.to_owned(), error)
}

/// Makes tables and sets the version, or does neither.
fn make(connection: &Connection, tables: &str, version: i64) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {tables} PRAGMA user_version = {version}; COMMIT;"
    ))
}

/// Reports whether the file is new: no version, no tables.
fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(tables == 0 && schema_version(connection)? == 0)
}

/// Reads the version of the tables.
pub(super) fn schema_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Reads the version of the tables, which must be one that is supported.
fn check_version(connection: &Connection, path: &Path) -> Result<i64, AuditError> {
    let found = schema_version(connection).map_err(open_error(path))?;
    let path = path.to_owned();
    match found {
        OLDEST_VERSION..=SCHEMA_VERSION => Ok(found),
        1..OLDEST_VERSION => Err(AuditError::Outdated {
            path,
            found,
            oldest: OLDEST_VERSION,
        }),
        _ => Err(AuditError::Schema {
            path,
            found,
            known: SCHEMA_VERSION,
        }),
    }
}
