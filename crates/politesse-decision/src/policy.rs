//! Policy: the settings of the operator that decisions depend on.
//!
//! A policy is stored as JSON beside the decisions made by it, under its SHA-256,
//! so that they can be made again. The JSON names the engine's [`Revision`] as
//! well. Does not know how a policy is applied: that is in `ruling`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::overrides::{Action, Override};
use super::preferences::PreferenceTerms;
use super::tls_exception::TlsException;
use politesse_robots::Dialect;
use politesse_robots::origin::Origin;

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
    pub const CURRENT: Self = Self(4);
}

impl Default for Revision {
    fn default() -> Self {
        Self::FIRST
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
pub struct PolicyTerms {
    /// Revision of the engine that decides, or decided, by it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: Revision,
    // These two are as old as the record: every policy has them.
    /// Meaning of a 401 or 403 for robots.txt.
    pub unauthorized: Unauthorized,
    /// Readings of a path that are judged.
    pub readings: Readings,
    /// Dialect of robots.txt files.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dialect: Dialect,
    /// Groups that bind a crawler with several tokens.
    #[serde(default, skip_serializing_if = "is_default")]
    pub candidates: Candidates,
    /// Treatment of requests that may not be fetched.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: EnforcementMode,
    /// Overrides, of which the first that fits counts, whether they have ended or
    /// not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub overrides: Vec<Override>,
    /// Exceptions from the TLS that is asked of origins, of which the first that fits
    /// counts. No verdict depends on them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tls: Vec<TlsException>,
    /// Purposes of the crawler; `None` if the operator declares none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferences: Option<PreferenceTerms>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl PolicyTerms {
    /// Reports whether a 401 or 403 for robots.txt closes the origin, by the
    /// setting or by the dialect.
    pub(super) fn refuses_unauthorized(&self) -> bool {
        self.unauthorized == Unauthorized::Refuse || self.dialect.refuses_unauthorized()
    }

    /// Returns the exception from the usual TLS for `origin`, if there is one.
    pub fn tls_exception(&self, origin: &Origin) -> Option<&TlsException> {
        self.tls.iter().find(|exception| exception.is_for(origin))
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
            tls: Vec::new(),
            preferences: None,
        })
    }

    /// Returns the policy with some of its values changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut PolicyTerms)) -> Self {
        change(&mut self.terms);
        Self::of(self.terms)
    }

    /// Returns the same policy that judges the URL as sent and no other reading.
    #[must_use]
    pub fn as_sent(&self) -> Self {
        self.clone().with(|terms| terms.readings = Readings::Sent)
    }

    /// Returns the policy for pages that a robots.txt redirects to, for which no
    /// crawler has asked: in doubt it refuses, no override allows, and what it
    /// refuses is not fetched in any mode.
    #[must_use]
    pub fn for_redirects(&self) -> Self {
        self.clone().with(|terms| {
            // A 401 or 403 leaves open whether strangers may come, and here
            // nobody has asked for the page.
            terms.unauthorized = Unauthorized::Refuse;
            terms.mode = EnforcementMode::Enforce;
            // A robots.txt is read for its rules, whatever its crawler is for.
            terms.preferences = None;
            terms
                .overrides
                .retain(|entry| matches!(entry.action, Action::Deny { .. }));
        })
    }

    /// Returns the same policy for files that were read in `dialect`.
    #[must_use]
    pub fn in_dialect(&self, dialect: Dialect) -> Self {
        self.clone().with(|terms| terms.dialect = dialect)
    }

    /// Returns the same policy for a crawler with these purposes.
    #[must_use]
    pub fn for_purposes(&self, preferences: PreferenceTerms) -> Self {
        self.clone()
            .with(|terms| terms.preferences = Some(preferences))
    }

    /// Reads the policy that a decision record names.
    ///
    /// # Errors
    ///
    /// The text is no policy of a version that this one knows.
    pub fn restore(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json).map(Self::of)
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
    pub fn terms(&self) -> &PolicyTerms {
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
