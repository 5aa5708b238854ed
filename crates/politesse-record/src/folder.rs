//! Folder of the audit record: its path without links, its permissions, and the
//! lock on it.
//!
//! A folder holds one record, and one process writes to it. The lock is on the
//! folder itself rather than on a file in it, so that deleting every file of a
//! record does not make room for a second writer. A record that others may write
//! to proves nothing; one that others may read shows them what was crawled, and
//! by whom.
//!
//! Does not know SQLite, nor what the files of a record hold.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError, metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::error::AuditError;
use super::files::beside;
use super::record_id::marker_path;

/// Most symbolic links that are followed from one to the next, as in Linux.
pub(super) const LINKS_MAX: usize = 40;

const WRITE_BY_OTHERS: u32 = 0o022;
const READ_BY_OTHERS: u32 = 0o055;

/// Permissions, without the type of the file.
const PERMISSIONS: u32 = 0o777;

/// Bit of a folder in which only the owner of a file can rename it.
const STICKY: u32 = 0o1000;

/// The folder of an audit record, locked for this process: who holds this value
/// may write to the record.
#[derive(Debug)]
pub(super) struct LockedFolder {
    /// The database's path without symbolic links, so that every path that leads
    /// to a record opens the same one.
    pub(super) database: PathBuf,
    /// The folder, open. The lock ends when this is closed.
    lock: File,
}

impl LockedFolder {
    /// Locks the folder of the database at `path`. Makes the folder if there is
    /// none, with permissions for its owner alone.
    ///
    /// # Errors
    ///
    /// [`AuditError::Locked`] if another process holds the lock, and
    /// [`AuditError::Create`] if the folder cannot be made or locked.
    pub(super) fn lock(path: &Path) -> Result<Self, AuditError> {
        let database = real_path(path, LINKS_MAX)?;
        let folder = folder_of(&database);
        let lock = File::open(folder).map_err(create_error(folder))?;
        // The system ends the lock with the descriptor, so a crash leaves none.
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

    /// Reports whether the path still leads to the folder that was locked.
    /// Otherwise the marker (`record_id`) of another record would be overwritten.
    pub(super) fn is_in_place(&self) -> bool {
        let identity = |found: Metadata| (found.dev(), found.ino());
        match (metadata(self.path()), self.lock.metadata()) {
            (Ok(found), Ok(locked)) => identity(found) == identity(locked),
            _ => false,
        }
    }

    /// Makes the database's file if there is none, with permissions for its
    /// owner alone.
    ///
    /// # Errors
    ///
    /// [`AuditError::Create`] if the file can be neither made nor opened.
    pub(super) fn make_database(&self) -> Result<(), AuditError> {
        // SQLite would make the file readable for everyone. The files that it
        // puts beside the database get the permissions of the database.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let made = options.open(&self.database).map(drop);
        made.map_err(create_error(&self.database))
    }

    /// Checks the permissions of the folder (0700), and of those of its files
    /// that are there (0600).
    ///
    /// Read permissions for others, and another owner, are only logged: root in
    /// a container often works in a folder of another user.
    ///
    /// # Errors
    ///
    /// [`AuditError::Writable`] if somebody other than the owner may write.
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

/// Finds the path of the database without symbolic links, whether or not the
/// file is there. Makes its folder if there is none.
pub(super) fn real_path(path: &Path, links_left: usize) -> Result<PathBuf, AuditError> {
    let folder = folder_of(path);
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(folder);
    made.map_err(create_error(folder))?;
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        real => return real.map_err(create_error(path)),
    }
    // A link to a file that is not there yet: the record is where it leads.
    if let Some(links_left) = links_left.checked_sub(1)
        && let Ok(target) = path.read_link()
    {
        return real_path(&folder.join(target), links_left);
    }
    let real_folder = folder.canonicalize().map_err(create_error(folder))?;
    Ok(real_folder.join(path.file_name().unwrap_or_default()))
}

/// Returns the folder that a file lies in; a bare name lies in the working
/// directory.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Checks the permissions and the owner of `path`, if it is there. `wanted` is
/// the mode that a warning recommends.
///
/// # Errors
///
/// [`AuditError::Writable`].
pub(super) fn check_path(path: &Path, wanted: &str) -> Result<(), AuditError> {
    let Ok(found) = metadata(path) else {
        // A file that is not there yet will be made with the right ones.
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

/// Logs a warning if others may write to a folder above `folder`, and so put
/// another one in its place. Names the nearest such folder.
///
/// It is no error: where the umask is 002, the group may write to every folder
/// of a user, and that group often has no other member. While the proxy runs, a
/// folder put in the place of the record's is noticed at the next commit.
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
