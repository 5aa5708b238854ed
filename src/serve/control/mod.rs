//! How `politesse run` meets the proxy that holds the record: a file that says
//! what runs, and a Unix socket over which listeners are handed to it.
//!
//! Both lie in the folder of the record, beside its lock, for the owner alone.
//! A command finds its proxy there and never by a port: what answers on a port
//! may be a proxy of another configuration.
//!
//! The conversation on the socket, a JSON object a line:
//!
//! 1. The joining side sends `Join` with a listening socket (`SCM_RIGHTS`).
//! 2. The holder answers `Reply::Joined`, or says why not and closes.
//! 3. The joining side sends `End` when its command has ended. Closing the
//!    connection without it means that nobody waits for the counts.
//! 4. The holder sends `Reply::Totals`, and closes. It does so unasked if it
//!    stops itself.

pub(crate) mod descriptors;
pub mod instance;
pub mod joining;
pub(crate) mod lines;
mod server;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(super) use self::server::Server;
use crate::proxy::tally::Totals;

/// Bytes of one message: [`Totals`] name ten rules, the beginning of each.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// How long one side waits for a message that the other sends at once.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// The socket's name in the folder of the record.
pub(super) const SOCKET: &str = "instance.sock";

/// What the joining side says first.
#[derive(Debug, Serialize, Deserialize)]
struct Join {
    /// The SHA-256 of its configuration.
    configuration: String,
}

/// The command has ended; the counts are wanted.
#[derive(Debug, Serialize, Deserialize)]
struct End {}

/// What the holder says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    /// The listener is served.
    Joined,
    /// The configuration is another than the holder's.
    OtherConfiguration,
    /// The proxy is about to stop; another may be found soon.
    Stopping,
    /// The listener is not served, for this reason.
    Refused(String),
    /// What became of the command's requests.
    Totals(Totals),
}
