//! Ballast: a file that takes up room beside the database, so that a full disk can
//! be pruned. To delete rows takes room in the write-ahead log.
//!
//! Does not know when there is too little room.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::files::make_private;

/// Name of the file in the folder of the record.
const NAME: &str = "ballast";

/// Bytes of the file: several steps of a removal fit into it.
const BYTES: usize = 8 << 20;

/// Room that must be left beside it: it must not be what fills the disk.
const ROOM_LEFT: u64 = 4 * BYTES as u64;

/// Bytes that are written at a time.
const BLOCK: usize = 64 << 10;

/// The file, whether or not it is there.
#[derive(Debug)]
pub(super) struct Ballast {
    path: PathBuf,
    is_there: bool,
}

impl Ballast {
    /// Makes the file in `folder`, if it is not there.
    pub(super) fn new(folder: &Path) -> Self {
        let mut ballast = Self {
            path: folder.join(NAME),
            is_there: false,
        };
        ballast.take_up();
        ballast
    }

    /// Makes the file, if it is not there and there is room. The record goes on
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
        // Written, not only made so long: a hole takes up no room.
        let block = vec![0; BLOCK];
        for _ in 0..BYTES / BLOCK {
            file.write_all(&block)?;
        }
        file.sync_all()
    }

    /// Removes the file from `folder`, where a record cannot even be opened. Returns
    /// whether there is more room now.
    pub(super) fn drop_from(folder: &Path) -> bool {
        fs::remove_file(folder.join(NAME)).is_ok()
    }

    /// Removes the file. Returns whether there is more room now.
    pub(super) fn drop_it(&mut self) -> bool {
        let was_there = std::mem::replace(&mut self.is_there, false);
        fs::remove_file(&self.path).is_ok() && was_there
    }
}

/// Returns the bytes that are free on the disk of `folder`, for others than root.
///
/// # Errors
///
/// An I/O error if the folder is not there.
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
        // Half of one, as a full disk leaves it, is made anew.
        fs::write(&path, "half").unwrap();
        ballast.take_up();
        assert_eq!(fs::metadata(&path).unwrap().len(), BYTES as u64);
    }
}
