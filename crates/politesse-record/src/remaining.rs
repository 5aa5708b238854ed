//! Entries that remain below the end of a removal: decisions whose exchange ended
//! later, or has not ended, and the events which state that some of them were
//! redacted.
//!
//! The other leaves of their parts are removed, so the table `leaf_path` stores the
//! hashes that lead from each remaining entry to the root of its part
//! (`leaf_path`). The remaining entries are determined once, before the end is
//! noted, and signed with it (`pruned`). Entries without a path are removed, and
//! until then are not evidence.
//!
//! Does not know how entries are removed, or what they say.

use std::collections::BTreeSet;
use std::ops::Range;

use rusqlite::{Connection, params, params_from_iter};
use serde_json::json;

use super::columns::count;
use super::leaf::LeafRun;
use super::leaf_path::{LeafPath, PartLevels};
use super::parts::part_of;
use super::pruned::{PrunedEnd, remaining_numbers_digest};
use super::redaction::redacting_events;
use super::tree_rows::TreeReader;
use politesse_decision::digest::Digest;

/// Finds decisions up to a number whose exchange ended after it. Starts from the
/// endings, which are stored in the order of their decisions, so that each row is
/// read once.
const ENDED_LATER: &str = "
SELECT d.seq FROM ending AS e CROSS JOIN decision AS d ON d.seq = e.decision
WHERE e.decision <= ?1 AND ?1 < e.seq";

/// Finds decisions of this process, up to a number, whose exchange has not ended.
const NOT_ENDED: &str = "
SELECT d.seq FROM decision AS d WHERE ?2 < d.seq AND d.seq <= ?1
  AND NOT EXISTS (SELECT 1 FROM ending AS e WHERE e.decision = d.seq)";

/// Finds paths without an entry, and the end of the removal. One statement, because
/// a proxy may be removing entries at the same time.
const WITHOUT_ENTRY: &str = "
SELECT l.seq, coalesce((SELECT last FROM pruned), 0) FROM leaf_path AS l
WHERE coalesce((SELECT last FROM pruned), 0) < l.seq
   OR NOT EXISTS (SELECT 1 FROM decision AS d WHERE d.seq = l.seq)
  AND NOT EXISTS (SELECT 1 FROM event AS e WHERE e.seq = l.seq)
ORDER BY l.seq";

/// Entries that remain when the others up to a number are removed.
#[derive(Debug)]
pub(super) struct RemainingEntries {
    /// Numbers of the entries, in ascending order.
    numbers: Vec<i64>,
    /// Paths of the entries that the table does not have yet.
    paths: Vec<(i64, LeafPath)>,
}

impl RemainingEntries {
    /// Determines the entries that remain when the numbers `removed` are removed.
    /// `removed` must cover whole parts, and all numbers before it must be gone
    /// already. `begun_after` is the highest number of earlier processes, whose
    /// exchanges are over.
    pub(super) fn find(
        connection: &Connection,
        removed: &Range<i64>,
        begun_after: i64,
    ) -> rusqlite::Result<Self> {
        let last = removed.end - 1;
        let mut wanted: BTreeSet<i64> = BTreeSet::new();
        for (sql, values) in [
            (ENDED_LATER, &[last][..]),
            (NOT_ENDED, &[last, begun_after]),
        ] {
            let mut statement = connection.prepare_cached(sql)?;
            for number in statement.query_map(params_from_iter(values), |row| row.get(0))? {
                wanted.insert(number?);
            }
        }
        let events = redacting_events(connection, last, &wanted)?;
        wanted.extend(events);
        // An entry that someone added below the end has no path, and must not get
        // one.
        let known: BTreeSet<i64> = numbers_in_table(connection)?.into_iter().collect();
        let remains = |number: &i64| removed.contains(number) || known.contains(number);
        let numbers: Vec<i64> = wanted.into_iter().filter(remains).collect();
        let added: Vec<i64> = numbers
            .iter()
            .copied()
            .filter(|number| removed.contains(number))
            .collect();
        Ok(Self {
            paths: paths_of(connection, &added)?,
            numbers,
        })
    }

    /// Computes the digest of the numbers, which is signed.
    pub(super) fn digest(&self) -> Digest {
        remaining_numbers_digest(&self.numbers)
    }

    /// Writes the paths, and deletes those of entries that no longer remain.
    /// `connection` is in a transaction.
    pub(super) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = "DELETE FROM leaf_path WHERE seq NOT IN (SELECT value FROM json_each(?))";
        connection.execute(sql, [json!(self.numbers).to_string()])?;
        let sql = "REPLACE INTO leaf_path (seq, path) VALUES (?, ?)";
        let mut statement = connection.prepare_cached(sql)?;
        for (number, path) in &self.paths {
            statement.insert(params![number, path.to_bytes()])?;
        }
        Ok(())
    }
}

/// Computes the paths of entries, whose numbers are in ascending order.
fn paths_of(connection: &Connection, numbers: &[i64]) -> rusqlite::Result<Vec<(i64, LeafPath)>> {
    let mut paths = Vec::with_capacity(numbers.len());
    // One tree is built for each part, because it takes 16,384 hashes.
    for entries in numbers.chunk_by(|one, next| part_of(*one) == part_of(*next)) {
        let Some(part) = entries.first().copied().map(part_of) else {
            continue;
        };
        let leaves = TreeReader::new(connection).part(part)?;
        let levels = PartLevels::new(leaves.iter());
        // If a leaf of the part is missing, no path leads to the root. An empty
        // path lets `verify` find that.
        let path = |number: &i64| levels.as_ref().map(|levels| levels.path(*number));
        paths.extend(
            entries
                .iter()
                .map(|number| (*number, path(number).unwrap_or_default())),
        );
    }
    Ok(paths)
}

fn numbers_in_table(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    let mut statement = connection.prepare_cached("SELECT seq FROM leaf_path ORDER BY seq")?;
    let numbers = statement.query_map([], |row| row.get(0))?;
    numbers.collect()
}

/// Computes the digest of the numbers that have a path in the table.
pub(super) fn remaining_digest(connection: &Connection) -> rusqlite::Result<Digest> {
    Ok(remaining_numbers_digest(&numbers_in_table(connection)?))
}

/// State of an entry with respect to removals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemainingState {
    /// The entry is after the end, or its path leads to the root of its part.
    Sound,
    /// The entry remains, but its path does not lead to the root of its part.
    Unproved,
    /// The entry is being removed, and is no longer evidence.
    BeingRemoved,
}

/// Path that no remaining entry has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StrayPath {
    /// The entry does not exist.
    Missing(i64),
    /// The entry is after the end, so it needs no path.
    Behind(i64),
}

/// Check of entries below the end of a removal.
#[derive(Debug)]
pub(super) struct RemainingCheck<'a> {
    connection: &'a Connection,
    pruned: PrunedEnd,
}

impl<'a> RemainingCheck<'a> {
    /// Creates a check of the entries up to `pruned`.
    pub(super) fn new(connection: &'a Connection, pruned: PrunedEnd) -> Self {
        Self { connection, pruned }
    }

    /// Returns the state of an entry, whose ending is given if it has one.
    pub(super) fn state(
        &self,
        entry: &LeafRun,
        ending: Option<&LeafRun>,
    ) -> rusqlite::Result<RemainingState> {
        let (number, last) = (entry.first, self.pruned.last);
        if last < number {
            return Ok(RemainingState::Sound);
        }
        let rows = TreeReader::new(self.connection);
        let Some(path) = rows.leaf_path(number)? else {
            let ends_later = ending.is_some_and(|ending| last < ending.first);
            return Ok(if self.pruned.is_removed || ends_later {
                RemainingState::Unproved
            } else {
                RemainingState::BeingRemoved
            });
        };
        let root = rows.subtree(part_of(number))?;
        let leads = root.is_some_and(|root| path.leads(number, entry.leaf, root));
        Ok(match leads {
            true => RemainingState::Sound,
            false => RemainingState::Unproved,
        })
    }

    /// Returns the paths without an entry, or of an entry that was not removed.
    pub(super) fn stray_paths(&self) -> rusqlite::Result<Vec<StrayPath>> {
        let mut statement = self.connection.prepare_cached(WITHOUT_ENTRY)?;
        let rows = statement.query_map([], |row| {
            let (number, last): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok(match number <= last {
                true => StrayPath::Missing(number),
                false => StrayPath::Behind(number),
            })
        })?;
        rows.collect()
    }

    /// Returns the highest number removed.
    pub(super) fn pruned_until(&self) -> u64 {
        count(self.pruned.last)
    }
}
