//! Servers beside origins (a parent proxy, stores, archives): where they are, and the files
//! of the credentials by which they let the proxy in.
//!
//! Does not know what is said to them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use http::uri::Authority;
use thiserror::Error;

/// Longest credentials file that is read: it holds one line.
const CREDENTIALS_BYTES_MAX: u64 = 4096;

/// Name or address of a server, and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerPlace {
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl ServerPlace {
    /// Reads `host`, `host:port`, or `[address]:port`; without a port it is
    /// `default_port`. `None` if the text is none of them: with a password in it, it
    /// would stand in the configuration, and on pages that show that.
    pub fn parse(text: &str, default_port: u16) -> Option<Self> {
        let authority: Authority = text.parse().ok()?;
        let host = authority.host().trim_matches(['[', ']']);
        // A port of 0, and a colon without a port, are mistakes and no default.
        let has_port = authority.as_str().len() != authority.host().len();
        let port = authority.port_u16().filter(|port| *port != 0);
        let is_plain = !authority.as_str().contains('@') && !host.is_empty();
        (is_plain && has_port == port.is_some()).then(|| Self {
            host: host.to_owned(),
            port: port.unwrap_or(default_port),
        })
    }
}

impl fmt::Display for ServerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

/// Reason why the credentials for another server cannot be used. The proxy does not
/// start then.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others than its owner may read the file.
    #[error("{} may be read by others (mode {mode:o}); `chmod 600` it", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Permissions of the file.
        mode: u32,
    },
    /// The file does not hold one line: a name, a colon and a password.
    #[error("{} does not hold one line of the form user:password", .0.display())]
    Form(PathBuf),
}

/// Reads a file of one line with a secret, which only its owner may read.
///
/// # Errors
///
/// [`CredentialsError::Read`], [`CredentialsError::Mode`].
pub fn read_private(path: &Path) -> Result<String, CredentialsError> {
    let unreadable = |source| CredentialsError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    // The mode of the open file, not of the path: the path could lead to
    // another file by the time it is read.
    let mode = file.metadata().map_err(unreadable)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(CredentialsError::Mode {
            path: path.to_owned(),
            mode,
        });
    }
    let mut text = String::new();
    let mut start = file.take(CREDENTIALS_BYTES_MAX);
    start.read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

/// Reads a file of the form `user:password`.
///
/// # Errors
///
/// [`CredentialsError`].
pub fn user_and_password(path: &Path) -> Result<UserPassword, CredentialsError> {
    UserPassword::parse(&read_private(path)?).ok_or_else(|| CredentialsError::Form(path.to_owned()))
}

/// A name with its password.
#[derive(Clone)]
pub struct UserPassword {
    /// Name.
    pub user: String,
    /// Password.
    pub password: String,
}

impl UserPassword {
    /// Reads `user:password`, with or without an end of line (RFC 7617, section 2).
    fn parse(text: &str) -> Option<Self> {
        let without_lf = text.strip_suffix('\n').unwrap_or(text);
        let line = without_lf.strip_suffix('\r').unwrap_or(without_lf);
        let (user, password) = line.split_once(':')?;
        let is_plain = !user.is_empty() && !line.contains(char::is_control);
        is_plain.then(|| Self {
            user: user.to_owned(),
            password: password.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7617, section 2: no colon in the name.
    #[test]
    fn credentials_are_one_line_with_a_colon() {
        let read = |text| UserPassword::parse(text).map(|read| (read.user, read.password));
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(
            read("Aladdin:open sesame\r\n"),
            pair("Aladdin", "open sesame")
        );
        assert_eq!(read("a:b:c"), pair("a", "b:c"));
        for text in ["", "user", ":secret", "a:b\nc:d\n", "a:b\0", "a:b\n\n"] {
            assert!(read(text).is_none(), "{text:?}");
        }
    }
}
