//! The lines that a verdict or a pause depends on, found once, and the groups they form.
//!
//! RFC 9309, section 2.1. Comments, sitemaps and unknown records are passed
//! over: they neither end a group nor change a rule (section 2.2.4), and
//! [`super::records`] finds them again for who asks.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::dialect::{Dialect, LineForm, RecordEnd, RuleForms, Traits};
use super::lines::RuleKind;
use super::lines::{LineKey, TextLine, TextLines};

/// A line with a key, as the place of its value in the text.
#[derive(Clone, Copy)]
pub(super) struct Token {
    pub(super) start: u32,
    pub(super) line: u32,
    /// The length of the value, above it the kind.
    length: u32,
}

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Agent,
    Allow,
    Disallow,
    CrawlDelay,
    RequestRate,
    VisitTime,
    /// A blank line where that ends a record.
    Blank,
}

impl TokenKind {
    /// Reports whether it is a record about pace.
    pub(super) fn is_of_pace(self) -> bool {
        matches!(self, Self::CrawlDelay | Self::RequestRate | Self::VisitTime)
    }
}

const KINDS: [TokenKind; 8] = [
    TokenKind::Agent,
    TokenKind::Allow,
    TokenKind::Disallow,
    TokenKind::CrawlDelay,
    TokenKind::RequestRate,
    TokenKind::VisitTime,
    TokenKind::Blank,
    TokenKind::Blank,
];
const KIND_SHIFT: u32 = 29;

/// The longest text that is read: places and lengths fit what keeps them.
pub(super) const TEXT_MAX: usize = 1 << 25;

impl Token {
    fn new(kind: TokenKind, line: u32, place: Range<usize>) -> Self {
        // The text is never longer than `TEXT_MAX`.
        let fit = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        Self {
            start: fit(place.start),
            line,
            length: fit(place.len()) | ((kind as u32) << KIND_SHIFT),
        }
    }

    pub(super) fn kind(self) -> TokenKind {
        KINDS[(self.length >> KIND_SHIFT) as usize]
    }

    pub(super) fn rule_kind(self) -> Option<RuleKind> {
        match self.kind() {
            TokenKind::Allow => Some(RuleKind::Allow),
            TokenKind::Disallow => Some(RuleKind::Disallow),
            TokenKind::Agent
            | TokenKind::CrawlDelay
            | TokenKind::RequestRate
            | TokenKind::VisitTime
            | TokenKind::Blank => None,
        }
    }

    /// Returns the value as written, without the blanks around it.
    pub(super) fn value(self, text: &[u8]) -> &[u8] {
        let start = self.start as usize;
        let length = (self.length & ((1 << KIND_SHIFT) - 1)) as usize;
        text.get(start..start + length).unwrap_or_default()
    }
}

/// A file as read: what all that is made from it shares.
pub(super) struct ParsedFile {
    /// Without byte order mark, and in UTF-8 if it came in UTF-16.
    pub(super) text: Bytes,
    pub(super) tokens: Box<[Token]>,
    pub(super) dialect: Dialect,
}

impl ParsedFile {
    pub(super) fn new(text: Bytes, dialect: Dialect) -> Self {
        Self {
            tokens: tokens(&text, dialect.traits()).into(),
            text,
            dialect,
        }
    }

    pub(super) fn traits(&self) -> &'static Traits {
        self.dialect.traits()
    }

    /// Returns the tokens of a group.
    pub(super) fn of_group(&self, group: &Range<u32>) -> &[Token] {
        let group = group.start as usize..group.end as usize;
        self.tokens.get(group).unwrap_or_default()
    }

    pub(super) fn value(&self, token: Token) -> &[u8] {
        token.value(&self.text)
    }
}

/// Returns the tokens of a text, in order.
fn tokens(text: &[u8], traits: &Traits) -> Vec<Token> {
    // A line of the usual file has some thirty bytes.
    let mut tokens = Vec::with_capacity(text.len() / 32 + 4);
    for line in TextLines::of(text) {
        let Some(&first) = line.bytes.first() else {
            if traits.records == RecordEnd::EndAtBlank {
                tokens.push(Token::new(TokenKind::Blank, line.number, 0..0));
            }
            continue;
        };
        // Comments and sitemaps are most of the lines that do not matter.
        if !LineForm::may_begin_key(first) {
            continue;
        }
        tokens.extend(token(line, traits));
    }
    tokens
}

#[inline]
fn token(line: TextLine<'_>, traits: &Traits) -> Option<Token> {
    let content = traits.lines.content(line.bytes);
    if content.is_empty() {
        let blank = traits.records == RecordEnd::EndAtBlank && is_blank(line.bytes);
        return blank.then(|| Token::new(TokenKind::Blank, line.number, 0..0));
    }
    let (key, value) = traits.lines.keyed(content)?;
    let kind = match key {
        LineKey::Agent => TokenKind::Agent,
        LineKey::Rule(RuleKind::Allow) => TokenKind::Allow,
        LineKey::Rule(RuleKind::Disallow) => TokenKind::Disallow,
        LineKey::CrawlDelay => TokenKind::CrawlDelay,
        LineKey::RequestRate => TokenKind::RequestRate,
        LineKey::VisitTime => TokenKind::VisitTime,
    };
    // The value is a slice of the line, so its address tells its place.
    let start = line.start + offset(line.bytes, value);
    Some(Token::new(kind, line.number, start..start + value.len()))
}

/// Finds the start of `part` in `whole`, of which it must be a slice.
fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - whole.as_ptr().addr()
}

/// Returns a line with a comment alone is none (1994: it does not end a
/// record).
pub(super) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t'))
}

/// The groups of a file, each as the range of its tokens: agent lines first,
/// then rules. What stands outside any group is in none.
pub(super) struct GroupRanges<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl<'a> GroupRanges<'a> {
    pub(super) fn of(tokens: &'a [Token]) -> Self {
        Self { tokens, at: 0 }
    }
}

/// Groups of a file, mostly one, as ranges of its tokens, in order.
pub(super) type GroupSet = SmallVec<[Range<u32>; 1]>;

impl Iterator for GroupRanges<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        let rest = self.tokens.get(self.at..)?;
        let is_agent = |token: &Token| token.kind() == TokenKind::Agent;
        let start = self.at + rest.iter().position(is_agent)?;
        let mut ruled = false;
        let mut end = start;
        for token in self.tokens.get(start..)? {
            match token.kind() {
                TokenKind::Agent if ruled => break,
                TokenKind::Blank => break,
                TokenKind::Allow | TokenKind::Disallow => ruled = true,
                TokenKind::Agent
                | TokenKind::CrawlDelay
                | TokenKind::RequestRate
                | TokenKind::VisitTime => {}
            }
            end += 1;
        }
        self.at = end;
        // There are fewer tokens than bytes.
        let fit = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Some(fit(start)..fit(end))
    }
}

impl Traits {
    /// Returns the value of a Disallow without the invisible marks at its end,
    /// or `None` if it does not end in any. An Allow has no such second form: a
    /// guess must not allow.
    ///
    /// A line copied from a page may bring a no-break space, a zero-width space
    /// or a direction mark with it. RFC 9309 counts them as part of the value,
    /// which then matches nothing that anybody asks for.
    #[inline]
    pub(super) fn without_marks<'a>(&self, kind: TokenKind, value: &'a [u8]) -> Option<&'a [u8]> {
        let may_be_mark = value.last().is_some_and(|last| !last.is_ascii());
        if !may_be_mark || kind != TokenKind::Disallow || self.forms == RuleForms::AsWritten {
            return None;
        }
        without_end_marks(value)
    }
}

/// Invisible marks: no-break spaces, characters without width, direction marks.
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
