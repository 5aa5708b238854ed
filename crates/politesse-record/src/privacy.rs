//! Personal data in the record: how much of a client's address and of a query
//! string is written (`audit.client_addresses`, `audit.query_strings`).
//!
//! Data left out here are nowhere in the record, not even in the write-ahead log.
//! The written form shows what was done, so that a row can be read without the
//! configuration of its time. URLs never have user information, because such
//! requests are refused.
//!
//! A keyed value is an HMAC (RFC 2104) with a key of the record. Equal values can
//! be recognised, and a person who has the key can test a guess. Once the key is
//! deleted, no one can.

use std::borrow::Cow;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::{hmac, rand};

use super::error::AuditError;
use politesse_decision::again::WITHHELD;

/// Name of the key file in the folder of the record.
const KEY_NAME: &str = "privacy.key";

/// Length of the key in bytes, the output size of SHA-256.
const KEY_BYTES: usize = 32;

/// Number of HMAC bytes that are written: enough to rule out accidental collisions.
const KEYED_BYTES: usize = 16;

/// Form in which query strings are written (`audit.query_strings`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QueryStrings {
    /// The whole query string.
    #[default]
    Full,
    /// An HMAC.
    Keyed,
    /// Only a mark that there was one.
    Omitted,
}

/// Form in which client addresses are written (`audit.client_addresses`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientAddresses {
    /// The whole address.
    #[default]
    Full,
    /// Only the network: /24 of IPv4, /48 of IPv6.
    Shortened,
    /// An HMAC.
    Keyed,
}

/// Forms of all personal data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrivacyOptions {
    /// Form of query strings.
    pub query_strings: QueryStrings,
    /// Form of addresses.
    pub client_addresses: ClientAddresses,
}

impl PrivacyOptions {
    fn is_keyed(self) -> bool {
        self.query_strings == QueryStrings::Keyed || self.client_addresses == ClientAddresses::Keyed
    }
}

/// Writer of personal data in the configured forms, with the key if one is used.
#[derive(Debug, Default)]
pub(super) struct PrivacyForms {
    options: PrivacyOptions,
    key: Option<hmac::Key>,
}

impl PrivacyForms {
    /// Reads the key in `folder` if `options` use one, or creates it.
    ///
    /// # Errors
    ///
    /// [`AuditError::Create`], also if the file does not contain a key.
    pub(super) fn open(options: PrivacyOptions, folder: &Path) -> Result<Self, AuditError> {
        let path = key_path(folder);
        let read =
            || read_or_make_key(&path).map_err(|error| AuditError::Create(path.clone(), error));
        let key = options.is_keyed().then(read).transpose()?;
        Ok(Self { options, key })
    }

    /// Returns the written form of a client's address.
    pub(super) fn address(&self, address: IpAddr) -> String {
        match (self.options.client_addresses, address) {
            (ClientAddresses::Full, address) => address.to_string(),
            (ClientAddresses::Shortened, IpAddr::V4(address)) => {
                let [a, b, c, _] = address.octets();
                format!("{}/24", Ipv4Addr::new(a, b, c, 0))
            }
            (ClientAddresses::Shortened, IpAddr::V6(address)) => {
                let network = u128::from(address) >> 80 << 80;
                format!("{}/48", Ipv6Addr::from(network))
            }
            (ClientAddresses::Keyed, address) => self.keyed(address.to_string().as_bytes()),
        }
    }

    /// Returns the written form of a path with its query string.
    pub(super) fn path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        if self.options.query_strings == QueryStrings::Full {
            return path.into();
        }
        let Some((before, query)) = path.split_once('?') else {
            return path.into();
        };
        match self.options.query_strings {
            QueryStrings::Full | QueryStrings::Omitted => format!("{before}{WITHHELD}").into(),
            QueryStrings::Keyed => {
                format!("{before}{WITHHELD}{}", self.keyed(query.as_bytes())).into()
            }
        }
    }

    /// Returns the written form of a reading of `path`, one of the ways in which
    /// servers may interpret it. Its query string is left out if that of `path` is.
    pub(super) fn reading<'a>(&self, reading: &'a str, path: &str) -> Cow<'a, str> {
        let is_full = self.options.query_strings == QueryStrings::Full || !path.contains('?');
        match reading.split_once('?') {
            Some((before, _)) if !is_full => format!("{before}{WITHHELD}").into(),
            _ => reading.into(),
        }
    }

    /// Returns the written form of an HMAC of `value`.
    fn keyed(&self, value: &[u8]) -> String {
        // The key is always set when a keyed form is configured.
        let tag = self.key.as_ref().map(|key| hmac::sign(key, value));
        let start = tag.as_ref().and_then(|tag| tag.as_ref().first_chunk());
        let bytes: [u8; KEYED_BYTES] = start.copied().unwrap_or_default();
        format!("keyed:{:032x}", u128::from_be_bytes(bytes))
    }
}

/// Checks the key in `folder`, if it exists and `options` use it.
///
/// # Errors
///
/// [`AuditError::Create`] if the file cannot be read or does not contain a key.
pub(super) fn check_key(options: PrivacyOptions, folder: &Path) -> Result<(), AuditError> {
    if !options.is_keyed() {
        return Ok(());
    }
    let path = key_path(folder);
    match fs::read(&path).and_then(|bytes| key_of(&bytes)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(AuditError::Create(path, error))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns the path of the key file in `folder`.
fn key_path(folder: &Path) -> PathBuf {
    folder.join(KEY_NAME)
}

fn read_or_make_key(path: &Path) -> io::Result<hmac::Key> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_key(path)?,
        Err(error) => return Err(error),
    };
    key_of(&bytes)
}

fn key_of(bytes: &[u8]) -> io::Result<hmac::Key> {
    if bytes.len() != KEY_BYTES {
        let text = format!("it is not a key, which has {KEY_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, bytes))
}

fn make_key(path: &Path) -> io::Result<Vec<u8>> {
    let mut key = vec![0; KEY_BYTES];
    rand::fill(&mut key).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path)?;
    file.write_all(&key)?;
    // Synced, because values written with a key that is lost in a power failure
    // could not be compared with later ones.
    file.sync_all()?;
    tracing::info!(
        "made {}, the key of keyed values in the record",
        path.display()
    );
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn forms(options: PrivacyOptions) -> PrivacyForms {
        let key = Some(hmac::Key::new(hmac::HMAC_SHA256, &[7; KEY_BYTES]));
        PrivacyForms { options, key }
    }

    fn of_queries(query_strings: QueryStrings) -> PrivacyForms {
        forms(PrivacyOptions {
            query_strings,
            ..PrivacyOptions::default()
        })
    }

    // Ours.
    #[test]
    fn a_query_string_is_written_whole_keyed_or_not_at_all() {
        let full = PrivacyForms::default();
        let omitted = of_queries(QueryStrings::Omitted);
        let keyed = of_queries(QueryStrings::Keyed);
        for path in ["/a", "/%3Fa"] {
            for forms in [&full, &omitted, &keyed] {
                assert_eq!(forms.path(path), path);
                assert_eq!(forms.reading("/?a", path), "/?a");
            }
        }
        assert_eq!(full.path("/a?b=1"), "/a?b=1");
        assert_eq!(omitted.path("/a?b=1?c"), "/a?#");
        assert_eq!(omitted.path("/a?"), "/a?#");
        assert_eq!(omitted.reading("/A?b=1", "/a?b=1"), "/A?#");
        assert_eq!(keyed.reading("/A?b=1", "/a?b=1"), "/A?#");
        let one = keyed.path("/a?b=1");
        assert!(one.starts_with("/a?#keyed:"), "{one}");
        assert_eq!(one.len(), "/a?#keyed:".len() + 2 * KEYED_BYTES);
        assert_eq!(one, keyed.path("/a?b=1"));
        assert_ne!(one, keyed.path("/a?b=2"));
    }

    // RFC 4231, section 4.3: the HMAC-SHA256 of test case 2 starts with these
    // bytes.
    #[test]
    fn a_keyed_value_is_the_beginning_of_an_hmac() {
        let forms = PrivacyForms {
            key: Some(hmac::Key::new(hmac::HMAC_SHA256, b"Jefe")),
            ..PrivacyForms::default()
        };
        let value = forms.keyed(b"what do ya want for nothing?");
        assert_eq!(value, "keyed:5bdcc146bf60754e6a042426089575c7");
    }

    // Ours.
    #[test]
    fn an_address_is_written_whole_as_its_network_or_keyed() {
        let of = |client_addresses, address: &str| {
            let forms = forms(PrivacyOptions {
                client_addresses,
                ..PrivacyOptions::default()
            });
            forms.address(address.parse().unwrap())
        };
        let (v4, v6) = ("192.0.2.77", "2001:db8:1:2:3::77");
        assert_eq!(of(ClientAddresses::Full, v4), v4);
        assert_eq!(of(ClientAddresses::Full, v6), v6);
        assert_eq!(of(ClientAddresses::Shortened, v4), "192.0.2.0/24");
        assert_eq!(of(ClientAddresses::Shortened, v6), "2001:db8:1::/48");
        assert!(of(ClientAddresses::Keyed, v4).starts_with("keyed:"));
        assert_ne!(
            of(ClientAddresses::Keyed, v4),
            of(ClientAddresses::Keyed, v6)
        );
    }

    // Ours.
    #[test]
    fn a_key_is_made_once_and_an_invalid_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let options = PrivacyOptions {
            query_strings: QueryStrings::Keyed,
            ..PrivacyOptions::default()
        };
        let open = || PrivacyForms::open(options, folder.path());
        let first = open().unwrap().path("/?a").into_owned();
        assert_eq!(open().unwrap().path("/?a"), first);
        let path = key_path(folder.path());
        let mode = fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(path, "short").unwrap();
        assert!(matches!(open(), Err(AuditError::Create(..))));
    }
}
