//! A pattern as servers read paths: a reserved byte and its escape count as the
//! same in the path as well as in the query (`/a:b`, `/a%3Ab`).
//!
//! For patterns that refuse; one that allows matches as it is written. The rules
//! of a robots.txt are not compared here: they have an index.

use super::canonical::{Buffer, Fold, fold, query_start};
use super::dialect::Dialect;
use super::pattern::{CanonicalPath, FoldedPath, FoldedPattern};
use super::wildcard::Fuel;

/// A pattern that matches a path in either form of its reserved bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedPattern(FoldedPattern);

impl ServedPattern {
    /// Reads a pattern; `None` if it begins with neither `/` nor `*`.
    #[must_use]
    pub fn new(value: &[u8]) -> Option<Self> {
        FoldedPattern::everywhere(value, Dialect::Rfc9309.traits()).map(Self)
    }

    /// Whether the pattern matches `path`.
    #[must_use]
    pub fn matches(&self, path: &CanonicalPath) -> bool {
        let path = path.as_bytes();
        let mut folded = Buffer::new();
        fold(path, query_start(path), Fold::Everywhere, &mut folded);
        self.0
            .matches(FoldedPath::new(&folded), &mut { Fuel::FULL })
    }
}
