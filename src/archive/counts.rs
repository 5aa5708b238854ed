//! Decisions of the archive, counted: by PostgreSQL, and put into groups as those of a
//! record are.
//!
//! Does not know how the groups are shown.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_postgres::Row;

use super::excerpt::values;
use super::failure::ArchiveFailure;
use super::question::ArchiveQuestion;
use super::reader::NodeRecordsReader;
use super::session::in_background;
use crate::audit::AuditError;
use crate::audit::overview::{OverviewCounts, OverviewFacts, counted_facts};
use crate::audit::record_copy::{RecordCopy, TableRows};
use crate::audit::stats::{
    CountedSums, EntrySums, SUMS_MAX, StatGroup, StatKey, StatOrder, StatQuestion, stats_of,
};

/// Sums of decisions `d` with their endings `e`: behind the columns that they are
/// grouped by. No sum is greater than a number of 64 bits, whatever somebody wrote.
const SUMS: &str = "count(*), least(sum(d.wait_ms), 9223372036854775807)::bigint, \
    least(coalesce(sum(e.bytes), 0), 9223372036854775807)::bigint, count(e.error)";

const FROM: &str = "FROM decision AS d LEFT JOIN ending AS e \
    ON e.log = d.log AND e.decision = d.seq AND e.time_us = d.time_us";

/// Hour of a decision, since 1970.
const HOUR: &str = "d.time_us / 3600000000";

/// First ruling with the verdict and the effect of each.
const OUTCOMES: &str = "(SELECT id, min(id) OVER (PARTITION BY verdict, effect) AS first \
    FROM ruling) AS o";

impl NodeRecordsReader {
    /// Counts the decisions that `question` chooses by the values of `keys`, as
    /// [`stats`](crate::audit::stats::stats) does in a record.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]; [`ArchiveFailure::TooManySums`].
    pub async fn stats(
        &self,
        question: &ArchiveQuestion,
        keys: &[StatKey],
        order: StatOrder,
    ) -> Result<Vec<StatGroup>, ArchiveFailure> {
        let if_wanted = |key: StatKey, column: &'static str| match keys.contains(&key) {
            true => column,
            false => "NULL",
        };
        let of_origin = match keys.contains(&StatKey::Url) {
            true => "d.origin",
            false => if_wanted(StatKey::Host, "d.origin"),
        };
        let columns = [
            if_wanted(StatKey::Node, "d.log"),
            if_wanted(StatKey::Hour, HOUR),
            of_origin,
            if_wanted(StatKey::Url, "d.path"),
            "d.ruling",
        ];
        let counted = self.counted(question, columns).await?;
        let values = self.values_of(&counted).await?;
        let (filter, keys) = (question.filter.clone(), keys.to_vec());
        in_background(move || {
            let question = StatQuestion {
                filter: &filter,
                keys: &keys,
                order,
            };
            stats_of(record_of(&values)?.reader(), counted, &question)
        })
        .await
    }

    /// Counts by columns: node, hour, origin, path, ruling.
    async fn counted(
        &self,
        question: &ArchiveQuestion,
        columns: [&str; 5],
    ) -> Result<Vec<CountedSums>, ArchiveFailure> {
        let conditions = question.conditions();
        let grouped: Vec<_> = columns
            .iter()
            .filter(|column| **column != "NULL")
            .copied()
            .collect();
        let types = ["int", "bigint", "bigint", "text", "bigint"];
        // PostgreSQL knows no type of a null.
        let typed = columns.iter().zip(types);
        let shown: Vec<_> = typed
            .map(|(column, kind)| format!("({column})::{kind}"))
            .collect();
        let from = tables(question);
        let sql = format!(
            "SELECT {}, {SUMS} {from} WHERE {} GROUP BY {} LIMIT {}",
            shown.join(", "),
            conditions.sql(),
            grouped.join(", "),
            SUMS_MAX + 1,
        );
        let rows = self.session.query(&sql, &conditions.parameters()).await?;
        // One more than may be: so many are not put together.
        if SUMS_MAX < rows.len() {
            return Err(ArchiveFailure::TooManySums(SUMS_MAX));
        }
        let counted = |row: &Row| {
            let log: Option<i32> = row.get(0);
            let node = log.and_then(|log| question.nodes.get(&log));
            CountedSums {
                node: node.map(|node| Arc::clone(&node.label)),
                hour: number(row, 1),
                origin: number(row, 2),
                path: row.get(3),
                ruling: number(row, 4),
                sums: sums(row, 5),
            }
        };
        Ok(rows.iter().map(counted).collect())
    }

    /// Reads the origins and the rulings of `counted`.
    async fn values_of(&self, counted: &[CountedSums]) -> Result<Vec<TableRows>, ArchiveFailure> {
        let origins: BTreeSet<i64> = counted.iter().map(|counted| counted.origin).collect();
        let rulings: BTreeSet<i64> = counted.iter().map(|counted| counted.ruling).collect();
        let mut all = values(&self.session, "origin", &origins).await?;
        all.extend(values(&self.session, "ruling", &rulings).await?);
        Ok(all)
    }

    /// Gathers the facts for an overview of the decisions that `question` chooses, with
    /// at most `rows` hosts, rules and crawlers.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]; [`ArchiveFailure::TooManySums`].
    pub async fn overview(
        &self,
        question: &ArchiveQuestion,
        rows: usize,
    ) -> Result<OverviewFacts, ArchiveFailure> {
        let conditions = question.conditions();
        let from = tables(question);
        // In one pass over the decisions; of hours and hosts only what became of them is
        // told apart.
        let sql = format!(
            "SELECT grouping(g.hour), grouping(g.origin), g.hour, g.origin, \
             coalesce(g.ruling, g.outcome), sum(g.requests)::bigint, sum(g.wait_ms)::bigint, \
             sum(g.bytes)::bigint, sum(g.errors)::bigint FROM ( \
             SELECT c.hour, c.origin, c.ruling, o.first AS outcome, c.requests, c.wait_ms, \
             c.bytes, c.errors FROM ( \
             SELECT {HOUR} AS hour, d.origin, d.ruling, {SUMS} {from} WHERE {} \
             GROUP BY 1, 2, 3) AS c (hour, origin, ruling, requests, wait_ms, bytes, errors) \
             JOIN {OUTCOMES} ON o.id = c.ruling) AS g \
             GROUP BY GROUPING SETS ((g.hour, g.outcome), (g.origin, g.outcome), (g.ruling)) \
             LIMIT {}",
            conditions.sql(),
            SUMS_MAX + 1,
        );
        let found = self.session.query(&sql, &conditions.parameters()).await?;
        if SUMS_MAX < found.len() {
            return Err(ArchiveFailure::TooManySums(SUMS_MAX));
        }
        let mut counts = OverviewCounts::default();
        for row in &found {
            let counted = CountedSums {
                node: None,
                hour: number(row, 2),
                origin: number(row, 3),
                path: None,
                ruling: number(row, 4),
                sums: sums(row, 5),
            };
            // 0 where the set has the column.
            let set = match (row.get::<_, i32>(0), row.get::<_, i32>(1)) {
                (0, _) => &mut counts.by_hour,
                (_, 0) => &mut counts.by_origin,
                _ => &mut counts.by_ruling,
            };
            set.push(counted);
        }
        let all: Vec<_> = [&counts.by_hour, &counts.by_origin, &counts.by_ruling]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let values = self.values_of(&all).await?;
        in_background(move || counted_facts(record_of(&values)?.reader(), &counts, rows)).await
    }
}

/// Makes the record in memory that has `values`.
fn record_of(values: &[TableRows]) -> Result<RecordCopy, AuditError> {
    let copy = RecordCopy::in_memory("")?;
    for rows in values {
        copy.add(rows)?;
    }
    Ok(copy)
}

/// Writes the tables of decisions and endings.
fn tables(question: &ArchiveQuestion) -> String {
    let mut sql = FROM.to_owned();
    // The times of an ending are those of its decision. Said again, since PostgreSQL
    // chooses partitions by what is said of a table itself: else a day would be joined with
    // the endings of all months.
    if let Some(from) = question.filter.from {
        sql.push_str(&format!(" AND e.time_us >= {}", from.as_microsecond()));
    }
    if let Some(until) = question.filter.until {
        sql.push_str(&format!(" AND e.time_us < {}", until.as_microsecond()));
    }
    sql
}

fn number(row: &Row, column: usize) -> i64 {
    row.get::<_, Option<i64>>(column).unwrap_or_default()
}

fn sums(row: &Row, from: usize) -> EntrySums {
    let count = |column| u64::try_from(number(row, column)).unwrap_or_default();
    EntrySums {
        requests: count(from),
        wait_ms: count(from + 1),
        bytes: count(from + 2),
        errors: count(from + 3),
    }
}
