//! A disk that a test can fill: an in-memory file system in the test's mount namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system mounted at a folder.
pub(crate) struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Creates `folder` and mounts a file system of `bytes` bytes there. Works only
    /// within [`inside`](super::namespace::inside).
    pub(crate) fn mount(folder: PathBuf, bytes: u64) -> Self {
        fs::create_dir(&folder).unwrap();
        mount(&folder, &format!("-t tmpfs -o size={bytes},mode=0700 none"));
        Self { folder }
    }

    /// Fills the disk completely.
    pub(crate) fn fill(&self) {
        let output = format!("of={}", self.ballast().display());
        let dd = Command::new("dd")
            .args(["if=/dev/zero", &output, "bs=4k", "status=none"])
            .output();
        assert!(
            !dd.unwrap().status.success(),
            "dd ended before the disk was full"
        );
    }

    /// Frees the space that [`Disk::fill`] took.
    pub(crate) fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    /// Changes the size of the disk.
    pub(crate) fn resize(&self, bytes: u64) {
        mount(&self.folder, &format!("-o remount,size={bytes}"));
    }

    /// Remounts the disk read-only (`ro`) or writable (`rw`).
    pub(crate) fn set_access(&self, access: &str) {
        mount(&self.folder, &format!("-o remount,{access}"));
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("fill")
    }
}

fn mount(folder: &Path, arguments: &str) {
    let mut command = Command::new("mount");
    command.args(arguments.split(' ')).arg(folder);
    assert!(command.status().unwrap().success(), "{command:?}");
}
