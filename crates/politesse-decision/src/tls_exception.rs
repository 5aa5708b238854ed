//! Exceptions from the usual TLS requirements towards origins (`upstream.tls`), for
//! sites whose certificates are broken.
//!
//! No verdict depends on these exceptions. They are part of the policy so that the record
//! of each decision says how the host was verified. Does not know how a session is
//! established.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use politesse_robots::host_pattern::HostPattern;
use politesse_robots::origin::{Origin, Scheme};

/// TLS exception for some hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsException {
    /// Hosts that the exception applies to.
    pub host: HostPattern,
    /// Terms of sessions with these hosts.
    #[serde(flatten)]
    pub terms: TlsTerms,
    /// Reason, in the operator's words.
    pub reason: String,
}

/// Terms of a TLS session that differ from the defaults.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TlsTerms {
    /// Whether the certificate is verified.
    pub verify: bool,
    /// Path, as written in the configuration, of the PEM file whose roots replace
    /// `https.upstream_roots`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<PathBuf>,
    /// Minimum version to negotiate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_version: Option<TlsVersion>,
}

/// Version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TlsVersion {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    V12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    V13,
}

impl TlsException {
    /// Reports whether the exception applies to `origin`.
    pub fn is_for(&self, origin: &Origin) -> bool {
        origin.scheme() == Scheme::Https && self.host.contains(origin.host())
    }
}

impl fmt::Display for TlsException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.terms, self.reason)
    }
}

impl fmt::Display for TlsTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verification = match (self.verify, &self.roots) {
            (false, _) => Some("certificate not verified".to_owned()),
            (true, Some(roots)) => Some(format!("certificate verified by {}", roots.display())),
            (true, None) => None,
        };
        let version = self.min_version.map(|version| match version {
            TlsVersion::V12 => "TLS 1.2 or later".to_owned(),
            TlsVersion::V13 => "TLS 1.3 or later".to_owned(),
        });
        let terms: Vec<_> = verification.into_iter().chain(version).collect();
        f.write_str(&terms.join(", "))
    }
}
