//! What is wrong with a configuration, and where it was written.
//!
//! Every problem names its place, the key, what was found and what is wanted,
//! so that a person can mend all of them before the next start.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// Where a value was written. Places are ordered from the weakest to the
/// strongest, and by line in a file: the order in which problems are told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Place {
    /// Nowhere: the built-in default.
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

/// One thing that keeps a configuration from being used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text is not TOML here.
    #[error("{place}: {message}")]
    Syntax {
        /// Where the text stops being TOML.
        place: Place,
        /// What the parser says of it.
        message: String,
    },
    /// There is no such key.
    #[error("{place}: {key} is not a key{}", question(near.as_deref()))]
    UnknownKey {
        /// Where it was written.
        place: Place,
        /// The key with its section.
        key: String,
        /// The key that was probably meant.
        near: Option<String>,
    },
    /// A variable of the environment sets nothing for want of an underscore.
    #[error("{place}: sets nothing; did you mean {wanted}, with two underscores?")]
    Variable {
        /// Always [`Place::Environment`].
        place: Place,
        /// The variable that sets the key.
        wanted: String,
    },
    /// The value has the wrong type, form or size.
    #[error("{place}: {key} is {found}; {wanted} is wanted")]
    Value {
        /// Where it was written.
        place: Place,
        /// The key with its section, or the entry of a list.
        key: String,
        /// The value as TOML.
        found: String,
        /// What would be right.
        wanted: String,
    },
    /// A `--set` that sets nothing.
    #[error("{place}: {argument:?} has no value; section.key=value is wanted")]
    NoValue {
        /// Always [`Place::Override`].
        place: Place,
        /// What stood after `--set`.
        argument: String,
    },
}

impl Problem {
    /// Where the problem is.
    #[must_use]
    pub fn place(&self) -> &Place {
        match self {
            Self::Syntax { place, .. }
            | Self::UnknownKey { place, .. }
            | Self::Variable { place, .. }
            | Self::Value { place, .. }
            | Self::NoValue { place, .. } => place,
        }
    }
}

/// The end of a sentence that asks after the key probably meant.
fn question(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean {near}?"))
        .unwrap_or_default()
}

/// All problems of a configuration, at least one; in the order of their
/// places. Displayed one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Sorts `problems` by place and leaves out what only follows from another.
    ///
    /// What a parser makes of the rest of a broken line is a guess, so on such
    /// a line its first complaint stands for all.
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by(|a, b| (a.place(), rank(a)).cmp(&(b.place(), rank(b))));
        problems.dedup_by(|later, first| rank(first) == 0 && later.place() == first.place());
        Self(problems)
    }

    /// The problems, in the order of their places.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Broken syntax comes first among the problems of a line.
fn rank(problem: &Problem) -> u8 {
    match problem {
        Problem::Syntax { .. } => 0,
        Problem::UnknownKey { .. }
        | Problem::Variable { .. }
        | Problem::Value { .. }
        | Problem::NoValue { .. } => 1,
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
