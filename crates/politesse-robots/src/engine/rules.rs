//! Rule set of one crawler: ranks, indexes and looks up the rules of its groups.
//!
//! RFC 9309, section 2.2.1: the rules of all groups that bind are one set. Does not know
//! which groups bind: [`super::binding`] finds them.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use memchr::memchr;

use super::canonical::{Buffer, Fold, has_folding_in_path, query_start};
use super::dialect::{AllowLines, QueryForms, RuleForms};
use super::draft::RuleDraft;
use super::folded::FoldedRules;
use super::index::{Index, IndexedPath};
use super::lines::RuleKind;
use super::parsed_file::ParsedFile;
use super::rank::RuleRank;
use super::token::{GroupSet, Token};
use super::wildcard::Fuel;

/// Rules of some groups of a file, as one set.
pub(super) struct RuleSet {
    pub(super) file: Arc<ParsedFile>,
    /// Groups that the rules come from.
    pub(super) groups: GroupSet,
    index: Index,
    /// Whether a rule may match in a query.
    reaches_query: bool,
    /// Whether a rule contains the escape of a reserved byte, which a query may spell
    /// unescaped.
    escapes_reserved: bool,
    folded: OnceLock<Box<FoldedRules>>,
    folded_everywhere: OnceLock<Box<FoldedRules>>,
}

/// Outcome of a lookup.
pub(super) enum RuleLookup {
    /// A rule decides.
    Token {
        /// Position among the tokens of the file.
        at: u32,
        /// Whether the rule matches only in the form that servers read.
        as_served: bool,
    },
    NoRule,
    /// The judgement would have taken too long.
    Undecided,
}

impl RuleSet {
    pub(super) fn new(file: &Arc<ParsedFile>, groups: GroupSet) -> Self {
        let mut draft = RuleDraft::new(file);
        for group in &groups {
            for (at, token) in (group.start..).zip(file.of_group(group)) {
                if token.rule_kind().is_some() {
                    draft.take(at, *token);
                }
            }
        }
        Self {
            file: Arc::clone(file),
            groups,
            reaches_query: draft.reaches_query,
            escapes_reserved: draft.escapes_reserved,
            index: draft.index(),
            folded: OnceLock::new(),
            folded_everywhere: OnceLock::new(),
        }
    }

    /// Returns the rule that decides for a path with its query, exactly as sent. `scope`
    /// determines the forms in which a Disallow is compared.
    pub(super) fn answer(&self, path: &[u8], scope: Fold) -> RuleLookup {
        let mut fuel = Fuel::FULL;
        let escapes = self.file.traits().escapes;
        let direct = if path.first() == Some(&b'/') {
            self.index
                .best(&self.file.text, IndexedPath::Sent(path), &mut fuel)
                .ok()
        } else {
            None
        };
        let mut canonical = Buffer::new();
        let mut best = direct.unwrap_or_else(|| {
            escapes.canonical_path(path, &mut canonical);
            self.index
                .best_canonical(&self.file.text, &canonical, &mut fuel)
        });
        let reads_query_twice = self.reads_query_twice(path);
        let reads_path_twice = scope == Fold::Everywhere && self.reads_path_twice(path);
        let mut as_served = false;
        if reads_query_twice || reads_path_twice {
            if canonical.is_empty() {
                escapes.canonical_path(path, &mut canonical);
            }
            if reads_query_twice {
                best = best.max(self.best_folded(&canonical, Fold::InQuery, &mut fuel));
            }
            if reads_path_twice {
                let served = self.best_folded(&canonical, Fold::Everywhere, &mut fuel);
                as_served = best < served;
                best = best.max(served);
            }
        }
        if fuel.is_spent() {
            RuleLookup::Undecided
        } else if best.is_none() {
            RuleLookup::NoRule
        } else {
            RuleLookup::Token {
                at: best.token(),
                as_served,
            }
        }
    }

    /// Reports whether the folded form of the query can change the result.
    #[inline]
    fn reads_query_twice(&self, path: &[u8]) -> bool {
        self.reaches_query
            && self.file.traits().query == QueryForms::EitherForm
            && memchr(b'?', path).is_some_and(|mark| {
                let query = path.get(mark..).unwrap_or_default();
                self.escapes_reserved || memchr(b'%', query).is_some()
            })
    }

    /// Reports whether the folded form of the path can change the result.
    #[inline]
    fn reads_path_twice(&self, path: &[u8]) -> bool {
        self.file.traits().forms == RuleForms::Further
            && (self.escapes_reserved
                || memchr(b'%', path).is_some()
                    && has_folding_in_path(path.get(..query_start(path)).unwrap_or(path)))
    }

    #[cold]
    fn best_folded(&self, path: &[u8], scope: Fold, fuel: &mut Fuel) -> RuleRank {
        // Built on first use, because very few files and paths need it.
        let cell = match scope {
            Fold::InQuery => &self.folded,
            Fold::Everywhere | Fold::KeepingSlash => &self.folded_everywhere,
        };
        let folded =
            cell.get_or_init(|| Box::new(FoldedRules::new(&self.file, self.rule_tokens(), scope)));
        folded.best(&self.file.text, path, fuel)
    }

    /// Returns the tokens of the rules with their positions, in file order.
    pub(super) fn rule_tokens(&self) -> impl Iterator<Item = (u32, Token)> {
        let of_group = |group: &Range<u32>| {
            let tokens = self.file.of_group(group).iter().copied();
            (group.start..).zip(tokens)
        };
        let all = self.groups.iter().flat_map(of_group);
        all.filter(|(_, token)| match self.file.traits().allow {
            AllowLines::Heeded => token.rule_kind().is_some(),
            AllowLines::Ignored => token.rule_kind() == Some(RuleKind::Disallow),
        })
    }

    /// Returns the memory, in bytes, that the rules use in addition to the text of the file.
    pub(super) fn memory(&self) -> usize {
        let folded: usize = [&self.folded, &self.folded_everywhere]
            .iter()
            .filter_map(|cell| cell.get())
            .map(|folded| folded.memory())
            .sum();
        size_of::<Self>() - size_of::<Index>() + self.index.memory() + folded
    }
}
