//! Index of the operator's rules by host: finds the first of many rules that matches a
//! host.

use std::collections::BTreeMap;

use politesse_robots::host_pattern::HostPattern;
use politesse_robots::origin::Host;

/// Index of the first pattern of a list that matches a host. A lookup takes one search
/// for each label of the name and does not scan the list.
#[derive(Clone, Debug)]
pub(super) struct FirstByHost(BTreeMap<HostPattern, usize>);

impl FirstByHost {
    /// Builds the index of `patterns`.
    pub(super) fn of<'a>(patterns: impl Iterator<Item = &'a HostPattern>) -> Self {
        let mut first = BTreeMap::new();
        for (place, pattern) in patterns.enumerate() {
            first.entry(pattern.clone()).or_insert(place);
        }
        Self(first)
    }

    /// Returns the position of the first pattern that matches `host`.
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
        // The first rule in the file wins, even if a later one matches the host more
        // closely.
        patterns.filter_map(|fits| self.0.get(&fits).copied()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: the first match.
    #[test]
    fn the_first_matching_entry_wins() {
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
