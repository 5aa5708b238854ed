//! What was decided, written down before it is acted on.
//!
//! Invariant 3: a receipt is given when the decision is on disk (or, by option,
//! queued), and without a receipt there is no permit. The `Ending` of an
//! exchange exists before that: an exchange that is dropped half-way still
//! completes its row.
//!
//! A log that takes no more refuses, and with it every request ends; nothing
//! is dropped and nothing is sampled. What a decision means, and what was
//! answered, is not known here.
//!
//! In reading order, and a module uses only those below it:

mod keep;

mod note;

mod ending;

mod writer;

mod pending;

mod noted;

mod shelf;

pub mod verify;

pub mod events;

pub mod robots_history;

pub mod query;

mod filter;

mod store;

mod opening;

mod permissions;

mod record_row;

mod marker;

mod wal;

mod files;

mod schema;

mod folder;

mod kept_row;

mod event_row;

mod row;

mod pages;

mod order;

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::mpsc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use self::ending::EntryQueue;
pub use self::ending::RecordEnding;
pub use self::files::FileFault;
use self::note::EVENTS_WAITING_MAX;
pub use self::opening::Shortfall;
use self::pending::PendingSaves;
use self::shelf::ReaderPool;
use self::store::AuditStore;
pub use self::store::WriteError;
pub use self::wal::WalFull;
use self::writer::{AuditWriter, WriterEntry, WriterTask};
use crate::clock;
use crate::decision::receipt::Receipt;
use crate::decision::record::Record;
use crate::metrics::Metrics;

/// How long a place in the queue is waited for.
const SLOT_WAIT: Duration = Duration::from_secs(1);

/// How long the answer to a probe is waited for.
const PROBE_WAIT: Duration = Duration::from_secs(5);

/// Where the log is, and what it promises.
#[derive(Debug, Clone)]
pub struct Options {
    /// The SQLite file (`audit.store`).
    pub path: PathBuf,
    /// When a decision counts as kept (`audit.durability`).
    pub durability: Durability,
    /// Entries that may wait for the writer. An exchange under way holds one
    /// of them for its ending, so this also bounds the exchanges; 1 counts as
    /// 2, which one exchange needs.
    pub queue: NonZeroUsize,
    /// Bytes of SQLite's write-ahead log above which nothing is written until
    /// it could be started again (`audit.wal_max`). One batch may go beyond it.
    pub wal_max: u64,
    /// Whether to begin a new record where the one before is not whole
    /// (`--new-record`).
    pub new_record: bool,
}

impl Options {
    /// The folder of the record, where its lock is. Two names of one file are
    /// one record, so a link is followed.
    ///
    /// # Errors
    ///
    /// The file system's, above all if there is no record yet.
    pub fn folder(&self) -> io::Result<PathBuf> {
        let file = self.path.canonicalize()?;
        Ok(file.parent().map(Path::to_owned).unwrap_or_default())
    }
}

/// When a decision counts as kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When it is committed to disk.
    Commit,
    /// When it is queued: what a crash takes with it is not on record.
    Queue,
}

/// Why the log did not do what it was asked for. Whatever keeps a decision from
/// being recorded keeps its request from being sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AuditError {
    /// Another process writes to the record in this folder.
    #[error("the record in {} is in use by another process; a folder holds one record", .0.display())]
    Locked(PathBuf),
    /// There is no log to read.
    #[error("there is no audit log {}", .0.display())]
    Missing(PathBuf),
    /// Somebody other than the owner may write to a file of the record, or to
    /// its folder.
    #[error("others than the owner may write to {} (mode {mode:04o}), so what is recorded there proves nothing: chmod go-w {}", path.display(), path.display())]
    Writable {
        /// Which.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The record holds less than it did.
    #[error("{0}")]
    Incomplete(Box<Shortfall>),
    /// The marker can be read and is none.
    #[error("{} is damaged, so nothing tells what the record held: restore that file; or, if `politesse audit verify` finds the record whole, delete the file, and the next start writes it anew", .0.display())]
    Marker(PathBuf),
    /// A file that tells what the record holds cannot be read.
    #[error("cannot find out from {} what the record holds", path.display())]
    Inspect {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or folder could not be made or locked.
    #[error("cannot create {}", path.display())]
    Create {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is there, and is no database that could be opened.
    #[error("cannot open the audit log {}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// The file was written by another version, or by another program.
    #[error("the audit log {} has schema {found}, this version knows {known}", path.display())]
    Schema {
        /// Which.
        path: PathBuf,
        /// What it has.
        found: i64,
        /// What is known.
        known: i64,
    },
    /// No place in the queue became free in time.
    #[error("no place in audit.queue for {} s; every open exchange holds one", SLOT_WAIT.as_secs())]
    Full,
    /// The writer did not answer in time.
    #[error("the audit log did not answer within {} s", PROBE_WAIT.as_secs())]
    Stalled,
    /// A batch was not written, or not where it can be found again. A later one
    /// may be.
    #[error("the audit log cannot be written")]
    Write(#[source] Arc<WriteError>),
    /// The file could not be read.
    #[error("the audit log cannot be read")]
    Read(#[source] rusqlite::Error),
    /// The log was closed, or its writer is gone.
    #[error("the audit log is closed")]
    Closed,
}

/// The way into the log.
#[derive(Debug)]
pub struct AuditLog {
    line: EntryQueue,
    slots: Arc<Semaphore>,
    /// Places of events, which have a queue of their own.
    event_places: Arc<Semaphore>,
    durability: Durability,
    failing: Arc<AtomicBool>,
    /// The next number, where numbers are given on queueing. It is held while
    /// an entry is queued, so that the order of numbers is that of the queue
    /// and a crash can only take the last ones.
    next: Mutex<u64>,
    pending: Arc<PendingSaves>,
    shelf: Arc<ReaderPool>,
    metrics: Arc<Metrics>,
}

impl AuditLog {
    /// Opens the log, made with its folder if it is not there, and starts its
    /// writer as a task of `tracker`. The folder is locked until the writer
    /// ends. To be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`AuditError::Locked`] if another process has it,
    /// [`AuditError::Incomplete`] if it holds less than it did,
    /// [`AuditError::Writable`] if others may write to it, and what making and
    /// opening its files can meet.
    pub fn open(
        options: &Options,
        metrics: Arc<Metrics>,
        tracker: &TaskTracker,
    ) -> Result<Self, AuditError> {
        let store = AuditStore::open(options, &metrics)?;
        let next = 1 + store.last();
        let (entries, queue) = mpsc::unbounded_channel();
        let failing = Arc::new(AtomicBool::new(false));
        let waiting = metrics.audit_queue.clone();
        let writer = AuditWriter {
            store,
            entries: queue,
            failing: Arc::clone(&failing),
            next,
            metrics: Arc::clone(&metrics),
            batch: Vec::new(),
            prune_at: clock::instant(),
        };
        tracker.spawn_blocking(move || writer.run());
        Ok(Self {
            line: EntryQueue { entries, waiting },
            slots: Arc::new(Semaphore::new(slots(options.queue))),
            event_places: Arc::new(Semaphore::new(EVENTS_WAITING_MAX)),
            durability: options.durability,
            failing,
            next: Mutex::new(next),
            pending: Arc::new(PendingSaves::new(Arc::clone(&metrics))),
            shelf: Arc::new(ReaderPool::new(options.path.clone())),
            metrics,
        })
    }

    /// Writes a decision down. When this returns it is on disk, or queued if
    /// that was chosen; [`AuditError::Full`] comes after a second.
    ///
    /// If the future is dropped meanwhile, the row, if there will be one, is
    /// completed as `client_gone`.
    ///
    /// # Errors
    ///
    /// [`AuditError::Full`], [`AuditError::Write`], [`AuditError::Closed`]: the
    /// decision is not on record and must not be acted on.
    pub async fn record(&self, record: Record) -> Result<(Receipt, RecordEnding), AuditError> {
        let decision = record.digest;
        let ending = match self.durability {
            Durability::Commit => self.commit(record).await?,
            Durability::Queue => self.queue(record).await?,
        };
        Ok((Receipt::issue(ending.seq(), decision), ending))
    }

    /// Whether a record could be written now: the writer tries.
    ///
    /// # Errors
    ///
    /// What [`AuditLog::record`] would meet, and [`AuditError::Stalled`] after
    /// five seconds.
    pub async fn probe(&self) -> Result<(), AuditError> {
        let answer = async {
            let slot = self.slots(1).await?;
            let (ack, written) = oneshot::channel();
            self.line
                .send(WriterEntry::new(WriterTask::Probe { ack }, slot))?;
            written
                .await
                .map_err(|_| AuditError::Closed)?
                .map_err(AuditError::Write)
        };
        timeout(PROBE_WAIT, answer)
            .await
            .map_err(|_| AuditError::Stalled)?
    }

    /// Takes no more entries; the writer writes those it has, moves the WAL
    /// into the file and ends. To be called after the last exchange: an ending
    /// that comes later is not written.
    pub fn close(&self) {
        self.slots.close();
        self.shelf.close();
        // If the writer is gone, nothing is left to close.
        self.line
            .send(WriterEntry::new(WriterTask::Close, None))
            .unwrap_or_default();
    }

    async fn commit(&self, record: Record) -> Result<RecordEnding, AuditError> {
        let (slot, ending) = self.place().await?;
        let (ack, written) = oneshot::channel();
        let task = WriterTask::Record {
            record,
            seq: ending.seq_cell().clone(),
            ack: Some(ack),
        };
        self.line.send(WriterEntry::new(task, slot))?;
        written
            .await
            .map_err(|_| AuditError::Closed)?
            .map_err(AuditError::Write)?;
        Ok(ending)
    }

    async fn queue(&self, record: Record) -> Result<RecordEnding, AuditError> {
        if self.failing.load(Ordering::Acquire) {
            // What was accepted could not be written. Until it is, nothing more
            // is accepted.
            self.probe().await?;
        }
        let (slot, ending) = self.place().await?;
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        ending.seq_cell().set(*next);
        let task = WriterTask::Record {
            record,
            seq: ending.seq_cell().clone(),
            ack: None,
        };
        self.line.send(WriterEntry::new(task, slot))?;
        *next += 1;
        drop(next);
        Ok(ending)
    }

    /// Room for a decision, and for its ending.
    async fn place(&self) -> Result<(OwnedSemaphorePermit, RecordEnding), AuditError> {
        let mut slot = self.slots(2).await?;
        let reserved = slot.split(1).ok_or(AuditError::Closed)?;
        let ending = RecordEnding::new(self.line.clone(), reserved);
        Ok((slot, ending))
    }

    /// `count` places in the queue, got together: exchanges that each held one
    /// and waited for another would wait for ever.
    async fn slots(&self, count: u32) -> Result<OwnedSemaphorePermit, AuditError> {
        let slots = Arc::clone(&self.slots).acquire_many_owned(count);
        let slots = timeout(SLOT_WAIT, slots)
            .await
            .map_err(|_| AuditError::Full)?;
        slots.map_err(|_| AuditError::Closed)
    }
}

fn slots(queue: NonZeroUsize) -> usize {
    queue.get().clamp(2, Semaphore::MAX_PERMITS)
}

#[cfg(test)]
mod tests;
