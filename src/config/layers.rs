//! Layers of a configuration: the values of each key, from the weakest source to
//! the strongest (default, file, environment, `--set`).
//!
//! The values of weaker sources are checked too, since they come into force the day
//! the stronger one is taken away. Knows the names of keys, not their kinds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::kinds::{Fault, Kind};
use super::problem::{ConfigProblem, Place, dotted, nearest};
use super::values::{Inline, name_text};

/// Beginning of the variables of the environment that set a key.
const PREFIX: &str = "POLITESSE_";

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

/// A table of the file and the keys in it.
pub(super) struct Section {
    /// Its name in brackets; empty for the keys above all tables.
    pub(super) name: &'static str,
    /// Its subject, a line each.
    pub(super) about: &'static [&'static str],
    /// Its keys, in the order of printing.
    pub(super) keys: &'static [Key],
}

/// A key as people see it; its kind and type are known to the table alone.
pub(super) struct Key {
    /// Its name without the section.
    pub(super) name: &'static str,
    /// The value in force when nobody says otherwise, as TOML.
    pub(super) default: &'static str,
    /// Its purpose and the reason of the default, a line each.
    pub(super) doc: &'static [&'static str],
    /// Describes its values, with their unit and bounds.
    pub(super) wanted: fn() -> String,
}

impl Key {
    /// Name of this key of `section`.
    pub(super) fn of(&self, section: &Section) -> KeyName {
        KeyName {
            section: section.name,
            name: self.name,
        }
    }
}

/// Name of a key in the table, displayed as `section.name`, or as the name alone
/// outside every section.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyName {
    pub(super) section: &'static str,
    pub(super) name: &'static str,
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&dotted(self.section, self.name))
    }
}

impl Section {
    /// Names of its keys.
    pub(super) fn names(&self) -> impl Iterator<Item = KeyName> {
        self.keys.iter().map(|key| key.of(self))
    }

    /// Whether its keys stand outside every table.
    pub(super) fn is_root(&self) -> bool {
        self.name.is_empty()
    }

    /// The section around this one, or nothing, and the name within it.
    fn place(&self) -> (&'static str, &'static str) {
        self.name.rsplit_once('.').unwrap_or(("", self.name))
    }
}

/// Source of a value, with the data to say so.
#[derive(Clone, Copy)]
enum ValueSource<'a> {
    Default,
    File { path: &'a Path, text: &'a str },
    Environment { name: &'a str },
    Override,
}

impl ValueSource<'_> {
    /// Place of the byte `at` of this source.
    fn place(self, at: usize) -> Place {
        match self {
            Self::Default => Place::Default,
            Self::File { path, text } => {
                let before = text.as_bytes().iter().take(at);
                let line = before.filter(|&&byte| byte == b'\n').count() + 1;
                let path = path.to_owned();
                Place::File { path, line }
            }
            Self::Environment { name } => Place::Environment {
                name: name.to_owned(),
            },
            Self::Override => Place::Override,
        }
    }
}

/// One name with its value, as a source has it.
struct Entry<'a> {
    name: Cow<'a, str>,
    /// Place of the name.
    place: Place,
    written: WrittenValue<'a>,
}

/// A value and the source it stands in.
struct WrittenValue<'a> {
    value: Spanned<DeValue<'a>>,
    source: ValueSource<'a>,
}

impl WrittenValue<'_> {
    fn place(&self) -> Place {
        self.source.place(self.value.span().start)
    }
}

/// Values of every key in every source, and the problems found so far.
pub(super) struct Layers<'a> {
    sections: &'static [Section],
    /// The weakest value first.
    written: BTreeMap<KeyName, Vec<WrittenValue<'a>>>,
    problems: Vec<ConfigProblem>,
}

impl<'a> Layers<'a> {
    /// Reads all sources against the table of `sections`.
    pub(super) fn gather(sections: &'static [Section], sources: &'a ConfigSources<'a>) -> Self {
        let mut layers = Self {
            sections,
            written: BTreeMap::new(),
            problems: Vec::new(),
        };
        // The order is that of strength: a value that is added later counts.
        layers.add_defaults();
        if let Some((path, text)) = &sources.file {
            layers.add_file(path, text);
        }
        for (name, value) in &sources.environment {
            layers.add_variable(name, value);
        }
        for argument in sources.overrides {
            layers.add_override(argument);
        }
        layers
    }

    /// Reads the strongest value of a key into its own type.
    ///
    /// `None` if it is wrong; the faults of all values are kept for
    /// [`Layers::into_problems`].
    pub(super) fn read<K: Kind>(&mut self, key: KeyName, kind: &K) -> Option<K::Value> {
        let mut strongest = Err(());
        let mut faults = Vec::new();
        for written in self.written.get(&key).into_iter().flatten() {
            let read = kind.read(&written.value);
            strongest = read.map_err(|found| {
                faults.extend(found.into_iter().map(|fault| (written.source, fault)));
            });
        }
        for (source, fault) in faults {
            self.add_fault(&key.to_string(), source, fault);
        }
        strongest.ok()
    }

    /// Keeps a fault in the value of `key`.
    fn add_fault(&mut self, key: &str, source: ValueSource<'_>, fault: Fault) {
        // Where the parser cannot read a value it has complained already, and has
        // made one up that has no place in the text.
        let is_broken = |problem: &ConfigProblem| matches!(problem, ConfigProblem::Syntax { .. });
        let in_file = matches!(source, ValueSource::File { .. });
        if in_file && fault.span.is_empty() && self.problems.iter().any(is_broken) {
            return;
        }
        let place = source.place(fault.span.start);
        self.problems.push(ConfigProblem::of(fault, key, place));
    }

    /// The table that the sources are read against.
    pub(super) fn sections(&self) -> &'static [Section] {
        self.sections
    }

    /// Returns the strongest value of a key as TOML, and its place.
    pub(super) fn shown(&self, key: KeyName) -> Option<(String, Place)> {
        let written = self.written.get(&key)?.last()?;
        Some((Inline(written.value.get_ref()).to_string(), written.place()))
    }

    /// Returns every problem of the values gathered and read.
    pub(super) fn into_problems(self) -> Vec<ConfigProblem> {
        self.problems
    }

    fn add_defaults(&mut self) {
        for section in self.sections {
            for key in section.keys {
                let value = value_of(key.default, ValueSource::Default);
                self.written.entry(key.of(section)).or_default().push(value);
            }
        }
    }

    /// Takes the file's tables apart. What is not TOML is a problem, and the rest is
    /// read all the same.
    fn add_file(&mut self, path: &'a Path, text: &'a str) {
        let source = ValueSource::File { path, text };
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            self.problems.push(ConfigProblem::Syntax {
                place: source.place(error.span().map_or(0, |span| span.start)),
                // Each problem is printed on one line, by which programs can
                // tell them apart.
                message: error.message().replace('\n', " "),
            });
        }
        self.add_table("", table.into_inner(), source);
    }

    fn add_table(&mut self, section: &str, table: DeTable<'a>, source: ValueSource<'a>) {
        for (name, value) in table {
            let entry = Entry {
                place: source.place(name.span().start),
                name: name.into_inner(),
                written: WrittenValue { value, source },
            };
            self.add_entry(section, entry);
        }
    }

    /// Adds the value of a key, or a section, or a problem if the name is neither.
    fn add_entry(&mut self, section: &str, entry: Entry<'a>) {
        let name = entry.name.as_ref();
        if let Some(key) = self.key(section, name) {
            self.written.entry(key).or_default().push(entry.written);
        } else if let Some(inner) = self
            .sections
            .iter()
            .find(|inner| !inner.is_root() && inner.place() == (section, name))
        {
            self.add_section(inner.name, entry.written);
        } else {
            let key = dotted(section, &name_text(name));
            let near = nearest(self.known(), &key);
            let place = entry.place;
            self.problems
                .push(ConfigProblem::UnknownKey { place, key, near });
        }
    }

    fn add_section(&mut self, section: &'static str, written: WrittenValue<'a>) {
        let WrittenValue { value, source } = written;
        let fault = Fault::whole(&value, "a table".to_owned());
        match value.into_inner() {
            DeValue::Table(table) => self.add_table(section, table, source),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => self.add_fault(section, source, fault),
        }
    }

    /// Adds `POLITESSE_SECTION__KEY`, or `POLITESSE_KEY` of a key outside every
    /// section.
    ///
    /// A name with single underscores that spells a key is a mistake: the
    /// proxy would run with the default, and nobody would know. Any other name
    /// without `__` is not meant for us even if it begins like ours: container
    /// platforms set `POLITESSE_PORT` for a service of our name.
    fn add_variable(&mut self, name: &'a str, value: &'a str) {
        let Some(rest) = name.strip_prefix(PREFIX) else {
            return;
        };
        let path = rest.to_ascii_lowercase().replace("__", ".");
        if rest.contains("__") || self.key("", &path).is_some() {
            self.add_path(&path, value_of(value, ValueSource::Environment { name }));
        } else if let Some(wanted) = self.variable_spelled_like(rest) {
            let place = ValueSource::Environment { name }.place(0);
            self.problems
                .push(ConfigProblem::Variable { place, wanted });
        }
    }

    /// Returns the variable of the key or section that `rest` names, were there no
    /// difference between one underscore and two.
    fn variable_spelled_like(&self, rest: &str) -> Option<String> {
        let mut known = self.known();
        let key = known.find(|key| key.replace('.', "_").eq_ignore_ascii_case(rest))?;
        // A section by itself has no variable, and `pace` is spelled as it is.
        key.contains('.')
            .then(|| format!("{PREFIX}{}", key.replace('.', "__").to_ascii_uppercase()))
    }

    /// Adds `section.key=value`.
    fn add_override(&mut self, argument: &'a str) {
        match argument.split_once('=') {
            Some((path, value)) => {
                self.add_path(path.trim(), value_of(value, ValueSource::Override));
            }
            None => self.problems.push(ConfigProblem::NoValue {
                place: Place::Override,
                argument: argument.to_owned(),
            }),
        }
    }

    /// Adds a value by the path of its key, as `section.name`.
    fn add_path(&mut self, path: &str, written: WrittenValue<'a>) {
        let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
        let entry = Entry {
            name: Cow::Owned(name.to_owned()),
            place: written.source.place(0),
            written,
        };
        self.add_entry(section, entry);
    }

    /// Looks a key up in the table.
    fn key(&self, section: &str, name: &str) -> Option<KeyName> {
        let section = self.sections.iter().find(|known| known.name == section)?;
        let key = section.keys.iter().find(|key| key.name == name)?;
        Some(key.of(section))
    }

    /// Names of all keys and sections.
    fn known(&self) -> impl Iterator<Item = String> {
        self.sections.iter().flat_map(|section| {
            let keys = section.names().map(|name| name.to_string());
            keys.chain((!section.is_root()).then(|| section.name.to_owned()))
        })
    }
}

/// Reads a value as TOML, else as a string.
fn value_of<'a>(text: &'a str, source: ValueSource<'a>) -> WrittenValue<'a> {
    let as_string = || Spanned::new(0..text.len(), DeValue::String(Cow::Borrowed(text)));
    // In a shell quotes would have to be quoted: `--set log.level=debug` has to
    // do.
    let value = DeValue::parse(text).unwrap_or_else(|_| as_string());
    WrittenValue { value, source }
}
