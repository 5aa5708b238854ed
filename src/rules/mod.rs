//! Layer 0: what an origin said, and what follows.
//!
//! Invariant 5: no IO, no clock, no async here. Time is an argument, parsing
//! never fails, and everything is tested as data in, verdict out.
//!
//! In reading order, and a module uses only those below it:

pub mod record;

pub mod decision;

pub mod receipt;

pub mod policy;

pub mod ruling;

pub mod directives;

pub mod preferences;

pub mod pace;

pub mod overrides;

pub mod robots;

pub mod identity;

pub mod crawler;

pub mod reading;

pub mod origin;

pub mod digest;
