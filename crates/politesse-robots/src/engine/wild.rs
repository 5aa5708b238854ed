//! Rule with wildcards in the packed form of the index, which may hold many of them.
//!
//! Does not know how the index finds the rules for a path.

use memchr::memrchr;

use super::dialect::PatternSyntax;
use super::rank::{BytePlace, IndexEntry, RuleBytes, RuleRank};
use super::wildcard::{Fuel, PatternEnd, behind_first, globs, spans};

/// Rule with wildcards, without its head: the literal prefix that the index has already
/// matched.
#[derive(Clone, Copy)]
pub(super) struct WildcardRule {
    pub(super) rank: RuleRank,
    pub(super) tail: BytePlace,
    /// Length of the tail in the low bits, flags in the high bits.
    pub(super) length: u32,
}

impl WildcardRule {
    pub(super) const LAST_OF_NODE: u32 = 1 << 31;
    const ANCHORED: u32 = 1 << 30;
    const GLOB: u32 = 1 << 29;
    /// The tail begins with its only `*`.
    const ONE_STAR: u32 = 1 << 28;
    /// Flag on the first rule of a node that has enough rules for an index of grams.
    pub(super) const HAS_GRAMS: u32 = 1 << 27;
    const LENGTH: u32 = Self::HAS_GRAMS - 1;

    pub(super) fn new(entry: &IndexEntry, bytes: RuleBytes<'_>) -> Self {
        let anchored = entry.shape.end == PatternEnd::Last;
        let glob = entry.shape.syntax == PatternSyntax::Glob;
        let place = entry.place.after(entry.shape.head);
        let tail = bytes.at(place, entry.shape.tail);
        let one_star = tail.first() == Some(&b'*') && memrchr(b'*', tail) == Some(0);
        let length = u32::try_from(entry.shape.tail).unwrap_or(Self::LENGTH);
        let flag = |flag: u32, is_set: bool| if is_set { flag } else { 0 };
        Self {
            rank: entry.rank,
            tail: place,
            length: length
                | flag(Self::ANCHORED, anchored)
                | flag(Self::GLOB, glob)
                | flag(Self::ONE_STAR, one_star && !glob),
        }
    }

    pub(super) fn tail(self, bytes: RuleBytes<'_>) -> &[u8] {
        bytes.at(self.tail, (self.length & Self::LENGTH) as usize)
    }

    pub(super) fn is_glob(self) -> bool {
        self.length & Self::GLOB != 0
    }

    pub(super) fn has_grams(self) -> bool {
        self.length & Self::HAS_GRAMS != 0
    }

    pub(super) fn is_last_of_node(self) -> bool {
        self.length & Self::LAST_OF_NODE != 0
    }

    /// Reports whether the tail matches `rest`, the part of a path after the head.
    pub(super) fn matches(self, bytes: RuleBytes<'_>, rest: &[u8], fuel: &mut Fuel) -> bool {
        // Spent even if there is nothing to search, because a node may have ten
        // thousand rules.
        fuel.spend(1);
        let tail = self.tail(bytes);
        if self.is_glob() {
            return globs(tail, rest, fuel);
        }
        let end = if self.length & Self::ANCHORED == 0 {
            PatternEnd::Anywhere
        } else {
            PatternEnd::Last
        };
        match tail.split_first() {
            Some((_, literal)) if self.length & Self::ONE_STAR != 0 => match end {
                PatternEnd::Anywhere => behind_first(literal, rest, fuel).is_some(),
                PatternEnd::Last => rest.ends_with(literal),
            },
            _ => spans(tail, end, rest, fuel),
        }
    }
}
