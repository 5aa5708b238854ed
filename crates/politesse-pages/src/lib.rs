//! Pages of [politesse](https://crates.io/crates/politesse) for people: reports,
//! charts, text diffs, wording for values of the record, and explanations of decisions.
//!
//! Does not know where a page is shown, or who reads it.

pub mod explain;

pub mod page;
