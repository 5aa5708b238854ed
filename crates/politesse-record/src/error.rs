//! Errors of the record: opening, writing and reading it.
//!
//! A request whose decision cannot be recorded is not sent, so each text names what
//! ends the fault.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{ErrorCode, ffi};
use thiserror::Error;

use super::files::FileFault;
use super::note::NoteError;
use super::wal::WalFull;

/// Maximum wait for a place in the queue.
pub(super) const SLOT_WAIT: Duration = Duration::from_secs(1);

/// Maximum wait for the result of a probe.
pub(super) const PROBE_WAIT: Duration = Duration::from_secs(5);

/// Error of an operation on the record.
#[derive(Debug, Error)]
pub enum AuditError {
    /// Another process writes to the record in this folder.
    #[error("the record in {} is in use by another process; a folder holds one record", .0.display())]
    Locked(PathBuf),
    /// The database is not the one in use in its folder, which is the second path.
    #[error(
        "{} lies in the folder of a record in use, {}: move it to a folder of its own first",
        .0.display(), .1.display()
    )]
    OtherDatabase(PathBuf, PathBuf),
    /// A scan of all entries found more or fewer of them than the record has.
    #[error(
        "{} is damaged: {found} of {wanted} entries can be read; `politesse audit verify` says \
         which are missing, and so does the next start if a process was killed",
        .database.display()
    )]
    Partial {
        /// The database.
        database: PathBuf,
        /// Entries that were recorded and not removed.
        wanted: u64,
        /// Entries that can be read.
        found: u64,
    },
    /// The database to be read does not exist.
    #[error("there is no audit log {}: is it that of another configuration (--config FILE, audit.store)?", .0.display())]
    Missing(PathBuf),
    /// Users other than the owner may write to a file of the record, or to its
    /// folder.
    #[error("others than the owner may write to {} (mode {mode:04o}), so what is recorded there proves nothing: chmod go-w {}", path.display(), path.display())]
    Writable {
        /// The file or folder.
        path: PathBuf,
        /// Permissions of the file or folder.
        mode: u32,
    },
    /// The record holds fewer entries than its marker says. Name of the database,
    /// as given by the marker.
    #[error(
        "the record in {} is not whole: {database} had at least {last} entries (record \
         {record}), and now {defect}; restore its files, or start once with `politesse serve \
         --new-record`, which sets aside what is left and begins a new record",
        folder.display()
    )]
    Incomplete {
        /// Folder of the record.
        folder: PathBuf,
        /// Name of the database, as the marker has it.
        database: String,
        /// Minimum number of entries, according to the marker.
        last: u64,
        /// Id of the record.
        record: String,
        /// How the database differs from the marker, as a clause.
        defect: String,
    },
    /// The marker exists but cannot be parsed.
    #[error("{} is damaged, so nothing tells what the record held: restore that file; or, if `politesse audit verify` finds the record whole, delete the file, and the next start writes it anew", .0.display())]
    Marker(PathBuf),
    /// A file that describes the record cannot be read.
    #[error("cannot find out from {} what the record holds", .0.display())]
    Inspect(PathBuf, #[source] io::Error),
    /// A file or folder could not be created or locked.
    #[error("cannot create {}", .0.display())]
    Create(PathBuf, #[source] io::Error),
    /// The file exists but cannot be opened as a database.
    #[error("cannot open the audit log {}{}", .0.display(), repair_of(.1))]
    Open(PathBuf, #[source] rusqlite::Error),
    /// The file was written by another version or another program.
    #[error("the audit log {} has schema {found}, this version knows {known} and has left the file as it is: read it with the version that wrote it, or move it away with the files beside it, and the next start begins a new record", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// Schema of the file.
        found: i64,
        /// Schema of this version.
        known: i64,
    },
    /// A removal would take entries that are younger than `audit.retention`.
    #[error(
        "the youngest of these entries is {age} old, and audit.retention is {retention}: \
         --even-younger removes them nevertheless, and stays on record"
    )]
    TooYoung {
        /// Age of the youngest entry.
        age: String,
        /// Value of `audit.retention`.
        retention: String,
    },
    /// A backup could not be written.
    #[error("cannot write the backup {}", .0.display())]
    Backup(PathBuf, #[source] rusqlite::Error),
    /// A backup must not replace the record.
    #[error("cannot restore {}: {cause}", file.display())]
    Restore {
        /// The backup.
        file: PathBuf,
        /// Reason, as a clause.
        cause: String,
    },
    /// No place in the queue became free in time.
    #[error("no place in audit.queue for {} s; every open exchange holds one", SLOT_WAIT.as_secs())]
    Full,
    /// The writer did not answer in time.
    #[error("the audit log did not answer within {} s", PROBE_WAIT.as_secs())]
    Stalled,
    /// A batch was not written, or not to files that can be found again. A later
    /// batch may succeed.
    #[error("the audit log cannot be written")]
    Write(#[source] Arc<WriteError>),
    /// The key that signs heads cannot be used.
    #[error("cannot use the key that signs heads of the record, {} (audit.seal_key)", .0.display())]
    SealKey(PathBuf, #[source] SealKeyError),
    /// The database could not be read.
    #[error("the audit log cannot be read{}", repair_of(.0))]
    Read(#[from] rusqlite::Error),
    /// A query needs more sums than the memory limit allows.
    #[error(
        "more than {0} sums would have to be kept apart; ask by fewer keys, or for fewer decisions \
         (--from, --until, --host)"
    )]
    TooManySums(usize),
    /// The maximum number of queries is already running.
    #[error("the record is being searched for others; ask again in a moment")]
    QueryBusy,
    /// A query exceeded its time limit.
    #[error("the answer takes too long; ask for a shorter time, or for one host")]
    QueryTimeout,
    /// The record was closed, or its writer has ended.
    #[error("the audit log is closed")]
    Closed,
}

/// Error of a key file.
#[derive(Debug, Error)]
pub enum SealKeyError {
    /// The file cannot be read or created.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The file does not contain a key.
    #[error(transparent)]
    Content(#[from] NoteError),
}

/// Error of one batch.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The disk, or SQLite, reported an error.
    #[error("{0}{remedy}", remedy = remedy_of(.0))]
    Sqlite(rusqlite::Error),
    /// Another program holds a write lock on the database for too long.
    #[error(
        "another program has locked the database to write to it; the record goes on by itself once \
         that program has ended (`fuser -v` on the database names it)"
    )]
    Locked(#[source] rusqlite::Error),
    /// An entry to be removed is missing, or its part has no root.
    #[error(
        "the record is not whole, and nothing is removed from it: `politesse audit verify` tells what is missing"
    )]
    Tree,
    /// The WAL has reached its size limit.
    #[error(transparent)]
    Wal(#[from] WalFull),
    /// The files are no longer the ones that were opened. Nothing was written.
    #[error(transparent)]
    Files(FileFault),
    /// After the commit, the files were no longer those that were opened: it is
    /// unknown where the batch was written.
    #[error(transparent)]
    FilesAfterCommit(FileFault),
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            // Only another program can hold the lock, because the proxy writes
            // through one connection.
            Some(ErrorCode::DatabaseBusy) => Self::Locked(error),
            _ => Self::Sqlite(error),
        }
    }
}

/// Reports whether `error` says that the disk is full.
pub(super) fn is_full_disk(error: &rusqlite::Error) -> bool {
    // The index of the write-ahead log is a mapped file, for which SQLite reports a
    // different error.
    let is_index = |found: &ffi::Error| found.extended_code == ffi::SQLITE_IOERR_SHMSIZE;
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || error.sqlite_error().is_some_and(is_index)
}

/// Returns how to repair a file that is truncated or damaged, or whose disk is
/// full, as the end of a sentence.
fn repair_of(error: &rusqlite::Error) -> &'static str {
    if is_full_disk(error) {
        return ", since its disk is full";
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            ", since its file is damaged: put a backup in its place with `politesse audit \
             restore FILE`, or move it away, and `politesse serve --new-record` begins another"
        }
        _ => "",
    }
}

/// Returns how to end a disk error, as the end of a sentence.
fn remedy_of(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            "; the record goes on by itself once there is room in its file system"
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::ReadOnly) => {
            "; its disk fails, or its file system is read-only (`findmnt -T` with the folder of \
             the record, and `dmesg`, tell): the record goes on by itself once it can be \
             written, and after a repair of the file system with the next start"
        }
        _ => "",
    }
}
