//! Shipment of one window of entries, in one transaction.
//!
//! The transaction locks the row of the node first, which contains the number up to which
//! all entries have arrived. A shipper that finds a different number than expected was
//! overtaken, and writes nothing; an aborted transaction has written nothing either. So
//! each entry is stored exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Value, json};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Transaction};

use super::failure::ArchiveFailure;
use super::flat_decision::{FlatDecision, storable, to_json};
use super::month::{Month, PARTITIONED};
use politesse_decision::record::StoredRecord;
use politesse_record::copy_end::{CopiedEntry, CopyEnd};
use politesse_record::entry_window::{EntryWindow, RecordDescription};
use politesse_record::events::EventRow;

/// Advisory lock for creating partitions.
const PARTITION_LOCK: i64 = 0x706f_6c69_7466;

// `to_regclass` is unsuitable; see `schema`.
const FIND_PARTITION: &str = "SELECT EXISTS (SELECT FROM pg_class
  WHERE relname = $1::text AND pg_table_is_visible(oid))";

const FIND_NODE: &str = "SELECT id, last, newest, newest_time FROM node WHERE record = $1";

const ADD_NODE: &str = "
INSERT INTO node (record, name, begun, last, shipped_at) VALUES ($1, $2, $3, 0, now())
ON CONFLICT (record) DO NOTHING";

const NAME_NODE: &str = "UPDATE node SET name = $2 WHERE id = $1 AND name <> $2";

const LOCK_NODE: &str = "SELECT last FROM node WHERE id = $1 FOR UPDATE";

const MOVE_NODE: &str = "
UPDATE node SET last = $2, newest = coalesce($3, newest),
  newest_time = coalesce($4, newest_time), shipped_at = now() WHERE id = $1";

const COUNT_FILES: &str = "SELECT count(*) FROM robots WHERE sha256 = ANY($1)";

const ADD_POLICIES: &str = "
INSERT INTO policy SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING";

const ADD_DECISIONS: &str = "
INSERT INTO decision SELECT * FROM json_populate_recordset(NULL::decision, $1::text::json)";

const ADD_EVENTS: &str = "
INSERT INTO event SELECT * FROM json_populate_recordset(NULL::event, $1::text::json)";

/// Adds endings to decisions without one.
const ADD_ENDINGS: &str = "
UPDATE decision AS d SET sent = e.sent, status = e.status, bytes = e.bytes, error = e.error,
  directives = e.directives, said = e.said, denials = e.denials
FROM json_populate_recordset(NULL::decision, $1::text::json) AS e
WHERE d.node = $2 AND d.seq = e.seq AND d.time = e.time AND d.sent IS NULL";

// The host stays if the robots.txt of the row names it anyway, as in the node's record.
const REDACT: &str = "
UPDATE decision AS d SET client = NULL, credential = NULL, url = NULL, reading = NULL,
  host = CASE WHEN starts_with(d.url, d.robots_origin || '/') THEN d.host END
FROM unnest($2::bigint[], $3::bigint[]) AS r (first, last)
WHERE d.node = $1 AND r.first <= d.seq AND d.seq <= r.last AND d.client IS NOT NULL";

/// Node of the archive, and the progress of shipping its record.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShippedNode {
    /// Number of the node.
    id: i32,
    /// End of the entries that have arrived.
    pub(super) end: CopyEnd,
}

impl ShippedNode {
    /// Finds the node of a record, or adds it under `name`. An existing node keeps its
    /// name until [`ShippedNode::set_name`].
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`], as for all functions here.
    pub(super) async fn find(
        client: &Client,
        record: &RecordDescription,
        name: &str,
    ) -> Result<Self, ArchiveFailure> {
        let mut found = client.query_opt(FIND_NODE, &[&record.id]).await?;
        if found.is_none() {
            // Only if it is missing, because every attempt uses up a node number.
            let begun = SystemTime::from(storable(record.begun));
            let values: [&(dyn ToSql + Sync); 3] = [&record.id, &name, &begun];
            client.execute(ADD_NODE, &values).await?;
            found = client.query_opt(FIND_NODE, &[&record.id]).await?;
        }
        let row = found.ok_or(ArchiveFailure::Overtaken)?;
        let time: Option<SystemTime> = row.get(3);
        let newest = row.get::<_, Option<i64>>(2).zip(time);
        Ok(Self {
            id: row.get(0),
            end: CopyEnd {
                last: row.get(1),
                newest: newest.and_then(|(seq, time)| {
                    let at = time.try_into().ok()?;
                    Some(CopiedEntry { seq, at })
                }),
            },
        })
    }

    /// Updates the name of the node.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub(super) async fn set_name(&self, client: &Client, name: &str) -> Result<(), ArchiveFailure> {
        client.execute(NAME_NODE, &[&self.id, &name]).await?;
        Ok(())
    }

    /// Ships a window read after the node's end, and advances the end. `files` are the
    /// digests of the robots.txt bodies that must already be stored.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]: either nothing or everything was shipped, and a new connection
    /// is required. [`ArchiveFailure::Overtaken`] if a file has been removed.
    pub(super) async fn ship(
        &mut self,
        client: &mut Client,
        window: &EntryWindow,
        files: &[String],
    ) -> Result<(), ArchiveFailure> {
        // If this future is dropped, the connection is dropped as well, which rolls back.
        let transaction = client.transaction().await?;
        let locked = transaction.query_one(LOCK_NODE, &[&self.id]).await?;
        let there = transaction.query_one(COUNT_FILES, &[&files]).await?;
        let count: i64 = there.get(0);
        if locked.get::<_, i64>(0) != self.end.last || usize::try_from(count) != Ok(files.len()) {
            return Err(ArchiveFailure::Overtaken);
        }
        // Policies and partitions come first, in the same order on all nodes: two nodes
        // that create the same ones then wait for each other without a deadlock.
        add_policies(&transaction, &window.decisions).await?;
        make_partitions(&transaction, window).await?;
        self.add_rows(&transaction, window).await?;
        let newest = window.newest();
        let moved: [&(dyn ToSql + Sync); 4] = [
            &self.id,
            &window.last,
            &newest.map(|entry| entry.seq),
            &newest.map(|entry| SystemTime::from(storable(entry.at))),
        ];
        transaction.execute(MOVE_NODE, &moved).await?;
        // If the commit fails midway, the next connection finds out whether it took
        // effect.
        transaction.commit().await?;
        self.end = CopyEnd {
            last: window.last,
            newest: newest.or(self.end.newest),
        };
        Ok(())
    }

    async fn add_rows(
        &self,
        transaction: &Transaction<'_>,
        window: &EntryWindow,
    ) -> Result<(), ArchiveFailure> {
        if !window.decisions.is_empty() {
            let rows = to_json(&self.flat(&window.decisions));
            transaction.execute(ADD_DECISIONS, &[&rows]).await?;
        }
        if !window.ended.is_empty() {
            let rows = self.flat(&window.ended);
            let times = rows.iter().map(|row| row.time);
            let (first, last) = (times.clone().min(), times.max());
            // Constants, because PostgreSQL uses them to select partitions before it
            // plans the join.
            let sql = format!(
                "{ADD_ENDINGS} AND '{}' <= d.time AND d.time <= '{}'",
                first.unwrap_or_default(),
                last.unwrap_or_default()
            );
            transaction
                .execute(&sql, &[&to_json(&rows), &self.id])
                .await?;
        }
        if !window.events.is_empty() {
            let events = window.events.iter();
            let rows: Vec<Value> = events.map(|event| flat_event(self.id, event)).collect();
            transaction.execute(ADD_EVENTS, &[&to_json(&rows)]).await?;
        }
        // Redactions come last, because a decision may be in the same window.
        let redacted = window.redacted();
        if !redacted.is_empty() {
            let [firsts, lasts] = [0, 1].map(|at| redacted.iter().map(move |range| range[at]));
            let firsts: Vec<i64> = firsts.collect();
            let lasts: Vec<i64> = lasts.collect();
            let values: [&(dyn ToSql + Sync); 3] = [&self.id, &firsts, &lasts];
            transaction.execute(REDACT, &values).await?;
        }
        Ok(())
    }

    fn flat(&self, decisions: &[StoredRecord]) -> Vec<FlatDecision> {
        let rows = decisions.iter();
        rows.map(|record| FlatDecision::of(self.id, record))
            .collect()
    }
}

/// Builds the row of `event`.
fn flat_event(node: i32, event: &EventRow) -> Value {
    json!({
        "node": node,
        "seq": event.seq,
        "time": storable(event.at),
        "host": event.host,
        "kind": event.kind,
        "status": event.status,
        "until": storable(event.until),
        "incidents": event.incidents,
        "actor": event.actor,
        "reason": event.reason,
        "sent": event.sent,
        "detail": event.detail,
    })
}

/// Adds the missing policies, in the order of their digests.
async fn add_policies(
    transaction: &Transaction<'_>,
    decisions: &[StoredRecord],
) -> Result<(), ArchiveFailure> {
    let policies: BTreeMap<_, _> = decisions
        .iter()
        .map(|decision| (decision.policy.sha256, Arc::clone(&decision.policy)))
        .collect();
    let digests: Vec<String> = policies.keys().map(ToString::to_string).collect();
    let texts: Vec<String> = policies
        .values()
        .map(|policy| policy.json.replace('\0', "\u{2400}"))
        .collect();
    transaction
        .execute(ADD_POLICIES, &[&digests, &texts])
        .await?;
    Ok(())
}

/// Creates the missing partitions for the months of a window.
async fn make_partitions(
    transaction: &Transaction<'_>,
    window: &EntryWindow,
) -> Result<(), ArchiveFailure> {
    let decisions = window.decisions.iter().map(|decision| decision.at);
    let events = window.events.iter().map(|event| event.at);
    let months = [
        decisions.map(storable).map(Month::of).collect(),
        events.map(storable).map(Month::of).collect(),
    ];
    for (table, months) in PARTITIONED.into_iter().zip::<[BTreeSet<Month>; 2]>(months) {
        for month in months {
            let name = month.partition(table);
            if transaction
                .query_one(FIND_PARTITION, &[&name])
                .await?
                .get(0)
            {
                continue;
            }
            // Without the lock, two nodes could create the same one at once.
            let lock = "SELECT pg_advisory_xact_lock($1)";
            transaction.execute(lock, &[&PARTITION_LOCK]).await?;
            if !transaction
                .query_one(FIND_PARTITION, &[&name])
                .await?
                .get::<_, bool>(0)
            {
                transaction.batch_execute(&month.create(table)).await?;
            }
        }
    }
    Ok(())
}
