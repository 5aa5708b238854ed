//! Opening of the audit record for writing: the folder is locked, and what lies
//! there is compared with the marker before anything is changed.
//!
//! A database that has lost decisions is not opened: the proxy would go on as
//! if they had never been made. Whoever starts it says so with `--new-record`.

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

/// Location of the record, and what it promises.
#[derive(Debug, Clone)]
pub struct Options {
    /// The SQLite file (`audit.store`).
    pub path: PathBuf,
    /// Entries that may wait for the writer. An exchange under way holds one
    /// of them for its ending, so this also bounds the exchanges; 1 counts as
    /// 2, which one exchange needs.
    pub queue: NonZeroUsize,
    /// Bytes of SQLite's write-ahead log above which nothing is written until
    /// it could be started again (`audit.wal_max`). One batch may go beyond it.
    pub wal_max: u64,
    /// Age from which on entries are removed; `None`: they stay (`audit.retention`).
    pub retention: Option<Duration>,
    /// Whether entries stay until they have arrived in the archive (`audit.archive`).
    pub waits_for_archive: bool,
    /// Forms in which personal data are written.
    pub privacy: PrivacyOptions,
    /// Heads of the record.
    pub seal: SealOptions,
    /// Whether to begin a new record where the previous one is not whole
    /// (`--new-record`).
    pub new_record: bool,
    /// Whether to seal a record from which heads were removed (`--accept-lost-heads`).
    pub accept_lost_heads: bool,
}

impl Options {
    /// Returns the options of a record at `path` without retention, archive or shortened
    /// data, in which 1,024 entries may wait.
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

/// Checks the files that an opening would open, as far as they are there: their
/// permissions, and the keys. Makes none, locks none, and does not read the record.
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

/// Checks that a file begins as a database does, without opening it as one, which would
/// make files beside it.
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
    /// The marker of this record, as it was last written.
    pub(super) marker: RecordMarker,
    /// Entries that the last process committed and that are gone.
    pub(super) loss: Option<LostEntries>,
}

/// Entries that were committed and are gone: the log that had them was damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LostEntries {
    /// Highest number that is left.
    pub(super) found: i64,
    /// Highest number that is known to have been committed; `found` if the marker knows
    /// no more.
    pub(super) committed: i64,
    /// Commits in the log that stand after damage, and cannot be read.
    pub(super) commits: u64,
}

impl LostEntries {
    /// Compares the numbers in `connection` with those of `marker`. `commits` were found
    /// in the log after damage.
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

    /// Returns how many entries are gone at least: a commit has one or more.
    pub(super) fn entries(self) -> u64 {
        count(self.committed - self.found).max(self.commits)
    }

    /// Returns the highest number that may have been given: a commit has
    /// [`BATCH_MAX`] entries at most.
    pub(super) fn last_given(self) -> i64 {
        let of_commits = self.commits.saturating_mul(BATCH_MAX as u64);
        self.committed
            .max(self.found.saturating_add(signed(of_commits)))
    }
}

/// Opens the record at `options.path` for writing, and makes it if there never
/// was one.
///
/// # Errors
///
/// [`AuditError::Locked`], [`AuditError::Writable`], [`AuditError::Inspect`],
/// [`AuditError::Marker`], [`AuditError::Incomplete`], and those of making and
/// opening the files.
pub(super) fn open(options: &Options) -> Result<OpenRecord, AuditError> {
    let folder = LockedFolder::lock(&options.path)?;
    folder.check_permissions()?;
    // On a file system that is read-only, SQLite only says that it cannot open the file.
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
    // The marker of the record before, if a new one begins in its place.
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
    // Before the database is opened for writing, which ends the log where it is damaged.
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

/// Checks that the database at `path` is that of the record which another process has
/// locked, and not another one in its folder, such as a backup.
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

/// Extent of a look at a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scrutiny {
    /// The newest entries; every page only if the file has become shorter.
    Newest,
    /// Every page: whoever asks for that may have found one damaged that no start
    /// reads.
    EveryPage,
}

/// Finds what is wrong with a database that is not the one that `marker` was
/// written for, or not all of it.
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
    // SQLite takes an empty file for a new database, so that it must not see
    // one in place of a record.
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
    // Read-only: what is found here is evidence until somebody has decided what
    // is to be done with it.
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
    // Somebody may have used VACUUM, or have put an old copy beside a newer WAL:
    // only a look at every page tells which.
    if (bytes < marker.bytes || scrutiny == Scrutiny::EveryPage)
        && let Some(damage) = find_damage(&connection)?
    {
        return Ok(Some(format!("it is damaged ({damage})")));
    }
    // Every page of such a copy may be sound, and its length right.
    if let Some(missing) = find_missing(&connection, checkpoint, last)? {
        return Ok(Some(format!("it is damaged ({missing})")));
    }
    let record = RecordId::parse(&marker.record);
    let is_changed = found != last_as_written(&connection, record)?;
    Ok(is_changed.then(|| "its highest number is not as it was written".to_owned()))
}

/// Looks at every page of a database. Returns what SQLite finds wrong first.
pub(super) fn find_damage(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let found = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    match found {
        Ok(found) if found == "ok" => Ok(None),
        Ok(damage) => Ok(Some(damage)),
        Err(error) if is_damage(&error) => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Reports whether SQLite has found that a file is no database, or no whole one.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// Renames what is left of the record, so that nothing of it is overwritten and
/// `audit.store` can name it to be read.
pub(super) fn set_aside(database: &Path, now: Timestamp) -> Result<(), AuditError> {
    let time = now.strftime("%Y%m%dT%H%M%S.%6fZ");
    let aside = beside(database, format!(".before-{time}"));
    // The database last: if the process ends in between, the next start still
    // finds that the record is not whole.
    for suffix in ["-shm", "-wal", ""] {
        let (from, to) = (beside(database, suffix), beside(&aside, suffix));
        match std::fs::rename(&from, to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done.map_err(|error| AuditError::Create(from, error))?,
        }
    }
    tracing::warn!(to = %aside.display(), "what is left of the record was set aside");
    Ok(())
}
