//! Rows of the Merkle tree: the leaf of each number, the roots of parts
//! (`subtree`), the signed heads (`seal`), and the hashes of proofs.
//!
//! Endings are not indexed by number. The endings with numbers in a part belong to
//! its own decisions, to those of earlier parts named in its roll-up (`rollup`),
//! or, until it is rolled up, to those in `late_ending`.
//!
//! Does not know whether the rows are unaltered; `verify` checks that.

use std::ops::Range;

use rusqlite::{Connection, OptionalExtension, Row};

use super::columns::{TableRow as _, read_digest, signed, table};
use super::head::RecordHead;
use super::leaf_path::{LeafPath, PartLevels, SealPath};
use super::merkle::{CompactRange, Subtree, leaf_hash};
use super::note::SignedNote;
use super::pages::NumberedTable;
use super::parts::{PART_LEVEL, PART_NUMBERS, numbers_of, part_of};
use super::rollup_row::late_parts;
use super::sequence::LostRange;
use politesse_decision::digest::Digest;

/// All heads, read by [`StoredSeal::read`].
pub(super) const SEALS: NumberedTable = NumberedTable {
    name: "seal",
    select: "SELECT * FROM seal",
    key: "size",
    number: "size",
};

const DECISION_LEAVES: &str = "SELECT seq, leaf FROM decision WHERE ? <= seq AND seq < ?";
const EVENT_LEAVES: &str = "SELECT seq, leaf FROM event WHERE ? <= seq AND seq < ?";

/// Leaves of the endings of a range of decisions.
const ENDING_LEAVES: &str = "SELECT seq, leaf FROM ending WHERE ? <= decision AND decision < ?";

const LATE_LEAVES: &str = "
SELECT e.seq, e.leaf FROM late_ending AS l JOIN ending AS e ON e.decision = l.decision
WHERE ? <= e.seq AND e.seq < ?";

const LOST_LEAVES: &str = "SELECT * FROM lost_range WHERE ? <= last AND first < ?";

table! {
    /// Signed head, as stored in the table.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct StoredSeal in "seal" {
        /// Number of entries; the key of the row.
        pub size: i64 = "size INTEGER PRIMARY KEY",
        /// Note with its signature.
        pub note: String = "note TEXT NOT NULL",
        /// Public key that the note was signed for.
        pub vkey: String = "vkey TEXT NOT NULL",
        /// Path of a head that ends inside a part whose entries were removed.
        pub(super) path: Option<Vec<u8>> = "path BLOB",
    }
}

impl StoredSeal {
    /// Parses the head from its note; `None` if the note is damaged or states
    /// another size.
    pub(super) fn head(&self) -> Option<RecordHead> {
        let note: SignedNote = self.note.parse().ok()?;
        let head: RecordHead = note.text().parse().ok()?;
        (signed(head.tree.size) == self.size).then_some(head)
    }
}

/// Leaves of the numbers of one part.
#[derive(Debug)]
pub(super) struct PartLeaves {
    numbers: Range<i64>,
    leaves: Vec<Option<Digest>>,
}

impl PartLeaves {
    /// Creates the leaves of a part, all unknown.
    pub(super) fn unknown(part: i64) -> Self {
        let numbers = numbers_of(part);
        let count = usize::try_from(numbers.end - numbers.start).unwrap_or_default();
        Self {
            numbers,
            leaves: vec![None; count],
        }
    }

    /// Returns the leaf of a number; `None` if the number is in another part or has
    /// no entry.
    pub(super) fn get(&self, number: i64) -> Option<Digest> {
        let place = usize::try_from(number.checked_sub(self.numbers.start)?).ok()?;
        self.leaves.get(place).copied().flatten()
    }

    /// Returns the leaf of each number in the part; `None` for numbers without an
    /// entry.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<Digest>> {
        self.leaves.iter().copied()
    }

    /// Sets the leaf of a number. Numbers of other parts are ignored.
    pub(super) fn set(&mut self, number: i64, leaf: Option<Digest>) {
        // The endings of a part's decisions may have numbers in later parts.
        if let Some(place) = number.checked_sub(self.numbers.start)
            && let Ok(place) = usize::try_from(place)
            && let Some(known) = self.leaves.get_mut(place)
        {
            *known = leaf;
        }
    }
}

/// Reader of the rows of the tree.
#[derive(Debug, Clone, Copy)]
pub struct TreeReader<'a> {
    connection: &'a Connection,
}

impl<'a> TreeReader<'a> {
    /// Creates a reader.
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self { connection }
    }

    /// Reads the root of a completed and sealed part.
    pub(super) fn subtree(&self, part: i64) -> rusqlite::Result<Option<Digest>> {
        let sql = "SELECT hash FROM subtree WHERE part = ?";
        let read = |row: &Row<'_>| {
            let hash = row.get_ref(0)?.as_blob().unwrap_or_default();
            Ok(read_digest(hash))
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement.query_row([part], read).optional()?.flatten())
    }

    /// Reads the path of an entry that remains where others were removed; `None` if
    /// it has none.
    pub(super) fn leaf_path(&self, number: i64) -> rusqlite::Result<Option<LeafPath>> {
        let sql = "SELECT path FROM leaf_path WHERE seq = ?";
        let read = |row: &Row<'_>| {
            let bytes = row.get_ref(0)?.as_blob().unwrap_or_default();
            Ok(LeafPath::parse(bytes))
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.query_row([number], read).optional()
    }

    /// Reads the path of the head of `size` entries; `None` if it has none or the
    /// path is damaged.
    pub(super) fn seal_path(&self, size: u64) -> rusqlite::Result<Option<SealPath>> {
        let path = self.seal(size)?.and_then(|seal| seal.path);
        Ok(path.and_then(|path| SealPath::parse(&path, signed(size))))
    }

    /// Writes the paths of the heads that end inside the parts of `numbers`. The
    /// connection is in a transaction.
    pub(super) fn write_seal_paths(&self, numbers: &Range<i64>) -> rusqlite::Result<()> {
        let sql = "SELECT size FROM seal WHERE ? <= size AND size < ? ORDER BY size";
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map([numbers.start, numbers.end], |row| row.get(0))?;
        let mut sizes: Vec<i64> = rows.collect::<rusqlite::Result<_>>()?;
        // A head at the end of a part needs no path.
        sizes.retain(|size| size % PART_NUMBERS != 0);
        let sql = "UPDATE seal SET path = ? WHERE size = ?";
        let mut update = self.connection.prepare_cached(sql)?;
        // The heads of one part are consecutive, so its leaves are read only once.
        for heads in sizes.chunk_by(|one, next| part_of(*one) == part_of(*next)) {
            let Some(first) = heads.first() else {
                continue;
            };
            let levels = PartLevels::new(self.part(part_of(*first))?.iter());
            for size in heads {
                // If an entry is missing, there is no path to the root.
                let path = levels.as_ref().map(|levels| levels.seal_path(*size));
                update.execute((path, *size))?;
            }
        }
        Ok(())
    }

    /// Looks for the root over `range` among the sibling hashes in the paths of
    /// remaining entries; `None` if it is not there.
    fn root_in_paths(&self, range: &Range<u64>) -> rusqlite::Result<Option<Digest>> {
        let size = range.end - range.start;
        let start = signed(range.start).saturating_add(1);
        let part = part_of(start);
        if !size.is_power_of_two() || PART_LEVEL <= size.trailing_zeros() {
            return Ok(None);
        }
        let sql = "SELECT seq, path FROM leaf_path WHERE ? <= seq AND seq < ?";
        let numbers = numbers_of(part);
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([numbers.start, numbers.end])?;
        while let Some(row) = rows.next()? {
            let path = LeafPath::parse(row.get_ref(1)?.as_blob().unwrap_or_default());
            let root = path.beside(row.get(0)?, size.trailing_zeros(), start);
            if root.is_some() {
                return Ok(root);
            }
        }
        Ok(None)
    }

    /// Reads the head of `size` entries, if there is one.
    pub(super) fn seal(&self, size: u64) -> rusqlite::Result<Option<StoredSeal>> {
        let sql = format!("{} WHERE size = ?", SEALS.select);
        let mut statement = self.connection.prepare_cached(&sql)?;
        statement
            .query_row([signed(size)], StoredSeal::read)
            .optional()
    }

    /// Reads the newest head, if there is one.
    ///
    /// # Errors
    ///
    /// Those of SQLite.
    pub fn newest_seal(&self) -> rusqlite::Result<Option<StoredSeal>> {
        let sql = format!("{} ORDER BY size DESC LIMIT 1", SEALS.select);
        let mut statement = self.connection.prepare_cached(&sql)?;
        statement.query_row([], StoredSeal::read).optional()
    }

    /// Reads the leaves of a part.
    pub(super) fn part(&self, part: i64) -> rusqlite::Result<PartLeaves> {
        let numbers = numbers_of(part);
        let mut leaves = PartLeaves::unknown(part);
        // One query per table: reading a whole part takes some milliseconds.
        for sql in [DECISION_LEAVES, ENDING_LEAVES, EVENT_LEAVES, LATE_LEAVES] {
            self.add_leaves(sql, &numbers, &mut leaves)?;
        }
        for earlier in late_parts(self.connection, part)? {
            self.add_leaves(ENDING_LEAVES, &numbers_of(earlier), &mut leaves)?;
        }
        let mut statement = self.connection.prepare_cached(LOST_LEAVES)?;
        let mut lost = statement.query([numbers.start, numbers.end])?;
        while let Some(row) = lost.next()? {
            let lost = LostRange::read(row)?;
            let own = lost.first.max(numbers.start)..numbers.end.min(lost.last.saturating_add(1));
            own.for_each(|number| leaves.set(number, Some(lost.digest)));
        }
        Ok(leaves)
    }

    fn add_leaves(
        &self,
        sql: &str,
        range: &Range<i64>,
        leaves: &mut PartLeaves,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([range.start, range.end])?;
        while let Some(row) = rows.next()? {
            let leaf = read_digest(row.get_ref(1)?.as_blob().unwrap_or_default());
            leaves.set(row.get(0)?, leaf);
        }
        Ok(())
    }

    /// Computes the roots over ranges of leaves, for a proof by `merkle`; leaf 0
    /// has number 1. `None` if a number in one of the ranges has no entry.
    pub(super) fn roots(&self, ranges: &[Range<u64>]) -> rusqlite::Result<Option<Vec<Digest>>> {
        let mut last_read = None;
        let mut roots = Vec::with_capacity(ranges.len());
        for range in ranges {
            match self.root(range, &mut last_read)? {
                Some(root) => roots.push(root),
                None => return Ok(None),
            }
        }
        Ok(Some(roots))
    }

    /// Computes the root over `range`. `last_read` caches the part that was read
    /// last, because the ranges of a proof are adjacent.
    fn root(
        &self,
        range: &Range<u64>,
        last_read: &mut Option<PartLeaves>,
    ) -> rusqlite::Result<Option<Digest>> {
        // Checked first, because the leaves of a part that is being removed may be
        // incomplete.
        if let Some(root) = self.root_in_paths(range)? {
            return Ok(Some(root));
        }
        let mut number = signed(range.start).saturating_add(1);
        let end = signed(range.end).saturating_add(1);
        let mut over = CompactRange::default();
        while number < end {
            let part = part_of(number);
            let numbers = numbers_of(part);
            if number == numbers.start
                && numbers.end <= end
                && let Some(root) = self.subtree(part)?
            {
                over.push_subtree(Subtree {
                    level: PART_LEVEL,
                    root,
                });
                number = numbers.end;
                continue;
            }
            let leaves = match last_read.take() {
                Some(leaves) if leaves.numbers == numbers => leaves,
                _ => self.part(part)?,
            };
            for number in number..end.min(numbers.end) {
                let Some(leaf) = leaves.get(number) else {
                    return Ok(None);
                };
                over.push(leaf_hash(leaf.as_bytes()));
            }
            number = end.min(numbers.end);
            *last_read = Some(leaves);
        }
        Ok(Some(over.root()))
    }
}
