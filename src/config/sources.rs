//! Everything written for each key, from the weakest source to the strongest:
//! default, file, environment, `--set`.
//!
//! What a weaker source says is checked too, since it comes into force the day
//! the stronger one is taken away. Knows the names of keys, not their kinds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Sources;
use super::kinds::{Fault, Kind, Mistake, Part};
use super::problem::{Place, Problem};
use super::spelling::nearest;
use super::values::{Inline, name_text};

/// What the variables of the environment that set a key begin with.
const PREFIX: &str = "POLITESSE_";

/// A table of the file and the keys in it.
pub(super) struct Section {
    /// Its name in brackets; empty for the keys above all tables.
    pub(super) name: &'static str,
    /// What it is about, a line each.
    pub(super) about: &'static [&'static str],
    /// Its keys, in the order of printing.
    pub(super) keys: &'static [Key],
}

/// A key as people see it; its kind and type are the table's alone.
pub(super) struct Key {
    /// Its name without the section.
    pub(super) name: &'static str,
    /// The value in force when nobody says otherwise, as TOML.
    pub(super) default: &'static str,
    /// What it is for and why the default is what it is, a line each.
    pub(super) doc: &'static [&'static str],
    /// What its values look like, with their unit and bounds.
    pub(super) wanted: fn() -> String,
}

impl Section {
    /// Whether its keys stand outside every table.
    pub(super) fn is_root(&self) -> bool {
        self.name.is_empty()
    }

    /// The section around this one, or nothing, and the name within it.
    fn place(&self) -> (&'static str, &'static str) {
        self.name.rsplit_once('.').unwrap_or(("", self.name))
    }
}

/// Where a value comes from, with what it takes to say so.
#[derive(Clone, Copy)]
enum Source<'a> {
    Default,
    File { path: &'a Path, text: &'a str },
    Environment { name: &'a str },
    Override,
}

impl Source<'_> {
    /// The place of the byte `at` of this source.
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
    /// Where the name stands.
    place: Place,
    written: Written<'a>,
}

/// A value and the source it stands in.
struct Written<'a> {
    value: Spanned<DeValue<'a>>,
    source: Source<'a>,
}

impl Written<'_> {
    fn place(&self) -> Place {
        self.source.place(self.value.span().start)
    }
}

/// What every source says of every key, and all that is wrong with it so far.
pub(super) struct Layers<'a> {
    sections: &'static [Section],
    /// By section and name; the weakest value first.
    written: BTreeMap<(&'static str, &'static str), Vec<Written<'a>>>,
    problems: Vec<Problem>,
}

impl<'a> Layers<'a> {
    /// Reads all sources against the table of `sections`.
    pub(super) fn gather(sections: &'static [Section], sources: &'a Sources<'a>) -> Self {
        let mut layers = Self {
            sections,
            written: BTreeMap::new(),
            problems: Vec::new(),
        };
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

    /// The strongest value of a key, in its own type.
    ///
    /// `None` if it is wrong; what is wrong with any of the key's values is
    /// kept for [`Layers::into_problems`].
    pub(super) fn read<K: Kind>(
        &mut self,
        key: (&'static str, &'static str),
        kind: &K,
    ) -> Option<K::Value> {
        let mut strongest = Err(());
        let mut faults = Vec::new();
        for written in self.written.get(&key).into_iter().flatten() {
            let read = kind.read(&written.value);
            strongest = read.map_err(|found| {
                faults.extend(found.into_iter().map(|fault| (written.source, fault)));
            });
        }
        for (source, fault) in faults {
            self.tell(key, source, fault);
        }
        strongest.ok()
    }

    /// Keeps a fault of a key's value, unless the parser made the value up.
    ///
    /// It does so where it cannot read one. It has complained then, and gives
    /// what it made up no place in the text.
    fn tell(&mut self, key: (&str, &str), source: Source<'_>, fault: Fault) {
        let is_broken = |problem: &Problem| matches!(problem, Problem::Syntax { .. });
        let in_file = matches!(source, Source::File { .. });
        if in_file && fault.span.is_empty() && self.problems.iter().any(is_broken) {
            return;
        }
        self.problems.push(problem(key, source, fault));
    }

    /// The strongest value of a key as TOML, and where it was written.
    pub(super) fn shown(
        &self,
        section: &'static str,
        name: &'static str,
    ) -> Option<(String, Place)> {
        let written = self.written.get(&(section, name))?.last()?;
        Some((Inline(written.value.get_ref()).to_string(), written.place()))
    }

    /// Everything wrong with what was gathered and read.
    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    fn add_defaults(&mut self) {
        for section in self.sections {
            for key in section.keys {
                self.add_text((section.name, key.name), (key.default, Source::Default));
            }
        }
    }

    /// Takes the file's tables apart; what is not TOML is told, and the rest
    /// is read all the same.
    fn add_file(&mut self, path: &'a Path, text: &'a str) {
        let source = Source::File { path, text };
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            self.problems.push(Problem::Syntax {
                place: source.place(error.span().map_or(0, |span| span.start)),
                message: error.message().replace('\n', " "),
            });
        }
        self.add_table("", table.into_inner(), source);
    }

    fn add_table(&mut self, section: &str, table: DeTable<'a>, source: Source<'a>) {
        for (name, value) in table {
            let entry = Entry {
                place: source.place(name.span().start),
                name: name.into_inner(),
                written: Written { value, source },
            };
            self.add_entry(section, entry);
        }
    }

    /// A key, a section, or neither.
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
            self.problems.push(Problem::UnknownKey { place, key, near });
        }
    }

    fn add_section(&mut self, section: &'static str, written: Written<'a>) {
        let Written { value, source } = written;
        let fault = Fault::whole(&value, "a table".to_owned());
        match value.into_inner() {
            DeValue::Table(table) => self.add_table(section, table, source),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => self.tell(("", section), source, fault),
        }
    }

    /// `POLITESSE_SECTION__KEY`, or `POLITESSE_KEY` of a key outside every
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
            self.add_path(&path, (value, Source::Environment { name }));
        } else if let Some(wanted) = self.variable_spelled_like(rest) {
            let place = Source::Environment { name }.place(0);
            self.problems.push(Problem::Variable { place, wanted });
        }
    }

    /// The variable of the key or section that `rest` names, were there no
    /// difference between one underscore and two.
    fn variable_spelled_like(&self, rest: &str) -> Option<String> {
        let mut known = self.known();
        let key = known.find(|key| key.replace('.', "_").eq_ignore_ascii_case(rest))?;
        // A section by itself has no variable, and `pace` is spelled as it is.
        key.contains('.')
            .then(|| format!("{PREFIX}{}", key.replace('.', "__").to_ascii_uppercase()))
    }

    /// `section.key=value`.
    fn add_override(&mut self, argument: &'a str) {
        match argument.split_once('=') {
            Some((path, value)) => self.add_path(path.trim(), (value, Source::Override)),
            None => self.problems.push(Problem::NoValue {
                place: Place::Override,
                argument: argument.to_owned(),
            }),
        }
    }

    fn add_path(&mut self, path: &str, text: (&'a str, Source<'a>)) {
        self.add_text(path.rsplit_once('.').unwrap_or(("", path)), text);
    }

    /// A value read as TOML, else as a string.
    fn add_text(&mut self, (section, name): (&str, &str), (text, source): (&'a str, Source<'a>)) {
        let as_string = || Spanned::new(0..text.len(), DeValue::String(Cow::Borrowed(text)));
        let value = DeValue::parse(text).unwrap_or_else(|_| as_string());
        let entry = Entry {
            name: Cow::Owned(name.to_owned()),
            place: source.place(0),
            written: Written { value, source },
        };
        self.add_entry(section, entry);
    }

    /// The section and name of a key as the table spells them.
    fn key(&self, section: &str, name: &str) -> Option<(&'static str, &'static str)> {
        let section = self.sections.iter().find(|known| known.name == section)?;
        let key = section.keys.iter().find(|key| key.name == name)?;
        Some((section.name, key.name))
    }

    /// Every key and section there is.
    fn known(&self) -> impl Iterator<Item = String> {
        self.sections.iter().flat_map(|section| {
            let keys = section.keys.iter();
            let keys = keys.map(|key| dotted(section.name, key.name));
            keys.chain((!section.is_root()).then(|| section.name.to_owned()))
        })
    }
}

/// `section.name`, or the name alone outside every section.
fn dotted(section: &str, name: &str) -> String {
    if section.is_empty() {
        name.to_owned()
    } else {
        format!("{section}.{name}")
    }
}

/// The problem that a fault in a key's value is.
fn problem((section, name): (&str, &str), source: Source<'_>, fault: Fault) -> Problem {
    let place = source.place(fault.span.start);
    let key = dotted(section, name);
    match fault.mistake {
        Mistake::Value { found, wanted } => Problem::Value {
            place,
            key: part_name(key, &fault.path),
            found,
            wanted,
        },
        Mistake::Unknown { near } => Problem::UnknownKey {
            place,
            near: near.map(|near| dotted(&key, &near)),
            key: names(&fault.path).fold(key, |key, name| dotted(&key, name)),
        },
    }
}

/// What a part of a key's value is called: `entry 2 of proxy.listen`,
/// `upstream.resolve.localhost`, `token of entry 2 of crawler`.
fn part_name(key: String, path: &[Part]) -> String {
    let mut in_list = false;
    path.iter().fold(key, |whole, part| match part {
        Part::Entry(index) => {
            in_list = true;
            format!("entry {index} of {whole}")
        }
        Part::Name(name) if in_list => format!("{name} of {whole}"),
        Part::Name(name) => dotted(&whole, name),
    })
}

/// The names on the way to a part, without the numbers of entries.
fn names(path: &[Part]) -> impl Iterator<Item = &str> {
    path.iter().filter_map(|part| match part {
        Part::Name(name) => Some(name.as_str()),
        Part::Entry(_) => None,
    })
}
