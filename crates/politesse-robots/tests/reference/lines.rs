//! Lines of a robots.txt, without groups.
//!
//! RFC 9309, section 2.2, with the leniency that section 2.2.4 allows. The old
//! specifications have the same lines; blank lines matter only to them.

use super::Dialect;

/// Kind of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An `allow` line.
    Allow,
    /// A `disallow` line.
    Disallow,
}

/// Allow or disallow line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    /// Number of the line, from 1.
    pub(super) line: u32,
    /// Kind of the rule.
    pub(super) kind: Kind,
    /// Text after the colon, without comment and outer blanks.
    pub(super) value: Vec<u8>,
    /// Path of the value, if it is a URL of the site.
    pub(super) path: Option<Vec<u8>>,
}

/// Meaning of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// A blank line. A line with a comment is not blank (1994: it does "not indicate a
    /// record boundary").
    Blank,
    /// A user-agent line with its value.
    Agent(Vec<u8>),
    /// A rule.
    Rule(Rule),
    /// A comment, another record (RFC 9309, section 2.2.4), or noise.
    Other,
}

/// Parses the lines of `body`, in order, by `dialect`.
pub(super) fn read(dialect: Dialect, body: &[u8]) -> Vec<Line> {
    let numbered = numbered(dialect, body).into_iter();
    numbered
        .map(|(number, line)| parsed(number, &line))
        .collect()
}

/// Returns the lines of `body`, each with its number.
pub(super) fn numbered(dialect: Dialect, body: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut text = decoded(body);
    if text.is_pairs && dialect == Dialect::Rfc9309 && !has_agent_line(&text.bytes) {
        text.bytes = without_mark(without_mark_of_pairs(body)).to_vec();
    }
    let lines = split(&text.bytes).into_iter().map(<[u8]>::to_vec);
    (1..).zip(lines).collect()
}

/// File in UTF-8.
struct Text {
    bytes: Vec<u8>,
    /// Whether the file was in UTF-16.
    is_pairs: bool,
}

/// Converts a file to UTF-8 (section 2.2.2: "Implementers MAY bridge encoding mismatches"),
/// and removes a byte order mark.
fn decoded(body: &[u8]) -> Text {
    let pairs = |bytes, unit| Text {
        bytes: utf16(bytes, unit),
        is_pairs: true,
    };
    let bytes = |rest: &[u8]| Text {
        bytes: rest.to_vec(),
        is_pairs: false,
    };
    match body {
        [0xFF, 0xFE, rest @ ..] => pairs(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => pairs(rest, u16::from_be_bytes),
        [1..=0x7F, 0, 1..=0x7F, 0, ..] => pairs(body, u16::from_le_bytes),
        [0, 1..=0x7F, 0, 1..=0x7F, ..] => pairs(body, u16::from_be_bytes),
        _ => bytes(without_mark(body)),
    }
}

/// Removes a byte order mark of UTF-8, or a part of one, as Google does.
fn without_mark(body: &[u8]) -> &[u8] {
    match body {
        [0xEF, 0xBB, 0xBF, rest @ ..] | [0xEF, 0xBB, rest @ ..] | [0xEF, rest @ ..] => rest,
        _ => body,
    }
}

/// Reports whether a line that has a line end is an agent line. In RFC 9309, a file that
/// begins like UTF-16 is decoded as UTF-16 only if there is one, so that a stray mark does
/// not hide every rule.
fn has_agent_line(text: &[u8]) -> bool {
    let mut lines = split(text);
    lines.pop();
    let mut lines = lines.iter().map(|line| parsed(0, line));
    lines.any(|line| matches!(line, Line::Agent(_)))
}

/// Removes a byte order mark of UTF-16.
fn without_mark_of_pairs(body: &[u8]) -> &[u8] {
    match body {
        [0xFF, 0xFE, rest @ ..] | [0xFE, 0xFF, rest @ ..] => rest,
        _ => body,
    }
}

/// Converts UTF-16 to UTF-8. Drops an odd byte at the end.
fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Vec<u8> {
    let pairs = bytes.chunks_exact(2);
    let units = pairs.map(|pair| unit([pair[0], pair[1]]));
    let text: String = char::decode_utf16(units)
        .map(|read| read.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    text.into_bytes()
}

/// Returns the lines without their ends, which are CR, LF or CRLF (section 2.2,
/// `NL`).
fn split(text: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.iter().position(|byte| b"\r\n".contains(byte)) {
        lines.push(&rest[..end]);
        let after = if rest[end..].starts_with(b"\r\n") {
            2
        } else {
            1
        };
        rest = &rest[end + after..];
    }
    lines.push(rest);
    lines
}

/// Parses line `number`.
pub(super) fn parsed(number: u32, line: &[u8]) -> Line {
    if trimmed(line).is_empty() {
        return Line::Blank;
    }
    let Some((name, value)) = field(content(line)) else {
        return Line::Other;
    };
    key(number, &name, value)
}

/// Returns the line with this name, in lower case, and this value.
pub(super) fn key(number: u32, name: &[u8], value: &[u8]) -> Line {
    let rule = |kind| {
        Line::Rule(Rule {
            line: number,
            kind,
            value: value.to_vec(),
            path: None,
        })
    };
    match name {
        b"user-agent" | b"useragent" | b"user agent" => Line::Agent(value.to_vec()),
        b"allow" => rule(Kind::Allow),
        b"disallow" | b"dissallow" | b"dissalow" | b"disalow" | b"diasllow" | b"disallaw"
        | b"disallowed" => rule(Kind::Disallow),
        _ => Line::Other,
    }
}

/// Returns the text before the comment, without outer blanks.
pub(super) fn content(line: &[u8]) -> &[u8] {
    let comment = line.iter().position(|&byte| byte == b'#');
    trimmed(&line[..comment.unwrap_or(line.len())])
}

/// Returns the name, in lower case, and the value. A line of exactly two words without a
/// colon is read as one whose colon is missing.
fn field(content: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (name, value) = match content.iter().position(|&byte| byte == b':') {
        Some(colon) => (&content[..colon], &content[colon + 1..]),
        None => two_words(content)?,
    };
    Some((trimmed(name).to_ascii_lowercase(), trimmed(value)))
}

/// Returns the two words of a line; `None` if it has another number of words.
fn two_words(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let parts = content.split(|byte| is_blank(*byte));
    let words: Vec<&[u8]> = parts.filter(|word| !word.is_empty()).collect();
    match words[..] {
        [name, value] => Some((name, value)),
        _ => None,
    }
}

/// Returns the text without outer blanks.
pub(super) fn trimmed(text: &[u8]) -> &[u8] {
    let Some(start) = text.iter().position(|byte| !is_blank(*byte)) else {
        return &[];
    };
    let last = text.iter().rposition(|byte| !is_blank(*byte));
    &text[start..last.map_or(start, |last| last + 1)]
}

/// Reports whether a byte is a blank: space or tab (section 2.2, `WS`).
pub(super) fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}
