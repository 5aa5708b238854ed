//! RSL licences that a response and its robots.txt name.
//!
//! RSL 1.0: all named licences govern the content, and in each point the strictest
//! applies. Finding the strictest would take reading them, so all are listed, each
//! once. Does not know how a `Link` field is read.

use std::collections::{BTreeMap, BTreeSet};

use sfv::{TokenRef, token_ref};

use super::preference::{Carrier, Preference, PreferenceValue, absolute, reference};
use politesse_robots::{UsageKind, UsageLine, UsageScope};

/// Number of licences listed. Each takes up to 2 KiB, and a page may name many.
pub(super) const LICENSES_MAX: usize = 16;

const LICENSE: &TokenRef = token_ref("license");

/// URLs of licences, each with the carriers that name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Licenses(BTreeMap<String, BTreeSet<Carrier>>);

impl Licenses {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the target of a link, which may be relative to the response.
    pub(super) fn add_reference(&mut self, written: &[u8], carrier: Carrier) {
        if let Some(url) = reference(written) {
            self.add(url, carrier);
        }
    }

    /// Adds the URLs in the `License` lines of a robots.txt. Lines in the
    /// crawler's groups replace the lines outside all groups (RSL 1.0). A URL must be
    /// absolute there.
    pub(super) fn add_lines(&mut self, bound: &[UsageLine<'_>]) {
        let named = |scope| {
            let lines = bound
                .iter()
                .filter(move |line| line.kind == UsageKind::License && line.scope == scope);
            lines.filter_map(|line| absolute(line.value))
        };
        let mut urls: Vec<String> = named(UsageScope::OwnGroup).collect();
        if urls.is_empty() {
            urls = named(UsageScope::AllCrawlers).collect();
        }
        for url in urls {
            self.add(url, Carrier::RobotsTxt);
        }
    }

    fn add(&mut self, url: String, carrier: Carrier) {
        // A licence that is already listed takes no further room, so its carriers are
        // added even beyond the limit.
        if let Some(carriers) = self.0.get_mut(&url) {
            carriers.insert(carrier);
        } else if self.0.len() < LICENSES_MAX {
            self.0.insert(url, BTreeSet::from([carrier]));
        }
    }

    /// Returns the total bytes of the URLs.
    pub(super) fn bytes(&self) -> usize {
        self.0.keys().map(String::len).sum()
    }

    /// Returns the licences, sorted by URL.
    pub(super) fn settle(self) -> impl Iterator<Item = Preference> {
        self.0.into_iter().map(|(url, carriers)| Preference {
            name: LICENSE,
            value: PreferenceValue::Text(url),
            carriers,
            line: None,
        })
    }
}
