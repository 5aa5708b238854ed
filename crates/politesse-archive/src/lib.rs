//! Archive of [politesse](https://crates.io/crates/politesse): one PostgreSQL database with
//! the records of all nodes of a fleet (docs/archive.md).
//!
//! Each node goes on writing its own record, on which all it does rests. A task of its
//! own reads that record as any reader does, and ships what is new ([`shipper`]): one
//! transaction for each window of entries (`shipment`), so that a break at any moment
//! leaves nothing half or twice. Nothing is ever read back that a decision rests on.
//!
//! The archive answers questions; it proves nothing. What proves is each node's record.
//! Decisions are rows with all their values (`flat_decision`), so that any program can
//! ask them. Readers connect by [`connection`], and check the version of the tables first
//! ([`schema`]).

pub mod address;
#[cfg(feature = "postgres")]
pub mod connection;
#[cfg(feature = "postgres")]
mod counts;
#[cfg(feature = "postgres")]
pub mod failure;
#[cfg(feature = "postgres")]
mod flat_decision;
#[cfg(feature = "postgres")]
pub mod month;
#[cfg(feature = "postgres")]
pub mod nodes;
pub mod place;
#[cfg(feature = "postgres")]
pub mod pool;
#[cfg(feature = "postgres")]
pub mod question;
#[cfg(feature = "postgres")]
pub mod reader;
#[cfg(feature = "postgres")]
pub mod schema;
#[cfg(feature = "postgres")]
mod session;
#[cfg(feature = "postgres")]
mod shipment;
#[cfg(feature = "postgres")]
pub mod shipper;

use std::path::PathBuf;
use std::time::Duration;

use self::address::ArchiveAddress;

/// Options of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Address of the database (`audit.archive`); `None`: there is no archive.
    pub address: Option<ArchiveAddress>,
    /// File with the name and the password for it (`audit.archive_auth`).
    pub auth: Option<PathBuf>,
    /// Certificates that the server's is verified by (`audit.archive_ca`); `None`: those
    /// of the system.
    pub ca: Option<PathBuf>,
    /// Longest wait for a connection or an answer (`audit.archive_timeout`).
    pub timeout: Duration,
    /// Name of this node there (`fleet.node`).
    pub node: String,
}

/// Record that is shipped.
#[derive(Debug, Clone)]
pub struct ShippedRecord {
    /// The database.
    pub path: PathBuf,
    /// Name of the node.
    pub node: String,
}

/// Listener that is told up to which number all entries have arrived.
pub struct ArrivalListener(pub Box<dyn Fn(i64) + Send + Sync>);

impl std::fmt::Debug for ArrivalListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ArrivalListener")
    }
}
