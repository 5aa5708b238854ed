//! Index of the operator's rules by the hosts that they are about: the first of many
//! rules that fits a host.

use std::collections::BTreeMap;

use politesse_robots::host_pattern::HostPattern;
use politesse_robots::origin::Host;

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
