//! Pace: when, and how fast.
//!
//! In reading order, and a module uses only those below it:

pub mod host_pace;

pub mod options;

pub mod schedule;

pub mod terms;

pub mod hosts;

pub mod back_off;

pub mod asked;

pub mod rate;

pub mod request_rate;

pub mod visit_time;
