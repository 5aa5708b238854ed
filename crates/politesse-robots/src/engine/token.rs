//! The lines that a verdict or a pause depends on, found once, and the groups they form.
//!
//! RFC 9309, section 2.1. Comments, sitemaps and unknown records are passed
//! over: they neither end a group nor change a rule (section 2.2.4), and
//! [`super::records`] finds them again for who asks.

use std::ops::Range;

use smallvec::SmallVec;

use super::dialect::{LineForm, RecordEnd, Traits};
use super::lines::RuleKind;
use super::lines::{LineKey, TextLine, TextLines};
use super::marks::is_odd_agent;

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

    /// Makes the token of a value that is a slice of its line.
    #[inline]
    pub(super) fn of_value(kind: TokenKind, line: TextLine<'_>, value: &[u8]) -> Self {
        // A slice of the line, so its address tells its place.
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

    /// Returns the value as written, without the blanks around it.
    pub(super) fn value(self, text: &[u8]) -> &[u8] {
        let start = self.start as usize;
        let length = (self.length & ((1 << KIND_SHIFT) - 1)) as usize;
        text.get(start..start + length).unwrap_or_default()
    }
}

/// Tokens of a text, in order, and whether a second look is worth while.
pub(super) struct FileTokens {
    pub(super) tokens: Vec<Token>,
    /// Whether a line is no record and not ASCII, or two records are on one.
    pub(super) may_be_damaged: bool,
    /// Whether an agent line may have to be read a second way.
    pub(super) has_odd_agents: bool,
}

impl FileTokens {
    pub(super) fn of(text: &[u8], traits: &Traits) -> Self {
        let mut found = Self {
            // A line of the usual file has some thirty bytes.
            tokens: Vec::with_capacity(text.len() / 32 + 4),
            may_be_damaged: false,
            has_odd_agents: false,
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
            // Comments and sitemaps are most of the lines that do not matter.
            if !LineForm::may_begin_key(first) {
                found.may_be_damaged |= !first.is_ascii();
                continue;
            }
            match token(line, traits) {
                Some(token) => {
                    if token.kind() == TokenKind::Agent {
                        found.look_at_agent(token.value(text));
                    }
                    found.tokens.push(token);
                }
                None => found.may_be_damaged |= !line.bytes.is_ascii(),
            }
        }
        found
    }

    #[inline]
    fn look_at_agent(&mut self, value: &[u8]) {
        if is_odd_agent(value) {
            self.has_odd_agents = true;
            // Of a Disallow on the same line, or one in a name that is a URL.
            self.may_be_damaged |= value.iter().any(|byte| matches!(byte, b':' | 0x80..));
        }
    }
}

#[inline]
pub(super) fn token(line: TextLine<'_>, traits: &Traits) -> Option<Token> {
    let content = traits.lines.content(line.bytes);
    if content.is_empty() {
        let blank = traits.records == RecordEnd::EndAtBlank && is_blank(line.bytes);
        return blank.then(|| Token::new(TokenKind::Blank, line.number, 0..0));
    }
    let (key, value) = traits.lines.keyed(content)?;
    Some(Token::of_value(key.into(), line, value))
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
