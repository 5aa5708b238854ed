//! Files of an open audit record: whether the paths still lead to the files that
//! were opened, and whether those were truncated.
//!
//! A process can write to a file that was deleted or replaced without getting an
//! error, and everything it writes is lost. The paths are therefore checked around
//! each commit. They are never opened here, because closing any descriptor of the
//! database would drop the POSIX locks that SQLite holds on it.
//!
//! Does not know SQLite, except for the names of its files.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use rustix::io::Errno;
use thiserror::Error;

/// Fault of a file of the record: it is not, or no longer, the file that was
/// opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file} {change}")]
pub struct FileFault {
    /// Name of the file, without its folder.
    pub file: String,
    /// Change that was detected.
    pub change: FileChange,
}

/// Change of a file that was opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FileChange {
    /// The file or its folder was deleted or moved.
    #[error("was deleted or moved: put the same file back, or restart the proxy")]
    Missing,
    /// The path leads to a different file.
    #[error("was replaced: put the file back that was there before, or restart the proxy")]
    Replaced,
    /// The file is shorter than it was.
    #[error("was cut to {found} of {expected} bytes: restart the proxy")]
    Cut {
        /// Length in bytes.
        found: u64,
        /// Minimum length in bytes.
        expected: u64,
    },
    /// SQLite has found an invalid page.
    #[error(
        "is damaged: stop the proxy, see what `politesse audit verify` finds, and restore the \
         file from a backup, or start once with `politesse serve --new-record`, which sets the \
         damaged one aside"
    )]
    Damaged,
    /// The path cannot be inspected.
    #[error("cannot be looked at ({0}): give the proxy access to its folder")]
    Unreadable(io::ErrorKind),
}

impl FileFault {
    /// Reports whether only a restart clears the fault. Other faults end when the
    /// file is back.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.change, FileChange::Cut { .. } | FileChange::Damaged)
    }
}

/// Files of an audit record that is open for writing.
#[derive(Debug)]
pub(super) struct OpenFiles {
    database: OpenFile,
    /// Database under the configured path, if that is a symbolic link. Readers and
    /// the next start use this path.
    link: Option<OpenFile>,
    wal: OpenFile,
    index: OpenFile,
}

impl OpenFiles {
    /// Notes which files SQLite has opened for `database`, whose configured path is
    /// `configured`. SQLite must have opened all three.
    ///
    /// # Errors
    ///
    /// I/O errors, if one of the files cannot be inspected.
    pub(super) fn note(database: &Path, configured: &Path) -> io::Result<Self> {
        let link = (database != configured).then(|| OpenFile::note(configured.to_owned()));
        Ok(Self {
            link: link.transpose()?,
            database: OpenFile::note(database.to_owned())?,
            wal: OpenFile::note(beside(database, "-wal"))?,
            index: OpenFile::note(beside(database, "-shm"))?,
        })
    }

    /// Compares the paths with the files that were opened. The WAL must have at
    /// least `wal_bytes` bytes.
    ///
    /// # Errors
    ///
    /// The first [`FileFault`] found.
    pub(super) fn check(&mut self, wal_bytes: u64) -> Result<(), FileFault> {
        self.database.check()?;
        if let Some(link) = &mut self.link {
            // Only the target of the link matters, because the length of the
            // database was just compared.
            link.opened.bytes = 0;
            link.check()?;
        }
        self.index.check()?;
        // The WAL is the only file that may become shorter in normal operation,
        // because SQLite restarts it after a checkpoint.
        self.wal.opened.bytes = wal_bytes;
        self.wal.check()
    }

    /// Returns the fault of a damaged database. Nothing more is written to it,
    /// because each page could add to the damage.
    pub(super) fn damaged_database(&self) -> FileFault {
        self.database.fault(FileChange::Damaged)
    }

    /// Returns the length of the database file in bytes.
    pub(super) fn database_bytes(&self) -> u64 {
        self.database.opened.bytes
    }

    /// Notes the new length of the database file after a checkpoint of our own.
    pub(super) fn note_checkpoint(&mut self) {
        if let Ok(found) = self.database.look() {
            self.database.opened.bytes = found.bytes;
        }
    }

    /// Reports whether `fault` says that the WAL was truncated.
    pub(super) fn is_wal_cut(&self, fault: &FileFault) -> bool {
        matches!(fault.change, FileChange::Cut { .. }) && fault.file == name_of(&self.wal.path)
    }
}

/// File found at a path.
#[derive(Debug)]
struct FoundFile {
    device: u64,
    inode: u64,
    bytes: u64,
}

impl FoundFile {
    fn at(path: &Path) -> io::Result<Self> {
        // Does not ask for timestamps. After a query for them each later write
        // updates them, and ext4 then writes the inode with each commit, even if
        // only data are synced.
        let wanted = StatxFlags::INO | StatxFlags::SIZE;
        match statx(CWD, path, AtFlags::empty(), wanted) {
            Ok(found) => Ok(Self {
                device: makedev(found.stx_dev_major, found.stx_dev_minor),
                inode: found.stx_ino,
                bytes: found.stx_size,
            }),
            // `statx` is missing in old kernels, and some containers block it.
            Err(Errno::NOSYS | Errno::PERM) => metadata(path).map(|found| Self {
                device: found.dev(),
                inode: found.ino(),
                bytes: found.len(),
            }),
            Err(error) => Err(error.into()),
        }
    }
}

/// File of the record: its path, and the file that was opened there.
#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    /// File, with the minimum length that it must have.
    opened: FoundFile,
}

impl OpenFile {
    fn note(path: PathBuf) -> io::Result<Self> {
        let opened = FoundFile::at(&path)?;
        Ok(Self { path, opened })
    }

    fn check(&mut self) -> Result<(), FileFault> {
        let found = self.look()?;
        if (found.device, found.inode) != (self.opened.device, self.opened.inode) {
            return Err(self.fault(FileChange::Replaced));
        }
        if found.bytes < self.opened.bytes {
            return Err(self.fault(FileChange::Cut {
                found: found.bytes,
                expected: self.opened.bytes,
            }));
        }
        // Another process may have lengthened the file with a checkpoint, which
        // loses nothing. The maximum length seen is what counts.
        self.opened.bytes = found.bytes;
        Ok(())
    }

    fn look(&self) -> Result<FoundFile, FileFault> {
        FoundFile::at(&self.path).map_err(|error| {
            let kind = error.kind();
            let is_gone = matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
            self.fault(if is_gone {
                FileChange::Missing
            } else {
                FileChange::Unreadable(kind)
            })
        })
    }

    fn fault(&self, change: FileChange) -> FileFault {
        FileFault {
            file: name_of(&self.path),
            change,
        }
    }
}

/// Creates an empty file readable only by its owner, or truncates an existing one.
pub(super) fn make_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)
}

/// Returns the name of a file, without its folder.
pub(super) fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Returns the path of a file that SQLite keeps beside `database`.
pub(super) fn beside(database: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
