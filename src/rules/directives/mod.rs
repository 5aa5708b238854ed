//! What a response says about its own use (`noindex`, `max-snippet:20`): from
//! its fields, and from `<meta>` elements in the head of HTML.
//!
//! draft-illyes-repext has two of the directives, vendors' documents the rest.
//! All of them restrict; several statements add up, and the strictest value
//! counts, so that no reading grants what another forbids. A name never opts
//! out of what everyone is told.
//!
//! Nothing is enforced here, and nothing decoded: content codings are the
//! caller's. In reading order, and a module uses only those below it:

mod response;

mod html;

mod tokens;

mod lax;

mod head;

mod blank;

mod nest;

mod found;

mod charset;

mod tag;

mod media_type;

mod reference;

mod annotation;

mod header;

mod segment;

mod vocabulary;

mod date;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

pub use annotation::{Annotation, Source, State, Why};
pub use found::{Meta, Notice};
pub use html::{MetaScanner, MetaScope, Scan, ScanOptions};
pub use media_type::is_html;
pub use response::{Page, Response};

use segment::Scope;
use vocabulary::{NOINDEX, Restriction, Value};

/// Which crawler the directives are read for, when, and how much of a field.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// The crawler's product tokens; none: only what everyone is told counts.
    /// The first names it in the annotation.
    pub tokens: &'a [&'a str],
    /// Decides whether an `unavailable_after` has been reached.
    pub now: Timestamp,
    /// Octets read of a field line. draft-illyes-repext-03 wants 8 KiB or more.
    pub field_limit: usize,
}

/// One directive in force (`noindex`, `max-snippet:20`), and where it was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    restriction: Restriction,
    sources: BTreeSet<Source>,
}

/// The directives in force for one crawler, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectiveSet {
    by_name: BTreeMap<&'static str, Directive>,
}

/// Collects what one response says to one crawler.
#[derive(Debug)]
pub struct Gathering<'a> {
    reading: Reading<'a>,
    directives: DirectiveSet,
    state: State,
    lines: usize,
}

impl Directive {
    /// The directive's name, in lower case.
    pub fn name(&self) -> &'static str {
        self.restriction.name.as_str()
    }

    /// Where it was said, as strictly as it is in force.
    pub fn sources(&self) -> impl Iterator<Item = Source> + '_ {
        self.sources.iter().copied()
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

    /// Whether nothing is restricted.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Adds a directive. Of two values the stricter stays, with its sources.
    fn add(&mut self, added: Directive) {
        let Some(known) = self.by_name.get_mut(added.name()) else {
            self.by_name.insert(added.name(), added);
            return;
        };
        if added.restriction.value < known.restriction.value {
            *known = added;
        } else if added.restriction.value == known.restriction.value {
            known.sources.extend(added.sources);
        }
    }

    /// Adds what follows from a date that has come: from then on the page is
    /// to be dropped from results, which is what `noindex` says.
    fn add_expiry(&mut self, now: Timestamp) {
        let expired = self
            .iter()
            .find(|directive| match directive.restriction.value {
                Value::Until(instant) => instant <= now,
                Value::Stated | Value::Limit(_) | Value::Preview(_) => false,
            });
        let Some(expired) = expired else { return };
        let sources = expired.sources.clone();
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

impl<'a> Gathering<'a> {
    /// Field lines read of one response; more make it partial.
    pub const LINES_MAX: usize = 64;

    /// Begins with a response that says nothing.
    pub fn new(reading: Reading<'a>) -> Self {
        Self {
            reading,
            directives: DirectiveSet::default(),
            state: State::Complete,
            lines: 0,
        }
    }

    /// Takes in a field line, one at a time and as received. Fields of other
    /// names say nothing.
    pub fn field(&mut self, name: &str, value: &[u8]) {
        let source = if name.eq_ignore_ascii_case("robots-tag") {
            Source::RobotsTag
        } else if name.eq_ignore_ascii_case("x-robots-tag") {
            Source::XRobotsTag
        } else {
            return;
        };
        if self.lines == Self::LINES_MAX {
            return self.miss(Why::FieldLimit);
        }
        self.lines += 1;
        let line = header::Line::within(self.reading.field_limit, value);
        let said = line.read();
        for statement in said.statements {
            self.state_to(statement.scope, statement.restriction, source);
        }
        if let Some(why) = line.why() {
            self.miss(why);
        }
        if said.suspect.is_some_and(|scope| !self.binds(scope)) {
            self.miss(Why::Joined);
        }
    }

    /// Takes in a `<meta>` element of the head.
    pub fn meta(&mut self, meta: &Meta) {
        let name = segment::trimmed(&meta.name);
        let scope = if name.eq_ignore_ascii_case("robots") {
            Scope::Everyone
        } else {
            Scope::Agent(name)
        };
        for restriction in segment::read_content(&meta.content) {
            self.state_to(scope, restriction, Source::Meta);
        }
    }

    /// Takes in what a scanner found. One that has not ended makes the
    /// response partial.
    pub fn scanned(&mut self, scanner: &MetaScanner) {
        for meta in scanner.metas() {
            self.meta(meta);
        }
        if scanner.outcome() != Scan::Done {
            self.miss(Why::HeadLimit);
        }
    }

    /// Notes that not all was looked at. The first reason stays.
    pub fn miss(&mut self, why: Why) {
        if self.state == State::Complete {
            self.state = State::Partial(why);
        }
    }

    /// Notes a failure of ours: nothing that was gathered can be relied upon.
    pub fn fail(&mut self) {
        self.state = State::Unknown;
    }

    /// What has been gathered.
    pub fn annotation(self) -> Annotation {
        let mut directives = self.directives;
        directives.add_expiry(self.reading.now);
        Annotation {
            token: self.reading.tokens.first().map(ToString::to_string),
            directives,
            state: self.state,
        }
    }

    fn state_to(&mut self, scope: Scope<'_>, restriction: Restriction, source: Source) {
        if self.binds(scope) {
            self.directives.add(Directive {
                restriction,
                sources: BTreeSet::from([source]),
            });
        }
    }

    /// Whether what is said to this scope binds the crawler. Tokens are equal
    /// or not: none is part of another (RFC 9309, section 2.2.1).
    fn binds(&self, scope: Scope<'_>) -> bool {
        match scope {
            Scope::Everyone => true,
            Scope::Agent(name) => {
                let mut tokens = self.reading.tokens.iter();
                tokens.any(|token| token.eq_ignore_ascii_case(name))
            }
        }
    }
}

#[cfg(test)]
mod tests;
