//! What the writer does to the SQLite file, one transaction at a time.
//!
//! A transaction is on disk when its commit returns. Evidence is kept once:
//! bodies and policies by digest, snapshots by what they say. When a
//! transaction is made, and with what, is the writer's to say.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Params, Transaction, TransactionBehavior, params,
    params_from_iter,
};
use thiserror::Error;

use super::event_row::{INSERT_EVENT, LAST_KIND, SAVE_BACK_OFF, back_off_values, event_values};
use super::files::{FileFault, OpenFiles};
use super::folder::LockedFolder;
use super::kept_row::{SAVE, kept_values};
use super::marker::RecordMarker;
use super::opening::{self, OpenRecord};
use super::order::{BEGIN_RUN, ClockOrder};
use super::row::{
    SNAPSHOT_COLUMNS, blob, decision_digest, decision_values, ending_digest, ending_values,
    integer, snapshot_values,
};
use super::wal::{Wal, WalFull};
use super::{AuditError, Options, schema};
use crate::decision::access::Snapshot;
use crate::decision::decide::Policy;
use crate::decision::digest::Digest;
use crate::decision::record::{Outcome, Record};
use crate::decision::stored_snapshot::StoredSnapshot;
use crate::metrics::Metrics;
use crate::pace::back_off_event::{BackOffChange, BackOffEvent};

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

/// Why a batch was refused.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The disk, or SQLite, refused it.
    #[error(transparent)]
    Sqlite(rusqlite::Error),
    /// Another program is writing to the database, and has not ended in time.
    #[error(
        "another program has locked the database to write to it; the record goes on by itself once \
         that program has ended (`fuser -v` on the database names it)"
    )]
    Locked(#[source] rusqlite::Error),
    /// The WAL has reached its bound.
    #[error(transparent)]
    Wal(#[from] WalFull),
    /// The files are not those that were opened. Nothing was written.
    #[error(transparent)]
    Files(FileFault),
    /// The same was seen after the commit: where it went is not known.
    #[error(transparent)]
    FilesAfterCommit(FileFault),
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy) => Self::Locked(error),
            _ => Self::Sqlite(error),
        }
    }
}

/// The record, locked and open for writing.
#[derive(Debug)]
pub(super) struct AuditStore {
    connection: Connection,
    written: WrittenRows,
    wal: Wal,
    files: OpenFiles,
    /// A fault that only a restart ends.
    fault: Option<FileFault>,
    /// The marker as it was last written.
    marker: RecordMarker,
    /// Whether the last attempt at a checkpoint, or at the marker, failed.
    is_upkeep_failing: bool,
    /// The highest number that was committed to the files that were opened.
    last: u64,
    /// Locked for as long as the store is open.
    folder: LockedFolder,
}

impl AuditStore {
    /// Opens the record that `options` name, made with its folder if there
    /// never was one.
    ///
    /// # Errors
    ///
    /// Those of [`opening::open`], and [`AuditError::Inspect`].
    pub(super) fn open(options: &Options, metrics: &Metrics) -> Result<Self, AuditError> {
        let OpenRecord {
            folder,
            mut connection,
            marker,
        } = opening::open(options)?;
        let failed = |source| AuditError::Open {
            path: folder.database.clone(),
            source,
        };
        let gauge = metrics.audit_wal_bytes.clone();
        let wal = Wal::take_over(&mut connection, options.wal_max, gauge).map_err(failed)?;
        let last = schema::last_seq(&connection).map_err(failed)?;
        let files = OpenFiles::note(&folder.database, &options.path);
        let files = files.map_err(|source| AuditError::Inspect {
            path: folder.database.clone(),
            source,
        })?;
        let mut store = Self {
            connection,
            written: WrittenRows::default(),
            wal,
            files,
            fault: None,
            marker,
            is_upkeep_failing: false,
            last,
            folder,
        };
        store.empty_wal();
        Ok(store)
    }

    /// The highest number ever given; 0 if none was.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Does `work` in one transaction: all of it is on disk, in the files that
    /// were opened, or an error says why not.
    ///
    /// # Errors
    ///
    /// Each [`WriteError`]. After [`WriteError::FilesAfterCommit`] what was
    /// written may be there, and the numbers are used up.
    pub(super) fn write(
        &mut self,
        work: impl FnOnce(&mut AuditTransaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), WriteError> {
        let done = self.attempt(work);
        if let Err(error) = &done {
            // What this transaction wrote is not there, so nothing may be
            // remembered of it.
            self.written = WrittenRows::default();
            self.note_failure(error);
        }
        done
    }

    fn attempt(
        &mut self,
        work: impl FnOnce(&mut AuditTransaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), WriteError> {
        // Before the transaction too, so that the error is this one and not
        // what SQLite makes of files that are gone.
        self.check_files().map_err(WriteError::Files)?;
        self.wal.make_room(&self.connection)?;
        let last = self.transact(work)?;
        self.check_files().map_err(WriteError::FilesAfterCommit)?;
        self.wal.note_commit();
        self.last = last;
        Ok(())
    }

    /// Does `work` in one transaction, and returns the highest number written.
    fn transact(
        &mut self,
        work: impl FnOnce(&mut AuditTransaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<u64, WriteError> {
        let behavior = TransactionBehavior::Immediate;
        let mut batch = AuditTransaction {
            transaction: self.connection.transaction_with_behavior(behavior)?,
            written: &mut self.written,
            last: self.last,
        };
        work(&mut batch)?;
        // The commit is what writes to the WAL: the nearer to it the better.
        let wal_bytes = self.wal.bytes();
        self.files.check(wal_bytes).map_err(WriteError::Files)?;
        batch.transaction.commit()?;
        Ok(batch.last)
    }

    /// Compares the files with those that were opened.
    fn check_files(&mut self) -> Result<(), FileFault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let checked = self.files.check(self.wal.bytes());
        // Another process may have emptied the WAL by a checkpoint of its own.
        if let Err(fault) = &checked
            && self.files.is_wal_cut(fault)
            && self.wal.ask(&self.connection).is_ok()
        {
            return self.files.check(self.wal.bytes());
        }
        checked
    }

    fn note_failure(&mut self, error: &WriteError) {
        match error {
            WriteError::Sqlite(error) => self.wal.note_failure(error),
            WriteError::Wal(_) | WriteError::Locked(_) => {}
            WriteError::Files(_) | WriteError::FilesAfterCommit(_) => {
                if let Err(fault) = self.check_files() {
                    self.note_fault(&fault);
                }
            }
        }
    }

    /// Brings the marker up to date, so that the next start misses what was
    /// acknowledged and is gone.
    fn note_fault(&mut self, fault: &FileFault) {
        if fault.is_final() {
            self.fault = Some(fault.clone());
        }
        if self.marker.last < self.last {
            let marker = RecordMarker {
                last: self.last,
                ..self.marker.clone()
            };
            let written = self.write_marker(marker);
            self.note_upkeep(written.map_err(|error| error.to_string()));
        }
    }

    /// Makes a checkpoint if one is due, and tells the marker. To be called
    /// when nobody waits for a commit.
    pub(super) fn checkpoint_if_due(&mut self) {
        // A file that was cut meanwhile must not pass for what the checkpoint
        // has left.
        if self.wal.is_due() && self.check_files().is_ok() {
            let done = self.wal.checkpoint(&self.connection);
            self.after_checkpoint(done);
        }
    }

    /// Moves all that is in the WAL to the database, as far as no reader is in
    /// the way, and tells the marker.
    fn empty_wal(&mut self) {
        let done = self.wal.start_again(&self.connection);
        self.after_checkpoint(done);
    }

    /// The marker is written when what it says is in the database and on disk:
    /// whatever ends the process in between, it is never ahead.
    fn after_checkpoint(&mut self, done: rusqlite::Result<bool>) {
        self.files.note_checkpoint();
        let done = match done {
            Ok(false) => return,
            Ok(true) => self.write_marker(RecordMarker {
                last: self.last,
                bytes: self.files.database_bytes(),
                ..self.marker.clone()
            }),
            Err(error) => return self.note_upkeep(Err(error.to_string())),
        };
        self.note_upkeep(done.map_err(|error| error.to_string()));
    }

    fn write_marker(&mut self, marker: RecordMarker) -> io::Result<()> {
        if !self.folder.is_in_place() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        marker.write(self.folder.path())?;
        self.marker = marker;
        Ok(())
    }

    /// Tells once that checkpoints or the marker fail: the record goes on in
    /// its WAL.
    fn note_upkeep(&mut self, done: Result<(), String>) {
        let was_failing = std::mem::replace(&mut self.is_upkeep_failing, done.is_err());
        match done {
            Err(error) if !was_failing => tracing::warn!(
                error,
                "the WAL of the record cannot be moved to the database, or its marker not be \
                 written; this is tried again with later commits"
            ),
            _ => {}
        }
    }

    /// Ends the record: all of it is in the database then. Where the files are
    /// not those that were opened, nothing is touched.
    pub(super) fn close(mut self) {
        if self.check_files().is_err() {
            let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            if let Err(error) = self.connection.set_db_config(keep, true) {
                tracing::warn!(%error, "the record may be changed as it is closed");
            }
            return;
        }
        self.empty_wal();
        if self.is_upkeep_failing {
            tracing::warn!("the record was closed with decisions in its WAL file");
        }
    }

    /// Takes away at most `most` kept snapshots that expired before `before`,
    /// and tells how many there were. Bodies stay: decisions rest on them.
    pub(super) fn prune_snapshots(
        &self,
        before: Timestamp,
        most: usize,
    ) -> rusqlite::Result<usize> {
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
}

/// The transaction under way.
pub(super) struct AuditTransaction<'a> {
    transaction: Transaction<'a>,
    written: &'a mut WrittenRows,
    /// The highest number written.
    last: u64,
}

impl AuditTransaction<'_> {
    /// Writes a decision, and what it rests on.
    pub(super) fn write_decision(&mut self, seq: u64, record: &Record) -> rusqlite::Result<()> {
        let evidence = &record.evidence;
        self.last = self.last.max(seq);
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
    pub(super) fn write_ending(&self, seq: u64, outcome: &Outcome) -> rusqlite::Result<()> {
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
    pub(super) fn save_snapshot(&self, kept: &StoredSnapshot) -> rusqlite::Result<()> {
        self.body(&kept.snapshot)?;
        self.execute(SAVE, params_from_iter(kept_values(kept)))
    }

    /// Writes an event, and what the next process must know after it. How a
    /// host is left says nothing new: a back-off ends when it was to end. Of one
    /// that is over each process tells again that it is; once is enough.
    pub(super) fn write_event(&self, event: &BackOffEvent) -> rusqlite::Result<()> {
        if event.change == BackOffChange::Left && self.is_left(event)? {
            return Ok(());
        }
        let seq = 1 + schema::last_event(&self.transaction)?;
        self.execute(INSERT_EVENT, params_from_iter(event_values(seq, event)))?;
        match (event.change, event.saved()) {
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

/// What is known to be in the file, so that it is not written again.
#[derive(Debug, Default)]
struct WrittenRows {
    /// By address. The weak reference keeps the address from being given to
    /// another snapshot.
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
