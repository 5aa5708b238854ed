//! The rules that bind one crawler, arranged so that a path finds the one that
//! counts without trying the others.
//!
//! A trie over the heads of all rules: walking a path down it meets every rule
//! without wildcards that matches, and every place where rules with wildcards
//! hang. Where few hang they are tried in turn, the one that would count first
//! first; where many do, [`Grams`] finds those worth trying.
//!
//! What the rules say is not known here: the greatest [`Rank`] counts.

use memchr::{memchr, memrchr};

use super::dialect::{Escapes, Syntax};
use super::grams::Grams;
use super::shape::Shape;
use super::wildcard::{End, Fuel, behind_first, globs, spans};

/// How much a rule counts, and in the low half which it is: the greater counts,
/// of equal ones that which stands first in the file. 0 is no rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(u64);

impl Rank {
    pub(super) const NONE: Self = Self(0);

    /// `weight` decides, below 2³².
    pub(super) fn new(weight: u32, token: u32) -> Self {
        Self(u64::from(weight) << 32 | u64::from(u32::MAX - token))
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The token of the rule.
    pub(super) fn token(self) -> usize {
        // The low half, as it was put there.
        (u32::MAX - (self.0 & u64::from(u32::MAX)) as u32) as usize
    }
}

/// A rule to be indexed.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) rank: Rank,
    pub(super) place: Place,
    pub(super) shape: Shape,
}

/// Where the canonical octets of a rule begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
    const EXTRA: u32 = 1 << 31;

    pub(super) fn in_text(start: u32) -> Self {
        Self(start)
    }

    /// In the octets that had to be rewritten.
    pub(super) fn in_extra(start: usize) -> Self {
        // They are at most three times the text, which fits 29 bits.
        Self(u32::try_from(start).unwrap_or(u32::MAX) | Self::EXTRA)
    }

    fn behind(self, octets: usize) -> Self {
        Self(self.0 + u32::try_from(octets).unwrap_or(u32::MAX - self.0))
    }
}

/// The two texts that places are in.
#[derive(Clone, Copy)]
pub(super) struct Octets<'a> {
    pub(super) text: &'a [u8],
    pub(super) extra: &'a [u8],
}

impl<'a> Octets<'a> {
    #[inline]
    pub(super) fn at(self, place: Place, length: usize) -> &'a [u8] {
        self.from(place).get(..length).unwrap_or_default()
    }

    /// Those at `place` and all behind them.
    #[inline]
    fn from(self, place: Place) -> &'a [u8] {
        let start = (place.0 & !Place::EXTRA) as usize;
        let octets = if place.0 & Place::EXTRA == 0 {
            self.text
        } else {
            self.extra
        };
        octets.get(start..).unwrap_or_default()
    }
}

/// A node of the trie: what leads to it from its parent, and what ends in it.
#[derive(Clone, Copy)]
struct Node {
    /// The rank of the rule without wildcards whose head ends here, in halves:
    /// as one number it would have to lie at a multiple of eight.
    rank: [u32; 2],
    label: Place,
    children: u32,
    /// The length of the label, above it whether rules with wildcards hang
    /// here.
    label_length: u16,
    /// How many children there are besides the first.
    other_children: u8,
}

/// How many octets are compared faster than looked for.
const FEW: usize = 8;

const NO_CHILDREN: u32 = u32::MAX;

impl Node {
    const HAS_WILD: u16 = 1 << 15;
    const LABEL_MAX: u16 = Self::HAS_WILD - 1;

    fn new(label: Place, label_length: u16) -> Self {
        Self {
            rank: [0; 2],
            label,
            children: NO_CHILDREN,
            label_length,
            other_children: 0,
        }
    }

    fn rank(&self) -> Rank {
        let [upper, lower] = self.rank.map(u64::from);
        Rank(upper << 32 | lower)
    }

    fn set_rank(&mut self, rank: Rank) {
        // Each half as it is.
        self.rank = [(rank.0 >> 32) as u32, rank.0 as u32];
    }

    fn has_wild(&self) -> bool {
        self.label_length & Self::HAS_WILD != 0
    }

    fn label_length(&self) -> usize {
        usize::from(self.label_length & Self::LABEL_MAX)
    }
}

/// A rule with wildcards, as what is behind its head.
#[derive(Clone, Copy)]
pub(super) struct Wild {
    pub(super) rank: Rank,
    pub(super) tail: Place,
    /// The length of the tail, above it the flags.
    length: u32,
}

impl Wild {
    const LAST_OF_NODE: u32 = 1 << 31;
    const ANCHORED: u32 = 1 << 30;
    const GLOB: u32 = 1 << 29;
    /// There is one `*`, which the tail begins with.
    const ONE_STAR: u32 = 1 << 28;
    /// It is the first of so many at its node that there are [`Grams`].
    const HAS_GRAMS: u32 = 1 << 27;
    const LENGTH: u32 = Self::HAS_GRAMS - 1;

    fn new(entry: &Entry, octets: Octets<'_>) -> Self {
        let anchored = entry.shape.end == End::Last;
        let glob = entry.shape.syntax == Syntax::Glob;
        let place = entry.place.behind(entry.shape.head);
        let tail = octets.at(place, entry.shape.tail);
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

    pub(super) fn tail(self, octets: Octets<'_>) -> &[u8] {
        octets.at(self.tail, (self.length & Self::LENGTH) as usize)
    }

    pub(super) fn is_glob(self) -> bool {
        self.length & Self::GLOB != 0
    }

    fn has_grams(self) -> bool {
        self.length & Self::HAS_GRAMS != 0
    }

    fn is_last_of_node(self) -> bool {
        self.length & Self::LAST_OF_NODE != 0
    }

    /// Whether it fits what is left of a path behind its head.
    pub(super) fn matches(self, octets: Octets<'_>, rest: &[u8], fuel: &mut Fuel) -> bool {
        fuel.spend(1);
        let tail = self.tail(octets);
        if self.is_glob() {
            return globs(tail, rest, fuel);
        }
        let end = if self.length & Self::ANCHORED == 0 {
            End::Anywhere
        } else {
            End::Last
        };
        match tail.split_first() {
            Some((_, literal)) if self.length & Self::ONE_STAR != 0 => match end {
                End::Anywhere => behind_first(literal, rest, fuel).is_some(),
                End::Last => rest.ends_with(literal),
            },
            _ => spans((tail, end), rest, fuel),
        }
    }
}

/// The arranged rules.
pub(super) struct Index {
    nodes: Box<[Node]>,
    /// The first octet of each node's label, together, so that a child is found
    /// without touching the others.
    firsts: Box<[u8]>,
    wilds: Box<[Wild]>,
    /// The nodes where rules with wildcards hang, in order, and the first of
    /// those rules.
    hanging: Box<[(u32, u32)]>,
    /// For the nodes where many rules hang, by the first of them, in order.
    grams: Box<[(u32, Grams)]>,
    extra: Box<[u8]>,
    escapes: Escapes,
    /// Whether a path may hold an escape that is part of a rule.
    holds_escapes: bool,
}

/// The path has an octet that is not in canonical form where it matters.
#[derive(Debug)]
pub(super) struct NotCanonical;

/// A path to be looked up.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    /// As sent; it may well be in canonical form.
    Sent(&'a [u8]),
    Canonical(&'a [u8]),
}

/// Rules with wildcards that hang at a node, and the depth it is at.
#[derive(Clone, Copy, Default)]
struct Hanging {
    first: u32,
    depth: u32,
}

/// How many nodes with wildcards are remembered on the way before they are
/// tried at once.
const REMEMBERED: usize = 4;

impl Index {
    /// The index with the octets that [`Place::in_extra`] means.
    pub(super) fn with_extra(self, extra: Vec<u8>) -> Self {
        Self {
            holds_escapes: memchr(b'%', &extra).is_some(),
            extra: extra.into(),
            ..self
        }
    }

    /// The rank of the rule that counts for `path`; [`Rank::NONE`] if none
    /// matches.
    ///
    /// # Errors
    ///
    /// [`NotCanonical`] if the answer depends on octets of `path` that are
    /// not in canonical form.
    pub(super) fn best(
        &self,
        text: &[u8],
        path: Path<'_>,
        fuel: &mut Fuel,
    ) -> Result<Rank, NotCanonical> {
        let (path, doubtful) = match path {
            // A `%` ends the walk, unless a rule has one as well: then what
            // follows it would be compared as it is written.
            Path::Sent(path) if self.holds_escapes && memchr(b'%', path).is_some() => {
                return Err(NotCanonical);
            }
            Path::Sent(path) => (path, self.escapes),
            // Whatever it holds is to be compared as it is.
            Path::Canonical(path) => (path, Escapes::RuleSide),
        };
        let mut hanging = [Hanging::default(); REMEMBERED];
        let mut count = 0;
        let mut walk = Walk {
            octets: Octets {
                text,
                extra: &self.extra,
            },
            path,
            doubtful,
            best: Rank::NONE,
        };
        let (mut node, mut depth) = (self.nodes.first().map(|root| (0, root)), 0);
        while let Some((at, here)) = node {
            walk.best = walk.best.max(here.rank());
            if here.has_wild()
                && let Some(first) = self.first_hanging(at)
            {
                let hanging_here = Hanging {
                    first,
                    // Heads are parts of a text that fits 28 bits.
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
        // The deepest first: it is likely to be the longest.
        for hanging in hanging.iter().take(count).rev() {
            self.try_hanging(*hanging, &mut walk, fuel)?;
        }
        Ok(walk.best)
    }

    /// The child of `node` that the path leads to.
    #[inline]
    fn child(
        &self,
        node: &Node,
        walk: &Walk<'_>,
        depth: &mut usize,
    ) -> Result<Option<(usize, &Node)>, NotCanonical> {
        if node.children == NO_CHILDREN {
            return Ok(None);
        }
        let rest = walk.path.get(*depth..).unwrap_or_default();
        let Some(&octet) = rest.first() else {
            return Ok(None);
        };
        let children = node.children as usize;
        let firsts = children..=children + usize::from(node.other_children);
        let firsts = self.firsts.get(firsts).unwrap_or_default();
        let found = if firsts.len() <= FEW {
            firsts.iter().position(|first| *first == octet)
        } else {
            memchr(octet, firsts)
        };
        let found = found.map(|at| children + at);
        let Some((at, child)) = found.and_then(|at| Some((at, self.nodes.get(at)?))) else {
            return walk.ended_at(octet);
        };
        let length = child.label_length();
        let label = walk.octets.from(child.label);
        if begins_with(rest, (label, length)) {
            *depth += length;
            return Ok(Some((at, child)));
        }
        let label = label.get(..length).unwrap_or(label);
        let differ = std::iter::zip(rest, label).find(|(octet, expected)| octet != expected);
        match differ {
            Some((octet, _)) => walk.ended_at(*octet),
            None => Ok(None),
        }
    }

    /// Tries the rules that hang at a node.
    fn try_hanging(
        &self,
        hanging: Hanging,
        walk: &mut Walk<'_>,
        fuel: &mut Fuel,
    ) -> Result<(), NotCanonical> {
        let wilds = self.wilds.get(hanging.first as usize..).unwrap_or_default();
        if wilds.first().is_none_or(|first| first.rank <= walk.best) {
            return Ok(());
        }
        if !walk.doubtful.is_canonical_path(walk.path) {
            return Err(NotCanonical);
        }
        // Once is enough.
        walk.doubtful = Escapes::RuleSide;
        let rest = walk.path.get(hanging.depth as usize..).unwrap_or_default();
        fuel.spend(rest.len() / 16);
        if wilds.first().is_some_and(|first| first.has_grams())
            && let Some(grams) = self.grams_at(hanging.first)
        {
            walk.best = grams.best((wilds, walk.octets), (rest, walk.best), fuel);
            return Ok(());
        }
        for wild in wilds {
            if wild.rank <= walk.best || fuel.is_spent() {
                break;
            }
            if wild.matches(walk.octets, rest, fuel) {
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

    /// The memory that it takes, in octets.
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

/// Whether `text` begins with the first `length` octets of `label`, at least
/// one. Labels are mostly short: they are compared as one number, without a
/// loop that ends at another place each time.
#[inline]
fn begins_with(text: &[u8], (label, length): (&[u8], usize)) -> bool {
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

/// A path on its way down the trie.
struct Walk<'a> {
    octets: Octets<'a>,
    path: &'a [u8],
    /// What may have to be rewritten in the path.
    doubtful: Escapes,
    best: Rank,
}

impl Walk<'_> {
    /// The path leads no further at `octet`, if that is what it reads.
    #[inline]
    fn ended_at<'n>(&self, octet: u8) -> Result<Option<(usize, &'n Node)>, NotCanonical> {
        if self.doubtful.is_canonical_octet(octet) {
            Ok(None)
        } else {
            Err(NotCanonical)
        }
    }
}

/// Arranges rules.
pub(super) struct Builder<'a> {
    octets: Octets<'a>,
    entries: &'a [Entry],
    /// The entries in the order of their heads; of equal heads the greatest
    /// rank first.
    order: Vec<Sorted>,
    nodes: Vec<Node>,
    firsts: Vec<u8>,
    wilds: Vec<Wild>,
    hanging: Vec<(u32, u32)>,
    grams: Vec<(u32, Grams)>,
    pending: Vec<Pending>,
}

/// An entry as sorted: the eight octets of its head behind the `/` that nearly
/// all begin with, and which it is.
#[derive(Clone, Copy)]
struct Sorted {
    beginning: u64,
    entry: u32,
}

/// A node whose children are still to be made: the entries below it, and how
/// many octets of their heads are above.
struct Pending {
    node: usize,
    from: usize,
    to: usize,
    depth: usize,
}

/// How many rules with wildcards at a node are tried in turn.
const TRIED: usize = 6;

impl<'a> Builder<'a> {
    pub(super) fn new(octets: Octets<'a>, entries: &'a [Entry]) -> Self {
        let mut order: Vec<Sorted> = (0..)
            .zip(entries)
            .map(|(entry, rule)| Sorted {
                beginning: beginning(octets.at(rule.place, rule.shape.head)),
                entry,
            })
            .collect();
        order.sort_by(|one, other| {
            one.beginning.cmp(&other.beginning).then_with(|| {
                let [one, other] = [one, other].map(|sorted| &entries[sorted.entry as usize]);
                let head = |entry: &Entry| octets.at(entry.place, entry.shape.head);
                head(one)
                    .cmp(head(other))
                    .then_with(|| other.rank.cmp(&one.rank))
            })
        });
        Self {
            octets,
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

    /// Makes the index; [`Index::with_extra`] completes it.
    pub(super) fn build(mut self, escapes: Escapes) -> Index {
        self.nodes.push(Node::new(Place(0), 0));
        self.firsts.push(0);
        self.pending.push(Pending {
            node: 0,
            from: 0,
            to: self.order.len(),
            depth: 0,
        });
        while let Some(pending) = self.pending.pop() {
            self.grow(&pending);
        }
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

    fn entry(&self, at: usize) -> Option<&'a Entry> {
        self.entries.get(self.order.get(at)?.entry as usize)
    }

    fn head(&self, at: usize) -> &'a [u8] {
        self.entry(at)
            .map(|entry| self.octets.at(entry.place, entry.shape.head))
            .unwrap_or_default()
    }

    fn grow(&mut self, pending: &Pending) {
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
            // There are at most as many as there are octets.
            node.other_children = u8::try_from(others).unwrap_or(u8::MAX);
        }
    }

    /// Puts the entries whose head ends here into the node; where the others
    /// begin.
    fn end_here(&mut self, pending: &Pending) -> usize {
        let mut at = pending.from;
        let first_wild = self.wilds.len();
        let mut rank = Rank::NONE;
        while at < pending.to
            && let Some(entry) = self.entry(at)
            && entry.shape.head == pending.depth
        {
            if entry.shape.is_plain() {
                rank = rank.max(entry.rank);
            } else {
                self.wilds.push(Wild::new(entry, self.octets));
            }
            at += 1;
        }
        let Some(node) = self.nodes.get_mut(pending.node) else {
            return at;
        };
        node.set_rank(rank);
        if let Some(last) = self.wilds.get_mut(first_wild..).and_then(<[_]>::last_mut) {
            last.length |= Wild::LAST_OF_NODE;
            node.label_length |= Node::HAS_WILD;
            let fit = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
            self.hanging.push((fit(pending.node), fit(first_wild)));
            let hanging = self.wilds.get(first_wild..).unwrap_or_default();
            if TRIED < hanging.len() {
                self.grams
                    .push((fit(first_wild), Grams::of(hanging, self.octets)));
                if let Some(first) = self.wilds.get_mut(first_wild) {
                    first.length |= Wild::HAS_GRAMS;
                }
            }
        }
        at
    }

    /// Makes the child for the octet that the entry at `at` goes on with; where
    /// the next octet's entries begin.
    fn push_child(&mut self, at: usize, pending: &Pending) -> usize {
        let depth = pending.depth;
        let head = self.head(at);
        let octet = head.get(depth).copied();
        let mut to = at + 1;
        while to < pending.to && self.head(to).get(depth).copied() == octet {
            to += 1;
        }
        let last = self.head(to - 1);
        let (Some(first), Some(ours), Some(theirs)) = (octet, head.get(depth..), last.get(depth..))
        else {
            return to;
        };
        let shared = std::iter::zip(ours, theirs)
            .take_while(|(one, other)| one == other)
            .count();
        let label_length = u16::try_from(shared)
            .unwrap_or(u16::MAX)
            .min(Node::LABEL_MAX);
        let place = self.entry(at).map_or(Place(0), |entry| entry.place);
        self.pending.push(Pending {
            node: self.nodes.len(),
            from: at,
            to,
            depth: depth + usize::from(label_length),
        });
        self.firsts.push(first);
        self.nodes
            .push(Node::new(place.behind(depth), label_length));
        to
    }
}

fn beginning(head: &[u8]) -> u64 {
    let behind = head.get(1..).unwrap_or_default();
    match behind.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut chunk = [0; 8];
            std::iter::zip(&mut chunk, behind).for_each(|(place, octet)| *place = *octet);
            u64::from_be_bytes(chunk)
        }
    }
}
