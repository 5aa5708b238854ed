//! Tokens: the lines that a verdict or a pause depends on, and the groups that they form.
//!
//! RFC 9309, section 2.1. Skips comments, sitemaps and unknown records: they neither end a
//! group nor affect a rule (section 2.2.4). Does not know other records:
//! [`super::records`] parses them on demand.

use std::ops::Range;

use smallvec::SmallVec;

use super::dialect::{DamagedLines, LineForm, RecordEnd, Traits};
use super::lines::RuleKind;
use super::lines::{LineKey, TextLine, TextLines};
use super::marks::{colons, plain};

/// Line with a key, stored as the position of its value in the text.
#[derive(Clone, Copy)]
pub(super) struct Token {
    pub(super) start: u32,
    pub(super) line: u32,
    /// Length of the value in the low bits, kind in the high bits.
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
    /// A blank line, in dialects in which it ends a record.
    Blank,
}

impl TokenKind {
    /// Reports whether the token is a pace record.
    pub(super) fn is_of_pace(self) -> bool {
        matches!(self, Self::CrawlDelay | Self::RequestRate | Self::VisitTime)
    }
}

impl From<LineKey> for TokenKind {
    fn from(key: LineKey) -> Self {
        match key {
            LineKey::Agent => Self::Agent,
            LineKey::Rule(RuleKind::Allow) => Self::Allow,
            LineKey::Rule(RuleKind::Disallow) => Self::Disallow,
            LineKey::CrawlDelay => Self::CrawlDelay,
            LineKey::RequestRate => Self::RequestRate,
            LineKey::VisitTime => Self::VisitTime,
        }
    }
}

impl From<RuleKind> for TokenKind {
    fn from(kind: RuleKind) -> Self {
        LineKey::Rule(kind).into()
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

/// Maximum length of a text, in bytes, so that positions and lengths fit their fields.
pub(super) const TEXT_MAX: usize = 1 << 25;

/// Maximum length of a name, in bytes, that is searched for invisible marks.
const NAME_MAX: usize = 128;

impl Token {
    fn new(kind: TokenKind, line: u32, place: Range<usize>) -> Self {
        // Always fits: the text is at most `TEXT_MAX` long.
        let fit = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        Self {
            start: fit(place.start),
            line,
            length: fit(place.len()) | ((kind as u32) << KIND_SHIFT),
        }
    }

    /// Creates the token of a value, which must be a slice of its line.
    #[inline]
    pub(super) fn of_value(kind: TokenKind, line: TextLine<'_>, value: &[u8]) -> Self {
        // `value` is a slice of the line, so its address gives its position.
        let start = line.start + offset(line.bytes, value);
        Self::new(kind, line.number, start..start + value.len())
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

    /// Returns the value as written, without outer blanks.
    pub(super) fn value(self, text: &[u8]) -> &[u8] {
        let start = self.start as usize;
        let length = (self.length & ((1 << KIND_SHIFT) - 1)) as usize;
        text.get(start..start + length).unwrap_or_default()
    }
}

/// Tokens of a text, in order, with flags for lines that need a closer look.
pub(super) struct FileTokens {
    pub(super) tokens: Vec<Token>,
    /// Whether a line has a key with marks, or contains two records.
    pub(super) has_damaged_lines: bool,
    /// Whether an agent line contains marks, or consists of `*` and punctuation.
    pub(super) has_marked_agents: bool,
    /// Whether an agent line may be a complete User-Agent.
    pub(super) has_user_agents: bool,
}

impl FileTokens {
    pub(super) fn of(text: &[u8], traits: &Traits) -> Self {
        let mut found = Self {
            // The average line of a typical file has about thirty bytes.
            tokens: Vec::with_capacity(text.len() / 32 + 4),
            has_damaged_lines: false,
            has_marked_agents: false,
            has_user_agents: false,
        };
        for line in TextLines::of(text) {
            let Some(&first) = line.bytes.first() else {
                if traits.records == RecordEnd::EndAtBlank {
                    found
                        .tokens
                        .push(Token::new(TokenKind::Blank, line.number, 0..0));
                }
                continue;
            };
            // Fast path for comments and sitemaps, the most common other lines.
            if !LineForm::may_begin_key(first) {
                if !first.is_ascii() {
                    found.look_at_other(line, traits);
                }
                continue;
            }
            match token(line, traits) {
                Some(token) => {
                    if token.kind() == TokenKind::Agent {
                        found.look_at_agent(token.value(text), traits);
                    }
                    found.tokens.push(token);
                }
                None if line.bytes.is_ascii() => {}
                None => found.look_at_other(line, traits),
            }
        }
        found
    }

    #[inline]
    fn look_at_agent(&mut self, value: &[u8], traits: &Traits) {
        let found = value
            .iter()
            .fold(0, |found, byte| found | AGENT_BYTES[usize::from(*byte)]);
        if found != 0 && !matches!(value, [b'*']) {
            self.look_closer(found, value, traits);
        }
    }

    #[cold]
    fn look_at_other(&mut self, line: TextLine<'_>, traits: &Traits) {
        self.has_damaged_lines =
            self.has_damaged_lines || key_without_marks(line, traits).is_some();
    }

    #[cold]
    fn look_closer(&mut self, found: u8, value: &[u8], traits: &Traits) {
        if traits.damage == DamagedLines::AsWritten {
            return;
        }
        let is_marked = found & MARK != 0;
        let is_everyone = found & STAR != 0 && !value.iter().any(u8::is_ascii_alphanumeric);
        self.has_marked_agents |= is_marked || is_everyone;
        self.has_user_agents |= found & OF_USER_AGENT != 0;
        let may_hold_rule = found & (MARK | COLON) != 0 && !self.has_damaged_lines;
        self.has_damaged_lines |= may_hold_rule && rule_on_agent_line(value, traits).is_some();
    }
}

/// Classes of bytes on an agent line, by their possible meaning; 0 for bytes of a plain
/// name.
const AGENT_BYTES: [u8; 256] = {
    let mut classes = [OTHER; 256];
    let mut byte = 0_u8;
    loop {
        classes[byte as usize] = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => 0,
            b'*' => STAR,
            b':' => COLON,
            b' ' | b'/' | b'(' => OF_USER_AGENT,
            0x80.. => MARK,
            _ => OTHER,
        };
        if byte == 0xFF {
            break classes;
        }
        byte += 1;
    }
};
const OTHER: u8 = 1;
const STAR: u8 = 2;
const COLON: u8 = 4;
const OF_USER_AGENT: u8 = 8;
const MARK: u8 = 16;

/// Returns the token of a line, if it has a key.
// Inlined, because every line of a file comes here.
#[inline(always)]
fn token(line: TextLine<'_>, traits: &Traits) -> Option<Token> {
    let content = traits.lines.content(line.bytes);
    if content.is_empty() {
        let blank = traits.records == RecordEnd::EndAtBlank && is_blank(line.bytes);
        return blank.then(|| Token::new(TokenKind::Blank, line.number, 0..0));
    }
    let (key, value) = traits.lines.keyed(content)?;
    Some(Token::of_value(key.into(), line, value))
}

/// Returns the token of a line, as `token` does, but is not inlined: for rare uses.
#[cold]
pub(super) fn token_of(line: TextLine<'_>, traits: &Traits) -> Option<Token> {
    token(line, traits)
}

/// Returns the token of a line whose key has invisible marks, or lookalikes of a colon or
/// hyphen. Returns `None` for any other line, and for an Allow.
#[cold]
pub(super) fn key_without_marks(line: TextLine<'_>, traits: &Traits) -> Option<Token> {
    let content = traits.lines.content(line.bytes);
    // Real names are far shorter, and most longer lines are prose.
    let start = content.get(..NAME_MAX).unwrap_or(content);
    if start.is_ascii() || traits.damage == DamagedLines::AsWritten {
        return None;
    }
    let colon = colons(start).next()?;
    let (name, value) = (content.get(..colon.start)?, content.get(colon.end..)?);
    let plain = plain(name);
    // Removes byte order marks that were read as text and encoded again.
    let mut name = &plain[..];
    while let Some(rest) = name.strip_prefix("\u{ef}\u{bb}\u{bf}") {
        name = rest;
    }
    let (key, _) = traits
        .lines
        .key(name.trim_start_matches([' ', '\t']).as_bytes())?;
    let is_repaired = key != LineKey::Rule(RuleKind::Allow);
    is_repaired.then(|| Token::of_value(key.into(), line, traits.lines.trimmed(value)))
}

/// Returns the names and the path in the value of an agent line that also contains a
/// Disallow.
pub(super) fn rule_on_agent_line<'a>(
    value: &'a [u8],
    traits: &Traits,
) -> Option<(&'a [u8], &'a [u8])> {
    let mut keys = colons(value).filter_map(|colon| {
        let (before, key) = key_before(value.get(..colon.start)?, traits)?;
        Some((before, key, value.get(colon.end..)?))
    });
    let is_rule = |key: &LineKey| *key == LineKey::Rule(RuleKind::Disallow);
    let (names, _, path) = keys.find(|(names, key, _)| is_rule(key) && !names.is_empty())?;
    // A third record on the line ends the path.
    let end = keys.next().and_then(|(before, ..)| {
        let path_start = offset(value, path);
        before.len().checked_sub(path_start)
    });
    let path = path.get(..end.unwrap_or(path.len()))?;
    Some((names, traits.lines.trimmed(path)))
}

/// Returns the key at the end of `text`, which stands before a colon, and the text before
/// the key. A blank or a byte outside ASCII must separate the two.
fn key_before<'a>(text: &'a [u8], traits: &Traits) -> Option<(&'a [u8], LineKey)> {
    let before = traits.lines.trimmed(text);
    let word = before
        .iter()
        .rposition(|byte| !matches!(byte, b'-' | b'a'..=b'z' | b'A'..=b'Z'))?;
    let (names, word) = before.split_at_checked(word + 1)?;
    let is_apart = matches!(names.last(), Some(b' ' | b'\t' | 0x80..));
    let (key, _) = traits.lines.key(word).filter(|_| is_apart)?;
    Some((traits.lines.trimmed(names), key))
}

/// Returns the offset of `part` in `whole`. `part` must be a slice of `whole`.
fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - whole.as_ptr().addr()
}

/// Reports whether a line is blank. A line with only a comment is not (1994: it does not end
/// a record).
pub(super) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t'))
}

/// Iterator over the groups of a file, each as the range of its tokens: agent lines, then
/// rules. Skips tokens outside all groups.
pub(super) struct GroupRanges<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl<'a> GroupRanges<'a> {
    pub(super) fn of(tokens: &'a [Token]) -> Self {
        Self { tokens, at: 0 }
    }
}

/// Groups of a file as ranges of its tokens, in order. Usually a single group.
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
        // Always fits: there are fewer tokens than bytes.
        let fit = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Some(fit(start)..fit(end))
    }
}
