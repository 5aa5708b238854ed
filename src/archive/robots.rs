//! Files of robots.txt in the archive: those that were in force at a time, and all
//! versions. Put into a record in memory, which is asked as any other.
//!
//! Snapshots are shared by the nodes: which of them asked a site does not matter to
//! what it said. Does not know how versions are told apart.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tokio_postgres::Row;

use super::connection::ArchiveFailure;
use super::excerpt::{file_digests, files, values};
use super::question::origins_of;
use super::reader::NodeRecordsReader;
use super::tables::CopiedTable;
use crate::audit::filter::normal_host;
use crate::audit::record_copy::{RecordCopy, TableRows};
use crate::audit::robots_history::RobotsOwner;
use crate::audit::robots_versions::SnapshotCount;

/// Snapshots of a history at most.
const SNAPSHOTS_MAX: usize = 100_000;

/// Versions of a robots.txt, with the decisions that rest on them.
#[derive(Debug)]
pub struct ArchiveHistory {
    /// Record in memory that has the snapshots with their files, and the rulings.
    pub copy: RecordCopy,
    /// Decisions.
    pub counts: Vec<SnapshotCount>,
}

impl NodeRecordsReader {
    /// Makes a record in memory that has what was in force at `at` at each origin of
    /// `owner`, and the first snapshot of each.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn robots_at(
        &self,
        owner: &RobotsOwner,
        at: Timestamp,
    ) -> Result<RecordCopy, ArchiveFailure> {
        let origins = self.origins(owner).await?;
        let table = CopiedTable::values("snapshot");
        let columns = table.select("s");
        let mut tables = Vec::new();
        for (condition, order) in [
            ("s.fetched_us <= $2", "DESC"),
            ("$2::bigint IS NOT NULL", "ASC"),
        ] {
            let sql = format!(
                "SELECT DISTINCT ON (s.origin, lower(s.token COLLATE \"C\")) {columns} \
                 FROM snapshot AS s WHERE s.origin = ANY($1) AND {condition} \
                 ORDER BY s.origin, lower(s.token COLLATE \"C\"), s.fetched_us {order}, s.id {order}"
            );
            let at_us = at.as_microsecond();
            let rows = self.session.query(&sql, &[&origins, &at_us]).await?;
            tables.push(table.rows(&rows, 0));
        }
        self.robots_copy(tables).await
    }

    /// Makes a record in memory that has all snapshots of `owner`, and counts the
    /// decisions that rest on them.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]; [`ArchiveFailure::TooManySums`].
    pub async fn robots_history(
        &self,
        owner: &RobotsOwner,
    ) -> Result<ArchiveHistory, ArchiveFailure> {
        let origins = self.origins(owner).await?;
        let table = CopiedTable::values("snapshot");
        let columns = table.select("s");
        let sql = format!(
            "SELECT {columns} FROM snapshot AS s WHERE s.origin = ANY($1) LIMIT {}",
            SNAPSHOTS_MAX + 1
        );
        let rows = self.session.query(&sql, &[&origins]).await?;
        let host = match owner {
            RobotsOwner::Host(host) => normal_host(host),
            RobotsOwner::Origin(origin) => origin.host().to_string(),
        };
        let of_host = origins_of(&self.session, &[&host]).await?;
        let sql = format!(
            "SELECT d.snapshot, d.ruling, count(*) FROM decision AS d \
             WHERE d.origin = ANY($1) AND d.snapshot IS NOT NULL GROUP BY 1, 2 LIMIT {}",
            SNAPSHOTS_MAX + 1
        );
        // Cut off, a history would be a wrong one.
        let counted = self.session.query(&sql, &[&of_host]).await?;
        if SNAPSHOTS_MAX < rows.len().max(counted.len()) {
            return Err(ArchiveFailure::TooManySums(SNAPSHOTS_MAX));
        }
        let count = |row: &Row| SnapshotCount {
            snapshot: row.get(0),
            ruling: row.get(1),
            requests: row.get::<_, i64>(2).cast_unsigned(),
        };
        let counts: Vec<_> = counted.iter().map(count).collect();
        let rulings: BTreeSet<i64> = counts.iter().map(|count| count.ruling).collect();
        let mut tables = values(&self.session, "ruling", &rulings).await?;
        tables.push(table.rows(&rows, 0));
        Ok(ArchiveHistory {
            copy: self.robots_copy(tables).await?,
            counts,
        })
    }

    /// Finds the texts of the origins of `owner`.
    async fn origins(&self, owner: &RobotsOwner) -> Result<Vec<String>, ArchiveFailure> {
        let host = match owner {
            RobotsOwner::Host(host) => normal_host(host),
            RobotsOwner::Origin(origin) => return Ok(vec![origin.to_string()]),
        };
        let sql = "SELECT origin FROM origin WHERE host = $1 ORDER BY origin";
        let rows = self.session.query(sql, &[&host]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Makes a record in memory of tables, with the files of the snapshots.
    async fn robots_copy(&self, tables: Vec<TableRows>) -> Result<RecordCopy, ArchiveFailure> {
        let digests = file_digests(&tables);
        let copy = RecordCopy::in_memory("")?;
        copy.add(&files(&self.session, digests).await?)?;
        for rows in &tables {
            copy.add(rows)?;
        }
        Ok(copy)
    }
}
