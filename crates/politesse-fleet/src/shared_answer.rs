//! Answer of an origin to a request for its robots.txt, in the form that the nodes of a
//! fleet share.
//!
//! Without protection, any program that can write to the store could plant a robots.txt
//! that allows everything. So a stored answer begins with a message authentication code (MAC) that
//! only holders of the fleet's key can compute (HMAC-SHA256, RFC 2104). It covers the name
//! of the answer in the store, which contains the origin and the crawler, and the digest
//! of the file, which is stored separately. An earlier answer can still be put back, until
//! it expires. Does no I/O, and takes the time as an argument.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use bytes::Bytes;
use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use politesse_base::server::{CredentialsError, read_private};
use politesse_decision::digest::Digest;
use politesse_decision::snapshot::{
    AccessResult, CacheKey, RobotsBody, RobotsFile, Snapshot, StoredSnapshot, Validators,
};
use politesse_robots::origin::Origin;
use politesse_robots::{Dialect, FileSource};

/// Shortest secret that is accepted as a key, in bytes.
const SECRET_MIN: usize = 32;

/// Longest answer that is shared, without its file, in bytes: URLs of redirects may be
/// long.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Length of the MAC before an answer, in bytes.
const MAC_BYTES: usize = 32;

/// Reason why the key of a fleet cannot be used. In this case the proxy does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FleetKeyError {
    /// The file cannot be read, or other users may read it.
    #[error(transparent)]
    File(#[from] CredentialsError),
    /// The secret is too short.
    #[error("it has fewer than {SECRET_MIN} characters: make one with `openssl rand -hex 32`")]
    Short,
}

/// Key that authenticates the answers of nodes to each other (`fleet.key`).
#[derive(Debug)]
pub struct FleetKey(hmac::Key);

impl FleetKey {
    /// Reads the file of `fleet.key`.
    ///
    /// # Errors
    ///
    /// [`FleetKeyError`].
    pub fn read(path: &Path) -> Result<Self, FleetKeyError> {
        let text = read_private(path)?;
        let secret = text.trim();
        if secret.len() < SECRET_MIN {
            return Err(FleetKeyError::Short);
        }
        Ok(Self::new(secret.as_bytes()))
    }

    pub(super) fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Returns a digest that shows whether two nodes have the same key. It reveals nothing
    /// else about the key.
    #[must_use]
    pub fn fingerprint(&self) -> Digest {
        // The names in `signed_bytes` never begin with a null byte. So this MAC is not
        // that of any answer, and publishing its digest does not help to forge one.
        Digest::of(hmac::sign(&self.0, b"\0fingerprint").as_ref())
    }

    /// Returns the bytes to store under `name`: the MAC, followed by the answer in JSON.
    /// `None` if the answer is too long.
    pub(super) fn seal(&self, name: &str, answer: &SharedAnswer) -> Option<Vec<u8>> {
        let text = serde_json::to_vec(answer).ok()?;
        if ANSWER_BYTES_MAX < text.len() {
            return None;
        }
        let mac = hmac::sign(&self.0, &signed_bytes(name, &text));
        Some([mac.as_ref(), &text].concat())
    }

    /// Reads bytes that [`FleetKey::seal`] created for the same name. `None` if they were
    /// created with another key, or were changed.
    pub(super) fn open(&self, name: &str, bytes: &[u8]) -> Option<SharedAnswer> {
        let (mac, text) = bytes.split_at_checked(MAC_BYTES)?;
        hmac::verify(&self.0, &signed_bytes(name, text), mac).ok()?;
        serde_json::from_slice(text).ok()
    }
}

/// Returns the bytes that the MAC covers. They include the name, so that the answer of
/// one origin is not accepted for another.
fn signed_bytes(name: &str, text: &[u8]) -> Vec<u8> {
    [name.as_bytes(), b"\0", text].concat()
}

/// Answer without the bytes of its file. Names of fields are keys of the stored JSON.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharedAnswer {
    /// URL of the last response, after redirects.
    url: String,
    /// URLs that redirected, in order.
    hops: Vec<String>,
    status: Option<u16>,
    /// Microseconds since 1970, by the clock of the node that fetched the file.
    fetched_at: i64,
    /// In the unit and by the clock of `fetched_at`.
    expires_at: i64,
    /// How the fetching node reached the origin, if its settings changed that
    /// ([`StoredSnapshot::led_to`]). Only nodes with the same settings use the answer.
    led_to: Option<String>,
    /// Absent if there is no file (RFC 9309, section 2.3.1.3).
    file: Option<SharedFile>,
}

/// Description of a robots.txt whose bytes are stored under its digest.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SharedFile {
    /// SHA-256 of the bytes, in hexadecimal.
    sha256: String,
    /// Whether the stored bytes are everything that the origin sent.
    whole: bool,
    content_type: Option<String>,
    etag: Option<String>,
    last_modified: Option<String>,
}

impl SharedAnswer {
    /// Creates an answer from a snapshot; `None` if the latest fetch got no answer from
    /// the origin.
    pub(super) fn of(stored: &StoredSnapshot) -> Option<Self> {
        let snapshot = &stored.snapshot;
        if !snapshot.is_answer() {
            return None;
        }
        let text = |value: &Option<HeaderValue>| {
            let text = value.as_ref()?.to_str().ok()?;
            Some(text.to_owned())
        };
        Some(Self {
            url: snapshot.url.clone(),
            hops: snapshot.hops.clone(),
            status: snapshot.status,
            fetched_at: snapshot.fetched_at.as_microsecond(),
            expires_at: snapshot.expires_at.as_microsecond(),
            led_to: stored.led_to.clone(),
            file: snapshot.file().map(|file| SharedFile {
                sha256: file.digest.to_string(),
                whole: file.whole,
                content_type: file.content_type.clone(),
                etag: text(&file.validators.etag),
                last_modified: text(&file.validators.last_modified),
            }),
        })
    }

    /// Returns the SHA-256 of the file in hexadecimal; `None` without a file.
    pub(super) fn file_digest(&self) -> Option<&str> {
        self.file.as_ref().map(|file| file.sha256.as_str())
    }

    /// Returns whether crawlers get the same rules from both answers: from equal files, or
    /// from no file.
    pub(super) fn has_equal_rules(&self, other: &Self) -> bool {
        let whole = |answer: &Self| answer.file.as_ref().map(|file| file.whole);
        self.file_digest() == other.file_digest() && whole(self) == whole(other)
    }

    /// Creates the snapshot for `key` from the answer and the bytes of its file. `None` if
    /// `body` is not that file, or if a value is malformed.
    pub(super) fn snapshot(
        self,
        key: CacheKey,
        body: Option<Bytes>,
        context: LoadContext,
    ) -> Option<StoredSnapshot> {
        let result = match (self.file, body) {
            (None, None) => AccessResult::Unavailable,
            (Some(file), Some(bytes)) if Digest::of(&bytes).to_string() == file.sha256 => {
                AccessResult::Successful(Arc::new(file.parse(
                    bytes,
                    context.dialect,
                    &key.origin,
                )?))
            }
            _ => return None,
        };
        let time = |micros| Timestamp::from_microsecond(micros).ok();
        // The clock of the other node may be ahead of ours. Without these limits, an
        // answer from the future would have an unknown age, and one with a distant end
        // would never expire.
        let time_left = SignedDuration::try_from(context.time_left).ok()?;
        let latest_end = context.now.checked_add(time_left).ok()?;
        Some(StoredSnapshot {
            snapshot: Arc::new(Snapshot {
                key,
                url: self.url,
                hops: self.hops,
                status: self.status,
                fetched_at: time(self.fetched_at)?.min(context.now),
                expires_at: time(self.expires_at)?.min(latest_end),
                result,
                stale: None,
                tdm: None,
            }),
            failures: 0,
            led_to: self.led_to,
        })
    }
}

impl SharedFile {
    /// Parses the bytes of the file. `None` if a header field is malformed.
    fn parse(self, bytes: Bytes, dialect: Dialect, origin: &Origin) -> Option<RobotsFile> {
        let field = |text: Option<String>| {
            let value = text.map(HeaderValue::try_from);
            value.transpose().ok()
        };
        let body = RobotsBody {
            bytes,
            whole: self.whole,
        };
        let source = FileSource::new(origin, self.content_type.as_deref());
        Some(RobotsFile {
            content_type: self.content_type,
            validators: Validators {
                etag: field(self.etag)?,
                last_modified: field(self.last_modified)?,
            },
            ..RobotsFile::from_source(body, dialect, source)
        })
    }
}

/// Circumstances in which a node loads an answer from the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadContext {
    /// Dialect that the file is read by.
    pub(super) dialect: Dialect,
    /// Time by the clock of this node.
    pub(super) now: Timestamp,
    /// How long the store keeps the answer after `now`.
    pub(super) time_left: Duration,
}

/// Returns the part of a name in the store that represents `key`: its origin and scope.
pub(super) fn key_text(key: &CacheKey) -> String {
    format!("{} {}", key.origin, key.scope().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use politesse_robots::crawler::ProductToken;
    use politesse_robots_cache::options::LIFETIME_MAX;

    const BODY: &[u8] = b"User-agent: *\nDisallow: /a\n";

    fn key() -> CacheKey {
        let target: politesse_robots::origin::Target = "http://a.test/".parse().unwrap();
        let token = ProductToken::new("ExampleBot").unwrap();
        CacheKey::new(target.origin, Some(token))
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn stored() -> StoredSnapshot {
        let file = RobotsFile {
            content_type: Some("text/plain".to_owned()),
            validators: Validators {
                etag: Some(HeaderValue::from_static("\"1\"")),
                last_modified: None,
            },
            ..RobotsFile::new(Bytes::from_static(BODY))
        };
        StoredSnapshot {
            snapshot: Arc::new(Snapshot {
                key: key(),
                url: "http://b.test/robots.txt".to_owned(),
                hops: vec!["http://a.test/robots.txt".to_owned()],
                status: Some(200),
                fetched_at: at("2126-11-24T10:00:00Z"),
                expires_at: at("2126-11-24T11:00:00Z"),
                result: AccessResult::Successful(Arc::new(file)),
                stale: None,
                tdm: None,
            }),
            failures: 3,
            led_to: Some("127.0.0.1:80".to_owned()),
        }
    }

    fn loaded_at(now: &str, time_left: Duration) -> LoadContext {
        LoadContext {
            dialect: Dialect::default(),
            now: at(now),
            time_left,
        }
    }

    fn fleet() -> FleetKey {
        FleetKey::new(&[7; 32])
    }

    // Source: docs/decisions/031-shared-robots.md.
    #[test]
    fn a_shared_answer_is_read_back_unchanged() {
        let stored = stored();
        let sealed = fleet()
            .seal("name", &SharedAnswer::of(&stored).unwrap())
            .unwrap();
        let answer = fleet().open("name", &sealed).unwrap();
        let body = Some(Bytes::from_static(BODY));
        let context = loaded_at("2126-11-24T10:30:00Z", LIFETIME_MAX);
        let copy = answer.snapshot(key(), body, context).unwrap();
        assert_eq!(copy.led_to, stored.led_to);
        let (copy, original) = (&copy.snapshot, &stored.snapshot);
        assert_eq!((&copy.url, &copy.hops), (&original.url, &original.hops));
        assert_eq!(copy.status, original.status);
        assert_eq!(copy.fetched_at, original.fetched_at);
        assert_eq!(copy.expires_at, original.expires_at);
        let (file, expected) = (copy.file().unwrap(), original.file().unwrap());
        assert_eq!((file.digest, &file.body), (expected.digest, &expected.body));
        assert_eq!(file.validators, expected.validators);
        assert_eq!(file.content_type, expected.content_type);
    }

    // Ours: a robots.txt that cannot be verified is fetched again.
    #[test]
    fn an_answer_not_made_with_the_key_is_not_read() {
        let answer = SharedAnswer::of(&stored()).unwrap();
        let sealed = fleet().seal("name", &answer).unwrap();
        assert!(fleet().open("other name", &sealed).is_none());
        assert!(FleetKey::new(&[8; 32]).open("name", &sealed).is_none());
        assert!(fleet().open("name", &[]).is_none());
        for place in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[place] ^= 1;
            assert!(fleet().open("name", &forged).is_none(), "{place}");
            assert!(fleet().open("name", &sealed[..place]).is_none(), "{place}");
        }
    }

    #[test]
    fn a_file_with_another_digest_is_not_accepted() {
        let context = loaded_at("2126-11-24T10:30:00Z", LIFETIME_MAX);
        for body in [None, Some(Bytes::new()), Some(Bytes::from_static(b"x"))] {
            let answer = SharedAnswer::of(&stored()).unwrap();
            assert!(answer.snapshot(key(), body, context).is_none());
        }
    }

    // Ours: the clocks of two nodes differ, and the MAC does not cover the current time.
    #[test]
    fn no_answer_is_from_the_future_or_outlives_its_time_in_the_store() {
        let times = |now, time_left| {
            let answer = SharedAnswer::of(&stored()).unwrap();
            let body = Some(Bytes::from_static(BODY));
            let copy = answer
                .snapshot(key(), body, loaded_at(now, time_left))
                .unwrap();
            (copy.snapshot.fetched_at, copy.snapshot.expires_at)
        };
        let minute = Duration::from_secs(60);
        assert_eq!(
            times("2126-11-24T09:00:00Z", minute),
            (at("2126-11-24T09:00:00Z"), at("2126-11-24T09:01:00Z"))
        );
    }

    #[test]
    fn a_key_must_be_a_private_file_with_a_long_secret() {
        use std::fs::Permissions;
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet.key");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        let secret = "0".repeat(SECRET_MIN);
        write(&secret[1..], 0o600);
        assert!(matches!(FleetKey::read(&path), Err(FleetKeyError::Short)));
        write(&secret, 0o640);
        assert!(matches!(FleetKey::read(&path), Err(FleetKeyError::File(_))));
        write(&format!("{secret}\n"), 0o600);
        let from_file = FleetKey::read(&path).unwrap();
        let answer = SharedAnswer::of(&stored()).unwrap();
        // The line end is not part of the secret.
        let sealed = from_file.seal("name", &answer).unwrap();
        assert!(
            FleetKey::new(secret.as_bytes())
                .open("name", &sealed)
                .is_some()
        );
    }
}
