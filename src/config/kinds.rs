//! Kinds of values: each reads a TOML value into a type that is always valid, or
//! reports the faulty parts.
//!
//! Kinds know neither the key nor the file.

use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::problem::{Fault, ValuePart};
use super::values::{duration, duration_text, size, size_text};

/// Kind of a key's value. Each implementation overrides `parse` or `read`.
pub(super) trait Kind {
    /// Type of a valid value.
    type Value;

    /// Describes the valid values; `is wanted` can follow.
    fn wanted(&self) -> String;

    /// Reads a value that is valid or faulty as a whole.
    fn parse(&self, _value: &DeValue<'_>) -> Option<Self::Value> {
        None
    }

    /// Reads a value into its own type, or returns all of its faults.
    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<Self::Value, Vec<Fault>> {
        let value = self.parse(written.get_ref());
        value.ok_or_else(|| vec![Fault::whole(written, self.wanted())])
    }
}

/// Returns all values, or the faults of every wrong one, so that a single start of the
/// program reports every mistake.
pub(super) fn all_or_faults<T>(
    results: impl Iterator<Item = Result<T, Vec<Fault>>>,
) -> Result<Vec<T>, Vec<Fault>> {
    let mut faults = Vec::new();
    let values = results.filter_map(|result| result.map_err(|found| faults.extend(found)).ok());
    let values = values.collect();
    faults.is_empty().then_some(values).ok_or(faults)
}

/// A boolean.
pub(super) struct Flag;

impl Kind for Flag {
    type Value = bool;

    fn wanted(&self) -> String {
        "true or false".to_owned()
    }

    fn parse(&self, value: &DeValue<'_>) -> Option<bool> {
        value.as_bool()
    }
}

/// A whole number within bounds. `T` is the type that the option uses.
pub(super) struct Count<T>(RangeInclusive<usize>, fn(usize) -> Option<T>);

/// Count of at least one.
pub(super) const fn count(bounds: RangeInclusive<usize>) -> Count<NonZeroUsize> {
    Count(bounds, NonZeroUsize::new)
}

/// Count of at least one, in 32 bits.
pub(super) const fn places(bounds: RangeInclusive<usize>) -> Count<NonZeroU32> {
    Count(bounds, |number| NonZeroU32::new(number.try_into().ok()?))
}

/// Count that fits into eight bits.
pub(super) const fn few(bounds: RangeInclusive<usize>) -> Count<u8> {
    Count(bounds, |number| number.try_into().ok())
}

impl<T> Kind for Count<T> {
    type Value = T;

    fn wanted(&self) -> String {
        format!("a whole number from {} to {}", self.0.start(), self.0.end())
    }

    fn parse(&self, value: &DeValue<'_>) -> Option<T> {
        let digits = value.as_integer()?;
        // TOML has other radixes too (`0x1F`), and the parser returns the digits as
        // written.
        let number = usize::from_str_radix(digits.as_str(), digits.radix()).ok()?;
        self.0.contains(&number).then(|| self.1(number))?
    }
}

/// Range of `max_wait`: from zero to one hour.
pub(super) const WAIT: Span = Span(Duration::ZERO..=Duration::from_secs(60 * 60));

/// Duration within bounds, written as a string.
pub(super) struct Span(pub(super) RangeInclusive<Duration>);

impl Span {
    /// Returns the text of a duration within the bounds.
    fn example(&self) -> String {
        let usual = [30, 5 * 60, 1].map(Duration::from_secs);
        let within = usual.into_iter().find(|length| self.0.contains(length));
        duration_text(within.unwrap_or(*self.0.end()))
    }
}

/// Duration of at most `longest`, and longer than zero.
pub(super) const fn up_to(longest: Duration) -> Span {
    // A timeout of zero would expire before its operation begins. Keys for which zero
    // has a meaning state their own range.
    Span(Duration::from_millis(1)..=longest)
}

impl Kind for Span {
    type Value = Duration;

    fn wanted(&self) -> String {
        let (shortest, longest) = (duration_text(*self.0.start()), duration_text(*self.0.end()));
        let example = self.example();
        format!("a duration from {shortest} to {longest} (such as {example:?})")
    }

    fn parse(&self, value: &DeValue<'_>) -> Option<Duration> {
        duration(value.as_str()?).filter(|length| self.0.contains(length))
    }
}

/// Duration within bounds, or "none".
pub(super) struct SpanOrNone(pub(super) Span);

impl Kind for SpanOrNone {
    type Value = Option<Duration>;

    fn wanted(&self) -> String {
        format!("{}, or \"none\"", self.0.wanted())
    }

    fn parse(&self, value: &DeValue<'_>) -> Option<Option<Duration>> {
        match value.as_str()? {
            "none" => Some(None),
            _ => self.0.parse(value).map(Some),
        }
    }
}

/// Number of bytes within bounds, written as a string.
pub(super) struct Size(pub(super) RangeInclusive<usize>);

impl Kind for Size {
    type Value = usize;

    fn wanted(&self) -> String {
        let (least, most) = (size_text(*self.0.start()), size_text(*self.0.end()));
        format!("a size from {least} to {most}")
    }

    fn parse(&self, value: &DeValue<'_>) -> Option<usize> {
        size(value.as_str()?).filter(|bytes| self.0.contains(bytes))
    }
}

/// One of a fixed set of words, each with its value.
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

    fn parse(&self, value: &DeValue<'_>) -> Option<T> {
        // Some words are years, which users write without quotes.
        let text = if let DeValue::Integer(number) = value {
            Some(number.as_str())
        } else {
            value.as_str()
        };
        let (_, value) = self.0.iter().find(|(word, _)| text == Some(word))?;
        Some(value.clone())
    }
}

/// A string in a certain format.
pub(super) struct Text<T> {
    /// Describes the valid values.
    pub(super) wanted: &'static str,
    /// Reads the string; `None` if it is malformed.
    pub(super) parse: fn(&str) -> Option<T>,
}

impl<T> Kind for Text<T> {
    type Value = T;

    fn wanted(&self) -> String {
        self.wanted.to_owned()
    }

    fn parse(&self, value: &DeValue<'_>) -> Option<T> {
        value.as_str().and_then(self.parse)
    }
}

/// A list of bounded length whose entries have the same kind.
pub(super) struct List<K> {
    /// Kind of each entry.
    pub(super) of: K,
    /// Allowed number of entries.
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
        let values = entries.iter().enumerate().map(|(index, entry)| {
            let part = |fault: Fault| fault.within(ValuePart::Entry(index + 1));
            let read = self.of.read(entry);
            read.map_err(|faults| faults.into_iter().map(part).collect())
        });
        all_or_faults(values)
    }
}

/// One value, or a list of values.
pub(super) struct OneOrMore<K>(pub(super) List<K>);

impl<K: Kind> Kind for OneOrMore<K> {
    type Value = Vec<K::Value>;

    fn wanted(&self) -> String {
        let (least, most) = (self.0.len.start(), self.0.len.end());
        let one = self.0.of.wanted();
        format!("{one}, or a list of {least} to {most} of these")
    }

    fn read(&self, written: &Spanned<DeValue<'_>>) -> Result<Self::Value, Vec<Fault>> {
        if written.get_ref().is_array() {
            self.0.read(written)
        } else {
            self.0.of.read(written).map(|value| vec![value])
        }
    }
}

/// Pause that doubles each time, up to a maximum.
pub(super) struct GrowingPause {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

/// A list of two durations: the first and the longest value of a growing pause.
pub(super) struct Growing(pub(super) Span);

impl Kind for Growing {
    type Value = GrowingPause;

    fn wanted(&self) -> String {
        format!("a list of two, each {}, the shorter first", self.0.wanted())
    }

    fn parse(&self, value: &DeValue<'_>) -> Option<GrowingPause> {
        // One fault for the whole list: it is seldom clear which of the two durations
        // is wrong.
        let [first, longest] = &value.as_array()?[..] else {
            return None;
        };
        let first = self.0.parse(first.get_ref())?;
        let longest = self.0.parse(longest.get_ref())?;
        (first <= longest).then_some(GrowingPause { first, longest })
    }
}
