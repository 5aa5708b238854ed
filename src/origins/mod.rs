//! Layer 1: everything we say to origins.
//!
//! Invariant 1: nothing goes out but for a permit, and only `upstream` sends.
//! The audit log is not known here, nor who decided.
//!
//! In reading order, and a module uses only those below it:

pub mod robots_cache;

mod robots_ready;

mod robots_snapshots;

mod robots_trail;

mod robots_answer;

mod robots_held;

mod robots_options;

mod robots_places;

mod robots_lifetimes;

mod location;

pub mod robots_store;

pub mod robots_fetch;

mod robots_body;

pub mod pacer;

mod freshness;

pub mod upstream;

mod again;

pub mod body;

mod pool;

mod connect;

mod head;

mod upload;

pub mod upstream_error;

mod wire;

mod response_heads;

mod interim;

mod tls;

pub mod egress;

mod addresses;

pub mod parent;

#[cfg(test)]
mod tests;
