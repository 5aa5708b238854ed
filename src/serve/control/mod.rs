//! Control socket: how `politesse run` finds the proxy that holds a record, and
//! hands it a listener.
//!
//! A file (`instance`) and a Unix socket lie beside the lock on the record, for
//! their owner alone. A command finds its proxy there and never by a port: what
//! answers on a port may be a proxy of another configuration. The conversation on
//! the socket, a JSON object a line:
//!
//! 1. The joining side sends `JoinMessage` with a listening socket (`SCM_RIGHTS`).
//! 2. The holder answers `Reply::Joined`, or says why not and closes.
//! 3. The joining side sends `EndMessage` when its command has ended. Closing the
//!    connection without it means that nobody waits for the counts.
//! 4. The holder sends `Reply::Totals`, and closes. It does so unasked if it
//!    stops itself.

pub mod instance;
pub mod joining;
pub(crate) mod messages;
pub(super) mod server;
