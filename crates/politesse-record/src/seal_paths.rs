//! Paths of heads: the hashes that lead from a head to the root of the part in which
//! it was made.
//!
//! A head covers some leaves of its last part. When the entries of that part are
//! removed, its leaves go with them. What is kept are the roots of the subtrees
//! before and behind the head: the former give the root that was signed, and both
//! together the root of the part (RFC 9162, section 2.1.4, within one part).
//!
//! Does not know whether a head is right.

use rusqlite::{Connection, OptionalExtension};

use super::columns::{count, signed};
use super::merkle::{CompactRange, Subtree, leaf_hash, node_hash};
use super::parts::{PART_NUMBERS, part_of};
use super::tree_rows::{PartLeaves, TreeReader};
use politesse_decision::digest::Digest;

/// Leaves of a part.
const PART_SIZE: u64 = PART_NUMBERS.unsigned_abs();

/// Bytes of a hash.
const HASH_BYTES: usize = 32;

/// Trees within one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SealPath {
    /// Leaves that the head covers.
    pub(super) covered: CompactRange,
    /// Root of the part.
    pub(super) root: Digest,
}

impl SealPath {
    /// Reads the path of the head of `size` entries; `None` if there is none, or it
    /// is damaged.
    pub(super) fn read(connection: &Connection, size: u64) -> rusqlite::Result<Option<Self>> {
        let sql = "SELECT path FROM seal WHERE size = ?";
        let read = |row: &rusqlite::Row<'_>| row.get::<_, Option<Vec<u8>>>(0);
        let mut statement = connection.prepare_cached(sql)?;
        let bytes = statement.query_row([signed(size)], read).optional()?;
        Ok(bytes
            .flatten()
            .and_then(|bytes| Self::parse(&bytes, size % PART_SIZE)))
    }

    /// Makes the path of a head that covers `covered` leaves of its part from its
    /// hashes.
    fn parse(bytes: &[u8], covered: u64) -> Option<Self> {
        let (hashes, rest) = bytes.as_chunks::<HASH_BYTES>();
        let mut roots = hashes.iter().map(|hash| Digest::from(*hash));
        let mut range = CompactRange::default();
        for level in levels_before(covered) {
            let root = roots.next()?;
            range.push_subtree(Subtree { level, root });
        }
        let mut whole = range.clone();
        for level in levels_behind(covered) {
            let root = roots.next()?;
            whole.push_subtree(Subtree { level, root });
        }
        let is_whole = roots.next().is_none() && rest.is_empty();
        is_whole.then(|| Self {
            covered: range,
            root: whole.root(),
        })
    }
}

/// Returns the levels of the subtrees of so many leaves.
fn levels_before(leaves: u64) -> impl Iterator<Item = u32> {
    let levels = (0..PART_SIZE.trailing_zeros()).rev();
    levels.filter(move |level| leaves >> level & 1 == 1)
}

/// Returns the levels of the subtrees behind so many leaves of a part.
fn levels_behind(leaves: u64) -> impl Iterator<Item = u32> {
    let mut next = leaves;
    std::iter::from_fn(move || {
        let level = next.trailing_zeros();
        (next < PART_SIZE).then(|| {
            next += 1 << level;
            level
        })
    })
}

/// Writes the paths of the heads within the parts that begin behind `pruned` and end
/// at `last`. `connection` is in a transaction.
pub(super) fn write_paths(connection: &Connection, pruned: i64, last: i64) -> rusqlite::Result<()> {
    let sql = "SELECT size FROM seal WHERE ? < size AND size <= ? ORDER BY size";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([pruned, last], |row| row.get(0))?;
    let sizes: Vec<i64> = rows.collect::<rusqlite::Result<_>>()?;
    let mut update = connection.prepare_cached("UPDATE seal SET path = ? WHERE size = ?")?;
    // Heads of one part lie side by side, and its leaves are read once.
    for heads in sizes.chunk_by(|one, next| part_of(*one) == part_of(*next)) {
        let Some(first) = heads.first() else {
            continue;
        };
        let part = part_of(*first);
        let mut subtrees = None;
        for size in heads
            .iter()
            .filter(|size| !count(**size).is_multiple_of(PART_SIZE))
        {
            let subtrees = match &subtrees {
                Some(subtrees) => subtrees,
                None => subtrees.insert(PartSubtrees::of(&TreeReader::new(connection).part(part)?)),
            };
            update.execute((subtrees.path_bytes(*size), *size))?;
        }
    }
    Ok(())
}

/// Roots of all complete subtrees of a part: those of its leaves first, then level by
/// level up to its own. `None` where an entry is missing.
struct PartSubtrees(Vec<Vec<Option<Digest>>>);

impl PartSubtrees {
    /// Computes each root once: a part may have a head after every few of its leaves.
    fn of(leaves: &PartLeaves) -> Self {
        let hash = |leaf: Option<Digest>| leaf.map(|leaf| leaf_hash(leaf.as_bytes()));
        let mut levels = vec![leaves.iter().map(hash).collect::<Vec<_>>()];
        while let Some(below) = levels.last()
            && 1 < below.len()
        {
            let (pairs, _) = below.as_chunks::<2>();
            let joined =
                |[left, right]: &[Option<Digest>; 2]| Some(node_hash([(*left)?, (*right)?]));
            levels.push(pairs.iter().map(joined).collect());
        }
        Self(levels)
    }

    /// Returns the hashes of the path of the head of `size` entries; `None` if an entry
    /// is missing.
    fn path_bytes(&self, size: i64) -> Option<Vec<u8>> {
        let covered = count(size) % PART_SIZE;
        let mut bytes = Vec::new();
        let mut next = 0;
        for level in levels_before(covered).chain(levels_behind(covered)) {
            let roots = self.0.get(level as usize)?;
            bytes.extend_from_slice((*roots.get(next >> level)?)?.as_bytes());
            next += 1 << level;
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: the subtrees before and behind a head are all leaves of its part.
    #[test]
    fn levels_make_up_a_part() {
        for covered in [1, 2, 3, 4095, 4096, 5000, 8191] {
            let sum = |level: u32| 1_u64 << level;
            let before: u64 = levels_before(covered).map(sum).sum();
            let behind: u64 = levels_behind(covered).map(sum).sum();
            assert_eq!((before, before + behind), (covered, PART_SIZE));
        }
    }

    // Ours.
    #[test]
    fn a_path_that_is_damaged_is_none() {
        let hashes = levels_before(5).chain(levels_behind(5)).count();
        let bytes = vec![7; hashes * HASH_BYTES];
        assert!(SealPath::parse(&bytes, 5).is_some());
        for length in [0, HASH_BYTES, bytes.len() - 1, bytes.len() - HASH_BYTES] {
            assert_eq!(SealPath::parse(&bytes[..length], 5), None);
        }
        assert_eq!(SealPath::parse(&bytes.repeat(2), 5), None);
    }
}
