//! Address of the archive (`audit.archive`).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::upstream::parent::ServerPlace;

/// Address of a database: `postgres://db.example:5432/politesse`, with
/// `?sslmode=disable` where TLS is not spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveAddress {
    /// The server.
    pub server: ServerPlace,
    /// Name of the database.
    pub database: String,
    /// Whether TLS is spoken, and the server's certificate verified.
    pub is_tls: bool,
}

/// The text is no address of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not an address such as postgres://db.example/politesse, without a password")]
pub struct InvalidArchiveAddress;

/// Port of PostgreSQL.
const PORT: u16 = 5432;

impl FromStr for ArchiveAddress {
    type Err = InvalidArchiveAddress;

    fn from_str(text: &str) -> Result<Self, InvalidArchiveAddress> {
        let rest = text
            .strip_prefix("postgres://")
            .or_else(|| text.strip_prefix("postgresql://"))
            .ok_or(InvalidArchiveAddress)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').ok_or(InvalidArchiveAddress)?;
        let is_tls = match query {
            "" | "sslmode=verify-full" => true,
            "sslmode=disable" => false,
            _ => return Err(InvalidArchiveAddress),
        };
        let server = ServerPlace::parse(authority, PORT).ok_or(InvalidArchiveAddress)?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_plain = !database.is_empty() && database.bytes().all(is_name);
        if !is_plain {
            return Err(InvalidArchiveAddress);
        }
        Ok(Self {
            server,
            database: database.to_owned(),
            is_tls,
        })
    }
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
    fn an_address_is_read_as_it_is_shown() {
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
            "postgres://db.example/a?sslmode=prefer",
        ] {
            assert_eq!(
                text.parse::<ArchiveAddress>(),
                Err(InvalidArchiveAddress),
                "{text}"
            );
        }
    }
}
