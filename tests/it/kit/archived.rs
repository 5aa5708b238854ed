//! Comparison of an archive with a node's record, row by row and column by column.

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::postgres::Postgres;
use super::proxy::{Config, Place};
use super::until;

/// All columns of a record's decisions, in the order of [`ARCHIVED_DECISIONS`].
const DECISIONS: &str = "
SELECT d.seq, d.time_us, c.address, c.credential, a.user_agent, m.text, o.host,
       CASE WHEN d.client != 0 THEN o.origin || d.path END, r.verdict, r.reason, r.effect, r.crawler, r.line, r.rule, d.reading,
       d.wait_ms, lower(hex(p.sha256)), s.url, s.token, s.status, s.fetched_us, s.expires_us,
       s.result, s.cause, lower(nullif(hex(s.body), '')), s.charset, e.sent, e.status, e.bytes,
       t.text, v.value, v.said
FROM decision AS d
LEFT JOIN ending AS e ON e.decision = d.seq
LEFT JOIN client AS c ON c.id = d.client
LEFT JOIN crawler AS a ON a.id = d.crawler
LEFT JOIN term AS m ON m.id = d.method
LEFT JOIN origin AS o ON o.id = d.origin
LEFT JOIN ruling AS r ON r.id = d.ruling
LEFT JOIN policy AS p ON p.id = d.policy
LEFT JOIN snapshot AS s ON s.id = d.snapshot
LEFT JOIN directives AS v ON v.id = e.directives
LEFT JOIN term AS t ON t.id = e.error
ORDER BY d.seq";

/// Defines an SQL function that converts a time to microseconds since 1970.
const MICROSECONDS: &str = "
CREATE OR REPLACE FUNCTION us(timestamptz) RETURNS bigint LANGUAGE sql
AS $$ SELECT (extract(epoch FROM $1) * 1000000)::bigint $$;";

const ARCHIVED_DECISIONS: &str = "
SELECT d.seq, us(d.time), d.client, d.credential, d.user_agent, d.method, d.host, d.url,
       d.verdict, d.reason, d.effect, d.crawler, d.line, d.rule, d.reading, d.wait_ms, d.policy,
       d.robots_url, d.robots_token, d.robots_status, us(d.robots_fetched), us(d.robots_expires),
       d.robots_result, d.robots_cause, d.robots_sha256, d.robots_charset, d.sent, d.status,
       d.bytes, d.error, d.directives, d.said
FROM decision AS d WHERE d.node = {node} ORDER BY d.seq";

const EVENTS: &str = "
SELECT seq, time_us, host, kind, status, until_us, incidents, actor, reason, sent, detail
FROM event ORDER BY seq";

const ARCHIVED_EVENTS: &str = "
SELECT seq, us(time), host, kind, status, us(until), incidents, actor, reason, sent, detail
FROM event WHERE node = {node} ORDER BY seq";

/// Counts decisions, of any node, whose policy or robots.txt text is missing or does not
/// match its digest.
const LOOSE: &str = "
SELECT count(*) FROM decision AS d
WHERE NOT EXISTS (SELECT FROM policy AS p WHERE p.sha256 = d.policy
                  AND encode(sha256(convert_to(p.json, 'UTF8')), 'hex') = p.sha256)
OR d.robots_sha256 IS NOT NULL
AND NOT EXISTS (SELECT FROM robots AS r WHERE r.sha256 = d.robots_sha256
                AND encode(sha256(r.body), 'hex') = r.sha256)";

/// A node in the archive, and the local record that the archive should mirror.
pub(crate) struct ArchivedNode<'a> {
    postgres: &'a Postgres,
    record: Connection,
    /// Id of the node in the archive.
    node: i64,
}

impl<'a> ArchivedNode<'a> {
    /// Waits until the archive lists a node for the record of `place`.
    pub(crate) async fn of(postgres: &'a Postgres, place: &Place) -> Self {
        let record = place.database();
        let id: String = record
            .query_row("SELECT id FROM record", [], |row| row.get(0))
            .unwrap();
        let find = format!("SELECT id FROM node WHERE record = '{id}'");
        let node = until("node of the archive", async || {
            let found = postgres.try_sql(&find).await.ok()?;
            found.first()?.parse().ok()
        })
        .await;
        Self {
            postgres,
            record,
            node,
        }
    }

    /// Returns the sequence number up to which the archive has all entries.
    pub(crate) async fn last(&self) -> i64 {
        let sql = format!("SELECT last FROM node WHERE id = {}", self.node);
        self.postgres.number(&sql).await
    }

    /// Returns the last sequence number in the record.
    pub(crate) fn record_last(&self) -> i64 {
        let sql = "SELECT last FROM sequence";
        self.record.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Waits until the archive has every entry that the record has now.
    pub(crate) async fn arrival(&self) {
        let last = self.record_last();
        until("arrival of all entries", async || {
            (last <= self.last().await).then_some(())
        })
        .await;
    }

    /// Asserts that the archive has exactly the entries that the record has for this
    /// node. Nothing may write to the record meanwhile.
    pub(crate) async fn assert_whole(&self) {
        self.postgres.sql(MICROSECONDS).await;
        assert_eq!(self.last().await, self.record_last());
        self.assert_same(DECISIONS, ARCHIVED_DECISIONS).await;
        self.assert_same(EVENTS, ARCHIVED_EVENTS).await;
        assert_eq!(self.postgres.number(LOOSE).await, 0);
    }

    async fn assert_same(&self, of_record: &str, archived: &str) {
        let wanted = self.of_record(of_record);
        let archived = archived.replace("{node}", &self.node.to_string());
        let found = self.postgres.sql(&archived).await;
        let both = found.iter().zip(&wanted);
        let first = both.clone().find(|(found, wanted)| found != wanted);
        assert_eq!(first, None, "{archived}");
        assert_eq!(found.len(), wanted.len(), "{archived}");
    }

    /// Runs a query on the record, and returns the rows in the format of `psql`.
    fn of_record(&self, sql: &str) -> Vec<String> {
        let mut statement = self.record.prepare(sql).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            let values = (0..columns).map(|at| Ok(shown(row.get_ref(at)?)));
            let values: rusqlite::Result<Vec<String>> = values.collect();
            Ok(values?.join("|"))
        });
        rows.unwrap().map(Result::unwrap).collect()
    }
}

fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        // PostgreSQL text cannot contain U+0000; the archive stores the symbol for it.
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).replace('\0', "\u{2400}")
        }
    }
}

/// Makes a node ship its record to the archive at `url`.
pub(crate) fn shipping(config: Config, url: &str) -> Config {
    config.set(&format!("audit.archive = \"{url}\""))
}
