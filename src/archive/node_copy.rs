//! Record of a node, made again from the archive: what `fetch` writes, and what `verify`
//! holds to the same checks as on the node.
//!
//! All of it is read in one transaction, so that a shipment under way is in it whole or
//! not at all. Does not know what the record says.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::path::Path;

use rusqlite::types::Value;

use tokio_postgres::Row;

use super::excerpt::{file_digests, files, references, values};
use super::failure::ArchiveFailure;
use super::nodes::ArchiveNode;
use super::reader::NodeRecordsReader;
use super::tables::{CopiedTable, value};
use crate::audit::entry_tables::{ENTRY_TABLES, RecordTable, SEAL_ENTRIES, value_tables};
use crate::audit::head::RecordHead;
use crate::audit::note::SignedNote;
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

/// Condition that the number of an entry `t` is not noted as lost: one that had arrived
/// before its node lost it is none of the record any more.
const NOT_LOST: &str = "NOT EXISTS (SELECT FROM lost_range AS l WHERE l.log = t.log \
    AND l.first <= t.{number} AND t.{number} <= l.last)";

/// Entries that had arrived, and that their node has noted as lost.
const SUPERSEDED: &str = "
SELECT count(*), min(t.seq), max(t.seq) FROM lost_range AS l
JOIN (SELECT log, seq FROM decision UNION ALL SELECT log, seq FROM ending
      UNION ALL SELECT log, seq FROM event) AS t
ON t.log = l.log AND l.first <= t.seq AND t.seq <= l.last
WHERE l.log = $1";

/// Ranges that are lost, and when that was noted.
const LOST: &str = "SELECT first, last, time_us FROM lost_range WHERE log = $1";

/// Entries that had arrived before their node lost them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupersededEntries {
    /// How many there are.
    pub count: i64,
    /// Lowest number.
    pub first: i64,
    /// Highest number.
    pub last: i64,
}

/// Copy of the record of a node.
#[derive(Debug)]
pub struct NodeCopy {
    /// The copy.
    pub copy: RecordCopy,
    /// Highest number that has arrived.
    pub last: u64,
    /// Entries with higher numbers, which nobody has shipped.
    pub strays: u64,
    /// Entries that are not in the copy, since the node has lost them.
    pub superseded: Option<SupersededEntries>,
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
        let NodeEnd {
            last,
            strays,
            superseded,
        } = made?;
        copy.finish(&node.record, last)?;
        Ok(NodeCopy {
            copy,
            last,
            strays,
            superseded,
        })
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
        let lost = self.session.query(LOST, &[&node.log]).await?;
        let mut filling = RecordFilling {
            reader: self,
            copy,
            log: node.log,
            lost: lost.iter().map(LostNumbers::read).collect(),
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
        // Reads all entries: only where any can be.
        let superseded = match lost.is_empty() {
            true => Vec::new(),
            false => self.session.query(SUPERSEDED, &[&node.log]).await?,
        };
        let entries = |row: &Row| {
            Some(SupersededEntries {
                count: row.get(0),
                first: row.get::<_, Option<i64>>(1)?,
                last: row.get::<_, Option<i64>>(2)?,
            })
        };
        Ok(NodeEnd {
            last: last.cast_unsigned(),
            strays: strays.cast_unsigned(),
            superseded: superseded.first().and_then(entries),
        })
    }
}

/// End of the record of a node.
struct NodeEnd {
    last: u64,
    strays: u64,
    superseded: Option<SupersededEntries>,
}

/// Numbers that are lost.
struct LostNumbers {
    numbers: RangeInclusive<i64>,
    time_us: i64,
}

impl LostNumbers {
    fn read(row: &Row) -> Self {
        Self {
            numbers: row.get(0)..=row.get(1),
            time_us: row.get(2),
        }
    }

    /// Reports whether a row of `seal` has a head of entries that were lost after it.
    fn supersede(&self, head: &[Value]) -> bool {
        let [Value::Integer(size), Value::Text(note), ..] = head else {
            return false;
        };
        let note = note.parse::<SignedNote>();
        let head = note
            .ok()
            .and_then(|note| note.text().parse::<RecordHead>().ok());
        // A head that covers the numbers as lost ones was made later.
        let is_earlier = head.is_some_and(|head| head.time.as_microsecond() < self.time_us);
        self.numbers.contains(size) && is_earlier
    }
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
    lost: Vec<LostNumbers>,
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
        let condition = match table.name {
            "decision" | "ending" | "event" => NOT_LOST.replace("{number}", "seq"),
            _ => "true".to_owned(),
        };
        let sql = format!(
            "SELECT {columns} FROM {} AS t WHERE t.log = $1 AND t.{key} > $2 AND {condition} \
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
            let mut rows = copied.rows(&rows, 0);
            // Heads over entries that the node lost are none of its chain any more.
            if table.name == SEAL_ENTRIES.name {
                let is_superseded =
                    |head: &[Value]| self.lost.iter().any(|lost| lost.supersede(head));
                rows.rows.retain(|head| !is_superseded(head));
            }
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
