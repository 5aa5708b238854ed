//! Problems of a configuration, each with the place where it was written.
//!
//! A problem names the key, the value found and the value wanted, so that a person
//! can mend all of them before the next start. How values are read is not known
//! here.

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
    /// The built-in default.
    Default,
    /// The configuration file.
    File {
        /// The file as the caller named it.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment {
        /// The variable's name.
        name: String,
    },
    /// A `--set` of the command line.
    Override,
}

impl Place {
    /// Returns the word of the source.
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

/// Mistake that keeps a configuration from being used, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    pub(super) place: Place,
    /// Key with its section, or a part of its value; empty where the text is not
    /// TOML.
    pub(super) key: String,
    pub(super) mistake: Mistake,
}

/// Mistake in a key or its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// The text is not TOML here, as the parser's message says.
    Syntax(String),
    /// There is no such key.
    UnknownKey {
        /// The key that was probably meant.
        near: Option<String>,
    },
    /// The value, or a part of it, has the wrong type, form or size.
    Value {
        /// The value as TOML.
        found: String,
        /// The values that are right.
        wanted: String,
    },
    /// A variable of the environment sets nothing for want of an underscore. The
    /// key is the variable that was meant.
    Variable,
    /// A `--set` that sets nothing. The key is all of its argument.
    NoValue,
}

impl ConfigProblem {
    /// Writes the problem without what was found in place of a right value: that may be
    /// a secret, which the place leads to whoever may read it.
    fn without_value(&self) -> String {
        let Self { place, key, .. } = self;
        match &self.mistake {
            Mistake::Value { wanted, .. } => {
                format!("{place}: {key} has another value than is wanted: {wanted}")
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

/// Mistake in a value, or a part of one, whose key is not known yet.
pub(super) struct Fault {
    /// Place of the value, in bytes of its source.
    pub(super) span: Range<usize>,
    /// Path to the part of the key's value; empty for all of it.
    pub(super) path: Vec<ValuePart>,
    pub(super) mistake: Mistake,
}

/// A step from a value to a part of it.
pub(super) enum ValuePart {
    /// An entry of a list, counted from 1.
    Entry(usize),
    /// The entry of a table that has this name.
    Name(String),
}

impl Fault {
    /// Fault of a whole value.
    pub(super) fn whole(written: &Spanned<DeValue<'_>>, wanted: String) -> Self {
        let found = excerpt(written.get_ref());
        Self {
            span: written.span(),
            path: Vec::new(),
            mistake: Mistake::Value { found, wanted },
        }
    }

    /// Moves the fault one step out: its value is a `part` of another.
    pub(super) fn within(mut self, part: ValuePart) -> Self {
        self.path.insert(0, part);
        self
    }

    /// Makes the problem of the value of `key`, which was written at `place`.
    pub(super) fn of_key(mut self, key: &str, place: Place) -> ConfigProblem {
        if let Mistake::UnknownKey { near } = &mut self.mistake {
            *near = near.take().map(|near| dotted(key, &near));
            // A name that is unknown in one entry of a list is so in each.
            self.path.retain(|part| matches!(part, ValuePart::Name(_)));
        }
        ConfigProblem {
            place,
            key: part_name(key.to_owned(), &self.path),
            mistake: self.mistake,
        }
    }
}

/// Name of a part of a key's value: `entry 2 of proxy.listen`,
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

/// `section.name`, or the name alone outside every section.
pub(super) fn dotted(section: &str, name: &str) -> String {
    if section.is_empty() {
        name.to_owned()
    } else {
        format!("{section}.{name}")
    }
}

/// All problems of a configuration, at least one; in the order of their
/// places. Displayed one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<ConfigProblem>);

impl Problems {
    /// Sorts `problems` by place and leaves out what only follows from another.
    ///
    /// What a parser makes of the rest of a broken line is a guess, so on such
    /// a line its first complaint stands for all.
    pub(super) fn new(mut problems: Vec<ConfigProblem>) -> Self {
        problems.sort_by(|a, b| (&a.place, !a.is_syntax()).cmp(&(&b.place, !b.is_syntax())));
        // They are sorted, so a syntax error stands before all others of its
        // line.
        problems.dedup_by(|later, first| first.is_syntax() && later.place == first.place);
        Self(problems)
    }

    /// The problems, in the order of their places.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigProblem> {
        self.0.iter()
    }

    /// Writes the problems, each without the value that was found.
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

/// Returns the one of `known` names that was probably meant by `unknown`: spelled
/// nearly so, or spelled so in another section.
pub(super) fn nearest(known: impl Iterator<Item = String>, unknown: &str) -> Option<String> {
    let known: Vec<String> = known.collect();
    let close = known
        .iter()
        .map(|name| (distance(name, unknown), name))
        // Further away a guess is more often wrong than right, and a short name is
        // near to every other.
        .filter(|(distance, name)| *distance <= 3 && distance * 3 <= name.len())
        .min();
    // A key in the wrong section is the other mistake that is often made.
    let elsewhere = || known.iter().find(|name| last(name) == last(unknown));
    close.map(|(_, name)| name).or_else(elsewhere).cloned()
}

/// Part of a name after the last dot.
fn last(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

/// Levenshtein distance: how many letters must be put in, taken out or changed to
/// make `one` of `other`.
fn distance(one: &str, other: &str) -> usize {
    // One row of the matrix is enough, since each cell needs its left, upper
    // and upper left neighbour only.
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
        the_same_is_no_distance: "listen" to "listen" is 0;
        a_letter_more_is_one: "listen" to "lissten" is 1;
        another_letter_is_one: "listen" to "listan" is 1;
        two_letters_swapped_are_two: "listen" to "litsen" is 2;
        nothing_is_as_far_as_the_word_is_long: "" to "listen" is 6;
        letters_are_counted_not_bytes: "ü" to "u" is 1;
    }

    #[test]
    fn a_name_unlike_all_is_near_none() {
        let known = ["proxy.listen", "log.level"].map(str::to_owned);
        assert_eq!(nearest(known.into_iter(), "egress.dony"), None);
    }
}
