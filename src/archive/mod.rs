//! Archive: one PostgreSQL database with the records of all nodes of a fleet
//! (docs/archive.md).
//!
//! Each node goes on writing its own record, on which all it does rests. A task of its
//! own reads that record as any reader does, and ships what is new ([`shipper`]): one
//! transaction for each window of entries (`shipment`), so that a break at any moment
//! leaves nothing half or twice. Nothing is ever read back that a decision rests on.
//!
//! What passes through: an [`EntryWindow`](crate::audit::entry_window::EntryWindow), as
//! it stands in the record, becomes rows with the archive's own numbers of dictionary
//! values; the position of the node moves with them. Whoever asks the archive comes in
//! by [`connection`], and looks at the version of its tables first ([`schema`]).

pub mod address;
#[cfg(feature = "postgres")]
mod columns;
#[cfg(feature = "postgres")]
pub mod connection;
#[cfg(feature = "postgres")]
mod counts;
#[cfg(feature = "postgres")]
mod excerpt;
#[cfg(feature = "postgres")]
pub mod failure;
#[cfg(feature = "postgres")]
pub mod fleet_check;
#[cfg(feature = "postgres")]
mod fleet_head;
#[cfg(feature = "postgres")]
pub mod month;
#[cfg(feature = "postgres")]
pub mod month_drop;
#[cfg(feature = "postgres")]
pub mod node_copy;
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
mod redaction;
#[cfg(feature = "postgres")]
pub mod removal;
#[cfg(feature = "postgres")]
pub mod removal_check;
#[cfg(feature = "postgres")]
pub mod robots;
#[cfg(feature = "postgres")]
pub mod schema;
#[cfg(feature = "postgres")]
mod session;
#[cfg(feature = "postgres")]
mod shipment;
#[cfg(feature = "postgres")]
mod shipped_node;
#[cfg(feature = "postgres")]
pub mod shipper;
#[cfg(feature = "postgres")]
mod tables;

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
    /// Private key of its heads (`audit.seal_key`); `None`: that in its folder.
    pub seal_key: Option<PathBuf>,
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
