//! Disk of a record's own, which a test can fill: a file system in memory, in the
//! mount namespace of the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// File system that is mounted at a folder.
pub(crate) struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Makes `folder` with a file system of so many bytes in it. Only within
    /// [`inside`](super::namespace::inside).
    pub(crate) fn mount(folder: PathBuf, bytes: u64) -> Self {
        fs::create_dir(&folder).unwrap();
        mount(&folder, &format!("-t tmpfs -o size={bytes},mode=0700 none"));
        Self { folder }
    }

    /// Takes all the room there is.
    pub(crate) fn fill(&self) {
        let output = format!("of={}", self.ballast().display());
        let dd = Command::new("dd")
            .args(["if=/dev/zero", &output, "bs=4k", "status=none"])
            .output();
        assert!(
            !dd.unwrap().status.success(),
            "the disk is full before dd ends"
        );
    }

    /// Gives back what [`Disk::fill`] took.
    pub(crate) fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    /// Changes the size.
    pub(crate) fn resize(&self, bytes: u64) {
        mount(&self.folder, &format!("-o remount,size={bytes}"));
    }

    /// Lets nothing be written any more, or again.
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
