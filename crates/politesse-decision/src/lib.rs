//! Decision of [politesse](https://crates.io/crates/politesse): what an origin said, and
//! what follows for one request.
//!
//! Invariant 5 (ARCHITECTURE.md): no IO, no clock, no async here. Time is an
//! argument, parsing never fails, and everything is tested as data in, verdict
//! out.
//!
//! In reading order; a module uses only those below it (`tests/it/layering.rs`):

pub mod again;

pub mod row_json;

pub mod class;
pub mod outcome;

pub mod record;

pub mod decide;

pub mod evidence;

pub mod ruling;

pub mod policy;

pub mod preferences;
pub mod withholding;

pub mod overrides;

pub mod tls_exception;

pub mod inquiry;

pub mod label;

pub mod snapshot;

pub mod tdm;

pub mod access;

pub mod delay;

pub mod back_off;

pub mod reason;

pub mod digest;
