//! Overrides: entries by which the operator allows or denies URLs in place of
//! robots.txt.
//!
//! An override is for one origin or the names below one, and may be limited to
//! one crawler and some paths; an allow always has an end. Does not know what
//! robots.txt says: `ruling` applies an override to that.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use politesse_robots::crawler::{Crawler, InvalidToken, ProductToken};
use politesse_robots::origin::{Host, InvalidTarget, Origin};
use politesse_robots::{CanonicalPath, Pattern, ServedPattern};

/// Entry of the operator's list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "OverrideText", into = "OverrideText")]
pub struct Override {
    /// Origins that it is for.
    pub origin: Origins,
    /// Crawler that it is for, by any of its candidate tokens; absent if for all.
    pub agent: Option<ProductToken>,
    /// Paths that it is for; absent if for all.
    pub path: Option<Paths>,
    /// Action, and its end.
    pub action: Action,
    /// Reason, in the operator's words.
    pub reason: String,
}

/// Action of an override. At its end the override is no longer in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The URLs may be fetched. Leave that never ends is soon forgotten, so
    /// there is none.
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
    /// Returns its word in the configuration and in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow { .. } => "allow",
            Self::Deny { .. } => "deny",
        }
    }

    /// Returns its end, if it has one.
    pub fn until(self) -> Option<Timestamp> {
        match self {
            Self::Allow { until } => Some(until),
            Self::Deny { until } => until,
        }
    }
}

/// Origins that an override is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origins {
    /// `https://site.example`: one origin.
    One(Origin),
    /// `*.site.example`: every origin at a name below this one, whatever its
    /// scheme and port. The name itself is not among them.
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

/// Paths that an override is for: a pattern as in robots.txt (RFC 9309, section
/// 2.2.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    text: String,
    pattern: Pattern,
    served: ServedPattern,
}

impl Paths {
    /// Reads a pattern; `None` if it begins with neither `/` nor `*` (and
    /// could match no path), or holds a control character.
    pub fn new(text: &str) -> Option<Self> {
        // A path begins with `/`, so any other pattern would be an entry that
        // never counts, and nobody would know.
        let can_match = text.starts_with(['/', '*']) && !text.contains(char::is_control);
        let pattern = Pattern::new(text.as_bytes()).filter(|_| can_match)?;
        Some(Self {
            text: text.to_owned(),
            pattern,
            served: ServedPattern::new(text.as_bytes())?,
        })
    }

    /// Returns the pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Path that a request may mean, with the verdict of robots.txt on it.
#[derive(Debug)]
pub struct JudgedPath {
    /// Path.
    pub path: CanonicalPath,
    /// Whether robots.txt disallows it.
    pub disallowed: bool,
}

/// Request, as far as overrides depend on it.
#[derive(Debug)]
pub struct OverrideQuery<'a> {
    /// Origin of the URL.
    pub origin: &'a Origin,
    /// Crawler that asks for it.
    pub crawler: &'a Crawler,
    /// Path as sent, then the other readings of it that servers take.
    pub readings: Vec<JudgedPath>,
    /// Time of the decision.
    pub at: Timestamp,
}

/// Returns the override that counts, with the index of the reading that it fits
/// by.
///
/// For each reading of the path the first override in force that fits it counts.
/// Doubt about the path refuses: a deny of any reading counts, and an allow
/// needs the path as sent and every reading that robots.txt disallows.
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
    // Denies come first: one reading that the operator denies is enough
    // (docs/decisions/007-doubt-refuses.md).
    if let Some(index) = entries.iter().position(denies) {
        return Some((entries[index]?, index));
    }
    let mut readings = std::iter::zip(&entries, &query.readings).enumerate();
    let allowed = readings.all(|(index, (entry, reading))| {
        // A reading that robots.txt allows needs no leave.
        let is_needed = index == 0 || reading.disallowed;
        !is_needed || entry.is_some()
    });
    let entry = entries.first().copied().flatten();
    entry.filter(|_| allowed).map(|entry| (entry, 0))
}

impl Override {
    /// Reports whether it is no longer in force at `at`. The end itself is not
    /// in it.
    pub fn has_ended(&self, at: Timestamp) -> bool {
        self.action.until().is_some_and(|end| end <= at)
    }

    fn concerns(&self, query: &OverrideQuery<'_>) -> bool {
        let crawler = query.crawler;
        // A name that is only sent may be denied something, but gives no leave to
        // a crawler that has proved another.
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

    /// Matches as an Allow line of robots.txt does.
    fn allows(&self, path: &CanonicalPath) -> bool {
        let matches = |paths: &Paths| paths.pattern.matches(path);
        self.path.as_ref().is_none_or(matches)
    }

    /// Matches as a Disallow line does, in either form of its reserved bytes. That
    /// holds at every level of `robots.readings`, which is about what a site may
    /// have meant, not about what the operator wrote.
    fn denies(&self, path: &CanonicalPath) -> bool {
        let served = |paths: &Paths| paths.served.matches(path);
        self.allows(path) || self.path.as_ref().is_some_and(served)
    }
}

/// Override in the JSON of a policy, with the keys of the configuration.
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

/// Error in the JSON of an override: it was changed by another hand, or written
/// by a later version.
#[derive(Debug, Error)]
pub enum InvalidOverride {
    /// The origin is none.
    #[error("its origin cannot be read")]
    Origin(#[from] InvalidTarget),
    /// The agent is no token.
    #[error("its agent cannot be read")]
    Agent(#[from] InvalidToken),
    /// The path is no pattern.
    #[error("its path {0:?} is no pattern")]
    Path(String),
    /// The end is no time.
    #[error("its end cannot be read")]
    Until(#[from] jiff::Error),
    /// Neither an allow with an end nor a deny.
    #[error("its action is {0:?}, with or without an end")]
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
