//! Readers of the record while the writer writes: a few at a time, on threads that may
//! wait for a disk.
//!
//! The record has two pools: one that exchanges wait for, and one for queries of people,
//! each with a time limit, so that a query of a long record holds up no crawler. Does not
//! know what is read.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::error::AuditError;
use super::reader::AuditReader;
use politesse_base::clock;

/// Readers of a pool at a time: enough that a large file which is parsed does not hold
/// up the small ones. A disk gains nothing by more, and queries would take the processor
/// from exchanges.
const READERS: usize = 4;

/// Longest wait of a query for one of the places.
const PLACE_WAIT: Duration = Duration::from_secs(2);

/// Steps of SQLite's machine between two looks at the clock: some microseconds.
const STEPS: i32 = 10_000;

/// Readers of the record, opened when they are needed.
#[derive(Debug)]
pub(super) struct ReaderPool {
    path: PathBuf,
    /// Readers that are not in use; `None` once the pool is closed.
    idle: Mutex<Option<Vec<AuditReader>>>,
    places: Arc<Semaphore>,
}

impl ReaderPool {
    /// Makes the pool of the database at `path`.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            idle: Mutex::new(Some(Vec::new())),
            places: Arc::new(Semaphore::new(READERS)),
        }
    }

    /// Reads on a thread of its own, when one of the places is free.
    ///
    /// # Errors
    ///
    /// Those of [`ReaderPool::read_now`].
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, AuditError> {
        let place = Arc::clone(&self.places)
            .acquire_owned()
            .await
            .map_err(|_| AuditError::Closed)?;
        self.on_thread(place, |pool| pool.read_now(read)).await
    }

    /// Reads on the caller's thread.
    ///
    /// # Errors
    ///
    /// [`AuditError::Closed`] after [`ReaderPool::close`], [`AuditError::Read`], and those
    /// of opening the database.
    pub(super) fn read_now<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, AuditError> {
        self.lend(|reader| Ok(read(&reader.connection)?))
    }

    /// Asks `query` on a thread of its own. SQLite is interrupted after `longest`, or when
    /// the caller has dropped the future.
    ///
    /// # Errors
    ///
    /// Those of `query`; [`AuditError::QueryBusy`], [`AuditError::QueryTimeout`],
    /// [`AuditError::Closed`], and those of opening the database.
    pub(super) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        longest: Duration,
        query: impl FnOnce(&AuditReader) -> Result<T, AuditError> + Send + 'static,
    ) -> Result<T, AuditError> {
        let place = timeout(PLACE_WAIT, Arc::clone(&self.places).acquire_owned())
            .await
            .map_err(|_| AuditError::QueryBusy)?
            .map_err(|_| AuditError::Closed)?;
        // Dropped with this future: then no one waits for the thread's answer.
        let asker = Arc::new(());
        let waits = Arc::downgrade(&asker);
        let asking = self.on_thread(place, move |pool| {
            let end = clock::instant() + longest;
            let is_over = move || end <= clock::instant() || waits.strong_count() == 0;
            pool.lend(|reader| {
                // Statements that take fewer steps end by themselves in no time.
                let connection = &mut reader.connection;
                connection.progress_handler(STEPS, Some(is_over))?;
                let answer = query(reader).map_err(in_time)?;
                let connection = &mut reader.connection;
                connection.progress_handler(0, None::<fn() -> bool>)?;
                Ok(answer)
            })
        });
        let answer = asking.await;
        drop(asker);
        answer
    }

    async fn on_thread<T: Send + 'static>(
        self: &Arc<Self>,
        place: OwnedSemaphorePermit,
        work: impl FnOnce(&Self) -> Result<T, AuditError> + Send + 'static,
    ) -> Result<T, AuditError> {
        let pool = Arc::clone(self);
        let working = spawn_blocking(move || {
            let done = work(&pool);
            // The place goes with the thread: it goes on if the caller is gone, and holds
            // a reader until it ends.
            drop(place);
            done
        });
        working.await.map_err(|_| AuditError::Closed)?
    }

    /// Lends a reader to `work`. After an error it is not used again: it may be at fault,
    /// or have found damage.
    fn lend<T>(
        &self,
        work: impl FnOnce(&mut AuditReader) -> Result<T, AuditError>,
    ) -> Result<T, AuditError> {
        let idle = self.lock().as_mut().ok_or(AuditError::Closed)?.pop();
        let mut reader = match idle {
            Some(reader) => reader,
            None => AuditReader::open(&self.path)?,
        };
        let done = work(&mut reader)?;
        if let Some(idle) = self.lock().as_mut() {
            idle.push(reader);
        }
        Ok(done)
    }

    /// Begins no more reading, and closes the readers.
    pub(super) fn close(&self) {
        self.places.close();
        self.lock().take();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<AuditReader>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the error of a query: an interrupt is the end of its time.
fn in_time(error: AuditError) -> AuditError {
    let is_interrupt = matches!(
        &error,
        AuditError::Read(cause)
            if cause.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)
    );
    if is_interrupt {
        return AuditError::QueryTimeout;
    }
    error
}
