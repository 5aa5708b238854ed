//! Files of robots.txt in the archive: those that were in force at a time, and all
//! versions. Put into a record in memory, which is asked as any other.
//!
//! Snapshots are shared by the nodes: which of them asked a site does not matter to
//! what it said, unless one node is asked about. Does not know how versions are told
//! apart.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::excerpt::{file_digests, files, values};
use super::failure::ArchiveFailure;
use super::nodes::{ArchiveNode, nodes_of};
use super::question::origins_of;
use super::reader::NodeRecordsReader;
use super::tables::CopiedTable;
use crate::audit::filter::normal_host;
use crate::audit::record_copy::{RecordCopy, TableRows};
use crate::audit::robots_history::RobotsOwner;
use crate::audit::robots_versions::SnapshotCount;

/// Snapshots of a history at most.
const SNAPSHOTS_MAX: usize = 100_000;

/// Condition that a decision of the nodes `$2` rests on a snapshot `s`; null stands for
/// all nodes. The origins of the host are `$3`.
const OF_NODES: &str = "($2::int[] IS NULL OR s.id IN (SELECT d.snapshot FROM decision AS d \
    WHERE d.origin = ANY($3) AND d.log = ANY($2)))";

/// Owner of a robots.txt, and the node that is asked about.
#[derive(Debug, Clone, Copy)]
pub struct RobotsQuestion<'a> {
    /// The owner.
    pub owner: &'a RobotsOwner,
    /// Name of the node; absent: all.
    pub node: Option<&'a str>,
}

/// Snapshots that a question is about, in the numbers of the archive.
struct ChosenSnapshots {
    /// Origins that have them.
    origins: Vec<String>,
    /// Nodes whose decisions rest on them; absent: all.
    logs: Option<Vec<i32>>,
    /// Origins of their host.
    of_host: Vec<i64>,
}

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
    /// the owner, and the first snapshot of each.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn robots_at(
        &self,
        question: &RobotsQuestion<'_>,
        at: Timestamp,
    ) -> Result<RecordCopy, ArchiveFailure> {
        let chosen = self.chosen(question).await?;
        let table = CopiedTable::values("snapshot");
        let columns = table.select("s");
        let mut tables = Vec::new();
        for (condition, order) in [
            ("s.fetched_us <= $4", "DESC"),
            ("$4::bigint IS NOT NULL", "ASC"),
        ] {
            let sql = format!(
                "SELECT DISTINCT ON (s.origin, lower(s.token COLLATE \"C\")) {columns} \
                 FROM snapshot AS s WHERE s.origin = ANY($1) AND {OF_NODES} AND {condition} \
                 ORDER BY s.origin, lower(s.token COLLATE \"C\"), s.fetched_us {order}, s.id {order}"
            );
            let at_us = at.as_microsecond();
            let values: [&(dyn ToSql + Sync); 4] =
                [&chosen.origins, &chosen.logs, &chosen.of_host, &at_us];
            let rows = self.session.query(&sql, &values).await?;
            tables.push(table.rows(&rows, 0));
        }
        self.robots_copy(tables).await
    }

    /// Makes a record in memory that has all snapshots of the owner, and counts the
    /// decisions that rest on them.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]; [`ArchiveFailure::TooManySums`].
    pub async fn robots_history(
        &self,
        question: &RobotsQuestion<'_>,
    ) -> Result<ArchiveHistory, ArchiveFailure> {
        let chosen = self.chosen(question).await?;
        let table = CopiedTable::values("snapshot");
        let columns = table.select("s");
        let sql = format!(
            "SELECT {columns} FROM snapshot AS s WHERE s.origin = ANY($1) AND {OF_NODES} LIMIT {}",
            SNAPSHOTS_MAX + 1
        );
        let ChosenSnapshots {
            origins,
            logs,
            of_host,
        } = &chosen;
        let rows = self.session.query(&sql, &[origins, logs, of_host]).await?;
        let sql = format!(
            "SELECT d.snapshot, d.ruling, count(*) FROM decision AS d \
             WHERE d.origin = ANY($1) AND ($2::int[] IS NULL OR d.log = ANY($2)) \
             AND d.snapshot IS NOT NULL GROUP BY 1, 2 LIMIT {}",
            SNAPSHOTS_MAX + 1
        );
        // Cut off, a history would be a wrong one.
        let counted = self.session.query(&sql, &[of_host, logs]).await?;
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

    /// Looks up what a question names.
    async fn chosen(
        &self,
        question: &RobotsQuestion<'_>,
    ) -> Result<ChosenSnapshots, ArchiveFailure> {
        let host = match question.owner {
            RobotsOwner::Host(host) => normal_host(host),
            RobotsOwner::Origin(origin) => origin.host().to_string(),
        };
        let nodes = nodes_of(&self.session).await?;
        let named = question.node.map(|name| ArchiveNode::named(&nodes, name));
        Ok(ChosenSnapshots {
            origins: self.origins(question.owner).await?,
            logs: named.transpose()?,
            of_host: origins_of(&self.session, &[&host]).await?,
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
