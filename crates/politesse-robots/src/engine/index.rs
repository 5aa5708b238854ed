//! Index of the rules that bind one crawler: finds the deciding rule for a path without
//! trying all rules.
//!
//! The index is a trie over the heads of all rules. Walking down the trie along a path
//! finds every matching rule without wildcards, and every node to which rules with
//! wildcards are attached. If a node has few of these, they are tried in turn, the greatest
//! rank first. If it has many, [`Grams`] selects the rules worth trying.
//!
//! Does not know the meaning of rules: the greatest [`RuleRank`] decides.

use memchr::memchr;

use super::dialect::Escapes;
use super::grams::{Grams, WildRules};
use super::rank::{BytePlace, RuleBytes, RuleRank};
use super::wild::WildcardRule;
use super::wildcard::Fuel;

/// Node of the trie: the label of the edge from its parent, and the rules that end here.
#[derive(Clone, Copy)]
pub(super) struct Node {
    /// Rank of the rule without wildcards whose head ends here, as upper and lower half. A
    /// `u64` would align the node to eight bytes and make it larger.
    pub(super) rank: [u32; 2],
    pub(super) label: BytePlace,
    pub(super) children: u32,
    /// Length of the label. The bit [`Node::HAS_WILD`] is set if rules with wildcards are
    /// attached to the node.
    pub(super) label_length: u16,
    /// Number of children after the first.
    pub(super) other_children: u8,
}

/// Number of children up to which a linear search is faster than `memchr`.
const FEW: usize = 8;

pub(super) const NO_CHILDREN: u32 = u32::MAX;

impl Node {
    pub(super) const HAS_WILD: u16 = 1 << 15;
    pub(super) const LABEL_MAX: u16 = Self::HAS_WILD - 1;

    pub(super) fn new(label: BytePlace, label_length: u16) -> Self {
        Self {
            rank: [0; 2],
            label,
            children: NO_CHILDREN,
            label_length,
            other_children: 0,
        }
    }

    fn rank(&self) -> RuleRank {
        let [upper, lower] = self.rank.map(u64::from);
        RuleRank(upper << 32 | lower)
    }

    pub(super) fn set_rank(&mut self, rank: RuleRank) {
        // Splits the rank into halves, so the casts lose nothing.
        self.rank = [(rank.0 >> 32) as u32, rank.0 as u32];
    }

    fn has_wild(&self) -> bool {
        self.label_length & Self::HAS_WILD != 0
    }

    fn label_length(&self) -> usize {
        usize::from(self.label_length & Self::LABEL_MAX)
    }
}

/// Index of rules.
pub(super) struct Index {
    pub(super) nodes: Box<[Node]>,
    /// First byte of each node's label, in one array, so that the search for a child does
    /// not touch the other nodes.
    pub(super) firsts: Box<[u8]>,
    pub(super) wilds: Box<[WildcardRule]>,
    /// Nodes with rules with wildcards, sorted, each with the position of its first rule.
    pub(super) hanging: Box<[(u32, u32)]>,
    /// Grams of nodes with many such rules, sorted by the position of the first rule.
    pub(super) grams: Box<[(u32, Grams)]>,
    /// Bytes of rules that had to be rewritten ([`BytePlace::in_extra`]).
    pub(super) extra: Box<[u8]>,
    pub(super) escapes: Escapes,
    /// Whether `extra` contains a `%`. If so, a path with a `%` is first brought into
    /// canonical form.
    pub(super) holds_escapes: bool,
}

/// Error: the answer depends on a byte of the path that is not in canonical form.
#[derive(Debug)]
pub(super) struct NotCanonical;

/// Path to look up.
#[derive(Clone, Copy)]
pub(super) enum IndexedPath<'a> {
    /// Path as sent, which is often in canonical form.
    Sent(&'a [u8]),
    Canonical(&'a [u8]),
}

/// Rules with wildcards attached to a node, and the depth of the node in bytes.
#[derive(Clone, Copy, Default)]
struct HangingRules {
    first: u32,
    depth: u32,
}

/// Number of nodes with wildcards whose rules are tried after the walk, the deepest node
/// first. The rules of further nodes are tried during the walk.
const REMEMBERED: usize = 4;

impl Index {
    /// Sets the bytes that [`BytePlace::in_extra`] refers to.
    pub(super) fn with_extra(self, extra: Vec<u8>) -> Self {
        Self {
            holds_escapes: memchr(b'%', &extra).is_some(),
            extra: extra.into(),
            ..self
        }
    }

    /// Returns the rank of the rule that decides for `path`, which is in canonical form.
    pub(super) fn best_canonical(&self, text: &[u8], path: &[u8], fuel: &mut Fuel) -> RuleRank {
        self.best(text, IndexedPath::Canonical(path), fuel)
            .unwrap_or_else(|NotCanonical| {
                // Unreachable for canonical paths. Spending all fuel makes the
                // judgement undecided, which refuses.
                fuel.spend(usize::MAX);
                RuleRank::NONE
            })
    }

    /// Returns the rank of the rule that decides for `path`; [`RuleRank::NONE`] if no rule
    /// matches.
    ///
    /// # Errors
    ///
    /// [`NotCanonical`] if the answer depends on bytes of `path` that are
    /// not in canonical form.
    pub(super) fn best(
        &self,
        text: &[u8],
        path: IndexedPath<'_>,
        fuel: &mut Fuel,
    ) -> Result<RuleRank, NotCanonical> {
        let (path, doubtful) = match path {
            // A `%` in the path ends the walk. But if a rule has one as well, the
            // bytes after it would be compared without decoding.
            IndexedPath::Sent(path) if self.holds_escapes && memchr(b'%', path).is_some() => {
                return Err(NotCanonical);
            }
            IndexedPath::Sent(path) => (path, self.escapes),
            // All bytes are compared as they are.
            IndexedPath::Canonical(path) => (path, Escapes::RuleSide),
        };
        let mut hanging = [HangingRules::default(); REMEMBERED];
        let mut count = 0;
        let mut walk = TrieWalk {
            bytes: RuleBytes {
                text,
                extra: &self.extra,
            },
            path,
            doubtful,
            best: RuleRank::NONE,
        };
        let (mut node, mut depth) = (self.nodes.first().map(|root| (0, root)), 0);
        while let Some((at, here)) = node {
            walk.best = walk.best.max(here.rank());
            if here.has_wild()
                && let Some(first) = self.first_hanging(at)
            {
                let hanging_here = HangingRules {
                    first,
                    // Always fits: a rewritten text has at most 96 MiB.
                    depth: u32::try_from(depth).unwrap_or(u32::MAX),
                };
                match hanging.get_mut(count) {
                    Some(place) => *place = hanging_here,
                    None => self.try_hanging(hanging_here, &mut walk, fuel)?,
                }
                count += 1;
            }
            node = self.child(here, &walk, &mut depth)?;
        }
        // The deepest node first, because its rules are likely to be the longest.
        for hanging in hanging.iter().take(count).rev() {
            self.try_hanging(*hanging, &mut walk, fuel)?;
        }
        Ok(walk.best)
    }

    /// Returns the child of `node` on the path, and adds the length of its label to `depth`.
    #[inline]
    fn child(
        &self,
        node: &Node,
        walk: &TrieWalk<'_>,
        depth: &mut usize,
    ) -> Result<Option<(usize, &Node)>, NotCanonical> {
        if node.children == NO_CHILDREN {
            return Ok(None);
        }
        let rest = walk.path.get(*depth..).unwrap_or_default();
        let Some(&byte) = rest.first() else {
            return Ok(None);
        };
        let children = node.children as usize;
        let range = children..=children + usize::from(node.other_children);
        let firsts = self.firsts.get(range).unwrap_or_default();
        let place = if firsts.len() <= FEW {
            firsts.iter().position(|first| *first == byte)
        } else {
            memchr(byte, firsts)
        };
        let at = place.map(|place| children + place);
        let Some((at, child)) = at.and_then(|at| Some((at, self.nodes.get(at)?))) else {
            return walk.ended_at(byte);
        };
        let length = child.label_length();
        let label = walk.bytes.from(child.label);
        if begins_with(rest, label, length) {
            *depth += length;
            return Ok(Some((at, child)));
        }
        let label = label.get(..length).unwrap_or(label);
        let differ = std::iter::zip(rest, label).find(|(byte, expected)| byte != expected);
        match differ {
            Some((byte, _)) => walk.ended_at(*byte),
            None => Ok(None),
        }
    }

    /// Tries the rules with wildcards of a node.
    fn try_hanging(
        &self,
        hanging: HangingRules,
        walk: &mut TrieWalk<'_>,
        fuel: &mut Fuel,
    ) -> Result<(), NotCanonical> {
        let wilds = self.wilds.get(hanging.first as usize..).unwrap_or_default();
        if wilds.first().is_none_or(|first| first.rank <= walk.best) {
            return Ok(());
        }
        if !walk.doubtful.is_canonical_path(walk.path) {
            return Err(NotCanonical);
        }
        // The path has been checked now, so further nodes need no check.
        walk.doubtful = Escapes::RuleSide;
        let rest = walk.path.get(hanging.depth as usize..).unwrap_or_default();
        fuel.spend(rest.len() / 16);
        if wilds.first().is_some_and(|first| first.has_grams())
            && let Some(grams) = self.grams_at(hanging.first)
        {
            let rules = WildRules {
                wilds,
                bytes: walk.bytes,
            };
            walk.best = grams.best(rules, rest, walk.best, fuel);
            return Ok(());
        }
        for wild in wilds {
            if wild.rank <= walk.best || fuel.is_spent() {
                break;
            }
            if wild.matches(walk.bytes, rest, fuel) {
                walk.best = wild.rank;
                break;
            }
            if wild.is_last_of_node() {
                break;
            }
        }
        Ok(())
    }

    fn first_hanging(&self, node: usize) -> Option<u32> {
        let key = |(node, _): &(u32, u32)| *node as usize;
        let found = self.hanging.binary_search_by_key(&node, key);
        let (_, first) = self.hanging.get(found.ok()?)?;
        Some(*first)
    }

    fn grams_at(&self, first: u32) -> Option<&Grams> {
        let found = self.grams.binary_search_by_key(&first, |(first, _)| *first);
        let (_, grams) = self.grams.get(found.ok()?)?;
        Some(grams)
    }

    /// Returns the memory of the index, in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.nodes)
            + size_of_val(&*self.firsts)
            + size_of_val(&*self.wilds)
            + size_of_val(&*self.hanging)
            + size_of_val(&*self.grams)
            + self
                .grams
                .iter()
                .map(|(_, grams)| grams.memory())
                .sum::<usize>()
            + self.extra.len()
    }
}

/// Reports whether `text` begins with the first `length` bytes of `label`. `length` is at
/// least 1. Most labels are short and are compared as a single number, because a loop with
/// a varying end is hard to predict.
#[inline]
fn begins_with(text: &[u8], label: &[u8], length: usize) -> bool {
    if length <= 8
        && let (Some(text), Some(label)) = (text.first_chunk::<8>(), label.first_chunk::<8>())
    {
        let differ = u64::from_le_bytes(*text) ^ u64::from_le_bytes(*label);
        return differ << (64 - 8 * length) == 0;
    }
    label
        .get(..length)
        .is_some_and(|label| text.starts_with(label))
}

/// State of a walk down the trie along a path.
struct TrieWalk<'a> {
    bytes: RuleBytes<'a>,
    path: &'a [u8],
    /// Form of escapes that the path may not be in yet.
    doubtful: Escapes,
    best: RuleRank,
}

impl TrieWalk<'_> {
    /// Ends the walk at a byte for which there is no child. No rule below can match, unless
    /// the byte is not in canonical form.
    #[inline]
    fn ended_at<'n>(&self, byte: u8) -> Result<Option<(usize, &'n Node)>, NotCanonical> {
        if self.doubtful.is_canonical_byte(byte) {
            Ok(None)
        } else {
            Err(NotCanonical)
        }
    }
}
