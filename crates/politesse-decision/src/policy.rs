//! Policy: the operator's settings that decisions depend on.
//!
//! The record stores each policy as JSON under its SHA-256, next to the decisions made
//! with it, so that they can be repeated. The JSON also names the engine's [`Revision`].
//! Does not know how a policy is applied: `ruling` does that.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::overrides::{Action, Override};
use super::preferences::PreferenceTerms;
use super::tls_exception::TlsException;
use politesse_robots::Dialect;
use politesse_robots::origin::Origin;

/// Revision of the decision engine: of all code that affects verdicts.
///
/// Every change that alters a verdict under the same settings raises it. A repeated
/// decision with a different result is a sign of tampering only if the revisions are
/// equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(u32);

impl Revision {
    /// Revision of stored policies that name none: they predate revisions.
    pub const FIRST: Self = Self(1);

    /// Revision of this engine.
    // Must be raised with any change that alters a verdict, such as a new
    // reading of servers (docs/decisions/007-doubt-refuses.md).
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

/// Readings of a path that are judged (`robots.readings`). Each level includes the
/// readings of the previous one, and refuses if any reading is disallowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readings {
    /// The URL as sent: the verdict of the standard.
    Sent,
    /// Also the URL without its dot segments (RFC 3986, section 5.2.4).
    Dots,
    /// Also the other paths that common servers may read the URL as, and Disallow rules
    /// with the escapes of their reserved bytes decoded.
    #[default]
    Server,
}

/// Groups that bind a crawler with several candidate tokens
/// (`enforcement.candidates`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Candidates {
    /// The groups of the first candidate that has groups.
    #[default]
    First,
    /// The groups of every candidate that has groups: each must allow the URL.
    All,
}

/// Treatment of a request that the decision disallows (`enforcement.mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnforcementMode {
    /// The request is refused.
    #[default]
    Enforce,
    /// The request is forwarded, and the decision record says that it would have been
    /// refused. Lets operators see the effect of enforcement beforehand.
    Report,
}

/// The operator's settings that decisions depend on, with their JSON and its digest.
#[derive(Debug, Clone)]
pub struct Policy {
    terms: PolicyTerms,
    json: String,
    digest: Digest,
}

/// Values that a policy consists of.
///
/// The JSON omits fields added after the first version if they have their default value.
/// This way policies of earlier versions can be parsed and keep their digest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PolicyTerms {
    /// Revision of the engine that decides, or decided, with this policy.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: Revision,
    // The next two fields date from the first version, so every stored policy has them.
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
    /// Treatment of requests that the decision disallows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: EnforcementMode,
    /// Overrides, including those that have ended. The first matching one in force
    /// applies.
    #[serde(default, skip_serializing_if = "is_default")]
    pub overrides: Vec<Override>,
    /// Exceptions from the usual TLS requirements. The first one for an origin applies.
    /// No verdict depends on them.
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
    /// Reports whether a 401 or 403 for robots.txt refuses the whole origin, because of
    /// the setting or the dialect.
    pub(super) fn refuses_unauthorized(&self) -> bool {
        self.unauthorized == Unauthorized::Refuse || self.dialect.refuses_unauthorized()
    }

    /// Returns the exception from the usual TLS for `origin`, if there is one.
    pub fn tls_exception(&self, origin: &Origin) -> Option<&TlsException> {
        self.tls.iter().find(|exception| exception.is_for(origin))
    }
}

impl Policy {
    /// Creates the default policy of a proxy, which judges every reading of servers.
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

    /// Changes values of the policy.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut PolicyTerms)) -> Self {
        change(&mut self.terms);
        Self::of(self.terms)
    }

    /// Returns the policy changed to judge only the URL as sent.
    #[must_use]
    pub fn as_sent(&self) -> Self {
        self.clone().with(|terms| terms.readings = Readings::Sent)
    }

    /// Returns the policy for pages that a robots.txt redirects to. No crawler has
    /// requested these pages, so the policy is strict: it refuses in doubt, no override
    /// allows, and there is no report mode.
    #[must_use]
    pub fn for_redirects(&self) -> Self {
        self.clone().with(|terms| {
            // A 401 or 403 leaves open whether crawlers are welcome, and no
            // crawler has asked for this page.
            terms.unauthorized = Unauthorized::Refuse;
            terms.mode = EnforcementMode::Enforce;
            // A robots.txt is read for its rules, not for the crawler's purposes.
            terms.preferences = None;
            terms
                .overrides
                .retain(|entry| matches!(entry.action, Action::Deny { .. }));
        })
    }

    /// Returns the policy changed to read robots.txt files in `dialect`.
    #[must_use]
    pub fn in_dialect(&self, dialect: Dialect) -> Self {
        self.clone().with(|terms| terms.dialect = dialect)
    }

    /// Returns the policy changed to the purposes in `preferences`.
    #[must_use]
    pub fn for_purposes(&self, preferences: PreferenceTerms) -> Self {
        self.clone()
            .with(|terms| terms.preferences = Some(preferences))
    }

    /// Parses the stored JSON of a policy.
    ///
    /// # Errors
    ///
    /// The error of the JSON parser if the text is not a policy, or comes from a version
    /// that this one cannot read.
    pub fn restore(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json).map(Self::of)
    }

    fn of(terms: PolicyTerms) -> Self {
        // Cannot fail: the values are words and texts.
        let json = serde_json::to_string(&terms).unwrap_or_default();
        Self {
            digest: Digest::of(json.as_bytes()),
            json,
            terms,
        }
    }

    /// Returns the values of the policy.
    pub fn terms(&self) -> &PolicyTerms {
        &self.terms
    }

    /// Returns the JSON form, which the audit log stores.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Returns the SHA-256 of the JSON, which identifies the policy in decision records.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}
