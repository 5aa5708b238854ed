//! Bundles: decisions of a record in one file, with a proof that the record
//! contains them.
//!
//! A bundle is a gzipped file of JSON Lines (docs/handing-over.md). The recipient
//! verifies it with the public key of the record, which must come from another
//! source. The record and its machine are not needed.

mod checking;
mod form;
mod lines;
mod writing;

use std::io;

use rusqlite::Error as SqliteError;
use thiserror::Error;

use super::error::AuditError;

pub use self::checking::{BundleSums, BundleVerification, verify_bundle};
pub use self::writing::{Bundle, write_bundle};

/// Error of a bundle.
#[derive(Debug, Error)]
pub enum BundleError {
    /// The record cannot be read.
    #[error(transparent)]
    Record(#[from] AuditError),
    /// The file cannot be read or written, or is not gzipped.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The record has no head, so nothing can be proved.
    #[error(
        "the record has no head yet, so nothing of it can be proved: one is made after \
         audit.seal_entries or audit.seal_interval, and when the proxy stops"
    )]
    Unsealed,
    /// The newest head covers none of the selected decisions.
    #[error(
        "no decision meets the conditions, or none of them is sealed yet: the newest head covers \
         the entries up to {0}"
    )]
    Empty(u64),
    /// The bundle exceeds a limit.
    #[error("a bundle has at most {0}: choose fewer decisions")]
    TooLarge(&'static str),
    /// An entry was changed after it was written.
    #[error("{0}: the row is not as it was written; see politesse audit verify")]
    Altered(u64),
    /// A robots.txt is missing from the record.
    #[error("the robots.txt {0} is not on record any more; see politesse audit verify")]
    NoRobots(String),
    /// The entries do not lead to the newest head.
    #[error("the entries are not those of the newest head; see politesse audit verify")]
    Unproved,
    /// A line is malformed.
    #[error("line {number}: {cause}")]
    Line {
        /// Number of the line, from 1.
        number: u64,
        /// Fault of the line, as a clause.
        cause: &'static str,
    },
}

impl From<SqliteError> for BundleError {
    fn from(error: SqliteError) -> Self {
        Self::Record(error.into())
    }
}
