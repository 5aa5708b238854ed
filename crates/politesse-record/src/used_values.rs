//! Dictionary rows that entries refer to, found by reading all entries in steps.
//!
//! References are not indexed, because an index would be written with each request.
//! Entries written in the meantime come after those already read, and decisions
//! read without an ending are read again. At the end of the table, everything has
//! therefore been seen.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension, params};

use super::dictionary::DICTIONARIES;
use super::entry_rows::{DECISIONS, DecisionEntry};
use super::events::ProcessEventKind;

/// Number of dictionary rows examined in one step.
const STEP_ROWS: i64 = 256;

/// Values in use by the entries read so far.
#[derive(Debug, Default)]
pub(super) struct UsedValues {
    used: HashMap<&'static str, HashSet<i64>>,
    /// Number of the last decision read.
    last: i64,
    /// Decisions of this process that had no ending when they were read. Those of
    /// earlier processes will never get one.
    open: Vec<i64>,
    /// Number of the event that marks the start of this process.
    started: i64,
    /// Dictionary, and the row in it, up to which unused rows were removed.
    table: usize,
    row: i64,
}

impl UsedValues {
    /// Starts before the first decision.
    pub(super) fn new(connection: &Connection) -> rusqlite::Result<Self> {
        let sql = "SELECT coalesce(max(seq), 0) FROM event WHERE kind = ?";
        let kind = ProcessEventKind::Started.as_str();
        Ok(Self {
            started: connection.query_row(sql, [kind], |row| row.get(0))?,
            ..Self::default()
        })
    }

    /// Reads at most `most` decisions with their endings. Returns whether all have
    /// been read.
    pub(super) fn read(&mut self, connection: &Connection, most: i64) -> rusqlite::Result<bool> {
        let sql = format!(
            "{} WHERE ? < d.seq ORDER BY d.seq LIMIT ?",
            DECISIONS.select
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![self.last, most])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += 1;
            let entry = DecisionEntry::read(row)?;
            self.last = entry.decision.seq;
            if entry.ending.is_none() && self.started < self.last {
                self.open.push(self.last);
            }
            self.add(entry);
        }
        Ok(count < most)
    }

    /// Reads the endings written since their decisions were read.
    fn read_late_endings(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = format!("{} WHERE d.seq = ?", DECISIONS.select);
        let mut statement = connection.prepare_cached(&sql)?;
        for decision in std::mem::take(&mut self.open) {
            let found = statement.query_row([decision], DecisionEntry::read);
            match found.optional()? {
                Some(entry) if entry.ending.is_some() => self.add(entry),
                _ => self.open.push(decision),
            }
        }
        Ok(())
    }

    fn add(&mut self, mut entry: DecisionEntry) {
        for (id, table) in entry.references() {
            self.used.entry(table.name).or_default().insert(*id);
        }
    }

    /// Removes the unused rows among the next rows of a dictionary. Returns their
    /// number; `None` once all rows have been examined. `connection` is in a
    /// transaction.
    pub(super) fn remove_unused(
        &mut self,
        connection: &Connection,
    ) -> rusqlite::Result<Option<usize>> {
        // In the same transaction, because entries written since the last step may
        // be the only ones that refer to a value.
        while !self.read(connection, i64::MAX)? {}
        self.read_late_endings(connection)?;
        let Some(name) = DICTIONARIES.get(self.table).map(|table| table.name) else {
            return Ok(None);
        };
        let used = self.used.entry(name).or_default();
        let sql = format!("SELECT id FROM {name} WHERE ? < id ORDER BY id LIMIT ?");
        let mut statement = connection.prepare_cached(&sql)?;
        let rows = statement.query_map(params![self.row, STEP_ROWS], |row| row.get(0))?;
        // Read before the first delete, because the query reads the same table.
        let ids: Vec<i64> = rows.collect::<rusqlite::Result<_>>()?;
        let mut delete = connection.prepare_cached(&format!("DELETE FROM {name} WHERE id = ?"))?;
        let mut removed = 0;
        for id in ids.iter().filter(|id| !used.contains(id)) {
            removed += delete.execute([id])?;
        }
        match ids.last() {
            Some(last) => self.row = *last,
            None => (self.table, self.row) = (self.table + 1, 0),
        }
        Ok(Some(removed))
    }
}

/// Robots.txt files in use by the snapshots read so far.
#[derive(Debug, Default)]
pub(super) struct UsedBodies {
    /// First bytes of their SHA-256. If an unused file shares them with a used one
    /// it stays, which does no harm, and a million digests take a quarter of the
    /// memory.
    used: HashSet<[u8; 8]>,
    /// Id of the last snapshot read.
    last: i64,
    /// SHA-256 up to which unused robots.txt files were removed.
    looked_at: Vec<u8>,
}

impl UsedBodies {
    /// Reads at most `most` snapshots. Returns whether all have been read.
    pub(super) fn read(&mut self, connection: &Connection, most: i64) -> rusqlite::Result<bool> {
        let sql = "SELECT id, body FROM snapshot WHERE ? < id ORDER BY id LIMIT ?";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![self.last, most])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += 1;
            self.last = row.get(0)?;
            let body = row.get_ref(1)?.as_blob_or_null()?;
            self.used.extend(body.map(first_bytes));
        }
        Ok(count < most)
    }

    /// Removes files among the next `most` robots.txt files that no snapshot,
    /// recorded or saved, refers to. Returns their number; `None` once all files
    /// have been examined. `connection` is in a transaction.
    pub(super) fn remove_unused(
        &mut self,
        connection: &Connection,
        most: i64,
    ) -> rusqlite::Result<Option<usize>> {
        // In the same transaction: entries since the last step may use a file.
        while !self.read(connection, i64::MAX)? {}
        // Reads only the index: a scan of the bodies would read the whole file.
        let sql = "SELECT sha256 FROM body WHERE ? < sha256 ORDER BY sha256 LIMIT ?";
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map(params![self.looked_at, most], |row| row.get(0))?;
        let next: Vec<Vec<u8>> = rows.collect::<rusqlite::Result<_>>()?;
        let Some(last) = next.last().cloned() else {
            return Ok(None);
        };
        let mut unused = next;
        unused.retain(|sha256| !self.used.contains(&first_bytes(sha256)));
        if !unused.is_empty() {
            let saved = saved_bodies(connection)?;
            unused.retain(|sha256| !saved.contains(&first_bytes(sha256)));
        }
        let mut delete = connection.prepare_cached("DELETE FROM body WHERE sha256 = ?")?;
        let mut removed = 0;
        for sha256 in &unused {
            removed += delete.execute([sha256])?;
        }
        self.looked_at = last;
        Ok(Some(removed))
    }
}

fn saved_bodies(connection: &Connection) -> rusqlite::Result<HashSet<[u8; 8]>> {
    let sql = "SELECT body FROM kept WHERE body IS NOT NULL";
    let mut statement = connection.prepare_cached(sql)?;
    let bodies = statement.query_map([], |row| Ok(first_bytes(row.get_ref(0)?.as_blob()?)))?;
    bodies.collect()
}

fn first_bytes(sha256: &[u8]) -> [u8; 8] {
    sha256.first_chunk().copied().unwrap_or_default()
}
