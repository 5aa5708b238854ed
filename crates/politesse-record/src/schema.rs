//! Schema of the database: its tables, its versions, and how it is opened.
//!
//! One process, which has locked the folder, writes to the database; any number of
//! processes read it. Versions 1 to 17 are older than the first release and cannot
//! be read.
//!
//! Does not know what is in a row.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::columns::TableRow as _;
use super::dictionary::DICTIONARIES;
use super::entry_rows::{DecisionRow, EndingRow};
use super::error::AuditError;
use super::events::EventRow;
use super::part_tree::PartRoot;
use super::record_id::RecordRow;
use super::saved_state::{BackOffRow, KeptRow};
use super::sequence::LostRange;
use super::tree_rows::StoredSeal;
use super::wal::BUSY_TIMEOUT;

/// Version of the schema, stored in the file as `user_version`.
const SCHEMA_VERSION: i64 = 21;

/// Number of statements that a connection keeps prepared; more than there are.
const STATEMENTS: usize = 64;

/// Tables that are not defined beside the struct of their rows, indexes and the
/// view. docs/decisions/020-thin-record.md explains all tables.
///
/// Each request writes little more than numbers and the path. References are not
/// declared as foreign keys: SQLite would look up each of them again, and search
/// whole tables on a removal. `verify` finds dangling references. `AUTOINCREMENT`
/// prevents the id of a removed value from being reused.
const TABLES: &str = "
CREATE TABLE sequence (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  last INTEGER NOT NULL,
  digest BLOB NOT NULL
) STRICT;
CREATE TABLE pruned (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  last INTEGER NOT NULL,
  time_us INTEGER NOT NULL,
  is_removed INTEGER NOT NULL,
  note TEXT NOT NULL,
  vkey TEXT NOT NULL
) STRICT;
CREATE TABLE leaf_path (
  seq INTEGER PRIMARY KEY,
  path BLOB NOT NULL
) STRICT;
CREATE TABLE body (
  sha256 BLOB NOT NULL PRIMARY KEY,
  body BLOB NOT NULL
) STRICT;
CREATE INDEX snapshot_origin ON snapshot (origin, fetched_us);
CREATE INDEX origin_host ON origin (host);
CREATE TABLE unused_value (id INTEGER PRIMARY KEY CHECK (id = 1)) STRICT;
CREATE TABLE clock_step (seq INTEGER PRIMARY KEY) STRICT;
CREATE TABLE part (
  field INTEGER NOT NULL,
  part INTEGER NOT NULL,
  value INTEGER NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  PRIMARY KEY (field, part, value)
) STRICT, WITHOUT ROWID;
CREATE TABLE rollup (
  part INTEGER PRIMARY KEY,
  first_us INTEGER,
  last_us INTEGER,
  sums BLOB NOT NULL
) STRICT;
CREATE TABLE late_ending (decision INTEGER PRIMARY KEY) STRICT;
CREATE INDEX kept_expires ON kept (expires_us);
CREATE INDEX event_host ON event (host);
CREATE INDEX back_off_until ON back_off (until_us);
CREATE VIEW audit_log AS
SELECT d.seq, d.time_us, c.address AS client, a.user_agent, a.label, m.text AS method,
       CASE d.client WHEN 0 THEN NULL ELSE o.origin || d.path END AS url, o.host, r.verdict, r.reason, r.effect, r.line, r.rule,
       r.groups, r.crawler, r.denials, d.reading, d.wait_ms, e.status, e.sent, s.value AS directives,
       s.denials AS stated_denials,
       e.bytes, t.text AS error
FROM decision AS d
LEFT JOIN ending AS e ON e.decision = d.seq
LEFT JOIN client AS c ON c.id = d.client
LEFT JOIN crawler AS a ON a.id = d.crawler
LEFT JOIN term AS m ON m.id = d.method
LEFT JOIN origin AS o ON o.id = d.origin
LEFT JOIN ruling AS r ON r.id = d.ruling
LEFT JOIN directives AS s ON s.id = e.directives
LEFT JOIN term AS t ON t.id = e.error;
";

/// Returns the statements that create all tables.
fn tables() -> String {
    let entries = [
        DecisionRow::CREATE,
        EndingRow::CREATE,
        EventRow::CREATE,
        LostRange::CREATE,
        RecordRow::CREATE,
        KeptRow::CREATE,
        BackOffRow::CREATE,
        PartRoot::CREATE,
        StoredSeal::CREATE,
    ];
    let dictionaries = DICTIONARIES.iter().map(|table| table.create);
    let defined = entries.into_iter().chain(dictionaries);
    defined.chain([TABLES]).collect()
}

/// Settings of a connection that writes.
///
/// With WAL and `synchronous=FULL` a commit survives a power failure. The size
/// limit lets the WAL return disk space after a peak. `secure_delete` overwrites
/// deleted data, because entries are removed in order not to be kept.
const DURABLE: &str = "
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA secure_delete = ON;
PRAGMA journal_size_limit = 67108864;";

/// Opens the database at `path` for writing. Creates the tables if it is empty.
///
/// # Errors
///
/// [`AuditError::Open`], [`AuditError::Schema`].
pub(super) fn open(path: &Path) -> Result<Connection, AuditError> {
    // Opened read-only first, because a connection that writes moves the WAL into
    // the file when it is closed, and a file of an unknown version must stay as it
    // is.
    let reader = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let is_new = is_empty(&reader).map_err(open_error(path))?;
    if !is_new {
        check_version(&reader, path)?;
    }
    drop(reader);
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let prepare = || {
        if is_new {
            let tables = tables();
            connection.execute_batch(&format!(
                "PRAGMA auto_vacuum = INCREMENTAL; BEGIN IMMEDIATE; {tables} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            ))?;
        }
        connection.execute_batch(DURABLE)
    };
    prepare().map_err(open_error(path))?;
    Ok(connection)
}

/// Creates an empty database in memory, for rows from another source.
pub(super) fn open_in_memory() -> rusqlite::Result<Connection> {
    let connection = Connection::open_in_memory()?;
    connection.execute_batch(&tables())?;
    // Rows may be inserted before the rows they refer to, or without them.
    connection.execute_batch("PRAGMA foreign_keys = OFF;")?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Opens the database at `path` for reading.
///
/// # Errors
///
/// [`AuditError::Missing`], [`AuditError::Open`], [`AuditError::Schema`].
pub(super) fn open_to_read(path: &Path) -> Result<Connection, AuditError> {
    match path.try_exists() {
        Ok(true) => {}
        Ok(false) => return Err(AuditError::Missing(path.to_owned())),
        // The folder may belong to another user, so it is unknown whether the file
        // exists.
        Err(error) => return Err(AuditError::Inspect(path.to_owned(), error)),
    }
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    check_version(&connection, path)?;
    Ok(connection)
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, AuditError> {
    // SQLite's own mutex is not needed, because rusqlite lets only one thread at a
    // time use a connection.
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .and_then(|connection| connection.busy_timeout(BUSY_TIMEOUT).map(|()| connection))
        .map_err(open_error(path))?;
    // Makes a page with overlapping or out-of-range cells an error, instead of
    // missing rows.
    connection
        .pragma_update(None, "cell_size_check", true)
        .map_err(open_error(path))?;
    // The default of 16 would be too few: other statements would be compiled again
    // at each use.
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Returns a function that adds the path of the database to a SQLite error.
pub(super) fn open_error(path: &Path) -> impl FnOnce(rusqlite::Error) -> AuditError {
    |error| AuditError::Open(path.to_owned(), error)
}

/// Reports whether the file is new: it has no version and no tables.
fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(tables == 0 && schema_version(connection)? == 0)
}

/// Reads the tables, indexes, views and triggers of a database: their names, and
/// the statements that created them.
pub(super) fn schema_objects(
    connection: &Connection,
) -> rusqlite::Result<BTreeSet<(String, Option<String>)>> {
    let sql = "SELECT type || ' ' || name, sql FROM sqlite_schema";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

fn schema_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Checks that the schema version is the one of this program.
fn check_version(connection: &Connection, path: &Path) -> Result<(), AuditError> {
    let found = schema_version(connection).map_err(open_error(path))?;
    let path = path.to_owned();
    match found {
        SCHEMA_VERSION => Ok(()),
        _ => Err(AuditError::Schema {
            path,
            found,
            known: SCHEMA_VERSION,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: a user without access to the folder must not be informed that it is
    // empty.
    #[test]
    fn a_record_that_cannot_be_looked_for_is_not_reported_missing() {
        let long = "x".repeat(300);
        let found = open_to_read(Path::new(&long));
        assert!(matches!(found, Err(AuditError::Inspect(..))), "{found:?}");
        let found = open_to_read(Path::new("no-such-file"));
        assert!(matches!(found, Err(AuditError::Missing(_))), "{found:?}");
    }

    const DOCUMENT: &str = include_str!("../../../docs/decisions/020-thin-record.md");

    /// Returns the columns of a table that are covered by a hash.
    fn columns(tables: &str, table: &str) -> Vec<String> {
        let (_, definition) = tables.split_once(&format!("TABLE {table} (\n")).unwrap();
        let (definition, _) = definition.split_once("\n)").unwrap();
        let names = definition
            .lines()
            .filter_map(|line| line.trim().split(' ').next());
        let is_hashed = |name: &&str| !["id", "sha256", "leaf", "digest"].contains(name);
        names.filter(is_hashed).map(str::to_owned).collect()
    }

    // Ours: that document is the specification for verifying a record without this
    // program.
    #[test]
    fn the_document_has_every_column_that_is_hashed() {
        let tables = tables();
        for (table, row) in [
            ("client", "| `client` |"),
            ("crawler", "| `crawler` |"),
            ("origin", "| `origin` |"),
            ("ruling", "| `ruling` |"),
            ("directives", "| `directives` |"),
            ("term", "| `term` |"),
            ("snapshot", "| `snapshot` |"),
            ("policy", "| `policy` |"),
            ("event", "| event |"),
            ("lost_range", "| `lost_range` |"),
        ] {
            let row = DOCUMENT.lines().find(|line| line.starts_with(row)).unwrap();
            let named = row.split('`').skip(1).step_by(2);
            let named: Vec<_> = named.map(str::to_owned).collect();
            assert!(
                named.ends_with(&columns(&tables, table)),
                "{table}: {named:?}"
            );
        }
    }
}
