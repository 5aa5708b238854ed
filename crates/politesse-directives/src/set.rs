//! The directives in force, each with where it was said.
//!
//! Several statements add up, and the strictest value counts. Whom a statement
//! binds is not known here.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;

use super::vocabulary::{NOINDEX, Restriction, Value};

/// Where a directive was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The field `Robots-Tag`.
    RobotsTag,
    /// The field `X-Robots-Tag`.
    XRobotsTag,
    /// A `<meta>` element.
    Meta,
}

/// One directive in force (`noindex`, `max-snippet:20`), and where it was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    pub(super) restriction: Restriction,
    sources: Sources,
}

/// The directives in force for one crawler, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectiveSet {
    by_name: BTreeMap<&'static str, Directive>,
}

/// Some of the sources: a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sources(u8);

impl Source {
    /// In the order of their letters in the field.
    const ALL: [Self; 3] = [Self::RobotsTag, Self::XRobotsTag, Self::Meta];

    /// The letter for it in the field.
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
    pub(super) fn new(restriction: Restriction, source: Source) -> Self {
        Self {
            restriction,
            sources: Sources(source.bit()),
        }
    }

    /// The directive's name, in lower case.
    pub fn name(&self) -> &'static str {
        self.restriction.name.as_str()
    }

    /// Where it was said, as strictly as it is in force.
    pub fn sources(&self) -> impl Iterator<Item = Source> + '_ {
        let said = self.sources.0;
        let sources = Source::ALL.into_iter();
        sources.filter(move |source| said & source.bit() != 0)
    }
}

impl fmt::Display for Directive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.restriction.fmt(f)
    }
}

impl DirectiveSet {
    /// The directives in force, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Directive> {
        self.by_name.values()
    }

    /// How many are in force.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether nothing is restricted.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Adds a directive. Of two values the stricter stays, with its sources.
    pub(super) fn add(&mut self, added: Directive) {
        let Some(known) = self.by_name.get_mut(added.name()) else {
            self.by_name.insert(added.name(), added);
            return;
        };
        if added.restriction.value < known.restriction.value {
            *known = added;
        } else if added.restriction.value == known.restriction.value {
            known.sources.0 |= added.sources.0;
        }
    }

    /// Adds all that is in force in `other`.
    pub(super) fn add_all(&mut self, other: &Self) {
        for directive in other.iter() {
            self.add(directive.clone());
        }
    }

    /// Adds what follows from a date that has come: from then on the page is
    /// to be dropped from results, which is what `noindex` says.
    pub(super) fn add_expiry(&mut self, now: Timestamp) {
        let expired = self
            .iter()
            .find(|directive| match directive.restriction.value {
                Value::Until(instant) => instant <= now,
                Value::Stated | Value::Limit(_) | Value::Preview(_) => false,
            });
        let Some(expired) = expired else { return };
        let sources = expired.sources;
        let restriction = Restriction {
            name: NOINDEX,
            value: Value::Stated,
        };
        self.add(Directive {
            restriction,
            sources,
        });
    }
}
