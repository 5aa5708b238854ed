//! Segments of a directive list, between two commas: which crawler a segment addresses,
//! and which restrictions bind it.
//!
//! No standard defines the values of `X-Robots-Tag` and `<meta>`. The readings are
//! lenient, and each only ever adds a restriction. Does not know the syntax of the
//! whole line.

use super::date;
use super::repair::repaired;
use super::vocabulary::{Restriction, bare, is_invisible, is_margin, lookup};

/// Crawlers that a directive binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope<'a> {
    /// Every crawler, named or not.
    Everyone,
    /// The crawler with product token `name`, and those in the list `others`, which is
    /// nearly always empty. In `ExampleBot, OtherBot: noindex`, `name` is `OtherBot` and
    /// `others` the text before it.
    Agent { name: &'a str, others: &'a str },
}

/// Bytes read of a list of names, which is searched for each of its directives. Some
/// forty names fit.
const NAMES_BYTES_MAX: usize = 512;

/// One restriction, and the crawlers that it binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DirectiveStatement<'a> {
    pub(super) scope: Scope<'a>,
    pub(super) restriction: Restriction,
}

/// Text between two separators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextPiece<'a> {
    /// Separator before the text; `None` for the first piece.
    pub(super) separator: Option<u8>,
    /// The text, without separators.
    pub(super) text: &'a str,
    /// Position of the text in the original.
    pub(super) at: usize,
}

/// Treatment of a separator inside double quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    /// Part of a string: the text is a structured field.
    Hold,
    /// A separator like any other: the quotes are an accident.
    Ignore,
}

/// Splits a text at its separators, except at the commas inside a date of
/// `unavailable_after`.
pub(super) fn pieces<'a>(text: &'a str, separators: &[u8], quotes: Quotes) -> Vec<TextPiece<'a>> {
    let mut found = Vec::new();
    let mut start = PieceStart::default();
    let mut quotes = quotes;
    let mut at = 0;
    while let Some(&byte) = text.as_bytes().get(at) {
        if byte == b'"' && quotes == Quotes::Hold {
            match string_end(text.as_bytes(), at) {
                Some(end) => at = end,
                // No later string can end either.
                None => quotes = Quotes::Ignore,
            }
        } else if separators.contains(&byte) && !start.is_date(text, at) {
            found.push(start.piece(&text[..at]));
            start = PieceStart {
                separator: Some(byte),
                at: at + 1,
                date_commas: 0,
            };
        }
        at += 1;
    }
    found.push(start.piece(text));
    found
}

/// Beginning of the current piece.
#[derive(Debug, Default)]
struct PieceStart {
    /// Separator before the piece; `None` for the first piece.
    separator: Option<u8>,
    /// Position of the piece in the text.
    at: usize,
    /// Commas of a date inside the piece. `Wed, Dec 3, 2100` has two; looking for more
    /// would take quadratic time.
    date_commas: u8,
}

impl PieceStart {
    /// Returns the piece that lasts from here to the end of `text`.
    fn piece<'a>(&self, text: &'a str) -> TextPiece<'a> {
        TextPiece {
            separator: self.separator,
            text: &text[self.at..],
            at: self.at,
        }
    }

    /// Reports whether the separator at `at` belongs to a date (`Wed, 03 Dec 2100`).
    fn is_date(&mut self, text: &str, at: usize) -> bool {
        let (before, after) = (&text[self.at..at], &text[at + 1..]);
        let may_be = text.as_bytes()[at] == b',' && self.date_commas < 2;
        if !may_be || !date::has_comma(before, after) {
            return false;
        }
        let is_date = before.to_ascii_lowercase().contains("unavailable_after");
        self.date_commas += u8::from(is_date);
        is_date
    }
}

/// Returns the position of the quote that ends the string whose first quote is at `start`
/// (RFC 9651, section 3.3.3); `None` if the string does not end.
fn string_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Reads a segment into `statements`. `scope` is the scope after the previous segment.
/// Returns the scope for the next segment.
///
/// `name: value` and `name=value` are equivalent. If the name is a directive, the value
/// is its value; otherwise the name is a crawler and the value binds it.
pub(super) fn read<'a>(
    text: &'a str,
    scope: Scope<'a>,
    statements: &mut Vec<DirectiveStatement<'a>>,
) -> Scope<'a> {
    let mut scope = scope;
    let mut text = text;
    while let Some(end) = text.find([':', '=']) {
        let (head, value) = (&text[..end], &text[end + 1..]);
        let (words, name) = last_word(head);
        read_words(words, scope, statements);
        // `all` is a directive, but before a value it means every crawler.
        let is_everyone = Scope::of(name) == Scope::Everyone;
        if let Some(word) = lookup(name).filter(|_| !is_everyone) {
            // RFC 9651, section 3.3.6: a false parameter counts as absent.
            if value.trim() != "?0" {
                let read = word.restrictions(value).into_iter();
                statements
                    .extend(read.map(|restriction| DirectiveStatement { scope, restriction }));
                let after = value.trim_start().split_once(char::is_whitespace);
                read_words(after.map_or("", |(_, rest)| rest), scope, statements);
            }
            return scope;
        }
        if is_number(value) {
            // An unknown directive: after a crawler's name, no number follows.
            read_words(value, scope, statements);
            return scope;
        }
        scope = Scope::of(name);
        text = value;
    }
    read_words(text, scope, statements);
    scope
}

/// Reports whether a value begins with a number, which may have a sign.
fn is_number(value: &str) -> bool {
    // Checks only the beginning: the end is the same for each name before it, and a
    // hostile end would be searched once per name.
    let value = value
        .trim_start_matches(is_margin)
        .trim_start_matches(['-', '+']);
    value.starts_with(|letter: char| letter.is_ascii_digit())
}

/// Reads words without values, also separated by whitespace.
fn read_words<'a>(text: &str, scope: Scope<'a>, statements: &mut Vec<DirectiveStatement<'a>>) {
    let words = text.split_whitespace().map(bare);
    let restrictions = words
        .filter_map(lookup)
        .flat_map(|word| word.restrictions(""));
    statements.extend(restrictions.map(|restriction| DirectiveStatement { scope, restriction }));
}

/// Returns the text before the last word, and the last word.
fn last_word(text: &str) -> (&str, &str) {
    let text = trimmed(text);
    let start = text.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let (words, last) = split_at_boundary(text, start);
    (words, trimmed(last))
}

/// Splits a text like `split_at`, but `start` may lie inside a whitespace character of
/// several bytes.
fn split_at_boundary(text: &str, start: usize) -> (&str, &str) {
    let mut start = start;
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.split_at(start)
}

/// Returns a text without surrounding whitespace and quotes.
pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches(is_margin)
}

impl<'a> Scope<'a> {
    /// Returns the scope for a crawler's name. The version of `ExampleBot/2.1` is
    /// dropped.
    pub(super) fn of(name: &'a str) -> Self {
        let name = without_version(trimmed(name));
        // Some servers are configured with the whole line as the value.
        let general = ["", "*", "robots", "all", "x-robots-tag", "robots-tag"];
        if general.iter().any(|word| name.eq_ignore_ascii_case(word)) {
            Self::Everyone
        } else {
            let others = "";
            Self::Agent { name, others }
        }
    }

    /// Returns the scope of a `<meta>` element with this name. The name is a product
    /// token or `*`, or `robots` (draft-illyes-repext-03, section 3.1.2), or `robot`,
    /// which is in no standard but which Google obeys. Other names that mean everyone
    /// in a field do not do so here. The name may be a list.
    pub(super) fn of_meta(name: &'a str) -> Self {
        let is_everyone = |name: &str| {
            let mut words = ["robots", "robot", "*"].iter();
            words.any(|word| name.eq_ignore_ascii_case(word))
        };
        let (name, others) = (without_version(trimmed(name)), name);
        if is_everyone(name) || names(others).any(is_everyone) {
            Self::Everyone
        } else {
            Self::Agent { name, others }
        }
    }

    /// Returns the scope, extended by the crawlers of a list of names.
    pub(super) fn with(self, others: &'a str) -> Self {
        match self {
            Self::Agent { name, .. } if names(others).all(|it| Self::of(it) != Self::Everyone) => {
                Self::Agent { name, others }
            }
            Self::Agent { .. } | Self::Everyone => Self::Everyone,
        }
    }

    /// Reports whether the scope includes a crawler whose name `is_own` accepts.
    pub(super) fn binds(self, is_own: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Everyone => true,
            Self::Agent { name, others } => is_own(name) || names(others).any(is_own),
        }
    }
}

/// Returns the names in a list, without their versions.
fn names(list: &str) -> impl Iterator<Item = &str> {
    let is_separator = |letter| matches!(letter, ',' | ';' | '|' | '&' | '+' | '，' | '、' | '،');
    let read = &list[..list.floor_char_boundary(NAMES_BYTES_MAX)];
    read.split(is_separator)
        .map(|name| name.trim_matches(|letter| is_margin(letter) || is_invisible(letter)))
        .filter(|name| !name.is_empty())
        .map(without_version)
}

/// Returns a product token without its version: `ExampleBot` of `ExampleBot/2.1`.
fn without_version(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

/// Returns the restrictions in the content of a `<meta>` element, as written and
/// repaired. The element itself is named after the crawler; a crawler's name inside is
/// header syntax, and that segment is dropped.
pub(super) fn read_content(content: &str) -> Vec<Restriction> {
    let mut restrictions = read_as_written(content);
    if let Some(repaired) = repaired(content) {
        restrictions.extend(read_as_written(&repaired));
    }
    restrictions
}

/// Returns the restrictions in a content that are addressed to no crawler by name.
fn read_as_written(content: &str) -> Vec<Restriction> {
    let mut statements = Vec::new();
    for piece in pieces(content, b",;", Quotes::Ignore) {
        read(piece.text, Scope::Everyone, &mut statements);
    }
    let unscoped = statements.iter().filter(|it| it.scope == Scope::Everyone);
    unscoped.map(|it| it.restriction).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<'a>(text: &'a str, separators: &[u8], quotes: Quotes) -> Vec<&'a str> {
        let pieces = pieces(text, separators, quotes);
        pieces.iter().map(|piece| piece.text).collect()
    }

    #[test]
    fn the_comma_of_a_date_does_not_separate() {
        let text = "noindex, unavailable_after: Wed, 03 Dec 2100, nofollow";
        let cut = texts(text, b",", Quotes::Ignore);
        let expected = [
            "noindex",
            " unavailable_after: Wed, 03 Dec 2100",
            " nofollow",
        ];
        assert_eq!(cut, expected);
        assert_eq!(texts("Wed, x", b",", Quotes::Ignore), ["Wed", " x"]);
        let text = "unavailable_after: Wed, Dec 3, 2100, noindex";
        assert_eq!(texts(text, b",", Quotes::Ignore).len(), 2);
        let text = "unavailable_after: Wed,noindex";
        assert_eq!(texts(text, b",", Quotes::Ignore).len(), 2);
    }

    // Ours: a future directive must not swallow those after it.
    #[test]
    fn an_unknown_limit_is_no_crawler() {
        let mut statements = Vec::new();
        let scope = read("max-age: 20 noai", Scope::Everyone, &mut statements);
        assert_eq!((scope, statements.len()), (Scope::Everyone, 1));
    }

    #[test]
    fn a_string_holds_its_commas_only_if_it_ends() {
        assert_eq!(texts(r#"a;b="x\",y", c"#, b",", Quotes::Hold).len(), 2);
        assert_eq!(texts(r#"a;b="x, c"#, b",", Quotes::Hold).len(), 2);
        assert_eq!(texts(r#""a, b""#, b",", Quotes::Ignore).len(), 2);
    }

    #[test]
    fn a_directive_name_opens_no_scope() {
        let mut statements = Vec::new();
        let scope = read("noindex:nofollow", Scope::Everyone, &mut statements);
        assert_eq!((scope, statements.len()), (Scope::Everyone, 1));
    }

    #[test]
    fn the_last_of_several_names_counts() {
        let mut statements = Vec::new();
        let scope = read("a:b : noindex", Scope::Everyone, &mut statements);
        assert_eq!(scope, Scope::of("b"));
        assert_eq!(statements[0].scope, Scope::of("b"));
    }

    #[test]
    fn words_around_a_value_count_too() {
        let mut statements = Vec::new();
        let text = "noarchive max-snippet:20 noindex";
        read(text, Scope::Everyone, &mut statements);
        let read = statements.iter().map(|it| it.restriction.to_string());
        assert_eq!(
            read.collect::<Vec<_>>(),
            ["noarchive", "max-snippet:20", "noindex"]
        );
    }

    #[test]
    fn a_crawler_inside_a_meta_is_not_everyone() {
        assert!(read_content("googlebot: noindex").is_empty());
        assert_eq!(read_content("googlebot: noindex, nofollow").len(), 1);
    }
}
