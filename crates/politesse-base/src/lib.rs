//! Parts that every layer of [politesse](https://crates.io/crates/politesse) may use:
//! clocks, metrics, tasks, TLS as a client, the shares of clients, bounded caches, inert
//! text.
//!
//! Knows no origin, no decision, no record and no configuration.

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
