//! Pages of [politesse](https://crates.io/crates/politesse) for people: reports, charts,
//! differences of texts, words for values of the record, and a decision explained.
//!
//! Does not know where a page is shown, nor who asks.

pub mod explain;

pub mod page;
