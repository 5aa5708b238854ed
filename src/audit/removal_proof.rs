//! Proofs that stay where a whole part of a record goes: the paths of its heads
//! (`seal_paths`) and of the entries that remain (`leaf_path`), made from its leaves.
//!
//! For a copy of a record that is not in SQLite. Pure functions: where leaves are from,
//! and where proofs are kept, is not known here.

use super::leaf_path::PartLevels;
use super::parts::{PART_NUMBERS, numbers_of};
use super::seal_paths::path_bytes;
use super::tree_rows::PartLeaves;
use crate::decision::digest::Digest;

/// Path of a head or of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPath {
    /// Number of the entry, or size of the head.
    pub number: i64,
    /// Hashes, as the record has them.
    pub bytes: Vec<u8>,
}

/// Part that goes: its leaves, and of what in it proofs are wanted.
#[derive(Debug)]
pub struct RemovedPart {
    /// Number of the part.
    pub part: i64,
    /// Leaves of all its numbers.
    pub leaves: PartLeaves,
    /// Sizes of the heads that end in it.
    pub heads: Vec<i64>,
    /// Numbers of the entries that remain.
    pub entries: Vec<i64>,
}

/// Proofs about one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartProofs {
    /// Root of the part.
    pub root: Digest,
    /// Paths of heads, but for one that covers the whole part, which needs none.
    pub heads: Vec<StoredPath>,
    /// Paths of entries.
    pub entries: Vec<StoredPath>,
}

impl RemovedPart {
    /// Makes the proofs; `None` if a number has no entry.
    pub fn proofs(&self) -> Option<PartProofs> {
        let numbers = numbers_of(self.part);
        let levels = PartLevels::new(numbers.map(|number| self.leaves.get(number)))?;
        let within = self.heads.iter().filter(|size| *size % PART_NUMBERS != 0);
        let heads = within.map(|size| {
            Some(StoredPath {
                number: *size,
                bytes: path_bytes(&self.leaves, *size)?,
            })
        });
        let entries = self.entries.iter().map(|number| StoredPath {
            number: *number,
            bytes: levels.path(*number).to_bytes(),
        });
        Some(PartProofs {
            root: levels.root()?,
            heads: heads.collect::<Option<_>>()?,
            entries: entries.collect(),
        })
    }
}
