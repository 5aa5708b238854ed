//! Tests of the engine against its cases, and against a naive reference that shares no code
//! with it.
#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

#[path = "../reference/mod.rs"]
mod reference;

mod cases;
mod engine_reference;
mod reference_cases;
mod robots_cases;
