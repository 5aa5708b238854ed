//! Columns of a snapshot in the dictionary `snapshot`. Two of them have the same
//! form in the table `kept`.
//!
//! Does not know which decisions rest on a snapshot.

use rusqlite::types::Value;

use super::columns::{ColumnReader, blob, json_list};
use politesse_decision::record::{RecordedSnapshot, result_word};
use politesse_decision::snapshot::Snapshot;

/// Number of the columns.
const SNAPSHOT_COLUMNS: usize = 12;

/// Returns the values of the columns: origin, token, URL, status, times of fetch
/// and expiry, result, cause, SHA-256 of the body, hops, declared charset, answer
/// about the TDM file.
pub(super) fn snapshot_values(snapshot: &Snapshot) -> [Value; SNAPSHOT_COLUMNS] {
    let file = snapshot.file();
    let charset = file.and_then(|file| file.robots.source().charset);
    [
        snapshot.key.origin.to_string().into(),
        snapshot.key.token.as_ref().map(ToString::to_string).into(),
        snapshot.url.clone().into(),
        snapshot.status.into(),
        snapshot.fetched_at.as_microsecond().into(),
        snapshot.expires_at.as_microsecond().into(),
        result_word(&snapshot.result).to_owned().into(),
        snapshot
            .cause()
            .map(|cause| cause.as_str().to_owned())
            .into(),
        file.map_or(Value::Null, |file| blob(file.digest)),
        hops_text(snapshot).into(),
        charset.map(|charset| charset.to_string()).into(),
        snapshot.tdm.as_ref().map(|tdm| tdm.json()).into(),
    ]
}

/// Returns the column value of the redirects; `None` without redirects.
pub(super) fn hops_text(snapshot: &Snapshot) -> Option<String> {
    (!snapshot.hops.is_empty()).then(|| json_list(&snapshot.hops))
}

/// Reads the columns of a snapshot.
pub(super) fn read_snapshot(columns: &mut ColumnReader<'_>) -> rusqlite::Result<RecordedSnapshot> {
    Ok(RecordedSnapshot {
        origin: columns.field()?,
        token: columns.field()?,
        url: columns.field()?,
        status: columns.field()?,
        fetched_at: columns.field()?,
        expires_at: columns.field()?,
        result: columns.field()?,
        cause: columns.field()?,
        sha256: columns.field()?,
        hops: columns.list()?,
        charset: columns.field()?,
        tdm: columns.field()?,
    })
}
