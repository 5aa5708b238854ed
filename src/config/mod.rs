//! Configuration: built-in defaults, a TOML file, the environment and `--set`, each
//! stronger than the previous one.
//!
//! All sources are read against one table of keys (`keys.rs`), every problem in
//! them is reported at once, and the values are split into the `Options` of each
//! module ([`Settings`]). Finding the file and reading the environment is the
//! command line's part: this module touches neither.

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

/// Configuration without mistakes.
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
    /// [`Problems`]: everything that is wrong in any of them, also in a value
    /// that a stronger source sets aside.
    pub fn read(sources: &ConfigSources<'_>) -> Result<Self, Problems> {
        let mut layers = Layers::gather(keys::SECTIONS, sources);
        let effective = keys::Effective::read(&mut layers);
        let shown = print::effective(&layers);
        let values = Values::of(&layers);
        let keys = print::shown_keys(&layers).into();
        let text = print::without_secrets(&layers).into();
        match effective {
            // The strongest values can all be right where a weaker one is
            // wrong.
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

    /// Options of each module.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Writes every key as TOML with the value in force and, as a comment, its
    /// source.
    #[must_use]
    pub fn show(&self) -> String {
        self.shown.clone()
    }
}
