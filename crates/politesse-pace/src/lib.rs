//! Pace of [politesse](https://crates.io/crates/politesse): when a request may be sent,
//! and how fast requests follow each other.
//!
//! A request asks the [`Scheduler`] for a [`Turn`]. The queue of its host combines the
//! delays that the site asks for, the operator's limits and the host's earlier
//! responses. There the request starts, waits, or is put off with a
//! [`Delay`](politesse_decision::delay::Delay). This crate does not know whether a
//! request may be sent at all.
//!
//! Hours of the day are in UTC. The modules are listed in reading order; each uses only
//! the modules below it.

mod scheduler;

mod turn;

mod host_map;

mod queue;

mod seats;

mod fair_queue;

mod client_turns;

mod host;

mod requisites;

mod request;

mod stall_watch;

mod turn_activity;

mod context;

mod ceilings;

mod ceiling_lines;

pub mod host_pace;

pub mod lease;

pub mod options;

pub mod back_off;

mod schedule;

pub mod fleet_part;

pub mod policy;

mod host_index;

#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use self::request::{
    Destination, Embedding, RobotsFetch, StartEstimate, TurnOwner, TurnRequest, UrlNumber,
};
pub use self::scheduler::Scheduler;
pub use self::seats::Seat;
pub use self::turn::Turn;
pub use self::turn_activity::TurnActivity;
