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
use super::reader::FleetArchiveReader;

/// Maximum number of concurrent queries. Others wait, within their own time limits.
const QUERIES_MAX: usize = 4;

/// Pool of readers, connected on demand.
#[derive(Debug)]
pub struct ArchivePool {
    options: Options,
    query_timeout: Duration,
    /// Connected readers not in use.
    idle: Mutex<Vec<FleetArchiveReader>>,
    /// One permit for each reader that may be lent.
    permits: Semaphore,
}

/// Borrowed reader. If it is not given back, its connection is closed: it may be broken,
/// or busy with an abandoned query.
#[derive(Debug)]
pub struct LentReader<'a> {
    pool: &'a ArchivePool,
    reader: FleetArchiveReader,
    _permit: SemaphorePermit<'a>,
}

impl Deref for LentReader<'_> {
    type Target = FleetArchiveReader;

    fn deref(&self) -> &FleetArchiveReader {
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
    /// Creates a pool for the archive of `options`. `query_timeout` limits each query, and
    /// each call of [`ArchivePool::within`]. Does not connect yet.
    pub fn new(options: Options, query_timeout: Duration) -> Self {
        Self {
            options,
            query_timeout,
            idle: Mutex::new(Vec::new()),
            permits: Semaphore::new(QUERIES_MAX),
        }
    }

    /// Borrows a reader. Waits while the maximum number of readers is lent.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`] if the archive cannot be reached, or has no tables of this
    /// version.
    pub async fn lend(&self) -> Result<LentReader<'_>, ArchiveFailure> {
        // The semaphore is never closed, so `acquire` cannot fail.
        let permit = self
            .permits
            .acquire()
            .await
            .map_err(|_| ArchiveFailure::Unnamed)?;
        let idle = {
            let mut idle = self.lock();
            // Connections end if PostgreSQL is restarted.
            idle.retain(|reader| !reader.is_over());
            idle.pop()
        };
        let reader = match idle {
            Some(reader) => reader,
            None => {
                FleetArchiveReader::open(&ArchiveAccess::new(&self.options)?, self.query_timeout)
                    .await?
            }
        };
        Ok(LentReader {
            pool: self,
            reader,
            _permit: permit,
        })
    }

    /// Runs `question`, which borrows a reader and queries it, within the time limit: the
    /// wait for a reader counts, too.
    ///
    /// # Errors
    ///
    /// The errors of the query; [`ArchiveFailure::Timeout`].
    pub async fn within<T>(
        &self,
        question: impl Future<Output = Result<T, ArchiveFailure>>,
    ) -> Result<T, ArchiveFailure> {
        timeout(self.query_timeout, question).await?
    }

    fn lock(&self) -> MutexGuard<'_, Vec<FleetArchiveReader>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
