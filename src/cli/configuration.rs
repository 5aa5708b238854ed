//! Configuration of a command: where its file is looked for, where certificates and the
//! record are by default, and the commands `config show` and `config check`.
//!
//! The user's folders follow the XDG Base Directory specification, 0.8. Does not know
//! which keys exist.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::output::{Usage, print_notice};
use crate::config::{Config, ConfigSources, Settings, variable_of};
use crate::serve::files_check::unusable_files;
use politesse_base::clock;
use politesse_base::command_line::{COMMAND_KEYS, Invocation};
use politesse_base::inert::shell_quoted;
use politesse_decision::decide::EnforcementMode;
use politesse_proxy::credentials::AuthMode;

/// Path of the configuration file below the user's configuration folder.
const FILE: &str = "politesse/politesse.toml";
/// Configuration file of the machine.
const SYSTEM_FILE: &str = "/etc/politesse/politesse.toml";

/// Part of the command line that selects the configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConfigurationRequest<'a> {
    /// File that `--config` names.
    pub(super) file: Option<&'a Path>,
    /// Folders to use if no file is named.
    pub(super) home: Home<'a>,
    /// Values of `--set`.
    pub(super) overrides: &'a [String],
}

/// Folders to use if no configuration file is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home<'a> {
    /// The user's folders: `$XDG_CONFIG_HOME` and `$XDG_STATE_HOME`.
    User,
    /// This folder (`--here`).
    Folder(&'a Path),
}

impl ConfigurationRequest<'_> {
    /// Makes the commands in messages use this configuration.
    pub(super) fn install(self) {
        let places = ConfigPlaces::new(self.file, self.home);
        if let Ok(location) = places.locate()
            && let Some(folder) = self.closed_folder(&places, &location)
        {
            print_notice(&format!(
                "{} is left out: its record in {} belongs to another user. To use that proxy, run \
                 this as its user, such as `runuser -u politesse -- politesse ...`",
                places.system_file.display(),
                folder.display()
            ));
        }
        let here = match self.home {
            Home::Folder(folder) => Some(folder),
            // The working folder replaces the folders that the user does not have.
            Home::User if places.state.is_none() && !places.system_file.exists() => {
                Some(Path::new("."))
            }
            Home::User => None,
        };
        Invocation {
            file: places.named.as_deref(),
            here,
            overrides: self.overrides,
            variables: variables_of_command_keys(),
            search_path: variable("PATH"),
        }
        .install();
    }

    /// Reads the configuration from its file, the environment and the command line.
    ///
    /// # Errors
    ///
    /// [`Usage::File`] or [`Usage::Configuration`].
    pub(super) fn settings(self) -> Result<Settings, Usage> {
        Ok(self.read(self.locate()?)?.settings().clone())
    }

    /// Returns the path of the file in use, if any.
    ///
    /// # Errors
    ///
    /// [`Usage::File`].
    pub(super) fn file(self) -> Result<Option<PathBuf>, Usage> {
        Ok(self.locate()?.file.map(|(path, _)| path))
    }

    /// Reads the configuration with `text` in place of the contents of the file in use.
    ///
    /// # Errors
    ///
    /// Those of [`Self::settings`].
    pub(super) fn settings_with(self, text: String) -> Result<Settings, Usage> {
        let mut location = self.locate()?;
        if let Some((_, in_file)) = &mut location.file {
            *in_file = text;
        }
        Ok(self.read(location)?.settings().clone())
    }

    /// Lists every key in force, below comments that name the file and folders in use.
    ///
    /// # Errors
    ///
    /// Those of [`Self::settings`].
    pub(super) fn show(self) -> Result<String, Usage> {
        let location = self.locate()?;
        let comment = location.comment(&self.working_directory(&location));
        Ok(comment + &self.read(location)?.show())
    }

    /// Reports that the configuration is valid and its files are usable, and which
    /// parts of it have no effect.
    ///
    /// # Errors
    ///
    /// Those of [`Self::settings`].
    pub(super) fn check(self) -> Result<String, Usage> {
        let settings = self.settings()?;
        check_conflicts(&settings)?;
        check_files(&settings)?;
        let now = clock::now();
        let mut text = "the configuration is good\n".to_owned();
        if settings.policy.terms().mode == EnforcementMode::Report {
            text.push_str("enforcement.mode is \"report\": nothing is refused by robots.txt\n");
        }
        text.push_str(auth_note(&settings).unwrap_or_default());
        let overrides = settings.policy.terms().overrides.iter();
        // An override that has ended is no error, because it was meant to end; but its
        // author may believe that it is still in force.
        for entry in overrides.filter(|entry| entry.has_ended(now)) {
            let end = entry.action.until().map(|end| end.to_string());
            text.push_str(&format!(
                "the {} of robots.override for {} ended at {}: it is not in force\n",
                entry.action.as_str(),
                entry.origin,
                end.unwrap_or_default()
            ));
        }
        Ok(text)
    }

    /// Returns the folder that the file's name is relative to, and every path if there
    /// is no file.
    fn working_directory(self, location: &ConfigLocation) -> PathBuf {
        let folder = env::current_dir().unwrap_or_default();
        match self.home {
            Home::Folder(here) if location.file.is_none() => folder.join(here),
            Home::Folder(_) | Home::User => folder,
        }
    }

    /// Warns about the location of certificates and record if the user has no folders
    /// and named none: the next start in another folder would not find them.
    pub(super) fn warn_without_home(self, settings: &Settings) {
        let places = ConfigPlaces::new(self.file, self.home);
        let is_chosen = self.home != Home::User || places.named.is_some();
        let is_of_system = settings.file.as_ref() == Some(&places.system_file);
        if is_chosen || is_of_system || places.state.is_some() {
            return;
        }
        let folder = env::current_dir().unwrap_or_default();
        tracing::warn!(
            certificate = %folder.join(&settings.ca.cert).display(),
            record = %folder.join(&settings.audit.path).display(),
            "neither HOME nor XDG_STATE_HOME is set: certificates and record are in {}. Set \
             HOME, or choose a folder with --here or a file with --config",
            folder.display()
        );
    }

    /// Finds the configuration. The machine's is skipped for a user who may not open
    /// its record: that user's commands use the user's own folders.
    fn locate(self) -> Result<ConfigLocation, Usage> {
        let places = ConfigPlaces::new(self.file, self.home);
        let location = places.locate()?;
        if self.closed_folder(&places, &location).is_some() {
            return Ok(places.without_file());
        }
        Ok(location)
    }

    /// Returns the folder of the machine's record if that configuration was found and
    /// this user may not open the folder.
    fn closed_folder(self, places: &ConfigPlaces, location: &ConfigLocation) -> Option<PathBuf> {
        let (path, _) = location.file.as_ref()?;
        if places.named.is_some() || *path != places.system_file {
            return None;
        }
        // The command that reads the file reports its errors.
        let config = self.read(location.clone()).ok()?;
        let folder = config.settings().audit.path.parent()?.to_owned();
        // An existing folder only has to be readable; a missing one has to be created.
        let is_closed = match folder.exists() {
            true => is_closed(&folder),
            false => is_denied(nearest(&folder), Access::WRITE_OK),
        };
        is_closed.then_some(folder)
    }

    fn read(self, location: ConfigLocation) -> Result<Config, Usage> {
        Ok(Config::read(&ConfigSources {
            working_directory: self.working_directory(&location),
            file: location.file,
            // A variable that is not UTF-8 cannot be one of ours: all of our names and
            // values are text.
            environment: env::vars_os()
                .filter_map(|(key, value)| {
                    Some((key.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
            overrides: self.overrides,
            data_directory: location.data,
        })?)
    }
}

/// Checks for conflicts between values that are each valid on their own.
///
/// # Errors
///
/// [`Usage::Arguments`] with all of the conflicts.
pub(super) fn check_conflicts(settings: &Settings) -> Result<(), Usage> {
    let conflicts = settings.conflicts();
    if conflicts.is_empty() {
        return Ok(());
    }
    Err(Usage::Arguments(conflicts.join("\n")))
}

/// Checks that a start could use all files that it would open.
///
/// # Errors
///
/// [`Usage::Arguments`] with all of the problems.
fn check_files(settings: &Settings) -> Result<(), Usage> {
    let unusable = unusable_files(settings);
    if unusable.is_empty() {
        return Ok(());
    }
    let lines: Vec<_> = unusable.iter().map(|error| format!("{error:#}")).collect();
    Err(Usage::Arguments(lines.join("\n")))
}

/// Refuses to create files for the machine's proxy as root: its own user could not read
/// them, and its next start would fail.
///
/// # Errors
///
/// [`Usage::Arguments`] if the record's folder belongs to a user other than root.
pub(super) fn check_owner(settings: &Settings) -> Result<(), Usage> {
    let is_of_system = settings.file.as_deref() == Some(Path::new(SYSTEM_FILE));
    let folder = nearest(&settings.audit.path);
    let owner = std::fs::metadata(folder).map_or(0, |found| found.uid());
    if !geteuid().is_root() || !is_of_system || owner == 0 {
        return Ok(());
    }
    Err(Usage::Arguments(format!(
        "{} belongs to the user with uid {owner}, and this is root: the proxy could not read the \
         files that this makes. Run it as that user, such as `runuser -u politesse -- politesse \
         ...`",
        folder.display()
    )))
}

/// Reports whether this user lacks permission to open a folder.
pub(super) fn is_closed(folder: &Path) -> bool {
    is_denied(folder, Access::READ_OK | Access::EXEC_OK)
}

fn is_denied(path: &Path, wanted: Access) -> bool {
    matches!(access(path, wanted), Err(Errno::ACCESS))
}

/// Returns `path`, or its nearest existing ancestor.
pub(super) fn nearest(path: &Path) -> &Path {
    let there = path.ancestors().find(|path| path.exists());
    there.unwrap_or(Path::new("."))
}

/// Returns a line if `proxy.auth` and the credentials of `crawler` contradict each
/// other.
fn auth_note(settings: &Settings) -> Option<&'static str> {
    let options = &settings.exchange.request;
    let mut entries = options.identities.entries().iter();
    let has_credentials = entries.any(|entry| entry.credential.is_some());
    match options.auth {
        AuthMode::Off if has_credentials => {
            Some("proxy.auth is \"off\": credentials of crawler are not checked\n")
        }
        AuthMode::Required if !has_credentials => Some(
            "proxy.auth is \"required\", and no entry of crawler has a credential: every \
             request is answered with 407\n",
        ),
        AuthMode::Off | AuthMode::Optional | AuthMode::Required => None,
    }
}

/// Returns the variables that set the keys of [`COMMAND_KEYS`], as shell assignments.
fn variables_of_command_keys() -> Vec<String> {
    let assigned = COMMAND_KEYS.iter().filter_map(|key| {
        let name = variable_of(key);
        let value = variable(&name)?.into_string().ok()?;
        Some(format!("{name}={}", shell_quoted(&value)))
    });
    assigned.collect()
}

/// Returns an environment variable. Empty ones count as unset, as the XDG specification
/// requires.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Places where a configuration file is looked for, in order: the named file, the
/// user's, the machine's.
#[derive(Debug)]
struct ConfigPlaces {
    /// File of `--config`, else of `POLITESSE_CONFIG`.
    named: Option<PathBuf>,
    /// User's file.
    user_file: Option<PathBuf>,
    /// File of the machine.
    system_file: PathBuf,
    /// Folder for the user's certificates and record.
    state: Option<PathBuf>,
}

/// Configuration file, and folder of its data.
#[derive(Debug, Clone, Default)]
struct ConfigLocation {
    /// Path and text of the file; if absent, the built-in defaults apply.
    file: Option<(PathBuf, String)>,
    /// Folder that certificates and the record are relative to, if it differs from the
    /// folder of the file.
    data: Option<PathBuf>,
    /// Paths where no file was found, if none of them had one.
    missing: Vec<PathBuf>,
}

impl ConfigPlaces {
    /// Collects the places from the command line and the environment. Without `HOME`
    /// the user has no folders, as with [`Home::Folder`].
    fn new(named: Option<&Path>, home: Home<'_>) -> Self {
        let named_by_variable = || variable("POLITESSE_CONFIG").map(PathBuf::from);
        let user_folder = |xdg: &str, below_home: &str| match home {
            Home::User => user_folder(variable(xdg), variable("HOME"), below_home),
            Home::Folder(_) => None,
        };
        Self {
            named: named.map(Path::to_owned).or_else(named_by_variable),
            user_file: user_folder("XDG_CONFIG_HOME", ".config").map(|folder| folder.join(FILE)),
            system_file: PathBuf::from(SYSTEM_FILE),
            state: user_folder("XDG_STATE_HOME", ".local/state")
                .map(|folder| folder.join("politesse")),
        }
    }

    /// Reads the first file that exists.
    ///
    /// # Errors
    ///
    /// [`Usage::File`] if that file cannot be read, or if the named file does not
    /// exist: continuing with the next place would silently use another configuration.
    fn locate(&self) -> Result<ConfigLocation, Usage> {
        if let Some(path) = self.named.clone() {
            let text = std::fs::read_to_string(&path).map_err(|source| Usage::File {
                path: path.clone(),
                source,
            })?;
            return Ok(ConfigLocation::of_file(path, text));
        }
        if let Some(path) = &self.user_file
            && let Some(text) = read_if_there(path)?
        {
            return Ok(ConfigLocation {
                data: self.state.clone(),
                ..ConfigLocation::of_file(path.clone(), text)
            });
        }
        if let Some(text) = read_if_there(&self.system_file)? {
            return Ok(ConfigLocation::of_file(self.system_file.clone(), text));
        }
        Ok(self.without_file())
    }

    /// Returns the built-in defaults, with the data in the user's folder.
    fn without_file(&self) -> ConfigLocation {
        // `config show` lists them, so that the user sees where a file would be read.
        let missing = self.user_file.iter().chain([&self.system_file]);
        ConfigLocation {
            file: None,
            data: self.state.clone(),
            missing: missing.cloned().collect(),
        }
    }
}

impl ConfigLocation {
    fn of_file(path: PathBuf, text: String) -> Self {
        Self {
            file: Some((path, text)),
            ..Self::default()
        }
    }

    /// Returns comment lines for `config show`: the file, and the folders that relative
    /// paths start from.
    fn comment(&self, working_directory: &Path) -> String {
        let (file, folder) = match &self.file {
            Some((path, _)) => {
                let path = working_directory.join(path);
                let folder = path.parent().unwrap_or(working_directory).to_owned();
                (path.display().to_string(), folder)
            }
            None => {
                let missing = self.missing.iter().map(|path| path.display().to_string());
                let list = missing.collect::<Vec<_>>().join(" and no ");
                let file = format!("none; there is no {list} for this user");
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

/// Returns the folder that `xdg` names, or `below_home` in `home` if it names none.
///
/// Relative paths are ignored, as the specification requires.
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
        Err(source) => Err(Usage::File {
            path: path.to_owned(),
            source,
        }),
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

    /// Returns places in `root`, all of them without a file.
    fn places(root: &Path) -> ConfigPlaces {
        ConfigPlaces {
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
    fn the_first_existing_file_is_used() {
        let root = tempfile::tempdir().unwrap();
        let all = places(root.path());
        let user_file = all.user_file.unwrap();
        let state = all.state;
        let found = || places(root.path()).locate().unwrap();
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
        let named_places = ConfigPlaces {
            named: Some(named.clone()),
            ..places(root.path())
        };
        let found = named_places.locate().unwrap();
        assert_eq!(found.file.unwrap().0, named);
        assert_eq!(found.data, None);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let folder_in_its_place = places(root.path()).user_file.unwrap();
        std::fs::create_dir_all(&folder_in_its_place).unwrap();
        assert!(places(root.path()).locate().is_err());
        let absent = ConfigPlaces {
            named: Some(root.path().join("absent.toml")),
            ..places(root.path())
        };
        assert!(absent.locate().is_err());
    }
}
