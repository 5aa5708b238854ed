//! Queries of people who look at the record while the proxy runs: a few at a time,
//! each with a time limit, on threads that may wait for a disk.
//!
//! Apart from the readers that exchanges wait for: whoever looks at a long record
//! holds up no crawler. Does not know what is asked.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::ErrorCode;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::error::AuditError;
use super::reader::AuditReader;
use crate::clock;

/// Queries at a time. More would take the processor from exchanges.
const QUERIES: usize = 4;

/// Longest wait for one of the places.
const PLACE_WAIT: Duration = Duration::from_secs(2);

/// Steps of SQLite's machine between two looks at the clock: some microseconds.
const STEPS: i32 = 10_000;

/// Readers of the record for queries, opened when they are needed.
#[derive(Debug)]
pub(super) struct QueryPool {
    path: PathBuf,
    /// Readers that nobody uses; `None` once the pool is closed.
    idle: Mutex<Option<Vec<AuditReader>>>,
    places: Arc<Semaphore>,
}

impl QueryPool {
    /// Makes the pool of the database at `path`.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            idle: Mutex::new(Some(Vec::new())),
            places: Arc::new(Semaphore::new(QUERIES)),
        }
    }

    /// Asks `query` on a thread of its own. What it has SQLite do is interrupted after
    /// `longest`, or when nobody waits for it any more.
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
        let pool = Arc::clone(self);
        // Dropped with this future: then the thread has nobody to answer.
        let asker = Arc::new(());
        let waits = Arc::downgrade(&asker);
        let asking = spawn_blocking(move || {
            let end = clock::instant() + longest;
            let is_over = move || end <= clock::instant() || waits.strong_count() == 0;
            let answer = pool.ask_now(is_over, query);
            // The place goes with the thread, which holds a reader until it ends.
            drop(place);
            answer
        });
        let answer = asking.await.map_err(|_| AuditError::Closed)?;
        drop(asker);
        answer
    }

    fn ask_now<T>(
        &self,
        is_over: impl FnMut() -> bool + Send + 'static,
        query: impl FnOnce(&AuditReader) -> Result<T, AuditError>,
    ) -> Result<T, AuditError> {
        let idle = self.lock().as_mut().ok_or(AuditError::Closed)?.pop();
        let mut reader = match idle {
            Some(reader) => reader,
            None => AuditReader::open(&self.path)?,
        };
        let connection = &mut reader.connection;
        // Statements that take fewer steps end by themselves in no time.
        connection.progress_handler(STEPS, Some(is_over))?;
        // After an error the reader is not used again: it may be at fault.
        let answer = query(&reader).map_err(in_time)?;
        let connection = &mut reader.connection;
        connection.progress_handler(0, None::<fn() -> bool>)?;
        if let Some(idle) = self.lock().as_mut() {
            idle.push(reader);
        }
        Ok(answer)
    }

    /// Begins no more queries, and closes the readers.
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
