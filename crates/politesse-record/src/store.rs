//! Store: the database and its files, open for writing. Commits transactions, runs
//! checkpoints, and keeps the marker up to date.
//!
//! A transaction is on disk when its commit returns. Does not know what is written,
//! or when.

use std::io;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior, params};
use tokio::time::Instant;

use super::ballast::Ballast;
use super::columns::count;
use super::error::{AuditError, WriteError, is_full_disk};
use super::files::{FileFault, OpenFiles};
use super::folder::LockedFolder;
use super::head::key_name;
use super::leaf::RecordId;
use super::merkle::TreeHead;
use super::opening::{self, LostEntries, OpenRecord, Options};
use super::privacy::PrivacyForms;
use super::pruned::PrunedEnd;
use super::record_id::{CommittedPlace, LostHeads, RecordMarker};
use super::redaction::{has_removals, may_have_unused_values};
use super::remaining::RemainingEntries;
use super::retention::{ArrivedNumber, Retention, StepEffect, newest_time};
use super::schema::open_error;
use super::seal_key::{key_path, open_key};
use super::sealing::{SealFault, Sealer};
use super::sequence::{resume, write_last};
use super::tasks::PrunedNumbers;
use super::transaction::{AuditTransaction, RecordPlan, WriterMemory};
use super::tree_rows::TreeReader;
use super::wal::Wal;
use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_base::throttle::REPEATING;

/// Time between two attempts to empty a WAL that may still hold removed data.
const ERASE_AGAIN: Duration = Duration::from_secs(1);

/// Deletes saved snapshots, the earliest expired first.
pub(super) const PRUNE_SNAPSHOTS: &str = "
DELETE FROM kept WHERE (origin, token) IN (
  SELECT origin, token FROM kept WHERE expires_us < ? ORDER BY expires_us LIMIT ?)";

/// Deletes saved back-offs, the earliest ended first.
pub(super) const PRUNE_BACK_OFFS: &str = "
DELETE FROM back_off WHERE host IN (
  SELECT host FROM back_off WHERE until_us < ? ORDER BY until_us LIMIT ?)";

/// The audit record, locked and open for writing.
#[derive(Debug)]
pub(super) struct AuditStore {
    pub(super) connection: Connection,
    memory: WriterMemory,
    plan: RecordPlan,
    wal: Wal,
    files: OpenFiles,
    /// Fault that only a restart can clear.
    fault: Option<FileFault>,
    /// Marker as it was last written.
    marker: RecordMarker,
    /// Place in the marker file that each commit overwrites; `None` until the
    /// marker is written.
    committed_place: Option<CommittedPlace>,
    /// Entries that were missing when the record was opened.
    pub(super) loss: Option<LostEntries>,
    /// Whether the last checkpoint, or the last write of the marker, failed.
    is_upkeep_failing: bool,
    /// Time of the next attempt to empty the WAL, while it may hold removed data.
    erase_at: Option<Instant>,
    /// Highest number committed to the files that were opened.
    pub(super) last: i64,
    /// Highest number when the record was opened: exchanges up to it are over.
    begun_after: i64,
    /// Tree over the committed entries, and its heads.
    pub(super) sealer: Sealer,
    /// Heads that were missing when the record was opened.
    lost_heads: Option<LostHeads>,
    /// Highest number that the connection has committed. Exceeds `last` after a
    /// commit to files that may be gone.
    written: i64,
    pub(super) ballast: Ballast,
    /// Highest number that the archive allows to be removed.
    pub(super) arrived: ArrivedNumber,
    /// Whether entries that are old enough are kept until they have arrived in the
    /// archive.
    pub(super) is_held_back: bool,
    /// Locked as long as the store is open.
    pub(super) folder: LockedFolder,
}

impl AuditStore {
    /// Opens the record that `options` name, creating it and its folder if there
    /// never was one.
    ///
    /// # Errors
    ///
    /// Those of [`opening::open`], [`AuditError::Inspect`], and
    /// [`AuditError::SealKey`].
    pub(super) fn open(options: &Options, metrics: &Metrics) -> Result<Self, AuditError> {
        let opened = Self::open_once(options, metrics);
        // Opening takes some disk space, and old entries can be removed only from
        // an open record. The ballast makes room.
        let is_full = matches!(&opened, Err(AuditError::Open(_, error) | AuditError::Read(error))
            if is_full_disk(error));
        let real = options.path.canonicalize().ok().filter(|_| is_full);
        match real.as_deref().and_then(Path::parent) {
            Some(folder) if Ballast::drop_from(folder) => Self::open_once(options, metrics),
            _ => opened,
        }
    }

    fn open_once(options: &Options, metrics: &Metrics) -> Result<Self, AuditError> {
        let OpenRecord {
            folder,
            mut connection,
            marker,
            loss,
        } = opening::open(options)?;
        let gauge = metrics.audit_wal_bytes.clone();
        let wal = Wal::take_over(&mut connection, options.wal_max, gauge)
            .map_err(open_error(&folder.database))?;
        let plan = RecordPlan {
            record: RecordId::parse(&marker.record),
            forms: PrivacyForms::open(options.privacy, folder.path())?,
        };
        let given = loss.map_or(0, LostEntries::last_given);
        let last = take_up(&mut connection, &plan, given).map_err(open_error(&folder.database))?;
        let key = key_path(options.seal.key.as_deref(), folder.path());
        let signer = open_key(&key, &key_name(&marker.record))?;
        let mut sealer = Sealer::new(&connection, last, signer, options.seal.clone())
            .map_err(open_error(&folder.database))?;
        let lost_heads = marker
            .find_lost_heads(&connection)
            .map_err(open_error(&folder.database))?;
        // A head made now would vouch for entries whose own heads were removed, and
        // which may have been changed since.
        if let Some(lost) = lost_heads.filter(|_| !options.accept_lost_heads) {
            sealer.give_up(SealFault::LostHeads(lost));
        }
        let files = OpenFiles::note(&folder.database, &options.path)
            .map_err(|error| AuditError::Inspect(folder.database.clone(), error))?;
        let mut store = Self {
            connection,
            memory: WriterMemory::default(),
            plan,
            wal,
            files,
            fault: None,
            marker,
            committed_place: None,
            loss,
            is_upkeep_failing: false,
            erase_at: None,
            last,
            begun_after: last,
            sealer,
            lost_heads,
            written: last,
            ballast: Ballast::new(folder.path()),
            arrived: ArrivedNumber::new(options.waits_for_archive),
            is_held_back: false,
            folder,
        };
        store.clear_wal()?;
        Ok(store)
    }

    /// Moves what the previous process left in the WAL into the database.
    fn clear_wal(&mut self) -> Result<(), AuditError> {
        // After a crash the WAL holds entries that the marker does not count. Once
        // they are in the database, the marker can be brought up to date.
        let is_empty = self.empty_wal();
        // A reader may have prevented the checkpoint that writes the marker.
        if self.committed_place.is_none() {
            self.committed_place = self.marker.write(self.folder.path()).ok();
        }
        if !is_empty && has_removals(&self.connection).map_err(open_error(&self.folder.database))? {
            self.erase_from_wal();
        }
        Ok(())
    }

    /// Runs `work` in one transaction. Either all of it is on disk, in the files
    /// that were opened, or the error says why not.
    ///
    /// # Errors
    ///
    /// Each [`WriteError`]. After [`WriteError::FilesAfterCommit`] the data may
    /// have been written, and the numbers are used up.
    pub(super) fn write(
        &mut self,
        work: impl FnOnce(&mut AuditTransaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), WriteError> {
        let mut done = self.attempt(work);
        if let Err(WriteError::Sqlite(error)) = &done
            && opening::is_damage(error)
        {
            let fault = self.fault.insert(self.files.damaged_database());
            done = Err(WriteError::Files(fault.clone()));
        }
        if let Err(error) = &done {
            // The transaction was rolled back, so the memory must keep nothing of
            // it.
            self.memory = WriterMemory::default();
            self.note_failure(error);
        }
        done
    }

    fn attempt(
        &mut self,
        work: impl FnOnce(&mut AuditTransaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), WriteError> {
        // Checked before the transaction, so that nothing is written to files that
        // are gone and the error names them instead of what SQLite makes of them.
        self.check_files().map_err(WriteError::Files)?;
        if self.wal.needs_room() {
            let made = self.wal.make_room(&self.connection);
            // The checkpoint may have returned pages to the file system.
            self.files.note_checkpoint();
            made?;
        }
        let (memory, plan) = (&mut self.memory, &self.plan);
        let mut transaction =
            AuditTransaction::begin(&self.connection, memory, plan, self.written)?;
        work(&mut transaction)?;
        let mut committed = transaction.commit()?;
        self.written = committed.last;
        // Noted even if the files are not found again, because they contain the
        // leaves.
        self.sealer.note_committed(&mut committed.leaves);
        // Checked again after the commit, because files can be lost during it. An
        // acknowledged decision must be in files that the next start finds.
        self.check_files().map_err(WriteError::FilesAfterCommit)?;
        self.wal.note_commit();
        self.last = self.written;
        if let Some(place) = &self.committed_place {
            // If this fails, the marker lags behind, as after a power failure.
            place.write(count(self.last)).unwrap_or_default();
        }
        Ok(())
    }

    /// Returns the number of entries that no head covers.
    pub(super) fn unsealed(&self) -> u64 {
        count(self.last).saturating_sub(self.sealer.sealed())
    }

    /// Returns the removal of entries that are older than `age`. Continues a
    /// removal that an earlier process began.
    pub(super) fn retention(&self, age: Option<SignedDuration>) -> rusqlite::Result<Retention> {
        let newest = newest_time(&self.connection)?.unwrap_or_else(clock::now);
        let mut retention = Retention::new(age, newest);
        let end = PrunedEnd::read(&self.connection)?;
        if 0 < end.last && !end.is_removed {
            retention.begin(end);
        }
        // A crash may have come between a redaction and the search for the values
        // it left unused.
        if may_have_unused_values(&self.connection)? {
            retention.look_for_unused();
        }
        Ok(retention)
    }

    /// Returns the heads that were missing when the record was opened, if it is
    /// sealed nevertheless.
    pub(super) fn accepted_loss(&self) -> Option<LostHeads> {
        let is_sealed = self.sealer.fault().get().is_none();
        self.lost_heads.filter(|_| is_sealed)
    }

    /// Makes a head that covers all committed entries, and writes it. Returns the
    /// note; `None` if there are no new entries.
    ///
    /// # Errors
    ///
    /// Those of [`AuditStore::write`].
    pub(super) fn seal(&mut self) -> Result<Option<String>, WriteError> {
        let Some(seal) = self.sealer.make(clock::now()) else {
            return Ok(None);
        };
        match self.write(|transaction| seal.write(transaction.connection())) {
            Ok(()) => {
                self.sealer.note_written(&seal);
                self.marker.head = Some(seal.mark());
                let marked = self.write_marker(self.marker.bytes);
                self.note_upkeep(marked.map_err(|error| error.to_string()));
                Ok(Some(seal.note().to_owned()))
            }
            Err(error) => {
                // A commit to files that have come back may have succeeded.
                self.sealer.note_failed(&self.connection, seal);
                Err(error)
            }
        }
    }

    /// Checks that the files are still those that were opened.
    fn check_files(&mut self) -> Result<(), FileFault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let checked = self.files.check(self.wal.bytes());
        // Another process may have truncated the WAL with a checkpoint of its own.
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
            WriteError::Wal(_) | WriteError::Locked(_) | WriteError::Tree => {}
            WriteError::Files(_) | WriteError::FilesAfterCommit(_) => {
                if let Err(fault) = self.check_files() {
                    self.note_fault(fault);
                }
            }
        }
    }

    /// Brings the marker up to date, so that the next start notices if acknowledged
    /// entries are missing.
    fn note_fault(&mut self, fault: FileFault) {
        if fault.is_final() {
            self.fault = Some(fault);
        }
        if self.marker.last < count(self.last) {
            let written = self.write_marker(self.marker.bytes);
            self.note_upkeep(written.map_err(|error| error.to_string()));
        }
    }

    /// Runs a checkpoint if one is due, and writes the marker. Must be called while
    /// no request waits for a commit.
    pub(super) fn checkpoint_if_due(&mut self) {
        // A WAL that was truncated by someone else must not pass for one that the
        // checkpoint has emptied.
        if self.wal.is_due() && self.check_files().is_ok() {
            let done = self.wal.checkpoint(&self.connection);
            self.after_checkpoint(done);
        }
    }

    /// Moves the whole WAL into the database unless a reader prevents it, and
    /// writes the marker. Returns whether the WAL is empty.
    pub(super) fn empty_wal(&mut self) -> bool {
        let done = self.wal.start_again(&self.connection);
        let is_empty = matches!(done, Ok(true));
        if is_empty {
            self.erase_at = None;
        }
        self.after_checkpoint(done);
        is_empty
    }

    /// Empties the WAL, which still has old versions of the pages from which data
    /// were removed. If a reader prevents that, `erase_at` schedules another
    /// attempt.
    pub(super) fn erase_from_wal(&mut self) {
        self.erase_at = Some(clock::instant() + ERASE_AGAIN);
        // Files that were changed by others are left alone.
        let is_empty = match self.check_files() {
            Ok(()) => self.empty_wal(),
            Err(fault) => {
                self.note_fault(fault);
                false
            }
        };
        if !is_empty {
            tracing::warn!(
                target: REPEATING,
                "what was removed from the record may still be in its write-ahead log, which is \
                 emptied as soon as no program is reading the database"
            );
        }
    }

    /// Returns the fault that keeps removed data in the WAL until the next start,
    /// if there is one.
    pub(super) fn erase_fault(&self) -> Option<FileFault> {
        self.erase_at.and(self.fault.clone())
    }

    /// Returns the time until the next attempt to empty the WAL of removed data;
    /// `None` if it holds none.
    pub(super) fn erase_due_in(&self) -> Option<Duration> {
        let left = |time: Instant| time.saturating_duration_since(clock::instant());
        // After a fault only a restart helps, and it empties the WAL first.
        self.erase_at.filter(|_| self.fault.is_none()).map(left)
    }

    /// Writes the marker if `done` says that the whole WAL is in the database. The
    /// order matters: wherever the process ends in between, the marker is never
    /// ahead.
    fn after_checkpoint(&mut self, done: rusqlite::Result<bool>) {
        self.files.note_checkpoint();
        let done = match done {
            Ok(false) => return,
            Ok(true) => {
                let written = self.write_marker(self.files.database_bytes());
                written.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        self.note_upkeep(done);
    }

    fn write_marker(&mut self, bytes: u64) -> io::Result<()> {
        if !self.folder.is_in_place() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        let marker = RecordMarker {
            last: count(self.last),
            bytes,
            committed: count(self.last),
            ..self.marker.clone()
        };
        self.committed_place = Some(marker.write(self.folder.path())?);
        self.marker = marker;
        Ok(())
    }

    /// Logs the first failure of a series of checkpoints or marker writes. The
    /// record continues in its WAL.
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

    /// Closes the record, with all entries moved into the database. Files that are
    /// not those that were opened are left untouched.
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

    /// Marks the entries of all parts from before `before` for removal, and returns
    /// their numbers.
    ///
    /// # Errors
    ///
    /// Those of [`AuditStore::write`].
    pub(super) fn begin_to_prune(
        &mut self,
        before: Timestamp,
    ) -> Result<PrunedNumbers, WriteError> {
        let pruned = PrunedEnd::read(&self.connection)?;
        let due = pruned.due(&self.connection, before)?;
        let arrived = self.arrived.last_of_parts();
        let was_held_back = std::mem::replace(&mut self.is_held_back, arrived < due);
        if self.is_held_back && !was_held_back {
            tracing::warn!(
                last = due,
                arrived,
                "old entries of the record stay until they have arrived in the archive (audit.archive)"
            );
        }
        let due = pruned.last.max(due.min(arrived));
        let last = pruned.next_end(due);
        if pruned.last < last {
            let now = clock::now();
            let all = 0..count(last);
            let roots = TreeReader::new(&self.connection).roots(std::array::from_ref(&all))?;
            let Some(root) = roots.and_then(|roots| roots.first().copied()) else {
                return Err(WriteError::Tree);
            };
            let size = count(last);
            let removed = pruned.next()..last + 1;
            let remaining = RemainingEntries::find(&self.connection, &removed, self.begun_after)?;
            let tree = TreeHead { size, root };
            let seal = self.sealer.sign_pruned(tree, remaining.digest(), now);
            let end = PrunedEnd {
                last,
                time_us: now.as_microsecond(),
                is_removed: false,
            };
            // In the same transaction as the row: without its path, a head or a
            // remaining entry could no longer be verified.
            self.write(|transaction| {
                let connection = transaction.connection();
                TreeReader::new(connection).write_seal_paths(&removed)?;
                remaining.write(connection)?;
                end.write(connection, &seal)
            })?;
        }
        Ok(PrunedNumbers {
            first: count(pruned.next()),
            last: count(due),
        })
    }

    /// Takes a step of `retention`.
    ///
    /// # Errors
    ///
    /// Those of [`AuditStore::write`].
    pub(super) fn retain(&mut self, retention: &mut Retention) -> Result<(), WriteError> {
        let mut effect = StepEffect::Unseen;
        self.write(|transaction| {
            effect = retention.step(transaction.connection())?;
            Ok(())
        })?;
        // There may be no other work for a while, and each step of the removal is
        // written to the WAL.
        self.checkpoint_if_due();
        if !retention.is_active() {
            self.erase_from_wal();
            self.ballast.take_up();
        }
        // The memory maps values to their row ids, and some rows are gone. The sums
        // of the open part stay valid, because no existing entry refers to a
        // removed row.
        if effect == StepEffect::ValuesRemoved {
            self.memory.forget_values();
        }
        Ok(())
    }

    /// Runs `sql`, which removes at most `most` rows of saved state that expired
    /// before `before`, and returns their number. Bodies stay, because decisions
    /// rest on them.
    pub(super) fn prune(
        &self,
        sql: &str,
        before: Timestamp,
        most: usize,
    ) -> rusqlite::Result<usize> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.connection
            .prepare_cached(sql)?
            .execute(params![before.as_microsecond(), most])
    }
}

/// Continues the numbers where the previous process ended. That process may have
/// issued numbers up to `given`.
fn take_up(connection: &mut Connection, plan: &RecordPlan, given: i64) -> rusqlite::Result<i64> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let last = resume(&transaction, plan.record, given, clock::now())?;
    write_last(&transaction, plan.record, last)?;
    transaction.commit()?;
    Ok(last)
}
