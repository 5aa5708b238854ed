//! Address of the archive (`audit.archive`).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Address of a database: `postgres://db.example:5432/politesse`, with
/// `?sslmode=disable` where TLS is not spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveAddress {
    /// Name or address of the server.
    pub host: String,
    /// Port of the server.
    pub port: u16,
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
        // With a password in it, it would stand in the configuration, and on pages
        // that show that.
        let authority: http::uri::Authority =
            authority.parse().map_err(|_| InvalidArchiveAddress)?;
        let host = authority.host().trim_matches(['[', ']']);
        let has_port = authority.as_str().len() != authority.host().len();
        let port = authority.port_u16().filter(|port| *port != 0);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_plain = !database.is_empty() && database.bytes().all(is_name);
        if authority.as_str().contains('@')
            || host.is_empty()
            || has_port && port.is_none()
            || !is_plain
        {
            return Err(InvalidArchiveAddress);
        }
        Ok(Self {
            host: host.to_owned(),
            port: port.unwrap_or(PORT),
            database: database.to_owned(),
            is_tls,
        })
    }
}

impl fmt::Display for ArchiveAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') {
            ("[", "]")
        } else {
            ("", "")
        };
        let Self {
            host,
            port,
            database,
            ..
        } = self;
        write!(f, "postgres://{open}{host}{close}:{port}/{database}")?;
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
