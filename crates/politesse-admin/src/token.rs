//! Token of the admin listener: 256 random bits in a file, made at the first start.
//!
//! The token gives access to pages that name hosts. Does not know how a request carries
//! it.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use politesse_decision::digest::Digest;

/// Hexadecimal digits of a token: 256 bits.
const DIGITS: usize = 64;

/// Maximum bytes read of the file: a token, some whitespace, and enough to notice that
/// a longer file contains something else.
const FILE_BYTES_MAX: u64 = 256;

const WRITE_BY_OTHERS: u32 = 0o022;
const READ_BY_OTHERS: u32 = 0o044;

/// Reason why there is no token. Any of them keeps the proxy from starting.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file does not exist.
    #[error("there is no {} (admin.token_file): the proxy makes it when it starts", .0.display())]
    Missing(PathBuf),
    /// The file cannot be read.
    #[error("cannot read {} (admin.token_file)", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file or its folder cannot be created.
    #[error("cannot make {} (admin.token_file)", path.display())]
    Make {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Users other than the owner may write to the file, and so choose the token.
    #[error("{} (admin.token_file) may be written by others (mode {mode:03o}): chmod 600 it", path.display())]
    Writable {
        /// The file.
        path: PathBuf,
        /// Permissions of the file.
        mode: u32,
    },
    /// The file does not contain a token.
    #[error("{} (admin.token_file) does not hold 64 hexadecimal digits: remove it to have another token made", .0.display())]
    Form(PathBuf),
}

/// The token, as in its file: 64 hexadecimal digits.
///
/// `Debug` does not show it, so that it cannot end up in a log.
#[derive(Clone)]
pub struct AdminToken(String);

impl AdminToken {
    /// Reads the token at `path`, or creates one if there is no file. Call this only in
    /// the process that holds the lock on the record: two processes that create the
    /// same file would start with different tokens.
    ///
    /// # Errors
    ///
    /// [`TokenError`], except [`TokenError::Missing`].
    pub fn open(path: &Path) -> Result<Self, TokenError> {
        match Self::read(path) {
            Err(TokenError::Missing(_)) => Self::make(path).map_err(|source| TokenError::Make {
                path: path.to_owned(),
                source,
            }),
            result => result,
        }
    }

    /// Reads the token at `path`. A file that others may read is only reported in the
    /// log, because some systems hand secrets to a process that way.
    ///
    /// # Errors
    ///
    /// [`TokenError`], except [`TokenError::Make`].
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let unreadable = |source: io::Error| {
            let path = path.to_owned();
            if source.kind() == io::ErrorKind::NotFound {
                TokenError::Missing(path)
            } else {
                TokenError::Read { path, source }
            }
        };
        let file = File::open(path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.mode() & 0o777;
        if mode & WRITE_BY_OTHERS != 0 {
            return Err(TokenError::Writable {
                path: path.to_owned(),
                mode,
            });
        }
        if mode & READ_BY_OTHERS != 0 {
            let path = path.display();
            tracing::warn!("others than the owner may read {path} (mode {mode:03o}): chmod 600 it");
        }
        let mut bytes = Vec::new();
        let mut start = file.take(FILE_BYTES_MAX);
        start.read_to_end(&mut bytes).map_err(unreadable)?;
        Self::parse(&bytes).ok_or_else(|| TokenError::Form(path.to_owned()))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        // Editors and `echo` end a file with a newline.
        let digits = bytes.trim_ascii_end();
        let is_token = digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit);
        is_token.then(|| Self(String::from_utf8_lossy(digits).into_owned()))
    }

    fn make(path: &Path) -> io::Result<Self> {
        let mut random = [0; DIGITS / 2];
        aws_lc_rs::rand::fill(&mut random)
            .map_err(|_| io::Error::other("the system gives no random numbers"))?;
        // In the form of a digest: 64 digits in lower case.
        let token = Self(Digest::from(random).to_string());
        if let Some(folder) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        // An empty file, left behind by a power cut for example, would keep the proxy
        // from starting.
        let written = writeln!(file, "{}", token.0).and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = std::fs::remove_file(path);
        }
        written?;
        tracing::info!("made {}, the token of the admin listener", path.display());
        Ok(token)
    }

    /// Returns the digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken")
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Writes `text` to a file with `mode` and reads the token from it.
    fn read(text: &str, mode: u32) -> Result<AdminToken, TokenError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        AdminToken::read(&path)
    }

    // Ours.
    #[test]
    fn the_first_start_makes_a_token_that_every_later_one_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/token");
        assert!(matches!(
            AdminToken::read(&path),
            Err(TokenError::Missing(_))
        ));
        let made = AdminToken::open(&path).unwrap();
        assert_eq!(made.as_str().len(), 64);
        assert_eq!(AdminToken::open(&path).unwrap().as_str(), made.as_str());
        assert_eq!(AdminToken::read(&path).unwrap().as_str(), made.as_str());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let other = AdminToken::open(&folder.path().join("other")).unwrap();
        assert_ne!(other.as_str(), made.as_str());
        assert_eq!(format!("{made:?}"), "AdminToken");
    }

    #[test]
    fn a_file_that_others_may_write_to_is_refused() {
        for mode in [0o620, 0o602, 0o666] {
            assert!(
                matches!(
                    read(&"a".repeat(64), mode),
                    Err(TokenError::Writable { .. })
                ),
                "{mode:o}"
            );
        }
        for mode in [0o600, 0o400, 0o640, 0o444] {
            assert!(read(&"a".repeat(64), mode).is_ok(), "{mode:o}");
        }
    }

    #[test]
    fn a_file_without_a_valid_token_is_refused() {
        let digits = "0123456789abcdefABCDEF0123456789".repeat(2);
        for text in [
            digits.clone(),
            format!("{digits}\n"),
            format!("{digits}\r\n"),
        ] {
            assert_eq!(read(&text, 0o600).unwrap().as_str(), digits, "{text:?}");
        }
        for text in [
            "",
            "\n",
            "password",
            &digits[1..],
            &format!(" {digits}"),
            &format!("{digits}0"),
        ] {
            assert!(
                matches!(read(text, 0o600), Err(TokenError::Form(_))),
                "{text:?}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let unreadable = AdminToken::open(folder.path());
        assert!(matches!(unreadable, Err(TokenError::Read { .. })));
    }
}
