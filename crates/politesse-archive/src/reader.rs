//! Reader of the fleet's archive: decisions of all nodes that match a filter, a page at a
//! time.
//!
//! Decisions are ordered by their [`ArchivePlace`]: by time, those of the same time by
//! node and sequence number. Each page is one query that starts after the last place of
//! the page before, so nothing is held open between pages. Counts and statistics are in
//! `counts`. Does not know how the decisions are shown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::connection::ArchiveAccess;
use super::failure::ArchiveFailure;
use super::flat_decision::FlatDecision;
use super::month::{DECISIONS, Month, PARTITIONED};
use super::nodes::{ArchiveNode, nodes_of};
use super::place::ArchivePlace;
use super::question::{ArchiveConditions, ArchiveQuestion};
use super::session::ArchiveSession;
use politesse_decision::digest::Digest;
use politesse_decision::record::{StoredPolicy, StoredRecord};
use politesse_record::Direction;
use politesse_record::filter::DecisionFilter;
use politesse_record::stats::DecisionTotal;

/// Maximum number of decisions that one call of [`FleetArchiveReader::arrived`] returns
/// for each node.
const ARRIVED_MAX: usize = 4096;

/// Names the partitions of a table.
const PARTITIONS: &str = "
SELECT c.relname::text FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = $1::text::regclass";

/// Read-only connection to the archive of a fleet. Not the `ArchiveReader` of
/// `politesse-crawls`, which reads the archive of a crawl (WARC).
#[derive(Debug)]
pub struct FleetArchiveReader {
    pub(super) session: ArchiveSession,
}

/// Start, order and length of a page of decisions.
#[derive(Debug, Clone, Copy)]
pub struct ArchiveBounds {
    /// Order of the decisions.
    pub direction: Direction,
    /// Place of the last decision of the page before; `None` for the first page.
    pub after: Option<ArchivePlace>,
    /// Maximum number of decisions.
    pub rows: usize,
}

/// Decisions of one page.
#[derive(Debug, Default)]
pub struct ArchivePage {
    /// The decisions. Of a policy, only the digest and the purposes are known.
    pub records: Vec<StoredRecord>,
    /// [`ArchiveBounds::after`] of the next page; `None` on the last page.
    pub next: Option<ArchivePlace>,
}

/// Decision of a node, with its policy text and robots.txt.
#[derive(Debug)]
pub struct ArchiveDecision {
    /// The decision, including its policy.
    pub record: StoredRecord,
    /// Body of the robots.txt that the decision is based on; `None` if it is based on
    /// none, or the archive does not contain the body.
    pub body: Option<Vec<u8>>,
}

impl FleetArchiveReader {
    /// Connects to an archive. `query_timeout` limits each later query. Must be called
    /// inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`], as for all functions here.
    pub async fn open(
        access: &ArchiveAccess,
        query_timeout: Duration,
    ) -> Result<Self, ArchiveFailure> {
        let session = ArchiveSession::open(access, query_timeout).await?;
        Ok(Self { session })
    }

    /// Reports whether the connection has ended.
    pub fn is_over(&self) -> bool {
        self.session.is_over()
    }

    /// Looks up the node that `filter` names, once for all pages.
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

    /// Returns all nodes by number.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn nodes(&self) -> Result<BTreeMap<i32, ArchiveNode>, ArchiveFailure> {
        nodes_of(&self.session).await
    }

    /// Reads a page of the decisions that match `question`.
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
        if let Some(place) = bounds.after {
            // The comparison of all three implies that of the time. PostgreSQL needs the
            // latter to select partitions and indexes.
            let time = conditions.bind(system_time(place.time_us));
            let (node, seq) = (conditions.bind(place.node), conditions.bind(place.seq));
            conditions.add_bound(format!(
                "d.time {compare}= {time} AND (d.time, d.node, d.seq) {compare} ({time}, {node}, \
                 {seq})"
            ));
        }
        // One more row than requested, to find out whether there is a further page.
        let rows_max = i64::try_from(bounds.rows.saturating_add(1)).unwrap_or(i64::MAX);
        let limit = conditions.bind(rows_max);
        let order_and_limit =
            format!("ORDER BY d.time {order}, d.node {order}, d.seq {order} LIMIT {limit}");
        let mut rows = self.rows(&conditions, &order_and_limit).await?;
        let has_more = bounds.rows < rows.len();
        rows.truncate(bounds.rows);
        let last = rows.last().map(place_of);
        Ok(ArchivePage {
            records: records(rows, &question.nodes),
            next: last.filter(|_| has_more),
        })
    }

    /// Reads the decisions that meet `conditions`. `order_and_limit` is the SQL after the
    /// conditions; it may be empty.
    async fn rows(
        &self,
        conditions: &ArchiveConditions,
        order_and_limit: &str,
    ) -> Result<Vec<FlatDecision>, ArchiveFailure> {
        let chosen = format!(
            "SELECT * FROM decision AS d WHERE {} {order_and_limit}",
            conditions.sql()
        );
        // A subquery, so that only the selected rows are converted to JSON.
        let sql = format!("SELECT row_to_json(d)::text FROM ({chosen}) AS d");
        let rows = self.session.query(&sql, &conditions.parameters()).await?;
        rows.iter()
            .map(|row| serde_json::from_str(row.get(0)).map_err(ArchiveFailure::Row))
            .collect()
    }

    /// Finds the decisions with the sequence number `seq`. Each node has its own numbers,
    /// so there may be several.
    ///
    /// `node` is the name of a node or the id of its record, as in
    /// [`DecisionFilter::node`]; `None` stands for all nodes.
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
        let chosen: Vec<i32> = match node {
            Some(node) => ArchiveNode::named(&nodes, node)?,
            None => nodes.keys().copied().collect(),
        };
        let Ok(seq) = i64::try_from(seq) else {
            return Ok(Vec::new());
        };
        let mut conditions = ArchiveConditions::default();
        conditions.add("d.node = ANY(?)", chosen);
        conditions.add("d.seq = ?", seq);
        let rows = self.rows(&conditions, "ORDER BY d.node").await?;
        Ok(rows.iter().map(place_of).collect())
    }

    /// Reads the decision at a place, with its policy text and robots.txt; `None` if there
    /// is no decision at this place.
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
        conditions.add("d.time = ?", system_time(place.time_us));
        conditions.add("d.node = ?", place.node);
        conditions.add("d.seq = ?", place.seq);
        let rows = self.rows(&conditions, "").await?;
        let Some(mut record) = records(rows, &nodes).pop() else {
            return Ok(None);
        };
        let sha256 = record.policy.sha256.to_string();
        let sql = "SELECT json FROM policy WHERE sha256 = $1";
        let policies = self.session.query(sql, &[&sha256]).await?;
        if let Some(policy) = policies.first() {
            record.policy = Arc::new(StoredPolicy::new(policy.get(0)));
        }
        let snapshot = record.snapshot.as_ref();
        let body = match snapshot.and_then(|snapshot| snapshot.sha256) {
            Some(sha256) => self.body(sha256).await?,
            None => None,
        };
        Ok(Some(ArchiveDecision { record, body }))
    }

    /// Reads the body of a robots.txt; `None` if the archive does not contain it.
    async fn body(&self, sha256: Digest) -> Result<Option<Vec<u8>>, ArchiveFailure> {
        let sql = "SELECT body FROM robots WHERE sha256 = $1";
        let rows = self.session.query(sql, &[&sha256.to_string()]).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// Counts the decisions that match `question`.
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
        Ok(count_of(&rows))
    }

    /// Counts the decisions that match `question`, but at most `most` of them, which is
    /// faster than [`FleetArchiveReader::count`] if there are many.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn total(
        &self,
        question: &ArchiveQuestion,
        most: u32,
    ) -> Result<DecisionTotal, ArchiveFailure> {
        let conditions = question.conditions();
        // One more than the limit, to find out whether there are more.
        let sql = format!(
            "SELECT count(*) FROM (SELECT FROM decision AS d WHERE {} LIMIT {most}::bigint + 1) AS c",
            conditions.sql(),
        );
        let rows = self.session.query(&sql, &conditions.parameters()).await?;
        let (count, most) = (count_of(&rows), u64::from(most));
        Ok(DecisionTotal {
            count: count.min(most),
            is_cut: most < count,
        })
    }

    /// Reads the decisions that match `question` and have arrived in the archive since
    /// the previous call, ordered by time.
    ///
    /// `ends` maps the number of a node to the sequence number up to which the caller has
    /// read that node's entries; this function advances it. A node missing from `ends` is
    /// added at its current end, so that only its later entries are read. If a node has
    /// very many new decisions, the next call returns the rest.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]. `ends` may then have advanced past decisions that were not
    /// returned, and must not be used again.
    pub async fn arrived(
        &self,
        question: &ArchiveQuestion,
        ends: &mut BTreeMap<i32, i64>,
    ) -> Result<Vec<StoredRecord>, ArchiveFailure> {
        let nodes = nodes_of(&self.session).await?;
        let mut arrived = Vec::new();
        for (number, node) in &nodes {
            // `node.last` is the number up to which all entries of the node have arrived.
            let after = ends.insert(*number, node.last).unwrap_or(node.last);
            if node.last <= after {
                continue;
            }
            let mut conditions = question.conditions();
            conditions.add("d.node = ?", *number);
            conditions.add("d.seq > ?", after);
            conditions.add("d.seq <= ?", node.last);
            let order_and_limit = format!("ORDER BY d.seq LIMIT {ARRIVED_MAX}");
            let rows = self.rows(&conditions, &order_and_limit).await?;
            // The limit is reached, so further decisions may match: the next call has to
            // continue after the last one read, not at `node.last`.
            if let Some(last) = rows.get(ARRIVED_MAX - 1) {
                ends.insert(*number, place_of(last).seq);
            }
            arrived.extend(records(rows, &nodes));
        }
        // So far, the decisions are grouped by node.
        arrived.sort_by_key(|record| record.at);
        Ok(arrived)
    }

    /// Returns the months for which the archive has partitions, and the number of
    /// decisions in each.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn months(&self) -> Result<BTreeMap<Month, u64>, ArchiveFailure> {
        let mut months = BTreeMap::new();
        // Events come first, and add their months with a count of zero. Decisions come
        // second, and overwrite the zero with the actual count.
        for table in PARTITIONED.into_iter().rev() {
            let rows = self.session.query(PARTITIONS, &[&table]).await?;
            for name in rows.iter().map(|row| row.get::<_, String>(0)) {
                let Some(month) = Month::named(table, &name) else {
                    continue;
                };
                let count = match table {
                    DECISIONS => self.count_rows(&name).await?,
                    _ => 0,
                };
                months.insert(month, count);
            }
        }
        Ok(months)
    }

    /// Counts the rows of a partition.
    async fn count_rows(&self, partition: &str) -> Result<u64, ArchiveFailure> {
        let sql = format!("SELECT count(*) FROM {partition}");
        Ok(count_of(&self.session.query(&sql, &[]).await?))
    }
}

/// Returns the result of a `count` query.
fn count_of(rows: &[Row]) -> u64 {
    let count = rows.first().map(|row| row.get::<_, i64>(0));
    count.unwrap_or_default().cast_unsigned()
}

/// Converts rows to decisions, labelled with their nodes. Drops the rows of a node that
/// is missing from `nodes`, because it was added after `nodes` was read.
fn records(rows: Vec<FlatDecision>, nodes: &BTreeMap<i32, ArchiveNode>) -> Vec<StoredRecord> {
    let rows = rows.into_iter();
    rows.filter_map(|row| Some((nodes.get(&row.node)?, row)))
        .map(|(node, row)| row.into_record(&node.label))
        .collect()
}

/// Returns the place of a row.
fn place_of(row: &FlatDecision) -> ArchivePlace {
    ArchivePlace {
        time_us: row.time.as_microsecond(),
        node: row.node,
        seq: row.seq.cast_signed(),
    }
}

/// Converts the time of a place for PostgreSQL. Places are parsed from links, which may
/// contain any number: a time out of range becomes the start of 1970.
fn system_time(time_us: i64) -> SystemTime {
    Timestamp::from_microsecond(time_us)
        .unwrap_or_default()
        .into()
}
