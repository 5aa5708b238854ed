//! Configuration in force as the dashboard shows it: without secrets, each value with
//! its source.
//!
//! `config` leaves secrets out, and `serve` replaces the configuration at each reload.
//! Does not know what a key means.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use serde::Serialize;

use politesse_decision::digest::Digest;
use politesse_decision::overrides::Override;

/// Key and its value in force.
#[derive(Debug, Clone, Serialize)]
pub struct ShownKey {
    /// Name of its table; empty outside of any table.
    pub table: &'static str,
    /// Name of the key in its table.
    pub name: &'static str,
    /// Value as TOML on one line, with `…` in place of a secret.
    pub value: String,
    /// Whether a secret or the end of a long value was left out.
    pub is_partial: bool,
    /// Kind of the source: `default`, `file`, `environment` or `command line`.
    pub source: &'static str,
    /// Place as printed by `politesse config show`: file and line, or the variable.
    pub place: String,
    /// Places of the entries of a list, in order.
    #[serde(skip)]
    pub entry_places: Vec<String>,
}

/// Override and the place where it is configured.
#[derive(Debug, Clone)]
pub struct ShownOverride {
    /// Override.
    pub entry: Override,
    /// Place, as in [`ShownKey`].
    pub place: String,
}

/// Failed reload, which did not change the configuration.
#[derive(Debug, Clone, Serialize)]
pub struct FailedReload {
    /// Time at which the reload was requested.
    pub at: Timestamp,
    /// Problems, without the invalid values.
    pub problems: Vec<String>,
}

/// Configuration in force.
#[derive(Debug, Clone)]
pub struct ConfigurationInForce {
    /// Time since which the configuration is in force: the start, or the last
    /// successful reload.
    pub since: Timestamp,
    /// File that the configuration was read from, if any.
    pub file: Option<PathBuf>,
    /// SHA-256 of all values, as used for the configuration in the record.
    pub sha256: Digest,
    /// SHA-256 of the policy, as used in decisions.
    pub policy: Digest,
    /// Contact for questions (`proxy.contact`).
    pub contact: Option<Arc<str>>,
    /// All keys, by table.
    pub keys: Arc<[ShownKey]>,
    /// Overrides, in the order in which they are tried.
    pub overrides: Vec<ShownOverride>,
    /// The last reload, if it failed.
    pub failed_reload: Option<FailedReload>,
}

impl ConfigurationInForce {
    /// Finds a key by its table and name.
    pub fn key(&self, table: &str, name: &str) -> Option<&ShownKey> {
        let mut keys = self.keys.iter();
        keys.find(|key| key.table == table && key.name == name)
    }
}

/// Shared configuration in force; a reload replaces it.
pub type ConfigurationCell = Arc<ArcSwap<ConfigurationInForce>>;
