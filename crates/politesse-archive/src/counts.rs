//! Statistics of the archive's decisions, computed by PostgreSQL: sums by group, and the
//! overview.
//!
//! Does not know how the groups are shown.

use std::sync::Arc;

use tokio_postgres::Row;

use super::failure::ArchiveFailure;
use super::question::{ArchiveQuestion, CLASS_COLUMNS};
use super::reader::FleetArchiveReader;
use politesse_decision::class::DecisionClass;
use politesse_record::class_counts::{
    ClassCounts, class_sql, put_off_by_site_sql, refused_by_site_sql,
};
use politesse_record::overview::{HourSums, NamedSums, OverviewFacts, OverviewSums};
use politesse_record::stats::{DecisionSums, SUMS_MAX, StatGroup, StatKey, StatOrder, sort_groups};

/// Sums over decisions `d` that need no class of endings, in the order of
/// [`DecisionSums`]. Each sum is capped at the maximum of 64 bits.
const SUMS: &str = "count(*), \
    count(*) FILTER (WHERE d.verdict = 'disallow' AND d.effect = 'enforced'), \
    count(*) FILTER (WHERE d.verdict <> 'allow' AND d.effect = 'reported'), \
    count(*) FILTER (WHERE d.verdict = 'later' AND d.effect = 'enforced'), \
    least(coalesce(sum(d.wait_ms), 0), 9223372036854775807)::bigint, \
    least(coalesce(sum(d.bytes), 0), 9223372036854775807)::bigint";

/// Returns the columns of all sums over decisions `d`, followed by the number of
/// decisions in each class.
fn sums_columns() -> String {
    let refused = refused_by_site_sql(&CLASS_COLUMNS);
    let put_off = put_off_by_site_sql(&CLASS_COLUMNS);
    let class = class_sql(&CLASS_COLUMNS);
    let counts =
        DecisionClass::ALL.map(|each| format!(", count(*) FILTER (WHERE {class} = '{each}')"));
    format!(
        "{SUMS}, count(d.error) FILTER (WHERE d.error <> 'withheld' \
         AND {refused} IS NOT TRUE AND {put_off} IS NOT TRUE), \
         count(*) FILTER (WHERE d.error = 'withheld'), count(*) FILTER (WHERE {refused}), \
         count(*) FILTER (WHERE {put_off}){}",
        counts.concat()
    )
}

/// Hours since 1970.
const HOUR: &str = "floor(extract(epoch FROM d.time) / 3600)::bigint";

/// Host of a decision. Redacted decisions may have none.
const HOST: &str = "coalesce(d.host, '(redacted)')";

/// Reason why a request was put off; NULL for other requests.
const WAIT: &str = "CASE WHEN d.verdict = 'later' THEN d.reason END";

/// Statement that denies a purpose, and the denied purpose: columns that [`denials_join`]
/// joins.
const STATEMENT: &str = "n.statement";
const PURPOSE: &str = "n.purpose";

/// Columns that an overview groups by, one at a time. The order is that of the bits in
/// [`FleetArchiveReader::overview`].
const OVERVIEW: [&str; 5] = [HOUR, HOST, "d.rule", "d.crawler", WAIT];

impl FleetArchiveReader {
    /// Counts the decisions that match `question`, grouped by the values of `keys`, as
    /// [`stats`](politesse_record::stats::stats) does for a record.
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
        let keyed: Vec<String> = keys.iter().map(|key| key_column(*key)).collect();
        let grouped = match keyed.is_empty() {
            true => "HAVING count(*) > 0".to_owned(),
            false => format!("GROUP BY {}", keyed.join(", ")),
        };
        let columns: String = keyed.iter().map(|column| format!("{column}, ")).collect();
        let rows = self
            .sums(question, &format!("{columns}{}", sums_columns()), &grouped)
            .await?;
        // The label of a node may be the id of its record, which SQL does not select.
        let value = |row: &Row, at: usize, key: StatKey| {
            if key != StatKey::Node {
                return text(row, at);
            }
            let node = question.nodes.get(&row.get::<_, i32>(at));
            node.map(|node| Arc::clone(&node.label))
        };
        let group = |row: &Row| StatGroup {
            values: (0..)
                .zip(keys)
                .map(|(at, key)| value(row, at, *key))
                .collect(),
            sums: sums(row, keys.len()),
        };
        let mut groups = rows.iter().map(group).collect::<Vec<_>>();
        sort_groups(&mut groups, order);
        Ok(groups)
    }

    /// Collects the facts for an overview of the decisions that match `question`, with at
    /// most `rows` hosts, rules and crawlers.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]; [`ArchiveFailure::TooManySums`].
    pub async fn overview(
        &self,
        question: &ArchiveQuestion,
        rows: usize,
    ) -> Result<OverviewFacts, ArchiveFailure> {
        // All groupings in one pass over the decisions.
        let columns = format!(
            "grouping({}), {}, {}",
            OVERVIEW.join(", "),
            OVERVIEW.join(", "),
            sums_columns()
        );
        let sets = OVERVIEW.map(|column| format!("({column})")).join(", ");
        let grouped = format!("GROUP BY GROUPING SETS ({sets})");
        let found = self.sums(question, &columns, &grouped).await?;
        let mut all = OverviewSums::default();
        for row in &found {
            // `grouping` returns a bit for each column, 1 if the row is not grouped by it.
            // The first column has the highest bit. Inverted, one bit is set: that of the
            // column that this row is grouped by.
            let grouped_by = !row.get::<_, i32>(0) & 0b1_1111;
            let sums = sums(row, 1 + OVERVIEW.len());
            let named = |at| NamedSums {
                name: text(row, at),
                sums,
            };
            match grouped_by {
                0b1_0000 => all.hours.push(HourSums {
                    hour: row.get(1),
                    sums,
                }),
                0b0_1000 => all.hosts.push(named(2)),
                0b0_0100 => all.rules.push(named(3)),
                0b0_0010 => all.crawlers.push(named(4)),
                _ => all.waits.push(named(5)),
            }
        }
        Ok(all.facts(rows))
    }

    /// Queries sums by group. `grouped` is the SQL after the conditions.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]; [`ArchiveFailure::TooManySums`].
    async fn sums(
        &self,
        question: &ArchiveQuestion,
        columns: &str,
        grouped: &str,
    ) -> Result<Vec<Row>, ArchiveFailure> {
        let conditions = question.conditions();
        let sql = format!(
            "SELECT {columns} FROM decision AS d {} WHERE {} {grouped} LIMIT {}",
            denials_join(grouped),
            conditions.sql(),
            SUMS_MAX + 1
        );
        let rows = self.session.query(&sql, &conditions.parameters()).await?;
        match rows.len() <= SUMS_MAX {
            true => Ok(rows),
            false => Err(ArchiveFailure::TooManySums(SUMS_MAX)),
        }
    }
}

/// Returns the SQL expression for the value of a key.
fn key_column(key: StatKey) -> String {
    match key {
        StatKey::Host => HOST.to_owned(),
        StatKey::Url => "coalesce(d.url, '(redacted)')".to_owned(),
        StatKey::Crawler => "d.crawler".to_owned(),
        StatKey::Label => "d.label".to_owned(),
        StatKey::Preference => STATEMENT.to_owned(),
        StatKey::Purpose => PURPOSE.to_owned(),
        StatKey::Rule => "d.rule".to_owned(),
        StatKey::Reason => "d.reason".to_owned(),
        // The format of all times in the output.
        StatKey::Hour => "to_char(date_trunc('hour', d.time AT TIME ZONE 'UTC'), \
             'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
            .to_owned(),
        StatKey::Node => "d.node".to_owned(),
    }
}

/// Returns the join with the denials of a decision, if `grouped` uses their columns.
/// Equal denials count once.
fn denials_join(grouped: &str) -> String {
    let wanted = [STATEMENT, PURPOSE]
        .into_iter()
        .filter(|column| grouped.contains(column));
    let named = wanted.map(|column| {
        let name = column.trim_start_matches("n.");
        format!("j ->> '{name}' AS {name}")
    });
    let columns = named.collect::<Vec<_>>().join(", ");
    if columns.is_empty() {
        return String::new();
    }
    format!(
        "LEFT JOIN LATERAL (SELECT DISTINCT {columns} FROM jsonb_array_elements(d.denials) AS j) \
         AS n ON true"
    )
}

/// Reads a text column, which may be NULL.
fn text(row: &Row, at: usize) -> Option<Arc<str>> {
    row.get::<_, Option<&str>>(at).map(Arc::from)
}

/// Reads the columns of [`sums_columns`], starting at column `from`.
fn sums(row: &Row, from: usize) -> DecisionSums {
    let sum = |at| row.get::<_, i64>(from + at).max(0).cast_unsigned();
    DecisionSums {
        requests: sum(0),
        refusals: sum(1),
        reported: sum(2),
        later: sum(3),
        wait_ms: sum(4),
        bytes: sum(5),
        errors: sum(6),
        withheld: sum(7),
        refused_by_site: sum(8),
        put_off_by_site: sum(9),
        classes: ClassCounts::of(|class| {
            let classes = DecisionClass::ALL.into_iter();
            let column = classes.zip(10..).find(|(other, _)| *other == class);
            column.map_or(0, |(_, at)| sum(at))
        }),
    }
}
