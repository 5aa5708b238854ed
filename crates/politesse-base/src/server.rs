//! Servers other than origins (a parent proxy, stores, archives): their addresses, and the
//! files with the proxy's credentials for them.
//!
//! Does not know the protocols of these servers.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use http::uri::Authority;
use thiserror::Error;

/// Maximum number of bytes read from a credentials file, which holds a single line.
const CREDENTIALS_BYTES_MAX: u64 = 4096;

/// Host and port of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerPlace {
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl ServerPlace {
    /// Parses `host`, `host:port` or `[address]:port`. Without a port, `default_port`
    /// applies.
    ///
    /// Returns `None` for any other form. A password in the text is rejected as well: it
    /// would appear in the configuration, and on pages that show it.
    pub fn parse(text: &str, default_port: u16) -> Option<Self> {
        let authority: Authority = text.parse().ok()?;
        let host = authority.host().trim_matches(['[', ']']);
        // A port of 0, or a colon without a port, is a mistake and not the default.
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

/// Reason why the credentials for a server cannot be used, which prevents the proxy from
/// starting.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Users other than its owner may read the file.
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

/// Reads a file with a secret, which only its owner may have permission to read.
///
/// # Errors
///
/// [`CredentialsError::Read`] if the file cannot be read; [`CredentialsError::Mode`] if
/// other users may read it.
pub fn read_private(path: &Path) -> Result<String, CredentialsError> {
    let unreadable = |source| CredentialsError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    // The mode of the open file, not of the path: the path could lead to
    // another file by the time the file is read.
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

/// Reads a private file with one line of the form `user:password`.
///
/// # Errors
///
/// [`CredentialsError`] if the file is unreadable, readable by other users or malformed.
pub fn user_and_password(path: &Path) -> Result<UserPassword, CredentialsError> {
    UserPassword::parse(&read_private(path)?).ok_or_else(|| CredentialsError::Form(path.to_owned()))
}

/// User name and password.
#[derive(Clone)]
pub struct UserPassword {
    /// Name.
    pub user: String,
    /// Password.
    pub password: String,
}

impl UserPassword {
    /// Parses `user:password`, with or without a line end (RFC 7617, section 2).
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
