//! Layer 0: what an origin said, and what follows.
//!
//! Invariant 5: no IO, no clock, no async here. Time is an argument, parsing
//! never fails, and everything is tested as data in, verdict out.
//!
//! Reading order: [`record`], [`decide`], [`evidence`], [`ruling`], [`policy`],
//! [`overrides`], [`inquiry`], [`snapshot`], [`access`], [`delay`], [`reason`],
//! [`digest`]. A module uses only those behind it.

pub mod access;
pub mod decide;
pub mod delay;
pub mod digest;
pub mod evidence;
pub mod inquiry;
pub mod overrides;
pub mod policy;
pub mod reason;
pub mod record;
pub mod ruling;
pub mod snapshot;
