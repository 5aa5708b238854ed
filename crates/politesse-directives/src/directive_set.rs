//! Sets of directives in force, each with its sources.
//!
//! Several statements add up, and the strictest value counts. Does not know which
//! crawler a statement binds.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;

use super::vocabulary::{DirectiveValue, NOINDEX, Restriction};

/// Part of a response that states a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DirectiveSource {
    /// The field `Robots-Tag`.
    RobotsTag,
    /// The field `X-Robots-Tag`.
    XRobotsTag,
    /// A `<meta>` element.
    Meta,
}

/// One directive in force (`noindex`, `max-snippet:20`), and its sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// The name and the value.
    pub(super) restriction: Restriction,
    /// Sources that state this value.
    sources: SourceSet,
}

/// Directives in force for one crawler, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectiveSet {
    by_name: BTreeMap<&'static str, Directive>,
}

/// Set of sources, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SourceSet(u8);

impl DirectiveSource {
    /// Every source, in the order of its letter in the field.
    const ALL: [Self; 3] = [Self::RobotsTag, Self::XRobotsTag, Self::Meta];

    /// Returns the letter that names the source in the annotation.
    pub fn letter(self) -> &'static str {
        match self {
            Self::RobotsTag => "r",
            Self::XRobotsTag => "x",
            Self::Meta => "m",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Directive {
    pub(super) fn new(restriction: Restriction, source: DirectiveSource) -> Self {
        Self {
            restriction,
            sources: SourceSet(source.bit()),
        }
    }

    /// Returns the name, in lower case.
    pub fn name(&self) -> &'static str {
        self.restriction.name.as_str()
    }

    /// Returns the sources of the value in force, which is the strictest one.
    pub fn sources(&self) -> impl Iterator<Item = DirectiveSource> + '_ {
        let bits = self.sources.0;
        let sources = DirectiveSource::ALL.into_iter();
        sources.filter(move |source| bits & source.bit() != 0)
    }
}

impl fmt::Display for Directive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.restriction.fmt(f)
    }
}

impl DirectiveSet {
    /// Returns the directives, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Directive> {
        self.by_name.values()
    }

    /// Returns the number of directives in force.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Reports whether the set is empty: nothing is restricted.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Adds a directive. Of two values of a name the stricter stays, with its sources.
    pub(super) fn add(&mut self, added: Directive) {
        let Some(known) = self.by_name.get_mut(added.name()) else {
            self.by_name.insert(added.name(), added);
            return;
        };
        // The stricter value is the smaller one. Only its sources stay: a reader who looks
        // up a source must find the value shown there.
        if added.restriction.value < known.restriction.value {
            *known = added;
        } else if added.restriction.value == known.restriction.value {
            known.sources.0 |= added.sources.0;
        }
    }

    /// Adds the directives of `other`.
    pub(super) fn add_all(&mut self, other: &Self) {
        for directive in other.iter() {
            self.add(directive.clone());
        }
    }

    /// Adds `noindex` if the date of an `unavailable_after` has passed, because the
    /// page must then be dropped from search results.
    pub(super) fn add_expiry(&mut self, now: Timestamp) {
        let expired = self
            .iter()
            .find(|directive| match directive.restriction.value {
                DirectiveValue::Until(instant) => instant <= now,
                DirectiveValue::Stated | DirectiveValue::Limit(_) | DirectiveValue::Preview(_) => {
                    false
                }
            });
        let Some(expired) = expired else { return };
        let sources = expired.sources;
        let restriction = Restriction {
            name: NOINDEX,
            value: DirectiveValue::Stated,
        };
        self.add(Directive {
            restriction,
            sources,
        });
    }
}
