//! The RSL licenses that a response names, wherever it does.
//!
//! RSL 1.0: all that are named govern the content, the strictest of them in
//! each point. That takes reading them, so all are listed, each once.

use std::collections::{BTreeMap, BTreeSet};

use sfv::{TokenRef, token_ref};

use super::address::{absolute, reference};
use super::{Carrier, Preference, Value};
use politesse_robots::{UsageKind, UsageLine, UsageScope};

/// How many licenses are listed.
pub(super) const LICENSES_MAX: usize = 16;

const LICENSE: &TokenRef = token_ref("license");

/// The URLs of licenses, and who names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Licenses(BTreeMap<String, BTreeSet<Carrier>>);

impl Licenses {
    /// Adds the target of a link, which may be relative to the response.
    pub(super) fn add_reference(&mut self, written: &[u8], carrier: Carrier) {
        if let Some(url) = reference(written) {
            self.add(url, carrier);
        }
    }

    /// Adds what the `License` lines of a robots.txt name: those of the groups
    /// in place of those for everyone (RSL 1.0). A URL must be absolute there.
    pub(super) fn add_lines(&mut self, bound: &[UsageLine<'_>]) {
        let named = |scope| {
            let lines = bound
                .iter()
                .filter(move |line| line.kind == UsageKind::License && line.scope == scope);
            lines.filter_map(|line| absolute(line.value))
        };
        let mut own = named(UsageScope::Group).peekable();
        if own.peek().is_some() {
            own.for_each(|url| self.add(url, Carrier::RobotsTxt));
        } else {
            named(UsageScope::Everyone).for_each(|url| self.add(url, Carrier::RobotsTxt));
        }
    }

    fn add(&mut self, url: String, carrier: Carrier) {
        if let Some(carriers) = self.0.get_mut(&url) {
            carriers.insert(carrier);
        } else if self.0.len() < LICENSES_MAX {
            self.0.insert(url, BTreeSet::from([carrier]));
        }
    }

    /// Bytes of the URLs.
    pub(super) fn bytes(&self) -> usize {
        self.0.keys().map(String::len).sum()
    }

    /// The licenses, sorted by URL.
    pub(super) fn settle(self) -> impl Iterator<Item = Preference> {
        self.0.into_iter().map(|(url, carriers)| Preference {
            name: LICENSE,
            value: Value::Text(url),
            carriers,
        })
    }
}
