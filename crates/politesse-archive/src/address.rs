//! Address of the archive (`audit.archive`).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use politesse_base::server::ServerPlace;

/// Address of a database: `postgres://db.example:5432/politesse`, with `?sslmode=disable`
/// if the server does not use TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveAddress {
    /// Server and port.
    pub server: ServerPlace,
    /// Name of the database.
    pub database: String,
    /// Whether TLS is used and the server's certificate verified.
    pub is_tls: bool,
}

/// Error for a text that is not an address of an archive, or that has unsupported
/// parameters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} is wanted", self.wanted())]
pub enum InvalidArchiveAddress {
    /// The address is malformed.
    Malformed,
    /// Unsupported or insecure `sslmode`.
    Mode(String),
    /// Parameter that must be set by a configuration key instead.
    Keyed {
        /// Name of the parameter.
        parameter: String,
        /// Configuration key.
        key: &'static str,
    },
    /// Unsupported or repeated parameter.
    Parameter(String),
}

impl InvalidArchiveAddress {
    /// Describes a valid address; `is wanted` can follow.
    pub fn wanted(&self) -> String {
        match self {
            Self::Malformed => {
                "an address such as \"postgres://db.example/politesse\", without a password (that is for audit.archive_auth)".to_owned()
            }
            Self::Mode(mode) => format!(
                "sslmode=verify-full (also meant where there is none; audit.archive_ca has the certificates) or sslmode=disable (no TLS), in place of sslmode={mode},"
            ),
            Self::Keyed { parameter, key } => format!("{key} in place of {parameter}"),
            Self::Parameter(name) => {
                format!("an address without {name} (sslmode is the one parameter, given once)")
            }
        }
    }
}

/// Default port of PostgreSQL.
const PORT: u16 = 5432;

/// Parameters of PostgreSQL's own library that configuration keys replace, by key.
const KEYED: [(&str, &[&str]); 3] = [
    (
        "audit.archive_auth",
        &[
            "user",
            "password",
            "passfile",
            "sslcert",
            "sslkey",
            "sslpassword",
        ],
    ),
    ("audit.archive_ca", &["sslrootcert", "sslcrl", "sslcrldir"]),
    ("audit.archive_timeout", &["connect_timeout"]),
];

impl FromStr for ArchiveAddress {
    type Err = InvalidArchiveAddress;

    fn from_str(text: &str) -> Result<Self, InvalidArchiveAddress> {
        let malformed = InvalidArchiveAddress::Malformed;
        let stripped = text
            .strip_prefix("postgres://")
            .or_else(|| text.strip_prefix("postgresql://"));
        let rest = stripped.ok_or_else(|| malformed.clone())?;
        let (place, query) = rest
            .split_once('?')
            .map_or((rest, None), |(place, query)| (place, Some(query)));
        let (authority, database) = place.split_once('/').ok_or_else(|| malformed.clone())?;
        let server = ServerPlace::parse(authority, PORT).ok_or_else(|| malformed.clone())?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if database.is_empty() || !database.bytes().all(is_name) {
            return Err(malformed);
        }
        Ok(Self {
            server,
            database: database.to_owned(),
            is_tls: query.map_or(Ok(true), speaks_tls)?,
        })
    }
}

/// Parses the parameters of an address, and returns whether TLS is used.
///
/// In every other mode, PostgreSQL's library falls back to an unencrypted connection, or
/// does not fully verify the server. Treating such a mode as a stronger or a weaker one
/// would be a surprise either way.
fn speaks_tls(query: &str) -> Result<bool, InvalidArchiveAddress> {
    let mut mode = None;
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let by_key = KEYED.iter().find(|(_, names)| names.contains(&name));
        if let Some((key, _)) = by_key {
            return Err(InvalidArchiveAddress::Keyed {
                parameter: name.to_owned(),
                key,
            });
        }
        let is_second = mode.is_some();
        mode = match (name, value) {
            ("sslmode", "verify-full") => Some(true),
            ("sslmode", "disable") => Some(false),
            ("sslmode", mode) => return Err(InvalidArchiveAddress::Mode(mode.to_owned())),
            _ => None,
        };
        if mode.is_none() || is_second {
            return Err(InvalidArchiveAddress::Parameter(name.to_owned()));
        }
    }
    Ok(mode.unwrap_or(true))
}

impl fmt::Display for ArchiveAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}/{}", self.server, self.database)?;
        if !self.is_tls {
            f.write_str("?sslmode=disable")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: `audit.archive`.
    #[test]
    fn a_displayed_address_parses_to_the_same_address() {
        for (text, shown) in [
            ("postgres://db.example/a", "postgres://db.example:5432/a"),
            (
                "postgresql://[::1]:6000/a_b?sslmode=disable",
                "postgres://[::1]:6000/a_b?sslmode=disable",
            ),
            (
                "postgres://10.0.0.1/a?sslmode=verify-full",
                "postgres://10.0.0.1:5432/a",
            ),
        ] {
            let address: ArchiveAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse(), Ok(address));
        }
    }

    fn refused(text: &str) -> InvalidArchiveAddress {
        match text.parse::<ArchiveAddress>() {
            Ok(address) => panic!("{text}: {address}"),
            Err(error) => error,
        }
    }

    // Ours.
    #[test]
    fn passwords_and_other_databases_are_refused() {
        for text in [
            "db.example/a",
            "mysql://db.example/a",
            "postgres://db.example",
            "postgres://db.example/",
            "postgres:///a",
            "postgres://user:password@db.example/a",
            "postgres://db.example:0/a",
            "postgres://db.example:/a",
            "postgres://db.example/a/b",
            "postgres://db.example/a b",
        ] {
            assert_eq!(refused(text), InvalidArchiveAddress::Malformed, "{text}");
        }
    }

    // Ours, docs/archive.md: PostgreSQL's own library (section 34.19) accepts all of
    // these.
    #[test]
    fn modes_other_than_verify_full_and_disable_are_refused() {
        for mode in ["allow", "prefer", "require", "verify-ca", "VERIFY-FULL", ""] {
            let error = refused(&format!("postgres://db.example/a?sslmode={mode}"));
            assert_eq!(error, InvalidArchiveAddress::Mode(mode.to_owned()));
            assert!(error.to_string().contains("sslmode=verify-full"), "{error}");
        }
        for twice in ["disable&sslmode=verify-full", "verify-full&sslmode=disable"] {
            let error = refused(&format!("postgres://db.example/a?sslmode={twice}"));
            assert_eq!(
                error,
                InvalidArchiveAddress::Parameter("sslmode".to_owned())
            );
        }
    }

    // Ours.
    #[test]
    fn a_refused_parameter_names_the_key_to_use() {
        for (parameter, wanted) in [
            (
                "sslrootcert=a.pem",
                "audit.archive_ca in place of sslrootcert is wanted",
            ),
            (
                "sslcert=a.pem",
                "audit.archive_auth in place of sslcert is wanted",
            ),
            (
                "user=u&password=p",
                "audit.archive_auth in place of user is wanted",
            ),
            (
                "connect_timeout=5",
                "audit.archive_timeout in place of connect_timeout is wanted",
            ),
            ("sslmode=disable&options=-c", "an address without options"),
            ("sslmode=disable&", "an address without "),
            ("", "an address without "),
        ] {
            let error = refused(&format!("postgres://db.example/a?{parameter}")).to_string();
            assert!(error.starts_with(wanted), "{parameter}: {error}");
        }
    }
}
