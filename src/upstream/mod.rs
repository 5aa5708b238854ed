//! Layer 1: everything we say to origins.
//!
//! Invariant 1: nothing goes out but for a permit, and only `upstream` sends.
//! The audit log is not known here, nor who decided.
//!
//! In reading order, and a module uses only those below it:

pub mod location;

pub mod retry_after;

pub mod client;

mod again;

pub mod body;

mod pool;

mod connect;

mod head;

mod upload;

pub mod error;

mod wire;

mod response_heads;

mod interim;

mod tls;

pub mod egress;

mod addresses;

pub mod parent;

#[cfg(test)]
mod tests;
