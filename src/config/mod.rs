//! Configuration: built-in defaults, a TOML file, the environment and `--set`, each
//! overriding the previous one.
//!
//! All sources are checked against one table of keys (`keys.rs`), every problem in them
//! is reported at once, and the values are split into the `Options` of each module
//! ([`Settings`]). Does not find the file or read the environment: the command line
//! does.

mod clients;
mod keys;
mod kinds;
mod layers;
mod network;
mod pace;
mod print;
mod problem;
mod secrets;
mod settings;
mod tables;
#[cfg(test)]
mod tests;
mod values;

pub use keys::LogFormat;
pub use layers::ConfigSources;
pub(crate) use layers::variable_of;
pub use print::{Values, default_file, reference};
pub use problem::{ConfigProblem, Place, Problems};
pub(crate) use secrets::{argument_without_secrets, text_without_secrets};
pub use settings::{LogOptions, Settings};

use layers::Layers;
pub(crate) use values::duration;

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct Config {
    settings: Settings,
    shown: String,
}

impl Config {
    /// Reads and checks all sources.
    ///
    /// # Errors
    ///
    /// [`Problems`]: every mistake in any source, even in a value that a stronger
    /// source overrides.
    pub fn read(sources: &ConfigSources<'_>) -> Result<Self, Problems> {
        let mut layers = Layers::gather(keys::SECTIONS, sources);
        let effective = keys::Effective::read(&mut layers);
        let shown = print::effective(&layers);
        let values = Values::of(&layers);
        let keys = print::shown_keys(&layers).into();
        let text = print::without_secrets(&layers).into();
        match effective {
            // The strongest values may all be right while a weaker one is wrong.
            Some(effective) if layers.problems.is_empty() => Ok(Self {
                settings: Settings {
                    file: sources.path(),
                    values,
                    keys,
                    text,
                    ..Settings::new(effective, &sources.folders())
                },
                shown,
            }),
            _ => Err(Problems::new(layers.problems)),
        }
    }

    /// Returns the options of each module.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Writes every key as TOML with the value in force, and its source as a comment.
    #[must_use]
    pub fn show(&self) -> String {
        self.shown.clone()
    }
}
