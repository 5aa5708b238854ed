//! The password of the admin API, as its file holds it: plain, or hashed with
//! Argon2 or bcrypt.
//!
//! How often one may try, and who asked, is not known here.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use argon2::Argon2;
use argon2::password_hash::PasswordVerifier as _;
use argon2::password_hash::phc::PasswordHash;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use bcrypt::HashParts;
use thiserror::Error;

use crate::decision::digest::Digest;

/// How much of a file is read; a password is shorter.
const FILE_BYTES_MAX: u64 = 4096;

/// A plain password of this length is a token: nobody guesses it.
const TOKEN_BYTES_MIN: usize = 32;

/// Why there is no password, although there is to be one. Nothing starts.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PasswordError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others than its owner may read or write the file.
    #[error("{} has mode {mode:03o}: it holds a password, so 600 is wanted", path.display())]
    Mode {
        /// Which.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is not one line.
    #[error("{} does not hold a password in one line", .0.display())]
    Form(PathBuf),
    /// It looks like a hash, and is none that is known here.
    #[error("{} holds a hash that is neither of Argon2 nor of bcrypt", .0.display())]
    Hash(PathBuf),
}

/// What a password is held against.
#[derive(Debug)]
pub struct Password {
    kept: Kept,
    /// The digest of the right one: that of a plain one from the beginning, that
    /// of a hashed one since it was first given, since a hash is slow on purpose.
    right: OnceLock<Digest>,
}

/// How the file holds it.
#[derive(Debug, PartialEq, Eq)]
enum Kept {
    /// Plain, and too long to be guessed.
    Token,
    /// Plain.
    Plain,
    Argon2(Box<PasswordHash>),
    Bcrypt(String),
}

impl Password {
    /// Reads the file of `admin.password_file`.
    ///
    /// # Errors
    ///
    /// Each [`PasswordError`].
    pub fn read(path: &Path) -> Result<Self, PasswordError> {
        let line = read_line(path)?;
        let kept = Kept::parse(&line).ok_or_else(|| PasswordError::Hash(path.to_owned()))?;
        let right = OnceLock::new();
        if matches!(kept, Kept::Plain | Kept::Token) {
            // It is empty, so it can be set.
            right.set(Digest::of(line.as_bytes())).unwrap_or_default();
        }
        Ok(Self { kept, right })
    }

    /// Whether it is too long to be guessed, so that tries need no counting.
    pub(super) fn is_token(&self) -> bool {
        self.kept == Kept::Token
    }

    /// Whether `given` is known to be right, or, of a plain one, wrong; nothing
    /// if only hashing can tell.
    pub(super) fn knows(&self, given: &str) -> Option<bool> {
        let digest = Digest::of(given.as_bytes());
        let equals =
            |right: &Digest| verify_slices_are_equal(digest.as_bytes(), right.as_bytes()).is_ok();
        match (self.right.get(), &self.kept) {
            (Some(right), Kept::Plain | Kept::Token) => Some(equals(right)),
            (Some(right), _) => equals(right).then_some(true),
            (None, _) => None,
        }
    }

    /// Whether `given` is right, found out by hashing it. Takes long.
    pub(super) fn hashes_to(&self, given: &str) -> bool {
        let is_right = match &self.kept {
            Kept::Token | Kept::Plain => self.knows(given) == Some(true),
            Kept::Argon2(hash) => Argon2::default()
                .verify_password(given.as_bytes(), hash.as_ref())
                .is_ok(),
            Kept::Bcrypt(hash) => bcrypt::verify(given, hash).unwrap_or(false),
        };
        if is_right {
            self.right.get_or_init(|| Digest::of(given.as_bytes()));
        }
        is_right
    }
}

impl Kept {
    /// What a line is; nothing if it looks like a hash of some other kind.
    fn parse(line: &str) -> Option<Self> {
        if !is_hash(line) {
            let is_token = TOKEN_BYTES_MIN <= line.len();
            return Some(if is_token { Self::Token } else { Self::Plain });
        }
        if line.starts_with("$argon2") {
            return PasswordHash::new(line).ok().map(Box::new).map(Self::Argon2);
        }
        let is_bcrypt = line.parse::<HashParts>().is_ok();
        is_bcrypt.then(|| Self::Bcrypt(line.to_owned()))
    }
}

/// Whether a line is written as hashes are: `$kind$…`.
#[must_use]
pub fn is_hash(line: &str) -> bool {
    line.strip_prefix('$').is_some_and(|rest| {
        rest.split_once('$')
            .is_some_and(|(kind, _)| !kind.is_empty())
    })
}

/// The one line of a file that nobody else may read.
///
/// # Errors
///
/// [`PasswordError::Read`], [`PasswordError::Mode`], [`PasswordError::Form`].
pub fn read_line(path: &Path) -> Result<String, PasswordError> {
    let unreadable = |source| PasswordError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(PasswordError::Mode {
            path: path.to_owned(),
            mode,
        });
    }
    let mut text = String::new();
    let mut start = file.take(FILE_BYTES_MAX);
    start.read_to_string(&mut text).map_err(unreadable)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() || line.contains(char::is_control) {
        return Err(PasswordError::Form(path.to_owned()));
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A file of `text` with `mode`, read.
    fn read(text: &str, mode: u32) -> Result<Password, PasswordError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.password");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        Password::read(&path)
    }

    // Contract, section 2, `admin.password_file`.
    #[test]
    fn a_plain_line_is_the_password_itself() {
        for text in ["s3cret $x", "s3cret $x\n", "s3cret $x\r\n"] {
            let password = read(text, 0o600).unwrap();
            assert_eq!(password.knows("s3cret $x"), Some(true), "{text:?}");
            for wrong in ["", "s3cret $", "s3cret $x\n", "S3cret $x", "s3cret $xx"] {
                assert_eq!(password.knows(wrong), Some(false), "{wrong:?}");
                assert!(!password.hashes_to(wrong));
            }
            assert!(!password.is_token());
        }
    }

    // Security, section 8: a token of 256 bits is never locked out.
    #[test]
    fn a_long_plain_line_is_a_token() {
        assert!(!read(&"x".repeat(31), 0o600).unwrap().is_token());
        assert!(read(&"x".repeat(32), 0o600).unwrap().is_token());
    }

    /// One test a row: a hash that another program made of `pass word`.
    macro_rules! hashed {
        ($($name:ident: $hash:literal;)*) => {$(
            #[test]
            fn $name() {
                let password = read($hash, 0o400).unwrap();
                assert!(!password.is_token());
                assert_eq!(password.knows("pass word"), None);
                for wrong in ["", "pass", $hash] {
                    assert!(!password.hashes_to(wrong), "{wrong}");
                }
                assert_eq!(password.knows("pass word"), None);
                assert!(password.hashes_to("pass word"));
                assert_eq!(password.knows("pass word"), Some(true));
                assert_eq!(password.knows("pass"), None);
            }
        )*};
    }

    // Contract, section 2; RFC 9106 for Argon2.
    hashed! {
        argon2_is_known: "$argon2id$v=19$m=64,t=2,p=4$L2Qk1JjG+oXhc1TQDAaYkA$GpDhkTMxcYqbtFOHyC2K19g5+NB7Dqim9wv6wIM6ttY";
        bcrypt_is_known: "$2y$05$abcdefghijklmnopqrstuuIt/9/tGzLcigNq/.RWIDjeEVR30RSf.";
        bcrypt_of_2b_is_known: "$2b$04$abcdefghijklmnopqrstuuFcV8WPKEefLKdOWfX8pW1yTVya21P7a";
    }

    // Ours: a hash that is not understood must not become a plain password.
    #[test]
    fn a_hash_of_another_kind_is_refused() {
        for text in ["$6$salt$hash", "$argon2id$v=19$x", "$2y$05$short", "$1$a$b"] {
            assert!(
                matches!(read(text, 0o600), Err(PasswordError::Hash(_))),
                "{text}"
            );
        }
        for text in ["$", "$$", "$ecret", "$$a$b"] {
            assert_eq!(read(text, 0o600).unwrap().knows(text), Some(true), "{text}");
        }
    }

    // Security, section 8: secrets from files only.
    #[test]
    fn a_file_that_others_read_or_that_is_no_line_is_refused() {
        for mode in [0o640, 0o604, 0o620, 0o602] {
            assert!(
                matches!(read("x", mode), Err(PasswordError::Mode { .. })),
                "{mode:o}"
            );
        }
        for text in ["", "\n", "a\nb", "a\tb", "a\n\n"] {
            assert!(
                matches!(read(text, 0o600), Err(PasswordError::Form(_))),
                "{text:?}"
            );
        }
        let missing = Password::read(Path::new("/nowhere/at/all"));
        assert!(matches!(missing, Err(PasswordError::Read { .. })));
    }
}
