//! One row of `kept`: the last that is known of a robots.txt as columns, and
//! the way back.
//!
//! A crawl goes by what is read here, so nothing is read near enough: a row
//! that is not as it was written, or names a body that is not the one it was
//! read from, is as if it were not there, and the origin is asked.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::{FromSql, Value};

use super::pages::KeyedTable;
use super::row::{SNAPSHOT_COLUMNS, blob, digest, is_as_written, row_digest, snapshot_values};
use crate::decision::access::{AccessResult, Cause, RobotsBody, RobotsFile, Snapshot, Validators};
use crate::decision::digest::Digest;
use crate::decision::stored_snapshot::{CacheKey, StoredSnapshot};
use politesse_robots::Dialect;
use politesse_robots::crawler::ProductToken;
use politesse_robots::origin::{Origin, Target};

/// The columns under the digest: those of the snapshot, and six of the rest.
pub(super) const KEPT_COLUMNS: usize = SNAPSHOT_COLUMNS + 6;

/// Where a snapshot has its token.
const TOKEN_AT: usize = 1;

/// Where [`LOAD`] has the body, behind the digest of the row.
const BODY_AT: usize = KEPT_COLUMNS + 1;

/// Puts a row in place of the one with the same origin and token.
pub(super) const SAVE: &str = "
REPLACE INTO kept (origin, token, url, status, fetched_us, expires_us, result,
  cause, body, hops, whole, content_type, etag, last_modified, failures, led_to,
  digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// Finds the row of an origin and a token, with its body.
pub(super) const LOAD: &str = "
SELECT k.origin, k.token, k.url, k.status, k.fetched_us, k.expires_us, k.result,
       k.cause, k.body, k.hops, k.whole, k.content_type, k.etag,
       k.last_modified, k.failures, k.led_to, k.digest, b.body
FROM kept AS k LEFT JOIN body AS b ON b.sha256 = k.body
WHERE k.origin = ? AND k.token = ?";

/// All rows, without bodies.
pub(super) const KEPT: KeyedTable = KeyedTable {
    select: "
SELECT origin, token, url, status, fetched_us, expires_us, result, cause, body,
       hops, whole, content_type, etag, last_modified, failures, led_to, digest
FROM kept",
    key: &["origin", "token"],
};

/// The key of a row: an origin, and a token or ''.
pub(super) fn key_cells(key: &CacheKey) -> (String, &str) {
    let token = key.token.as_ref().map_or("", ProductToken::as_str);
    (key.origin.to_string(), token)
}

/// The values of a row, in the order of [`SAVE`], its digest last.
pub(super) fn kept_values(kept: &StoredSnapshot) -> Vec<Value> {
    let snapshot = &kept.snapshot;
    let mut values = Vec::from(snapshot_values(snapshot));
    if values[TOKEN_AT] == Value::Null {
        values[TOKEN_AT] = Value::Text(String::new());
    }
    let copy = snapshot.file();
    let bytes = |value: Option<&HeaderValue>| value.map(|value| value.as_bytes().to_vec());
    let validators = copy.map(|copy| &copy.validators);
    values.extend([
        copy.map(|copy| copy.whole).into(),
        copy.and_then(|copy| copy.content_type.clone()).into(),
        bytes(validators.and_then(|known| known.etag.as_ref())).into(),
        bytes(validators.and_then(|known| known.last_modified.as_ref())).into(),
        kept.failures.into(),
        kept.led_to.clone().into(),
    ]);
    let digest = row_digest(values.iter().map(Into::into));
    values.push(blob(digest));
    values
}

/// Whether a row of [`LOAD`] or [`KEPT`] holds the values it was written with.
pub(super) fn is_untouched(row: &Row<'_>) -> rusqlite::Result<bool> {
    is_as_written(row, KEPT_COLUMNS)
}

/// The columns of [`LOAD`], in order; the digest of the row is left out.
const COLUMNS: [&str; KEPT_COLUMNS + 1] = [
    "origin",
    "token",
    "url",
    "status",
    "fetched_us",
    "expires_us",
    "result",
    "cause",
    "body_key",
    "hops",
    "whole",
    "content_type",
    "etag",
    "last_modified",
    "failures",
    "led_to",
    "body",
];

/// The values of a row of [`LOAD`], copied so that the transaction can end
/// before a large file is parsed. What was written by another version, or under
/// a digest that somebody made anew, has no value.
#[derive(Debug)]
pub(super) struct SavedSnapshotCells(Vec<Value>);

impl SavedSnapshotCells {
    /// The values of `row`; `None` if it is not what was written.
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Option<Self>> {
        if !is_untouched(row)? {
            return Ok(None);
        }
        let columns = (0..KEPT_COLUMNS).chain([BODY_AT]);
        let values = columns.map(|column| row.get(column).unwrap_or(Value::Null));
        Ok(Some(Self(values.collect())))
    }

    /// What the row says, its file read by `dialect`.
    pub(super) fn kept(&self, dialect: Dialect) -> Option<StoredSnapshot> {
        Some(StoredSnapshot {
            snapshot: Arc::new(self.snapshot(dialect)?),
            failures: self.take("failures")?,
            led_to: self.take("led_to")?,
        })
    }

    fn snapshot(&self, dialect: Dialect) -> Option<Snapshot> {
        let cause = match self.take::<Option<String>>("cause")? {
            Some(word) => Some(word.parse::<Cause>().ok()?),
            None => None,
        };
        let (result, stale) = match (self.take::<String>("result")?.as_str(), cause) {
            ("unreachable", Some(cause)) => (AccessResult::Unreachable(cause), None),
            ("unavailable", stale) => (AccessResult::Unavailable, stale),
            ("successful", stale) => {
                let copy = self.copy(dialect)?;
                (AccessResult::Successful(Arc::new(copy)), stale)
            }
            _ => return None,
        };
        Some(Snapshot {
            origin: self.origin()?,
            token: self.token()?,
            url: self.take("url")?,
            hops: self.hops()?,
            status: self.take("status")?,
            fetched_at: self.time("fetched_us")?,
            expires_at: self.time("expires_us")?,
            result,
            stale,
        })
    }

    fn origin(&self) -> Option<Origin> {
        let target: Target = self.take::<String>("origin")?.parse().ok()?;
        Some(target.origin)
    }

    fn token(&self) -> Option<Option<ProductToken>> {
        match self.take::<String>("token")?.as_str() {
            "" => Some(None),
            token => ProductToken::new(token).ok().map(Some),
        }
    }

    fn hops(&self) -> Option<Vec<String>> {
        match self.take::<Option<String>>("hops")? {
            Some(list) => serde_json::from_str(&list).ok(),
            None => Some(Vec::new()),
        }
    }

    fn time(&self, column: &str) -> Option<Timestamp> {
        Timestamp::from_microsecond(self.take(column)?).ok()
    }

    /// The file, if the body kept under its digest has that digest.
    fn copy(&self, dialect: Dialect) -> Option<RobotsFile> {
        let Value::Blob(body) = self.value("body")? else {
            return None;
        };
        let wanted: Option<Digest> = digest(&self.take::<Vec<u8>>("body_key")?);
        let body = RobotsBody {
            bytes: Bytes::copy_from_slice(body),
            whole: self.take("whole")?,
        };
        let copy = RobotsFile {
            content_type: self.take("content_type")?,
            validators: Validators {
                etag: self.field("etag")?,
                last_modified: self.field("last_modified")?,
            },
            ..RobotsFile::read(body, dialect)
        };
        (Some(copy.digest) == wanted).then_some(copy)
    }

    fn field(&self, column: &str) -> Option<Option<HeaderValue>> {
        match self.take::<Option<Vec<u8>>>(column)? {
            Some(bytes) => HeaderValue::from_bytes(&bytes).ok().map(Some),
            None => Some(None),
        }
    }

    fn take<T: FromSql>(&self, column: &str) -> Option<T> {
        T::column_result(self.value(column)?.into()).ok()
    }

    fn value(&self, column: &str) -> Option<&Value> {
        let at = COLUMNS.iter().position(|name| *name == column)?;
        self.0.get(at)
    }
}
