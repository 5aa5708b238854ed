//! Reading kept snapshots while the writer writes: a few connections of its
//! own, on threads where a disk may be waited for.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::AuditError;
use super::event_row::{BACK_OFFS, back_off};
use super::kept_row::{LOAD, SavedSnapshotCells, key_cells};
use super::schema::open_to_read;
use crate::decision::stored_snapshot::{CacheKey, StoredSnapshot};
use crate::pace::back_off_event::SavedBackOff;
use politesse_robots::Dialect;

/// How many are read at a time: enough that a large file which is parsed does
/// not hold up the small ones, and no more, since a disk gains nothing by it.
const READERS: usize = 4;

/// What a look at the table came to.
#[derive(Debug)]
pub(super) enum SnapshotLookup {
    /// This.
    Saved(StoredSnapshot),
    /// There is no row.
    Absent,
    /// There is one that is not as it was written, nor its body.
    Altered,
}

/// The connections for reading.
#[derive(Debug)]
pub(super) struct ReaderPool {
    path: PathBuf,
    /// Those that nobody uses; `None` when there are to be no more.
    idle: Mutex<Option<Vec<Connection>>>,
    places: Arc<Semaphore>,
}

impl ReaderPool {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            idle: Mutex::new(Some(Vec::new())),
            places: Arc::new(Semaphore::new(READERS)),
        }
    }

    /// What is kept for `whose`, read by `dialect`.
    ///
    /// # Errors
    ///
    /// [`AuditError::Closed`], and what opening and reading the file can meet.
    pub(super) async fn load(
        self: &Arc<Self>,
        key: &CacheKey,
        dialect: Dialect,
    ) -> Result<SnapshotLookup, AuditError> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| AuditError::Closed)?;
        let (shelf, key) = (Arc::clone(self), key.clone());
        // The place goes with the reading, which nobody ends who waits for it.
        let reading = spawn_blocking(move || {
            let found = shelf.read(&key, dialect);
            drop(place);
            found
        });
        reading.await.map_err(|_| AuditError::Closed)?
    }

    /// The back-offs of the process before, and how many rows are not as they
    /// were written.
    ///
    /// # Errors
    ///
    /// What opening and reading the file can meet.
    pub(super) fn back_offs(&self) -> Result<(Vec<SavedBackOff>, usize), AuditError> {
        let connection = open_to_read(&self.path)?;
        let mut rows = Vec::new();
        BACK_OFFS
            .each_page(&connection, back_off, |page| rows.extend(page))
            .map_err(AuditError::Read)?;
        let all = rows.len();
        let kept: Vec<_> = rows.into_iter().flatten().collect();
        let changed = all - kept.len();
        Ok((kept, changed))
    }

    /// Reads no more, and closes the file.
    pub(super) fn close(&self) {
        self.places.close();
        self.lock().take();
    }

    fn read(&self, key: &CacheKey, dialect: Dialect) -> Result<SnapshotLookup, AuditError> {
        let idle = self.lock().as_mut().ok_or(AuditError::Closed)?.pop();
        let connection = match idle {
            Some(connection) => connection,
            None => open_to_read(&self.path)?,
        };
        let found = find(&connection, key, dialect).map_err(AuditError::Read)?;
        if let Some(idle) = self.lock().as_mut() {
            idle.push(connection);
        }
        Ok(found)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(
    connection: &Connection,
    key: &CacheKey,
    dialect: Dialect,
) -> rusqlite::Result<SnapshotLookup> {
    let cells = connection
        .prepare_cached(LOAD)?
        .query_row(key_cells(key), SavedSnapshotCells::of)
        .optional()?;
    let Some(cells) = cells else {
        return Ok(SnapshotLookup::Absent);
    };
    let kept = cells.and_then(|cells| cells.kept(dialect));
    Ok(kept.map_or(SnapshotLookup::Altered, SnapshotLookup::Saved))
}
