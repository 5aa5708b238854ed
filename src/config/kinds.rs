//! Kinds of values: each reads a TOML value into a type that cannot be wrong, or
//! reports the parts that are.
//!
//! A kind knows neither the key nor the file.

use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::values::{duration, duration_text, excerpt, size, size_text};

/// Kind of a key's value.
pub(super) trait Kind {
    /// The type of a value that is right.
    type Value;

    /// Describes the values that are right; `is wanted` can follow.
    fn wanted(&self) -> String;

    /// Reads a value into its own type, or returns every fault of it.
    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<Self::Value, Vec<Fault>>;
}

/// A value, or a part of one, that is not what is wanted.
pub(super) struct Fault {
    /// Place of the value, in bytes of its source.
    pub(super) span: Range<usize>,
    /// Path to the part of the key's value; empty for all of it.
    pub(super) path: Vec<ValuePart>,
    /// The mistake in it.
    pub(super) mistake: Mistake,
}

/// A step from a value to a part of it.
pub(super) enum ValuePart {
    /// An entry of a list, counted from 1.
    Entry(usize),
    /// The entry of a table that has this name.
    Name(String),
}

/// Mistake in a part.
pub(super) enum Mistake {
    /// The part is none of the values wanted.
    Value {
        /// The part as TOML.
        found: String,
        /// The values that are right.
        wanted: String,
    },
    /// Its table has no such name.
    Unknown {
        /// The name that was probably meant.
        near: Option<String>,
    },
}

impl Fault {
    /// Fault of a whole value.
    pub(super) fn whole(written: &Spanned<DeValue<'_>>, wanted: String) -> Self {
        Self {
            span: written.span(),
            path: Vec::new(),
            mistake: Mistake::Value {
                found: excerpt(written.get_ref()),
                wanted,
            },
        }
    }

    /// Moves the fault one step out: its value is a `part` of another.
    pub(super) fn within(mut self, part: ValuePart) -> Self {
        self.path.insert(0, part);
        self
    }
}

/// Returns `parsed`, or one fault of the whole value.
fn all_or_nothing<K: Kind>(
    kind: &K,
    written: &Spanned<DeValue<'_>>,
    parsed: Option<K::Value>,
) -> Result<K::Value, Vec<Fault>> {
    parsed.ok_or_else(|| vec![Fault::whole(written, kind.wanted())])
}

/// Yes or no.
pub(super) struct Flag;

impl Kind for Flag {
    type Value = bool;

    fn wanted(&self) -> String {
        "true or false".to_owned()
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<bool, Vec<Fault>> {
        all_or_nothing(self, written, written.get_ref().as_bool())
    }
}

/// A whole number within bounds; `T` is the type that its user counts in.
pub(super) struct Count<T>(RangeInclusive<usize>, fn(usize) -> Option<T>);

/// Number of something, at least one.
pub(super) const fn count(bounds: RangeInclusive<usize>) -> Count<NonZeroUsize> {
    Count(bounds, NonZeroUsize::new)
}

/// Number of something, at least one, in 32 bits.
pub(super) const fn places(bounds: RangeInclusive<usize>) -> Count<NonZeroU32> {
    Count(bounds, |number| NonZeroU32::new(number.try_into().ok()?))
}

/// A number small enough for eight bits.
pub(super) const fn few(bounds: RangeInclusive<usize>) -> Count<u8> {
    Count(bounds, |number| number.try_into().ok())
}

impl<T> Kind for Count<T> {
    type Value = T;

    fn wanted(&self) -> String {
        format!("a whole number from {} to {}", self.0.start(), self.0.end())
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<T, Vec<Fault>> {
        let number = written
            .get_ref()
            .as_integer()
            // TOML has other radixes too (`0x1F`), and the parser hands over
            // the digits as they are written.
            .and_then(|number| usize::from_str_radix(number.as_str(), number.radix()).ok())
            .filter(|number| self.0.contains(number))
            .and_then(self.1);
        all_or_nothing(self, written, number)
    }
}

/// How long a request may wait: not at all, or as long as a crawler may.
pub(super) const WAIT: Span = Span(Duration::ZERO..=Duration::from_secs(60 * 60));

/// A duration within bounds, written as a string.
pub(super) struct Span(pub(super) RangeInclusive<Duration>);

/// A duration of at most `longest`, and longer than nothing.
pub(super) const fn up_to(longest: Duration) -> Span {
    // A timeout of zero would end what it bounds before it begins. Where zero
    // has a meaning the key names its range itself.
    Span(Duration::from_millis(1)..=longest)
}

impl Kind for Span {
    type Value = Duration;

    fn wanted(&self) -> String {
        let (shortest, longest) = (duration_text(*self.0.start()), duration_text(*self.0.end()));
        format!("a duration from {shortest} to {longest}")
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<Duration, Vec<Fault>> {
        let text = written.get_ref().as_str();
        let length = text
            .and_then(duration)
            .filter(|length| self.0.contains(length));
        all_or_nothing(self, written, length)
    }
}

/// A number of bytes within bounds, written as a string.
pub(super) struct Size(pub(super) RangeInclusive<usize>);

impl Kind for Size {
    type Value = usize;

    fn wanted(&self) -> String {
        let (least, most) = (size_text(*self.0.start()), size_text(*self.0.end()));
        format!("a size from {least} to {most}")
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<usize, Vec<Fault>> {
        let text = written.get_ref().as_str();
        let bytes = text.and_then(size).filter(|bytes| self.0.contains(bytes));
        all_or_nothing(self, written, bytes)
    }
}

/// One of a few words, each with its value.
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Clone> Kind for Choice<T> {
    type Value = T;

    fn wanted(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|(word, _)| format!("{word:?}")).collect();
        match words.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => words.concat(),
        }
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<T, Vec<Fault>> {
        let value = written.get_ref();
        // Some words are years, and nobody quotes a number.
        let text = if let DeValue::Integer(number) = value {
            Some(number.as_str())
        } else {
            value.as_str()
        };
        let choice = self.0.iter().find(|(word, _)| text == Some(word));
        all_or_nothing(self, written, choice.map(|(_, value)| value.clone()))
    }
}

/// A string of some form.
pub(super) struct Text<T> {
    /// The values that are right.
    pub(super) wanted: &'static str,
    /// Reads the string; `None` if it has not the form.
    pub(super) parse: fn(&str) -> Option<T>,
}

impl<T> Kind for Text<T> {
    type Value = T;

    fn wanted(&self) -> String {
        self.wanted.to_owned()
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<T, Vec<Fault>> {
        let text = written.get_ref().as_str();
        all_or_nothing(self, written, text.and_then(self.parse))
    }
}

/// A list of a bounded length whose entries are all of one kind.
pub(super) struct List<K> {
    /// Kind of each entry.
    pub(super) of: K,
    /// Number of entries.
    pub(super) len: RangeInclusive<usize>,
}

impl<K: Kind> Kind for List<K> {
    type Value = Vec<K::Value>;

    fn wanted(&self) -> String {
        let (least, most) = (self.len.start(), self.len.end());
        format!("a list of {least} to {most}, each {}", self.of.wanted())
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<Self::Value, Vec<Fault>> {
        let entries = written.get_ref().as_array();
        let Some(entries) = entries.filter(|entries| self.len.contains(&entries.len())) else {
            return Err(vec![Fault::whole(written, self.wanted())]);
        };
        let mut values = Vec::with_capacity(entries.len());
        let mut faults = Vec::new();
        // All entries are read, also behind a wrong one, so that one start of
        // the program reports every mistake.
        for (index, entry) in entries.iter().enumerate() {
            let part = |fault: Fault| fault.within(ValuePart::Entry(index + 1));
            match self.of.read(entry) {
                Ok(value) => values.push(value),
                Err(found) => faults.extend(found.into_iter().map(part)),
            }
        }
        if faults.is_empty() {
            Ok(values)
        } else {
            Err(faults)
        }
    }
}

/// Pause that doubles each time, up to a longest.
pub(super) struct GrowingPause {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

/// A list of two durations: the first and the longest of a pause that grows.
pub(super) struct Growing(pub(super) Span);

impl Kind for Growing {
    type Value = GrowingPause;

    fn wanted(&self) -> String {
        format!("a list of two, each {}, the shorter first", self.0.wanted())
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<Self::Value, Vec<Fault>> {
        // One fault for the whole list: with two durations it is seldom clear
        // which of them is the wrong one.
        let lengths = written.get_ref().as_array().and_then(|entries| {
            let lengths: Vec<_> = entries
                .iter()
                .filter_map(|entry| self.0.read(entry).ok())
                .collect();
            <[Duration; 2]>::try_from(lengths)
                .ok()
                .filter(|_| entries.len() == 2)
        });
        let growing = lengths.filter(|[first, longest]| first <= longest);
        let pause = growing.map(|[first, longest]| GrowingPause { first, longest });
        all_or_nothing(self, written, pause)
    }
}
