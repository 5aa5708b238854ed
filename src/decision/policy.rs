//! Policy: the settings of the operator that decisions depend on.
//!
//! A policy is stored as JSON beside the decisions made by it, under its SHA-256,
//! so that they can be made again. The JSON names the engine's [`Revision`] as
//! well. Does not know how a policy is applied: that is in `ruling`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::overrides::{Action, Override};
use politesse_robots::Dialect;

/// Revision of the engine that decided: of all code that a verdict depends on
/// besides its inputs.
///
/// Raised by every change that alters a verdict under the same settings. If a
/// decision comes out otherwise when it is made again, that is a sign of
/// tampering only where the revisions are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(u32);

impl Revision {
    /// Revision of a stored policy without one, from before there were any.
    pub const FIRST: Self = Self(1);

    /// Revision of this engine.
    // Raised together with any change that turns a verdict, such as a new row
    // in the readings of servers (docs/decisions/007-doubt-refuses.md).
    pub const CURRENT: Self = Self(2);

    fn first() -> Self {
        Self::FIRST
    }

    fn is_first(&self) -> bool {
        *self == Self::FIRST
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Meaning of a 401 or 403 for robots.txt (`robots.status.unauthorized`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unauthorized {
    /// No rules, as for any other 4xx (RFC 9309, section 2.3.1.3).
    Allow,
    /// Access to everything is restricted (the draft of 1996, section 3.1).
    Refuse,
}

/// Readings of a path that are judged (`robots.readings`). Each level judges what
/// the one before it does, and refuses if any reading is disallowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readings {
    /// The URL as sent: the verdict of the standard.
    Sent,
    /// Also the URL without its dot segments (RFC 3986, section 5.2.4).
    Dots,
    /// Also the other paths that ordinary servers take a URL for, and a Disallow
    /// with the escapes of its reserved bytes decoded.
    #[default]
    Server,
}

/// Groups that bind a crawler with several candidate tokens
/// (`enforcement.candidates`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Candidates {
    /// The groups of the first candidate that has any.
    #[default]
    First,
    /// The groups of every candidate that has any: each must allow the URL.
    All,
}

/// Treatment of a request that the decision disallows (`enforcement.mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnforcementMode {
    /// The request is refused.
    #[default]
    Enforce,
    /// The request is forwarded, and the decision record says that it would
    /// have been refused: for finding out what enforcing would cost.
    Report,
}

impl EnforcementMode {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Candidates {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Settings of the operator that decisions depend on.
#[derive(Debug, Clone)]
pub struct Policy {
    terms: PolicyTerms,
    json: String,
    digest: Digest,
}

/// Values of a policy.
///
/// Fields that are younger than the first version are left out of the JSON where
/// they have the default, so that the policies of earlier versions can be read
/// and keep their digest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PolicyTerms {
    #[serde(
        default = "Revision::first",
        skip_serializing_if = "Revision::is_first"
    )]
    pub(super) revision: Revision,
    // These two are as old as the audit record: every policy in it has them.
    pub(super) unauthorized: Unauthorized,
    pub(super) readings: Readings,
    #[serde(default, skip_serializing_if = "Dialect::is_default")]
    pub(super) dialect: Dialect,
    #[serde(default, skip_serializing_if = "Candidates::is_default")]
    pub(super) candidates: Candidates,
    #[serde(default, skip_serializing_if = "EnforcementMode::is_default")]
    pub(super) mode: EnforcementMode,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) overrides: Vec<Override>,
}

impl PolicyTerms {
    /// Whether a 401 or 403 for robots.txt closes the origin, by the setting or by
    /// the dialect.
    pub(super) fn refuses_unauthorized(&self) -> bool {
        self.unauthorized == Unauthorized::Refuse || self.dialect.refuses_unauthorized()
    }
}

impl Policy {
    /// Creates the policy of a proxy, which judges every reading that servers
    /// take.
    pub fn new(unauthorized: Unauthorized) -> Self {
        Self::of(PolicyTerms {
            revision: Revision::CURRENT,
            unauthorized,
            readings: Readings::default(),
            dialect: Dialect::default(),
            candidates: Candidates::First,
            mode: EnforcementMode::Enforce,
            overrides: Vec::new(),
        })
    }

    /// Sets the dialect of robots.txt files.
    #[must_use]
    pub fn with_dialect(self, dialect: Dialect) -> Self {
        self.with(|terms| terms.dialect = dialect)
    }

    /// Returns the revision of the engine that decides, or decided, by it.
    pub fn revision(&self) -> Revision {
        self.terms.revision
    }

    /// Returns the dialect of robots.txt files.
    pub fn dialect(&self) -> Dialect {
        self.terms.dialect
    }

    /// Returns the readings of a path that are judged.
    pub fn readings(&self) -> Readings {
        self.terms.readings
    }

    /// Returns the groups that bind a crawler with several tokens.
    pub fn candidates(&self) -> Candidates {
        self.terms.candidates
    }

    /// Sets the groups that bind a crawler with several tokens.
    #[must_use]
    pub fn with_candidates(self, candidates: Candidates) -> Self {
        self.with(|terms| terms.candidates = candidates)
    }

    /// Returns the treatment of requests that may not be fetched.
    pub fn mode(&self) -> EnforcementMode {
        self.terms.mode
    }

    /// Sets the treatment of requests that may not be fetched.
    #[must_use]
    pub fn with_mode(self, mode: EnforcementMode) -> Self {
        self.with(|terms| terms.mode = mode)
    }

    /// Sets the overrides, of which the first that fits counts.
    #[must_use]
    pub fn with_overrides(self, overrides: Vec<Override>) -> Self {
        self.with(|terms| terms.overrides = overrides)
    }

    /// Sets the readings that are judged.
    #[must_use]
    pub fn with_readings(self, readings: Readings) -> Self {
        self.with(|terms| terms.readings = readings)
    }

    /// Returns the same policy that judges the URL as sent and no other reading.
    #[must_use]
    pub fn as_sent(&self) -> Self {
        self.clone().with_readings(Readings::Sent)
    }

    /// Returns the policy for pages that a robots.txt redirects to, for which no
    /// crawler has asked: in doubt it refuses, no override allows, and what it
    /// refuses is not fetched in any mode.
    #[must_use]
    pub fn for_redirects(&self) -> Self {
        let mut terms = self.terms.clone();
        // A 401 or 403 leaves open whether strangers may come, and here nobody
        // has asked for the page.
        terms.unauthorized = Unauthorized::Refuse;
        terms.mode = EnforcementMode::Enforce;
        terms
            .overrides
            .retain(|entry| matches!(entry.action, Action::Deny { .. }));
        Self::of(terms)
    }

    /// Returns the overrides, in order, whether they have ended or not.
    pub fn overrides(&self) -> &[Override] {
        &self.terms.overrides
    }

    /// Reads the policy that a decision record names.
    ///
    /// # Errors
    ///
    /// The text is no policy of a version that this one knows.
    pub fn restore(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json).map(Self::of)
    }

    fn with(mut self, change: impl FnOnce(&mut PolicyTerms)) -> Self {
        change(&mut self.terms);
        Self::of(self.terms)
    }

    fn of(terms: PolicyTerms) -> Self {
        // Words and texts: there is nothing in them that JSON cannot hold.
        let json = serde_json::to_string(&terms).unwrap_or_default();
        Self {
            digest: Digest::of(json.as_bytes()),
            json,
            terms,
        }
    }

    /// Returns its values.
    pub(super) fn terms(&self) -> &PolicyTerms {
        &self.terms
    }

    /// Returns the JSON, which the audit log stores.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Returns the SHA-256 of the JSON, by which decision records name the
    /// policy.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}
