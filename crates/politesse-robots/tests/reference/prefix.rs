//! The paths of 1994 and 1996: prefixes, without any special character.

use super::lines::{Kind, Rule};
use super::pattern::escape;

/// A byte of a path as the old texts compare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// A byte, written out or escaped.
    Byte(u8),
    /// `%2F`, which is no `/` (1996, section 3.2.2: "unless it is the "/"
    /// character, which has special meaning in a path").
    EscapedSlash,
}

/// Returns the first rule that matches (1996, section 3.2.2: "in the order they
/// occur in the record. The first match found is used").
pub(super) fn first<'a>(
    mut rules: impl Iterator<Item = &'a Rule>,
    path: &[u8],
) -> Option<&'a Rule> {
    let path = units(path);
    rules.find(|rule| path.starts_with(&units(&rule.value)))
}

/// Returns the first Disallow that matches. 1994 knows no Allow: "Unrecognised
/// headers are ignored."
pub(super) fn first_disallow<'a>(
    rules: impl Iterator<Item = &'a Rule>,
    path: &[u8],
) -> Option<&'a Rule> {
    first(rules.filter(|rule| rule.kind == Kind::Disallow), path)
}

/// Returns the text with its escapes decoded: "If a %xx encoded byte is
/// encountered it is unencoded prior to comparison".
pub(super) fn units(text: &[u8]) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut rest = text;
    while let Some((unit, after)) = next(rest) {
        units.push(unit);
        rest = after;
    }
    units
}

/// Returns the first unit and what is after it.
pub(super) fn next(text: &[u8]) -> Option<(Unit, &[u8])> {
    let (&byte, after) = text.split_first()?;
    match escape(text) {
        Some(b'/') => Some((Unit::EscapedSlash, &text[3..])),
        Some(decoded) => Some((Unit::Byte(decoded), &text[3..])),
        None => Some((Unit::Byte(byte), after)),
    }
}
