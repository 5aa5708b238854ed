//! Matching of paths in 1994 and 1996: prefixes without special characters.

use super::lines::{Kind, Rule};
use super::pattern::escape;

/// Unit of a path in the comparison of the old specifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// A byte, escaped or not.
    Byte(u8),
    /// `%2F`, which differs from `/` (1996, section 3.2.2: "unless it is the "/"
    /// character, which has special meaning in a path").
    EscapedSlash,
}

/// Returns the first matching rule (1996, section 3.2.2: "in the order they occur in the
/// record. The first match found is used").
pub(super) fn first<'a>(
    mut rules: impl Iterator<Item = &'a Rule>,
    path: &[u8],
) -> Option<&'a Rule> {
    let path = units(path);
    rules.find(|rule| path.starts_with(&units(&rule.value)))
}

/// Returns the first matching Disallow. 1994 has no Allow: "Unrecognised headers are
/// ignored."
pub(super) fn first_disallow<'a>(
    rules: impl Iterator<Item = &'a Rule>,
    path: &[u8],
) -> Option<&'a Rule> {
    first(rules.filter(|rule| rule.kind == Kind::Disallow), path)
}

/// Decodes the escapes of a text: "If a %xx encoded byte is encountered it is unencoded
/// prior to comparison".
pub(super) fn units(text: &[u8]) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut rest = text;
    while let Some((unit, after)) = next(rest) {
        units.push(unit);
        rest = after;
    }
    units
}

/// Returns the first unit and the rest of the text.
pub(super) fn next(text: &[u8]) -> Option<(Unit, &[u8])> {
    let (&byte, after) = text.split_first()?;
    match escape(text) {
        Some(b'/') => Some((Unit::EscapedSlash, &text[3..])),
        Some(decoded) => Some((Unit::Byte(decoded), &text[3..])),
        None => Some((Unit::Byte(byte), after)),
    }
}
