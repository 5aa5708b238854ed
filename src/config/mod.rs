//! What people tell the proxy: built-in defaults, a TOML file, the environment
//! and `--set`, each stronger than the one before.
//!
//! The sources are read against one table of keys (`file.rs`), every problem in
//! them is told at once, and what is right is split into the `Options` of each
//! module ([`Settings`]). Finding the file and reading the environment is the
//! command line's part: nothing here touches either.

use std::path::{Path, PathBuf};

mod settings;

mod print;

mod changes;

mod file;

mod sources;

mod pace;

mod tables;

mod network;

mod kinds;

mod problem;

mod log;

mod spelling;

mod values;

#[cfg(test)]
mod tests;

pub use changes::Values;
pub use log::{Log, LogFormat};
pub use problem::{Place, Problem, Problems};
pub use settings::Settings;

use sources::Layers;
pub(crate) use values::duration;

/// What a configuration is made of.
#[derive(Clone, Debug)]
pub struct Sources<'a> {
    /// The configuration file as it was named, with its text.
    pub file: Option<(PathBuf, String)>,
    /// The environment; only names with `POLITESSE_` in front and a `__` in
    /// them count.
    pub environment: Vec<(String, String)>,
    /// What stood after each `--set`.
    pub overrides: &'a [String],
    /// What the file's name, and without a file every path, is relative to.
    pub working_directory: PathBuf,
    /// The folder that the files which the proxy writes (`https.ca_cert`,
    /// `https.ca_key`, `audit.store`, `admin.token_file`) are relative to; absent: as
    /// other paths.
    pub data_directory: Option<PathBuf>,
}

/// The folders that relative paths of a configuration start from.
struct Folders {
    /// Of what the proxy reads, such as `https.upstream_roots`.
    base: PathBuf,
    /// Of what the proxy writes.
    data: PathBuf,
}

impl Sources<'_> {
    /// The folders that paths are relative to, whoever wrote them: with a file,
    /// its folder, so that a file and its data can be moved together.
    fn folders(&self) -> Folders {
        let path = self.path();
        let folder = path.as_deref().and_then(Path::parent);
        let base = folder.unwrap_or(&self.working_directory).to_owned();
        Folders {
            data: self.data_directory.clone().unwrap_or_else(|| base.clone()),
            base,
        }
    }

    /// The file, as the working directory has it.
    fn path(&self) -> Option<PathBuf> {
        let (path, _) = self.file.as_ref()?;
        Some(self.working_directory.join(path))
    }
}

/// The configuration in force.
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
    pub fn read(sources: &Sources<'_>) -> Result<Self, Problems> {
        let mut layers = Layers::gather(file::SECTIONS, sources);
        let effective = file::Effective::read(&mut layers);
        let shown = print::effective(file::SECTIONS, &layers);
        let values = Values::of(file::SECTIONS, &layers);
        let problems = layers.into_problems();
        match effective {
            Some(effective) if problems.is_empty() => Ok(Self {
                settings: Settings {
                    file: sources.path(),
                    values,
                    ..Settings::new(effective, &sources.folders())
                },
                shown,
            }),
            _ => Err(Problems::new(problems)),
        }
    }

    /// What each module is to be built with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Every key as TOML with the value in force and, as a comment, where it
    /// was written.
    #[must_use]
    pub fn show(&self) -> String {
        self.shown.clone()
    }
}

/// The configuration file that changes nothing: every key with its default, a
/// word on what it is for, its unit and its bounds.
#[must_use]
pub fn default_file() -> String {
    print::default_file(file::SECTIONS)
}
