//! Interning by the writer: finds the row of a dictionary value, or writes one in
//! the transaction that first uses it.
//!
//! After a rollback all is forgotten, since rows that were written are gone. Does
//! not know what the values are parts of.

use std::sync::{Arc, Weak};

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::columns::blob;
use super::dictionary::{BoundedMap, DictionaryRef, DictionaryTable, POLICIES, SNAPSHOTS};
use super::snapshot_row::snapshot_values;
use crate::decision::decide::Policy;
use crate::decision::digest::{CanonicalBytes, Digest};
use crate::decision::snapshot::Snapshot;

/// Bytes that a reference to a value takes in a map, roughly.
const REF_BYTES: usize = 64;

/// Dictionary rows that are known to be in the database.
#[derive(Debug, Default)]
pub(super) struct InternedValues {
    /// Rows by the encoding of their values.
    known: BoundedMap<Box<[u8]>, DictionaryRef>,
    /// Rows of policies by their digest, which is at hand.
    policies: BoundedMap<Digest, DictionaryRef>,
    /// Rows of snapshots by address: to encode one takes longer than all the rest
    /// of a decision. The weak reference keeps the address from being given to
    /// another snapshot.
    snapshots: BoundedMap<usize, KnownSnapshot>,
    /// Room for the encoding of a value.
    value: CanonicalBytes,
}

#[derive(Debug, Clone)]
struct KnownSnapshot {
    _snapshot: Weak<Snapshot>,
    rows: SnapshotRows,
}

/// Rows of a snapshot and of its origin.
#[derive(Debug, Clone, Copy)]
pub(super) struct SnapshotRows {
    pub(super) snapshot: DictionaryRef,
    pub(super) origin: DictionaryRef,
}

impl InternedValues {
    /// Returns the row of the value that `encode` makes for `table`.
    pub(super) fn intern(
        &mut self,
        connection: &Connection,
        table: &DictionaryTable,
        encode: impl FnOnce(&mut CanonicalBytes),
    ) -> rusqlite::Result<DictionaryRef> {
        table.begin(&mut self.value);
        encode(&mut self.value);
        let bytes = self.value.as_bytes();
        if let Some(found) = self.known.get(bytes) {
            return Ok(found);
        }
        let sha256 = Digest::of(bytes);
        let row = find_or_insert(connection, table, sha256, || table.decode(bytes))?;
        self.known
            .insert(bytes.into(), row, bytes.len() + REF_BYTES);
        Ok(row)
    }

    /// Returns the row of `policy`.
    pub(super) fn policy(
        &mut self,
        connection: &Connection,
        policy: &Policy,
    ) -> rusqlite::Result<DictionaryRef> {
        let sha256 = policy.digest();
        if let Some(found) = self.policies.get(&sha256) {
            return Ok(found);
        }
        let values = || vec![policy.json().to_owned().into()];
        let row = find_or_insert(connection, &POLICIES, sha256, values)?;
        self.policies.insert(sha256, row, REF_BYTES);
        Ok(row)
    }

    /// Finds the rows of `snapshot`, if they are known.
    pub(super) fn known_snapshot(&mut self, snapshot: &Arc<Snapshot>) -> Option<SnapshotRows> {
        let known = self.snapshots.get(&Arc::as_ptr(snapshot).addr())?;
        Some(known.rows)
    }

    /// Finds or writes the row of `snapshot`, whose columns are `values` and whose
    /// origin is in the row `origin`. Its body must be there.
    pub(super) fn snapshot(
        &mut self,
        connection: &Connection,
        snapshot: &Arc<Snapshot>,
        origin: DictionaryRef,
    ) -> rusqlite::Result<SnapshotRows> {
        // The same answer may be in memory twice: after a restart, and where two
        // processes of a cache have read it.
        let values = Vec::from(snapshot_values(snapshot));
        let sha256 = SNAPSHOTS.digest_of(&values, &mut self.value);
        let snapshot_row = find_or_insert(connection, &SNAPSHOTS, sha256, || values)?;
        let rows = SnapshotRows {
            snapshot: snapshot_row,
            origin,
        };
        let known = KnownSnapshot {
            _snapshot: Arc::downgrade(snapshot),
            rows,
        };
        let address = Arc::as_ptr(snapshot).addr();
        self.snapshots.insert(address, known, REF_BYTES);
        Ok(rows)
    }
}

fn find_or_insert(
    connection: &Connection,
    table: &DictionaryTable,
    sha256: Digest,
    values: impl FnOnce() -> Vec<Value>,
) -> rusqlite::Result<DictionaryRef> {
    // A start forgets all values, and a map forgets some, so the row may be
    // there.
    let found = connection
        .prepare_cached(table.find)?
        .query_row([blob(sha256)], |row| row.get(0))
        .optional()?;
    let id = match found {
        Some(id) => id,
        None => {
            let values = values().into_iter().chain([blob(sha256)]);
            let mut statement = connection.prepare_cached(table.insert)?;
            statement.insert(params_from_iter(values))?
        }
    };
    Ok(DictionaryRef { id, sha256 })
}
