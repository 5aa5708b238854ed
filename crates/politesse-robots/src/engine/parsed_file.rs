//! Parsed file: the text and its tokens, shared by everything that is derived from them.
//!
//! RFC 9309, section 2.1. Does not know which crawlers a group binds.

use std::ops::Range;

use bytes::Bytes;

use super::dialect::{Dialect, Traits};
use super::repair::RepairedGroups;
use super::token::{FileTokens, GroupRanges, Token, TokenKind};
use crate::file_source::FileSource;

/// Parsed file, shared by all bindings and rules.
pub(super) struct ParsedFile {
    /// Text without byte order mark. UTF-16 is converted to UTF-8.
    pub(super) text: Bytes,
    /// Tokens of the standard, then tokens of the repaired groups.
    pub(super) tokens: Box<[Token]>,
    /// Number of tokens of the standard.
    standard: usize,
    /// Groups with a repaired line, which bind in addition to those of the standard.
    pub(super) repaired: Box<[Range<u32>]>,
    has_marked_agents: bool,
    /// Whether an agent line may be a complete User-Agent.
    pub(super) has_user_agents: bool,
    pub(super) source: FileSource,
    pub(super) dialect: Dialect,
    traits: &'static Traits,
}

impl ParsedFile {
    pub(super) fn new(text: Bytes, dialect: Dialect, source: FileSource) -> Self {
        Self {
            source,
            ..Self::by_traits(text, dialect, dialect.traits())
        }
    }

    /// Parses a file by `traits`. Only tests pass other traits than those of `dialect`.
    pub(super) fn by_traits(text: Bytes, dialect: Dialect, traits: &'static Traits) -> Self {
        let mut file = FileTokens::of(&text, traits);
        let standard = file.tokens.len();
        let mut repaired = RepairedGroups::default();
        if file.has_damaged_lines {
            repaired = RepairedGroups::of(&text, traits, standard);
            file.tokens.append(&mut repaired.tokens);
        }
        Self {
            tokens: file.tokens.into(),
            text,
            standard,
            repaired: repaired.groups.into(),
            has_marked_agents: file.has_marked_agents,
            has_user_agents: file.has_user_agents,
            source: FileSource::default(),
            dialect,
            traits,
        }
    }

    pub(super) fn traits(&self) -> &'static Traits {
        self.traits
    }

    /// Returns the groups of the standard.
    pub(super) fn groups(&self) -> GroupRanges<'_> {
        GroupRanges::of(self.tokens.get(..self.standard).unwrap_or_default())
    }

    /// Reports whether groups may bind a crawler in addition to those of the standard.
    #[inline]
    pub(super) fn may_bind_more(&self, user_agent: Option<&str>) -> bool {
        self.has_marked_agents
            || !self.repaired.is_empty()
            || self.has_user_agents && user_agent.is_some_and(|agent| self.is_agent_line(agent))
    }

    fn is_agent_line(&self, agent: &str) -> bool {
        let mut tokens = self.tokens.iter();
        tokens
            .any(|token| token.kind() == TokenKind::Agent && self.value(*token) == agent.as_bytes())
    }

    /// Returns the tokens of a group.
    pub(super) fn of_group(&self, group: &Range<u32>) -> &[Token] {
        let group = group.start as usize..group.end as usize;
        self.tokens.get(group).unwrap_or_default()
    }

    pub(super) fn value(&self, token: Token) -> &[u8] {
        token.value(&self.text)
    }

    /// Reports whether a group has an agent line for which `binds` holds.
    #[inline]
    pub(super) fn has_agent(&self, group: &Range<u32>, binds: impl Fn(&[u8]) -> bool) -> bool {
        self.agents(group).any(binds)
    }

    /// Returns the values of a group's agent lines.
    #[inline]
    pub(super) fn agents<'a>(
        &'a self,
        group: &Range<u32>,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let tokens = self.of_group(group).iter();
        let agents = tokens.take_while(|token| token.rule_kind().is_none());
        agents
            .filter(|token| token.kind() == TokenKind::Agent)
            .map(|token| self.value(*token))
    }
}
