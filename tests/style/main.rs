//! The limits of CONTRIBUTING.md that a tool can hold: how long a function is,
//! how many parameters it takes, how types are named, how comments begin, and
//! that no two files use each other.
//!
//! Reads the sources of all four crates; tests are not held to these limits.
#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the syntax of Rust has many parts, and each test is about a few"
)]

mod imports;
mod signatures;
mod sources;
mod text;
