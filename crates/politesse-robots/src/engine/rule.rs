//! Rule that binds a crawler, for display: its line, its text, and the paths that it matches.
//!
//! RFC 9309, section 2.2.2. Does not know which rule decides.

use std::borrow::Cow;
use std::ops::Range;

use super::canonical::{Buffer, Fold, fold, query_start, with_escapes_of};
use super::lines::{RuleKind, lossy};
use super::pattern::{CanonicalPath, Pattern};
use super::rules::RuleSet;
use super::shape::Shape;
use super::token::Token;

/// Allow or Disallow line that binds a crawler (RFC 9309, section 2.2.2).
#[derive(Clone, Copy)]
pub struct Rule<'a> {
    pub(super) rules: &'a RuleSet,
    pub(super) at: u32,
    /// Whether the rule matched only in the form that servers read, not as written.
    pub(super) as_served: bool,
}

impl<'a> Rule<'a> {
    pub(super) fn new(rules: &'a RuleSet, at: u32) -> Self {
        Self {
            rules,
            at,
            as_served: false,
        }
    }

    /// Returns the kind of the rule: allow or disallow.
    #[must_use]
    pub fn kind(&self) -> RuleKind {
        let token = self.token().and_then(Token::rule_kind);
        token.unwrap_or(RuleKind::Disallow)
    }

    /// Returns the line number of the rule, from 1.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.token().map_or(0, |token| token.line)
    }

    /// Returns the line as written, without byte order mark, comment and outer whitespace.
    /// Invalid UTF-8 is replaced.
    #[must_use]
    pub fn text(&self) -> Cow<'a, str> {
        let Some(token) = self.token() else {
            return Cow::Borrowed("");
        };
        let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let text = &self.rules.file.text[..];
        let (before, after) = text.split_at(text.len().min(token.start as usize));
        let start = before
            .iter()
            .rposition(is_line_end)
            .map_or(0, |end| end + 1);
        let end = after.iter().position(is_line_end).unwrap_or(after.len());
        let line = text.get(start..before.len() + end).unwrap_or_default();
        lossy(self.rules.file.traits().lines.content(line))
    }

    /// Returns the length of the path in canonical form, in bytes, including `*` and `$`. A
    /// longer rule is more specific (RFC 9309, section 2.2.2: the most bytes).
    #[must_use]
    pub fn length(&self) -> usize {
        let dialect = self.rules.file.dialect;
        let patterns = self
            .forms()
            .filter_map(|form| Pattern::in_dialect(&form, dialect));
        let lengths: Vec<_> = patterns
            .map(|pattern| (pattern.matches_some(), pattern.len()))
            .collect();
        let counts = lengths.iter().find(|(matches_some, _)| *matches_some);
        counts.or(lengths.first()).map_or(0, |(_, length)| *length)
    }

    /// Reports whether one of the forms of the rule matches a path by the standard.
    pub(super) fn matches(&self, path: &CanonicalPath) -> bool {
        let disallows = self.kind() == RuleKind::Disallow;
        let dialect = self.rules.file.dialect;
        let mut patterns = self
            .forms()
            .filter_map(|form| Pattern::in_dialect(&form, dialect));
        patterns.any(|pattern| pattern.matches(path) || (disallows && pattern.matches_folded(path)))
    }

    /// Returns a spelling of `path` that servers treat alike and that the rule matches by
    /// the standard; `None` if the rule matches `path` itself by the standard.
    #[must_use]
    pub fn spelling_as_served(&self, path: &str) -> Option<String> {
        if !self.as_served {
            return None;
        }
        let dialect = self.rules.file.dialect;
        let canonical = CanonicalPath::in_dialect(path, dialect);
        let bytes = canonical.as_bytes();
        let mut decoded = Buffer::new();
        let (path, query) = bytes.split_at(query_start(bytes));
        fold(path, path.len(), Fold::Everywhere, &mut decoded);
        decoded.extend_from_slice(query);
        let escaped = with_escapes_of(self.value(), bytes);
        let is_matched = |path: &[u8]| self.matches(&CanonicalPath::of_canonical(path));
        let spelling = if is_matched(&decoded) {
            decoded.to_vec()
        } else if is_matched(&escaped) {
            escaped
        } else {
            self.spelled_as_written(&decoded)
                .unwrap_or_else(|| decoded.to_vec())
        };
        Some(lossy(&spelling).into_owned())
    }

    /// Returns a decoded path in which the beginning that matches the rule is spelled as in
    /// the rule; `None` if the rule has wildcards.
    fn spelled_as_written(&self, decoded: &[u8]) -> Option<Vec<u8>> {
        let traits = self.rules.file.traits();
        self.forms().find_map(|form| {
            let mut written = Buffer::new();
            let shape = Shape::of_canonical(&form, traits, &mut written)?;
            let head = written.get(..shape.head).filter(|_| shape.tail == 0)?;
            let mut folded = Buffer::new();
            fold(head, query_start(head), Fold::Everywhere, &mut folded);
            let rest = decoded.strip_prefix(&folded[..])?;
            Some([head, rest].concat())
        })
    }

    /// Returns the value and the further forms in which it is compared.
    pub(super) fn forms(&self) -> impl Iterator<Item = Cow<'a, [u8]>> + use<'a> {
        let (file, value) = (&self.rules.file, self.value());
        let kind = self.token().map(Token::kind);
        let further = kind.map(|kind| file.traits().further_forms(kind, value, &file.source));
        let owned = further.unwrap_or_default().into_iter().map(Cow::Owned);
        std::iter::once(Cow::Borrowed(value)).chain(owned)
    }

    pub(super) fn value(&self) -> &'a [u8] {
        let token = self.token();
        token.map_or(&[], |token| token.value(&self.rules.file.text))
    }

    fn token(&self) -> Option<Token> {
        self.rules.file.tokens.get(self.at as usize).copied()
    }

    pub(super) fn group(&self) -> Option<&'a Range<u32>> {
        let groups = &self.rules.groups;
        let after = groups.partition_point(|group| group.start <= self.at);
        groups.get(after.checked_sub(1)?)
    }
}

impl PartialEq for Rule<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at && self.rules.file.text == other.rules.file.text
    }
}

impl std::fmt::Debug for Rule<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line(), self.text())
    }
}
