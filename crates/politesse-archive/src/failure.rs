//! Failures of the archive, each with advice for the user.
//!
//! Server errors are distinguished by their codes (PostgreSQL, Appendix A), because their
//! texts are in the language of the server.

use std::io;

use thiserror::Error;
use tokio::time::error::Elapsed;
use tokio_postgres::error::SqlState;

use super::address::ArchiveAddress;
use politesse_base::server::CredentialsError;
use politesse_base::tls::TlsSetupError;
use politesse_record::AuditError;

/// Reason why shipping to the archive, or querying it, failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ArchiveFailure {
    /// No archive is configured.
    #[error(
        "there is no archive: name one in audit.archive, as in postgres://db.example/politesse"
    )]
    Unnamed,
    /// The credentials file is unusable.
    #[error("audit.archive_auth cannot be used")]
    Auth(#[source] CredentialsError),
    /// The certificates are unusable.
    #[error("audit.archive_ca cannot be used")]
    Roots(#[source] TlsSetupError),
    /// The server cannot be reached.
    #[error("the archive {0} of audit.archive cannot be reached")]
    Unreached(ArchiveAddress, #[source] io::Error),
    /// The server refuses these credentials.
    #[error(
        "the archive {0} refuses the name or the password of audit.archive_auth, or its pg_hba.conf does not let this user in from here"
    )]
    Refused(ArchiveAddress, #[source] tokio_postgres::Error),
    /// The database does not exist.
    #[error(
        "the archive {0} has no such database: make it with `createdb`, or name another in audit.archive"
    )]
    NoDatabase(ArchiveAddress, #[source] tokio_postgres::Error),
    /// The connection could not be established.
    #[error(
        "no connection to the archive {0} (its certificate is verified by audit.archive_ca; a server without TLS needs ?sslmode=disable in audit.archive)"
    )]
    Connect(ArchiveAddress, #[source] tokio_postgres::Error),
    /// The server, the database or the user has reached its connection limit.
    #[error(
        "the archive has no connection left (each node needs one, each page or command one more): raise max_connections, or the CONNECTION LIMIT of the user or the database (docs/archive.md, Messages)"
    )]
    TooManyConnections(#[source] tokio_postgres::Error),
    /// The server is starting or stopping, or has ended the connection.
    #[error(
        "the server of the archive is starting or stopping, or has ended the connection: make sure that it runs; interrupted work is repeated (docs/archive.md, Messages)"
    )]
    Interrupted(#[source] tokio_postgres::Error),
    /// The server's disk is full.
    #[error(
        "the disk of the archive is full: make room on its server; shipping then resumes by itself (docs/archive.md, Messages)"
    )]
    DiskFull(#[source] tokio_postgres::Error),
    /// The user lacks a required privilege.
    #[error(
        "the user of audit.archive_auth may not write to the archive, or not read it: a user that ships must own the tables, and a user that asks needs SELECT on all of them (docs/archive.md, Messages)"
    )]
    Denied(#[source] tokio_postgres::Error),
    /// The server accepts no changes.
    #[error(
        "the archive only reads: name the primary server in audit.archive if this is a standby, else unset default_transaction_read_only (docs/archive.md, Messages)"
    )]
    ReadOnly(#[source] tokio_postgres::Error),
    /// The server cancelled a query that took too long.
    #[error(
        "the server of the archive has ended a query: raise audit.archive_timeout, or statement_timeout of its user if that is shorter (docs/archive.md, Messages)"
    )]
    Canceled(#[source] tokio_postgres::Error),
    /// Tables of the database do not belong to an archive.
    #[error(
        "the database of the archive has a table that is another program's, or was changed: name a database of its own in audit.archive, or put the table back from a backup (docs/archive.md, Messages)"
    )]
    Foreign(#[source] tokio_postgres::Error),
    /// A table of the database does not belong to an archive.
    #[error(
        "the table {table} of the archive {fault}, so it is another program's, or was changed: name a database of its own in audit.archive, or put the table back from a backup (docs/archive.md, Messages)"
    )]
    ForeignTable {
        /// Name of the table.
        table: String,
        /// Fault of the table, worded as the end of a sentence.
        fault: String,
    },
    /// The tables exist in a schema outside this user's search path.
    #[error(
        "the archive {address} has its tables in the schema {schema}, where this user does not look: grant it USAGE on that schema, and name the schema in its search_path (docs/archive.md, Messages)"
    )]
    Hidden {
        /// Address of the archive.
        address: ArchiveAddress,
        /// Name of the schema.
        schema: String,
    },
    /// The encoding of the database does not cover all characters.
    #[error(
        "the database of the archive {address} has the encoding {encoding}, and URLs have characters of all kinds: make one with `createdb --encoding UTF8 --template template0`"
    )]
    Encoding {
        /// Address of the archive.
        address: ArchiveAddress,
        /// Encoding of the database.
        encoding: String,
    },
    /// The database contains no tables.
    #[error("the archive {0} is empty: nothing was shipped to it yet")]
    Empty(ArchiveAddress),
    /// The tables are of a version that this program does not support.
    #[error(
        "the archive {address} has version {found} of its tables, and this program knows {known}: name a new database in audit.archive, to which each node ships all that it still has"
    )]
    Version {
        /// Address of the archive.
        address: ArchiveAddress,
        /// Version of the tables.
        found: i32,
        /// Version that this program supports.
        known: i32,
    },
    /// The server did not respond in time.
    #[error("the archive gave no answer within audit.archive_timeout")]
    Timeout(#[from] Elapsed),
    /// A query failed for another reason.
    #[error("a query to the archive failed")]
    Query(#[source] tokio_postgres::Error),
    /// A row of the archive has values that this program does not write.
    #[error("the archive has a row of decision that this program did not write")]
    Row(#[source] serde_json::Error),
    /// Another process has shipped the same record, or removed months of the archive,
    /// while this one was shipping. Nothing was written; shipping can be retried at once.
    #[error("another process ships this record, or removes months, at the same time: try again")]
    Overtaken,
    /// The archive contains a different entry of this record under the same number.
    #[error(
        "the archive has another entry {seq} of this record: a copy of its folder is in use elsewhere, or an older copy was put in its place. Stop this proxy, move the folder of audit.store away, and start it again: a new record begins"
    )]
    Forked {
        /// Number of the entry.
        seq: i64,
    },
    /// Another session is using the tables to be removed.
    #[error(
        "the archive is read or written all the time (by a long query, say), so that no month could be removed now: try again later"
    )]
    Busy(#[source] tokio_postgres::Error),
    /// The record has no entries yet.
    #[error("the record is empty: nothing was decided yet")]
    NoRecord,
    /// The archive has no node of this name.
    #[error("the archive has no node {name}{}", list_of(known))]
    NoNode {
        /// Requested node name, or id of its record.
        name: String,
        /// Names of the existing nodes.
        known: Vec<String>,
    },
    /// A query has too many result groups.
    #[error("there are more than {0} sums: ask for a shorter time, or for fewer keys")]
    TooManySums(usize),
    /// The record cannot be read.
    #[error(transparent)]
    Record(#[from] AuditError),
}

impl From<tokio_postgres::Error> for ArchiveFailure {
    /// Classifies a database error by its code.
    fn from(error: tokio_postgres::Error) -> Self {
        let name = match error.code() {
            None if error.is_closed() => Self::Interrupted,
            Some(&SqlState::TOO_MANY_CONNECTIONS) => Self::TooManyConnections,
            Some(
                &SqlState::ADMIN_SHUTDOWN
                | &SqlState::CRASH_SHUTDOWN
                | &SqlState::CANNOT_CONNECT_NOW,
            ) => Self::Interrupted,
            Some(&SqlState::DISK_FULL) => Self::DiskFull,
            // The second code: a user without the right to use any schema has none in
            // which to create tables.
            Some(&SqlState::INSUFFICIENT_PRIVILEGE | &SqlState::INVALID_SCHEMA_NAME) => {
                Self::Denied
            }
            Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => Self::ReadOnly,
            Some(&SqlState::QUERY_CANCELED) => Self::Canceled,
            Some(&SqlState::LOCK_NOT_AVAILABLE) => Self::Busy,
            // Class 42: a name does not exist, exists already, or is of another kind.
            Some(code) if code.code().starts_with("42") => Self::Foreign,
            None | Some(_) => Self::Query,
        };
        name(error)
    }
}

fn list_of(known: &[String]) -> String {
    match known.is_empty() {
        true => ": nothing was shipped to it yet".to_owned(),
        false => format!(": its nodes are {}", known.join(", ")),
    }
}
