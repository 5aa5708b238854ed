//! Vocabulary of directives: their words and values.
//!
//! No standard has them all: `noindex` and `nosnippet` are in
//! draft-illyes-repext, the others in the documents of those who honor them.
//! Does not know which crawler a word binds.

use std::fmt;

use jiff::Timestamp;
use sfv::{TokenRef, token_ref};

use super::date;

/// Word that is a directive, and its kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirectiveWord {
    pub(super) name: &'static TokenRef,
    pub(super) kind: Kind,
}

/// Kind of a directive: the value it takes, and its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Says that there is no restriction (`all`, `index`); never lifts one.
    Permission,
    /// `none`, short for `noindex, nofollow`.
    Both,
    /// A restriction without a value.
    Plain,
    /// A restriction to a number, `-1` meaning none.
    Number,
    /// `max-image-preview`.
    Preview,
    /// `unavailable_after`.
    Date,
}

/// DirectiveValue of a directive; the strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DirectiveValue {
    /// No value beside the name.
    Stated,
    /// At most so many characters or seconds, below 10^15.
    Limit(u64),
    /// No larger image than this.
    Preview(PreviewSize),
    /// Until this instant.
    Until(Timestamp),
}

/// Size of image preview that restricts; `large` does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PreviewSize {
    None,
    Standard,
}

/// Directive with its value: something a crawler must not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Restriction {
    pub(super) name: &'static TokenRef,
    pub(super) value: DirectiveValue,
}

pub(super) const NOINDEX: &TokenRef = token_ref("noindex");
pub(super) const NOFOLLOW: &TokenRef = token_ref("nofollow");

static WORDS: [DirectiveWord; 29] = [
    word("all", Kind::Permission),
    word("index", Kind::Permission),
    word("follow", Kind::Permission),
    word("archive", Kind::Permission),
    word("snippet", Kind::Permission),
    word("allowaitraining", Kind::Permission),
    word("none", Kind::Both),
    word("noindex", Kind::Plain),
    word("nofollow", Kind::Plain),
    word("noarchive", Kind::Plain),
    word("nocache", Kind::Plain),
    word("nosnippet", Kind::Plain),
    word("max-snippet", Kind::Number),
    word("max-video-preview", Kind::Number),
    word("max-image-preview", Kind::Preview),
    word("unavailable_after", Kind::Date),
    word("notranslate", Kind::Plain),
    word("noimageindex", Kind::Plain),
    word("indexifembedded", Kind::Plain),
    word("nositelinkssearchbox", Kind::Plain),
    word("nopagereadaloud", Kind::Plain),
    word("noodp", Kind::Plain),
    word("noydir", Kind::Plain),
    word("noyaca", Kind::Plain),
    word("noai", Kind::Plain),
    word("noimageai", Kind::Plain),
    word("noml", Kind::Plain),
    word("spc", Kind::Plain),
    word("disallowaitraining", Kind::Plain),
];

const fn word(name: &'static str, kind: Kind) -> DirectiveWord {
    DirectiveWord {
        name: token_ref(name),
        kind,
    }
}

/// Returns the directive of this name, in any case. Whole words only:
/// `noimageindex` is not `noindex`.
pub(super) fn lookup(text: &str) -> Option<DirectiveWord> {
    // The description of a page is looked through word by word, and hardly one
    // begins and is as long as a directive.
    let (first, length) = (text.as_bytes().first()? | 0x20, text.len());
    let mut words = WORDS.iter().filter(|word| {
        let name = word.name.as_str();
        name.len() == length && name.as_bytes()[0] == first
    });
    let found = words.find(|word| word.name.as_str().eq_ignore_ascii_case(text));
    found.copied()
}

/// Reports whether the value of an attribute, as written, holds the name of a
/// restriction anywhere, in any case and as a part of another word, too; or a
/// reference, which may stand for any letter. One that does not restricts
/// nothing: in every encoding that is read here, the letters of a word are bytes
/// in a row.
///
/// Nearly all metas of a page are descriptions, and to read one as a list of
/// directives costs many times as much as this.
pub(super) fn may_restrict(written: &[u8]) -> bool {
    let mut rest = written;
    loop {
        let mut padded = [0; WINDOW_BYTES];
        let window = rest.first_chunk().unwrap_or_else(|| {
            padded[..rest.len()].copy_from_slice(rest);
            &padded
        });
        let places = rest.get(..WINDOW_PLACES).unwrap_or(rest);
        let restricts = |at| rest[at] == b'&' || begins_with_restriction(&rest[at..]);
        if has_beginning(window) && (0..places.len()).any(restricts) {
            return true;
        }
        let Some(after) = rest.get(WINDOW_PLACES..) else {
            return false;
        };
        rest = after;
    }
}

/// Places at which a word may begin in a window.
const WINDOW_PLACES: usize = 16;

/// Bytes of a window: those places, and two more letters for the last of them.
const WINDOW_BYTES: usize = WINDOW_PLACES + 2;

/// Reports whether a word that begins as a restriction does, or a reference,
/// stands in a window.
fn has_beginning(window: &[u8; WINDOW_BYTES]) -> bool {
    let mut found = false;
    // Without a way out, so that it becomes instructions for all places at once.
    for at in 0..WINDOW_PLACES {
        let (first, second) = (window[at] | 0x20, window[at + 1] | 0x20);
        let third = window[at + 2] | 0x20;
        found |= window[at] == b'&';
        found |= (first == b'n') & (second == b'o');
        found |= (first == b'm') & (second == b'a') & (third == b'x');
        found |= (first == b'u') & (second == b'n') & (third == b'a');
        found |= (first == b'i') & (second == b'n') & (third == b'd');
        found |= (first == b's') & (second == b'p') & (third == b'c');
        found |= (first == b'd') & (second == b'i') & (third == b's');
    }
    found
}

/// Reports whether `text` begins with the name of a restriction.
fn begins_with_restriction(text: &[u8]) -> bool {
    let [first, second, ..] = *text else {
        return false;
    };
    let pair = [first | 0x20, second | 0x20];
    if !matches!(&pair, b"no" | b"ma" | b"un" | b"in" | b"sp" | b"di") {
        return false;
    }
    let mut names = WORDS.iter().filter(|word| word.kind != Kind::Permission);
    names.any(|word| {
        let name = word.name.as_str().as_bytes();
        let start = text.get(..name.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(name))
    })
}

impl DirectiveWord {
    /// Returns the restrictions of the word with the value after it, which is
    /// empty where there is none. An invalid value, or one that sets no limit,
    /// gives no restriction: it costs this directive only.
    pub(super) fn restrictions(self, value: &str) -> Vec<Restriction> {
        let text = bare(value);
        let value = match self.kind {
            Kind::Permission => None,
            Kind::Both => return [NOINDEX, NOFOLLOW].map(stated).into(),
            Kind::Plain => Some(DirectiveValue::Stated),
            Kind::Number => number(text).map(DirectiveValue::Limit),
            Kind::Preview => preview(text).map(DirectiveValue::Preview),
            Kind::Date => date::instant(text).map(DirectiveValue::Until),
        };
        let name = self.name;
        let restriction = value.map(|value| Restriction { name, value });
        restriction.into_iter().collect()
    }
}

fn stated(name: &'static TokenRef) -> Restriction {
    let value = DirectiveValue::Stated;
    Restriction { name, value }
}

/// Returns a value without the brackets and quotes that people copy from
/// documentation.
pub(super) fn bare(value: &str) -> &str {
    value.trim_matches(|letter| is_margin(letter) || "[](){}".contains(letter))
}

/// Reports whether a letter may stand around a word without belonging to it:
/// blanks and quotes, the typographic ones too, also as Windows-1252 has them.
pub(super) fn is_margin(letter: char) -> bool {
    if letter.is_ascii_alphanumeric() {
        return false;
    }
    // A file that was edited as UTF-8 may have left its byte order mark.
    letter.is_whitespace()
        || letter == '\u{FEFF}'
        || matches!(letter, '"' | '\'' | '`' | '«' | '»' | '\u{91}'..='\u{94}')
        || matches!(letter, '\u{2018}'..='\u{201F}')
}

/// Reads a limit. Negative numbers, and those that a structured field cannot
/// carry (RFC 9651, section 3.3.1), are none.
fn number(value: &str) -> Option<u64> {
    let word = value.split(char::is_whitespace).next()?;
    let digits = word.strip_prefix('+').unwrap_or(word);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|&limit| limit < 10_u64.pow(15))
}

fn preview(value: &str) -> Option<PreviewSize> {
    let word = value.split(char::is_whitespace).next()?;
    if word.eq_ignore_ascii_case("none") {
        Some(PreviewSize::None)
    } else if word.eq_ignore_ascii_case("standard") {
        Some(PreviewSize::Standard)
    } else {
        None
    }
}

impl PreviewSize {
    pub(super) fn name(self) -> &'static TokenRef {
        match self {
            Self::None => const { token_ref("none") },
            Self::Standard => const { token_ref("standard") },
        }
    }
}

impl fmt::Display for Restriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_str();
        match self.value {
            DirectiveValue::Stated => f.write_str(name),
            DirectiveValue::Limit(limit) => write!(f, "{name}:{limit}"),
            DirectiveValue::Preview(size) => write!(f, "{name}:{}", size.name().as_str()),
            DirectiveValue::Until(instant) => write!(f, "{name}:{instant:.0}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(word: &str, value: &str) -> Vec<String> {
        let word = lookup(word).unwrap();
        let read = word.restrictions(value);
        read.iter().map(Restriction::to_string).collect()
    }

    #[test]
    fn only_whole_words_are_known() {
        assert!(lookup("NoIndex").is_some());
        assert!(lookup("noindexfoo").is_none());
        assert!(lookup("").is_none());
    }

    // Ours: what is passed over must be without any restriction.
    #[test]
    fn a_text_that_may_restrict_is_not_passed_over() {
        for word in &WORDS {
            let restricts = word.kind != Kind::Permission;
            let name = word.name.as_str();
            // At every place of a window, and beyond one.
            for before in 0..2 * WINDOW_PLACES {
                let before = "d".repeat(before);
                for text in [
                    format!("{before}{name}"),
                    format!("{before} {}: 20", name.to_ascii_uppercase()),
                    format!("n\u{f6}{before}{name}"),
                ] {
                    assert_eq!(may_restrict(text.as_bytes()), restricts, "{text}");
                }
            }
        }
        for text in ["", "words of a head that a parser must read now", "NO"] {
            assert!(!may_restrict(text.as_bytes()));
        }
        assert!(may_restrict(b"words of a head &#110;o parser must read"));
    }

    #[test]
    fn none_stands_for_two() {
        assert_eq!(read("none", ""), ["noindex", "nofollow"]);
    }

    #[test]
    fn a_number_that_limits_nothing_is_dropped() {
        for value in [
            "-1",
            "-5",
            "",
            "+",
            "+-5",
            "abc",
            "99999999999999999999",
            "1.5",
        ] {
            assert!(read("max-snippet", value).is_empty(), "{value}");
        }
        for value in [" [007] ", "+7", "\u{FEFF}7", "7 characters"] {
            assert_eq!(read("max-snippet", value), ["max-snippet:7"], "{value}");
        }
    }

    #[test]
    fn a_large_preview_is_no_restriction() {
        assert!(read("max-image-preview", "large").is_empty());
        assert_eq!(
            read("max-image-preview", "“None”"),
            ["max-image-preview:none"]
        );
    }

    #[test]
    fn the_stricter_value_is_the_smaller() {
        assert!(DirectiveValue::Limit(0) < DirectiveValue::Limit(20));
        assert!(
            DirectiveValue::Preview(PreviewSize::None)
                < DirectiveValue::Preview(PreviewSize::Standard)
        );
    }
}
