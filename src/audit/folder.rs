//! The folder of a record: where it really is, and who may write to it.
//!
//! A folder holds one record, and one process writes to it. The lock is on the
//! folder itself rather than on a file in it: whoever deletes every file of a
//! record does not make room for a second writer.
//!
//! Does not know SQLite, nor what the files of a record hold.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError, metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::AuditError;

/// The folder of a record, locked for this process.
#[derive(Debug)]
pub(super) struct LockedFolder {
    /// The database's path without symbolic links: a record is the same by
    /// whatever name it is opened.
    pub(super) database: PathBuf,
    /// The folder, open. The lock ends when this is closed.
    lock: File,
}

impl LockedFolder {
    /// Makes the folder of the database at `path` if there is none, for its
    /// owner alone, and locks it.
    ///
    /// # Errors
    ///
    /// [`AuditError::Locked`] if another process holds the lock, and
    /// [`AuditError::Create`] if the folder cannot be made or locked.
    pub(super) fn lock(path: &Path) -> Result<Self, AuditError> {
        let database = real_path(path, LINKS_MAX)?;
        let folder = folder_of(&database);
        let failed = |source| AuditError::Create {
            path: folder.to_owned(),
            source,
        };
        let lock = File::open(folder).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(AuditError::Locked(folder.to_owned())),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        Ok(Self { database, lock })
    }

    /// The path of the folder, without symbolic links.
    pub(super) fn path(&self) -> &Path {
        folder_of(&self.database)
    }

    /// Whether the path still leads to the folder that was locked: the marker
    /// of another record, in another folder, must not be overwritten.
    pub(super) fn is_in_place(&self) -> bool {
        let same = |found: Metadata, locked: Metadata| {
            (found.dev(), found.ino()) == (locked.dev(), locked.ino())
        };
        match (metadata(self.path()), self.lock.metadata()) {
            (Ok(found), Ok(locked)) => same(found, locked),
            _ => false,
        }
    }

    /// Makes the database's file if there is none, for its owner alone. SQLite
    /// would make it readable for everyone, and gives the files beside it the
    /// permissions of this one.
    ///
    /// # Errors
    ///
    /// [`AuditError::Create`].
    pub(super) fn make_database(&self) -> Result<(), AuditError> {
        private_file(&self.database).map_err(|source| AuditError::Create {
            path: self.database.clone(),
            source,
        })
    }
}

/// Symbolic links followed from one to the next, as Linux does.
const LINKS_MAX: usize = 40;

/// The path of the database without symbolic links, whether or not the file is
/// there. Its folder is made if there is none.
fn real_path(path: &Path, links_left: usize) -> Result<PathBuf, AuditError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| AuditError::Create { path, source }
    };
    let folder = folder_of(path);
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(folder);
    made.map_err(failed(folder))?;
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        real => return real.map_err(failed(path)),
    }
    // A link to a file that is not there yet: the record is where it leads.
    if let Some(links_left) = links_left.checked_sub(1)
        && let Ok(target) = path.read_link()
    {
        return real_path(&folder.join(target), links_left);
    }
    let folder = folder.canonicalize().map_err(failed(folder))?;
    Ok(folder.join(path.file_name().unwrap_or_default()))
}

/// The folder that a file lies in; a bare name lies in the working directory.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn private_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map(drop)
}
