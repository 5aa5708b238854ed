//! Line parser: splits the bytes of a robots.txt into lines, and a line into name and value.
//!
//! RFC 9309, sections 2.2 and 2.3.1.5. Never fails: a line that is not a record (a name and
//! a value) is skipped, and the other lines still count. Does not know the meaning of a
//! record.

use std::borrow::Cow;
use std::fmt;

use bytes::{Buf as _, Bytes};
use memchr::{memchr, memchr2};

use super::dialect::{LineForm, Utf16};

/// Number of bytes of a line that robots.cc keeps: one less than the size of its buffer.
const CUT_LINE: usize = 2083 * 8 - 1;

/// Line without its end, with its position in the text and its number, from 1.
#[derive(Clone, Copy)]
pub(super) struct TextLine<'a> {
    pub(super) number: u32,
    pub(super) start: usize,
    pub(super) bytes: &'a [u8],
}

/// Iterator over the lines of a file, which end with CR, LF or CRLF (`NL` of RFC 9309,
/// section 2.2).
pub(super) struct TextLines<'a> {
    text: &'a [u8],
    at: usize,
    number: u32,
}

impl<'a> TextLines<'a> {
    pub(super) fn of(text: &'a [u8]) -> Self {
        Self {
            text,
            at: 0,
            number: 0,
        }
    }
}

impl<'a> Iterator for TextLines<'a> {
    type Item = TextLine<'a>;

    #[inline]
    fn next(&mut self) -> Option<TextLine<'a>> {
        let start = self.at;
        let rest = self.text.get(start..).filter(|rest| !rest.is_empty())?;
        let length = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let (bytes, end) = rest.split_at(length);
        self.at = start + length + if end.starts_with(b"\r\n") { 2 } else { 1 };
        self.number += 1;
        Some(TextLine {
            number: self.number,
            start,
            bytes,
        })
    }
}

/// Name and value of a line, without outer blanks.
#[derive(Clone, Copy)]
pub(super) struct LineField<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) separator: Separator,
}

/// Separator of name and value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Separator {
    Colon,
    /// Blanks. A line of exactly two words is read as one whose colon is missing.
    Blank,
}

impl LineForm {
    /// Returns the content of a line: without comment and outer blanks.
    #[inline]
    pub(super) fn content(self, line: &[u8]) -> &[u8] {
        let line = match self {
            Self::Whole => line,
            Self::Cut => {
                let line = line.get(..CUT_LINE).unwrap_or(line);
                until(line, memchr(0, line))
            }
        };
        self.trimmed(until(line, memchr(b'#', line)))
    }

    /// Returns the name and the value in the content of a line.
    #[inline(always)]
    pub(super) fn field(self, content: &[u8]) -> Option<LineField<'_>> {
        let (at, separator) = match memchr(b':', content) {
            Some(colon) => (colon, Separator::Colon),
            None => (memchr2(b' ', b'\t', content)?, Separator::Blank),
        };
        let (name, value) = content.split_at(at);
        let value = self.trimmed(value.get(1..)?);
        if separator == Separator::Blank && memchr2(b' ', b'\t', value).is_some() {
            return None;
        }
        Some(LineField {
            name: self.trimmed(name),
            value,
            separator,
        })
    }

    pub(super) fn trimmed(self, text: &[u8]) -> &[u8] {
        let mut text = text;
        while let [first, rest @ ..] = text
            && self.is_blank(*first)
        {
            text = rest;
        }
        while let [rest @ .., last] = text
            && self.is_blank(*last)
        {
            text = rest;
        }
        text
    }

    /// Reports whether `byte` is `WS` of RFC 9309, section 2.2, or, in the form `Cut`, white
    /// space in C.
    fn is_blank(self, byte: u8) -> bool {
        match self {
            Self::Whole => byte == b' ' || byte == b'\t',
            Self::Cut => matches!(byte, b' ' | b'\t'..=b'\r'),
        }
    }
}

fn until(line: &[u8], end: Option<usize>) -> &[u8] {
    end.and_then(|end| line.get(..end)).unwrap_or(line)
}

/// Effect of a rule on the paths that it matches. The order is that of precedence: of two
/// equally specific rules, allow decides (RFC 9309, section 2.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleKind {
    /// The paths may be fetched.
    Allow,
    /// The paths may not be fetched.
    Disallow,
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Disallow => "disallow",
        })
    }
}

/// Name of a line that a verdict or a pause depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKey {
    Agent,
    Rule(RuleKind),
    CrawlDelay,
    RequestRate,
    VisitTime,
}

/// Spelling of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    Right,
    Wrong,
}

impl LineForm {
    /// Reports whether a line that begins with `byte` can have a [`LineKey`]. Most lines
    /// that cannot are comments, blank lines or sitemaps.
    #[inline]
    pub(super) fn may_begin_key(byte: u8) -> bool {
        matches!(byte | 0x20, b'a' | b'c' | b'd' | b'r' | b'u' | b'v') || byte <= b' '
    }

    /// Fast path for the most common keys in their usual spelling, without a search for the
    /// colon. The value is that of [`LineForm::field`].
    #[inline]
    fn usual(self, content: &[u8]) -> Option<(LineKey, &[u8])> {
        let (key, value) = if let Some(value) = content.strip_prefix(b"Disallow:") {
            (LineKey::Rule(RuleKind::Disallow), value)
        } else if let Some(value) = content.strip_prefix(b"Allow:") {
            (LineKey::Rule(RuleKind::Allow), value)
        } else {
            (LineKey::Agent, content.strip_prefix(b"User-agent:")?)
        };
        Some((key, self.trimmed(value)))
    }

    /// Returns the key and the value in the content of a line, if it has a key.
    // Inlined, because every line of a file comes here.
    #[inline(always)]
    pub(super) fn keyed(self, content: &[u8]) -> Option<(LineKey, &[u8])> {
        if let Some(usual) = self.usual(content) {
            return Some(usual);
        }
        let field = self.field(content)?;
        let (key, _) = self.key(field.name)?;
        Some((key, field.value))
    }

    /// Returns the key for a name, ignoring case (RFC 9309, section 2.2).
    ///
    /// Accepts some misspellings whose meaning is beyond doubt (section 2.2.4: lenient).
    /// There are none for `allow`, because a guess must not allow.
    #[inline(always)]
    pub(super) fn key(self, name: &[u8]) -> Option<(LineKey, Spelling)> {
        let candidates: &[(&str, LineKey, Spelling)] = match name.first()? | 0x20 {
            b'a' => &ALLOW,
            b'c' => &CRAWL_DELAY,
            b'd' => &DISALLOW,
            b'r' => &REQUEST_RATE,
            b'u' => &USER_AGENT,
            b'v' => &VISIT_TIME,
            _ => return None,
        };
        let named = |spelling: &str| match self {
            Self::Whole => name.eq_ignore_ascii_case(spelling.as_bytes()),
            // robots.cc reads `Disallow-AI` as a Disallow.
            Self::Cut => name
                .get(..spelling.len())
                .is_some_and(|beginning| beginning.eq_ignore_ascii_case(spelling.as_bytes())),
        };
        for (name, key, spelling) in candidates {
            if named(name) {
                return Some((*key, *spelling));
            }
        }
        None
    }
}

const ALLOW: [(&str, LineKey, Spelling); 1] =
    [("allow", LineKey::Rule(RuleKind::Allow), Spelling::Right)];
const CRAWL_DELAY: [(&str, LineKey, Spelling); 1] =
    [("crawl-delay", LineKey::CrawlDelay, Spelling::Right)];
const REQUEST_RATE: [(&str, LineKey, Spelling); 1] =
    [("request-rate", LineKey::RequestRate, Spelling::Right)];
const VISIT_TIME: [(&str, LineKey, Spelling); 1] =
    [("visit-time", LineKey::VisitTime, Spelling::Right)];
const DISALLOW: [(&str, LineKey, Spelling); 7] = {
    const KEY: LineKey = LineKey::Rule(RuleKind::Disallow);
    [
        ("disallow", KEY, Spelling::Right),
        ("dissallow", KEY, Spelling::Wrong),
        ("dissalow", KEY, Spelling::Wrong),
        ("disalow", KEY, Spelling::Wrong),
        ("diasllow", KEY, Spelling::Wrong),
        ("disallaw", KEY, Spelling::Wrong),
        ("disallowed", KEY, Spelling::Wrong),
    ]
};
const USER_AGENT: [(&str, LineKey, Spelling); 3] = [
    ("user-agent", LineKey::Agent, Spelling::Right),
    ("useragent", LineKey::Agent, Spelling::Wrong),
    ("user agent", LineKey::Agent, Spelling::Wrong),
];

/// Encoding of a file.
#[derive(Clone, Copy)]
enum Encoding {
    /// UTF-8, or any other encoding that is read as bytes.
    Bytes,
    /// UTF-16.
    Pairs(Utf16Pairs),
}

/// UTF-16 with its byte order. `mark` is the length of the byte order mark, in bytes.
#[derive(Clone, Copy)]
struct Utf16Pairs {
    mark: usize,
    unit: fn([u8; 2]) -> u16,
}

impl Encoding {
    /// Guesses the encoding from the first bytes of `body`.
    fn of(body: &[u8]) -> Self {
        let pairs = |mark, unit| Self::Pairs(Utf16Pairs { mark, unit });
        match body {
            [0xFF, 0xFE, ..] => pairs(2, u16::from_le_bytes),
            [0xFE, 0xFF, ..] => pairs(2, u16::from_be_bytes),
            [1..=0x7F, 0, 1..=0x7F, 0, ..] => pairs(0, u16::from_le_bytes),
            [0, 1..=0x7F, 0, 1..=0x7F, ..] => pairs(0, u16::from_be_bytes),
            _ => Self::Bytes,
        }
    }
}

impl Utf16Pairs {
    fn units(self, body: &[u8]) -> impl DoubleEndedIterator<Item = u16> + ExactSizeIterator {
        let (pairs, _) = body.get(self.mark..).unwrap_or_default().as_chunks::<2>();
        pairs.iter().map(move |pair| (self.unit)(*pair))
    }

    fn decode(self, body: &[u8]) -> String {
        char::decode_utf16(self.units(body))
            .map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    }
}

/// Reports whether `text` has an agent line that is complete. A line without a line end does
/// not count, because it has no rules below it and may have been cut.
fn has_agent_line(text: &str) -> bool {
    let form = LineForm::Whole;
    let end = text.as_bytes().iter().rposition(is_line_end);
    let lines = TextLines::of(text.as_bytes().get(..end.unwrap_or(0)).unwrap_or_default());
    lines
        .map(|line| form.keyed(form.content(line.bytes)))
        .any(|keyed| keyed.is_some_and(|(key, _)| key == LineKey::Agent))
}

/// Returns the file without a byte order mark. UTF-16 is converted to UTF-8 (RFC 9309,
/// section 2.2.2); other bytes stay unchanged.
pub(super) fn decoded(body: Bytes, utf16: Utf16) -> Bytes {
    let Encoding::Pairs(pairs) = Encoding::of(&body) else {
        return without_mark(body);
    };
    let text = pairs.decode(&body);
    match utf16 {
        Utf16::WithAgent if !has_agent_line(&text) => without_mark(body.slice(pairs.mark..)),
        Utf16::WithAgent | Utf16::AsItBegins => text.into(),
    }
}

/// Cuts `body` at a line end, to at most `max` bytes. Callers store, hash and parse this
/// part of a larger file (RFC 9309, section 2.5).
///
/// An incomplete line is dropped, because half a rule matches more paths than the whole. A
/// body that begins like UTF-16 is cut at line ends of UTF-16 only if the part before the
/// cut has an agent line in UTF-16. The parser applies the same condition, so it reads the
/// part in the encoding in which it was cut.
#[must_use]
pub fn whole_lines(body: &[u8], max: usize) -> &[u8] {
    let Some((kept, rest)) = body.split_at_checked(max) else {
        return body;
    };
    let end = match Encoding::of(body) {
        // Looks at 16-bit units, because one byte of a letter may equal a line end.
        Encoding::Pairs(pairs) if has_agent_line(&pairs.decode(kept)) => {
            let is_line_end = |unit: u16| matches!(unit, 0x0A | 0x0D);
            let end = pairs.units(kept).rposition(is_line_end);
            end.map_or(0, |end| pairs.mark + 2 * (end + 1))
        }
        Encoding::Bytes | Encoding::Pairs(_) if rest.first().is_none_or(is_line_end) => kept.len(),
        Encoding::Bytes | Encoding::Pairs(_) => {
            let end = kept.iter().rposition(is_line_end);
            end.map_or(0, |end| end + 1)
        }
    };
    kept.get(..end).unwrap_or_default()
}

fn is_line_end(byte: &u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// Removes a byte order mark of UTF-8, complete or not.
///
/// Some editors begin a file with a byte order mark, and some tools lose a part of it. Left
/// in place, it would become part of the first key, and the first group would be lost.
pub(super) fn without_mark(mut body: Bytes) -> Bytes {
    let mark = body.iter().zip([0xEF, 0xBB, 0xBF]);
    let present = mark.take_while(|(byte, expected)| **byte == *expected);
    body.advance(present.count());
    body
}

/// Returns a value as text, with invalid UTF-8 replaced.
pub(super) fn lossy(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(text)
}
