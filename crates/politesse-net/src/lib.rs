//! Everything that [politesse](https://crates.io/crates/politesse) sends to origins.
//!
//! Invariant 1 (ARCHITECTURE.md): nothing is sent without a permit, and only this crate
//! sends. Does not know the audit log, or who decided.
//!
//! Modules are listed in reading order, and each uses only modules below it.

pub mod location;

pub mod retry_after;

pub mod client;

mod exchange;

pub mod body;

pub mod private;

mod pool;

mod connect;

mod dial;

mod head;

mod upload;

pub mod error;

mod wire;

mod head_repair;

mod response_heads;

mod read_ahead;

mod tls;

pub mod egress;

mod addresses;

mod staggered;

pub mod parent;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

#[cfg(test)]
mod tests;
