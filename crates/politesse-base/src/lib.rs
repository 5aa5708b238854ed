//! Parts that every layer of [politesse](https://crates.io/crates/politesse) may use:
//! clocks, metrics, tasks, the shares of clients, bounded caches and inert text.
//!
//! Knows no origin, no decision, no record and no configuration.

pub mod byte_cache;

pub mod clients;

pub mod clock;

pub mod command_line;

pub mod descriptors;

pub mod inert;

pub mod metrics;

pub mod tasks;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub mod throttle;
