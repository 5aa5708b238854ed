//! Problems of a configuration, each with the place where it was written.
//!
//! A problem names the key, the value found and the value wanted, so that a user can
//! fix all of them before the next start. Does not know how values are read.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::DeValue;

use super::secrets::text_without_secrets;
use super::values::excerpt;

/// Place where a value was written. Places are ordered from the weakest source to
/// the strongest, and by line in a file: the order in which problems are reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Place {
    /// Built-in default.
    Default,
    /// Configuration file.
    File {
        /// File as the caller named it.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
    },
    /// Environment variable.
    Environment {
        /// Name of the variable.
        name: String,
    },
    /// Argument of `--set`.
    Override,
}

impl Place {
    /// Returns the word for the source.
    pub(super) fn source(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File { .. } => "file",
            Self::Environment { .. } => "environment",
            Self::Override => "command line",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Environment { name } => write!(f, "environment, {name}"),
            Self::Override => f.write_str("--set"),
        }
    }
}

/// A mistake that makes a configuration unusable, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    pub(super) place: Place,
    /// Key with its section, or a part of its value; empty if the text is not TOML.
    pub(super) key: String,
    pub(super) mistake: Mistake,
}

/// Mistake in a key or its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// The text is not TOML here. Holds the parser's message.
    Syntax(String),
    /// No such key exists.
    UnknownKey {
        /// Key that was probably meant.
        near: Option<String>,
    },
    /// The value, or a part of it, has the wrong type, form or size.
    Value {
        /// Value as TOML.
        found: String,
        /// Description of the valid values.
        wanted: String,
    },
    /// An environment variable that sets nothing because it lacks an underscore. The
    /// key is the variable that was meant.
    Variable,
    /// A `--set` without a value. The key is the whole argument.
    NoValue,
}

impl ConfigProblem {
    /// Writes the problem without the value found, which may be a secret. The place
    /// leads users who may read the file to it.
    fn without_value(&self) -> String {
        let Self { place, key, .. } = self;
        match &self.mistake {
            Mistake::Value { wanted, .. } => {
                format!("{place}: {key} has a wrong value; {wanted} is wanted")
            }
            Mistake::NoValue => {
                format!("{place}: an argument has no value; section.key=value is wanted")
            }
            Mistake::Syntax(_) | Mistake::UnknownKey { .. } | Mistake::Variable => {
                text_without_secrets(&self.to_string())
            }
        }
    }

    /// Reports whether the text is not TOML.
    pub(super) fn is_syntax(&self) -> bool {
        matches!(self.mistake, Mistake::Syntax(_))
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            key,
            mistake,
        } = self;
        write!(f, "{place}: ")?;
        match mistake {
            Mistake::Syntax(message) => f.write_str(message),
            Mistake::UnknownKey { near: None } => write!(f, "{key} is not a key"),
            Mistake::UnknownKey { near: Some(near) } => {
                write!(f, "{key} is not a key; did you mean {near}?")
            }
            Mistake::Value { found, wanted } => write!(f, "{key} is {found}; {wanted} is wanted"),
            Mistake::Variable => {
                write!(f, "sets nothing; did you mean {key}, with two underscores?")
            }
            Mistake::NoValue => write!(f, "{key:?} has no value; section.key=value is wanted"),
        }
    }
}

/// A mistake in a value, or in a part of one, whose key is not known yet.
pub(super) struct Fault {
    /// Place of the value, in bytes of its source.
    pub(super) span: Range<usize>,
    /// Path to the faulty part of the key's value; empty for the whole value.
    pub(super) path: Vec<ValuePart>,
    pub(super) mistake: Mistake,
}

/// Step from a value to a part of it.
pub(super) enum ValuePart {
    /// Entry of a list, counted from 1.
    Entry(usize),
    /// Entry of a table with this name.
    Name(String),
}

impl Fault {
    /// Makes the fault of a whole value.
    pub(super) fn whole(written: &Spanned<DeValue<'_>>, wanted: String) -> Self {
        let found = excerpt(written.get_ref());
        Self {
            span: written.span(),
            path: Vec::new(),
            mistake: Mistake::Value { found, wanted },
        }
    }

    /// Moves the fault one step out: its value is a `part` of another one.
    pub(super) fn within(mut self, part: ValuePart) -> Self {
        self.path.insert(0, part);
        self
    }

    /// Turns the fault into a problem of `key`, whose value was written at `place`.
    pub(super) fn of_key(mut self, key: &str, place: Place) -> ConfigProblem {
        if let Mistake::UnknownKey { near } = &mut self.mistake {
            *near = near.take().map(|near| dotted(key, &near));
            // A name that is unknown in one list entry is unknown in every entry.
            self.path.retain(|part| matches!(part, ValuePart::Name(_)));
        }
        ConfigProblem {
            place,
            key: part_name(key.to_owned(), &self.path),
            mistake: self.mistake,
        }
    }
}

/// Names a part of a key's value: `entry 2 of proxy.listen`,
/// `upstream.resolve.localhost`, `token of entry 2 of crawler`.
fn part_name(key: String, path: &[ValuePart]) -> String {
    let mut in_list = false;
    path.iter().fold(key, |whole, part| match part {
        ValuePart::Entry(index) => {
            in_list = true;
            format!("entry {index} of {whole}")
        }
        ValuePart::Name(name) if in_list => format!("{name} of {whole}"),
        ValuePart::Name(name) => dotted(&whole, name),
    })
}

/// Returns `section.name`, or the name alone if `section` is empty.
pub(super) fn dotted(section: &str, name: &str) -> String {
    if section.is_empty() {
        name.to_owned()
    } else {
        format!("{section}.{name}")
    }
}

/// All problems of a configuration, at least one, in the order of their places.
/// Displays as one line per problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<ConfigProblem>);

impl Problems {
    /// Sorts `problems` by place and drops those that only follow from another one.
    ///
    /// The parser guesses at the rest of a broken line, so only its first complaint
    /// about that line is kept.
    pub(super) fn new(mut problems: Vec<ConfigProblem>) -> Self {
        problems.sort_by(|a, b| (&a.place, !a.is_syntax()).cmp(&(&b.place, !b.is_syntax())));
        // After sorting, a syntax error comes before all other problems of its line.
        problems.dedup_by(|later, first| first.is_syntax() && later.place == first.place);
        Self(problems)
    }

    /// Returns the problems in the order of their places.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigProblem> {
        self.0.iter()
    }

    /// Writes the problems, each without the value found.
    pub fn without_values(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(ConfigProblem::without_value)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Returns the name of `known` that `unknown` probably means: one spelled similarly, or
/// the same name in another section.
pub(super) fn nearest(known: impl Iterator<Item = String>, unknown: &str) -> Option<String> {
    let known: Vec<String> = known.collect();
    let close = known
        .iter()
        .map(|name| (distance(name, unknown), name))
        // A guess further away is more often wrong than right, and a short name is
        // close to every other.
        .filter(|(distance, name)| *distance <= 3 && distance * 3 <= name.len())
        .min();
    // A key in the wrong section is the other common mistake.
    let elsewhere = || known.iter().find(|name| last(name) == last(unknown));
    close.map(|(_, name)| name).or_else(elsewhere).cloned()
}

/// Returns the part of a name after the last dot.
fn last(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

/// Levenshtein distance: the number of letters to insert, remove or change to turn
/// `one` into `other`.
fn distance(one: &str, other: &str) -> usize {
    // One row of the matrix is enough, because each cell needs only its left, upper and
    // upper left neighbours.
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (index, left) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, right) in other.chars().enumerate() {
            let change = diagonal + usize::from(left != right);
            diagonal = row[column + 1];
            row[column + 1] = change.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! distances {
        ($($name:ident: $one:literal to $other:literal is $distance:literal;)+) => {$(
            #[test]
            fn $name() {
                assert_eq!(distance($one, $other), $distance);
                assert_eq!(distance($other, $one), $distance);
            }
        )+};
    }

    // Ours.
    distances! {
        equal_names_have_no_distance: "listen" to "listen" is 0;
        an_added_letter_is_one: "listen" to "lissten" is 1;
        a_changed_letter_is_one: "listen" to "listan" is 1;
        two_letters_swapped_are_two: "listen" to "litsen" is 2;
        an_empty_name_is_as_far_as_the_other_is_long: "" to "listen" is 6;
        letters_are_counted_not_bytes: "ü" to "u" is 1;
    }

    #[test]
    fn a_name_unlike_all_others_has_no_suggestion() {
        let known = ["proxy.listen", "log.level"].map(str::to_owned);
        assert_eq!(nearest(known.into_iter(), "egress.dony"), None);
    }
}
