//! Host patterns in the operator's configuration: one host, or all subdomains of a name.
//!
//! Does not know which settings use them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::origin::{Host, InvalidTarget, Origin};

/// Pattern for hosts. Scheme and port do not matter: an origin stands for its host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostPattern {
    /// `site.example`, or an origin there.
    One(Host),
    /// `*.site.example`: every subdomain of this name, but not the name itself.
    Below(Arc<str>),
}

impl FromStr for HostPattern {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        if let Some(name) = Host::below(text)? {
            return Ok(Self::Below(name));
        }
        if let Some((scheme, authority)) = text.split_once("://") {
            let origin = Origin::new(scheme.parse()?, authority)?;
            return Ok(Self::One(origin.host().clone()));
        }
        // An IPv6 address may be written without brackets.
        let host = text.parse().or_else(|_| format!("[{text}]").parse());
        host.map(Self::One)
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(host) => host.fmt(f),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

impl HostPattern {
    /// Reports whether the pattern matches `host`.
    pub fn contains(&self, host: &Host) -> bool {
        match self {
            Self::One(one) => one == host,
            Self::Below(name) => host.is_below(name),
        }
    }
}

impl TryFrom<String> for HostPattern {
    type Error = InvalidTarget;

    fn try_from(text: String) -> Result<Self, InvalidTarget> {
        text.parse()
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: a pattern covers all ports and schemes of a host.
    #[test]
    fn an_origin_stands_for_its_host() {
        for (text, hosts) in [
            ("site.example", "site.example"),
            ("Site.Example.", "site.example"),
            ("https://site.example", "site.example"),
            ("http://site.example:8080", "site.example"),
            ("*.Site.example", "*.site.example"),
            ("10.0.0.1", "10.0.0.1"),
            ("::1", "[::1]"),
            ("http://[::1]:81", "[::1]"),
        ] {
            assert_eq!(
                text.parse::<HostPattern>().unwrap().to_string(),
                hosts,
                "{text}"
            );
        }
        for text in [
            "",
            "*",
            "*.",
            "*.10.0.0.1",
            "a.*.example",
            "https://site.example/",
            "site.example:80",
            "ftp://site.example",
            "https://u@site.example",
            "a b",
        ] {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
    }

    // Ours: a name is not its own subdomain, and an address is a subdomain of no name.
    #[test]
    fn a_subdomain_ends_with_a_dot_and_the_name() {
        let below: HostPattern = "*.site.example".parse().unwrap();
        for (host, is_below) in [
            ("a.site.example", true),
            ("a.b.site.example", true),
            ("site.example", false),
            ("evil-site.example", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(below.contains(&host.parse().unwrap()), is_below, "{host}");
        }
    }
}
