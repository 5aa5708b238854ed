//! Invisible marks at the end of a rule's path, and behind the `*` of an agent
//! line.
//!
//! Whoever copies a line from a page or a document may copy a no-break space, a
//! zero-width space or a direction mark with it. RFC 9309 counts them as part
//! of the value, which then matches nothing that anybody asks for.

use super::dialect::{Forms, Traits};
use super::token::TokenKind;

impl Traits {
    /// The value of a Disallow as it is compared besides as written, if it ends
    /// in invisible marks. An Allow has no such form: a guess must not allow.
    #[inline]
    pub(super) fn without_marks<'a>(&self, kind: TokenKind, value: &'a [u8]) -> Option<&'a [u8]> {
        let may_be_mark = value.last().is_some_and(|last| !last.is_ascii());
        if !may_be_mark || kind != TokenKind::Disallow || self.forms == Forms::AsWritten {
            return None;
        }
        without_end_marks(value)
    }
}

/// The marks: no-break spaces, what has no width, and what gives a direction.
/// In UTF-8 each has several bytes, none of which is ASCII.
const MARKS: [char; 19] = [
    '\u{a0}', '\u{202f}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{2060}', '\u{feff}', '\u{200e}',
    '\u{200f}', '\u{61c}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}',
    '\u{2067}', '\u{2068}', '\u{2069}',
];

/// `value` without the invisible marks at its end, and without the blanks before
/// and between them; `None` if it does not end in one.
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
    // A no-break space of ISO-8859-1: in UTF-8 no letter ends so.
    if let [before @ .., 0xA0] = value
        && before.last().is_none_or(u8::is_ascii)
    {
        return Some(before);
    }
    MARKS
        .iter()
        .find_map(|mark| value.strip_suffix(mark.encode_utf8(&mut [0; 4]).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::without_end_marks;

    // Ours: no part of a letter is a mark.
    #[test]
    fn marks_at_the_end_are_taken_off_and_nothing_else_is() {
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
