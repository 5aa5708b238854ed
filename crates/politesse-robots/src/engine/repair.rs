//! Repair of damaged lines: reads them as their author meant them.
//!
//! Ours (docs/decisions/007-doubt-refuses.md). RFC 9309 treats such a line as an unknown
//! record and ignores it. Repaired lines form separate groups, which bind in addition to
//! those of the standard: a path that is refused without them stays refused. An Allow is
//! never repaired. Does not know crawlers.

use std::borrow::Cow;
use std::ops::Range;

use super::dialect::{DamagedLines, RuleForms, Traits};
use super::lines::{TextLine, TextLines};
use super::marks::{visible, visible_text, without_end_marks};
use super::token::{Token, TokenKind, key_without_marks, rule_on_agent_line, token_of};
use crate::crawler;
use crate::file_source::{Charset, FileSource};
use crate::origin::{Origin, Scheme};

/// Groups with at least one repaired line. They contain all lines of the group: agents,
/// rules and pace records, damaged or not.
#[derive(Default)]
pub(super) struct RepairedGroups {
    pub(super) tokens: Vec<Token>,
    /// Range of the tokens of each group.
    pub(super) groups: Vec<Range<u32>>,
}

/// Group whose lines are being read.
#[derive(Default)]
struct OpenGroup {
    tokens: Vec<Token>,
    has_rule: bool,
    has_repaired_line: bool,
}

/// Records of one damaged line: two if an agent line also contains a Disallow.
pub(super) struct DamagedLine {
    pub(super) record: Token,
    pub(super) rule: Option<Token>,
}

impl RepairedGroups {
    /// Finds the groups with a repaired line. `first` is the number of tokens of the file
    /// that precede those of these groups.
    pub(super) fn of(text: &[u8], traits: &Traits, first: usize) -> Self {
        let mut found = Self::default();
        let mut open = OpenGroup::default();
        for line in TextLines::of(text) {
            let (records, is_repaired) = match DamagedLine::of(line, traits) {
                Some(damaged) => ([Some(damaged.record), damaged.rule], true),
                None => ([token_of(line, traits), None], false),
            };
            for record in records.into_iter().flatten() {
                if record.kind() == TokenKind::Agent && open.has_rule {
                    found.close(std::mem::take(&mut open), first);
                }
                open.take(record, is_repaired);
            }
        }
        found.close(open, first);
        found
    }

    fn close(&mut self, open: OpenGroup, first: usize) {
        if !open.has_repaired_line {
            return;
        }
        // Always fits: there are fewer tokens than bytes.
        let fit = |at: usize| u32::try_from(first + at).unwrap_or(u32::MAX);
        let start = self.tokens.len();
        self.tokens.extend(open.tokens);
        self.groups.push(fit(start)..fit(self.tokens.len()));
    }
}

impl OpenGroup {
    /// Adds a record. Ignores records above the first agent line, which belong to no group.
    fn take(&mut self, record: Token, is_repaired: bool) {
        if self.tokens.is_empty() && record.kind() != TokenKind::Agent {
            return;
        }
        self.has_rule |= record.rule_kind().is_some();
        self.has_repaired_line |= is_repaired;
        self.tokens.push(record);
    }
}

impl DamagedLine {
    /// Repairs a damaged line; `None` if the line is valid by RFC 9309, or beyond repair.
    pub(super) fn of(line: TextLine<'_>, traits: &Traits) -> Option<Self> {
        if traits.damage == DamagedLines::AsWritten {
            return None;
        }
        let written = token_of(line, traits);
        let record = written.or_else(|| key_without_marks(line, traits))?;
        if record.kind() == TokenKind::Agent
            && let Some(both) = Self::two_in_one(line, record, traits)
        {
            return Some(both);
        }
        written.is_none().then_some(Self { record, rule: None })
    }

    /// Splits an agent line that also contains a Disallow into two records.
    fn two_in_one(line: TextLine<'_>, agent: Token, traits: &Traits) -> Option<Self> {
        let start = (agent.start as usize).checked_sub(line.start)?;
        let value = traits.lines.content(line.bytes.get(start..)?);
        let (names, rule) = rule_on_agent_line(value, traits)?;
        Some(Self {
            record: Token::of_value(TokenKind::Agent, line, names),
            rule: Some(Token::of_value(TokenKind::Disallow, line, rule)),
        })
    }
}

/// Reports whether an agent line means all crawlers: it contains `*`, and otherwise only
/// punctuation and quotes. No product token begins with `*`, so no other meaning is
/// possible.
pub(super) fn is_everyone_in_punctuation(plain: &str) -> bool {
    let is_around = |letter: char| {
        letter.is_ascii_punctuation()
            || matches!(
                letter,
                ' ' | '\t' | '\u{ab}' | '\u{b4}' | '\u{b7}' | '\u{bb}' | '\u{2010}'..='\u{2027}'
                    | '\u{2032}'..='\u{203a}' | '\u{3001}' | '\u{3002}' | '\u{300c}'..='\u{300f}'
                    | '\u{ff02}' | '\u{ff07}' | '\u{ff0c}' | '\u{ff0e}' | '\u{ff1b}'
            )
    };
    plain.contains('*') && plain.chars().all(is_around)
}

/// Additional values of a Disallow to compare, without duplicates and without the written
/// one.
pub(super) type FurtherForms = Vec<Vec<u8>>;

impl Traits {
    /// Returns the further forms of a rule's value: the value without invisible marks, the
    /// value converted to UTF-8 if it is in another charset, and the path if it is a URL of
    /// the origin. An Allow has none, because a guess must not allow.
    #[cold]
    pub(super) fn further_forms(
        &self,
        kind: TokenKind,
        value: &[u8],
        source: &FileSource,
    ) -> FurtherForms {
        let mut forms = FurtherForms::new();
        let is_plain = value.is_ascii() && !is_url(value);
        if is_plain || kind != TokenKind::Disallow || self.forms == RuleForms::AsWritten {
            return forms;
        }
        let mut add = |form: Cow<'_, [u8]>| {
            if *form != *value && forms.iter().all(|known| *known != *form) {
                forms.push(form.into_owned());
            }
        };
        if let Some(rest) = without_end_marks(value) {
            add(rest.into());
        }
        if self.damage == DamagedLines::AsWritten {
            return forms;
        }
        let text = match str::from_utf8(value) {
            Ok(text) => visible_text(text),
            Err(_) => {
                add(visible(value).into());
                decoded(value, source.charset).into()
            }
        };
        let origin = source.origin.as_ref();
        if let Some(path) = origin.and_then(|origin| path_on(origin, &text)) {
            add(path.as_bytes().into());
        }
        add(match text {
            Cow::Borrowed(text) => text.as_bytes().into(),
            Cow::Owned(text) => text.into_bytes().into(),
        });
        forms
    }
}

/// Decodes a value that is not UTF-8 by `charset`, otherwise as Windows-1252, and removes
/// its invisible marks.
fn decoded(value: &[u8], charset: Option<Charset>) -> String {
    match charset {
        // Marks are removed after decoding: a byte that looks like a mark may be part of
        // a letter.
        Some(charset) => visible_text(&charset.decode(value)).into_owned(),
        None => crawler::decode(&visible(value)).into_owned(),
    }
}

/// Returns the path of an absolute URL if its host is that of `site`. The scheme may
/// differ, and the port may be the default of the scheme or that of the site. Returns `None`
/// for a URL without a path, which names no page.
pub(super) fn path_on<'a>(site: &Origin, url: &'a str) -> Option<&'a str> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme: Scheme = scheme.parse().ok()?;
    let end = rest.find(['/', '?'])?;
    let (authority, path) = rest.split_at(end);
    let origin = Origin::new(scheme, authority).ok()?;
    let is_of_site = site.host() == origin.host()
        && (origin.port() == scheme.default_port() || origin.port() == site.port());
    (is_of_site && path.starts_with('/')).then_some(path)
}

/// Reports whether a value is an absolute URL.
pub(super) fn is_url(value: &[u8]) -> bool {
    let begins = |scheme: &str| {
        value
            .get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes()))
    };
    begins("http://") || begins("https://")
}

#[cfg(test)]
mod tests;
