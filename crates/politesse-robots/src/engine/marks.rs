//! Invisible marks and lookalike characters: their removal from values, names and keys.
//!
//! Text copied from a page may contain a no-break space, a zero-width space or a
//! typographic hyphen. RFC 9309 treats them as part of the text, which then matches no real
//! path or name. Does not know what the text is used for.

use std::borrow::Cow;
use std::ops::Range;

use super::dialect::LineForm;
use crate::crawler;

const BLANKS: [char; 2] = [' ', '\t'];

/// Removes the invisible marks at the end of `value`, with the blanks before and between
/// them; `None` if it does not end with a mark.
pub(super) fn without_end_marks(value: &[u8]) -> Option<&[u8]> {
    let mut rest = without_last_mark(value)?;
    loop {
        rest = match rest {
            [before @ .., b' ' | b'\t'] => before,
            _ => match without_last_mark(rest) {
                Some(before) => before,
                None => return Some(rest),
            },
        };
    }
}

fn without_last_mark(value: &[u8]) -> Option<&[u8]> {
    // A no-break space of ISO-8859-1. In UTF-8, this byte never follows an ASCII byte.
    if let [before @ .., 0xA0] = value
        && before.last().is_none_or(u8::is_ascii)
    {
        return Some(before);
    }
    let start = value.iter().rposition(|byte| byte & 0xC0 != 0x80)?;
    let (before, last) = value.split_at(start);
    let last = str::from_utf8(last).ok()?.chars().next()?;
    is_end_mark(last).then_some(before)
}

/// Removes all invisible marks from `text`, and the blanks around the rest.
pub(super) fn visible_text(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !text.contains(is_mark) {
        return Cow::Borrowed(text.trim_matches(BLANKS));
    }
    let mut visible = String::with_capacity(text.len());
    visible.extend(text.trim_matches(is_blank_or_mark).split(is_mark));
    Cow::Owned(visible)
}

/// Removes invisible marks, as [`visible_text`] does, from bytes that are not valid UTF-8.
/// Of the invalid bytes, only the no-break space of ISO-8859-1 is removed.
pub(super) fn visible(value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len());
    for chunk in value.utf8_chunks() {
        for part in chunk.valid().split(is_mark) {
            bytes.extend_from_slice(part.as_bytes());
        }
        // A no-break space of ISO-8859-1.
        bytes.extend(chunk.invalid().iter().filter(|byte| **byte != 0xA0));
    }
    LineForm::Whole.trimmed(&bytes).to_vec()
}

/// Returns a name or key as a person reads it: without invisible marks and outer blanks, and
/// with `-` and `:` in place of lookalike characters.
pub(super) fn plain(text: &[u8]) -> String {
    let text = crawler::decode(text);
    visible_text(&text).chars().map(typed).collect()
}

/// Reports whether a character is invisible: a no-break space, a zero-width character, a
/// direction mark or a wide space.
fn is_mark(letter: char) -> bool {
    // At the end of a value, wide spaces are not removed: earlier versions compared
    // them, too.
    is_end_mark(letter) || matches!(letter, '\u{2007}' | '\u{3000}')
}

fn is_end_mark(letter: char) -> bool {
    matches!(
        letter,
        '\u{a0}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202f}' | '\u{2060}'
            | '\u{2066}'..='\u{2069}' | '\u{feff}'
    )
}

fn is_blank_or_mark(letter: char) -> bool {
    BLANKS.contains(&letter) || is_mark(letter)
}

/// Returns the ASCII character that `letter` looks like, or `letter` itself.
fn typed(letter: char) -> char {
    match letter {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{ff1a}' => ':',
        _ => letter,
    }
}

/// Returns the byte range of each colon in a text. A full-width colon has three bytes.
pub(super) fn colons(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    const WIDE: &[u8] = "\u{ff1a}".as_bytes();
    let places = 0..text.len();
    places.filter_map(move |at| {
        let rest = text.get(at..)?;
        let length = match rest.first()? {
            b':' => 1,
            _ if rest.starts_with(WIDE) => WIDE.len(),
            _ => return None,
        };
        Some(at..at + length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: a byte that is part of a letter is not a mark.
    #[test]
    fn only_invisible_marks_at_the_end_are_removed() {
        for (value, rest) in [
            ("/a\u{a0}", Some("/a")),
            ("/a\u{200b}", Some("/a")),
            ("/a\u{200e}\u{a0} \u{200f}", Some("/a")),
            ("/a \u{200e}", Some("/a")),
            ("/a*\u{2069}", Some("/a*")),
            ("/a$\u{feff}", Some("/a$")),
            ("\u{a0}", Some("")),
            ("/a\u{a0}/b", None),
            ("/a", None),
            ("", None),
            ("/\u{e0}", None),
            ("/\u{5e0}", None),
            ("/a\u{2002}", None),
            ("/%C2%A0", None),
        ] {
            let found = without_end_marks(value.as_bytes());
            assert_eq!(found, rest.map(str::as_bytes), "{value:?}");
        }
        assert_eq!(without_end_marks(b"/a\xA0 \xA0"), Some(&b"/a"[..]));
        assert_eq!(without_end_marks(b"/a\xE0"), None);
    }
}
