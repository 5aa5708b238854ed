//! Transaction of the writer: what a batch writes to the tables.
//!
//! Evidence is kept once: bodies and policies by digest, snapshots by what they
//! say. Does not know when a transaction begins, nor what a failure means.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use rusqlite::types::Value;
use rusqlite::{
    Connection, OptionalExtension, Params, Transaction, TransactionBehavior, params,
    params_from_iter,
};

use super::columns::{blob, integer};
use super::decision_row::{
    SNAPSHOT_COLUMNS, decision_digest, decision_values, ending_digest, ending_values,
    snapshot_values,
};
use super::events::{EVENTS, EventRow, INSERT_EVENT, LAST_KIND};
use super::order::{BEGIN_RUN, ClockOrder};
use super::saved_state::{SAVE_BACK_OFF, SAVE_SNAPSHOT, back_off_values, snapshot_row_values};
use crate::decision::decide::Policy;
use crate::decision::digest::Digest;
use crate::decision::record::{ExchangeEnd, Record};
use crate::decision::snapshot::{Snapshot, StoredSnapshot};
use crate::pace::back_off::{BackOffChange, BackOffEvent};

/// Snapshots and policies remembered as written. One that is forgotten is looked
/// up in the database again.
const REMEMBERED_MAX: usize = 4096;

const INSERT_DECISION: &str = "
INSERT INTO decision (seq, time_us, client, candidates, crawler, user_agent,
  method, url, host, verdict, reason, effect, line, rule, groups, reading,
  wait_ms, policy, snapshot, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

const COMPLETE_DECISION: &str = "
UPDATE decision SET status = ?, directives = ?, said = ?, bytes = ?, error = ?, ended = ?
WHERE seq = ?";

const FIND_SNAPSHOT: &str = "
SELECT id FROM snapshot WHERE origin = ? AND token IS ? AND url = ? AND status IS ?
  AND fetched_us = ? AND expires_us = ? AND result = ? AND cause IS ? AND body IS ?
  AND hops IS ?";

const INSERT_SNAPSHOT: &str = "
INSERT INTO snapshot (origin, token, url, status, fetched_us, expires_us, result,
  cause, body, hops)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// Values under a decision's digest where the site was not asked.
const NO_SNAPSHOT: [Value; SNAPSHOT_COLUMNS] = [const { Value::Null }; SNAPSHOT_COLUMNS];

/// Number of the row that a probe writes and removes; no decision has it.
const PROBE_SEQ: i64 = 0;

/// A transaction under way. It is rolled back if it is dropped.
pub(super) struct AuditTransaction<'a> {
    transaction: Transaction<'a>,
    written: &'a mut WrittenRows,
    /// Highest number of a decision that was written.
    last: u64,
}

impl<'a> AuditTransaction<'a> {
    /// Begins a transaction. The highest number in the database is `last`.
    pub(super) fn begin(
        connection: &'a mut Connection,
        written: &'a mut WrittenRows,
        last: u64,
    ) -> rusqlite::Result<Self> {
        // Immediate: with the lock from the start, no statement of the batch can
        // fail for want of it.
        let behavior = TransactionBehavior::Immediate;
        Ok(Self {
            transaction: connection.transaction_with_behavior(behavior)?,
            written,
            last,
        })
    }

    /// Commits, and returns the highest number in the database.
    pub(super) fn commit(self) -> rusqlite::Result<u64> {
        self.transaction.commit()?;
        Ok(self.last)
    }

    /// Writes a decision, and what it rests on.
    pub(super) fn write_decision(&mut self, seq: u64, record: &Record) -> rusqlite::Result<()> {
        let evidence = &record.evidence;
        self.last = self.last.max(seq);
        self.write_policy(&evidence.policy)?;
        let (id, snapshot) = match &evidence.snapshot {
            Some(snapshot) => (
                Some(self.write_snapshot(snapshot)?),
                snapshot_values(snapshot),
            ),
            None => (None, NO_SNAPSHOT),
        };
        let decision = decision_values(seq, record);
        let digest = decision_digest(decision.iter().chain(&snapshot).map(Into::into));
        let order = &mut self.written.order;
        if order.begins_run(&self.transaction, evidence.at)? {
            self.execute(BEGIN_RUN, [integer(seq)])?;
        }
        let rest = [id.into(), blob(digest)];
        self.execute(
            INSERT_DECISION,
            params_from_iter(decision.into_iter().chain(rest)),
        )
    }

    /// Completes the decision `seq`.
    pub(super) fn write_ending(&self, seq: u64, outcome: &ExchangeEnd) -> rusqlite::Result<()> {
        let values = ending_values(outcome);
        let seq = integer(seq);
        let digest = ending_digest((&seq).into(), values.iter().map(Into::into));
        self.execute(
            COMPLETE_DECISION,
            params_from_iter(values.into_iter().chain([blob(digest), seq])),
        )
    }

    /// Writes the last that is known of a robots.txt, in place of what was known
    /// before.
    pub(super) fn save_snapshot(&self, saved: &StoredSnapshot) -> rusqlite::Result<()> {
        self.write_body(&saved.snapshot)?;
        self.execute(SAVE_SNAPSHOT, params_from_iter(snapshot_row_values(saved)))
    }

    /// Writes an event, and what the next process must know after it.
    pub(super) fn write_event(&self, event: &BackOffEvent) -> rusqlite::Result<()> {
        let has_left = event.change == BackOffChange::Left;
        // A process that starts while a back-off is saved reports once more that
        // it is over. Once is enough.
        if has_left && self.is_left(event)? {
            return Ok(());
        }
        let seq = 1 + EVENTS.last_number(&self.transaction)?;
        let values = EventRow::of_back_off(seq, event).values();
        self.execute(INSERT_EVENT, params_from_iter(values))?;
        match event.saved() {
            // The end says nothing new: it was saved with the beginning.
            _ if has_left => Ok(()),
            Some(back_off) => {
                self.execute(SAVE_BACK_OFF, params_from_iter(back_off_values(&back_off)))
            }
            None => {
                let host = event.host.to_string();
                self.execute("DELETE FROM back_off WHERE host = ?", [host])
            }
        }
    }

    /// Reports whether the last event of the host is that it may be asked
    /// again.
    fn is_left(&self, event: &BackOffEvent) -> rusqlite::Result<bool> {
        let last: Option<String> = self
            .transaction
            .prepare_cached(LAST_KIND)?
            .query_row([event.host.to_string()], |row| row.get(0))
            .optional()?;
        Ok(last.is_some_and(|kind| kind == BackOffChange::Left.as_str()))
    }

    /// Writes a decision as any other, and removes it: whatever would keep a
    /// real one from being written makes this fail, too.
    pub(super) fn probe(&self) -> rusqlite::Result<()> {
        const NO_POLICY: [u8; 32] = [0; 32];
        self.execute(
            "INSERT INTO policy (sha256, json) VALUES (?, '')",
            [NO_POLICY],
        )?;
        self.execute(
            "INSERT INTO decision (seq, time_us, client, candidates, method, url,
               host, verdict, reason, effect, groups, wait_ms, policy, digest)
             VALUES (?, 0, '', '', '', '', '', '', '', '', '', 0, ?, x'')",
            params![PROBE_SEQ, NO_POLICY],
        )?;
        self.execute("DELETE FROM decision WHERE seq = ?", [PROBE_SEQ])?;
        self.execute("DELETE FROM policy WHERE sha256 = ?", [NO_POLICY])
    }

    fn write_policy(&mut self, policy: &Policy) -> rusqlite::Result<()> {
        if self.written.policies.contains(&policy.digest()) {
            return Ok(());
        }
        self.execute(
            "INSERT INTO policy (sha256, json) VALUES (?, ?) ON CONFLICT DO NOTHING",
            params![blob(policy.digest()), policy.json()],
        )?;
        self.written.remember_policy(policy.digest());
        Ok(())
    }

    /// Returns the row of `snapshot`, written if it is not there.
    fn write_snapshot(&mut self, snapshot: &Arc<Snapshot>) -> rusqlite::Result<i64> {
        if let Some(id) = self.written.snapshot(snapshot) {
            return Ok(id);
        }
        let values = snapshot_values(snapshot);
        let found = self
            .transaction
            .prepare_cached(FIND_SNAPSHOT)?
            .query_row(params_from_iter(&values), |row| row.get(0))
            .optional()?;
        let id = match found {
            Some(id) => id,
            None => {
                self.write_body(snapshot)?;
                self.execute(INSERT_SNAPSHOT, params_from_iter(&values))?;
                self.transaction.last_insert_rowid()
            }
        };
        self.written.remember_snapshot(snapshot, id);
        Ok(id)
    }

    fn write_body(&self, snapshot: &Snapshot) -> rusqlite::Result<()> {
        let Some(copy) = snapshot.file() else {
            return Ok(());
        };
        self.execute(
            "INSERT INTO body (sha256, body) VALUES (?, ?) ON CONFLICT DO NOTHING",
            params![blob(copy.digest), copy.body.as_ref()],
        )
    }

    fn execute(&self, sql: &str, params: impl Params) -> rusqlite::Result<()> {
        self.transaction.prepare_cached(sql)?.execute(params)?;
        Ok(())
    }
}

/// Rows that are known to be in the database, so that they are not written
/// again.
#[derive(Debug, Default)]
pub(super) struct WrittenRows {
    /// Rows of snapshots by address. The weak reference keeps the address from
    /// being given to another snapshot.
    snapshots: HashMap<usize, (Weak<Snapshot>, i64)>,
    policies: HashSet<Digest>,
    order: ClockOrder,
}

impl WrittenRows {
    fn snapshot(&self, snapshot: &Arc<Snapshot>) -> Option<i64> {
        let address = Arc::as_ptr(snapshot).addr();
        self.snapshots.get(&address).map(|(_, id)| *id)
    }

    fn remember_snapshot(&mut self, snapshot: &Arc<Snapshot>, id: i64) {
        if REMEMBERED_MAX <= self.snapshots.len() {
            // All at once: what is still in use is looked up once, and is back.
            self.snapshots.clear();
        }
        let address = Arc::as_ptr(snapshot).addr();
        self.snapshots
            .insert(address, (Arc::downgrade(snapshot), id));
    }

    fn remember_policy(&mut self, digest: Digest) {
        if REMEMBERED_MAX <= self.policies.len() {
            self.policies.clear();
        }
        self.policies.insert(digest);
    }
}
