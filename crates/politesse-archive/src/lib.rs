//! Archive of [politesse](https://crates.io/crates/politesse): one PostgreSQL database
//! with the records of all nodes of a fleet (docs/archive.md).
//!
//! Each node still writes its own record, on which its decisions depend. A separate task
//! reads that record like any other reader, and ships new entries ([`shipper`]): one
//! transaction for each window of entries (`shipment`), so that an interruption at any
//! time leaves nothing incomplete or duplicated. Nothing that a decision depends on is
//! ever read back.
//!
//! The archive answers queries but proves nothing; the nodes' records do. Decisions are
//! rows that contain all values (`flat_decision`), so that any program can query them.
//! Readers connect with [`connection`], and check the version of the tables first
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

/// Settings of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Address of the database (`audit.archive`); `None` if there is no archive.
    pub address: Option<ArchiveAddress>,
    /// File with the user name and password (`audit.archive_auth`).
    pub auth: Option<PathBuf>,
    /// Root certificates used to verify the server (`audit.archive_ca`); `None` for those
    /// of the system.
    pub ca: Option<PathBuf>,
    /// Longest wait for a connection or a response (`audit.archive_timeout`).
    pub timeout: Duration,
    /// Name of this node in the archive (`fleet.node`).
    pub node: String,
}

/// Record to ship.
#[derive(Debug, Clone)]
pub struct ShippedRecord {
    /// Path of the record's database.
    pub path: PathBuf,
    /// Name of the node.
    pub node: String,
}

/// Callback that receives the number up to which all entries have arrived.
pub struct ArrivalListener(pub Box<dyn Fn(i64) + Send + Sync>);

impl std::fmt::Debug for ArrivalListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ArrivalListener")
    }
}
