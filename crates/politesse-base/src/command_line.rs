//! Command lines for users of this installation: the program, and the options with which
//! it finds the configuration in use.
//!
//! A command in a message is useful only if it works when pasted, from any folder. The
//! prefix is global to the process, because messages come from everywhere. Does not know
//! which commands exist.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::inert::shell_quoted;

/// Configuration keys that commands need: files that they read, and the listener that they
/// connect to.
pub const PLACES: [&str; 5] = [
    "admin.listen",
    "admin.token_file",
    "audit.store",
    "https.ca_cert",
    "https.ca_key",
];

/// Prefix of all command lines that this process prints.
static PREFIX: OnceLock<CommandPrefix> = OnceLock::new();

/// Program and options at the beginning of a command line.
struct CommandPrefix {
    /// Without secrets, for any reader.
    shown: String,
    /// With every `--set`, for the terminal where these options were typed.
    whole: String,
}

/// Configuration of this process, as named on the command line.
#[derive(Debug, Clone)]
pub struct Invocation<'a> {
    /// Configuration file, if the command line names one.
    pub file: Option<&'a Path>,
    /// Folder of `--here`.
    pub here: Option<&'a Path>,
    /// Arguments of `--set`.
    pub overrides: &'a [String],
    /// Settings from the environment, in the form `NAME=value` that a shell accepts before
    /// a command.
    pub variables: Vec<String>,
    /// Folders in which a shell looks for programs (`PATH`).
    pub search_path: Option<OsString>,
}

impl Invocation<'_> {
    /// Makes every command line begin with this program and these options from now on.
    /// Only the first call in a process has an effect.
    pub fn install(&self) {
        let executable = env::current_exe().unwrap_or_else(|_| "politesse".into());
        let mut searched = self.search_path.iter().flat_map(env::split_paths);
        let program = match is_found(&executable, &mut searched) {
            true => "politesse".to_owned(),
            false => quoted(&executable),
        };
        let folder = env::current_dir().unwrap_or_default();
        // Other options may contain a secret, and commands do not need them.
        let is_place = |entry: &str| {
            let key = entry.split('=').next().unwrap_or(entry);
            PLACES.contains(&key.trim())
        };
        PREFIX.get_or_init(|| CommandPrefix {
            shown: self.beginning(&program, &folder, is_place),
            whole: self.beginning(&program, &folder, |_| true),
        });
    }

    fn beginning(&self, program: &str, folder: &Path, is_kept: impl Fn(&str) -> bool) -> String {
        let mut words = self.variables.clone();
        words.push(program.to_owned());
        if let Some(file) = self.file {
            words.extend(["--config".to_owned(), quoted(&folder.join(file))]);
        } else if let Some(here) = self.here {
            // `components` removes the `.` at the end, which is the usual folder.
            let here: PathBuf = folder.join(here).components().collect();
            words.push(format!("--here={}", quoted(&here)));
        }
        for entry in self.overrides.iter().filter(|entry| is_kept(entry)) {
            words.extend(["--set".to_owned(), shell_quoted(entry)]);
        }
        words.join(" ")
    }
}

/// Returns a command line for this installation, such as `politesse --here=/srv audit list`.
pub fn command(arguments: impl Display) -> String {
    with(|prefix| &prefix.shown, &arguments)
}

/// Returns a command line with every option that was typed, which may contain secrets. Only
/// for the terminal where it was typed.
pub fn command_here(arguments: impl Display) -> String {
    with(|prefix| &prefix.whole, &arguments)
}

fn with(which: fn(&CommandPrefix) -> &String, arguments: &dyn Display) -> String {
    let prefix = PREFIX.get().map_or("politesse", |all| which(all));
    format!("{prefix} {arguments}")
}

/// Reports whether a shell finds `program` by its name alone.
fn is_found(program: &Path, folders: &mut dyn Iterator<Item = PathBuf>) -> bool {
    let found = folders
        .map(|folder| folder.join("politesse"))
        .find(|path| path.is_file());
    let canonical = |path: &Path| path.canonicalize().ok();
    found.is_some_and(|path| canonical(&path) == canonical(program))
}

fn quoted(path: &Path) -> String {
    shell_quoted(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: printed commands work from any folder.
    #[test]
    fn a_command_names_the_configuration_by_an_absolute_path() {
        let plain = Invocation {
            file: None,
            here: None,
            overrides: &[],
            variables: Vec::new(),
            search_path: None,
        };
        let file = Some(Path::new("conf/my crawl.toml"));
        let overrides = ["fleet.store='redis://:secret@h'", "audit.store='sqlite:a'"];
        let overrides = overrides.map(str::to_owned);
        for (invocation, wanted) in [
            (plain.clone(), "politesse"),
            (
                Invocation {
                    here: Some(Path::new(".")),
                    ..plain.clone()
                },
                "politesse --here=/srv/crawl",
            ),
            (
                Invocation {
                    file,
                    ..plain.clone()
                },
                "politesse --config '/srv/crawl/conf/my crawl.toml'",
            ),
            (
                Invocation {
                    overrides: &overrides,
                    ..plain.clone()
                },
                r"politesse --set 'audit.store='\''sqlite:a'\'''",
            ),
            (
                Invocation {
                    variables: vec!["POLITESSE_AUDIT__STORE=sqlite:a".to_owned()],
                    ..plain.clone()
                },
                "POLITESSE_AUDIT__STORE=sqlite:a politesse",
            ),
        ] {
            let beginning = invocation.beginning("politesse", Path::new("/srv/crawl"), |entry| {
                entry.starts_with("audit.store=")
            });
            assert_eq!(beginning, wanted);
        }
    }
}
