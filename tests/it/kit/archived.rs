//! Comparison of an archive with the record of a node, row by row and column by column.
//!
//! The same query goes to SQLite and to PostgreSQL. Numbers of dictionary values, of
//! which each side has its own, are replaced by the digests of the values.

use rusqlite::Connection;

use super::postgres::Postgres;
use super::proxy::{Config, Place};
use super::until;

/// What SQLite calls `hex`, for PostgreSQL.
const HEX: &str = "
CREATE OR REPLACE FUNCTION hex(bytea) RETURNS text LANGUAGE sql
AS $$ SELECT upper(encode($1, 'hex')) $$;
CREATE OR REPLACE FUNCTION hex(text) RETURNS text LANGUAGE sql
AS $$ SELECT hex(convert_to($1, 'UTF8')) $$;
CREATE OR REPLACE FUNCTION hex(bigint) RETURNS text LANGUAGE sql
AS $$ SELECT hex($1::text) $$;";

/// Condition that stands for "of this node" in a query: a record has no other.
const MINE: &str = "{mine}";

/// Tables of entries, and the column by which they are ordered.
const ENTRIES: [[&str; 2]; 7] = [
    ["decision", "seq"],
    ["ending", "decision"],
    ["event", "seq"],
    ["lost_range", "first"],
    ["leaf_path", "seq"],
    ["seal", "size"],
    ["subtree", "part"],
];

/// References of entries: table, column, dictionary.
const REFERENCES: [[&str; 3]; 9] = [
    ["decision", "client", "client"],
    ["decision", "crawler", "crawler"],
    ["decision", "method", "term"],
    ["decision", "origin", "origin"],
    ["decision", "ruling", "ruling"],
    ["decision", "policy", "policy"],
    ["decision", "snapshot", "snapshot"],
    ["ending", "directives", "directives"],
    ["ending", "error", "term"],
];

const DICTIONARIES: [&str; 8] = [
    "client",
    "crawler",
    "directives",
    "origin",
    "policy",
    "ruling",
    "snapshot",
    "term",
];

/// Node of the archive, and the record that it is to have.
pub(crate) struct ArchivedNode<'a> {
    postgres: &'a Postgres,
    record: Connection,
    /// Number of the node in the archive.
    log: i64,
}

impl<'a> ArchivedNode<'a> {
    /// Waits until the archive has a node for the record of `place`.
    pub(crate) async fn of(postgres: &'a Postgres, place: &Place) -> Self {
        let record = place.database();
        let id: String = record
            .query_row("SELECT id FROM record", [], |row| row.get(0))
            .unwrap();
        let find = format!("SELECT log FROM node WHERE id = '{id}'");
        let log = until("node of the archive", async || {
            let found = postgres.try_sql(&find).await.ok()?;
            found.first()?.parse().ok()
        })
        .await;
        Self {
            postgres,
            record,
            log,
        }
    }

    /// Returns the number up to which all has arrived.
    pub(crate) async fn last(&self) -> i64 {
        let sql = format!("SELECT last FROM node WHERE log = {}", self.log);
        self.postgres.number(&sql).await
    }

    /// Returns the last number of the record.
    pub(crate) fn record_last(&self) -> i64 {
        let sql = "SELECT last FROM sequence";
        self.record.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Waits until all that the record has now has arrived.
    pub(crate) async fn arrival(&self) {
        let last = self.record_last();
        until("arrival of all entries", async || {
            (last <= self.last().await).then_some(())
        })
        .await;
    }

    /// Holds that the archive has all that the record has, and nothing else of this
    /// node. Nobody may write to the record meanwhile.
    pub(crate) async fn assert_whole(&self) {
        self.postgres.sql(HEX).await;
        assert_eq!(self.last().await, self.record_last());
        for [table, order] in ENTRIES {
            let columns = self.columns(table);
            let shown: Vec<_> = columns
                .iter()
                .map(|column| entry_column(table, column))
                .collect();
            self.assert_same(&query(table, &shown, &format!("{MINE} ORDER BY {order}")))
                .await;
        }
        for dictionary in DICTIONARIES {
            let wanted = format!("id IN ({}) ORDER BY sha256", references(dictionary));
            let columns = self.columns(dictionary);
            self.assert_same(&query(dictionary, &columns, &wanted))
                .await;
        }
        let snapshots = format!(
            "SELECT body FROM snapshot WHERE id IN ({})",
            references("snapshot")
        );
        let wanted = format!("sha256 IN ({snapshots}) ORDER BY sha256");
        self.assert_same(&query("body", &self.columns("body"), &wanted))
            .await;
        self.assert_node().await;
        self.assert_nothing_loose().await;
    }

    /// Holds that the node is the one that the record says it is.
    async fn assert_node(&self) {
        let columns = self.columns("record");
        let wanted = self.of_record(&query("record", &columns, "true"));
        let sql = query("node", &columns, &format!("log = {}", self.log));
        assert_eq!(self.postgres.sql(&sql).await, wanted);
    }

    /// Holds that the archive has no value that no entry refers to, and no ending
    /// without its decision.
    async fn assert_nothing_loose(&self) {
        for dictionary in DICTIONARIES {
            let used = references(dictionary).replace(MINE, "true");
            let sql = format!("SELECT count(*) FROM {dictionary} WHERE id NOT IN ({used})");
            assert_eq!(self.postgres.number(&sql).await, 0, "{dictionary}");
        }
        let sql = "SELECT count(*) FROM ending AS e WHERE NOT EXISTS (SELECT FROM decision AS d
                   WHERE d.log = e.log AND d.seq = e.decision AND d.time_us = e.time_us)";
        assert_eq!(self.postgres.number(sql).await, 0, "endings of no decision");
    }

    async fn assert_same(&self, sql: &str) {
        let wanted = self.of_record(&sql.replace(MINE, "true"));
        let mine = sql.replace(MINE, &format!("log = {}", self.log));
        let found = self.postgres.sql(&mine).await;
        let first = found
            .iter()
            .zip(&wanted)
            .find(|(found, wanted)| found != wanted);
        assert_eq!(first, None, "{sql}");
        assert_eq!(found.len(), wanted.len(), "{sql}");
    }

    fn of_record(&self, sql: &str) -> Vec<String> {
        let mut statement = self.record.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Returns the columns of a table of the record, but for the number of a value.
    fn columns(&self, table: &str) -> Vec<String> {
        let sql = format!("SELECT name FROM pragma_table_info('{table}')");
        let is_number = |name: &String| name == "id" && table != "record";
        let mut columns = self.of_record(&sql);
        columns.retain(|name| !is_number(name));
        assert!(!columns.is_empty(), "{table}");
        columns
    }
}

/// Returns the query for rows of a table, each as one text.
fn query(table: &str, columns: &[String], condition: &str) -> String {
    let shown = columns
        .iter()
        .map(|column| format!("CASE WHEN {column} IS NULL THEN '-' ELSE hex({column}) END"));
    let shown: Vec<_> = shown.collect();
    format!(
        "SELECT {} FROM {table} WHERE {condition}",
        shown.join(" || ' ' || ")
    )
}

/// Returns a column of entries, or the digest of the value that it refers to.
fn entry_column(table: &str, column: &str) -> String {
    let is_it = |reference: &&[&str; 3]| reference[0] == table && reference[1] == column;
    match REFERENCES.iter().find(is_it) {
        Some([.., dictionary]) => {
            format!("(SELECT v.sha256 FROM {dictionary} AS v WHERE v.id = {table}.{column})")
        }
        None => column.to_owned(),
    }
}

/// Returns the query for the numbers of values that entries refer to.
fn references(dictionary: &str) -> String {
    let own = REFERENCES
        .iter()
        .filter(|reference| reference[2] == dictionary);
    let selects = own.map(|[table, column, _]| {
        format!("SELECT {column} FROM {table} WHERE {column} IS NOT NULL AND {MINE}")
    });
    let selects: Vec<_> = selects.collect();
    selects.join(" UNION ")
}

/// Adds the lines with which a node ships to the archive at `url`.
pub(crate) fn shipping(config: Config, url: &str) -> Config {
    config.set(&format!("audit.archive = \"{url}\""))
}
