//! Growing Merkle tree over all numbers.
//!
//! Number n is the nth leaf. Each part of 8,192 numbers (`parts`) is a complete
//! subtree, whose root is passed on when the part is complete. With these roots, a
//! restart reads the leaves of one part instead of the whole record.
//!
//! Does not know where leaves come from.

use super::columns::table;
use super::merkle::{CompactRange, Subtree, leaf_hash};
use super::parts::{PART_LEVEL, PART_NUMBERS};
use politesse_decision::digest::Digest;

/// Size of a part.
const PART_SIZE: u64 = PART_NUMBERS.unsigned_abs();

table! {
    /// Root over the leaves of a complete part.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct PartRoot in "subtree" keyed by "part" {
        pub(super) part: i64 = "part INTEGER NOT NULL",
        pub(super) root: Digest = "hash BLOB NOT NULL",
    }
}

/// Tree over all numbers from 1.
#[derive(Debug, Clone, Default)]
pub(super) struct SequenceTree {
    parts: CompactRange,
    /// Leaves of the incomplete part.
    open: CompactRange,
}

impl SequenceTree {
    /// Returns the number of leaves, which is the highest number.
    pub(super) fn size(&self) -> u64 {
        self.parts.size() + self.open.size()
    }

    /// Appends `count` numbers with the leaf `leaf`. Passes the root of each part
    /// that this completes to `end`.
    pub(super) fn push(&mut self, leaf: Digest, count: u64, mut end: impl FnMut(PartRoot)) {
        let hash = leaf_hash(leaf.as_bytes());
        let mut left = count;
        while 0 < left {
            let step = left.min(PART_SIZE - self.open.size());
            self.open.push_repeated(hash, step);
            left -= step;
            if self.open.size() == PART_SIZE {
                let root = std::mem::take(&mut self.open).root();
                end(PartRoot {
                    part: self.push_part(root),
                    root,
                });
            }
        }
    }

    /// Appends a complete part with the root `root`; there must be no incomplete
    /// part. Returns the number of the part.
    pub(super) fn push_part(&mut self, root: Digest) -> i64 {
        let part = self.parts.size() >> PART_LEVEL;
        self.parts.push_subtree(Subtree {
            level: PART_LEVEL,
            root,
        });
        part.cast_signed()
    }

    /// Computes the root of the whole tree.
    pub(super) fn root(&self) -> Digest {
        self.parts.joined(&self.open).root()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: docs/decisions/023-seals.md.
    #[test]
    fn the_root_does_not_depend_on_the_division_into_parts() {
        let leaf = |number: u64| Digest::of(&number.to_be_bytes());
        let mut plain = CompactRange::default();
        let mut tree = SequenceTree::default();
        let mut roots = Vec::new();
        for number in 1..=2 * PART_SIZE + 5 {
            plain.push(leaf_hash(leaf(number).as_bytes()));
            tree.push(leaf(number), 1, |part| roots.push(part));
            if number % 4099 == 0 || number % PART_SIZE < 3 {
                assert_eq!((tree.size(), tree.root()), (number, plain.root()));
            }
        }
        assert!(roots.iter().map(|part| part.part).eq([0, 1]));
        let mut again = SequenceTree::default();
        for part in roots {
            assert_eq!(again.push_part(part.root), part.part);
        }
        (2 * PART_SIZE + 1..=2 * PART_SIZE + 5)
            .for_each(|number| again.push(leaf(number), 1, drop));
        assert_eq!(again.root(), tree.root());
        // Numbers that were lost together share a leaf.
        let mut ended = 0;
        tree.push(leaf(0), 3 * PART_SIZE, |_| ended += 1);
        (0..3 * PART_SIZE).for_each(|_| plain.push(leaf_hash(leaf(0).as_bytes())));
        assert_eq!((tree.root(), ended), (plain.root(), 3));
    }
}
