//! Opens the audit record for writing: locks the folder, and compares its files
//! with the marker before anything is changed.
//!
//! A database that has lost decisions is not opened, because the proxy would
//! continue as if they had never been made. The operator has to start with
//! `--new-record`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode};

use super::columns::{count, signed};
use super::error::AuditError;
use super::files::{beside, name_of};
use super::folder::{LINKS_MAX, LockedFolder, check_path, folder_of, real_path};
use super::leaf::RecordId;
use super::privacy::{PrivacyOptions, check_key};
use super::queue::BATCH_MAX;
use super::record_id::{RecordMarker, marker_path, read_id, read_or_make_id};
use super::schema::{self, open_error};
use super::seal_key::{key_path, read_key};
use super::sealing::SealOptions;
use super::sequence::{last_as_written, last_number};
use super::start_check::find_missing;
use super::wal::commits_after_damage;
use politesse_base::clock;

/// Location and properties of the record.
#[derive(Debug, Clone)]
pub struct Options {
    /// The SQLite file (`audit.store`).
    pub path: PathBuf,
    /// Maximum number of entries waiting for the writer. An exchange in progress
    /// holds one place for its ending, so this also limits the exchanges. 1 counts
    /// as 2, because an exchange needs two.
    pub queue: NonZeroUsize,
    /// Size of SQLite's write-ahead log in bytes above which nothing is written
    /// until the log can be restarted (`audit.wal_max`). One batch may exceed it.
    pub wal_max: u64,
    /// Age at which entries are removed; `None` keeps them (`audit.retention`).
    pub retention: Option<Duration>,
    /// Whether entries are kept until they have arrived in the archive
    /// (`audit.archive`).
    pub waits_for_archive: bool,
    /// Form in which personal data are written.
    pub privacy: PrivacyOptions,
    /// Sealing of the record.
    pub seal: SealOptions,
    /// Whether to begin a new record if the previous one is incomplete
    /// (`--new-record`).
    pub new_record: bool,
    /// Whether to seal a record from which heads were removed (`--accept-lost-heads`).
    pub accept_lost_heads: bool,
}

impl Options {
    /// Returns options for a record at `path` with a queue of 1,024 entries, and
    /// without retention, archive or shortened data.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            queue: NonZeroUsize::MIN.saturating_add(1_023),
            wal_max: 1 << 28,
            retention: None,
            waits_for_archive: false,
            privacy: PrivacyOptions::default(),
            seal: SealOptions::default(),
            new_record: false,
            accept_lost_heads: false,
        }
    }
}

/// Checks the existing files that an opening would use: their permissions, and the
/// keys. Creates and locks nothing, and does not read the record.
///
/// # Errors
///
/// [`AuditError::Writable`], [`AuditError::Create`], [`AuditError::Open`],
/// [`AuditError::Marker`], [`AuditError::Inspect`] or [`AuditError::SealKey`].
pub fn check_files(options: &Options) -> Result<(), AuditError> {
    let database = &options.path;
    let folder = folder_of(database);
    for (path, wanted) in [(folder, "0700"), (database, "0600")] {
        check_path(path, wanted)?;
    }
    let mut as_writer = OpenOptions::new();
    match as_writer.read(true).write(true).open(database) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(AuditError::Create(database.clone(), error));
        }
        Ok(file) => check_header(database, file)?,
        Err(_) => {}
    }
    read_marker(folder)?;
    check_key(options.privacy, folder)?;
    let key = key_path(options.seal.key.as_deref(), folder);
    check_path(&key, "0600")?;
    if key.exists() {
        read_key(&key, "check")?;
    }
    Ok(())
}

/// Checks that a file begins like a SQLite database. Does not open it with SQLite,
/// which would create files beside it.
fn check_header(path: &Path, file: File) -> Result<(), AuditError> {
    const HEADER: &[u8] = b"SQLite format 3\0";
    let mut header = Vec::with_capacity(HEADER.len());
    let mut start = file.take(HEADER.len() as u64);
    start
        .read_to_end(&mut header)
        .map_err(|error| AuditError::Create(path.to_owned(), error))?;
    if header.is_empty() || header == HEADER {
        return Ok(());
    }
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_NOTADB);
    Err(open_error(path)(rusqlite::Error::SqliteFailure(code, None)))
}

/// An audit record that is open for writing.
#[derive(Debug)]
pub(super) struct OpenRecord {
    pub(super) folder: LockedFolder,
    pub(super) connection: Connection,
    /// Marker of this record, as it was last written.
    pub(super) marker: RecordMarker,
    /// Entries that the previous process committed and that are now missing.
    pub(super) loss: Option<LostEntries>,
}

/// Committed entries that are missing because the WAL that held them was damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LostEntries {
    /// Highest number still there.
    pub(super) found: i64,
    /// Highest number known to have been committed; `found` if the marker knows no
    /// higher one.
    pub(super) committed: i64,
    /// Number of commits after the damage in the WAL. They cannot be read.
    pub(super) commits: u64,
}

impl LostEntries {
    /// Compares the numbers in `connection` with `marker`. `commits` is the number
    /// of commits found after damage in the WAL.
    fn find(
        connection: &Connection,
        marker: &RecordMarker,
        commits: u64,
    ) -> rusqlite::Result<Option<Self>> {
        let found = last_number(connection)?.unwrap_or_default();
        let committed = signed(marker.committed).max(found);
        let is_lost = found < committed || 0 < commits;
        Ok(is_lost.then_some(Self {
            found,
            committed,
            commits,
        }))
    }

    /// Returns the minimum number of missing entries: a commit has one or more.
    pub(super) fn entries(self) -> u64 {
        count(self.committed - self.found).max(self.commits)
    }

    /// Returns the highest number that may have been issued: a commit has at most
    /// [`BATCH_MAX`] entries.
    pub(super) fn last_given(self) -> i64 {
        let of_commits = self.commits.saturating_mul(BATCH_MAX as u64);
        self.committed
            .max(self.found.saturating_add(signed(of_commits)))
    }
}

/// Opens the record at `options.path` for writing, creating it if there never was
/// one.
///
/// # Errors
///
/// [`AuditError::Locked`], [`AuditError::Writable`], [`AuditError::Inspect`],
/// [`AuditError::Marker`], [`AuditError::Incomplete`], and errors from creating and
/// opening the files.
pub(super) fn open(options: &Options) -> Result<OpenRecord, AuditError> {
    let folder = LockedFolder::lock(&options.path)?;
    folder.check_permissions()?;
    // On a read-only file system, SQLite would fail later without the reason.
    if folder.database.exists() {
        folder.make_database()?;
    }
    let old_marker = read_marker(folder.path())?;
    let scrutiny = if options.new_record {
        Scrutiny::EveryPage
    } else {
        Scrutiny::Newest
    };
    let defect = match &old_marker {
        Some(marker) => find_defect(marker, &folder.database, scrutiny)?,
        None => None,
    };
    // Marker of the previous record, if a new one takes its place.
    let before = match (&old_marker, defect) {
        (Some(marker), Some(defect)) if !options.new_record => {
            return Err(AuditError::Incomplete {
                folder: folder.path().to_owned(),
                database: marker.database.clone(),
                last: marker.last,
                record: marker.record.clone(),
                defect,
            });
        }
        (Some(marker), Some(_)) => {
            set_aside(&folder.database, clock::now())?;
            Some(marker)
        }
        _ => None,
    };
    folder.make_database()?;
    // Counted before the database is opened for writing, because SQLite then
    // truncates the log at the damage.
    let wal = beside(&folder.database, "-wal");
    let commits =
        commits_after_damage(&wal).map_err(|error| AuditError::Inspect(wal.clone(), error))?;
    let mut connection = schema::open(&folder.database)?;
    let had_id = read_id(&connection).map_err(open_error(&folder.database))?;
    let id = read_or_make_id(&mut connection, before, clock::now())
        .map_err(open_error(&folder.database))?;
    if had_id.is_none() {
        tracing::info!(record = id, folder = %folder.path().display(), "a new record begins");
    } else if old_marker.is_none() {
        tracing::warn!(
            record = id,
            "{} is gone: what the database holds now is taken for the whole record",
            marker_path(folder.path()).display(),
        );
    }
    let marker = match old_marker {
        Some(marker) if marker.record == id => RecordMarker {
            database: name_of(&folder.database),
            ..marker
        },
        _ => RecordMarker::new(id, &folder.database),
    };
    let loss =
        LostEntries::find(&connection, &marker, commits).map_err(open_error(&folder.database))?;
    Ok(OpenRecord {
        folder,
        connection,
        marker,
        loss,
    })
}

/// Checks that the database at `path` is the one that another process has locked,
/// and not a different file in the same folder, such as a backup.
///
/// # Errors
///
/// [`AuditError::OtherDatabase`], and those of reading the folder.
pub fn check_in_use(path: &Path) -> Result<(), AuditError> {
    let database = real_path(path, LINKS_MAX)?;
    let folder = folder_of(&database);
    match read_marker(folder)? {
        Some(marker) if marker.database != name_of(&database) => {
            let in_use = folder.join(marker.database);
            Err(AuditError::OtherDatabase(database, in_use))
        }
        Some(_) | None => Ok(()),
    }
}

pub(super) fn read_marker(folder: &Path) -> Result<Option<RecordMarker>, AuditError> {
    RecordMarker::read(folder).map_err(|source| {
        let path = marker_path(folder);
        if source.kind() == io::ErrorKind::InvalidData {
            AuditError::Marker(path)
        } else {
            AuditError::Inspect(path, source)
        }
    })
}

/// Depth of an inspection of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scrutiny {
    /// Read the newest entries; all pages only if the file has become shorter.
    Newest,
    /// Read every page. With `--new-record`, the operator may know of damage in a
    /// page that no start reads.
    EveryPage,
}

/// Finds how a database differs from what `marker` says: another record, missing,
/// incomplete or damaged. Returns `None` if it agrees.
pub(super) fn find_defect(
    marker: &RecordMarker,
    database: &Path,
    scrutiny: Scrutiny,
) -> Result<Option<String>, AuditError> {
    let bytes = match std::fs::metadata(database) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(AuditError::Inspect(database.to_owned(), error)),
    };
    // SQLite takes an empty file for a new database, so an empty file must not
    // reach it.
    if bytes == 0 {
        return Ok(Some(format!("there is no {}", name_of(database))));
    }
    match compare(marker, database, bytes, scrutiny) {
        Err(AuditError::Open(_, error) | AuditError::Read(error)) if is_damage(&error) => {
            Ok(Some(format!("it is damaged ({error})")))
        }
        compared => compared,
    }
}

/// Compares a database of `bytes` bytes with `marker`.
fn compare(
    marker: &RecordMarker,
    database: &Path,
    bytes: u64,
    scrutiny: Scrutiny,
) -> Result<Option<String>, AuditError> {
    // Opened read-only, because a defective database is evidence until the operator
    // decides what to do with it.
    let connection = schema::open_to_read(database)?;
    match read_id(&connection)? {
        Some(id) if id == marker.record => {}
        Some(id) => return Ok(Some(format!("it is another record ({id})"))),
        None => return Ok(Some("it is another record, without an id".to_owned())),
    }
    let found = last_number(&connection)?;
    let last = found.unwrap_or_default();
    let checkpoint = signed(marker.last);
    if last < checkpoint {
        return Ok(Some(format!("it ends at {}", count(last))));
    }
    // A shorter file may come from a VACUUM or from an old copy beside a newer WAL.
    // Only a check of every page tells which.
    if (bytes < marker.bytes || scrutiny == Scrutiny::EveryPage)
        && let Some(damage) = find_damage(&connection)?
    {
        return Ok(Some(format!("it is damaged ({damage})")));
    }
    // In such a copy every page may be sound and the length right, yet entries
    // missing.
    if let Some(missing) = find_missing(&connection, checkpoint, last)? {
        return Ok(Some(format!("it is damaged ({missing})")));
    }
    let record = RecordId::parse(&marker.record);
    let is_changed = found != last_as_written(&connection, record)?;
    Ok(is_changed.then(|| "its highest number is not as it was written".to_owned()))
}

/// Checks every page of a database. Returns the first error that SQLite finds.
pub(super) fn find_damage(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let found = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    match found {
        Ok(found) if found == "ok" => Ok(None),
        Ok(damage) => Ok(Some(damage)),
        Err(error) if is_damage(&error) => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Reports whether `error` says that a file is not a database, or is damaged.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// Renames what remains of the record, so that nothing is overwritten and
/// `audit.store` can still name it for reading.
pub(super) fn set_aside(database: &Path, now: Timestamp) -> Result<(), AuditError> {
    let time = now.strftime("%Y%m%dT%H%M%S.%6fZ");
    let aside = beside(database, format!(".before-{time}"));
    // The database is renamed last: if the process ends in between, the next start
    // still finds the record incomplete.
    for suffix in ["-shm", "-wal", ""] {
        let (from, to) = (beside(database, suffix), beside(&aside, suffix));
        match std::fs::rename(&from, to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done.map_err(|error| AuditError::Create(from, error))?,
        }
    }
    tracing::warn!(to = %aside.display(), "the remains of the record were set aside");
    Ok(())
}
