//! Readers of the record while it is being written: a few at a time, on threads
//! that may block on a disk.
//!
//! The record has two pools: one for exchanges, and one for queries by people.
//! Queries have a time limit, and so a query of a long record delays no crawler.
//! Does not know what is read.

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

/// Maximum number of readers of a pool in use. With a few, parsing a large file
/// does not delay the small ones. More would not make a disk faster, and queries
/// would take CPU time from exchanges.
const READERS: usize = 4;

/// Maximum wait of a query for a place.
const PLACE_WAIT: Duration = Duration::from_secs(2);

/// Number of SQLite VM steps between two checks of the clock: some microseconds.
const STEPS: i32 = 10_000;

/// Pool of readers, which are opened on demand.
#[derive(Debug)]
pub(super) struct ReaderPool {
    path: PathBuf,
    /// Unused readers; `None` once the pool is closed.
    idle: Mutex<Option<Vec<AuditReader>>>,
    places: Arc<Semaphore>,
}

impl ReaderPool {
    /// Creates the pool of the database at `path`.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            idle: Mutex::new(Some(Vec::new())),
            places: Arc::new(Semaphore::new(READERS)),
        }
    }

    /// Runs `read` on its own thread, once a place is free.
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

    /// Runs `read` on the caller's thread.
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

    /// Runs `query` on its own thread. SQLite is interrupted after `longest`, or
    /// when the caller has dropped the future.
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
        // Dropped with this future, so that the thread learns that it may stop.
        let asker = Arc::new(());
        let waits = Arc::downgrade(&asker);
        let asking = self.on_thread(place, move |pool| {
            let end = clock::instant() + longest;
            let is_over = move || end <= clock::instant() || waits.strong_count() == 0;
            pool.lend(|reader| {
                // Statements with fewer steps than this end quickly by themselves.
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
            // The thread keeps the place until it ends, because it uses a reader
            // even after the caller has gone.
            drop(place);
            done
        });
        working.await.map_err(|_| AuditError::Closed)?
    }

    /// Lends a reader to `work`. After an error the reader is dropped, because it
    /// may be the cause, or have found damage.
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

    /// Refuses further reads, and closes the readers.
    pub(super) fn close(&self) {
        self.places.close();
        self.lock().take();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<AuditReader>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts the error of a query: an interrupt means that its time was up.
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
