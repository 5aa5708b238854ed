//! Builder of an [`Index`]: sorts rules by their heads, so that the nodes of the trie can be
//! created one after the other.
//!
//! Does not know how paths are looked up.

use super::dialect::Escapes;
use super::grams::Grams;
use super::index::{Index, NO_CHILDREN, Node};
use super::rank::{BytePlace, IndexEntry, RuleBytes, RuleRank};
use super::wild::WildcardRule;

/// Builder of an index.
pub(super) struct IndexBuilder<'a> {
    bytes: RuleBytes<'a>,
    entries: &'a [IndexEntry],
    /// Entries sorted by their heads, then by rank, the greatest first.
    order: Vec<SortedEntry>,
    nodes: Vec<Node>,
    firsts: Vec<u8>,
    wilds: Vec<WildcardRule>,
    hanging: Vec<(u32, u32)>,
    grams: Vec<(u32, Grams)>,
    pending: Vec<UnbuiltNode>,
}

/// Sort key and number of an entry. The key is the eight bytes of the head after the first,
/// which is nearly always a `/`.
#[derive(Clone, Copy)]
struct SortedEntry {
    beginning: u64,
    entry: u32,
}

/// Node whose children have not been created yet: the range of entries below it, and the
/// number of bytes of their heads that lead to the node.
struct UnbuiltNode {
    node: usize,
    from: usize,
    to: usize,
    depth: usize,
}

/// Maximum number of rules with wildcards at a node without grams. About where trying all
/// rules costs as much as a lookup of grams.
const TRIED: usize = 6;

impl<'a> IndexBuilder<'a> {
    pub(super) fn new(bytes: RuleBytes<'a>, entries: &'a [IndexEntry]) -> Self {
        let mut order: Vec<SortedEntry> = (0..)
            .zip(entries)
            .map(|(entry, rule)| SortedEntry {
                beginning: beginning(bytes.at(rule.place, rule.shape.head)),
                entry,
            })
            .collect();
        // The key decides nearly every comparison without access to the text, which
        // does not fit the CPU cache for a large file.
        order.sort_by(|one, other| {
            one.beginning.cmp(&other.beginning).then_with(|| {
                let [one, other] = [one, other].map(|sorted| &entries[sorted.entry as usize]);
                let head = |entry: &IndexEntry| bytes.at(entry.place, entry.shape.head);
                head(one)
                    .cmp(head(other))
                    .then_with(|| other.rank.cmp(&one.rank))
            })
        });
        Self {
            bytes,
            entries,
            order,
            nodes: Vec::with_capacity(entries.len() * 3 / 2 + 2),
            firsts: Vec::with_capacity(entries.len() * 3 / 2 + 2),
            wilds: Vec::new(),
            hanging: Vec::new(),
            grams: Vec::new(),
            pending: Vec::with_capacity(16),
        }
    }

    /// Builds the index. [`Index::with_extra`] completes it.
    pub(super) fn build(mut self, escapes: Escapes) -> Index {
        self.nodes.push(Node::new(BytePlace(0), 0));
        self.firsts.push(0);
        self.pending.push(UnbuiltNode {
            node: 0,
            from: 0,
            to: self.order.len(),
            depth: 0,
        });
        // A list in place of recursion, because the depth may equal the length of a
        // rule.
        while let Some(pending) = self.pending.pop() {
            self.grow(&pending);
        }
        // Lookups use binary search.
        self.hanging.sort_unstable();
        Index {
            nodes: self.nodes.into(),
            firsts: self.firsts.into(),
            wilds: self.wilds.into(),
            hanging: self.hanging.into(),
            grams: self.grams.into(),
            extra: Box::default(),
            escapes,
            holds_escapes: false,
        }
    }

    fn entry(&self, at: usize) -> Option<&'a IndexEntry> {
        self.entries.get(self.order.get(at)?.entry as usize)
    }

    fn head(&self, at: usize) -> &'a [u8] {
        self.entry(at)
            .map(|entry| self.bytes.at(entry.place, entry.shape.head))
            .unwrap_or_default()
    }

    fn grow(&mut self, pending: &UnbuiltNode) {
        let from = self.end_here(pending);
        let children = self.nodes.len();
        let mut at = from;
        while at < pending.to {
            at = self.push_child(at, pending);
        }
        let Some(others) = (self.nodes.len() - children).checked_sub(1) else {
            return;
        };
        if let Some(node) = self.nodes.get_mut(pending.node) {
            node.children = u32::try_from(children).unwrap_or(NO_CHILDREN);
            // Always fits: there is at most one child for each byte value.
            node.other_children = u8::try_from(others).unwrap_or(u8::MAX);
        }
    }

    /// Adds the entries whose head ends at the node. Returns the position of the first
    /// other entry.
    fn end_here(&mut self, pending: &UnbuiltNode) -> usize {
        let mut at = pending.from;
        let first_wild = self.wilds.len();
        let mut rank = RuleRank::NONE;
        while at < pending.to
            && let Some(entry) = self.entry(at)
            && entry.shape.head == pending.depth
        {
            if entry.shape.is_plain() {
                rank = rank.max(entry.rank);
            } else {
                self.wilds.push(WildcardRule::new(entry, self.bytes));
            }
            at += 1;
        }
        let Some(node) = self.nodes.get_mut(pending.node) else {
            return at;
        };
        node.set_rank(rank);
        if let Some(last) = self.wilds.get_mut(first_wild..).and_then(<[_]>::last_mut) {
            last.length |= WildcardRule::LAST_OF_NODE;
            node.label_length |= Node::HAS_WILD;
            let fit = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
            self.hanging.push((fit(pending.node), fit(first_wild)));
            let hanging = self.wilds.get(first_wild..).unwrap_or_default();
            if TRIED < hanging.len() {
                self.grams
                    .push((fit(first_wild), Grams::of(hanging, self.bytes)));
                if let Some(first) = self.wilds.get_mut(first_wild) {
                    first.length |= WildcardRule::HAS_GRAMS;
                }
            }
        }
        at
    }

    /// Creates the child for the next byte of the head of entry `at`. Returns the position
    /// of the first entry with another byte.
    fn push_child(&mut self, at: usize, pending: &UnbuiltNode) -> usize {
        let depth = pending.depth;
        let head = self.head(at);
        let byte = head.get(depth).copied();
        let mut to = at + 1;
        while to < pending.to && self.head(to).get(depth).copied() == byte {
            to += 1;
        }
        let last = self.head(to - 1);
        let (Some(first), Some(ours), Some(theirs)) = (byte, head.get(depth..), last.get(depth..))
        else {
            return to;
        };
        let shared = std::iter::zip(ours, theirs)
            .take(usize::from(Node::LABEL_MAX))
            .take_while(|(one, other)| one == other)
            .count();
        let label_length = u16::try_from(shared).unwrap_or(Node::LABEL_MAX);
        let place = self.entry(at).map_or(BytePlace(0), |entry| entry.place);
        self.pending.push(UnbuiltNode {
            node: self.nodes.len(),
            from: at,
            to,
            depth: depth + usize::from(label_length),
        });
        self.firsts.push(first);
        self.nodes.push(Node::new(place.after(depth), label_length));
        to
    }
}

fn beginning(head: &[u8]) -> u64 {
    let after = head.get(1..).unwrap_or_default();
    match after.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut chunk = [0; 8];
            std::iter::zip(&mut chunk, after).for_each(|(place, byte)| *place = *byte);
            u64::from_be_bytes(chunk)
        }
    }
}
