//! The rules that bind one crawler, made ready to judge by.
//!
//! RFC 9309, section 2.2.1: the rules of all the groups that bind are one set.
//! Which groups those are is worked out by [`super::binding`]; here they are
//! weighed, indexed and asked.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use memchr::memchr;

use super::RuleKind;
use super::builder::Builder;
use super::canonical::{Buffer, fold, has_folding, query_start};
use super::dialect::{AllowLines, IndexPages, Order, Query, Traits};
use super::index::{Index, NotCanonical, Path};
use super::pattern::{FoldedPath, Pattern};
use super::rank::{Entry, Octets, Place, Rank};
use super::shape::{Shape, folder_of_index};
use super::token::{File, GroupSet, Token, TokenKind};
use super::wildcard::Fuel;

/// The rules of some groups of a file, as one set.
pub(super) struct Rules {
    pub(super) file: Arc<File>,
    /// The groups they come from.
    pub(super) groups: GroupSet,
    index: Index,
    /// Whether a rule may speak of a query.
    reaches_query: bool,
    /// Whether a rule holds an escape that a query may spell otherwise.
    escapes_reserved: bool,
    folded: OnceLock<Box<Folded>>,
}

/// The Disallow rules that can speak of a query, as they read where its
/// reserved octets count as their escapes.
struct Folded {
    index: Index,
    /// Those that hold such an escape themselves: where they mean the octet
    /// depends on where in the path they match.
    escaping: Box<[(Rank, Pattern)]>,
}

/// What came of asking the rules.
pub(super) enum Answer {
    Token(usize),
    NoRule,
    /// The judgement would have taken too long.
    Undecided,
}

impl Rules {
    pub(super) fn new(file: &Arc<File>, groups: GroupSet) -> Self {
        let mut draft = Draft::new(file);
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
        }
    }

    /// The rule that counts for a path with its query, octets as sent.
    pub(super) fn answer(&self, path: &[u8]) -> Answer {
        let mut fuel = Fuel::FULL;
        let escapes = self.file.traits().escapes;
        let direct = if path.first() == Some(&b'/') {
            self.index
                .best(&self.file.text, Path::Sent(path), &mut fuel)
                .ok()
        } else {
            None
        };
        let mut canonical = Buffer::new();
        let mut best = direct.unwrap_or_else(|| {
            escapes.canonical_path(path, &mut canonical);
            best_in(&self.index, (&self.file.text, &canonical), &mut fuel)
        });
        if self.reads_query_twice(path) {
            if canonical.is_empty() {
                escapes.canonical_path(path, &mut canonical);
            }
            best = best.max(self.best_folded(&canonical, &mut fuel));
        }
        if fuel.is_spent() {
            Answer::Undecided
        } else if best.is_none() {
            Answer::NoRule
        } else {
            Answer::Token(best.token())
        }
    }

    /// Whether the other form of the path's query can matter.
    #[inline]
    fn reads_query_twice(&self, path: &[u8]) -> bool {
        self.reaches_query
            && self.file.traits().query == Query::EitherForm
            && memchr(b'?', path).is_some_and(|mark| {
                let query = path.get(mark..).unwrap_or_default();
                self.escapes_reserved || memchr(b'%', query).is_some()
            })
    }

    #[cold]
    fn best_folded(&self, path: &[u8], fuel: &mut Fuel) -> Rank {
        let mut other = Buffer::new();
        fold(path, query_start(path), &mut other);
        let folded = self.folded.get_or_init(|| Box::new(self.fold()));
        let mut best = best_in(&folded.index, (&self.file.text, &other), fuel);
        let path = FoldedPath::new(&other);
        for (rank, pattern) in &folded.escaping {
            if *rank <= best || fuel.is_spent() {
                break;
            }
            if pattern.matches_folded_path(path, fuel) {
                best = *rank;
            }
        }
        best
    }

    fn fold(&self) -> Folded {
        let mut draft = Draft::new(&self.file);
        let mut escaping = Vec::new();
        for (at, token) in self.rule_tokens() {
            if token.kind() != TokenKind::Disallow {
                continue;
            }
            let value = self.file.value(token);
            // Only a rule with an escape can be one of them.
            let pattern =
                memchr(b'%', value).and_then(|_| Pattern::in_dialect(value, self.file.dialect));
            let Some(pattern) = pattern.filter(Pattern::holds_folding) else {
                draft.take(at, token);
                continue;
            };
            let rank = draft.rank(at, token, pattern.shape());
            let form = draft.traits.without_marks(token.kind(), value);
            let form = form.and_then(|form| Pattern::in_dialect(form, self.file.dialect));
            escaping.extend(form.map(|form| (rank, form)));
            escaping.push((rank, pattern));
        }
        escaping.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        Folded {
            index: draft.index(),
            escaping: escaping.into(),
        }
    }

    /// The tokens of the rules with their places, in file order.
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

    /// The memory that they take beside the text of the file, in octets.
    pub(super) fn memory(&self) -> usize {
        let folded = self.folded.get();
        let folded = folded.map_or(0, |folded| size_of::<Folded>() + folded.index.memory());
        size_of::<Self>() - size_of::<Index>() + self.index.memory() + folded
    }
}

/// The rank of the rule that counts for a canonical path.
fn best_in(index: &Index, (text, path): (&[u8], &[u8]), fuel: &mut Fuel) -> Rank {
    index
        .best(text, Path::Canonical(path), fuel)
        .unwrap_or_else(|NotCanonical| {
            // No canonical path is doubted. If one were: not knowing means no.
            fuel.spend(usize::MAX);
            Rank::NONE
        })
}

/// Rules on their way into an index.
struct Draft<'a> {
    file: &'a File,
    traits: &'static Traits,
    entries: Vec<Entry>,
    extra: Vec<u8>,
    rewritten: Buffer,
    reaches_query: bool,
    escapes_reserved: bool,
}

impl<'a> Draft<'a> {
    fn new(file: &'a File) -> Self {
        Self {
            file,
            traits: file.traits(),
            entries: Vec::with_capacity(16),
            extra: Vec::new(),
            rewritten: Buffer::new(),
            reaches_query: false,
            escapes_reserved: false,
        }
    }

    #[inline]
    fn take(&mut self, at: u32, token: Token) {
        if self.traits.allow == AllowLines::Ignored && token.kind() == TokenKind::Allow {
            return;
        }
        let value = self.file.value(token);
        if let Some(shape) = Shape::of(value, self.traits, &mut self.rewritten) {
            let rank = self.rank(at, token, &shape);
            self.push(rank, token.start, shape);
            if let Some(form) = self.traits.without_marks(token.kind(), value) {
                self.take_form(rank, token.start, form);
            }
        }
        if self.traits.index_pages == IndexPages::AllowFolder && token.kind() == TokenKind::Allow {
            self.take_folder(at, token);
        }
    }

    /// Takes a further form of a rule, which counts as much as the written one.
    #[cold]
    fn take_form(&mut self, rank: Rank, start: u32, form: &[u8]) {
        if let Some(shape) = Shape::of(form, self.traits, &mut self.rewritten) {
            self.push(rank, start, shape);
        }
    }

    /// Puts in a rule whose octets begin at `start` in the text, unless they
    /// were rewritten.
    #[inline]
    fn push(&mut self, rank: Rank, start: u32, shape: Shape) {
        let place = if self.rewritten.is_empty() {
            Place::in_text(start)
        } else {
            self.escapes_reserved |= has_folding(&self.rewritten);
            let place = Place::in_extra(self.extra.len());
            self.extra.extend_from_slice(&self.rewritten);
            place
        };
        self.reaches_query |= shape.reaches_query;
        self.entries.push(Entry { rank, place, shape });
    }

    /// What robots.cc makes of an Allow for an index page.
    fn take_folder(&mut self, at: u32, token: Token) {
        let mut value = Buffer::new();
        let escapes = self.traits.escapes;
        escapes.canonical_rule(self.file.value(token), &mut value);
        let Some(folder) = folder_of_index(&value) else {
            return;
        };
        let anchored = [folder, b"$"].concat();
        if let Some(shape) = Shape::of(&anchored, self.traits, &mut self.rewritten) {
            if self.rewritten.is_empty() {
                self.rewritten.extend_from_slice(folder);
            }
            self.push(self.rank(at, token, &shape), token.start, shape);
        }
    }

    /// How much a rule counts.
    fn rank(&self, at: u32, token: Token, shape: &Shape) -> Rank {
        let allows = token.kind() == TokenKind::Allow;
        let weight = match self.traits.order {
            // Rewritten, a text has at most 96 MiB.
            Order::Longest => {
                let length = u32::try_from(shape.length).unwrap_or(u32::MAX >> 1);
                length << 1 | u32::from(allows)
            }
            Order::Explicit if shape.is_explicit() => 2 + u32::from(allows),
            Order::FirstInFile | Order::Explicit => 1,
        };
        Rank::new(weight, at)
    }

    fn index(self) -> Index {
        let octets = Octets {
            text: &self.file.text,
            extra: &self.extra,
        };
        let index = Builder::new(octets, &self.entries).build(self.traits.escapes);
        index.with_extra(self.extra)
    }
}
