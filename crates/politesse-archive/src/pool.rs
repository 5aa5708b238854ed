//! Readers of the archive for pages: a few at a time, each answer within a time limit.
//!
//! Does not know what is asked.

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

/// Questions at a time. Others wait, within their own time.
const QUESTIONS: usize = 4;

/// Readers that are connected when they are needed.
#[derive(Debug)]
pub struct ArchivePool {
    options: Options,
    longest: Duration,
    /// Readers that nobody uses.
    idle: Mutex<Vec<NodeRecordsReader>>,
    places: Semaphore,
}

/// Reader that is lent. The connection of one that is not given back is closed: it may
/// be at fault, or busy with what nobody waits for.
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
    /// Gives the reader back, for whoever asks next.
    pub fn give_back(self) {
        self.pool.lock().push(self.reader);
    }
}

impl ArchivePool {
    /// Makes the pool of the archive of `options`, whose questions take at most
    /// `longest` each. Nothing is connected yet.
    pub fn new(options: Options, longest: Duration) -> Self {
        Self {
            options,
            longest,
            idle: Mutex::new(Vec::new()),
            places: Semaphore::new(QUESTIONS),
        }
    }

    /// Lends a reader.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`]: the archive cannot be reached, or has no tables of this version.
    pub async fn lend(&self) -> Result<LentReader<'_>, ArchiveFailure> {
        // It is never closed.
        let place = self
            .places
            .acquire()
            .await
            .map_err(|_| ArchiveFailure::Unnamed)?;
        let idle = {
            let mut idle = self.lock();
            // PostgreSQL may have been started again since.
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

    /// Waits for the answer to a question, as long as any may take.
    ///
    /// # Errors
    ///
    /// Those of the question; [`ArchiveFailure::Timeout`].
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
