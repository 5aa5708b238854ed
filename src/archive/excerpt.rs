//! Excerpt of the archive: some decisions with all that they refer to, from which
//! records in memory are made. So one code reads decisions, whether they are in a
//! record or in the archive.
//!
//! Does not know which decisions are wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rusqlite::types::Value;
use tokio_postgres::Row;

use super::failure::ArchiveFailure;
use super::nodes::ArchiveNode;
use super::place::ArchivePlace;
use super::session::ArchiveSession;
use super::tables::CopiedTable;
use crate::audit::entry_tables::{DECISION_ENTRIES, ENDING_ENTRIES, RecordTable, value_tables};
use crate::audit::record_copy::{RecordCopy, TableRows};
use crate::audit::{AuditError, CheckedRecord};

/// Values that are asked for at a time.
const VALUES: usize = 10_000;

/// Writes the columns of decisions with their endings: the node, the decision, the
/// ending.
pub(super) fn decision_columns() -> String {
    let decision = CopiedTable::entries(&DECISION_ENTRIES).select("d");
    let ending = CopiedTable::entries(&ENDING_ENTRIES).select("e");
    format!("d.log, {decision}, {ending}")
}

/// Decisions of one node.
#[derive(Debug)]
struct NodeRows {
    node: ArchiveNode,
    decisions: TableRows,
    endings: TableRows,
}

/// Decisions of several nodes, in their order, with the values that they refer to.
#[derive(Debug, Default)]
pub(super) struct Excerpt {
    order: Vec<ArchivePlace>,
    nodes: BTreeMap<i32, NodeRows>,
    values: Vec<TableRows>,
}

impl Excerpt {
    /// Takes in `rows` of [`decision_columns`], and reads the values.
    pub(super) async fn read(
        session: &ArchiveSession,
        nodes: &BTreeMap<i32, ArchiveNode>,
        rows: &[Row],
    ) -> Result<Self, ArchiveFailure> {
        let mut excerpt = Self::default();
        for row in rows {
            excerpt.add(nodes, row);
        }
        // A query for each dictionary, however many decisions there are.
        for table in value_tables() {
            let ids = excerpt.references(table.name);
            excerpt
                .values
                .extend(values(session, table.name, &ids).await?);
        }
        Ok(excerpt)
    }

    /// Adds the files of robots.txt that the snapshots have.
    pub(super) async fn with_files(
        mut self,
        session: &ArchiveSession,
    ) -> Result<Self, ArchiveFailure> {
        let digests = file_digests(&self.values);
        self.values.push(files(session, digests).await?);
        Ok(self)
    }

    fn add(&mut self, nodes: &BTreeMap<i32, ArchiveNode>, row: &Row) {
        let log: i32 = row.get("log");
        let Some(node) = nodes.get(&log) else {
            // It came after the nodes were read.
            return;
        };
        let tables = [&DECISION_ENTRIES, &ENDING_ENTRIES].map(CopiedTable::entries);
        let [decisions, endings] = &tables;
        let rows = std::slice::from_ref(row);
        let decision = decisions.rows(rows, 1);
        let mut ending = endings.rows(rows, 1 + decisions.columns.len());
        // Null where there is none.
        ending
            .rows
            .retain(|values| values.first() != Some(&Value::Null));
        self.order.push(ArchivePlace {
            // Behind the node: number and time.
            seq: row.get(1),
            time_us: row.get(2),
            log,
        });
        match self.nodes.get_mut(&log) {
            Some(known) => {
                known.decisions.rows.extend(decision.rows);
                known.endings.rows.extend(ending.rows);
            }
            None => {
                let added = NodeRows {
                    node: node.clone(),
                    decisions: decision,
                    endings: ending,
                };
                self.nodes.insert(log, added);
            }
        }
    }

    /// Returns the rows of a dictionary that decisions and endings refer to.
    fn references(&self, dictionary: &str) -> BTreeSet<i64> {
        let nodes = self.nodes.values();
        nodes
            .flat_map(|node| {
                let decisions = references(&node.decisions, &DECISION_ENTRIES, dictionary);
                decisions.chain(references(&node.endings, &ENDING_ENTRIES, dictionary))
            })
            .collect()
    }

    /// Returns the places of the decisions, in their order.
    pub(super) fn places(&self) -> &[ArchivePlace] {
        &self.order
    }

    /// Reads the decisions, in their order.
    pub(super) fn decisions(&self) -> Result<Vec<CheckedRecord>, AuditError> {
        let mut found = BTreeMap::new();
        for (log, rows) in &self.nodes {
            // A record for each node: two nodes give the same numbers.
            let copy = self.copy(rows)?;
            for mut decision in copy.decisions()? {
                decision.record.node = Some(Arc::clone(&rows.node.label));
                found.insert((*log, decision.record.seq), decision);
            }
        }
        let place = |place: &ArchivePlace| (place.log, place.seq.cast_unsigned());
        let ordered = self.order.iter();
        Ok(ordered.filter_map(|at| found.remove(&place(at))).collect())
    }

    /// Makes the record in memory that has the decisions of the one node there is;
    /// `None` without a decision.
    pub(super) fn record(&self) -> Result<Option<RecordCopy>, AuditError> {
        let rows = self.nodes.values().next();
        rows.map(|rows| self.copy(rows)).transpose()
    }

    fn copy(&self, rows: &NodeRows) -> Result<RecordCopy, AuditError> {
        let copy = RecordCopy::in_memory(&rows.node.record)?;
        for values in self.values.iter().chain([&rows.decisions, &rows.endings]) {
            copy.add(values)?;
        }
        Ok(copy)
    }
}

/// Returns the rows of a dictionary that `rows` of a table refer to.
pub(super) fn references<'a>(
    rows: &'a TableRows,
    table: &'a RecordTable,
    dictionary: &'a str,
) -> impl Iterator<Item = i64> + 'a {
    let columns = table.columns.iter();
    let names = columns
        .filter(move |column| column.dictionary == Some(dictionary))
        .map(|column| column.name);
    names.flat_map(move |name| {
        let at = rows.columns.iter().position(|column| *column == name);
        rows.rows.iter().filter_map(move |row| match row.get(at?) {
            Some(Value::Integer(id)) => Some(*id),
            _ => None,
        })
    })
}

/// Reads rows of a dictionary.
pub(super) async fn values(
    session: &ArchiveSession,
    dictionary: &'static str,
    ids: &BTreeSet<i64>,
) -> Result<Vec<TableRows>, ArchiveFailure> {
    let table = CopiedTable::values(dictionary);
    let columns = table.select("v");
    let sql = format!("SELECT {columns} FROM {dictionary} AS v WHERE v.id = ANY($1)");
    let ids: Vec<i64> = ids.iter().copied().collect();
    let mut all = Vec::new();
    for ids in ids.chunks(VALUES) {
        let rows = session.query(&sql, &[&ids]).await?;
        all.push(table.rows(&rows, 0));
    }
    Ok(all)
}

/// Reads files of robots.txt.
pub(super) async fn files(
    session: &ArchiveSession,
    digests: BTreeSet<Vec<u8>>,
) -> Result<TableRows, ArchiveFailure> {
    let table = CopiedTable {
        name: "body",
        columns: vec!["sha256", "body"],
    };
    let columns = table.select("b");
    let sql = format!("SELECT {columns} FROM body AS b WHERE b.sha256 = ANY($1)");
    let digests: Vec<_> = digests.into_iter().collect();
    let rows = session.query(&sql, &[&digests]).await?;
    Ok(table.rows(&rows, 0))
}

/// Returns the digests of the files that the snapshots in `tables` have.
pub(super) fn file_digests(tables: &[TableRows]) -> BTreeSet<Vec<u8>> {
    let snapshots = tables.iter().filter(|rows| rows.table == "snapshot");
    snapshots
        .flat_map(|rows| {
            let at = rows.columns.iter().position(|column| *column == "body");
            rows.rows.iter().filter_map(move |row| match row.get(at?) {
                Some(Value::Blob(digest)) => Some(digest.clone()),
                _ => None,
            })
        })
        .collect()
}
