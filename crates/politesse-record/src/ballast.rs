//! Ballast: a file that reserves disk space beside the database, so that entries
//! can be removed even on a full disk. Deleting rows takes space in the write-ahead
//! log.
//!
//! Does not know when the disk is full.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::files::make_private;

/// Name of the file in the folder of the record.
const NAME: &str = "ballast";

/// Size of the file: enough for several steps of a removal.
const BYTES: usize = 8 << 20;

/// Space that must be left after the file is created, so that it does not fill the
/// disk itself.
const ROOM_LEFT: u64 = 4 * BYTES as u64;

/// Size of one write.
const BLOCK: usize = 64 << 10;

/// Ballast file, present or not.
#[derive(Debug)]
pub(super) struct Ballast {
    path: PathBuf,
    is_there: bool,
}

impl Ballast {
    /// Creates the file in `folder` if it does not exist.
    pub(super) fn new(folder: &Path) -> Self {
        let mut ballast = Self {
            path: folder.join(NAME),
            is_there: false,
        };
        ballast.take_up();
        ballast
    }

    /// Creates the file if it does not exist and there is room. The record works
    /// without it.
    pub(super) fn take_up(&mut self) {
        let is_whole = || fs::metadata(&self.path).is_ok_and(|found| found.len() == BYTES as u64);
        if self.is_there || is_whole() {
            self.is_there = true;
            return;
        }
        let made = match self.has_room() {
            Ok(true) => self.write(),
            Ok(false) => return,
            Err(error) => Err(error),
        };
        match made {
            Ok(()) => self.is_there = true,
            Err(error) => {
                tracing::warn!(
                    %error,
                    "{} cannot be made: there will be no room to remove old entries on a full disk",
                    self.path.display()
                );
                self.drop_it();
            }
        }
    }

    fn has_room(&self) -> io::Result<bool> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        Ok(BYTES as u64 + ROOM_LEFT <= free_bytes(folder)?)
    }

    fn write(&self) -> io::Result<()> {
        let mut file = make_private(&self.path)?;
        // Written in full, because a sparse file would reserve no space.
        let block = vec![0; BLOCK];
        for _ in 0..BYTES / BLOCK {
            file.write_all(&block)?;
        }
        file.sync_all()
    }

    /// Removes the file from `folder`, for a record that cannot even be opened.
    /// Returns whether that made room.
    pub(super) fn drop_from(folder: &Path) -> bool {
        fs::remove_file(folder.join(NAME)).is_ok()
    }

    /// Removes the file. Returns whether that made room.
    pub(super) fn drop_it(&mut self) -> bool {
        let was_there = std::mem::replace(&mut self.is_there, false);
        fs::remove_file(&self.path).is_ok() && was_there
    }
}

/// Returns how many bytes of the disk of `folder` are free for users other than
/// root.
///
/// # Errors
///
/// An I/O error if the folder does not exist.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn ballast_takes_up_room_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let mut ballast = Ballast::new(folder.path());
        assert_eq!(fs::metadata(&path).unwrap().len(), BYTES as u64);
        assert!(ballast.drop_it());
        assert!(!path.exists());
        assert!(!ballast.drop_it());
        // A file truncated by a full disk is written again.
        fs::write(&path, "half").unwrap();
        ballast.take_up();
        assert_eq!(fs::metadata(&path).unwrap().len(), BYTES as u64);
    }
}
