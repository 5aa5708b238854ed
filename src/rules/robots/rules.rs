//! The rules that bind one crawler, made ready to judge by.
//!
//! RFC 9309, section 2.2.1: the rules of all the groups that bind are one set.
//! Which groups those are is worked out by [`super::binding`]; here they are
//! weighed, indexed and asked.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use memchr::memchr;

use super::RuleKind;
use super::canonical::{Buffer, fold, has_folding, query_start};
use super::dialect::{AllowLines, Dialect, IndexPages, Order, Query, Traits};
use super::index::{Builder, Entry, Index, Octets, Path, Place, Rank};
use super::pattern::{CanonicalPath, Pattern};
use super::records::seconds;
use super::shape::{Shape, folder_of_index};
use super::token::{Token, TokenKind};
use super::wildcard::Fuel;

/// The rules of some groups of a file, as one set.
pub(super) struct Rules {
    pub(super) text: Bytes,
    pub(super) tokens: Arc<[Token]>,
    pub(super) dialect: Dialect,
    /// The groups they come from, as ranges of tokens, in file order.
    pub(super) groups: Box<[Range<u32>]>,
    /// In seconds, the longest that the groups ask for.
    pub(super) crawl_delay: Option<f64>,
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
    pub(super) fn new(
        (text, tokens): (&Bytes, &Arc<[Token]>),
        groups: &[Range<usize>],
        dialect: Dialect,
    ) -> Self {
        let traits = dialect.traits();
        let mut draft = Draft::new(text, traits);
        let mut crawl_delay: Option<f64> = None;
        for at in groups.iter().cloned().flatten() {
            let Some(token) = tokens.get(at).copied() else {
                continue;
            };
            match token.kind() {
                TokenKind::Allow | TokenKind::Disallow => draft.take(at, token),
                TokenKind::CrawlDelay => {
                    let seconds = seconds(token.value(text)).into_iter();
                    crawl_delay = seconds.chain(crawl_delay).reduce(f64::max);
                }
                TokenKind::Agent | TokenKind::Blank => {}
            }
        }
        let fit = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let groups = groups.iter().map(|group| fit(group.start)..fit(group.end));
        Self {
            text: text.clone(),
            tokens: Arc::clone(tokens),
            dialect,
            groups: groups.collect(),
            crawl_delay,
            reaches_query: draft.reaches_query,
            escapes_reserved: draft.escapes_reserved,
            index: draft.index(),
            folded: OnceLock::new(),
        }
    }

    /// The rule that counts for a path with its query, octets as sent.
    pub(super) fn answer(&self, path: &[u8]) -> Answer {
        let mut fuel = Fuel::FULL;
        let escapes = self.dialect.traits().escapes;
        let direct = if path.first() == Some(&b'/') {
            self.index
                .best(&self.text, Path::Sent(path), &mut fuel)
                .ok()
        } else {
            None
        };
        let mut canonical = Buffer::new();
        let mut best = direct.unwrap_or_else(|| {
            escapes.canonical_path(path, &mut canonical);
            let found = self
                .index
                .best(&self.text, Path::Canonical(&canonical), &mut fuel);
            found.unwrap_or(Rank::NONE)
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
            && self.dialect.traits().query == Query::EitherForm
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
        let mut best = folded
            .index
            .best(&self.text, Path::Canonical(&other), fuel)
            .unwrap_or(Rank::NONE);
        if folded.escaping.is_empty() {
            return best;
        }
        let path = CanonicalPath::of_canonical(path);
        for (rank, pattern) in &folded.escaping {
            fuel.spend(8 + pattern.len() + path.as_bytes().len() / 4);
            if fuel.is_spent() {
                break;
            }
            if best < *rank && pattern.matches_folded(&path) {
                best = *rank;
            }
        }
        best
    }

    fn fold(&self) -> Folded {
        let mut draft = Draft::new(&self.text, self.dialect.traits());
        let mut escaping = Vec::new();
        for at in self.rule_tokens() {
            let Some(token) = self.tokens.get(at).copied() else {
                continue;
            };
            if token.kind() != TokenKind::Disallow {
                continue;
            }
            let pattern = Pattern::in_dialect(token.value(&self.text), self.dialect);
            match pattern.filter(Pattern::holds_folding) {
                Some(pattern) => escaping.push((draft.rank(at, token, pattern.shape()), pattern)),
                None => draft.take(at, token),
            }
        }
        escaping.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        Folded {
            index: draft.index(),
            escaping: escaping.into(),
        }
    }

    /// Which tokens are their rules, in file order.
    pub(super) fn rule_tokens(&self) -> impl Iterator<Item = usize> {
        let all = self
            .groups
            .iter()
            .flat_map(|group| group.start as usize..group.end as usize);
        all.filter(|at| {
            let kind = self.tokens.get(*at).and_then(|token| token.rule_kind());
            match self.dialect.traits().allow {
                AllowLines::Heeded => kind.is_some(),
                AllowLines::Ignored => kind == Some(RuleKind::Disallow),
            }
        })
    }

    /// The memory that they take beside the text of the file, in octets.
    pub(super) fn memory(&self) -> usize {
        let folded = self.folded.get();
        let folded = folded.map_or(0, |folded| folded.index.memory());
        size_of::<Self>() - size_of::<Index>()
            + size_of_val(&*self.groups)
            + self.index.memory()
            + folded
    }
}

/// Rules on their way into an index.
struct Draft<'a> {
    text: &'a Bytes,
    traits: &'static Traits,
    entries: Vec<Entry>,
    extra: Vec<u8>,
    rewritten: Buffer,
    reaches_query: bool,
    escapes_reserved: bool,
}

impl<'a> Draft<'a> {
    fn new(text: &'a Bytes, traits: &'static Traits) -> Self {
        Self {
            text,
            traits,
            entries: Vec::with_capacity(16),
            extra: Vec::new(),
            rewritten: Buffer::new(),
            reaches_query: false,
            escapes_reserved: false,
        }
    }

    #[inline]
    fn take(&mut self, at: usize, token: Token) {
        if self.traits.allow == AllowLines::Ignored && token.kind() == TokenKind::Allow {
            return;
        }
        let value = token.value(self.text);
        if let Some(shape) = Shape::of(value, self.traits, &mut self.rewritten) {
            let place = if self.rewritten.is_empty() {
                Place::in_text(token.start)
            } else {
                self.escapes_reserved |= has_folding(&self.rewritten);
                let place = Place::in_extra(self.extra.len());
                self.extra.extend_from_slice(&self.rewritten);
                place
            };
            self.push(at, token, (place, shape));
        }
        if self.traits.index_pages == IndexPages::AllowFolder && token.kind() == TokenKind::Allow {
            self.take_folder(at, token);
        }
    }

    #[inline]
    fn push(&mut self, at: usize, token: Token, (place, shape): (Place, Shape)) {
        self.reaches_query |= shape.reaches_query;
        self.entries.push(Entry {
            rank: self.rank(at, token, &shape),
            place,
            shape,
        });
    }

    /// What robots.cc makes of an Allow for an index page.
    fn take_folder(&mut self, at: usize, token: Token) {
        let mut value = Buffer::new();
        let escapes = self.traits.escapes;
        escapes.canonical_rule(token.value(self.text), &mut value);
        let Some(folder) = folder_of_index(&value) else {
            return;
        };
        let anchored = [folder, b"$"].concat();
        if let Some(shape) = Shape::of(&anchored, self.traits, &mut self.rewritten) {
            let place = Place::in_extra(self.extra.len());
            self.extra.extend_from_slice(folder);
            self.push(at, token, (place, shape));
        }
    }

    /// How much a rule counts.
    fn rank(&self, at: usize, token: Token, shape: &Shape) -> Rank {
        let allows = token.kind() == TokenKind::Allow;
        let weight = match self.traits.order {
            // The text fits 29 bits.
            Order::Longest => {
                let length = u32::try_from(shape.length).unwrap_or(u32::MAX >> 1);
                length << 1 | u32::from(allows)
            }
            Order::Explicit if shape.is_explicit() => 2 + u32::from(allows),
            Order::FirstInFile | Order::Explicit => 1,
        };
        Rank::new(weight, u32::try_from(at).unwrap_or(u32::MAX))
    }

    fn index(self) -> Index {
        let octets = Octets {
            text: self.text,
            extra: &self.extra,
        };
        let index = Builder::new(octets, &self.entries).build(self.traits.escapes);
        index.with_extra(self.extra)
    }
}
