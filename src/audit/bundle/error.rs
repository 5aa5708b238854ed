//! Errors of making and of reading a bundle.

use rusqlite::Error as SqliteError;
use thiserror::Error;

use super::zip::ZipError;
use crate::audit::error::AuditError;

/// Decisions of a bundle at most: some hundreds of megabytes of memory.
pub(super) const DECISIONS_MAX: usize = 4_000_000;

/// Error of a bundle.
#[derive(Debug, Error)]
pub enum BundleError {
    /// The record cannot be read.
    #[error(transparent)]
    Record(#[from] AuditError),
    /// The archive cannot be read or written.
    #[error(transparent)]
    Archive(#[from] ZipError),
    /// There is no head that could prove anything.
    #[error(
        "the record has no head yet, so nothing of it can be proved: one is made after \
         audit.seal_entries or audit.seal_interval, and when the proxy stops"
    )]
    Unsealed,
    /// No decision is chosen that the newest head covers.
    #[error("no such decision is sealed yet: the newest head covers the entries up to {0}")]
    Empty(u64),
    /// There are more decisions than a bundle has.
    #[error("there are more than {DECISIONS_MAX} such decisions: choose fewer")]
    TooMany,
    /// An entry is not as it was written.
    #[error("{0}: the row is not as it was written; politesse audit verify tells more")]
    Altered(u64),
    /// A robots.txt is gone.
    #[error("the robots.txt {0} is not on record any more; politesse audit verify tells more")]
    NoRobots(String),
    /// The entries are not those of the newest head.
    #[error("the entries are not those of the newest head; politesse audit verify tells more")]
    Unproved,
    /// A file of the bundle is of another form.
    #[error("{file}: {cause}")]
    Form {
        /// Name of the file, and of the line in it.
        file: String,
        /// Fault of the file, as a clause.
        cause: &'static str,
    },
}

impl BundleError {
    /// Makes the error of the line `number` of the rows.
    pub(super) fn of_line(number: u64, cause: &'static str) -> Self {
        Self::Form {
            file: format!("line {number} of {}", super::form::ROWS),
            cause,
        }
    }
}

impl From<SqliteError> for BundleError {
    fn from(error: SqliteError) -> Self {
        Self::Record(error.into())
    }
}

impl From<std::io::Error> for BundleError {
    fn from(error: std::io::Error) -> Self {
        Self::Archive(error.into())
    }
}
