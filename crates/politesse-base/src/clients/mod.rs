//! Clients of a shared proxy, and their shares of everything that is finite.
//!
//! One rule holds for every [`Resource`](client::Resource): a client may use all
//! that is free, and gives way down to its equal share when others come (max-min
//! fairness), so that no limit for a client has to be guessed. Limits that an
//! operator sets all the same come on top.
//!
//! Does not know what a share is used for. Nothing here depends on another layer
//! but `clock` and `metrics`. In reading order, and a module uses only those
//! below it:

pub mod directory;

pub mod shares;

pub mod snapshot;

pub mod bound;

pub mod client;
