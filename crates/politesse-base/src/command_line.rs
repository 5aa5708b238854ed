//! Command lines in messages: `politesse` commands that a reader can paste into a shell.
//!
//! A pasted command must work from any folder, and must find the configuration of the
//! process that printed it. So each command line begins with a prefix: the program, and
//! the options that name this configuration. The prefix is global to the process, because
//! messages come from everywhere. Does not know which commands exist.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::inert::shell_quoted;

/// Configuration keys that other commands need: files that they read, and the listener that
/// they connect to. Their values, paths and an address, contain no secret.
pub const COMMAND_KEYS: [&str; 5] = [
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
    /// With the settings of [`COMMAND_KEYS`] only, and so without secrets: for pages, logs
    /// and other places that anyone may read.
    for_anyone: String,
    /// With every `--set`, for the terminal where these options were typed.
    for_terminal: String,
}

/// Configuration of this process, as named on the command line.
#[derive(Debug, Clone)]
pub struct Invocation<'a> {
    /// Configuration file, if one was named (`--config`, `POLITESSE_CONFIG`).
    pub file: Option<&'a Path>,
    /// Folder of `--here`. Has no effect with a `file`.
    pub here: Option<&'a Path>,
    /// Arguments of `--set`, in the form `KEY=VALUE`.
    pub overrides: &'a [String],
    /// Variables of the environment that set [`COMMAND_KEYS`], in the form `NAME=value`
    /// that a shell accepts before a command.
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
        // Other settings may contain a secret, and commands do not need them.
        let is_for_commands = |entry: &str| {
            let key = entry.split('=').next().unwrap_or(entry);
            COMMAND_KEYS.contains(&key.trim())
        };
        PREFIX.get_or_init(|| CommandPrefix {
            for_anyone: self.prefix(&program, &folder, is_for_commands),
            for_terminal: self.prefix(&program, &folder, |_| true),
        });
    }

    /// Returns the prefix with the settings of `--set` for which `is_kept` returns true.
    /// Paths become absolute, relative to `folder`.
    fn prefix(&self, program: &str, folder: &Path, is_kept: impl Fn(&str) -> bool) -> String {
        let mut words = self.variables.clone();
        words.push(program.to_owned());
        if let Some(file) = self.file {
            words.extend(["--config".to_owned(), quoted(&folder.join(file))]);
        } else if let Some(here) = self.here {
            // `components` removes the `.` at the end, which is the usual folder.
            let absolute: PathBuf = folder.join(here).components().collect();
            words.push(format!("--here={}", quoted(&absolute)));
        }
        for entry in self.overrides.iter().filter(|entry| is_kept(entry)) {
            words.extend(["--set".to_owned(), shell_quoted(entry)]);
        }
        words.join(" ")
    }
}

/// Returns a command line without secrets, for messages that anyone may read, such as
/// `politesse --here=/srv audit list`.
pub fn command(arguments: impl Display) -> String {
    with_prefix(|prefix| &prefix.for_anyone, &arguments)
}

/// Returns a command line with all settings of `--set`, which may contain secrets. Only for
/// the terminal where they were typed.
pub fn terminal_command(arguments: impl Display) -> String {
    with_prefix(|prefix| &prefix.for_terminal, &arguments)
}

fn with_prefix(form: fn(&CommandPrefix) -> &String, arguments: &dyn Display) -> String {
    let prefix = PREFIX.get().map_or("politesse", |forms| form(forms));
    format!("{prefix} {arguments}")
}

/// Reports whether `politesse` in a shell, which searches `folders`, is `program`.
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
            let prefix = invocation.prefix("politesse", Path::new("/srv/crawl"), |entry| {
                entry.starts_with("audit.store=")
            });
            assert_eq!(prefix, wanted);
        }
    }
}
