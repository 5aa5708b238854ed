//! Folded rules: Disallow rules in a form in which a reserved byte and its escape are equal.
//!
//! Built when a path first needs them, because very few files and paths do. Does not know
//! which paths need them.

use memchr::memchr;

use super::canonical::{Buffer, Fold, fold, query_start};
use super::draft::RuleDraft;
use super::index::Index;
use super::parsed_file::ParsedFile;
use super::pattern::{FoldedPath, FoldedPattern};
use super::rank::RuleRank;
use super::token::{Token, TokenKind};
use super::wildcard::Fuel;

/// Disallow rules in the form of one [`Fold`].
pub(super) struct FoldedRules {
    scope: Fold,
    index: Index,
    /// Rules whose form differs between path and query, the greatest rank first.
    by_place: Box<[(RuleRank, FoldedPattern)]>,
    /// Rules in which an escaped slash stays escaped, the greatest rank first.
    with_slash: Box<[(RuleRank, FoldedPattern)]>,
}

impl FoldedRules {
    /// Indexes the Disallow lines among `tokens`, each with its position.
    pub(super) fn new(
        file: &ParsedFile,
        tokens: impl Iterator<Item = (u32, Token)>,
        scope: Fold,
    ) -> Self {
        let traits = file.traits();
        let mut draft = RuleDraft::new(file);
        let (mut by_place, mut with_slash) = (Vec::new(), Vec::new());
        for (at, token) in tokens.filter(|(_, token)| token.kind() == TokenKind::Disallow) {
            let value = file.value(token);
            // Folding changes only rules with an escape.
            if memchr(b'%', value).is_none() {
                draft.take(at, token);
                continue;
            }
            let further = draft.further_forms(token);
            let Some(rank) = draft.rank_of(at, token, &further) else {
                continue;
            };
            for form in std::iter::once(value).chain(further.iter().map(|form| &form[..])) {
                if scope != Fold::InQuery && Fold::of_served(form) == Fold::KeepingSlash {
                    let pattern = FoldedPattern::as_served(form, traits);
                    with_slash.extend(pattern.map(|pattern| (rank, pattern)));
                    continue;
                }
                match (FoldedPattern::by_place(form, traits, scope), scope) {
                    (Some(pattern), _) => by_place.push((rank, pattern)),
                    (None, Fold::InQuery) => draft.take_form(rank, form),
                    (None, _) => draft.take_folded(rank, form),
                }
            }
        }
        // The greatest rank first, so that the search can stop at the first match.
        for rules in [&mut by_place, &mut with_slash] {
            rules.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        }
        Self {
            scope,
            index: draft.index(),
            by_place: by_place.into(),
            with_slash: with_slash.into(),
        }
    }

    /// Returns the rank of the rule that decides for a canonical path.
    pub(super) fn best(&self, text: &[u8], path: &[u8], fuel: &mut Fuel) -> RuleRank {
        let mut folded = Buffer::new();
        fold(path, query_start(path), self.scope, &mut folded);
        let indexed = self.index.best_canonical(text, &folded, fuel);
        let best = best_of(&self.by_place, indexed, &folded, fuel);
        if self.with_slash.is_empty() {
            return best;
        }
        folded.clear();
        fold(path, query_start(path), Fold::KeepingSlash, &mut folded);
        best_of(&self.with_slash, best, &folded, fuel)
    }

    /// Returns the memory, in bytes, that the rules use in addition to the text of the file.
    pub(super) fn memory(&self) -> usize {
        let memory_of = |rules: &[(RuleRank, FoldedPattern)]| {
            let patterns = rules.iter().map(|(_, pattern)| pattern.memory());
            size_of_val(rules) + patterns.sum::<usize>()
        };
        let alone = memory_of(&self.by_place) + memory_of(&self.with_slash);
        size_of::<Self>() + self.index.memory() + alone
    }
}

/// Returns the rank of the first rule that matches a folded path, or `best` if that is
/// greater.
fn best_of(
    rules: &[(RuleRank, FoldedPattern)],
    best: RuleRank,
    folded: &[u8],
    fuel: &mut Fuel,
) -> RuleRank {
    let path = FoldedPath::new(folded);
    for (rank, pattern) in rules {
        if *rank <= best || fuel.is_spent() {
            break;
        }
        if pattern.matches(path, fuel) {
            return *rank;
        }
    }
    best
}
