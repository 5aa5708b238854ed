//! Files of an open audit record: whether the paths still lead to the files
//! that were opened, and whether those were cut.
//!
//! A process goes on writing to a file that was deleted or replaced, without an
//! error, and all that it writes is lost. So the paths are looked at around each
//! commit. They are never opened here: closing any descriptor of the database
//! would drop the POSIX locks that SQLite holds on it.
//!
//! Does not know SQLite, but for the names of its files.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use rustix::io::Errno;
use thiserror::Error;

/// File of an audit record that is not the one that was opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file} {change}")]
pub struct FileFault {
    /// Name of the file, without its folder.
    pub file: String,
    /// Change that was found.
    pub change: FileChange,
}

/// Change of a file that was opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FileChange {
    /// The file was deleted or moved, or its folder was.
    #[error("was deleted or moved: put the same file back, or restart the proxy")]
    Missing,
    /// The path leads to another file.
    #[error("was replaced: put the file back that was there before, or restart the proxy")]
    Replaced,
    /// The file is shorter than what was written to it.
    #[error("was cut to {found} of {expected} bytes: restart the proxy")]
    Cut {
        /// Length in bytes.
        found: u64,
        /// Least length that it had.
        expected: u64,
    },
    /// SQLite has found a page that is none.
    #[error(
        "is damaged: stop the proxy, see what `politesse audit verify` finds, and restore the \
         file from a backup, or start once with `politesse serve --new-record`, which sets the \
         damaged one aside"
    )]
    Damaged,
    /// The path cannot be looked at.
    #[error("cannot be looked at ({0}): give the proxy access to its folder")]
    Unreadable(io::ErrorKind),
}

impl FileFault {
    /// Reports whether only a restart ends the fault. The others end when the
    /// file is back.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.change, FileChange::Cut { .. } | FileChange::Damaged)
    }
}

/// Files of an audit record that is open for writing.
#[derive(Debug)]
pub(super) struct OpenFiles {
    database: OpenFile,
    /// The database by the path in the configuration, where a symbolic link
    /// makes that another one: readers and the next start use it.
    link: Option<OpenFile>,
    wal: OpenFile,
    index: OpenFile,
}

impl OpenFiles {
    /// Notes which files SQLite has opened for `database`, which the
    /// configuration calls `configured`: it must have opened all three.
    ///
    /// # Errors
    ///
    /// Those of the system, if one of them cannot be looked at.
    pub(super) fn note(database: &Path, configured: &Path) -> io::Result<Self> {
        let link = (database != configured).then(|| OpenFile::note(configured.to_owned()));
        Ok(Self {
            link: link.transpose()?,
            database: OpenFile::note(database.to_owned())?,
            wal: OpenFile::note(beside(database, "-wal"))?,
            index: OpenFile::note(beside(database, "-shm"))?,
        })
    }

    /// Compares the paths with the files that were opened. The WAL must hold
    /// at least `wal_bytes`.
    ///
    /// # Errors
    ///
    /// The first [`FileFault`] that is met.
    pub(super) fn check(&mut self, wal_bytes: u64) -> Result<(), FileFault> {
        self.database.check()?;
        if let Some(link) = &mut self.link {
            // It only has to lead to the database, whose length was just
            // compared.
            link.opened.bytes = 0;
            link.check()?;
        }
        self.index.check()?;
        // The WAL alone becomes shorter in the course of things: SQLite starts
        // it again after a checkpoint.
        self.wal.opened.bytes = wal_bytes;
        self.wal.check()
    }

    /// Makes the fault of a database in which SQLite has found damage. Nothing is
    /// written to it any more: each page that is could make the damage greater.
    pub(super) fn damaged_database(&self) -> FileFault {
        self.database.fault(FileChange::Damaged)
    }

    /// Returns the length of the database's file.
    pub(super) fn database_bytes(&self) -> u64 {
        self.database.opened.bytes
    }

    /// Notes the length of the database's file anew, after a checkpoint of ours
    /// may have changed it.
    pub(super) fn note_checkpoint(&mut self) {
        if let Ok(found) = self.database.look() {
            self.database.opened.bytes = found.bytes;
        }
    }

    /// Reports whether `fault` says that the WAL was cut.
    pub(super) fn is_wal_cut(&self, fault: &FileFault) -> bool {
        matches!(fault.change, FileChange::Cut { .. }) && fault.file == name_of(&self.wal.path)
    }
}

/// File that a path leads to.
#[derive(Debug)]
struct FoundFile {
    device: u64,
    inode: u64,
    bytes: u64,
}

impl FoundFile {
    fn at(path: &Path) -> io::Result<Self> {
        // Without its times: whoever asks for them has each later write change them, and
        // ext4 then writes the inode with each commit, also if only data are synced.
        let wanted = StatxFlags::INO | StatxFlags::SIZE;
        match statx(CWD, path, AtFlags::empty(), wanted) {
            Ok(found) => Ok(Self {
                device: makedev(found.stx_dev_major, found.stx_dev_minor),
                inode: found.stx_ino,
                bytes: found.stx_size,
            }),
            // An old kernel, or a container that does not let it through.
            Err(Errno::NOSYS | Errno::PERM) => metadata(path).map(|found| Self {
                device: found.dev(),
                inode: found.ino(),
                bytes: found.len(),
            }),
            Err(error) => Err(error.into()),
        }
    }
}

/// File of the record: its path, and what is known of the file opened there.
#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    /// The file, with the length that it must have at least.
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
        // Another process may have lengthened the file by a checkpoint, which
        // loses nothing: the greatest length seen is the one that counts.
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

/// Makes an empty file for its owner alone, in place of what is there.
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

/// Makes the path of a file that SQLite keeps beside `database`.
pub(super) fn beside(database: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
