//! Identity of an audit record: a random id, stored in the database and in the
//! marker, a small file beside it.
//!
//! A deleted database leaves no trace of itself, but the marker does: it states the
//! highest number of an entry known to be on disk. A checkpoint is written before
//! the marker, so the marker may lag behind the database but never leads it. Each
//! commit also writes its last number into the marker, so that a start that finds
//! fewer entries knows that some are lost. The id says whether a marker belongs to
//! a database; it is not secret.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::columns::{TableRow as _, count, table};
use super::events::EventRow;
use super::files::{make_private, name_of};
use super::leaf::RecordId;
use super::tree_rows::{StoredSeal, TreeReader};
use politesse_decision::digest::Digest;

/// Name of the marker in the folder of the record.
const NAME: &str = "record";

/// Temporary name under which a new marker is written.
const NEW_NAME: &str = "record.new";

/// Maximum size of a marker file; a marker has some 200 bytes.
const BYTES_MAX: u64 = 64 * 1024;

/// Text of [`RecordMarker::about`].
const ABOUT: &str = "What the record in this folder holds at least. The proxy compares it with \
                     the database at each start: do not delete it.";

/// Query for the row of `record`, read by [`RecordRow`].
pub(super) const SELECT_RECORD: &str = "SELECT * FROM record";

table! {
    /// Identity of a record.
    pub(super) struct RecordRow in "record" keyed by "id" {
        pub(super) id: String = "id TEXT NOT NULL",
        pub(super) begun: Timestamp = "begun_us INTEGER NOT NULL",
        /// Id of the previous record, if this one replaced an incomplete record.
        before: Option<String> = "before TEXT",
        /// Highest number that the previous record is known to have had.
        before_last: Option<u64> = "before_last INTEGER",
        digest: Digest = "digest BLOB NOT NULL",
    }
}

/// Marker of an audit record: a lower bound on its contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordMarker {
    /// Explanation for a person who finds the file.
    pub(super) about: String,
    /// Id of the record.
    pub(super) record: String,
    /// Name of the database.
    pub(super) database: String,
    /// Highest number of an entry that is known to be on disk.
    pub(super) last: u64,
    /// Length of the database's file after the last checkpoint.
    pub(super) bytes: u64,
    /// Newest head known to be on disk.
    #[serde(default)]
    pub(super) head: Option<MarkedHead>,
    /// Highest committed number. Overwritten in place after each commit, without a
    /// sync: it survives the end of the process, but after a power failure it may
    /// be an older one.
    #[serde(serialize_with = "digits", deserialize_with = "from_digits")]
    pub(super) committed: u64,
}

/// Number of digits in [`RecordMarker::committed`], so that any number fits in its
/// place.
const DIGITS: usize = 20;

fn digits<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:0DIGITS$}"))
}

fn from_digits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

/// Position in the marker file of the number that each commit overwrites.
#[derive(Debug)]
pub(super) struct CommittedPlace {
    file: File,
    at: u64,
}

impl CommittedPlace {
    /// Writes the highest number that was committed.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(super) fn write(&self, committed: u64) -> io::Result<()> {
        let text = format!("{committed:0DIGITS$}");
        self.file.write_all_at(text.as_bytes(), self.at)
    }
}

/// Head of a record, as named in its marker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MarkedHead {
    /// Number of entries that the head covers.
    pub(super) size: u64,
    /// SHA-256 of the note, in hexadecimal.
    pub(super) sha256: String,
}

impl From<&StoredSeal> for MarkedHead {
    fn from(seal: &StoredSeal) -> Self {
        Self {
            size: count(seal.size),
            sha256: Digest::of(seal.note.as_bytes()).to_string(),
        }
    }
}

/// Loss of heads: the newest head known before, and the newest one left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LostHeads {
    /// Number of entries covered by the newest known head.
    pub(super) known: u64,
    /// Number of entries covered by the newest head that is left; 0 if none is.
    pub(super) found: u64,
}

impl RecordMarker {
    /// Creates the marker of a new, empty record `id` in `database`.
    pub(super) fn new(id: String, database: &Path) -> Self {
        Self {
            about: ABOUT.to_owned(),
            record: id,
            database: name_of(database),
            last: 0,
            bytes: 0,
            head: None,
            committed: 0,
        }
    }

    /// Checks that `connection` has the head named in the marker; returns what was
    /// lost if not. After a crash the table may have newer heads than the marker,
    /// but heads are never removed from it.
    pub(super) fn find_lost_heads(
        &self,
        connection: &Connection,
    ) -> rusqlite::Result<Option<LostHeads>> {
        let Some(head) = &self.head else {
            return Ok(None);
        };
        let rows = TreeReader::new(connection);
        let found = rows.seal(head.size)?;
        if found.as_ref().map(MarkedHead::from).as_ref() == Some(head) {
            return Ok(None);
        }
        let newest = rows.newest_seal()?;
        Ok(Some(LostHeads {
            known: head.size,
            found: newest.map_or(0, |seal| count(seal.size)),
        }))
    }

    /// Reads the marker in `folder`, if there is one.
    ///
    /// # Errors
    ///
    /// I/O errors, and `InvalidData` if the file is not a marker. A marker is
    /// replaced as a whole, so a crash does not leave half of one.
    pub(super) fn read(folder: &Path) -> io::Result<Option<Self>> {
        let path = marker_path(folder);
        let found = match std::fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        // Reading from a named pipe would block until another program writes to it.
        if !found.is_file() || BYTES_MAX < found.len() {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let marker = serde_json::from_slice(&std::fs::read(&path)?);
        marker
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Reads the marker of the record `id` in the database at `path`; `None` if it
    /// has none that can be read. The marker is in the folder of the real file. It
    /// must name this database, because a copy may have no marker, and a backup may
    /// lie beside the record in use.
    pub(super) fn of_database(path: &Path, id: Option<&str>) -> Option<Self> {
        // The path may be a symbolic link in another folder.
        let real = path.canonicalize().ok()?;
        let marker = Self::read(real.parent()?).ok().flatten()?;
        let is_own = Some(&*marker.record) == id && marker.database == name_of(&real);
        is_own.then_some(marker)
    }

    /// Writes the marker to `folder`, replacing the previous one; it is on disk
    /// when this returns. Returns the place in it that commits overwrite.
    ///
    /// # Errors
    ///
    /// An I/O error. The previous marker is then still in place, unless only the
    /// last step, the sync of the folder, failed.
    pub(super) fn write(&self, folder: &Path) -> io::Result<CommittedPlace> {
        let new = folder.join(NEW_NAME);
        let mut file = make_private(&new)?;
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&new, marker_path(folder))?;
        // The new name is durable only once the folder is synced.
        File::open(folder)?.sync_all()?;
        // The number is the last member: its digits are followed by a quote, a
        // newline, a brace and a newline.
        let at = (text.len() - DIGITS - 4) as u64;
        Ok(CommittedPlace { file, at })
    }
}

/// Returns the path of the marker in `folder`.
pub(super) fn marker_path(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// Reads the id of the record in `connection`. A database gets one when it is first
/// opened for writing.
pub(super) fn read_id(connection: &Connection) -> rusqlite::Result<Option<String>> {
    connection
        .query_row(SELECT_RECORD, [], |row| row.get(0))
        .optional()
}

/// Reads the id of the record in `connection`, or creates one. If the record
/// replaces the one of the marker `before`, its first event says so.
pub(super) fn read_or_make_id(
    connection: &mut Connection,
    before: Option<&RecordMarker>,
    now: Timestamp,
) -> rusqlite::Result<String> {
    // One transaction writes both the id and the event. A record without the event
    // would pass for the first one.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if let Some(id) = read_id(&transaction)? {
        return Ok(id);
    }
    let id: String =
        transaction.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get(0))?;
    let mut row = RecordRow {
        id: id.clone(),
        begun: now,
        before: before.map(|marker| marker.record.clone()),
        before_last: before.map(|marker| marker.last),
        digest: Digest::default(),
    };
    row.digest = row.digest_of_columns();
    row.insert(&transaction)?;
    if let Some(marker) = before {
        EventRow::record_begun(marker.last, now).write(&transaction, RecordId::parse(&id))?;
    }
    transaction.commit()?;
    Ok(id)
}
