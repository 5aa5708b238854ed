//! Vocabulary of directives: their words and values.
//!
//! No standard has them all: draft-illyes-repext has `noindex` and `nosnippet`, and the
//! documents of search engines and other operators have the others. Does not know which
//! crawler a word binds.

use std::fmt;

use jiff::Timestamp;
use sfv::{TokenRef, token_ref};

use super::date;

/// A directive's word, and its kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirectiveWord {
    /// The word, in lower case.
    pub(super) name: &'static TokenRef,
    /// Kind of the directive.
    pub(super) kind: Kind,
}

/// Kind of a directive: the value it takes, and its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// States that there is no restriction (`all`, `index`); never lifts one.
    Permission,
    /// `none`, short for `noindex, nofollow`.
    Both,
    /// A restriction without a value.
    Plain,
    /// A restriction to a number; `-1` means no limit.
    Number,
    /// `max-image-preview`.
    Preview,
    /// `unavailable_after`.
    Date,
}

/// Value of a directive. Of two values of one directive, the stricter is the smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DirectiveValue {
    /// No value: the name alone is the restriction.
    Stated,
    /// At most this many characters or seconds, below 10^15.
    Limit(u64),
    /// No larger image than this.
    Preview(PreviewSize),
    /// Until this instant.
    Until(Timestamp),
}

/// Size of image preview that is a restriction; `large` is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PreviewSize {
    None,
    Standard,
}

/// Directive with its value: something a crawler must not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Restriction {
    /// Name of the directive, in lower case; never one that permits.
    pub(super) name: &'static TokenRef,
    /// Value of the directive, which may narrow it: a limit, an image size or an end.
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

/// Returns the directive with this name, in any case. Only whole words match:
/// `noimageindex` is not `noindex`.
pub(super) fn lookup(text: &str) -> Option<DirectiveWord> {
    // Page descriptions are searched word by word, and hardly any word has both the
    // first letter and the length of a directive.
    let (first, length) = (text.as_bytes().first()? | 0x20, text.len());
    let mut words = WORDS.iter().filter(|word| {
        let name = word.name.as_str();
        name.len() == length && name.as_bytes()[0] == first
    });
    let found = words.find(|word| word.name.as_str().eq_ignore_ascii_case(text));
    found.copied()
}

/// Returns the restriction that a word names apart from its hyphens and underscores
/// (`no-index`, `max_snippet`). `None` for a correctly written name, and for words that
/// loosen.
pub(super) fn lookup_hyphenated(text: &str) -> Option<DirectiveWord> {
    let is_hyphen = |letter: char| matches!(letter, '-' | '_');
    // No name is nearly as long. Hyphens at the ends may mean something else:
    // `-noindex`.
    let is_inside = text.len() <= 40 && !text.starts_with(is_hyphen) && !text.ends_with(is_hyphen);
    if !is_inside || !text.contains(is_hyphen) || lookup(text).is_some() {
        return None;
    }
    let mut words = WORDS.iter().filter(|word| word.restricts());
    let found = words.find(|word| {
        let name = word
            .name
            .as_str()
            .bytes()
            .filter(|byte| byte.is_ascii_alphabetic());
        let letters = text.bytes().filter(|byte| !is_hyphen(char::from(*byte)));
        name.eq(letters.map(|byte| byte.to_ascii_lowercase()))
    });
    found.copied()
}

/// Reports whether an attribute value, as written, contains the name of a restriction
/// in any case, even inside another word, or a character reference, which may stand for
/// any letter. Any other value restricts nothing: in every encoding that is read here,
/// the letters of a word are consecutive bytes, apart from hyphens, spaces and
/// invisible characters that a repair removes.
///
/// Nearly all metas of a page are descriptions, and reading one as a list of directives
/// costs many times as much as this check.
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

/// Number of positions in a window where a word may begin.
const WINDOW_PLACES: usize = 16;

/// Bytes of a window: those positions, and two more letters for the last of them.
const WINDOW_BYTES: usize = WINDOW_PLACES + 2;

/// Reports whether a window contains a reference, or the first letters of a
/// restriction.
fn has_beginning(window: &[u8; WINDOW_BYTES]) -> bool {
    let mut found = false;
    // No early exit, so that the compiler vectorises the loop.
    for at in 0..WINDOW_PLACES {
        let (first, second) = (window[at] | 0x20, window[at + 1] | 0x20);
        let third = window[at + 2] | 0x20;
        found |= window[at] == b'&';
        // An invisible character may follow the first letter.
        let may_begin = (first == b'n')
            | (first == b'm')
            | (first == b'u')
            | (first == b'i')
            | (first == b's')
            | (first == b'd');
        found |= may_begin & !(window[at + 1].is_ascii());
        found |= (first == b'n') & (second == b'o');
        found |= (first == b'm') & (second == b'a') & (third == b'x');
        found |= (first == b'u') & (second == b'n') & (third == b'a');
        found |= (first == b'i') & (second == b'n') & (third == b'd');
        found |= (first == b's') & (second == b'p') & (third == b'c');
        found |= (first == b'd') & (second == b'i') & (third == b's');
    }
    found
}

/// Reports whether `text` begins with the name of a restriction, intact or damaged.
fn begins_with_restriction(text: &[u8]) -> bool {
    let [first, second, ..] = *text else {
        return false;
    };
    if !b"nmuisd".contains(&(first | 0x20)) {
        return false;
    }
    let pair = [first | 0x20, second | 0x20];
    if second.is_ascii() && !matches!(&pair, b"no" | b"ma" | b"un" | b"in" | b"sp" | b"di") {
        return false;
    }
    let mut names = WORDS.iter().filter(|word| word.restricts());
    names.any(|word| {
        // Digits may be bytes of an invisible character (GB 18030).
        let name = word.name.as_str().bytes();
        let mut letters = text.iter().filter(|byte| byte.is_ascii_alphabetic());
        let mut name = name.filter(u8::is_ascii_alphabetic);
        name.all(|letter| {
            letters
                .next()
                .is_some_and(|it| it.eq_ignore_ascii_case(&letter))
        })
    })
}

impl DirectiveWord {
    /// Reports whether the directive restricts something if it has a suitable value.
    pub(super) fn restricts(self) -> bool {
        self.kind != Kind::Permission
    }

    /// Returns the restrictions of the word with the value after it, which may be
    /// empty. An invalid value, or one that sets no limit, gives no restriction: only
    /// this directive is lost.
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

/// Returns a value without the brackets and quotes that people copy from documentation.
pub(super) fn bare(value: &str) -> &str {
    value.trim_matches(|letter| is_margin(letter) || "[](){}".contains(letter))
}

/// Reports whether a character may surround a word without belonging to it: whitespace
/// and quotes, including typographic ones, also in their Windows-1252 form.
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

/// Reports whether a character is invisible: a soft hyphen, a joiner, a direction mark,
/// a byte order mark.
pub(super) fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{FEFF}')
        || matches!(letter, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}')
        || matches!(letter, '\u{2060}'..='\u{206F}')
}

/// Reads a limit. Returns `None` for negative numbers, and for numbers that a
/// structured field cannot carry (RFC 9651, section 3.3.1).
fn number(value: &str) -> Option<u64> {
    let word = value.split(char::is_whitespace).next()?;
    let digits = word.strip_prefix('+').unwrap_or(word);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|&limit| limit < 10_u64.pow(15))
}

/// Reads the size of an image preview. Returns `None` for `large`, which restricts
/// nothing, and for unknown sizes.
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

    // Ours: a text is skipped only if it contains no restriction.
    #[test]
    fn a_text_that_may_restrict_is_not_skipped() {
        for word in &WORDS {
            let restricts = word.kind != Kind::Permission;
            let name = word.name.as_str();
            // At every position of a window, and beyond one.
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
    fn none_stands_for_noindex_and_nofollow() {
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
