//! Options of the fleet (`fleet`), and addresses of its store.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use super::membership::FleetRules;
use politesse_base::server::ServerPlace;

/// Options of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Addresses of the store, one of which accepts commands (`fleet.store`). Empty if
    /// this proxy is not in a fleet.
    pub store: Vec<StoreAddress>,
    /// File with the name and the password for the store (`fleet.store_auth`).
    pub store_auth: Option<PathBuf>,
    /// Certificates for verifying the store's certificate (`fleet.store_ca`); `None`
    /// means those of the system.
    pub store_ca: Option<PathBuf>,
    /// File with the secret that authenticates robots.txt files shared between nodes
    /// (`fleet.key`). `None` means that they are not shared.
    pub key: Option<PathBuf>,
    /// Name of the fleet, and prefix of its keys in the store (`fleet.name`).
    pub name: String,
    /// Name of this node (`fleet.node`).
    pub node: String,
    /// Time without a heartbeat after which a node is forgotten (`fleet.forget`).
    pub forget: Duration,
    /// Times, and the conduct without the store.
    pub rules: FleetRules,
}

impl Options {
    /// Returns a key that all nodes share.
    ///
    /// `beat.lua` uses several of them, so all need the same part in braces (Redis
    /// Cluster). Without the last part it would be the key of a host named `fleet`.
    #[must_use]
    pub fn shared_key(&self, last: &str) -> String {
        format!("{}:{{fleet}}:{last}", self.name)
    }

    /// Returns the key of the state that all nodes agree on: the generation, and the list
    /// of nodes.
    #[must_use]
    pub fn state_key(&self) -> String {
        self.shared_key("state")
    }

    /// Returns the key of the nodes and the times of their latest heartbeats.
    #[must_use]
    pub fn nodes_key(&self) -> String {
        self.shared_key("nodes")
    }

    /// Returns the key of the notes that nodes leave for each other.
    #[must_use]
    pub fn notes_key(&self) -> String {
        self.shared_key("notes")
    }
}

/// Returns whether `text` can be the name of a fleet or a node. `beat.lua` removes any
/// other name from the store.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Address of a store: `redis://store.example:6379`, `rediss://` for TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreAddress {
    /// Whether to use TLS.
    pub is_tls: bool,
    /// Server of the store.
    pub server: ServerPlace,
    /// Number of the database.
    pub database: u16,
}

/// The text is not the address of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not an address such as redis://store.example:6379, without a password")]
pub struct InvalidStoreAddress;

/// Default port of Redis.
const PORT: u16 = 6379;

impl FromStr for StoreAddress {
    type Err = InvalidStoreAddress;

    fn from_str(text: &str) -> Result<Self, InvalidStoreAddress> {
        let (scheme, rest) = text.split_once("://").ok_or(InvalidStoreAddress)?;
        let is_tls = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err(InvalidStoreAddress),
        };
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let database = match database {
            "" => 0,
            number => number.parse().map_err(|_| InvalidStoreAddress)?,
        };
        Ok(Self {
            is_tls,
            server: ServerPlace::parse(authority, PORT).ok_or(InvalidStoreAddress)?,
            database,
        })
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "rediss" } else { "redis" };
        write!(f, "{scheme}://{}", self.server)?;
        if self.database != 0 {
            write!(f, "/{}", self.database)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: `fleet.store`.
    #[test]
    fn an_address_survives_a_round_trip_through_text() {
        for (text, shown) in [
            ("redis://store.example", "redis://store.example:6379"),
            ("rediss://store.example:1/2", "rediss://store.example:1/2"),
            ("redis://[::1]:7000/", "redis://[::1]:7000"),
        ] {
            let address: StoreAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse(), Ok(address));
        }
    }

    #[test]
    fn passwords_and_other_stores_are_refused() {
        for text in [
            "store.example:6379",
            "http://store.example",
            "redis://",
            "redis://user:password@store.example",
            "redis://:password@store.example",
            "redis://store.example:0",
            "redis://store.example:",
            "redis://store.example:70000",
            "redis://store.example/x",
            "redis://store example",
        ] {
            assert_eq!(
                text.parse::<StoreAddress>(),
                Err(InvalidStoreAddress),
                "{text}"
            );
        }
    }
}
