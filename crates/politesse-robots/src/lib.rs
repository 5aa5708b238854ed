//! A robots.txt engine: RFC 9309 and the texts before it.
//!
//! [`RobotsTxt::parse`] reads a file, [`RobotsTxt::binding`] finds the groups
//! that bind a crawler, [`Binding::judge`] the rule that decides a path.

pub mod crawler;
mod engine;
pub mod origin;
mod pace;
pub mod reading;

pub use engine::*;
pub use origin::path_of;
pub use pace::{PaceRecords, PauseRecord, RequestRate, VisitTime};
