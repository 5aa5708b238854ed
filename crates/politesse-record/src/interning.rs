//! Interning of dictionary values: finds the row of a value, or inserts it in the
//! transaction that first uses it.
//!
//! After a rollback everything is forgotten, because the inserted rows are gone.
//! Does not know what the values are part of.

use std::sync::{Arc, Weak};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::columns::blob;
use super::dictionary::{BoundedMap, DictionaryRef, DictionaryTable, POLICIES, SNAPSHOTS};
use super::snapshot_row::snapshot_values;
use politesse_decision::decide::Policy;
use politesse_decision::digest::{CanonicalBytes, Digest};
use politesse_decision::snapshot::Snapshot;

/// Approximate memory of an entry of a map, in bytes, without its encoding.
const REF_BYTES: usize = 64;

/// Dictionary rows known to be in the database.
#[derive(Debug, Default)]
pub(super) struct InternedValues {
    /// Rows by the encoding of their values.
    known: BoundedMap<Box<[u8]>, DictionaryRef>,
    /// Rows of policies by their digest, which a policy stores, so that it need not
    /// be encoded.
    policies: BoundedMap<Digest, DictionaryRef>,
    /// Rows of snapshots by memory address, because encoding a snapshot takes
    /// longer than writing the rest of a decision.
    snapshots: BoundedMap<usize, InternedSnapshot>,
    /// Buffer for the encoding of a value.
    value: CanonicalBytes,
}

/// Rows of a snapshot and of its origin.
#[derive(Debug, Clone, Copy)]
pub(super) struct SnapshotRows {
    pub(super) snapshot: DictionaryRef,
    pub(super) origin: DictionaryRef,
}

/// Rows of the snapshot at an address in memory.
#[derive(Debug, Clone)]
struct InternedSnapshot {
    rows: SnapshotRows,
    /// Keeps the allocator from giving the address to another snapshot.
    _snapshot: Weak<Snapshot>,
}

impl InternedValues {
    /// Finds or inserts the row of `table` with these values.
    pub(super) fn intern(
        &mut self,
        connection: &Connection,
        table: &DictionaryTable,
        values: &[ValueRef<'_>],
    ) -> rusqlite::Result<DictionaryRef> {
        table.encode(values.iter().copied(), &mut self.value);
        let bytes = self.value.as_bytes();
        if let Some(found) = self.known.get(bytes) {
            return Ok(found);
        }
        let row = find_or_insert(connection, table, Digest::of(bytes), values)?;
        self.known
            .insert(bytes.into(), row, bytes.len() + REF_BYTES);
        Ok(row)
    }

    /// Finds or inserts the row of `policy`.
    pub(super) fn policy(
        &mut self,
        connection: &Connection,
        policy: &Policy,
    ) -> rusqlite::Result<DictionaryRef> {
        let sha256 = policy.digest();
        if let Some(found) = self.policies.get(&sha256) {
            return Ok(found);
        }
        let row = find_or_insert(connection, &POLICIES, sha256, &[policy.json().into()])?;
        self.policies.insert(sha256, row, REF_BYTES);
        Ok(row)
    }

    /// Returns the rows of `snapshot` if it was interned before.
    pub(super) fn known_snapshot(&mut self, snapshot: &Arc<Snapshot>) -> Option<SnapshotRows> {
        let known = self.snapshots.get(&Arc::as_ptr(snapshot).addr())?;
        Some(known.rows)
    }

    /// Finds or inserts the row of `snapshot`, whose origin has the row `origin`. The
    /// body of the snapshot must have been written before.
    pub(super) fn snapshot(
        &mut self,
        connection: &Connection,
        snapshot: &Arc<Snapshot>,
        origin: DictionaryRef,
    ) -> rusqlite::Result<SnapshotRows> {
        // The row may exist because of an equal snapshot at another address: one
        // from before a restart, or one read by another process that shares the
        // cache.
        let columns = snapshot_values(snapshot);
        let values = columns.each_ref().map(ValueRef::from);
        let sha256 = SNAPSHOTS.digest_of(values, &mut self.value);
        let snapshot_row = find_or_insert(connection, &SNAPSHOTS, sha256, &values)?;
        let rows = SnapshotRows {
            snapshot: snapshot_row,
            origin,
        };
        let interned = InternedSnapshot {
            rows,
            _snapshot: Arc::downgrade(snapshot),
        };
        let address = Arc::as_ptr(snapshot).addr();
        self.snapshots.insert(address, interned, REF_BYTES);
        Ok(rows)
    }
}

/// Returns the row with the digest `sha256`, and inserts `values` if it does not exist.
fn find_or_insert(
    connection: &Connection,
    table: &DictionaryTable,
    sha256: Digest,
    values: &[ValueRef<'_>],
) -> rusqlite::Result<DictionaryRef> {
    // The maps are empty after a start and drop entries when they are full, so the row
    // may exist.
    let found = connection
        .prepare_cached(table.find)?
        .query_row([blob(sha256)], |row| row.get(0))
        .optional()?;
    let id = match found {
        Some(id) => id,
        None => {
            let digest = ValueRef::Blob(sha256.as_bytes());
            let columns = values.iter().copied().chain([digest]);
            let written = columns.map(ToSqlOutput::Borrowed);
            let mut statement = connection.prepare_cached(table.insert)?;
            statement.insert(params_from_iter(written))?
        }
    };
    Ok(DictionaryRef { id, sha256 })
}
