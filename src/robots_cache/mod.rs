//! Layer 2: fetching robots.txt and keeping what came back.
//!
//! In reading order, and a module uses only those below it:

pub mod cache;

mod ready;

mod snapshots;

mod trail;

mod answer;

mod held;

mod options;

mod places;

mod lifetimes;

pub mod store;

pub mod fetch;

mod body;
