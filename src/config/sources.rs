//! Sources of a configuration, as the command line gathers them.
//!
//! How they are read is not known here.

use std::path::{Path, PathBuf};

/// Sources of a configuration.
#[derive(Clone, Debug)]
pub struct ConfigSources<'a> {
    /// The configuration file as it was named, with its text.
    pub file: Option<(PathBuf, String)>,
    /// Variables of the environment. Only names that begin with `POLITESSE_` count.
    pub environment: Vec<(String, String)>,
    /// The arguments of `--set`.
    pub overrides: &'a [String],
    /// Folder that the file's name, and without a file every path, is relative to.
    pub working_directory: PathBuf,
    /// Folder that the files which the proxy writes (`https.ca_cert`,
    /// `https.ca_key`, `audit.store`, `admin.token_file`) are relative to; absent: as
    /// other paths.
    pub data_directory: Option<PathBuf>,
}

/// Folders that relative paths of a configuration start from.
pub(super) struct Folders {
    /// Folder of files that the proxy reads, such as `https.upstream_roots`.
    pub(super) base: PathBuf,
    /// Folder of files that the proxy writes.
    pub(super) data: PathBuf,
}

impl ConfigSources<'_> {
    /// Folders that paths are relative to, from whatever source they come: with a
    /// file, its folder, so that a file and its data can be moved together.
    pub(super) fn folders(&self) -> Folders {
        let path = self.path();
        let folder = path.as_deref().and_then(Path::parent);
        let base = folder.unwrap_or(&self.working_directory).to_owned();
        Folders {
            data: self.data_directory.clone().unwrap_or_else(|| base.clone()),
            base,
        }
    }

    /// Path of the file, from the working directory on.
    pub(super) fn path(&self) -> Option<PathBuf> {
        let (path, _) = self.file.as_ref()?;
        Some(self.working_directory.join(path))
    }
}
