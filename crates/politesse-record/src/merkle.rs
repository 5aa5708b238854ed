//! Merkle trees: roots, and proofs about them.
//!
//! RFC 9162, section 2.1, with the hashing of RFC 6962. The tree over a list of
//! leaves has a root of 32 bytes. A proof over chosen leaves, which the RFC does
//! not define, shows for many leaves at once that they are in the list: each
//! subtree without a chosen leaf is one hash, and hashes that can be computed are
//! left out.
//!
//! Pure functions. The hashes that a proof needs are given as ranges of leaves; the
//! caller, who has the leaves, computes their roots. Does not know what the leaves
//! are.

use std::ops::Range;

use politesse_decision::digest::Digest;

/// Prefix of the hashed bytes of a leaf.
const LEAF: u8 = 0;

/// Prefix of the hashed bytes of an inner node.
const NODE: u8 = 1;

/// Maximum number of levels in a tree, whose size is a 64-bit number.
const LEVELS: u32 = u64::BITS;

/// Computes the hash of a leaf.
pub(super) fn leaf_hash(input: &[u8]) -> Digest {
    // Leaves of the record are digests. They fit into an array and need no
    // allocation.
    let mut bytes = [LEAF; 33];
    if let Some(place) = bytes[1..].get_mut(..input.len()) {
        place.copy_from_slice(input);
        return Digest::of(bytes.get(..=input.len()).unwrap_or_default());
    }
    Digest::of(&[&[LEAF], input].concat())
}

/// Computes the root of a tree from the roots of its left and right subtree.
pub(super) fn node_hash(children: [Digest; 2]) -> Digest {
    let mut bytes = [NODE; 65];
    let [left, right] = children;
    bytes[1..33].copy_from_slice(left.as_bytes());
    bytes[33..].copy_from_slice(right.as_bytes());
    Digest::of(&bytes)
}

/// Root of a subtree whose number of leaves is a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subtree {
    /// Binary logarithm of the number of leaves: 0 for a single leaf.
    pub(super) level: u32,
    /// Root; for a single leaf, its hash.
    pub(super) root: Digest,
}

/// Compact form of a list of leaves: the hashes needed to compute its root, and the
/// root of any extension of it. At most 64 hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CompactRange {
    size: u64,
    /// Roots of the largest complete subtrees, from left to right: one for each set
    /// bit of the size.
    roots: Vec<Digest>,
}

impl CompactRange {
    /// Returns the number of leaves.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the largest complete subtrees, from left to right.
    pub(super) fn subtrees(&self) -> impl Iterator<Item = Subtree> + '_ {
        let is_set = |level: &u32| self.size >> level & 1 == 1;
        let levels = (0..LEVELS).rev().filter(is_set);
        let with_level = |(level, root): (u32, &Digest)| Subtree { level, root: *root };
        levels.zip(&self.roots).map(with_level)
    }

    /// Appends a leaf with the hash `leaf`.
    pub(super) fn push(&mut self, leaf: Digest) {
        self.push_subtree(Subtree {
            level: 0,
            root: leaf,
        });
    }

    /// Appends the leaves of a complete subtree.
    ///
    /// # Panics
    ///
    /// In debug builds, if the number of leaves so far is not a multiple of the
    /// subtree's size: the tree would have no such subtree.
    pub(super) fn push_subtree(&mut self, subtree: Subtree) {
        let Subtree { level, root } = subtree;
        debug_assert!(level <= self.size.trailing_zeros(), "out of place");
        let mut merged = root;
        // Works like a carry in addition: two subtrees of the same level form one
        // of the next.
        let mut bits = self.size >> level;
        while bits & 1 == 1
            && let Some(left) = self.roots.pop()
        {
            merged = node_hash([left, merged]);
            bits >>= 1;
        }
        self.roots.push(merged);
        self.size += 1 << level;
    }

    /// Appends `count` leaves with the same hash `leaf`, in at most about 64 steps.
    pub(super) fn push_repeated(&mut self, leaf: Digest, count: u64) {
        if count == 1 {
            return self.push(leaf);
        }
        let mut roots = vec![leaf];
        let mut left = count;
        while let Some(greatest) = left.checked_ilog2() {
            let level = greatest.min(self.size.trailing_zeros());
            let mut root = leaf;
            for at in 0..level as usize {
                root = match roots.get(at + 1) {
                    Some(known) => *known,
                    None => {
                        let next = node_hash([root, root]);
                        roots.push(next);
                        next
                    }
                };
            }
            self.push_subtree(Subtree { level, root });
            left -= 1 << level;
        }
    }

    /// Returns these leaves followed by those of `tail`.
    ///
    /// # Panics
    ///
    /// In debug builds, if the number of these leaves is not a multiple of the size
    /// of the largest subtree of `tail`.
    #[must_use]
    pub(super) fn joined(&self, tail: &Self) -> Self {
        let mut joined = self.clone();
        tail.subtrees().for_each(|one| joined.push_subtree(one));
        joined
    }

    /// Computes the root of the tree over these leaves.
    pub(super) fn root(&self) -> Digest {
        let joined = self.roots.iter().rev().copied();
        let root = joined.reduce(|right, left| node_hash([left, right]));
        // RFC 9162, section 2.1.1: an empty list has the hash of the empty string.
        root.unwrap_or_else(|| Digest::of(&[]))
    }
}

/// Size and root of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeHead {
    /// Number of leaves.
    pub size: u64,
    /// Root.
    pub root: Digest,
}

/// Leaf with its index in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlacedLeaf {
    /// Number of leaves before this one.
    pub(super) index: u64,
    /// Hash of the leaf.
    pub(super) hash: Digest,
}

impl TreeHead {
    /// Reports whether `proof` shows that this tree contains all of `leaves`, which
    /// must be in ascending order. The proof consists of the roots of
    /// [`chosen_ranges`].
    pub(super) fn includes_all(&self, leaves: &[PlacedLeaf], proof: &[Digest]) -> bool {
        let is_ascending = leaves.is_sorted_by(|one, next| one.index < next.index);
        let is_inside = leaves.iter().all(|leaf| leaf.index < self.size);
        if !is_ascending || !is_inside || self.size == 0 {
            return false;
        }
        let mut rest = proof.iter();
        let root = root_of_chosen(leaves, 0..self.size, &mut rest);
        root == Some(self.root) && rest.next().is_none()
    }
}

/// Computes the root of `range` from the chosen leaves in it, taking the roots of
/// subtrees without a chosen leaf from `proof`.
fn root_of_chosen<'a>(
    leaves: &[PlacedLeaf],
    range: Range<u64>,
    proof: &mut impl Iterator<Item = &'a Digest>,
) -> Option<Digest> {
    match (leaves, split(&range)) {
        ([], _) => proof.next().copied(),
        ([leaf, ..], None) => Some(leaf.hash),
        (leaves, Some(middle)) => {
            let place = leaves.partition_point(|leaf| leaf.index < middle);
            let (left, right) = leaves.split_at_checked(place)?;
            let left_root = root_of_chosen(left, range.start..middle, proof)?;
            let right_root = root_of_chosen(right, middle..range.end, proof)?;
            Some(node_hash([left_root, right_root]))
        }
    }
}

/// Returns the first leaf of the right subtree of the tree over `range`; `None` for
/// fewer than two leaves. The left subtree is the largest complete one that leaves
/// a right subtree.
fn split(range: &Range<u64>) -> Option<u64> {
    let last = range.end.checked_sub(range.start)?.checked_sub(1)?;
    Some(range.start + (1 << last.checked_ilog2()?))
}

/// Returns the ranges of leaves whose roots prove that all of the leaves `chosen`
/// are in a tree of `size` leaves, from left to right. `chosen` must be in
/// ascending order and below `size`.
pub(super) fn chosen_ranges(chosen: &[u64], size: u64) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    gather_ranges(chosen, 0..size, &mut ranges);
    ranges
}

fn gather_ranges(chosen: &[u64], range: Range<u64>, ranges: &mut Vec<Range<u64>>) {
    match (chosen, split(&range)) {
        ([], _) => ranges.push(range),
        (_, None) => {}
        (chosen, Some(middle)) => {
            let place = chosen.partition_point(|index| *index < middle);
            let (left, right) = chosen.split_at(place);
            gather_ranges(left, range.start..middle, ranges);
            gather_ranges(right, middle..range.end, ranges);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses hexadecimal digits.
    fn hex(text: &str) -> Vec<u8> {
        let pairs = text.as_bytes().chunks(2);
        let pairs = pairs.map(|pair| str::from_utf8(pair).unwrap());
        pairs
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect()
    }

    /// Leaves from the tests of Certificate Transparency (RFC 6962).
    const LEAVES: [&str; 8] = [
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    ];

    /// Roots of the trees over the first 0 to 8 leaves.
    const ROOTS: [&str; 9] = [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];

    fn hashes() -> Vec<Digest> {
        LEAVES.iter().map(|leaf| leaf_hash(&hex(leaf))).collect()
    }

    /// Computes the root of leaves by the definition in RFC 9162, section 2.1.1.
    fn root_of(leaves: &[Digest]) -> Digest {
        match leaves {
            [] => Digest::of(&[]),
            [leaf] => *leaf,
            leaves => {
                let middle = leaves.len().next_power_of_two() / 2;
                node_hash([root_of(&leaves[..middle]), root_of(&leaves[middle..])])
            }
        }
    }

    fn head(leaves: &[Digest]) -> TreeHead {
        TreeHead {
            size: leaves.len() as u64,
            root: root_of(leaves),
        }
    }

    fn roots_of(leaves: &[Digest], ranges: Vec<Range<u64>>) -> Vec<Digest> {
        let part = |range: Range<u64>| root_of(&leaves[range.start as usize..range.end as usize]);
        ranges.into_iter().map(part).collect()
    }

    // RFC 6962, section 2.1; the vectors of Certificate Transparency.
    #[test]
    fn a_compact_range_has_the_roots_of_rfc_6962() {
        let mut range = CompactRange::default();
        assert_eq!(range.root().to_string(), ROOTS[0]);
        for (leaf, root) in hashes().into_iter().zip(&ROOTS[1..]) {
            range.push(leaf);
            assert_eq!(range.root().to_string(), *root);
        }
        assert_eq!(range.subtrees().map(|one| one.level).max(), Some(3));
    }

    /// Returns `count` different leaves.
    fn leaves(count: usize) -> Vec<Digest> {
        let number = |number: usize| leaf_hash(&number.to_be_bytes());
        (0..count).map(number).collect()
    }

    /// Returns damaged proofs: each hash changed, one too many, one too few.
    fn damaged(proof: &[Digest]) -> Vec<Vec<Digest>> {
        let other = leaf_hash(b"other");
        let mut found: Vec<Vec<Digest>> = (0..proof.len())
            .map(|at| {
                let mut changed = proof.to_vec();
                changed[at] = other;
                changed
            })
            .collect();
        found.push([proof, &[other]].concat());
        if let Some((_, rest)) = proof.split_last() {
            found.push(rest.to_vec());
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 128,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn a_proof_holds_for_its_leaves_and_for_no_others(
            count in 1_usize..70,
            picks in proptest::collection::btree_set(0_usize..70, 0..9),
        ) {
            let all = leaves(count);
            let whole = head(&all);
            let chosen: Vec<u64> = picks.iter().map(|pick| *pick as u64)
                .filter(|pick| *pick < whole.size).collect();
            let placed: Vec<_> = chosen.iter()
                .map(|index| PlacedLeaf { index: *index, hash: all[*index as usize] }).collect();
            let proof = roots_of(&all, chosen_ranges(&chosen, whole.size));
            prop_assert!(whole.includes_all(&placed, &proof));
            for wrong in damaged(&proof) {
                prop_assert!(!whole.includes_all(&placed, &wrong));
            }
            for leaf in placed {
                let proof = roots_of(&all, chosen_ranges(&[leaf.index], whole.size));
                let moved = PlacedLeaf { index: leaf.index ^ 1, ..leaf };
                prop_assert!(!whole.includes_all(&[moved], &proof));
            }
        }

        #[test]
        fn repeated_leaves_equal_leaves_added_singly(before in 0_u64..70, count in 0_u64..300) {
            let repeated = leaf_hash(b"repeated");
            let (mut at_once, mut singly) = (CompactRange::default(), CompactRange::default());
            for leaf in leaves(before as usize) {
                at_once.push(leaf);
                singly.push(leaf);
            }
            at_once.push_repeated(repeated, count);
            (0..count).for_each(|_| singly.push(repeated));
            prop_assert_eq!(at_once, singly);
        }
    }

    // Ours: a chosen leaf and its chosen neighbour need no hash between them.
    #[test]
    fn a_proof_over_chosen_leaves_omits_hashes_that_can_be_computed() {
        assert_eq!(chosen_ranges(&[2, 3], 7), [0..2, 4..7]);
        assert_eq!(chosen_ranges(&[], 7), vec![0..7]);
        assert!(chosen_ranges(&[0, 1, 2], 3).is_empty());
        let all = leaves(7);
        let twice = [PlacedLeaf {
            index: 2,
            hash: all[2],
        }; 2];
        let proof = roots_of(&all, chosen_ranges(&[2], 7));
        assert!(!head(&all).includes_all(&twice, &proof));
    }
}
