//! Decision logic of [politesse](https://crates.io/crates/politesse): decides from an
//! origin's robots.txt and the operator's policy whether a request may be sent.
//!
//! Invariant 5 (ARCHITECTURE.md): no IO, no clock, no async here. Time is an
//! argument, parsing never fails, and every test passes data in and checks the
//! verdict.
//!
//! The modules are listed in reading order. A module uses only modules listed below
//! it (`tests/it/layering.rs`).

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
