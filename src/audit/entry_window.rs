//! Window of entries: rows as they stand in the tables, in the order of their
//! numbers, for a copy of the record elsewhere.
//!
//! A window is read in one transaction, and lies within one part (`parts`), so that
//! its endings, which are not indexed by their numbers, are found. With it go the
//! dictionary values that its entries are the first to refer to, and what says of
//! numbers that they have no entry: `lost_range`, `pruned` with the paths of what
//! remains. Does not know what a row says, nor where the copy is.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::columns::is_digest;
use super::dictionary::{DICTIONARIES, SNAPSHOTS};
use super::entry_tables::{
    DECISION_ENTRIES, ENDING_ENTRIES, ENTRY_TABLES, EVENT_ENTRIES, LOST_ENTRIES, PATH_ENTRIES,
    RecordTable, SEAL_ENTRIES, SUBTREE_ENTRIES,
};
use super::error::AuditError;
use super::parts::{numbers_of, part_of};
use super::pruned::PrunedEnd;
use super::reader::AuditReader;
use super::record_id::SELECT_RECORD;
use super::redaction::redacted_ranges;
use super::rollup_row::late_parts;
use super::sequence::Sequence;
use crate::decision::digest::{CanonicalBytes, Digest};

/// Most entries of a window.
const ENTRIES_MAX: i64 = 4096;

/// Most bytes of the files that go with a window of several entries: with more of
/// them, fewer entries are taken.
const FILES_BYTES_MAX: i64 = 16 << 20;

/// Part of the entries that is tried instead.
const FEWER: i64 = 8;

/// Column of a snapshot with the digest of its file.
const SNAPSHOT_BODY: &str = "body";

/// Endings of decisions in a range of numbers, with the times of these.
const ENDINGS: &str = "
SELECT e.decision, e.seq, coalesce(d.time_us, 0), e.status, e.sent, e.directives, e.bytes,
       e.error, e.leaf
FROM ending AS e LEFT JOIN decision AS d ON d.seq = e.decision";

/// Numbers of dictionary values that a copy has already: its own, by dictionary and by
/// number in the record. Numbers of a record are never given again.
pub type KnownValues = HashMap<(&'static str, i64), i64>;

/// Position up to which a copy has a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyPosition {
    /// Number of the last entry.
    pub last: i64,
    /// Size of the last head; 0 without one.
    pub seal: i64,
    /// The last sealed part; -1 without one.
    pub part: i64,
}

/// Dictionary value that a copy does not have.
#[derive(Debug, Clone, PartialEq)]
pub struct NewValue {
    /// Number in the record.
    pub id: i64,
    /// Columns of its [`ValueTable`](super::entry_tables::ValueTable).
    pub columns: Vec<Value>,
}

/// File that a copy may not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFile {
    /// SHA-256 of the bytes.
    pub sha256: Vec<u8>,
    /// Bytes of the file.
    pub body: Vec<u8>,
}

/// Removal of old entries, as the record has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedEntries {
    /// Highest number up to which entries were removed.
    pub last: i64,
    /// Time at which that was decided.
    pub time_us: i64,
    /// Signed note about it.
    pub note: String,
    /// The public key that it was signed for.
    pub vkey: String,
}

/// Rows of a window, by table.
#[derive(Debug, Default)]
pub struct EntryWindow {
    /// Number of the last entry of the window: with it, all up to there are known.
    pub last: i64,
    /// Number of the last entry of the record at that moment.
    pub record_last: i64,
    /// Time of the newest entry of the window; `None` if it has none.
    pub newest_us: Option<i64>,
    /// Rows by the name of their [`RecordTable`], in the order of its columns.
    pub rows: BTreeMap<&'static str, Vec<Vec<Value>>>,
    /// Values by the name of their dictionary.
    pub values: BTreeMap<&'static str, Vec<NewValue>>,
    /// Files of snapshots among the values.
    pub files: Vec<NewFile>,
    /// Removal of entries that the copy does not have.
    pub removed: Option<RemovedEntries>,
    /// Ranges of decisions that an event of the window redacted.
    pub redacted: Vec<[i64; 2]>,
    /// A value that entries of the window refer to, and that is not as it was written.
    pub unsound: Option<UnsoundValue>,
}

/// Dictionary value that is gone, or was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsoundValue {
    /// Name of the dictionary.
    pub dictionary: &'static str,
    /// Number of the value.
    pub id: i64,
}

impl EntryWindow {
    /// Returns the position of a copy that had `before`, with this window.
    pub fn position_behind(&self, before: CopyPosition) -> CopyPosition {
        let newest = |table: &RecordTable| {
            let row = self.rows.get(table.name)?.last()?;
            row.first().and_then(integer)
        };
        CopyPosition {
            last: self.last,
            seal: newest(&SEAL_ENTRIES).unwrap_or(before.seal),
            part: newest(&SUBTREE_ENTRIES).unwrap_or(before.part),
        }
    }

    /// Reports whether there is nothing that the copy does not have.
    pub fn is_empty(&self, position: CopyPosition) -> bool {
        self.position_behind(position) == position
    }
}

/// Description of a record, as a copy names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordDescription {
    /// Id of the record.
    pub id: String,
    /// Time at which it was begun.
    pub begun_us: i64,
    /// Id of the record before, and its last number.
    pub before: Option<String>,
    /// Last number of the record before.
    pub before_last: Option<i64>,
    /// Digest of the row.
    pub digest: Vec<u8>,
}

impl AuditReader {
    /// Reads the description of the record; `None` before its first entry.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn description(&self) -> Result<Option<RecordDescription>, AuditError> {
        let read = |row: &Row<'_>| {
            Ok(RecordDescription {
                id: row.get("id")?,
                begun_us: row.get("begun_us")?,
                before: row.get("before")?,
                before_last: row.get("before_last")?,
                digest: row.get("digest")?,
            })
        };
        let found = self.connection.query_row(SELECT_RECORD, [], read);
        Ok(found.optional()?)
    }

    /// Reads the number of the last entry.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn last_number(&self) -> Result<i64, AuditError> {
        Ok(Sequence::read(&self.connection)?.unwrap_or_default().last)
    }

    /// Reads the entries behind `position`, with the values that are not in `known`.
    /// The window is empty if there is nothing new.
    ///
    /// # Errors
    ///
    /// [`AuditError::Read`].
    pub fn window(
        &self,
        position: CopyPosition,
        known: &KnownValues,
    ) -> Result<EntryWindow, AuditError> {
        let transaction = self.connection.unchecked_transaction()?;
        let window = WindowReader::new(&transaction, position)?.read(known)?;
        // Nothing was written: this ends the read.
        transaction.finish()?;
        Ok(window)
    }
}

/// Reader of one window, in a transaction.
struct WindowReader<'a> {
    connection: &'a Connection,
    position: CopyPosition,
    window: EntryWindow,
}

impl<'a> WindowReader<'a> {
    fn new(connection: &'a Connection, position: CopyPosition) -> rusqlite::Result<Self> {
        let record_last = Sequence::read(connection)?.unwrap_or_default().last;
        let window = EntryWindow {
            last: position.last,
            record_last,
            ..EntryWindow::default()
        };
        Ok(Self {
            connection,
            position,
            window,
        })
    }

    fn read(mut self, known: &KnownValues) -> rusqlite::Result<EntryWindow> {
        let first = self.first()?;
        let mut most = ENTRIES_MAX;
        while first <= self.window.record_last {
            let end = numbers_of(part_of(first)).end.min(first + most);
            let last = (end - 1).min(self.window.record_last);
            self.window.last = last;
            self.read_entries(first, last)?;
            self.read_values(known)?;
            if self.file_bytes()? <= FILES_BYTES_MAX || last == first {
                self.read_files()?;
                break;
            }
            self.window.rows.clear();
            self.window.values.clear();
            self.window.redacted.clear();
            most = (last - first + 1) / FEWER;
        }
        self.read_seals()?;
        Ok(self.window)
    }

    /// Finds the first number behind the position that may have an entry, and takes in
    /// what was removed before the copy had it.
    fn first(&mut self) -> rusqlite::Result<i64> {
        let next = self.position.last + 1;
        let pruned = PrunedEnd::read(self.connection)?;
        if pruned.last < next {
            return Ok(next);
        }
        let sql = "SELECT time_us, note, vkey FROM pruned";
        self.window.removed = self
            .connection
            .query_row(sql, [], |row| {
                Ok(RemovedEntries {
                    last: pruned.last,
                    time_us: row.get(0)?,
                    note: row.get(1)?,
                    vkey: row.get(2)?,
                })
            })
            .optional()?;
        let sql = "SELECT min(seq) FROM leaf_path WHERE ? <= seq";
        let remaining: Option<i64> = self.connection.query_row(sql, [next], |row| row.get(0))?;
        let first = remaining.unwrap_or(i64::MAX).min(pruned.next());
        // Where nothing new was written, the end of the removal is the end of the copy.
        self.window.last = first - 1;
        Ok(first)
    }

    fn read_entries(&mut self, first: i64, last: i64) -> rusqlite::Result<()> {
        // By the key of each table: no window reads more than its rows.
        let by_number = "WHERE ?1 <= seq AND seq <= ?2 ORDER BY seq";
        let decisions = select(&DECISION_ENTRIES, by_number);
        self.add(&DECISION_ENTRIES, &decisions, params![first, last])?;
        self.add(
            &EVENT_ENTRIES,
            &select(&EVENT_ENTRIES, by_number),
            params![first, last],
        )?;
        self.add(
            &PATH_ENTRIES,
            &select(&PATH_ENTRIES, by_number),
            params![first, last],
        )?;
        // Also one that began before: the copy may have had entries that the record has
        // lost since (a backup in its place, a power failure).
        let by_first = "WHERE ?1 <= last AND first <= ?2 ORDER BY first";
        self.add(
            &LOST_ENTRIES,
            &select(&LOST_ENTRIES, by_first),
            params![first, last],
        )?;
        self.read_endings(first, last)?;
        self.read_redactions(first, last)?;
        let times = |name: &str| {
            let rows = self.window.rows.get(name).into_iter().flatten();
            rows.filter_map(|row| match row.get(1) {
                Some(Value::Integer(time_us)) => Some(*time_us),
                _ => None,
            })
        };
        let newest = times(DECISION_ENTRIES.name)
            .chain(times(EVENT_ENTRIES.name))
            .max();
        self.window.newest_us = newest;
        Ok(())
    }

    /// Reads the endings with a number in the window: those of decisions of its part, of
    /// earlier ones that are named as late, and of parts that its roll-up names.
    fn read_endings(&mut self, first: i64, last: i64) -> rusqlite::Result<()> {
        let part = part_of(first);
        let of_decisions = format!(
            "{ENDINGS} WHERE ?3 <= e.decision AND e.decision <= ?4
             AND ?1 <= e.seq AND e.seq <= ?2 ORDER BY e.seq"
        );
        let late = format!(
            "{ENDINGS} JOIN late_ending AS l ON l.decision = e.decision
             WHERE e.decision < ?3 AND ?1 <= e.seq AND e.seq <= ?2 ORDER BY e.seq"
        );
        let start = numbers_of(part).start;
        self.add(
            &ENDING_ENTRIES,
            &of_decisions,
            params![first, last, start, last],
        )?;
        self.add(&ENDING_ENTRIES, &late, params![first, last, start])?;
        let named: BTreeSet<i64> = self
            .window
            .rows
            .get(ENDING_ENTRIES.name)
            .into_iter()
            .flatten()
            .filter_map(|row| integer(&row[0]))
            .collect();
        for earlier in late_parts(self.connection, part)? {
            let numbers = numbers_of(earlier);
            let mut statement = self.connection.prepare_cached(&of_decisions)?;
            let bounds = params![first, last, numbers.start, numbers.end - 1];
            let columns = ENDING_ENTRIES.columns.len();
            let rows = statement.query_map(bounds, |row| values_of(row, columns))?;
            for row in rows {
                let row = row?;
                // A part that is closed names what `late_ending` may still have.
                if integer(&row[0]).is_none_or(|decision| !named.contains(&decision)) {
                    self.window
                        .rows
                        .entry(ENDING_ENTRIES.name)
                        .or_default()
                        .push(row);
                }
            }
        }
        Ok(())
    }

    fn read_redactions(&mut self, first: i64, last: i64) -> rusqlite::Result<()> {
        let sql = "SELECT detail FROM event
                   WHERE ?1 <= seq AND seq <= ?2 AND host = '' AND kind = 'redacted'";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([first, last])?;
        while let Some(row) = rows.next()? {
            self.window.redacted.extend(redacted_ranges(row, 0)?);
        }
        Ok(())
    }

    /// Reads heads and parts that the copy does not have, and whose entries it has with
    /// this window.
    fn read_seals(&mut self) -> rusqlite::Result<()> {
        let (last, before) = (self.window.last, self.position);
        let seals = select(
            &SEAL_ENTRIES,
            "WHERE ?1 < size AND size <= ?2 ORDER BY size LIMIT 256",
        );
        self.add(&SEAL_ENTRIES, &seals, params![before.seal, last])?;
        let subtrees = select(
            &SUBTREE_ENTRIES,
            "WHERE ?1 < part AND part < ?2 ORDER BY part LIMIT 256",
        );
        self.add(
            &SUBTREE_ENTRIES,
            &subtrees,
            params![before.part, part_of(last + 1)],
        )
    }

    fn add(
        &mut self,
        table: &RecordTable,
        sql: &str,
        bounds: &[&dyn rusqlite::ToSql],
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let columns = table.columns.len();
        let found = statement.query_map(bounds, |row| values_of(row, columns))?;
        let rows = self.window.rows.entry(table.name).or_default();
        for row in found {
            rows.push(row?);
        }
        Ok(())
    }

    fn read_values(&mut self, known: &KnownValues) -> rusqlite::Result<()> {
        let mut wanted: BTreeMap<&'static str, BTreeSet<i64>> = BTreeMap::new();
        for table in ENTRY_TABLES {
            let rows = self.window.rows.get(table.name).into_iter().flatten();
            for (value, column) in rows.flat_map(|row| row.iter().zip(table.columns)) {
                if let (Some(dictionary), Some(id)) = (column.dictionary, integer(value))
                    && id != 0
                    && !known.contains_key(&(dictionary, id))
                {
                    wanted.entry(dictionary).or_default().insert(id);
                }
            }
        }
        for table in DICTIONARIES {
            let ids = wanted.remove(table.name).unwrap_or_default();
            let mut statement = self
                .connection
                .prepare_cached(&format!("{} WHERE id = ?", table.select))?;
            let mut bytes = CanonicalBytes::default();
            for id in ids {
                let read = |row: &Row<'_>| {
                    let own = table.digest(row, &mut bytes)?;
                    let is_own = is_digest(row.get_ref(table.width())?, own);
                    Ok((is_own, values_of(row, table.names.len())?))
                };
                // A copy shares values by their digests: one that is not as it was
                // written would stand there for those of other records.
                match statement.query_row([id], read).optional()? {
                    Some((true, columns)) => {
                        let values = self.window.values.entry(table.name).or_default();
                        values.push(NewValue { id, columns });
                    }
                    Some(_) | None => {
                        self.window.unsound = Some(UnsoundValue {
                            dictionary: table.name,
                            id,
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the digests of the files of new snapshots.
    fn file_digests(&self) -> BTreeSet<Vec<u8>> {
        let place = SNAPSHOTS
            .names
            .iter()
            .position(|name| *name == SNAPSHOT_BODY);
        let snapshots = self.window.values.get(SNAPSHOTS.name).into_iter().flatten();
        snapshots
            .filter_map(|value| match value.columns.get(place?) {
                Some(Value::Blob(digest)) => Some(digest.clone()),
                _ => None,
            })
            .collect()
    }

    fn file_bytes(&self) -> rusqlite::Result<i64> {
        // The length alone is read without the file.
        let sql = "SELECT length(body) FROM body WHERE sha256 = ?";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut bytes = 0;
        for sha256 in self.file_digests() {
            let length: Option<i64> = statement.query_row([sha256], |row| row.get(0)).optional()?;
            bytes += length.unwrap_or_default();
        }
        Ok(bytes)
    }

    fn read_files(&mut self) -> rusqlite::Result<()> {
        let digests = self.file_digests();
        let mut statement = self
            .connection
            .prepare_cached("SELECT body FROM body WHERE sha256 = ?")?;
        for sha256 in digests {
            let body = statement
                .query_row([&sha256], |row| row.get(0))
                .optional()?;
            let is_own = |body: &Vec<u8>| Digest::of(body).as_bytes().as_slice() == sha256;
            // One that was changed is missing in the copy: `verify` finds that.
            let body: Option<Vec<u8>> = body.filter(is_own);
            self.window
                .files
                .extend(body.map(|body| NewFile { sha256, body }));
        }
        Ok(())
    }
}

fn select(table: &RecordTable, rest: &str) -> String {
    let names: Vec<_> = table.columns.iter().map(|column| column.name).collect();
    format!("SELECT {} FROM {} {rest}", names.join(", "), table.name)
}

fn values_of(row: &Row<'_>, columns: usize) -> rusqlite::Result<Vec<Value>> {
    (0..columns).map(|column| row.get(column)).collect()
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        Value::Null | Value::Real(_) | Value::Text(_) | Value::Blob(_) => None,
    }
}
