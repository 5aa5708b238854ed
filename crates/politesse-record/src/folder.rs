//! Folder of the audit record: its path without symbolic links, its permissions,
//! and its lock.
//!
//! A folder holds one record, and one process writes to it. The lock is on the
//! folder itself rather than on a file in it, so that deleting all files of a
//! record does not let a second process write. A record that other users may write
//! to proves nothing; a record that they may read shows them what was crawled, and
//! by whom.
//!
//! Does not know SQLite, or what the files of a record contain.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError, metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::error::AuditError;
use super::files::beside;
use super::record_id::marker_path;

/// Maximum number of symbolic links followed in a chain, as in Linux.
pub(super) const LINKS_MAX: usize = 40;

const WRITE_BY_OTHERS: u32 = 0o022;
const READ_BY_OTHERS: u32 = 0o055;

/// Mask of the permission bits.
const PERMISSIONS: u32 = 0o777;

/// Sticky bit of a folder: only the owner of a file can rename it.
const STICKY: u32 = 0o1000;

/// Folder of an audit record, locked for this process. The owner of this value may
/// write to the record.
#[derive(Debug)]
pub(super) struct LockedFolder {
    /// Path of the database without symbolic links, so that all paths to a record
    /// open the same one.
    pub(super) database: PathBuf,
    /// Open folder. Closing it releases the lock.
    lock: File,
}

impl LockedFolder {
    /// Locks the folder of the database at `path`. Creates the folder if needed,
    /// accessible only to its owner.
    ///
    /// # Errors
    ///
    /// [`AuditError::Locked`] if another process holds the lock, and
    /// [`AuditError::Create`] if the folder cannot be created or locked.
    pub(super) fn lock(path: &Path) -> Result<Self, AuditError> {
        let database = real_path(path, LINKS_MAX)?;
        let folder = folder_of(&database);
        let lock = File::open(folder).map_err(create_error(folder))?;
        // The system releases the lock with the descriptor, so a crash leaves none.
        match lock.try_lock() {
            Ok(()) => Ok(Self { database, lock }),
            Err(TryLockError::WouldBlock) => Err(AuditError::Locked(folder.to_owned())),
            Err(TryLockError::Error(source)) => Err(create_error(folder)(source)),
        }
    }

    /// Returns the path of the folder, without symbolic links.
    pub(super) fn path(&self) -> &Path {
        folder_of(&self.database)
    }

    /// Reports whether the path still leads to the locked folder. If not, writing
    /// the marker (`record_id`) would overwrite that of another record.
    pub(super) fn is_in_place(&self) -> bool {
        let identity = |found: Metadata| (found.dev(), found.ino());
        match (metadata(self.path()), self.lock.metadata()) {
            (Ok(found), Ok(locked)) => identity(found) == identity(locked),
            _ => false,
        }
    }

    /// Creates the database file if needed, accessible only to its owner.
    ///
    /// # Errors
    ///
    /// [`AuditError::Create`] if the file can be neither created nor opened.
    pub(super) fn make_database(&self) -> Result<(), AuditError> {
        // SQLite would make the file readable for everyone. The files that it
        // creates beside the database get the same permissions as the database.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let made = options.open(&self.database).map(drop);
        made.map_err(create_error(&self.database))
    }

    /// Checks the permissions of the folder (0700) and of its existing files
    /// (0600).
    ///
    /// Read permissions for others, and another owner, are only logged: root in
    /// a container often works in a folder of another user.
    ///
    /// # Errors
    ///
    /// [`AuditError::Writable`] if users other than the owner may write.
    pub(super) fn check_permissions(&self) -> Result<(), AuditError> {
        check_path(self.path(), "0700")?;
        for file in [
            self.database.clone(),
            beside(&self.database, "-wal"),
            beside(&self.database, "-shm"),
            marker_path(self.path()),
        ] {
            check_path(&file, "0600")?;
        }
        warn_of_parents(self.path());
        Ok(())
    }
}

fn create_error(path: &Path) -> impl FnOnce(io::Error) -> AuditError {
    |error| AuditError::Create(path.to_owned(), error)
}

/// Returns the path of the database without symbolic links, whether or not the file
/// exists. Creates its folder if needed.
pub(super) fn real_path(path: &Path, links_left: usize) -> Result<PathBuf, AuditError> {
    let folder = folder_of(path);
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(folder);
    made.map_err(create_error(folder))?;
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        real => return real.map_err(create_error(path)),
    }
    // A symbolic link to a file that does not exist yet: the record will be at its
    // target.
    if let Some(links_left) = links_left.checked_sub(1)
        && let Ok(target) = path.read_link()
    {
        return real_path(&folder.join(target), links_left);
    }
    let real_folder = folder.canonicalize().map_err(create_error(folder))?;
    Ok(real_folder.join(path.file_name().unwrap_or_default()))
}

/// Returns the folder of a file; for a bare name, the working directory.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Checks the permissions and the owner of `path`, if it exists. `wanted` is the
/// mode recommended in a warning.
///
/// # Errors
///
/// [`AuditError::Writable`].
pub(super) fn check_path(path: &Path, wanted: &str) -> Result<(), AuditError> {
    let Ok(found) = metadata(path) else {
        // A missing file will be created with the right permissions.
        return Ok(());
    };
    let mode = found.mode() & PERMISSIONS;
    if mode & WRITE_BY_OTHERS != 0 {
        return Err(AuditError::Writable {
            path: path.to_owned(),
            mode,
        });
    }
    if found.uid() != geteuid().as_raw() {
        tracing::warn!(
            "{} belongs to another user ({}), who may write to it: run the proxy as that user, or \
             chown it",
            path.display(),
            found.uid(),
        );
    }
    if mode & READ_BY_OTHERS != 0 {
        tracing::warn!(
            "others than the owner may read {} (mode {mode:04o}): chmod {wanted} {}",
            path.display(),
            path.display(),
        );
    }
    Ok(())
}

/// Logs a warning if other users may write to a folder above `folder`, and could
/// therefore replace it. Names the nearest such folder.
///
/// This is not an error: with a umask of 002, the group may write to every folder
/// of a user, and that group often has no other member. While the proxy runs, the
/// next commit detects a replaced folder.
fn warn_of_parents(folder: &Path) {
    let is_open = |path: &&Path| {
        metadata(path)
            .is_ok_and(|found| found.mode() & WRITE_BY_OTHERS != 0 && found.mode() & STICKY == 0)
    };
    if let Some(path) = folder.ancestors().skip(1).find(is_open) {
        tracing::warn!(
            "others than the owner may write to {}, and so replace {}: chmod go-w {}",
            path.display(),
            folder.display(),
            path.display(),
        );
    }
}
