//! Files of the certificate authority: its certificate and key, with the permissions that
//! each must have.
//!
//! Does not know the contents of a certificate; `certificate` does.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rcgen::KeyPair;
use rustix::process::{Uid, geteuid};
use thiserror::Error;

/// Mode of the key file: readable by its owner only.
pub(super) const KEY_MODE: u32 = 0o600;
/// Mode of the key's folder if the certificate is elsewhere.
pub(super) const KEY_FOLDER_MODE: u32 = 0o700;
/// Mode of the certificate file. It contains no secret, and crawlers that run as other
/// users must be able to read it.
pub(super) const CERT_MODE: u32 = 0o644;
/// Mode of the certificate's folder.
pub(super) const CERT_FOLDER_MODE: u32 = 0o755;

/// Reason why no certificate authority is available. Each prevents the proxy from
/// starting.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the fields are the values of the texts")]
pub enum CaError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// One of the two files is missing. It is not created anew, because clients may trust
    /// the existing one.
    #[error("{} exists but {} does not; put it back, or remove both to start afresh", found.display(), missing.display())]
    Half { found: PathBuf, missing: PathBuf },
    /// Users other than the owner may read the key.
    #[error("{} may be read by others (mode {mode:o}); `chmod 600` it", path.display())]
    Mode { path: PathBuf, mode: u32 },
    /// A file does not contain the expected `certificate` or `key`.
    #[error("{} holds no usable {what}: {reason}", path.display())]
    Content {
        path: PathBuf,
        what: &'static str,
        reason: String,
    },
    /// A file of an authority exists already.
    #[error("{} exists; it is never overwritten", .0.display())]
    Exists(PathBuf),
    /// The certificate is that of a node, which cannot issue node certificates.
    #[error("{} is the certificate of a node; its root issues those of nodes", .0.display())]
    NotRoot(PathBuf),
    /// The root may sign leaves only.
    #[error("{} was made without room for certificates of nodes; `politesse ca init` makes a root that has it", .0.display())]
    NoRoom(PathBuf),
    /// The next root does not sign yet, because clients may not trust it yet.
    #[error(
        "the new root signs from {0} on; until then clients get both, and the former is not retired"
    )]
    TooEarly(Timestamp),
    /// Signing a certificate failed.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
}

impl CaError {
    /// Reports whether another process may be creating the two files right now. It writes
    /// the key first, then the certificate.
    pub(super) fn may_be_in_the_making(&self) -> bool {
        let is_empty = |path: &Path| path.metadata().is_ok_and(|file| file.len() == 0);
        match self {
            Self::Half { .. } | Self::Exists(_) => true,
            Self::Write { source, .. } => source.kind() == io::ErrorKind::AlreadyExists,
            Self::Content { path, .. } => is_empty(path),
            Self::Read { .. }
            | Self::Mode { .. }
            | Self::NotRoot(_)
            | Self::NoRoom(_)
            | Self::TooEarly(_)
            | Self::Make(_) => false,
        }
    }
}

/// Reads a text file.
///
/// # Errors
///
/// [`CaError::Read`].
pub(super) fn read(path: &Path) -> Result<String, CaError> {
    std::fs::read_to_string(path).map_err(|source| read_error(path, source))
}

/// Reports whether users other than the current one could read a key.
///
/// If the file belongs to root and the process does not run as root, its group may read
/// it: Kubernetes mounts secrets this way (`fsGroup`), and PostgreSQL makes the same
/// exception.
pub(super) fn is_exposed(key: &Metadata, user: Uid) -> bool {
    let is_roots = key.uid() == 0 && !user.is_root();
    let forbidden = if is_roots { 0o037 } else { 0o077 };
    key.mode() & forbidden != 0
}

/// Reads a key that [no other user](is_exposed) can read.
///
/// # Errors
///
/// [`CaError::Read`], [`CaError::Mode`] or [`CaError::Content`].
pub(super) fn read_key(path: &Path) -> Result<KeyPair, CaError> {
    let pem = read(path)?;
    let metadata = path.metadata().map_err(|source| read_error(path, source))?;
    if is_exposed(&metadata, geteuid()) {
        let (path, mode) = (path.to_owned(), metadata.mode() & 0o777);
        return Err(CaError::Mode { path, mode });
    }
    KeyPair::from_pem(&pem).map_err(|error| CaError::Content {
        path: path.to_owned(),
        what: "key",
        reason: error.to_string(),
    })
}

fn read_error(path: &Path, source: io::Error) -> CaError {
    let path = path.to_owned();
    CaError::Read { path, source }
}

fn write_error(path: &Path, source: io::Error) -> CaError {
    let path = path.to_owned();
    CaError::Write { path, source }
}

/// Creates the folder of `path` with `mode`, unless it exists. Missing parent folders get
/// the mode that the umask leaves.
///
/// # Errors
///
/// [`CaError::Write`].
pub(super) fn make_folder(path: &Path, mode: u32) -> Result<(), CaError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let made = DirBuilder::new().recursive(true).mode(mode).create(folder);
    // The mode is set again, because a strict umask (077) would hide the certificate from
    // other users.
    made.and_then(|()| std::fs::set_permissions(folder, Permissions::from_mode(mode)))
        .map_err(|source| write_error(folder, source))
}

/// Creates a file with exactly the permissions `mode`.
///
/// # Errors
///
/// [`CaError::Write`], also if the file exists already.
pub(super) fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), CaError> {
    // Setting the mode on the open file bypasses the umask.
    let fill = |mut file: File| -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        // The file must be on disk before the proxy serves: people install this
        // certificate, and its key must not be lost in a crash.
        file.sync_all()
    };
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        // No other user may open the file before its final mode is set.
        .mode(KEY_MODE)
        .open(path);
    let filled = opened.and_then(|file| {
        fill(file).inspect_err(|_| {
            // A partial file would be taken for an authority at the next start.
            let _ = std::fs::remove_file(path);
        })
    });
    filled.map_err(|source| write_error(path, source))
}

/// Replaces a file atomically: after a crash, either the old or the new one exists.
///
/// # Errors
///
/// [`CaError::Write`].
pub(super) fn replace(path: &Path, text: &str, mode: u32) -> Result<(), CaError> {
    let draft = path.with_extension("draft");
    // A draft may be left over from an attempt that ended in a crash.
    let _ = std::fs::remove_file(&draft);
    write_new(&draft, text, mode)?;
    rename(&draft, path)
}

/// Renames a file.
///
/// # Errors
///
/// [`CaError::Write`].
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), CaError> {
    let renamed = std::fs::rename(from, to);
    renamed.map_err(|source| write_error(to, source))
}

/// File or folder whose mode keeps other users from reading the certificate.
#[derive(Debug, PartialEq, Eq)]
pub struct ClosedPath {
    /// The file or folder.
    pub path: PathBuf,
    /// Mode that would let other users read the certificate.
    pub wanted_mode: u32,
}

/// Lists the paths that keep crawlers of other users from reading the certificate at
/// `cert`.
///
/// Checks only the file and its folder: a home folder that is closed to others is its
/// owner's choice.
pub fn closed_to_others(cert: &Path) -> Vec<ClosedPath> {
    let closed = |path: &Path, needed_bits: u32, wanted_mode| {
        let metadata = path.metadata().ok()?;
        (metadata.mode() & needed_bits != needed_bits).then(|| ClosedPath {
            path: path.to_owned(),
            wanted_mode,
        })
    };
    let folder = cert
        .parent()
        .and_then(|folder| closed(folder, 0o001, CERT_FOLDER_MODE));
    folder
        .into_iter()
        .chain(closed(cert, 0o004, CERT_MODE))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours. A Kubernetes secret mounted with `fsGroup` is a file of root with mode 0440.
    #[test]
    fn a_group_may_read_a_key_only_if_it_belongs_to_root_and_the_process_does_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let is_roots = file.path().metadata().unwrap().uid() == 0;
        let exposed = |mode, user| {
            let permissions = Permissions::from_mode(mode);
            std::fs::set_permissions(file.path(), permissions).unwrap();
            is_exposed(&file.path().metadata().unwrap(), Uid::from_raw(user))
        };
        assert!(!exposed(0o600, 10_001) && !exposed(0o400, 0));
        assert!(exposed(0o440, 0) && exposed(0o444, 10_001) && exposed(0o460, 10_001));
        assert_eq!(exposed(0o440, 10_001), !is_roots);
    }
}
