//! Reader of the archive: decisions of all nodes by filters, a page at a time.
//!
//! Decisions come in the order of their times; of one time in the order of nodes and
//! numbers. Each page is one query that a key bounds, so that nothing is held open
//! between two of them. Does not know who asks.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::Row;

use super::connection::ArchiveAccess;
use super::excerpt::{Excerpt, decision_columns};
use super::failure::ArchiveFailure;
use super::nodes::{ArchiveNode, nodes_of};
use super::place::ArchivePlace;
use super::question::{ArchiveConditions, ArchiveQuestion};
use super::session::{ArchiveSession, in_background};
use crate::audit::filter::DecisionFilter;
use crate::audit::record_copy::RecordCopy;
use crate::audit::{CheckedRecord, Direction};
use crate::decision::record::StoredRecord;

/// Decisions of a node that are read at a time as they arrive.
const ARRIVED_MAX: usize = 4096;

/// Reader of one archive.
#[derive(Debug)]
pub struct NodeRecordsReader {
    pub(super) session: ArchiveSession,
}

/// Bounds of a page of decisions.
#[derive(Debug, Clone, Copy)]
pub struct ArchiveBounds {
    /// Order in which they are read.
    pub direction: Direction,
    /// Place behind which they are looked for; absent: from the beginning.
    pub behind: Option<ArchivePlace>,
    /// Rows at most.
    pub rows: usize,
}

/// Decisions of one page.
#[derive(Debug, Default)]
pub struct ArchivePage {
    /// The decisions.
    pub records: Vec<StoredRecord>,
    /// Place behind which the next page looks; absent after the last.
    pub next: Option<ArchivePlace>,
}

/// Decision of a node, in a record in memory that has all it refers to.
#[derive(Debug)]
pub struct ArchiveDecision {
    /// The decision.
    pub row: CheckedRecord,
    /// The record.
    pub copy: RecordCopy,
}

impl NodeRecordsReader {
    /// Connects to an archive, to ask questions of which each query takes at most
    /// `longest`. To be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`], as of all functions here.
    pub async fn open(access: &ArchiveAccess, longest: Duration) -> Result<Self, ArchiveFailure> {
        let session = ArchiveSession::open(access, longest).await?;
        Ok(Self { session })
    }

    /// Reports whether its connection has ended.
    pub fn is_over(&self) -> bool {
        self.session.is_over()
    }

    /// Looks up what `filter` names, once for all pages.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn question(
        &self,
        filter: &DecisionFilter,
    ) -> Result<ArchiveQuestion, ArchiveFailure> {
        ArchiveQuestion::new(&self.session, filter).await
    }

    /// Reads all nodes.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn nodes(&self) -> Result<Vec<ArchiveNode>, ArchiveFailure> {
        Ok(nodes_of(&self.session).await?.into_values().collect())
    }

    /// Reads the nodes that are called `name`, or all.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]; [`ArchiveFailure::NoNode`].
    pub async fn named_nodes(
        &self,
        name: Option<&str>,
    ) -> Result<Vec<ArchiveNode>, ArchiveFailure> {
        let mut nodes = nodes_of(&self.session).await?;
        if let Some(name) = name {
            let logs = ArchiveNode::named(&nodes, name)?;
            nodes.retain(|log, _| logs.contains(log));
        }
        Ok(nodes.into_values().collect())
    }

    /// Reads all nodes, by their number.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn nodes_by_number(&self) -> Result<BTreeMap<i32, ArchiveNode>, ArchiveFailure> {
        nodes_of(&self.session).await
    }

    /// Reads a page of the decisions that `question` chooses.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn page(
        &self,
        question: &ArchiveQuestion,
        bounds: &ArchiveBounds,
    ) -> Result<ArchivePage, ArchiveFailure> {
        let mut conditions = question.conditions();
        let (order, compare) = match bounds.direction {
            Direction::NewestFirst => ("DESC", "<"),
            Direction::OldestFirst => ("ASC", ">"),
        };
        if let Some(place) = bounds.behind {
            // The time alone first: by it partitions and indexes are chosen.
            let time = conditions.place(place.time_us);
            let (log, seq) = (conditions.place(place.log), conditions.place(place.seq));
            conditions.add_placed(format!(
                "d.time_us {compare}= {time} AND (d.time_us, d.log, d.seq) {compare} ({time}, \
                 {log}, {seq})"
            ));
        }
        // One more than wanted: so there is a further page.
        let rows_max = i64::try_from(bounds.rows.saturating_add(1)).unwrap_or(i64::MAX);
        let limit = conditions.place(rows_max);
        let order = format!("ORDER BY d.time_us {order}, d.log {order}, d.seq {order}");
        // The limit before the join: endings are looked up for these rows alone.
        let chosen = format!(
            "SELECT * FROM decision AS d WHERE {} {order} LIMIT {limit}",
            conditions.sql()
        );
        let mut rows = self.decisions(&chosen, &order, &conditions).await?;
        let has_more = bounds.rows < rows.len();
        rows.truncate(bounds.rows);
        let excerpt = Excerpt::read(&self.session, &question.nodes, &rows).await?;
        let last = excerpt.places().last().copied();
        let decisions = in_background(move || excerpt.decisions()).await?;
        Ok(ArchivePage {
            records: decisions.into_iter().map(|row| row.record).collect(),
            next: last.filter(|_| has_more),
        })
    }

    /// Reads the decisions of a query with their endings.
    async fn decisions(
        &self,
        chosen: &str,
        order: &str,
        conditions: &ArchiveConditions,
    ) -> Result<Vec<Row>, ArchiveFailure> {
        let columns = decision_columns();
        let sql = format!(
            "SELECT {columns} FROM ({chosen}) AS d LEFT JOIN ending AS e \
             ON e.log = d.log AND e.decision = d.seq AND e.time_us = d.time_us {order}"
        );
        self.session.query(&sql, &conditions.parameters()).await
    }

    /// Finds the decisions with a number, of the nodes that are called `node`, or of all:
    /// the numbers of their nodes.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn places_of(
        &self,
        node: Option<&str>,
        seq: u64,
    ) -> Result<Vec<ArchivePlace>, ArchiveFailure> {
        let nodes = nodes_of(&self.session).await?;
        let logs: Vec<i32> = match node {
            Some(node) => ArchiveNode::named(&nodes, node)?,
            None => nodes.keys().copied().collect(),
        };
        let Ok(seq) = i64::try_from(seq) else {
            return Ok(Vec::new());
        };
        let sql = "SELECT time_us, log FROM decision WHERE log = ANY($1) AND seq = $2 ORDER BY log";
        let rows = self.session.query(sql, &[&logs, &seq]).await?;
        let place = |row: &Row| ArchivePlace {
            time_us: row.get(0),
            log: row.get(1),
            seq,
        };
        Ok(rows.iter().map(place).collect())
    }

    /// Reads the decision at a place with all that it refers to, if it is there.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn decision(
        &self,
        place: ArchivePlace,
    ) -> Result<Option<ArchiveDecision>, ArchiveFailure> {
        let nodes = nodes_of(&self.session).await?;
        let mut conditions = ArchiveConditions::default();
        conditions.add("d.time_us = ?", place.time_us);
        conditions.add("d.log = ?", place.log);
        conditions.add("d.seq = ?", place.seq);
        let chosen = format!("SELECT * FROM decision AS d WHERE {}", conditions.sql());
        let rows = self.decisions(&chosen, "", &conditions).await?;
        let without_files = Excerpt::read(&self.session, &nodes, &rows).await?;
        // Deciding again takes the file.
        let excerpt = without_files.with_files(&self.session).await?;
        let row = excerpt.decisions()?.pop();
        let copy = excerpt.record()?;
        Ok(row
            .zip(copy)
            .map(|(row, copy)| ArchiveDecision { row, copy }))
    }

    /// Counts the decisions that `question` chooses.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn count(&self, question: &ArchiveQuestion) -> Result<u64, ArchiveFailure> {
        let conditions = question.conditions();
        let sql = format!(
            "SELECT count(*) FROM decision AS d WHERE {}",
            conditions.sql()
        );
        let rows = self.session.query(&sql, &conditions.parameters()).await?;
        Ok(rows
            .first()
            .map_or(0, |row| row.get::<_, i64>(0).cast_unsigned()))
    }

    /// Reads the decisions that `question` chooses of those that have arrived since
    /// `ends`, by their times, and moves `ends` behind them. Of a node that was not among
    /// them, what comes from now on.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn arrived(
        &self,
        question: &ArchiveQuestion,
        ends: &mut BTreeMap<i32, i64>,
    ) -> Result<Vec<StoredRecord>, ArchiveFailure> {
        let nodes = nodes_of(&self.session).await?;
        let mut rows = Vec::new();
        for (log, node) in &nodes {
            let after = ends.insert(*log, node.last).unwrap_or(node.last);
            if node.last <= after {
                continue;
            }
            let mut conditions = question.conditions();
            conditions.add("d.log = ?", *log);
            conditions.add("d.seq > ?", after);
            conditions.add("d.seq <= ?", node.last);
            let chosen = format!(
                "SELECT * FROM decision AS d WHERE {} ORDER BY d.seq LIMIT {ARRIVED_MAX}",
                conditions.sql()
            );
            let found = self
                .decisions(&chosen, "ORDER BY d.seq", &conditions)
                .await?;
            // The rest comes with the next look.
            if let Some(last) = found.get(ARRIVED_MAX - 1) {
                ends.insert(*log, last.get(1));
            }
            rows.extend(found);
        }
        let excerpt = Excerpt::read(&self.session, &nodes, &rows).await?;
        let decisions = excerpt.decisions()?.into_iter();
        let mut records: Vec<_> = decisions.map(|row| row.record).collect();
        // Nodes were read one after the other.
        records.sort_by_key(|record| record.at);
        Ok(records)
    }
}
