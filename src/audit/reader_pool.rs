//! Connections that read while the writer writes, on threads that may wait for
//! a disk.
//!
//! Does not know what is read.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::error::AuditError;
use super::schema;

/// Connections that read at a time: enough that a large file which is parsed
/// does not hold up the small ones. A disk gains nothing by more.
const READERS: usize = 4;

/// Read-only connections to the database, opened when they are needed.
#[derive(Debug)]
pub(super) struct ReaderPool {
    path: PathBuf,
    /// Connections that nobody uses; `None` once the pool is closed.
    idle: Mutex<Option<Vec<Connection>>>,
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
        let pool = Arc::clone(self);
        let reading = spawn_blocking(move || {
            let read = pool.read_now(read);
            // The place goes with the reading: that goes on if nobody waits for
            // it any more, and holds a connection until it ends.
            drop(place);
            read
        });
        reading.await.map_err(|_| AuditError::Closed)?
    }

    /// Reads on the caller's thread.
    ///
    /// # Errors
    ///
    /// [`AuditError::Closed`] after [`ReaderPool::close`],
    /// [`AuditError::Read`], and those of opening the database.
    pub(super) fn read_now<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, AuditError> {
        let idle = self.lock().as_mut().ok_or(AuditError::Closed)?.pop();
        let connection = match idle {
            Some(connection) => connection,
            None => schema::open_to_read(&self.path)?,
        };
        // After an error the connection is not used again: it may be at fault.
        let found = read(&connection)?;
        if let Some(idle) = self.lock().as_mut() {
            idle.push(connection);
        }
        Ok(found)
    }

    /// Begins no more reading, and closes the connections.
    pub(super) fn close(&self) {
        self.places.close();
        self.lock().take();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
