//! Row of `pruned`: the number up to which entries were removed because they were
//! older than `audit.retention`.
//!
//! Entries are removed in whole parts (`parts`). A decision stays as long as its
//! ending is in a later part, so that the remaining record can be verified as
//! before. There may therefore be entries below the number (`remaining`).
//!
//! A signed note beside the row states the removal, with the root of the tree over
//! all numbers up to the end, and a digest of the numbers that remain. A removal by
//! anyone else has no such note. The roots of removed parts stay (`subtree`). Each
//! head that ends inside a part also keeps the hashes that lead from it to the end
//! of its part, so that earlier heads still prove the same as before.
//!
//! Does not know when entries are removed.

use std::ops::RangeInclusive;
use std::str::FromStr;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::columns::column;
use super::head::{InvalidHead, RecordHead};
use super::merkle::TreeHead;
use super::note::{NoteKey, SignedNote};
use super::parts::{numbers_of, part_of};
use politesse_decision::digest::Digest;

/// Finds the limits of a removal: the first part that must stay because it has a
/// decision that is too young (as far as parts are rolled up) or is not sealed; the
/// first event that is too young; and the last part that is rolled up.
const FIRST_KEPT: &str = "
SELECT min(coalesce((SELECT min(part) FROM rollup WHERE ?1 <= last_us), ?2),
           coalesce((SELECT max(part) + 1 FROM subtree), 0)),
       (SELECT min(seq) FROM event WHERE ?1 <= time_us),
       (SELECT coalesce(max(part), -1) FROM rollup)";

/// Finds the first entry after a number that the next roll-up will cover.
const FIRST_UNCOUNTED: &str = "
SELECT min(seq) FROM (
  SELECT min(seq) AS seq FROM decision WHERE ? < seq
  UNION ALL
  SELECT min(e.seq) FROM late_ending AS l JOIN ending AS e ON e.decision = l.decision)";

/// Finds the time of the youngest decision in a range of parts, and of the youngest
/// event in a range of numbers.
const YOUNGEST: &str = "
SELECT max(time_us) FROM (
  SELECT max(last_us) AS time_us FROM rollup WHERE ?1 <= part AND part <= ?2
  UNION ALL SELECT max(time_us) FROM event WHERE ?3 <= seq AND seq <= ?4)";

/// Maximum number of parts removed at a time, because their heads are prepared in
/// one transaction.
const PARTS_MAX: i64 = 16;

/// Suffix of the record's name in the first line of the note.
const ORIGIN: &str = "/pruned";

/// Prefix of the last line of the note.
const REMAINING: &str = "remaining ";

/// End of the removed entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PrunedEnd {
    /// Highest number removed; 0 if nothing was removed.
    pub(super) last: i64,
    /// Time of the decision to remove them.
    pub(super) time_us: i64,
    /// Whether the removal is complete.
    pub(super) is_removed: bool,
}

impl PrunedEnd {
    /// Reads the row.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let read = |row: &Row<'_>| {
            Ok(Self {
                last: row.get("last")?,
                time_us: row.get("time_us")?,
                is_removed: row.get("is_removed")?,
            })
        };
        let sql = "SELECT last, time_us, is_removed FROM pruned";
        let mut statement = connection.prepare_cached(sql)?;
        Ok(statement
            .query_row([], read)
            .optional()?
            .unwrap_or_default())
    }

    /// Returns the first number after the removed ones.
    pub(super) fn next(self) -> i64 {
        // The row may have been altered to any number.
        self.last.saturating_add(1)
    }

    /// Returns the last part whose entries were removed; -1 if none were.
    pub(super) fn part(self) -> i64 {
        part_of(self.next()) - 1
    }

    /// Writes the row, with its note.
    pub(super) fn write(self, connection: &Connection, seal: &PrunedSeal) -> rusqlite::Result<()> {
        let sql = "REPLACE INTO pruned (id, last, time_us, is_removed, note, vkey)
                   VALUES (1, ?, ?, ?, ?, ?)";
        let (note, vkey) = (&seal.note, &seal.vkey);
        connection
            .prepare_cached(sql)?
            .execute(params![
                self.last,
                self.time_us,
                self.is_removed,
                note,
                vkey
            ])
            .map(drop)
    }

    /// Returns the highest number of the parts in which all entries are older than
    /// `before`; `last` if there are no further ones. Unsealed parts stay.
    pub(super) fn due(self, connection: &Connection, before: Timestamp) -> rusqlite::Result<i64> {
        let bounds = params![before.as_microsecond(), i64::MAX];
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let (part, event, rolled_up): (i64, Option<i64>, i64) =
            connection.query_row(FIRST_KEPT, bounds, read)?;
        // The age of a part's decisions is known once the part is rolled up. A part
        // that ends with the newest entry is sealed before it is rolled up.
        let counted = numbers_of(rolled_up.max(self.part())).end - 1;
        let uncounted: Option<i64> =
            connection.query_row(FIRST_UNCOUNTED, [counted], |row| row.get(0))?;
        // Heartbeats continue while there are no requests, so they can be younger
        // than the decisions of their part.
        let entries = [event, uncounted].into_iter().flatten();
        let kept = entries.map(part_of).fold(part, i64::min);
        Ok(self.last.max(numbers_of(kept).start - 1))
    }

    /// Returns the time of the youngest entry that [`PrunedEnd::due`] includes.
    pub(super) fn youngest_due(
        self,
        connection: &Connection,
        before: Timestamp,
    ) -> rusqlite::Result<Option<Timestamp>> {
        let numbers = self.next()..=self.due(connection, before)?;
        match numbers.is_empty() {
            true => Ok(None),
            false => youngest(connection, numbers),
        }
    }

    /// Returns the end of the next step towards the removal of all entries up to
    /// `due`.
    pub(super) fn next_end(self, due: i64) -> i64 {
        let step = numbers_of(self.part() + 1 + PARTS_MAX).start - 1;
        due.min(step)
    }
}

/// Returns the time of the youngest among the entries `numbers`, which must cover
/// whole parts.
pub(super) fn youngest(
    connection: &Connection,
    numbers: RangeInclusive<i64>,
) -> rusqlite::Result<Option<Timestamp>> {
    let (first, last) = numbers.into_inner();
    let bounds = params![part_of(first), part_of(last), first, last];
    connection.query_row(YOUNGEST, bounds, |row| column(row, 0))
}

/// Signed note about a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PrunedSeal {
    pub(super) note: String,
    /// Public key that the note was signed for.
    pub(super) vkey: String,
}

impl PrunedSeal {
    /// Reads the note of the row, if there is one.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        let read = |row: &Row<'_>| {
            Ok(Self {
                note: row.get(0)?,
                vkey: row.get(1)?,
            })
        };
        let sql = "SELECT note, vkey FROM pruned";
        connection.query_row(sql, [], read).optional()
    }

    /// Returns the digest of the remaining numbers if the note is valid: it states
    /// the removal of the other numbers up to `tree.size` for the record that signs
    /// as `record`, and is signed by the key beside it, which `is_known` must
    /// accept.
    pub(super) fn remaining(
        &self,
        tree: &TreeHead,
        record: &str,
        is_known: impl FnOnce(&NoteKey) -> bool,
    ) -> Option<Digest> {
        let note: SignedNote = self.note.parse().ok()?;
        let statement: RemovalStatement = note.text().parse().ok()?;
        let key: NoteKey = self.vkey.parse().ok()?;
        // Anyone could have put their own key beside the note.
        let is_signed = is_known(&key) && note.verify(&key).is_ok();
        let is_right = statement.tree == *tree && statement.record == record;
        (is_signed && is_right).then_some(statement.remaining)
    }
}

/// Statement that entries of a record were removed; the signed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemovalStatement {
    /// Name under which the heads of the record are signed.
    pub(super) record: String,
    /// Number of entries up to the removal's end, and the root of the tree over
    /// them.
    pub(super) tree: TreeHead,
    /// Time of the removal.
    pub(super) time: Timestamp,
    /// Digest of the remaining numbers ([`remaining_numbers_digest`]).
    pub(super) remaining: Digest,
}

impl RemovalStatement {
    /// Returns the text that is signed.
    pub(super) fn text(&self) -> String {
        let head = RecordHead {
            origin: format!("{}{ORIGIN}", self.record),
            tree: self.tree,
            time: self.time,
            previous: None,
        };
        format!("{}{REMAINING}{}\n", head.text(), self.remaining)
    }
}

impl FromStr for RemovalStatement {
    type Err = InvalidHead;

    fn from_str(text: &str) -> Result<Self, InvalidHead> {
        let parse = || {
            let (head, last_line) = text.strip_suffix('\n')?.rsplit_once('\n')?;
            let head: RecordHead = format!("{head}\n").parse().ok()?;
            Some(Self {
                record: head.origin.strip_suffix(ORIGIN)?.to_owned(),
                tree: head.tree,
                time: head.time,
                remaining: last_line.strip_prefix(REMAINING)?.parse().ok()?,
            })
        };
        parse().ok_or(InvalidHead)
    }
}

/// Computes the digest of the remaining numbers, which must be in ascending order.
pub(super) fn remaining_numbers_digest(numbers: &[i64]) -> Digest {
    let bytes: Vec<u8> = numbers.iter().flat_map(|seq| seq.to_be_bytes()).collect();
    Digest::of(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::PART_NUMBERS;
    use crate::schema::open_in_memory;

    // Ours: a proxy without requests writes only heartbeats, which must also be
    // removed in time.
    #[test]
    fn a_part_without_decisions_is_removed_without_a_roll_up() {
        let connection = open_in_memory().unwrap();
        let due = |end: PrunedEnd| end.due(&connection, Timestamp::UNIX_EPOCH).unwrap();
        let sealed = "INSERT INTO subtree (part, hash) VALUES (?, x'00')";
        for part in 0..3 {
            connection.execute(sealed, [part]).unwrap();
        }
        assert_eq!(due(PrunedEnd::default()), 3 * PART_NUMBERS);
        let decide = "INSERT INTO decision (seq, time_us, client, crawler, method, origin, path,
                        ruling, wait_ms, policy, salt, leaf)
                      VALUES (?, 0, 0, 0, 0, 0, '', 0, 0, 0, x'', x'')";
        connection.execute(decide, [PART_NUMBERS + 1]).unwrap();
        assert_eq!(due(PrunedEnd::default()), PART_NUMBERS);
        // A decision of the removed parts stays until its ending may be removed.
        let removed = PrunedEnd {
            last: 2 * PART_NUMBERS,
            ..PrunedEnd::default()
        };
        assert_eq!(due(removed), 3 * PART_NUMBERS);
    }
}
