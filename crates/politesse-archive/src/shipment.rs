//! Shipment of one window of entries, in one transaction.
//!
//! A node's *record* is its audit log. Its *entries* have consecutive numbers: decisions
//! (a [`StoredRecord`] is one decision), endings, and events. An *ending* is what became
//! known when an exchange was over: status, bytes, error. It comes with its whole decision
//! (`EntryWindow::ended`); a decision without one has no value in the column `sent`. A
//! *window* ([`EntryWindow`]) is a run of entries. In the archive, each record has a row of
//! the table `node`, with two ends, which [`CopyEnd`] holds:
//!
//! - `last` is the number up to which all entries have arrived. The next window starts
//!   after it.
//! - `newest` and `newest_time` are number and time of the last decision or event that has
//!   arrived. An ending advances `last`, but not these. The node looks that entry up in
//!   its own record: if its time differs there, the record was restored from an older copy
//!   (`politesse_record::copy_end`).
//!
//! The transaction locks the row of the node first. If `last` has changed since this
//! process read it, another process has shipped the same record in the meantime, and this
//! one writes nothing. An aborted transaction has written nothing either. So each entry is
//! stored exactly once.

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

/// Advisory lock for creating partitions. The number must differ from that of
/// `schema::SCHEMA_LOCK`, and other programs are unlikely to use it.
const PARTITION_LOCK: i64 = 0x706f_6c69_7466;

// `to_regclass` would be shorter, but is unsuitable; see `schema::FIND_TABLES`.
const FIND_PARTITION: &str = "SELECT EXISTS (SELECT FROM pg_class
  WHERE relname = $1::text AND pg_table_is_visible(oid))";

const FIND_NODE: &str = "SELECT id, last, newest, newest_time FROM node WHERE record = $1";

const ADD_NODE: &str = "
INSERT INTO node (record, name, begun, last, shipped_at) VALUES ($1, $2, $3, 0, now())
ON CONFLICT (record) DO NOTHING";

const RENAME_NODE: &str = "UPDATE node SET name = $2 WHERE id = $1 AND name <> $2";

const LOCK_NODE: &str = "SELECT last FROM node WHERE id = $1 FOR UPDATE";

const ADVANCE_NODE: &str = "
UPDATE node SET last = $2, newest = coalesce($3, newest),
  newest_time = coalesce($4, newest_time), shipped_at = now() WHERE id = $1";

const COUNT_BODIES: &str = "SELECT count(*) FROM robots WHERE sha256 = ANY($1)";

const ADD_POLICIES: &str = "
INSERT INTO policy SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING";

const ADD_DECISIONS: &str = "
INSERT INTO decision SELECT * FROM json_populate_recordset(NULL::decision, $1::text::json)";

const ADD_EVENTS: &str = "
INSERT INTO event SELECT * FROM json_populate_recordset(NULL::event, $1::text::json)";

/// Adds endings to decisions that arrived before they had one.
const ADD_ENDINGS: &str = "
UPDATE decision AS d SET sent = e.sent, status = e.status, bytes = e.bytes, error = e.error,
  directives = e.directives, said = e.said, denials = e.denials
FROM json_populate_recordset(NULL::decision, $1::text::json) AS e
WHERE d.node = $2 AND d.seq = e.seq AND d.time = e.time AND d.sent IS NULL";

// Redaction keeps the column `robots_origin`, the origin whose robots.txt decided. If the
// URL has the same origin, erasing `host` would hide nothing, so it is kept; otherwise it is
// erased. Rows without a client are redacted already. `FlatDecision` gives the same host to a decision that was redacted before it was
// shipped.
const REDACT: &str = "
UPDATE decision AS d SET client = NULL, credential = NULL, url = NULL, reading = NULL,
  host = CASE WHEN starts_with(d.url, d.robots_origin || '/') THEN d.host END
FROM unnest($2::bigint[], $3::bigint[]) AS r (first, last)
WHERE d.node = $1 AND r.first <= d.seq AND d.seq <= r.last AND d.client IS NOT NULL";

/// Row of the table `node`, and the progress of shipping its record.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShippedNode {
    /// Number of the node in the archive.
    id: i32,
    /// End of the entries that have arrived, as read on connecting, and advanced by each
    /// shipment.
    pub(super) end: CopyEnd,
}

impl ShippedNode {
    /// Finds the node of a record, or adds it under `name`. An existing node keeps its
    /// name until [`ShippedNode::set_name`].
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`], as for all functions here. [`ArchiveFailure::Overtaken`] if the
    /// row was deleted right after it was added.
    pub(super) async fn find(
        client: &Client,
        record: &RecordDescription,
        name: &str,
    ) -> Result<Self, ArchiveFailure> {
        let mut found = client.query_opt(FIND_NODE, &[&record.id]).await?;
        if found.is_none() {
            // Not attempted for an existing node, because each attempt uses up a node
            // number, even if it inserts nothing.
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
        client.execute(RENAME_NODE, &[&self.id, &name]).await?;
        Ok(())
    }

    /// Ships `window`, which must start after the node's end, and advances the end.
    /// `body_digests` are the digests of the robots.txt bodies that the caller has stored
    /// for this window.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]. The caller must connect again, and reads from `last` whether the
    /// window was written: it is written whole, or not at all. After
    /// [`ArchiveFailure::Overtaken`] it was not: another process has shipped entries of
    /// this record since its end was read, or has removed an expired month, and with it one
    /// of the bodies.
    pub(super) async fn ship(
        &mut self,
        client: &mut Client,
        window: &EntryWindow,
        body_digests: &[String],
    ) -> Result<(), ArchiveFailure> {
        // If the caller drops this future (it has a timeout), it drops the connection as
        // well, and the server rolls back.
        let transaction = client.transaction().await?;
        let locked = transaction.query_one(LOCK_NODE, &[&self.id]).await?;
        let counted = transaction
            .query_one(COUNT_BODIES, &[&body_digests])
            .await?;
        let stored: i64 = counted.get(0);
        let has_bodies = usize::try_from(stored) == Ok(body_digests.len());
        if locked.get::<_, i64>(0) != self.end.last || !has_bodies {
            return Err(ArchiveFailure::Overtaken);
        }
        // Several nodes may add the same policies and partitions. All nodes add policies
        // first, by digest, then partitions: as their locks are taken in the same order,
        // one transaction waits for the other, and there is no deadlock.
        add_policies(&transaction, &window.decisions).await?;
        make_partitions(&transaction, window).await?;
        self.add_rows(&transaction, window).await?;
        let newest = window.newest();
        let values: [&(dyn ToSql + Sync); 4] = [
            &self.id,
            &window.last,
            &newest.map(|entry| entry.seq),
            &newest.map(|entry| SystemTime::from(storable(entry.at))),
        ];
        transaction.execute(ADVANCE_NODE, &values).await?;
        // If the connection breaks here, it is unknown whether the commit took effect. The
        // next connection finds out, because it reads `last` again.
        transaction.commit().await?;
        self.end = CopyEnd {
            last: window.last,
            newest: newest.or(self.end.newest),
        };
        Ok(())
    }

    /// Adds the decisions, endings and events of a window, then redacts the decisions whose
    /// redaction the events state.
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
            let (earliest, latest) = (times.clone().min(), times.max());
            // Constants in the text rather than parameters, because PostgreSQL uses them
            // to select partitions before it plans the join.
            let sql = format!(
                "{ADD_ENDINGS} AND '{}' <= d.time AND d.time <= '{}'",
                earliest.unwrap_or_default(),
                latest.unwrap_or_default()
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
        // Redactions come last, because the redacted decisions may be in the same window,
        // and their rows must exist.
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

    /// Builds the rows of decisions of this node.
    fn flat(&self, decisions: &[StoredRecord]) -> Vec<FlatDecision> {
        let decisions = decisions.iter();
        decisions
            .map(|decision| FlatDecision::of(self.id, decision))
            .collect()
    }
}

/// Builds the row of the table `event`, as a JSON object with a member for each column.
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

/// Adds the policies of `decisions` that the archive lacks, in the order of their digests.
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
        // PostgreSQL text cannot contain U+0000.
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
            // The lock serialises the creation by several nodes. Another node may have
            // created the partition while this one waited, so look again.
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
