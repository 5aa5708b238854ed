//! Which keys two configurations differ in: what a reload has to change, and
//! may not.

use std::collections::BTreeMap;

use crate::decision::digest::Digest;

use super::sources::{Layers, Section};

/// The value in force of every key, as TOML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(BTreeMap<String, String>);

impl Values {
    /// Those of `layers`, which have all been read.
    pub(super) fn of(sections: &'static [Section], layers: &Layers<'_>) -> Self {
        let keys = sections
            .iter()
            .flat_map(|section| section.keys.iter().map(move |key| (section, key)));
        let values = keys.filter_map(|(section, key)| {
            let (value, _) = layers.shown(section.name, key.name)?;
            let name = if section.is_root() {
                key.name.to_owned()
            } else {
                format!("{}.{}", section.name, key.name)
            };
            Some((name, value))
        });
        Self(values.collect())
    }

    /// The value of one key, such as `pace.profile`, as TOML.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The keys whose value is another than in `other`, in alphabetical order.
    #[must_use]
    pub fn changed_from(&self, other: &Self) -> Vec<&str> {
        let is_changed = |(key, value): &(&String, &String)| other.0.get(*key) != Some(*value);
        let changed = self.0.iter().filter(is_changed);
        changed.map(|(key, _)| key.as_str()).collect()
    }

    /// The SHA-256 of each key's value.
    #[must_use]
    pub fn digests(&self) -> BTreeMap<String, String> {
        let keys = self.0.iter();
        let digests = keys.map(|(key, value)| {
            let digest = Digest::of(value.as_bytes()).to_string();
            (key.clone(), digest)
        });
        digests.collect()
    }

    /// The SHA-256 of them all: of lines `key = value` in alphabetical order.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let lines = self
            .0
            .iter()
            .map(|(key, value)| format!("{key} = {value}\n"));
        Digest::of(lines.collect::<String>().as_bytes())
    }
}
