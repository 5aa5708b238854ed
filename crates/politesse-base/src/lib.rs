//! Building blocks for every layer of [politesse](https://crates.io/crates/politesse):
//! clocks, metrics, tasks, client-side TLS, fair shares for clients, bounded caches, and
//! escaping of text for terminals.
//!
//! Does not know origins, decisions, records or the configuration.

pub mod byte_cache;

pub mod clients;

pub mod clock;

pub mod command_line;

pub mod descriptors;

pub mod inert;

pub mod metrics;

pub mod server;

pub mod tasks;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub mod throttle;

pub mod tls;
