//! Engine: parses a robots.txt and judges paths by it.
//!
//! RFC 9309, sections 2.1 and 2.2, and its predecessors ([`Dialect`]). The steps: split a
//! file into tokens (`lines`, `token`); find the groups that bind a crawler (`binding`);
//! rank and index their rules (`rules`, `draft`, `index`); bring a path into canonical form
//! (`canonical`) and look it up.
//!
//! Does not know how a file was fetched, or what applies if it could not be fetched.

mod binding;
mod binding_cache;
mod builder;
mod canonical;
mod dialect;
mod draft;
mod explain;
mod folded;
mod grams;
mod index;
mod lines;
mod marks;
mod pace_records;
mod parsed_file;
mod pattern;
mod rank;
mod records;
mod repair;
mod repaired_binding;
mod robots_txt;
mod rule;
mod rules;
mod rules_by_origin;
mod shape;
#[cfg(test)]
mod tests;
mod token;
mod usage_lines;
mod wild;
mod wildcard;

pub use self::binding::{Binding, Judgement};
pub use self::dialect::{Dialect, UnknownDialect};
pub use self::explain::{JoinedAgents, Outranked};
pub use self::lines::{RuleKind, whole_lines};
pub use self::pace_records::{PaceRecord, PaceScope};
pub use self::pattern::{CanonicalPath, Pattern, ServedPattern};
pub use self::records::{Note, NoteKind, RecordKind, RobotsRecord, seconds};
pub use self::robots_txt::RobotsTxt;
pub use self::rule::Rule;
pub use self::rules_by_origin::RulesByOrigin;
pub use self::usage_lines::{UsageKind, UsageLine, UsageScope};
