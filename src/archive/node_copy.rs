//! Record of a node, made again from the archive: what `fetch` writes, and what `verify`
//! holds to the same checks as on the node.
//!
//! All of it is read in one transaction, so that a shipment under way is in it whole or
//! not at all. Does not know what the record says.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use tokio_postgres::Row;

use super::connection::ArchiveFailure;
use super::excerpt::{file_digests, files, references, values};
use super::nodes::ArchiveNode;
use super::reader::NodeRecordsReader;
use super::tables::{CopiedTable, value};
use crate::audit::entry_tables::{ENTRY_TABLES, RecordTable, value_tables};
use crate::audit::record_copy::{RecordCopy, TableRows};

/// Rows that are read at a time.
const ROWS: i64 = 8192;

/// Files that are read at a time: each may have megabytes.
const FILES: usize = 16;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

const RECORD: &str = "
SELECT id, begun_us, before, before_last, digest, last FROM node WHERE log = $1";

const REMOVED: &str = "
SELECT 1::bigint, last, time_us, 1::bigint, note, vkey FROM removal
WHERE log = $1 ORDER BY last DESC LIMIT 1";

/// Entries behind the last that has arrived: nobody ships such.
const STRAY: &str = "
SELECT (SELECT count(*) FROM decision WHERE log = $1 AND seq > $2)
     + (SELECT count(*) FROM ending WHERE log = $1 AND seq > $2)
     + (SELECT count(*) FROM event WHERE log = $1 AND seq > $2)";

/// Copy of the record of a node.
#[derive(Debug)]
pub struct NodeCopy {
    /// The copy.
    pub copy: RecordCopy,
    /// Highest number that has arrived.
    pub last: u64,
    /// Entries with higher numbers, which nobody has shipped.
    pub strays: u64,
}

impl NodeRecordsReader {
    /// Makes the record of `node` again in the file `path`. A file that is there is
    /// overwritten.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn copy_node(
        &self,
        node: &ArchiveNode,
        path: &Path,
    ) -> Result<NodeCopy, ArchiveFailure> {
        let copy = RecordCopy::in_file(path, &node.record)?;
        self.session.order(BEGIN).await?;
        let made = self.fill(node, &copy).await;
        // Nothing was written: whether it ends well does not matter.
        self.session.order("ROLLBACK").await?;
        let NodeEnd { last, strays } = made?;
        copy.finish(&node.record, last)?;
        Ok(NodeCopy { copy, last, strays })
    }

    async fn fill(&self, node: &ArchiveNode, copy: &RecordCopy) -> Result<NodeEnd, ArchiveFailure> {
        let rows = self.session.query(RECORD, &[&node.log]).await?;
        let Some(row) = rows.first() else {
            return Err(ArchiveFailure::NoNode {
                name: node.label.to_string(),
                known: Vec::new(),
            });
        };
        // First of all: each leaf is of a record.
        copy.add(&record_rows(row))?;
        let removed = self.session.query(REMOVED, &[&node.log]).await?;
        copy.add(&pruned_table().rows(&removed, 0))?;
        let mut filling = RecordFilling {
            reader: self,
            copy,
            log: node.log,
            known: HashMap::new(),
            files: HashSet::new(),
        };
        for table in ENTRY_TABLES {
            filling.add_entries(table).await?;
        }
        let last: i64 = row.get(5);
        // A record may grow while it is read; what is shipped here comes with its end.
        let counted = self.session.query(STRAY, &[&node.log, &last]).await?;
        let strays = counted.first().map_or(0, |row| row.get::<_, i64>(0));
        Ok(NodeEnd {
            last: last.cast_unsigned(),
            strays: strays.cast_unsigned(),
        })
    }
}

/// End of the record of a node.
struct NodeEnd {
    last: u64,
    strays: u64,
}

/// Returns the row of `record`.
fn record_rows(row: &Row) -> TableRows {
    let columns = vec!["id", "begun_us", "before", "before_last", "digest"];
    TableRows {
        table: "record",
        rows: vec![
            (0..columns.len())
                .map(|column| value(row, column))
                .collect(),
        ],
        columns,
    }
}

/// Returns the table of a record with the end of what was removed.
fn pruned_table() -> CopiedTable {
    CopiedTable {
        name: "pruned",
        columns: vec!["id", "last", "time_us", "is_removed", "note", "vkey"],
    }
}

/// Copying that is under way.
struct RecordFilling<'a> {
    reader: &'a NodeRecordsReader,
    copy: &'a RecordCopy,
    log: i32,
    /// Dictionary values that the copy has.
    known: HashMap<&'static str, HashSet<i64>>,
    /// Files that the copy has.
    files: HashSet<Vec<u8>>,
}

impl RecordFilling<'_> {
    /// Adds the rows of a table, in the order of their first column, and what they refer
    /// to.
    async fn add_entries(&mut self, table: &RecordTable) -> Result<(), ArchiveFailure> {
        let copied = CopiedTable::entries(table);
        let columns = copied.select("t");
        let key = copied.columns.first().copied().unwrap_or_default();
        let sql = format!(
            "SELECT {columns} FROM {} AS t WHERE t.log = $1 AND t.{key} > $2 \
             ORDER BY t.{key} LIMIT {ROWS}",
            table.name
        );
        let mut after = i64::MIN;
        loop {
            let rows = self
                .reader
                .session
                .query(&sql, &[&self.log, &after])
                .await?;
            let Some(last) = rows.last() else {
                return Ok(());
            };
            after = last.get(0);
            // Values before what refers to them, as the record was written.
            let rows = copied.rows(&rows, 0);
            for dictionary in value_tables() {
                let ids: BTreeSet<i64> = references(&rows, table, dictionary.name).collect();
                self.add_values(dictionary.name, ids).await?;
            }
            self.copy.add(&rows)?;
        }
    }

    /// Adds the values that the copy does not have.
    async fn add_values(
        &mut self,
        dictionary: &'static str,
        mut ids: BTreeSet<i64>,
    ) -> Result<(), ArchiveFailure> {
        let known = self.known.entry(dictionary).or_default();
        ids.retain(|id| known.insert(*id));
        let found = values(&self.reader.session, dictionary, &ids).await?;
        let mut digests: Vec<_> = file_digests(&found).into_iter().collect();
        digests.retain(|digest| self.files.insert(digest.clone()));
        for digests in digests.chunks(FILES) {
            let digests = digests.iter().cloned().collect();
            self.copy
                .add(&files(&self.reader.session, digests).await?)?;
        }
        for rows in &found {
            self.copy.add(rows)?;
        }
        Ok(())
    }
}
