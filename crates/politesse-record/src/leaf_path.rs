//! Paths of leaves: the hashes that lead from a leaf to the root of its part.
//!
//! A path is an inclusion proof (RFC 9162, section 2.1.3) within one part. An entry
//! that remains where all others of its part were removed has a stored path,
//! because the leaves from which it could be computed are gone. So has a head that
//! ends inside a part: the path of its last leaf has the roots of the subtrees
//! before that leaf, which give the signed root.
//!
//! Pure functions. Does not know which entries remain, or whether a head is right.

use super::columns::count;
use super::merkle::{CompactRange, Subtree, leaf_hash, node_hash};
use super::parts::{PART_LEVEL, numbers_of, part_of};
use politesse_decision::digest::Digest;

/// Bytes of a hash.
const HASH_BYTES: usize = 32;

/// Sibling hashes on the way from a leaf to the root of its part, from the leaf
/// upwards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LeafPath {
    hashes: Vec<Digest>,
}

impl LeafPath {
    /// Parses a path. A damaged path becomes empty, and leads nowhere.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let (hashes, rest) = bytes.as_chunks::<HASH_BYTES>();
        let is_whole = rest.is_empty() && hashes.len() == PART_LEVEL as usize;
        let read = |hash: &[u8; HASH_BYTES]| Digest::from(*hash);
        Self {
            hashes: hashes.iter().filter(|_| is_whole).map(read).collect(),
        }
    }

    /// Encodes the path.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let bytes = self.hashes.iter().flat_map(Digest::as_bytes);
        bytes.copied().collect()
    }

    /// Computes the root that the path leads to from the entry `number`, whose leaf
    /// has the hash `hash`; `None` if the path is damaged.
    fn root(&self, number: i64, hash: Digest) -> Option<Digest> {
        let levels = self.hashes.iter().enumerate();
        let root = levels.fold(hash, |root, (level, other)| {
            match index_of(number) >> level & 1 {
                0 => node_hash([root, *other]),
                _ => node_hash([*other, root]),
            }
        });
        (!self.hashes.is_empty()).then_some(root)
    }

    /// Reports whether the path leads from the entry `number` with the leaf `leaf`
    /// to `root`, the root of its part.
    pub(super) fn leads(&self, number: i64, leaf: Digest, root: Digest) -> bool {
        self.root(number, leaf_hash(leaf.as_bytes())) == Some(root)
    }

    /// Returns the root of the subtree of `level` that starts with the number
    /// `start`, if it is one of the sibling hashes on the way from the entry
    /// `number`.
    pub(super) fn beside(&self, number: i64, level: u32, start: i64) -> Option<Digest> {
        let is_beside = (index_of(number) >> level) ^ 1 == index_of(start) >> level;
        let is_near = part_of(number) == part_of(start);
        let hash = self.hashes.get(level as usize).copied();
        hash.filter(|_| is_near && is_beside)
    }
}

/// Path of a head: the leaves that it covers in its part, and the root of the part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SealPath {
    /// Leaves of the part that the head covers.
    pub(super) covered: CompactRange,
    /// Root of the part.
    pub(super) root: Digest,
}

impl SealPath {
    /// Parses the path of the head of `size` entries: the hash of the last leaf
    /// that it covers, followed by the path of that leaf. `None` if it is damaged.
    pub(super) fn parse(bytes: &[u8], size: i64) -> Option<Self> {
        let (leaf, rest) = bytes.split_first_chunk::<HASH_BYTES>()?;
        let (hash, path) = (Digest::from(*leaf), LeafPath::parse(rest));
        let root = path.root(size, hash)?;
        let mut covered = CompactRange::default();
        // Left siblings on the way, the largest subtree first.
        for (level, root) in (0..PART_LEVEL).zip(path.hashes).rev() {
            if index_of(size) >> level & 1 == 1 {
                covered.push_subtree(Subtree { level, root });
            }
        }
        covered.push(hash);
        Some(Self { covered, root })
    }
}

/// Returns the number of leaves before a number in its part.
fn index_of(number: i64) -> u64 {
    count(number - numbers_of(part_of(number)).start)
}

/// Hashes of all subtrees of a part.
#[derive(Debug)]
pub(super) struct PartLevels {
    /// Leaves first; the two halves of the part last.
    levels: Vec<Vec<Digest>>,
}

impl PartLevels {
    /// Computes the hashes of the subtrees from the leaves of a part; `None` if a
    /// number has no entry.
    pub(super) fn new(leaves: impl Iterator<Item = Option<Digest>>) -> Option<Self> {
        let hashes = leaves.map(|leaf| Some(leaf_hash(leaf?.as_bytes())));
        let mut levels = vec![hashes.collect::<Option<Vec<_>>>()?];
        while let Some(below) = levels.last()
            && 2 < below.len()
        {
            let (pairs, _) = below.as_chunks::<2>();
            levels.push(pairs.iter().copied().map(node_hash).collect());
        }
        Some(Self { levels })
    }

    /// Returns the path of the entry `number` of the part.
    pub(super) fn path(&self, number: i64) -> LeafPath {
        let index = index_of(number) as usize;
        let beside = |(level, hashes): (usize, &Vec<Digest>)| {
            let place = (index >> level) ^ 1;
            hashes.get(place).copied()
        };
        LeafPath {
            hashes: self.levels.iter().enumerate().filter_map(beside).collect(),
        }
    }

    /// Encodes the path of the head of `size` entries, for [`SealPath::parse`].
    pub(super) fn seal_path(&self, size: i64) -> Vec<u8> {
        let leaves = self.levels.first().map_or(&[][..], Vec::as_slice);
        let leaf = leaves.get(index_of(size) as usize).copied();
        let hash = leaf.unwrap_or_default();
        [hash.as_bytes(), &*self.path(size).to_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9162, section 2.1.3: within one part.
    #[test]
    fn a_path_leads_only_from_its_own_leaf_to_the_root_of_its_part() {
        let leaf = |number: i64| Digest::of(&number.to_be_bytes());
        let numbers = numbers_of(2);
        let levels = PartLevels::new(numbers.clone().map(|number| Some(leaf(number)))).unwrap();
        let range = |numbers: std::ops::Range<i64>| {
            let mut range = CompactRange::default();
            numbers.for_each(|number| range.push(leaf_hash(leaf(number).as_bytes())));
            range
        };
        let root = range(numbers.clone()).root();
        for number in [0, 1, 2, 4095, 4096, 8191].map(|at| numbers.start + at) {
            let path = levels.path(number);
            assert!(path.leads(number, leaf(number), root));
            assert!(!path.leads(number, leaf(number + 1), root));
            assert!(!path.leads(number ^ 1, leaf(number), root));
            assert!(!path.leads(number, leaf(number), leaf(number)));
            let bytes = path.to_bytes();
            assert_eq!(LeafPath::parse(&bytes), path);
            let head = SealPath {
                covered: range(numbers.start..number + 1),
                root,
            };
            let seal_path = levels.seal_path(number);
            assert_eq!(SealPath::parse(&seal_path, number), Some(head));
            assert_eq!(SealPath::parse(&seal_path[1..], number), None);
            for damaged in [&bytes[1..], &bytes[..HASH_BYTES], &bytes.repeat(2), &[]] {
                assert!(!LeafPath::parse(damaged).leads(number, leaf(number), root));
            }
        }
        let path = levels.path(numbers.start + 5);
        let four = numbers.start..numbers.start + 4;
        assert_eq!(
            path.beside(numbers.start + 5, 2, four.start),
            Some(range(four.clone()).root())
        );
        for (level, start) in [(2, four.end), (2, 1), (1, four.start), (13, four.start)] {
            assert_eq!(path.beside(numbers.start + 5, level, start), None);
        }
        let gap = |number: i64| (number != numbers.start).then(|| leaf(number));
        assert!(PartLevels::new(numbers.clone().map(gap)).is_none());
    }
}
