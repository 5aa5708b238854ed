//! A robots.txt: who it speaks to, and which of its rules counts for a path.
//!
//! RFC 9309, sections 2.1 and 2.2. [`RobotsTxt::binding`] finds the groups that
//! bind a crawler (section 2.2.1), [`Binding::rule`] the rule among theirs that
//! counts (section 2.2.2). Every rule keeps its line, so that a verdict can
//! name it.
//!
//! Not known here: how the file was got, what follows when it was not, and that
//! /robots.txt itself is always allowed.

pub mod access;
mod parse;
mod pattern;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::fmt;

pub use self::pattern::{CanonicalPath, Pattern};
use crate::rules::crawler::{Crawler, ProductToken};

/// A robots.txt as read: its groups, and what was odd about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RobotsTxt {
    groups: Vec<Group>,
    notes: Vec<Note>,
    sitemaps: Vec<String>,
}

/// One or more agent lines and the rules that follow them (RFC 9309, section
/// 2.1).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Whom the group is for.
    pub agents: Vec<Agent>,
    /// Its rules in file order, without those whose pattern is empty.
    pub rules: Vec<Rule>,
    /// The pauses it asks for. RFC 9309 leaves them to the crawler (section
    /// 2.2.4); like rules, they bind only the crawlers of their group.
    pub crawl_delays: Vec<DelayLine>,
}

/// An agent line (RFC 9309, section 2.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The value as written.
    pub name: String,
    /// From 1.
    pub line: u32,
}

/// A Crawl-delay line with a value that can be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayLine {
    /// Finite, not negative.
    pub seconds: f64,
    /// From 1.
    pub line: u32,
}

/// An Allow or Disallow line (RFC 9309, section 2.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which of the two.
    pub kind: RuleKind,
    /// From 1.
    pub line: u32,
    /// The line as written, without byte order mark, comment and outer blanks;
    /// invalid UTF-8 replaced.
    pub text: String,
    /// The paths it speaks of.
    pub pattern: Pattern,
}

/// What a rule says of the paths it matches. The order is that of precedence:
/// of two rules as specific as each other, allow counts (RFC 9309, section
/// 2.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleKind {
    /// They may be fetched.
    Allow,
    /// They may not.
    Disallow,
}

/// Something on a line that its author may want to know of. It changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// From 1.
    pub line: u32,
    /// What it is.
    pub kind: NoteKind,
}

/// What a [`Note`] is about; its `Display` is a sentence on the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoteKind {
    /// No name, colon and value.
    NotARecord,
    /// A name that means nothing to us (RFC 9309, section 2.2.4).
    UnknownRecord,
    /// A name that was understood although it is written wrong.
    Misspelt,
    /// An agent line without a value.
    NamesNobody,
    /// A line that needs a group and has none above it (RFC 9309, section
    /// 2.2.2).
    OutsideGroup,
    /// A pattern that begins with neither `/` nor `*`.
    NeverMatches,
    /// An agent line that shares the rules below with the agents above, because
    /// only a rule ends their list (RFC 9309, section 2.2.4). Where one of them
    /// is `*`, rules meant for one crawler bind all.
    JoinsGroup,
    /// A `noindex` line; it is reported, never in force.
    Noindex,
    /// A Crawl-delay that is not a number of seconds.
    InvalidCrawlDelay,
}

impl RobotsTxt {
    /// How much of a file has to be read at least, in octets (RFC 9309, section
    /// 2.5: 500 KiB).
    pub const BYTES_MIN: usize = 512_000;

    /// Reads a file, all of it. Never fails: what cannot be read becomes a note
    /// (RFC 9309, section 2.3.1.5).
    #[must_use]
    pub fn parse(body: &[u8]) -> Self {
        parse::read(body)
    }

    /// The groups that bind `crawler` (RFC 9309, section 2.2.1): all those that
    /// name the first of its candidates that is named at all, else all those
    /// of `*`, else none.
    #[must_use]
    pub fn binding<'a>(&'a self, crawler: &Crawler) -> Binding<'a> {
        for token in crawler.candidates() {
            let groups = self.groups_with(|agent| token.is_named_by(&agent.name));
            if !groups.is_empty() {
                let token = Some(token.clone());
                return Binding { token, groups };
            }
        }
        Binding {
            token: None,
            groups: self.groups_with(Agent::is_everyone),
        }
    }

    fn groups_with(&self, binds: impl Fn(&Agent) -> bool) -> Vec<&Group> {
        let bound = |group: &&Group| group.agents.iter().any(&binds);
        self.groups.iter().filter(bound).collect()
    }

    /// The groups in file order.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// What was odd, in file order.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The values of the Sitemap lines, which belong to no group.
    #[must_use]
    pub fn sitemaps(&self) -> &[String] {
        &self.sitemaps
    }
}

/// `body` cut to at most `max` octets at a line end: what is kept, hashed and
/// parsed of a larger file (RFC 9309, section 2.5).
///
/// A cut line is dropped, since its beginning is a wider rule than the whole.
#[must_use]
pub fn whole_lines(body: &[u8], max: usize) -> &[u8] {
    let is_line_end = |octet: &u8| matches!(octet, b'\r' | b'\n');
    let Some((kept, rest)) = body.split_at_checked(max) else {
        return body;
    };
    if rest.first().is_none_or(is_line_end) {
        return kept;
    }
    let end = kept
        .iter()
        .rposition(is_line_end)
        .map_or(0, |last| last + 1);
    kept.get(..end).unwrap_or_default()
}

/// The groups that bind one crawler, read as one (RFC 9309, section 2.2.1).
#[derive(Clone, Debug)]
pub struct Binding<'a> {
    token: Option<ProductToken>,
    groups: Vec<&'a Group>,
}

impl<'a> Binding<'a> {
    /// The candidate that was bound; `None` when `*` binds, or nothing.
    #[must_use]
    pub fn token(&self) -> Option<&ProductToken> {
        self.token.as_ref()
    }

    /// Whether any group binds. If none does, no rules apply.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The rule that counts for a path with its query, octets as sent; `None`
    /// if no rule matches (RFC 9309, section 2.2.2: then it is allowed).
    #[must_use]
    pub fn rule(&self, path: &str) -> Option<&'a Rule> {
        let path = CanonicalPath::new(path);
        let mut first: Option<&'a Rule> = None;
        for rule in self.rules() {
            let precedes = first.is_none_or(|first| rule.precedence() < first.precedence());
            if precedes && rule.matches(&path) {
                first = Some(rule);
            }
        }
        first
    }

    /// All rules that match the path, the one that counts first.
    #[must_use]
    pub fn competing(&self, path: &str) -> Vec<&'a Rule> {
        let path = CanonicalPath::new(path);
        let mut matching: Vec<_> = self.rules().filter(|rule| rule.matches(&path)).collect();
        matching.sort_by_key(|rule| rule.precedence());
        matching
    }

    /// Whom the group of `rule` is for, in lower case; without a rule, whom all
    /// the groups that bind are for. `["*"]` for the group of everyone, empty if
    /// nothing binds.
    #[must_use]
    pub fn names_for(&self, rule: Option<&Rule>) -> Vec<String> {
        if self.token.is_none() {
            return self.groups.iter().take(1).map(|_| "*".to_owned()).collect();
        }
        let mut names = Vec::new();
        for group in &self.groups {
            let holds = |rule: &Rule| group.rules.iter().any(|own| own.line == rule.line);
            if rule.is_none_or(holds) {
                names.extend(
                    group
                        .agents
                        .iter()
                        .map(|agent| agent.name.to_ascii_lowercase()),
                );
            }
        }
        without_repeats(names)
    }

    /// The pause asked for, in seconds: the longest that any of the groups
    /// names.
    #[must_use]
    pub fn crawl_delay(&self) -> Option<f64> {
        let delays = self.groups.iter().flat_map(|group| &group.crawl_delays);
        delays.map(|delay| delay.seconds).max_by(f64::total_cmp)
    }

    fn rules(&self) -> impl Iterator<Item = &'a Rule> {
        self.groups.iter().flat_map(|group| &group.rules)
    }
}

impl Rule {
    /// Whether the rule speaks of `path`. A Disallow also does in the folded
    /// form of the query, an Allow does not: a doubt must not allow.
    fn matches(&self, path: &CanonicalPath) -> bool {
        self.pattern.matches(path)
            || (self.kind == RuleKind::Disallow && self.pattern.matches_folded(path))
    }

    /// The least counts: most octets, then allow (RFC 9309, section 2.2.2), then
    /// the first in the file.
    fn precedence(&self) -> (Reverse<usize>, RuleKind, u32) {
        (Reverse(self.pattern.len()), self.kind, self.line)
    }
}

impl Agent {
    /// Whether this is the `*` line, with or without words behind it.
    fn is_everyone(&self) -> bool {
        self.name.split([' ', '\t']).next() == Some("*")
    }
}

fn without_repeats(names: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    names
        .into_iter()
        .filter(|name| seen.insert(name.clone()))
        .collect()
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Disallow => "disallow",
        })
    }
}

impl fmt::Display for NoteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotARecord => "not a record: a name, a colon and a value are wanted",
            Self::UnknownRecord => "a record that means nothing here",
            Self::Misspelt => "a misspelt record, understood all the same",
            Self::NamesNobody => "an agent line that names nobody",
            Self::OutsideGroup => "no agent line above it, so it binds nobody",
            Self::NeverMatches => "a path that begins with neither / nor *, so it matches nothing",
            Self::JoinsGroup => {
                "the agents above share the rules below: the line between is not a rule"
            }
            Self::Noindex => "noindex in robots.txt is not in force",
            Self::InvalidCrawlDelay => "a delay that is not a number of seconds",
        })
    }
}
