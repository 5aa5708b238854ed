//! The Disallow rules that bind, as they read where a reserved byte and its
//! escape count as the same.
//!
//! They are arranged when a path is first asked for that may need them: nearly
//! no file and no path does.

use memchr::memchr;

use super::canonical::{Buffer, Fold, fold, query_start};
use super::draft::RuleDraft;
use super::index::Index;
use super::pattern::{FoldedPath, FoldedPattern};
use super::rank::RuleRank;
use super::token::{ParsedFile, Token, TokenKind};
use super::wildcard::Fuel;

/// The Disallow rules in the form of one [`Fold`].
pub(super) struct FoldedRules {
    scope: Fold,
    index: Index,
    /// Rules that read differently in the path and in the query, the greatest
    /// rank first.
    by_place: Box<[(RuleRank, FoldedPattern)]>,
}

impl FoldedRules {
    /// Indexes the Disallow lines among `tokens`, each with its place.
    pub(super) fn new(
        file: &ParsedFile,
        tokens: impl Iterator<Item = (u32, Token)>,
        scope: Fold,
    ) -> Self {
        let traits = file.traits();
        let mut draft = RuleDraft::new(file);
        let mut by_place = Vec::new();
        for (at, token) in tokens.filter(|(_, token)| token.kind() == TokenKind::Disallow) {
            let value = file.value(token);
            // Only a rule with an escape reads otherwise than it is written.
            if memchr(b'%', value).is_none() {
                draft.take(at, token);
                continue;
            }
            let Some(rank) = draft.rank_of(at, token) else {
                continue;
            };
            let without_marks = traits.without_marks(token.kind(), value);
            for form in [Some(value), without_marks].into_iter().flatten() {
                match (FoldedPattern::by_place(form, traits, scope), scope) {
                    (Some(pattern), _) => by_place.push((rank, pattern)),
                    (None, Fold::InQuery) => draft.take_form(rank, token.start, form),
                    (None, Fold::Everywhere) => draft.take_folded(rank, token.start, form),
                }
            }
        }
        // The greatest first, so that the search can end at the first match.
        by_place.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        Self {
            scope,
            index: draft.index(),
            by_place: by_place.into(),
        }
    }

    /// Returns the rank of the rule that counts for a canonical path.
    pub(super) fn best(&self, text: &[u8], path: &[u8], fuel: &mut Fuel) -> RuleRank {
        let mut folded = Buffer::new();
        fold(path, query_start(path), self.scope, &mut folded);
        let mut best = self.index.best_canonical(text, &folded, fuel);
        let path = FoldedPath::new(&folded);
        for (rank, pattern) in &self.by_place {
            if *rank <= best || fuel.is_spent() {
                break;
            }
            if pattern.matches(path, fuel) {
                best = *rank;
            }
        }
        best
    }

    /// Returns the memory that they take beside the text of the file, in bytes.
    pub(super) fn memory(&self) -> usize {
        let patterns = self.by_place.iter().map(|(_, pattern)| pattern.memory());
        let by_place = size_of_val(&*self.by_place) + patterns.sum::<usize>();
        size_of::<Self>() + self.index.memory() + by_place
    }
}
