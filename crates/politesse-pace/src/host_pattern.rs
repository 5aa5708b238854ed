//! Hosts that a rule of the operator is about, and the first of many rules that
//! fits a host.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use politesse_robots::origin::{Host, InvalidTarget, Origin};

/// Hosts that a rule is about. A host has one pace for all schemes and ports, so
/// that an origin stands for its host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostPattern {
    /// `site.example`, or an origin there.
    One(Host),
    /// `*.site.example`: every name below this one, and not the name itself.
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
        // An IPv6 address may be written without its brackets.
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

/// Index of the first pattern of a list that fits a host. A look-up takes one
/// search for each label of the name, and does not go through the list.
#[derive(Clone, Debug)]
pub(super) struct FirstByHost(BTreeMap<HostPattern, usize>);

impl FirstByHost {
    /// Makes the index of `patterns`.
    pub(super) fn of<'a>(patterns: impl Iterator<Item = &'a HostPattern>) -> Self {
        let mut first = BTreeMap::new();
        for (place, pattern) in patterns.enumerate() {
            first.entry(pattern.clone()).or_insert(place);
        }
        Self(first)
    }

    /// Returns the place of the first pattern that fits `host`.
    pub(super) fn place(&self, host: &Host) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        let name = match host {
            Host::Name(name) => name,
            Host::Address(_) => "",
        };
        let above = name.match_indices('.');
        let above = above.filter_map(|(dot, _)| name.get(dot + 1..));
        let below = above.map(|name| HostPattern::Below(name.into()));
        let patterns = below.chain([HostPattern::One(host.clone())]);
        // The first rule of the file counts, even if a later one names the host
        // more exactly.
        patterns.filter_map(|fits| self.0.get(&fits).copied()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: one pace for all ports and
    // schemes of a host.
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

    // Ours: the first that fits.
    #[test]
    fn the_first_entry_that_fits_counts() {
        let entries = [
            "a.site.example",
            "*.site.example",
            "b.site.example",
            "*.a.site.example",
            "site.example",
            "a.site.example",
        ];
        let entries = entries.map(|text| text.parse().unwrap());
        let first = FirstByHost::of(entries.iter());
        let place = |host: &str| first.place(&host.parse().unwrap());
        assert_eq!(place("a.site.example"), Some(0));
        assert_eq!(place("b.site.example"), Some(1));
        assert_eq!(place("x.a.site.example"), Some(1));
        assert_eq!(place("site.example"), Some(4));
        assert_eq!(place("notsite.example"), None);
        assert_eq!(place("example"), None);
        assert_eq!(place("10.0.0.1"), None);
    }
}
