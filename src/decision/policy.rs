//! What the operator laid down, as far as decisions depend on it.
//!
//! A policy is kept as JSON beside the decisions made by it, named by its
//! SHA-256, so that they can be decided again. The JSON names the engine's
//! [`Revision`] as well. How it is applied is `decision`'s.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::overrides::{Action, Override};
use politesse_robots::Dialect;

/// The revision of the engine that decided: of all in `rules/` that a verdict
/// depends on besides its inputs.
///
/// It is raised by whoever changes a verdict under the same settings. A row of
/// another revision that is decided otherwise now was not tampered with: the
/// engine has changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(u32);

impl Revision {
    /// The revision of policies that name none: they are older than the name.
    pub const FIRST: Self = Self(1);

    /// The revision of this engine.
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

/// What a 401 or 403 for robots.txt is taken for (`robots.status.unauthorized`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unauthorized {
    /// No rules, as for any other 4xx (RFC 9309, section 2.3.1.3).
    Allow,
    /// Access to everything is restricted (the draft of 1996, section 3.1).
    Refuse,
}

/// Which readings of a path are judged (`robots.readings`). Each level judges
/// what the one before it does, and refuses if any reading is disallowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readings {
    /// The URL as sent: the verdict of the standard.
    Sent,
    /// That, and the URL without its dot segments (RFC 3986, section 5.2.4).
    Dots,
    /// That, whatever else ordinary servers read, and a Disallow with the
    /// escapes of its reserved bytes decoded.
    #[default]
    Server,
}

/// Whose groups bind a crawler that has several candidate tokens
/// (`enforcement.candidates`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Candidates {
    /// Those of the first candidate that has any.
    #[default]
    First,
    /// Those of every candidate that has any: the URL must be allowed by each.
    All,
}

/// What becomes of a request that may not be fetched (`enforcement.mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnforcementMode {
    /// It is refused.
    #[default]
    Enforce,
    /// It is forwarded all the same, and the record says that it would have
    /// been refused: for finding out what enforcing would cost.
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

/// What the operator laid down, as far as a decision depends on it.
#[derive(Debug, Clone)]
pub struct Policy {
    terms: Terms,
    json: String,
    digest: Digest,
}

/// A policy as values.
///
/// What came later than the first version is left out of the JSON where it is
/// the default, so that the policies of earlier versions can be read and keep
/// their digest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Terms {
    #[serde(
        default = "Revision::first",
        skip_serializing_if = "Revision::is_first"
    )]
    pub(super) revision: Revision,
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

impl Terms {
    /// Whether a 401 or 403 for robots.txt closes the origin: because the
    /// operator says so, or the text that files are read by.
    pub(super) fn refuses_unauthorized(&self) -> bool {
        self.unauthorized == Unauthorized::Refuse || self.dialect.refuses_unauthorized()
    }
}

impl Policy {
    /// The policy of a proxy: it judges every reading that servers take.
    pub fn new(unauthorized: Unauthorized) -> Self {
        Self::of(Terms {
            revision: Revision::CURRENT,
            unauthorized,
            readings: Readings::default(),
            dialect: Dialect::default(),
            candidates: Candidates::First,
            mode: EnforcementMode::Enforce,
            overrides: Vec::new(),
        })
    }

    /// The same policy, for files that are read by `dialect`.
    #[must_use]
    pub fn with_dialect(self, dialect: Dialect) -> Self {
        Self::of(Terms {
            dialect,
            ..self.terms
        })
    }

    /// The revision of the engine that decides, or decided, by it.
    pub fn revision(&self) -> Revision {
        self.terms.revision
    }

    /// By which text robots.txt files are read.
    pub fn dialect(&self) -> Dialect {
        self.terms.dialect
    }

    /// Which readings of a path are judged.
    pub fn readings(&self) -> Readings {
        self.terms.readings
    }

    /// Whose groups bind a crawler of several names.
    pub fn candidates(&self) -> Candidates {
        self.terms.candidates
    }

    /// The same policy, with another word on crawlers of several names.
    #[must_use]
    pub fn with_candidates(self, candidates: Candidates) -> Self {
        Self::of(Terms {
            candidates,
            ..self.terms
        })
    }

    /// What becomes of what may not be fetched.
    pub fn mode(&self) -> EnforcementMode {
        self.terms.mode
    }

    /// The same policy, with another word on what may not be fetched.
    #[must_use]
    pub fn with_mode(self, mode: EnforcementMode) -> Self {
        Self::of(Terms { mode, ..self.terms })
    }

    /// The same policy, with these overrides, the first that fits counting.
    #[must_use]
    pub fn with_overrides(self, overrides: Vec<Override>) -> Self {
        Self::of(Terms {
            overrides,
            ..self.terms
        })
    }

    /// The same policy, with another word on which readings are judged.
    #[must_use]
    pub fn with_readings(self, readings: Readings) -> Self {
        Self::of(Terms {
            readings,
            ..self.terms
        })
    }

    /// The same policy, judging the URL as sent and no other reading.
    #[must_use]
    pub fn as_sent(&self) -> Self {
        self.clone().with_readings(Readings::Sent)
    }

    /// The same policy for what no crawler asked for (where a robots.txt
    /// redirects to): in doubt it refuses, no override allows, and what it
    /// refuses is not fetched in any mode.
    #[must_use]
    pub fn for_redirects(&self) -> Self {
        let mut terms = self.terms.clone();
        terms.unauthorized = Unauthorized::Refuse;
        terms.mode = EnforcementMode::Enforce;
        terms
            .overrides
            .retain(|entry| matches!(entry.action, Action::Deny { .. }));
        Self::of(terms)
    }

    /// The overrides, in order, whether they have ended or not.
    pub fn overrides(&self) -> &[Override] {
        &self.terms.overrides
    }

    /// The policy that an audit record names.
    ///
    /// # Errors
    ///
    /// The text is no policy of a version that this one knows.
    pub fn restore(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json).map(Self::of)
    }

    fn of(terms: Terms) -> Self {
        // Words and texts: there is nothing in them that JSON cannot hold.
        let json = serde_json::to_string(&terms).unwrap_or_default();
        Self {
            digest: Digest::of(json.as_bytes()),
            json,
            terms,
        }
    }

    /// Its values, for deciding.
    pub(super) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The policy as JSON: what the audit keeps, and the digest is of.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The SHA-256 by which records name it.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}
