//! Fleet of [politesse](https://crates.io/crates/politesse): many proxies that are one polite
//! crawler (`fleet`).
//!
//! The nodes share a store, which keeps for each host the lease by which one of them
//! asks it ([`lease`](politesse_pace::lease)), and counts the nodes. Nothing of a request waits for the
//! store but the first lease of its host: where it is lost, each node goes on with a
//! longer distance, or none does (`fleet.on_loss`). What follows from the answers of
//! the store is pure ([`membership`]); [`heartbeat`] and [`store`] speak to Redis. Where the
//! nodes have a key, they also fetch a robots.txt once for all of them
//! ([`robots_store`]). What they say of themselves is shown ([`notes`], [`status`]).

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
