//! State that a start takes over from the previous process: the last that is
//! known of each robots.txt (table `kept`), and the long back-offs (table
//! `back_off`).
//!
//! State is no evidence and decides nothing: it spares sites requests. So what
//! cannot be saved is given up, and a row that is not as it was written counts
//! as absent; the site is asked again. Both are counted.
//!
//! Does not know when state is saved, nor for how long it is good.

use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use http::HeaderValue;
use jiff::Timestamp;
use rusqlite::types::{FromSql, Value};
use rusqlite::{Connection, OptionalExtension, Row};

use super::columns::{ColumnReader, is_as_written, read_digest, with_digest};
use super::pages::KeyedTable;
use super::snapshot_row::{SNAPSHOT_COLUMNS, snapshot_values};
use crate::pace::back_off::SavedBackOff;
use politesse_decision::access::Cause;
use politesse_decision::digest::Digest;
use politesse_decision::snapshot::{
    AccessResult, CacheKey, RobotsBody, RobotsFile, Snapshot, StoredSnapshot, Validators,
};
use politesse_robots::origin::{Origin, Target};
use politesse_robots::{Dialect, FileSource};

/// Columns that the digest of a saved snapshot is over: those of the snapshot,
/// and six more.
pub(super) const SAVED_SNAPSHOT_COLUMNS: usize = SNAPSHOT_COLUMNS + 6;

/// Columns that the digest of a back-off is over.
pub(super) const BACK_OFF_COLUMNS: usize = 4;

/// Position of the token among the values of a snapshot; here it is the scope of the key.
const TOKEN_AT: usize = 1;

/// Position of the body in [`LOAD_SNAPSHOT`], after the digest of the row.
const BODY_AT: usize = SAVED_SNAPSHOT_COLUMNS + 1;

/// Puts [`snapshot_row_values`] in place of the row with the same key.
pub(super) const SAVE_SNAPSHOT: &str = "
REPLACE INTO kept (origin, token, url, status, fetched_us, expires_us, result,
  cause, body, hops, charset, whole, content_type, etag, last_modified, failures,
  led_to, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// Finds the row of an origin and a token, with its body. No join: SQLite (3.54) would
/// compile the statement anew for each value that is bound.
const LOAD_SNAPSHOT: &str = "
SELECT k.origin, k.token, k.url, k.status, k.fetched_us, k.expires_us, k.result,
       k.cause, k.body, k.hops, k.charset, k.whole, k.content_type, k.etag,
       k.last_modified, k.failures, k.led_to, k.digest,
       (SELECT b.body FROM body AS b WHERE b.sha256 = k.body)
FROM kept AS k WHERE k.origin = ? AND k.token = ?";

/// All saved snapshots, without bodies.
pub(super) const SAVED_SNAPSHOTS: KeyedTable = KeyedTable {
    select: "
SELECT origin, token, url, status, fetched_us, expires_us, result, cause, body,
       hops, charset, whole, content_type, etag, last_modified, failures, led_to, digest
FROM kept",
    key: &["origin", "token"],
};

/// Puts [`back_off_values`] in place of the row of the same host.
pub(super) const SAVE_BACK_OFF: &str = "
REPLACE INTO back_off (host, until_us, incidents, since_us, digest)
VALUES (?, ?, ?, ?, ?)";

/// All saved back-offs.
pub(super) const BACK_OFFS: KeyedTable = KeyedTable {
    select: "
SELECT host, until_us, incidents, since_us, digest FROM back_off",
    key: &["host"],
};

/// Makes the values of [`SAVE_SNAPSHOT`], the digest last.
pub(super) fn snapshot_row_values(saved: &StoredSnapshot) -> Vec<Value> {
    let mut values = Vec::from(snapshot_values(&saved.snapshot));
    // Two nulls would be two keys: '' stands for "serves every crawler".
    values[TOKEN_AT] = Value::Text(saved.snapshot.key.scope());
    let copy = saved.snapshot.file();
    let validators = copy.map(|copy| &copy.validators);
    let bytes = |field: Option<&HeaderValue>| field.map(|value| value.as_bytes().to_vec());
    values.extend([
        copy.map(|copy| copy.whole).into(),
        copy.and_then(|copy| copy.content_type.clone()).into(),
        bytes(validators.and_then(|known| known.etag.as_ref())).into(),
        bytes(validators.and_then(|known| known.last_modified.as_ref())).into(),
        saved.failures.into(),
        saved.led_to.clone().into(),
    ]);
    with_digest(values)
}

/// Result of [`load_snapshot`].
#[derive(Debug)]
pub(super) enum SnapshotLookup {
    /// The snapshot is there.
    Saved(StoredSnapshot),
    /// There is no row.
    Absent,
    /// There is a row that is not as it was written, or its body is not.
    Altered,
}

/// Finds the snapshot that was saved for `key`, and parses its file by
/// `dialect`.
pub(super) fn load_snapshot(
    connection: &Connection,
    key: &CacheKey,
    dialect: Dialect,
) -> rusqlite::Result<SnapshotLookup> {
    // Copied, so that the read transaction ends before a large file is parsed.
    let row = connection
        .prepare_cached(LOAD_SNAPSHOT)?
        .query_row((key.origin.to_string(), key.scope()), copy_values)
        .optional()?;
    let Some(values) = row else {
        return Ok(SnapshotLookup::Absent);
    };
    let saved = values.and_then(|values| parse_snapshot(values, dialect));
    Ok(saved.map_or(SnapshotLookup::Altered, SnapshotLookup::Saved))
}

/// Copies the values of a row of [`LOAD_SNAPSHOT`], the body last; `None` if it
/// is not as it was written.
fn copy_values(row: &Row<'_>) -> rusqlite::Result<Option<Vec<Value>>> {
    if !is_as_written(row, SAVED_SNAPSHOT_COLUMNS)? {
        return Ok(None);
    }
    let columns = (0..SAVED_SNAPSHOT_COLUMNS).chain([BODY_AT]);
    let values = columns.map(|column| row.get(column).unwrap_or(Value::Null));
    Ok(Some(values.collect()))
}

/// Makes the snapshot of the values of a row, its file parsed by `dialect`.
///
/// `None` if the body has not the digest that the row names, or if there is a
/// value that this version does not write: the digest of a row only shows that
/// nobody changed it.
fn parse_snapshot(values: Vec<Value>, dialect: Dialect) -> Option<StoredSnapshot> {
    let mut values = SnapshotValues(values.into_iter());
    let origin = values.take::<String>()?.parse::<Target>().ok()?.origin;
    let key = CacheKey::of_scope(origin, &values.take::<String>()?)?;
    let url = values.take()?;
    let status = values.take()?;
    let (fetched_at, expires_at) = (values.time()?, values.time()?);
    let result: String = values.take()?;
    let cause = values.cause()?;
    let body_digest: Option<Vec<u8>> = values.take()?;
    let hops = values.hops()?;
    // Follows from the Content-Type.
    let _charset: Option<String> = values.take()?;
    let file = SavedFile {
        digest: body_digest.as_deref().and_then(read_digest),
        whole: values.take()?,
        content_type: values.take()?,
        validators: Validators {
            etag: values.field()?,
            last_modified: values.field()?,
        },
    };
    let failures = values.take()?;
    let led_to = values.take()?;
    let (result, stale) = match (result.as_str(), cause) {
        ("unreachable", Some(cause)) => (AccessResult::Unreachable(cause), None),
        ("unavailable", stale) => (AccessResult::Unavailable, stale),
        ("successful", stale) => {
            let body: Vec<u8> = values.take()?;
            let copy = file.parse(Bytes::from(body), dialect, &key.origin)?;
            (AccessResult::Successful(Arc::new(copy)), stale)
        }
        _ => return None,
    };
    let snapshot = Snapshot {
        key,
        url,
        hops,
        status,
        fetched_at,
        expires_at,
        result,
        stale,
    };
    Some(StoredSnapshot {
        snapshot: Arc::new(snapshot),
        failures,
        led_to,
    })
}

/// Columns of a file, but for its body.
struct SavedFile {
    digest: Option<Digest>,
    whole: Option<bool>,
    content_type: Option<String>,
    validators: Validators,
}

impl SavedFile {
    fn parse(self, body: Bytes, dialect: Dialect, origin: &Origin) -> Option<RobotsFile> {
        let body = RobotsBody {
            bytes: body,
            whole: self.whole?,
        };
        let source = FileSource::new(origin, self.content_type.as_deref());
        let file = RobotsFile {
            content_type: self.content_type,
            validators: self.validators,
            // Only bytes are saved. They are read by the dialect of today.
            ..RobotsFile::from_source(body, dialect, source)
        };
        (Some(file.digest) == self.digest).then_some(file)
    }
}

/// Values of a row that are still to be read, from left to right. Strict: `None`
/// for a value of another type.
struct SnapshotValues(vec::IntoIter<Value>);

impl SnapshotValues {
    fn take<T: FromSql>(&mut self) -> Option<T> {
        T::column_result((&self.0.next()?).into()).ok()
    }

    fn time(&mut self) -> Option<Timestamp> {
        Timestamp::from_microsecond(self.take()?).ok()
    }

    fn cause(&mut self) -> Option<Option<Cause>> {
        let word: Option<String> = self.take()?;
        word.map(|word| word.parse()).transpose().ok()
    }

    fn hops(&mut self) -> Option<Vec<String>> {
        match self.take::<Option<String>>()? {
            Some(list) => serde_json::from_str(&list).ok(),
            None => Some(Vec::new()),
        }
    }

    fn field(&mut self) -> Option<Option<HeaderValue>> {
        let bytes: Option<Vec<u8>> = self.take()?;
        let field = bytes.map(|bytes| HeaderValue::from_bytes(&bytes));
        field.transpose().ok()
    }
}

/// Makes the values of [`SAVE_BACK_OFF`], the digest last.
pub(super) fn back_off_values(saved: &SavedBackOff) -> Vec<Value> {
    with_digest(vec![
        saved.host.to_string().into(),
        saved.until.as_microsecond().into(),
        saved.incidents.into(),
        saved.quiet_since.as_microsecond().into(),
    ])
}

/// Reads a row of [`BACK_OFFS`]; `None` if it is not as it was written.
pub(super) fn read_back_off(row: &Row<'_>) -> rusqlite::Result<Option<SavedBackOff>> {
    if !is_as_written(row, BACK_OFF_COLUMNS)? {
        return Ok(None);
    }
    let mut columns = ColumnReader::new(row);
    let host = columns.word()?.parse().ok();
    let until = columns.time()?;
    let incidents = columns.number()?;
    let quiet_since = columns.time()?;
    Ok(host.zip(incidents).map(|(host, incidents)| SavedBackOff {
        host,
        until,
        incidents,
        quiet_since,
    }))
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::audit::schema::open_in_memory;

    // Ours: each first contact with an origin looks for what is saved of it.
    #[test]
    fn the_look_up_of_a_snapshot_is_compiled_once() {
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
