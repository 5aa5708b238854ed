//! Search for the first pattern in a list that matches a host.
//!
//! The list holds the host patterns of the operator's rules (`pace.rule`), in the order of
//! the configuration. Does not know what a rule says.

use std::collections::BTreeMap;

use politesse_robots::host_pattern::HostPattern;
use politesse_robots::origin::Host;

/// Map from each pattern of a list to its position, from 0. Of equal patterns it has the
/// first position.
///
/// A lookup does not scan the list: it searches the map once for each pattern that could
/// match the host, which are as many as the host's name has labels.
#[derive(Clone, Debug)]
pub(super) struct HostIndex(BTreeMap<HostPattern, usize>);

impl HostIndex {
    /// Builds the index of the list `patterns`.
    pub(super) fn of<'a>(patterns: impl Iterator<Item = &'a HostPattern>) -> Self {
        let mut positions = BTreeMap::new();
        for (position, pattern) in patterns.enumerate() {
            positions.entry(pattern.clone()).or_insert(position);
        }
        Self(positions)
    }

    /// Returns the position of the first pattern in the list that matches `host`; `None`
    /// if none does.
    pub(super) fn first_match(&self, host: &Host) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        let name = match host {
            Host::Name(name) => name,
            // An address has no parent domains, so only the pattern for exactly this host
            // can match it.
            Host::Address(_) => "",
        };
        let dots = name.match_indices('.');
        let parents = dots.filter_map(|(dot, _)| name.get(dot + 1..));
        let wildcards = parents.map(|parent| HostPattern::Below(parent.into()));
        let matching = wildcards.chain([HostPattern::One(host.clone())]);
        // The first pattern in the list wins, even if a later one matches the host more
        // closely.
        matching
            .filter_map(|pattern| self.0.get(&pattern).copied())
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: the first match.
    #[test]
    fn the_first_matching_pattern_wins() {
        let patterns = [
            "a.site.example",
            "*.site.example",
            "b.site.example",
            "*.a.site.example",
            "site.example",
            "a.site.example",
        ];
        let patterns = patterns.map(|text| text.parse().unwrap());
        let index = HostIndex::of(patterns.iter());
        let first_match = |host: &str| index.first_match(&host.parse().unwrap());
        assert_eq!(first_match("a.site.example"), Some(0));
        assert_eq!(first_match("b.site.example"), Some(1));
        assert_eq!(first_match("x.a.site.example"), Some(1));
        assert_eq!(first_match("site.example"), Some(4));
        assert_eq!(first_match("notsite.example"), None);
        assert_eq!(first_match("example"), None);
        assert_eq!(first_match("10.0.0.1"), None);
    }
}
