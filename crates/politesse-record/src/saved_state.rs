//! State taken over from the previous process: the newest snapshot of each
//! robots.txt (table `kept`), and the long back-offs (table `back_off`).
//!
//! State is not evidence and decides nothing; it saves requests to sites. State
//! that cannot be saved is therefore given up, and an altered row counts as absent,
//! so that the site is asked again. Both cases are counted.
//!
//! Does not know when state is saved, or how long it is valid.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row};

use super::columns::{TableRow as _, table};
use super::pages::KeyedTable;
use super::snapshot_row::hops_text;
use politesse_decision::access::Cause;
use politesse_decision::back_off::SavedBackOff;
use politesse_decision::digest::Digest;
use politesse_decision::record::result_word;
use politesse_decision::snapshot::{
    AccessResult, CacheKey, RobotsBody, RobotsFile, Snapshot, StoredSnapshot, Validators,
};
use politesse_robots::origin::{Host, Origin, Target};
use politesse_robots::{Dialect, FileSource};

/// Finds the row of an origin and a token, with its body. Uses a subquery, because
/// SQLite (3.54) would compile a join again for each bound value.
const LOAD_SNAPSHOT: &str = "
SELECT k.*, (SELECT b.body FROM body AS b WHERE b.sha256 = k.body)
FROM kept AS k WHERE k.origin = ? AND k.token = ?";

/// Finds the keys at a host: its origins with `http` and `https`, on any port. A
/// digit follows the colon before a port, and `;` is the character after the colon
/// in ASCII.
const SNAPSHOT_KEYS: &str = "
SELECT origin, token FROM kept WHERE origin IN (?1, ?2)
OR ?1 || ':' < origin AND origin < ?1 || ';' OR ?2 || ':' < origin AND origin < ?2 || ';'";

/// All saved snapshots, without bodies.
pub(super) const SAVED_SNAPSHOTS: KeyedTable = KeyedTable {
    select: "SELECT * FROM kept",
    key: &["origin", "token"],
};

/// All saved back-offs.
pub(super) const BACK_OFFS: KeyedTable = KeyedTable {
    select: "SELECT * FROM back_off",
    key: &["host"],
};

table! {
    /// Newest snapshot of a robots.txt.
    pub(super) struct KeptRow in "kept" keyed by "origin, token" {
        pub(super) origin: String = "origin TEXT NOT NULL",
        /// Scope of the [`CacheKey`]: '' for all crawlers, because nulls in a key
        /// would not be equal. `NOCASE` folds case exactly as product tokens do.
        pub(super) token: String = "token TEXT NOT NULL COLLATE NOCASE",
        url: String = "url TEXT NOT NULL",
        status: Option<u16> = "status INTEGER",
        fetched_at: Timestamp = "fetched_us INTEGER NOT NULL",
        expires_at: Timestamp = "expires_us INTEGER NOT NULL",
        result: String = "result TEXT NOT NULL",
        cause: Option<String> = "cause TEXT",
        body: Option<Digest> = "body BLOB",
        hops: Option<String> = "hops TEXT",
        whole: Option<bool> = "whole INTEGER",
        content_type: Option<String> = "content_type TEXT",
        etag: Option<Vec<u8>> = "etag BLOB",
        last_modified: Option<Vec<u8>> = "last_modified BLOB",
        failures: u32 = "failures INTEGER NOT NULL",
        led_to: Option<String> = "led_to TEXT",
        digest: Digest = "digest BLOB NOT NULL",
    }
}

table! {
    /// Long back-off of a host.
    pub(super) struct BackOffRow in "back_off" keyed by "host" {
        pub(super) host: String = "host TEXT NOT NULL",
        until: Timestamp = "until_us INTEGER NOT NULL",
        incidents: u32 = "incidents INTEGER NOT NULL",
        quiet_since: Timestamp = "since_us INTEGER NOT NULL",
        digest: Digest = "digest BLOB NOT NULL",
    }
}

impl From<&StoredSnapshot> for KeptRow {
    fn from(saved: &StoredSnapshot) -> Self {
        let snapshot = &saved.snapshot;
        let copy = snapshot.file();
        let validators = copy.map(|copy| &copy.validators);
        let bytes = |field: Option<&HeaderValue>| field.map(|value| value.as_bytes().to_vec());
        let mut row = Self {
            origin: snapshot.key.origin.to_string(),
            token: snapshot.key.scope(),
            url: snapshot.url.clone(),
            status: snapshot.status,
            fetched_at: snapshot.fetched_at,
            expires_at: snapshot.expires_at,
            result: result_word(&snapshot.result).to_owned(),
            cause: snapshot.cause().map(|cause| cause.as_str().to_owned()),
            body: copy.map(|copy| copy.digest),
            hops: hops_text(snapshot),
            whole: copy.map(|copy| copy.whole),
            content_type: copy.and_then(|copy| copy.content_type.clone()),
            etag: bytes(validators.and_then(|known| known.etag.as_ref())),
            last_modified: bytes(validators.and_then(|known| known.last_modified.as_ref())),
            failures: saved.failures,
            led_to: saved.led_to.clone(),
            digest: Digest::default(),
        };
        // The digest covers the columns before it.
        row.digest = row.digest_of_columns();
        row
    }
}

/// Result of [`load_snapshot`].
#[derive(Debug)]
pub(super) enum SnapshotLookup {
    /// Snapshot that was saved.
    Saved(StoredSnapshot),
    /// No row exists.
    Absent,
    /// The row or its body was altered.
    Altered,
}

/// Loads the snapshot saved for `key`, and parses its file with `dialect`.
pub(super) fn load_snapshot(
    connection: &Connection,
    key: &CacheKey,
    dialect: Dialect,
) -> rusqlite::Result<SnapshotLookup> {
    // Copied, so that the read transaction ends before a large file is parsed.
    let read = |row: &Row<'_>| {
        let kept = KeptRow::read(row)?;
        let body: Option<Vec<u8>> = row.get(KeptRow::WIDTH)?;
        Ok(kept.is_as_written(row).then_some((kept, body)))
    };
    let found = connection
        .prepare_cached(LOAD_SNAPSHOT)?
        .query_row((key.origin.to_string(), key.scope()), read)
        .optional()?;
    let Some(found) = found else {
        return Ok(SnapshotLookup::Absent);
    };
    let saved = found.and_then(|(kept, body)| kept.parse(body, dialect));
    Ok(saved.map_or(SnapshotLookup::Altered, SnapshotLookup::Saved))
}

/// Returns the keys of the snapshots saved for origins at `host`.
pub(super) fn saved_keys(connection: &Connection, host: &Host) -> rusqlite::Result<Vec<CacheKey>> {
    let mut statement = connection.prepare_cached(SNAPSHOT_KEYS)?;
    let origins = (format!("http://{host}"), format!("https://{host}"));
    let rows = statement.query_map(origins, |row| {
        let (origin, scope): (String, String) = (row.get(0)?, row.get(1)?);
        let target = origin.parse::<Target>().ok();
        Ok(target.and_then(|target| CacheKey::of_scope(target.origin, &scope)))
    })?;
    // An altered row may have no valid key, and is skipped.
    rows.filter_map(Result::transpose).collect()
}

impl KeptRow {
    /// Makes the snapshot with the file `body`, parsed with `dialect`.
    ///
    /// `None` if the body does not match the digest in the row, or if the row has a
    /// value that this version does not write. The digest of a row shows only that
    /// it is unaltered.
    fn parse(self, body: Option<Vec<u8>>, dialect: Dialect) -> Option<StoredSnapshot> {
        let origin = self.origin.parse::<Target>().ok()?.origin;
        let cause = self.cause.as_deref().map(str::parse::<Cause>);
        let (result, stale) = match (self.result.as_str(), cause.transpose().ok()?) {
            ("unreachable", Some(cause)) => (AccessResult::Unreachable(cause), None),
            ("unavailable", stale) => (AccessResult::Unavailable, stale),
            ("successful", stale) => {
                let copy = self.parse_file(body?.into(), dialect, &origin)?;
                (AccessResult::Successful(Arc::new(copy)), stale)
            }
            _ => return None,
        };
        let hops = self.hops.as_deref().map(serde_json::from_str);
        let snapshot = Snapshot {
            key: CacheKey::of_scope(origin, &self.token)?,
            url: self.url,
            hops: hops.transpose().ok()?.unwrap_or_default(),
            status: self.status,
            fetched_at: self.fetched_at,
            expires_at: self.expires_at,
            result,
            stale,
            tdm: None,
        };
        Some(StoredSnapshot {
            snapshot: Arc::new(snapshot),
            failures: self.failures,
            led_to: self.led_to,
        })
    }

    fn parse_file(&self, bytes: Bytes, dialect: Dialect, origin: &Origin) -> Option<RobotsFile> {
        let field = |bytes: &Option<Vec<u8>>| {
            let value = bytes.as_deref().map(HeaderValue::from_bytes);
            value.transpose().ok()
        };
        let whole = self.whole?;
        let source = FileSource::new(origin, self.content_type.as_deref());
        let file = RobotsFile {
            content_type: self.content_type.clone(),
            validators: Validators {
                etag: field(&self.etag)?,
                last_modified: field(&self.last_modified)?,
            },
            // Only bytes are saved, so they are parsed with the current dialect.
            ..RobotsFile::from_source(RobotsBody { bytes, whole }, dialect, source)
        };
        (Some(file.digest) == self.body).then_some(file)
    }
}

impl From<&SavedBackOff> for BackOffRow {
    fn from(saved: &SavedBackOff) -> Self {
        let mut row = Self {
            host: saved.host.to_string(),
            until: saved.until,
            incidents: saved.incidents,
            quiet_since: saved.quiet_since,
            digest: Digest::default(),
        };
        row.digest = row.digest_of_columns();
        row
    }
}

/// Reads a row of [`BACK_OFFS`]; `None` if it was altered.
pub(super) fn read_back_off(row: &Row<'_>) -> rusqlite::Result<Option<SavedBackOff>> {
    let found = BackOffRow::read(row)?;
    let host = found.host.parse().ok().filter(|_| found.is_as_written(row));
    Ok(host.map(|host| SavedBackOff {
        host,
        until: found.until,
        incidents: found.incidents,
        quiet_since: found.quiet_since,
    }))
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::schema::open_in_memory;

    // Ours: the first contact with an origin always looks up its saved snapshot.
    #[test]
    fn the_snapshot_query_is_compiled_once() {
        let connection = open_in_memory().unwrap();
        for host in ["a.test", "b.test", "c.test"] {
            let target: Target = format!("http://{host}/").parse().unwrap();
            let key = CacheKey::new(target.origin, None);
            let found = load_snapshot(&connection, &key, Dialect::default()).unwrap();
            assert!(matches!(found, SnapshotLookup::Absent));
        }
        let statement = connection.prepare_cached(LOAD_SNAPSHOT).unwrap();
        assert_eq!(statement.get_status(StatementStatus::Run), 3);
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }
}
