//! Layers of a configuration: the values of each key, from the weakest source to the
//! strongest (default, file, environment, `--set`).
//!
//! Values of weaker sources are checked too, because they take effect as soon as the
//! stronger one is removed. Knows the names of keys, not their kinds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::kinds::Kind;
use super::problem::{ConfigProblem, Fault, Mistake, Place, dotted, nearest};
use super::secrets::without_secrets;
use super::values::{inline, name_text};

/// Prefix of environment variables that set a key.
const PREFIX: &str = "POLITESSE_";

/// Returns the environment variable that sets `key`, which has a section.
pub(crate) fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_ascii_uppercase())
}

/// Sources of a configuration.
#[derive(Clone, Debug)]
pub struct ConfigSources<'a> {
    /// Configuration file as the user named it, with its text.
    pub file: Option<(PathBuf, String)>,
    /// Environment variables. Only names that begin with `POLITESSE_` count.
    pub environment: Vec<(String, String)>,
    /// Arguments of `--set`.
    pub overrides: &'a [String],
    /// Folder that the file's name is relative to, and every path if there is no file.
    pub working_directory: PathBuf,
    /// Folder that the paths of files written by the proxy (`https.ca_cert`,
    /// `https.ca_key`, `audit.store`, `admin.token_file`) are relative to. If absent,
    /// they are treated like other paths.
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
    /// Returns the folders that paths from any source are relative to. With a file it
    /// is the file's folder, so that a file and its data can be moved together.
    pub(super) fn folders(&self) -> Folders {
        let path = self.path();
        let folder = path.as_deref().and_then(Path::parent);
        let base = folder.unwrap_or(&self.working_directory).to_owned();
        Folders {
            data: self.data_directory.clone().unwrap_or_else(|| base.clone()),
            base,
        }
    }

    /// Returns the path of the file, resolved against the working directory.
    pub(super) fn path(&self) -> Option<PathBuf> {
        let (path, _) = self.file.as_ref()?;
        Some(self.working_directory.join(path))
    }
}

/// A table of the file and its keys.
pub(super) struct Section {
    /// Name in brackets; empty for the keys above all tables.
    pub(super) name: &'static str,
    /// Description, one line per item.
    pub(super) about: &'static [&'static str],
    /// Keys, in the order of printing.
    pub(super) keys: &'static [Key],
}

/// Key as users see it. Only the table of keys knows its kind and type.
pub(super) struct Key {
    /// Name of the section.
    pub(super) section: &'static str,
    /// Name without the section.
    pub(super) name: &'static str,
    /// Default value, as TOML.
    pub(super) default: &'static str,
    /// Purpose, and reason for the default; one line per item.
    pub(super) doc: &'static [&'static str],
    /// Describes the valid values, with their unit and bounds.
    pub(super) wanted: fn() -> String,
}

impl Key {
    /// Returns `section.name`, or the name alone for a key outside every section.
    pub(super) fn path(&self) -> String {
        dotted(self.section, self.name)
    }
}

impl Section {
    /// Reports whether the keys are outside every table.
    pub(super) fn is_root(&self) -> bool {
        self.name.is_empty()
    }
}

/// Source of values: its text, and the place where it begins.
#[derive(Clone)]
struct ValueSource<'a> {
    start: Place,
    text: &'a str,
}

impl ValueSource<'_> {
    /// Returns the place of the byte at offset `at` in this source.
    fn place(&self, at: usize) -> Place {
        let mut place = self.start.clone();
        if let Place::File { line, .. } = &mut place {
            let before = self.text.as_bytes().iter().take(at);
            *line += before.filter(|&&byte| byte == b'\n').count();
        }
        place
    }
}

/// A value and its source.
struct WrittenValue<'a> {
    value: Spanned<DeValue<'a>>,
    source: ValueSource<'a>,
}

impl WrittenValue<'_> {
    fn place(&self) -> Place {
        self.source.place(self.value.span().start)
    }
}

/// Values of every key from every source, and the problems found so far.
pub(super) struct Layers<'a> {
    sections: &'static [Section],
    /// Values by the path of their key, weakest first.
    written: BTreeMap<String, Vec<WrittenValue<'a>>>,
    /// Problems of the values gathered and read so far.
    pub(super) problems: Vec<ConfigProblem>,
}

impl<'a> Layers<'a> {
    /// Reads all sources against the table of `sections`.
    pub(super) fn gather(sections: &'static [Section], sources: &'a ConfigSources<'a>) -> Self {
        let mut layers = Self {
            sections,
            written: BTreeMap::new(),
            problems: Vec::new(),
        };
        // In order of strength: a value that is added later overrides earlier ones.
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
    /// `None` if that value is wrong. The faults of all values are added to the
    /// problems.
    pub(super) fn read<K: Kind>(&mut self, key: &str, kind: &K) -> Option<K::Value> {
        let mut strongest = None;
        for WrittenValue { value, source } in self.written.get(key).into_iter().flatten() {
            let read = kind.read(value);
            strongest = read
                .map_err(|faults| add_faults(&mut self.problems, key, source, faults))
                .ok();
        }
        strongest
    }

    /// Returns the strongest value of a key as TOML, and its place.
    pub(super) fn shown(&self, key: &str) -> Option<(String, Place)> {
        let written = self.written.get(key)?.last()?;
        Some((inline(written.value.get_ref()), written.place()))
    }

    /// Returns the strongest value of a key as TOML, without its secrets.
    pub(super) fn shown_without_secrets(&self, key: &str) -> Option<String> {
        let written = self.written.get(key)?.last()?;
        Some(without_secrets(key, written.value.get_ref()))
    }

    /// Returns the place of each entry of a key's strongest value, if that is a list.
    pub(super) fn entry_places(&self, key: &str) -> Vec<Place> {
        let written = self.written.get(key).and_then(|values| values.last());
        let place_of = |written: &WrittenValue<'a>| -> Option<Vec<Place>> {
            let entries = written.value.get_ref().as_array()?.iter();
            let places = entries.map(|entry| written.source.place(entry.span().start));
            Some(places.collect())
        };
        written.and_then(place_of).unwrap_or_default()
    }

    fn add_defaults(&mut self) {
        for key in self.sections.iter().flat_map(|section| section.keys) {
            let value = value_of(key.default, Place::Default);
            self.written.entry(key.path()).or_default().push(value);
        }
    }

    /// Splits the file into its tables. A syntax error becomes a problem, and the rest
    /// is still read.
    fn add_file(&mut self, path: &Path, text: &'a str) {
        let path = path.to_owned();
        let start = Place::File { path, line: 1 };
        let source = ValueSource { start, text };
        let (table, errors) = DeTable::parse_recoverable(text);
        let problems = errors.into_iter().map(|error| ConfigProblem {
            place: source.place(error.span().map_or(0, |span| span.start)),
            key: String::new(),
            // Each problem is printed on one line, so that programs can separate them.
            mistake: Mistake::Syntax(error.message().replace('\n', " ")),
        });
        self.problems.extend(problems);
        self.add_table("", table.into_inner(), &source);
    }

    fn add_table(&mut self, section: &str, table: DeTable<'a>, source: &ValueSource<'a>) {
        for (name, value) in table {
            let path = dotted(section, &name_text(name.get_ref()));
            let place = source.place(name.span().start);
            let source = source.clone();
            self.add_value(path, place, WrittenValue { value, source });
        }
    }

    /// Adds the value of a key, or a section; adds a problem if `path` is neither.
    /// `place` is the place of the name.
    fn add_value(&mut self, path: String, place: Place, written: WrittenValue<'a>) {
        if let Some(values) = self.written.get_mut(&path) {
            values.push(written);
        } else if self.sections.iter().any(|section| section.name == path) {
            self.add_section(&path, written);
        } else {
            let near = nearest(self.known(), &path);
            self.problems.push(ConfigProblem {
                place,
                key: path,
                mistake: Mistake::UnknownKey { near },
            });
        }
    }

    fn add_section(&mut self, section: &str, written: WrittenValue<'a>) {
        let WrittenValue { value, source } = written;
        let fault = Fault::whole(&value, "a table".to_owned());
        if let DeValue::Table(table) = value.into_inner() {
            self.add_table(section, table, &source);
        } else {
            add_faults(&mut self.problems, section, &source, vec![fault]);
        }
    }

    /// Adds `POLITESSE_SECTION__KEY`, or `POLITESSE_KEY` for a key outside every
    /// section.
    ///
    /// A name that spells a key with single underscores is a mistake: otherwise the
    /// proxy would silently run with the default. Other names without `__` are ignored
    /// even if they have our prefix: container platforms set `POLITESSE_PORT` for a
    /// service with our name.
    fn add_variable(&mut self, name: &str, value: &'a str) {
        let Some(rest) = name.strip_prefix(PREFIX) else {
            return;
        };
        let path = rest.to_ascii_lowercase().replace("__", ".");
        let name = name.to_owned();
        let place = Place::Environment { name };
        let is_root_key = !path.contains('.') && self.written.contains_key(&path);
        if rest.contains("__") || is_root_key {
            self.add_path(&path, value_of(value, place));
        } else if let Some(key) = self.variable_spelled_like(rest) {
            let mistake = Mistake::Variable;
            self.problems.push(ConfigProblem {
                place,
                key,
                mistake,
            });
        }
    }

    /// Returns the variable of the key that `rest` spells if single and double
    /// underscores are treated alike.
    fn variable_spelled_like(&self, rest: &str) -> Option<String> {
        let mut known = self.known();
        let key = known.find(|key| key.replace('.', "_").eq_ignore_ascii_case(rest))?;
        // A section alone has no variable, and the name of a section such as `pace` has
        // no underscores to get wrong.
        key.contains('.').then(|| variable_of(&key))
    }

    /// Adds `section.key=value`.
    fn add_override(&mut self, argument: &'a str) {
        match argument.split_once('=') {
            Some((path, value)) => {
                self.add_path(path.trim(), value_of(value, Place::Override));
            }
            None => self.problems.push(ConfigProblem {
                place: Place::Override,
                key: argument.to_owned(),
                mistake: Mistake::NoValue,
            }),
        }
    }

    /// Adds a value by the path of its key, `section.name`.
    fn add_path(&mut self, path: &str, written: WrittenValue<'a>) {
        let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
        let place = written.source.place(0);
        self.add_value(dotted(section, &name_text(name)), place, written);
    }

    /// Returns the names of all keys and sections.
    fn known(&self) -> impl Iterator<Item = String> {
        self.sections.iter().flat_map(|section| {
            let keys = section.keys.iter().map(Key::path);
            keys.chain((!section.is_root()).then(|| section.name.to_owned()))
        })
    }
}

/// Adds the faults in the value of `key` to the problems.
fn add_faults(
    problems: &mut Vec<ConfigProblem>,
    key: &str,
    source: &ValueSource<'_>,
    faults: Vec<Fault>,
) {
    // For a value that the parser cannot read, it has already reported an error and
    // returns a placeholder, which has no place in the text.
    let in_file = matches!(source.start, Place::File { .. });
    let is_broken = in_file && problems.iter().any(ConfigProblem::is_syntax);
    let faults = faults.into_iter();
    let faults = faults.filter(|fault| !is_broken || !fault.span.is_empty());
    problems.extend(faults.map(|fault| {
        let place = source.place(fault.span.start);
        fault.of_key(key, place)
    }));
}

/// Reads a value as TOML, or as a string if it is not TOML.
fn value_of(text: &str, start: Place) -> WrittenValue<'_> {
    let as_string = || Spanned::new(0..text.len(), DeValue::String(Cow::Borrowed(text)));
    // Quotes would have to be escaped in a shell: `--set log.level=debug` must work.
    let value = DeValue::parse(text).unwrap_or_else(|_| as_string());
    let source = ValueSource { start, text };
    WrittenValue { value, source }
}
