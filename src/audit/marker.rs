//! The marker: a small file beside the database that says what the record in
//! this folder holds at least.
//!
//! A database that was deleted leaves nothing that could tell; its marker does.
//! It is written after a checkpoint, when what it says is on disk: it may lag
//! behind the database, and is never ahead of what was acknowledged.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The marker's name in the folder of the record.
const NAME: &str = "record";

/// The name that it is written under first.
const NEW_NAME: &str = "record.new";

/// Longest marker that is read: it has some 200 bytes.
const BYTES_MAX: u64 = 64 * 1024;

/// The text of [`RecordMarker::about`].
const ABOUT: &str = "What the record in this folder holds at least. The proxy compares it with \
                     the database at each start: do not delete it.";

/// What a record holds at least.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordMarker {
    /// What is said to whoever finds the file.
    pub(super) about: String,
    /// The record's id, which is in the database too.
    pub(super) record: String,
    /// The name of the database.
    pub(super) database: String,
    /// The highest number of a decision that is known to be on disk.
    pub(super) last: u64,
    /// The length of the database's file after the last checkpoint.
    pub(super) bytes: u64,
}

impl RecordMarker {
    /// The marker of the record `id`, which is empty and is kept in `database`.
    pub(super) fn new(id: String, database: &Path) -> Self {
        Self {
            about: ABOUT.to_owned(),
            record: id,
            database: name_of(database),
            last: 0,
            bytes: 0,
        }
    }

    /// Reads the marker in `folder`, if there is one.
    ///
    /// # Errors
    ///
    /// Those of the system, and `InvalidData` for a file that is no marker: it
    /// is replaced as a whole, so a crash does not leave half of one.
    pub(super) fn read(folder: &Path) -> io::Result<Option<Self>> {
        let path = marker_path(folder);
        let found = match std::fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        // Reading from a named pipe would wait for somebody who writes to it.
        if !found.is_file() || BYTES_MAX < found.len() {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let text = std::fs::read(&path)?;
        let marker = serde_json::from_slice(&text);
        marker
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Writes it to `folder`, in place of the one that is there; it is on disk
    /// when this returns.
    ///
    /// # Errors
    ///
    /// Those of the system; the one that was there is still there then.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let new = folder.join(NEW_NAME);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&new)?;
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&new, marker_path(folder))?;
        File::open(folder)?.sync_all()
    }
}

/// The marker's path in `folder`.
pub(super) fn marker_path(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// The name of the database's file, without its folder.
pub(super) fn name_of(database: &Path) -> String {
    let name = database.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
