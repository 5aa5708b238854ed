//! Tests of the directive reader against its cases and against a browser's parser.
#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod codings;
mod cost;
mod damaged_lists;
mod directive_case;
mod directive_cases;
mod meta_reference;
mod properties;
mod purposes;
