//! `run --sealed`: a command whose network holds the proxy and nothing else.
//!
//! The program runs itself once more (`enter`), and that process takes a user
//! and a network namespace before it becomes the command (user_namespaces(7),
//! network_namespaces(7)). It must have one thread, which a process that runs a
//! proxy does not. It binds the listener that the command knows as its proxy
//! inside, and passes it out to be served here.
//!
//! The new network has loopback and nothing else, so what does not go to the
//! proxy has no route, and the system counts it (`counters`).

mod counters;
pub(in crate::cli) mod enter;
mod loopback;
mod refusal;
mod supervisor;

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

pub(super) use self::counters::Counters;
pub(super) use self::supervisor::Sealed;

/// Where the proxy is, as the command knows it. The network is new, so that
/// every port is free.
pub(super) const LISTEN: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 3128);
/// The name of the hidden command that becomes the user's command.
pub(in crate::cli) const ENTER: &str = "enter-seal";

/// What the process inside says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Inside {
    /// It has its namespaces, and needs its user mapped.
    Unshared,
    /// Listener and counters come along; it waits to become the command.
    Ready,
    /// It cannot go on.
    Failed(Failure),
}

/// What the process outside says: the next step may be taken.
#[derive(Debug, Serialize, Deserialize)]
struct GoOn {}

/// A step that failed inside, or for the process inside.
#[derive(Debug, Serialize, Deserialize)]
struct Failure {
    step: Step,
    /// The number of the system's error, if it is one.
    error: Option<i32>,
    /// The error in words.
    text: String,
}

/// The steps into a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    /// Making the namespaces.
    Unshare,
    /// Mapping user and group to themselves.
    Map,
    /// Bringing up loopback.
    Loopback,
    /// Listening on it.
    Listen,
    /// Opening the counters.
    Count,
    /// Becoming the command.
    Execute,
}
