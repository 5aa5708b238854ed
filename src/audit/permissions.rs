//! Who else may read or write the record, by the permissions of its files.
//!
//! A record that others may write to proves nothing. A record that others may
//! read shows them what was crawled, and by whom.

use std::fs::{Metadata, metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::process::geteuid;

use super::AuditError;
use super::files::beside;
use super::marker::marker_path;

const WRITE_BY_OTHERS: u32 = 0o022;
const READ_BY_OTHERS: u32 = 0o055;

/// In a folder with this bit files can only be renamed by their owner.
const STICKY: u32 = 0o1000;

/// Holds the folder of the record and the files that are there against the
/// permissions that we give them (0700 and 0600). Wider ones, and another
/// owner, are told in the log: root in a container often works in a folder of
/// somebody else.
///
/// # Errors
///
/// [`AuditError::Writable`] if somebody other than the owner may write.
pub(super) fn check(folder: &Path, database: &Path) -> Result<(), AuditError> {
    check_one(folder, "0700")?;
    for file in [
        database.to_owned(),
        beside(database, "-wal"),
        beside(database, "-shm"),
        marker_path(folder),
    ] {
        check_one(&file, "0600")?;
    }
    tell_of_parents(folder);
    Ok(())
}

fn check_one(path: &Path, ours: &str) -> Result<(), AuditError> {
    let Ok(found) = metadata(path) else {
        // What is not there yet is made with our permissions.
        return Ok(());
    };
    let mode = mode(&found);
    if mode & WRITE_BY_OTHERS != 0 {
        return Err(AuditError::Writable {
            path: path.to_owned(),
            mode: mode & 0o777,
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
            "others than the owner may read {} (mode {:04o}): chmod {ours} {}",
            path.display(),
            mode & 0o777,
            path.display(),
        );
    }
    Ok(())
}

/// Tells of the nearest folder above in which others may put another folder in
/// the place of the record's. It is no error: where the umask is 002, every
/// folder of a user is like that, for a group that holds nobody else. While the
/// proxy runs, such an exchange is found at the next commit.
fn tell_of_parents(folder: &Path) {
    let is_open = |path: &&Path| {
        metadata(path).is_ok_and(|found| {
            let mode = mode(&found);
            mode & WRITE_BY_OTHERS != 0 && mode & STICKY == 0
        })
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

fn mode(found: &Metadata) -> u32 {
    found.permissions().mode()
}
