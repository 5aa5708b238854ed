//! Identity of an audit record: a random id, in the database and in a small
//! file beside it, the marker.
//!
//! A deleted database leaves no trace of itself. The marker does: it states the
//! highest number of an entry that is known to be on disk. A checkpoint is
//! written first and the marker after it, so that the marker may lag behind the
//! database and never leads it. Each commit writes its last number into the marker: a
//! start that finds less has lost what was committed. The id says whether a database is
//! the one that a marker was written for; it is no secret.

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

/// Name that the marker is written under first.
const NEW_NAME: &str = "record.new";

/// Longest marker that is read: it has some 200 bytes.
const BYTES_MAX: u64 = 64 * 1024;

/// Text of [`RecordMarker::about`].
const ABOUT: &str = "What the record in this folder holds at least. The proxy compares it with \
                     the database at each start: do not delete it.";

/// The row of `record`, for [`RecordRow`].
pub(super) const SELECT_RECORD: &str = "SELECT * FROM record";

table! {
    /// Identity of a record.
    pub(super) struct RecordRow in "record" keyed by "id" {
        pub(super) id: String = "id TEXT NOT NULL",
        pub(super) begun: Timestamp = "begun_us INTEGER NOT NULL",
        /// Id of the record before this one, if that was not whole.
        before: Option<String> = "before TEXT",
        /// Highest number that the record before is known to have had.
        before_last: Option<u64> = "before_last INTEGER",
        digest: Digest = "digest BLOB NOT NULL",
    }
}

/// Marker of an audit record: what it holds at least.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordMarker {
    /// Explanation for whoever finds the file.
    pub(super) about: String,
    /// Id of the record.
    pub(super) record: String,
    /// Name of the database.
    pub(super) database: String,
    /// Highest number of an entry that is known to be on disk.
    pub(super) last: u64,
    /// Length of the database's file after the last checkpoint.
    pub(super) bytes: u64,
    /// Newest head that is known to be on disk.
    #[serde(default)]
    pub(super) head: Option<MarkedHead>,
    /// Highest number that was committed, written in place after each commit and not
    /// synced: it outlasts the process, and after a power failure it may be an older one.
    #[serde(serialize_with = "digits", deserialize_with = "from_digits")]
    pub(super) committed: u64,
}

/// Digits of [`RecordMarker::committed`], so that a greater number fits in its place.
const DIGITS: usize = 20;

fn digits<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:0DIGITS$}"))
}

fn from_digits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

/// Place in the marker's file of the number that each commit changes.
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

/// Head of a record, as its marker names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MarkedHead {
    /// Number of entries that it covers.
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

/// Heads that a record had and no longer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LostHeads {
    /// Number of entries that the newest one covered.
    pub(super) known: u64,
    /// Number of entries that the newest one covers which is left.
    pub(super) found: u64,
}

impl RecordMarker {
    /// Makes the marker of the record `id`, which is empty and is kept in
    /// `database`.
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

    /// Looks in `connection` for the head that the marker names. A crash may have kept
    /// newer ones from the marker, but none of the table is ever removed.
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
        let marker = serde_json::from_slice(&std::fs::read(&path)?);
        marker
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Reads the marker of the record `id` in the database at `path`; `None` if it has none
    /// that can be read. The marker is where the database really is. A copy of the database
    /// may be read where there is none, and a backup may lie in the folder of the record
    /// that goes on.
    pub(super) fn of_database(path: &Path, id: Option<&str>) -> Option<Self> {
        // A symbolic link may lead to the database from another folder.
        let real = path.canonicalize().ok()?;
        let marker = Self::read(real.parent()?).ok().flatten()?;
        let is_own = Some(&*marker.record) == id && marker.database == name_of(&real);
        is_own.then_some(marker)
    }

    /// Writes the marker to `folder`, in place of the one that is there; it is
    /// on disk when this returns. Returns the place in it that commits change.
    ///
    /// # Errors
    ///
    /// An I/O error. The marker of before is still there, unless only the last
    /// step failed, which makes the folder durable.
    pub(super) fn write(&self, folder: &Path) -> io::Result<CommittedPlace> {
        let new = folder.join(NEW_NAME);
        let mut file = make_private(&new)?;
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&new, marker_path(folder))?;
        // The new name is only on disk when the folder is.
        File::open(folder)?.sync_all()?;
        // It is the last member: its digits are followed by a quote, a newline, a brace
        // and a newline.
        let at = (text.len() - DIGITS - 4) as u64;
        Ok(CommittedPlace { file, at })
    }
}

/// Path of the marker in `folder`.
pub(super) fn marker_path(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// Reads the id of the record in `connection`. A database has none until it is
/// first opened for writing.
pub(super) fn read_id(connection: &Connection) -> rusqlite::Result<Option<String>> {
    connection
        .query_row(SELECT_RECORD, [], |row| row.get(0))
        .optional()
}

/// Reads the id of the record in `connection`, and makes one if it has none. A
/// record that succeeds the one of the marker `before` says so in its first
/// event.
pub(super) fn read_or_make_id(
    connection: &mut Connection,
    before: Option<&RecordMarker>,
    now: Timestamp,
) -> rusqlite::Result<String> {
    // The id and the event stand in one transaction: a record that forgot what
    // was before it would pass for the first one.
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
