//! Where the configuration is looked for, and where certificates and the record
//! lie when nobody says otherwise.
//!
//! The user's folders are those of the XDG Base Directory specification, 0.8.
//! What a configuration says is not known here.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::Usage;

/// The file's name in the user's folder and in [`SYSTEM_FILE`]'s.
const FILE: &str = "politesse/politesse.toml";
/// The configuration of the machine.
const SYSTEM_FILE: &str = "/etc/politesse/politesse.toml";

/// Whose folders count where no configuration file is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// The user's: `$XDG_CONFIG_HOME` and `$XDG_STATE_HOME`.
    User,
    /// The working directory (`--here`).
    Here,
}

/// The places that are looked at, in this order: a file that was named, the
/// user's, the machine's.
#[derive(Debug)]
pub(super) struct Places {
    /// The file of `--config`, else of `POLITESSE_CONFIG`.
    named: Option<PathBuf>,
    /// The user's file, which need not be there.
    user_file: Option<PathBuf>,
    system_file: PathBuf,
    /// Where certificates and the record of the user lie.
    state: Option<PathBuf>,
}

/// The configuration file and the folder of its data.
#[derive(Debug)]
pub(super) struct Found {
    /// The file and its text; absent: built-in defaults.
    pub(super) file: Option<(PathBuf, String)>,
    /// The folder that certificates and the record are relative to, where that
    /// is not the folder of the file.
    pub(super) data: Option<PathBuf>,
    looked_at: Vec<PathBuf>,
}

impl Places {
    /// The places by the command line and the environment. Without `HOME` the
    /// user has no folders, and it is as with [`Home::Here`].
    pub(super) fn new(named: Option<&Path>, home: Home) -> Self {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let named = named.map(Path::to_owned);
        let named = named.or_else(|| variable("POLITESSE_CONFIG").map(PathBuf::from));
        let user_folder = |xdg: &str, below_home: &str| match home {
            Home::User => user_folder(variable(xdg), variable("HOME"), below_home),
            Home::Here => None,
        };
        Self {
            named,
            user_file: user_folder("XDG_CONFIG_HOME", ".config").map(|folder| folder.join(FILE)),
            system_file: PathBuf::from(SYSTEM_FILE),
            state: user_folder("XDG_STATE_HOME", ".local/state")
                .map(|folder| folder.join("politesse")),
        }
    }

    /// Reads the first file that is there.
    ///
    /// # Errors
    ///
    /// [`Usage::File`] if it cannot be read, or was named and is not there: to
    /// run by the next one would be another configuration in silence.
    pub(super) fn find(self) -> Result<Found, Usage> {
        if let Some(path) = self.named {
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(|source| unreadable(&path, source))?;
            return Ok(Found {
                file: Some((path, text)),
                data: None,
                looked_at: Vec::new(),
            });
        }
        let user_text = self.user_file.as_deref().map_or(Ok(None), read_if_there)?;
        if let (Some(path), Some(text)) = (&self.user_file, user_text) {
            return Ok(Found {
                file: Some((path.clone(), text)),
                data: self.state,
                looked_at: Vec::new(),
            });
        }
        if let Some(text) = read_if_there(&self.system_file)? {
            return Ok(Found {
                file: Some((self.system_file, text)),
                data: None,
                looked_at: Vec::new(),
            });
        }
        Ok(Found {
            file: None,
            data: self.state,
            looked_at: self
                .user_file
                .into_iter()
                .chain([self.system_file])
                .collect(),
        })
    }
}

impl Found {
    /// Comment lines for `config show`: which file it is, and which folders
    /// relative paths start from.
    pub(super) fn comment(&self, working_directory: &Path) -> String {
        let (file, folder) = match &self.file {
            Some((path, _)) => {
                let path = working_directory.join(path);
                let folder = path.parent().unwrap_or(working_directory).to_owned();
                (path.display().to_string(), folder)
            }
            None => {
                let looked_at = self.looked_at.iter().map(|path| path.display().to_string());
                let looked_at: Vec<_> = looked_at.collect();
                let file = format!("none; there is no {}", looked_at.join(" and no "));
                (file, working_directory.to_owned())
            }
        };
        let data = self.data.as_deref().unwrap_or(&folder);
        format!(
            "# Configuration file: {file}\n\
             # ca_cert, ca_key, store and token_file are relative to {}\n\
             # other paths are relative to {}\n\n",
            data.display(),
            folder.display()
        )
    }
}

/// The folder that `xdg` names, else the one at `below_home` in `home`.
///
/// The specification has relative paths ignored.
fn user_folder(xdg: Option<OsString>, home: Option<OsString>, below_home: &str) -> Option<PathBuf> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    let default = || Some(absolute(home?)?.join(below_home));
    xdg.and_then(absolute).or_else(default)
}

fn read_if_there(path: &Path) -> Result<Option<String>, Usage> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(source) => Err(unreadable(path, source)),
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> Usage {
    Usage::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(xdg: Option<&str>, home: Option<&str>) -> Option<PathBuf> {
        user_folder(xdg.map(OsString::from), home.map(OsString::from), ".config")
    }

    // XDG Base Directory specification 0.8, "Basics": a relative path is
    // invalid, and is ignored.
    #[test]
    fn a_relative_path_in_a_variable_is_ignored() {
        let home = PathBuf::from("/home/u/.config");
        assert_eq!(folder(Some("conf"), Some("/home/u")), Some(home.clone()));
        assert_eq!(folder(None, Some("/home/u")), Some(home));
        assert_eq!(folder(Some("/x"), Some("/home/u")), Some("/x".into()));
        assert_eq!(folder(Some("/x"), None), Some("/x".into()));
        assert_eq!(folder(Some("x"), None), None);
        assert_eq!(folder(None, Some("home")), None);
    }

    /// Places in `root`, all of them without a file.
    fn places(root: &Path) -> Places {
        Places {
            named: None,
            user_file: Some(root.join("config").join(FILE)),
            system_file: root.join("etc/politesse.toml"),
            state: Some(root.join("state/politesse")),
        }
    }

    fn write(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, path.display().to_string()).unwrap();
    }

    // Ours.
    #[test]
    fn the_first_file_that_is_there_counts() {
        let root = tempfile::tempdir().unwrap();
        let all = places(root.path());
        let user_file = all.user_file.unwrap();
        let state = all.state;
        let found = || places(root.path()).find().unwrap();
        assert!(found().file.is_none());
        assert_eq!(found().data, state);
        write(&all.system_file);
        assert_eq!(found().file.unwrap().0, all.system_file);
        assert_eq!(found().data, None, "its data lie beside it");
        write(&user_file);
        assert_eq!(found().file.unwrap().0, user_file);
        assert_eq!(found().data, state);
        let named = root.path().join("named.toml");
        write(&named);
        let named_places = Places {
            named: Some(named.clone()),
            ..places(root.path())
        };
        let found = named_places.find().unwrap();
        assert_eq!(found.file.unwrap().0, named);
        assert_eq!(found.data, None);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let folder_in_its_place = places(root.path()).user_file.unwrap();
        std::fs::create_dir_all(&folder_in_its_place).unwrap();
        assert!(places(root.path()).find().is_err());
        let absent = Places {
            named: Some(root.path().join("absent.toml")),
            ..places(root.path())
        };
        assert!(absent.find().is_err());
    }
}
