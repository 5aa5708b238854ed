//! Facts about the configuration in force, for the admin pages: the source of each
//! value, and the result of the last reload.
//!
//! All of it may be shown: `config` has removed the secrets. Does not know the pages.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::config::{Problems, Settings, text_without_secrets};
use politesse_admin::{ConfigurationCell, ConfigurationInForce, FailedReload, ShownOverride};
use politesse_base::clock;
use politesse_decision::overrides::Override;

/// Makes the cell for the configuration that the proxy starts with.
pub(super) fn cell(settings: &Settings) -> ConfigurationCell {
    Arc::new(ArcSwap::from_pointee(facts(settings)))
}

/// Puts `settings` into `cell`.
pub(super) fn replace(cell: &ConfigurationCell, settings: &Settings) {
    cell.store(Arc::new(facts(settings)));
}

/// Notes in `cell` that a reload failed with `error`.
pub(super) fn note_failure(cell: &ConfigurationCell, error: &anyhow::Error) {
    let failed_reload = FailedReload {
        at: clock::now(),
        problems: problems(error),
    };
    // The rest stays: the previous configuration is still in force.
    cell.store(Arc::new(ConfigurationInForce {
        failed_reload: Some(failed_reload),
        ..ConfigurationInForce::clone(&cell.load())
    }));
}

fn facts(settings: &Settings) -> ConfigurationInForce {
    let in_force = ConfigurationInForce {
        since: clock::now(),
        file: settings.file.clone(),
        sha256: settings.values.digest(),
        policy: settings.policy.digest(),
        contact: settings.exchange.contact.clone(),
        keys: Arc::clone(&settings.keys),
        overrides: Vec::new(),
        failed_reload: None,
    };
    let key = in_force.key("robots", "override");
    let places = key.map(|key| key.entry_places.clone()).unwrap_or_default();
    let entries = settings.policy.terms().overrides.iter();
    // The policy keeps overrides in the order of the configuration file.
    let overrides = entries.zip(places).map(|(entry, place)| ShownOverride {
        entry: Override {
            reason: text_without_secrets(&entry.reason),
            ..entry.clone()
        },
        place,
    });
    ConfigurationInForce {
        overrides: overrides.collect(),
        ..in_force
    }
}

/// Returns the lines that explain why a configuration was rejected. They leave out the
/// rejected values, which may be secrets.
fn problems(error: &anyhow::Error) -> Vec<String> {
    let mut causes = error.chain();
    if let Some(found) = causes.find_map(|cause| cause.downcast_ref::<Problems>()) {
        return found.without_values().collect();
    }
    // Other errors name keys and files. Their texts should hold no secrets; the filter
    // catches any that slipped in.
    let mut lines = error_lines(error);
    for line in &mut lines {
        *line = text_without_secrets(line);
    }
    lines
}

/// Returns the lines of an error and its causes, without repeating a cause.
pub(super) fn error_lines(error: &anyhow::Error) -> Vec<String> {
    let mut lines = Vec::new();
    let mut before = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Some errors repeat their cause in their own text.
        if !before.contains(&cause) {
            lines.extend(cause.lines().map(str::to_owned));
        }
        before = cause;
    }
    lines
}
