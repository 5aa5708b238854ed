//! Pace: when, and how fast. What a site asks for, what the operator lays
//! down, and what becomes of the two; none of it says whether.
//!
//! A *moment* here is a time since some start of the process, since clocks are
//! set back; the hours of the day are those of UTC. Who waits where is
//! `origins`' part.
//!
//! In reading order, and a module uses only those below it:

pub mod scheduler;

pub mod host_pace;

pub mod back_off_event;

pub mod options;

pub mod schedule;

pub mod policy;

pub mod host_pattern;

pub mod back_off;

pub mod rate;

pub use self::scheduler::{
    BackOffListener, Later, RobotsFetch, Scheduler, Seat, Turn, TurnRequest,
};
