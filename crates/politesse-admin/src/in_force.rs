//! Configuration in force as the dashboard shows it: without secrets, each value with
//! the place that it comes from.
//!
//! `config` leaves secrets out, `serve` puts another in place with each reload. Does not
//! know what a key means.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use serde::Serialize;

use politesse_decision::digest::Digest;
use politesse_decision::overrides::Override;

/// Key with its value in force.
#[derive(Debug, Clone, Serialize)]
pub struct ShownKey {
    /// Name of its table; empty outside of every table.
    pub table: &'static str,
    /// Name in the table.
    pub name: &'static str,
    /// Value as TOML on one line, with `…` in place of a secret.
    pub value: String,
    /// Whether a secret was left out, or the end of a long value.
    pub is_partial: bool,
    /// Kind of the source: `default`, `file`, `environment` or `command line`.
    pub source: &'static str,
    /// Place as `politesse config show` prints it: file and line, or the variable.
    pub place: String,
    /// Places of the entries of a list, in their order.
    #[serde(skip)]
    pub entry_places: Vec<String>,
}

/// Override with its place.
#[derive(Debug, Clone)]
pub struct ShownOverride {
    /// Override.
    pub entry: Override,
    /// Place as in [`ShownKey`].
    pub place: String,
}

/// Reload that did not put another configuration in force.
#[derive(Debug, Clone, Serialize)]
pub struct FailedReload {
    /// Time at which it was asked for.
    pub at: Timestamp,
    /// Problems, without the values that were found.
    pub problems: Vec<String>,
}

/// Configuration in force.
#[derive(Debug, Clone)]
pub struct ConfigurationInForce {
    /// Time since which it is: of the start, or of the last reload that succeeded.
    pub since: Timestamp,
    /// File that it was read from; absent without one.
    pub file: Option<PathBuf>,
    /// SHA-256 of all values, as the record names the configuration.
    pub sha256: Digest,
    /// SHA-256 of the policy, as decisions name it.
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

/// Cell of the configuration in force, which a reload changes.
pub type ConfigurationCell = Arc<ArcSwap<ConfigurationInForce>>;
