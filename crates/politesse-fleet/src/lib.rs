//! Fleet of [politesse](https://crates.io/crates/politesse): many proxies that act as one
//! polite crawler (`fleet`).
//!
//! The nodes share a store. It counts the nodes, and keeps one lease per host, which permits
//! a single node to send requests to that host ([`lease`](politesse_pace::lease)). A
//! request waits for the store only to get the first lease of its host. If the store is
//! lost, each node continues with a longer distance between requests, or all of them stop
//! (`fleet.on_loss`).
//!
//! [`membership`] is pure: it derives the state of the node from the answers of the
//! store. [`heartbeat`] and [`store`] speak to Redis. If the nodes have a key, they also
//! fetch each robots.txt only once for all of them ([`robots_store`]). The notes that
//! nodes leave about themselves are shown to users ([`notes`], [`status`]).

#[cfg(feature = "redis")]
pub mod connect;
#[cfg(feature = "redis")]
pub mod heartbeat;
pub mod membership;
#[cfg(feature = "redis")]
pub mod notes;
pub mod options;
#[cfg(feature = "redis")]
mod rights;
#[cfg(feature = "redis")]
pub mod robots_store;
#[cfg(feature = "redis")]
pub mod shared_answer;
pub mod status;
#[cfg(feature = "redis")]
pub mod store;
#[cfg(feature = "redis")]
mod store_error;

#[cfg(test)]
mod tests;
