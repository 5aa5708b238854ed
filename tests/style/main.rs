//! The limits of CONTRIBUTING.md that a tool can check: length of functions, number of
//! parameters, names of types, first words of comments, phrases that read as translated,
//! and no cycles between files.
//!
//! Checks the sources of all crates; their tests are held only to the limit on phrases.
#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the syntax of Rust has many parts, and each test is about a few"
)]

mod english;
mod imports;
mod signatures;
mod sources;
mod text;
