//! Layer 2: everything we say to crawlers.
//!
//! Invariant 6: intercept, never tunnel. Invariant 7: bodies are not changed.
//! In reading order, and a module uses only those below it; begin with
//! [`exchange`].

pub mod listener;

pub mod connect;

pub mod first_bytes;

pub mod ca;

pub mod exchange;

pub mod annotate;

pub mod known;

pub mod selected;

pub mod request;

pub mod max_forwards;

mod patience;

pub mod socket;

pub mod problem;

pub mod own_copy;

pub mod names;

pub mod answer;

pub mod body;

pub mod held;

pub mod fields;

pub mod activity;

pub mod entrance;

pub mod tally;

mod in_order;
