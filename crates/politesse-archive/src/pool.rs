//! Archive readers for the admin pages: a few at a time, each answer within a time limit.
//!
//! Does not know the queries.

use std::future::Future;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::Options;
use super::connection::ArchiveAccess;
use super::failure::ArchiveFailure;
use super::reader::NodeRecordsReader;

/// Maximum number of concurrent queries. Others wait, within their own time limits.
const QUESTIONS: usize = 4;

/// Pool of readers, connected on demand.
#[derive(Debug)]
pub struct ArchivePool {
    options: Options,
    longest: Duration,
    /// Readers not in use.
    idle: Mutex<Vec<NodeRecordsReader>>,
    places: Semaphore,
}

/// Borrowed reader. If it is not given back, its connection is closed: it may be broken,
/// or busy with an abandoned query.
#[derive(Debug)]
pub struct LentReader<'a> {
    pool: &'a ArchivePool,
    reader: NodeRecordsReader,
    _place: SemaphorePermit<'a>,
}

impl Deref for LentReader<'_> {
    type Target = NodeRecordsReader;

    fn deref(&self) -> &NodeRecordsReader {
        &self.reader
    }
}

impl LentReader<'_> {
    /// Returns the reader to the pool for the next query.
    pub fn give_back(self) {
        self.pool.lock().push(self.reader);
    }
}

impl ArchivePool {
    /// Creates a pool for the archive of `options`. Each query may take `longest`. Does
    /// not connect yet.
    pub fn new(options: Options, longest: Duration) -> Self {
        Self {
            options,
            longest,
            idle: Mutex::new(Vec::new()),
            places: Semaphore::new(QUESTIONS),
        }
    }

    /// Borrows a reader.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`] if the archive cannot be reached, or has no tables of this
    /// version.
    pub async fn lend(&self) -> Result<LentReader<'_>, ArchiveFailure> {
        // The semaphore is never closed.
        let place = self
            .places
            .acquire()
            .await
            .map_err(|_| ArchiveFailure::Unnamed)?;
        let idle = {
            let mut idle = self.lock();
            // PostgreSQL may have been restarted since.
            idle.retain(|reader| !reader.is_over());
            idle.pop()
        };
        let reader = match idle {
            Some(reader) => reader,
            None => {
                NodeRecordsReader::open(&ArchiveAccess::new(&self.options)?, self.longest).await?
            }
        };
        Ok(LentReader {
            pool: self,
            reader,
            _place: place,
        })
    }

    /// Waits for the answer to a query, up to the time limit.
    ///
    /// # Errors
    ///
    /// The errors of the query; [`ArchiveFailure::Timeout`].
    pub async fn within<T>(
        &self,
        question: impl Future<Output = Result<T, ArchiveFailure>>,
    ) -> Result<T, ArchiveFailure> {
        timeout(self.longest, question).await?
    }

    fn lock(&self) -> MutexGuard<'_, Vec<NodeRecordsReader>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
