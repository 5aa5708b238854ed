//! The engine: reading a robots.txt and judging a path by it.
//!
//! RFC 9309, sections 2.1 and 2.2, and the texts before it ([`Dialect`]). A
//! file is read into tokens (`lines`, `token`); the groups that bind a crawler
//! are found (`binding`), their rules weighed and indexed (`rules`, `draft`,
//! `index`); a path is brought into canonical form (`canonical`) and looked up.
//!
//! Does not know how a file was fetched, nor what follows when it was not.

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
