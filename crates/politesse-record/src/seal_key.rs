//! File of the key that signs heads: created at the first start, readable only by
//! its owner.
//!
//! The format is PKCS #8 in PEM (RFC 5958, RFC 8410), as other programs write it.
//! Does not know what is signed.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;

use super::error::{AuditError, SealKeyError};
use super::folder::{check_path, folder_of};
use super::note::{NoteError, NoteSigner};

/// Name of the key file in the folder of the record. Used unless `audit.seal_key`
/// names another file.
const NAME: &str = "seal.key";

/// Maximum size of a key file; a key has some 120 bytes.
const BYTES_MAX: u64 = 16 * 1024;

/// Returns the path of the key file: `configured`, or the default one in `folder`.
pub fn key_path(configured: Option<&Path>, folder: &Path) -> PathBuf {
    configured.map_or_else(|| folder.join(NAME), Path::to_owned)
}

/// Reads the key at `path` for signing as `name`, or creates one if there is no
/// file. Must be called by the process that has locked the record.
///
/// # Errors
///
/// [`AuditError::SealKey`], and [`AuditError::Writable`] if users other than the
/// owner may write to the file.
pub(super) fn open_key(path: &Path, name: &str) -> Result<NoteSigner, AuditError> {
    check_path(path, "0600")?;
    match read_key(path, name) {
        Err(AuditError::SealKey(_, SealKeyError::File(error)))
            if error.kind() == io::ErrorKind::NotFound =>
        {
            make(path).map_err(|error| AuditError::SealKey(path.to_owned(), error))?;
            tracing::info!(path = %path.display(), "created the key that signs heads of the record");
            read_key(path, name)
        }
        read => read,
    }
}

/// Reads the key at `path` for signing as `name`.
///
/// # Errors
///
/// [`AuditError::SealKey`].
pub fn read_key(path: &Path, name: &str) -> Result<NoteSigner, AuditError> {
    read(path)
        .and_then(|encoded| sign_as(name, &encoded))
        .map_err(|error| AuditError::SealKey(path.to_owned(), error))
}

fn sign_as(name: &str, encoded: &PrivatePkcs8KeyDer<'_>) -> Result<NoteSigner, SealKeyError> {
    Ok(NoteSigner::from_pkcs8(name, encoded.secret_pkcs8_der())?)
}

fn read(path: &Path) -> Result<PrivatePkcs8KeyDer<'static>, SealKeyError> {
    let found = std::fs::metadata(path)?;
    // Reading from a named pipe would block until another program writes to it.
    if !found.is_file() || BYTES_MAX < found.len() {
        return Err(NoteError::PrivateKey.into());
    }
    let text = std::fs::read(path)?;
    PrivatePkcs8KeyDer::from_pem_slice(&text).map_err(|_| NoteError::PrivateKey.into())
}

fn make(path: &Path) -> Result<(), SealKeyError> {
    let encoded = STANDARD.encode(NoteSigner::generate()?);
    let folder = folder_of(path);
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)?;
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{encoded}\n-----END PRIVATE KEY-----\n");
    file.write_all(pem.as_bytes())?;
    file.sync_all()?;
    // The new name is durable only once the folder is synced. Heads signed with a
    // key that is lost look as if someone else had signed them.
    Ok(File::open(folder)?.sync_all()?)
}
