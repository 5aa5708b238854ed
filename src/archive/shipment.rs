//! Shipment of one window of entries: one transaction of the archive.
//!
//! The row of the node is locked first, and has the number up to which all has arrived.
//! Whoever finds another number than it expected has been overtaken and writes nothing;
//! a transaction that broke has written nothing. So each entry is there once.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::types::Value;
use tokio::time::timeout;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Transaction};

use super::columns::{Cell, ColumnTypes, entry_columns, in_common_order};
use super::failure::ArchiveFailure;
use super::month::Month;
use super::redaction;
use super::shipped_node::{ShippedNode, WindowArrival};
use crate::audit::entry_tables::{
    DECISION_ENTRIES, ENDING_ENTRIES, ENTRY_TABLES, LOST_ENTRIES, RecordTable, SUBTREE_ENTRIES,
    ValueTable, value_tables,
};
use crate::audit::entry_window::{EntryWindow, KnownValues, NewFile, NewValue, RemovedEntries};
use crate::audit::parts::part_of;

/// Lock under which partitions are made.
const PARTITION_LOCK: i64 = 0x706f_6c69_7466;

/// Position of the time among the columns of decisions.
const DECISION_TIME: usize = 1;

/// Position of the time of the decision among the columns of endings.
const ENDING_TIME: usize = 2;

const LOCK_NODE: &str = "SELECT last FROM node WHERE log = $1 FOR UPDATE";

const USE_VALUES: &str = "SELECT removals FROM archive FOR SHARE";

/// Has other shipments wait: values that they use may go.
const REMOVE_VALUES: &str = "SELECT removals FROM archive FOR UPDATE";

const MOVE_NODE: &str = "
UPDATE node SET last = $2, last_us = greatest(last_us, $3), shipped_at = now() WHERE log = $1";

/// Each window of what remains of removed entries tells of the removal.
const NOTE_REMOVED: &str = "
INSERT INTO removal (log, last, time_us, note, vkey) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (log, last) DO NOTHING";

/// Ranges that one from $2 to $3 covers.
const FORGET_LOST: &str = "
DELETE FROM lost_range WHERE log = $1 AND $2 <= first AND last <= $3 AND (first, last) <> ($2, $3)";

const REMOVED_UP_TO: &str = "SELECT coalesce(max(last), 0) FROM removal WHERE log = $1";

/// Roots of parts that are not as they were, since entries in them are lost.
const FORGET_ROOTS: &str = "DELETE FROM subtree WHERE log = $1 AND $2 <= part";

/// Times the limit of a shipment that its redactions may take: to find that nothing else
/// refers to a client or an origin, all decisions are read.
const REDACTION_TIMES: u32 = 120;

/// Ships a window that was read behind the position of `node`. Its entries may take `limit`
/// to write, and its redactions more.
///
/// # Errors
///
/// [`ArchiveFailure`]; nothing was shipped then, or all of it, and the connection is to be
/// made anew.
pub(super) async fn ship(
    client: &mut Client,
    node: &mut ShippedNode,
    window: EntryWindow,
    limit: Duration,
) -> Result<(), ArchiveFailure> {
    // A future that is dropped in here drops the connection, which rolls back.
    let mut shipment = Shipment {
        transaction: timeout(limit, client.transaction()).await??,
        log: node.log,
        types: Arc::clone(&node.types),
        ids: BTreeMap::new(),
    };
    let mut arrival = timeout(limit, shipment.write(node, &window)).await??;
    let redacting = redaction::apply(&shipment.transaction, node.log, &window.redacted);
    let longest = limit.saturating_mul(REDACTION_TIMES);
    arrival.is_redacted = timeout(longest, redacting).await??;
    arrival.values = mem::take(&mut shipment.ids);
    timeout(limit, shipment.commit(&window)).await??;
    node.note_arrival(arrival);
    Ok(())
}

/// Transaction in which a window is written.
struct Shipment<'a> {
    transaction: Transaction<'a>,
    log: i32,
    types: Arc<ColumnTypes>,
    /// Numbers of the values that came with the window, by dictionary and by number in
    /// the record.
    ids: BTreeMap<(&'static str, i64), i64>,
}

impl Shipment<'_> {
    /// Writes all of a window but its redactions.
    async fn write(
        &mut self,
        node: &ShippedNode,
        window: &EntryWindow,
    ) -> Result<WindowArrival, ArchiveFailure> {
        self.lock(node, window).await?;
        // Before what refers to it: whoever reads meanwhile sees neither or both.
        self.write_files(&window.files).await?;
        for table in value_tables() {
            let values = window.values.get(table.name).map_or(&[][..], Vec::as_slice);
            self.write_values(table, values).await?;
        }
        let months = self.make_partitions(window, &node.months).await?;
        let mut position = window.position_behind(node.position);
        let mut changed_from = None;
        for table in ENTRY_TABLES {
            let rows = window.rows.get(table.name).map_or(&[][..], Vec::as_slice);
            match table.name {
                name if name == LOST_ENTRIES.name => {
                    changed_from = self.add_lost(rows, node.position.last).await?;
                    position.part = changed_from.map_or(position.part, |part| part - 1);
                }
                // All of them come with the next window. Whoever goes on after a crash goes
                // on behind the last one that is there.
                name if name == SUBTREE_ENTRIES.name && changed_from.is_some() => {}
                name if name == SUBTREE_ENTRIES.name => self.add_roots(rows).await?,
                _ => self.copy(table, rows, &node.known).await?,
            }
        }
        if let Some(removed) = &window.removed {
            self.note_removed(removed).await?;
        }
        Ok(WindowArrival {
            position,
            months,
            values: BTreeMap::new(),
            is_redacted: false,
        })
    }

    async fn commit(self, window: &EntryWindow) -> Result<(), ArchiveFailure> {
        let moved: [&(dyn ToSql + Sync); 3] = [&self.log, &window.last, &window.newest_us];
        self.transaction.execute(MOVE_NODE, &moved).await?;
        // Whether a commit that broke was done is found out by the next connection.
        Ok(self.transaction.commit().await?)
    }

    /// Keeps others from shipping the same record, and from removing values, until the
    /// end of the transaction.
    async fn lock(&self, node: &ShippedNode, window: &EntryWindow) -> Result<(), ArchiveFailure> {
        let found = self.transaction.query_one(LOCK_NODE, &[&self.log]).await?;
        let last: i64 = found.get(0);
        let sql = match window.redacted.is_empty() {
            true => USE_VALUES,
            false => REMOVE_VALUES,
        };
        let removals: i64 = self.transaction.query_one(sql, &[]).await?.get(0);
        if last != node.position.last || removals != node.removals {
            return Err(ArchiveFailure::Overtaken);
        }
        Ok(())
    }

    async fn write_files(&self, files: &[NewFile]) -> Result<(), ArchiveFailure> {
        let sql = "INSERT INTO body (sha256, body) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        // One at a time: some are half a megabyte, and most windows have none.
        let statement = self.transaction.prepare(sql).await?;
        for file in files {
            let values: [&(dyn ToSql + Sync); 2] = [&file.sha256, &file.body];
            self.transaction.execute(&statement, &values).await?;
        }
        Ok(())
    }

    /// Writes the values that the archive does not have, and finds the numbers of all.
    async fn write_values(
        &mut self,
        table: ValueTable,
        values: &[NewValue],
    ) -> Result<(), ArchiveFailure> {
        if values.is_empty() {
            return Ok(());
        }
        let sorted = in_common_order(values);
        let lists: Vec<Vec<Cell>> = (0..table.columns.len())
            .map(|place| {
                sorted
                    .iter()
                    .map(|value| Cell(value.columns[place].clone()))
                    .collect()
            })
            .collect();
        self.insert_values(table, &lists).await?;
        let name = table.name;
        // Also of values that another node has written, which the insert passes over.
        let find = format!(
            "SELECT d.id, w.place FROM unnest($1::bytea[]) WITH ORDINALITY AS w (sha256, place)
             JOIN {name} AS d ON d.sha256 = w.sha256"
        );
        let digests = lists.last().expect("each dictionary has a digest");
        for row in self.transaction.query(&find, &[digests]).await? {
            let place: i64 = row.get(1);
            let value = usize::try_from(place - 1)
                .ok()
                .and_then(|place| sorted.get(place));
            self.ids
                .extend(value.map(|value| ((name, value.id), row.get(0))));
        }
        Ok(())
    }

    /// Inserts values, of which `lists` has a list for each column.
    async fn insert_values(
        &self,
        table: ValueTable,
        lists: &[Vec<Cell>],
    ) -> Result<(), ArchiveFailure> {
        let (name, columns) = (table.name, table.columns.join(", "));
        let place = |(place, kind): (usize, &Type)| format!("${place}::{}[]", kind.name());
        let places: Vec<_> = (1..).zip(self.types.of(name)).map(place).collect();
        let insert = format!(
            "INSERT INTO {name} ({columns}) SELECT * FROM unnest({})
             ON CONFLICT (sha256) DO NOTHING",
            places.join(", ")
        );
        let parameters: Vec<&(dyn ToSql + Sync)> = lists.iter().map(|list| list as _).collect();
        self.transaction.execute(&insert, &parameters).await?;
        Ok(())
    }

    /// Makes the partitions of the window's months that are not known to be there.
    /// Returns these months.
    async fn make_partitions(
        &self,
        window: &EntryWindow,
        known: &HashSet<Month>,
    ) -> Result<BTreeSet<Month>, ArchiveFailure> {
        let months = |table: &RecordTable, place: usize| {
            let rows = window.rows.get(table.name).into_iter().flatten();
            rows.filter_map(move |row| match row.get(place) {
                Some(Value::Integer(time_us)) => Some(Month::of(*time_us)),
                _ => None,
            })
        };
        let decided = months(&DECISION_ENTRIES, DECISION_TIME);
        let ended = months(&ENDING_ENTRIES, ENDING_TIME);
        let is_new = |month: &Month| !known.contains(month);
        let new: BTreeSet<Month> = decided.chain(ended).filter(is_new).collect();
        if !new.is_empty() {
            // Two nodes at once would make the same one.
            let lock = "SELECT pg_advisory_xact_lock($1)";
            self.transaction.execute(lock, &[&PARTITION_LOCK]).await?;
        }
        for month in &new {
            self.transaction.batch_execute(&month.partitions()).await?;
        }
        Ok(new)
    }

    /// Copies rows of entries, with the archive's numbers of dictionary values.
    async fn copy(
        &self,
        table: &RecordTable,
        rows: &[Vec<Value>],
        known: &KnownValues,
    ) -> Result<(), ArchiveFailure> {
        if rows.is_empty() {
            return Ok(());
        }
        // COPY sends all rows without waiting for an answer to each.
        let columns = entry_columns(table);
        let order = format!("COPY {} ({columns}) FROM STDIN BINARY", table.name);
        let sink = self.transaction.copy_in(&order).await?;
        let types = self.types.of(table.name);
        let mut writer = pin!(BinaryCopyInWriter::new(sink, types));
        let log = Cell(Value::Integer(self.log.into()));
        for row in rows {
            let cells = row.iter().zip(table.columns).map(|(value, column)| {
                let Some(dictionary) = column.dictionary else {
                    return Ok(Cell(value.clone()));
                };
                self.reference(dictionary, value, known)
            });
            let first = std::iter::once(Ok(log.clone()));
            let cells: Vec<Cell> = first.chain(cells).collect::<Result<_, ArchiveFailure>>()?;
            writer.as_mut().write_raw(&cells).await?;
        }
        writer.finish().await?;
        Ok(())
    }

    /// Returns the archive's number of a dictionary value; 0 stands for one that is
    /// redacted.
    fn reference(
        &self,
        dictionary: &'static str,
        value: &Value,
        known: &KnownValues,
    ) -> Result<Cell, ArchiveFailure> {
        let id = match *value {
            Value::Integer(id) if id != 0 => id,
            Value::Null | Value::Integer(_) | Value::Real(_) | Value::Text(_) | Value::Blob(_) => {
                return Ok(Cell(value.clone()));
            }
        };
        let key = (dictionary, id);
        let found = self.ids.get(&key).or_else(|| known.get(&key));
        let number = found.ok_or(ArchiveFailure::Unsound { dictionary, id })?;
        Ok(Cell(Value::Integer(*number)))
    }

    /// Adds ranges of numbers that are lost, of which the archive has those that go on
    /// from the window before. Returns the first part whose root is another one now, if
    /// entries are lost that have arrived: up to `arrived`.
    async fn add_lost(
        &self,
        rows: &[Vec<Value>],
        arrived: i64,
    ) -> Result<Option<i64>, ArchiveFailure> {
        let mut changed = None;
        for row in rows {
            let [Value::Integer(first), Value::Integer(last), ..] = row.as_slice() else {
                continue;
            };
            // Whoever restores a backup again loses from the same number on, or from an
            // earlier one, and more: the range covers those of before.
            let bounds: [&(dyn ToSql + Sync); 3] = [&self.log, first, last];
            self.transaction.execute(FORGET_LOST, &bounds).await?;
            // A long range is in every window that it touches.
            let added = self.add_row(&LOST_ENTRIES, row, "DO NOTHING").await?;
            if 0 < added && *first <= arrived {
                self.check_removed(*first).await?;
                let part = part_of(*first);
                self.transaction
                    .execute(FORGET_ROOTS, &[&self.log, &part])
                    .await?;
                changed = Some(changed.map_or(part, |earlier: i64| earlier.min(part)));
            }
        }
        Ok(changed)
    }

    /// Holds that entries from `first` on, which the record has lost since they arrived,
    /// are none that were removed by order: what was signed of these is the root with them.
    async fn check_removed(&self, first: i64) -> Result<(), ArchiveFailure> {
        let row = self
            .transaction
            .query_one(REMOVED_UP_TO, &[&self.log])
            .await?;
        let removed: i64 = row.get(0);
        match first <= removed {
            true => Err(ArchiveFailure::LostRemoved { first, removed }),
            false => Ok(()),
        }
    }

    /// Adds the roots of parts, in place of those that are not right any more.
    async fn add_roots(&self, rows: &[Vec<Value>]) -> Result<(), ArchiveFailure> {
        for row in rows {
            let replace = "(log, part) DO UPDATE SET hash = excluded.hash";
            self.add_row(&SUBTREE_ENTRIES, row, replace).await?;
        }
        Ok(())
    }

    /// Adds a row, and does as `conflict` says if it is there. Returns how many were
    /// written.
    async fn add_row(
        &self,
        table: &RecordTable,
        row: &[Value],
        conflict: &str,
    ) -> Result<u64, ArchiveFailure> {
        let places: Vec<_> = (1..=row.len() + 1)
            .map(|place| format!("${place}"))
            .collect();
        let sql = format!(
            "INSERT INTO {} ({}) VALUES ({}) ON CONFLICT {conflict}",
            table.name,
            entry_columns(table),
            places.join(", ")
        );
        let cells: Vec<Cell> = [Value::Integer(self.log.into())]
            .iter()
            .chain(row)
            .map(|value| Cell(value.clone()))
            .collect();
        let values: Vec<&(dyn ToSql + Sync)> = cells.iter().map(|cell| cell as _).collect();
        Ok(self.transaction.execute(&sql, &values).await?)
    }

    async fn note_removed(&self, removed: &RemovedEntries) -> Result<(), ArchiveFailure> {
        let RemovedEntries {
            last,
            time_us,
            note,
            vkey,
        } = removed;
        let values: [&(dyn ToSql + Sync); 5] = [&self.log, last, time_us, note, vkey];
        self.transaction.execute(NOTE_REMOVED, &values).await?;
        Ok(())
    }
}
