//! What the writer does to the SQLite file, one transaction at a time.
//!
//! A transaction is on disk when its commit returns. Evidence is kept once:
//! bodies and policies by digest, snapshots by what they say. When a
//! transaction is made, and with what, is the writer's to say.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{
    Connection, OptionalExtension, Params, Transaction, TransactionBehavior, params,
    params_from_iter,
};

use super::event_row::{INSERT_EVENT, LAST_KIND, SAVE_BACK_OFF, back_off_values, event_values};
use super::folder::LockedFolder;
use super::kept_row::{SAVE, kept_values};
use super::order::{BEGIN_RUN, ClockOrder};
use super::row::{
    SNAPSHOT_COLUMNS, blob, decision_digest, decision_values, ending_digest, ending_values,
    integer, snapshot_values,
};
use super::{AuditError, schema};
use crate::rules::decision::Policy;
use crate::rules::digest::Digest;
use crate::rules::pace::event::{BackOffChange, BackOffEvent};
use crate::rules::record::{Outcome, Record};
use crate::rules::robots::access::Snapshot;
use crate::rules::robots::kept::Kept;

/// Snapshots and policies remembered as written. Who is forgotten is looked up
/// in the file again.
const REMEMBERED_MAX: usize = 4096;

const INSERT: &str = "
INSERT INTO decision (seq, time_us, client, candidates, crawler, user_agent,
  method, url, host, verdict, reason, effect, line, rule, groups, reading,
  wait_ms, policy, snapshot, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// What stands in a row's digest where nothing was asked of the origin.
const NOT_ASKED: [Value; SNAPSHOT_COLUMNS] = [const { Value::Null }; SNAPSHOT_COLUMNS];

/// The number of the row that a probe writes and takes back; no record has it.
const PROBE_SEQ: i64 = 0;

/// The file, locked and open for writing.
#[derive(Debug)]
pub(super) struct Store {
    connection: Connection,
    written: Written,
    /// Locked for as long as the store is open.
    _folder: LockedFolder,
}

impl Store {
    /// Opens the file at `path`, made with its folder if it is not there.
    ///
    /// # Errors
    ///
    /// [`AuditError::Locked`] if another process writes to its folder,
    /// [`AuditError::Create`], [`AuditError::Open`] and [`AuditError::Schema`].
    pub(super) fn open(path: &Path) -> Result<Self, AuditError> {
        let folder = LockedFolder::lock(path)?;
        folder.make_database()?;
        Ok(Self {
            connection: schema::open(&folder.database)?,
            written: Written::default(),
            _folder: folder,
        })
    }

    /// The highest number ever given; 0 if none was.
    pub(super) fn last_seq(&self) -> rusqlite::Result<u64> {
        schema::last_seq(&self.connection)
    }

    /// Does `work` in one transaction: all of it is on disk, or nothing is.
    pub(super) fn write(
        &mut self,
        work: impl FnOnce(&mut Batch<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let done = self.attempt(work);
        if done.is_err() {
            // What this transaction wrote is not there, so nothing may be
            // remembered of it.
            self.written = Written::default();
        }
        done
    }

    fn attempt(
        &mut self,
        work: impl FnOnce(&mut Batch<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let behavior = TransactionBehavior::Immediate;
        let mut batch = Batch {
            transaction: self.connection.transaction_with_behavior(behavior)?,
            written: &mut self.written,
        };
        work(&mut batch)?;
        batch.transaction.commit()
    }

    /// Takes away at most `most` kept snapshots that expired before `before`,
    /// and tells how many there were. Bodies stay: decisions rest on them.
    pub(super) fn prune(&self, before: Timestamp, most: usize) -> rusqlite::Result<usize> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.connection
            .prepare_cached(
                "DELETE FROM kept WHERE (origin, token) IN (
                   SELECT origin, token FROM kept WHERE expires_us < ?
                   ORDER BY expires_us LIMIT ?)",
            )?
            .execute(params![before.as_microsecond(), most])
    }

    /// Takes away at most `most` back-offs that were over before `before`, and
    /// tells how many there were.
    pub(super) fn prune_back_offs(
        &self,
        before: Timestamp,
        most: usize,
    ) -> rusqlite::Result<usize> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.connection
            .prepare_cached(
                "DELETE FROM back_off WHERE host IN (
                   SELECT host FROM back_off WHERE until_us < ?
                   ORDER BY until_us LIMIT ?)",
            )?
            .execute(params![before.as_microsecond(), most])
    }

    /// Moves all that is in the WAL to the file itself.
    pub(super) fn checkpoint(&self) -> rusqlite::Result<()> {
        self.connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    }
}

/// The transaction under way.
pub(super) struct Batch<'a> {
    transaction: Transaction<'a>,
    written: &'a mut Written,
}

impl Batch<'_> {
    /// Writes a decision, and what it rests on.
    pub(super) fn record(&mut self, seq: u64, record: &Record) -> rusqlite::Result<()> {
        let evidence = &record.evidence;
        self.policy(&evidence.policy)?;
        let (id, said) = match &evidence.snapshot {
            Some(snapshot) => (Some(self.snapshot(snapshot)?), snapshot_values(snapshot)),
            None => (None, NOT_ASKED),
        };
        let decided = decision_values(seq, record);
        let digest = decision_digest(decided.iter().chain(&said).map(Into::into));
        let order = &mut self.written.order;
        if order.begins_run(&self.transaction, evidence.at)? {
            self.execute(BEGIN_RUN, [integer(seq)])?;
        }
        let rest = [id.into(), blob(digest)];
        self.execute(INSERT, params_from_iter(decided.into_iter().chain(rest)))
    }

    /// Completes the decision `seq`.
    pub(super) fn complete(&self, seq: u64, outcome: &Outcome) -> rusqlite::Result<()> {
        let values = ending_values(outcome);
        let seq = integer(seq);
        let ended = ending_digest((&seq).into(), values.iter().map(Into::into));
        self.execute(
            "UPDATE decision SET status = ?, directives = ?, said = ?, bytes = ?, error = ?,
               ended = ? WHERE seq = ?",
            params_from_iter(values.into_iter().chain([blob(ended), seq])),
        )
    }

    /// Writes the last that is known of a robots.txt in place of what was known
    /// before.
    pub(super) fn keep(&self, kept: &Kept) -> rusqlite::Result<()> {
        self.body(&kept.snapshot)?;
        self.execute(SAVE, params_from_iter(kept_values(kept)))
    }

    /// Writes an event, and what the next process must know after it. How a
    /// host is left says nothing new: a back-off ends when it was to end. Of one
    /// that is over each process tells again that it is; once is enough.
    pub(super) fn note(&self, event: &BackOffEvent) -> rusqlite::Result<()> {
        if event.change == BackOffChange::Left && self.is_left(event)? {
            return Ok(());
        }
        let seq = 1 + schema::last_event(&self.transaction)?;
        self.execute(INSERT_EVENT, params_from_iter(event_values(seq, event)))?;
        match (event.change, event.kept()) {
            (BackOffChange::Left, _) => Ok(()),
            (BackOffChange::Entered, Some(kept)) => {
                self.execute(SAVE_BACK_OFF, params_from_iter(back_off_values(&kept)))
            }
            (BackOffChange::Entered, None) => self.execute(
                "DELETE FROM back_off WHERE host = ?",
                [event.host.to_string()],
            ),
        }
    }

    /// Whether the last that is on record of its host is that it was left.
    fn is_left(&self, event: &BackOffEvent) -> rusqlite::Result<bool> {
        let last: Option<String> = self
            .transaction
            .prepare_cached(LAST_KIND)?
            .query_row([event.host.to_string()], |row| row.get(0))
            .optional()?;
        Ok(last.is_some_and(|kind| kind == BackOffChange::Left.as_str()))
    }

    /// Writes a decision as any other, and takes it back: what would keep a
    /// record out keeps this one out.
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

    fn policy(&mut self, policy: &Policy) -> rusqlite::Result<()> {
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

    /// The row of `snapshot`, written if it is not there.
    fn snapshot(&mut self, snapshot: &Arc<Snapshot>) -> rusqlite::Result<i64> {
        if let Some(id) = self.written.snapshot(snapshot) {
            return Ok(id);
        }
        let values = snapshot_values(snapshot);
        let id = match self.find_snapshot(&values)? {
            Some(id) => id,
            None => self.insert_snapshot(snapshot, &values)?,
        };
        self.written.remember_snapshot(snapshot, id);
        Ok(id)
    }

    fn find_snapshot(&self, values: &[Value]) -> rusqlite::Result<Option<i64>> {
        self.transaction
            .prepare_cached(
                "SELECT id FROM snapshot WHERE origin = ? AND token IS ? AND url = ?
                   AND status IS ? AND fetched_us = ? AND expires_us = ?
                   AND result = ? AND cause IS ? AND body IS ? AND hops IS ?",
            )?
            .query_row(params_from_iter(values), |row| row.get(0))
            .optional()
    }

    fn insert_snapshot(&self, snapshot: &Snapshot, values: &[Value]) -> rusqlite::Result<i64> {
        self.body(snapshot)?;
        self.execute(
            "INSERT INTO snapshot (origin, token, url, status, fetched_us,
               expires_us, result, cause, body, hops)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params_from_iter(values),
        )?;
        Ok(self.transaction.last_insert_rowid())
    }

    fn body(&self, snapshot: &Snapshot) -> rusqlite::Result<()> {
        let Some(copy) = snapshot.copy() else {
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

/// What is known to be in the file, so that it is not written again.
#[derive(Debug, Default)]
struct Written {
    /// By address. The weak reference keeps the address from being given to
    /// another snapshot.
    snapshots: HashMap<usize, (Weak<Snapshot>, i64)>,
    policies: HashSet<Digest>,
    order: ClockOrder,
}

impl Written {
    fn snapshot(&self, snapshot: &Arc<Snapshot>) -> Option<i64> {
        let address = Arc::as_ptr(snapshot).addr();
        self.snapshots.get(&address).map(|(_, id)| *id)
    }

    fn remember_snapshot(&mut self, snapshot: &Arc<Snapshot>, id: i64) {
        if REMEMBERED_MAX <= self.snapshots.len() {
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
