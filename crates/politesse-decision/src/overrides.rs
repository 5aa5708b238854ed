//! Overrides: entries with which the operator allows or denies URLs regardless of
//! robots.txt.
//!
//! An override applies to one origin or to the subdomains of a name. It may be limited to
//! one crawler and to some paths; an allow always has an end. Does not know robots.txt:
//! `ruling` applies overrides to its verdict.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use politesse_robots::crawler::{Crawler, InvalidToken, ProductToken};
use politesse_robots::origin::{Host, InvalidTarget, Origin};
use politesse_robots::{CanonicalPath, Pattern, ServedPattern};

/// Entry of the operator's list of overrides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "OverrideText", into = "OverrideText")]
pub struct Override {
    /// Origins that the override applies to.
    pub origin: Origins,
    /// Crawler that the override applies to, named by any of its candidate tokens; `None`
    /// for all.
    pub agent: Option<ProductToken>,
    /// Paths that the override applies to; `None` for all.
    pub path: Option<Paths>,
    /// Action, with the end of the override.
    pub action: Action,
    /// Reason, in the operator's words.
    pub reason: String,
}

/// Action of an override, with its end: the time from which it is no longer in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The URLs may be fetched. An allow must have an end: a permission without one
    /// would soon be forgotten.
    Allow {
        /// End of the override.
        until: Timestamp,
    },
    /// The URLs may not be fetched.
    Deny {
        /// End of the override, if it has one.
        until: Option<Timestamp>,
    },
}

impl Action {
    /// Returns the word used in the configuration and in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow { .. } => "allow",
            Self::Deny { .. } => "deny",
        }
    }

    /// Returns the end of the override, if it has one.
    pub fn until(self) -> Option<Timestamp> {
        match self {
            Self::Allow { until } => Some(until),
            Self::Deny { until } => until,
        }
    }
}

/// Origins that an override applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origins {
    /// `https://site.example`: one origin.
    One(Origin),
    /// `*.site.example`: every origin at a subdomain of this name, with any scheme and
    /// port. The name itself is not included.
    Below(Arc<str>),
}

impl Origins {
    fn contain(&self, origin: &Origin) -> bool {
        match self {
            Self::One(one) => one == origin,
            Self::Below(name) => origin.host().is_below(name),
        }
    }
}

impl FromStr for Origins {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        if let Some(name) = Host::below(text)? {
            return Ok(Self::Below(name));
        }
        let (scheme, authority) = text.split_once("://").ok_or(InvalidTarget::Scheme)?;
        Origin::new(scheme.parse()?, authority).map(Self::One)
    }
}

impl fmt::Display for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(origin) => origin.fmt(f),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

/// Paths that an override applies to: a pattern as in robots.txt (RFC 9309, section
/// 2.2.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    text: String,
    pattern: Pattern,
    served: ServedPattern,
}

impl Paths {
    /// Parses a pattern; `None` if it begins with neither `/` nor `*`, or contains a
    /// control character.
    pub fn new(text: &str) -> Option<Self> {
        // A path begins with `/`. Any other pattern would silently never match.
        let can_match = text.starts_with(['/', '*']) && !text.contains(char::is_control);
        let pattern = Pattern::new(text.as_bytes()).filter(|_| can_match)?;
        Some(Self {
            text: text.to_owned(),
            pattern,
            served: ServedPattern::new(text.as_bytes())?,
        })
    }

    /// Returns the pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// One reading of the path of a request, with the verdict of robots.txt on it.
#[derive(Debug)]
pub struct JudgedPath {
    /// Path of this reading.
    pub path: CanonicalPath,
    /// Whether robots.txt disallows it.
    pub disallowed: bool,
}

/// Parts of a request that overrides depend on.
#[derive(Debug)]
pub struct OverrideQuery<'a> {
    /// Origin of the URL.
    pub origin: &'a Origin,
    /// Crawler that asks for it.
    pub crawler: &'a Crawler,
    /// Path as sent, then the other ways in which servers may read it.
    pub readings: Vec<JudgedPath>,
    /// Time of the decision.
    pub at: Timestamp,
}

/// Returns the override that applies, with the index of the reading that it matches.
///
/// For each reading of the path, the first matching override in force counts. Doubt about
/// the path refuses: a deny applies if it matches any reading; an allow applies only if
/// the path as sent and every reading that robots.txt disallows match one.
pub fn first<'a>(
    overrides: &'a [Override],
    query: &OverrideQuery<'_>,
) -> Option<(&'a Override, usize)> {
    let concerned = |entry: &&Override| entry.concerns(query);
    let first_for = |reading: &JudgedPath| {
        let mut entries = overrides.iter().filter(concerned);
        entries.find(|entry| entry.fits(&reading.path))
    };
    let entries: Vec<_> = query.readings.iter().map(first_for).collect();
    let denies = |entry: &Option<&Override>| entry.is_some_and(Override::is_deny);
    // Denies come first: a single denied reading is enough
    // (docs/decisions/007-doubt-refuses.md).
    if let Some(index) = entries.iter().position(denies) {
        return Some((entries[index]?, index));
    }
    let mut readings = std::iter::zip(&entries, &query.readings).enumerate();
    let allowed = readings.all(|(index, (entry, reading))| {
        // A reading that robots.txt allows needs no override.
        let is_needed = index == 0 || reading.disallowed;
        !is_needed || entry.is_some()
    });
    let entry = entries.first().copied().flatten();
    entry.filter(|_| allowed).map(|entry| (entry, 0))
}

impl Override {
    /// Reports whether the override is no longer in force at `at`. At the end itself it
    /// is not.
    pub fn has_ended(&self, at: Timestamp) -> bool {
        self.action.until().is_some_and(|end| end <= at)
    }

    fn concerns(&self, query: &OverrideQuery<'_>) -> bool {
        let crawler = query.crawler;
        // A crawler with a proven name may also send other names. Those can match a
        // deny, but never an allow.
        let names = |token: &ProductToken| {
            crawler.candidates().contains(token)
                || self.is_deny() && crawler.unlisted().contains(token)
        };
        !self.has_ended(query.at)
            && self.origin.contain(query.origin)
            && self.agent.as_ref().is_none_or(names)
    }

    fn is_deny(&self) -> bool {
        matches!(self.action, Action::Deny { .. })
    }

    fn fits(&self, path: &CanonicalPath) -> bool {
        if self.is_deny() {
            self.denies(path)
        } else {
            self.allows(path)
        }
    }

    /// Matches the way an Allow line of robots.txt does.
    fn allows(&self, path: &CanonicalPath) -> bool {
        let matches = |paths: &Paths| paths.pattern.matches(path);
        self.path.as_ref().is_none_or(matches)
    }

    /// Matches the way a Disallow line does, with reserved bytes either escaped or not.
    ///
    /// Independent of `robots.readings`: that setting interprets the files of sites, not
    /// the patterns of the operator.
    fn denies(&self, path: &CanonicalPath) -> bool {
        let served = |paths: &Paths| paths.served.matches(path);
        self.allows(path) || self.path.as_ref().is_some_and(served)
    }
}

/// JSON form of an override in a policy, with the keys of the configuration.
#[derive(Serialize, Deserialize)]
struct OverrideText {
    origin: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    action: String,
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

/// Invalid JSON of an override. It was modified by something other than this program, or
/// written by a later version.
#[derive(Debug, Error)]
pub enum InvalidOverride {
    /// The origin is malformed.
    #[error("its origin cannot be read")]
    Origin(#[from] InvalidTarget),
    /// The agent is not a product token.
    #[error("its agent cannot be read")]
    Agent(#[from] InvalidToken),
    /// The path is not a pattern.
    #[error("its path {0:?} is not a pattern")]
    Path(String),
    /// The end is not a timestamp.
    #[error("its end cannot be read")]
    Until(#[from] jiff::Error),
    /// The action is neither `allow` with an end nor `deny`.
    #[error("its action {0:?} is unknown, or is an allow without an end")]
    Action(String),
}

impl From<Override> for OverrideText {
    fn from(entry: Override) -> Self {
        Self {
            origin: entry.origin.to_string(),
            agent: entry.agent.map(|token| token.to_string()),
            path: entry.path.map(|paths| paths.text),
            action: entry.action.as_str().to_owned(),
            reason: entry.reason,
            until: entry.action.until().map(|end| end.to_string()),
        }
    }
}

impl TryFrom<OverrideText> for Override {
    type Error = InvalidOverride;

    fn try_from(written: OverrideText) -> Result<Self, InvalidOverride> {
        let until = written.until.map(|end| end.parse()).transpose()?;
        let action = match (written.action.as_str(), until) {
            ("allow", Some(until)) => Action::Allow { until },
            ("deny", until) => Action::Deny { until },
            _ => return Err(InvalidOverride::Action(written.action)),
        };
        let path = match written.path {
            Some(text) => Some(Paths::new(&text).ok_or(InvalidOverride::Path(text))?),
            None => None,
        };
        let agent = written.agent.as_deref().map(ProductToken::new);
        Ok(Self {
            origin: written.origin.parse()?,
            agent: agent.transpose()?,
            path,
            action,
            reason: written.reason,
        })
    }
}

#[cfg(test)]
mod tests;
